"""Outages and what is made up for: all of it within its bounds, each slot once, in order."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from unittest.mock import patch

import pytest

from lamplighter.core.catch_up import CatchUp
from lamplighter.core.lifecycle import State
from lamplighter.core.model import Execution, Job, MisfirePolicy, OnDeadline
from lamplighter.core.outcome import Failed, Outcome, Succeeded
from lamplighter.core.retry import Failure, RetryPolicy
from lamplighter.core.retry import Kind as FailureKind
from lamplighter.memory import MemoryWorld, VirtualClock
from lamplighter.ports import Ports
from lamplighter.services import manage, timers
from lamplighter.services.execute import Claimed
from lamplighter.sim.faults import (
    Call,
    Crash,
    When,
    calls_of,
    every_crash,
    every_strike,
    interposed,
    pause_at,
    survives,
)
from lamplighter.sim.invariants import violations
from lamplighter.sim.system import System
from tests.support import partition_work
from tests.support.jobs import OWNER, created, every, in_, new_job
from tests.support.strikes import some_of

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
START = datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)
FIRE_ALL = MisfirePolicy.FIRE_ALL
TEN = CatchUp(most=10, spread=60 * SECOND)


def a_system() -> System:
    system = System(world=MemoryWorld(clock=VirtualClock(START), shards=4, partitions=1))
    system.run_for(MINUTE)
    return system


def after_an_outage(
    *, catch_up: CatchUp = TEN, misfire: MisfirePolicy = FIRE_ALL, minutes: int = 25
) -> tuple[System, Job]:
    """A job of every minute, whose dispatcher has been down for a while."""
    system = a_system()
    job = created(
        system.ports, new_job(schedule=every("1 minute"), misfire=misfire, catch_up=catch_up)
    ).job
    assert job is not None
    system.run_for(3 * MINUTE)
    system.ticking = False
    system.run_for(minutes * MINUTE)
    system.ticking = True
    return system, job


def slots_run(system: System) -> Sequence[datetime]:
    return [run.run_at for run in system.runs]


def missed(system: System, job: Job) -> Sequence[datetime]:
    """The slots that are missed now: later than those that were sent before the outage."""
    armed = min(row.run_at for row in waiting(system))
    return [*job.schedule.between(armed, system.world.now() - 60 * SECOND)]


def waiting(system: System) -> Sequence[Execution]:
    rows = system.world.tables.executions.values()
    return [row for row in rows if row.state is State.SCHEDULED]


def dispatcher(ports: Ports) -> object:
    return partition_work.dispatch(ports, 0, owner="doomed")


def test_all_are_run_the_latest_so_many_oldest_first_and_spread() -> None:
    system, job = after_an_outage()
    expected, began = missed(system, job)[-10:], system.world.now()

    dispatcher(system.ports)
    system.run_for(10 * MINUTE)

    late = [run for run in system.runs if run.run_at in expected]
    assert [run.run_at for run in late] == expected
    waits = [run.started_at - run.due_at for run in late]
    assert all(timedelta(0) <= wait <= SECOND for wait in waits)
    starts = [run.started_at for run in late]
    apart = [later - start for start, later in pairwise(starts)]
    # The backlog's rate holds up the first of them for some milliseconds.
    assert all(abs(one - 6 * SECOND) <= timedelta(milliseconds=100) for one in apart)
    assert starts[0] - began <= SECOND
    assert [*violations(system)] == []


def test_what_is_beyond_the_cap_is_told_of_with_its_bounds() -> None:
    """S1-O3: dropped in bulk, without a row for each, and counted with the first and the last."""
    system, job = after_an_outage()
    slots = missed(system, job)

    dispatcher(system.ports)

    (gap,) = system.world.counts.gaps
    # The first of them has a row, which says why it was skipped.
    assert (gap.first, gap.last, gap.count) == (slots[1], slots[-11], len(slots) - 11)
    assert system.world.tables.executions[job.occurrence_id(slots[0])].state is State.SKIPPED


def test_the_sweep_that_follows_a_catch_up_does_not_send_it_once_more() -> None:
    system, _ = after_an_outage()

    system.run_for(10 * MINUTE)

    assert system.world.counts.events["recovered"] == 0


@pytest.mark.strikes
def test_killed_anywhere_a_dispatcher_leaves_each_slot_to_run_once_in_order() -> None:
    found = calls_of(after_an_outage()[0].ports, dispatcher)

    for strike in some_of(every_crash(found)):
        system, job = after_an_outage()
        slots = missed(system, job)
        survives(system.ports, dispatcher, strike)

        system.run_for(45 * MINUTE)

        assert [*violations(system)] == [], strike
        late = [at for at in slots_run(system) if at in slots]
        # The next owner decides a minute later when nothing had been decided: then one has
        # been missed more.
        assert late in (list(slots[-10:]), list(slots[-9:])), strike


@pytest.mark.strikes
def test_two_dispatchers_one_of_them_stalled_run_each_slot_once() -> None:
    """S2-L2, S1-L5: two who both believe that they own a partition."""
    found = calls_of(after_an_outage()[0].ports, dispatcher)

    for strike in some_of(every_strike(found, whens=(When.BEFORE, When.AFTER))):
        system, job = after_an_outage()
        slots = missed(system, job)
        stall = pause_at(strike, partial(system.run_for, 5 * MINUTE))
        dispatcher(interposed(system.ports, stall))

        system.run_for(45 * MINUTE)

        assert [*violations(system)] == [], strike
        late = [at for at in slots_run(system) if at in slots]
        assert len(late) == len({*late}), strike
        assert {*slots[-5:]} <= {*late}, strike


@pytest.mark.parametrize("misfire", MisfirePolicy)
def test_a_longer_outage_costs_no_more_writes(misfire: MisfirePolicy) -> None:
    def writes(minutes: int) -> int:
        system, _ = after_an_outage(misfire=misfire, minutes=minutes)
        found = calls_of(system.ports, dispatcher)
        return sum(call.method in {"put", "point", "end", "send"} for call in found)

    assert writes(120) == writes(24 * 60)


# Rows that are put where the sweep has been: by a caller that was stalled for minutes, and
# then dies before it sends them. Nobody comes again.


def stalled_then_killed(system: System, method: str) -> Callable[[Call, When], None]:
    """The create's write comes ten minutes late; then the process dies at a call."""
    stalled: list[Call] = []

    def hook(call: Call, when: When) -> None:
        if call.method == "create" and when is When.BEFORE:
            system.run_for(10 * MINUTE)
            stalled.append(call)
        if stalled and call.method == method and when is When.BEFORE:
            raise Crash

    return hook


