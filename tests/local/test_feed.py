"""What a run shows of the functions' logs."""

import json

import pytest

from lamplighter.local.feed import told

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


def shown(**fields: object) -> str | None:
    text = told(json.dumps({**SOME, **fields}))
    return text.plain if text else None


def test_a_start_is_shown_with_its_lateness() -> None:
    line = shown(message="started", lateness_ms=120)

    assert line == "02:05:00.123 started       flaky      e1  attempt 1, 120 ms late"


def test_an_end_is_shown_by_its_state() -> None:
    line = shown(message="finished", state="SUCCEEDED", run_ms=3)

    assert line == "02:05:00.123 SUCCEEDED     flaky      e1  attempt 1, ran 3 ms"


def test_a_failure_is_shown_with_its_error_and_what_comes_next() -> None:
    again = "2026-07-12T02:05:02+00:00"
    line = shown(message="finished", state="RETRYING", error_type="Retryable", retry_at=again)

    assert line is not None
    assert line.endswith(f"attempt 1, Retryable, again at {again}")


def test_a_bug_is_shown_with_the_end_of_its_trace() -> None:
    trace = "Traceback (most recent call last):\n  File ...\nKeyError: 'lease'"

    assert shown(message="broke", level="ERROR", exception=trace) == (
        "02:05:00.123 broke KeyError: 'lease'"
    )


@pytest.mark.parametrize(
    "line",
    [
        "2026-07-12 02:05:00 INFO [lambda] ESM: Lambda worker processed 1 SQS messages",
        '{"_aws": {"Timestamp": 1}, "service": "lamplighter", "created": [1.0]}',
        '{"level": "INFO", "message": "dispatched", "timestamp": "2026-07-12 02:05:00,123+0000"}',
        "{ not JSON",
        '{"level": "INFO"}',
        "",
    ],
)
def test_the_rest_stays_in_the_log(line: str) -> None:
    assert told(line) is None
