"""What became of each slot that a recurring job planned: exactly one thing (the ledger).

A slot that has a row is what its row says. One that has none was passed over in bulk, or is
lost. Which of the two is told by the row that comes next: it was armed at an instant that is
known, by a decision that is a function. A slot is accounted for only if that decision, asked
again as of then, passes over all that lies between its two neighbours. Whatever is not explained
so is missed: a healthy chain leaves no holes.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import islice
from types import MappingProxyType
from typing import Final

from lamplighter.core.buckets import from_ms, to_ms
from lamplighter.core.lifecycle import State
from lamplighter.core.limits import LEDGER_LATE, MAX_CLOCK_ERROR
from lamplighter.core.misfire import successor
from lamplighter.core.model import Execution, Job, JobStatus
from lamplighter.core.status import Status

_TICK: Final = timedelta(milliseconds=1)
_NONE: Final = "-"
# Version; before; the later slot; how many are open, how many of them below, the last of them;
# how far was looked above. Seven days of a slot a second have six digits.
_PLACE: Final = re.compile(
    r"([1-9]\d{0,8})\.(\d{1,13})\.(\d{1,13}|-)\.(?:(\d{1,6})\.(\d{1,6})\.(\d{1,13})|-)\.(\d{1,13}|-)",
    re.ASCII,
)


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
    """Not due yet, or so lately that nothing is wrong; or it waits: for dispatch to come to it,
    in its lane, or for its predecessor."""
    MISSED = "MISSED"
    """Dispatch has passed it, and there is neither an execution nor a reason why not."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What became of a slot, and by which of a few reasons it is counted."""

    outcome: Outcome
    reason: str


NOT_DUE: Final = Entry(outcome=Outcome.PENDING, reason="not due")
JUST_DUE: Final = Entry(outcome=Outcome.PENDING, reason="just due")
NOT_DISPATCHED: Final = Entry(outcome=Outcome.PENDING, reason="not dispatched")
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


def entry_of(row: Execution, status: Status) -> Entry:
    """What became of a slot that has a row, shown with this status.

    One that waits is never missed, however late it is: dispatch comes to it, or the sweep does,
    again and again until it has ended (P7).
    """
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
        case _:
            return Entry(outcome=Outcome.PENDING, reason=status)


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
class Open:
    """Slots next to each other that have no rows and are not decided yet."""

    size: int
    below: int
    """How many of them lie below the range: they are not counted."""
    last: datetime


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a walk goes on: among a version's slots before an instant."""

    version: int
    before: datetime
    later: datetime | None = None
    """The slot of the oldest row above; None: no row of the version is above."""
    open: Open | None = None
    above: datetime | None = None
    """Up to where no row was found above the range; looking there is to go on first."""

    @property
    def text(self) -> str:
        """As a cursor carries it."""
        open_ = self.open
        return ".".join(
            [
                str(self.version),
                str(to_ms(self.before)),
                _ms(self.later),
                f"{open_.size}.{open_.below}.{to_ms(open_.last)}" if open_ else _NONE,
                _ms(self.above),
            ]
        )

    @classmethod
    def read(cls, text: str) -> "Place":
        """The inverse of `text`; raises ValueError for what that never wrote."""
        found = _PLACE.fullmatch(text)
        if found is None:
            raise ValueError(f"no place of a walk: {text[:80]!r}")
        version, before, later, size, below, last, above = found.groups()
        return cls(
            version=int(version),
            before=from_ms(int(before)),
            later=_moment(later),
            open=Open(size=int(size), below=int(below), last=from_ms(int(last))) if size else None,
            above=_moment(above),
        )


def _ms(moment: datetime | None) -> str:
    return _NONE if moment is None else str(to_ms(moment))


def _moment(text: str) -> datetime | None:
    return None if text == _NONE else from_ms(int(text))


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
    told_at: datetime | None = None
    """When the version came to `later`, where that was armed by an earlier one."""

    @property
    def explained(self) -> tuple[int, Entry]:
        """How many of the slots, from the oldest on, are accounted for, and how; others are not."""
        if self.later is not None:
            return self._passed_over(self.later)
        reason = self._passed_over_with(self.earlier) if self.earlier else None
        if reason is not None:
            return self.size, Entry(outcome=Outcome.SKIPPED, reason=reason)
        return self._given_up()

    def _passed_over_with(self, earlier: Execution) -> str | None:
        """Why the misfire policy left out the slots together with the row before them, if it did.

        No row of the version comes after them: it makes no more, or the next version took over
        the one that was armed then.
        """
        decided_at = _passed_at(earlier)
        if decided_at is None:
            return None
        found = successor(
            replace(self.version, status=JobStatus.ACTIVE),
            earlier.scheduled_for,
            decided_at,
            caught_up=earlier.caught_up,
        )
        goes_on_later = found.slot is None or found.slot > self._slot(self.size - 1)
        return group_of(found.passed_over.reason) if found.passed_over and goes_on_later else None

    def _passed_over(self, later: Execution) -> tuple[int, Entry]:
        """By the misfire policy, when it armed the later row.

        It found one there that an earlier version had armed, and went on behind it at once.
        """
        place = None if self.told_at else later.caught_up
        # All that a catch-up runs before it had rows, without a gap.
        had_rows = min(place.number, self.size) if place else 0
        size = self.size - had_rows
        if not size:
            return 0, NO_EXECUTION
        armed_next = later.scheduled_for if not had_rows else self._slot(size)
        decided_at = self.told_at or armed_at(later)
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

        Nothing is armed before its predecessor is dispatched, and no change is retroactive. What
        its API sent itself may have run before: it died, then, before it armed what comes after.
        """
        if self.newer is None or self.earlier is None:
            return 0, NO_EXECUTION
        begun_at = self.earlier.first_started_at or self.earlier.finished_at
        was_dispatched = begun_at is not None and begun_at < self.newer.since
        if was_dispatched and not self.earlier.sent_directly:
            return 0, NO_EXECUTION
        reason = "paused" if self.newer.status is JobStatus.PAUSED else "edited"
        return self.size, Entry(outcome=Outcome.CANCELLED, reason=reason)

    def _slot(self, number: int) -> datetime:
        slots = self.version.schedule.occurrences(self.first - _TICK)
        return next(islice(slots, number, None), self.first)


def armed_at(row: Execution) -> datetime:
    """When it was decided that a row is armed, by the clock of the host that decided."""
    place = row.caught_up
    # It may have been put by another host.
    return place.decided_at if place else row.created_at + MAX_CLOCK_ERROR


def _passed_at(row: Execution) -> datetime | None:
    """When dispatch was at a row that is its version's last, and decided what comes after it.

    That is noted where nothing comes. Else it is when its message was sent, if it had one; None:
    it cannot be told.
    """
    if row.last_since is not None:
        return row.last_since
    by_owner = row.state is State.CANCELLED and row.cancel_requested_at is not None
    # Whoever cancels it arms what comes after it, as of then.
    was_left_out = by_owner or row.state in {State.SKIPPED, State.EXPIRED}
    if not (was_left_out or row.state in _RAN):
        return None
    first = row.attempts[0].arrival if row.attempts else row.arrival
    if first is None:
        return row.finished_at if was_left_out else None
    # By the queue's clock; who decided went by their own.
    return first.sent_at + MAX_CLOCK_ERROR
