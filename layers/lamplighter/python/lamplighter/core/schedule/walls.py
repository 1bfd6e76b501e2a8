"""Streams of wall-clock labels: what a clock on the wall shows when a schedule is due.

A label is tagged as if it were UTC, so that label − offset is the instant. Labels know no
gaps or folds; `dst` turns them into instants.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Protocol

from lamplighter.core.schedule.days import DAY, DayPlan, Days, Remembered
from lamplighter.core.schedule.instants import TICK


class Walls(Protocol):
    """Wall-clock labels in order."""

    def between(
        self, first: datetime, last: datetime, *, descending: bool = False
    ) -> Iterator[datetime]:
        """The labels from `first` on and before `last`, each once."""
        ...


class CronWalls:
    """The times of the planned days."""

    def __init__(self, days: Days) -> None:
        self._days = Remembered(days)

    def between(
        self, first: datetime, last: datetime, *, descending: bool = False
    ) -> Iterator[datetime]:
        for midnight, times in self._planned(first, last, descending=descending):
            part = times[bisect_left(times, first - midnight) : bisect_left(times, last - midnight)]
            for time in reversed(part) if descending else part:
                yield midnight + time

    def _planned(self, first: datetime, last: datetime, *, descending: bool) -> Iterator[DayPlan]:
        if descending:
            plan = self._days.on_or_before(_midnight(last - TICK))
            while plan is not None and first < plan.midnight + DAY:
                yield plan
                plan = self._days.on_or_before(plan.midnight - DAY)
        else:
            plan = self._days.on_or_after(_midnight(first))
            while plan is not None and plan.midnight < last:
                yield plan
                plan = self._days.on_or_after(plan.midnight + DAY)


class EveryWalls:
    """One label each so many days of the calendar, forwards and backwards from one of them."""

    def __init__(
        self, label: datetime, step: timedelta, *, is_excluded: Callable[[datetime], bool]
    ) -> None:
        self._label = label
        self._step = step
        self._is_excluded = is_excluded

    def between(
        self, first: datetime, last: datetime, *, descending: bool = False
    ) -> Iterator[datetime]:
        numbers = range(
            -((self._label - first) // self._step), -((self._label - last) // self._step)
        )
        for number in reversed(numbers) if descending else numbers:
            label = self._label + number * self._step
            if not self._is_excluded(label):
                yield label


def _midnight(label: datetime) -> datetime:
    return label.replace(hour=0, minute=0, second=0, microsecond=0)
