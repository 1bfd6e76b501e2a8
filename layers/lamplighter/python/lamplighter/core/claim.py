"""What a worker does with a message whose claim was refused (P8–P11)."""

from dataclasses import dataclass
from datetime import datetime

from lamplighter.core.lifecycle import State
from lamplighter.core.limits import TAKE_OVER_GRACE
from lamplighter.core.model import Execution, Message


@dataclass(frozen=True, kw_only=True)
class Drop:
    """Delete the message: nobody will ever need it."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class Keep:
    """Hide the message until then: somebody may still need it."""

    until: datetime
    reason: str


@dataclass(frozen=True, kw_only=True)
class TakeOver:
    """The holder has been silent for longer than its lease and the grace."""

    holder: Execution


@dataclass(frozen=True, kw_only=True)
class Rearm:
    """The message is stale but may be the only one left: arm the row's own try first."""

    execution: Execution
    reason: str


@dataclass(frozen=True, kw_only=True)
class Watch:
    """The try is deferred, and its lease live: a message has to come when that is over.

    This one does, unless it has been received too often, or that is too far ahead: then another
    is armed first.
    """

    execution: Execution
    until: datetime
    reason: str


@dataclass(frozen=True, kw_only=True)
class Lapsed:
    """The try is deferred, and nothing was heard of it for longer than its lease and the grace."""

    holder: Execution


Refusal = Drop | Keep | TakeOver | Rearm | Watch | Lapsed


def refused(message: Message, row: Execution | None, now: datetime) -> Refusal:
    """What the row, as the claim found it, means for the message.

    A message is dropped only when its row is final or has moved past the message's try; while
    another holds a live lease it is kept until that lease and the grace are over (P8, P9).
    """
    if row is None:
        return Drop(reason="no such execution")
    if row.is_final:
        return Drop(reason=f"already {row.state}")
    if message.attempt < row.attempt:
        return _stale(row)
    if row.state is State.RUNNING and row.lease_until is not None:
        return _held(message, row, row.lease_until + TAKE_OVER_GRACE, now)
    return Keep(until=row.due_at, reason="not due yet")


def _held(message: Message, row: Execution, free_at: datetime, now: datetime) -> Refusal:
    if row.deferral is not None:
        is_over = free_at <= now
        return (
            Lapsed(holder=row)
            if is_over
            else Watch(execution=row, until=free_at, reason="deferred")
        )
    if free_at <= now and message.attempt == row.attempt:
        return TakeOver(holder=row)
    return Keep(until=free_at, reason="held by another worker")


def _stale(row: Execution) -> Refusal:
    if row.state is State.RETRYING:
        # The try that failed wrote RETRYING and may have died before it armed the next (P11).
        return Rearm(execution=row, reason="an earlier try's message")
    return Drop(reason="an earlier try's message")
