"""Time-limited ownership of a partition's work, and what an owner hands to the next."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from lamplighter.core.buckets import Position


class Kind(StrEnum):
    """The two kinds of partition work, each under a lease of its own."""

    DISPATCH = "dispatch"
    SWEEP = "sweep"


@dataclass(frozen=True, kw_only=True)
class Work:
    """One partition's work of one kind: what a lease is held on."""

    partition: int
    kind: Kind


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
class Grant:
    """The lease on one work, at an epoch higher than every earlier grant's.

    The watermark says how far the work was done; an intent, that the page behind it may
    have been done in part.
    """

    work: Work
    epoch: int
    watermark: Position
    intent: Intent | None


@dataclass(frozen=True, kw_only=True)
class Held:
    """Somebody else has the lease until then."""

    until: datetime


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How many shards a minute has and how many partitions share them.

    Partition p of n holds shards [p·shards/n, (p+1)·shards/n). No row is older than
    `effective_from`: a partition without a control item starts there.
    """

    shards: int
    partitions: int
    effective_from: datetime

    def __post_init__(self) -> None:
        if not 1 <= self.partitions <= self.shards:
            raise ValueError(f"{self.partitions} partitions of {self.shards} shards")

    def shards_of(self, partition: int) -> range:
        """The shards that a partition owns; every shard belongs to exactly one."""
        return range(
            partition * self.shards // self.partitions,
            (partition + 1) * self.shards // self.partitions,
        )

    def partition_of(self, shard: int) -> int:
        """The partition that owns a shard."""
        return ((shard + 1) * self.partitions - 1) // self.shards
