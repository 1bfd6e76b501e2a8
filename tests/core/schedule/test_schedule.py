"""What a schedule says beside its expression: bounds, counts, exclusions, window, record."""

import json
import tracemalloc
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, replace
from datetime import UTC, datetime, timedelta, timezone
from itertools import islice
from time import process_time
from typing import cast

import pytest

from lamplighter.core.errors import Rejected, Unreadable
from lamplighter.core.limits import MAX_COUNTING_MISSES, MAX_OCCURRENCES
from lamplighter.core.schedule import (
    Record,
    Schedule,
    UnreadableSchedule,
    check,
    field_of,
    model,
    parse,
    read_record,
    shortest_interval,
)
from lamplighter.core.schedule.timeline import RateTimeline
from tests.core.schedule.saying import Said

START = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
MILLISECOND = timedelta(milliseconds=1)
ALWAYS = datetime(1970, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)

HOSTILE = {
    "ten thousand fields": "0 0" + " 0" * 10_000 + " 1 jan *",
    "fifty thousand items": ",".join(["0"] * 50_000) + " * * * *",
    "three thousand steps": ",".join(["*/1"] * 3000) + " * * * *",
    "a megabyte of spaces": " " * 1_000_000,
    "a newline": "0 0 *\n* *",
    "a carriage return": "0 0 * * *\r",
    "a null": "0 0 * * *\0",
    "a no-break space": "0\u00a00 * * *",
    "Arabic digits": "\u0665 0 * * *",
    "a full-width star": "0 0 \uff0a * *",
    "nothing": "",
    "spaces": "   ",
    "a number": 5,
    "a list": ["0 0 * * *"],
    "bytes": b"0 0 * * *",
    "a huge number": "9" * 200 + " 0 * * *",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_text_is_refused_before_it_costs(text: object) -> None:
    tracemalloc.start()
    started = process_time()
    with pytest.raises(Rejected) as refused:
        parse(cron=text)
    took = process_time() - started
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert refused.value.field == "cron"
    assert took < 2
    assert peak < 4_000_000
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize(
    "said", [{}, {"cron": "0 0 * * *", "rate": "1 day"}, {"rate": "1 day", "at": "x"}], ids=str
)
def test_exactly_one_of_three_is_said(said: Said) -> None:
    with pytest.raises(Rejected, match="exactly one of cron, rate and at"):
        parse(**said)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("dst_gap", "LATER"),
        ("dst_fold", 1),
        ("dialect", ""),
        ("start_at", "2026-01-01T00:00:00"),
        ("start_at", START.replace(tzinfo=None)),
        ("end_at", "tomorrow"),
        ("end_at", "2025-12-31T00:00:00Z"),
        ("max_occurrences", 0),
        ("max_occurrences", 10_001),
        ("max_occurrences", True),
        ("max_occurrences", "3"),
        ("flexible_window_seconds", -1),
        ("flexible_window_seconds", 86_401),
        ("flexible_window_seconds", 0.5),
        ("except", "2026-12-25"),
        ("except", ["2026-02-30"]),
        ("except", ["61 * * * *"]),
        ("except", [5]),
        ("except", ["2026-12-25"] * 51),
        ("except", None),
    ],
)
def test_what_else_is_said_is_refused_by_its_field(field: str, value: object) -> None:
    name = "except_" if field == "except" else field
    said = cast("Said", {"cron": "0 0 * * *", "start_at": START, name: value})

    with pytest.raises(Rejected) as refused:
        parse(**said)

    assert refused.value.field == field


def test_enumerations_are_read_in_either_case() -> None:
    assert parse(cron="0 0 * * *", dst_gap="skip", dst_fold="both", dialect="UNIX") == parse(
        cron="0 0 * * *", dst_gap="SKIP", dst_fold="BOTH", dialect="unix"
    )


def test_a_schedule_is_frozen_and_compares_by_what_it_says() -> None:
    schedule = parse(cron="0 0 * * *")

    assert schedule == parse(cron="0 0 * * *")
    assert hash(schedule) == hash(parse(cron="0 0 * * *"))
    assert schedule != parse(cron="0 0 * * *", timezone="Europe/Berlin")
    with pytest.raises(FrozenInstanceError):
        schedule.text = "1 0 * * *"  # type: ignore[misc]


def test_a_naive_instant_is_a_bug() -> None:
    with pytest.raises(ValueError, match="is naive"):
        parse(cron="0 0 * * *").next(START.replace(tzinfo=None))


