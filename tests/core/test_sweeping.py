from dataclasses import replace
from datetime import timedelta

import pytest

from lamplighter.core.lifecycle import FINAL, State
from lamplighter.core.model import Execution
from lamplighter.core.sweeping import Leave, Repair, visit
from tests.core.test_claim import NOW, RETRYING, ROW, RUNNING, SECOND

MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize("state", sorted(FINAL))
def test_a_final_row_needs_nothing(state: State) -> None:
    assert visit(replace(ROW, state=state), NOW + MINUTE) is None


def test_a_row_nobody_started_is_sent_again_and_looked_at_in_five_minutes() -> None:
    assert visit(ROW, NOW + 3 * MINUTE) == Repair(
        again_at=NOW + 8 * MINUTE, reason="SCHEDULED past its time"
    )


def test_a_retry_that_is_not_due_is_looked_at_when_it_is() -> None:
    assert visit(RETRYING, NOW) == Leave(again_at=NOW + 90 * SECOND)


def test_a_retry_that_is_due_is_sent_again() -> None:
    assert visit(RETRYING, NOW + 2 * MINUTE) == Repair(
        again_at=NOW + 7 * MINUTE, reason="RETRYING past its time"
    )


def test_a_live_run_is_looked_at_no_sooner_than_in_ten_minutes() -> None:
    assert visit(RUNNING, NOW) == Leave(again_at=NOW + 10 * MINUTE)


def test_a_silent_run_is_repaired_once_it_may_be_taken_over() -> None:
    at = NOW + 35 * SECOND

    assert isinstance(visit(RUNNING, at - timedelta(milliseconds=1)), Leave)
    assert visit(RUNNING, at) == Repair(again_at=at + 10 * MINUTE, reason="worker None is silent")


@pytest.mark.parametrize("row", [ROW, RETRYING, RUNNING], ids=lambda row: row.state)
@pytest.mark.parametrize("minutes", [0, 1, 5, 60, 100_000])
def test_what_is_not_final_is_always_looked_at_again(row: Execution, minutes: int) -> None:  # P7
    now = NOW + minutes * MINUTE

    needed = visit(row, now)

    assert needed is not None
    assert needed.again_at > now
