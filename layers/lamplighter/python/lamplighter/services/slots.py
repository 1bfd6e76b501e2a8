"""Which occurrences of a recurring job may have rows: computed, no index holds them."""

from bisect import insort
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice
from typing import Final, NamedTuple

from lamplighter.core.buckets import ExecutionId
from lamplighter.core.lifecycle import State
from lamplighter.core.limits import (
    DYNAMODB_BATCH_GET,
    EXECUTION_KEPT,
    MARGIN,
    MAX_FLEXIBLE_WINDOW,
)
from lamplighter.core.model import Execution, Job, JobStatus
from lamplighter.core.timing import line
from lamplighter.ports import Ports

_TICK: Final = timedelta(milliseconds=1)
_DAY: Final = timedelta(days=1)
_VERSIONS_A_READ: Final = 20


def planned(
    ports: Ports, job: Job, *, now: datetime, due_before: datetime | None = None
) -> Iterator[Execution]:
    """What the job's versions planned, latest id first, from the last that was armed by `now`.

    Each as it was planned; whether there is a row of it has to be read. `due_before` goes on
    where an earlier walk ended: only what was due before then. It ends a day before executions
    that ended in time are forgotten: one that was due then and has a row still, because it has
    not ended or did so late, is not among them.
    """
    heads: list[_Head] = []
    kept_from = now - EXECUTION_KEPT - _DAY
    replaced_at: datetime | None = None
    for version in newest_versions(ports, job):
        if replaced_at is not None:
            # An edit of the flexible window may have a later slot due earlier.
            highest = replaced_at + MAX_FLEXIBLE_WINDOW
            if highest < kept_from:
                break
            while heads and heads[-1].occurrence.run_at > highest:
                yield _popped(heads)
        # A paused one plans nothing; a deleted one is the last that did.
        if version.status is not JobStatus.PAUSED and version.unreadable is None:
            top = _top(ports, version, now=now, replaced_at=replaced_at, due_before=due_before)
            _push(heads, _of_version(version, top, now=now, kept_from=kept_from))
        replaced_at = version.since
    while heads:
        yield _popped(heads)


def of_version(job: Job, *, now: datetime) -> Iterator[datetime]:
    """One version's slots, from the first beyond the line at `now` back to its beginning.

    Whoever arms goes on until one slot lies beyond the line: of those after it, only what
    `latest_armed` tells of has rows. None of a version that cannot be read.
    """
    return iter(()) if job.unreadable is not None else until(job, last_armable(job, now=now))


def last_armable(job: Job, *, now: datetime) -> datetime:
    """The first slot that lies beyond the line, or where it would."""
    end = line(now) + MARGIN
    return job.schedule.next(end) or end


def latest_armed(ports: Ports, job: Job, *, now: datetime) -> datetime:
    """The latest slot that a version may have armed by `now`; strongly consistent.

    Whoever cancels an occurrence ahead of its time arms the one after it, however far ahead:
    all between the line and the last of them have rows that wait no more. Raises Unreadable.
    """
    latest, size = last_armable(job, now=now), 1
    ahead = job.schedule.occurrences(latest - _TICK)
    while some := [*islice(ahead, size)]:
        rows = ports.executions.get_many([job.occurrence_id(slot) for slot in some], strongly=True)
        for latest in some:
            row = rows.get(job.occurrence_id(latest))
            if row is None or row.state is State.SCHEDULED:
                return latest
        size = DYNAMODB_BATCH_GET
    return latest


def until(job: Job, slot: datetime) -> Iterator[datetime]:
    """A version's slots from this one back to its beginning."""
    return _back_from(slot + _TICK, job)


def newest_versions(ports: Ports, job: Job) -> Iterator[Job]:
    """The job as it is, then its earlier versions."""
    yield job
    before = job.version
    while before > 1:
        versions = ports.jobs.versions(job.id, before=before, limit=_VERSIONS_A_READ)
        yield from versions
        before = versions[-1].version if versions else 1


def in_force(ports: Ports, row: Execution, job: Job) -> Job | None:
    """The version that an execution's latest try ran by; None: it is not there.

    A slot that an edit kept runs as the new version says, though the old one planned it. What
    waits will run by the job as it is; what ended without a try, by what planned it.
    """
    if not row.is_final and row.state is not State.RUNNING:
        return job
    for version in newest_versions(ports, job):
        ran_by_it = row.started_at is not None and version.since <= row.started_at
        if version.version == row.job_version or (version.version > row.job_version and ran_by_it):
            return version
    return None


class _Head(NamedTuple):
    """The next of a version's walk; they sort by id, which no two versions share."""

    id: ExecutionId
    occurrence: Execution
    rest: Iterator[Execution]


def _push(heads: list[_Head], walk: Iterator[Execution]) -> None:
    for occurrence in islice(walk, 1):
        insort(heads, _Head(occurrence.id, occurrence, walk), key=lambda head: head.id)


def _popped(heads: list[_Head]) -> Execution:
    head = heads.pop()
    _push(heads, head.rest)
    return head.occurrence


def _top(
    ports: Ports,
    version: Job,
    *,
    now: datetime,
    replaced_at: datetime | None,
    due_before: datetime | None,
) -> datetime | None:
    """Where a version's walk begins: at this slot or before; None: it has none."""
    latest = None if due_before is None else version.latest_until(due_before - _TICK)
    if due_before is not None and latest is None:
        return None
    if replaced_at is not None:
        return replaced_at if latest is None else min(latest, replaced_at)
    if latest is not None and latest <= line(now) + MARGIN:
        return latest
    armed = latest_armed(ports, version, now=now)
    return armed if latest is None else min(latest, armed)


def _of_version(
    version: Job, top: datetime | None, *, now: datetime, kept_from: datetime
) -> Iterator[Execution]:
    for slot in () if top is None else until(version, top):
        if version.run_at(slot) < kept_from:
            return
        yield version.occurrence(slot, now=now, sent_directly=False)


def _back_from(slot: datetime, job: Job) -> Iterator[datetime]:
    while (earlier := job.schedule.previous(slot)) is not None and earlier > job.since:
        yield earlier
        slot = earlier
