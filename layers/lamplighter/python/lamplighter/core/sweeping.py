"""What the sweep does with an execution that should have ended by now (P6, P7)."""

import zlib
from dataclasses import dataclass, replace
from datetime import datetime

from lamplighter.core.buckets import Position
from lamplighter.core.lease import Backlog, Progress
from lamplighter.core.lifecycle import State
from lamplighter.core.limits import (
    BACKED_UP_MESSAGES,
    CHECK_RUNNING_AFTER_LEASE,
    CHECK_RUNNING_AT_LEAST,
    CHECK_SCHEDULED_AGAIN,
    HELD_BACK,
    HELD_BACK_PARTS,
    PERMIT_POLLED_WITHIN,
    SWEEP_AFTER,
    TAKE_OVER_GRACE,
)
from lamplighter.core.model import Execution


@dataclass(frozen=True, kw_only=True)
class Leave:
    """Somebody is at it; look again then."""

    again_at: datetime
    exactly: bool = False
    """Whether every visit until then says the same, and it is worth a look of its own."""


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
    is_behind = row.state is State.BLOCKED and blocker is not None and not blocker.is_final
    # Of one that waits for a permit, another message would come by for as long, and so on.
    if is_behind or _waits_for_permit(row, now):
        return Leave(again_at=now + CHECK_SCHEDULED_AGAIN)
    # What came up or was woken a moment ago has its message under way.
    moved_at = max(row.due_at, _woken_at(row, blocker))
    if now - moved_at < SWEEP_AFTER:
        return Leave(again_at=moved_at + SWEEP_AFTER, exactly=True)
    # The later it is, the less often: what is sent again stays a few messages in all.
    wait = max(CHECK_SCHEDULED_AGAIN, (now - row.due_at) / 2)
    return Repair(again_at=now + wait, reason=f"{row.state} past its time")


def _woken_at(row: Execution, blocker: Execution | None) -> datetime:
    """When whoever ended what it waited for had it woken; before that, when it was due."""
    is_woken = row.state is State.BLOCKED and blocker is not None
    ended_at = blocker.finished_at if is_woken and blocker else None
    return ended_at or row.due_at


def _waits_for_permit(row: Execution, now: datetime) -> bool:
    """Whether it waits for a place under a limit, and was there to ask for one not long ago."""
    is_blocked = row.state is State.BLOCKED and row.blocker is None
    asked_at = row.started_at if is_blocked else None
    return asked_at is not None and now - asked_at < PERMIT_POLLED_WITHIN


def _running(row: Execution, lease_until: datetime, now: datetime) -> Leave | Repair:
    again_at = max(lease_until + CHECK_RUNNING_AFTER_LEASE, now + CHECK_RUNNING_AT_LEAST)
    if lease_until + TAKE_OVER_GRACE > now:
        return Leave(again_at=again_at)
    if lease_until + CHECK_RUNNING_AFTER_LEASE > now:
        # Its message is coming back just now, and whoever gets it takes over.
        return Leave(again_at=lease_until + CHECK_RUNNING_AFTER_LEASE, exactly=True)
    return Repair(again_at=again_at, reason=f"worker {row.worker} is silent")


def beside(swept: Progress, dispatched: Progress, now: datetime) -> Progress:
    """How far a sweep has come, seen beside how far dispatch has.

    While that drains a backlog the sweep has one too: what its walk has not come to, because it
    may not yet (`Progress.settled`). Its watermark is then how far it has looked ahead, past
    dispatch's backlog. Where its own has come to all of that, it is over.
    """
    left, draining = swept.backlog, dispatched.backlog
    watermark = max(swept.watermark, draining.until) if draining else swept.watermark
    if left is not None:
        left = replace(left.noting(dispatched.watermark, now), until=watermark)
    elif draining is not None and not draining.is_drained:
        between = Backlog.between(swept.watermark, watermark, now=now, settled=draining.until)
        left = replace(between, mark=dispatched.watermark)
    return Progress(watermark=watermark, backlog=left) if left else swept


def is_decided(dispatched: Progress, position: Position) -> bool:
    """Whether dispatch has done the row at a position, and nothing before it that it is still in.

    Of a backlog, what was sent a moment ago is not (P6).
    """
    backlog = dispatched.backlog
    is_left = backlog is not None and backlog.settled < position <= backlog.until
    return not is_left and position <= dispatched.watermark


def is_backlog(waiting: int, *, due_each_minute: int) -> bool:
    """Whether what is late in a lane most likely waits there for its turn.

    It does where more messages wait than half a minute brings: then even a small lane is not given
    more to do by what it has not done yet, which is how a backlog outlives its cause.
    """
    return waiting > max(BACKED_UP_MESSAGES, due_each_minute // 2)


def is_sent_all_the_same(row: Execution, now: datetime) -> bool:
    """Whether a row is sent again though its lane has a backlog: it may be lost, and that stay.

    Each time that its lateness has doubled since an hour, it is the turn of another quarter of all
    rows: every row has had one by the time it is 16 hours late, and a backlog of many hours
    does not double. A row is visited at least once in each turn (`visit`).
    """
    if now - row.due_at <= HELD_BACK:
        return False
    turn = ((now - row.due_at) // HELD_BACK).bit_length() - 1
    return zlib.crc32(row.id.encode()) % HELD_BACK_PARTS == turn % HELD_BACK_PARTS
