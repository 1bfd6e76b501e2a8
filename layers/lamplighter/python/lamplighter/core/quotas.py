"""What an owner may have at once and how fast: quotas, and the arithmetic of their rate.

Without a quota nothing is counted and nothing more is written. All of it is chosen by whoever
deploys; an owner sees it in the 429 that a request over quota is answered with.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, cast

from lamplighter.core.errors import OverQuota
from lamplighter.core.limits import (
    LEASED_SHARE,
    MARK_EVERY,
    MIN_INTERVAL,
    PAYLOAD_INLINE_BYTES,
    PAYLOAD_REF_MAX_BYTES,
    QUOTA_RETRY_AFTER,
    QUOTAS_MAX_BYTES,
    RECOUNT_AFTER,
    SHORTEST_INTERVAL,
)

_OWNERS: Final = "owners"
_SECOND_NS: Final = 1_000_000_000
_MOST: Final = 10**12
_SLOWEST: Final = 0.001
_FASTEST: Final = 100_000
_TICK: Final = timedelta(microseconds=1)


class Measure(StrEnum):
    """What a quota is of, by the name that it is configured and refused with."""

    LIVE_JOBS = "live_jobs"
    """Recurring jobs that are not deleted: exact."""
    QUEUED_EXECUTIONS = "queued_executions"
    """Executions beside any schedule (one-offs, triggered, backfilled, replayed), not final."""
    PAYLOAD_BYTES = "payload_bytes"
    """Payloads of live jobs and queued executions, each rounded up (`charged`)."""
    SUBMISSIONS = "submissions_per_second"
    """Jobs and executions that are asked for."""


@dataclass(frozen=True, kw_only=True)
class Rate:
    """A token bucket: `burst` at once, and one more every 1 / `per_second` seconds."""

    per_second: float
    burst: int

    @property
    def interval_ns(self) -> int:
        """From one token to the next, in nanoseconds."""
        return round(_SECOND_NS / self.per_second)

    @property
    def lease(self) -> timedelta:
        """How long a host may use the tokens that it took: a tenth of the time to a full bucket.

        What is used within any time was taken within it or within a lease before it. So it is
        never more than 1.1 × what the bucket allows, however many hosts hold tokens.
        """
        return timedelta(microseconds=self.burst * self.interval_ns / 1000) * LEASED_SHARE


@dataclass(frozen=True, kw_only=True)
class Quota:
    """What one owner may; None: as much as they like. Raises ValueError, with name and value."""

    live_jobs: int | None = None
    queued_executions: int | None = None
    payload_bytes: int | None = None
    submissions_per_second: float | None = None
    burst: int | None = None
    """Submissions at once, after a pause; None: a second's worth, at least one."""
    min_interval_seconds: float = MIN_INTERVAL.total_seconds()
    """Of a recurring job; 1 lets one run every second."""

    def __post_init__(self) -> None:
        for name in _COUNTS:
            _check(name, getattr(self, name), 0, _MOST, whole=True)
        _check("burst", self.burst, 1, _MOST, whole=True)
        rate = self.submissions_per_second
        _check(Measure.SUBMISSIONS, rate, _SLOWEST, _FASTEST, whole=False)
        low, high = SHORTEST_INTERVAL.total_seconds(), MIN_INTERVAL.total_seconds()
        _check("min_interval_seconds", self.min_interval_seconds or 0, low, high, whole=False)
        if self.burst is not None and rate is None:
            raise ValueError(f"burst {self.burst!r}: only with {Measure.SUBMISSIONS}")

    @property
    def rate(self) -> Rate | None:
        """The bucket of submissions, if they are limited."""
        if self.submissions_per_second is None:
            return None
        burst = self.burst or max(1, round(self.submissions_per_second))
        return Rate(per_second=self.submissions_per_second, burst=burst)

    @property
    def counts_jobs(self) -> bool:
        """Whether an owner's recurring jobs have to be counted as they come and go."""
        return self.live_jobs is not None or self.payload_bytes is not None

    @property
    def counts_executions(self) -> bool:
        """Whether an owner's executions have to be counted while they are queued."""
        return self.queued_executions is not None or self.payload_bytes is not None

    @property
    def min_interval(self) -> timedelta:
        """The least time between two occurrences of a recurring job."""
        return timedelta(seconds=self.min_interval_seconds)