def create_that_is_killed_before_it_sends(misfire: MisfirePolicy) -> System:
    system = a_system()
    new = new_job(schedule=every("1 minute"), misfire=misfire)
    with suppress(Crash):
        created(interposed(system.ports, stalled_then_killed(system, "send")), new)
    return system


@pytest.mark.parametrize("misfire", [FIRE_ALL, MisfirePolicy.FIRE_ONCE])
def test_what_was_armed_behind_the_sweep_and_never_sent_is_found(misfire: MisfirePolicy) -> None:
    """P7: what is put where the sweep has been gets a check first."""
    system = create_that_is_killed_before_it_sends(misfire)
    armed = {row.run_at for row in waiting(system) if row.run_at <= system.world.now()}
    assert len(armed) == (10 if misfire is FIRE_ALL else 2)

    system.run_for(30 * MINUTE)

    assert [*violations(system)] == []
    assert armed <= {*slots_run(system)}


@pytest.mark.parametrize("misfire", [FIRE_ALL, MisfirePolicy.FIRE_ONCE])
def test_without_its_check_it_would_be_lost(
    misfire: MisfirePolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timers, "keep_in_sight", lambda *_: None)
    monkeypatch.setattr(timers, "arm_chains", partial(timers.arm_chains, swept=lambda *_: False))
    system = create_that_is_killed_before_it_sends(misfire)

    system.run_for(30 * MINUTE)

    assert any(found.startswith("lost") for found in violations(system))


