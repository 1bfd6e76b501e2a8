"""The completeness ledger: every slot that a recurring job planned, and what became of it.

It walks as the history does, newest first, over the slots of the stored versions, and reads
the rows of their computed ids. Each slot is counted once, where it is decided, so that the
counts of a walk's parts sum to what was planned. Slots in a row without rows are decided
together at their older end: a part may count what the ones before it had to leave open, and
the last ones look below the range, but count nothing there.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import islice, takewhile
from typing import Final

from lamplighter.core.buckets import ExecutionId, JobId, body_of, execution_of
from lamplighter.core.completeness import (
    NO_EXECUTION,
    NOT_DISPATCHED,
    Entry,
    Hole,
    Open,
    Outcome,
    Place,
    armed_at,
    entry_of,
    entry_of_none,
)
from lamplighter.core.errors import Conflict, Rejected
from lamplighter.core.lifecycle import State
from lamplighter.core.limits import DYNAMODB_BATCH_GET, EXECUTION_KEPT, LEDGER_SLOTS, MARGIN
from lamplighter.core.model import Execution, Job, JobStatus, Owner
from lamplighter.core.timing import line
from lamplighter.ports import Ports
from lamplighter.services import inspect, progress, slots
from lamplighter.services.progress import Dispatched

_TICK: Final = timedelta(milliseconds=1)
_NEXT_ABOVE: Final = 4  # in a healthy chain the very next slot has a row


@dataclass(frozen=True, kw_only=True)
class Group:
    """Slots of one outcome and reason: how many, and the bounds between which they lie."""

    entry: Entry
    count: int
    first: datetime
    last: datetime

    def joined(self, other: "Group") -> "Group":
        """The two as one."""
        return Group(
            entry=self.entry,
            count=self.count + other.count,
            first=min(self.first, other.first),
            last=max(self.last, other.last),
        )


@dataclass(frozen=True, kw_only=True)
class Account:
    """A part of a ledger: what was decided by one call."""

    job: Job
    start: datetime
    """As asked for, but no earlier than executions are kept."""
    end: datetime
    is_cut: bool
    """Whether it was asked for from earlier on: what became of that is forgotten."""
    groups: Sequence[Group]
    unreadable: Sequence[int]
    """Versions whose slots this release cannot tell; nothing of them is counted."""
    next: Place | None
    """None: the end."""

    def count(self, outcome: Outcome | None = None) -> int:
        """How many slots came to this; all that were decided, for None."""
        wanted = (one for one in self.groups if outcome in {None, one.entry.outcome})
        return sum(one.count for one in wanted)


def account(
    ports: Ports,
    owner: Owner,
    id: JobId,
    *,
    start: datetime,
    end: datetime,
    after: Place | None = None,
) -> Account:
    """What became of the slots in [start, end), the newest first, about 1,000 a call.

    Telemetry is told of what is missed. Raises NotFound, Rejected for a range that is none,
    and Conflict for a one-off.
    """
    if start >= end:
        raise Rejected(field="from", value=start.isoformat(), reason="not before to")
    if execution_of(id) is not None:
        row = inspect.one_off_row(ports, owner, id)
        raise Conflict(reason=f"{row.job_id} is a one-off: it has no slots to account for")
    job = inspect.recurring_job(ports, owner, id)
    return account_of(ports, job, start=start, end=end, after=after)


def account_of(
    ports: Ports, job: Job, *, start: datetime, end: datetime, after: Place | None = None
) -> Account:
    """As `account`, of a recurring job that was read."""
    now = ports.clock.now()
    kept_from = now - EXECUTION_KEPT
    # Asked before any row is read: what lacks then, behind this, will never be made.
    dispatched = progress.of_jobs(ports, [job.id])[job.id]
    walk = _Walk(
        ports=ports,
        job=job,
        now=now,
        start=max(start, kept_from),
        kept_from=kept_from,
        dispatched=dispatched,
    )
    following = walk.go(end, after)
    found = Account(
        job=job,
        start=walk.start,
        end=end,
        is_cut=start < kept_from,
        groups=sorted(walk.counted.values(), key=lambda one: (one.entry.outcome, one.first)),
        unreadable=walk.unreadable,
        next=following,
    )
    if missed := found.count(Outcome.MISSED):
        ports.telemetry.missed(job, missed)
    return found


@dataclass(kw_only=True)
class _Walk:
    ports: Ports
    job: Job
    now: datetime
    start: datetime
    kept_from: datetime
    dispatched: Dispatched
    budget: int = LEDGER_SLOTS
    counted: dict[Entry, Group] = field(default_factory=dict)
    unreadable: list[int] = field(default_factory=list)

    def go(self, end: datetime, after: Place | None) -> Place | None:
        """Account for what the budget is good for; where to go on, if that is not the end."""
        newer: Job | None = None
        for version in slots.newest_versions(self.ports, self.job):
            if after is None or version.version <= after.version:
                is_first = after is not None and version.version == after.version
                following = self._version(version, newer, end, after if is_first else None)
                if following is not None:
                    return following
            newer = version
            if version.since < self.start:
                break
        return None

    def _version(
        self, version: Job, newer: Job | None, end: datetime, after: Place | None
    ) -> Place | None:
        top = min(end, newer.since + _TICK) if newer else end
        is_outside = top <= self.start or version.since >= top
        if version.status is JobStatus.PAUSED or is_outside:
            return None
        if version.unreadable is not None:
            self.unreadable.append(version.version)
            return None
        part = _Part(walk=self, version=version, newer=newer, top=top, is_whole=top < end)
        return part.go(after)

    def rows(self, version: Job, some: Sequence[datetime]) -> Mapping[ExecutionId, Execution]:
        """The rows of slots: what is not there is read again strongly, before it is told so."""
        self.budget -= len(some)
        end = line(self.now) + MARGIN
        # A chain is armed until one lies beyond the line: that one tells of what lies before it.
        first = min((slot for slot in some if version.run_at(slot) > end), default=None)
        near = (slot for slot in some if slot == first or version.run_at(slot) <= end)
        ids = [version.occurrence_id(slot) for slot in near]
        rows = self.ports.executions.get_many(ids) if ids else {}
        unseen = [id for id in ids if id not in rows]
        if not unseen:
            return rows
        return {**rows, **self.ports.executions.get_many(unseen, strongly=True)}

    def is_passed(self, version: Job, slot: datetime) -> bool:
        """Whether dispatch has been where the slot's row lies, and left no backlog before it."""
        return body_of(version.occurrence_id(slot)) <= self.dispatched.committed

    def count(self, entry: Entry, *, number: int, first: datetime, last: datetime) -> None:
        if number:
            found = Group(entry=entry, count=number, first=first, last=last)
            known = self.counted.get(entry)
            self.counted[entry] = known.joined(found) if known else found


