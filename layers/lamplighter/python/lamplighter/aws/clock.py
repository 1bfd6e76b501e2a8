"""This host's time and chance."""

import os
import secrets
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from lamplighter.core.buckets import from_ms, to_ms
from lamplighter.core.model import Token

_IMPORTED_AT: Final = datetime.now(UTC)
_STAT: Final = Path("/proc/self/stat")
_START_TIME: Final = 19  # of the fields behind the program's name; proc_pid_stat(5), 22 of all


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


def process_began_at() -> datetime:
    """When the kernel started this process, to ten milliseconds.

    Where there is no /proc, when this module was imported.
    """
    try:
        # The name is in parentheses, and may hold any others.
        fields = _STAT.read_text().rpartition(")")[2].split()
    except OSError:
        return _IMPORTED_AT
    began_s = int(fields[_START_TIME]) / os.sysconf("SC_CLK_TCK")
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - began_s
    return datetime.now(UTC) - timedelta(seconds=age_s)


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
