"""What a refused claim means for its message: every state of the row, every kind of message."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from lamplighter.core.buckets import execution_id, one_off_job_id
from lamplighter.core.claim import Drop, Keep, Rearm, TakeOver, refused
from lamplighter.core.lifecycle import FINAL, State
from lamplighter.core.limits import MAX_CLOCK_ERROR, TAKE_OVER_GRACE
from lamplighter.core.model import Execution, Message, Owner, Payload, Spec, Token, Trigger

NOW = datetime(2026, 7, 12, 2, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)
ID = execution_id(NOW, 3, 99)

ROW = Execution(
    id=ID,
    job_id=one_off_job_id(ID),
    owner=Owner("acme"),
    trigger=Trigger.ONE_OFF,
    job_version=1,
    task="echo",
    queue="default",
    spec=Spec(task="echo", payload=Payload.of("null")),
    scheduled_for=NOW,
    run_at=NOW,
    created_at=NOW,
    attempt=2,
)
RUNNING = replace(ROW, state=State.RUNNING, token=Token("t"), lease_until=NOW + 30 * SECOND)
RETRYING = replace(ROW, state=State.RETRYING, next_run_at=NOW + 90 * SECOND)
FREE_AT = NOW + 30 * SECOND + TAKE_OVER_GRACE


def message(attempt: int = 2) -> Message:
    return Message(execution_id=ID, attempt=attempt, due_at=NOW)


def test_a_message_for_nothing_is_dropped() -> None:
    assert refused(message(), None, NOW) == Drop(reason="no such execution")


@pytest.mark.parametrize("state", sorted(FINAL))
@pytest.mark.parametrize("attempt", [1, 2, 3])
def test_a_message_for_a_final_row_is_dropped(state: State, attempt: int) -> None:
    assert refused(message(attempt), replace(ROW, state=state), NOW) == Drop(
        reason=f"already {state}"
    )


def test_a_live_lease_keeps_the_message_until_the_grace_is_over() -> None:  # P8
    assert refused(message(), RUNNING, NOW) == Keep(until=FREE_AT, reason="held by another worker")


def test_a_lease_is_taken_over_only_after_its_grace() -> None:  # P9
    """O-F12: twice the error that a clock is allowed."""
    just_before = FREE_AT - timedelta(milliseconds=1)

    assert isinstance(refused(message(), RUNNING, just_before), Keep)
    assert refused(message(), RUNNING, FREE_AT) == TakeOver(holder=RUNNING)
    assert 2 * MAX_CLOCK_ERROR <= TAKE_OVER_GRACE


def test_a_message_ahead_of_its_row_takes_nothing_over_and_is_kept() -> None:
    assert isinstance(refused(message(3), RUNNING, FREE_AT), Keep)


def test_a_stale_message_of_a_running_row_is_dropped() -> None:
    assert isinstance(refused(message(1), RUNNING, NOW), Drop)


def test_a_stale_message_of_a_retrying_row_arms_the_current_try() -> None:  # P11
    assert refused(message(1), RETRYING, NOW) == Rearm(
        execution=RETRYING, reason="an earlier try's message"
    )


def test_a_message_that_comes_before_its_try_is_due_is_kept_until_then() -> None:  # P10
    assert refused(message(), RETRYING, NOW) == Keep(until=NOW + 90 * SECOND, reason="not due yet")
