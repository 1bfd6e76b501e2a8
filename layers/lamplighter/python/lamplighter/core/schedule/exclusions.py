"""What `except` takes away: dates, and whatever minute of the wall clock an expression names."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import cached_property
from typing import Final

from lamplighter.core.errors import Rejected
from lamplighter.core.limits import MAX_EXCLUSIONS
from lamplighter.core.schedule.days import DAY, MonthTable, Times
from lamplighter.core.schedule.expression import Dialect, Expression, checked_text, parse_cron
from lamplighter.core.schedule.instants import END, FIRST
from lamplighter.core.schedule.months import DayRule
from lamplighter.core.schedule.walls import CronWalls

_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_MINUTE: Final = timedelta(minutes=1)
_EVERY_MINUTE: Final = tuple(_MINUTE * minute for minute in range(24 * 60))


@dataclass(frozen=True, kw_only=True)
class Exclusions:
    """Labels that are never due, whatever the schedule says."""

    dates: frozenset[date] = frozenset()
    expressions: tuple[Expression, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.dates or self.expressions)

    def apply_to(self, rule: DayRule, times: Times) -> MonthTable:
        """The planned days of a rule that are left, with the times that are left."""
        cuts = [(each.rule, frozenset(each.times)) for each in self.expressions]
        return MonthTable(rule, times, cuts=cuts, holidays=self.dates)

    def days_free_at(self, label: datetime) -> MonthTable:
        """The days on which a label's minute is not taken away."""
        time = timedelta(hours=label.hour, minutes=label.minute)
        return self.apply_to(DayRule(), (time,))

    @cached_property
    def left_over(self) -> CronWalls:
        """Every minute that is not taken away."""
        return CronWalls(self._days_left)

    @property
    def take_all(self) -> bool:
        """Whether no minute of any year is left."""
        return bool(self) and self._days_left.is_empty

    @cached_property
    def _days_left(self) -> MonthTable:
        return self.apply_to(DayRule(), _EVERY_MINUTE)

    def first_free(self, label: datetime, *, descending: bool = False) -> datetime | None:
        """The start of the nearest minute, in that direction, that is not taken away.

        It is the label's own minute, if that is not; None if no minute is left.
        """
        minute = label.replace(second=0, microsecond=0)
        lo, hi = (FIRST - DAY, minute + _MINUTE) if descending else (minute, END + DAY)
        return next(self.left_over.between(lo, hi, descending=descending), None)


def texts_of(value: object) -> tuple[str, ...]:
    """A list of exclusions as a caller gave it, none of them read yet."""
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise Rejected(field="except", value=value, reason="not a list")
    if len(value) > MAX_EXCLUSIONS:
        reason = f"more than {MAX_EXCLUSIONS} entries"
        raise Rejected(field="except", value=f"{len(value)} entries", reason=reason)
    return tuple(checked_text("except", each) for each in value)


def parse_exclusions(texts: Sequence[str], *, dialect: Dialect | None, seed: str) -> Exclusions:
    """Exclusions from dates (`2026-12-25`) and cron expressions."""
    return Exclusions(
        dates=frozenset(_date(text) for text in texts if _is_date(text)),
        expressions=tuple(_cron(text, dialect, seed) for text in texts if not _is_date(text)),
    )


def _is_date(text: str) -> bool:
    return _DATE.fullmatch(text) is not None


def _date(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as impossible:
        raise Rejected(field="except", value=text, reason=f"no such date: {impossible}") from None


def _cron(text: str, dialect: Dialect | None, seed: str) -> Expression:
    try:
        return parse_cron(text, dialect=dialect, seed=seed)
    except Rejected as refused:
        raise Rejected(
            field="except", value=refused.value, reason=f"in {text!r}: {refused.reason}"
        ) from refused
