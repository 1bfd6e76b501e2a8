"""The line, and the delay that carries a message to its instant."""

import math
from datetime import datetime, timedelta

from lamplighter.core.limits import LOOK_AHEAD, MARGIN, ROUND_UP_WITHIN, SQS_MAX_DELAY_S

_SECOND = timedelta(seconds=1)


def line(now: datetime) -> datetime:
    """How far dispatch may go: nobody dispatches past it."""
    return now + LOOK_AHEAD


def is_inside(due: datetime, now: datetime) -> bool:
    """Whether whoever put a timer due then must send it: dispatch may be past it (P1)."""
    return due <= now + LOOK_AHEAD + MARGIN


def delay_s(due: datetime, now: datetime) -> int:
    """Whole seconds for a message due then to stay invisible, 0 … 900.

    Rounded up when that costs at most 150 ms of lateness, else down: the worker then holds
    the message for less than a second. What is due later than 900 s from now is a bug of the
    caller and raises ValueError.
    """
    wait = due - now
    if wait <= timedelta(0):
        return 0
    up = math.ceil(wait / _SECOND)
    seconds = up if up * _SECOND - wait <= ROUND_UP_WITHIN else math.floor(wait / _SECOND)
    if seconds > SQS_MAX_DELAY_S:
        raise ValueError(f"a delay of {seconds} s is over SQS's {SQS_MAX_DELAY_S} s")
    return seconds
