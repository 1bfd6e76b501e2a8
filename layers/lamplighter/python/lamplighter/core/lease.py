"""Time-limited ownership of a partition's work, and what an owner hands to the next."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from lamplighter.core.buckets import Position, before
from lamplighter.core.limits import SWEEP_AFTER


class Kind(StrEnum):
    """The two kinds of partition work, each under a lease of its own."""

    DISPATCH = "dispatch"
    SWEEP = "sweep"


class Ticker(StrEnum):
    """Who ticks: two, each by itself, so that the failure of one is no more than an alarm."""

    SCHEDULE = "schedule"
    """EventBridge Scheduler, which calls the function."""
    RULE = "rule"
    """A rule of EventBridge, by way of the work queue."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """One partition's work of one kind: what a lease is held on."""

    partition: int
    kind: Kind
    generation: int = 0
    """Of the layout that the partition is one of."""


@dataclass(frozen=True, kw_only=True)
class WorkItem:
    """Work that somebody is asked to do.

    A tick asks for all of it. Whoever does it asks once more, for later: so it goes on where no
    tick comes. Such an item says which grant armed it, and is void once a later one has armed
    another: so however many ticks come, one item of each work outlives them.
    """

    work: Work
    armed_by: int | None = None
    """The epoch of that grant; None: a tick's."""


@dataclass(frozen=True, kw_only=True)
class Intent:
    """A page about to be done: rows in (after, until], decided as of `decided_at`.

    Whoever finds it redoes the page and arms as of the same instant, so every owner of the page
    arms the same rows. What still waits is judged by the clock.
    """

    after: Position
    until: Position
    decided_at: datetime


