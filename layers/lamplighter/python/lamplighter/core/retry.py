"""What follows a failed try: another one at an instant, or the end, with the reason."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import assert_never

from lamplighter.core.errors import Rejected
from lamplighter.core.limits import (
    DEFAULT_MAX_ATTEMPTS,
    MAX_ATTEMPTS,
    MAX_BACKOFF,
    RETRY_MAX_NAMES,
    RETRY_NAME_MAX_CHARS,
)


class Kind(StrEnum):
    """What a failure means for the next try."""

    PERMANENT = "permanent"
    RETRYABLE = "retryable"
    RATE_LIMITED = "rate_limited"
    TIMEOUT = "timeout"
    LOST_LEASE = "lost_lease"


@dataclass(frozen=True, kw_only=True)
class Failure:
    """One try's failure as it is kept and shown: no traceback, no payload, bounded."""

    kind: Kind
    type: str
    message: str
    retry_after: timedelta | None = None
    """The next try comes no earlier than this after the failure."""


@dataclass(frozen=True, kw_only=True)
class RetryAt:
    """Try again, no earlier than `due`."""

    due: datetime
    reason: str


@dataclass(frozen=True, kw_only=True)
class GiveUp:
    """Do not try again. `exhausted` tells a dead letter from a permanent failure."""

    exhausted: bool
    reason: str


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """min(max_seconds, base_seconds · factor^n) × random before the n-th retry, n from 0.

    The random factor lies in [1 - jitter, 1 + jitter). The two lists name errors by their
    classes: of a class and its bases the nearest that is in either list decides, and when
    `retry_on` has any names, what none decides is not tried again. They only take retries
    away: nothing makes a permanent failure another try. `max_attempts` counts the first try.
    Raises Rejected for what is out of range or of another type: a task's module says it in code,
    where nobody else looks.
    """

    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    base_seconds: float = 1.0
    factor: float = 2.0
    max_seconds: float = 3600.0
    jitter: float = 0.5
    retry_on: tuple[str, ...] = ()
    no_retry_on: tuple[str, ...] = ()
    honor_retry_after: bool = True
    """Whether a rate limit is waited for; else it is a failure like another."""

    def __post_init__(self) -> None:
        longest = MAX_BACKOFF.total_seconds()
        if type(self.max_attempts) is not int:
            raise _rejected("max_attempts", self.max_attempts, "not a whole number")
        if type(self.honor_retry_after) is not bool:
            raise _rejected("honor_retry_after", self.honor_retry_after, "neither True nor False")
        _within("max_attempts", self.max_attempts, 1, MAX_ATTEMPTS)
        _within("base_seconds", self.base_seconds, 0, longest)
        _within("factor", self.factor, 1, 100)
        _within("max_seconds", self.max_seconds, 0, longest)
        _within("jitter", self.jitter, 0, 1)
        _check_names("retry_on", self.retry_on)
        _check_names("no_retry_on", self.no_retry_on)
        for place, name in enumerate(self.no_retry_on):
            if name in self.retry_on:
                raise _rejected(f"no_retry_on.{place}", name, "in retry_on too")

    def decide(
        self,
        *,
        attempt: int,
        failure: Failure,
        now: datetime,
        jitter: float,
        names: Sequence[str] = (),
    ) -> RetryAt | GiveUp:
        """What follows try number `attempt` (from 1); `jitter` is drawn from [0.5, 1.5).

        `names` are what the lists may call the error, the nearest first; none: they say
        nothing of it.
        """
        if failure.kind is Kind.PERMANENT:
            return GiveUp(exhausted=False, reason=f"{failure.type} is permanent")
        if (listed := self._refusal(failure, names)) is not None:
            return GiveUp(exhausted=False, reason=listed)
        if attempt >= self.max_attempts:
            return GiveUp(exhausted=True, reason=f"all {self.max_attempts} attempts used")
        asked = min(failure.retry_after or timedelta(0), MAX_BACKOFF)
        wait = self.wait(attempt - 1, jitter)
        match failure.kind:
            case Kind.RATE_LIMITED if self.honor_retry_after:
                return RetryAt(due=now + max(wait, asked), reason=f"rate limited for {asked}")
            case Kind.RATE_LIMITED:
                reason = f"attempt {attempt} failed: rate limited, which is not waited for"
                return RetryAt(due=now + wait, reason=reason)
            case Kind.RETRYABLE | Kind.TIMEOUT | Kind.LOST_LEASE:
                # A wait that comes without a rate limit is the worker's own.
                reason = f"attempt {attempt} failed: {failure.kind}"
                return RetryAt(due=now + max(wait, asked), reason=reason)
            case other:
                assert_never(other)

    def wait(self, n: int, jitter: float) -> timedelta:
        """The wait before retry `n`, any number from 0; `jitter` is drawn from [0.5, 1.5).

        It lies between nothing and max_seconds · (1 + the policy's jitter).
        """
        # Exactly what was drawn, where the policy has half as its jitter.
        spread = 1 + 2 * self.jitter * (jitter - 1)
        return timedelta(seconds=min(self.max_seconds, self._grown(n)) * spread)

    def _grown(self, n: int) -> float:
        try:
            return self.base_seconds * float(self.factor) ** n
        except OverflowError:
            # More than any float, unless it is that many times nothing.
            return self.max_seconds if self.base_seconds else 0.0

    def _refusal(self, failure: Failure, names: Sequence[str]) -> str | None:
        """Why the lists say that an error is not tried again; None: they do not."""
        listed = {*self.retry_on, *self.no_retry_on}
        nearest = next((name for name in names if name in listed), None)
        if nearest in self.no_retry_on:
            is_itself = nearest == failure.type
            return f"no_retry_on has {nearest}{'' if is_itself else f', a base of {failure.type}'}"
        if nearest is None and names and self.retry_on:
            return f"retry_on does not have {failure.type}"
        return None


def _within(field: str, value: float, low: float, high: float) -> None:
    if type(value) not in {int, float}:
        raise _rejected(field, value, "not a number")
    # Written so that a NaN, which compares false with everything, is refused too.
    if not low <= value <= high:
        raise _rejected(field, value, f"not in {low}–{high:g}")


def _check_names(field: str, names: tuple[str, ...]) -> None:
    # A text would be taken for its letters, which are names, too.
    if type(names) is not tuple:
        raise _rejected(field, names, 'not a tuple of names, such as ("Busy",)')
    if len(names) > RETRY_MAX_NAMES:
        raise _rejected(field, f"{len(names)} names", f"more than {RETRY_MAX_NAMES}")
    for place, name in enumerate(names):
        at = f"{field}.{place}"
        if type(name) is not str or not name.isidentifier():
            raise _rejected(at, name, "not the name of an error's class, without its module")
        if len(name) > RETRY_NAME_MAX_CHARS:
            raise _rejected(at, name, f"longer than {RETRY_NAME_MAX_CHARS} characters")
        if name in names[:place]:
            raise _rejected(at, name, "is there twice")


def _rejected(field: str, value: object, reason: str) -> Rejected:
    return Rejected(field=f"retry_policy.{field}", value=value, reason=reason)
