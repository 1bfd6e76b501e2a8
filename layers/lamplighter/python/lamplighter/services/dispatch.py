"""Dispatch: what is due inside the line gets its message, page by page, under a fenced lease.

The page is the unit of the outbox: its bounds and the instant of its decisions are written
before it is done and committed by the next page's write. Whoever finds an uncommitted page
does it again and arms as of the same instant (P5); what was done twice falls at the claim.

After an outage what is due now goes first. What was left behind is a backlog with a watermark
of its own, which drains oldest first, at a rate, beside it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import assert_never

from lamplighter.core import overlap
from lamplighter.core.buckets import (
    JobId,
    Minute,
    Position,
    before,
    body_of,
    instant_of,
    minutes_between,
    start_of,
    through,
)
from lamplighter.core.errors import Unavailable, VersionMoved
from lamplighter.core.lease import Backlog, Grant, Intent, Layout, Progress
from lamplighter.core.lifecycle import Event
from lamplighter.core.limits import (
    BACKLOG_AFTER,
    COMMIT_PAGES,
    DRAIN_PAGE,
    LOOK_AGAIN,
    MARGIN,
    PAGE_ROWS,
    PARTITION_LEASE,
)
from lamplighter.core.misfire import Decision, Drop, EndChain, Park, Pass, Send, decide
from lamplighter.core.model import Execution, Job, OverlapPolicy, Pointer, PointerKind, Row
from lamplighter.core.outcome import ended
from lamplighter.core.overlap import GiveWay, is_in_the_way, policy_of
from lamplighter.core.timing import line
from lamplighter.ports import Page, Ports
from lamplighter.services import endings, timers

TimeLeft = Callable[[], bool]


@dataclass(frozen=True, kw_only=True)
class Done:
    """How a partition's work went."""

    progress: Progress
    is_finished: bool
    """Whether nothing is left to do now."""
    pages: int = 0


def dispatch(
    ports: Ports, grant: Grant, layout: Layout, *, time_left: TimeLeft = lambda: True
) -> Done:
    """Send what lies between the partition's watermark and the line, then of its backlog.

    Stops between two pages once `time_left` says no; the next owner goes on from the
    watermark. After a crash anywhere the next owner redoes at most one page. Raises
    Unavailable, leaving the page to the next owner, and LostLease.
    """
    age = ports.clock.now() - instant_of(grant.progress.committed)
    visit = _Visit(ports=ports, grant=grant, layout=layout, time_left=time_left)
    visit.redo()
    visit.settle()
    visit.leave_behind()
    is_finished = visit.catch_up_with_the_line() and visit.drain()
    visit.give_back()
    ports.telemetry.dispatched(
        partition=grant.work.partition, sent=visit.sent, pages=visit.pages, age=age
    )
    if visit.grant.backlog is not None and not visit.grant.backlog.is_drained:
        ports.telemetry.draining(partition=grant.work.partition, backlog=visit.grant.backlog)
    return Done(progress=visit.grant.progress, is_finished=is_finished, pages=visit.pages)


