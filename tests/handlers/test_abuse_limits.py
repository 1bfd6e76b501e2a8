"""Each limit of what a caller may send: what is at it is taken, and one past it is refused.

By field and value, with nothing written. `LIMITS` is the whole list: a number of `core/limits.py`
that the API goes by stands in a row of it, or in `ELSEWHERE` with the test that has it.
"""

import ast
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import lamplighter.api
from lamplighter.core import limits
from lamplighter.core.schedule import format_instant
from lamplighter.memory import MemoryWorld, VirtualClock
from tests.support.api import JSON, Answer, Caller, caller, event

START = datetime(2026, 7, 1, 0, 0, 1, tzinfo=UTC)
TESTS = Path(__file__).parents[1]
HTTP = {"kind": "http", "url": "https://svc.example.com/x"}
DAILY = {"task": "echo", "cron": "0 2 * * *"}
HOUR = timedelta(hours=1)

Body = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Limit:
    """A number of `core/limits.py`, and a request that has just so much of something."""

    name: str
    field: str
    of: Callable[[Any], object]
    """The body that has that value, or that much of it."""
    at: Any
    past: Any
    path: str = "/v1/jobs"
    method: str = "POST"
    status: int = 400

    def __str__(self) -> str:
        return f"{self.name}: {self.field} past {self.past}"[:90]


def job(name: str) -> Callable[[object], Body]:
    return lambda value: {"task": "echo", name: value}


def daily(name: str) -> Callable[[object], Body]:
    return lambda value: {**DAILY, name: value}


def retrying(name: str) -> Callable[[object], Body]:
    return lambda value: {"task": "echo", "retry_policy": {name: value}}


def url(length: int) -> Body:
    return {"target": {**HTTP, "url": HTTP["url"] + "x" * (length - len(HTTP["url"]))}}


def headers(count: int) -> Body:
    return {"target": {**HTTP, "headers": {f"x-h{n}": "v" for n in range(count)}}}


def header_bytes(size: int) -> Body:
    return {"target": {**HTTP, "headers": {"x-long": "v" * (size - len("x-long"))}}}


def at(later: timedelta) -> str:
    return format_instant(START + later)


def range_of(name: str, bounds: tuple[timedelta, timedelta], field: str) -> list[Limit]:
    low, high = (int(bound.total_seconds()) for bound in bounds)
    return [
        Limit(name=name, field=field, of=daily(field), at=value, past=past)
        for value, past in ((low, low - 1), (high, high + 1))
    ]


