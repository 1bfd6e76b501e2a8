"""The sweep: look once at every bucket some time after its minute, and repair what is stuck.

It touches only what dispatch has committed (P6). Whatever it leaves not final gets a check, a
pointer row in a later bucket, which is swept in its turn: so nothing that was accepted is
ever out of sight (P7).
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from lamplighter.core.aging import Promotion, look_ahead_at, promotion
from lamplighter.core.buckets import Position, before, body_of, instant_of, minute_of, start_of
from lamplighter.core.deadline import can_be_overdue, overdue
from lamplighter.core.errors import Damaged, Unavailable
from lamplighter.core.lease import Grant, Kind, Layout, Progress
from lamplighter.core.lifecycle import State
from lamplighter.core.limits import (
    CHECK_SCHEDULED_AGAIN,
    COMMIT_PAGES,
    LOOK_AGAIN,
    MARGIN,
    PARTITION_LEASE,
    PROMOTED_INTO_MESSAGES,
    SWEEP_AFTER,
)
from lamplighter.core.model import Execution, Job, Pointer, PointerKind, Row, Trigger, Watch
from lamplighter.core.outcome import ended
from lamplighter.core.sweeping import (
    Leave,
    Repair,
    beside,
    is_backlog,
    is_decided,
    is_sent_all_the_same,
    visit,
)
from lamplighter.ports import Page, Ports
from lamplighter.services import damaged, endings, timers, watch
from lamplighter.services.dispatch import Done, TimeLeft, pages


def sweep(
    ports: Ports, grant: Grant, layout: Layout, *, time_left: TimeLeft = lambda: True
) -> Done:
    """Visit the buckets that are due for it.

    After a crash the next owner visits a page again: a second message falls at the claim, a
    second check is the same row. Raises Unavailable, leaving to the next owner the row at which
    it failed and what comes after it, and LostLease.
    """
    age = ports.clock.now() - instant_of(grant.watermark)
    visit = _Visit(ports=ports, grant=grant, layout=layout, time_left=time_left)
    try:
        is_finished = visit.look_ahead() and visit.catch_up()
    except Unavailable:
        # While one call in a hundred fails, no visit might get as far as its next commit.
        visit.give_back()
        raise
    else:
        visit.give_back()
    finally:
        # Also where each visit fails: it is the age that tells of it.
        ports.telemetry.swept(partition=grant.work.partition, rows=visit.seen, age=age)
    return Done(progress=visit.grant.progress, is_finished=is_finished)


@dataclass(kw_only=True)
class _Visit:
    """One owner's visit of a partition: the lease, and how far it has come under it."""

    ports: Ports
    grant: Grant
    layout: Layout
    time_left: TimeLeft
    seen: int = 0
    dispatched: Progress = field(init=False)
    """How far dispatch had come when the visit began."""
    oldest: Position = field(init=False)
    """What is due later is left alone: its message may be under way."""
    lease_until: datetime = field(init=False)

    def __post_init__(self) -> None:
        now, grant = self.ports.clock.now(), self.grant
        dispatching = replace(grant.work, kind=Kind.DISPATCH)
        known = self.ports.control.progress([dispatching])
        self.dispatched = known.get(dispatching) or Progress(watermark=grant.watermark)
        oldest = before(start_of(minute_of(now - SWEEP_AFTER)))
        self.oldest = min(oldest, self.layout.end or oldest)
        self.lease_until = now + PARTITION_LEASE
        self._stand_at(beside(grant.progress, self.dispatched, now))

    def look_ahead(self) -> bool:
        """While a backlog drains, look at what is due beside it; whether there was time for all.

        Only at what dispatch has done, and decides nothing about any more (P6). The walk comes
        by it once more, for what this look leaves to it.
        """
        left = self.grant.backlog
        if left is None:
            return True

        def at(position: Position) -> Progress:
            return Progress(watermark=position, backlog=replace(left, until=position))

        until = min(left.settled, self.oldest)
        return self._walk(self.grant.watermark, until, self._look_ahead_at, at, self.time_left)

    def catch_up(self) -> bool:
        """Visit all that dispatch was done with a while ago; whether there was time for it."""
        until, clock = min(self.dispatched.settled, self.oldest), self.ports.clock
        look_again_at = clock.monotonic() + LOOK_AGAIN.total_seconds()
        watermark, left = self.grant.watermark, self.grant.backlog

        def at(position: Position) -> Progress:
            behind = left and replace(left, after=position)
            if behind is None or behind.is_drained:
                return Progress(watermark=max(watermark, position))
            return Progress(watermark=watermark, backlog=behind)

        def is_in_time() -> bool:
            is_to_look_ahead = left is not None and clock.monotonic() >= look_again_at
            return self.time_left() and not is_to_look_ahead

        after = left.after if left else watermark
        return self._walk(after, until, self._look_at, at, is_in_time)

    def give_back(self) -> None:
        """Commit what was done, and let the next owner in."""
        self._commit(until=self.ports.clock.now())

    def _walk(
        self,
        after: Position,
        until: Position,
        look: Callable[[Row, "_Backlog"], None],
        at: Callable[[Position], Progress],
        is_in_time: TimeLeft,
    ) -> bool:
        """Look at the rows in (after, until]; `at` tells how far that is."""
        shards = self.layout.shards_of(self.grant.work.partition)
        for number, page in enumerate(pages(self.ports, shards, after, until), 1):
            damaged.keep_in_sight(self.ports, page)
            backlog = _Backlog(self.ports, page, self.layout.partitions)
            for row in page.rows:
                if not is_in_time():
                    return False
                try:
                    look(row, backlog)
                except Damaged:
                    damaged.put_off(self.ports, row)
                self.seen += 1
                self._stand_at(at(_position_of(row)))
                # A page of stuck rows takes longer than a lease: it is committed row by row.
                if self.ports.clock.now() + MARGIN > self.lease_until:
                    self._commit()
            self._stand_at(at(page.reached))
            if number % COMMIT_PAGES == 0:
                self._commit()
        return True

    def _look_at(self, row: Row, backlog: "_Backlog") -> None:
        if isinstance(row, Watch):
            watch.visit(self.ports, row)
        elif execution := _execution_of(self.ports, row):
            _look_at(self.ports, execution, backlog)

    def _look_ahead_at(self, row: Row, backlog: "_Backlog") -> None:
        """Look at one of those rows; not at what is told of it to whoever watches its job."""
        execution = _execution_of(self.ports, row)
        if execution is not None and is_decided(self.dispatched, body_of(execution.id)):
            _look_at(self.ports, execution, backlog)

    def _stand_at(self, progress: Progress) -> None:
        self.grant = replace(self.grant, watermark=progress.watermark, backlog=progress.backlog)

    def _commit(self, *, until: datetime | None = None) -> None:
        self.lease_until = until or self.ports.clock.now() + PARTITION_LEASE
        self.grant = self.ports.control.advance(
            self.grant,
            watermark=self.grant.watermark,
            intent=None,
            backlog=self.grant.backlog,
            until=self.lease_until,
        )


