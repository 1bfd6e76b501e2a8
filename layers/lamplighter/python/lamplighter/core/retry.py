"""What follows a failed try: another one at an instant, or the end, with the reason."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import assert_never

from lamplighter.core.errors import Rejected
from lamplighter.core.limits import DEFAULT_MAX_ATTEMPTS, MAX_ATTEMPTS, MAX_BACKOFF


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
    """min(max_seconds, base_seconds · factor^n) × jitter before the n-th retry, n from 0.

    `max_attempts` counts the first try. Raises Rejected for what is out of range.
    """

    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    base_seconds: float = 1.0
    factor: float = 2.0
    max_seconds: float = 3600.0

    def __post_init__(self) -> None:
        longest = MAX_BACKOFF.total_seconds()
        _within("max_attempts", self.max_attempts, 1, MAX_ATTEMPTS)
        _within("base_seconds", self.base_seconds, 0, longest)
        _within("factor", self.factor, 1, 100)
        _within("max_seconds", self.max_seconds, 0, longest)

    def decide(
        self, *, attempt: int, failure: Failure, now: datetime, jitter: float
    ) -> RetryAt | GiveUp:
        """What follows try number `attempt` (from 1); `jitter` is drawn from [0.5, 1.5)."""
        if failure.kind is Kind.PERMANENT:
            return GiveUp(exhausted=False, reason=f"{failure.type} is permanent")
        if attempt >= self.max_attempts:
            return GiveUp(exhausted=True, reason=f"all {self.max_attempts} attempts used")
        asked = min(failure.retry_after or timedelta(0), MAX_BACKOFF)
        due = now + max(self._backoff(attempt - 1) * jitter, asked)
        match failure.kind:
            case Kind.RATE_LIMITED:
                return RetryAt(due=due, reason=f"rate limited for {asked}")
            case Kind.RETRYABLE | Kind.TIMEOUT | Kind.LOST_LEASE:
                return RetryAt(due=due, reason=f"attempt {attempt} failed: {failure.kind}")
            case other:
                assert_never(other)

    def _backoff(self, n: int) -> timedelta:
        # 100 ** 99 still fits a float, so the power cannot overflow before the minimum.
        return timedelta(seconds=min(self.max_seconds, self.base_seconds * self.factor**n))


def _within(field: str, value: float, low: float, high: float) -> None:
    # Written so that a NaN, which compares false with everything, is refused too.
    if not low <= value <= high:
        raise Rejected(field=f"retry_policy.{field}", value=value, reason=f"not in {low}–{high:g}")
