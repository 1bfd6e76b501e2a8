"""Rates count elapsed time, calendar intervals count days on the wall, and a time is once."""

from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest

from lamplighter.core.errors import Rejected
from lamplighter.core.schedule import Schedule, parse
from tests.core.schedule.saying import Said

ANCHOR = datetime(2018, 11, 3, 7, tzinfo=UTC)  # midnight in Los Angeles, a day before a fold

LENGTHS = {
    "rate(1 minute)": timedelta(minutes=1),
    "rate(5 minutes)": timedelta(minutes=5),
    "rate(1 hour)": timedelta(hours=1),
    "rate(36 hours)": timedelta(hours=36),
    "rate(7 days)": timedelta(days=7),
    "rate(30 seconds)": timedelta(seconds=30),
    "5 minutes": timedelta(minutes=5),
    "1 day": timedelta(days=1),
    "RATE(5 Minutes)": timedelta(minutes=5),
    "rate( 5 minutes )": timedelta(minutes=5),
}

REFUSED = {
    "rate(1 minutes)": "1 takes 'minute', not 'minutes'",
    "rate(5 minute)": "5 takes 'minutes', not 'minute'",
    "rate(0 minutes)": "0 never advances",
    "rate(-5 minutes)": "not like rate(5 minutes)",
    "rate(1.5 hours)": "not like rate(5 minutes)",
    "rate(5 weeks)": "unit 'weeks' is not one of seconds, minutes, hours, days",
    "rate(5 fortnights)": "unit 'fortnights'",
    "rate(5)": "not like rate(5 minutes)",
    "rate(5 minutes": "not like rate(5 minutes)",
    "5 minutes)": "not like rate(5 minutes)",
    "PT5M": "not like rate(5 minutes)",
    "rate(99999 days)": "longer than 3660 days",
    "every(2 hours)": "unit 'hours' is not one of days, weeks",
}


def _first(schedule: Schedule, after: datetime, count: int) -> list[str]:
    return [f"{at:%m-%dT%H:%M}" for at in islice(schedule.occurrences(after), count)]


@pytest.mark.parametrize(("text", "length"), LENGTHS.items(), ids=LENGTHS)
def test_a_rate_is_anchor_plus_whole_intervals(text: str, length: timedelta) -> None:
    schedule = parse(rate=text, anchor=ANCHOR)

    found = list(islice(schedule.occurrences(ANCHOR), 3))

    assert found == [ANCHOR + length, ANCHOR + 2 * length, ANCHOR + 3 * length]
    assert schedule.previous(found[1]) == found[0]
    assert schedule.contains(found[2])
    assert not schedule.contains(found[2] + timedelta(milliseconds=1))


@pytest.mark.parametrize(("text", "reason"), REFUSED.items(), ids=REFUSED)
def test_a_rate_that_makes_no_sense_is_refused(text: str, reason: str) -> None:
    with pytest.raises(Rejected) as refused:
        parse(rate=text, start_at=ANCHOR)

    assert refused.value.field == "rate"
    assert reason in refused.value.reason


def test_o_t01_a_rate_of_a_day_is_24_hours_and_a_daily_cron_is_not() -> None:
    """O-T01: and the two are named differently."""
    rate = parse(rate="rate(24 hours)", anchor=ANCHOR, timezone="America/Los_Angeles")
    cron = parse(cron="0 0 * * *", timezone="America/Los_Angeles")

    assert _first(rate, ANCHOR, 3) == ["11-04T07:00", "11-05T07:00", "11-06T07:00"]
    assert _first(cron, ANCHOR, 3) == ["11-04T07:00", "11-05T08:00", "11-06T08:00"]


def test_a_rate_keeps_the_milliseconds_of_its_anchor() -> None:
    created = datetime(2026, 7, 1, 12, 0, 7, 123456, tzinfo=UTC)

    found = parse(rate="1 minute", anchor=created).next(created)

    assert found == datetime(2026, 7, 1, 12, 1, 7, 123000, tzinfo=UTC)


def test_a_rate_with_a_start_is_counted_from_it_and_is_due_then() -> None:
    start = datetime(2026, 7, 1, 12, tzinfo=UTC)
    schedule = parse(rate="10 minutes", anchor=start - timedelta(minutes=3), start_at=start)

    assert schedule.next(start - timedelta(days=1)) == start
    assert schedule.next(start) == start + timedelta(minutes=10)
    assert schedule.previous(start) is None


@pytest.mark.parametrize(
    ("gap", "expected"),
    [
        ("SKIP", ["03-24T07:01", "04-07T07:01", "04-21T07:01"]),
        ("NEXT_VALID", ["03-10T08:00", "03-24T07:01", "04-07T07:01"]),
        ("SHIFT", ["03-10T08:01", "03-24T07:01", "04-07T07:01"]),
    ],
)
def test_o_t03_every_two_weeks_keeps_its_time_on_the_wall(gap: str, expected: list[str]) -> None:
    """O-T03: strictly later each time."""
    schedule = parse(
        rate="every(2 weeks)",
        timezone="America/Chicago",
        start_at="2024-02-25T08:01:00Z",
        dst_gap=gap,
    )
    first = schedule.next(datetime(2024, 1, 1, tzinfo=UTC))

    assert first == datetime(2024, 2, 25, 8, 1, tzinfo=UTC)
    assert _first(schedule, first, 3) == expected