def test_instants_come_out_in_utc_whatever_zone_goes_in() -> None:
    kolkata = timezone(timedelta(hours=5, minutes=30))

    found = parse(cron="0 0 * * *").next(datetime(2026, 1, 1, 5, 30, tzinfo=kolkata))

    assert found == START + DAY
    assert found.tzinfo is UTC


@pytest.mark.parametrize(
    ("moment", "offset"), [("0001-01-01T00:00", "+14:00"), ("9999-12-31T23:59", "-14:00")]
)
def test_the_ends_of_the_calendar_are_no_trouble(moment: str, offset: str) -> None:
    far = datetime.fromisoformat(moment + offset)
    schedule = parse(cron="0 0 * * *", timezone="Europe/Berlin")

    later, earlier = schedule.next(far), schedule.previous(far)

    assert (later is None) == (far.year == 9999)
    assert (earlier is None) == (far.year == 1)


def test_an_occurrence_may_be_on_either_bound() -> None:
    schedule = parse(cron="0 0 * * *", start_at=START + DAY, end_at=START + 3 * DAY)

    assert list(schedule.between(*ALWAYS)) == [START + DAY, START + 2 * DAY, START + 3 * DAY]
    assert schedule.next(ALWAYS[0]) == START + DAY
    assert schedule.previous(ALWAYS[1]) == START + 3 * DAY
    assert not schedule.contains(START)
    assert not schedule.contains(START + 4 * DAY)
    assert schedule.next(START + 3 * DAY) is None
    assert schedule.previous(START + DAY) is None


def test_between_is_half_open() -> None:
    schedule = parse(cron="0 0 * * *")

    assert list(schedule.between(START, START + 2 * DAY)) == [START, START + DAY]
    assert list(schedule.between(START + 2 * DAY, START)) == []


@pytest.mark.parametrize(
    "said", [{"cron": "0 0 * * *"}, {"rate": "1 day"}, {"rate": "every(1 day)"}], ids=str
)
def test_occurrences_are_counted_from_the_start_which_may_be_one(said: Said) -> None:
    schedule = parse(**(said | Said(start_at=START, max_occurrences=3)))

    assert list(schedule.between(*ALWAYS)) == [START, START + DAY, START + 2 * DAY]
    assert schedule.previous(ALWAYS[1]) == START + 2 * DAY
    assert schedule.next(START + 2 * DAY) is None


@pytest.mark.parametrize("said", [{"cron": "0 0 * * *"}, {"rate": "1 day"}], ids=str)
def test_occurrences_are_counted_after_the_creation_without_a_start(said: Said) -> None:
    schedule = parse(**(said | Said(anchor=START, max_occurrences=2)))

    assert list(schedule.between(*ALWAYS)) == [START + DAY, START + 2 * DAY]


def test_a_count_that_is_never_reached_does_not_end_anything() -> None:
    schedule = parse(cron="0 0 1 1 *", start_at=START, max_occurrences=MAX_OCCURRENCES)

    assert schedule.next(datetime(2198, 6, 1, tzinfo=UTC)) == datetime(2199, 1, 1, tzinfo=UTC)


def test_a_count_needs_something_to_count_from() -> None:
    with pytest.raises(Rejected, match="counted from start_at"):
        parse(cron="0 0 * * *", max_occurrences=3)


def test_dates_and_expressions_take_occurrences_away_by_the_clock_on_the_wall() -> None:
    schedule = parse(
        cron="30 9,18 * * *",
        timezone="America/New_York",
        except_=["2026-12-25", "* 18 * * fri", "* * 31 12 *"],
    )

    found = schedule.between(
        datetime(2026, 12, 24, 5, tzinfo=UTC), datetime(2027, 1, 2, 5, tzinfo=UTC)
    )

    assert [f"{at:%d %H}" for at in found] == [
        *("24 14", "24 23", "26 14", "26 23", "27 14", "27 23", "28 14", "28 23"),
        *("29 14", "29 23", "30 14", "30 23", "01 14"),
    ]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"cron": "*/10 * * * *"}, ["02T08:00", "02T08:10", "02T08:20"]),
        ({"rate": "10 minutes"}, ["02T08:05", "02T08:15", "02T08:25"]),
        ({"rate": "every(1 day)"}, ["02T11:05", "03T11:05", "06T11:05"]),
    ],
    ids=str,
)
def test_every_kind_of_schedule_has_exclusions(said: Said, expected: list[str]) -> None:
    limits = Said(
        start_at="2026-01-01T11:05:00Z",
        except_=["* 0-7 * * *", "2026-01-01", "* * * * sun,mon"],
    )
    schedule = parse(**(said | limits))

    found = list(islice(schedule.occurrences(START), 400))

    assert [f"{at:%dT%H:%M}" for at in found[:3]] == expected
    assert [schedule.previous(later) for later in found[1:]] == found[:-1]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"cron": "0 9 1 12 *"}, ["2026", "2028", "2031", "2032"]),
        ({"cron": "0 9 1W 12 *"}, ["2026", "2028", "2031", "2032"]),
        (
            {"rate": "every(365 days)", "start_at": "2026-01-01T09:00:00Z"},
            ["2026", "2028", "2028", "2031"],
        ),
        (
            {"rate": "365 days", "start_at": "2026-01-01T09:00:00Z"},
            ["2026", "2028", "2028", "2031"],
        ),
    ],
    ids=str,
)
def test_an_exclusion_that_names_years_takes_only_those_away(
    said: Said, expected: list[str]
) -> None:
    schedule = parse(**(said | Said(except_=["cron(* * * * ? 2027,2029-2030)"])))

    found = list(islice(schedule.occurrences(START), 4))

    assert [f"{at:%Y}" for at in found] == expected
    assert [schedule.previous(later) for later in found[1:]] == found[:-1]