@dataclass(kw_only=True)
class _Visit:
    """One owner's visit of a partition: the lease, and what was done under it."""

    ports: Ports
    grant: Grant
    layout: Layout
    time_left: TimeLeft
    sent: int = 0
    pages: int = 0
    looked_at: int = 0
    """Pages, with those that were empty."""
    lease_until: datetime = field(init=False)

    def __post_init__(self) -> None:
        self.lease_until = self.ports.clock.now() + PARTITION_LEASE

    def redo(self) -> None:
        """Do the page that a predecessor left, as of its instant."""
        intent = self.grant.intent
        if intent is None:
            return
        rows = [row for page in self._between(intent) for row in page.rows]
        sent = self._do(intent, rows)
        self._advance(self._past(intent, sent), None)

    def settle(self) -> None:
        """Let the sweep come nearer to what was sent of a backlog."""
        backlog = self.grant.backlog
        if backlog is not None:
            moved = backlog.moved(backlog.after, sent=0, now=self._now())
            self.grant = replace(self.grant, backlog=moved)

    def leave_behind(self) -> None:
        """Make a backlog of what should have been dispatched long ago."""
        now, so_far = self.ports.clock.now(), self.grant.progress
        if now - instant_of(so_far.watermark) < BACKLOG_AFTER:
            return
        if so_far.backlog is not None and not so_far.backlog.is_drained:
            # One at a time: what lies between two was dispatched, and must not be once more, for
            # it would arm the latest slot behind the back of what is in the chain by now. So
            # what the second outage left comes before the rest of the first.
            return
        until = self._within(through(now))
        if until <= so_far.watermark:
            return
        left = Backlog.between(so_far.watermark, until, now=now, settled=so_far.settled)
        self._advance(Progress(watermark=until, backlog=left), None)

    def catch_up_with_the_line(self) -> bool:
        """Dispatch what is due until the line; whether there was time for all of it."""
        after = self.grant.watermark
        until = self._within(through(line(self.ports.clock.now())))
        for page in pages(self.ports, self._shards, after, until):
            if not self._is_in_time():
                return False
            self._take(Intent(after=after, until=page.reached, decided_at=self._now()), page.rows)
            after = page.reached
        return True

    def drain(self) -> bool:
        """Dispatch of the backlog at its rate; whether nothing is left of it."""
        looked_at = self._now()
        while (backlog := self.grant.backlog) is not None and not backlog.is_drained:
            if not self._is_in_time():
                return False
            if self._now() - looked_at >= LOOK_AGAIN:
                looked_at = self._now()
                if not self.catch_up_with_the_line():
                    return False
            page = next(
                pages(self.ports, self._shards, backlog.after, backlog.until, limit=self._share())
            )
            intent = Intent(after=backlog.after, until=page.reached, decided_at=self._now())
            sent = self._take(intent, page.rows)
            self.ports.clock.sleep(sent / self._rate * timedelta(seconds=1))
        return True

    def give_back(self) -> None:
        """Commit what was done, and let the next owner in."""
        self._advance(self.grant.progress, None, until=self._now())

    def _take(self, intent: Intent, rows: "Rows") -> int:
        """Declare a page, do it, and go past it; how many messages it came to."""
        self.looked_at += 1
        is_called_for = any(_is_dispatched(row) for row in rows)
        if is_called_for or self._is_to_be_written_down():
            self._advance(self.grant.progress, intent)
        sent = self._do(intent, rows) if is_called_for else 0
        self.grant = _at(self.grant, self._past(intent, sent))
        return sent

    def _do(self, intent: Intent, rows: "Rows") -> int:
        sent = _do(
            self.ports,
            self.grant,
            intent,
            rows,
            ahead=_Ahead(
                progress=self.grant.progress,
                page=intent,
                end=self.layout.end,
                lease_until=self.lease_until,
            ),
        )
        self.sent, self.pages = self.sent + sent, self.pages + 1
        return sent

    def _past(self, intent: Intent, sent: int) -> Progress:
        """How far it is done with a page behind it, of what is due or of the backlog."""
        so_far = self.grant.progress
        backlog = so_far.backlog
        if backlog is None or backlog.is_drained or intent.after != backlog.after:
            return replace(so_far, watermark=max(so_far.watermark, intent.until))
        return replace(so_far, backlog=backlog.moved(intent.until, sent=sent, now=self._now()))

    def _advance(
        self, progress: Progress, intent: Intent | None, *, until: datetime | None = None
    ) -> None:
        self.lease_until = until or self._now() + PARTITION_LEASE
        self.grant = self.ports.control.advance(
            self.grant,
            watermark=progress.watermark,
            intent=intent,
            backlog=progress.backlog,
            until=self.lease_until,
        )

    def _between(self, intent: Intent) -> Iterator[Page]:
        return pages(self.ports, self._shards, intent.after, intent.until)

    def _within(self, position: Position) -> Position:
        """A position, or where the layout ends."""
        return min(position, self.layout.end or position)

    def _share(self) -> int:
        """How many rows of a backlog come at once: not more than its rate allows for a while."""
        return max(1, min(PAGE_ROWS, int(self._rate * DRAIN_PAGE.total_seconds())))

    def _is_to_be_written_down(self) -> bool:
        """Whether it was long since, in time or in empty pages, that it said how far it is."""
        is_ending = self._now() + MARGIN > self.lease_until
        return is_ending or self.looked_at % COMMIT_PAGES == 0

    def _is_in_time(self) -> bool:
        return self.looked_at == 0 or self.time_left()

    def _now(self) -> datetime:
        return self.ports.clock.now()

    @property
    def _rate(self) -> float:
        """Messages of a backlog a second, of this partition."""
        return self.ports.drain_per_second / self.layout.partitions

    @property
    def _shards(self) -> range:
        return self.layout.shards_of(self.grant.work.partition)


