"""What is refused when a job is created, beyond what makes no sense at all."""

from datetime import datetime, timedelta
from itertools import pairwise

from lamplighter.core.errors import Rejected
from lamplighter.core.limits import MIN_INTERVAL
from lamplighter.core.schedule.days import DAY
from lamplighter.core.schedule.expression import parse_cron
from lamplighter.core.schedule.instants import format_instant
from lamplighter.core.schedule.interval import parse_interval
from lamplighter.core.schedule.model import Kind, Schedule


def check(schedule: Schedule, *, now: datetime, min_interval: timedelta = MIN_INTERVAL) -> None:
    """Refuse what repeats more often than allowed, or is never due after now.

    A single time is neither: whether a past one still runs is the caller's policy.
    """
    if schedule.kind is Kind.AT:
        return
    shortest = shortest_interval(schedule)
    if shortest < min_interval:
        apart = f"{min_interval.total_seconds():g} s"
        reason = f"repeats after {shortest.total_seconds():g} s, less than {apart}"
        raise Rejected(field=schedule.kind, value=schedule.text, reason=reason)
    if schedule.next(now) is None:
        reason = f"is never due after {format_instant(now)}"
        raise Rejected(field=schedule.kind, value=schedule.text, reason=reason)


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
