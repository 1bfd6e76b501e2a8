"""Every kind of schedule as one: instants in order, in either direction."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol

from lamplighter.core.schedule.dst import ELAPSED, DstPolicy, instants
from lamplighter.core.schedule.exclusions import Exclusions
from lamplighter.core.schedule.instants import END, FIRST, TICK
from lamplighter.core.schedule.walls import Walls
from lamplighter.core.schedule.zones import Zone

_MINUTE: Final = timedelta(minutes=1)
# A rate can keep missing the minutes that its exclusions leave (each half hour, against all
# but the whole ones). This often in a row and it counts as ended: more often than any rate of
# whole minutes misses one minute of the day, the others taken away, before it meets it.
_MAX_MISSES: Final = 3000


class Timeline(Protocol):
    """Instants within the years 1970–2199."""

    def between(
        self, start: datetime, end: datetime, *, descending: bool = False
    ) -> Iterator[datetime]:
        """The instants from `start` on and before `end`, each once, in order."""
        ...

    def tries(self, start: datetime, end: datetime) -> Iterator[datetime | None]:
        """The same, with None for each step of the search that led to no instant."""
        ...


@dataclass(frozen=True, kw_only=True)
class WallTimeline:
    """What a clock on the wall says, through a zone's changes."""

    walls: Walls
    zone: Zone
    policy: DstPolicy

    def between(
        self, start: datetime, end: datetime, *, descending: bool = False
    ) -> Iterator[datetime]:
        return instants(self.walls, self.zone, self.policy, start, end, descending=descending)

    def tries(self, start: datetime, end: datetime) -> Iterator[datetime | None]:
        return self.between(start, end)


@dataclass(frozen=True, kw_only=True)
class RateTimeline:
    """Elapsed time: `anchor` plus and minus whole intervals; zones matter to exclusions only."""

    anchor: datetime
    interval: timedelta
    zone: Zone
    exclusions: Exclusions

    def between(
        self, start: datetime, end: datetime, *, descending: bool = False
    ) -> Iterator[datetime]:
        misses = 0
        for instant in self._tries(start, end, descending=descending):
            misses = misses + 1 if instant is None else 0
            if misses > _MAX_MISSES:
                return
            if instant is not None:
                yield instant

    def tries(self, start: datetime, end: datetime) -> Iterator[datetime | None]:
        return self._tries(start, end, descending=False)

    def _tries(
        self, start: datetime, end: datetime, *, descending: bool
    ) -> Iterator[datetime | None]:
        instant = self._last_before(end) if descending else self._first_from(start)
        while start <= instant < end:
            free = self._nearest_free(instant, start, end, descending=descending)
            if free is None:
                return
            if free == instant:
                yield instant
                instant += -self.interval if descending else self.interval
            else:
                yield None
                instant = (
                    self._last_before(free + _MINUTE) if descending else self._first_from(free)
                )

    def _first_from(self, start: datetime) -> datetime:
        return self.anchor - (self.anchor - start) // self.interval * self.interval

    def _last_before(self, end: datetime) -> datetime:
        return self._first_from(end) - self.interval

    def _nearest_free(
        self, instant: datetime, start: datetime, end: datetime, *, descending: bool
    ) -> datetime | None:
        """The instant, if no exclusion takes it; else the start of the nearest minute that is left.

        Nearest is meant in the direction of travel; None if there is none up to the bound.
        """
        if not self.exclusions:
            return instant
        offset = self.zone.offset_at(instant)
        label = instant + offset
        free = self.exclusions.first_free(label, descending=descending)
        if free is None:
            return None
        if free <= label < free + _MINUTE:
            return instant
        lo, hi = sorted((free - offset, instant))
        if next(self.zone.changes(lo - _MINUTE, hi + TICK), None) is None:
            return free - offset
        # The clocks change on the way, and may show another free minute before that one.
        lo, hi = (start - _MINUTE, instant) if descending else (instant, end)
        left = self.exclusions.left_over
        return next(instants(left, self.zone, ELAPSED, lo, hi, descending=descending), None)


@dataclass(frozen=True, kw_only=True)
class SingleTimeline:
    """One instant."""

    instant: datetime

    def between(
        self, start: datetime, end: datetime, *, descending: bool = False
    ) -> Iterator[datetime]:
        del descending  # one instant has one order
        if start <= self.instant < end:
            yield self.instant

    def tries(self, start: datetime, end: datetime) -> Iterator[datetime | None]:
        return self.between(start, end)


def resolve(label: datetime, zone: Zone, policy: DstPolicy) -> datetime | None:
    """The instant of one wall-clock label; None if it falls into a gap that is skipped.

    Under BOTH it is the first of two.
    """
    around = timedelta(days=3)
    lo, hi = max(FIRST, label - around), min(END, label + around)
    return next(instants(_OneWall(label), zone, policy, lo, hi), None)


@dataclass(frozen=True)
class _OneWall:
    label: datetime

    def between(
        self, first: datetime, last: datetime, *, descending: bool = False
    ) -> Iterator[datetime]:
        del descending
        if first <= self.label < last:
            yield self.label
