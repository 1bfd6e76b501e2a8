"""Which faults strike: each is a decision with a name, the same in every replay of its seed."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from lamplighter.core.errors import Rejected


class Fault(StrEnum):
    """What can go wrong. The first ones strike at a port call, the others from outside."""

    CRASH_BEFORE = "crash-before"
    """The process dies before a call takes effect."""
    CRASH_AFTER = "crash-after"
    """The process dies after a call took effect, before it has the answer."""
    PARTIAL = "partial"
    """Of a call that writes several things some are written; then it fails, or the process dies."""
    PAUSE = "pause"
    """The process is frozen, for a second or past every lease that it holds: a zombie."""
    UNAVAILABLE = "unavailable"
    """The service does not answer; nothing was written."""
    FATE_UNKNOWN = "fate-unknown"
    """The service does not answer, and what was asked for has taken effect."""
    HANDLER_DIES = "handler-dies"
    """The process dies while a handler runs."""
    SKEW = "skew"
    """A host's wall clock is up to half a second off."""
    JUMP = "jump"
    """A host's wall clock is set, forward or back, within that bound."""
    DUPLICATE = "duplicate"
    """A message is delivered twice."""
    DELAY = "delay"
    """A message is visible later than it should be, by up to 90 s."""
    LOSS = "loss"
    """A message is never delivered."""
    REORDER = "reorder"
    """Later messages are received before earlier ones."""
    REDRIVE = "redrive"
    """A message goes to its dead-letter queue in place of a worker."""
    PURGE = "purge"
    """Somebody empties the lanes."""
    TICK_LATE = "tick-late"
    """A tick comes up to a minute late."""
    TICK_TWICE = "tick-twice"
    TICK_MISSING = "tick-missing"
    WORK_TWICE = "work-twice"
    """A partition's work item is delivered twice."""
    WORK_LOST = "work-lost"
    WORK_LATE = "work-late"
    """A partition's work item is delivered up to a minute late."""
    SHORT_OF_TIME = "short-of-time"
    """A visit of dispatch or of the sweep has no time for all that it finds."""
    THROTTLE = "throttle"
    """For a while, most calls of one service are refused."""
    HOT_PARTITION = "hot-partition"
    """For a while, every call about one shard takes seconds."""
    OUTAGE = "outage"
    """For a while, nobody ticks, or dispatches, or sweeps, or works."""
    RESHARD = "reshard"
    """The stack is deployed anew with other shards and partitions."""
    DEPLOY = "deploy"
    """New workers take the place of those that run, whose processes end; they receive nothing
    that they can run for some minutes, as after a bad release. Some tries are broken off for it, or
    come to a worker that does not know their task."""


ALL = frozenset(Fault)
_PLAYS = "plays "
NONE: frozenset[Fault] = frozenset()


def parse(text: str) -> frozenset[Fault]:
    """What `--faults` says: all, none, or names with commas; raises Rejected for another."""
    if text in {"all", "none"}:
        return ALL if text == "all" else NONE
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in ALL:
            known = ", ".join(fault.value for fault in Fault)
            raise Rejected(field="faults", value=name, reason=f"not all, none, or of: {known}")
    return frozenset(Fault(name) for name in names)


@dataclass(kw_only=True)
class Decisions:
    """What is decided in one history, fault by fault and whim by whim.

    Each has a name: of the actor that it strikes, the number of its call, and the kind. With
    `only`, all others are decided against: so a history is replayed with fewer of them.
    """

    faults: frozenset[Fault]
    only: frozenset[str] | None = None
    is_over: bool = False
    """No fault strikes any more."""
    taken: dict[str, Fault | None] = field(default_factory=dict)
    """Those that were decided for, in order: of a fault its kind, of an owner's whim None."""

    def strikes(self, fault: Fault, *where: object) -> bool:
        """Whether a fault that was drawn strikes here."""
        if self.is_over or fault not in self.faults:
            return False
        name = " ".join([*map(str, where), fault.value])
        if self.only is not None and name not in self.only:
            return False
        self.taken[name] = fault
        return True

    def happens(self, whim: str) -> bool:
        """Whether what an owner has in mind is done."""
        if self.only is not None and whim not in self.only:
            return False
        self.taken[whim] = None
        return True

    def plays(self, feature: str) -> bool:
        """Whether what is made use of in the history is made use of."""
        return self.happens(f"{_PLAYS}{feature}")

    def counts(self) -> Counter[Fault]:
        """How many faults of each kind have struck."""
        return counted(self.taken.values())


def group_of(name: str, fault: Fault | None) -> str:
    """What a decision is left out with, to begin with: its kind, or the job that it is about."""
    if fault is not None:
        return fault.value
    return f"job {name.rpartition('-')[2]}" if is_of_a_job(name, fault) else name


def is_of_a_job(name: str, fault: Fault | None) -> bool:
    """Whether a decision is about a job: no fault, and nothing that a whole history is with."""
    return fault is None and not name.startswith(_PLAYS)


def counted(taken: Iterable[Fault | None]) -> Counter[Fault]:
    """How many of each kind these are."""
    return Counter(fault for fault in taken if fault is not None)
