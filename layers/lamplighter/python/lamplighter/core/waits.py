"""What keeps an execution from its first start, as its row and its process tell it."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

_NONE: Final = timedelta(0)


class Part(StrEnum):
    """What the time from run_at to the first start goes by with.

    Rows keep them by their place in this order: a new one comes last.
    """

    SCAN = "scan"
    """Until its message was sent and its turn in a catch-up had come."""
    BLOCKED = "blocked"
    """While an execution before it in its job's chain was in its way."""
    PERMIT = "permit"
    """While it waited for a permit."""
    QUEUE = "queue"
    """While its message waited for a worker, a delay's whole seconds with it."""
    COLD_START = "cold_start"
    """While the process that took the message was beginning."""
    HOLD = "hold"
    """While its worker held the message until it was due."""
    CLAIM = "claim"
    """Until it was claimed, or claimed anew after a service had not answered."""


Spent = tuple[timedelta, ...]
"""How long each part took, in their order; a record of before a part was added has fewer."""


@dataclass(frozen=True, kw_only=True)
class Waited:
    """What an execution that was claimed, and had to wait, has behind it."""

    until: datetime
    """`spent` tells of run_at to here."""
    on: Part
    """What goes by from there on, until its message is sent anew."""
    spent: Spent


@dataclass(frozen=True, kw_only=True)
class Boot:
    """When this process began, and when it was ready to take a message."""

    began_at: datetime
    ready_at: datetime

    def within(self, start: datetime, end: datetime) -> timedelta:
        """How much of the time from `start` to `end` this process took to begin."""
        return max(_NONE, min(end, self.ready_at) - max(start, self.began_at))