LIMITS = [
    *range_of(
        "MISFIRE_THRESHOLD_RANGE", limits.MISFIRE_THRESHOLD_RANGE, "misfire_threshold_seconds"
    ),
    *range_of("CATCHUP_WINDOW_RANGE", limits.CATCHUP_WINDOW_RANGE, "catchup_window_seconds"),
    *range_of("CATCHUP_SPREAD_RANGE", limits.CATCHUP_SPREAD_RANGE, "catchup_spread_seconds"),
    *range_of("DEADLINE_RANGE", limits.DEADLINE_RANGE, "deadline_seconds"),
    Limit(
        name="MAX_FLEXIBLE_WINDOW",
        field="flexible_window_seconds",
        of=lambda seconds: {
            "task": "echo",
            "cron": "0 0 1 1 *",
            "flexible_window_seconds": seconds,
        },
        at=int(limits.MAX_FLEXIBLE_WINDOW.total_seconds()),
        past=int(limits.MAX_FLEXIBLE_WINDOW.total_seconds()) + 1,
    ),
    *(
        Limit(name="CATCHUP_MAX_LIMIT", field="catchup_max", of=daily("catchup_max"), at=a, past=p)
        for a, p in ((1, 0), (limits.CATCHUP_MAX_LIMIT, limits.CATCHUP_MAX_LIMIT + 1))
    ),
    *(
        Limit(name="MAX_TASK_VERSION", field="task_version", of=job("task_version"), at=a, past=p)
        for a, p in ((1, 0), (limits.MAX_TASK_VERSION, limits.MAX_TASK_VERSION + 1))
    ),
    *(
        Limit(name="MAX_TIMEOUT", field="timeout_seconds", of=job("timeout_seconds"), at=a, past=p)
        for a, p in ((1, 0.999), (limits.MAX_TIMEOUT.total_seconds(), 840.001))
    ),
    *(
        Limit(
            name="MAX_ATTEMPTS",
            field="retry_policy.max_attempts",
            of=retrying("max_attempts"),
            at=a,
            past=p,
        )
        for a, p in ((1, 0), (limits.MAX_ATTEMPTS, limits.MAX_ATTEMPTS + 1))
    ),
    Limit(
        name="MAX_BACKOFF",
        field="retry_policy.max_seconds",
        of=retrying("max_seconds"),
        at=limits.MAX_BACKOFF.total_seconds(),
        past=limits.MAX_BACKOFF.total_seconds() + 1,
    ),
    Limit(
        name="RETRY_MAX_NAMES",
        field="retry_policy.retry_on",
        of=lambda n: {"task": "echo", "retry_policy": {"retry_on": [f"E{i}" for i in range(n)]}},
        at=limits.RETRY_MAX_NAMES,
        past=limits.RETRY_MAX_NAMES + 1,
    ),
    Limit(
        name="RETRY_NAME_MAX_CHARS",
        field="retry_policy.retry_on.0",
        of=lambda n: {"task": "echo", "retry_policy": {"retry_on": ["E" * n]}},
        at=limits.RETRY_NAME_MAX_CHARS,
        past=limits.RETRY_NAME_MAX_CHARS + 1,
    ),
    *(
        Limit(
            name="NAME_MAX_CHARS",
            field=field,
            of=lambda n, field=field: {**DAILY, field: "n" * n},  # type: ignore[misc]
            at=limits.NAME_MAX_CHARS,
            past=limits.NAME_MAX_CHARS + 1,
        )
        for field in ("task", "name")
    ),
    Limit(
        name="IDEMPOTENCY_KEY_MAX_CHARS",
        field="idempotency_key",
        of=lambda n: {"task": "echo", "idempotency_key": "k" * n},
        at=limits.IDEMPOTENCY_KEY_MAX_CHARS,
        past=limits.IDEMPOTENCY_KEY_MAX_CHARS + 1,
    ),
    Limit(
        name="SCHEDULE_TEXT_MAX_CHARS",
        field="cron",
        of=lambda n: {"task": "echo", "cron": "0" + " " * (n - 9) + "2 * * 1 "},
        at=limits.SCHEDULE_TEXT_MAX_CHARS,
        past=limits.SCHEDULE_TEXT_MAX_CHARS + 1,
    ),
    Limit(
        name="MAX_EXCLUSIONS",
        field="except",
        of=lambda n: {
            **DAILY,
            "except": [(START + timedelta(days=1 + i)).date().isoformat() for i in range(n)],
        },
        at=limits.MAX_EXCLUSIONS,
        past=limits.MAX_EXCLUSIONS + 1,
    ),
    *(
        Limit(name="MAX_OCCURRENCES", field="max_occurrences", of=rate, at=a, past=p)
        for rate in (lambda n: {"task": "echo", "rate": "rate(1 hour)", "max_occurrences": n},)
        for a, p in ((1, 0), (limits.MAX_OCCURRENCES, limits.MAX_OCCURRENCES + 1))
    ),
    Limit(
        name="MIN_INTERVAL",
        field="rate",
        of=lambda n: {"task": "echo", "rate": f"rate({n} seconds)"},
        at=int(limits.MIN_INTERVAL.total_seconds()),
        past=int(limits.MIN_INTERVAL.total_seconds()) - 1,
    ),
    Limit(
        name="MAX_INTERVAL",
        field="rate",
        of=lambda n: {"task": "echo", "rate": f"rate({n} days)"},
        at=limits.MAX_INTERVAL.days,
        past=limits.MAX_INTERVAL.days + 1,
    ),
    *(
        Limit(
            name="MAX_HORIZON",
            field=field,
            of=lambda later, field=field, base=base: {**base, field: at(later)},  # type: ignore[misc]
            at=limits.MAX_HORIZON,
            past=limits.MAX_HORIZON + timedelta(milliseconds=1),
        )
        for field, base in (("run_at", {"task": "echo"}), ("start_at", DAILY))
    ),
    Limit(
        name="PAYLOAD_MAX_BYTES",
        field="payload",
        of=lambda size: {"task": "echo", "payload": "p" * (size - 2)},
        at=limits.PAYLOAD_MAX_BYTES,
        past=limits.PAYLOAD_MAX_BYTES + 1,
    ),
    Limit(
        name="TARGET_URL_MAX_CHARS",
        field="target.url",
        of=url,
        at=limits.TARGET_URL_MAX_CHARS,
        past=limits.TARGET_URL_MAX_CHARS + 1,
    ),
    Limit(
        name="TARGET_MAX_HEADERS",
        field="target.headers",
        of=headers,
        at=limits.TARGET_MAX_HEADERS,
        past=limits.TARGET_MAX_HEADERS + 1,
    ),
    Limit(
        name="TARGET_HEADERS_MAX_BYTES",
        field="target.headers",
        of=header_bytes,
        at=limits.TARGET_HEADERS_MAX_BYTES,
        past=limits.TARGET_HEADERS_MAX_BYTES + 1,
    ),
    Limit(
        name="BATCH_MAX_JOBS",
        field="jobs",
        of=lambda n: {"jobs": [{"task": "echo"}] * n},
        at=limits.BATCH_MAX_JOBS,
        past=limits.BATCH_MAX_JOBS + 1,
        path="/v1/jobs/batch",
    ),
    *(
        Limit(
            name="PREVIEW_MAX_OCCURRENCES",
            field="count",
            of=lambda n: {"cron": "*/5 * * * *", "count": n},
            at=a,
            past=p,
            path="/v1/schedules/preview",
        )
        for a, p in (
            (1, 0),
            (limits.PREVIEW_MAX_OCCURRENCES, limits.PREVIEW_MAX_OCCURRENCES + 1),
        )
    ),
    Limit(
        name="NAME_MAX_CHARS",
        field="seed",
        of=lambda n: {"cron": "H 2 * * *", "seed": "s" * n},
        at=limits.NAME_MAX_CHARS,
        past=limits.NAME_MAX_CHARS + 1,
        path="/v1/schedules/preview",
    ),
    *(
        Limit(
            name="PAYLOAD_REF_MAX_BYTES",
            field="size",
            of=lambda n: {"size": n, "sha256": "0" * 64},
            at=a,
            past=p,
            path="/v1/payloads",
        )
        for a, p in ((1, 0), (limits.PAYLOAD_REF_MAX_BYTES, limits.PAYLOAD_REF_MAX_BYTES + 1))
    ),
]
# Those that need a job, a try or a token first, or are no field of a body: and what tests them.
ELSEWHERE = {
    "BODY_MAX_BYTES": "handlers/test_abuse_limits.py::test_a_body_has_so_many_bytes",
    "BATCH_MAX_BYTES": "handlers/test_abuse_limits.py::test_a_body_has_so_many_bytes",
    "JSON_MAX_DEPTH": "handlers/test_abuse_limits.py::test_json_is_nested_so_deep",
    "FAULTS_NAMED": "handlers/test_abuse_limits.py::test_so_many_faults_are_named_and_no_more",
    "LIST_MAX_ITEMS": "handlers/test_abuse_limits.py::test_a_page_has_so_many_items",
    "LIST_ITEMS": "handlers/test_abuse_limits.py::test_a_page_has_so_many_items",
    "LEDGER_MAX_RANGE": "handlers/test_abuse_limits.py::test_a_ledger_covers_so_much",
    "LEDGER_BY_DEFAULT": "handlers/test_abuse_limits.py::test_a_ledger_covers_so_much",
    "FORECAST_MAX_RANGE": "handlers/test_abuse_limits.py::test_a_forecast_covers_so_much",
    "FORECAST_BY_DEFAULT": "handlers/test_abuse_limits.py::test_a_forecast_covers_so_much",
    "FORECAST_MOST_PER_SECOND": "handlers/test_abuse_limits.py::test_a_rate_has_a_bound",
    "BACKFILL_MAX_SLOTS": "handlers/test_abuse_limits.py::test_a_backfill_is_so_large",
    "BACKFILL_SLOTS": "handlers/test_abuse_limits.py::test_a_backfill_is_so_large",
    "BACKFILL_MAX_SPREAD": "handlers/test_abuse_limits.py::test_a_backfill_is_so_large",
    "BULK_MAX_EXECUTIONS": "handlers/test_abuse_limits.py::test_a_bulk_verb_takes_so_many",
    "HEADERS_MAX_BYTES": "handlers/test_api_quotas.py::"
    "test_headers_have_as_many_bytes_as_api_gateway_lets_through",
    "QUERY_MAX_CHARS": "handlers/test_api_quotas.py::test_a_query_has_a_length",
    "QUERY_MAX_FIELDS": "handlers/test_abuse_limits.py::test_a_query_has_so_many_fields",
    "OWNER_MAX_CHARS": "handlers/test_abuse_limits.py::test_an_owner_has_so_long_a_name",
    "PAYLOAD_REF_VERSION_MAX_CHARS": "handlers/test_abuse_limits.py::"
    "test_a_version_of_an_object_is_so_long",
    "LIMIT_MAX": "handlers/test_api_limits.py::test_what_is_no_limit_is_refused_by_field_and_value",
    "RESULT_MAX_BYTES": "handlers/test_api_callbacks.py::"
    "test_what_makes_no_sense_is_refused_by_name",
    "ERROR_MESSAGE_MAX_CHARS": "handlers/test_api_callbacks.py::"
    "test_what_makes_no_sense_is_refused_by_name",
    "HEARTBEAT_RANGE": "handlers/test_abuse_limits.py::test_a_deferred_try_says_its_terms",
    "HARD_LIMIT_RANGE": "handlers/test_abuse_limits.py::test_a_deferred_try_says_its_terms",
}
# What the API goes by and no caller can pass: defaults, and how long answers and keys hold.
NO_LIMITS = {
    *("CATCHUP_MAX", "CATCHUP_SPREAD", "CATCHUP_WINDOW", "DEFAULT_MAX_ATTEMPTS"),
    *("DEFAULT_HARD_LIMIT", "DEFAULT_HEARTBEAT", "DEFAULT_TIMEOUT", "MISFIRE_THRESHOLD"),
    *("UPLOAD_FOR", "ON_TIME", "IDEMPOTENCY_KEPT", "LATENESS_STEPS", "SHORTEST_INTERVAL"),
    *("FORECAST_PER_SECOND", "LAMBDA_REQUEST_MAX_BYTES", "BATCH_PATIENCE"),
}


