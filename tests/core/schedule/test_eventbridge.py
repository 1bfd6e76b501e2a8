"""The dialect of EventBridge Scheduler: six fields, with its own weekdays and marks."""

from datetime import UTC, datetime
from itertools import islice

import pytest

from lamplighter.core.errors import Rejected
from lamplighter.core.schedule import parse

START = datetime(2026, 1, 1, tzinfo=UTC)

DUE = {
    "Sunday is 1": ("cron(0 12 ? * 1 *)", ["2026-01-04", "2026-01-11"]),
    "Saturday is 7": ("cron(0 12 ? * 7 *)", ["2026-01-03", "2026-01-10"]),
    "weekdays by name": ("cron(0 12 ? * MON-FRI *)", ["2026-01-01", "2026-01-02"]),
    "the whole week": ("cron(0 12 ? * SUN-SAT *)", ["2026-01-01", "2026-01-02"]),
    "L alone is Saturday": ("cron(0 12 ? * L *)", ["2026-01-03", "2026-01-10"]),
    "the last Friday": ("cron(0 12 ? * 6L *)", ["2026-01-30", "2026-02-27"]),
    "the second Tuesday": ("cron(0 12 ? * 3#2 *)", ["2026-01-13", "2026-02-10"]),
    "the second Tuesday by name": ("cron(0 12 ? * TUE#2 *)", ["2026-01-13", "2026-02-10"]),
    "the last day": ("cron(0 12 L * ? *)", ["2026-01-31", "2026-02-28"]),
    "the last workday": ("cron(0 12 LW * ? *)", ["2026-01-30", "2026-02-27"]),
    "the workday nearest the 15th": ("cron(0 12 15W * ? *)", ["2026-01-15", "2026-02-16"]),
    "a step from a start": ("cron(0 12 1/10 * ? *)", ["2026-01-01", "2026-01-11"]),
    "some years": ("cron(0 12 1 1 ? 2027,2030-2031)", ["2027-01-01", "2030-01-01"]),
    "every second year": ("cron(0 12 29 2 ? 2028/2)", ["2028-02-29", "2032-02-29"]),
    "the year 2199": ("cron(0 12 31 12 ? 2199)", ["2199-12-31"]),
    "bare fields": ("0 12 ? * 2 *", ["2026-01-05", "2026-01-12"]),
    "lower case": ("CRON(0 12 ? jan mon 2026)", ["2026-01-05", "2026-01-12"]),
}

REFUSED = {
    "two stars": ("cron(0 12 * * * *)", "'?'"),
    "two values": ("cron(0 12 1 * 2 *)", "'?'"),
    "two question marks": ("cron(0 12 ? * ? *)", "'?'"),
    "a question mark elsewhere": ("cron(? 12 1 * ? *)", "minute '?' is not"),
    "weekday 0": ("cron(0 12 ? * 0 *)", "day-of-week 0 is not in 1–7"),
    "weekday 8": ("cron(0 12 ? * 8 *)", "day-of-week 8 is not in 1–7"),
    "five fields": ("cron(0 12 * * ?)", "5 fields instead of six"),
    "seven fields": ("cron(0 0 12 * * ? *)", "7 fields instead of six"),
    "the year 1969": ("cron(0 12 1 1 ? 1969)", "year 1969 is not in 1970–2199"),
    "the year 2200": ("cron(0 12 1 1 ? 2200)", "year 2200 is not in 1970–2199"),
    "no leap year": ("cron(0 12 29 2 ? 2027)", "never fires"),
    "H": ("cron(H 12 1 * ? *)", "minute 'H' is not a number"),
    "a macro": ("@daily", "1 fields instead of six"),
}


@pytest.mark.parametrize(("text", "days"), DUE.values(), ids=DUE)
def test_an_expression_is_due_on_the_days_that_aws_names(text: str, days: list[str]) -> None:
    found = islice(parse(cron=text, dialect="eventbridge").occurrences(START), 2)

    assert [f"{instant:%Y-%m-%d}" for instant in found] == days


@pytest.mark.parametrize(("text", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_aws_does_not_read_is_refused(text: str, reason: str) -> None:
    with pytest.raises(Rejected) as refused:
        parse(cron=text, dialect="eventbridge")

    assert refused.value.field == "cron"
    assert reason in refused.value.reason


def test_cron_in_parentheses_needs_no_dialect() -> None:
    wrapped = parse(cron="cron(0 12 ? * 2 *)")

    assert wrapped.next(START) == datetime(2026, 1, 5, 12, tzinfo=UTC)


def test_years_end() -> None:
    once = parse(cron="cron(0 12 1 1 ? 2027)")
    new_year = datetime(2027, 1, 1, 12, tzinfo=UTC)

    assert once.next(START) == new_year
    assert once.next(new_year) is None
    assert once.previous(datetime(2199, 1, 1, tzinfo=UTC)) == new_year
    assert once.previous(new_year) is None


def test_an_unknown_dialect_is_refused() -> None:
    with pytest.raises(Rejected, match="not one of unix, eventbridge"):
        parse(cron="0 0 * * *", dialect="quartz")
