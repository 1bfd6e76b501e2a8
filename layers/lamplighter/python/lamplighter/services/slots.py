"""Which occurrences of a recurring job may have rows: computed, no index holds them."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from lamplighter.core.limits import MARGIN
from lamplighter.core.model import Execution, Job, JobStatus
from lamplighter.core.timing import line
from lamplighter.ports import Ports

_TICK = timedelta(milliseconds=1)
_VERSIONS_A_READ = 20


def planned(
    ports: Ports, job: Job, *, now: datetime, due_before: datetime | None = None
) -> Iterator[Execution]:
    """What the job's versions planned, newest first, from the last that can be armed at `now`.

    Each as it was planned; whether there is a row of it has to be read. `due_before` goes on
    where an earlier walk ended: only what was due before then.
    """
    replaced_at: datetime | None = None
    for version in newest_versions(ports, job):
        # A paused one plans nothing; a deleted one is the last that did.
        if version.status is not JobStatus.PAUSED:
            yield from _of_version(version, now=now, until=replaced_at, due_before=due_before)
        replaced_at = version.since


def of_version(job: Job, *, now: datetime) -> Iterator[datetime]:
    """One version's slots, from the last that can be armed at `now` back to its beginning.

    Whoever arms goes on until one slot lies beyond the line: no slot after that one has a row.
    None of a version that cannot be read.
    """
    return iter(()) if job.unreadable is not None else until(job, last_armable(job, now=now))


def last_armable(job: Job, *, now: datetime) -> datetime:
    """The first slot that lies beyond the line, or where it would."""
    end = line(now) + MARGIN
    return job.schedule.next(end) or end


def until(job: Job, slot: datetime) -> Iterator[datetime]:
    """A version's slots from this one back to its beginning."""
    return _back_from(slot + _TICK, job)


def _of_version(
    version: Job, *, now: datetime, until: datetime | None, due_before: datetime | None
) -> Iterator[Execution]:
    for slot in of_version(version, now=now):
        occurrence = version.occurrence(slot, now=now, sent_directly=False)
        is_replaced = until is not None and slot > until
        if not is_replaced and (due_before is None or occurrence.run_at < due_before):
            yield occurrence


def _back_from(slot: datetime, job: Job) -> Iterator[datetime]:
    while (earlier := job.schedule.previous(slot)) is not None and earlier > job.since:
        yield earlier
        slot = earlier


def newest_versions(ports: Ports, job: Job) -> Iterator[Job]:
    """The job as it is, then its earlier versions."""
    yield job
    before = job.version
    while before > 1:
        versions = ports.jobs.versions(job.id, before=before, limit=_VERSIONS_A_READ)
        yield from versions
        before = versions[-1].version if versions else 1
