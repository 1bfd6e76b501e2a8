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

from lamplighter.core.buckets import ExecutionId
from lamplighter.core.catch_up import CatchUp
from lamplighter.core.errors import Conflict, Unavailable
from lamplighter.core.lifecycle import State
from lamplighter.core.model import Execution, Job, MisfirePolicy, OverlapPolicy, Payload
from lamplighter.core.outcome import Failed, Outcome, Parked, Succeeded
from lamplighter.core.retry import Failure, RetryPolicy
from lamplighter.core.retry import Kind as FailureKind
from lamplighter.core.schedule import parse
from lamplighter.memory import MemoryWorld, VirtualClock
from lamplighter.ports import Ports
from lamplighter.services import amend, bulk, execute, manage, tick
from lamplighter.services.backfill import Asked, Key, backfill
from lamplighter.services.cancel import cancel
from lamplighter.services.execute import Claimed
from lamplighter.services.replay import replay
from lamplighter.services.submit import IdempotencyKey
from lamplighter.services.trigger import trigger
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
from tests.simulation.cancel_rules import an_unseen_first
from tests.simulation.chain_scenarios import CHAIN_SCENARIOS
from tests.simulation.deferred_scenarios import DEFERRED_SCENARIOS
from tests.simulation.ledger_scenarios import LEDGER_SCENARIOS
from tests.simulation.recovering import LONGEST, recover
from tests.simulation.worker_scenarios import WORKER_SCENARIOS
from tests.support import partition_work
from tests.support.jobs import OWNER, created, every, in_, new_job, to
from tests.support.strikes import some_of

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
RECOVERY = LONGEST
START = datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)
INCIDENT = IdempotencyKey[Execution](key="incident-4", fingerprint="f", render=lambda made: made.id)

UseCase = Callable[[Ports], object]


Ready = Callable[[], tuple[System, UseCase]]


def a_system() -> System:
    """With a first tick."""
    world = MemoryWorld(clock=VirtualClock(START), shards=4, partitions=1)
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
        partition_work.dispatch(ports, partition, owner="doomed") for partition in (0, 1)
    ]


def dispatch_after_an_outage() -> tuple[System, UseCase]:
    system = a_system()
    # In pages of many rows: fewer calls, each of them a place to strike.
    system.world.drain_per_second = 1e6
    for rate in ("1 minute", "7 minutes", "20 minutes"):
        created(system.ports, new_job(schedule=every(rate)))
    system.ticking = False
    system.run_for(25 * MINUTE)
    system.ticking = True
    return system, lambda ports: [
        partition_work.dispatch(ports, partition, owner="doomed") for partition in (0, 1)
    ]


def dispatch_all_after_an_outage() -> tuple[System, UseCase]:
    system = a_system()
    # In pages of many rows: fewer calls, each of them a place to strike.
    system.world.drain_per_second = 1e6
    for rate in ("1 minute", "7 minutes"):
        new = new_job(
            schedule=every(rate), misfire=MisfirePolicy.FIRE_ALL, catch_up=CatchUp(most=4)
        )
        created(system.ports, new)
    system.ticking = False
    system.run_for(15 * MINUTE)
    system.ticking = True
    return system, lambda ports: [
        partition_work.dispatch(ports, partition, owner="doomed") for partition in (0, 1)
    ]


def execute_past_its_deadline() -> tuple[System, UseCase]:
    system = a_system()
    created(system.ports, new_job(schedule=every("1 minute"), deadline=30 * SECOND))
    system.world.pass_time(2 * MINUTE)

    def use_case(ports: Ports) -> object:
        batch = system.world.queue.receive()
        return [execute.process(ports, one, system.run, worker="doomed") for one in batch]

    return system, use_case


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


def execute_that_nobody_knows() -> tuple[System, UseCase]:
    """S0-O10: a worker of another deploy; the next one knows it."""
    return execute_one(RetryPolicy(max_attempts=1), park_first)


def execute_that_has_been_parked_for_long() -> tuple[System, UseCase]:
    """S0-O10: when it is looked at next lies beyond the line."""
    system, _ = execute_one(RetryPolicy(max_attempts=1), park)
    system.run_for(20 * MINUTE)
    rows = system.world.tables.executions.values()
    (parked,) = [row for row in rows if row.is_parked and row.spec is not None]
    assert parked.next_run_at is not None
    system.run_until(parked.next_run_at - SECOND)
    system.world.clock.move_to(parked.next_run_at)

    def use_case(ports: Ports) -> None:
        for received in system.world.queue.receive():
            execute.process(ports, received, park, worker="doomed")
        system.handler = park_first

    return system, use_case


def park(_: Claimed) -> Outcome:
    return Parked(reason="no worker knows it")


