"""The visit of a watch, killed and stalled between every two of its calls (P7)."""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

import pytest

from lamplighter.core.buckets import watch_place, watch_position
from lamplighter.core.errors import Unavailable
from lamplighter.core.limits import WATCH_AGAIN, WATCH_FIRST
from lamplighter.core.model import Job, JobStatus, MisfirePolicy, OverlapPolicy
from lamplighter.ports import Ports
from lamplighter.services import manage
from lamplighter.sim.faults import (
    Call,
    When,
    calls_of,
    every_crash,
    every_strike,
    interposed,
    pause_at,
    survives,
    unavailable_at,
)
from lamplighter.sim.invariants import violations
from lamplighter.sim.system import System
from tests.services.test_completeness import forget, slots_of
from tests.services.test_watch import (
    FIRST,
    MINUTE,
    START,
    a_job,
    a_system,
    kill,
    told,
    watches,
)
from tests.support import partition_work
from tests.support.jobs import OWNER, created, every, new_job
from tests.support.strikes import some_of

UseCase = Callable[[Ports], object]
Ready = Callable[[], tuple[System, Job, UseCase]]


def due(
    system: System, job: Job, *, before: Callable[[], object] = lambda: None, keep: bool = False
) -> tuple[System, Job, UseCase]:
    """The next sweep comes to a watch of the job, brought forward to spare an hour; or to two."""
    system.run_until(job.since + WATCH_FIRST + MINUTE)
    (first,) = watches(system, job)
    at = watch_place(job.id, system.world.now() + 11 * MINUTE, WATCH_AGAIN)
    if not keep:
        del system.world.tables.pointers[first.position]
        for positions in system.world.tables.buckets.values():
            positions.discard(first.position)
    sooner = replace(first, at=at, position=watch_position(job.id, at))
    system.ports.executions.point([sooner])
    before()
    system.run_until(at - MINUTE)
    system.ticking = False
    system.run_for(3 * MINUTE)
    partition_work.dispatch(system.ports, 0, owner="dispatcher")
    system.ticking = True
    return system, job, partial(partition_work.sweep, partition=0, owner="doomed")


def a_healthy_job() -> tuple[System, Job, UseCase]:
    system = a_system()
    return due(system, a_job(system))


def a_job_that_is_seldom_due() -> tuple[System, Job, UseCase]:
    system = a_system()
    return due(system, a_job(system, every("1 hour")))


def a_job_with_two_watches() -> tuple[System, Job, UseCase]:
    system = a_system()
    return due(system, a_job(system), keep=True)


def a_paused_job() -> tuple[System, Job, UseCase]:
    system = a_system()
    job = a_job(system)
    return due(system, job, before=lambda: manage.pause(system.ports, OWNER, job.id))


def dead(misfire: MisfirePolicy, overlap: OverlapPolicy) -> tuple[System, Job, UseCase]:
    system = a_system()
    job = a_job(system, misfire=misfire, overlap=overlap)
    return due(system, job, before=lambda: kill(system, job))


def a_dead_chain() -> tuple[System, Job, UseCase]:
    return dead(MisfirePolicy.FIRE_ONCE, OverlapPolicy.ALLOW)


def a_dead_chain_that_is_made_up_for() -> tuple[System, Job, UseCase]:
    return dead(MisfirePolicy.FIRE_ALL, OverlapPolicy.SKIP)


def a_dead_chain_that_is_passed_over() -> tuple[System, Job, UseCase]:
    return dead(MisfirePolicy.SKIP, OverlapPolicy.ALLOW)


def a_lost_row() -> tuple[System, Job, UseCase]:
    system = a_system()
    job = a_job(system)

    def lose_one() -> None:
        forget(system, job.occurrence_id(slots_of(job, START, system.world.now())[2]))
        # As if it had never run: the table is all that tells.
        system.runs.clear()

    return due(system, job, before=lose_one)


