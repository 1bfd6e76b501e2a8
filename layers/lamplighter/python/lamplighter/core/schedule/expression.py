"""Cron expressions in their two dialects, as one value: times of day, and a day rule.

`unix` is cron's five fields with `L`, `LW`, `15W` and `#` for days, macros, and `H`.
`eventbridge` is AWS's six fields, with the year last, `?`, and weekdays 1–7 from Sunday.
"""

import re
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Final

from lamplighter.core.errors import Rejected
from lamplighter.core.limits import (
    SCHEDULE_FIRST_YEAR,
    SCHEDULE_LAST_YEAR,
    SCHEDULE_TEXT_MAX_CHARS,
)
from lamplighter.core.schedule.days import MonthTable, Times
from lamplighter.core.schedule.fields import Field, Values, read, refusal
from lamplighter.core.schedule.months import (
    ALL_DAYS,
    DayRule,
    LastDay,
    LastOfWeekday,
    LastWeekday,
    Mark,
    NearestWeekday,
    NthWeekday,
)


class Dialect(StrEnum):
    """How a cron expression is read."""

    UNIX = "unix"
    EVENTBRIDGE = "eventbridge"


@dataclass(frozen=True, kw_only=True)
class Fields:
    """What each field says; weekdays by the dialect's own numbers."""

    minutes: Values
    hours: Values
    days: Values
    months: Values
    weekdays: Values
    years: Values | None


@dataclass(frozen=True, kw_only=True)
class Expression:
    """A cron expression that fires at least once."""

    text: str
    """As it was given, with single spaces."""
    dialect: Dialect
    fields: Fields
    times: Times
    rule: DayRule

    @property
    def follows_elapsed_time(self) -> bool:
        """Whether it is a beat rather than an appointment: minute or hour starts with `*`.

        As in Debian's cron, a beat neither catches up on a gap nor rests in a fold.
        """
        return self.fields.minutes.starred or self.fields.hours.starred


MACROS: Final = {
    "@YEARLY": "0 0 1 1 *",
    "@ANNUALLY": "0 0 1 1 *",
    "@MONTHLY": "0 0 1 * *",
    "@WEEKLY": "0 0 * * 0",
    "@DAILY": "0 0 * * *",
    "@MIDNIGHT": "0 0 * * *",
    "@HOURLY": "0 * * * *",
}

_MONTHS: Final = (
    *("JAN", "FEB", "MAR", "APR", "MAY", "JUN"),
    *("JUL", "AUG", "SEP", "OCT", "NOV", "DEC"),
)
_WEEKDAYS: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_NAMED_DAYS: Final[dict[str, Mark]] = {"L": LastDay(), "LW": LastWeekday()}
_NEAREST: Final = re.compile(r"([0-9]+)W")
_NTH: Final = re.compile(r"([0-9A-Z]+)#([0-9]+)")
_LAST: Final = re.compile(r"([0-9A-Z]+?)L")
_SIX_FIELDS: Final = (
    "six fields: seconds are not read; AWS's cron(minute hour day month weekday year) is, "
    "with dialect=eventbridge"
)
_SIX_NAMES: Final = "minute hour day-of-month month day-of-week year"
_ONE_QUESTION_MARK: Final = "exactly one of day-of-month and day-of-week must be '?'"


def _day_mark(field: Field, item: str) -> Mark | None:
    if item in _NAMED_DAYS:
        return _NAMED_DAYS[item]
    nearest = _NEAREST.fullmatch(item)
    return NearestWeekday(field.number(nearest[1])) if nearest else None


def _weekday_mark(field: Field, item: str) -> Mark | None:
    if match := _NTH.fullmatch(item):
        if not 1 <= (nth := int(match[2])) <= 5:
            raise refusal(item, f"{field.name} occurrence {match[2]} is not in 1–5")
        return NthWeekday(_from_sunday(field, field.number(match[1])), nth)
    if match := _LAST.fullmatch(item):
        return LastOfWeekday(_from_sunday(field, field.number(match[1])))
    return None


def _from_sunday(field: Field, number: int) -> int:
    """A weekday of either dialect, counted from Sunday, 0."""
    return (number - field.names["SUN"]) % 7


_MINUTE: Final = Field(name="minute", low=0, high=59, hash_high=59)
_HOUR: Final = Field(name="hour", low=0, high=23, hash_high=23)
_DAY: Final = Field(name="day-of-month", low=1, high=31, mark=_day_mark, hash_high=28)
_MONTH: Final = Field(
    name="month",
    low=1,
    high=12,
    names={name: number for number, name in enumerate(_MONTHS, 1)},
    hash_high=12,
)
_WEEKDAY: Final = Field(
    name="day-of-week",
    low=0,
    high=7,
    names={name: number for number, name in enumerate(_WEEKDAYS)},
    width=7,
    mark=_weekday_mark,
    hash_high=6,
)
_UNIX: Final = (_MINUTE, _HOUR, _DAY, _MONTH, _WEEKDAY)
_AWS_WEEKDAY: Final = Field(
    name="day-of-week",
    low=1,
    high=7,
    # A bare L is the last day of the week.
    names={**{name: number for number, name in enumerate(_WEEKDAYS, 1)}, "L": 7},
    mark=_weekday_mark,
)
_AWS: Final = (*(replace(field, hash_high=0) for field in _UNIX[:4]), _AWS_WEEKDAY)
_YEAR: Final = Field(name="year", low=SCHEDULE_FIRST_YEAR, high=SCHEDULE_LAST_YEAR)
_ANY_DAY: Final = Values(text="?", numbers=ALL_DAYS)
_ANY_WEEKDAY: Final = Values(text="?", numbers=frozenset(range(1, 8)))


