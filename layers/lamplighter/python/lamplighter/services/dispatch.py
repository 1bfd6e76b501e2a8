"""Dispatch: what is due inside the line gets its message, page by page, under a fenced lease.

The page is the unit of the outbox: its bounds and the instant of its decisions are written
before it is done and committed by the next page's write. Whoever finds an uncommitted page
does it again and arms as of the same instant (P5); what was done twice falls at the claim.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import assert_never

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
from lamplighter.core.errors import LostLease, Unavailable, VersionMoved
from lamplighter.core.lease import Grant, Held, Intent, Kind, Layout, Work
from lamplighter.core.lifecycle import Event
from lamplighter.core.limits import MARGIN, PAGE_ROWS, PARTITION_LEASE
from lamplighter.core.misfire import Decision, Drop, EndChain, Park, Pass, Send, decide
from lamplighter.core.model import Execution, Job, Pointer, PointerKind
from lamplighter.core.outcome import ended
from lamplighter.core.timing import line
from lamplighter.ports import Page, Ports
from lamplighter.services import endings, timers


@dataclass(frozen=True, kw_only=True)
class Done:
    """How a partition's work went."""

    pages: int
    reached: Position | None
    """None when another owner held the lease."""


def dispatch(
    ports: Ports,
    partition: int,
    *,
    owner: str,
    time_left: Callable[[], bool] = lambda: True,
) -> Done:
    """Send what lies between the partition's watermark and the line.

    Stops between two pages once `time_left` says no; the next owner goes on from the
    watermark. After a crash anywhere the next owner redoes at most one page. Raises
    Unavailable, leaving the page to the next owner; returns quietly when the lease is lost.
    """
    layout = ports.layout()
    grant = _acquire(ports, Work(partition=partition, kind=Kind.DISPATCH), owner, layout)
    if grant is None:
        return Done(pages=0, reached=None)
    try:
        return _dispatch(ports, grant, layout, time_left)
    except LostLease:
        ports.telemetry.lost_lease(partition=partition)
        return Done(pages=0, reached=None)


def _dispatch(ports: Ports, grant: Grant, layout: Layout, time_left: Callable[[], bool]) -> Done:
    shards = layout.shards_of(grant.work.partition)
    now = ports.clock.now()
    until, age = through(line(now)), now - instant_of(grant.watermark)
    reached, sent, pages = grant.watermark, 0, 0
    lease_until = now + PARTITION_LEASE
    for number, (intent, rows) in enumerate(_to_do(ports, grant, shards, until)):
        if number and not time_left():
            break
        if rows or ports.clock.now() + MARGIN > lease_until:
            lease_until = ports.clock.now() + PARTITION_LEASE
            grant = ports.control.advance(
                grant, watermark=intent.after, intent=intent, until=lease_until
            )
        if rows:
            sent += _do(ports, grant, intent, rows, lease_until=lease_until)
            pages += 1
        reached = intent.until
    ports.control.advance(grant, watermark=reached, intent=None, until=ports.clock.now())
    ports.telemetry.dispatched(partition=grant.work.partition, sent=sent, pages=pages, age=age)
    return Done(pages=pages, reached=reached)


def _acquire(ports: Ports, work: Work, owner: str, layout: Layout) -> Grant | None:
    now = ports.clock.now()
    start = before(layout.effective_from)
    lease = ports.control.acquire(
        work, owner=owner, now=now, until=now + PARTITION_LEASE, start=start
    )
    return None if isinstance(lease, Held) else lease


Rows = Sequence[Execution | Pointer]


def _to_do(
    ports: Ports, grant: Grant, shards: range, until: Position
) -> Iterator[tuple[Intent, Rows]]:
    """The page that a predecessor left, as of its instant; then the pages up to the line."""
    after = grant.watermark
    if grant.intent is not None:
        yield grant.intent, [*_rows(ports, shards, grant.intent)]
        after = grant.intent.until
    for page in pages(ports, shards, after, until):
        intent = Intent(after=after, until=page.reached, decided_at=ports.clock.now())
        yield intent, page.rows
        after = page.reached


def _rows(ports: Ports, shards: range, intent: Intent) -> Iterator[Execution | Pointer]:
    for page in pages(ports, shards, intent.after, intent.until):
        yield from page.rows


def pages(ports: Ports, shards: range, after: Position, until: Position) -> Iterator[Page]:
    """Everything in (after, until], a page at a time, bucket by bucket, in order.

    A page ends where every shard has been read to the same position (P4).
    """
    for minute in minutes_between(after, until):
        end = min(until, before(start_of(Minute(minute + 1))))
        while after < end:
            page = ports.executions.due(minute, shards, after=after, until=end, limit=PAGE_ROWS)
            yield page
            after = page.reached


def _do(ports: Ports, grant: Grant, intent: Intent, rows: Rows, *, lease_until: datetime) -> int:
    """Arm, make final, send: in this order, so that a crash between loses nothing (P2)."""
    executions = [row for row in rows if isinstance(row, Execution)]
    jobs, now = _jobs_of(ports, executions), ports.clock.now()
    # What still waits is decided as of now: a page that is redone after an outage may find
    # missed what was not. It changes nothing that was decided, for that no longer waits. What
    # is armed is decided as of the intent, so that every owner of the page arms the same.
    decisions = [(row, _decide(row, jobs, now)) for row in executions]
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
        passed=partial(_is_passed, until=intent.until, lease_until=lease_until),
        swept=partial(_may_be_swept, lease_until=lease_until),
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


def _is_passed(row: Execution, now: datetime, *, until: Position, lease_until: datetime) -> bool:
    """Whether this page or another owner may be past a row that was just armed.

    While the lease is ours nobody else moves the watermark, so what lies beyond the page is
    met by a later one, which then decides about a misfire. Once it may have lapsed, P1's look
    decides: a stalled owner may arm behind the next one's back.
    """
    if body_of(row.id) <= until:
        return True
    return now + MARGIN > lease_until and timers.inside(row, now)


def _may_be_swept(row: Execution, now: datetime, *, lease_until: datetime) -> bool:
    """Whether the sweep may be past the place of a row that is about to be put.

    It never passes our watermark (P6), and nobody but us moves that while the lease is ours.
    """
    return now + MARGIN > lease_until and timers.late(row, now)


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


def _carry_out(
    ports: Ports, decisions: Sequence[tuple[Execution, Decision]]
) -> Iterator[Execution]:
    """Make final what is passed over; the rest is to be sent."""
    for row, decision in decisions:
        match decision:
            case Send():
                yield row
            case Pass():
                pass
            case Drop(event=event, reason=reason):
                dropped = ended(row, event, now=ports.clock.now(), reason=reason)
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
