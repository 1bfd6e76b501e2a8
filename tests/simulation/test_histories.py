"""Histories that once broke a promise, each named for its symptom."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from lamplighter.core.buckets import JobId
from lamplighter.core.errors import Unavailable
from lamplighter.core.lifecycle import State
from lamplighter.core.limits import BACKED_UP_MESSAGES
from lamplighter.core.model import Execution
from lamplighter.core.outcome import Failed, Outcome, Succeeded
from lamplighter.core.retry import Failure, Kind, RetryPolicy
from lamplighter.core.schedule import Schedule, parse
from lamplighter.memory import MemoryWorld, SeededChance, VirtualClock
from lamplighter.ports import Received
from lamplighter.services import execute, submit
from lamplighter.services.execute import Claimed
from lamplighter.services.undeliverable import undeliverable
from lamplighter.sim.faults import Call, Crash, Hook, When, interposed
from lamplighter.sim.invariants import violations
from lamplighter.sim.system import System
from tests.support import partition_work
from tests.support.jobs import created, cron, every, in_, new_job

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
START = datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)


def a_system(*, shards: int = 4, partitions: int = 2) -> System:
    world = MemoryWorld(clock=VirtualClock(START), shards=shards, partitions=partitions)
    system = System(world=world)
    system.run_for(MINUTE)
    return system


def row_of(system: System, execution: Execution) -> Execution:
    return system.world.tables.executions[execution.id]


def crash_at(method: str, when: When) -> Hook:
    """Kills the process at the first call of a port's method."""
    left = [method]

    def hook(call: Call, at: When) -> None:
        if left and at is when and f"{call.port}.{call.method}" == method:
            left.pop()
            raise Crash

    return hook


def failing_first(claimed: Claimed) -> Outcome:
    if claimed.execution.attempt > 1:
        return Succeeded(result="1")
    return Failed(failure=Failure(kind=Kind.RETRYABLE, type="ValueError", message="no"))


@pytest.mark.parametrize("seed", range(5))
def test_the_first_occurrence_in_a_flexible_window_is_not_forgotten(seed: int) -> None:
    def in_a_window(job_id: JobId, created_at: datetime) -> Schedule:
        return parse(
            rate="rate(1 day)",
            anchor=created_at,
            start_at=created_at + MINUTE,
            flexible_window_seconds=7200,
            seed=job_id,
        )

    system = a_system()
    system.world.chance = SeededChance(seed)
    first = created(system.ports, new_job(schedule=in_a_window)).first

    system.run_for(3 * HOUR)

    lateness = row_of(system, first).lateness
    assert lateness is not None
    assert timedelta(0) <= lateness <= 2 * SECOND


def test_a_jobs_table_that_does_not_answer_costs_no_attempt_and_no_crash() -> None:
    system = a_system()
    first = created(system.ports, new_job(schedule=every("1 hour"))).first
    until = first.run_at + 2 * MINUTE

    def hook(call: Call, when: When) -> None:
        if call.port == "jobs" and when is When.BEFORE and system.world.now() < until:
            raise Unavailable("down")

    _process_on(system, hook)
    system.run_until(first.run_at + 10 * MINUTE)

    row = row_of(system, first)
    assert (row.state, row.crashes, len(row.attempts)) == (State.SUCCEEDED, 0, 1)


def _process_on(system: System, hook: Hook) -> None:
    def process(received: Received) -> None:
        with suppress(Unavailable):
            execute.process(interposed(system.ports, hook), received, system.run, worker="w")

    system._process = process  # type: ignore[method-assign]


@pytest.mark.parametrize("minutes", [10, 30, 45])
def test_workers_that_claim_nothing_for_a_while_cost_no_execution(minutes: int) -> None:
    system = a_system()
    first = created(system.ports, new_job(run_at=in_(system.ports, 30))).first
    until = first.run_at + minutes * MINUTE

    def hook(call: Call, when: When) -> None:
        if call.method == "claim" and when is When.BEFORE and system.world.now() < until:
            raise Unavailable("a broken deployment")

    _process_on(system, hook)
    system.run_for(2 * HOUR)

    assert row_of(system, first).state is State.SUCCEEDED


