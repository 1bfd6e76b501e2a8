"""What is read back is what was written, or Damaged: an item may be mended by hand, or restored.

Each of these takes a value as DynamoDB gives it, or raises what `reads` makes Damaged of.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from types import TracebackType
from typing import Any, Concatenate, Final, ParamSpec, TypeVar, cast

from lamplighter.core.buckets import Position, from_ms, instant_of
from lamplighter.core.errors import Damaged, Rejected

Values = Mapping[str, Any]
"""An item, or a part of one, in Python's types. None: the attribute is not there."""

P = ParamSpec("P")
T = TypeVar("T")
V = TypeVar("V", bound=Values | None)

_MEANINGLESS: Final = (
    ArithmeticError,
    AttributeError,
    LookupError,
    Rejected,
    RecursionError,
    TypeError,
    ValueError,
)
_EXACT: Final = 10**18  # as milliseconds more than any duration; DynamoDB holds 38 digits
# The year 9000: whatever is added to an instant is one, too.
_LAST_MS: Final = 221_845_392_000_000


@dataclass(frozen=True, kw_only=True)
class Named:
    """What can be told of an item that cannot be read back."""

    id: str
    owner: str | None = None
    about: str | None = None


Told = Callable[[Damaged], None]


def nobody(damaged: Damaged) -> None:
    """Who is told where nobody counts."""


@dataclass(frozen=True)
class Reader:
    """Reads items, and has what cannot be read counted: `told` is called for each, each time."""

    told: Told

    def one(self, read: Callable[[Values], T], values: Values) -> T:
        """What it reads; raises Damaged."""
        try:
            return read(values)
        except Damaged as damaged:
            self.told(damaged)
            raise

    def each(self, read: Callable[[Values], T], many: Iterable[Values]) -> Iterator[T]:
        """Those that can be read; the others are left out."""
        for values in many:
            with suppress(Damaged):
                yield self.one(read, values)


def reads(
    kind: str, *, named: Callable[[Values], Named]
) -> Callable[[Callable[Concatenate[V, P], T]], Callable[Concatenate[V, P], T]]:
    """Have what reads an item of this kind raise Damaged, and nothing else."""

    def decorate(read: Callable[Concatenate[V, P], T]) -> Callable[Concatenate[V, P], T]:
        @functools.wraps(read)
        def call(values: V, /, *args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return read(values, *args, **kwargs)
            except _MEANINGLESS:
                # What was raised may quote a payload, and goes no further.
                found: Values = {} if values is None else values
            # Read once more, slowly, to see at what it fails.
            attribute = _culprit(found, lambda traced: read(cast("V", traced), *args, **kwargs))
            name = named(found)
            raise Damaged(
                kind=kind, id=name.id, attribute=attribute, owner=name.owner, about=name.about
            )

        return call

    return decorate


def text(value: object) -> str:
    """A text, which may be empty."""
    if not isinstance(value, str):
        raise TypeError("no text")
    return value


def texts(value: object) -> Sequence[str]:
    """A list of texts."""
    return [text(one) for one in listed(value)]


def listed(value: object) -> Sequence[Any]:
    """A list."""
    if not isinstance(value, list | tuple):
        raise TypeError("no list")
    return value


def flag(value: object) -> bool:
    """A yes or no."""
    if not isinstance(value, bool):
        raise TypeError("neither true nor false")
    return value


def integer(value: object) -> int:
    """A whole number of any sign."""
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise TypeError("no number")
    number = int(value)
    if number != value or not -_EXACT < number < _EXACT:
        raise ValueError("no whole number of ours")
    return number


def count(value: object) -> int:
    """A whole number from 0."""
    number = integer(value)
    if number < 0:
        raise ValueError("less than nothing")
    return number


def ordinal(value: object) -> int:
    """A whole number from 1."""
    number = integer(value)
    if number < 1:
        raise ValueError("less than one")
    return number


def instant(value: object) -> datetime:
    """The instant of whole milliseconds since 1970."""
    ms = count(value)
    if ms > _LAST_MS:
        raise ValueError("after the year 9000")
    return from_ms(ms)


def position(value: object) -> Position:
    """A place in the order of all rows, or just before one."""
    found = Position(text(value))
    instant_of(found)
    return found


def maybe(read: Callable[[Any], T], value: object) -> T | None:
    """What is read, if there is anything."""
    return None if value is None else read(value)


def whatever(read: Callable[[Any], T], value: object) -> T | None:
    """What is read, if that can be."""
    try:
        return maybe(read, value)
    except _MEANINGLESS:
        return None


class _Traced(dict[str, Any]):
    """Values that note what of them was asked last."""

    def __init__(self, values: Values, trail: list[str], within: str = "") -> None:
        super().__init__(values)
        self._trail = trail
        self._within = within

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 -- an item's
        self._trail.append(f"{self._within}{name}")
        return self._traced(name, super().__getitem__(name))

    def get(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 -- an item's
        self._trail.append(f"{self._within}{name}")
        return self._traced(name, super().get(name, default))

    def _traced(self, name: str, value: object) -> object:
        if not isinstance(value, dict):
            return value
        return _Traced(value, self._trail, f"{self._within}{name}.")


def _culprit(values: Values, read: Callable[[Values], object]) -> str | None:
    """The attribute that cannot be read; None: each can, but not all of them together."""
    trail: list[str] = []
    try:
        read(_Traced(values, trail))
    except _MEANINGLESS as error:
        last = trail[-1] if trail else ""
        # What is made of several values is wrong as a whole.
        return (last.rpartition(".")[0] if _is_of_a_whole(error.__traceback__) else last) or None
    return None


def _is_of_a_whole(traceback: TracebackType | None) -> bool:
    while traceback is not None:
        if traceback.tb_frame.f_code.co_name == "__post_init__":
            return True
        traceback = traceback.tb_next
    return False
