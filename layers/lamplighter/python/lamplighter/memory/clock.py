"""A clock that moves only when it is told to, and chance that repeats itself."""

import random
from datetime import UTC, datetime, timedelta

from lamplighter.core.clock_offset import Bounds
from lamplighter.core.model import Token

_START = datetime(2026, 1, 1, tzinfo=UTC)


class VirtualClock:
    """Wall and monotonic time of one host; sleeping moves it at once.

    Hosts of one world share the time; `skew` is what this host's wall clock is off by.
    """

    def __init__(self, start: datetime = _START, *, skew: timedelta = timedelta(0)) -> None:
        self._start = self._time = start
        self.skew = skew

    def now(self) -> datetime:
        return self._time + self.skew if self.skew else self._time

    def monotonic(self) -> float:
        return (self._time - self._start).total_seconds()

    def sleep(self, duration: timedelta) -> None:
        self._time += max(duration, timedelta(0))

    def move_to(self, instant: datetime) -> None:
        """Move forward to a true instant; never back."""
        self._time = max(self._time, instant)


class KnownSkew:
    """`ports.ClockOffset` of a host whose clock's skew is known exactly."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock

    def bounds(self) -> Bounds | None:
        return Bounds(low=self._clock.skew, high=self._clock.skew)

    def measure(self) -> None:
        """Nothing is left to be found out."""


class SeededChance:
    """Chance that a seed determines."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def hash(self) -> int:
        return self._random.getrandbits(70)

    def token(self) -> Token:
        return Token(f"{self._random.getrandbits(128):032x}")

    def jitter(self) -> float:
        return self._random.uniform(0.5, 1.5)
