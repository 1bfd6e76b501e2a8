"""What the five fields accept, and how the rest is refused."""

from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest

from lamplighter.core.errors import Rejected
from lamplighter.core.schedule import parse

START = datetime(2026, 1, 1, tzinfo=UTC)
EVE = START - timedelta(minutes=1)

SAME = {
    "names of months": ("0 0 1 jan,JUL *", "0 0 1 1,7 *"),
    "names of weekdays": ("0 0 * * mon-Fri", "0 0 * * 1-5"),
    "a step of a name range": ("0 0 * * mon-fri/2", "0 0 * * 1,3,5"),
    "7 is Sunday": ("0 0 * * 7", "0 0 * * 0"),
    "a range up to 7": ("0 0 * * 5-7", "0 0 * * 5,6,0"),
    "equal ends are one value": ("9-9 9-9 9-9 9-9 *", "9 9 9 9 *"),
    "equal ends with a step": ("0 9-9/3 * * *", "0 9 * * *"),
    "a start with a step runs to the end": ("50/4 * * * *", "50,54,58 * * * *"),
    "a step that fits once": ("0-10/20 * * * *", "0 * * * *"),
    "a step as wide as the field": ("*/60 * * * *", "0 * * * *"),
    "leading zeros": ("05 09 01 01 *", "5 9 1 1 *"),
    "repeated values": ("0,0,0 0 * * *", "0 0 * * *"),
    "a full range is every day to either of two": ("0 0 1-31 * 1", "0 0 * * *"),
    "tabs and many spaces": ("0\t0  *   *\t*", "0 0 * * *"),
    "@yearly": ("@yearly", "0 0 1 1 *"),
    "@annually": ("@annually", "0 0 1 1 *"),
    "@monthly": ("@monthly", "0 0 1 * *"),
    "@weekly": ("@weekly", "0 0 * * 0"),
    "@daily": ("@Daily", "0 0 * * *"),
    "@midnight": ("@midnight", "0 0 * * *"),
    "@hourly": ("@HOURLY", "0 * * * *"),
}

REFUSED = {
    "minute 61": ("61 * * * *", "minute 61 is not in 0–59", "61"),
    "hour 24": ("0 24 * * *", "hour 24 is not in 0–23", "24"),
    "day 0": ("0 0 0 * *", "day-of-month 0 is not in 1–31", "0"),
    "day 32 in a list": ("0 0 1,32 * *", "day-of-month 32 is not in 1–31", "32"),
    "month 13": ("0 0 1 13 *", "month 13 is not in 1–12", "13"),
    "weekday 8": ("0 0 * * 8", "day-of-week 8 is not in 0–7", "8"),
    "a name in the wrong field": ("0 0 mon * *", "day-of-month 'MON' is not a number", "MON"),
    "a full name": ("0 0 * * monday", "day-of-week 'MONDAY' is not a number", "MONDAY"),
    "a range that ends too high": ("0-60 * * * *", "minute 60 is not in 0–59", "60"),
    "a huge range": ("0-99999999/1 * * * *", "minute 99999999 is not in 0–59", "99999999"),
    "hours backwards": ("0 22-2 * * *", "write 22-23,0-2", "22-2"),
    "months backwards": ("0 0 1 nov-feb *", "runs backwards", "NOV-FEB"),
    "weekdays backwards": ("0 0 * * fri-mon", "runs backwards", "FRI-MON"),
    "a backwards range with a step": ("50-10/5 * * * *", "runs backwards", "50-10/5"),
    "a wide step of minutes": ("*/61 * * * *", "minute step 61 is not in 1–60", "61"),
    "a wide step of hours": ("0 */25 * * *", "hour step 25 is not in 1–24", "25"),
    "a wide step of days": ("0 0 */32 * *", "day-of-month step 32 is not in 1–31", "32"),
    "a wide step of months": ("0 0 1 */13 *", "month step 13 is not in 1–12", "13"),
    "a wide step of weekdays": ("0 0 * * */8", "day-of-week step 8 is not in 1–7", "8"),
    "a wide step of a range": ("0-30/90 * * * *", "minute step 90 is not in 1–60", "90"),
    "no step": ("*/ * * * *", "minute '*/' is not a number, name, range or step", "*/"),
    "a negative step": ("*/-5 * * * *", "minute '*/-5' is not", "*/-5"),
    "a negative number": ("-5 * * * *", "minute '-5' is not", "-5"),
    "an empty item": ("1,,2 * * * *", "minute '' is not", ""),
    "an open range": ("5- * * * *", "minute '5-' is not", "5-"),
    "a range of a star": ("*-5 * * * *", "minute '*-5' is not", "*-5"),
    "two steps": ("*/5/5 * * * *", "minute '*/5/5' is not", "*/5/5"),
    "a fraction": ("1.5 * * * *", "minute '1.5' is not", "1.5"),
    "a question mark": ("0 0 ? * *", "day-of-month '?' is not", "?"),
    "chance": ("R * * * *", "minute 'R' is not a number in 0–59", "R"),
    "a range of chance": ("0~30 * * * *", "minute '0~30' is not", "0~30"),
    "the sixth Monday": ("0 0 * * mon#6", "occurrence 6 is not in 1–5", "MON#6"),
    "no Monday": ("0 0 * * mon#0", "occurrence 0 is not in 1–5", "MON#0"),
    "L without a weekday": ("0 0 * * L", "day-of-week 'L' is not a number", "L"),
    "L in the hour": ("0 L * * *", "hour 'L' is not a number in 0–23", "L"),
    "the weekday nearest day 32": ("0 0 32W * *", "day-of-month 32 is not in 1–31", "32"),
    "four fields": ("* * * *", "4 fields instead of five", "* * * *"),
    "seven fields": ("0 0 0 1 1 * 2030", "7 fields instead of five", "0 0 0 1 1 * 2030"),
    "six fields": ("0 0 12 * * *", "dialect=eventbridge", "0 0 12 * * *"),
    "@reboot": ("@reboot", "names no time", "@reboot"),
    "an unknown macro": ("@fortnightly", "no such macro", "@fortnightly"),
    "AWS's form under unix": ("cron(0 12 * * ? *)", "dialect=eventbridge", "cron(0 12 * * ? *)"),
    "the 30th of February": ("0 0 30 2 *", "never fires", "0 0 30 2 *"),
    "the 31st of short months": ("0 0 31 2,4,6,9,11 *", "never fires", "0 0 31 2,4,6,9,11 *"),
}


