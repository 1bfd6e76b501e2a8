"""Changed laws, odd clocks and odd days, one by one, forwards and backwards.

What is expected was computed without the engine: local times were enumerated day by day, and
looked up in `zoneinfo` under both values of `fold`.
"""

from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest

from lamplighter.core.schedule import PINNED, parse
from tests.core.schedule.test_against_oracles import WINDOWS

DAY = timedelta(days=1)

# expression, zone, after, policies; what is due next
CASES = {
    "Cairo, summer time again since 2023, at midnight": (
        ("30 0 * * *", "Africa/Cairo", "2023-04-26T12:00Z", "SHIFT FIRST"),
        "2023-04-26T22:30 2023-04-27T22:30 2023-04-28T21:30",
    ),
    "Cairo, the fold at midnight": (
        ("30 23 * * *", "Africa/Cairo", "2023-10-25T12:00Z", "SKIP BOTH"),
        "2023-10-25T20:30 2023-10-26T20:30 2023-10-26T21:30",
    ),
    "Amman, summer time for good, without a fold": (
        ("30 0 * * *", "Asia/Amman", "2022-10-26T12:00Z", "SKIP BOTH"),
        "2022-10-26T21:30 2022-10-27T21:30 2022-10-28T21:30",
    ),
    "Mexico City, its last fold": (
        ("30 1 * * *", "America/Mexico_City", "2022-10-29T12:00Z", "SKIP SECOND"),
        "2022-10-30T07:30 2022-10-31T07:30 2022-11-01T07:30",
    ),
    "Mexico City, no gap any more": (
        ("30 2 * * *", "America/Mexico_City", "2023-04-01T12:00Z", "SKIP FIRST"),
        "2023-04-02T08:30 2023-04-03T08:30 2023-04-04T08:30",
    ),
    "Almaty, an hour back for good": (
        ("30 23 * * *", "Asia/Almaty", "2024-02-28T12:00Z", "SKIP BOTH"),
        "2024-02-28T17:30 2024-02-29T17:30 2024-02-29T18:30",
    ),
    "Nuuk, a change at ten in the evening": (
        ("30 22 * * *", "America/Nuuk", "2023-03-24T12:00Z", "SHIFT FIRST"),
        "2023-03-25T01:30 2023-03-26T01:30 2023-03-27T00:30",
    ),
    "Nuuk, the first fold of the new law": (
        ("30 23 * * *", "America/Nuuk", "2024-10-25T12:00Z", "NEXT_VALID BOTH"),
        "2024-10-26T00:30 2024-10-27T00:30 2024-10-27T01:30",
    ),
    "Dublin, whose winter is the negative one, spring": (
        ("30 1 * * *", "Europe/Dublin", "2026-03-28T12:00Z", "SHIFT FIRST"),
        "2026-03-29T01:30 2026-03-30T00:30 2026-03-31T00:30",
    ),
    "Dublin, autumn": (
        ("30 1 * * *", "Europe/Dublin", "2026-10-24T12:00Z", "SKIP SECOND"),
        "2026-10-25T01:30 2026-10-26T01:30 2026-10-27T01:30",
    ),
    "Casablanca, out of Ramadan": (
        ("30 2 * * *", "Africa/Casablanca", "2026-03-21T12:00Z", "NEXT_VALID FIRST"),
        "2026-03-22T02:00 2026-03-23T01:30 2026-03-24T01:30",
    ),
    "Casablanca, into Ramadan": (
        ("30 2 * * *", "Africa/Casablanca", "2026-02-14T12:00Z", "NEXT_VALID BOTH"),
        "2026-02-15T01:30 2026-02-15T02:30 2026-02-16T02:30",
    ),
    "Apia, summer time given up": (
        ("30 3 * * *", "Pacific/Apia", "2021-04-03T00:00Z", "SKIP BOTH"),
        "2021-04-03T13:30 2021-04-03T14:30 2021-04-04T14:30",
    ),
    "Istanbul, summer time for good": (
        ("30 3 * * *", "Europe/Istanbul", "2016-10-29T12:00Z", "SKIP BOTH"),
        "2016-10-30T00:30 2016-10-31T00:30 2016-11-01T00:30",
    ),
    "Tehran, at midnight, its last gap": (
        ("15 0 * * *", "Asia/Tehran", "2022-03-20T12:00Z", "SHIFT FIRST"),
        "2022-03-20T20:45 2022-03-21T20:45 2022-03-22T19:45",
    ),
    "Volgograd, an hour back in December": (
        ("30 1 * * *", "Europe/Volgograd", "2020-12-26T12:00Z", "SKIP BOTH"),
        "2020-12-26T21:30 2020-12-26T22:30 2020-12-27T22:30",
    ),
    "Santiago, a gap at midnight of a Sunday": (
        ("0 0 * * 0", "America/Santiago", "2026-09-05T12:00Z", "NEXT_VALID FIRST"),
        "2026-09-06T04:00 2026-09-13T03:00 2026-09-20T03:00",
    ),
    "Santiago, the midnight that comes twice": (
        ("30 23 * * sat", "America/Santiago", "2026-04-04T12:00Z", "SKIP BOTH"),
        "2026-04-05T02:30 2026-04-05T03:30 2026-04-12T03:30",
    ),
    "Sao Paulo, a day of the month without midnight": (
        ("0 0 4 11 *", "America/Sao_Paulo", "2018-11-01T00:00Z", "NEXT_VALID FIRST"),
        "2018-11-04T03:00 2019-11-04T03:00 2020-11-04T03:00",
    ),
    "the Azores, a gap at midnight": (
        ("15 0 * * *", "Atlantic/Azores", "2026-03-28T12:00Z", "SHIFT FIRST"),
        "2026-03-29T01:15 2026-03-30T00:15 2026-03-31T00:15",
    ),
    "Lord Howe, the fold of half an hour": (
        ("45 1 * * *", "Australia/Lord_Howe", "2026-04-04T12:00Z", "SKIP BOTH"),
        "2026-04-04T14:45 2026-04-04T15:15 2026-04-05T15:15",
    ),
    "Lord Howe, a range over the gap": (
        ("0,10,20,30 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00Z", "SHIFT FIRST"),
        "2026-10-03T15:30 2026-10-03T15:40 2026-10-03T15:50",
    ),
    "Troll, the fold of two hours": (
        ("0 1,2 * * *", "Antarctica/Troll", "2026-10-24T12:00Z", "SKIP SECOND"),
        "2026-10-25T01:00 2026-10-25T02:00 2026-10-26T01:00",
    ),
    "Troll, every time of the gap of two hours": (
        ("30 1,2 * * *", "Antarctica/Troll", "2026-03-28T12:00Z", "SHIFT FIRST"),
        "2026-03-29T01:30 2026-03-29T02:30 2026-03-29T23:30",
    ),
    "Chatham, at a quarter to": (
        ("50 2 * * *", "Pacific/Chatham", "2026-09-26T00:00Z", "SHIFT FIRST"),
        "2026-09-26T14:05 2026-09-27T13:05 2026-09-28T13:05",
    ),
    "St. John's, a minute past midnight": (
        ("30 0 * * *", "America/St_Johns", "2007-03-10T12:00Z", "NEXT_VALID FIRST"),
        "2007-03-11T03:31 2007-03-12T03:00 2007-03-13T03:00",
    ),
    "Kiritimati, no Sunday": (
        ("0 12 * * *", "Pacific/Kiritimati", "1994-12-30T12:00Z", "SHIFT FIRST"),
        "1994-12-30T22:00 1994-12-31T22:00 1995-01-01T22:00",
    ),
    "Kiritimati, the first of January under every law": (
        ("0 8 1 1 *", "Pacific/Kiritimati", "1994-12-01T12:00Z", "NEXT_VALID FIRST"),
        "1994-12-31T18:00 1995-12-31T18:00 1996-12-31T18:00",
    ),
    "Apia, the last Friday of a month without it": (
        ("0 9 * 12 5L", "Pacific/Apia", "2011-12-20T00:00Z", "SKIP FIRST"),
        "2012-12-27T19:00 2013-12-26T19:00 2014-12-25T19:00",
    ),
    "Casey, three hours forward": (
        ("30 1 * * *", "Antarctica/Casey", "2020-10-02T00:00Z", "NEXT_VALID FIRST"),
        "2020-10-02T17:30 2020-10-03T16:01 2020-10-04T14:30",
    ),
    "Monrovia, forty-four and a half minutes": (
        ("0 0 7 1 *", "Africa/Monrovia", "1972-01-01T00:00Z", "NEXT_VALID FIRST"),
        "1972-01-07T00:44:30 1973-01-07T00:00 1974-01-07T00:00",
    ),
    "Berlin, in 2150": (
        ("30 2 * * *", "Europe/Berlin", "2150-03-28T12:00Z", "NEXT_VALID FIRST"),
        "2150-03-29T01:00 2150-03-30T00:30 2150-03-31T00:30",
    ),
    "New York, EventBridge's second Sunday of March": (
        ("cron(30 2 ? 3 1#2 *)", "America/New_York", "2026-01-01T00:00Z", "SHIFT FIRST"),
        "2026-03-08T07:30 2027-03-14T07:30 2028-03-12T07:30",
    ),
    "Havana, EventBridge's Sundays at the fold": (
        ("cron(30 0 ? 11 1 2026-2027)", "America/Havana", "2026-10-31T12:00Z", "SKIP BOTH"),
        "2026-11-01T04:30 2026-11-08T04:30 2026-11-15T04:30",
    ),
    "a deprecated name": (
        ("0 9 * * *", "US/Eastern", "2026-03-07T15:00Z", "NEXT_VALID FIRST"),
        "2026-03-08T13:00 2026-03-09T13:00 2026-03-10T13:00",
    ),
    "leap days over a century": (
        ("0 0 29 2 *", "UTC", "2096-01-01T00:00Z", "NEXT_VALID FIRST"),
        "2096-02-29T00:00 2104-02-29T00:00 2108-02-29T00:00",
    ),
    "a Sunday that is a leap day": (
        ("0 0 29 2 */7", "UTC", "2050-01-01T00:00Z", "NEXT_VALID FIRST"),
        "2060-02-29T00:00 2088-02-29T00:00",
    ),
    "the workday nearest the first of a month": (
        ("0 0 1W * *", "UTC", "2026-07-15T00:00Z", "NEXT_VALID FIRST"),
        "2026-08-03T00:00 2026-09-01T00:00 2026-10-01T00:00",
    ),
    "the workday nearest a 31st": (
        ("0 0 31W 1-3 *", "UTC", "2026-01-15T00:00Z", "NEXT_VALID FIRST"),
        "2026-01-30T00:00 2026-03-31T00:00 2027-01-29T00:00",
    ),
    "the last workday and the fifth Friday": (
        ("0 0 LW * fri#5", "UTC", "2026-07-01T00:00Z", "NEXT_VALID FIRST"),
        "2026-07-31T00:00 2026-08-31T00:00 2026-09-30T00:00",
    ),
    "a stepped star of weekdays and a day": (
        ("0 0 13 * */5", "UTC", "2026-01-01T00:00Z", "NEXT_VALID FIRST"),
        "2026-02-13T00:00 2026-03-13T00:00 2026-09-13T00:00",
    ),
    "a stepped range is no star: either will do": (
        ("0 0 1-31/2 * 1", "UTC", "2026-01-01T00:00Z", "NEXT_VALID FIRST"),
        "2026-01-03T00:00 2026-01-05T00:00 2026-01-07T00:00",
    ),
    "every third year of EventBridge": (
        ("cron(0 0 L 2 ? 2027/3)", "UTC", "2026-01-01T00:00Z", "NEXT_VALID FIRST"),
        "2027-02-28T00:00 2030-02-28T00:00 2033-02-28T00:00",
    ),
}


