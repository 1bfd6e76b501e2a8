"""A patched job is what the merged body would have made, and is refused where that would be."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from lamplighter.api.patching import Patch
from lamplighter.memory import MemoryWorld, VirtualClock
from tests.support.api import LANES, Answer, Caller, caller
from tests.support.examples import ALWAYS_THE_SAME, examples

START = datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)
OF_THE_RECORD = {
    *("job_id", "execution_id", "status", "version", "created_at", "next_run_at", "executions"),
    *("in_flight", "anchor", "tzdb_version"),
}
Document = dict[str, Any]

retry_policies = st.fixed_dictionaries(
    {},
    optional={
        "max_attempts": st.integers(0, 100),
        "base_seconds": st.one_of(st.integers(0, 50), st.floats(0, 50)),
        "factor": st.sampled_from([1, 1.5, 3, 101]),
        "max_seconds": st.integers(1, 90_000),
        "jitter": st.sampled_from([0, 0.25, 1, 1.5]),
        "retry_on": st.sampled_from([[], ["OSError"], ["OSError", "KeyError"]]),
        "no_retry_on": st.sampled_from([[], ["FileNotFoundError"], ["KeyError"]]),
        "honor_retry_after": st.booleans(),
    },
)
anything = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-9, 9), st.text(max_size=3)),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text("ab", max_size=1), inner, max_size=2)
    ),
    max_leaves=4,
)
COMMON: Mapping[str, st.SearchStrategy[Any]] = {
    "task": st.sampled_from(["echo", "other", "", "ü"]),
    "payload": st.one_of(anything, st.just("x" * 600)),
    "queue": st.sampled_from([*LANES, "fast"]),
    "retry_policy": retry_policies,
    "timeout_seconds": st.sampled_from([1, 2.5, 60, 840, 841]),
    "deadline_seconds": st.sampled_from([60, 900, 3600.0, 0]),
    "on_deadline": st.sampled_from(["SKIP", "dead_letter", "never"]),
}
SCHEDULE: Mapping[str, st.SearchStrategy[Any]] = {
    "timezone": st.sampled_from(["UTC", "Europe/Berlin", "Australia/Lord_Howe", "Mars/Base"]),
    "dst_gap": st.sampled_from(["SHIFT", "skip", "NEXT_VALID", "JUMP"]),
    "dst_fold": st.sampled_from(["BOTH", "SECOND", "first"]),
    "start_at": st.sampled_from(["2026-02-01T00:00:00Z", "2026-03-01T01:00:00.0005+01:00", "x"]),
    "end_at": st.sampled_from(["2026-02-20T00:00:00Z", "2027-01-01T00:00:00Z"]),
    "max_occurrences": st.sampled_from([1, 50, 1000, 0]),
    "flexible_window_seconds": st.sampled_from([0, 60, 86_401]),
    "except": st.sampled_from([[], ["2026-02-02"], ["0 12 * * 1", "2026-03-03"]]),
}
RECURRING: Mapping[str, st.SearchStrategy[Any]] = {
    **COMMON,
    **SCHEDULE,
    "misfire_policy": st.sampled_from(["SKIP", "FIRE_ONCE", "fire_all", "never"]),
    "misfire_threshold_seconds": st.sampled_from([60, 90, 5]),
    "catchup_window_seconds": st.sampled_from([3600, 7200]),
    "catchup_max": st.sampled_from([1, 7, 0]),
    "catchup_spread_seconds": st.sampled_from([0, 30]),
    "overlap_policy": st.sampled_from(["ALLOW", "skip", "BUFFER_ONE", "never"]),
    "name": st.sampled_from(["a", "nightly report", ""]),
}
CRONS = st.sampled_from(["0 12 * * *", "*/7 3 * * 1-5", "@daily", "H H * * *", "61 * * * *"])
RATES = st.sampled_from(["rate(5 minutes)", "every(2 weeks)", "1 hour", "rate(1 minutes)"])
WHEN = st.one_of(
    st.fixed_dictionaries({"cron": CRONS}),
    st.fixed_dictionaries({"rate": RATES}),
    st.fixed_dictionaries({"cron": st.none(), "rate": RATES}),
)
RUN_AT = st.sampled_from(["2026-02-01T00:00:00Z", "2025-01-01T00:00:00.25+01:00", "2126-01-01", ""])

recurring = st.builds(
    lambda when, rest: {"task": "echo", **rest, **when},
    st.one_of(
        st.fixed_dictionaries({"cron": CRONS}),
        st.fixed_dictionaries({"rate": RATES}),
    ),
    st.fixed_dictionaries({}, optional={**RECURRING}),
)
patches_of_recurring = st.builds(
    lambda when, rest: {**rest, **when},
    st.one_of(st.just({}), WHEN),
    st.fixed_dictionaries(
        {}, optional={name: st.one_of(st.none(), one) for name, one in RECURRING.items()}
    ),
)
one_offs = st.builds(
    lambda run_at, rest: {"task": "echo", "run_at": run_at, **rest},
    RUN_AT,
    st.fixed_dictionaries({}, optional={**COMMON}),
)
patches_of_one_offs = st.fixed_dictionaries(
    {},
    optional={
        "run_at": RUN_AT,
        **{name: st.one_of(st.none(), one) for name, one in COMMON.items()},
    },
)

quickly = settings(
    max_examples=examples(60),
    derandomize=ALWAYS_THE_SAME,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)


def merged(body: Document, patch: Document) -> Document:
    """RFC 7396 for a body; what is due takes the place of what was due, and a payload is whole."""
    result = dict(body)
    if not {"cron", "rate"}.isdisjoint(patch):
        result = {name: result[name] for name in result if name not in {"cron", "rate"}}
    for name, value in patch.items():
        if name == "payload":
            result[name] = value
        elif value is None:
            result.pop(name, None)
        elif name == "retry_policy":
            result[name] = {**result.get(name, {}), **value}
        else:
            result[name] = value
    return result


def said(job: Document) -> Document:
    return {name: value for name, value in job.items() if name not in OF_THE_RECORD}


def shown(acme: Caller, made: Answer) -> Document:
    job: Document = acme.get(f"/v1/jobs/{made.json['job_id']}").json
    return said(job)


def check(body: Document, patch: Document) -> None:
    acme = caller(MemoryWorld(clock=VirtualClock(START)))
    made = acme.post("/v1/jobs", body)
    assume(made.status == 201)
    expected = acme.post("/v1/jobs", merged(body, patch))

    answer = acme.patch(f"/v1/jobs/{made.json['job_id']}", patch)

    if expected.status == 201:
        assert answer.status == 200, answer.text
        assert shown(acme, made) == shown(acme, expected)
    else:
        assert (answer.status, answer.fields) == (expected.status, expected.fields)


@quickly
@given(recurring, patches_of_recurring)
def test_a_patched_recurring_job_is_what_the_merged_body_makes(
    body: Document, patch: Document
) -> None:
    check(body, patch)


@quickly
@given(one_offs, patches_of_one_offs)
def test_a_patched_one_off_is_what_the_merged_body_makes(body: Document, patch: Document) -> None:
    check(body, patch)


@quickly
@given(recurring)
def test_a_job_says_the_very_body_that_makes_it_again(body: Document) -> None:
    """Read as a body once more, field by field, what a job shows is that job."""
    world = MemoryWorld(clock=VirtualClock(START))
    acme = caller(world)
    assume(acme.post("/v1/jobs", body).status == 201)
    (job,) = world.tables.jobs.values()
    patch = {name: value for name, value in body.items() if name != "task"}

    for again in ({}, {"task": job.spec.task}, patch):
        assert Patch(ports=world.ports(), value=again, lanes=LANES).of_job(job) == job
