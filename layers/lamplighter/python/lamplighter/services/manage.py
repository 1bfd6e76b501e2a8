"""Changing a job and taking it back: what its owner may still stop, is stopped; the rest is said.

A change is a next version, from now on, in one transaction with its first occurrence (P18).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice, takewhile

from lamplighter.core.buckets import (
    ExecutionId,
    JobId,
    Position,
    body_of,
    execution_of,
    from_ms,
    to_ms,
)
from lamplighter.core.errors import ChainMoved, Conflict, VersionMoved, WrongVersion
from lamplighter.core.lifecycle import Event, State
from lamplighter.core.model import Execution, Job, JobStatus, OverlapPolicy, Owner
from lamplighter.core.outcome import ended
from lamplighter.core.timing import is_inside
from lamplighter.ports import Ports, Refusal
from lamplighter.services import admission, chain, endings, inspect, slots, watch
from lamplighter.services.submit import keep_large_payload, look, numbered

_TRIES = 5
# How far back an occurrence is looked for that has not ended: a try's longest time and a bit.
_BACK = timedelta(minutes=15)
_MOST_SLOTS = 100
_DELETED = "its job was deleted"
_EDITED = "its job was edited and plans it no more"


def delete(ports: Ports, owner: Owner, id: JobId, *, request: bool = False) -> None:
    """Have the job never start again; doing it twice is fine.

    What runs goes on. A one-off that runs, or of which a replay does, is a Conflict, unless
    `request`: then the handler is asked to stop, and its next beat sees that. What waits
    beside the schedule is cancelled with the rest; for a one-off, whose definition is in each
    row, that is all that stops it, so one that was asked for at this very moment may run.
    Raises NotFound.
    """
    if execution_of(id) is not None:
        _delete_one_off(ports, owner, id, request=request)
    else:
        _delete_recurring(ports, owner, id, request=request)


def _delete_one_off(ports: Ports, owner: Owner, id: JobId, *, request: bool) -> None:
    for _ in range(_TRIES):
        rows = [inspect.one_off_row(ports, owner, id), *_beside_the_schedule(ports, id)]
        running = next((row for row in rows if row.state is State.RUNNING), None)
        if running is not None and not request:
            raise Conflict(reason=f"{running.id} is RUNNING; mode=request asks it to stop")
        # Each of them, whatever comes of the others.
        stopped = [row.is_final or _stop(ports, row, job_version=None) for row in rows]
        if all(stopped):
            return
    raise _too_fast(id)


def _delete_recurring(ports: Ports, owner: Owner, id: JobId, *, request: bool) -> None:
    for _ in range(_TRIES):
        job = inspect.recurring_job(ports, owner, id)
        try:
            deleted = job if job.status is JobStatus.DELETED else ports.jobs.delete(job)
        except VersionMoved:
            continue
        _stop_what_was_armed(ports, job, deleted, reason=_DELETED, request=request)
        for row in _beside_the_schedule(ports, id):
            if request or row.state is not State.RUNNING:
                _stop(ports, row, job_version=deleted.version)
        return
    raise _too_fast(id)


@dataclass(frozen=True, kw_only=True)
class Revised:
    """A job as it is from now on, and what was already claimed when it was changed.

    Whatever is claimed after the answer follows the new version (P17); what is in flight runs
    to its end.
    """

    job: Job
    in_flight: Sequence[ExecutionId]


Change = Callable[[Job], Job]
"""What a caller wants changed of a definition; version and times are seen to here."""


def pause(ports: Ports, owner: Owner, id: JobId, *, version: int | None = None) -> Revised:
    """Have nothing of the job start until it is resumed; a job that is paused stays so.

    Raises NotFound; Conflict for a deleted one, and when `version` is not the job's.
    """
    return _revise(ports, owner, id, _to(JobStatus.PAUSED), version, reason="its job was paused")


def resume(ports: Ports, owner: Owner, id: JobId, *, version: int | None = None) -> Revised:
    """Go on with the first slot after now; what was missed meanwhile stays missed.

    The next version and its first row are written in one transaction: after a crash there are
    both or neither (P18). Raises as `pause` does.
    """
    return _revise(ports, owner, id, _to(JobStatus.ACTIVE), version, reason=_EDITED)


def edit(
    ports: Ports, owner: Owner, id: JobId, change: Change, *, version: int | None = None
) -> Revised:
    """Put a changed definition in the job's place, from now on, as `resume` does.

    An occurrence that both versions plan is kept, and runs as the new one says; the others of
    the old version never start. Raises Rejected for a definition that cannot be.
    """
    return _revise(ports, owner, id, change, version, reason=_EDITED)


def _to(status: JobStatus) -> Change:
    return lambda job: replace(job, status=status)


def _revise(
    ports: Ports, owner: Owner, id: JobId, change: Change, version: int | None, *, reason: str
) -> Revised:
    if execution_of(id) is not None:
        one_off = inspect.one_off_row(ports, owner, id)
        raise Conflict(reason=f"{one_off.job_id} is a one-off: it is neither paused nor resumed")
    for _ in range(_TRIES):
        job = inspect.recurring_job(ports, owner, id)
        if job.status is JobStatus.DELETED:
            raise Conflict(reason=f"{id} is deleted")
        if version not in {None, job.version}:
            raise WrongVersion(version=job.version)
        if (changed := change(job)) == job:
            return _again(ports, job, reason=reason)
        now = from_ms(to_ms(ports.clock.now()))
        after = _numbered(job, changed, now=now)
        try:
            revised = _write(ports, job, after)
        except (VersionMoved, ChainMoved):
            continue
        in_flight = _stop_what_was_armed(ports, job, revised, reason=reason, request=False)
        return Revised(job=revised, in_flight=in_flight)
    raise _too_fast(id)


def _again(ports: Ports, job: Job, *, reason: str) -> Revised:
    """The answer where nothing is to be changed: an earlier call may have died after its write.

    So what follows that write is done again: the look (P1), and the end of what was armed.
    """
    slot = job.next_after(job.since)
    first = ports.executions.get(job.occurrence_id(slot)) if slot else None
    if first is not None and _is_to_come(ports, job, first):
        look(ports, first, job)
    versions = islice(slots.newest_versions(ports, job), 2)
    in_flight = [
        id
        for version in versions
        for id in _stop_what_was_armed(ports, version, job, reason=reason, request=False)
    ]
    return Revised(job=job, in_flight=[*dict.fromkeys(in_flight)])


def _is_to_come(ports: Ports, job: Job, first: Execution) -> bool:
    """Whether it waits; later than that, an outage lies between, which dispatch decides on."""
    waits = first.state is State.SCHEDULED and first.job_version == job.version
    return waits and ports.clock.now() - first.run_at <= job.catch_up.threshold


def _numbered(before: Job, changed: Job, *, now: datetime) -> Job:
    """The next version, of a payload that changed with the number of its item."""
    version, spec = before.version + 1, changed.spec
    if spec.payload != before.spec.payload:
        spec = replace(spec, payload=numbered(spec.payload, kept_until=None))
    return replace(changed, version=version, effective_from=now, spec=spec)


def _write(ports: Ports, before: Job, after: Job) -> Job:
    """The next version and its first row in one write, then P1's look.

    A slot whose row does not give way (its owner had cancelled it) is passed over.
    """
    admission.check_growth(ports, before, after)
    keep_large_payload(ports, after.id, after.spec.payload, kept_until=None)
    slot = after.next_after(after.since)
    if slot is not None:
        watch.begin(ports, after)
    # Where the same slot is due at another time, what is armed must not be claimed meanwhile.
    is_moved = before.schedule.flexible_window != after.schedule.flexible_window
    is_looked_at = is_moved or after.overlap is not OverlapPolicy.ALLOW
    for _ in range(_TRIES):
        end = chain.end_for(ports, before, after, slot) if slot and is_looked_at else chain.NO_END
        first = _first(after, slot, end)
        # What comes next follows the first occurrence; where there is none, the tail stays.
        tail = before.tail if first is None else None
        answer = _revise_once(ports, before, replace(after, tail=tail), first, end.armed)
        if isinstance(answer, Job):
            if first is not None:
                look(ports, first, answer)
            return answer
        slot = slot and after.next_after(slot)
    raise _too_fast(before.id)


def _revise_once(
    ports: Ports, before: Job, after: Job, first: Execution | None, armed: Execution | None
) -> Job | Refusal:
    quota = ports.quotas.of(before.owner)
    return admission.counting_anew(
        ports,
        before.owner,
        lambda: ports.jobs.revise(before, after, first=first, armed=armed, quota=quota),
    )


def _first(job: Job, slot: datetime | None, end: chain.End) -> Execution | None:
    if slot is None:
        return None
    directly = is_inside(job.run_at(slot), job.since)
    return job.occurrence(slot, now=job.since, sent_directly=directly, predecessor=end.last)


def _stop_what_was_armed(
    ports: Ports, before: Job, after: Job, *, reason: str, request: bool
) -> Sequence[ExecutionId]:
    """End what `before` armed and `after` does not plan; return what is running.

    Only so that what is shown is true at once, hence bounded. Correctness does not rest on
    it: whatever is claimed from now on is refused by the look after its claim (P17).
    """
    now = ports.clock.now()
    near = takewhile(lambda slot: slot > now - _BACK, slots.of_version(before, now=now))
    ids = {before.occurrence_id(slot) for slot in islice(near, _MOST_SLOTS)}
    if before.unreadable is None:
        # What lies between this one and those near has ended.
        ids.add(before.occurrence_id(slots.latest_armed(ports, before, now=now)))
    rows = [row for row in ports.executions.get_many(ids).values() if not row.is_final]
    for row in rows:
        if request or not (row.state is State.RUNNING or after.produces(row)):
            _stop(ports, row, job_version=after.version, reason=reason)
    return [row.id for row in rows if row.state is State.RUNNING]


def _beside_the_schedule(ports: Ports, id: JobId) -> Sequence[Execution]:
    """Those that were run by hand, backfilled or replayed, and have not ended."""
    waiting: list[Execution] = []
    before: Position | None = None
    while ids := ports.executions.additional_of(id, before=before, limit=_MOST_SLOTS):
        found = ports.executions.get_many(ids, strongly=True).values()
        waiting += (row for row in found if not row.is_final)
        before = body_of(ids[-1])
    return waiting


def _too_fast(id: JobId) -> Conflict:
    return Conflict(reason=f"{id} changes faster than it can be written")


def _stop(ports: Ports, row: Execution, *, job_version: int | None, reason: str = _DELETED) -> bool:
    """Whether the row was still as it was read, and is now ended or asked to end."""
    now = ports.clock.now()
    if row.state is State.RUNNING:
        return isinstance(ports.executions.request_cancel(row.id, now=now), Execution)
    cancelled = ended(row, Event.CANCEL, now=now, reason=reason)
    try:
        answer = endings.end(ports, row, cancelled, job_version=job_version)
    except VersionMoved:
        # Changed once more: whoever did that sees to what is armed.
        return False
    return isinstance(answer, Execution)