def park_first(claimed: Claimed) -> Outcome:
    if claimed.execution.parked_since is not None:
        return Succeeded(result="1")
    return park(claimed)


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
        partition_work.dispatch(system.ports, partition, owner="dispatcher")
    system.world.queue.purge()
    return system, lambda ports: [
        partition_work.sweep(ports, partition, owner="doomed") for partition in (0, 1)
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


def cancel_an_occurrence() -> tuple[System, UseCase]:
    """One that nobody has looked at yet: its chain ends with it, unless the cancel goes on."""
    system = a_system()
    _, first = an_unseen_first(system)
    return system, partial(cancel_unless_it_is_over, first.id)


def cancel_what_runs() -> tuple[System, UseCase]:
    system = a_system()
    first = created(system.ports, new_job()).first
    (received,) = system.world.queue.receive()
    execute.shrink(system.ports, [received])
    assert isinstance(execute.begin(system.ports, received, worker="silent"), Claimed)
    return system, partial(cancel_unless_it_is_over, first.id)


def cancel_unless_it_is_over(id: ExecutionId, ports: Ports) -> None:
    with suppress(Conflict):
        cancel(ports, OWNER, id)


def replay_with_a_large_payload() -> tuple[System, UseCase]:
    system, (failed,) = some_failed(payload='"' + "x" * 2000 + '"')
    return system, lambda ports: replay(ports, OWNER, failed, key=INCIDENT)


def replay_many() -> tuple[System, UseCase]:
    system, failed = some_failed(count=2)
    rows = [system.world.tables.executions[id] for id in failed]
    return system, lambda ports: [bulk.replay_once(ports, OWNER, row, INCIDENT) for row in rows]


def some_failed(*, count: int = 1, payload: str = "null") -> tuple[System, Sequence[ExecutionId]]:
    """One-offs that have used up their only try; what is tried again succeeds."""
    system = a_system()
    system.handler = fail_first
    once = RetryPolicy(max_attempts=1)
    made = [created(system.ports, new_job(payload=payload, retry=once)) for _ in range(count)]
    system.work()
    system.handler = lambda _: Succeeded(result="1")
    return system, [one.first.id for one in made]


def amend_a_one_off() -> tuple[System, UseCase]:
    return amended(seconds=60, to=to(payload='"' + "x" * 2000 + '"'))


def move_a_one_off_further_away() -> tuple[System, UseCase]:
    return amended(seconds=5, to=to(run_at=START + 20 * MINUTE))


def move_a_one_off_nearer() -> tuple[System, UseCase]:
    return amended(seconds=1000, to=to(run_at=START + MINUTE))


def move_a_one_off_for_the_third_time() -> tuple[System, UseCase]:
    """Into another lane, with a large payload, that its first place does not hold any more."""
    system, use_case = amended(seconds=600, to=to(queue="bulk"), payload='"' + "x" * 2000 + '"')
    (row,) = system.world.tables.executions.values()
    for minutes in (15, 10):
        later = to(run_at=START + minutes * MINUTE)
        amend.amend(system.ports, OWNER, row.job_id, later)
    return system, use_case


def amended(*, seconds: float, to: amend.Change, payload: str = "null") -> tuple[System, UseCase]:
    """A one-off that is due in some seconds, and is to run otherwise."""
    system = a_system()
    new = new_job(run_at=in_(system.ports, seconds), payload=payload)
    id = created(system.ports, new).job_id

    def use_case(ports: Ports) -> None:
        with suppress(Conflict):
            amend.amend(ports, OWNER, id, to)

    return system, use_case


def trigger_a_recurring_job() -> tuple[System, UseCase]:
    system, job = a_minutely_job()
    return system, lambda ports: trigger(ports, OWNER, job.id, key=INCIDENT)


def trigger_with_a_large_payload() -> tuple[System, UseCase]:
    system, job = a_minutely_job()
    payload = Payload.of('"' + "x" * 2000 + '"')
    return system, lambda ports: trigger(ports, OWNER, job.id, payload=payload, key=INCIDENT)


def backfill_that_runs_at_once() -> tuple[System, UseCase]:
    return backfilled(spread=timedelta(0))


def backfill_that_is_spread_past_the_line() -> tuple[System, UseCase]:
    return backfilled(spread=20 * MINUTE)


def backfill_one_after_the_other() -> tuple[System, UseCase]:
    return backfilled(spread=timedelta(0), overlap=OverlapPolicy.SKIP)


def backfilled(
    *, spread: timedelta, overlap: OverlapPolicy = OverlapPolicy.ALLOW
) -> tuple[System, UseCase]:
    """More slots than are put at once."""
    system, job = a_minutely_job(overlap=overlap)
    asked = Asked(start=START - 120 * MINUTE, end=START, most=120, spread=spread)
    key = Key(key="k", fingerprint="body")
    return system, lambda ports: backfill(ports, OWNER, job.id, asked, key=key)


def a_minutely_job(*, overlap: OverlapPolicy = OverlapPolicy.ALLOW) -> tuple[System, Job]:
    system = a_system()
    job = created(system.ports, new_job(schedule=every("1 minute"), overlap=overlap)).job
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
    dispatch_all_after_an_outage,
    execute_past_its_deadline,
    execute_that_succeeds,
    execute_that_retries_soon,
    execute_that_retries_far,
    execute_that_gives_up,
    execute_that_nobody_knows,
    execute_that_has_been_parked_for_long,
    execute_a_take_over,
    execute_for_a_deleted_job,
    sweep_of_a_purged_queue,
    one_tick,
    delete_a_recurring_job,
    pause_a_recurring_job,
    resume_a_recurring_job,
    edit_a_recurring_job,
    amend_a_one_off,
    move_a_one_off_further_away,
    move_a_one_off_nearer,
    move_a_one_off_for_the_third_time,
    pause_and_resume_in_one_breath,
    cancel_an_occurrence,
    cancel_what_runs,
    replay_with_a_large_payload,
    replay_many,
    trigger_a_recurring_job,
    trigger_with_a_large_payload,
    backfill_that_runs_at_once,
    backfill_that_is_spread_past_the_line,
    backfill_one_after_the_other,
    *CHAIN_SCENARIOS,
    *LEDGER_SCENARIOS,
    *DEFERRED_SCENARIOS,
    *WORKER_SCENARIOS,
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
    """S0-D1, S0-E1, S1-H2: a page is the outbox: written down first, and done again."""
    for strike in every_crash(calls(ready)):
        system, use_case = ready()
        survived = survives(system.ports, use_case, strike)

        recover(system)

        # A call that writes a single thing has no first half to die after.
        assert not survived or strike.when is When.DURING, strike
        assert [*violations(system)] == [], strike


@pytest.mark.strikes
@by_scenario
def test_a_write_of_unknown_fate_loses_nothing(
    ready: Ready,
) -> None:
    for strike in some_of(every_strike(calls(ready), whens=(When.BEFORE, When.AFTER))):
        system, use_case = ready()
        with suppress(Unavailable):
            use_case(interposed(system.ports, unavailable_at(strike)))

        recover(system)

        assert [*violations(system)] == [], strike


@pytest.mark.strikes
@by_scenario
def test_paused_past_every_lease_it_moves_nothing(
    ready: Ready,
) -> None:
    """S1-L3, S1-L5: nobody ends what was stalled: its writes are refused, its copies fall."""
    for strike in some_of(every_strike(calls(ready), whens=(When.BEFORE, When.AFTER))):
        system, use_case = ready()
        use_case(interposed(system.ports, pause_at(strike, partial(system.run_for, 5 * MINUTE))))

        recover(system)

        assert [*violations(system)] == [], strike


@pytest.mark.parametrize("ready", [replay_with_a_large_payload, replay_many])
def test_a_replay_that_was_killed_anywhere_and_asked_for_again_has_run_once(ready: Ready) -> None:
    for strike in every_crash(calls(ready)):
        system, use_case = ready()
        old = [*system.world.tables.executions]
        survives(system.ports, use_case, strike)

        use_case(system.ports)
        system.run_for(RECOVERY)

        new = [row for row in system.world.tables.executions.values() if row.id not in old]
        assert sorted(row.replay_of or "" for row in new) == sorted(old), strike
        assert {row.state for row in new} == {State.SUCCEEDED}, strike
        assert sorted(run.execution_id for run in system.runs if run.execution_id not in old) == (
            sorted(row.id for row in new)
        ), strike


@pytest.mark.parametrize(
    ("ready", "runs"),
    [
        (trigger_a_recurring_job, 1),
        (trigger_with_a_large_payload, 1),
        (backfill_that_runs_at_once, 120),
        (backfill_that_is_spread_past_the_line, 120),
        (backfill_one_after_the_other, 120),
    ],
)
def test_what_was_asked_for_by_name_and_killed_anywhere_has_run_once_when_it_is_asked_for_again(
    ready: Ready, runs: int
) -> None:
    for strike in every_crash(calls(ready)):
        system, use_case = ready()
        survives(system.ports, use_case, strike)

        use_case(system.ports)
        system.run_for(RECOVERY)

        rows = [row for row in system.world.tables.executions.values() if row.is_additional]
        assert len({row.scheduled_for for row in rows}) == len(rows) == runs, strike
        assert {row.state for row in rows} == {State.SUCCEEDED}, strike
        ids = {row.id for row in rows}
        assert sorted(run.execution_id for run in system.runs if run.execution_id in ids) == (
            sorted(ids)
        ), strike
        assert [*violations(system)] == [], strike


def test_an_accepted_one_off_runs_once_to_one_accepted_result() -> None:
    system, use_case = execute_that_succeeds()

    use_case(system.ports)
    system.run_for(MINUTE)

    one_off = [row for row in system.world.tables.executions.values() if row.spec]
    assert [row.state for row in one_off] == [State.SUCCEEDED]