@pytest.fixture
def world() -> MemoryWorld:
    return MemoryWorld(clock=VirtualClock(START))


@pytest.fixture
def acme(world: MemoryWorld) -> Caller:
    return caller(world)


def send(acme: Caller, limit: Limit, value: object) -> Answer:
    return acme.send(
        event(
            limit.method,
            limit.path,
            body=json.dumps(limit.of(value)),
            headers={"content-type": JSON},
            claims=acme.claims,
        )
    )


def written(world: MemoryWorld) -> int:
    return len(world.tables.executions) + len(world.tables.jobs)


@pytest.mark.parametrize("limit", LIMITS, ids=str)
def test_at_a_limit_is_taken_and_one_past_it_refused_by_field_and_value(
    world: MemoryWorld, acme: Caller, limit: Limit
) -> None:
    refused = send(acme, limit, limit.past)

    assert (refused.status, refused.fields) == (limit.status, {limit.field}), refused.text
    (error,) = refused.json["errors"]
    assert error["value"] not in (None, ""), error
    assert len(error["reason"]) > 5
    assert len(refused.text) < 2000
    assert written(world) == 0

    taken = send(acme, limit, limit.at)
    assert taken.status in (200, 201), taken.text


def test_no_limit_of_the_api_is_without_a_test() -> None:
    """A number that one of the API's modules imports stands in a list here."""
    imported = {
        alias.name
        for module in sorted(Path(lamplighter.api.__path__[0]).glob("*.py"))
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module == "lamplighter.core.limits"
        for alias in node.names
    }
    known = {limit.name for limit in LIMITS} | {*ELSEWHERE}

    assert imported
    assert imported - known - NO_LIMITS == set()
    assert not known & NO_LIMITS
    assert all(hasattr(limits, name) for name in known | NO_LIMITS)


