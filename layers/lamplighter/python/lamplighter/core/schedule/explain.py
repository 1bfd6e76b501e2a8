"""A schedule in plain words."""

from collections.abc import Collection, Iterator, Sequence
from datetime import timedelta
from itertools import groupby
from typing import Final

from lamplighter.core.schedule.dst import DstFold, DstGap
from lamplighter.core.schedule.expression import Expression, parse_cron
from lamplighter.core.schedule.instants import FIRST, format_instant
from lamplighter.core.schedule.interval import parse_interval
from lamplighter.core.schedule.model import Kind, Schedule
from lamplighter.core.schedule.months import (
    ALL_DAYS,
    ALL_MONTHS,
    ALL_WEEKDAYS,
    DayRule,
    LastDay,
    LastOfWeekday,
    LastWeekday,
    Mark,
    NearestWeekday,
    NthWeekday,
)

_WEEKDAYS: Final = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
_ORDINALS: Final = ("first", "second", "third", "fourth", "fifth")
_TIMES_LISTED: Final = 6
_GAP: Final = {
    DstGap.NEXT_VALID: "A time that the clocks skip is due right after the gap",
    DstGap.SHIFT: "A time that the clocks skip is due later by the gap's width",
    DstGap.SKIP: "A time that the clocks skip is not due",
}
_FOLD: Final = {
    DstFold.FIRST: "one that they repeat is due the first time.",
    DstFold.SECOND: "one that they repeat is due the second time.",
    DstFold.BOTH: "one that they repeat is due both times.",
}
_BEAT: Final = (
    "It follows elapsed time: a change of the clocks is neither caught up on nor waited for."
)


def explain(schedule: Schedule) -> str:
    """When a schedule is due, its limits, and what it does where the clocks change."""
    return " ".join([_when(schedule), *_limits(schedule), *_changes(schedule)])


def _when(schedule: Schedule) -> str:
    match schedule.kind:
        case Kind.CRON:
            expression = _expression(schedule)
            return f"{_times(expression)}{_days(expression)}, {_zone(schedule)}."
        case Kind.RATE:
            return _interval(schedule)
        case Kind.AT:
            instant = next(schedule.occurrences(FIRST - timedelta(days=1)))
            return f"Once, at {format_instant(instant)}."


def _interval(schedule: Schedule) -> str:
    interval = parse_interval(schedule.text)
    anchor = schedule.start_at or schedule.anchor or FIRST
    if not interval.on_calendar:
        return f"Every {interval.text} of elapsed time, counted from {format_instant(anchor)}."
    label = anchor + schedule.zones.zone(schedule.timezone).offset_at(anchor)
    counted = f"{label:%Y-%m-%d}"
    return f"Every {interval.text} at {label:%H:%M}, counted from {counted}, {_zone(schedule)}."


def _zone(schedule: Schedule) -> str:
    return "UTC" if schedule.timezone == "UTC" else f"{schedule.timezone} time"


def _expression(schedule: Schedule) -> Expression:
    return parse_cron(schedule.text, dialect=schedule.dialect, seed=schedule.seed)


def _times(expression: Expression) -> str:
    if len(expression.times) <= _TIMES_LISTED:
        return f"At {_and([_clock(time) for time in expression.times])}"
    minutes = sorted(expression.fields.minutes.numbers)
    hours = sorted(expression.fields.hours.numbers)
    of_hours = "every hour" if len(hours) == 24 else f"hour{_s(hours)} {_and(_runs(hours))}"
    step = 60 // len(minutes)
    # Steps restart at each hour: only those that divide it are the same all day.
    if len(minutes) > 1 and minutes == list(range(0, 60, step)):
        beat = "Every minute" if step == 1 else f"Every {step} minutes"
        return beat if len(hours) == 24 else f"{beat} of {of_hours}"
    return f"At minute{_s(minutes)} {_and(_runs(minutes))} of {of_hours}"


