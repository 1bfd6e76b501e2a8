"""Aging: what has waited for too long in one lane gets a message in another (S0-P2).

The row stays where it is: its retries, its pointers and its lists go by the lane that its owner
chose. Of two messages the claim lets one through.
"""

from datetime import datetime

from lamplighter.core.lanes import LaneRules
from lamplighter.core.lifecycle import State
from lamplighter.core.model import Execution


def promotion(row: Execution, rules: LaneRules | None, now: datetime) -> str | None:
    """The lane that what is due for a row has waited long enough to be run in; None: its own.

    One that is RUNNING waits for nothing: its message is with its worker, or comes back.
    """
    if rules is None or rules.promote_after is None or row.state is State.RUNNING:
        return None
    return rules.promotes_to if now - row.due_at >= rules.promote_after else None


def seen_in_time(
    row: Execution, rules: LaneRules | None, now: datetime, again_at: datetime
) -> datetime:
    """When to look at a row again: as planned, or sooner, when it comes to be promoted.

    Sooner once at most: after that its wait is over, and looks grow further apart.
    """
    if rules is None or rules.promote_after is None or row.state is State.RUNNING:
        return again_at
    is_old_at = row.due_at + rules.promote_after
    return min(again_at, is_old_at) if is_old_at > now else again_at