@dataclass(frozen=True, kw_only=True)
class Backlog:
    """Rows in (after, until] that dispatch left behind, to serve what is due now: all overdue.

    It is kept for a while after the last of them was sent. Until then the sweep, which takes
    what is overdue for lost, stays behind what was sent long enough ago: what it has not come to
    is its own backlog meanwhile, whose marks are dispatch's watermark (`noting`).
    """

    after: Position
    until: Position
    first: Position
    """Where `after` was when dispatch came back."""
    since: datetime
    """When that was."""
    mark: Position
    """Where `after` was at `marked_at`."""
    marked_at: datetime
    settled: Position
    """Where it was a mark before: all up to here was sent `limits.SWEEP_AFTER` ago."""
    sent: int = 0
    """How many messages it has come to."""

    @classmethod
    def between(
        cls, after: Position, until: Position, *, now: datetime, settled: Position
    ) -> "Backlog":
        """What was not dispatched when dispatch came back, now."""
        return cls(
            after=after,
            until=until,
            first=after,
            since=now,
            mark=after,
            marked_at=now,
            settled=settled,
        )

    @property
    def is_drained(self) -> bool:
        """Whether all of it was sent."""
        return self.after >= self.until

    def moved(self, after: Position, *, sent: int, now: datetime) -> "Backlog | None":
        """The backlog sent up to there; None when it is over, and the sweep may pass."""
        moved = replace(self, after=after, sent=self.sent + sent)
        if now - self.marked_at < SWEEP_AFTER:
            return moved
        if self.mark >= self.until:
            return None
        return replace(moved, settled=self.mark, mark=after, marked_at=now)

    def noting(self, watermark: Position, now: datetime) -> "Backlog":
        """The sweep's, marked where dispatch is: what it was at a mark ago was sent a while ago."""
        if now - self.marked_at < SWEEP_AFTER:
            return self
        return replace(self, settled=self.mark, mark=watermark, marked_at=now)


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a work was done."""

    watermark: Position
    backlog: Backlog | None = None

    @property
    def committed(self) -> Position:
        """Everything up to here was done."""
        if self.backlog is None or self.backlog.is_drained:
            return self.watermark
        return self.backlog.after

    @property
    def settled(self) -> Position:
        """Everything up to here was done long enough ago for the sweep to come by."""
        return self.backlog.settled if self.backlog else self.watermark

    def has(self, position: Position) -> bool:
        """Whether the row at a position was done."""
        if self.backlog and self.backlog.after < position <= self.backlog.until:
            return False
        return position <= self.watermark


@dataclass(frozen=True, kw_only=True)
class Grant:
    """The lease on one work, at an epoch higher than every earlier grant's.

    The watermark says how far the work was done, but for the backlog; an intent, that the page
    behind one of the two may have been done in part.
    """

    work: Work
    epoch: int
    watermark: Position
    intent: Intent | None
    backlog: Backlog | None = None
    armed: int = 0
    """The epoch of the latest grant that armed the next item; written with each advance."""

    @property
    def progress(self) -> Progress:
        """How far the work was done when it was granted, or last advanced."""
        return Progress(watermark=self.watermark, backlog=self.backlog)


@dataclass(frozen=True, kw_only=True)
class Held:
    """Somebody else has the lease until then."""

    until: datetime


@dataclass(frozen=True, kw_only=True)
class Void:
    """The item that asks for it was armed by a grant before the latest that armed one."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How many shards a minute has and how many partitions share them, from a minute on.

    New ids are put into `shards` shards, but rows lie in `width`: a recurring job keeps the
    shard that it was made with, and a row that is due in a year its own. So the width never
    shrinks. Partition p of n works on the shards [p·width/n, (p+1)·width/n) of the minutes from
    `effective_from` until `ends_at`, and starts there: no minute belongs to two layouts.
    """

    shards: int
    partitions: int
    effective_from: datetime
    ends_at: datetime | None = None
    """Where the next layout begins; None: there is none yet."""
    generation: int = 0
    widest_before: int = 0
    """The most shards that any earlier layout had."""

    def __post_init__(self) -> None:
        if not 1 <= self.partitions <= self.width or self.shards < 1:
            raise ValueError(f"{self.partitions} partitions of {self.shards} shards")

    @property
    def width(self) -> int:
        """How many shards have to be looked at."""
        return max(self.shards, self.widest_before)

    @property
    def end(self) -> Position | None:
        """The position before which all of its rows lie."""
        return before(self.ends_at) if self.ends_at else None

    def is_over(self, progress: Progress) -> bool:
        """Whether a work of it that has come so far has nothing left to do, now or later."""
        return self.end is not None and progress.committed >= self.end

    def shards_of(self, partition: int) -> range:
        """The shards that a partition owns; every shard belongs to exactly one."""
        return range(
            partition * self.width // self.partitions,
            (partition + 1) * self.width // self.partitions,
        )

    def partition_of(self, shard: int) -> int:
        """The partition that owns a shard."""
        return ((shard + 1) * self.partitions - 1) // self.width

    def work_on(self, shard: int, kind: Kind) -> Work:
        """The work of one kind that a shard belongs to."""
        return Work(partition=self.partition_of(shard), kind=kind, generation=self.generation)

    def works(self) -> Iterator[Work]:
        """All the work that there is in it."""
        for kind in Kind:
            for partition in range(self.partitions):
                yield Work(partition=partition, kind=kind, generation=self.generation)


@dataclass(frozen=True, kw_only=True)
class Layouts:
    """The layouts whose minutes may still have work, oldest first; each ends as the next begins.

    Everybody knows one for longer than the look-ahead before it begins
    (`limits.LAYOUT_AHEAD`), so nobody works past the end of the one before it.
    """

    of: Sequence[Layout] = field(default=())

    def at(self, instant: datetime) -> Layout:
        """The layout of the bucket that an instant lies in."""
        begun = [one for one in self.of if one.effective_from <= instant]
        return begun[-1] if begun else self.of[0]

    def of_generation(self, generation: int) -> Layout | None:
        """None when it is over and done with, or not known yet."""
        return next((one for one in self.of if one.generation == generation), None)

    @property
    def latest(self) -> Layout:
        """The last one, which may not have begun."""
        return self.of[-1]

    def reached_by(self, instant: datetime) -> Sequence[Layout]:
        """Those that begin no later."""
        return [one for one in self.of if one.effective_from <= instant]

    def changed(self, *, shards: int, partitions: int, effective_from: datetime) -> "Layouts":
        """With another one from then on."""
        last = self.latest
        if effective_from <= last.effective_from:
            raise ValueError(f"a layout from {effective_from}, before {last.effective_from}")
        following = Layout(
            shards=shards,
            partitions=partitions,
            effective_from=effective_from,
            generation=last.generation + 1,
            widest_before=last.width,
        )
        return Layouts(of=(*self.of[:-1], replace(last, ends_at=effective_from), following))

    def without_first(self) -> "Layouts":
        """Without the oldest, all of whose work is done."""
        return Layouts(of=(*self.of[1:],))