@pytest.mark.parametrize(("text", "plain"), SAME.values(), ids=SAME)
def test_two_spellings_are_due_together(text: str, plain: str) -> None:
    spelled, plainly = parse(cron=text), parse(cron=plain)

    first = list(islice(plainly.occurrences(START), 40))

    assert list(islice(spelled.occurrences(START), 40)) == first


@pytest.mark.parametrize(("text", "reason", "value"), REFUSED.values(), ids=REFUSED)
def test_a_refusal_names_the_field_and_the_value(text: str, reason: str, value: str) -> None:
    with pytest.raises(Rejected) as refused:
        parse(cron=text, dialect="unix")

    assert refused.value.field == "cron"
    assert refused.value.value == value
    assert reason in refused.value.reason


def test_a_day_field_that_starts_with_a_star_restricts_the_other_one() -> None:
    stepped = parse(cron="0 0 */2 * 1")

    days = [(day.day, day.isoweekday()) for day in islice(stepped.occurrences(START), 10)]

    assert all(day % 2 == 1 and weekday == 1 for day, weekday in days)


def test_either_of_two_restricted_day_fields_will_do() -> None:
    both = parse(cron="0 0 1 * fri#1")

    days = [f"{day:%m-%d}" for day in islice(both.occurrences(START), 5)]

    assert days == ["01-02", "02-01", "02-06", "03-01", "03-06"]


@pytest.mark.parametrize(
    ("text", "days"),
    [
        pytest.param("0 0 LW * *", ["01-30", "02-27", "03-31"], id="the last workday"),
        pytest.param("0 0 15W * *", ["01-15", "02-16", "03-16"], id="nearest the 15th, a Sunday"),
        pytest.param("0 0 1W 8 *", ["08-03", "08-02", "08-01"], id="never into July"),
        pytest.param("0 0 31W 5 *", ["05-29", "05-31", "05-31"], id="never into June"),
        pytest.param("0 0 29W 2 *", ["02-29", "02-27", "02-29"], id="only in a leap year"),
        pytest.param("0 0 L 2 *", ["02-28", "02-28", "02-29"], id="the last of February"),
        pytest.param("0 0 * 2 5L", ["02-27", "02-26", "02-25"], id="the last Friday"),
        pytest.param("0 0 * 2 friL", ["02-27", "02-26", "02-25"], id="the last Friday by name"),
        pytest.param("0 0 10,L 2 *", ["02-10", "02-28", "02-10"], id="a list with the last day"),
        pytest.param("0 0 1W,LW 8 *", ["08-03", "08-31", "08-02"], id="a list of workdays"),
        pytest.param("0 0 * 1 7#5,mon#1", ["01-05", "01-04", "01-31"], id="a list of nths"),
    ],
)
def test_a_marked_day_depends_on_the_month(text: str, days: list[str]) -> None:
    found = islice(parse(cron=text).occurrences(START), 3)

    assert [f"{day:%m-%d}" for day in found] == days


def test_h_is_the_same_for_one_job_and_spread_over_jobs() -> None:
    def minute(seed: str) -> int:
        found = parse(cron="H 3 * * *", seed=seed).next(START)
        assert found is not None
        return found.minute

    minutes = {minute(f"job_{number}") for number in range(200)}

    assert minute("job_1") == minute("job_1")
    assert len(minutes) > 50


@pytest.mark.parametrize("seed", [f"job_{number}" for number in range(20)])
def test_h_stays_in_its_range_and_keeps_its_step(seed: str) -> None:
    hours = list(islice(parse(cron="0 H(9-16) * * *", seed=seed).occurrences(EVE), 3))
    beats = list(islice(parse(cron="H/15 0 * * *", seed=seed).occurrences(EVE), 4))

    assert 9 <= hours[0].hour <= 16
    assert {hour.hour for hour in hours} == {hours[0].hour}
    assert beats[0].minute < 15
    assert [beat.minute - beats[0].minute for beat in beats] == [0, 15, 30, 45]


def test_h_in_every_field_is_due_in_every_month() -> None:
    yearly = [parse(cron="H H H H *", seed=f"job_{number}") for number in range(300)]

    assert {found.month for each in yearly if (found := each.next(START))} == set(range(1, 13))


def test_h_without_a_job_is_refused() -> None:
    with pytest.raises(Rejected, match="chosen by the job's id"):
        parse(cron="H * * * *")
