"""Taking a job back: what its owner may still stop, is stopped; the rest is said."""

from datetime import timedelta
from itertools import islice, takewhile

from lamplighter.core.buckets import JobId, execution_of
from lamplighter.core.errors import Conflict, VersionMoved
from lamplighter.core.lifecycle import Event, State
from lamplighter.core.model import Execution, Job, JobStatus, Owner
from lamplighter.core.outcome import ended
from lamplighter.ports import Ports, Refusal
from lamplighter.services import inspect, slots

_TRIES = 5
# How far back an occurrence is looked for that has not ended: a try's longest time and a bit.
_BACK = timedelta(minutes=15)
_MOST_SLOTS = 100
_REASON = "its job was deleted"


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
    raise Conflict(reason=f"{id} changes faster than it can be deleted")


def _delete_recurring(ports: Ports, owner: Owner, id: JobId, *, request: bool) -> None:
    for _ in range(_TRIES):
        job = inspect.recurring_job(ports, owner, id)
        try:
            deleted = job if job.status is JobStatus.DELETED else ports.jobs.delete(job)
        except VersionMoved:
            continue
        _stop_what_is_armed(ports, deleted, request=request)
        return
    raise Conflict(reason=f"{id} changes faster than it can be deleted")


def _stop_what_is_armed(ports: Ports, deleted: Job, *, request: bool) -> None:
    # Only so that what is shown is true at once, hence bounded. Correctness does not rest on
    # it: whatever is claimed after the delete is refused by the look after its claim (P17).
    now = ports.clock.now()
    newest = slots.newest_first(deleted, now=now)
    near = islice(takewhile(lambda slot: slot > now - _BACK, newest), _MOST_SLOTS)
    ids = [deleted.occurrence(slot, now=now, sent_directly=False).id for slot in near]
    for row in ports.executions.get_many(ids).values():
        if not row.is_final and (request or row.state is not State.RUNNING):
            _stop(ports, row, job_version=deleted.version)


def _stop(ports: Ports, row: Execution, *, job_version: int | None) -> bool:
    """Whether the row was still as it was read, and is now ended or asked to end."""
    now = ports.clock.now()
    if row.state is State.RUNNING:
        return isinstance(ports.executions.request_cancel(row.id, now=now), Execution)
    cancelled = ended(row, Event.CANCEL, now=now, reason=_REASON)
    answer = ports.executions.end(row, cancelled, job_version=job_version)
    if isinstance(answer, Refusal):
        return False
    ports.telemetry.finished(answer)
    return True
