"""Ending an execution: whoever writes its last state wakes those that wait for it (P14)."""

from lamplighter.core.lifecycle import State
from lamplighter.core.model import Execution
from lamplighter.ports import Ports, Refusal
from lamplighter.services import timers


def end(
    ports: Ports, before: Execution, after: Execution, *, job_version: int | None = None
) -> Execution | Refusal:
    """Make a row final, as `ports.executions.end` does, and wake its waiters.

    After a crash between the two the waiters are woken by the message of the row, or by the
    sweep's check of each.
    """
    answer = ports.executions.end(before, after, job_version=job_version)
    if isinstance(answer, Execution):
        ports.telemetry.finished(answer)
        wake(ports, answer)
    return answer


def wake(ports: Ports, ended: Execution) -> None:
    """Send the message of everything that waits for an execution; doing it again is harmless."""
    waiting = (ports.executions.get(id) for id in sorted(ended.waiters))
    timers.send(
        ports, [timers.outgoing(row) for row in waiting if row and row.state is State.BLOCKED]
    )
