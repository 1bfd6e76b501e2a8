"""Every use case killed before, during and after each of its port calls: nothing is lost.

After the crash the rest of the system runs on: other schedulers, other workers, the clients
that got no answer do not come back. Then every promise must hold.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from lamplighter.core.errors import Unavailable
from lamplighter.core.lifecycle import State
from lamplighter.core.model import Job
from lamplighter.core.outcome import Failed, Outcome, Succeeded
from lamplighter.core.retry import Failure, RetryPolicy
from lamplighter.core.retry import Kind as FailureKind
from lamplighter.core.schedule import parse
from lamplighter.memory import MemoryWorld, VirtualClock
from lamplighter.ports import Ports
from lamplighter.services import dispatch, execute, manage, sweep, tick
from lamplighter.services.execute import Claimed
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
from tests.support.jobs import OWNER, created, every, in_, new_job

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
# Longer than the longest back-off of a scenario and the checks that may follow it.
RECOVERY = timedelta(minutes=45)
START = datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)

UseCase = Callable[[Ports], object]


Ready = Callable[[], tuple[System, UseCase]]


def a_system() -> System:
    """Two partitions, so that there is more than one, and a first tick."""
    world = MemoryWorld(clock=VirtualClock(START), shards=4, partitions=2)
    system = System(world=world)
    system.run_for(MINUTE)
    return system


def create_due_soon() -> tuple[System, UseCase]:
    system = a_system()
    return system, lambda ports: created(ports, new_job(run_at=in_(ports, 5)))


def create_due_later() -> tuple[System, UseCase]:
    system = a_system()
    return system, lambda ports: created(ports, new_job(run_at=in_(ports, 1000)))


def create_with_a_large_payload() -> tuple[System, UseCase]:
    system = a_system()
    payload = '"' + "x" * 2000 + '"'
    return system, lambda ports: created(ports, new_job(run_at=in_(ports, 5), payload=payload))


def create_recurring() -> tuple[System, UseCase]:
    system = a_system()
    return system, lambda ports: created(ports, new_job(schedule=every("1 minute")))


def dispatch_a_mixed_page() -> tuple[System, UseCase]:
    """One-offs near and far, three recurring jobs, one of them deleted, and a far retry."""
    system = a_system()
    ports = system.ports
    for seconds in (30, 300, 330, 1000):
        created(ports, new_job(run_at=in_(ports, seconds)))
    for rate in ("1 minute", "7 minutes", "1 hour"):
        created(ports, new_job(schedule=every(rate)))
    deleted = created(ports, new_job(schedule=every("6 minutes"))).job
    assert deleted is not None
    system.handler = fail_first
    created(ports, new_job(run_at=in_(ports, 5), retry=RetryPolicy(base_seconds=600)))
    system.run_for(10 * SECOND)
    ports.jobs.delete(deleted)
    system.ticking = False
    system.run_for(4 * MINUTE)
    system.ticking = True
    return system, lambda ports: [
        dispatch.dispatch(ports, partition, owner="doomed") for partition in (0, 1)
    ]


def dispatch_after_an_outage() -> tuple[System, UseCase]:
    system = a_system()
    for rate in ("1 minute", "7 minutes", "20 minutes"):
        created(system.ports, new_job(schedule=every(rate)))
    system.ticking = False
    system.run_for(25 * MINUTE)
    system.ticking = True
    return system, lambda ports: [
        dispatch.dispatch(ports, partition, owner="doomed") for partition in (0, 1)
    ]


def fail_first(claimed: Claimed) -> Outcome:
    if claimed.execution.attempt > 1:
        return Succeeded(result="1")
    return Failed(failure=Failure(kind=FailureKind.RETRYABLE, type="ValueError", message="no"))


def execute_one(
    policy: RetryPolicy, handler: Callable[[Claimed], Outcome]
) -> tuple[System, UseCase]:
    system = a_system()
    created(system.ports, new_job(run_at=in_(system.ports, 5), retry=policy))
    created(system.ports, new_job(schedule=every("3 minutes")))
    system.world.pass_time(6 * SECOND)
    system.handler = handler

    def use_case(ports: Ports) -> object:
        batch = system.world.queue.receive()
        execute.shrink(ports, batch)
        return [execute.process(ports, one, system.run, worker="doomed") for one in batch]

    return system, use_case


def execute_that_succeeds() -> tuple[System, UseCase]:
    return execute_one(RetryPolicy(), lambda _: Succeeded(result="1"))


def execute_that_retries_soon() -> tuple[System, UseCase]:
    return execute_one(RetryPolicy(base_seconds=3), fail_first)


def execute_that_retries_far() -> tuple[System, UseCase]:
    return execute_one(RetryPolicy(base_seconds=900), fail_first)


def execute_that_gives_up() -> tuple[System, UseCase]:
    return execute_one(RetryPolicy(max_attempts=1), fail_first)


def execute_a_take_over() -> tuple[System, UseCase]:
    system, use_case = execute_that_succeeds()
    (received,) = system.world.queue.receive()
    execute.shrink(system.ports, [received])
    assert isinstance(execute.begin(system.ports, received, worker="silent"), Claimed)
    system.world.pass_time(36 * SECOND)
    return system, use_case


def execute_for_a_deleted_job() -> tuple[System, UseCase]:
    system = a_system()
    job = created(system.ports, new_job(schedule=every("1 minute"))).job
    assert job is not None
    system.world.pass_time(61 * SECOND)
    system.ports.jobs.delete(job)

    def use_case(ports: Ports) -> object:
        batch = system.world.queue.receive()
        return [execute.process(ports, one, system.run, worker="doomed") for one in batch]

    return system, use_case


def sweep_of_a_purged_queue() -> tuple[System, UseCase]:
    system = a_system()
    created(system.ports, new_job(run_at=in_(system.ports, 5)))
    created(system.ports, new_job(schedule=every("1 minute")))
    system.world.queue.purge()
    system.ticking = False
    system.run_for(3 * MINUTE)
    system.ticking = True
    for partition in (0, 1):
        dispatch.dispatch(system.ports, partition, owner="dispatcher")
    system.world.queue.purge()
    return system, lambda ports: [
        sweep.sweep(ports, partition, owner="doomed") for partition in (0, 1)
    ]


def one_tick() -> tuple[System, UseCase]:
    system = a_system()
    created(system.ports, new_job(run_at=in_(system.ports, 400)))
    return system, tick.tick


def delete_a_recurring_job() -> tuple[System, UseCase]:
    system = a_system()
    job = created(system.ports, new_job(schedule=every("1 minute"))).job
    assert job is not None
    return system, lambda ports: manage.delete(ports, OWNER, job.id)


def pause_a_recurring_job() -> tuple[System, UseCase]:
    system, job = a_minutely_job()
    return system, lambda ports: manage.pause(ports, OWNER, job.id)


def resume_a_recurring_job() -> tuple[System, UseCase]:
    system, job = a_minutely_job()
    manage.pause(system.ports, OWNER, job.id)
    system.run_for(10 * MINUTE)
    return system, lambda ports: manage.resume(ports, OWNER, job.id)


def edit_a_recurring_job() -> tuple[System, UseCase]:
    system, job = a_minutely_job()
    seldom = parse(cron="*/7 * * * *", seed=job.id)
    return system, lambda ports: manage.edit(
        ports, OWNER, job.id, lambda job: replace(job, schedule=seldom)
    )


def pause_and_resume_in_one_breath() -> tuple[System, UseCase]:
    system, job = a_minutely_job()

    def use_case(ports: Ports) -> None:
        manage.pause(ports, OWNER, job.id)
        manage.resume(ports, OWNER, job.id)

    return system, use_case


def a_minutely_job() -> tuple[System, Job]:
    system = a_system()
    job = created(system.ports, new_job(schedule=every("1 minute"))).job
    assert job is not None
    system.run_for(3 * MINUTE)
    return system, job


SCENARIOS = [
    create_due_soon,
    create_due_later,
    create_with_a_large_payload,
    create_recurring,
    dispatch_a_mixed_page,
    dispatch_after_an_outage,
    execute_that_succeeds,
    execute_that_retries_soon,
    execute_that_retries_far,
    execute_that_gives_up,
    execute_a_take_over,
    execute_for_a_deleted_job,
    sweep_of_a_purged_queue,
    one_tick,
    delete_a_recurring_job,
    pause_a_recurring_job,
    resume_a_recurring_job,
    edit_a_recurring_job,
    pause_and_resume_in_one_breath,
]

by_scenario = pytest.mark.parametrize(
    "ready", SCENARIOS, ids=lambda ready: ready.__name__.replace("_", " ")
)


def calls(ready: Ready) -> Sequence[Call]:
    """The port calls of a scenario's use case; at least one, or it tests nothing."""
    system, use_case = ready()
    found = calls_of(system.ports, use_case)
    assert found
    return found


