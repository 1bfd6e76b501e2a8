"""Schedule: when a job is due, as one frozen value; an invalid one cannot be made."""

import json
from collections.abc import Iterator
from dataclasses import InitVar, dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cached_property, lru_cache
from hashlib import sha256
from typing import Final, NamedTuple, NotRequired, TypedDict, assert_never, cast

from lamplighter.core.errors import Rejected, Unreadable
from lamplighter.core.limits import MAX_COUNTING_MISSES, MAX_FLEXIBLE_WINDOW, MAX_OCCURRENCES
from lamplighter.core.schedule.compile import at_timeline, cron_timeline, rate_timeline
from lamplighter.core.schedule.dst import DstFold, DstGap, DstPolicy
from lamplighter.core.schedule.exclusions import Exclusions, parse_exclusions
from lamplighter.core.schedule.expression import Dialect, parse_cron
from lamplighter.core.schedule.instants import (
    END,
    FIRST,
    TICK,
    format_instant,
    parse_instant,
)
from lamplighter.core.schedule.timeline import Timeline
from lamplighter.core.schedule.zones import PINNED, ZoneDatabase

_MILLISECOND: Final = timedelta(milliseconds=1)


class Kind(StrEnum):
    """What a schedule's text is, named by the field that says it."""

    CRON = "cron"
    RATE = "rate"
    AT = "at"


