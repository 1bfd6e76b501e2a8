"""What is refused when a job is created, beyond what makes no sense at all."""

from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise

from lamplighter.core.errors import Rejected
from lamplighter.core.limits import MAX_HORIZON, MIN_INTERVAL
from lamplighter.core.schedule.days import DAY
from lamplighter.core.schedule.expression import parse_cron
from lamplighter.core.schedule.instants import format_instant
from lamplighter.core.schedule.interval import parse_interval
from lamplighter.core.schedule.model import Kind, Schedule


def check(schedule: Schedule, *, now: datetime, min_interval: timedelta = MIN_INTERVAL) -> None:
    """Refuse what repeats more often than allowed, begins too far ahead, or is never due after now.

    A single time is neither: whether a past one still runs is the caller's policy.
    """
    if schedule.kind is Kind.AT:
        return
    shortest = shortest_interval(schedule)
    if shortest < min_interval:
        apart = f"{min_interval.total_seconds():g} s"
        reason = f"repeats after {shortest.total_seconds():g} s, less than {apart}"
        raise Rejected(field=schedule.kind, value=schedule.text, reason=reason)
    if schedule.start_at is not None and schedule.start_at > now + MAX_HORIZON:
        reason = f"more than {MAX_HORIZON.days} days ahead"
        raise Rejected(field="start_at", value=format_instant(schedule.start_at), reason=reason)
    if not schedule.is_countable:
        reason = "takes away so many that max_occurrences cannot be counted"
        raise Rejected(field="except", value=list(schedule.except_), reason=reason)
    if schedule.next(now) is None:
        raise never_due(schedule, after=now)


def never_due(schedule: Schedule, *, after: datetime) -> Rejected:
    """The error for a schedule with no occurrence after an instant; it names what ends it."""
    since = format_instant(after)
    endless = replace(schedule, end_at=None)
    if schedule.end_at is not None and (first := endless.next(after)) is not None:
        reason = f"earlier than the first occurrence after {since}, {format_instant(first)}"
        if schedule.end_at < after:
            reason = f"in the past, before {since}"
        return Rejected(field="end_at", value=format_instant(schedule.end_at), reason=reason)
    uncounted = replace(endless, max_occurrences=None)
    if schedule.max_occurrences is not None and uncounted.next(after) is not None:
        reason = f"all of them are over by {since}"
        return Rejected(field="max_occurrences", value=schedule.max_occurrences, reason=reason)
    if schedule.except_ and replace(uncounted, except_=()).next(after) is not None:
        reason = f"takes away every occurrence after {since}"
        return Rejected(field="except", value=list(schedule.except_), reason=reason)
    reason = f"is never due after {since}"
    return Rejected(field=schedule.kind, value=schedule.text, reason=reason)


def shortest_interval(schedule: Schedule) -> timedelta:
    """The least wall-clock time from one occurrence to the next; that of a single time is endless.

    For cron it lies between two times of a day, or between the last of one day and the first
    of the next, whether or not two planned days ever follow each other.
    """
    match schedule.kind:
        case Kind.RATE:
            return parse_interval(schedule.text).length
        case Kind.CRON:
            expression = parse_cron(schedule.text, dialect=schedule.dialect, seed=schedule.seed)
            times = expression.times
            return min(later - time for time, later in pairwise((*times, times[0] + DAY)))
        case Kind.AT:
            return timedelta.max