@pytest.mark.parametrize("name", ELSEWHERE)
def test_what_is_tested_elsewhere_is(name: str) -> None:
    file, _, test = ELSEWHERE[name].partition("::")
    text = (TESTS / file).read_text(encoding="utf-8")

    assert f"def {test}(" in text
    assert name in text


@pytest.mark.parametrize(
    ("path", "most", "body"),
    [
        ("/v1/jobs", limits.BODY_MAX_BYTES, '{"task": "echo"}'),
        ("/v1/jobs/batch", limits.BATCH_MAX_BYTES, '{"jobs": [{"task": "echo"}]}'),
    ],
    ids=["BODY_MAX_BYTES", "BATCH_MAX_BYTES"],
)
def test_a_body_has_so_many_bytes(acme: Caller, path: str, most: int, body: str) -> None:
    assert acme.post_text(path, body.ljust(most)).status in (200, 201)

    refused = acme.post_text(path, body.ljust(most + 1))

    assert refused.status == 413
    assert f"{most + 1}" in refused.json["detail"]


def nested(depth: int) -> str:
    """An object of that depth in all."""
    return '{"task": "echo", "payload": ' + "[" * (depth - 1) + "]" * (depth - 1) + "}"


def test_json_is_nested_so_deep(acme: Caller) -> None:
    assert acme.post_text("/v1/jobs", nested(limits.JSON_MAX_DEPTH)).status == 201

    refused = acme.post_text("/v1/jobs", nested(limits.JSON_MAX_DEPTH + 1))

    assert (refused.status, refused.fields) == (400, {"body"})
    assert f"nested more than {limits.JSON_MAX_DEPTH} deep" in refused.json["detail"]


