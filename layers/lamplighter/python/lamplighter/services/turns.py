"""Whose turn it is in a job's chain: what a claimed execution does about those before it.

It was claimed before this look, and whatever comes after it in the chain will look at it: so of
two, one sees the other (P12-P16).
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, assert_never

from lamplighter.core import overlap
from lamplighter.core.buckets import ExecutionId
from lamplighter.core.errors import Unavailable
from lamplighter.core.lifecycle import Event, State
from lamplighter.core.limits import CHAIN_READS
from lamplighter.core.model import Execution, OverlapPolicy, Token
from lamplighter.core.outcome import blocked, ended, put_off, terminated
from lamplighter.core.overlap import GiveWay, Start, TakeItsPlace, Wait
from lamplighter.core.waits import Part
from lamplighter.ports import Ports, Refusal
from lamplighter.services import endings

_TRIES: Final = 5
_AT_ONCE: Final = timedelta(seconds=1)


@dataclass(frozen=True, kw_only=True)
class Mine:
    """All before it have ended: it starts."""


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """It was made BLOCKED; its message has no more use."""


@dataclass(frozen=True, kw_only=True)
class Over:
    """It is to become this: SKIPPED, or due again in a while."""

    after: Execution


Turned = Mine | Waiting | Over


@dataclass(frozen=True, kw_only=True)
class Held:
    """One that was terminated, whose handler may run until then."""

    id: ExecutionId
    until: datetime


@dataclass(frozen=True, kw_only=True)
class Further:
    """A walk that was cut; it goes on at this one."""

    behind: ExecutionId


def look_back(ports: Ports, claimed: Execution, policy: OverlapPolicy, token: Token) -> Turned:
    """What a claimed execution may do.

    After a crash its message is there, and another worker looks anew. Raises LostClaim when
    it is no longer ours, Unavailable when a service did not answer or the chain before it
    changes faster than it can be read.
    """
    for _ in range(_TRIES):
        found = _in_its_way(ports, claimed)
        if isinstance(found, Further):
            return Over(after=_later(ports, replace(claimed, predecessor=found.behind)))
        if isinstance(found, Held):
            return Over(after=_later(ports, claimed, until=found.until))
        turned = _turn(ports, claimed, found, policy, token)
        if turned is not None:
            return turned
    raise Unavailable(f"the chain before {claimed.id} changes faster than it can be read")


def _in_its_way(ports: Ports, row: Execution) -> Execution | Held | Further | None:
    """The nearest before a row; what it waited for, when it did, was the nearest then."""
    return nearest(ports, row.blocker or row.predecessor)


def nearest(ports: Ports, id: ExecutionId | None) -> Execution | Held | Further | None:
    """Back along a chain from here, the first that has not ended, or has not let go.

    One whose row is gone has ended long ago.
    """
    for _ in range(CHAIN_READS):
        found = ports.executions.get(id) if id else None
        if found is None or not found.is_final:
            return found
        until = overlap.let_go_at(found)
        if until is not None and until > ports.clock.now():
            return Held(id=found.id, until=until)
        id = overlap.before(found)
    return Further(behind=id) if id else None


def _turn(
    ports: Ports,
    claimed: Execution,
    found: Execution | None,
    policy: OverlapPolicy,
    token: Token,
) -> Turned | None:
    """None: the chain has changed, look again."""
    turn = overlap.turn(policy, found)
    if found is None or isinstance(turn, Start):
        return Mine()
    match turn:
        case GiveWay(reason=reason):
            now = ports.clock.now()
            return Over(after=ended(claimed, Event.SKIP, now=now, reason=reason, blocker=found.id))
        case Wait(alone=alone):
            return _wait(ports, claimed, found, token, alone=alone)
        case TakeItsPlace(forced=forced):
            return _take_its_place(ports, claimed, found, token, forced=forced)
        case other:
            assert_never(other)


def _wait(
    ports: Ports, claimed: Execution, found: Execution, token: Token, *, alone: bool
) -> Waiting | None:
    waiting = ports.executions.block(blocked(claimed, by=found.id), token=token, alone=alone)
    if isinstance(waiting, Refusal):
        return None
    if alone:
        # Who waits for it may not any more: it decides again (P15).
        endings.wake(ports, waiting)
    return Waiting()


def _take_its_place(
    ports: Ports, claimed: Execution, found: Execution, token: Token, *, forced: bool
) -> Turned | None:
    now, reason = ports.clock.now(), f"overlap: {claimed.id} took its place"
    if found.state is not State.RUNNING:
        over = ended(found, Event.CANCEL, now=now, reason=reason)
        endings.end(ports, found, replace(over, cancel_requested_at=now))
        return None
    if forced:
        _terminate(ports, found, now=now, reason=reason)
        return None
    if isinstance(ports.executions.request_cancel(found.id, now=now), Refusal):
        return None
    return _wait(ports, claimed, found, token, alone=False)


def _terminate(ports: Ports, holder: Execution, *, now: datetime, reason: str) -> None:
    """Fence the holder off; whoever looks at it then waits until it has let go (P9)."""
    over = terminated(holder, now=now, reason=reason)
    if _in_its_way(ports, holder) is None:
        # Kept, or a chain of which each ends the one before would be walked to its beginning.
        over = replace(over, predecessor=None, blocker=None)
    endings.end(ports, holder, over)


def _later(ports: Ports, claimed: Execution, *, until: datetime | None = None) -> Execution:
    soon = ports.clock.now() + _AT_ONCE
    return put_off(
        claimed,
        until=max(until or soon, soon),
        reason="overlap: waits for its turn",
        on=Part.BLOCKED,
    )
