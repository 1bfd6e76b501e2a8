"""Zone rules from one release of the IANA database: the pinned package, never the machine's."""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from difflib import get_close_matches
from functools import cached_property, lru_cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

from lamplighter.core.errors import Rejected
from lamplighter.core.schedule.instants import FIRST, TICK

_ALIKE: Final = 0.75
"""From which likeness on, 0–1, a name is taken for another one misspelled."""
_SHORT: Final = 5
"""A name of so many characters may be in another case, but not misspelled."""
# No zone has changed its offset twice within a week since 1969 (the closest, in Brazil and in
# Palestine, are seven days apart; a test walks all zones), so looking every third day sees each
# change, and no two changes lie within each other's gap or fold.
_STRIDE: Final = timedelta(days=3)
_CHUNK: Final = timedelta(days=366)
_NEAR: Final = timedelta(days=2)
"""Beyond every gap and fold, the longest of which is 24 hours."""
_SECOND: Final = timedelta(seconds=1)
_VERSION: Final = re.compile(r'IANA_VERSION = "([0-9a-z]+)"')
# In the package's list, but a placeholder for a machine whose zone nobody has set.
_NOT_A_PLACE: Final = "Factory"


class Change(NamedTuple):
    """The instant from which a zone's offset is another one."""

    at: datetime
    before: timedelta
    after: timedelta


class Span(NamedTuple):
    """A stretch of time with one offset, and the offsets on either side of it.

    Where a neighbour has the same offset, the span was cut by whoever asked, at least two
    days away from any change.
    """

    start: datetime
    end: datetime
    before: timedelta
    offset: timedelta
    after: timedelta


class Zone:
    """One zone's rules: which offset holds when."""

    def __init__(self, name: str, rules: ZoneInfo) -> None:
        self.name = name
        self._rules = rules

    def offset_at(self, instant: datetime) -> timedelta:
        """Local time − UTC at an aware instant."""
        return _offset(self._rules, instant)

    def spans(self, start: datetime, end: datetime, *, descending: bool = False) -> Iterator[Span]:
        """Spans in order, together from two days before `start` to two days after `end`."""
        start, end = start - _NEAR, end + _NEAR
        return self._spans_down(start, end) if descending else self._spans_up(start, end)

    def changes(
        self, start: datetime, end: datetime, *, descending: bool = False
    ) -> Iterator[Change]:
        """The changes after `start` and before `end`, in order."""
        chunks = range((start - FIRST) // _CHUNK, (end - FIRST) // _CHUNK + 1)
        for chunk in reversed(chunks) if descending else chunks:
            found = _changes_in(self._rules, chunk)
            for change in reversed(found) if descending else found:
                if start < change.at < end:
                    yield change

    def _spans_up(self, start: datetime, end: datetime) -> Iterator[Span]:
        before = offset = self.offset_at(start)
        for change in self.changes(start, end):
            yield Span(start, change.at, before, offset, change.after)
            start, before, offset = change.at, offset, change.after
        yield Span(start, end, before, offset, offset)

    def _spans_down(self, start: datetime, end: datetime) -> Iterator[Span]:
        # A change at the very end is not yet in force before it.
        after = offset = self.offset_at(end - TICK)
        for change in self.changes(start, end, descending=True):
            yield Span(change.at, end, change.before, offset, after)
            end, offset, after = change.at, change.before, offset
        yield Span(start, end, offset, offset, after)


class ZoneDatabase:
    """One release: the names it has and their rules.

    `root` is the folder of a `tzdata` package, installed, unpacked or inside a wheel.
    """

    def __init__(self, root: Traversable) -> None:
        self._root = root
        self._zones: dict[str, Zone] = {}

    @cached_property
    def version(self) -> str:
        """The release's IANA name, such as 2026f."""
        text = self._root.joinpath("__init__.py").read_text(encoding="utf-8")
        match = _VERSION.search(text)
        if match is None:
            raise ValueError(f"{self._root} is not a tzdata package: it names no release")
        return match[1]

    @cached_property
    def names(self) -> frozenset[str]:
        """Every name that `zone` accepts, spelled exactly."""
        text = self._root.joinpath("zones").read_text(encoding="utf-8")
        return frozenset(text.split()) - {_NOT_A_PLACE}

    def zone(self, name: object) -> Zone:
        """The zone of that exact name; any other value is Rejected and opens no file."""
        if not isinstance(name, str) or name not in self.names:
            raise Rejected(field="timezone", value=name, reason=self._why_not(name))
        if name not in self._zones:
            self._zones[name] = Zone(name, self._read(name))
        return self._zones[name]

    def _read(self, name: str) -> ZoneInfo:
        with self._root.joinpath("zoneinfo", *name.split("/")).open("rb") as file:
            return ZoneInfo.from_file(file, key=name)

    def _why_not(self, name: object) -> str:
        reason = f"not a zone of the IANA database {self.version}"
        if not isinstance(name, str) or len(name) > 64:
            return reason
        spelled = {known.lower(): known for known in self.names}
        # Of a few letters two alike make no likeness: CST is not meant to be UCT.
        cutoff = _ALIKE if len(name) > _SHORT else 1.0
        close = get_close_matches(name.lower(), spelled, n=1, cutoff=cutoff)
        meant = [spelled[one] for one in close] or self._in_some_area(name)
        return f"{reason}; {meant[0]} is" if len(meant) == 1 else reason

    def _in_some_area(self, place: str) -> list[str]:
        """The zones of a place that is said without its area."""
        said = f"/{place.lower()}"
        # Etc/GMT+1 is west of Greenwich, which nobody means by GMT+1.
        named = (known for known in self.names if not known.startswith("Etc/"))
        return [known for known in named if known.lower().endswith(said)]


PINNED: Final = ZoneDatabase(resources.files("tzdata"))
"""The release that this version of Lamplighter is pinned to."""
TZDB_VERSION: Final = PINNED.version


def _offset(rules: ZoneInfo, instant: datetime) -> timedelta:
    offset = instant.astimezone(rules).utcoffset()
    if offset is None:
        raise ValueError(f"{rules.key} has no offset at {instant}")
    return offset


@lru_cache(maxsize=8192)
def _changes_in(rules: ZoneInfo, chunk: int) -> tuple[Change, ...]:
    """The changes after the chunk's start, up to and including its end."""
    start = FIRST + chunk * _CHUNK
    end = start + _CHUNK
    found: list[Change] = []
    before = _offset(rules, start)
    while start < end:
        stop = min(start + _STRIDE, end)
        after = _offset(rules, stop)
        if after != before:
            found.append(Change(_first_with(rules, after, start, stop), before, after))
        start, before = stop, after
    return tuple(found)


def _first_with(
    rules: ZoneInfo, offset: timedelta, without: datetime, having: datetime
) -> datetime:
    """The first second that has the offset, by bisection between one without and one with."""
    while having - without > _SECOND:
        middle = without + (having - without) // (2 * _SECOND) * _SECOND
        if _offset(rules, middle) == offset:
            having = middle
        else:
            without = middle
    return having
