"""Which occurrences of a recurring job may have rows: computed, no index holds them."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from lamplighter.core.limits import MARGIN
from lamplighter.core.model import Job
from lamplighter.core.timing import line

_TICK = timedelta(milliseconds=1)


def newest_first(job: Job, *, now: datetime, before: datetime | None = None) -> Iterator[datetime]:
    """The job's slots, from the last that can be armed at `now` back to its creation.

    Whoever arms goes on until one slot lies beyond the line: no slot after that one has a row.
    """
    slot = before or _after_the_armed(job, now)
    while (earlier := job.schedule.previous(slot)) is not None and earlier > job.created_at:
        yield earlier
        slot = earlier


def _after_the_armed(job: Job, now: datetime) -> datetime:
    end = line(now) + MARGIN
    return (job.schedule.next(end) or end) + _TICK
