"""The sweep: look once at every bucket some time after its minute, and repair what is stuck.

It touches only what dispatch has committed (P6). Whatever it leaves not final gets a check, a
pointer row in a later bucket, which is swept in its turn: so nothing that was accepted is
ever out of sight (P7).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from lamplighter.core.aging import promotion, seen_in_time
from lamplighter.core.buckets import Position, before, body_of, minute_of, start_of
from lamplighter.core.deadline import can_be_overdue, overdue
from lamplighter.core.lease import Grant, Kind, Layout
from lamplighter.core.lifecycle import State
from lamplighter.core.limits import (
    CHECK_SCHEDULED_AGAIN,
    COMMIT_PAGES,
    MARGIN,
    PARTITION_LEASE,
    PROMOTED_INTO_MESSAGES,
    SWEEP_AFTER,
)
from lamplighter.core.model import Execution, Job, PointerKind, Row, Trigger, Watch
from lamplighter.core.outcome import ended
from lamplighter.core.sweeping import Repair, is_backlog, is_sent_all_the_same, visit
from lamplighter.ports import Page, Ports
from lamplighter.services import endings, timers, watch
from lamplighter.services.dispatch import Done, TimeLeft, pages


def sweep(
    ports: Ports, grant: Grant, layout: Layout, *, time_left: TimeLeft = lambda: True
) -> Done:
    """Visit the buckets that are due for it.

    After a crash the next owner visits a page again: a second message falls at the claim, a
    second check is the same row. Raises Unavailable, leaving the page to the next owner, and
    LostLease.
    """
    until = _until(ports, grant, layout)
    seen, reached = 0, grant.watermark
    shards = layout.shards_of(grant.work.partition)
    lease_until = ports.clock.now() + PARTITION_LEASE
    for number, page in enumerate(pages(ports, shards, reached, until), 1):
        backlog = _Backlog(ports, page, layout.partitions)
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
            if number % COMMIT_PAGES == 0:
                lease_until = ports.clock.now() + PARTITION_LEASE
                _commit(ports, grant, reached, lease_until)
            continue
        break
    grant = _commit(ports, grant, reached, ports.clock.now())
    ports.telemetry.swept(partition=grant.work.partition, rows=seen)
    return Done(progress=grant.progress, is_finished=reached >= until)


def _until(ports: Ports, grant: Grant, layout: Layout) -> Position:
    """How far it may go: what dispatch has not done is not its business (P6)."""
    dispatching = replace(grant.work, kind=Kind.DISPATCH)
    progress = ports.control.progress([dispatching]).get(dispatching)
    dispatched = progress.settled if progress else grant.watermark
    oldest = before(start_of(minute_of(ports.clock.now() - SWEEP_AFTER)))
    return min(dispatched, oldest, layout.end or oldest)


def _position_of(row: Row) -> Position:
    return body_of(row.id) if isinstance(row, Execution) else row.position


def _commit(ports: Ports, grant: Grant, reached: Position, lease_until: datetime) -> Grant:
    return ports.control.advance(grant, watermark=reached, intent=None, until=lease_until)


def _visit(ports: Ports, row: Row, backlog: "_Backlog") -> None:
    if isinstance(row, Execution):
        _look_at(ports, row, backlog)
    elif isinstance(row, Watch):
        watch.visit(ports, row)
    elif row.kind is PointerKind.CHECK:
        execution = ports.executions.get(row.execution_id)
        if execution is not None:
            _look_at(ports, execution, backlog)


class _Backlog:
    """What waits in which lane, asked once a lane and page."""

    def __init__(self, ports: Ports, page: Page, partitions: int) -> None:
        self._ports = ports
        self._waiting: dict[str, int] = {}
        # What a page holds is a minute's at most, of one of the partitions.
        rows = Counter(row.queue for row in page.rows if isinstance(row, Execution))
        self._each_minute = {queue: count * partitions for queue, count in rows.items()}

    def holds(self, row: Execution, now: datetime) -> bool:
        """Whether the row's message most likely waits in its lane.

        To send another would double a backlog. After an hour it may be sent all the same: it may
        be lost, and a lane may be backed up for good.
        """
        if row.state is State.RUNNING or is_sent_all_the_same(row, now):
            return False
        return self.is_backed_up(row.queue)

    def is_backed_up(self, queue: str) -> bool:
        """Whether what is unclaimed there most likely waits for its turn."""
        return is_backlog(self._in(queue), due_each_minute=self._each_minute.get(queue, 0))

    def promotes(self, row: Execution, now: datetime) -> str | None:
        """The lane in which the row gets a message instead, and one that waits there the more.

        None while nothing waits in its own: then its message is lost, and not late. Nor does a
        lane get any that has enough to do by itself.
        """
        to = promotion(row, self._ports.lanes.get(row.queue), now)
        if to is None or not self._in(row.queue) or self._in(to) >= PROMOTED_INTO_MESSAGES:
            return None
        self._waiting[to] += 1
        return to

    def _in(self, queue: str) -> int:
        if queue not in self._waiting:
            self._waiting[queue] = self._ports.queue.waiting(queue)
        return self._waiting[queue]


def _look_at(ports: Ports, row: Execution, backlog: _Backlog) -> None:
    now = ports.clock.now()
    # Whoever ended it may have died before they told its owner, or could not.
    endings.tell(ports, row)
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
        _go_on(ports, row, job)
    elif not _has_given_up(ports, row, job):
        again_at = needed.again_at
        if isinstance(needed, Repair):
            _repair(ports, row, job, needed, backlog)
            again_at = seen_in_time(row, ports.lanes.get(row.queue), now, again_at)
        elif row.state is not State.SCHEDULED:
            # Claimed by the message of another; it may go on for long.
            _go_on(ports, row, job)
        ports.executions.point([timers.check(row, again_at)])


def _is_parked(row: Execution, job: Job | None) -> bool:
    """Whether what follows the row cannot be told, as long as its job's schedule is not read."""
    if job is None or job.unreadable is None or row.trigger is not Trigger.SCHEDULE:
        return False
    return row.state is State.SCHEDULED or row.is_final


