"""Planned days in calendar order. They know no zone. The one importer of croniter.

croniter walks plain lists of days, months and weekdays; it sees naive midnights only. What it
lacks is read from a table of months instead: it refuses `LW`, lists of `W` and years past 2099,
and it takes "the 1st or the first Friday" (`0 0 1 * FRI#1`) for "and".
"""

from collections.abc import Iterator, Sequence
from copy import copy
from datetime import UTC, date, datetime, timedelta
from typing import Final, NamedTuple, Protocol

from croniter import CroniterBadDateError, croniter

from lamplighter.core.limits import SCHEDULE_FIRST_YEAR, SCHEDULE_LAST_YEAR
from lamplighter.core.schedule.instants import END, FIRST
from lamplighter.core.schedule.months import (
    ALL_DAYS,
    ALL_MONTHS,
    ALL_WEEKDAYS,
    DayRule,
    Month,
)

DAY: Final = timedelta(days=1)
_MINUTE: Final = timedelta(minutes=1)
_LAST_DAY: Final = END - DAY
# 28 years in a row without a century among them: each of the fourteen kinds of year is there.
_EVERY_KIND_OF_YEAR: Final = range(2001, 2029)

Times = tuple[timedelta, ...]
"""Times of day, ascending, as the time since midnight."""


class DayPlan(NamedTuple):
    """A day and its times; `midnight` is the wall clock's, tagged as if it were UTC."""

    midnight: datetime
    times: Times


class Days(Protocol):
    """Planned days in calendar order, within the years 1970–2199."""

    def on_or_after(self, midnight: datetime) -> DayPlan | None:
        """The first planned day from that one on."""
        ...

    def on_or_before(self, midnight: datetime) -> DayPlan | None:
        """The last planned day up to that one."""
        ...


class PlainDays:
    """A plain rule, walked by croniter; the same times on each day."""

    def __init__(self, rule: DayRule, times: Times) -> None:
        if not rule.is_plain:
            raise ValueError(f"croniter does not read {rule} as cron does")
        self._times = times
        self._croniter = croniter(_croniter_text(rule), 0, datetime, day_or=not rule.both)

    def on_or_after(self, midnight: datetime) -> DayPlan | None:
        return self._search(max(midnight, FIRST) - _MINUTE, is_prev=False)

    def on_or_before(self, midnight: datetime) -> DayPlan | None:
        return self._search(min(midnight, _LAST_DAY) + _MINUTE, is_prev=True)

    def _search(self, start: datetime, *, is_prev: bool) -> DayPlan | None:
        # A copy each time: a croniter keeps its position, and schedules are shared by threads.
        walker = copy(self._croniter)
        step = walker.get_prev if is_prev else walker.get_next
        try:
            found: datetime = step(datetime, start.replace(tzinfo=None))
        except CroniterBadDateError:  # none for fifty years
            return None
        midnight = found.replace(tzinfo=UTC)
        return DayPlan(midnight, self._times) if FIRST <= midnight < END else None


class Remembered:
    """Days that keep the last answer in either direction.

    A schedule is asked span by span, and most spans of a rare one have no day: asked again
    from a day before its last answer, it need not search.
    """

    def __init__(self, days: Days) -> None:
        self._days = days
        self._ahead: tuple[datetime, DayPlan | None] | None = None
        self._behind: tuple[datetime, DayPlan | None] | None = None

    def on_or_after(self, midnight: datetime) -> DayPlan | None:
        if self._ahead:
            asked, plan = self._ahead
            if asked <= midnight and (plan is None or midnight <= plan.midnight):
                return plan
        plan = self._days.on_or_after(midnight)
        self._ahead = midnight, plan
        return plan

    def on_or_before(self, midnight: datetime) -> DayPlan | None:
        if self._behind:
            asked, plan = self._behind
            if midnight <= asked and (plan is None or plan.midnight <= midnight):
                return plan
        plan = self._days.on_or_before(midnight)
        self._behind = midnight, plan
        return plan


class MonthTable:
    """Any rule, read from a table of months: there are no more than 91 kinds of month.

    `cuts` are rules whose times are taken away on their days, `holidays` days taken away
    whole. A day that is left without a time is no planned day.
    """

    def __init__(
        self,
        rule: DayRule,
        times: Times,
        *,
        cuts: Sequence[tuple[DayRule, frozenset[timedelta]]] = (),
        holidays: frozenset[date] = frozenset(),
    ) -> None:
        self._rule = rule
        self._times = times
        self._cuts = cuts
        self._holidays = holidays
        self._times_left: dict[tuple[int, ...], Times] = {}
        self._table: dict[Month, tuple[tuple[int, Times], ...]] = {}

    @property
    def is_empty(self) -> bool:
        """Whether no year has a planned day (holidays aside: they are finitely many)."""
        return not any(
            self._month(Month.of(year, month))
            for year in self._rule.years or _EVERY_KIND_OF_YEAR
            for month in self._rule.months
        )

    def on_or_after(self, midnight: datetime) -> DayPlan | None:
        midnight = max(midnight, FIRST)
        first = midnight.date()
        months = (
            (year, month)
            for year in range(first.year, SCHEDULE_LAST_YEAR + 1)
            for month in range(first.month if year == first.year else 1, 13)
        )
        return next((p for p in self._plans(months, 1) if p.midnight >= midnight), None)

    def on_or_before(self, midnight: datetime) -> DayPlan | None:
        midnight = min(midnight, _LAST_DAY)
        last = midnight.date()
        months = (
            (year, month)
            for year in range(last.year, SCHEDULE_FIRST_YEAR - 1, -1)
            for month in range(last.month if year == last.year else 12, 0, -1)
        )
        return next((p for p in self._plans(months, -1) if p.midnight <= midnight), None)

    def _plans(self, months: Iterator[tuple[int, int]], step: int) -> Iterator[DayPlan]:
        years = self._rule.years
        for year, month in months:
            if years is not None and year not in years:
                continue
            for day, times in self._month(Month.of(year, month))[::step]:
                if date(year, month, day) not in self._holidays:
                    yield DayPlan(datetime(year, month, day, tzinfo=UTC), times)

    def _month(self, month: Month) -> tuple[tuple[int, Times], ...]:
        if month not in self._table:
            cuts = [rule.days_in(month) for rule, _ in self._cuts]
            planned = (
                (day, self._left(tuple(number for number, days in enumerate(cuts) if day in days)))
                for day in sorted(self._rule.days_in(month))
            )
            self._table[month] = tuple((day, times) for day, times in planned if times)
        return self._table[month]

    def _left(self, active: tuple[int, ...]) -> Times:
        """The times of a day on which these cuts, by number, take theirs away."""
        if active not in self._times_left:
            gone = frozenset[timedelta]().union(*(self._cuts[number][1] for number in active))
            self._times_left[active] = tuple(time for time in self._times if time not in gone)
        return self._times_left[active]


def _croniter_text(rule: DayRule) -> str:
    """`0 0 DAYS MONTHS WEEKDAYS` in the form that croniter and cron read alike."""
    days, weekdays = _listed(rule.days, ALL_DAYS), _listed(rule.weekdays, ALL_WEEKDAYS)
    if not rule.both and "*" in {days, weekdays}:
        days = weekdays = "*"  # either of two, one of which is every day
    return f"0 0 {days} {_listed(rule.months, ALL_MONTHS)} {weekdays}"


def _listed(numbers: frozenset[int], everything: frozenset[int]) -> str:
    return "*" if numbers == everything else ",".join(map(str, sorted(numbers)))
