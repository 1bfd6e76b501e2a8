"""S0-P2: what has waited for too long in its lane is raised above it."""

from dataclasses import replace
from datetime import timedelta

import pytest

from lamplighter.core.aging import promotion, seen_in_time
from lamplighter.core.lanes import LaneRules
from lamplighter.core.lifecycle import State
from lamplighter.core.model import Execution
from tests.core.test_claim import NOW, RETRYING, ROW, RUNNING

MINUTE = timedelta(minutes=1)
MOMENT = timedelta(milliseconds=1)
RULES = LaneRules(promotes_to="critical", promote_after=15 * MINUTE)
BLOCKED = replace(ROW, state=State.BLOCKED)


@pytest.mark.parametrize("row", [ROW, RETRYING, BLOCKED], ids=lambda row: row.state)
def test_what_waits_is_promoted_from_the_moment_on_that_it_is_old(row: Execution) -> None:
    """S0-P2: its age is counted from when its try is due."""
    is_old_at = row.due_at + 15 * MINUTE

    assert promotion(row, RULES, is_old_at - MOMENT) is None
    assert promotion(row, RULES, is_old_at) == "critical"
    assert promotion(row, RULES, is_old_at + 1000 * MINUTE) == "critical"


def test_a_lane_that_promotes_nothing_does_not() -> None:
    assert promotion(ROW, None, NOW + 1000 * MINUTE) is None
    assert promotion(ROW, LaneRules(fair=True), NOW + 1000 * MINUTE) is None


def test_a_run_whose_worker_is_silent_waits_for_nothing() -> None:
    assert promotion(RUNNING, RULES, NOW + 1000 * MINUTE) is None
    assert seen_in_time(RUNNING, RULES, NOW, NOW + 20 * MINUTE) == NOW + 20 * MINUTE


@pytest.mark.parametrize(
    ("planned", "seen"),
    [
        pytest.param(10, 10, id="as planned, which is before it is old"),
        pytest.param(20, 15, id="when it comes to be old"),
    ],
)
def test_it_is_seen_when_it_comes_to_be_old(planned: int, seen: int) -> None:
    now, due = ROW.due_at + 3 * MINUTE, ROW.due_at

    assert seen_in_time(ROW, RULES, now, due + planned * MINUTE) == due + seen * MINUTE


def test_what_is_old_is_looked_at_no_more_often_than_anything_else() -> None:
    now = ROW.due_at + 15 * MINUTE

    assert seen_in_time(ROW, RULES, now, now + 8 * MINUTE) == now + 8 * MINUTE
    assert seen_in_time(ROW, None, now, now + 8 * MINUTE) == now + 8 * MINUTE