def _at(grant: Grant, progress: Progress) -> Grant:
    return replace(grant, watermark=progress.watermark, backlog=progress.backlog)


Rows = Sequence[Row]
Decided = tuple[Execution, Decision]


def pages(
    ports: Ports, shards: range, after: Position, until: Position, *, limit: int | None = None
) -> Iterator[Page]:
    """Everything in (after, until], a page at a time, bucket by bucket, in order.

    A page ends where every shard has been read to the same position (P4).
    """
    for minute in minutes_between(after, until):
        end = min(until, before(start_of(Minute(minute + 1))))
        while after < end:
            page = ports.executions.due(
                minute, shards, after=after, until=end, limit=limit or PAGE_ROWS
            )
            yield page
            after = page.reached


@dataclass(frozen=True, kw_only=True)
class _Ahead:
    """Which rows a later page of this partition comes to, seen from one of its pages."""

    progress: Progress
    page: Intent
    end: Position | None
    lease_until: datetime

    def is_passed(self, row: Execution, now: datetime) -> bool:
        """Whether this page or another owner may be past a row that was just armed.

        While the lease is ours nobody else moves the watermark, so what lies beyond the page is
        met by a later one, which then decides about a misfire. Once it may have lapsed, and
        where another layout begins, P1's look decides: a stalled owner may arm behind the next
        one's back.
        """
        position = body_of(row.id)
        if position <= self.page.until:
            return True
        if self._is_elsewhere(position, now):
            return timers.inside(row, now)
        return self.progress.has(position)

    def may_be_swept(self, row: Execution, now: datetime) -> bool:
        """Whether the sweep may be past the place of a row that is about to be put.

        It never passes what we have not done (P6), and nobody but us moves that while the lease
        is ours; in another layout it is another one's.
        """
        return self._is_elsewhere(body_of(row.id), now) and timers.late(row, now)

    def _is_elsewhere(self, position: Position, now: datetime) -> bool:
        is_ours = now + MARGIN <= self.lease_until
        return not is_ours or (self.end is not None and position > self.end)


def _do(ports: Ports, grant: Grant, intent: Intent, rows: Rows, *, ahead: _Ahead) -> int:
    """Arm, make final, send: in this order, so that a crash between loses nothing (P2)."""
    executions = [row for row in rows if isinstance(row, Execution)]
    jobs, now = _jobs_of(ports, executions), ports.clock.now()
    # What still waits is decided as of now: a page that is redone after an outage may find
    # missed what was not. It changes nothing that was decided, for that no longer waits. What
    # is armed is decided as of the intent, so that every owner of the page arms the same.
    decisions = _advised(ports, [(row, _decide(row, jobs, now)) for row in executions], jobs, now)
    links = [
        link
        for row in executions
        if (job := jobs.get(row.job_id)) and _is_read(job)
        for link in timers.links_of(job, row)
    ]
    following = timers.arm_chains(
        ports,
        links,
        decided_at=intent.decided_at,
        passed=ahead.is_passed,
        swept=ahead.may_be_swept,
    )
    to_send = [*_carry_out(ports, decisions), *following]
    messages = [timers.outgoing(row, epoch=grant.epoch) for row in to_send]
    messages += [
        timers.pointed(row, epoch=grant.epoch)
        for row in rows
        if isinstance(row, Pointer) and row.kind is PointerKind.RETRY
    ]
    timers.send(ports, messages)
    return len(messages)


