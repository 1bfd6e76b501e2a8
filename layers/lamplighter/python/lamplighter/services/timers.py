"""Arming: how every timer of the system gets its message, wherever it was made.

The rules are P1 (after every put, look at the clock again: what lies inside the line is sent
by whoever put it) and P2 (an occurrence is sent or made final only once its successor exists).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice, takewhile
from typing import Final

from lamplighter.core.buckets import ExecutionId, check_position, retry_position
from lamplighter.core.catch_up import CaughtUp
from lamplighter.core.lifecycle import State
from lamplighter.core.limits import (
    CHAIN_SLOTS,
    CHECK_SCHEDULED_AGAIN,
    DYNAMODB_BATCH_GET,
    MARGIN,
    SWEEP_AFTER,
    TAKE_OVER_GRACE,
)
from lamplighter.core.misfire import Successor, successor
from lamplighter.core.model import Execution, Job, Message, Pointer, PointerKind, Trigger
from lamplighter.core.timing import is_inside
from lamplighter.ports import Outgoing, Ports
from lamplighter.services import slots

_AT_ONCE: Final = 1000  # slots that are looked for in one call, ten requests side by side


@dataclass(frozen=True, kw_only=True)
class Link:
    """A place in a job's chain: the slot, and its execution, whose successor has to exist."""

    job: Job
    slot: datetime
    execution: ExecutionId
    caught_up: CaughtUp | None


def links_of(job: Job, row: Execution) -> Sequence[Link]:
    """The place of a row in its job's chain, if it has one.

    What an edit left behind has none, be it planned by the job still: what follows it would be
    armed as if it did not meet what the job has run since, or was to run in between. The job's
    own chain was begun by the edit, and takes over what lies in its way.
    """
    is_left_behind = row.job_version < job.version and row.scheduled_for > job.since
    if row.trigger is not Trigger.SCHEDULE or is_left_behind or not job.produces(row):
        return []
    return [link_of(job, row)]


def link_of(job: Job, occurrence: Execution) -> Link:
    """The place of an occurrence in its job's chain."""
    return Link(
        job=job,
        slot=occurrence.scheduled_for,
        execution=occurrence.id,
        caught_up=occurrence.caught_up,
    )


def outgoing(execution: Execution, *, epoch: int = 0) -> Outgoing:
    """The message for the try that is due or under way."""
    message = Message(
        execution_id=execution.id,
        attempt=execution.attempt,
        due_at=execution.due_at,
        epoch=epoch,
        traceparent=execution.traceparent,
    )
    return Outgoing(queue=execution.queue, message=message, owner=execution.owner)


def promoted(execution: Execution, *, to: str, at: datetime) -> Outgoing:
    """The message for the current try in another lane, from then on."""
    mine = outgoing(execution)
    due_at = max(mine.message.due_at, at)
    return replace(mine, queue=to, message=replace(mine.message, due_at=due_at))


def send(ports: Ports, messages: Sequence[Outgoing]) -> None:
    """Send every message, each with the delay that is right at the send."""
    if messages:
        ports.queue.send(messages, now=ports.clock.now())


Passed = Callable[[Execution, datetime], bool]
"""Whether dispatch may be past a row that its putter, looking at the clock, finds there."""


def inside(row: Execution, now: datetime) -> bool:
    """P1's look, for whoever puts a row without holding its partition's lease."""
    return is_inside(row.run_at, now)


def late(row: Execution, now: datetime) -> bool:
    """Whether the sweep may have been where a row is about to be put, by one without a lease."""
    return row.run_at <= now