def test_a_worker_that_stalls_after_its_claim_does_not_call_the_handler_any_more() -> None:
    system = a_system()
    first = created(system.ports, new_job(schedule=every("4 minutes"))).first
    system.world.clock.move_to(first.run_at)
    (received,) = system.world.queue.receive()
    others: list[Claimed] = []

    def stall(call: Call, when: When) -> None:
        if call.method == "get" and call.port == "jobs" and when is When.AFTER and not others:
            system.world.pass_time(40 * SECOND)
            begun = execute.begin(system.ports, received, worker="other")
            assert isinstance(begun, Claimed)
            others.append(begun)

    put = execute.process(interposed(system.ports, stall), received, system.run, worker="stalled")

    assert others
    assert not system.runs
    assert not put.deleted


def test_a_page_redone_after_a_day_runs_one_occurrence_for_the_day() -> None:
    system = a_system(shards=1, partitions=1)
    first = created(system.ports, new_job(schedule=every("10 minutes"))).first
    system.ticking = False
    system.run_until(first.run_at - 3 * MINUTE)
    doomed = interposed(system.ports, crash_at("control.advance", When.AFTER))
    with suppress(Crash):
        partition_work.dispatch(doomed, 0, owner="doomed")
    system.run_for(timedelta(days=1))
    ended = system.world.now()

    system.ticking = True
    system.run_for(5 * MINUTE)

    assert len([run for run in system.runs if run.run_at <= ended]) == 1


@pytest.mark.parametrize("replays", [0, 1, 3])
def test_replaying_a_create_in_an_outage_adds_no_run(replays: int) -> None:
    system = a_system(shards=1, partitions=1)
    system.ticking = False
    key = submit.IdempotencyKey[submit.Created](key="k", fingerprint="f", render=lambda _: "{}")
    new = new_job(schedule=every("10 minutes"))
    submit.submit(system.ports, new, key)
    for _ in range(replays):
        system.run_for(HOUR)
        submit.submit(system.ports, new, key)
    system.run_for(HOUR)
    ended = system.world.now()

    system.ticking = True
    system.run_for(5 * MINUTE)

    assert len([run for run in system.runs if run.run_at <= ended]) == 1


def test_a_stale_message_in_a_dead_letter_queue_arms_the_retry_it_finds() -> None:  # P11
    system = a_system()
    retry = RetryPolicy(base_seconds=2, max_attempts=3)
    first = created(system.ports, new_job(run_at=in_(system.ports, 5), retry=retry)).first
    system.handler = failing_first
    system.world.pass_time(6 * SECOND)
    (received,) = system.world.queue.receive()
    with suppress(Crash):
        doomed = interposed(system.ports, crash_at("executions.settle", When.AFTER))
        execute.process(doomed, received, system.run, worker="doomed")
    system.ports.queue.delete([received])

    undeliverable(system.ports, received.message)
    system.run_for(MINUTE)

    assert row_of(system, first).state is State.SUCCEEDED


def test_a_dead_letter_of_an_execution_that_retries_in_an_hour_breaks_nothing() -> None:
    system = a_system()
    retry = RetryPolicy(base_seconds=3600, max_attempts=3)
    first = created(system.ports, new_job(run_at=in_(system.ports, 5), retry=retry)).first
    system.handler = failing_first
    system.world.tables.executions[first.id] = replace(first, undeliverable=2)
    system.world.pass_time(6 * SECOND)
    (received,) = system.world.queue.receive()

    def meanwhile(call: Call, when: When) -> None:
        if call.method == "end" and when is When.BEFORE:
            execute.process(system.ports, received, system.run, worker="w")

    undeliverable(interposed(system.ports, meanwhile), received.message)
    system.run_for(3 * HOUR)

    assert row_of(system, first).state is State.SUCCEEDED