Record = TypedDict(
    "Record",
    {
        "kind": str,
        "text": str,
        "timezone": str,
        "dialect": NotRequired[str],
        "dst_gap": NotRequired[str],
        "dst_fold": NotRequired[str],
        "start_at": NotRequired[str],
        "end_at": NotRequired[str],
        "max_occurrences": NotRequired[int],
        "last_at": NotRequired[str],
        "flexible_window_ms": NotRequired[int],
        "except": NotRequired[list[str]],
        "seed": NotRequired[str],
        "anchor": NotRequired[str],
        "tzdb": str,
    },
)
"""A schedule as plain JSON; what is absent has its default."""


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """When a job is due: a sequence of instants, the same on any machine for one zone database.

    All instants are aware, in UTC, in whole milliseconds and in the years 1970–2199. A naive
    argument is a bug and raises ValueError.
    """

    kind: Kind
    text: str
    timezone: str = "UTC"
    dialect: Dialect | None = None
    """None reads `cron(…)` as eventbridge and everything else as unix."""
    dst: DstPolicy = field(default_factory=DstPolicy)
    start_at: datetime | None = None
    """No occurrence is earlier; one may be then."""
    end_at: datetime | None = None
    """No occurrence is later; one may be then."""
    max_occurrences: int | None = None
    """Counted from `start_at`; without it, from the first after `anchor`."""
    flexible_window: timedelta = timedelta(0)
    except_: tuple[str, ...] = ()
    seed: str = ""
    """What `H` and the flexible window hash: the job's id."""
    anchor: datetime | None = None
    """What an interval is counted from when there is no `start_at`: the job's creation."""
    zones: ZoneDatabase = field(default=PINNED, repr=False)
    last_at: InitVar[datetime | None] = None
    """The last of `max_occurrences`, where it was counted before; `replace` has it counted anew."""
    _known_last: datetime | None = field(init=False, repr=False, compare=False, default=None)

    def __post_init__(self, last_at: datetime | None) -> None:
        object.__setattr__(self, "_known_last", last_at)
        if self.kind is Kind.AT:
            self._refuse_repetition()
        if self.start_at and self.end_at and self.start_at > self.end_at:
            raise Rejected(field="end_at", value=self.end_at.isoformat(), reason="before start_at")
        if self.max_occurrences is not None:
            self._check_count(self.max_occurrences)
        if not timedelta(0) <= self.flexible_window <= MAX_FLEXIBLE_WINDOW:
            raise Rejected(
                field="flexible_window_seconds",
                value=self.flexible_window.total_seconds(),
                reason=f"not in 0–{MAX_FLEXIBLE_WINDOW.total_seconds():g}",
            )
        _ = self.timeline  # reads the text: it raises here or never

    @classmethod
    def from_record(cls, record: Record, *, zones: ZoneDatabase = PINNED) -> "Schedule":
        """The schedule of a record, read by the zone database at hand, whichever wrote it."""
        dialect = record.get("dialect")
        return cls(
            kind=Kind(record["kind"]),
            text=record["text"],
            timezone=record["timezone"],
            dialect=Dialect(dialect) if dialect else None,
            dst=DstPolicy(
                gap=DstGap(record.get("dst_gap", DstGap.NEXT_VALID)),
                fold=DstFold(record.get("dst_fold", DstFold.FIRST)),
            ),
            start_at=_instant("start_at", record.get("start_at")),
            end_at=_instant("end_at", record.get("end_at")),
            max_occurrences=record.get("max_occurrences"),
            flexible_window=record.get("flexible_window_ms", 0) * _MILLISECOND,
            except_=tuple(record.get("except", ())),
            seed=record.get("seed", ""),
            anchor=_instant("anchor", record.get("anchor")),
            zones=zones,
            # Another release of the zones may have it elsewhere.
            last_at=(
                _instant("last_at", record.get("last_at"))
                if record.get("tzdb") == zones.version
                else None
            ),
        )

    def to_record(self) -> Record:
        """The schedule as plain JSON, with the release of the zone database that it was read by."""
        said = {
            "kind": self.kind,
            "text": self.text,
            "timezone": self.timezone,
            "dialect": self.dialect,
            "dst_gap": None if self.dst.gap is DstGap.NEXT_VALID else self.dst.gap,
            "dst_fold": None if self.dst.fold is DstFold.FIRST else self.dst.fold,
            "start_at": self.start_at and format_instant(self.start_at),
            "end_at": self.end_at and format_instant(self.end_at),
            "max_occurrences": self.max_occurrences,
            "last_at": (last := self.last) and format_instant(last),
            "flexible_window_ms": self.flexible_window // _MILLISECOND or None,
            "except": list(self.except_) or None,
            "seed": self.seed or None,
            "anchor": self.anchor and format_instant(self.anchor),
            "tzdb": self.zones.version,
        }
        return cast("Record", {name: value for name, value in said.items() if value is not None})

    def next(self, after: datetime) -> datetime | None:
        """The first occurrence strictly after an instant."""
        return next(self.occurrences(after), None)

    def previous(self, before: datetime) -> datetime | None:
        """The last occurrence strictly before an instant."""
        return next(self.occurrences_before(before), None)

    def occurrences_before(self, before: datetime) -> Iterator[datetime]:
        """All occurrences strictly before an instant, the latest first."""
        end = min(_clamped(before), self._end)
        return self.timeline.between(self.begins_at, end, descending=True)

    def occurrences(self, after: datetime) -> Iterator[datetime]:
        """All occurrences strictly after an instant, in order."""
        # Before the first year there is nothing to be after: its first instant may be due.
        start = FIRST if _is_before_all(after) else _clamped(after) + TICK
        return self.timeline.between(max(start, self.begins_at), self._end)

    def between(self, start: datetime, end: datetime) -> Iterator[datetime]:
        """The occurrences from `start` on and before `end`, in order."""
        lo, hi = max(_clamped(start), self.begins_at), min(_clamped(end), self._end)
        return self.timeline.between(lo, hi)

    def contains(self, instant: datetime) -> bool:
        """Whether an instant is exactly one of the occurrences."""
        return next(self.between(instant, instant + TICK), None) is not None

    def run_at(self, occurrence: datetime) -> datetime:
        """When to run an occurrence: later by the same part of the flexible window each time."""
        window_ms = self.flexible_window // _MILLISECOND
        if window_ms == 0:
            return occurrence
        digest = int.from_bytes(sha256(f"{self.seed}\nwindow".encode()).digest()[:8])
        return occurrence + digest % window_ms * _MILLISECOND

    @cached_property
    def timeline(self) -> Timeline:
        """All occurrences, before `start_at`, `end_at` and `max_occurrences` are applied."""
        zone = self.zones.zone(self.timezone)
        match self.kind:
            case Kind.CRON:
                expression = parse_cron(self.text, dialect=self.dialect, seed=self.seed)
                return cron_timeline(
                    expression, zone=zone, dst=self.dst, exclusions=self.exclusions
                )
            case Kind.RATE:
                return rate_timeline(
                    self.text,
                    zone=zone,
                    dst=self.dst,
                    exclusions=self.exclusions,
                    anchor=self.start_at or self.anchor,
                )
            case Kind.AT:
                return at_timeline(self.text, zone=zone, dst=self.dst)
            case other:
                assert_never(other)

    @cached_property
    def exclusions(self) -> Exclusions:
        """What `except_` says."""
        return parse_exclusions(self.except_, dialect=self.dialect, seed=self.seed)

    @property
    def begins_at(self) -> datetime:
        """No occurrence is earlier."""
        if self.start_at:
            return self.start_at
        counts_from_anchor = self.max_occurrences is not None and self.anchor is not None
        return self.anchor + TICK if counts_from_anchor and self.anchor else FIRST

    @property
    def _end(self) -> datetime:
        end = self.end_at + TICK if self.end_at else END
        last = self.last
        return min(end, last + TICK) if last else end

    @property
    def last(self) -> datetime | None:
        """The last of `max_occurrences`; None where they are not limited, or not so many."""
        if self.max_occurrences is None:
            return None
        return self._known_last or _count(self).last

    @property
    def is_countable(self) -> bool:
        """Whether the end of `max_occurrences` is known, rather than too costly to find."""
        return self.max_occurrences is None or bool(self._known_last) or _count(self).is_complete

    def _refuse_repetition(self) -> None:
        repeating = {
            "start_at": self.start_at,
            "end_at": self.end_at,
            "max_occurrences": self.max_occurrences,
            "except": list(self.except_) or None,
        }
        for name, value in repeating.items():
            if value is not None:
                raise Rejected(field=name, value=value, reason="makes no sense for a single time")

    def _check_count(self, count: int) -> None:
        if not 1 <= count <= MAX_OCCURRENCES:
            reason = f"not in 1–{MAX_OCCURRENCES}"
            raise Rejected(field="max_occurrences", value=count, reason=reason)
        if self.start_at is None and self.anchor is None:
            reason = "is counted from start_at, and there is none"
            raise Rejected(field="max_occurrences", value=count, reason=reason)