def _clock(time: timedelta) -> str:
    hour, minute = divmod(time // timedelta(minutes=1), 60)
    return f"{hour:02}:{minute:02}"


def _days(expression: Expression) -> str:
    rule = expression.rule
    which = _of_which_days(rule)
    round_the_clock = len(expression.fields.hours.numbers) == 24
    parts = [] if round_the_clock and which == "every day" else [which]
    if rule.months != ALL_MONTHS:
        parts.append(f"in {_and(_runs(sorted(rule.months), _MONTHS, first=1))}")
    if rule.years is not None:
        parts.append(f"in {_and(_runs(sorted(rule.years)))}")
    return "".join(f" {part}" for part in parts)


def _of_which_days(rule: DayRule) -> str:
    any_day = rule.days == ALL_DAYS
    any_weekday = rule.weekdays == ALL_WEEKDAYS
    if (any_day and any_weekday) or (not rule.both and (any_day or any_weekday)):
        return "every day"
    days = f"on {_and([*_numbered(rule.days), *map(_mark, rule.day_marks)])}"
    named = _runs(sorted(rule.weekdays), _WEEKDAYS)
    weekdays = f"on {_and([*named, *map(_mark, rule.weekday_marks)])}"
    if any_weekday or any_day:
        return days if any_weekday else weekdays
    return f"{days} if that is {weekdays}" if rule.both else f"{days}, and {weekdays}"


def _numbered(days: frozenset[int]) -> list[str]:
    if not days:
        return []
    return [f"day{_s(days)} {_and(_runs(sorted(days)))} of the month"]


def _mark(mark: Mark) -> str:
    match mark:
        case LastDay():
            return "the last day of the month"
        case LastWeekday():
            return "the last weekday (Monday to Friday)"
        case NearestWeekday(day):
            return f"the weekday (Monday to Friday) nearest day {day}"
        case NthWeekday(weekday, nth):
            return f"the {_ORDINALS[nth - 1]} {_WEEKDAYS[weekday]} of the month"
        case LastOfWeekday(weekday):
            return f"the last {_WEEKDAYS[weekday]} of the month"
        case _:
            raise ValueError(f"{mark} has no words")


def _runs(numbers: Sequence[int], names: Sequence[str] = (), *, first: int = 0) -> list[str]:
    """Names of numbers, with three and more in a row as one `a to b`."""
    words: list[str] = []
    for _, group in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        run = [names[number - first] if names else str(number) for _, number in group]
        words += [f"{run[0]} to {run[-1]}"] if len(run) > 2 else run
    return words


def _s(counted: Collection[int]) -> str:
    return "" if len(counted) == 1 else "s"


def _and(words: Sequence[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def _limits(schedule: Schedule) -> Iterator[str]:
    if schedule.start_at:
        yield f"Not before {format_instant(schedule.start_at)}."
    if schedule.end_at:
        yield f"Not after {format_instant(schedule.end_at)}."
    if schedule.max_occurrences:
        yield f"At most {schedule.max_occurrences} times."
    if schedule.except_:
        yield f"Except {_and(schedule.except_)}."
    if schedule.flexible_window:
        yield f"Run up to {schedule.flexible_window.total_seconds():g} s later, by the job's id."


def _changes(schedule: Schedule) -> Iterator[str]:
    elapsed = schedule.kind is Kind.RATE and not parse_interval(schedule.text).on_calendar
    if schedule.timezone == "UTC" or schedule.kind is Kind.AT or elapsed:
        return
    if schedule.timezone.startswith("Etc/GMT"):
        yield "(Zones named Etc/GMT+n are n hours behind UTC.)"
    elif schedule.kind is Kind.CRON and _expression(schedule).follows_elapsed_time:
        yield _BEAT
    else:
        yield f"{_GAP[schedule.dst.gap]}; {_FOLD[schedule.dst.fold]}"
