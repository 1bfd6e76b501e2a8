"""When a recurring job's ledger is looked at next, by nobody's asking (S1-O3, S2-M2).

Each job that plans anything has one watch: a row in a bucket to come, which the sweep visits.
However two of them came about, they become one: each puts its successor into the next of a few
places, and none goes past one that a job's watches all come to, once a day or a week.
"""

from datetime import datetime
from itertools import islice, takewhile

from lamplighter.core.buckets import watch_place, watch_position
from lamplighter.core.limits import (
    LEDGER_LATE,
    WATCH_AGAIN,
    WATCH_AT_LEAST,
    WATCH_EVERY,
    WATCH_FIRST,
    WATCH_SELDOM,
    WATCH_SLOTS,
)
from lamplighter.core.model import Job, JobStatus, Rest, Watch


def first_watch(job: Job, now: datetime) -> Watch:
    """The watch of a version that is about to be written.

    Its visit comes late enough to find the version, or to know that there will never be one.
    """
    return _watch(job, _next_place(job, job.since, now + WATCH_FIRST), since=job.since)


def next_watch(job: Job, *, since: datetime, rest: Rest | None, now: datetime) -> Watch | None:
    """The watch that follows a visit at `now`, which told all before `since` but a rest.

    None when there is nothing left to tell: whoever has the job plan anything again puts a
    first one.
    """
    if rest is not None:
        at = watch_place(job.id, now, WATCH_AGAIN)
        return _watch(job, at, since=since, rest=rest)
    if job.status is JobStatus.DELETED:
        return None
    if job.unreadable is not None or since <= job.since:
        # The slots of the version before may still have to be told.
        return _watch(job, watch_place(job.id, now, WATCH_EVERY), since=since)
    if job.next_after(since) is None:
        return None
    return _watch(job, _next_place(job, since, now), since=since)


def _next_place(job: Job, since: datetime, now: datetime) -> datetime:
    """As soon as a few slots after `since` are over; or after a day any, and else the first.

    So seldom that it costs little, and so that what died is found before many slots are missed.
    """
    a_day_on = now + WATCH_AT_LEAST
    slots = job.schedule.occurrences(since)
    few = [*islice(takewhile(lambda slot: job.run_at(slot) < a_day_on, slots), WATCH_SLOTS)]
    if len(few) == WATCH_SLOTS:
        due, merged = job.run_at(few[-1]), WATCH_AT_LEAST
    else:
        following = job.next_after(since)
        due = max(a_day_on, job.run_at(following)) if following else a_day_on
        merged = WATCH_SELDOM
    wanted = watch_place(job.id, max(now, due + LEDGER_LATE), WATCH_EVERY)
    return min(wanted, watch_place(job.id, now, merged))


def _watch(job: Job, at: datetime, *, since: datetime, rest: Rest | None = None) -> Watch:
    return Watch(position=watch_position(job.id, at), job_id=job.id, at=at, since=since, rest=rest)


def judged_from(job: Job) -> datetime:
    """From when on a chain of this version that lacks its next row is dead.

    Until then its beginning may be under way or, after a crash, be left to the sweep.
    """
    return job.since + WATCH_FIRST


def has_more(mine: Watch, there: Watch) -> bool:
    """Whether a watch has more to tell than the one that lies in its place."""
    return mine.since < there.since
