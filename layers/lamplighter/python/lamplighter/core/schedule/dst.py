"""From wall-clock labels to instants: what happens to labels that a clock skips or repeats.

Each span of one offset is taken by itself: the labels inside it, shifted by its offset, are
instants in order. What policies change is where a span's labels begin and end, and whether
labels that no span has (a gap's) are put somewhere.
"""

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from lamplighter.core.schedule.walls import Walls
from lamplighter.core.schedule.zones import Span, Zone


class DstGap(StrEnum):
    """What becomes of a label that the clock skips."""

    NEXT_VALID = "NEXT_VALID"
    """It is due at the first instant after the gap; several are due there once."""
    SHIFT = "SHIFT"
    """It is due as long after the gap's start as the label is: 02:30 becomes 03:30."""
    SKIP = "SKIP"
    """It is not due that day."""


class DstFold(StrEnum):
    """Which of a label's two instants counts, when the clock shows it twice."""

    FIRST = "FIRST"
    SECOND = "SECOND"
    BOTH = "BOTH"


@dataclass(frozen=True, kw_only=True)
class DstPolicy:
    """A rule for either kind of change."""

    gap: DstGap = DstGap.NEXT_VALID
    fold: DstFold = DstFold.FIRST


ELAPSED: Final = DstPolicy(gap=DstGap.SKIP, fold=DstFold.BOTH)
"""An instant is due if and only if the clock then shows a label."""

# Windows keep a search for the next change of a zone that has none to a year at a time.
_WINDOW: Final = timedelta(days=366)


def instants(
    walls: Walls,
    zone: Zone,
    policy: DstPolicy,
    start: datetime,
    end: datetime,
    *,
    descending: bool = False,
) -> Iterator[datetime]:
    """The instants of a stream of labels from `start` on and before `end`, each once, in order."""
    for lo, hi in _windows(start, end, descending=descending):
        for span in zone.spans(lo, hi, descending=descending):
            own = _own(walls, span, policy.fold, lo, hi, descending=descending)
            moved = _moved(walls, span, policy.gap, lo, hi)
            if moved:
                yield from _merged(sorted(moved, reverse=descending), own, descending=descending)
            else:
                yield from own


def _windows(
    start: datetime, end: datetime, *, descending: bool
) -> Iterator[tuple[datetime, datetime]]:
    while start < end:
        if descending:
            cut = max(start, end - _WINDOW)
            yield cut, end
            end = cut
        else:
            cut = min(end, start + _WINDOW)
            yield start, cut
            start = cut


def _own(
    walls: Walls, span: Span, fold: DstFold, lo: datetime, hi: datetime, *, descending: bool
) -> Iterator[datetime]:
    """The instants whose labels the span itself shows, less those that a fold gives to another."""
    first, last = span.start + span.offset, span.end + span.offset
    if fold is DstFold.FIRST:
        first = max(first, span.start + span.before)
    elif fold is DstFold.SECOND:
        last = min(last, span.end + span.after)
    first, last = max(first, lo + span.offset), min(last, hi + span.offset)
    for label in walls.between(first, last, descending=descending):
        yield label - span.offset


def _moved(walls: Walls, span: Span, gap: DstGap, lo: datetime, hi: datetime) -> list[datetime]:
    """The instants, in the span, of labels that the clock skipped at its start."""
    width = span.offset - span.before
    if gap is DstGap.SKIP or width <= timedelta(0) or span.start + width <= lo:
        return []
    skipped = walls.between(span.start + span.before, span.start + span.offset)
    if gap is DstGap.NEXT_VALID:
        moved = [span.start] if next(skipped, None) is not None else []
    else:
        moved = [label - span.before for label in skipped]
    return [instant for instant in moved if lo <= instant < hi]


def _merged(
    moved: Iterable[datetime], own: Iterable[datetime], *, descending: bool
) -> Iterator[datetime]:
    last = None
    for instant in heapq.merge(moved, own, reverse=descending):
        if instant != last:
            yield instant
        last = instant
