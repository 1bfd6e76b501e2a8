from dataclasses import replace
from datetime import timedelta

import pytest

from lamplighter.core.errors import IllegalTransition
from lamplighter.core.lifecycle import FINAL, Event, State
from lamplighter.core.limits import CRASH_LIMIT, HISTORY_MAX_ATTEMPTS
from lamplighter.core.model import Execution
from lamplighter.core.outcome import (
    Failed,
    Outcome,
    Refused,
    Succeeded,
    crashed_too_often,
    ended,
    finished,
    taken_over,
)
from lamplighter.core.retry import Failure, Kind, RetryPolicy
from tests.core.test_claim import NOW, ROW, RUNNING

LATER = NOW + timedelta(seconds=3)
HELD = replace(RUNNING, attempt=1, started_at=NOW, first_started_at=NOW, worker="w-1")
NO = Failure(kind=Kind.RETRYABLE, type="ValueError", message="no")


def finish(outcome: Outcome, row: Execution = HELD, *, attempts: int = 3) -> Execution:
    policy = RetryPolicy(max_attempts=attempts)
    return finished(row, outcome, policy=policy, now=LATER, jitter=1.0)


def test_a_success_keeps_its_result_and_its_try() -> None:
    done = finish(Succeeded(result="42"))

    assert (done.state, done.result, done.finished_at) == (State.SUCCEEDED, "42", LATER)
    (attempt,) = done.attempts
    assert (attempt.number, attempt.started_at, attempt.worker) == (1, NOW, "w-1")
    assert attempt.finished_at == LATER


def test_a_failure_that_may_pass_is_due_again_as_the_next_attempt() -> None:
    done = finish(Failed(failure=NO))

    assert (done.state, done.attempt) == (State.RETRYING, 2)
    assert done.next_run_at == LATER + timedelta(seconds=1)
    assert done.finished_at is None
    assert done.attempts[0].error == NO


def test_the_last_failure_is_a_dead_letter_with_all_its_tries() -> None:
    row = HELD
    for _ in range(2):
        retrying = finish(Failed(failure=NO), row)
        row = replace(HELD, attempt=retrying.attempt, attempts=retrying.attempts)

    dead = finish(Failed(failure=NO), row)

    assert (dead.state, dead.reason) == (State.DEAD_LETTERED, "all 3 attempts used")
    assert [attempt.number for attempt in dead.attempts] == [1, 2, 3]


def test_a_permanent_failure_ends_failed() -> None:
    permanent = replace(NO, kind=Kind.PERMANENT)

    assert finish(Failed(failure=permanent)).state is State.FAILED


def test_a_failure_that_its_policy_does_not_retry_ends_failed_at_its_first_try() -> None:
    failed = Failed(failure=NO, names=("ValueError", "Exception", "BaseException"))
    policy = RetryPolicy(no_retry_on=("ValueError",))

    done = finished(HELD, failed, policy=policy, now=LATER, jitter=1.0)

    assert (done.state, done.reason) == (State.FAILED, "no_retry_on has ValueError")
    assert (done.error, done.finished_at, done.next_run_at) == (NO, LATER, None)


def test_a_failure_after_a_cancel_was_requested_is_a_cancel() -> None:
    row = replace(HELD, cancel_requested_at=NOW)

    assert finish(Failed(failure=NO), row).state is State.CANCELLED


def test_a_refused_run_is_cancelled_with_its_reason() -> None:
    done = finish(Refused(reason="its job is DELETED"))

    assert (done.state, done.reason) == (State.CANCELLED, "its job is DELETED")


@pytest.mark.parametrize(
    "outcome",
    [Succeeded(result="1"), Failed(failure=NO)],
    ids=lambda outcome: type(outcome).__name__,
)
def test_only_a_running_execution_has_an_outcome(outcome: Outcome) -> None:
    with pytest.raises(IllegalTransition):
        finish(outcome, replace(ROW, started_at=NOW, worker="w-1"))


def test_a_take_over_keeps_the_attempt_and_counts_the_crash() -> None:
    lost = taken_over(HELD)

    assert (lost.attempt, lost.crashes) == (HELD.attempt, 1)
    (attempt,) = lost.attempts
    assert attempt.error is not None
    assert attempt.error.kind is Kind.LOST_LEASE


def test_the_third_silent_worker_makes_a_dead_letter() -> None:
    twice = taken_over(taken_over(HELD))
    dead = crashed_too_often(taken_over(twice), LATER)

    assert crashed_too_often(twice, LATER) is None
    assert CRASH_LIMIT == 3
    assert dead is not None
    assert dead.state is State.DEAD_LETTERED
    assert dead.reason == "3 workers died or fell silent while running it"


def test_the_history_keeps_the_latest_tries_and_their_numbers() -> None:
    row = HELD
    for _ in range(HISTORY_MAX_ATTEMPTS + 5):
        row = replace(HELD, attempts=finish(Failed(failure=NO), row, attempts=100).attempts)

    numbers = [attempt.number for attempt in row.attempts]

    assert numbers == [*range(6, HISTORY_MAX_ATTEMPTS + 6)]


@pytest.mark.parametrize("event", [Event.CANCEL, Event.SKIP, Event.EXPIRE, Event.DEAD_LETTER])
def test_what_never_ran_ends_with_its_reason(event: Event) -> None:
    done = ended(ROW, event, now=LATER, reason="because")

    assert done.state in FINAL
    assert (done.finished_at, done.reason, done.attempts) == (LATER, "because", ())


def test_an_execution_that_contradicts_itself_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="RUNNING with token None"):
        replace(ROW, state=State.RUNNING, lease_until=NOW)
    with pytest.raises(ValueError, match="RETRYING with next_run_at None"):
        replace(ROW, state=State.RETRYING)
    with pytest.raises(ValueError, match="SCHEDULED with next_run_at"):
        replace(ROW, next_run_at=LATER)
