"""Gaps, folds and changed laws: every kind of change, under every policy, as tables."""

from datetime import UTC, datetime
from itertools import islice

import pytest

from lamplighter.core.schedule import parse

GAPS = ("NEXT_VALID", "SHIFT", "SKIP")
FOLDS = ("FIRST", "SECOND", "BOTH")

# expression, zone, a day before the change; what is due first under each gap policy
GAP_CASES = {
    "Berlin, one hour, 02:30 daily": (
        ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00Z"),
        ("2026-03-29T01:00", "2026-03-29T01:30", "2026-03-30T00:30"),
    ),
    "Berlin, the gap's first minute": (
        ("0 2 * * *", "Europe/Berlin", "2026-03-28T12:00Z"),
        ("2026-03-29T01:00", "2026-03-29T01:00", "2026-03-30T00:00"),
    ),
    "Berlin, the gap's last minute": (
        ("59 2 * * *", "Europe/Berlin", "2026-03-28T12:00Z"),
        ("2026-03-29T01:00", "2026-03-29T01:59", "2026-03-30T00:59"),
    ),
    "Berlin, the first minute after the gap": (
        ("0 3 * * *", "Europe/Berlin", "2026-03-28T12:00Z"),
        ("2026-03-29T01:00", "2026-03-29T01:00", "2026-03-29T01:00"),
    ),
    "Lord Howe, half an hour": (
        ("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00Z"),
        ("2026-10-03T15:30", "2026-10-03T15:45", "2026-10-04T15:15"),
    ),
    "Troll, two hours": (
        ("30 2 * * *", "Antarctica/Troll", "2026-03-28T12:00Z"),
        ("2026-03-29T01:00", "2026-03-29T02:30", "2026-03-30T00:30"),
    ),
    "Beirut, at midnight": (
        ("30 0 * * *", "Asia/Beirut", "2026-03-28T12:00Z"),
        ("2026-03-28T22:00", "2026-03-28T22:30", "2026-03-29T21:30"),
    ),
    "Havana, midnight of a weekday that has none": (
        ("0 0 * * 0", "America/Havana", "2026-03-07T12:00Z"),
        ("2026-03-08T05:00", "2026-03-08T05:00", "2026-03-15T04:00"),
    ),
    "Apia, a whole Friday": (
        ("0 9 * * 5", "Pacific/Apia", "2011-12-29T20:00Z"),
        ("2011-12-30T10:00", "2011-12-30T19:00", "2012-01-05T19:00"),
    ),
    "Kwajalein, a whole Saturday": (
        ("0 9 21 8 *", "Pacific/Kwajalein", "1993-08-20T12:00Z"),
        ("1993-08-21T12:00", "1993-08-21T21:00", "1994-08-20T21:00"),
    ),
    "Pyongyang, a new law of half an hour": (
        ("45 23 4 5 *", "Asia/Pyongyang", "2018-05-03T12:00Z"),
        ("2018-05-04T15:00", "2018-05-04T15:15", "2019-05-04T14:45"),
    ),
    "Kathmandu, a new law of fifteen minutes": (
        ("5 0 1 1 *", "Asia/Kathmandu", "1985-12-31T00:00Z"),
        ("1985-12-31T18:30", "1985-12-31T18:35", "1986-12-31T18:20"),
    ),
}

# what is due in the ten hours around the change, under each fold policy
FOLD_CASES = {
    "Berlin, one hour, 02:30": (
        ("30 2 * * *", "Europe/Berlin", "2026-10-24T20:00Z", "2026-10-25T06:00Z"),
        (["00:30"], ["01:30"], ["00:30", "01:30"]),
    ),
    "Berlin, before, in and after the fold": (
        ("0,30 1-3 * * *", "Europe/Berlin", "2026-10-24T20:00Z", "2026-10-25T06:00Z"),
        (
            ["23:00", "23:30", "00:00", "00:30", "02:00", "02:30"],
            ["23:00", "23:30", "01:00", "01:30", "02:00", "02:30"],
            ["23:00", "23:30", "00:00", "00:30", "01:00", "01:30", "02:00", "02:30"],
        ),
    ),
    "Lord Howe, half an hour": (
        ("0,30,45 1,2 * * *", "Australia/Lord_Howe", "2026-04-04T10:00Z", "2026-04-04T20:00Z"),
        (
            ["14:00", "14:30", "14:45", "15:30", "16:00", "16:15"],
            ["14:00", "15:00", "15:15", "15:30", "16:00", "16:15"],
            ["14:00", "14:30", "14:45", "15:00", "15:15", "15:30", "16:00", "16:15"],
        ),
    ),
    "Havana, at midnight": (
        ("15 0 * * *", "America/Havana", "2025-11-02T00:00Z", "2025-11-02T10:00Z"),
        (["04:15"], ["05:15"], ["04:15", "05:15"]),
    ),
    "Caracas, a new law of half an hour": (
        ("45 2 * * *", "America/Caracas", "2007-12-09T00:00Z", "2007-12-09T10:00Z"),
        (["06:45"], ["07:15"], ["06:45", "07:15"]),
    ),
}


