"""The sweep: look once at every bucket some time after its minute, and repair what is stuck.

It touches only what dispatch has committed (P6). Whatever it leaves not final gets a check, a
pointer row in a later bucket, which is swept in its turn: so nothing that was accepted is
ever out of sight (P7).
"""

from collections.abc import Callable, Sequence
from datetime import datetime

from lamplighter.core.buckets import Position, before, body_of, minute_of, start_of
from lamplighter.core.deadline import can_be_overdue, overdue
from lamplighter.core.errors import LostLease
from lamplighter.core.lease import Grant, Held, Kind, Work
from lamplighter.core.lifecycle import State
from lamplighter.core.limits import (
    BACKED_UP_MESSAGES,
    CHECK_SCHEDULED_AGAIN,
    HELD_BACK,
    MARGIN,
    PARTITION_LEASE,
    SWEEP_AFTER,
)
from lamplighter.core.model import Execution, Job, Pointer, PointerKind, Trigger
from lamplighter.core.outcome import ended
from lamplighter.core.planning import supersedes
from lamplighter.core.sweeping import Repair, visit
from lamplighter.ports import Ports
from lamplighter.services import endings, timers
from lamplighter.services.dispatch import pages


def sweep(
    ports: Ports,
    partition: int,
    *,
    owner: str,
    time_left: Callable[[], bool] = lambda: True,
) -> int:
    """Visit the buckets that are due for it; returns how many rows were looked at.

    After a crash the next owner visits a page again: a second message falls at the claim, a
    second check is the same row. Raises Unavailable, leaving the page to the next owner.
    """
    layout = ports.layout()
    work = Work(partition=partition, kind=Kind.SWEEP)
    now = ports.clock.now()
    grant = ports.control.acquire(
        work,
        owner=owner,
        now=now,
        until=now + PARTITION_LEASE,
        start=before(layout.effective_from),
    )
    if isinstance(grant, Held):
        return 0
    try:
        rows = _sweep(ports, grant, layout.shards_of(partition), time_left)
    except LostLease:
        ports.telemetry.lost_lease(partition=partition)
        return 0
    ports.telemetry.swept(partition=partition, rows=rows)
    return rows


def _sweep(ports: Ports, grant: Grant, shards: range, time_left: Callable[[], bool]) -> int:
    dispatch = Work(partition=grant.work.partition, kind=Kind.DISPATCH)
    dispatched = ports.control.watermarks([dispatch]).get(dispatch, grant.watermark)
    oldest = ports.clock.now() - SWEEP_AFTER
    until = min(dispatched, before(start_of(minute_of(oldest))))
    seen, reached = 0, grant.watermark
    lease_until = ports.clock.now() + PARTITION_LEASE
    for page in pages(ports, shards, reached, until):
        backlog = _Backlog(ports)
        for row in page.rows:
            if not time_left():
                break
            _visit(ports, row, backlog)
            seen, reached = seen + 1, _position_of(row)
            # A page of stuck rows takes longer than a lease: it is committed row by row.
            if ports.clock.now() + MARGIN > lease_until:
                lease_until = ports.clock.now() + PARTITION_LEASE
                _commit(ports, grant, reached, lease_until)
        else:
            reached = page.reached
            continue
        break
    _commit(ports, grant, reached, ports.clock.now())
    return seen


def _position_of(row: Execution | Pointer) -> Position:
    return row.position if isinstance(row, Pointer) else body_of(row.id)


def _commit(ports: Ports, grant: Grant, reached: Position, lease_until: datetime) -> None:
    ports.control.advance(grant, watermark=reached, intent=None, until=lease_until)


def _visit(ports: Ports, row: Execution | Pointer, backlog: "_Backlog") -> None:
    if isinstance(row, Execution):
        _look_at(ports, row, backlog)
    elif row.kind is PointerKind.CHECK:
        execution = ports.executions.get(row.execution_id)
        if execution is not None:
            _look_at(ports, execution, backlog)