@dataclass(kw_only=True)
class _Part:
    """One version's share of a walk."""

    walk: _Walk
    version: Job
    newer: Job | None
    top: datetime
    """Its slots before this are looked at."""
    is_whole: bool
    """Whether no slot of it lies above."""
    later: Execution | None = None
    """The oldest row that was met."""
    open: Open | None = None
    first: datetime | None = None
    """The oldest slot that was looked at."""

    def go(self, after: Place | None) -> Place | None:
        if after is None or after.above is not None:
            place = self._look_above(after.above if after else None)
            return place or self._down(self.top)
        if after.later is not None:
            self.later = self.walk.ports.executions.get(self.version.occurrence_id(after.later))
        self.open = after.open
        self.first = self.version.schedule.next(after.before - _TICK) if after.open else None
        return self._down(after.before)

    def _look_above(self, above: datetime | None) -> Place | None:
        """Find the nearest row above the range, if there is one."""
        if self.is_whole:
            return None
        size = DYNAMODB_BATCH_GET if above else _NEXT_ABOVE
        reached = above or self._before(self.top) - _TICK
        ahead = self._above(reached)
        while self.walk.budget > 0:
            some = [*islice(ahead, size)]
            rows = self.walk.rows(self.version, some)
            found = (rows.get(self.version.occurrence_id(slot)) for slot in some)
            ours = (row for row in found if row and not self._is_left_behind(row))
            self.later = next(ours, None)
            if self.later is not None or len(some) < size:
                return None
            reached, size = some[-1], DYNAMODB_BATCH_GET
        return Place(version=self.version.version, before=self.top, above=reached)

    def _above(self, reached: datetime) -> Iterator[datetime]:
        """The slots after this instant that may have rows, in order."""
        begin = max(reached, self.version.since)
        end = self.newer.since if self.newer else line(self.walk.now) + MARGIN
        for slot in self.version.schedule.occurrences(begin):
            if self.newer is None or slot <= end:
                yield slot
            if slot > end:
                # The chain is armed until one slot lies beyond the line.
                return

    def _down(self, before: datetime) -> Place | None:
        planned = self._planned(before)
        while some := [*islice(planned, min(DYNAMODB_BATCH_GET, max(self.walk.budget, 0)))]:
            rows = self.walk.rows(self.version, some)
            shown = inspect.statuses(self.walk.ports, [*rows.values()])
            for slot in some:
                if slot < self.walk.start and self.open is None:
                    return None
                row = rows.get(self.version.occurrence_id(slot))
                if row is None:
                    self._take_none(slot)
                else:
                    self._close(row)
                    if not self._is_left_behind(row):
                        self.later = row
                    self._count(slot, entry_of(row, shown[row.id]))
                self.first = slot
            before = some[-1]
        if self.walk.budget > 0:
            self._close(None)
            return None
        return Place(
            version=self.version.version,
            before=before,
            later=self.later.scheduled_for if self.later else None,
            open=self.open,
        )

    def _is_left_behind(self, row: Execution) -> bool:
        """Whether an earlier version left it there: then it explains nothing of this one."""
        return row.state is State.CANCELLED and self._is_of_an_earlier_version(row)

    def _is_of_an_earlier_version(self, row: Execution) -> bool:
        # A delete is a version of its own, which plans what the one before it did.
        is_deleted = self.version.status is JobStatus.DELETED
        return row.job_version < self.version.version - (1 if is_deleted else 0)

    def _ours_before(self, slot: datetime) -> Execution | None:
        """The nearest row before a slot that tells of this version's chain.

        The others lie next to each other: none is armed further ahead than the line.
        """
        planned = self._planned(slot)
        while self.walk.budget > 0 and (some := [*islice(planned, DYNAMODB_BATCH_GET)]):
            rows = self.walk.rows(self.version, some)
            found = (rows.get(self.version.occurrence_id(one)) for one in some)
            ours = (row for row in found if row and not self._is_beside(row))
            if (nearest := next(ours, None)) is not None:
                return nearest
        return None

    def _is_beside(self, row: Execution) -> bool:
        """Whether a row says nothing of where this version's chain went on behind it.

        An earlier version had it run, or left it there; and nothing of ours comes after it.
        """
        if self._is_left_behind(row):
            return True
        is_last = self.later is None and row.last_since is None
        return is_last and self._is_of_an_earlier_version(row)

    def _told_at(self, later: Execution | None) -> datetime | None:
        """When this version's chain came to a row that an earlier version had armed there.

        That was when it armed the next of its own. Where it makes no more, nobody knows: by now.
        """
        if later is None or not self._is_of_an_earlier_version(later):
            return None
        some = [*islice(self._above(later.scheduled_for), DYNAMODB_BATCH_GET)]
        rows = self.walk.rows(self.version, some)
        for slot in some:
            row = rows.get(self.version.occurrence_id(slot))
            if row is not None and not self._is_of_an_earlier_version(row):
                return armed_at(row)
        is_over = self.newer is None and self.version.schedule.next(self.walk.now) is None
        return self.walk.now if is_over else None

    def _planned(self, before: datetime) -> Iterator[datetime]:
        lowest = max(self.version.since + _TICK, self.walk.kept_from)
        return takewhile(
            lambda slot: slot >= lowest, self.version.schedule.occurrences_before(before)
        )

    def _take_none(self, slot: datetime) -> None:
        entry = entry_of_none(self.version.run_at(slot), self.walk.now)
        is_tail = self.later is None and self.newer is None
        if is_tail and self.version.status is JobStatus.DELETED:
            # Nobody knows when that was, but that nothing was planned after its last row.
            return
        if entry != NO_EXECUTION:
            self._count(slot, entry)
            return
        if is_tail and self.version.schedule.next(self.walk.now) is not None:
            # A row comes after it, so whatever lies before it does not explain that it has none.
            is_passed = self.walk.is_passed(self.version, slot)
            self._count(slot, NO_EXECUTION if is_passed else NOT_DISPATCHED)
            return
        so_far = self.open or Open(size=0, below=0, last=slot)
        self.open = replace(
            so_far, size=so_far.size + 1, below=so_far.below + (slot < self.walk.start)
        )

    def _close(self, earlier: Execution | None) -> None:
        """Decide about the open slots, now that what lies before them is known."""
        if self.open is None or self.first is None:
            return
        hole, self.open = self.open, None
        if earlier is not None and self._is_beside(earlier):
            earlier = self._ours_before(earlier.scheduled_for)
        begin = self.first
        decided, entry = Hole(
            version=self.version,
            first=begin,
            size=hole.size,
            earlier=earlier,
            later=self.later,
            newer=self.newer,
            told_at=self._told_at(self.later),
        ).explained
        number = max(decided - hole.below, 0)
        lost = hole.size - hole.below - number
        begin = self._from(max(begin, self.walk.start))
        boundary = self._nth(self.first, decided) if 0 < decided < hole.size else hole.last
        last_decided = hole.last if not lost else self._before(boundary)
        self.walk.count(entry, number=number, first=begin, last=last_decided)
        self._count_unexplained(begin if not number else boundary, hole.last, lost)

    def _count_unexplained(self, first: datetime, last: datetime, number: int) -> None:
        """Count slots in a row without rows: what dispatch has not come to is not missed yet."""
        newest_first = self.version.schedule.occurrences_before(last + _TICK)
        coming = [
            *takewhile(
                lambda slot: not self.walk.is_passed(self.version, slot),
                islice(newest_first, number),
            )
        ]
        if coming:
            self.walk.count(NOT_DISPATCHED, number=len(coming), first=coming[-1], last=coming[0])
            last = self._before(coming[-1])
        self.walk.count(NO_EXECUTION, number=number - len(coming), first=first, last=last)

    def _from(self, instant: datetime) -> datetime:
        return self.version.schedule.next(instant - _TICK) or instant

    def _before(self, instant: datetime) -> datetime:
        return self.version.schedule.previous(instant) or instant

    def _nth(self, first: datetime, number: int) -> datetime:
        return next(islice(self.version.schedule.occurrences(first - _TICK), number, None), first)

    def _count(self, slot: datetime, entry: Entry) -> None:
        if slot >= self.walk.start:
            self.walk.count(entry, number=1, first=slot, last=slot)