@pytest.mark.parametrize(("said", "due"), GAP_CASES.values(), ids=GAP_CASES)
def test_a_time_that_the_clock_skips(said: tuple[str, str, str], due: tuple[str, str, str]) -> None:
    """S0-S3: skipped, shifted, or due at the end of the gap."""
    cron, zone, after = said

    for gap, expected in zip(GAPS, due, strict=True):
        found = parse(cron=cron, timezone=zone, dst_gap=gap).next(datetime.fromisoformat(after))
        assert found is not None
        assert f"{found:%Y-%m-%dT%H:%M}" == expected, gap


@pytest.mark.parametrize(("said", "due"), FOLD_CASES.values(), ids=FOLD_CASES)
def test_a_time_that_the_clock_repeats(
    said: tuple[str, str, str, str], due: tuple[list[str], list[str], list[str]]
) -> None:
    """S0-S3: due once or twice, as is chosen."""
    cron, zone, start, end = said

    for fold, expected in zip(FOLDS, due, strict=True):
        schedule = parse(cron=cron, timezone=zone, dst_fold=fold)
        found = schedule.between(datetime.fromisoformat(start), datetime.fromisoformat(end))
        assert [f"{instant:%H:%M}" for instant in found] == expected, fold


def test_several_times_in_one_gap_are_due_once_at_its_end() -> None:
    schedule = parse(cron="0,15,30,45 2 * * *", timezone="Europe/Berlin")
    gap = datetime(2026, 3, 29, tzinfo=UTC), datetime(2026, 3, 29, 6, tzinfo=UTC)

    assert list(schedule.between(*gap)) == [datetime(2026, 3, 29, 1, tzinfo=UTC)]


def test_shifted_times_take_their_place_among_the_others() -> None:
    schedule = parse(cron="5,45 2,3 * * *", timezone="Europe/Berlin", dst_gap="SHIFT")
    gap = datetime(2026, 3, 29, tzinfo=UTC), datetime(2026, 3, 29, 6, tzinfo=UTC)

    found = [f"{instant:%H:%M}" for instant in schedule.between(*gap)]

    assert found == ["01:05", "01:45"]
    assert list(schedule.timeline.between(*gap, descending=True)) == [
        *reversed(list(schedule.between(*gap)))
    ]


@pytest.mark.parametrize("gap", GAPS)
def test_a_window_may_begin_and_end_inside_a_gap(gap: str) -> None:
    schedule = parse(cron="0-59/7 2 * * *", dst_gap=gap, timezone="Europe/Berlin")
    whole = list(
        schedule.between(datetime(2026, 3, 29, tzinfo=UTC), datetime(2026, 3, 29, 6, tzinfo=UTC))
    )

    for cut in range(360):
        middle = datetime(2026, 3, 29, cut // 60, cut % 60, tzinfo=UTC)
        before = list(schedule.between(datetime(2026, 3, 29, tzinfo=UTC), middle))
        after = list(schedule.between(middle, datetime(2026, 3, 29, 6, tzinfo=UTC)))
        assert before + after == whole


@pytest.mark.parametrize("expression", ["*/20 * * * *", "* 2 * * *", "0-59/20 * * * *"])
def test_a_beat_neither_catches_up_nor_rests(expression: str) -> None:
    berlin = parse(cron=expression, timezone="Europe/Berlin")

    spring = [datetime(2026, 3, 29, tzinfo=UTC), datetime(2026, 3, 29, 3, tzinfo=UTC)]
    autumn = [datetime(2026, 10, 25, tzinfo=UTC), datetime(2026, 10, 25, 3, tzinfo=UTC)]

    if expression == "* 2 * * *":
        assert list(berlin.between(*spring)) == []
        assert len(list(berlin.between(*autumn))) == 120
    else:
        assert len(list(berlin.between(*spring))) == 9
        assert len(list(berlin.between(*autumn))) == 9


def test_the_old_law_holds_before_its_change_and_the_new_one_after() -> None:
    asuncion = parse(cron="0 8 1 7,12 *", timezone="America/Asuncion")

    found = islice(asuncion.occurrences(datetime(2023, 6, 1, tzinfo=UTC)), 6)

    assert [f"{instant:%Y-%m %H}" for instant in found] == [
        *("2023-07 12", "2023-12 11", "2024-07 12", "2024-12 11", "2025-07 11", "2025-12 11"),
    ]
