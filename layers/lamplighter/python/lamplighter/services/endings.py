"""Ending an execution: whoever writes its last state tells all that have to know of it."""

from lamplighter.core.errors import Unavailable
from lamplighter.core.lifecycle import State
from lamplighter.core.model import Execution
from lamplighter.core.notices import again_at, is_owed, notice_of
from lamplighter.ports import Notices, Ports, Refusal
from lamplighter.services import damaged, timers


def end(
    ports: Ports, before: Execution, after: Execution, *, job_version: int | None = None
) -> Execution | Refusal:
    """Make a row final, as `ports.executions.end` does, and do what follows from that.

    After a crash between the two the message of the row does it, or the sweep.
    """
    answer = ports.executions.end(before, after, job_version=job_version)
    if isinstance(answer, Execution):
        ports.telemetry.finished(answer)
        finish(ports, answer)
    return answer


def finish(ports: Ports, ended: Execution) -> None:
    """Wake those that wait for a final row (P14), and tell its owner if it needs attention.

    Doing it again is harmless.
    """
    wake(ports, ended)
    tell(ports, ended)


def wake(ports: Ports, ended: Execution) -> None:
    """Send the message of everything that waits for an execution; doing it again is harmless."""
    waiting = (damaged.row(ports, id) for id in sorted(ended.waiters))
    timers.send(
        ports, [timers.outgoing(row) for row in waiting if row and row.state is State.BLOCKED]
    )


def tell(ports: Ports, row: Execution) -> None:
    """Tell the owner of a row that needs attention, unless that was done.

    At least once: whoever dies before it noted that it told leaves it to whoever comes by next,
    the row's message or the sweep. Where the notice is not taken the sweep tries again, at a
    time that is booked here: no outage of it keeps anybody from what they do. Raises
    Unavailable where not even that could be booked.
    """
    if ports.notices is None or not is_owed(row):
        return
    if _is_told(ports, ports.notices, row):
        ports.executions.mark_told(row.id, now=ports.clock.now())
        ports.telemetry.told(row)
    else:
        ports.executions.point([timers.check(row, again_at(row, ports.clock.now()))])


def _is_told(ports: Ports, notices: Notices, row: Execution) -> bool:
    try:
        notices.tell(notice_of(row))
    except Unavailable as error:
        ports.telemetry.not_told(row, error)
        return False
    return True
