"""The sweep: look once at every bucket some time after its minute, and repair what is stuck.

It touches only what dispatch has committed (P6). Whatever it leaves not final gets a check, a
pointer row in a later bucket, which is swept in its turn: so nothing that was accepted is
ever out of sight (P7).
"""

from collections.abc import Callable, Sequence
from datetime import datetime

from lamplighter.core.buckets import before, check_position, minute_of, start_of
from lamplighter.core.errors import LostLease
from lamplighter.core.lease import Grant, Held, Kind, Work
from lamplighter.core.lifecycle import State
from lamplighter.core.limits import BACKED_UP_MESSAGES, PARTITION_LEASE, SWEEP_AFTER
from lamplighter.core.model import Execution, Pointer, PointerKind, Trigger
from lamplighter.core.sweeping import Repair, visit
from lamplighter.ports import Ports
from lamplighter.services import timers
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
    seen = 0
    for page in pages(ports, shards, grant.watermark, until):
        if not time_left():
            break
        seen += _visit(ports, page.rows)
        grant = ports.control.advance(
            grant,
            watermark=page.reached,
            intent=None,
            until=ports.clock.now() + PARTITION_LEASE,
        )
    ports.control.advance(grant, watermark=grant.watermark, intent=None, until=ports.clock.now())
    return seen


def _visit(ports: Ports, rows: Sequence[Execution | Pointer]) -> int:
    backed_up = _Backlog(ports)
    for row in rows:
        execution = _execution_of(ports, row)
        if execution is not None:
            _look_at(ports, execution, backed_up)
    return len(rows)


def _execution_of(ports: Ports, row: Execution | Pointer) -> Execution | None:
    if isinstance(row, Execution):
        return row
    return ports.executions.get(row.execution_id) if row.kind is PointerKind.CHECK else None


class _Backlog:
    """Which lanes are backed up, asked once a lane and page."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._waiting: dict[str, int] = {}

    def holds(self, row: Execution) -> bool:
        """Whether the row's message most likely waits in its lane.

        To send another would double a backlog.
        """
        if row.state is State.RUNNING:
            return False
        if row.queue not in self._waiting:
            self._waiting[row.queue] = self._ports.queue.waiting(row.queue)
        return self._waiting[row.queue] > BACKED_UP_MESSAGES


def _look_at(ports: Ports, row: Execution, backlog: _Backlog) -> None:
    needed = visit(row, ports.clock.now())
    if needed is None:
        return
    if isinstance(needed, Repair) and not backlog.holds(row):
        _repair(ports, row)
        ports.telemetry.recovered(row, reason=needed.reason)
    ports.executions.point([_check(row, needed.again_at)])


def _repair(ports: Ports, row: Execution) -> None:
    """Arm the successor of what nobody ever sent, then send the row's message again (P2)."""
    following = timers.arm_chains(ports, _broken(ports, row), decided_at=ports.clock.now())
    timers.send(ports, [timers.outgoing(one) for one in (row, *following)])


def _broken(ports: Ports, row: Execution) -> Sequence[timers.Link]:
    """The row's place in its job's chain, if the chain ends there though it should go on.

    Whoever passed the row armed the very next slot before (a row that was still SCHEDULED
    then was not missed), so when that is there, the chain is alive, and misfires are
    dispatch's to decide (P6).
    """
    if row.state is not State.SCHEDULED or row.trigger is Trigger.ONE_OFF:
        return []
    job = ports.jobs.get(row.job_id)
    if job is None:
        return []
    slot = job.next_after(row.scheduled_for)
    if slot is None:
        return []
    armed = ports.executions.get(job.occurrence_id(slot))
    return [] if armed else [timers.Link(job=job, slot=row.scheduled_for)]


def _check(row: Execution, at: datetime) -> Pointer:
    return Pointer(
        kind=PointerKind.CHECK,
        position=check_position(row.id, at),
        execution_id=row.id,
        queue=row.queue,
        at=at,
        attempt=row.attempt,
    )
