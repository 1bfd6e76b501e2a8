"""What a run shows of the functions' logs."""

import json

import pytest
from rich.console import Console
from rich.text import Text

from lamplighter.core.retry import Kind
from lamplighter.local.feed import Feed

SOME = {
    "level": "INFO",
    "location": "_log:151",
    "timestamp": "2026-07-12 02:05:00,123+0000",
    "service": "lamplighter",
    "execution_id": "e1",
    "task": "flaky",
    "state": "RUNNING",
    "attempt": 1,
}


def lines(*records: dict[str, object]) -> list[Text]:
    """What one run shows of these, in turn."""
    feed = Feed(Console())
    return [text for record in records if (text := feed.told(json.dumps({**SOME, **record})))]


def shown(**fields: object) -> str | None:
    return "".join(text.plain for text in lines(fields)) or None


def test_a_start_is_shown_with_its_lateness() -> None:
    line = shown(message="started", lateness_ms=120)

    assert line == "02:05:00.123Z started       e1 flaky                attempt 1, 120 ms late"


def test_an_end_is_shown_by_its_state() -> None:
    line = shown(message="finished", state="SUCCEEDED", run_ms=3)

    assert line == "02:05:00.123Z SUCCEEDED     e1 flaky                attempt 1, ran 3 ms"


def test_a_failure_is_shown_with_the_try_that_failed_its_error_and_what_comes_next() -> None:
    """The policy's counter is at the next try already."""
    again = "2026-07-12T04:05:02.345678+02:00"
    line = shown(
        message="finished", state="RETRYING", attempt=2, error_type="Retryable", retry_at=again
    )

    assert line is not None
    assert line.endswith("attempt 1, Retryable, again at 2026-07-12T02:05:02.345Z")


def test_why_something_is_parked_is_shown() -> None:
    line = shown(message="parked", reason="no worker knows task 'ecko' yet")

    assert line is not None
    assert line.endswith(
        "parked        e1 flaky                attempt 1, no worker knows task 'ecko' yet"
    )


CRASH: dict[str, object] = {"message": "taken_over", "crashes": 1}
GIVEN_UP: dict[str, object] = {
    "message": "finished",
    "state": "DEAD_LETTERED",
    "error_kind": Kind.LOST_LEASE.value,
    "run_ms": 35_000,
}


def ended(state: str, attempt: int = 1, **more: object) -> dict[str, object]:
    return {"message": "finished", "state": state, "attempt": attempt, "run_ms": 1, **more}


@pytest.mark.parametrize(
    ("records", "numbers"),
    [
        ([ended("RETRYING", 2), ended("RETRYING", 3), ended("SUCCEEDED", 3)], [1, 2, 3]),
        ([CRASH, ended("RETRYING", 2), ended("SUCCEEDED", 2)], [2, 2, 3]),
        ([CRASH, CRASH | {"crashes": 2}, CRASH | {"crashes": 3}, GIVEN_UP], [2, 3, 4, 3]),
        ([CRASH, ended("SUCCEEDED"), ended("SUCCEEDED")], [2, 2, 1]),
    ],
    ids=["failures", "a crash, then a failure", "three crashes", "forgotten once it has ended"],
)
def test_tries_are_numbered_as_the_api_numbers_them(
    records: list[dict[str, object]], numbers: list[int]
) -> None:
    said = [text.plain.partition("attempt ")[2].partition(",")[0] for text in lines(*records)]

    assert said == [str(number) for number in numbers]


def test_what_ends_before_any_try_shows_none() -> None:
    line = shown(message="finished", state="CANCELLED")

    assert line == "02:05:00.123Z CANCELLED     e1 flaky"


@pytest.mark.parametrize(
    ("state", "style"),
    [("SUCCEEDED", "green"), ("RETRYING", "yellow"), ("FAILED", "red"), ("CANCELLED", "yellow")],
)
def test_only_a_success_is_green(state: str, style: str) -> None:
    (line,) = lines(ended(state, 2))

    assert line.style == style


def test_a_long_name_of_a_task_moves_no_column() -> None:
    short, long = lines(ended("SUCCEEDED"), ended("SUCCEEDED", task="t" * 128))

    assert short.plain.index("attempt") == long.plain.index("attempt")
    assert "t" * 19 + "…" in long.plain


def test_a_bug_is_shown_with_the_end_of_its_trace() -> None:
    trace = "Traceback (most recent call last):\n  File ...\nKeyError: 'lease'"

    assert shown(message="broke", level="ERROR", exception=trace) == (
        "02:05:00.123Z broke KeyError: 'lease'"
    )


@pytest.mark.parametrize(
    "line",
    [
        "2026-07-12 02:05:00 INFO [lambda] ESM: Lambda worker processed 1 SQS messages",
        '{"_aws": {"Timestamp": 1}, "service": "lamplighter", "created": [1.0]}',
        '{"level": "INFO", "message": "dispatched", "timestamp": "2026-07-12 02:05:00,123+0000"}',
        "{ not JSON",
        '{"level": "INFO"}',
        '{"level": {}, "message": "mine", "timestamp": "now"}',
        "{" + "[" * 100_000,
        "",
    ],
)
def test_the_rest_stays_in_the_log(line: str) -> None:
    assert Feed(Console()).told(line) is None


def test_a_line_that_only_looks_like_ours_is_shown_as_it_is() -> None:
    """A task may print what it likes; the thread that drains the emulator's pipe must live."""
    line = shown(message="finished", state="RETRYING", attempt="first", retry_at="tomorrow")

    assert line is not None
    assert line.endswith("again at tomorrow")
