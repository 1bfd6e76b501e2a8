"""Why an execution started later than it was due: parts that sum to the whole."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Final

from lamplighter.core.model import Arrival, Execution, Trigger
from lamplighter.core.waits import Part, Spent, Waited

_NONE: Final = timedelta(0)


@dataclass(frozen=True, kw_only=True)
class Lateness:
    """The way from a slot to the first start, in its parts (`Part`); each is zero or more."""

    splay: timedelta = _NONE
    """From the slot to run_at, by the job's flexible window: wanted, and so not late."""
    scan: timedelta = _NONE
    blocked: timedelta = _NONE
    permit: timedelta = _NONE
    queue: timedelta = _NONE
    cold_start: timedelta = _NONE
    hold: timedelta = _NONE
    claim: timedelta = _NONE

    @property
    def total(self) -> timedelta:
        """First start - run_at: the sum of all parts but the splay."""
        return self.total_from_slot - self.splay

    @property
    def total_from_slot(self) -> timedelta:
        """The sum of all parts."""
        return sum(self.parts.values(), _NONE)

    @property
    def parts(self) -> Mapping[str, timedelta]:
        """By their names, in the order in which they come."""
        return {part.name: getattr(self, part.name) for part in fields(self)}


def lateness_of(execution: Execution) -> Lateness | None:
    """The lateness of its first try; None before that, or where its message told nothing.

    Several clocks are in it, each up to half a second off: what would be less than nothing is
    nothing, and what comes after it is as much shorter.
    """
    started_at, arrival = execution.first_started_at, _first_arrival(execution)
    if started_at is None or arrival is None:
        return None
    spent = _spent(execution, arrival, started_at)
    return Lateness(
        splay=_splay(execution),
        **{part.value: took for part, took in zip(Part, spent, strict=True)},
    )


def waiting(claimed: Execution, on: Part, *, until: datetime | None = None) -> Waited | None:
    """What a claimed execution that has to wait once more keeps of its way so far.

    It waits from its claim on; `until`, if that is known. Once a try was made there is nothing
    to tell any more, and what is kept stays.
    """
    if claimed.attempts or claimed.started_at is None or claimed.arrival is None:
        return claimed.waited
    spent = _spent(claimed, claimed.arrival, claimed.started_at)
    end = max(until or claimed.started_at, claimed.started_at)
    waits = [end - claimed.started_at if part is on else _NONE for part in Part]
    return Waited(
        until=end, on=on, spent=tuple(one + more for one, more in zip(spent, waits, strict=True))
    )


def _splay(execution: Execution) -> timedelta:
    # A slot of the past that is run by hand is no flexible window.
    if execution.trigger is not Trigger.SCHEDULE:
        return _NONE
    return max(execution.run_at - execution.scheduled_for, _NONE)


def _spent(row: Execution, arrival: Arrival, started_at: datetime) -> Spent:
    """The parts of run_at to `started_at`, which they sum to: what nothing tells is the claim's."""
    waited = row.waited or Waited(until=row.run_at, on=Part.SCAN, spent=())
    found = dict.fromkeys(Part, _NONE)
    left = max(started_at - row.run_at, _NONE)
    for part, took in (*zip(Part, waited.spent, strict=False), *_since(waited, row, arrival)):
        share = min(took, left)
        found[part] += share
        left -= share
    found[Part.CLAIM] += left
    return tuple(found.values())


def _since(waited: Waited, row: Execution, arrival: Arrival) -> Iterator[tuple[Part, timedelta]]:
    """What came after that, in order, as far as the message tells."""
    turn = row.caught_up.starts_at if row.caught_up else row.run_at
    was_sent = max(arrival.sent_at, turn, waited.until)
    yield waited.on, was_sent - waited.until
    was_received = max(arrival.received_at, was_sent)
    cold_start = min(arrival.cold_start, was_received - was_sent)
    yield Part.QUEUE, was_received - was_sent - cold_start
    yield Part.COLD_START, cold_start
    yield Part.HOLD, max(arrival.received_at + arrival.hold - was_received, _NONE)


def _first_arrival(execution: Execution) -> Arrival | None:
    if not execution.attempts:
        return execution.arrival
    first = execution.attempts[0]
    # Of more than twenty tries the oldest are not kept.
    return first.arrival if first.number == 1 else None
