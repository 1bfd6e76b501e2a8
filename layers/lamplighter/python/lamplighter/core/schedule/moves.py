"""Which occurrences move when the rules of a zone change: one schedule by two databases."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from heapq import merge
from itertools import groupby

from lamplighter.core.schedule.model import Schedule

_NEAR = timedelta(days=3)
"""Further than any change of the clocks reaches."""


@dataclass(frozen=True, kw_only=True)
class Moves:
    """What only one of two schedules has, in order."""

    gone: tuple[datetime, ...] = ()
    """Due by the first alone."""
    new: tuple[datetime, ...] = ()
    """Due by the second alone."""

    def __bool__(self) -> bool:
        return bool(self.gone or self.new)


def moves(before: Schedule, after: Schedule, *, start: datetime, end: datetime) -> Moves:
    """How the occurrences from `start` on and before `end` differ.

    Both are the same schedule, read by two zone databases. It costs little where these agree
    about its zone.
    """
    if _rules(before, start, end) == _rules(after, start, end):
        return Moves()
    alone = [*_alone(before.between(start, end), after.between(start, end))]
    return Moves(
        gone=tuple(time for time, is_first in alone if is_first),
        new=tuple(time for time, is_first in alone if not is_first),
    )


def _rules(schedule: Schedule, start: datetime, end: datetime) -> object:
    """All that the occurrences depend on: an interval goes by its first one's clock too."""
    zone = schedule.zones.zone(schedule.timezone)
    first = min(start, *(time for time in (schedule.start_at, schedule.anchor) if time), start)
    return zone.offset_at(first - _NEAR), [*zone.changes(first - _NEAR, end + _NEAR)]


def _alone(
    first: Iterator[datetime], second: Iterator[datetime]
) -> Iterator[tuple[datetime, bool]]:
    """Each time that only one has, and whether that is the first."""
    both = merge(((time, True) for time in first), ((time, False) for time in second))
    for time, having in groupby(both, key=lambda one: one[0]):
        sides = [is_first for _, is_first in having]
        if len(sides) == 1:
            yield time, sides[0]
