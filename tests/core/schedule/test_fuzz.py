"""Schedules as nobody should write them: each is one or Rejected, soon and without much memory."""

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamplighter.core.crontab import parse_crontab
from lamplighter.core.errors import Rejected
from lamplighter.core.schedule import Record, check, explain, parse, read_record
from tests.support.bounded import bounded
from tests.support.examples import examples

NOW = datetime(2026, 3, 28, 12, tzinfo=UTC)
# What the grammars are made of, and what is nearly so.
_PIECES = st.sampled_from(
    [
        "*",
        "?",
        "L",
        "W",
        "#",
        "/",
        ",",
        "-",
        "0",
        "1",
        "5",
        "7",
        "9",
        "12",
        "31",
        "59",
        "60",
        "61",
        "99",
        "H",
        "H(0-9)",
        "MON",
        "sun",
        "JAN",
        "2026",
        "2199",
        "LW",
        "1W",
        "5L",
        "5#2",
        "0/0",
        "1-0",
        "*/1",
        "*/99",
        "@daily",
        "@reboot",
        "@every",
        "cron(",
        "rate(",
        "at(",
        ")",
        "minutes",
        "days",
        "1_0",
        "\uff10",
        "½",
        "٣",
        "-1",
        "+1",
        "1e3",
        "0x1",
    ]
)
_FIELDS = st.lists(_PIECES, min_size=1, max_size=4).map("".join)
EXPRESSIONS = st.one_of(
    st.lists(_FIELDS, min_size=0, max_size=7).map(" ".join),
    st.lists(_FIELDS, min_size=5, max_size=6).map(lambda found: f"cron({' '.join(found)})"),
    st.text(max_size=60),
)
RATES = st.one_of(
    st.tuples(
        st.integers(-5, 10**30), st.sampled_from(["minute", "minutes", "days", "ms", ""])
    ).map(lambda found: f"rate({found[0]} {found[1]})"),
    EXPRESSIONS,
)
ZONES = st.sampled_from(["UTC", "Europe/Berlin", "Australia/Lord_Howe", "../etc/passwd", "", "\0"])


@settings(max_examples=examples(150))
@given(
    cron=EXPRESSIONS,
    zone=ZONES,
    dialect=st.sampled_from([None, "unix", "eventbridge", "cobol"]),
    gap=st.sampled_from(["NEXT_VALID", "SKIP", "SHIFT", ""]),
    exclude=st.lists(EXPRESSIONS, max_size=2),
)
def test_any_cron_expression_is_a_schedule_or_rejected(
    cron: str, zone: str, dialect: str | None, gap: str, exclude: list[str]
) -> None:
    with bounded():
        try:
            schedule = parse(
                cron=cron, timezone=zone, dialect=dialect, dst_gap=gap, except_=exclude
            )
            check(schedule, now=NOW)
        except Rejected:
            return
        slot = schedule.next(NOW)
        assert slot is None or slot > NOW
        assert slot is None or schedule.previous(slot) is None or schedule.contains(slot)
        assert explain(schedule)
        assert read_record(schedule.to_record()) == schedule


@settings(max_examples=examples(100))
@given(RATES, st.booleans())
def test_any_rate_is_a_schedule_or_rejected(rate: str, anchored: bool) -> None:
    with bounded():
        try:
            schedule = parse(rate=rate, anchor=NOW if anchored else None)
            check(schedule, now=NOW)
        except Rejected:
            return
        slot = schedule.next(NOW)
        assert slot is None or slot > NOW


@settings(max_examples=examples(60))
@given(
    st.dictionaries(
        st.sampled_from(
            ["kind", "text", "timezone", "seed", "tzdb", "start", "dst_gap", "exclude"]
        ),
        st.none() | st.integers() | EXPRESSIONS | st.sampled_from(["cron", "rate", "at", "UTC"]),
    )
)
def test_any_record_is_read_as_a_schedule_or_as_one_that_cannot_be(
    record: Record,
) -> None:
    with bounded():
        schedule = read_record(record)

        assert schedule.to_record() is not None


@pytest.mark.parametrize(
    "line",
    [
        "*" * 20_000,
        "* " * 20_000,
        "a " * 20_000 + "=",
        "A=" + "'" * 20_000,
        "* * * * * " + "\\%" * 20_000,
        "\t" * 20_000 + "x",
        "@" + "a" * 20_000,
        "0," * 20_000 + "0 * * * * true",
        "CRON_TZ=" + "x" * 20_000,
    ],
    ids=lambda line: line[:12],
)
def test_a_crontab_of_long_lines_is_read_in_no_time(line: str) -> None:
    with bounded(mebibytes=32):
        read = parse_crontab(f"{line}\n0 5 * * * true")

    assert len(read.entries) + len(read.problems) >= 1
