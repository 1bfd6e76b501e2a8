"""Limits of how many executions run at once, and who has a place under each.

A place is held by a try, and for as long as its row is RUNNING under its token and lease: the
row is what tells. Who is refused looks at the rows of those whose time is over, so a place is
neither renewed while all goes well nor lost when a worker dies.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, Self

from lamplighter.core import limits
from lamplighter.core.buckets import ExecutionId, Position, body_of, execution_at
from lamplighter.core.errors import Rejected
from lamplighter.core.lifecycle import State
from lamplighter.core.model import Execution, Token
from lamplighter.core.overlap import let_go_at

EVERY_OWNER: Final = "*"
"""The name of a limit that each owner has who has none of their own."""
_BODY_CHARS: Final = 26
_MARK_CHARS: Final = 8


class Kind(StrEnum):
    """What the executions under one limit have in common."""

    QUEUE = "queue"
    OWNER = "owner"
    TASK = "task"


@dataclass(frozen=True, kw_only=True, order=True)
class Key:
    """What is limited: a lane, an owner, or a task."""

    kind: Kind
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    @classmethod
    def of(cls, kind: str, name: str) -> Self:
        """A key as an operator names it; raises Rejected."""
        kinds = [known.value for known in Kind]
        if kind not in kinds:
            raise Rejected(field="kind", value=kind, reason=f"not one of {', '.join(kinds)}")
        most = limits.OWNER_MAX_CHARS if kind == Kind.OWNER else limits.NAME_MAX_CHARS
        if not 1 <= len(name) <= most or not name.isprintable() or name != name.strip():
            reason = f"not 1–{most} printable characters without spaces at its ends"
            raise Rejected(field="name", value=name, reason=reason)
        return cls(kind=Kind(kind), name=name)


@dataclass(frozen=True, kw_only=True)
class Bound:
    """A key that an execution comes under, and the limit as it was last read."""

    key: Key
    most: int


@dataclass(frozen=True, kw_only=True)
class Limits:
    """All limits that there are, at most LIMITS_MAX; each change of them is a version."""

    of: Mapping[Key, int] = field(default_factory=dict)
    version: int = 0

    def on(self, *, queue: str, owner: str, task: str) -> tuple[Bound, ...]:
        """What an execution comes under, the tightest first: that is the likeliest to be full."""
        named = [
            (Key(kind=Kind.QUEUE, name=queue), None),
            (Key(kind=Kind.OWNER, name=owner), Key(kind=Kind.OWNER, name=EVERY_OWNER)),
            (Key(kind=Kind.TASK, name=task), None),
        ]
        bounds = [
            Bound(key=key, most=most)
            for key, instead in named
            if (most := self.of.get(key, self.of.get(instead) if instead else None)) is not None
        ]
        return tuple(sorted(bounds, key=lambda bound: bound.most))

    def set(self, key: Key, most: int) -> "Limits":
        """With this one; raises Rejected for a number out of range, and for one limit too many."""
        if not 0 <= most <= limits.LIMIT_MAX:
            raise Rejected(field="limit", value=most, reason=f"not in 0–{limits.LIMIT_MAX}")
        if key not in self.of and len(self.of) >= limits.LIMITS_MAX:
            reason = f"there are {limits.LIMITS_MAX} limits already"
            raise Rejected(field="limits", value=len(self.of), reason=reason)
        return replace(self, of={**self.of, key: most}, version=self.version + 1)

    def without(self, key: Key) -> "Limits":
        """Without this one."""
        rest = {other: most for other, most in self.of.items() if other != key}
        return replace(self, of=rest, version=self.version + 1)

    def changed(self, after: "Limits") -> Mapping[Key, int | None]:
        """What is another in `after`; None: it is none there."""
        keys = sorted({*self.of, *after.of})
        return {key: after.of.get(key) for key in keys if self.of.get(key) != after.of.get(key)}


@dataclass(frozen=True, kw_only=True)
class Permit:
    """A place under a limit: whose, by its execution and a mark of its claim's token.

    So another try of the same execution has another one, and neither gives the other's back.
    """

    execution_id: ExecutionId
    mark: str

    @classmethod
    def of(cls, execution_id: ExecutionId, token: Token) -> Self:
        """That of a try."""
        return cls(execution_id=execution_id, mark=token[:_MARK_CHARS])

    @property
    def text(self) -> str:
        """As it is stored: letters and digits."""
        return f"{body_of(self.execution_id)}{self.mark}"

    @classmethod
    def from_text(cls, text: str) -> Self:
        """The inverse of `text`."""
        body, mark = text[:_BODY_CHARS], text[_BODY_CHARS:]
        return cls(execution_id=execution_at(Position(body)), mark=mark)


@dataclass(frozen=True, kw_only=True)
class Use:
    """Who has a place under a limit, and until when nobody needs to look whether they still do."""

    holders: Mapping[Permit, datetime] = field(default_factory=dict)
    limit: int | None = None
    """Its own, as of now; None: it goes by the one for all, or is no longer limited."""
    call: str | None = None
    """Of the last who said that it waits; None: nobody does."""

    def room(self, bound: Bound) -> int:
        """How many more get in: none, too, where more are in than a lowered limit lets in."""
        most = bound.most if self.limit is None else self.limit
        return max(0, most - len(self.holders))

    def lapsed(self, now: datetime) -> Sequence[Permit]:
        """Those whose row has to be asked, the longest over first."""
        over = [(until, permit.text, permit) for permit, until in self.holders.items()]
        return [permit for until, _, permit in sorted(over) if until <= now]


def held_until(permit: Permit, row: Execution | None, now: datetime) -> datetime | None:
    """Until when a place is held, as its execution's row tells; None: it is free.

    As long as a handler may go on (P9): the lease of its token, and the grace; also where the
    row was ended over its holder's head. Rows of other tries hold places of their own.
    """
    if row is None:
        return None
    if row.state is State.RUNNING and row.token is not None and row.lease_until is not None:
        is_its = row.token.startswith(permit.mark)
        until = row.lease_until + limits.TAKE_OVER_GRACE if is_its else None
    else:
        until = let_go_at(row)
    return until if until is not None and until > now else None


def polled_after(receives: int) -> timedelta:
    """How long the message of one that waits for a permit is hidden: longer each time."""
    return min(limits.PERMIT_POLL_MOST, limits.PERMIT_POLL_FIRST * receives)
