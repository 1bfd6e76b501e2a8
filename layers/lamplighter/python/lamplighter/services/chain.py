"""The end of a job's chain: what the next execution follows, and how others join there (P16)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import Final

from lamplighter.core.buckets import ExecutionId, JobId
from lamplighter.core.errors import ChainMoved, Conflict, Unavailable, VersionMoved
from lamplighter.core.lifecycle import State
from lamplighter.core.limits import CHAIN_JOINS, CHAIN_SLOTS, DYNAMODB_BATCH_GET
from lamplighter.core.misfire import successor
from lamplighter.core.model import Execution, Job, JobStatus, OverlapPolicy
from lamplighter.ports import KeyRecord, Ports
from lamplighter.services import slots, timers, turns

_TRIES: Final = 20


@dataclass(frozen=True, kw_only=True)
class End:
    """Where a chain ends for whoever joins it now.

    Whoever writes by it must check that it still is so: that `armed`, where there is one, is
    SCHEDULED still with the predecessor that it has here, and that the job has the same version
    and tail.
    """

    armed: Execution | None = None
    """What is to follow who joins, in place of `last`."""
    last: ExecutionId | None = None
    """What who joins follows: of what lies before it, the nearest that is still to end."""
    broken_behind: Execution | None = None
    """The last of a chain that should go on, and does not: whoever joins mends it first.

    Whoever mended it later would know nothing of who joined.
    """


NO_END: Final = End()
"""Of a job that allows overlap."""


def end_of(ports: Ports, job: Job) -> End:
    """Where a run beside the schedule joins: before the first that nobody has claimed (P16).

    Raises Unavailable when the occurrence that is armed lies further back than is looked: an
    outage's catch-up has not come to it yet.
    """
    waiting, claimed = _read(ports, job)
    if armed := _first_planned(job, waiting):
        return End(armed=armed, last=_live(ports, armed.predecessor))
    if claimed and _should_go_on(ports, job, claimed):
        return End(broken_behind=claimed)
    # Nothing of what waits is planned any more: it will never run, unless it is due and the
    # job is resumed before it is claimed.
    due = [row.id for row in waiting if row.run_at <= ports.clock.now()]
    first = _first_of_the_latest(waiting)
    before = first.predecessor if first else _id(claimed)
    return End(last=_live(ports, job.tail or next(iter(due), before)))


def end_for(ports: Ports, before: Job, after: Job, slot: datetime) -> End:
    """Where the first occurrence of a job's next version, at `slot`, goes on (P18).

    Behind what waits and is planned by both, else in the place of what waits. Raises as
    `end_of` does.
    """
    waiting, claimed = _read(ports, before)
    kept = [row for row in waiting if row.scheduled_for < slot and after.produces(row)]
    if kept:
        return End(last=max(kept, key=_slot).id)
    armed = _first_planned(before, waiting) or _first_of_the_latest(waiting)
    # Executions that may overlap name no predecessor: what comes next follows the latest.
    is_chain = armed is not None and before.overlap is not OverlapPolicy.ALLOW
    last = armed.predecessor if armed is not None and is_chain else _id(claimed)
    return End(armed=armed, last=_live(ports, before.tail or last))


def _live(ports: Ports, id: ExecutionId | None) -> ExecutionId | None:
    """The nearest from here back that is still to end.

    What has ended without a run is looked past now: a later version may bring it to life again,
    and it would then wait for whoever followed it.
    """
    match turns.nearest(ports, id):
        case None:
            return None
        case turns.Further(behind=behind):
            return behind
        case found:
            return found.id


def _first_planned(job: Job, waiting: Sequence[Execution]) -> Execution | None:
    """The first slot of what waits and is planned by the job as it is.

    An earlier version may have armed one far ahead that the job plans too, and has not come to.
    """
    return min((row for row in waiting if job.produces(row)), key=_slot, default=None)


def _first_of_the_latest(waiting: Sequence[Execution]) -> Execution | None:
    """The first slot of what the latest version armed; older ones are in its chain no more."""
    return min(waiting, key=lambda row: (-row.job_version, row.scheduled_for), default=None)


def _slot(row: Execution) -> datetime:
    return row.scheduled_for


def _id(row: Execution | None) -> ExecutionId | None:
    return row.id if row else None


def _should_go_on(ports: Ports, job: Job, last: Execution) -> bool:
    """Whether more should follow what a chain ends with, of which nothing waits."""
    return any(
        successor(job, link.slot, ports.clock.now(), caught_up=link.caught_up).slot
        for link in timers.links_of(job, last)
    )


def _mend(ports: Ports, job: Job, last: Execution) -> None:
    """Arm what should follow the last of a chain, as the sweep would some minutes later (P2)."""
    ports.telemetry.recovered(last, reason="nothing followed it")
    following = timers.arm_chains(
        ports, timers.links_of(job, last), decided_at=ports.clock.now(), directly=True
    )
    timers.send(ports, [timers.outgoing(row) for row in following])


def _read(ports: Ports, job: Job) -> tuple[Sequence[Execution], Execution | None]:
    """What waits at the end of a chain, latest first, and what it ends with where nothing does.

    Read strongly. What was cancelled ahead of its time may lie behind what still waits; and what
    an earlier version left may do so for as long as that waits, though it is in no chain any more.
    """
    now = ports.clock.now()
    waiting: list[Execution] = []
    ended: list[Execution] = []
    for version, row in _newest_rows(ports, job):
        if row.state is State.SCHEDULED:
            waiting.append(row)
            continue
        ended.append(row)
        is_left = row.state is State.CANCELLED and row.job_version < version.version
        if not is_left and (not row.is_final or row.run_at <= now):
            break
    return waiting, max(ended, key=lambda row: (row.job_version, row.scheduled_for), default=None)


def _newest_rows(ports: Ports, job: Job) -> Iterator[tuple[Job, Execution]]:
    """The rows of the slots of a job's versions, the newest's first, of each the latest first."""
    now, looked_at = ports.clock.now(), 0
    # A row that several versions planned comes once.
    found: set[ExecutionId] = set()
    for version in slots.newest_versions(ports, job):
        planned = _armable(ports, version, now=now)
        # What the version before it armed may lie later than when this one replaced it.
        now = version.since
        while some := [*islice(planned, DYNAMODB_BATCH_GET)]:
            rows = ports.executions.get_many(some, strongly=True)
            for id in some:
                if id in rows and id not in found:
                    found.add(id)
                    yield version, rows[id]
            looked_at += len(some)
            if looked_at >= CHAIN_SLOTS and not found:
                if job.next_after(ports.clock.now()) is None:
                    # Paused or over: nothing is armed, and what had run is no longer kept.
                    return
                reason = f"job {job.id} has no occurrence armed among its latest {looked_at}"
                raise Unavailable(reason)


def _armable(ports: Ports, version: Job, *, now: datetime) -> Iterator[ExecutionId]:
    """What a version may have armed by `now`, latest first."""
    if version.status is JobStatus.PAUSED or version.unreadable is not None:
        return
    latest = slots.latest_armed(ports, version, now=now)
    yield from (version.occurrence_id(slot) for slot in slots.until(version, latest))


def join(
    ports: Ports, job: Job, rows: Sequence[Execution], *, key: KeyRecord | None = None
) -> KeyRecord | None:
    """Make rows at the end of their job's chain, each after the one before it.

    All or none of each 90; the key with the first. Doing it again with the same rows finds
    what was made. Raises Conflict for a job that was deleted meanwhile, Unavailable when
    others join it for as long as we try.
    """
    for start in range(0, len(rows), CHAIN_JOINS):
        some = rows[start : start + CHAIN_JOINS]
        known = _join(ports, job, some, key=None if start else key)
        if known is not None:
            return known
    return None


def _join(
    ports: Ports, job: Job, rows: Sequence[Execution], *, key: KeyRecord | None
) -> KeyRecord | None:
    for _ in range(_TRIES):
        end = end_of(ports, job)
        if end.broken_behind is not None:
            _mend(ports, job, end.broken_behind)
            continue
        try:
            return ports.jobs.join(_linked(rows, end.last), job=job, armed=end.armed, key=key)
        except VersionMoved:
            job = _again(ports, job.id)
        except ChainMoved:
            # Its tail may be another now.
            job = _again(ports, job.id)
    raise Unavailable(f"others join the chain of job {job.id} for as long as we try")


def _again(ports: Ports, id: JobId) -> Job:
    job = ports.jobs.get(id)
    if job is None or job.status is JobStatus.DELETED:
        raise Conflict(reason=f"{id} is deleted")
    return job


def _linked(rows: Sequence[Execution], last: ExecutionId | None) -> Sequence[Execution]:
    before = [last, *(row.id for row in rows[:-1])]
    return [
        replace(row, predecessor=predecessor) for row, predecessor in zip(rows, before, strict=True)
    ]