class _Backlog:
    """Which lanes are backed up, asked once a lane and page."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._waiting: dict[str, int] = {}

    def holds(self, row: Execution, now: datetime) -> bool:
        """Whether the row's message most likely waits in its lane.

        To send another would double a backlog. After an hour it is sent all the same: it may
        be lost, and a lane may be backed up for good.
        """
        if row.state is State.RUNNING or now - row.due_at > HELD_BACK:
            return False
        if row.queue not in self._waiting:
            self._waiting[row.queue] = self._ports.queue.waiting(row.queue)
        return self._waiting[row.queue] > BACKED_UP_MESSAGES


def _look_at(ports: Ports, row: Execution, backlog: _Backlog) -> None:
    now = ports.clock.now()
    blocker = ports.executions.get(row.blocker) if row.blocker and not row.is_final else None
    needed = visit(row, now, blocker=blocker)
    # Whoever sends a row directly arms the next one, and may have died between the two.
    is_asked = row.follows_job and (can_be_overdue(row) or row.sent_directly)
    job = ports.jobs.get(row.job_id) if is_asked else None
    if _is_parked(row, job):
        ports.telemetry.definition_unreadable(row.job_id, reason=f"{job and job.unreadable}")
        again_at = needed.again_at if needed else now + CHECK_SCHEDULED_AGAIN
        ports.executions.point([timers.check(row, again_at)])
    elif needed is None:
        if _go_on(ports, row, job):
            ports.telemetry.recovered(row, reason="nothing followed it")
    elif not _has_given_up(ports, row, job):
        if isinstance(needed, Repair):
            _repair(ports, row, job, held_back=backlog.holds(row, now))
            ports.telemetry.recovered(row, reason=needed.reason)
        ports.executions.point([timers.check(row, needed.again_at)])


def _is_parked(row: Execution, job: Job | None) -> bool:
    """Whether what follows the row cannot be told, as long as its job's schedule is not read."""
    if job is None or job.unreadable is None or row.trigger is not Trigger.SCHEDULE:
        return False
    return row.state is State.SCHEDULED or row.is_final


def _go_on(ports: Ports, row: Execution, job: Job | None) -> bool:
    """Arm what should follow the row in its job's chain; whether it did not."""
    broken = _broken(ports, row, job)
    following = timers.arm_chains(ports, broken, decided_at=ports.clock.now())
    timers.send(ports, [timers.outgoing(one) for one in following])
    return bool(broken)


def _has_given_up(ports: Ports, row: Execution, job: Job | None) -> bool:
    """Whether the row's deadline had passed before it was started, and it is final now."""
    now = ports.clock.now()
    late = overdue(row, job, now) if can_be_overdue(row) else None
    if late is None:
        return False
    _go_on(ports, row, job)
    after = ended(row, late.event, now=now, reason=late.reason)
    return isinstance(endings.end(ports, row, after), Execution)


def _repair(ports: Ports, row: Execution, job: Job | None, *, held_back: bool) -> None:
    """Arm the successor of what nobody ever sent, then send the row's message again (P2)."""
    following = timers.arm_chains(ports, _broken(ports, row, job), decided_at=ports.clock.now())
    rows = following if held_back else (row, *following)
    timers.send(ports, [timers.outgoing(one) for one in rows])


def _broken(ports: Ports, row: Execution, job: Job | None) -> Sequence[timers.Link]:
    """The row's place in its job's chain, if the chain ends there though it should go on.

    Whoever passed the row armed the very next slot before (a row that was still SCHEDULED
    then was not missed), so when that is there, the chain is alive, and misfires are
    dispatch's to decide (P6).
    """
    is_unsent = row.state is State.SCHEDULED or row.sent_directly
    if not is_unsent or row.trigger is not Trigger.SCHEDULE:
        return []
    if job is None or job.unreadable is not None:
        return []
    slot = job.next_after(row.scheduled_for)
    if slot is None:
        return []
    planned = job.occurrence(slot, now=ports.clock.now(), sent_directly=False)
    armed = ports.executions.get(planned.id)
    # One that an earlier version left behind is no successor: the job's own takes its place.
    is_alive = armed is not None and not supersedes(planned, armed)
    return [] if is_alive else timers.links_of(job, row)
