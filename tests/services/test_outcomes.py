"""An outcome is in the table before its message goes, and what is seen of it on the way."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from lamplighter.core.errors import Unavailable
from lamplighter.core.lifecycle import State
from lamplighter.core.model import Execution, MisfirePolicy
from lamplighter.core.outcome import Failed, Outcome
from lamplighter.core.retry import Failure, Kind, RetryPolicy
from lamplighter.core.schedule import parse
from lamplighter.memory import MemoryWorld, VirtualClock
from lamplighter.ports import Received
from lamplighter.services import execute, inspect, manage
from lamplighter.services.execute import Claimed
from lamplighter.sim.faults import Call, Crash, Hook, When, interposed
from lamplighter.sim.system import System
from tests.support.jobs import OWNER, created, every, new_job

START = datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def system() -> System:
    return System(world=MemoryWorld(clock=VirtualClock(START), shards=4, partitions=1))


def received(system: System, retry: RetryPolicy | None = None) -> Received:
    """The message of a job that is due now, in a worker's hands."""
    created(system.ports, new_job(retry=retry or RetryPolicy()))
    (message,) = system.world.queue.receive()
    execute.shrink(system.ports, [message])
    return message


def the_row(system: System) -> Execution:
    (row,) = system.world.tables.executions.values()
    return row


def dies(port: str, method: str, when: When) -> Hook:
    def hook(call: Call, at: When) -> None:
        if (call.port, call.method, at) == (port, method, when):
            raise Crash

    return hook


def silent(port: str, method: str, *, times: int) -> Hook:
    """No answer, that often, and nothing written."""
    left = [times]

    def hook(call: Call, at: When) -> None:
        if (call.port, call.method, at) == (port, method, When.BEFORE) and left[0] > 0:
            left[0] -= 1
            raise Unavailable("no answer")

    return hook


@pytest.mark.parametrize(
    ("method", "when", "runs"),
    [("settle", When.BEFORE, 2), ("settle", When.AFTER, 1), ("delete", When.BEFORE, 1)],
    ids=["before its outcome", "after its outcome", "before its message went"],
)
def test_a_crash_around_the_outcome_is_a_repeat_or_nothing_and_never_a_loss(
    system: System, method: str, when: When, runs: int
) -> None:
    """S4-L3, S1-Q3, S2-E1: recorded first, acknowledged after it."""
    message = received(system)
    port = "executions" if method == "settle" else "queue"
    doomed = interposed(system.ports, dies(port, method, when))
    with pytest.raises(Crash):
        execute.process(doomed, message, system.run, worker="doomed")
    assert len(system.world.queue) == 1

    system.run_for(2 * MINUTE)

    assert (the_row(system).state, len(system.runs)) == (State.SUCCEEDED, runs)
    assert len(system.world.queue) == 0


def test_while_the_table_does_not_answer_a_finished_run_keeps_its_message(system: System) -> None:
    """S0-E4: a worker may finish, and acknowledges nothing that is not written."""
    message = received(system)
    down = interposed(system.ports, silent("executions", "settle", times=99))
    with pytest.raises(Unavailable):
        execute.process(down, message, system.run, worker="w-1")

    assert (the_row(system).state, len(system.world.queue)) == (State.RUNNING, 1)
    system.run_for(2 * MINUTE)
    row = the_row(system)
    assert (row.state, row.crashes, len(system.runs)) == (State.SUCCEEDED, 1, 2)


def test_a_table_that_answers_again_in_a_moment_costs_no_second_run(system: System) -> None:
    """S0-E4: the write is tried again while the lease lasts."""
    message = received(system)
    down = interposed(system.ports, silent("executions", "settle", times=3))

    put = execute.process(down, message, system.run, worker="w-1")

    assert put.deleted
    assert (the_row(system).state, len(system.runs)) == (State.SUCCEEDED, 1)


def test_a_claim_that_is_not_answered_starts_nothing(system: System) -> None:
    """S0-E4: its message stays, and no attempt is used."""
    message = received(system)
    down = interposed(system.ports, silent("executions", "claim", times=1))
    with pytest.raises(Unavailable):
        execute.process(down, message, system.run, worker="w-1")
    assert system.runs == []

    system.run_for(2 * MINUTE)

    row = the_row(system)
    assert (row.state, row.attempt, len(system.runs)) == (State.SUCCEEDED, 1, 1)


