"""This host's time and chance."""

import secrets
import time
from datetime import UTC, datetime, timedelta

from lamplighter.core.buckets import from_ms, to_ms
from lamplighter.core.model import Token


class SystemClock:
    """The host's clocks. Lambda's are kept by Amazon Time Sync."""

    def now(self) -> datetime:
        """In whole milliseconds, as everything is stored: what is read back compares equal."""
        return from_ms(to_ms(datetime.now(UTC)))

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, duration: timedelta) -> None:
        # time.sleep goes by the monotonic clock, which the wall clock may fall behind.
        until = datetime.now(UTC) + duration
        while (left := (until - datetime.now(UTC)).total_seconds()) > 0:
            time.sleep(left)


class SystemChance:
    """The operating system's randomness: two environments thawed from one snapshot differ."""

    def __init__(self) -> None:
        self._random = secrets.SystemRandom()

    def hash(self) -> int:
        return secrets.randbits(70)

    def token(self) -> Token:
        return Token(secrets.token_hex(16))

    def jitter(self) -> float:
        return 0.5 + self._random.random()
