"""Why an execution started later than it was due: parts that sum to the whole."""

from dataclasses import dataclass
from datetime import timedelta

from lamplighter.core.model import Arrival, Execution

_NONE = timedelta(0)


@dataclass(frozen=True, kw_only=True)
class Lateness:
    """First start - run_at, and what it is made of; each part is zero or more."""

    total: timedelta
    sending: timedelta
    """Until its message was sent: dispatch was late, or it waited for its turn."""
    queue: timedelta
    """Until a worker had the message."""
    claim: timedelta
    """Until it was claimed."""


def lateness_of(execution: Execution) -> Lateness | None:
    """The lateness of its first try; None before that, or where its message told nothing.

    Several clocks are in it, each up to half a second off: a part that would be less than
    nothing is nothing, and the next one is as much shorter.
    """
    total, arrival = execution.lateness, _first_arrival(execution)
    if total is None or arrival is None:
        return None
    total = max(total, _NONE)
    sending = min(max(arrival.sent_at - execution.run_at, _NONE), total)
    until_received = min(max(arrival.received_at - execution.run_at, sending), total)
    return Lateness(
        total=total,
        sending=sending,
        queue=until_received - sending,
        claim=total - until_received,
    )


def _first_arrival(execution: Execution) -> Arrival | None:
    if not execution.attempts:
        return execution.arrival
    first = execution.attempts[0]
    # Of more than twenty tries the oldest are not kept.
    return first.arrival if first.number == 1 else None