def arm_chains(
    ports: Ports,
    links: Sequence[Link],
    *,
    decided_at: datetime,
    passed: Passed = inside,
    swept: Passed = late,
    directly: bool = False,
) -> Sequence[Execution]:
    """Make each link's successors until one lies where dispatch has not been.

    Returned are those that dispatch may have passed, which have to be sent.

    The first successor is decided as of `decided_at`, so that a page done again arms the same
    row (P5); one that follows it because dispatch may be past it, as of the look. After a
    crash some of them exist, and doing it again finds them. Nothing is sent here: the caller
    first makes final what it passes over, then sends everything at once. A row that was there
    already and has been claimed or sent directly is left to itself, but its own successor is
    armed all the same.

    A successor, once armed, is never decided again: where the misfire policy leaves slots out,
    as of `decided_at` or by now, it is looked first whether the chain goes on after the link
    already. Else it would fork, and of two branches neither looks at the other.

    `directly` is the API's: what it finds inside the line it marks so. It may die before it
    armed what comes after; should the row have run by then, by a message of an earlier version,
    the mark has the sweep look (P2).

    A row whose place the sweep may have left behind gets a check first: should we die before
    we send it, nothing else would come by it any more (P7).
    """
    due: list[Execution] = []
    while following := [*_successors(ports, links, decided_at)]:
        now = ports.clock.now()
        planned = [
            _occurrence(link, slot, found, now, directly=directly)
            for link, slot, found in following
        ]
        if out_of_sight := [row for row in planned if swept(row, now)]:
            again_at = now + CHECK_SCHEDULED_AGAIN
            ports.executions.point([check(row, again_at) for row in out_of_sight])
        made = ports.executions.put(planned)
        decided_at = ports.clock.now()
        met = [(link, row) for (link, *_), row in zip(following, made, strict=True)]
        due += [
            row
            for _, row in met
            if row.state is State.SCHEDULED
            and (directly or not row.sent_directly)
            and passed(row, decided_at)
        ]
        links = [
            link_of(link.job, row) if _is_of(link, row) else _beyond(link, row)
            for link, row in met
            if passed(row, decided_at) or not _is_of(link, row)
        ]
    return due


def _is_of(link: Link, row: Execution) -> bool:
    """Whether a row that is there now is one of this chain.

    Else an earlier version's, of which something has come: its owner had cancelled it ahead.
    """
    return row.job_version >= link.job.version


def _beyond(link: Link, row: Execution) -> Link:
    """The place behind a row that takes a slot of the chain and is not in it."""
    return replace(link, slot=row.scheduled_for)


def _successors(
    ports: Ports, links: Sequence[Link], decided_at: datetime
) -> Iterator[tuple[Link, datetime, Successor]]:
    # A page that is redone decides as of long ago: by now others may have left slots out.
    latest = ports.clock.now() + MARGIN
    for link in links:
        found = _decided(link, decided_at)
        is_plain = found.slot == _decided(link, latest).slot == link.job.next_after(link.slot)
        if not is_plain and not _was_made(ports, link, found) and _goes_on(ports, link):
            continue
        if found.passed_over is not None:
            ports.telemetry.passed_over(link.job, found.passed_over)
            if found.slot is None:
                # No row comes to tell when that was decided.
                last = link.job.occurrence_id(link.slot)
                ports.executions.mark_last(last, decided_at=decided_at)
        if found.slot is not None and found.slot > link.slot:
            yield link, found.slot, found


def _decided(link: Link, decided_at: datetime) -> Successor:
    return successor(link.job, link.slot, decided_at, caught_up=link.caught_up)


def _was_made(ports: Ports, link: Link, found: Successor) -> bool:
    """Whether this very successor was armed before, by a page that is done again."""
    row = ports.executions.get(link.job.occurrence_id(found.slot)) if found.slot else None
    return row is not None and row.predecessor in {None, link.execution} and _is_of(link, row)


def _goes_on(ports: Ports, link: Link) -> bool:
    return goes_on(ports, link.job, link.slot)


