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
# A day on either side of the years: local time is up to a day off UTC.
_FIRST_DAY: Final = FIRST - DAY
_LAST_DAY: Final = END
# 28 years in a row without a century among them: each of the fourteen kinds of year is there.
_EVERY_KIND_OF_YEAR: Final = range(2001, 2029)
_EVERY_YEAR: Final = range(SCHEDULE_FIRST_YEAR, SCHEDULE_LAST_YEAR + 1)

Times = tuple[timedelta, ...]
"""Times of day, ascending, as the time since midnight."""


class DayPlan(NamedTuple):
    """A day and its times; `midnight` is the wall clock's, tagged as if it were UTC."""

    midnight: datetime
    times: Times


class Days(Protocol):
    """Planned days in calendar order, from 1969-12-31 to 2200-01-01."""

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
        return self._search(max(midnight, _FIRST_DAY) - _MINUTE, is_prev=False)

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
        return DayPlan(midnight, self._times) if _FIRST_DAY <= midnight <= _LAST_DAY else None


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
        self._has_years = any(rule.years is not None for rule, _ in cuts)
        self._whole = frozenset(
            number for number, (_, gone) in enumerate(cuts) if gone.issuperset(times)
        )
        self._in_force: dict[int, frozenset[int]] = {}
        self._cut_days: dict[Month, tuple[tuple[int, frozenset[int]], ...]] = {}
        self._times_left: dict[frozenset[int], Times] = {}
        self._table: dict[tuple[Month, frozenset[int]], tuple[tuple[int, Times], ...]] = {}

    @property
    def is_empty(self) -> bool:
        """Whether no year has a planned day (holidays aside: they are finitely many)."""
        kinds = _EVERY_YEAR if self._has_years else _EVERY_KIND_OF_YEAR
        return not any(
            self._month(year, month)
            for year in self._rule.years or kinds
            for month in self._rule.months
        )

    def on_or_after(self, midnight: datetime) -> DayPlan | None:
        midnight = max(midnight, _FIRST_DAY)
        first = midnight.date()
        months = (
            (year, month)
            for year in range(first.year, _LAST_DAY.year + 1)
            for month in range(first.month if year == first.year else 1, 13)
        )
        plan = next((p for p in self._plans(months, 1) if p.midnight >= midnight), None)
        return plan if plan is not None and plan.midnight <= _LAST_DAY else None

    def on_or_before(self, midnight: datetime) -> DayPlan | None:
        midnight = min(midnight, _LAST_DAY)
        last = midnight.date()
        months = (
            (year, month)
            for year in range(last.year, _FIRST_DAY.year - 1, -1)
            for month in range(last.month if year == last.year else 12, 0, -1)
        )
        plan = next((p for p in self._plans(months, -1) if p.midnight <= midnight), None)
        return plan if plan is not None and plan.midnight >= _FIRST_DAY else None

    def _plans(self, months: Iterator[tuple[int, int]], step: int) -> Iterator[DayPlan]:
        years = self._rule.years
        for year, month in months:
            if years is not None and year not in years:
                continue
            for day, times in self._month(year, month)[::step]:
                if date(year, month, day) not in self._holidays:
                    yield DayPlan(datetime(year, month, day, tzinfo=UTC), times)

    def _month(self, year: int, number: int) -> tuple[tuple[int, Times], ...]:
        """The planned days of a month of the calendar, with the times that are left of each."""
        month, in_force = Month.of(year, number), self._cuts_of(year)
        if (month, in_force) not in self._table:
            planned = (
                (day, self._left(cuts & in_force)) for day, cuts in self._days_and_cuts(month)
            )
            self._table[month, in_force] = tuple((day, times) for day, times in planned if times)
        return self._table[month, in_force]

    def _cuts_of(self, year: int) -> frozenset[int]:
        """The cuts, by number, that know a year: those that name none know all."""
        if year not in self._in_force:
            self._in_force[year] = frozenset(
                number
                for number, (rule, _) in enumerate(self._cuts)
                if rule.years is None or year in rule.years
            )
        return self._in_force[year]

    def _days_and_cuts(self, month: Month) -> tuple[tuple[int, frozenset[int]], ...]:
        """The days of the rule, each with the cuts whose day it is in a year that they know."""
        if month not in self._cut_days:
            cuts = [rule.days_in(month) for rule, _ in self._cuts]
            self._cut_days[month] = tuple(
                (day, frozenset(number for number, days in enumerate(cuts) if day in days))
                for day in sorted(self._rule.days_in(month))
            )
        return self._cut_days[month]

    def _left(self, active: frozenset[int]) -> Times:
        """The times of a day on which these cuts, by number, take theirs away."""
        if active & self._whole:
            return ()
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