@pytest.mark.parametrize(("said", "due"), CASES.values(), ids=CASES)
def test_what_is_due_next_and_was_due_before(said: tuple[str, str, str, str], due: str) -> None:
    cron, zone, after, policies = said
    gap, fold = policies.split()
    schedule = parse(cron=cron, timezone=zone, dst_gap=gap, dst_fold=fold)
    expected = [datetime.fromisoformat(f"{time}Z") for time in due.split()]

    found = list(islice(schedule.occurrences(datetime.fromisoformat(after)), len(expected)))

    assert found == expected
    assert [schedule.previous(later) for later in found[1:]] == found[:-1]


@pytest.mark.parametrize("days", range(-4, 5))
def test_the_last_one_is_right_whole_days_from_a_change_of_the_clocks(days: int) -> None:
    for zone in sorted({zone for zone, _, _ in WINDOWS}):
        schedule = parse(cron="0 0,2,23 * * *", timezone=zone, dst_gap="SHIFT", dst_fold="BOTH")
        for change in [*PINNED.zone(zone).changes(*_years(1990, 2030))][::7]:
            asked = change.at + days * DAY
            before = list(schedule.between(asked - 2 * DAY, asked))
            assert schedule.previous(asked) == before[-1], (zone, asked)


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/Los_Angeles", "Pacific/Apia"])
@pytest.mark.parametrize("cron", ["0 * * * *", "0 * L,1-31 * *"])
def test_the_first_and_the_last_year_are_whole_wherever_one_is(zone: str, cron: str) -> None:
    schedule = parse(cron=cron, timezone=zone)
    first, end = _years(1970, 2200)

    assert schedule.next(first - DAY) == first
    assert schedule.next(datetime(1, 1, 1, tzinfo=UTC)) == first
    assert schedule.previous(end + DAY) == end - timedelta(hours=1)
    assert schedule.next(end - timedelta(hours=1)) is None
    assert schedule.previous(first) is None


def _years(first: int, last: int) -> tuple[datetime, datetime]:
    return datetime(first, 1, 1, tzinfo=UTC), datetime(last, 1, 1, tzinfo=UTC)
