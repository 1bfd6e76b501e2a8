"""Day rules: which days of a month an expression selects. They know no year and no zone."""

import calendar
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple, Protocol

_WEEK: Final = 7
ALL_DAYS: Final = frozenset(range(1, 32))
ALL_WEEKDAYS: Final = frozenset(range(_WEEK))
"""Counted from Sunday, 0."""
ALL_MONTHS: Final = frozenset(range(1, 13))


class Month(NamedTuple):
    """All that a day rule can tell months apart by."""

    number: int
    first_weekday: int
    length: int

    @classmethod
    @lru_cache(maxsize=4096)  # all there are, from 1970 to 2199
    def of(cls, year: int, month: int) -> "Month":
        """The month of a calendar year."""
        monday_is_0, length = calendar.monthrange(year, month)
        return cls(month, (monday_is_0 + 1) % _WEEK, length)

    def weekday(self, day: int) -> int:
        """The weekday of a day of this month."""
        return (self.first_weekday + day - 1) % _WEEK

    def all_of(self, weekday: int) -> range:
        """The days that fall on a weekday."""
        return range(1 + (weekday - self.first_weekday) % _WEEK, self.length + 1, _WEEK)


class Mark(Protocol):
    """A day that is not the same number in every month."""

    def days(self, month: Month) -> Sequence[int]:
        """The days it names in that month: none or one."""
        ...


@dataclass(frozen=True)
class LastDay:
    """`L` in the day-of-month field."""

    def days(self, month: Month) -> Sequence[int]:
        return (month.length,)


@dataclass(frozen=True)
class LastWeekday:
    """`LW`: the last of Monday to Friday."""

    def days(self, month: Month) -> Sequence[int]:
        return NearestWeekday(month.length).days(month)


@dataclass(frozen=True)
class NearestWeekday:
    """`15W`: of Monday to Friday the one nearest that day, within the same month."""

    day: int

    def days(self, month: Month) -> Sequence[int]:
        if self.day > month.length:
            return ()
        match month.weekday(self.day):
            case 6:  # Saturday
                return (self.day - 1 if self.day > 1 else 3,)
            case 0:  # Sunday
                return (self.day + 1 if self.day < month.length else self.day - 2,)
            case _:
                return (self.day,)


@dataclass(frozen=True)
class NthWeekday:
    """`FRI#2`: the second Friday; a month without a fifth has none."""

    weekday: int
    nth: int

    def days(self, month: Month) -> Sequence[int]:
        return month.all_of(self.weekday)[self.nth - 1 : self.nth]


@dataclass(frozen=True)
class LastOfWeekday:
    """`FRIL`: the last Friday."""

    weekday: int

    def days(self, month: Month) -> Sequence[int]:
        return month.all_of(self.weekday)[-1:]


@dataclass(frozen=True, kw_only=True)
class DayRule:
    """Months, and in them the days that one of two fields, or both, select."""

    months: frozenset[int] = ALL_MONTHS
    days: frozenset[int] = ALL_DAYS
    day_marks: tuple[Mark, ...] = ()
    weekdays: frozenset[int] = ALL_WEEKDAYS
    weekday_marks: tuple[Mark, ...] = ()
    both: bool = True
    """Whether a day must satisfy both fields, or either."""
    years: frozenset[int] | None = None
    """None for every year."""

    @property
    def is_plain(self) -> bool:
        """Whether it consists of numbers only, for any year."""
        return not self.day_marks and not self.weekday_marks and self.years is None

    def days_in(self, month: Month) -> frozenset[int]:
        """The days of one month."""
        if month.number not in self.months:
            return frozenset()
        days = {day for day in self.days if day <= month.length}
        days.update(day for mark in self.day_marks for day in mark.days(month))
        of_week = {day for weekday in self.weekdays for day in month.all_of(weekday)}
        of_week.update(day for mark in self.weekday_marks for day in mark.days(month))
        return frozenset(days & of_week if self.both else days | of_week)
