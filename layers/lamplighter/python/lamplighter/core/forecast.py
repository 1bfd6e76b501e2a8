"""What a planned load comes to on a given capacity: where it is too much, and what helps.

A simple queue: of each minute the busiest second is there at once, and what a minute cannot
start is there in the next. It knows nothing of how long handlers take, of retries, and of other
owners.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import ceil
from typing import Final

from lamplighter.core.limits import (
    FORECAST_MOST_PER_SECOND,
    FORECAST_PER_SECOND,
    LATENESS_STEPS,
    ON_TIME,
)

_MINUTE: Final = timedelta(minutes=1)
_SECOND: Final = timedelta(seconds=1)


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """How many executions each lane can start in a second, as far as anybody said."""

    lanes: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for lane, per_second in self.lanes.items():
            if not 0 < per_second <= FORECAST_MOST_PER_SECOND:
                raise ValueError(
                    f"lane {lane}: {per_second} is not over 0, up to {FORECAST_MOST_PER_SECOND:g}"
                )

    def of(self, lane: str) -> float:
        """A lane's; that of one on demand where nobody said."""
        return self.lanes.get(lane, FORECAST_PER_SECOND)

    @classmethod
    def from_json(cls, text: str) -> "Capacity":
        """Of an object of lanes and numbers; raises ValueError for what is none."""
        said = json.loads(text)
        if not isinstance(said, dict):
            raise ValueError(f"{said!r} is not a JSON object")  # noqa: TRY004 -- one kind of error
        for lane, per_second in said.items():
            if isinstance(per_second, bool) or not isinstance(per_second, int | float):
                raise ValueError(f"lane {lane}: {per_second!r} is not a number")  # noqa: TRY004
        return cls(lanes=said)


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


def summed(loads: Iterable[Load]) -> Sequence[Load]:
    """Loads of the same minutes together, in order, as if their busiest seconds were the same."""
    minutes: dict[datetime, Load] = {}
    for load in loads:
        known = minutes.get(load.minute)
        minutes[load.minute] = Load(
            minute=load.minute,
            planned=load.planned + (known.planned if known else 0),
            burst=load.burst + (known.burst if known else 0),
        )
    return [minutes[minute] for minute in sorted(minutes)]


def together(found: Iterable[Assessment]) -> Assessment:
    """Several lanes as one: what is late in any of them, by the most that it is."""
    late: dict[datetime, Late] = {}
    worst, windows = timedelta(0), [timedelta(0)]
    helps = True
    for one in found:
        worst = max(worst, one.worst)
        helps = helps and one.flexible_window is not None
        windows.append(one.flexible_window or timedelta(0))
        for minute in one.late:
            known = late.get(minute.minute)
            late[minute.minute] = Late(
                minute=minute.minute,
                planned=minute.planned + (known.planned if known else 0),
                lateness=max(minute.lateness, known.lateness if known else minute.lateness),
            )
    return Assessment(
        late=[late[minute] for minute in sorted(late)],
        worst=worst,
        flexible_window=max(windows) if helps else None,
    )


@dataclass(frozen=True, kw_only=True)
class Arrival:
    """Something that is due, or what a sample of it stands for."""

    at: datetime
    count: float = 1.0


def crowded(arrivals: Iterable[Arrival], at: datetime, *, per_second: float) -> timedelta:
    """How late what is due at `at` starts behind these, which are due with it or before.

    The queue of `assess`, second by second: what is due in a second is there at once. What is
    left out of `arrivals`, the earliest first, makes it less than it will be, never more.
    """
    end, waiting, longest = _second_of(at), 0.0, 0.0
    for arrival in sorted(arrivals, key=lambda one: one.at, reverse=True):
        waiting += arrival.count
        drained = (end - _second_of(arrival.at)) / _SECOND * per_second
        longest = max(longest, waiting - drained)
    return timedelta(seconds=longest / per_second)


def told(lateness: timedelta) -> timedelta | None:
    """A lateness as owners are told of it: in steps; None: it is in time.

    In steps, rounded up, because it is others' load too, and nobody is to count that.
    """
    if lateness <= ON_TIME:
        return None
    return next((step for step in LATENESS_STEPS if step >= lateness), LATENESS_STEPS[-1])


def _second_of(instant: datetime) -> datetime:
    return instant.replace(microsecond=0)
