"""Arming: how every timer of the system gets its message, wherever it was made.

The rules are P1 (after every put, look at the clock again: what lies inside the line is sent
by whoever put it) and P2 (an occurrence is sent or made final only once its successor exists).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from lamplighter.core.buckets import retry_position
from lamplighter.core.lifecycle import State
from lamplighter.core.misfire import successor
from lamplighter.core.model import Execution, Job, Message, Pointer, PointerKind
from lamplighter.core.timing import is_inside
from lamplighter.ports import Outgoing, Ports


@dataclass(frozen=True, kw_only=True)
class Link:
    """A place in a job's chain: the slot whose successor has to exist."""

    job: Job
    slot: datetime


def outgoing(execution: Execution, *, epoch: int = 0) -> Outgoing:
    """The message for the try that is due or under way."""
    message = Message(
        execution_id=execution.id,
        attempt=execution.attempt,
        due_at=execution.due_at,
        epoch=epoch,
        traceparent=execution.traceparent,
    )
    return Outgoing(queue=execution.queue, message=message)


def send(ports: Ports, messages: Sequence[Outgoing]) -> None:
    """Send every message, each with the delay that is right at the send."""
    if messages:
        ports.queue.send(messages, now=ports.clock.now())


Passed = Callable[[Execution, datetime], bool]
"""Whether dispatch may be past a row that its putter, looking at the clock, finds there."""


def inside(row: Execution, now: datetime) -> bool:
    """P1's look, for whoever puts a row without holding its partition's lease."""
    return is_inside(row.run_at, now)


def arm_chains(
    ports: Ports, links: Sequence[Link], *, decided_at: datetime, passed: Passed = inside
) -> Sequence[Execution]:
    """Make each link's successors until one lies where dispatch has not been.

    Returned are those that dispatch may have passed, which have to be sent.

    The first successor is decided as of `decided_at`, so that a page done again arms the same
    row (P5); one that follows it because dispatch may be past it, as of the look. After a
    crash some of them exist, and doing it again finds them. Nothing is sent here: the caller
    first makes final what it passes over, then sends everything at once. A row that was there
    already and has been claimed or sent directly is left to itself, but its own successor is
    armed all the same.
    """
    due: list[Execution] = []
    while links := [*_successors(links, decided_at)]:
        now = ports.clock.now()
        made = ports.executions.put(
            [link.job.occurrence(link.slot, now=now, sent_directly=False) for link in links]
        )
        decided_at = ports.clock.now()
        behind = [
            (link, row) for link, row in zip(links, made, strict=True) if passed(row, decided_at)
        ]
        due += [row for _, row in behind if row.state is State.SCHEDULED and not row.sent_directly]
        links = [link for link, _ in behind]
    return due


def _successors(links: Sequence[Link], decided_at: datetime) -> Iterator[Link]:
    for link in links:
        following = successor(link.job, link.slot, decided_at)
        if following is not None and following > link.slot:
            yield Link(job=link.job, slot=following)


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


def _retry_pointer(execution: Execution) -> Pointer:
    return Pointer(
        kind=PointerKind.RETRY,
        position=retry_position(execution.id, execution.attempt, execution.due_at),
        execution_id=execution.id,
        queue=execution.queue,
        at=execution.due_at,
        attempt=execution.attempt,
    )


def pointed(pointer: Pointer, *, epoch: int = 0) -> Outgoing:
    """The message that a retry pointer stands for."""
    message = Message(
        execution_id=pointer.execution_id,
        attempt=pointer.attempt,
        due_at=pointer.at,
        epoch=epoch,
    )
    return Outgoing(queue=pointer.queue, message=message)
