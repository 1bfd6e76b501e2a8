"""How much of what was missed is made up for, and how fast."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from lamplighter.core import limits
from lamplighter.core.errors import Rejected


@dataclass(frozen=True, kw_only=True)
class CatchUp:
    """The bounds of a job's misfire policy."""

    threshold: timedelta = limits.MISFIRE_THRESHOLD
    """An occurrence that dispatch meets later than this is missed."""
    window: timedelta = limits.CATCHUP_WINDOW
    """What is longer overdue than this is not run."""
    most: int = limits.CATCHUP_MAX
    """Of the occurrences that are made up for, the latest so many."""
    spread: timedelta = limits.CATCHUP_SPREAD
    """Over how long they start, from the decision on."""

    def __post_init__(self) -> None:
        for field, value, (low, high) in (
            ("misfire_threshold_seconds", self.threshold, limits.MISFIRE_THRESHOLD_RANGE),
            ("catchup_window_seconds", self.window, limits.CATCHUP_WINDOW_RANGE),
            ("catchup_spread_seconds", self.spread, limits.CATCHUP_SPREAD_RANGE),
        ):
            if not low <= value <= high:
                raise Rejected(
                    field=field,
                    value=value.total_seconds(),
                    reason=f"not in {low.total_seconds():.0f}–{high.total_seconds():.0f}",
                )
        if not 1 <= self.most <= limits.CATCHUP_MAX_LIMIT:
            reason = f"not in 1–{limits.CATCHUP_MAX_LIMIT}"
            raise Rejected(field="catchup_max", value=self.most, reason=reason)


@dataclass(frozen=True, kw_only=True)
class CaughtUp:
    """An occurrence's place in a catch-up: what was decided when, and its turn.

    It lies in the row, so that every page of the catch-up goes on with the one decision (P5).
    """

    decided_at: datetime
    number: int = 0
    """How many start before it."""
    step: timedelta = timedelta(0)
    """From one start to the next."""

    @property
    def starts_at(self) -> datetime:
        """No try starts before this."""
        return self.decided_at + self.number * self.step
