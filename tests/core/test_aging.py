"""S0-P2: what has waited for too long in its lane is raised above it."""

from dataclasses import replace
from datetime import timedelta

import pytest

from lamplighter.core.aging import Promotion, look_ahead_at, promotion
from lamplighter.core.lanes import LaneRules
from lamplighter.core.lifecycle import State
from lamplighter.core.limits import PROMOTE_AHEAD, SWEEP_AFTER
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

    old = Promotion(to="critical", at=is_old_at)

    assert promotion(row, RULES, is_old_at - PROMOTE_AHEAD - MOMENT) is None
    assert promotion(row, RULES, is_old_at - PROMOTE_AHEAD) == old
    assert promotion(row, RULES, is_old_at + 1000 * MINUTE) == old


def test_a_lane_that_promotes_nothing_does_not() -> None:
    assert promotion(ROW, None, NOW + 1000 * MINUTE) is None
    assert promotion(ROW, LaneRules(fair=True), NOW + 1000 * MINUTE) is None


def test_a_run_whose_worker_is_silent_waits_for_nothing() -> None:
    assert promotion(RUNNING, RULES, NOW + 1000 * MINUTE) is None
    assert look_ahead_at(RUNNING, RULES, NOW) is None


def test_it_is_looked_at_so_long_before_it_is_old_that_a_message_is_there_by_then() -> None:
    """S0-P2: the sweep comes by a look within 150 s of its minute's beginning."""
    is_old_at = ROW.due_at + 15 * MINUTE

    assert look_ahead_at(ROW, RULES, ROW.due_at + 3 * MINUTE) == is_old_at - PROMOTE_AHEAD
    assert PROMOTE_AHEAD >= MINUTE + SWEEP_AFTER + MINUTE


def test_what_is_as_good_as_old_needs_no_look_of_its_own() -> None:
    assert look_ahead_at(ROW, RULES, ROW.due_at + 15 * MINUTE - PROMOTE_AHEAD) is None
    assert look_ahead_at(ROW, RULES, ROW.due_at + 15 * MINUTE) is None
    assert look_ahead_at(ROW, None, ROW.due_at) is None