def test_so_many_faults_are_named_and_no_more(acme: Caller) -> None:
    wrong = {f"wrong_{n}": 1 for n in range(limits.FAULTS_NAMED * 50)}

    refused = acme.post("/v1/jobs", {"task": "echo", **wrong})

    assert refused.status == 400
    assert len(refused.json["errors"]) == limits.FAULTS_NAMED
    assert len(refused.text) < 20_000


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/executions"])
def test_a_page_has_so_many_items(acme: Caller, path: str) -> None:
    made = acme.post("/v1/jobs/batch", {"jobs": [DAILY] * limits.BATCH_MAX_JOBS})
    assert made.status == 200
    for _ in range(2):
        acme.create(cron="0 3 * * *")

    assert len(acme.get(path).json["items"]) == limits.LIST_ITEMS
    whole = acme.get(path, limit=str(limits.LIST_MAX_ITEMS))
    assert len(whole.json["items"]) == limits.LIST_MAX_ITEMS
    assert whole.json["next_cursor"]
    for limit in ("0", str(limits.LIST_MAX_ITEMS + 1), "-1", "1e1", "٣", "1" * 5000):
        refused = acme.get(path, limit=limit)
        assert (refused.status, refused.fields) == (400, {"limit"}), limit


def test_a_ledger_covers_so_much(acme: Caller) -> None:
    id = acme.create(cron="0 2 * * *")["job_id"]
    path = f"/v1/jobs/{id}/ledger"

    def covering(span: timedelta) -> Answer:
        return acme.get(path, **{"from": format_instant(START - span), "to": at(timedelta(0))})

    assert covering(limits.LEDGER_MAX_RANGE).status == 200
    refused = covering(limits.LEDGER_MAX_RANGE + timedelta(seconds=1))
    assert (refused.status, refused.fields) == (400, {"from"})
    shown = acme.get(path).json
    assert shown["from"] == format_instant(START - limits.LEDGER_BY_DEFAULT)


def test_a_forecast_covers_so_much(acme: Caller) -> None:
    def covering(span: timedelta) -> Answer:
        return acme.get("/v1/forecast", **{"from": at(HOUR), "to": at(HOUR + span)})

    assert covering(limits.FORECAST_MAX_RANGE).status == 200
    for span in (limits.FORECAST_MAX_RANGE + timedelta(seconds=1), timedelta(0)):
        refused = covering(span)
        assert (refused.status, refused.fields) == (400, {"to"})
    assert acme.get("/v1/forecast").json["to"] == at(limits.FORECAST_BY_DEFAULT)


def test_a_rate_has_a_bound(acme: Caller) -> None:
    most = f"{limits.FORECAST_MOST_PER_SECOND:.0f}"
    assert acme.get("/v1/forecast", per_second=most).status == 200
    for wrong in ("1000001", "nan", "inf", "-1", "0", "", "1e400"):
        refused = acme.get("/v1/forecast", per_second=wrong)
        assert (refused.status, refused.fields) == (400, {"per_second"}), wrong


