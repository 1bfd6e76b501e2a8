"""What the sweep does with an execution that should have ended by now (P6, P7)."""

from dataclasses import dataclass
from datetime import datetime

from lamplighter.core.lifecycle import State
from lamplighter.core.limits import (
    CHECK_RUNNING_AFTER_LEASE,
    CHECK_RUNNING_AT_LEAST,
    CHECK_SCHEDULED_AGAIN,
    SWEEP_AFTER,
    TAKE_OVER_GRACE,
)
from lamplighter.core.model import Execution


@dataclass(frozen=True, kw_only=True)
class Leave:
    """Somebody is at it; look again then."""

    again_at: datetime


@dataclass(frozen=True, kw_only=True)
class Repair:
    """Nobody may be at it any more: send its message again, and look again then."""

    again_at: datetime
    reason: str


def visit(
    row: Execution, now: datetime, *, blocker: Execution | None = None
) -> Leave | Repair | None:
    """What a row needs, and when it is looked at next; None when it is final.

    Every row that is not final gets another visit, so that one that dies later is seen too.
    `blocker` is what a BLOCKED one waits for: while that has not ended, it is the one to mend.
    """
    if row.is_final:
        return None
    if row.state is State.RUNNING and row.lease_until is not None:
        return _running(row, row.lease_until, now)
    if row.due_at > now:
        return Leave(again_at=row.due_at)
    if row.state is State.BLOCKED and blocker is not None and not blocker.is_final:
        return Leave(again_at=now + CHECK_SCHEDULED_AGAIN)
    if row.caught_up is not None and now - row.due_at < SWEEP_AFTER:
        # The sweep comes close behind a catch-up: its message is out, or was a moment ago.
        return Leave(again_at=row.due_at + SWEEP_AFTER)
    # The later it is, the less often: what is sent again stays a few messages in all.
    wait = max(CHECK_SCHEDULED_AGAIN, (now - row.due_at) / 2)
    return Repair(again_at=now + wait, reason=f"{row.state} past its time")


def _running(row: Execution, lease_until: datetime, now: datetime) -> Leave | Repair:
    again_at = max(lease_until + CHECK_RUNNING_AFTER_LEASE, now + CHECK_RUNNING_AT_LEAST)
    if lease_until + TAKE_OVER_GRACE > now:
        return Leave(again_at=again_at)
    return Repair(again_at=again_at, reason=f"worker {row.worker} is silent")