# The deadline.


def keep_workers_down(system: System, duration: timedelta) -> None:
    """Nobody gets anywhere with a message for a while; whatever was sent comes again."""
    with patch.object(System, "_process"):
        system.run_for(duration)


@pytest.mark.parametrize(
    ("on_deadline", "state"),
    [(OnDeadline.DEAD_LETTER, State.EXPIRED), (OnDeadline.SKIP, State.SKIPPED)],
)
def test_what_waited_for_a_worker_past_its_deadline_does_not_start(
    on_deadline: OnDeadline, state: State
) -> None:
    """S2-M5: it expires instead of running, as its job says."""
    system = a_system()
    new = new_job(run_at=in_(system.ports, 30), deadline=5 * MINUTE, on_deadline=on_deadline)
    first = created(system.ports, new).first
    others = created(system.ports, new_job(run_at=in_(system.ports, 30))).first
    keep_workers_down(system, 6 * MINUTE)

    system.run_for(10 * MINUTE)

    rows = system.world.tables.executions
    assert [run.execution_id for run in system.runs] == [others.id]
    assert rows[first.id].state is state
    assert (rows[first.id].attempts, rows[others.id].state) == ((), State.SUCCEEDED)


def test_the_sweep_ends_what_was_lost_until_its_deadline() -> None:
    system = a_system()
    new = new_job(run_at=in_(system.ports, 30), deadline=5 * SECOND)
    first = created(system.ports, new).first
    system.world.queue.purge()

    system.run_for(5 * MINUTE)

    assert system.world.tables.executions[first.id].state is State.EXPIRED
    assert not system.runs
    assert system.world.counts.events["finished EXPIRED"] == 1


def test_dispatch_ends_what_an_outage_kept_until_its_deadline() -> None:
    system = a_system()
    new = new_job(run_at=in_(system.ports, 600), deadline=MINUTE)
    first = created(system.ports, new).first
    system.ticking = False
    system.run_for(20 * MINUTE)
    system.ticking = True

    system.run_for(5 * MINUTE)

    assert system.world.tables.executions[first.id].state is State.EXPIRED
    assert not system.runs


def test_an_occurrence_that_expires_does_not_end_its_chain() -> None:
    system = a_system()
    created(system.ports, new_job(schedule=every("10 minutes"), deadline=MINUTE))
    keep_workers_down(system, 25 * MINUTE)

    system.run_for(20 * MINUTE)

    states = [row.state for row in system.world.tables.executions.values()]
    assert states.count(State.EXPIRED) == 2
    assert states.count(State.SUCCEEDED) == 2
    assert [*violations(system)] == []


def test_the_deadline_is_about_the_first_start() -> None:
    system = a_system()
    system.handler = fail_first
    retry = RetryPolicy(base_seconds=600)
    new = new_job(run_at=in_(system.ports, 30), deadline=MINUTE, retry=retry)
    first = created(system.ports, new).first

    system.run_for(timedelta(hours=1))

    row = system.world.tables.executions[first.id]
    assert (row.state, len(row.attempts)) == (State.SUCCEEDED, 2)


def fail_first(claimed: Claimed) -> Outcome:
    if claimed.execution.attempt > 1:
        return Succeeded(result="1")
    return Failed(failure=Failure(kind=FailureKind.RETRYABLE, type="ValueError", message="no"))


def test_an_edit_that_lengthens_the_deadline_is_heard_by_the_claim_after_it() -> None:
    system = a_system()
    new = new_job(schedule=every("10 minutes"), deadline=5 * MINUTE)
    job = created(system.ports, new).job
    assert job is not None
    keep_workers_down(system, 16 * MINUTE)

    manage.edit(
        system.ports,
        OWNER,
        job.id,
        lambda job: replace(job, spec=replace(job.spec, deadline=60 * MINUTE)),
    )
    system.run_for(MINUTE)

    assert len(system.runs) == 1
