"""How far a host's wall clock is off, as the seconds prove that servers put in their answers.

A server names a second while it answers, so somewhere between our request and its answer the
true time lay in that second, or in the one after it: many servers keep the header's text for a
second. Each answer so bounds the offset, and all of them together bound it more closely than
any one: by about a second, and whatever the quickest answer took.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from lamplighter.core.limits import CLOCK_ANSWERS, CLOCK_DRIFT, CLOCK_KNOWN_WITHIN, MAX_CLOCK_ERROR

_NONE: Final = timedelta(0)
_NAMED: Final = timedelta(seconds=2)
"""How much longer than what it says a Date header may be said."""


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """The wall clock less the true time lies between these: above zero it is ahead."""

    low: timedelta
    high: timedelta

    @property
    def surely(self) -> timedelta:
        """The least offset that explains every answer; zero when the clock may be right."""
        return max(self.low, _NONE) + min(self.high, _NONE)

    @property
    def is_off(self) -> bool:
        """Whether the clock is proven to be off by more than everything here is made for."""
        return abs(self.surely) > MAX_CLOCK_ERROR


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Both clocks of a host, read at once."""

    wall: datetime
    monotonic: float


@dataclass(frozen=True, kw_only=True)
class _Bound:
    """A bound of the offset, and when it was right."""

    offset: timedelta
    at: Reading

    def slack(self, now: Reading) -> timedelta:
        """By how much it may be wrong by now.

        The two clocks drift from the truth, one may be set, and one stands still while a host
        is frozen: whatever they have come apart by, it may be the fault of either.
        """
        passed = timedelta(seconds=now.monotonic - self.at.monotonic)
        apart = (now.wall - self.at.wall) - passed
        return abs(passed) * CLOCK_DRIFT + abs(apart)


@dataclass(frozen=True, kw_only=True)
class Answers:
    """All that was heard, as the two bounds that matter of it."""

    _low: _Bound | None = None
    _high: _Bound | None = None
    _count: int = 0
    """Answers that agree; few of them prove nothing, for one server may be wrong itself."""

    def heard(self, *, sent: Reading, received: Reading, second: datetime) -> "Answers":
        """With one more: asked at `sent`, answered with this second, heard at `received`.

        Where it contradicts those before it, a clock was set or a server is wrong: then all
        begins anew with this one.
        """
        low = _Bound(offset=sent.wall - second - _NAMED, at=sent)
        high = _Bound(offset=received.wall - second, at=received)
        if high.offset - low.offset < _NAMED:
            # Set back while the answer was under way: it says nothing.
            return self
        if self._low is None or self._high is None:
            return Answers(_low=low, _high=high, _count=1)
        lowest = self._low.offset - self._low.slack(received)
        highest = self._high.offset + self._high.slack(received)
        if low.offset > highest or high.offset < lowest:
            return Answers(_low=low, _high=high, _count=1)
        return Answers(
            _low=low if low.offset >= lowest else self._low,
            _high=high if high.offset <= highest else self._high,
            _count=min(self._count + 1, CLOCK_ANSWERS),
        )

    def bounds(self, now: Reading) -> Bounds | None:
        """What they prove of the offset now; None while that is too little to go by."""
        if self._low is None or self._high is None or self._count < CLOCK_ANSWERS:
            return None
        low = self._low.offset - self._low.slack(now)
        high = self._high.offset + self._high.slack(now)
        return Bounds(low=low, high=high) if high - low <= CLOCK_KNOWN_WITHIN else None
