"""From what a caller says to a Schedule."""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import TypeVar

from lamplighter.core.errors import Rejected
from lamplighter.core.limits import MAX_FLEXIBLE_WINDOW, MAX_OCCURRENCES
from lamplighter.core.schedule.dst import DstFold, DstGap, DstPolicy
from lamplighter.core.schedule.exclusions import texts_of
from lamplighter.core.schedule.expression import Dialect, checked_text
from lamplighter.core.schedule.instants import parse_instant
from lamplighter.core.schedule.model import Kind, Schedule
from lamplighter.core.schedule.zones import PINNED, ZoneDatabase

_Choice = TypeVar("_Choice", bound=StrEnum)
_SECOND = timedelta(seconds=1)


def parse(
    *,
    cron: object = None,
    rate: object = None,
    at: object = None,
    timezone: object = "UTC",
    dialect: object = None,
    dst_gap: object = DstGap.NEXT_VALID,
    dst_fold: object = DstFold.FIRST,
    start_at: object = None,
    end_at: object = None,
    max_occurrences: object = None,
    flexible_window_seconds: object = 0,
    except_: object = (),
    seed: str = "",
    anchor: datetime | None = None,
    zones: ZoneDatabase = PINNED,
) -> Schedule:
    """The schedule that a request describes, exactly one of `cron`, `rate` and `at` given.

    All but `seed`, `anchor` and `zones` may come from outside as they are: whatever is
    wrong with them is Rejected, named by its field. `start_at` and `end_at` are RFC 3339
    or aware datetimes; enumerations are read in either case.
    """
    kind, text = _kind(cron, rate, at)
    return Schedule(
        kind=kind,
        text=checked_text(kind, text),
        timezone=zones.zone(timezone).name,
        dialect=None if dialect is None else _choice("dialect", dialect, Dialect),
        dst=DstPolicy(
            gap=_choice("dst_gap", dst_gap, DstGap), fold=_choice("dst_fold", dst_fold, DstFold)
        ),
        start_at=None if start_at is None else parse_instant("start_at", start_at),
        end_at=None if end_at is None else parse_instant("end_at", end_at),
        max_occurrences=None
        if max_occurrences is None
        else _whole("max_occurrences", max_occurrences, MAX_OCCURRENCES),
        flexible_window=_SECOND
        * _whole(
            "flexible_window_seconds", flexible_window_seconds, MAX_FLEXIBLE_WINDOW // _SECOND
        ),
        except_=texts_of(except_),
        seed=seed,
        anchor=None if anchor is None else parse_instant("anchor", anchor),
        zones=zones,
    )


def field_of(text: str) -> Kind:
    """Which of `cron`, `rate` and `at` a text on its own belongs to."""
    head = text.strip()[:6].lower()
    if head.startswith(("rate(", "every(")):
        return Kind.RATE
    return Kind.AT if head.startswith("at(") else Kind.CRON


def _kind(cron: object, rate: object, at: object) -> tuple[Kind, object]:
    given = {Kind.CRON: cron, Kind.RATE: rate, Kind.AT: at}
    said = [(kind, text) for kind, text in given.items() if text is not None]
    if len(said) != 1:
        names = [kind.value for kind, _ in said]
        raise Rejected(field="cron", value=names, reason="give exactly one of cron, rate and at")
    return said[0]


def _choice(field: str, value: object, choices: type[_Choice]) -> _Choice:
    for choice in choices:
        if isinstance(value, str) and value.upper() == choice.value.upper():
            return choice
    raise Rejected(field=field, value=value, reason=f"not one of {', '.join(choices)}")


def _whole(field: str, value: object, most: int) -> int:
    # A bool is an int to Python, and not to a caller.
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise Rejected(field=field, value=value, reason=f"not a whole number up to {most}")
    return value
