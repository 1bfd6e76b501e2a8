"""Random expressions in windows around changes of the clock, against two independent answers.

Some hundreds each time, other ones each time; `make prove` tries many more.
"""

import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise, takewhile

from cronsim import CronSim
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lamplighter.core.errors import Rejected
from lamplighter.core.schedule import PINNED, Schedule, parse
from tests.core.schedule import oracle
from tests.support.examples import examples

MINUTE = timedelta(minutes=1)

# Whole hours, half hours, quarters, two hours, a day; at midnight; law after law.
ZONES = (
    *("Europe/Berlin", "Europe/London", "Europe/Dublin", "Asia/Beirut", "Asia/Gaza"),
    *("Asia/Tehran", "Asia/Kathmandu", "Asia/Pyongyang", "Africa/Cairo", "Africa/Casablanca"),
    *("America/New_York", "America/Sao_Paulo", "America/Asuncion", "America/Havana"),
    *("America/St_Johns", "America/Caracas", "America/Scoresbysund", "America/Nuuk"),
    *("Australia/Lord_Howe", "Australia/Melbourne", "Pacific/Chatham", "Pacific/Apia"),
    *("Pacific/Kiritimati", "Pacific/Kwajalein", "Antarctica/Troll", "Antarctica/Casey"),
)
# Where each change is a whole hour, on a whole hour other than midnight, cronsim walks beats
# by elapsed time as we do; elsewhere it loses its place.
TAME = frozenset(
    {"Europe/Berlin", "Europe/London", "Europe/Dublin", "America/New_York", "Australia/Melbourne"}
)


def _changes(zone: str, most: int = 4) -> list[datetime]:
    """A few changes of a zone, evenly over the years 1985 to 2040, on whole minutes."""
    found = [
        change.at
        for change in PINNED.zone(zone).changes(
            datetime(1985, 1, 1, tzinfo=UTC), datetime(2040, 1, 1, tzinfo=UTC)
        )
    ]
    return found[:: max(1, len(found) // most)]


WINDOWS = [
    (zone, change - timedelta(hours=30), change + timedelta(hours=42))
    for zone in ZONES
    for change in _changes(zone)
]


def _items(low: int, high: int) -> st.SearchStrategy[str]:
    numbers = st.integers(low, high)
    ranges = st.tuples(numbers, numbers).map(sorted).map(lambda ends: f"{ends[0]}-{ends[1]}")
    steps = st.integers(1, min(high - low + 1, 7 if high == 7 else high))
    stepped = st.tuples(ranges | numbers.map(str), steps).map(lambda both: f"{both[0]}/{both[1]}")
    return st.one_of(numbers.map(str), numbers.map(str), ranges, stepped)


def _lists(items: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(items, min_size=1, max_size=3).map(",".join)


def _field(low: int, high: int) -> st.SearchStrategy[str]:
    star = st.integers(1, min(high - low + 1, 7 if high == 7 else high)).map("*/{}".format)
    return st.one_of(_lists(_items(low, high)), _lists(_items(low, high)), st.just("*"), star)


HOURS_OF_CHANGES = st.sampled_from(["0", "1", "2", "3", "23", "0-3", "1-4/2", "2,3"])
DAY_MARKS = _lists(st.sampled_from(["L", "LW", "1", "15-20"]))
WEEKDAY_MARKS = _lists(st.sampled_from(["sun#1", "5L", "mon#2", "6L", "0#5", "fri"]))
EXPRESSIONS = st.tuples(
    _field(0, 59),
    HOURS_OF_CHANGES | _field(0, 23),
    st.one_of(st.just("*"), st.just("*"), _field(1, 31), DAY_MARKS),
    st.one_of(st.just("*"), st.just("*"), _field(1, 12)),
    st.one_of(st.just("*"), st.just("*"), _field(0, 7), WEEKDAY_MARKS),
).map(" ".join)


def _schedule(cron: str, zone: str, gap: str = "NEXT_VALID", fold: str = "FIRST") -> Schedule:
    try:
        return parse(cron=cron, timezone=zone, dst_gap=gap, dst_fold=fold)
    except Rejected as refused:
        assume("never fires" not in refused.reason)
        raise


@settings(max_examples=examples(500))
@given(
    EXPRESSIONS,
    st.sampled_from(WINDOWS),
    st.sampled_from(["NEXT_VALID", "SHIFT", "SKIP"]),
    st.sampled_from(["FIRST", "SECOND", "BOTH"]),
)
def test_a_schedule_is_due_when_walking_every_minute_says_so(
    cron: str, window: tuple[str, datetime, datetime], gap: str, fold: str
) -> None:
    zone, start, end = window
    schedule = _schedule(cron, zone, gap, fold)

    found = list(schedule.between(start, end))

    assert found == oracle.due(cron, oracle.clock(zone, start, end), gap=gap, fold=fold)
    assert all(earlier < later for earlier, later in pairwise(found))
    assert list(schedule.timeline.between(start, end, descending=True)) == found[::-1]


@settings(max_examples=examples(250))
@given(EXPRESSIONS, st.sampled_from(WINDOWS))
def test_a_schedule_is_due_when_cronsim_says_so(
    cron: str, window: tuple[str, datetime, datetime]
) -> None:
    zone, start, end = window
    # cronsim takes `9-9/2` for `9/2`.
    assume(not re.search(r"\b(\d+)-\1/", cron))
    is_beat = any(field.startswith("*") for field in cron.split()[:2])
    assume(zone in TAME or not is_beat)
    before = (start - MINUTE).astimezone(oracle.rules_of(zone))
    theirs = (instant.astimezone(UTC) for instant in CronSim(cron, before))

    found = list(_schedule(cron, zone).between(start, end))

    assert found == list(takewhile(lambda instant: instant < end, theirs))


@settings(max_examples=examples(100))
@given(
    EXPRESSIONS,
    st.sampled_from(WINDOWS),
    st.sampled_from(["NEXT_VALID", "SHIFT", "SKIP"]),
    st.sampled_from(["FIRST", "SECOND", "BOTH"]),
    st.integers(0, 72 * 3600 * 1000),
)
def test_next_previous_between_and_contains_agree(
    cron: str, window: tuple[str, datetime, datetime], gap: str, fold: str, offset_ms: int
) -> None:
    zone, start, _ = window
    schedule = _schedule(cron, zone, gap, fold)
    moment = start + timedelta(milliseconds=offset_ms)

    later, earlier = schedule.next(moment), schedule.previous(moment)

    assert later is not None
    assert later > moment
    assert schedule.contains(later)
    assert list(schedule.between(moment + timedelta(milliseconds=1), later)) == []
    assert schedule.previous(later) == (moment if schedule.contains(moment) else earlier)
    assert next(schedule.occurrences(moment)) == later
    assert earlier is None or (earlier < moment and schedule.contains(earlier))
