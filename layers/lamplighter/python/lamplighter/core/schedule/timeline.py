"""Every kind of schedule as one: instants in order, in either direction."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol

from lamplighter.core.schedule.dst import ELAPSED, DstPolicy, instants
from lamplighter.core.schedule.exclusions import Exclusions
from lamplighter.core.schedule.instants import END, FIRST
from lamplighter.core.schedule.walls import Walls
from lamplighter.core.schedule.zones import Zone

_MINUTE: Final = timedelta(minutes=1)
# A rate can keep missing the minutes that its exclusions leave (each half hour, against all
# but the whole ones). This often in a row and it counts as ended.
_MAX_MISSES: Final = 1000


class Timeline(Protocol):
    """Instants within the years 1970–2199."""

    def between(
        self, start: datetime, end: datetime, *, descending: bool = False
    ) -> Iterator[datetime]:
        """The instants from `start` on and before `end`, each once, in order."""
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
        instant = self._last_before(end) if descending else self._first_from(start)
        misses = 0
        while start <= instant < end and misses < _MAX_MISSES:
            if not self._is_excluded(instant):
                yield instant
                misses = 0
                instant += -self.interval if descending else self.interval
                continue
            misses += 1
            free = self._nearest_free(instant, start, end, descending=descending)
            if free is None:
                return
            instant = self._last_before(free + _MINUTE) if descending else self._first_from(free)

    def _first_from(self, start: datetime) -> datetime:
        return self.anchor - (self.anchor - start) // self.interval * self.interval

    def _last_before(self, end: datetime) -> datetime:
        return self._first_from(end) - self.interval

    def _is_excluded(self, instant: datetime) -> bool:
        return bool(self.exclusions) and self.exclusions.cover(
            instant + self.zone.offset_at(instant)
        )

    def _nearest_free(
        self, instant: datetime, start: datetime, end: datetime, *, descending: bool
    ) -> datetime | None:
        """The start of the nearest minute that no exclusion takes, in the direction of travel."""
        lo, hi = (start - _MINUTE, instant) if descending else (instant, end)
        free = instants(
            self.exclusions.left_over, self.zone, ELAPSED, lo, hi, descending=descending
        )
        return next(free, None)


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
