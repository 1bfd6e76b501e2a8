"""Deferred completion: a try that goes on after its handler returned, under a token of its own.

A claim's token, which every write of its try is conditional on, is the digest of another one,
the callback token. Whoever is told that can prove it and be let in; from the row, where only
the digest lies, nobody can make it. So a try that is deferred is held, extended, ended and
taken over by the same conditional writes as any other.
"""

import hashlib
import hmac
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final

from lamplighter.core import limits
from lamplighter.core.errors import Rejected
from lamplighter.core.retry import RetryPolicy

_TOKEN_CHARS = 32
# By which it is known for a secret wherever it turns up.
_PREFIX = "cbt_"
LAPSED = "lapsed"
"""`CalledBack.answer` of a try that nobody ended in time."""
TERMINATED = "terminated"
"""The same of one that was ended over its holder's head."""
TAKEN_OVER = "taken over"
"""The same of one whose worker fell silent before it had deferred it."""
CLOSED = "closed"
"""The same of one whose handler told its token to somebody, and then ended it itself."""
_OVER: Final = MappingProxyType(
    {
        LAPSED: "nothing was heard of it in time",
        TERMINATED: "it was terminated, for another execution took its place",
        TAKEN_OVER: "its worker fell silent, and another try took its place",
        CLOSED: "its handler ended it by itself",
    }
)


def callback_of(random: str) -> str:
    """A callback token of 128 random bits as hex."""
    return f"{_PREFIX}{random}"


def digest_of(callback: str) -> str:
    """The claim token that a callback token stands for: 128 bits, as hex."""
    return hashlib.sha256(callback.encode()).hexdigest()[:_TOKEN_CHARS]


def is_same(one: str | None, other: str | None) -> bool:
    """Whether two digests are equal; how long it takes to tell says nothing of either."""
    return one is not None and other is not None and hmac.compare_digest(one, other)


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What a deferred try is held to. Raises Rejected for what is out of range."""

    heartbeat: timedelta = limits.DEFAULT_HEARTBEAT
    """How long it may be silent: a heartbeat, or its end, comes before that."""
    hard_limit: timedelta = limits.DEFAULT_HARD_LIMIT
    """How long it may take in all, from its start."""

    def __post_init__(self) -> None:
        for name, value, (low, high) in (
            ("heartbeat_seconds", self.heartbeat, limits.HEARTBEAT_RANGE),
            ("hard_limit_seconds", self.hard_limit, limits.HARD_LIMIT_RANGE),
        ):
            if not low <= value <= high:
                raise Rejected(
                    field=name,
                    value=value.total_seconds(),
                    reason=f"not in {low.total_seconds():.0f}–{high.total_seconds():.0f}",
                )


@dataclass(frozen=True, kw_only=True)
class Deferral:
    """A try that is under way without a worker."""

    heartbeat: timedelta
    ends_at: datetime
    """Its hard limit: no heartbeat moves its lease past it."""
    version: int | None = None
    """Of the task whose handler deferred it."""
    retry: RetryPolicy | None = None
    """That task's own policy, where it has one: whoever ends the try does not know tasks."""

    def lease_until(self, now: datetime) -> datetime:
        """Until when it is held, once it was heard of `now`."""
        return min(now + self.heartbeat, self.ends_at)


@dataclass(frozen=True, kw_only=True)
class CalledBack:
    """How the last try whose token was told ended: whoever asks again is answered as the first."""

    token: str
    """The digest that held it."""
    answer: str
    """What was said, as a digest; or how it ended though nobody said anything: LAPSED, …."""

    @property
    def reason(self) -> str:
        """Why nothing more can be said of it."""
        return _OVER.get(self.answer, "it was ended")
