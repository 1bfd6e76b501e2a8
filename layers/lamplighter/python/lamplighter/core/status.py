"""What an execution's status is called when it is shown, and when it is asked for.

QUEUED is shown, never stored: dispatch writes no rows, so that a message is out follows from
how far dispatch has come. PARKED is a RETRYING that waits for a deploy and not for its time.
"""

from enum import StrEnum
from typing import Final

from lamplighter.core.errors import Rejected
from lamplighter.core.lifecycle import ALIASES, State
from lamplighter.core.model import Execution


class Status(StrEnum):
    """Every state, by the same name, and QUEUED and PARKED."""

    SCHEDULED = State.SCHEDULED.value
    QUEUED = "QUEUED"
    """SCHEDULED, and its message is out: a worker takes it at its run_at."""
    RUNNING = State.RUNNING.value
    RETRYING = State.RETRYING.value
    PARKED = "PARKED"
    """RETRYING, for no worker has known its task in the version that it was made for."""
    BLOCKED = State.BLOCKED.value
    SUCCEEDED = State.SUCCEEDED.value
    FAILED = State.FAILED.value
    DEAD_LETTERED = State.DEAD_LETTERED.value
    CANCELLED = State.CANCELLED.value
    SKIPPED = State.SKIPPED.value
    EXPIRED = State.EXPIRED.value


_MESSAGE_IS_OUT: Final = {"queued", "enqueued", "ready", "available", "dispatched"}


def status_of(execution: Execution, *, dispatched: bool) -> Status:
    """The state, or QUEUED once its message was sent; `dispatched`: dispatch has passed its row.

    Or PARKED.
    """
    if execution.is_parked:
        return Status.PARKED
    if execution.state is not State.SCHEDULED:
        return Status(execution.state)
    return Status.QUEUED if execution.sent_directly or dispatched else Status.SCHEDULED


def parse_status(text: str) -> Status:
    """The status that a filter names, by our name or another system's, in any case."""
    name = text.strip().lower()
    if name in _MESSAGE_IS_OUT:
        return Status.QUEUED
    try:
        return Status(ALIASES.get(name, name.upper()))
    except ValueError:
        reason = f"not one of {', '.join(Status)}"
        raise Rejected(field="status", value=text, reason=reason) from None
