"""What a planned load comes to on a given capacity: where it is too much, and what helps.

A simple queue: of each minute the busiest second is there at once, and what a minute cannot
start is there in the next. It knows nothing of how long handlers take, of retries, and of other
owners.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil
from typing import Final

from lamplighter.core.limits import ON_TIME

_MINUTE: Final = timedelta(minutes=1)


@dataclass(frozen=True, kw_only=True)
class Load:
    """What is planned for one minute."""

    minute: datetime
    planned: int
    burst: int
    """For its busiest second."""


@dataclass(frozen=True, kw_only=True)
class Late:
    """A minute of which something starts later than is promised."""

    minute: datetime
    planned: int
    lateness: timedelta
    """Of the last that starts."""


@dataclass(frozen=True, kw_only=True)
class Assessment:
    """What a load comes to."""

    late: Sequence[Late]
    worst: timedelta
    """The largest lateness of any minute."""
    flexible_window: timedelta | None
    """With a window as wide, in whole seconds, none of it would be late; zero: nothing is. None:
    it is more than the capacity for as long as was looked at, and no window helps."""


def assess(loads: Sequence[Load], *, per_second: float) -> Assessment:
    """What minutes with a load, in order, come to when so many a second can start."""
    late: list[Late] = []
    worst = timedelta(0)
    left = 0.0
    last: datetime | None = None
    for load in loads:
        if last is not None:
            idle = load.minute - last - _MINUTE
            left = max(0.0, left - idle.total_seconds() * per_second)
        waiting = left + load.burst
        left = max(0.0, left + load.planned - 60 * per_second)
        lateness = timedelta(seconds=max(waiting, left) / per_second)
        worst = max(worst, lateness)
        if lateness > ON_TIME:
            late.append(Late(minute=load.minute, planned=load.planned, lateness=lateness))
        last = load.minute
    window = timedelta(seconds=ceil(worst.total_seconds())) if late else timedelta(0)
    # What is left over at the end has to start after it, in minutes that may be as full.
    return Assessment(late=late, worst=worst, flexible_window=None if left else window)
