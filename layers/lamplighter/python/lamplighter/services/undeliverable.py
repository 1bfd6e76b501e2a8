"""What a dead-letter queue received: an execution is never only in there."""

from lamplighter.core.claim import Drop, Keep, Lapsed, Rearm, TakeOver, Watch, refused
from lamplighter.core.lifecycle import Event, State
from lamplighter.core.limits import UNDELIVERABLE_AFTER, UNDELIVERABLE_LIMIT
from lamplighter.core.model import Execution, Message
from lamplighter.core.outcome import ended
from lamplighter.ports import Ports, Refusal
from lamplighter.services import endings, timers


def undeliverable(ports: Ports, message: Message) -> None:
    """Send an execution that still waits again; the third time, a day late, it is given up.

    A final execution's message is dropped, a stale one arms what it finds (P11), and that of
    one which runs comes back without being counted. After a crash the message is still in the
    queue and the count is at most one too high. Raises Unavailable: the message is then kept.
    """
    row = ports.executions.get(message.execution_id)
    match refused(message, row, ports.clock.now()):
        case Rearm(execution=execution) | TakeOver(holder=execution) | Lapsed(holder=execution):
            timers.arm(ports, execution)
        case Watch(execution=execution):
            timers.arm_lease(ports, execution)
        case Keep() if row is not None and row.state is State.RUNNING:
            timers.arm(ports, row)
        case Keep() if row is not None:
            _count(ports, row)
        case Drop() | Keep():
            if row is not None and row.is_final:
                endings.finish(ports, row)


def _count(ports: Ports, row: Execution) -> None:
    counted = ports.executions.count_undeliverable(row.id)
    if counted is None:
        return
    ports.telemetry.undeliverable(row.id, count=counted.undeliverable)
    overdue = ports.clock.now() - counted.due_at
    is_hopeless = counted.undeliverable >= UNDELIVERABLE_LIMIT and overdue >= UNDELIVERABLE_AFTER
    if counted.is_final:
        return
    if is_hopeless and counted.state is not State.RUNNING:
        _give_up(ports, counted)
    else:
        timers.arm(ports, counted)


def _give_up(ports: Ports, row: Execution) -> None:
    reason = f"undeliverable: its message was returned {row.undeliverable} times"
    dead = ended(row, Event.DEAD_LETTER, now=ports.clock.now(), reason=reason)
    answer = endings.end(ports, row, dead)
    found = answer.found if isinstance(answer, Refusal) else None
    if found is not None and not found.is_final:
        # It moved while we looked: somebody is at it, and its message must not be lost.
        timers.arm(ports, found)
