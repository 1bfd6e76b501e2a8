"""The grammar of one field of a cron expression: text in, numbers and day marks out.

It refuses before anything is expanded: what comes out is sorted numbers within the field.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

from lamplighter.core.errors import Rejected
from lamplighter.core.schedule.months import Mark

_ITEM: Final = re.compile(r"(\*|[0-9A-Z]+)(?:-([0-9A-Z]+))?(?:/([0-9]+))?")
_HASH: Final = re.compile(r"H(?:\(([0-9]+)-([0-9]+)\))?(?:/([0-9]+))?")

MarkOf = Callable[["Field", str], Mark | None]
"""Reads one item as a day mark (`L`, `15W`, `2#1`), or answers None."""


def no_mark(_field: "Field", _item: str) -> None:
    """The fields other than the two day fields have no marks."""


@dataclass(frozen=True, kw_only=True)
class Field:
    """What one field of a dialect accepts."""

    name: str
    low: int
    high: int
    names: Mapping[str, int] = field(default_factory=dict)
    width: int = 0
    """How many different values it has; 0 stands for `high − low + 1`."""
    mark: MarkOf = no_mark
    hash_high: int = 0
    """The highest value that `H` picks; 0 for a field without `H`."""

    @property
    def bounds(self) -> str:
        """The field's range as messages quote it."""
        return f"{self.low}–{self.high}"

    def number(self, text: str) -> int:
        """One value by number or name."""
        if text in self.names:
            return self.names[text]
        if not text.isdigit():
            known = f" or one of {' '.join(self.names)}" if self.names else ""
            raise refusal(text, f"{self.name} {text!r} is not a number in {self.bounds}{known}")
        if not self.low <= (value := int(text)) <= self.high:
            raise refusal(text, f"{self.name} {text} is not in {self.bounds}")
        return value


@dataclass(frozen=True, kw_only=True)
class Values:
    """What a field's text selects."""

    text: str
    numbers: frozenset[int]
    marks: tuple[Mark, ...] = ()

    @property
    def starred(self) -> bool:
        """Whether it starts with `*`: what cron takes for "not restricted"."""
        return self.text.startswith("*")


def refusal(value: object, reason: str) -> Rejected:
    """The error for a cron expression."""
    return Rejected(field="cron", value=value, reason=reason)


def read(field: Field, text: str, *, seed: str = "") -> Values:
    """The values of a field's text, already in upper case; `seed` is what `H` hashes."""
    numbers: set[int] = set()
    marks: list[Mark] = []
    for item in text.split(","):
        mark = field.mark(field, item)
        if mark is not None:
            marks.append(mark)
        else:
            numbers.update(_expand(field, item, seed))
    return Values(text=text, numbers=frozenset(numbers), marks=tuple(marks))


def _expand(field: Field, item: str, seed: str) -> Sequence[int]:
    hashed = _HASH.fullmatch(item)
    if hashed and field.hash_high:
        return _expand_hash(field, item, hashed, seed)
    match = _ITEM.fullmatch(item)
    if match is None or (match[1] == "*" and match[2]):
        raise refusal(item, f"{field.name} {item!r} is not a number, name, range or step")
    low, high = _ends(field, item, match)
    return range(low, high + 1, _step(field, match[3]))


def _ends(field: Field, item: str, match: re.Match[str]) -> tuple[int, int]:
    if match[1] == "*":
        return field.low, field.high
    low = field.number(match[1])
    if match[2]:
        return _in_order(field, item, low, field.number(match[2]))
    return low, field.high if match[3] else low


def _in_order(field: Field, item: str, low: int, high: int) -> tuple[int, int]:
    if high < low:
        both = f"{low}-{field.high},{field.low}-{high}"
        raise refusal(item, f"{field.name} range {item} runs backwards; write {both}")
    return low, high


def _step(field: Field, text: str | None) -> int:
    if text is None:
        return 1
    width = field.width or field.high - field.low + 1
    if not 1 <= (step := int(text)) <= width:
        raise refusal(text, f"{field.name} step {text} is not in 1–{width}, the field's width")
    return step


def _expand_hash(field: Field, item: str, match: re.Match[str], seed: str) -> Sequence[int]:
    """`H`, `H(a-b)`, `H/n`, `H(a-b)/n`: the same for the same seed, spread over seeds."""
    if not seed:
        raise refusal(item, f"{field.name} {item} is chosen by the job's id, and there is none")
    low, high = field.low, field.hash_high
    if match[1]:
        low, high = _in_order(field, item, field.number(match[1]), field.number(match[2]))
    digest = int.from_bytes(sha256(f"{seed}\n{field.name}".encode()).digest()[:8])
    if match[3] is None:
        return [low + digest % (high - low + 1)]
    step = _step(field, match[3])
    return range(low + digest % min(step, high - low + 1), high + 1, step)