@dataclass(frozen=True, kw_only=True)
class Quotas:
    """Every owner's quota: `default`, or their own, which then stands alone."""

    default: Quota = field(default_factory=Quota)
    owners: Mapping[str, Quota] = field(default_factory=dict)

    def of(self, owner: str) -> Quota:
        """An owner's quota."""
        return self.owners.get(owner, self.default)

    def to_json(self) -> str:
        """As `from_json` reads it; empty when there is none. Raises ValueError over its limit.

        A function's environment, which it is part of, holds 4 KB.
        """
        values = {
            **_differences(self.default, Quota()),
            **(
                {_OWNERS: {owner: _differences(own, self.default) for owner, own in self._owners}}
                if self.owners
                else {}
            ),
        }
        text = json.dumps(values, separators=(",", ":"), ensure_ascii=False) if values else ""
        if len(text.encode()) > QUOTAS_MAX_BYTES:
            raise ValueError(
                f"quotas of {len(self.owners)} owners: {len(text.encode())} bytes of JSON, "
                f"more than {QUOTAS_MAX_BYTES}"
            )
        return text

    @property
    def _owners(self) -> list[tuple[str, Quota]]:
        return sorted(self.owners.items())

    @classmethod
    def from_json(cls, text: str) -> "Quotas":
        """`{"live_jobs": 100, "owners": {"ada": {"live_jobs": null}}}`; raises ValueError.

        What an owner's own leaves out is as it is for all; null lifts it.
        """
        if not text:
            return cls()
        values = _object("quotas", json.loads(text))
        owners = _object(_OWNERS, values.pop(_OWNERS, {}))
        return cls(
            default=_quota("quotas", values),
            owners=MappingProxyType(
                {
                    owner: _quota(owner, values | _object(owner, own))
                    for owner, own in owners.items()
                }
            ),
        )


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What an owner is counted to have."""

    live_jobs: int = 0
    queued_executions: int = 0
    payload_bytes: int = 0

    @classmethod
    def of_job(cls, payload_bytes: int) -> "Usage":
        """Of one recurring job with such a payload."""
        return cls(live_jobs=1, payload_bytes=charged(payload_bytes))

    @classmethod
    def grown(cls, before: int, after: int) -> "Usage":
        """Of a payload of `before` bytes that now has `after`: less than nothing if it shrank."""
        return cls(payload_bytes=charged(after) - charged(before))

    def plus(self, more: "Usage") -> "Usage":
        """Both together."""
        return Usage(**{one: getattr(self, one) + getattr(more, one) for one in _COUNTS})

    def __neg__(self) -> "Usage":
        return Usage(**{one: -getattr(self, one) for one in _COUNTS})

    def check(self, quota: Quota, more: "Usage") -> None:
        """Raise OverQuota when there is no room for so much more."""
        for over in self._over(quota, more):
            raise over

    def refusal(self, quota: Quota, more: "Usage") -> OverQuota:
        """Why there was no room for so much more; ValueError when there was."""
        for over in self._over(quota, more):
            return over
        raise ValueError(f"{more} beside {self} is not over {quota}")

    def _over(self, quota: Quota, more: "Usage") -> Iterator[OverQuota]:
        for measure in _COUNTS:
            used, asked, limit = (getattr(one, measure) for one in (self, more, quota))
            if limit is not None and asked > 0 and used + asked > limit:
                # What is queued ends by itself, and a recount notices.
                is_exact = measure is Measure.LIVE_JOBS
                yield OverQuota(
                    quota=measure,
                    limit=limit,
                    used=used,
                    reason=f"{used} of {limit} are in use, and this takes {asked} more",
                    retry_after=QUOTA_RETRY_AFTER if is_exact else RECOUNT_AFTER,
                )


@dataclass(frozen=True, kw_only=True)
class Mark:
    """What was counted as queued at an instant."""

    at: datetime
    executions: int
    payload_bytes: int

    def is_old(self, now: datetime, age: timedelta) -> bool:
        """Whether it was made that long ago; one from the future never is."""
        return now - self.at >= age


def is_to_be_marked(quota: Quota, usage: Usage, mark: Mark | None, now: datetime) -> bool:
    """Whether a recount may be needed soon, and would do with a newer mark."""
    limits = (
        (usage.queued_executions, quota.queued_executions),
        (usage.payload_bytes, quota.payload_bytes),
    )
    is_near = any(limit is not None and 2 * used > limit for used, limit in limits)
    return is_near and (mark is None or mark.is_old(now, MARK_EVERY))


@dataclass(frozen=True, kw_only=True)
class Taken:
    """Tokens out of a bucket, which is then full again at `full_at_ns`."""

    tokens: int
    full_at_ns: int


@dataclass(frozen=True, kw_only=True)
class Empty:
    """Too few tokens in a bucket; so many are there again at `until_ns`."""

    until_ns: int


def take(rate: Rate, full_at_ns: int, *, now_ns: int, least: int, most: int) -> Taken | Empty:
    """Take `least` … `most` tokens, as many as there are.

    A bucket is one number, the instant at which it is full again (nanoseconds since 1970).
    """
    level = max(full_at_ns, now_ns)
    room = (now_ns + rate.burst * rate.interval_ns - level) // rate.interval_ns
    if room < least:
        return Empty(until_ns=level + (least - rate.burst) * rate.interval_ns)
    tokens = min(max(least, most), room)
    return Taken(tokens=tokens, full_at_ns=level + tokens * rate.interval_ns)


@dataclass(frozen=True, kw_only=True)
class Lease:
    """Tokens that one host took and may use for a while without asking.

    What is left of them then is nobody's: given back later, it would let in more than the
    bucket allows.
    """

    tokens: int
    """Those that are left."""
    chunk: int
    """How many they were."""
    taken_at: datetime
    until: datetime

    def is_live(self, now: datetime) -> bool:
        """Whether its tokens may be used; not when the clock was set back behind it."""
        return self.taken_at <= now < self.until

    def following_chunk(self, rate: Rate, now: datetime) -> int:
        """How many to ask for next: as many as are likely to be used in time.

        At most twice as many as these, and a tenth of a burst.
        """
        length, since = self.until - self.taken_at, now - self.taken_at
        if not timedelta(0) <= since < 2 * length:
            return 1
        used = self.chunk - self.tokens
        in_time = used if since >= length else int(used * length / max(since, _TICK))
        return max(1, min(in_time, 2 * self.chunk, int(rate.burst * LEASED_SHARE)))


def charged(payload_bytes: int) -> int:
    """What a payload counts for: its size, rounded up to 512 B, 1 KiB, 2 KiB, 4 KiB, and so on."""
    return charged_at(step_of(payload_bytes))


def charged_at(step: int) -> int:
    """What a payload of a step counts for."""
    return PAYLOAD_INLINE_BYTES << step


def step_of(payload_bytes: int) -> int:
    """Which of these sizes it is rounded up to: 0 … STEPS − 1."""
    return max(0, (payload_bytes - 1).bit_length() - (PAYLOAD_INLINE_BYTES - 1).bit_length())


STEPS: Final = 1 + step_of(PAYLOAD_REF_MAX_BYTES)

_COUNTS: Final = (Measure.LIVE_JOBS, Measure.QUEUED_EXECUTIONS, Measure.PAYLOAD_BYTES)


def _check(name: str, value: object, low: float, high: float, *, whole: bool) -> None:
    if value is None:
        return
    is_number = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
    if not (is_number and isinstance(value, int | float) and low <= value <= high):
        kind = "a whole number" if whole else "a number"
        raise ValueError(f"{name}: {value!r} is not {kind} in {low:g}–{high:g}")


def _quota(name: str, values: Mapping[str, object]) -> Quota:
    if unknown := values.keys() - _NAMES:
        known = ", ".join(sorted(_NAMES))
        raise ValueError(f"{name}: unknown {', '.join(sorted(unknown))}; there are {known}")
    try:
        # What is not a number is refused there.
        return Quota(**cast("Mapping[str, Any]", values))
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def _differences(quota: Quota, base: Quota) -> Mapping[str, object]:
    return {name: value for name, value in asdict(quota).items() if value != getattr(base, name)}


def _object(name: str, value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise ValueError(f"{name}: {value!r} is not a JSON object")  # noqa: TRY004 -- one kind of error
    return value


_NAMES: Final = frozenset(one.name for one in fields(Quota))