def goes_on(ports: Ports, job: Job, slot: datetime) -> bool:
    """Whether a slot after this one has a row of the job's version: it was armed, or ran.

    Nothing is armed later than the first slot beyond the line, and of a chain that lives that
    one is, or one shortly before it: so they are looked at first. Bounded by `CHAIN_SLOTS`.
    """
    begin, last = max(slot, job.since), slots.last_armable(job, now=ports.clock.now())
    newest = [
        *islice(takewhile(lambda one: one > begin, slots.until(job, last)), DYNAMODB_BATCH_GET)
    ]
    if _is_there(ports, job, newest):
        return True
    if len(newest) < DYNAMODB_BATCH_GET:
        return False
    between = takewhile(lambda one: one < newest[-1], job.schedule.occurrences(begin))
    rest = islice(between, CHAIN_SLOTS)
    while some := [*islice(rest, _AT_ONCE)]:
        if _is_there(ports, job, some):
            return True
    return False


def _is_there(ports: Ports, job: Job, some: Sequence[datetime]) -> bool:
    """Whether one of these slots has a row of the job's version."""
    ids = [*map(job.occurrence_id, some)]
    rows = ports.executions.get_many(ids, strongly=True) if ids else {}
    return any(row.job_version >= job.version for row in rows.values())


def _occurrence(
    link: Link, slot: datetime, found: Successor, now: datetime, *, directly: bool
) -> Execution:
    return link.job.occurrence(
        slot,
        now=now,
        sent_directly=directly and is_inside(link.job.run_at(slot), now),
        predecessor=link.execution,
        caught_up=found.caught_up,
    )


def arm(ports: Ports, execution: Execution) -> None:
    """Have the current try of an execution come up: at its time, or at once when that is over."""
    if execution.state is State.RETRYING:
        arm_retry(ports, execution)
    else:
        send(ports, [outgoing(execution)])


def arm_retry(ports: Ports, execution: Execution) -> None:
    """Arm the next try of a RETRYING execution: a delayed message, or far ahead a pointer.

    Safe to do again: a second message falls at the claim, a second pointer is the same row.
    """
    if not is_inside(execution.due_at, ports.clock.now()):
        ports.executions.point([_retry_pointer(execution)])
    if is_inside(execution.due_at, ports.clock.now()):
        send(ports, [outgoing(execution)])


def arm_lease(ports: Ports, deferred: Execution) -> None:
    """Have a message come when a deferred try is to have been heard of, as `arm_retry` does."""
    if deferred.lease_until is None:
        raise ValueError(f"{deferred.id} is not held")
    at = deferred.lease_until + TAKE_OVER_GRACE
    pointer = _pointer(deferred, at)
    if not is_inside(at, ports.clock.now()):
        ports.executions.point([pointer])
    if is_inside(at, ports.clock.now()):
        send(ports, [pointed(pointer)])


def _retry_pointer(execution: Execution) -> Pointer:
    return _pointer(execution, execution.due_at)


def _pointer(execution: Execution, at: datetime) -> Pointer:
    return Pointer(
        kind=PointerKind.RETRY,
        position=retry_position(execution.id, execution.attempt, at),
        execution_id=execution.id,
        queue=execution.queue,
        at=at,
        attempt=execution.attempt,
        owner=execution.owner,
    )


def pointed(pointer: Pointer, *, epoch: int = 0) -> Outgoing:
    """The message that a retry pointer stands for."""
    message = Message(
        execution_id=pointer.execution_id,
        attempt=pointer.attempt,
        due_at=pointer.at,
        epoch=epoch,
    )
    return Outgoing(queue=pointer.queue, message=message, owner=pointer.owner)


def keep_in_sight(ports: Ports, row: Execution, now: datetime) -> None:
    """Book a check of a row that may have been put where the sweep had been already (P7)."""
    if now - row.run_at > SWEEP_AFTER:
        ports.executions.point([check(row, now + CHECK_SCHEDULED_AGAIN)])


def check(execution: Execution, at: datetime, *, exactly: bool = False) -> Pointer:
    """Has the sweep look at an execution then, or soon after; made twice, it is the same row.

    `exactly` is for an instant that every visit tells alike: the sweep comes by 150 s after it at
    most, but no sooner than 30.
    """
    return Pointer(
        kind=PointerKind.CHECK,
        position=check_position(execution.id, at, exactly=exactly),
        execution_id=execution.id,
        queue=execution.queue,
        at=at,
        attempt=execution.attempt,
    )
