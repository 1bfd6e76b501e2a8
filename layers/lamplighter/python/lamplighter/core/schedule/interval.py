"""Intervals: `rate(5 minutes)` counts elapsed time, `every(2 weeks)` counts calendar days."""

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from lamplighter.core.errors import Rejected
from lamplighter.core.limits import MAX_INTERVAL
from lamplighter.core.schedule.expression import checked_text

_INTERVAL: Final = re.compile(r"(?:(RATE|EVERY) ?\( ?)?([0-9]{1,9}) ([A-Z]+)(?(1) ?\))", re.ASCII)
_ELAPSED: Final = {
    "SECOND": timedelta(seconds=1),
    "MINUTE": timedelta(minutes=1),
    "HOUR": timedelta(hours=1),
    "DAY": timedelta(days=1),
}
_CALENDAR: Final = {"DAY": timedelta(days=1), "WEEK": timedelta(weeks=1)}


@dataclass(frozen=True, kw_only=True)
class Interval:
    """How far apart two occurrences are."""

    length: timedelta
    on_calendar: bool
    """Whether a day is the next same wall-clock time, rather than 24 hours."""

    @property
    def text(self) -> str:
        """In words: `5 minutes`, `1 day`."""
        units = _CALENDAR if self.on_calendar else _ELAPSED
        unit, size = next(
            (unit, size)
            for unit, size in reversed(units.items())
            if self.length % size == timedelta(0)
        )
        number = self.length // size
        return f"{number} {unit.lower()}{'' if number == 1 else 's'}"


def parse_interval(value: object) -> Interval:
    """`rate(5 minutes)`, the same without `rate(…)`, or `every(2 weeks)`.

    One is singular and everything else plural, as EventBridge has it.
    """
    text = checked_text("rate", value)
    match = _INTERVAL.fullmatch(text.upper())
    if match is None:
        raise _refusal(text, "not like rate(5 minutes) or every(2 weeks)")
    kind, number, unit = match.groups()
    units = _CALENDAR if kind == "EVERY" else _ELAPSED
    length = _length(text, int(number), unit, units)
    return Interval(length=length, on_calendar=kind == "EVERY")


def _length(text: str, number: int, unit: str, units: dict[str, timedelta]) -> timedelta:
    singular = unit.removesuffix("S")
    if singular not in units:
        known = ", ".join(f"{each.lower()}s" for each in units)
        raise _refusal(text, f"unit {unit.lower()!r} is not one of {known}")
    if number == 0:
        raise _refusal(text, "0 never advances")
    if (number == 1) != (unit == singular):
        right = singular if number == 1 else f"{singular}S"
        raise _refusal(text, f"{number} takes {right.lower()!r}, not {unit.lower()!r}")
    if number * units[singular] > MAX_INTERVAL:
        raise _refusal(text, f"longer than {MAX_INTERVAL.days} days")
    return number * units[singular]


def _refusal(value: object, reason: str) -> Rejected:
    return Rejected(field="rate", value=value, reason=reason)