@dataclass(frozen=True, kw_only=True)
class UnreadableSchedule(Schedule):
    """What is stored of a schedule that this release of the grammar or the zones cannot read.

    It can be shown, kept and replaced; whatever asks it for an occurrence gets Unreadable.
    """

    stored: str
    """The record, as JSON text."""
    reason: str

    def __post_init__(self, last_at: datetime | None) -> None:
        """Nothing of it is checked: it was accepted once."""

    def to_record(self) -> Record:
        record: Record = json.loads(self.stored)
        return record

    def run_at(self, occurrence: datetime) -> datetime:
        del occurrence
        raise Unreadable(self.reason)

    @cached_property
    def timeline(self) -> Timeline:
        raise Unreadable(self.reason)


def read_record(record: Record) -> Schedule:
    """The schedule of a record, or what can be told of one that cannot be read any more."""
    try:
        return Schedule.from_record(record)
    except (Rejected, KeyError, TypeError, ValueError) as error:
        kind = record.get("kind")
        return UnreadableSchedule(
            kind=Kind.RATE if kind == Kind.RATE.value else Kind.CRON,
            text=str(record.get("text")),
            timezone=str(record.get("timezone")),
            seed=str(record.get("seed", "")),
            stored=json.dumps(record),
            reason=f"its schedule cannot be read: {error}",
        )


class _Count(NamedTuple):
    """The last of `max_occurrences`, and whether None means that there are not so many."""

    last: datetime | None
    is_complete: bool = True


@lru_cache(maxsize=1024)
def _count(schedule: Schedule) -> _Count:
    due = missed = 0
    for instant in schedule.timeline.tries(schedule.begins_at, END):
        if instant is None:
            missed += 1
        else:
            due += 1
        if due == schedule.max_occurrences:
            return _Count(instant)
        if missed > MAX_COUNTING_MISSES:
            return _Count(None, is_complete=False)
    return _Count(None)


def _is_before_all(moment: datetime) -> bool:
    return moment.tzinfo is not None and moment < FIRST


def _clamped(moment: datetime) -> datetime:
    """A moment in UTC, no further out than the years that have occurrences."""
    if moment.tzinfo is None:
        raise ValueError(f"{moment} is naive")
    # Compared before it is converted: the conversion overflows at the ends of the calendar.
    return min(max(moment, FIRST), END).astimezone(UTC)


def _instant(field: str, text: str | None) -> datetime | None:
    return None if text is None else parse_instant(field, text)