def test_a_backfill_is_so_large(world: MemoryWorld, acme: Caller) -> None:
    id = acme.create(cron="* * * * *", overlap_policy="ALLOW", start_at=at(timedelta(days=-30)))[
        "job_id"
    ]
    past = timedelta(minutes=limits.BACKFILL_SLOTS)

    def backfill(span: timedelta, **more: object) -> Answer:
        said = {"from": format_instant(START - span), "to": at(timedelta(0)), "dry_run": True}
        return acme.post(f"/v1/jobs/{id}/backfill", {**said, **more})

    assert backfill(past).status == 200
    assert backfill(past + timedelta(minutes=1)).fields == {"max"}
    assert backfill(past, max=limits.BACKFILL_MAX_SLOTS).status == 200
    spread = int(limits.BACKFILL_MAX_SPREAD.total_seconds())
    assert backfill(past, spread_seconds=spread).status == 200
    for field, value in (
        ("max", 0),
        ("max", limits.BACKFILL_MAX_SLOTS + 1),
        ("max", 10**30),
        ("spread_seconds", -1),
        ("spread_seconds", spread + 1),
    ):
        refused = backfill(past, **{field: value})
        assert (refused.status, refused.fields) == (400, {field}), (field, value)


@pytest.mark.parametrize("verb", ["cancel", "replay"])
def test_a_bulk_verb_takes_so_many(acme: Caller, verb: str) -> None:
    path = f"/v1/executions/{verb}"
    about = {"filter": {"status": "dead_lettered" if verb == "replay" else "scheduled"}}

    def asking(most: int) -> Answer:
        return acme.post(path, {**about, "limit": most})

    assert asking(limits.BULK_MAX_EXECUTIONS).status == 200
    for most in (0, limits.BULK_MAX_EXECUTIONS + 1):
        refused = asking(most)
        assert (refused.status, refused.fields) == (400, {"limit"}), most


def test_a_query_has_so_many_fields(acme: Caller) -> None:
    def asking(fields: int) -> Answer:
        query = "&".join("status=failed" for _ in range(fields))
        return acme.send(event("GET", "/v1/executions", query=query, claims=acme.claims))

    assert asking(limits.QUERY_MAX_FIELDS).status == 200
    refused = asking(limits.QUERY_MAX_FIELDS + 1)
    assert (refused.status, refused.fields) == (400, {"query"})


def test_an_owner_has_so_long_a_name(acme: Caller) -> None:
    assert acme.calling_as("o" * limits.OWNER_MAX_CHARS).get("/v1/jobs").status == 200
    for owner in ("o" * (limits.OWNER_MAX_CHARS + 1), "", "a\nb", " o"):
        assert acme.calling_as(owner).get("/v1/jobs").status == 403, owner


def test_a_version_of_an_object_is_so_long(acme: Caller) -> None:
    def fields(length: int) -> set[str]:
        about = {"key": "k", "version_id": "v" * length}
        return acme.post("/v1/jobs", {"task": "echo", "payload_ref": about}).fields

    # What is not refused for its length is looked up, and is not there.
    assert fields(limits.PAYLOAD_REF_VERSION_MAX_CHARS) != {"payload_ref.version_id"}
    assert fields(limits.PAYLOAD_REF_VERSION_MAX_CHARS + 1) == {"payload_ref.version_id"}


@pytest.mark.parametrize(
    ("field", "bounds"),
    [
        ("heartbeat_seconds", limits.HEARTBEAT_RANGE),
        ("hard_limit_seconds", limits.HARD_LIMIT_RANGE),
    ],
    ids=["HEARTBEAT_RANGE", "HARD_LIMIT_RANGE"],
)
def test_a_deferred_try_says_its_terms(
    acme: Caller, field: str, bounds: tuple[timedelta, timedelta]
) -> None:
    low, high = (int(bound.total_seconds()) for bound in bounds)

    def asking(seconds: int) -> Answer:
        terms = {"heartbeat_seconds": 30, "hard_limit_seconds": 3600, field: seconds}
        return acme.post("/v1/jobs", {"target": {**HTTP, "deferred": terms}})

    for seconds in (low, high):
        assert asking(seconds).status == 201, seconds
    for seconds in (low - 1, high + 1):
        assert asking(seconds).fields == {f"target.deferred.{field}"}, seconds


IDS = [
    *("x", "x" * 5000, "..", "%2e%2e", "%00", "ü", "٣", "a b", "null", "0"),
    *("AAAAAAAAAAAAAAAAAAAAAAAA", "' OR 1=1 --", "{proxy+}", "a\u202eb", "\ud83d\ude00"),
]