def test_exclusions_of_every_year_of_an_expression_leave_nothing() -> None:
    with pytest.raises(Rejected, match="takes away every occurrence"):
        parse(cron="cron(0 0 1 1 ? 2027-2028)", except_=["cron(* * * * ? 2020-2030)"])
    assert parse(cron="0 0 1 1 *", except_=["cron(* * * * ? 2001-2100)"]).next(START) == datetime(
        2101, 1, 1, tzinfo=UTC
    )


def test_the_last_minute_before_an_exclusion_is_found_from_both_sides() -> None:
    schedule = parse(rate="20 seconds", start_at=START, except_=["* 0-7 * * *"])
    morning = START + timedelta(days=1, hours=8)
    evening = START + timedelta(days=1) - timedelta(seconds=20)

    assert schedule.previous(morning) == evening
    assert schedule.next(evening) == morning


@pytest.mark.parametrize(
    "said",
    [
        {"cron": "0 0 * * *", "except_": ["0 0 * * *"]},
        {"cron": "0 8 * * 1-5", "except_": ["* * * * 1,3,5", "0-30 8-10 * * 2,4"]},
        {"cron": "0 0 29 2 *", "except_": ["* * * 2 *"]},
        {"rate": "5 minutes", "except_": ["* * * * *"]},
        {"rate": "1 hour", "except_": ["0 * * * *"]},
        {"rate": "every(1 day)", "start_at": START, "except_": ["0 0 * * *"]},
    ],
    ids=str,
)
def test_exclusions_that_leave_nothing_are_refused(said: Said) -> None:
    started = process_time()

    with pytest.raises(Rejected, match="takes away every occurrence") as refused:
        parse(**said)

    assert refused.value.field == "except"
    assert process_time() - started < 10


def test_a_minute_that_is_left_and_comes_twice_is_met_twice_by_a_rate() -> None:
    only_half_past_two = ["0-29,31-59 * * * *", "* 0-1,3-23 * * *"]
    schedule = parse(
        rate="15 minutes",
        timezone="Europe/Berlin",
        start_at="2026-10-24T00:00:00Z",
        end_at="2026-10-27T00:00:00Z",
        except_=only_half_past_two,
    )

    found = list(schedule.between(*ALWAYS))

    assert [f"{at:%d %H:%M}" for at in found] == ["24 00:30", "25 00:30", "25 01:30", "26 01:30"]
    assert list(schedule.occurrences_before(ALWAYS[1])) == found[::-1]


def test_a_rate_of_minutes_meets_the_one_minute_of_a_day_that_is_left() -> None:
    schedule = parse(rate="1439 minutes", start_at=START, except_=["1-59 * * * *", "* 1-23 * * *"])
    started = process_time()

    later = schedule.next(START)

    assert later == START + 1440 * timedelta(minutes=1439)
    assert schedule.previous(later) == START
    assert process_time() - started < 10


def test_a_long_barren_stretch_of_the_calendar_is_crossed_quickly() -> None:
    no_leap_day = ["* * 1-28,30,31 * *", "* * * 1,3-12 *"]
    schedule = parse(rate="every(1 day)", start_at=START, except_=no_leap_day)
    started = process_time()

    assert schedule.next(datetime(2096, 3, 1, tzinfo=UTC)) == datetime(2104, 2, 29, tzinfo=UTC)
    assert process_time() - started < 2


