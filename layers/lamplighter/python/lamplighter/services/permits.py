"""A place under each limit for what is about to start, and another's turn when it has ended.

An execution is claimed and looked at first; then it takes a place under each limit that it comes
under, and starts. Without one it is BLOCKED: no try is used. Nothing is held while it waits. A
place is its try's for as long as its row says so (`permits.held_until`), so what a worker that
dies leaves behind is free once its lease and the grace are over.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from lamplighter.core.buckets import ExecutionId
from lamplighter.core.errors import Conflict
from lamplighter.core.lifecycle import State
from lamplighter.core.limits import (
    PERMIT_WAITER_KEPT,
    PERMIT_WAITERS_WOKEN,
    PERMITS_LOOKED_AT,
    TAKE_OVER_GRACE,
    WORKER_LEASE,
)
from lamplighter.core.model import Execution, Token
from lamplighter.core.permits import Bound, Key, Limits, Permit, Use, held_until, polled_after
from lamplighter.ports import Ports
from lamplighter.services import timers

_TRIES: Final = 5
_AT_ONCE: Final = timedelta(seconds=1)
_COUNTED: Final = 100
_EVERYBODY: Final = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Full:
    """As many as may run at once of one key do; what else it comes under."""

    bound: Bound
    others: tuple[Bound, ...]


def take(ports: Ports, claimed: Execution, token: Token) -> tuple[Bound, ...] | Full:
    """A place under everything that limits a claimed execution, all or none.

    One after the other, for none of them waits for another; what it took already it gives back,
    and with it others their turn. After a crash, or Unavailable, what it has is free once its
    lease would have ended.
    """
    bounds = ports.permits.limits().on(queue=claimed.queue, owner=claimed.owner, task=claimed.task)
    for number, bound in enumerate(bounds):
        if not _acquire(ports, bound, claimed.id, token):
            release(ports, bounds[:number], claimed.id, token)
            return Full(bound=bound, others=bounds[number + 1 :])
    return bounds


def holds(ports: Ports, bounds: Sequence[Bound], id: ExecutionId, token: Token) -> bool:
    """Whether a try has its places still, or again: to be asked when its lease had run out.

    Another may have found it dead then, and have its place.
    """
    return all(_acquire(ports, bound, id, token) for bound in bounds)


def release(ports: Ports, bounds: Sequence[Bound], id: ExecutionId, token: Token) -> None:
    """Give a try's places back, and wake who waits for one.

    After a crash half-way what is left is free once its lease would have ended, and who waits
    looks for itself.
    """
    for bound in bounds:
        use = ports.permits.release(bound.key, Permit.of(id, token))
        _wake(ports, bound, use, 1)


def wait(ports: Ports, waiting: Execution, full: Full, *, receives: int) -> timedelta:
    """Have one that is BLOCKED woken when there is a place; how long its message is hidden.

    It is BLOCKED before it is noted: who wakes it may do so at once. And it looks once more
    after that: a place that was given back in between nobody was told of.
    """
    key = full.bound.key
    kept_until = ports.clock.now() + PERMIT_WAITER_KEPT
    use = ports.permits.wait(key, waiting.id, kept_until=kept_until)
    _hand_on(ports, full.others)
    return _AT_ONCE if use.room(full.bound) else polled_after(receives)


def _acquire(ports: Ports, bound: Bound, id: ExecutionId, token: Token) -> bool:
    permit = Permit.of(id, token)
    for _ in range(_TRIES):
        now = ports.clock.now()
        until = now + WORKER_LEASE + TAKE_OVER_GRACE
        found = ports.permits.acquire(bound, permit, until=until)
        if found is None:
            return True
        if not _look(ports, bound, found, now):
            return False
    return False


def _look(ports: Ports, bound: Bound, found: Use, now: datetime) -> bool:
    """Ask the rows of those whose time is over; whether it is worth another try.

    They are asked one time in a lease, by whoever is refused, however many are.
    """
    lapsed = found.lapsed(now)
    looked_at = lapsed[:PERMITS_LOOKED_AT]
    if not looked_at:
        return False
    ids = {permit.execution_id for permit in looked_at}
    rows = ports.executions.get_many(ids, strongly=True)
    until = {permit: held_until(permit, rows.get(permit.execution_id), now) for permit in looked_at}
    if not ports.permits.renew(bound.key, found, until):
        # Somebody else has looked, or one has given its place back.
        return True
    free = sum(at is None for at in until.values())
    if free > 1:
        # One is for who looked.
        _hand_on(ports, [bound], most=free - 1)
    return free > 0 or len(lapsed) > len(looked_at)


def _hand_on(ports: Ports, bounds: Sequence[Bound], *, most: int = 1) -> None:
    """Give others the turn of one who was woken for a place and cannot use it."""
    uses = ports.permits.uses([bound.key for bound in bounds]) if bounds else {}
    for bound in bounds:
        if (use := uses.get(bound.key)) is not None:
            _wake(ports, bound, use, most)


def _wake(ports: Ports, bound: Bound, use: Use, most: int) -> int:
    """Send the messages of so many that wait, as far as there is room; how many it were."""
    wanted = min(most, use.room(bound))
    woken = 0
    while woken < wanted:
        ids = ports.permits.next_waiting(bound.key, most=wanted - woken, seen=use)
        rows = [row for id in ids if (row := ports.executions.get(id)) is not None]
        # Who was cancelled, or got its place meanwhile, was noted still.
        blocked = [row for row in rows if row.state is State.BLOCKED]
        timers.send(ports, [timers.outgoing(row) for row in blocked])
        woken += len(blocked)
        if len(ids) == 0:
            break
    return woken


@dataclass(frozen=True, kw_only=True)
class Standing:
    """A limit as an operator sees it."""

    key: Key
    limit: int
    holders: int
    """Who has a place. Of an owner's limit for all: none, each owner has a count of their own."""
    waiting: int
    """How many are noted to wait, counted up to 100."""