def test_days_of_the_calendar_need_a_first_one() -> None:
    with pytest.raises(Rejected, match="counts calendar days from start_at"):
        parse(rate="every(2 days)")


def test_days_of_the_calendar_go_backwards_too() -> None:
    schedule = parse(rate="every(3 days)", anchor=ANCHOR, timezone="America/Los_Angeles")
    found = list(islice(schedule.occurrences(ANCHOR - timedelta(days=30)), 20))

    assert [schedule.previous(later) for later in found[1:]] == found[:-1]
    assert ANCHOR in found


@pytest.mark.parametrize(
    ("text", "policy", "expected"),
    [
        ("at(2026-07-12T02:00:00)", {}, "2026-07-12T06:00"),
        ("2026-07-12T02:00:00", {}, "2026-07-12T06:00"),
        ("2026-07-12T02:00:00Z", {}, "2026-07-12T02:00"),
        ("at(2026-07-12T02:00:00+05:30)", {}, "2026-07-11T20:30"),
        ("2026-03-08T02:30:00", {}, "2026-03-08T07:00"),
        ("2026-03-08T02:30:00", {"dst_gap": "SHIFT"}, "2026-03-08T07:30"),
        ("2026-11-01T01:30:00", {}, "2026-11-01T05:30"),
        ("2026-11-01T01:30:00", {"dst_fold": "SECOND"}, "2026-11-01T06:30"),
        ("2026-11-01T01:30:00-05:00", {}, "2026-11-01T06:30"),
    ],
)
def test_o_t02_one_local_time(text: str, policy: Said, expected: str) -> None:
    """O-T02: the skipped and the repeated hour, by policy."""
    schedule = parse(**(policy | Said(at=text, timezone="America/New_York")))
    instant = datetime.fromisoformat(expected).replace(tzinfo=UTC)

    assert list(schedule.occurrences(datetime(1970, 1, 1, tzinfo=UTC))) == [instant]
    assert schedule.previous(datetime(2199, 1, 1, tzinfo=UTC)) == instant
    assert schedule.contains(instant)


@pytest.mark.parametrize(
    ("said", "field", "reason"),
    [
        ({"dst_gap": "SKIP"}, "at", "the clocks of America/New_York skip this time"),
        ({"dst_fold": "BOTH"}, "dst_fold", "choose FIRST or SECOND"),
        ({"start_at": "2026-01-01T00:00:00Z"}, "start_at", "makes no sense for a single time"),
        ({"end_at": "2026-01-01T00:00:00Z"}, "end_at", "makes no sense for a single time"),
        ({"max_occurrences": 2}, "max_occurrences", "makes no sense for a single time"),
        ({"except_": ["2026-03-08"]}, "except", "makes no sense for a single time"),
    ],
)
def test_a_single_time_refuses_what_it_cannot_do(said: Said, field: str, reason: str) -> None:
    in_a_gap = Said(at="2026-03-08T02:30:00", timezone="America/New_York")

    with pytest.raises(Rejected) as refused:
        parse(**(in_a_gap | said))

    assert refused.value.field == field
    assert reason in refused.value.reason


@pytest.mark.parametrize(
    "text",
    [
        *("2026-05-01T24:00:00Z", "2026-12-31T23:59:60Z", "2026-W01-1T09:00:00Z"),
        *("2026-05-01T12345678", "2026-05-01T12:00:00,5Z", "2026-05-01", "1777636800"),
        *("2026-05-01 12:00:00+00:00", "2026-05-01T12:00:00.Z", "2026-05-01T12:00:00 Z"),
        *("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "2026-02-29T00:00:00Z"),
        *("2026-05-01T12:00:00+24:00", "2026-05-01T12:00:00+0100", "2026-05-01T12:00Z"),
        *("2200-01-01T00:00:00Z", "1969-12-31T23:59:59Z", "2026-05-01T12:00:00.1234567890Z"),
        *("0001-01-01T00:00:00", "9999-12-31T23:59:59", "٢٠٢٦-05-01T12:00:00Z", "at()", "at"),
    ],
)
def test_only_rfc_3339_is_a_time(text: str) -> None:
    with pytest.raises(Rejected) as refused:
        parse(at=text, timezone="Europe/Paris")

    assert refused.value.field == "at"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-05-01t12:00:00z", datetime(2026, 5, 1, 12, tzinfo=UTC)),
        ("2026-05-01T12:00:00-00:00", datetime(2026, 5, 1, 12, tzinfo=UTC)),
        ("2026-05-01T12:00:00.5Z", datetime(2026, 5, 1, 12, 0, 0, 500_000, tzinfo=UTC)),
        ("2026-05-01T12:00:00.999999999Z", datetime(2026, 5, 1, 12, 0, 0, 999_000, tzinfo=UTC)),
        ("1970-01-01T00:00:00Z", datetime(1970, 1, 1, tzinfo=UTC)),
        ("2199-12-31T23:59:59.999Z", datetime(2199, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)),
    ],
)
def test_a_fraction_is_cut_to_milliseconds_and_never_rounded_up(
    text: str, expected: datetime
) -> None:
    assert list(parse(at=text).between(expected, expected + timedelta(milliseconds=1))) == [
        expected
    ]
