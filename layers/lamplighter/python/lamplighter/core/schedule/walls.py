"""Streams of wall-clock labels: what a clock on the wall shows when a schedule is due.

A label is tagged as if it were UTC, so that label − offset is the instant. Labels know no
gaps or folds; `dst` turns them into instants.
"""

from bisect import bisect_left
from collections.abc import Iterator
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
    """One label each so many days of the calendar, forwards and backwards from one of them.

    Those that fall on a day that `free` does not have are left out.
    """

    def __init__(self, label: datetime, step: timedelta, *, free: Days | None) -> None:
        self._label = label
        self._step = step
        self._free = None if free is None else Remembered(free)

    def between(
        self, first: datetime, last: datetime, *, descending: bool = False
    ) -> Iterator[datetime]:
        low, high = self._number_from(first), self._number_from(last) - 1
        number: int | None = high if descending else low
        while number is not None and low <= number <= high:
            near = self._nearest(number, descending=descending)
            if near == number:
                yield self._label + number * self._step
                near += -1 if descending else 1
            number = near

    def _nearest(self, number: int, *, descending: bool) -> int | None:
        """The label itself if its day is free, else the next worth a look; None if none is."""
        label = self._label + number * self._step
        if self._free is None:
            return number
        day = _midnight(label)
        plan = self._free.on_or_before(day) if descending else self._free.on_or_after(day)
        if plan is None:
            return None
        there = self._label + (plan.midnight - day) + number * self._step
        if descending:
            return (there - self._label) // self._step
        return self._number_from(there)

    def _number_from(self, label: datetime) -> int:
        """Of the first label that is not before that one."""
        return -((self._label - label) // self._step)


def _midnight(label: datetime) -> datetime:
    return label.replace(hour=0, minute=0, second=0, microsecond=0)
