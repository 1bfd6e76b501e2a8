"""croniter and the table of months, each against the other and against the calendar."""

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamplighter.core.schedule.days import DAY, Days, MonthTable, PlainDays, Remembered
from lamplighter.core.schedule.instants import END, FIRST
from lamplighter.core.schedule.months import DayRule, LastDay, Month

NOON = (timedelta(hours=12),)


def _some(low: int, high: int) -> st.SearchStrategy[frozenset[int]]:
    numbers = st.integers(low, high)
    return st.frozensets(numbers, min_size=1) | st.just(frozenset(range(low, high + 1)))


RULES = st.builds(
    DayRule, months=_some(1, 12), days=_some(1, 31), weekdays=_some(0, 6), both=st.booleans()
).filter(lambda rule: not MonthTable(rule, NOON).is_empty)
MIDNIGHTS = st.integers(400, 65_000).map(lambda days: FIRST + days * DAY)


@given(RULES, MIDNIGHTS)
def test_croniter_and_the_table_name_the_same_days(rule: DayRule, start: datetime) -> None:
    plain, table = PlainDays(rule, NOON), MonthTable(rule, NOON)

    ahead = behind = start
    for _ in range(4):
        later, earlier = plain.on_or_after(ahead), plain.on_or_before(behind)
        assert later == table.on_or_after(ahead)
        assert earlier == table.on_or_before(behind)
        ahead = later.midnight + DAY if later else END
        behind = earlier.midnight - DAY if earlier else FIRST


@given(RULES, MIDNIGHTS, st.lists(st.integers(-400, 400), min_size=2, max_size=8))
def test_answers_do_not_depend_on_what_was_asked_before(
    rule: DayRule, start: datetime, steps: list[int]
) -> None:
    days: Days = MonthTable(rule, NOON)
    remembered = Remembered(days)

    for step in steps:
        day = start + step * DAY
        assert remembered.on_or_after(day) == days.on_or_after(day)
        assert remembered.on_or_before(day) == days.on_or_before(day)


def test_nothing_lies_outside_the_years_by_more_than_local_time_is_off() -> None:
    first, last = FIRST - DAY, END

    for days in (PlainDays(DayRule(), NOON), MonthTable(DayRule(), NOON)):
        assert days.on_or_after(first) == days.on_or_after(first - DAY) == (first, NOON)
        assert days.on_or_before(last) == days.on_or_before(last + DAY) == (last, NOON)
        assert days.on_or_after(last + DAY) is None
        assert days.on_or_before(first - DAY) is None


def test_croniter_is_not_asked_for_what_it_lacks() -> None:
    with pytest.raises(ValueError, match="croniter does not read"):
        PlainDays(DayRule(days=frozenset(), day_marks=(LastDay(),)), NOON)


def test_a_month_knows_its_weekdays() -> None:
    november = Month.of(2026, 11)

    assert november.weekday(29) == 0
    assert list(november.all_of(1)) == [2, 9, 16, 23, 30]