ALL: Sequence[Ready] = [
    a_healthy_job,
    a_job_that_is_seldom_due,
    a_job_with_two_watches,
    a_paused_job,
    a_dead_chain,
    a_dead_chain_that_is_made_up_for,
    a_dead_chain_that_is_passed_over,
    a_lost_row,
]
DEAD = {a_dead_chain, a_dead_chain_that_is_made_up_for, a_dead_chain_that_is_passed_over}
MISSING = {*DEAD, a_lost_row}

by_scenario = pytest.mark.parametrize(
    "ready", ALL, ids=lambda ready: ready.__name__.replace("_", " ")
)


def calls(ready: Ready) -> Sequence[Call]:
    system, _, use_case = ready()
    found = calls_of(system.ports, use_case)
    assert [call for call in found if call.method == "point"] or ready is a_paused_job
    return found


def holds(ready: Ready, system: System, job: Job) -> None:
    """What must be so in the end, whatever happened at the visit."""
    system.run_for(10 * MINUTE)
    assert [*violations(system)] == []
    them = watches(system, job)
    if len(them) > 1:
        system.run_until(max(one.at for one in them) + 3 * MINUTE)
    assert len(watches(system, job)) == (0 if ready is a_paused_job else 1)
    missed, recovered = told(system)
    assert (missed > 0) == (ready in MISSING)
    assert recovered > 0 or ready not in DEAD
    ran = Counter(run.execution_id for run in system.runs)
    assert [id for id, times in ran.items() if times > 1] == []


@by_scenario
def test_undisturbed_it_keeps_every_promise(ready: Ready) -> None:
    system, job, use_case = ready()

    use_case(system.ports)
    holds(ready, system, job)
    assert (told(system)[1] > 0) == (ready in DEAD)


@pytest.mark.strikes
@by_scenario
def test_killed_anywhere_nothing_stays_unwatched_nor_dead(ready: Ready) -> None:
    for strike in some_of(every_crash(calls(ready))):
        system, job, use_case = ready()
        survives(system.ports, use_case, strike)

        holds(ready, system, job)


@pytest.mark.strikes
@by_scenario
def test_a_call_of_unknown_fate_leaves_the_visit_to_the_next_owner(ready: Ready) -> None:
    for strike in some_of(every_strike(calls(ready), whens=(When.BEFORE, When.AFTER))):
        system, job, use_case = ready()
        with suppress(Unavailable):
            use_case(interposed(system.ports, unavailable_at(strike)))

        holds(ready, system, job)


@pytest.mark.strikes
@by_scenario
def test_paused_past_its_lease_it_doubles_nothing(ready: Ready) -> None:
    for strike in some_of(every_strike(calls(ready), whens=(When.BEFORE, When.AFTER))):
        system, job, use_case = ready()
        use_case(interposed(system.ports, pause_at(strike, partial(system.run_for, 5 * MINUTE))))

        holds(ready, system, job)


@pytest.mark.parametrize("change", ["create", "resume", "edit"])
def test_an_accepted_job_is_watched_wherever_its_maker_died(change: str) -> None:
    """P7: before a job is there, so is what will look at its ledger."""

    def ready() -> tuple[System, UseCase]:
        system = a_system()
        if change == "create":
            return system, lambda ports: created(ports, new_job(schedule=every("1 minute")))
        job = a_job(system)
        manage.pause(system.ports, OWNER, job.id)
        system.run_for(FIRST)
        assert watches(system, job) == []
        if change == "resume":
            return system, lambda ports: manage.resume(ports, OWNER, job.id)
        return system, lambda ports: manage.edit(
            ports, OWNER, job.id, lambda old: replace(old, status=JobStatus.ACTIVE, name="new")
        )

    system, use_case = ready()
    for strike in every_crash(calls_of(system.ports, use_case)):
        system, use_case = ready()
        survives(system.ports, use_case, strike)

        assert [one for one in violations(system) if one.startswith("unwatched")] == []
        system.run_for(30 * MINUTE)
        assert [*violations(system)] == []
        assert told(system)[0] == 0
