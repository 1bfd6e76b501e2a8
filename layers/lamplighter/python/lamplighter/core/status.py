"""What an execution's status is called when it is shown, and when it is asked for.

QUEUED is shown, never stored: dispatch writes no rows, so that a message is out follows from
how far dispatch has come.
"""

from typing import Final, NewType

from lamplighter.core.buckets import Position, body_of
from lamplighter.core.errors import Rejected
from lamplighter.core.lifecycle import ALIASES, State
from lamplighter.core.model import Execution

Status = NewType("Status", str)
"""The name of a state, or QUEUED."""

QUEUED: Final = Status("QUEUED")
STATUSES: Final = (*(Status(state) for state in State), QUEUED)

_MESSAGE_IS_OUT: Final = {"queued", "enqueued", "ready", "available", "dispatched"}


def status_of(execution: Execution, *, dispatched: Position | None) -> Status:
    """The state, or QUEUED once its message was sent; `dispatched`: its partition's watermark."""
    if execution.state is not State.SCHEDULED:
        return Status(execution.state)
    is_passed = dispatched is not None and body_of(execution.id) <= dispatched
    return QUEUED if execution.sent_directly or is_passed else Status(State.SCHEDULED)


def parse_status(text: str) -> Status:
    """The status that a filter names, by our name or another system's, in any case."""
    name = text.strip().lower()
    if name in _MESSAGE_IS_OUT:
        return QUEUED
    if name in ALIASES:
        return Status(ALIASES[name])
    if name.upper() in STATUSES:
        return Status(name.upper())
    raise Rejected(field="status", value=text, reason=f"not one of {', '.join(STATUSES)}")
