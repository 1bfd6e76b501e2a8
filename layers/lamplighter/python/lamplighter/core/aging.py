"""Aging: what has waited for too long in one lane gets a message in another (S0-P2).

The row stays where it is: its retries, its pointers and its lists go by the lane that its owner
chose. Of two messages the claim lets one through.
"""

from dataclasses import dataclass
from datetime import datetime

from lamplighter.core.lanes import LaneRules
from lamplighter.core.lifecycle import State
from lamplighter.core.limits import PROMOTE_AHEAD
from lamplighter.core.model import Execution


@dataclass(frozen=True, kw_only=True)
class Promotion:
    """From that instant on a row may be run in that lane too."""

    to: str
    at: datetime


def promotion(row: Execution, rules: LaneRules | None, now: datetime) -> Promotion | None:
    """Where and when what is due for a row is old enough for another lane; None: not soon.

    What comes to be before the next look is told ahead, so that its message is there by then.
    """
    found = _promotion(row, rules)
    return found if found and found.at - now <= PROMOTE_AHEAD else None


def look_ahead_at(row: Execution, rules: LaneRules | None, now: datetime) -> datetime | None:
    """When to look at a row so that it is promoted in time; None: it is, or never will be."""
    found = _promotion(row, rules)
    return found.at - PROMOTE_AHEAD if found and found.at - now > PROMOTE_AHEAD else None


def _promotion(row: Execution, rules: LaneRules | None) -> Promotion | None:
    """One that is RUNNING waits for nothing: its message is with its worker, or comes back."""
    if rules is None or rules.promotes_to is None or rules.promote_after is None:
        return None
    if row.state is State.RUNNING:
        return None
    return Promotion(to=rules.promotes_to, at=row.due_at + rules.promote_after)
