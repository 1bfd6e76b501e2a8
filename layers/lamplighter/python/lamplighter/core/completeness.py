"""What became of each slot that a recurring job planned: exactly one thing (the ledger).

A slot that has a row is what its row says. One that has none was passed over in bulk, or is
lost. Which of the two is told by the row that comes next: it was armed at an instant that is
known, by a decision that is a function. A slot is accounted for only if that decision, asked
again as of then, passes over all that lies between its two neighbours. Whatever is not explained
so is missed: a healthy chain leaves no holes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import islice
from types import MappingProxyType
from typing import Final

from lamplighter.core.lifecycle import State
from lamplighter.core.limits import LEDGER_LATE, MAX_CLOCK_ERROR
from lamplighter.core.misfire import successor
from lamplighter.core.model import Execution, Job, JobStatus
from lamplighter.core.status import Status

_TICK: Final = timedelta(milliseconds=1)


class Outcome(StrEnum):
    """What a planned slot came to. Each is exactly one of these."""

    FIRED = "FIRED"
    """A run: one that goes on, is tried again, or ended."""
    SKIPPED = "SKIPPED"
    """A policy of its job decided against it."""
    CANCELLED = "CANCELLED"
    """Its owner, or a change of its job, took it back."""
    EXPIRED = "EXPIRED"
    """Its deadline passed before it could start."""
    PENDING = "PENDING"
    """Not due yet, or so lately that nothing is wrong; or it waits for its predecessor."""
    MISSED = "MISSED"
    """It should have run, or have a reason why not, and has neither."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What became of a slot, and by which of a few reasons it is counted."""

    outcome: Outcome
    reason: str


NOT_DUE: Final = Entry(outcome=Outcome.PENDING, reason="not due")
JUST_DUE: Final = Entry(outcome=Outcome.PENDING, reason="just due")
NO_EXECUTION: Final = Entry(outcome=Outcome.MISSED, reason="no execution")

_RAN: Final = frozenset(
    {State.RUNNING, State.RETRYING, State.SUCCEEDED, State.FAILED, State.DEAD_LETTERED}
)
# What the decisions write, by a word of it that no other has; the first that fits.
_REASONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "overlap: ": "overlap",
        "not started by its deadline": "deadline",
        "older than the catch-up window": "catch-up window",
        "more than catchup_max": "catch-up cap",
        " later slots run": "catch-up cap",
        "a later slot runs for them": "coalesced",
        " runs for it": "coalesced",
        "misfire: ": "misfire",
        "deleted": "deleted",
        "DELETED": "deleted",
        "paused": "paused",
        "PAUSED": "paused",
        "edited": "edited",
        # Refused by the look after its claim: the job as it was by then did not plan it.
        "its job is ACTIVE": "edited",
    }
)


def entry_of(row: Execution, status: Status, now: datetime) -> Entry:
    """What became of a slot that has a row, shown with this status."""
    if row.state in _RAN:
        return Entry(outcome=Outcome.FIRED, reason=row.state)
    match row.state:
        case State.SKIPPED:
            return Entry(outcome=Outcome.SKIPPED, reason=group_of(row.reason))
        case State.CANCELLED:
            by_owner = row.cancel_requested_at is not None
            reason = "owner" if by_owner else group_of(row.reason)
            return Entry(outcome=Outcome.CANCELLED, reason=reason)
        case State.EXPIRED:
            return Entry(outcome=Outcome.EXPIRED, reason="deadline")
        case State.BLOCKED:
            return Entry(outcome=Outcome.PENDING, reason=row.state)
        case _:
            is_late = row.due_at + LEDGER_LATE < now
            return Entry(outcome=Outcome.MISSED if is_late else Outcome.PENDING, reason=status)


def group_of(reason: str | None) -> str:
    """The word that reasons of one kind are counted by."""
    said = reason or ""
    return next((name for word, name in _REASONS.items() if word in said), "other")


def entry_of_none(run_at: datetime, now: datetime) -> Entry:
    """What became of a slot that has no row, unless its neighbours explain it."""
    if run_at > now:
        return NOT_DUE
    return NO_EXECUTION if run_at + LEDGER_LATE < now else JUST_DUE


@dataclass(frozen=True, kw_only=True)
class Hole:
    """Slots of one version in a row that have no rows, and their neighbours in that version."""

    version: Job
    first: datetime
    size: int
    earlier: Execution | None
    """None when it has no such row, or none that is still kept."""
    later: Execution | None
    """None when the version has no row after the hole."""
    newer: Job | None = None
    """The version that replaced it; None for the job as it is."""

    @property
    def explained(self) -> tuple[int, Entry]:
        """How many of the slots, from the oldest on, are accounted for, and how; others are not."""
        if self.later is not None:
            return self._passed_over(self.later)
        return self._given_up()

    def _passed_over(self, later: Execution) -> tuple[int, Entry]:
        """By the misfire policy, when it armed the later row."""
        place = later.caught_up
        # All that a catch-up runs before it had rows, without a gap.
        had_rows = min(place.number, self.size) if place else 0
        size = self.size - had_rows
        if not size:
            return 0, NO_EXECUTION
        armed_next = later.scheduled_for if not had_rows else self._slot(size)
        # Its row may have been put by another host than the one that decided.
        decided_at = place.decided_at if place else later.created_at + MAX_CLOCK_ERROR
        found = successor(
            # As it was then: a job that was deleted since plans nothing any more.
            replace(self.version, status=JobStatus.ACTIVE),
            self.earlier.scheduled_for if self.earlier else self.first - _TICK,
            decided_at,
            caught_up=self.earlier.caught_up if self.earlier else None,
        )
        if found.passed_over is None or (found.slot is not None and found.slot < armed_next):
            return 0, NO_EXECUTION
        reason = group_of(found.passed_over.reason)
        return size, Entry(outcome=Outcome.SKIPPED, reason=reason)

    def _given_up(self) -> tuple[int, Entry]:
        """By the change that ended the version, if dispatch had not come to its last row yet.

        Nothing is armed before its predecessor is dispatched, and no change is retroactive.
        """
        if self.newer is None or self.earlier is None:
            return 0, NO_EXECUTION
        begun_at = self.earlier.first_started_at or self.earlier.finished_at
        if begun_at is not None and begun_at < self.newer.since:
            return 0, NO_EXECUTION
        reason = "paused" if self.newer.status is JobStatus.PAUSED else "edited"
        return self.size, Entry(outcome=Outcome.CANCELLED, reason=reason)

    def _slot(self, number: int) -> datetime:
        slots = self.version.schedule.occurrences(self.first - _TICK)
        return next(islice(slots, number, None), self.first)
