"""How far a backlog has drained, and when it will be over."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from lamplighter.core.buckets import instant_of
from lamplighter.core.lease import Backlog


@dataclass(frozen=True, kw_only=True)
class Drain:
    """The backlogs of all partitions as one."""

    since: datetime
    """When dispatch came back."""
    oldest: datetime
    """Where it is: what was due before this has been dispatched."""
    until: datetime
    """Where it ends: what is due later was never in it."""
    share: float
    """How much of the time that was missed is done with, 0 … 1, of the slowest partition."""
    sent: int
    """Messages so far."""
    ends_at: datetime | None
    """When the last partition is done with it, if it goes on as it has; None: too early to say."""


def drain_of(backlogs: Collection[Backlog], now: datetime) -> Drain | None:
    """What partitions' backlogs come to; None when there is none."""
    backlogs = [one for one in backlogs if not one.is_drained]
    if not backlogs:
        return None
    ends = [_ends_at(one, now) for one in backlogs]
    known = [end for end in ends if end is not None]
    return Drain(
        since=min(one.since for one in backlogs),
        oldest=min(instant_of(one.after) for one in backlogs),
        until=max(instant_of(one.until) for one in backlogs),
        share=min(_share(one) for one in backlogs),
        sent=sum(one.sent for one in backlogs),
        ends_at=max(known) if len(known) == len(ends) else None,
    )


def left_of(backlog: Backlog) -> timedelta:
    """How much of the time that was missed is still to be done."""
    return instant_of(backlog.until) - instant_of(backlog.after)


def _share(backlog: Backlog) -> float:
    whole = instant_of(backlog.until) - instant_of(backlog.first)
    return 1 - left_of(backlog) / whole if whole else 1.0


def _ends_at(backlog: Backlog, now: datetime) -> datetime | None:
    """As fast as so far: its minutes are taken to be equally full."""
    share = _share(backlog)
    return now + (now - backlog.since) * ((1 - share) / share) if share > 0 else None