def checked_text(field: str, value: object) -> str:
    """Schedule text with single spaces; over-long or unprintable text is refused unread."""
    if not isinstance(value, str):
        raise Rejected(field=field, value=value, reason="not text")
    if len(value) > SCHEDULE_TEXT_MAX_CHARS:
        reason = f"longer than {SCHEDULE_TEXT_MAX_CHARS} characters"
        raise Rejected(field=field, value=f"{len(value)} characters", reason=reason)
    text = value.replace("\t", " ")
    if not text.isascii() or not text.isprintable():
        raise Rejected(field=field, value=value, reason="not printable ASCII in one line")
    if not text.strip():
        raise Rejected(field=field, value=value, reason="empty")
    return " ".join(text.split())


def parse_cron(value: object, *, dialect: Dialect | None, seed: str = "") -> Expression:
    """The expression that a text says; without a dialect, `cron(…)` is eventbridge's.

    Text that never fires is Rejected like any other that makes no sense.
    """
    text = checked_text("cron", value)
    wrapped = text[:5].lower() == "cron(" and text.endswith(")")
    if dialect is None:
        dialect = Dialect.EVENTBRIDGE if wrapped else Dialect.UNIX
    if dialect is Dialect.UNIX:
        if wrapped:
            raise refusal(text, "cron(…) is written in dialect=eventbridge")
        return _parse_unix(text, seed)
    return _parse_eventbridge(text, text[5:-1] if wrapped else text)


@lru_cache(maxsize=1024)
def _parse_unix(text: str, seed: str) -> Expression:
    parts = (_macro(text) if text.startswith("@") else text.upper()).split()
    if len(parts) != 5:
        hint = _SIX_FIELDS if len(parts) == 6 else f"{len(parts)} fields instead of five"
        raise refusal(text, hint)
    minutes, hours, days, months, weekdays = (
        read(field, part, seed=seed) for field, part in zip(_UNIX, parts, strict=True)
    )
    return _expression(
        text=text,
        dialect=Dialect.UNIX,
        fields=Fields(
            minutes=minutes, hours=hours, days=days, months=months, weekdays=weekdays, years=None
        ),
        # Cron's own rule: of two restricted day fields either will do, and a field that
        # starts with `*` counts as unrestricted even if it has a step.
        both=days.starred or weekdays.starred,
        sunday=_WEEKDAY.names["SUN"],
    )


def _macro(text: str) -> str:
    name = text.upper()
    if name == "@REBOOT":
        raise refusal(text, "names no time: nothing boots here")
    if name not in MACROS:
        raise refusal(text, f"no such macro; there are {' '.join(MACROS).lower()}")
    return MACROS[name]


@lru_cache(maxsize=1024)
def _parse_eventbridge(text: str, inside: str) -> Expression:
    parts = inside.upper().split()
    if len(parts) != 6:
        raise refusal(text, f"{len(parts)} fields instead of six: {_SIX_NAMES}")
    minute, hour, day, month, weekday, year = parts
    if (day == "?") == (weekday == "?"):
        raise refusal(text, _ONE_QUESTION_MARK)
    return _expression(
        text=text,
        dialect=Dialect.EVENTBRIDGE,
        fields=Fields(
            minutes=read(_AWS[0], minute),
            hours=read(_AWS[1], hour),
            days=_ANY_DAY if day == "?" else read(_AWS[2], day),
            months=read(_AWS[3], month),
            weekdays=_ANY_WEEKDAY if weekday == "?" else read(_AWS[4], weekday),
            years=read(_YEAR, year),
        ),
        both=True,
        sunday=_AWS_WEEKDAY.names["SUN"],
    )


def _expression(
    *, text: str, dialect: Dialect, fields: Fields, both: bool, sunday: int
) -> Expression:
    times = tuple(
        timedelta(hours=hour, minutes=minute)
        for hour in sorted(fields.hours.numbers)
        for minute in sorted(fields.minutes.numbers)
    )
    rule = DayRule(
        months=fields.months.numbers,
        days=fields.days.numbers,
        day_marks=fields.days.marks,
        weekdays=frozenset((number - sunday) % 7 for number in fields.weekdays.numbers),
        weekday_marks=fields.weekdays.marks,
        both=both,
        years=fields.years.numbers if fields.years and fields.years.text != "*" else None,
    )
    if MonthTable(rule, times).is_empty:
        raise refusal(text, "never fires: no month has such a day")
    return Expression(text=text, dialect=dialect, fields=fields, times=times, rule=rule)
