"""A schedule in plain words."""

from datetime import UTC, datetime

import pytest

from lamplighter.core.schedule import explain, parse

START = datetime(2026, 1, 1, 9, 30, tzinfo=UTC)

WORDS = {
    "* * * * *": "Every minute, UTC.",
    "*/15 * * * *": "Every 15 minutes, UTC.",
    "*/15 9-17 * * mon-fri": "Every 15 minutes of hours 9 to 17 on Monday to Friday, UTC.",
    "*/7 * * * *": "At minutes 0, 7, 14, 21, 28, 35, 42, 49 and 56 of every hour, UTC.",
    "0 * * * *": "At minute 0 of every hour, UTC.",
    "* 3 * * *": "Every minute of hour 3 every day, UTC.",
    "30 2 * * *": "At 02:30 every day, UTC.",
    "0 9,12,18 * * 1,3": "At 09:00, 12:00 and 18:00 on Monday and Wednesday, UTC.",
    "0 0 1,15 * *": "At 00:00 on days 1 and 15 of the month, UTC.",
    "0 0 1 1-3 *": "At 00:00 on day 1 of the month in January to March, UTC.",
    "0 16 4 * fri": "At 16:00 on day 4 of the month, and on Friday, UTC.",
    "0 0 */10 * 1": "At 00:00 on days 1, 11, 21 and 31 of the month if that is on Monday, UTC.",
    "0 0 1-31 * 1": "At 00:00 every day, UTC.",
    "0 0 L * *": "At 00:00 on the last day of the month, UTC.",
    "0 0 LW * *": "At 00:00 on the last weekday (Monday to Friday), UTC.",
    "0 0 15W * *": "At 00:00 on the weekday (Monday to Friday) nearest day 15, UTC.",
    "0 0 * * mon#5": "At 00:00 on the fifth Monday of the month, UTC.",
    "0 0 * * 5L": "At 00:00 on the last Friday of the month, UTC.",
    "cron(0 12 ? * 2 2027-2028)": "At 12:00 on Monday in 2027 and 2028, UTC.",
}


@pytest.mark.parametrize(("text", "words"), WORDS.items(), ids=WORDS)
def test_an_expression_in_words(text: str, words: str) -> None:
    assert explain(parse(cron=text)) == words


def test_what_happens_where_the_clocks_change_is_said() -> None:
    fixed = parse(cron="30 2 * * *", timezone="Europe/Berlin", dst_gap="SKIP", dst_fold="BOTH")
    beat = parse(cron="*/5 * * * *", timezone="Europe/Berlin")
    odd = parse(cron="0 9 * * *", timezone="Etc/GMT+5")

    assert explain(fixed) == (
        "At 02:30 every day, Europe/Berlin time. A time that the clocks skip is not due; "
        "one that they repeat is due both times."
    )
    assert "follows elapsed time" in explain(beat)
    assert "n hours behind UTC" in explain(odd)


def test_an_interval_and_a_time_in_words() -> None:
    rate = parse(rate="rate(90 minutes)", anchor=START)
    every = parse(rate="every(2 weeks)", start_at=START, timezone="America/Chicago")
    once = parse(at="2026-07-12T02:00:00", timezone="America/New_York")

    assert explain(rate) == (
        "Every 90 minutes of elapsed time, counted from 2026-01-01T09:30:00.000Z."
    )
    assert explain(every).startswith(
        "Every 2 weeks at 03:30, counted from 2026-01-01, America/Chicago time."
    )
    assert explain(once) == "Once, at 2026-07-12T06:00:00.000Z."


def test_limits_in_words() -> None:
    schedule = parse(
        cron="0 9 * * *",
        start_at="2026-01-01T00:00:00Z",
        end_at="2026-12-31T00:00:00Z",
        max_occurrences=10,
        except_=["2026-05-01", "* * * * sun"],
        flexible_window_seconds=90,
    )

    assert explain(schedule) == (
        "At 09:00 every day, UTC. Not before 2026-01-01T00:00:00.000Z. "
        "Not after 2026-12-31T00:00:00.000Z. At most 10 times. "
        "Except 2026-05-01 and * * * * sun. Run up to 90 s later, by the job's id."
    )