def _is_dispatched(row: Row) -> bool:
    """Whether a row calls for anything here: checks and watches are the sweep's."""
    return isinstance(row, Execution) or (
        isinstance(row, Pointer) and row.kind is PointerKind.RETRY
    )


def _is_read(job: Job | None) -> bool:
    return job is not None and job.unreadable is None


def _jobs_of(ports: Ports, rows: Sequence[Execution]) -> Mapping[JobId, Job]:
    recurring = {row.job_id for row in rows if row.follows_job}
    return ports.jobs.get_many(recurring) if recurring else {}


def _decide(row: Execution, jobs: Mapping[JobId, Job], decided_at: datetime) -> Decision:
    job = jobs.get(row.job_id)
    if job is None and row.spec is None:
        return Drop(event=Event.SKIP, reason="its job's definition is gone")
    return decide(row, job, decided_at)


def _advised(
    ports: Ports, decisions: Sequence[Decided], jobs: Mapping[JobId, Job], now: datetime
) -> Sequence[Decided]:
    """The decisions, but what is due already and would give way at its claim does so here.

    That saves a message and a claim where slots have piled up behind a long run, and decides
    nothing otherwise: what is not due yet is sent, and its claim has the last word (P12).
    """
    pressed = {
        row.predecessor: row
        for row, decision in decisions
        if isinstance(decision, Send) and row.predecessor and row.due_at <= now
        if (job := jobs.get(row.job_id)) and policy_of(row, job) is OverlapPolicy.SKIP
    }
    met = ports.executions.get_many(pressed, strongly=True) if pressed else {}
    giving_way = {
        pressed[id].id: Drop(event=Event.SKIP, reason=turn.reason, blocker=id)
        for id, predecessor in met.items()
        if is_in_the_way(predecessor, now)
        if isinstance(turn := overlap.turn(OverlapPolicy.SKIP, predecessor), GiveWay)
    }
    return [(row, giving_way.get(row.id, decision)) for row, decision in decisions]


def _carry_out(ports: Ports, decisions: Sequence[Decided]) -> Iterator[Execution]:
    """Make final what is passed over; the rest is to be sent."""
    for row, decision in decisions:
        match decision:
            case Send():
                yield row
            case Pass():
                pass
            case Drop(event=event, reason=reason, blocker=blocker):
                now = ports.clock.now()
                dropped = ended(row, event, now=now, reason=reason, blocker=blocker)
                endings.end(ports, row, dropped)
            case EndChain():
                _end_chain(ports, row, decision)
            case Park(reason=reason):
                # Unsent, it is the sweep's from now on, whose checks never end (P7).
                ports.telemetry.definition_unreadable(row.job_id, reason=reason)
            case other:
                assert_never(other)


def _end_chain(ports: Ports, row: Execution, decision: EndChain) -> None:
    """Cancel the last row of a chain in a write that checks the job's version (P17)."""
    cancelled = ended(row, Event.CANCEL, now=ports.clock.now(), reason=decision.reason)
    try:
        endings.end(ports, row, cancelled, job_version=decision.job_version)
    except VersionMoved as moved:
        # The job was edited since it was read: the page is left to be decided again.
        raise Unavailable(str(moved)) from moved
