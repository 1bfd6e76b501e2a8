"""From what a schedule says to the timeline that answers for it."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from lamplighter.core.errors import Rejected
from lamplighter.core.schedule.days import Days, PlainDays
from lamplighter.core.schedule.dst import ELAPSED, DstFold, DstPolicy
from lamplighter.core.schedule.exclusions import Exclusions
from lamplighter.core.schedule.expression import Expression, checked_text
from lamplighter.core.schedule.instants import END, FIRST, checked, parse_timestamp
from lamplighter.core.schedule.interval import parse_interval
from lamplighter.core.schedule.timeline import (
    RateTimeline,
    SingleTimeline,
    Timeline,
    WallTimeline,
    resolve,
)
from lamplighter.core.schedule.walls import CronWalls, EveryWalls
from lamplighter.core.schedule.zones import Zone

_AT: Final = re.compile(r"at ?\((.*)\)", re.IGNORECASE)


def cron_timeline(
    expression: Expression, *, zone: Zone, dst: DstPolicy, exclusions: Exclusions
) -> Timeline:
    """The wall-clock times of an expression; beats follow elapsed time whatever the policy."""
    policy = ELAPSED if expression.follows_elapsed_time else dst
    return WallTimeline(walls=CronWalls(_days(expression, exclusions)), zone=zone, policy=policy)


def rate_timeline(
    text: str, *, zone: Zone, dst: DstPolicy, exclusions: Exclusions, anchor: datetime | None
) -> Timeline:
    """Occurrences at whole intervals from `anchor`, from 1970 if a rate has none."""
    interval = parse_interval(text)
    if not interval.on_calendar:
        return _elapsed(interval.length, zone, exclusions, anchor or FIRST)
    if anchor is None:
        reason = "counts calendar days from start_at, and there is none"
        raise Rejected(field="rate", value=text, reason=reason)
    label = anchor + zone.offset_at(anchor)
    free = exclusions.days_free_at(label) if exclusions else None
    if free is not None and free.is_empty:
        raise _nothing_left(exclusions)
    walls = EveryWalls(label, interval.length, free=free)
    return WallTimeline(walls=walls, zone=zone, policy=dst)


def at_timeline(text: str, *, zone: Zone, dst: DstPolicy) -> Timeline:
    """One instant: RFC 3339, or local time in the zone, with or without `at(…)` around it."""
    value = checked_text("at", text)
    wrapped = _AT.fullmatch(value)
    moment = parse_timestamp("at", wrapped[1] if wrapped else value)
    if moment.tzinfo is None:
        moment = _local("at", value, moment, zone, dst)
    return SingleTimeline(instant=checked("at", value, moment))


def _elapsed(
    interval: timedelta, zone: Zone, exclusions: Exclusions, anchor: datetime
) -> RateTimeline:
    timeline = RateTimeline(anchor=anchor, interval=interval, zone=zone, exclusions=exclusions)
    if exclusions.take_all or next(timeline.between(anchor, END), None) is None:
        raise _nothing_left(exclusions)
    return timeline


def _local(field: str, value: str, moment: datetime, zone: Zone, dst: DstPolicy) -> datetime:
    if dst.fold is DstFold.BOTH:
        reason = "one time is due once: choose FIRST or SECOND"
        raise Rejected(field="dst_fold", value=dst.fold.value, reason=reason)
    # Looked at first: the years on the edge have no room for an offset.
    label = checked(field, value, moment.replace(tzinfo=UTC))
    instant = resolve(label, zone, dst)
    if instant is None:
        reason = f"the clocks of {zone.name} skip this time"
        raise Rejected(field=field, value=value, reason=reason)
    return instant


def _days(expression: Expression, exclusions: Exclusions) -> Days:
    if not exclusions and expression.rule.is_plain:
        return PlainDays(expression.rule, expression.times)
    table = exclusions.apply_to(expression.rule, expression.times)
    if table.is_empty:
        raise _nothing_left(exclusions)
    return table


def _nothing_left(exclusions: Exclusions) -> Rejected:
    texts = [expression.text for expression in exclusions.expressions]
    return Rejected(field="except", value=texts, reason="takes away every occurrence")