def test_a_long_barren_stretch_is_crossed_quickly() -> None:
    leap_sundays = parse(cron="* * * * *", except_=["* * 1-28,30,31 * *", "* * * 1,3-12 *"])
    started = process_time()

    found = leap_sundays.next(datetime(2096, 3, 1, tzinfo=UTC))

    assert found == datetime(2104, 2, 29, tzinfo=UTC)
    assert process_time() - started < 2


def test_a_flexible_window_moves_a_job_later_by_the_same_part_each_time() -> None:
    """S2-K1, S1-Q6: by a hash of its id; without a window it is due to the second."""

    def delay(seed: str, slot: datetime = START) -> timedelta:
        return parse(cron="0 0 * * *", flexible_window_seconds=60, seed=seed).run_at(slot) - slot

    delays = {delay(f"job_{number}") for number in range(500)}

    assert delay("job_1") == delay("job_1", START + DAY)
    assert all(timedelta(0) <= each < timedelta(seconds=60) for each in delays)
    assert max(delays) - min(delays) > timedelta(seconds=50)
    assert all(each % MILLISECOND == timedelta(0) for each in delays)
    assert parse(cron="0 0 * * *", seed="job_1").run_at(START) == START


@pytest.mark.parametrize(
    "said",
    [
        {"cron": "0 0 * * *"},
        {"cron": "cron(0 12 ? * 2 *)", "dialect": "eventbridge"},
        {"rate": "rate(5 minutes)", "anchor": START},
        {"at": "2026-07-12T02:00:00", "timezone": "America/New_York"},
        {
            "cron": "H 9 * * mon-fri",
            "timezone": "Europe/Berlin",
            "dst_gap": "SHIFT",
            "dst_fold": "BOTH",
            "start_at": START,
            "end_at": START + 900 * DAY,
            "max_occurrences": 50,
            "flexible_window_seconds": 30,
            "except_": ["2026-12-25"],
            "seed": "job_1",
            "anchor": START,
        },
    ],
    ids=str,
)
def test_a_schedule_survives_its_record(said: Said) -> None:
    """S0-S3: the release of the zone database is stored with it."""
    schedule = parse(**said)

    record = json.loads(json.dumps(schedule.to_record()))

    assert Schedule.from_record(record) == schedule
    assert Schedule.from_record(record).next(START) == schedule.next(START)
    assert record["tzdb"] == schedule.zones.version


def test_the_last_of_a_count_is_kept_and_not_counted_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schedule = parse(cron="* * * * *", start_at=START, max_occurrences=MAX_OCCURRENCES)
    record = schedule.to_record()
    last = START + (MAX_OCCURRENCES - 1) * timedelta(minutes=1)
    assert schedule.previous(ALWAYS[1]) == last

    def counted(_: Schedule) -> datetime:
        raise AssertionError("counted again")

    monkeypatch.setattr(model, "_count", counted)

    assert Schedule.from_record(record).previous(ALWAYS[1]) == last
    assert Schedule.from_record(record).to_record() == record
    with pytest.raises(AssertionError, match="counted again"):
        replace(Schedule.from_record(record), start_at=START + DAY).previous(ALWAYS[1])


@pytest.mark.parametrize("change", [{"tzdb": "1999a"}, {"last_at": None}], ids=str)
def test_the_last_of_a_count_is_counted_by_other_zones_and_from_older_records(
    change: dict[str, str | None],
) -> None:
    schedule = parse(cron="0 2 * * *", start_at=START, max_occurrences=3)
    stored = {**schedule.to_record(), "last_at": "2030-01-01T00:00:00Z", **change}
    record = cast("Record", {name: value for name, value in stored.items() if value is not None})

    assert Schedule.from_record(record).previous(ALWAYS[1]) == START + 2 * DAY + timedelta(hours=2)


@pytest.mark.parametrize(
    "record",
    [
        {"kind": "cron", "text": "0 25 * * *", "timezone": "UTC", "tzdb": "2026a"},
        {"kind": "cron", "text": "0 2 * * *", "timezone": "Atlantis/Poseidonis", "tzdb": "2026a"},
        {"kind": "moon", "text": "full", "timezone": "UTC", "tzdb": "2026a"},
        {"kind": "cron"},
    ],
    ids=str,
)
def test_a_record_that_cannot_be_read_any_more_is_kept_and_asked_in_vain(
    record: Record,
) -> None:
    schedule = read_record(record)

    assert isinstance(schedule, UnreadableSchedule)
    assert schedule.to_record() == record
    for ask in (schedule.next, schedule.previous, schedule.contains, schedule.run_at):
        with pytest.raises(Unreadable, match="its schedule cannot be read"):
            ask(START)


