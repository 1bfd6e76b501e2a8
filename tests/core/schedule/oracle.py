"""An independent answer to "when is it due": walk every minute and look at the clock.

It shares no code with the engine: its own reading of the five fields, `zoneinfo` itself
for the clock, and sets instead of order.
"""

import calendar
from collections import defaultdict
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from importlib import resources
from itertools import pairwise, product
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)
NAMES = {
    name: number
    for names, first in (
        ("jan feb mar apr may jun jul aug sep oct nov dec", 1),
        ("sun mon tue wed thu fri sat", 0),
    )
    for number, name in enumerate(names.split(), first)
}


class Clock:
    """What a zone's clock shows in each minute of a window, and when it shows a label."""

    def __init__(self, zone: str, start: datetime, end: datetime) -> None:
        rules = rules_of(zone)
        # Two days more on both sides: a gap or fold at an edge is seen whole.
        self.start, self.end = start, end
        self.minutes = [
            (instant, instant.astimezone(rules).replace(tzinfo=None, fold=0))
            for instant in _minutes(start - timedelta(days=2), end + timedelta(days=2))
        ]
        self.shown: dict[datetime, list[datetime]] = defaultdict(list)
        for instant, label in self.minutes:
            self.shown[label].append(instant)

        self.first, self.last = self.minutes[0][1], self.minutes[-1][1]
        self.gaps = [
            (before + MINUTE, after, instant)
            for (_, before), (instant, after) in pairwise(self.minutes)
            if after - before > MINUTE
        ]

    def dates(self) -> Iterator[date]:
        """Each date from the first to the last, whether the clock shows it or not."""
        day = self.first.date()
        while day <= self.last.date():
            yield day
            day += timedelta(days=1)

    def gap_around(self, label: datetime) -> tuple[datetime, datetime]:
        """The gap that a skipped label lies in: its first label, and the instant of its end."""
        return next((low, end) for low, high, end in self.gaps if low <= label < high)


@lru_cache(maxsize=256)
def rules_of(zone: str) -> ZoneInfo:
    """The zone as the tzdata package has it; `ZoneInfo(zone)` would ask the machine first."""
    with resources.files("tzdata").joinpath("zoneinfo", *zone.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=zone)


@lru_cache(maxsize=256)
def clock(zone: str, start: datetime, end: datetime) -> Clock:
    return Clock(zone, start, end)


def due(expression: str, seen: Clock, *, gap: str, fold: str) -> list[datetime]:
    """All instants in the clock's window at which an expression is due."""
    fields = expression.lower().split()
    if fields[0].startswith("*") or fields[1].startswith("*"):
        gap, fold = "SKIP", "BOTH"
    found: set[datetime] = set()
    minutes, hours = _numbers(fields[0], 0, 59), _numbers(fields[1], 0, 23)
    for day in seen.dates():
        if _day_matches(*fields[2:], day):
            for hour, minute in product(hours, minutes):
                label = datetime.combine(day, time(hour, minute))
                if seen.first <= label <= seen.last:
                    found.update(_instants(seen, label, gap, fold))
    return sorted(instant for instant in found if seen.start <= instant < seen.end)


def _instants(seen: Clock, label: datetime, gap: str, fold: str) -> list[datetime]:
    shown = seen.shown.get(label, [])
    if shown:
        return {"FIRST": shown[:1], "SECOND": shown[-1:], "BOTH": shown}[fold]
    if gap == "SKIP":
        return []
    first_skipped, end = seen.gap_around(label)
    return [end if gap == "NEXT_VALID" else end + (label - first_skipped)]


@lru_cache(maxsize=4096)
def _day_matches(day: str, month: str, weekday: str, when: date) -> bool:
    if when.month not in _numbers(month, 1, 12):
        return False
    of_month, of_week = _is_day(day, when), _is_weekday(weekday, when)
    if day.startswith("*") or weekday.startswith("*"):
        return of_month and of_week
    return of_month or of_week


def _is_day(text: str, when: date) -> bool:
    last = calendar.monthrange(when.year, when.month)[1]
    for item in text.split(","):
        if item == "l" and when.day == last:
            return True
        if item == "lw":
            workdays = [d for d in range(1, last + 1) if when.replace(day=d).weekday() < 5]
            if when.day == workdays[-1]:
                return True
        elif item != "l" and when.day in _numbers(item, 1, 31):
            return True
    return False


def _is_weekday(text: str, when: date) -> bool:
    weekday = when.isoweekday() % 7
    for item in text.split(","):
        if "#" in item:
            name, nth = item.split("#")
            if _number(name) % 7 == weekday and (when.day + 6) // 7 == int(nth):
                return True
        elif item.endswith("l"):
            next_week = when + timedelta(days=7)
            if _number(item[:-1]) % 7 == weekday and next_week.month != when.month:
                return True
        elif weekday in {number % 7 for number in _numbers(item, 0, 7)}:
            return True
    return False


@lru_cache(maxsize=4096)
def _numbers(text: str, low: int, high: int) -> frozenset[int]:
    found: set[int] = set()
    for item in text.split(","):
        span, _, step = item.partition("/")
        first, dash, last = span.partition("-")
        start = low if first == "*" else _number(first)
        stop = _number(last) if dash else high if first == "*" or step else start
        found.update(range(start, stop + 1, int(step or 1)))
    return frozenset(found)


def _number(text: str) -> int:
    return NAMES[text] if text in NAMES else int(text)


def _minutes(start: datetime, end: datetime) -> Iterator[datetime]:
    while start < end:
        yield start
        start += MINUTE