@by_scenario
def test_undisturbed_it_keeps_every_promise(ready: Ready) -> None:
    system, use_case = ready()

    use_case(system.ports)
    system.run_for(RECOVERY)

    assert [*violations(system)] == []


@by_scenario
def test_killed_anywhere_it_loses_nothing(ready: Ready) -> None:
    for strike in every_crash(calls(ready)):
        system, use_case = ready()
        survived = survives(system.ports, use_case, strike)

        system.run_for(RECOVERY)

        # A call that writes a single thing has no first half to die after.
        assert not survived or strike.when is When.DURING, strike
        assert [*violations(system)] == [], strike


@by_scenario
def test_a_write_of_unknown_fate_loses_nothing(
    ready: Ready,
) -> None:
    for strike in every_strike(calls(ready), whens=(When.BEFORE, When.AFTER)):
        system, use_case = ready()
        with suppress(Unavailable):
            use_case(interposed(system.ports, unavailable_at(strike)))

        system.run_for(RECOVERY)

        assert [*violations(system)] == [], strike


@by_scenario
def test_paused_past_every_lease_it_moves_nothing(
    ready: Ready,
) -> None:
    for strike in every_strike(calls(ready), whens=(When.BEFORE, When.AFTER)):
        system, use_case = ready()
        use_case(interposed(system.ports, pause_at(strike, partial(system.run_for, 5 * MINUTE))))

        system.run_for(RECOVERY)

        assert [*violations(system)] == [], strike


def test_an_accepted_one_off_runs_once_to_one_accepted_result() -> None:
    system, use_case = execute_that_succeeds()

    use_case(system.ports)
    system.run_for(MINUTE)

    one_off = [row for row in system.world.tables.executions.values() if row.spec]
    assert [row.state for row in one_off] == [State.SUCCEEDED]
