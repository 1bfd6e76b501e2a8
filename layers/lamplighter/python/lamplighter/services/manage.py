"""Taking a job back: what its owner may still stop, is stopped; the rest is said."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice, takewhile

from lamplighter.core.buckets import ExecutionId, JobId, execution_of, from_ms, to_ms
from lamplighter.core.errors import Conflict, VersionMoved, WrongVersion
from lamplighter.core.lifecycle import Event, State
from lamplighter.core.model import Execution, Job, JobStatus, Owner
from lamplighter.core.outcome import ended
from lamplighter.core.timing import is_inside
from lamplighter.ports import Ports, Refusal
from lamplighter.services import inspect, slots
from lamplighter.services.submit import keep_large_payload, look

_TRIES = 5
# How far back an occurrence is looked for that has not ended: a try's longest time and a bit.
_BACK = timedelta(minutes=15)
_MOST_SLOTS = 100
_DELETED = "its job was deleted"
_EDITED = "its job was edited and plans it no more"


def delete(ports: Ports, owner: Owner, id: JobId, *, request: bool = False) -> None:
    """Have the job never start again; doing it twice is fine.

    What runs goes on. A one-off that runs is a Conflict, unless `request`: then its handler
    is asked to stop, and its next beat sees that. Raises NotFound.
    """
    if execution_of(id) is not None:
        _delete_one_off(ports, owner, id, request=request)
    else:
        _delete_recurring(ports, owner, id, request=request)


def _delete_one_off(ports: Ports, owner: Owner, id: JobId, *, request: bool) -> None:
    for _ in range(_TRIES):
        row = inspect.one_off_row(ports, owner, id)
        if row.state is State.RUNNING and not request:
            raise Conflict(reason=f"{row.id} is RUNNING; mode=request asks it to stop")
        if row.is_final or _stop(ports, row, job_version=None):
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
        raise Conflict(reason=f"{one_off.job_id} is a one-off: it can be deleted, no more")
    for _ in range(_TRIES):
        job = inspect.recurring_job(ports, owner, id)
        if job.status is JobStatus.DELETED:
            raise Conflict(reason=f"{id} is deleted")
        if version not in {None, job.version}:
            raise WrongVersion(version=job.version)
        if (changed := change(job)) == job:
            return Revised(job=job, in_flight=())
        now = from_ms(to_ms(ports.clock.now()))
        after = _numbered(job, changed, now=now)
        try:
            revised = _write(ports, job, after)
        except VersionMoved:
            continue
        in_flight = _stop_what_was_armed(ports, job, revised, reason=reason, request=False)
        return Revised(job=revised, in_flight=in_flight)
    raise _too_fast(id)


def _numbered(before: Job, changed: Job, *, now: datetime) -> Job:
    """The next version. A payload that changed gets its number: its item is never updated."""
    version, spec = before.version + 1, changed.spec
    if spec.payload != before.spec.payload:
        spec = replace(spec, payload=replace(spec.payload, version=version))
    return replace(changed, version=version, effective_from=now, spec=spec)


def _write(ports: Ports, before: Job, after: Job) -> Job:
    """The next version and its first row in one write, then P1's look.

    A slot whose row does not give way (its owner had cancelled it) is passed over.
    """
    keep_large_payload(ports, after.id, after.spec.payload, kept_until=None)
    slot = after.next_after(after.since)
    for _ in range(_TRIES):
        first = _first(after, slot)
        answer = ports.jobs.revise(before, after, first=first)
        if isinstance(answer, Job):
            if first is not None:
                look(ports, first, answer)
            return answer
        slot = slot and after.next_after(slot)
    raise _too_fast(before.id)


def _first(job: Job, slot: datetime | None) -> Execution | None:
    if slot is None:
        return None
    directly = is_inside(job.run_at(slot), job.since)
    return job.occurrence(slot, now=job.since, sent_directly=directly)


def _stop_what_was_armed(
    ports: Ports, before: Job, after: Job, *, reason: str, request: bool
) -> Sequence[ExecutionId]:
    """End what `before` armed and `after` does not plan; return what is running.

    Only so that what is shown is true at once, hence bounded. Correctness does not rest on
    it: whatever is claimed from now on is refused by the look after its claim (P17).
    """
    now = ports.clock.now()
    near = takewhile(lambda slot: slot > now - _BACK, slots.of_version(before, now=now))
    ids = [before.occurrence_id(slot) for slot in islice(near, _MOST_SLOTS)]
    rows = [row for row in ports.executions.get_many(ids).values() if not row.is_final]
    for row in rows:
        if request or not (row.state is State.RUNNING or after.produces(row)):
            _stop(ports, row, job_version=after.version, reason=reason)
    return [row.id for row in rows if row.state is State.RUNNING]


def _too_fast(id: JobId) -> Conflict:
    return Conflict(reason=f"{id} changes faster than it can be written")


def _stop(ports: Ports, row: Execution, *, job_version: int | None, reason: str = _DELETED) -> bool:
    """Whether the row was still as it was read, and is now ended or asked to end."""
    now = ports.clock.now()
    if row.state is State.RUNNING:
        return isinstance(ports.executions.request_cancel(row.id, now=now), Execution)
    cancelled = ended(row, Event.CANCEL, now=now, reason=reason)
    try:
        answer = ports.executions.end(row, cancelled, job_version=job_version)
    except VersionMoved:
        # Changed once more: whoever did that sees to what is armed.
        return False
    if isinstance(answer, Refusal):
        return False
    ports.telemetry.finished(answer)
    return True