def _go_on(ports: Ports, row: Execution, job: Job | None) -> None:
    """Arm what should follow the row in its job's chain, and does not."""
    broken = _broken(ports, row, job)
    following = timers.arm_chains(ports, broken, decided_at=ports.clock.now())
    timers.send(ports, [timers.outgoing(one) for one in following])
    if broken:
        ports.telemetry.recovered(row, reason="nothing followed it")


def _has_given_up(ports: Ports, row: Execution, job: Job | None) -> bool:
    """Whether the row's deadline had passed before it was started, and it is final now."""
    now = ports.clock.now()
    late = overdue(row, job, now) if can_be_overdue(row) else None
    if late is None:
        return False
    _go_on(ports, row, job)
    after = ended(row, late.event, now=now, reason=late.reason)
    return isinstance(endings.end(ports, row, after), Execution)


def _repair(
    ports: Ports, row: Execution, job: Job | None, needed: Repair, backlog: _Backlog
) -> None:
    """Arm the successor of what nobody ever sent, then send the row's message again (P2).

    One message at most, in its lane or, instead, in the one that it has grown old enough for.
    """
    now = ports.clock.now()
    following = timers.arm_chains(ports, _broken(ports, row, job), decided_at=now)
    promoted_to = backlog.promotes(row, now)
    is_held_back = promoted_to is None and backlog.holds(row, now)
    again = replace(timers.outgoing(row), queue=promoted_to or row.queue)
    messages = [timers.outgoing(one) for one in following]
    timers.send(ports, messages if is_held_back else [again, *messages])
    if promoted_to is not None:
        ports.telemetry.promoted(row, to=promoted_to)
    # What waits for its turn in a backlog is late, and nothing else is wrong with it.
    if promoted_to is None or not backlog.is_backed_up(row.queue):
        ports.telemetry.recovered(row, reason=needed.reason)


def _broken(ports: Ports, row: Execution, job: Job | None) -> Sequence[timers.Link]:
    """The row's place in its job's chain, if the chain ends there though it should go on.

    Whoever passed the row armed one after it, the very next or, as the misfire policy says, a
    later one. So when any is there the chain is alive, and misfires are dispatch's to decide
    (P6).
    """
    is_unsent = row.state is State.SCHEDULED or row.sent_directly
    if not is_unsent or row.trigger is not Trigger.SCHEDULE:
        return []
    if job is None or job.unreadable is not None or job.next_after(row.scheduled_for) is None:
        return []
    return [] if timers.goes_on(ports, job, row.scheduled_for) else timers.links_of(job, row)