@pytest.mark.parametrize(
    ("said", "shortest"),
    [
        ({"cron": "* * * * *"}, timedelta(minutes=1)),
        ({"cron": "0,45 * * * *"}, timedelta(minutes=15)),
        ({"cron": "59 0,23 * * *"}, timedelta(hours=1)),
        ({"cron": "0 0 1 1 *"}, DAY),
        ({"rate": "90 seconds"}, timedelta(seconds=90)),
        ({"at": "2026-07-12T02:00:00Z"}, timedelta.max),
    ],
    ids=str,
)
def test_the_shortest_interval(said: Said, shortest: timedelta) -> None:
    assert shortest_interval(parse(**said)) == shortest


def test_an_interval_below_the_owner_s_minimum_is_refused() -> None:
    every_second = parse(rate="1 second", anchor=START)

    with pytest.raises(Rejected, match="repeats after 1 s, less than 60 s") as refused:
        check(every_second, now=START)
    check(every_second, now=START, min_interval=timedelta(seconds=1))
    with pytest.raises(Rejected, match="repeats after 300 s, less than 600 s"):
        check(parse(cron="*/5 * * * *"), now=START, min_interval=timedelta(minutes=10))

    assert refused.value.field == "rate"


@pytest.mark.parametrize(
    ("said", "field", "reason"),
    [
        ({"cron": "cron(0 0 1 1 ? 2025)"}, "cron", "is never due after 2026-01-01T00:00:00"),
        (
            {"cron": "cron(30 2 ? 3 1#2 *)", "timezone": "America/New_York", "dst_gap": "SKIP"},
            *("cron", "is never due after 2026-01-01T00:00:00"),
        ),
        (
            {"cron": "0 0 * * *", "end_at": START - DAY},
            *("end_at", "in the past, before 2026-01-01T00:00:00.000Z"),
        ),
        (
            {"cron": "0 12 * * *", "end_at": START + DAY / 4},
            *("end_at", "earlier than the first occurrence after 2026-01-01T00:00:00.000Z, 2026-0"),
        ),
        (
            {"cron": "0 0 1 2 *", "end_at": START + DAY, "max_occurrences": 5, "start_at": START},
            *("end_at", "2026-02-01T00:00:00.000Z"),
        ),
        (
            {"rate": "1 hour", "start_at": START - 9 * DAY, "max_occurrences": 5},
            *("max_occurrences", "all of them are over by 2026-01-01T00:00:00.000Z"),
        ),
        (
            {"cron": "cron(0 0 1 7 ? 2026-2027)", "except_": ["2026-07-01", "2027-07-01"]},
            *("except", "takes away every occurrence after 2026-01-01T00:00:00.000Z"),
        ),
    ],
    ids=str,
)
def test_what_is_never_due_again_is_refused_by_the_field_that_ends_it(
    said: Said, field: str, reason: str
) -> None:
    with pytest.raises(Rejected) as refused:
        check(parse(**said), now=START)

    assert refused.value.field == field
    assert reason in refused.value.reason


def test_what_takes_too_long_to_count_is_refused_before_it_costs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tries, real = [0], RateTimeline.tries

    def counted(
        timeline: RateTimeline, start: datetime, end: datetime
    ) -> Iterator[datetime | None]:
        for one in real(timeline, start, end):
            tries[0] += 1
            yield one

    monkeypatch.setattr(RateTimeline, "tries", counted)
    only_midnight = ["1-59 * * * *", "* 1-23 * * *"]
    seldom = parse(
        rate="997 minutes", start_at=START, except_=only_midnight, max_occurrences=MAX_OCCURRENCES
    )

    with pytest.raises(Rejected, match="max_occurrences cannot be counted") as refused:
        check(seldom, now=START)

    assert refused.value.field == "except"
    assert MAX_COUNTING_MISSES < tries[0] < 2 * MAX_COUNTING_MISSES
    check(replace(seldom, max_occurrences=3), now=START)


def test_whether_a_past_time_still_runs_is_not_decided_here() -> None:
    check(parse(at="2020-01-01T00:00:00Z"), now=START)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("0 0 * * *", "cron"),
        ("cron(0 0 * * ? *)", "cron"),
        ("@daily", "cron"),
        ("rate(5 minutes)", "rate"),
        (" Every(2 weeks)", "rate"),
        ("AT(2026-07-12T02:00:00)", "at"),
    ],
)
def test_a_text_on_its_own_tells_which_field_it_is(text: str, field: str) -> None:
    assert field_of(text) == field
