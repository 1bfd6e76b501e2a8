"""Whatever is sent, the answer is JSON and no 5xx, and a refusal leaves nothing behind."""

import base64
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lamplighter.memory import MemoryWorld, VirtualClock
from tests.support.api import JSON, Answer, caller, event
from tests.support.examples import examples

CLAIMS = {"sub": "acme"}
FIELDS = (
    *("task", "payload", "queue", "run_at", "cron", "rate", "at", "timezone", "dialect"),
    *("dst_gap", "dst_fold", "start_at", "end_at", "max_occurrences", "except", "name"),
    *("misfire_policy", "catch_up_policy", "catchup_max", "catchup_window_seconds"),
    *("deadline_seconds", "on_deadline", "retry_policy", "timeout_seconds"),
    *("max_attempts", "base_seconds", "factor", "max_seconds", "jitter"),
    *("retry_on", "no_retry_on", "honor_retry_after"),
)
TEXTS = (
    *("echo", "default", "bulk", "* * * * *", "0 2 * * *", "*/15 * * * *", "@daily", "H H * * *"),
    *("cron(0 12 ? * 2 *)", "0 0 L * *", "rate(1 minute)", "every(2 weeks)", "5 minutes"),
    *("at(2026-07-01T09:00:00)", "2026-07-01T09:00:00", "2026-07-01T09:00:00Z", "2026-07-01"),
    *("UTC", "Europe/Berlin", "Pacific/Apia", "unix", "eventbridge", "SKIP", "BOTH", "FIRE_ONCE"),
)
# Lone surrogates too: JSON can escape them.
text = st.sampled_from(TEXTS) | st.text(st.characters(), max_size=40)
number = st.integers() | st.floats() | st.sampled_from([0, 1, 5, 60, 10**30, -1])
json_value = st.recursive(
    st.none() | st.booleans() | number | text,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(FIELDS) | text, inner, max_size=6)
    ),
    max_leaves=20,
)
GOOD: Mapping[str, tuple[object, ...]] = {
    "queue": ("default", "bulk"),
    "retry_policy": (
        *({}, {"max_attempts": 1}, {"base_seconds": 0.5, "factor": 1, "max_seconds": 9}),
        {"jitter": 0, "retry_on": ["OSError"], "no_retry_on": ["KeyError"]},
    ),
    "timeout_seconds": (1, 840, 2.5),
    "misfire_policy": ("FIRE_ONCE", "skip", "every"),
    "deadline_seconds": (1, 0.5e3, 31_622_400),
    "on_deadline": ("DEAD_LETTER", "skip"),
    "timezone": ("UTC", "Europe/Berlin", "Pacific/Apia", "Asia/Kathmandu"),
}
GOOD_REPEATED: Mapping[str, tuple[object, ...]] = {
    "dst_gap": ("SHIFT", "skip"),
    "dst_fold": ("BOTH", "FIRST"),
    "start_at": ("2026-03-01T00:00:00Z", "2026-03-01T00:00:00.5+02:00"),
    "end_at": ("2030-01-01T00:00:00Z",),
    "max_occurrences": (1, 1000),
    "misfire_threshold_seconds": (1, 86_400),
    "catchup_window_seconds": (60, 31_622_400),
    "catchup_max": (1, 1000),
    "catchup_spread_seconds": (0, 600),
    "flexible_window_seconds": (0, 600, 86_400),
    "name": ("nightly", "ü"),
}
WHEN: Mapping[str, tuple[str, ...]] = {
    "cron": ("* * * * *", "0 2 * * *", "@daily", "H H * * *", "cron(0 12 ? * 2 *)", "0 0 L * *"),
    "rate": ("rate(1 minute)", "5 minutes", "every(2 weeks)"),
    "at": ("at(2026-07-01T09:00:00)", "2026-07-01T09:00:00"),
    "run_at": ("2026-07-01T09:00:00Z", "2020-01-01T00:00:00+05:45"),
}


def some(good: Mapping[str, tuple[object, ...]]) -> dict[str, st.SearchStrategy[object]]:
    return {name: st.sampled_from(values) for name, values in good.items()}


@st.composite
def good_jobs(draw: st.DrawFn) -> dict[str, object]:
    """A body that is fine in every field."""
    kind = draw(st.sampled_from(["now", *WHEN]))
    when = {} if kind == "now" else {kind: draw(st.sampled_from(WHEN[kind]))}
    repeated = some(GOOD_REPEATED) if kind in {"cron", "rate"} else {}
    optional = some(GOOD) | repeated | {"payload": json_value}
    return when | draw(st.fixed_dictionaries({"task": st.just("echo")}, optional=optional))


@st.composite
def likely_jobs(draw: st.DrawFn) -> dict[str, object]:
    """A body that is fine but for a field or two."""
    wrong = st.dictionaries(st.sampled_from(FIELDS) | text, json_value, max_size=2)
    return draw(good_jobs()) | draw(wrong)


