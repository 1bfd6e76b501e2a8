from dataclasses import replace
from datetime import timedelta

import pytest

from lamplighter.core.buckets import execution_id
from lamplighter.core.lifecycle import FINAL, State
from lamplighter.core.limits import BACKED_UP_MESSAGES
from lamplighter.core.model import Execution
from lamplighter.core.sweeping import (
    Leave,
    Repair,
    is_backlog,
    is_sent_all_the_same,
    visit,
)
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


@pytest.mark.parametrize(
    ("waiting", "each_minute", "is_one"),
    [
        (0, 0, False),
        (BACKED_UP_MESSAGES, 0, False),
        (BACKED_UP_MESSAGES + 1, 0, True),
        (300, 600, False),
        (301, 600, True),
        (31, 30, True),
    ],
    ids=[
        "nothing waits: it is lost",
        "a few in a quiet lane",
        "more than a few in a quiet lane",
        "what comes in half a minute, of a busy lane",
        "more than that",
        "a minute's worth of a slow lane",
    ],
)
def test_a_lane_has_a_backlog_by_what_it_is_used_to(
    waiting: int, each_minute: int, *, is_one: bool
) -> None:
    assert is_backlog(waiting, due_each_minute=each_minute) is is_one


def rows(count: int) -> list[Execution]:
    at = ROW.run_at
    return [replace(ROW, id=execution_id(at, 0, number)) for number in range(count)]


def sent(late_by: timedelta) -> set[str]:
    due = rows(400)
    return {row.id for row in due if is_sent_all_the_same(row, row.due_at + late_by)}


def test_in_a_backlog_nothing_is_sent_again_for_an_hour() -> None:
    assert sent(60 * MINUTE) == set()


def test_in_a_backlog_each_is_sent_again_once_by_the_time_it_is_sixteen_hours_late() -> None:
    turns = [sent(timedelta(hours=hours)) for hours in (1.5, 3, 6, 12)]

    assert {len(turn) for turn in turns} <= {*range(70, 131)}
    assert len(set[str]().union(*turns)) == sum(len(turn) for turn in turns) == 400


def test_no_turn_is_passed_over_by_visits_that_come_half_as_much_later_each_time() -> None:
    """As `visit` says, and a few minutes later: a bucket's minute, the tick's, the sweep's."""
    seen, late_by = set[str](), 5 * MINUTE
    while late_by < timedelta(hours=40):
        seen |= sent(late_by)
        late_by += max(5 * MINUTE, late_by / 2) + 150 * SECOND

    assert len(seen) == 400