@pytest.mark.parametrize("id", IDS, ids=lambda id: ascii(id)[:20])
def test_what_is_no_id_is_not_found_whatever_it_is_made_of(acme: Caller, id: str) -> None:
    for path in (f"/v1/jobs/{id}", f"/v1/executions/{id}", f"/v1/executions/{id}/explain"):
        assert acme.get(path).status == 404, path


BOMBS = [
    {"cron": ",".join(["0"] * 128) + " 2 * * *"},
    {"cron": "*/1,*/2,*/3,*/4,*/5,*/6,*/7 */1,*/2 */1,*/2,*/3 * 1-5"},
    {"cron": "0 0 29 2 1#5"},
    {"cron": "0 0 31 2 *"},
    {"cron": "0 0 30 2,4,6,9,11 MON#5"},
    {"cron": "H(0-59)/1 H H H H"},
    {"cron": "9" * 200 + " * * * *"},
    {"cron": "0 0 * * " + "7" * 200},
    {"cron": "cron(0 0 29 2 ? 2199)"},
    {"cron": "0 2 29 2 *", "except": ["0 2 29 2 *"]},
    {"cron": "0 2 * * *", "except": ["* * * * *"] * limits.MAX_EXCLUSIONS},
    {"cron": "*/5 * * * *", "except": ["*/5 0-22 * * *"], "max_occurrences": 10_000},
    {"rate": "rate(1 minute)", "except": ["0-58 * * * *"], "max_occurrences": 10_000},
    {"rate": "rate(" + "9" * 200 + " minutes)"},
    {"rate": "every(99999999 weeks)"},
    {"at": "at(9999-12-31T23:59:59)"},
    {"cron": "\u0660 \u0662 * * *"},
    {"cron": "(" * 200},
]


@pytest.mark.parametrize("bomb", BOMBS, ids=lambda bomb: json.dumps(bomb)[:40])
@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/schedules/preview"])
def test_no_expression_takes_more_than_an_answer_may(acme: Caller, path: str, bomb: Body) -> None:
    """A second of CPU is far less than the 15 s that an API has, and more than all need here."""
    body = {**bomb, **({"task": "echo"} if path == "/v1/jobs" else {"count": 1000})}
    began = time.process_time()

    answer = acme.post(path, body) if path == "/v1/jobs" or "max_occurrences" not in bomb else None

    assert time.process_time() - began < 5
    if answer is not None:
        assert answer.status in (200, 201, 400), answer.text


NUMBERS = ["1e400", "-1e400", "1" + "0" * 400, "-0", "1e-400", "NaN", "Infinity", "0x10", "1.0"]


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: number[:12])
def test_no_number_is_taken_for_another(world: MemoryWorld, acme: Caller, number: str) -> None:
    """1.0 is no whole number, and what no reader could hold is no number at all."""
    text = f'{{"task": "echo", "retry_policy": {{"max_attempts": {number}}}}}'

    answer = acme.post_text("/v1/jobs", text)

    assert answer.status == 400
    assert answer.fields <= {"body", "retry_policy.max_attempts"}
    assert written(world) == 0


TEXTS = ["\u0000", "a\nb", " a", "a ", "\u202e", "\ufeffa", "\u2028", "\ud800", ""]


@pytest.mark.parametrize("text", TEXTS, ids=ascii)
@pytest.mark.parametrize("field", ["task", "queue", "name"])
def test_a_name_is_plain_text(world: MemoryWorld, acme: Caller, field: str, text: str) -> None:
    answer = acme.post("/v1/jobs", {**DAILY, field: text})

    assert answer.status == 400
    assert written(world) == 0


def test_a_thousand_small_jobs_cost_what_a_batch_of_them_may(
    world: MemoryWorld, acme: Caller
) -> None:
    """Many small ones get past none of the limits of one, and a quota counts them all.

    (tests/handlers/test_api_quotas.py)
    """
    began = time.process_time()
    for _ in range(3):
        answer = acme.post("/v1/jobs/batch", {"jobs": [{"task": "e"}] * limits.BATCH_MAX_JOBS})
        assert answer.status == 200

    assert len(world.tables.executions) == 3 * limits.BATCH_MAX_JOBS
    assert time.process_time() - began < 5
