from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from lamplighter.core.buckets import Position, before, execution_id
from lamplighter.core.lease import Backlog, Progress
from lamplighter.core.lifecycle import FINAL, State
from lamplighter.core.limits import BACKED_UP_MESSAGES, SWEEP_AFTER
from lamplighter.core.model import Execution
from lamplighter.core.sweeping import (
    Leave,
    Repair,
    beside,
    is_backlog,
    is_decided,
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
    at = NOW + 60 * SECOND

    assert visit(RUNNING, at) == Repair(again_at=at + 10 * MINUTE, reason="worker None is silent")


def test_the_message_of_a_silent_run_is_given_time_to_come_back() -> None:
    """P7: that another worker takes over is no repair; a look in a minute sees to the rest."""
    for seconds in (35, 59):
        at = NOW + seconds * SECOND
        assert visit(RUNNING, at) == Leave(again_at=NOW + 60 * SECOND, exactly=True)


def test_what_came_up_a_moment_ago_is_looked_at_once_more() -> None:
    """P7: the message of a try again may be under way; a minute later it is lost."""
    due = NOW + 90 * SECOND

    assert visit(RETRYING, due) == Leave(again_at=due + SWEEP_AFTER, exactly=True)
    assert isinstance(visit(RETRYING, due + SWEEP_AFTER), Repair)


@pytest.mark.parametrize(
    ("since_s", "is_repaired"), [(0, False), (29, False), (30, True), (3600, True)]
)
def test_what_was_woken_a_moment_ago_is_looked_at_once_more(
    since_s: int, *, is_repaired: bool
) -> None:
    """P14, P7: whoever ended what it waited for has sent its message."""
    ended = replace(ROW, state=State.SUCCEEDED, finished_at=NOW + 10 * MINUTE)
    waiter = replace(ROW, state=State.BLOCKED, blocker=ended.id)
    now = NOW + 10 * MINUTE + since_s * SECOND

    needed = visit(waiter, now, blocker=ended)

    assert isinstance(needed, Repair) is is_repaired
    if not is_repaired:
        assert needed == Leave(again_at=NOW + 10 * MINUTE + SWEEP_AFTER, exactly=True)


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


T = datetime(2026, 1, 1, 12, tzinfo=UTC)
"""When dispatch came back after an hour."""


def place(minutes: float) -> Position:
    return before(T + minutes * MINUTE)


def draining(after: float, settled: float, *, watermark: float = 4) -> Progress:
    """Dispatch, ahead of the time by as much, with an hour's backlog."""
    backlog = Backlog.between(place(-60), place(0), now=T, settled=place(settled))
    return Progress(watermark=place(watermark), backlog=replace(backlog, after=place(after)))


def test_without_a_backlog_of_dispatch_a_sweep_has_none() -> None:
    swept = Progress(watermark=place(-2))

    assert beside(swept, Progress(watermark=place(4)), T) == swept
    # All of it was sent, and is about to be settled.
    assert beside(swept, draining(0, -30), T) == swept


def test_beside_a_backlog_a_sweep_leaves_its_walk_behind_and_looks_ahead_past_it() -> None:
    """P6: as far as dispatch had come half a minute ago, though its watermark jumps."""
    began = beside(Progress(watermark=place(-61)), draining(-60, -61), T)
    soon = beside(began, draining(-50, -55, watermark=4.4), T + 29 * SECOND)
    later = beside(soon, draining(-50, -55, watermark=30), T + 60 * SECOND)

    assert began.watermark == place(0)
    assert began.committed == place(-61)
    assert [one.backlog.settled for one in (began, soon, later) if one.backlog] == [
        place(0),
        place(0),
        place(4),
    ]


def test_a_sweep_that_looks_ahead_goes_past_the_next_backlog_too() -> None:
    """P6: whatever it had looked at by then, its walk comes by all of it."""
    looking = beside(Progress(watermark=place(-61)), draining(-60, -61), T)
    second = Backlog.between(place(4), place(40), now=T + 40 * MINUTE, settled=place(-10))
    found = beside(looking, Progress(watermark=place(44), backlog=second), T + 40 * MINUTE)

    assert found.watermark == place(40)
    assert found.committed == place(-61)
    assert found.backlog is not None
    assert found.backlog.until == place(40)


@pytest.mark.parametrize(
    ("minutes", "is_it"),
    [(-61, True), (-55, True), (-54, False), (0, False), (1, True), (4, True), (5, False)],
)
def test_what_dispatch_is_done_with_is_decided(minutes: float, *, is_it: bool) -> None:
    """P6: of a backlog, what was settled; beside it, what lies behind the watermark."""
    assert is_decided(draining(-50, -55), place(minutes)) is is_it
