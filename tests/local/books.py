"""What tries wrote into a book (`probes.book`), read: who lived when, and who at once."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Try:
    """One call of a handler, as far as it came."""

    id: str
    execution: str
    attempt: int
    pid: int
    begun_wall: float
    """Seconds since the epoch, as the API's instants."""
    begun: float
    """Monotonic, as the rest."""
    seen: float
    """Its last word; it may have lived for half a second more, if it did not say that it ended."""
    marks: tuple[float, ...]
    end: str | None
    """`returned`, `raised`, `stopped`; None for one that died, or goes on."""


def tries_of(book: Path) -> Sequence[Try]:
    """In the order in which they began."""
    if not book.exists():
        return []
    lines = [json.loads(line) for line in book.read_text().splitlines()]
    of_one = itemgetter("try")
    pages = [[*page] for _, page in groupby(sorted(lines, key=of_one), of_one)]
    return sorted((_try_of(page) for page in pages), key=lambda one: one.begun)


def at_once(tries: Iterable[Try]) -> int:
    """The most that lived at one instant."""
    steps = sorted(
        step for one in tries for step in ((one.begun, 1), (one.seen, -1)) if one.seen > one.begun
    )
    living = most = 0
    for _, step in steps:
        living += step
        most = max(most, living)
    return most


def _try_of(page: Sequence[Mapping[str, str | int | float]]) -> Try:
    first, last = page[0], page[-1]
    return Try(
        id=str(first["try"]),
        execution=str(first["execution"]),
        attempt=int(first["attempt"]),
        pid=int(first["pid"]),
        begun_wall=float(first["wall"]),
        begun=float(first["monotonic"]),
        seen=float(last["monotonic"]),
        marks=tuple(float(line["monotonic"]) for line in page),
        end=str(last["what"]) if last["what"] in {"returned", "raised", "stopped"} else None,
    )


def pairs(tries: Sequence[Try]) -> Iterator[tuple[Try, Try]]:
    """Each two of them, the one that began first before the other."""
    for place, earlier in enumerate(tries):
        for later in tries[place + 1 :]:
            yield earlier, later
