"""What a refusal says: in words of the API, of the field at fault, with what is wrong with it."""

from datetime import UTC, datetime
from typing import Any

import pytest

from lamplighter.core.targets import HttpRules
from lamplighter.memory import MemoryWorld, VirtualClock
from tests.support.api import caller

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
TO_ALL = frozenset({"*"})
HTTP = HttpRules(owners=TO_ALL, allow_http=True)
HTTPS = HttpRules(owners=TO_ALL)
ECHO = {"task": "echo"}
DAILY = {"task": "echo", "cron": "0 2 * * *"}

KINDS = "'task', 'http', 'lambda', 'sqs', 'sns', 'eventbridge', 'stepfunctions' or 'sfn'"


@pytest.fixture
def world() -> MemoryWorld:
    return MemoryWorld(clock=VirtualClock(NOW))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            {**DAILY, "end_at": "2025-12-31T00:00:00Z"},
            "end_at: in the past, before 2026-01-01T12:00:00.000Z (got '2025-12-31T00:00:00.000Z')",
        ),
        (
            {**DAILY, "end_at": "2026-01-01T13:00:00Z"},
            (
                "end_at: earlier than the first occurrence after 2026-01-01T12:00:00.000Z, "
                "2026-01-02T02:00:00.000Z (got '2026-01-01T13:00:00.000Z')"
            ),
        ),
        (
            {**ECHO, "run_at": "2026-01-02T02:00:00"},
            (
                "run_at: has no offset: end it with Z or +hh:mm, or give its timezone "
                "(got '2026-01-02T02:00:00')"
            ),
        ),
        (
            {**ECHO, "run_at": "2046-01-02T02:00:00+01:00"},
            "run_at: more than 3653 days ahead (got '2046-01-02T01:00:00.000Z')",
        ),
        ({**ECHO, "deadline_seconds": 0}, "deadline_seconds: less than 1 (got 0)"),
        (
            {**ECHO, "deadline_seconds": 31_622_401},
            "deadline_seconds: more than 31622400 (got 31622401)",
        ),
        ({**ECHO, "timeout_seconds": 841}, "timeout_seconds: more than 840 (got 841)"),
        ({"target": {"kind": "ftp"}}, f"target.kind: not {KINDS} (got 'ftp')"),
        ({"target": {"kind": 1}}, f"target.kind: not {KINDS} (got 1)"),
        (
            {**DAILY, "timezone": "CST"},
            "timezone: not a zone of the IANA database 2026f (got 'CST')",
        ),
    ],
    ids=lambda value: value.partition(":")[0] if isinstance(value, str) else None,
)
def test_a_fault_is_told_in_full(world: MemoryWorld, body: dict[str, Any], said: str) -> None:
    answer = caller(world).post("/v1/jobs", body)

    assert (answer.status, answer.json["detail"]) == (400, said)


@pytest.mark.parametrize(
    ("rules", "said"),
    [(HTTPS, "not https://"), (HTTP, "not http:// or https://")],
    ids=["https only", "http too"],
)
@pytest.mark.parametrize("url", ["ftp://x.example/", "x.example"])
def test_the_schemes_of_a_target_are_those_that_may_be_called(
    world: MemoryWorld, rules: HttpRules, url: str, said: str
) -> None:
    target = {"kind": "http", "url": url}

    answer = caller(world, http=rules).post("/v1/jobs", {"target": target})

    assert answer.json["detail"] == f"target.url: {said} (got {url!r})"


@pytest.mark.parametrize(
    "url",
    [
        *("http\u017f://x.example/", "https://\u017f.example/", "https://x.example/\u017f"),
        *("https://\u212a.example/", "https://x.example/\u212a", "https://x.example/?\u212a"),
    ],
)
def test_a_letter_that_is_no_ascii_is_a_fault_of_the_url(world: MemoryWorld, url: str) -> None:
    target = {"kind": "http", "url": url}

    answer = caller(world, http=HTTP).post("/v1/jobs", {"target": target})

    assert (answer.status, answer.fields) == (400, {"target.url"})
    assert "is not ASCII" in answer.json["detail"]


def test_a_backfill_of_what_is_to_come_tells_what_time_it_is(world: MemoryWorld) -> None:
    acme = caller(world)
    made = acme.create(**DAILY)
    interval = {"from": "2026-01-01T00:00:00Z", "to": "2026-01-01T14:00:00.5+01:00"}

    answer = acme.post(f"/v1/jobs/{made['job_id']}/backfill", interval)

    assert answer.json["detail"] == (
        "to: later than now, 2026-01-01T12:00:00.000Z (got '2026-01-01T13:00:00.500Z')"
    )


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        *(("CST", None), ("EST5", None), ("PDT", None), ("Gmt+1", None), ("IST", None)),
        *(("Utc", "UTC"), ("europe/berln", "Europe/Berlin"), ("Berlin", "Europe/Berlin")),
        *(("Kolkata", "Asia/Kolkata"), ("America/NewYork", "America/New_York")),
    ],
)
def test_a_zone_is_taken_for_another_only_if_it_is_close(
    world: MemoryWorld, said: str, meant: str | None
) -> None:
    answer = caller(world).post("/v1/jobs", {**DAILY, "timezone": said})

    (fault,) = answer.json["errors"]
    hint = f"; {meant} is" if meant else ""
    assert fault["reason"] == f"not a zone of the IANA database 2026f{hint}"