def standing(ports: Ports) -> Sequence[Standing]:
    """All limits, and how many run under each; nothing is written."""
    limits = ports.permits.limits(anew=True)
    uses = ports.permits.uses([*limits.of])
    return [_standing(ports, key, most, uses.get(key)) for key, most in sorted(limits.of.items())]


def _standing(ports: Ports, key: Key, most: int, use: Use | None) -> Standing:
    if use is None:
        return Standing(key=key, limit=most, holders=0, waiting=0)
    now = ports.clock.now()
    lapsed = use.lapsed(now)
    rows = ports.executions.get_many({permit.execution_id for permit in lapsed}, strongly=True)
    dead = [
        permit
        for permit in lapsed
        if held_until(permit, rows.get(permit.execution_id), now) is None
    ]
    waiting = ports.permits.waiting(key, most=_COUNTED) if use.call else 0
    return Standing(key=key, limit=most, holders=len(use.holders) - len(dead), waiting=waiting)


def set_limit(ports: Ports, key: Key, most: int) -> Standing:
    """Let so many executions of a key run at once; 0: none starts. What runs goes on.

    Where there is more room than before, who waits is woken: after a crash they look for
    themselves within a minute. Raises Rejected, and Conflict when others change limits as fast.
    """
    _revise(ports, lambda limits: limits.set(key, most))
    use = ports.permits.uses([key]).get(key)
    if use is not None:
        _wake(ports, Bound(key=key, most=most), use, PERMIT_WAITERS_WOKEN)
    return _standing(ports, key, most, use)


def remove_limit(ports: Ports, key: Key) -> bool:
    """Let any number run again; False: there was no such limit. Crashes are as in `set_limit`."""
    if key not in ports.permits.limits(anew=True).of:
        return False
    limits = _revise(ports, lambda limits: limits.without(key))
    use = ports.permits.uses([key]).get(key)
    # An owner may still come under the limit of all owners.
    left = [b for b in limits.on(queue=key.name, owner=key.name, task=key.name) if b.key == key]
    room = left[0] if left else Bound(key=key, most=_EVERYBODY)
    if use is not None:
        _wake(ports, room, use, PERMIT_WAITERS_WOKEN)
    return True


def _revise(ports: Ports, change: Callable[[Limits], Limits]) -> Limits:
    for _ in range(_TRIES):
        before = ports.permits.limits(anew=True)
        after = change(before)
        if ports.permits.revise(before, after):
            return after
    raise Conflict(reason="the limits change faster than they can be written")
