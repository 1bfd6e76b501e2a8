"""Taking an execution back: what waits ends at once, what runs is asked to stop."""

from dataclasses import replace

from lamplighter.core.buckets import ExecutionId
from lamplighter.core.errors import Conflict, VersionMoved
from lamplighter.core.lifecycle import Event, State
from lamplighter.core.model import Execution, Job, Owner, Trigger
from lamplighter.core.outcome import ended
from lamplighter.ports import Ports, Refusal
from lamplighter.services import endings, inspect, timers

_TRIES = 5
_REASON = "cancelled on request"


def cancel(ports: Ports, owner: Owner, id: ExecutionId) -> Execution:
    """The execution, CANCELLED, or RUNNING with a request that its holder's next beat sees.

    One that was CANCELLED before stays as it is. Raises NotFound, and Conflict for one that
    ended otherwise. The owner's word is final: no later version of its job plans the row anew
    (P19). The job goes on: the successor is armed first (P2), so after a crash the chain is
    alive whether or not the row was ended; what was armed and not sent is the sweep's to send.
    """
    for _ in range(_TRIES):
        row = inspect.execution_row(ports, owner, id)
        if row.moved_to is not None:
            raise Conflict(reason=f"{id} was moved: it runs as {row.moved_to}")
        if row.state is State.CANCELLED:
            return row
        if row.is_final:
            raise Conflict(reason=f"{id} is {row.state}: what has ended is not cancelled")
        answer = _ask(ports, row) if row.state is State.RUNNING else _end(ports, row)
        if isinstance(answer, Execution):
            return answer
    raise Conflict(reason=f"{id} changes faster than it can be written")


def _ask(ports: Ports, row: Execution) -> Execution | Refusal:
    return ports.executions.request_cancel(row.id, now=ports.clock.now())


def _end(ports: Ports, row: Execution) -> Execution | Refusal:
    """End a row that waits; a Refusal when it is no longer as it was read.

    The write checks the version of the job that the successor was armed by: one that was
    resumed or edited since may have found this very row armed, and go on from it (P17).
    """
    job, now = _job_of(ports, row), ports.clock.now()
    links = timers.links_of(job, row) if job else []
    following = timers.arm_chains(ports, links, decided_at=now, directly=True)
    cancelled = replace(ended(row, Event.CANCEL, now=now, reason=_REASON), cancel_requested_at=now)
    try:
        answer = endings.end(ports, row, cancelled, job_version=job.version if job else None)
    except VersionMoved:
        answer = Refusal(found=row)
    # Put by us, so looked at by us (P1), whatever became of the row.
    timers.send(ports, [timers.outgoing(one) for one in following])
    return answer


def _job_of(ports: Ports, row: Execution) -> Job | None:
    """The job of an occurrence after which nobody may have armed the next.

    Whoever sent a row had armed its successor before, so only one that is SCHEDULED still
    may be the chain's last.
    """
    if row.trigger is not Trigger.SCHEDULE or row.state is not State.SCHEDULED:
        return None
    return ports.jobs.get(row.job_id)