IDS = ("job_" + "0" * 26, "one_" + "z" * 26, "ex_06dqdpnbx00dr657vfqvc2r1yd", "x", "..", "%2e")
paths = st.sampled_from(
    [
        *("/v1/jobs", "/v1/executions", "/v1/health", "/jobs", "/", "", "/v1"),
        *(f"/v1/jobs/{id}" for id in IDS),
        *(f"/v1/jobs/{id}/executions" for id in IDS),
        *(f"/v1/executions/{id}" for id in IDS),
    ]
) | st.builds("/v1/{}/{}".format, st.sampled_from(["jobs", "executions"]), st.text(max_size=40))
methods = st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"])
queries = st.text(max_size=60) | st.lists(
    st.tuples(
        st.sampled_from(["status", "cursor", "limit", "task", "queue", "mode", "x"]),
        st.sampled_from(["RUNNING", "queued", "1", "request", "%00", "%ff", "", "e30"])
        | st.text(max_size=20),
    ),
    max_size=4,
).map(lambda pairs: "&".join(f"{name}={value}" for name, value in pairs))
headers = st.dictionaries(
    st.sampled_from(
        ["content-type", "Content-Encoding", "idempotency-key", "traceparent", "Accept", "x"]
    ),
    st.sampled_from([JSON, "text/html", "gzip", "k"]) | st.text(max_size=30),
    max_size=4,
)
claims = st.none() | st.dictionaries(
    st.sampled_from(["sub", "x"]), st.none() | number | text | st.lists(text, max_size=2)
)


def fuzz(number: int) -> settings:
    """On so many examples, each as slow as a shared machine makes it."""
    return settings(max_examples=examples(number), suppress_health_check=[HealthCheck.too_slow])


def answered(raw: Mapping[str, Any]) -> tuple[Answer, MemoryWorld]:
    """The answer, which is proper whatever was asked, and the world that it was given in."""
    world = MemoryWorld(clock=VirtualClock(datetime(2026, 1, 1, tzinfo=UTC)))
    answer = caller(world).send(raw)
    assert answer.status < 500
    if answer.status == 204:
        assert answer.text == ""
    else:
        assert isinstance(answer.json, dict)
        answer.text.encode()
    if answer.status >= 400:
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json["status"] == answer.status
        assert (world.tables.executions, world.tables.jobs, len(world.queue)) == ({}, {}, 0)
    return answer, world


def posted(body: str, *, is_base64: bool = False) -> tuple[Answer, MemoryWorld]:
    return answered(
        event(
            "POST",
            "/v1/jobs",
            body=body,
            is_base64=is_base64,
            headers={"content-type": JSON},
            claims=CLAIMS,
        )
    )


@fuzz(200)
@given(json_value)
def test_any_json(value: object) -> None:
    answer, _ = posted(json.dumps(value))

    assert answer.status in {201, 400}


@fuzz(150)
@given(good_jobs())
def test_a_job_that_is_fine(body: dict[str, object]) -> None:
    sent = json.dumps(body)
    answer, world = posted(sent)

    # Python's own encoder writes what JSON has not: a NaN, an infinity, a lone surrogate.
    if answer.status == 400:
        assert answer.fields <= {"body", "payload"} | {*FIELDS}
        assert any(mark in sent for mark in ("NaN", "Infinity", "\\ud"))
        return
    assert answer.status == 201
    acme = caller(world)
    shown = acme.get(f"/v1/jobs/{answer.json['job_id']}").json
    # Compared as text: 0.0 stays apart from 0, and true from 1.
    assert repr(shown["payload"]) == repr(json.loads(sent).get("payload", {}))
    assert [job["job_id"] for job in acme.get("/v1/jobs").json["items"]] == [shown["job_id"]]


@fuzz(150)
@given(likely_jobs())
def test_a_job_that_is_nearly_fine(body: dict[str, object]) -> None:
    answer, world = posted(json.dumps(body))

    assert answer.status in {201, 400}
    assert (answer.status == 201) == bool(world.tables.executions)


@fuzz(200)
@given(st.binary(max_size=200))
def test_any_bytes(raw: bytes) -> None:
    answer, _ = posted(base64.b64encode(raw).decode(), is_base64=True)

    assert answer.status == 400


@fuzz(200)
@given(st.text(st.characters(), max_size=200), st.booleans())
def test_any_text(body: str, is_base64: bool) -> None:
    answer, _ = posted(body, is_base64=is_base64)

    assert answer.status == 400


@fuzz(250)
@given(methods, paths, queries, headers, claims, st.none() | st.text(max_size=40))
def test_any_request(
    method: str,
    path: str,
    query: str,
    sent: dict[str, str],
    of: dict[str, object] | None,
    body: str | None,
) -> None:
    answered(event(method, path, query=query, headers=sent, claims=of, body=body))


@fuzz(200)
@given(st.sampled_from(["/v1/jobs", "/v1/executions", f"/v1/jobs/{IDS[0]}/runs"]), queries)
def test_any_query(path: str, query: str) -> None:
    answer, _ = answered(event("GET", path, query=query, claims=CLAIMS))

    assert answer.status in {200, 400, 404}