def failing(kind: Kind, after: timedelta | None = None) -> Callable[[Claimed], Outcome]:
    failure = Failure(kind=kind, type="ValueError", message="no", retry_after=after)
    return lambda _: Failed(failure=failure)


def test_a_failure_is_seen_with_its_try_and_when_the_next_one_comes(system: System) -> None:
    """S1-W1, S0-F4: RETRYING, further and further apart, and given up after the last of three."""
    policy = RetryPolicy(max_attempts=3, base_seconds=10)
    id = created(system.ports, new_job(retry=policy)).first.id
    system.handler = failing(Kind.RETRYABLE)
    shown: list[tuple[State, int]] = []
    for _ in range(3):
        system.work()
        row = inspect.execution(system.ports, OWNER, id).row
        shown.append((row.state, row.attempt))
        if row.next_run_at is not None:
            system.world.clock.move_to(row.next_run_at)

    assert shown == [(State.RETRYING, 2), (State.RETRYING, 3), (State.DEAD_LETTERED, 3)]
    row = the_row(system)
    first, second, third = row.attempts
    assert first.finished_at is not None
    assert second.finished_at is not None
    assert second.started_at - first.finished_at >= 5 * SECOND
    assert third.started_at - second.finished_at >= 10 * SECOND
    assert row.reason == "all 3 attempts used"


def test_a_retry_waits_in_the_table_and_nobody_waits_for_it(system: System) -> None:
    """S0-R3, S4-R3: the same row with a new time, and its first message is gone."""
    message = received(system, RetryPolicy(base_seconds=1800))
    before = system.world.now()
    put = execute.process(system.ports, message, failing(Kind.RETRYABLE), worker="w-1")

    assert put.deleted
    assert system.world.now() == before
    row = the_row(system)
    assert row.next_run_at is not None
    assert row.next_run_at >= before + timedelta(minutes=15)
    assert len(system.world.queue) == 0


def test_what_asks_us_to_wait_for_an_hour_is_asked_again_after_an_hour(system: System) -> None:
    """S0-R4: longer than any delay of a message, and longer than the plain wait."""
    received_at = system.world.now()
    message = received(system, RetryPolicy(base_seconds=1))
    wait = timedelta(hours=1)
    execute.process(system.ports, message, failing(Kind.RATE_LIMITED, wait), worker="w-1")

    system.run_for(wait - SECOND)
    assert system.runs == []
    system.run_for(2 * SECOND)

    assert [run.started_at - received_at for run in system.runs] == [wait]


def test_a_message_of_an_earlier_version_starts_nothing(system: System) -> None:
    """S0-U3: it was sent before its job was edited, and is looked at after the claim."""
    job = created(system.ports, new_job(schedule=every("1 minute"), payload='"old"')).job
    assert job is not None
    first = min(row.run_at for row in system.world.tables.executions.values())
    system.world.clock.move_to(first)
    (message,) = system.world.queue.receive()
    later = parse(cron="*/5 * * * *", seed=job.id)
    manage.edit(system.ports, OWNER, job.id, lambda job: replace(job, schedule=later))

    execute.process(system.ports, message, system.run, worker="w-1")

    assert system.runs == []
    row = system.world.tables.executions[message.message.execution_id]
    assert (row.state, row.attempts) == (State.CANCELLED, ())
    system.run_for(10 * MINUTE)
    assert {run.run_at.minute % 5 for run in system.runs} == {0}


def test_unless_said_otherwise_what_was_missed_runs_once_late_and_only_for_a_day(
    system: System,
) -> None:
    """S1-W5: FIRE_ONCE, with the catch-up window of a day as its deadline."""
    job = created(system.ports, new_job(schedule=every("1 hour"))).job
    assert job is not None
    assert (job.misfire, job.catch_up.window) == (MisfirePolicy.FIRE_ONCE, timedelta(days=1))
    system.ticking = False
    system.run_for(timedelta(hours=10, minutes=30))
    ran = len(system.runs)
    system.ticking = True
    system.run_for(5 * MINUTE)

    (caught_up,) = system.runs[ran:]
    assert caught_up.run_at == max(run.run_at for run in system.runs)
    assert caught_up.started_at - caught_up.run_at > timedelta(minutes=20)