def _position_of(row: Row) -> Position:
    return body_of(row.id) if isinstance(row, Execution) else row.position


def _execution_of(ports: Ports, row: Row) -> Execution | None:
    """What a row of a bucket has the sweep look at, if there is anything."""
    if isinstance(row, Execution):
        return row
    if isinstance(row, Pointer) and row.kind is PointerKind.CHECK:
        return ports.executions.get(row.execution_id)
    return None


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

    def promotes(self, row: Execution, now: datetime) -> Promotion | None:
        """When the row gets a message in which lane, and one that waits there the more.

        None while nothing waits in its own: then its message is lost, and not late. Nor does a
        lane get any that has enough to do by itself.
        """
        found = promotion(row, self._ports.lanes.get(row.queue), now)
        if found is None or not self._in(row.queue):
            return None
        if self._in(found.to) >= PROMOTED_INTO_MESSAGES:
            return None
        self._waiting[found.to] += 1
        return found

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
        if isinstance(needed, Repair):
            _repair(ports, row, job, needed, backlog)
        elif row.state is not State.SCHEDULED:
            # Claimed by the message of another; it may go on for long.
            _go_on(ports, row, job)
        ports.executions.point([_next_check(ports, row, needed, now)])


def _next_check(ports: Ports, row: Execution, needed: Leave | Repair, now: datetime) -> Pointer:
    """The next look at what was not final; sooner, where it comes to be promoted before."""
    is_exact = isinstance(needed, Leave) and needed.exactly
    planned = timers.check(row, needed.again_at, exactly=is_exact)
    ahead_at = look_ahead_at(row, ports.lanes.get(row.queue), now)
    if ahead_at is None:
        return planned
    return min(planned, timers.check(row, ahead_at, exactly=True), key=lambda one: one.position)


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

    At once at most one, in its lane or, instead, in the one that it has grown old enough for;
    where it soon will have, one that comes then.
    """
    now = ports.clock.now()
    following = timers.arm_chains(ports, _broken(ports, row, job), decided_at=now)
    promoted = backlog.promotes(row, now)
    messages = [timers.outgoing(one) for one in following]
    if promoted is not None:
        messages.append(timers.promoted(row, to=promoted.to, at=promoted.at))
    if not (promoted and promoted.at <= now) and not backlog.holds(row, now):
        messages.append(timers.outgoing(row))
    timers.send(ports, messages)
    if promoted is not None:
        ports.telemetry.promoted(row, to=promoted.to)
    # What waits for its turn in a backlog is late, and nothing else is wrong with it.
    if messages and (promoted is None or not backlog.is_backed_up(row.queue)):
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
