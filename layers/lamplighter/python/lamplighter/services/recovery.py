"""What would run if dispatch came back now: per recurring job, without doing any of it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice, takewhile
from typing import Final

from lamplighter.core.buckets import ExecutionId, JobId, body_of, instant_of
from lamplighter.core.limits import DYNAMODB_BATCH_GET
from lamplighter.core.model import Execution, Job, JobStatus, Owner
from lamplighter.core.recovery import Recovery, foreseen
from lamplighter.ports import Ports
from lamplighter.services import progress
from lamplighter.services.inspect import Listing
from lamplighter.services.progress import Dispatched

_TICK: Final = timedelta(milliseconds=1)


@dataclass(frozen=True, kw_only=True)
class Overdue:
    """A job of which something is due that dispatch has not come to."""

    job: Job
    recovery: Recovery


def recovery(
    ports: Ports, owner: Owner, *, after: JobId | None, limit: int
) -> Listing[Overdue, JobId]:
    """Of an owner's recurring jobs, the newest first, those with something overdue.

    Looks at `limit` jobs, 1–100, so a page may be short, even empty. What was dispatched has
    its message and runs anyway: it is none of this, nor are one-offs, which all run.
    """
    now = ports.clock.now()
    jobs = ports.jobs.of_owner(owner, before=body_of(after) if after else None, limit=limit)
    overdue = {
        job.id: first
        for job, reached in _reached(ports, jobs)
        if (first := [*islice(_overdue(job, reached, now), DYNAMODB_BATCH_GET)])
    }
    there = ports.executions.get_many([rows[0].id for rows in overdue.values()])
    found = [
        Overdue(job=job, recovery=foreseen(job, _armed(ports, overdue[job.id], there), now))
        for job in jobs
        if job.id in overdue
    ]
    following = jobs[-1].id if len(jobs) == limit else None
    return Listing(items=found, next=following)


def _reached(ports: Ports, jobs: Sequence[Job]) -> Iterator[tuple[Job, Dispatched]]:
    """How far dispatch has come with each of the jobs that plan anything."""
    planning = {
        job.id: job for job in jobs if job.status is JobStatus.ACTIVE and job.unreadable is None
    }
    for id, reached in progress.of_jobs(ports, planning).items():
        yield planning[id], reached


def _overdue(job: Job, reached: Dispatched, now: datetime) -> Iterator[Execution]:
    """The occurrences, as planned, that are due and lie beyond where dispatch has come to."""
    later = job.run_at(job.since) - job.since
    slots = job.schedule.occurrences(max(job.since, instant_of(reached.committed) - later - _TICK))
    planned = (job.occurrence(slot, now=now, sent_directly=False) for slot in slots)
    due = takewhile(lambda row: row.run_at <= now, planned)
    return (row for row in due if not reached.has(body_of(row.id)))


def _armed(
    ports: Ports, planned: Sequence[Execution], there: Mapping[ExecutionId, Execution]
) -> Execution:
    """The first of them that has a row, at which dispatch goes on.

    As a rule that is the first; in the middle of a catch-up it may lie further on. Where none
    of the first hundred has one, it is taken to be the first.
    """
    if planned[0].id in there:
        return there[planned[0].id]
    found = ports.executions.get_many([row.id for row in planned])
    return next((found[row.id] for row in planned if row.id in found), planned[0])