def test_a_long_run_whose_message_lands_in_a_dead_letter_queue_is_not_counted() -> None:
    system = a_system()
    first = created(system.ports, new_job(run_at=in_(system.ports, 5))).first
    system.world.pass_time(6 * SECOND)
    (received,) = system.world.queue.receive()
    begun = execute.begin(system.ports, received, worker="w")
    assert isinstance(begun, Claimed)

    for _ in range(5):
        undeliverable(system.ports, received.message)

    assert row_of(system, first).undeliverable == 0
    assert execute.conclude(system.ports, begun, Succeeded(result="1")).deleted


def test_a_job_put_by_a_host_whose_clock_is_behind_the_first_one_is_swept() -> None:
    before_the_minute = datetime(2026, 1, 1, 0, 0, 59, 800_000, tzinfo=UTC)
    world = MemoryWorld(clock=VirtualClock(before_the_minute))
    system = System(world=world)
    world.clock.skew = timedelta(milliseconds=500)
    system.ports.layout()
    world.clock.skew = timedelta(0)
    created(system.ports, new_job())
    world.queue.purge()

    system.run_for(HOUR)

    assert [*violations(system)] == []


def test_a_lane_that_stays_backed_up_neither_ends_a_chain_nor_keeps_a_job_waiting_for_good(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    system = a_system()
    created(system.ports, new_job(run_at=in_(system.ports, 5)))
    with suppress(Crash):
        doomed = interposed(system.ports, crash_at("jobs.create", When.AFTER))
        created(doomed, new_job(schedule=every("1 minute")))
    system.world.queue.purge()
    monkeypatch.setattr(system.world.queue, "waiting", lambda _: BACKED_UP_MESSAGES + 1)

    system.run_for(6 * HOUR)

    assert [*violations(system)] == []


def test_a_sweep_of_many_stuck_rows_gets_on_though_each_call_is_slow() -> None:
    """S2-M2: it goes on until each bucket is proven clean, from a watermark."""
    system = a_system(shards=1, partitions=1)
    for number in range(300):
        created(system.ports, new_job(run_at=in_(system.ports, 10 + number * 0.01)))
    system.world.queue.purge()
    system.ticking = False
    system.run_for(3 * MINUTE)
    for _ in range(4):
        # Until what was sent late counts as sent long enough ago.
        partition_work.dispatch(system.ports, 0, owner="dispatcher")
        system.world.pass_time(30 * SECOND)
    owners = [0]

    def slow(call: Call, when: When) -> None:
        """60 ms a call; each minute another owner tries."""
        if when is When.BEFORE:
            system.world.pass_time(timedelta(milliseconds=60))
            if system.world.now() > began + (owners[0] + 1) * MINUTE:
                owners[0] += 1
                partition_work.sweep(interposed(system.ports, slow), 0, owner=f"owner-{owners[0]}")

    began = system.world.now()
    partition_work.sweep(interposed(system.ports, slow), 0, owner="owner-0")

    # Each stuck row once, and what lay between two commits at most once more.
    assert 300 <= system.world.counts.events["recovered"] <= 600


def test_a_new_zone_database_does_not_lose_the_occurrence_that_is_armed() -> None:
    system = a_system()
    job = created(system.ports, new_job(schedule=cron("0 9 * * *", "Europe/London"))).job
    assert job is not None
    moved = replace(job, schedule=replace(job.schedule, timezone="Europe/Paris"))
    system.world.tables.jobs[job.id] = moved

    system.run_until(datetime(2026, 1, 3, 23, 0, tzinfo=UTC))

    assert _hours(system) == [9, 8, 8]
    assert [*violations(system)] == []


def _hours(system: System) -> Sequence[int]:
    return [run.due_at.hour for run in system.runs]
