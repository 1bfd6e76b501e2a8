"""Quotas and limits over HTTP: what is answered at each bound, and one past it."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lamplighter.core import limits
from lamplighter.core.quotas import Quota, Quotas
from lamplighter.core.schedule import format_instant
from lamplighter.memory import MemoryWorld, VirtualClock
from lamplighter.sim.system import System
from tests.support.api import Answer, Caller, caller, event

START = datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
TICK = timedelta(milliseconds=1)


@pytest.fixture
def world() -> MemoryWorld:
    return MemoryWorld(clock=VirtualClock(START))


@pytest.fixture
def recurring(world: MemoryWorld) -> str:
    """A job of a minute, three minutes old."""
    made = caller(world).create(rate="1 minute")
    System(world=world).run_for(3 * MINUTE)
    return str(made["job_id"])


@pytest.fixture
def ended(world: MemoryWorld) -> str:
    made = caller(world).create()
    System(world=world).work()
    return str(made["execution_id"])


def under(world: MemoryWorld, **quota: float) -> Caller:
    """Acme's requests from now on, under a quota."""
    world.quotas = Quotas(owners={"acme": Quota(**quota)})  # type: ignore[arg-type]
    return caller(world)


def over_quota(answer: Answer) -> Mapping[str, Any]:
    """What a 429 says of the quota; it says when to come back, too."""
    assert answer.status == 429, answer.text
    document = answer.json
    assert document["type"] == "urn:lamplighter:problem:quota-exceeded"
    assert int(answer.headers["retry-after"]) >= 1
    quota: Mapping[str, Any] = document["quota"]
    assert document["detail"].startswith(f"{quota['name']}: ")
    return quota


# Quotas.


def test_one_job_too_many_is_answered_with_its_quota(world: MemoryWorld) -> None:
    """S0-P4: refused at the door, with the quota's name."""
    acme = under(world, live_jobs=1)
    made = acme.create(rate="1 hour")

    answer = acme.post("/v1/jobs", {"task": "echo", "rate": "1 hour"})

    assert answer.json == {
        "type": "urn:lamplighter:problem:quota-exceeded",
        "title": "Quota exceeded",
        "status": 429,
        "detail": "live_jobs: 1 of 1 are in use, and this takes 1 more",
        "quota": {"name": "live_jobs", "limit": 1, "used": 1},
    }
    assert answer.headers["retry-after"] == "60"
    acme.delete(f"/v1/jobs/{made['job_id']}")
    acme.create(rate="1 hour")


def test_another_owner_is_not_concerned(world: MemoryWorld) -> None:
    acme = under(world, live_jobs=0, queued_executions=0)

    acme.calling_as("other").create(rate="1 hour")
    acme.calling_as("other").create()

    over_quota(acme.post("/v1/jobs", {"task": "echo", "rate": "1 hour"}))
    over_quota(acme.post("/v1/jobs", {"task": "echo"}))


def test_the_first_answer_to_a_key_is_given_again_over_the_quota(world: MemoryWorld) -> None:
    acme = under(world, live_jobs=1)
    body = {"task": "echo", "rate": "1 hour"}
    first = acme.post("/v1/jobs", body, Idempotency_Key="k")

    again = acme.post("/v1/jobs", body, Idempotency_Key="k")

    assert (again.status, again.json) == (201, first.json)
    over_quota(acme.post("/v1/jobs", body, Idempotency_Key="other"))


def test_each_job_of_a_batch_is_admitted_by_itself(world: MemoryWorld) -> None:
    acme = under(world, live_jobs=2)
    jobs = [{"task": "echo", "rate": "1 hour"} for _ in range(4)] + [{"task": "echo"}]

    answers = acme.post("/v1/jobs/batch", {"jobs": jobs}).json["answers"]

    assert [answer["status"] for answer in answers] == [201, 201, 429, 429, 201]
    assert answers[2]["headers"] == {"Retry-After": "60"}
    assert answers[2]["body"]["quota"] == {"name": "live_jobs", "limit": 2, "used": 2}


Ask = Callable[[Caller, str, str], Answer]
ASKING: dict[str, Ask] = {
    "POST /jobs": lambda acme, *_: acme.post("/v1/jobs", {"task": "echo"}),
    "POST /jobs/{job_id}/trigger": lambda acme, job, _: acme.post(f"/v1/jobs/{job}/trigger", {}),
    "POST /jobs/{job_id}/backfill": lambda acme, job, _: acme.post(
        f"/v1/jobs/{job}/backfill",
        {
            "from": format_instant(START),
            "to": format_instant(START + 2 * MINUTE),
            "skip_existing": False,
        },
    ),
    "POST /executions/{execution_id}/replay": lambda acme, _, ended: acme.post(
        f"/v1/executions/{ended}/replay", {}
    ),
}
asking = pytest.mark.parametrize("ask", ASKING.values(), ids=ASKING.keys())


@asking
def test_every_route_that_makes_an_execution_is_refused_over_the_quota(
    world: MemoryWorld, recurring: str, ended: str, ask: Ask
) -> None:
    """S0-P4: queued executions and payload bytes."""
    there = len(world.tables.executions)
    acme = under(world, queued_executions=0)

    quota = over_quota(ask(acme, recurring, ended))

    assert quota == {"name": "queued_executions", "limit": 0, "used": 0}
    assert len(world.tables.executions) == there
    assert ask(under(world, queued_executions=9), recurring, ended).status < 300


@asking
def test_every_route_that_makes_an_execution_takes_of_the_rate(
    world: MemoryWorld, recurring: str, ended: str, ask: Ask
) -> None:
    """S0-P4: submissions a second; 429 says when to come again."""
    acme = under(world, submissions_per_second=1, burst=2)
    acme.create()
    acme.create()

    answer = ask(acme, recurring, ended)

    quota = over_quota(answer)
    assert quota == {"name": "submissions_per_second", "limit": 1, "used": 2}
    world.pass_time(int(answer.headers["retry-after"]) * timedelta(seconds=1) * 2)
    assert ask(acme, recurring, ended).status < 300


def test_a_bulk_replay_replays_what_there_is_room_for_and_names_the_rest(
    world: MemoryWorld, ended: str
) -> None:
    for _ in range(3):
        caller(world).create()
    System(world=world).work()
    acme = under(world, queued_executions=2)

    answer = acme.post("/v1/executions/replay", {"filter": {"status": "succeeded"}})

    assert answer.status == 200, answer.text
    assert sum(row.trigger == "REPLAY" for row in world.tables.executions.values()) == 2
    assert answer.text.count("urn:lamplighter:problem:quota-exceeded") == 2
    assert ended in answer.text


@pytest.mark.parametrize("when", [{"rate": "1 hour"}, {"run_at": "2026-01-02T00:00:00Z"}], ids=str)
def test_a_patch_that_grows_a_payload_over_the_quota_is_refused(
    world: MemoryWorld, when: dict[str, str]
) -> None:
    acme = under(world, payload_bytes=1024)
    path = f"/v1/jobs/{acme.create(**when)['job_id']}"

    quota = over_quota(acme.patch(path, {"payload": "x" * 1100}))

    assert quota == {"name": "payload_bytes", "limit": 1024, "used": 512}
    assert acme.get(path).json["version"] == 1
    assert acme.patch(path, {"payload": "x" * 600}).status == 200


def test_an_execution_that_was_patched_is_counted_until_it_has_ended(world: MemoryWorld) -> None:
    acme = under(world, queued_executions=1)
    made = acme.create(run_at=format_instant(START + 60 * MINUTE))
    acme.patch(f"/v1/jobs/{made['job_id']}", {"run_at": format_instant(START + 90 * MINUTE)})

    world.pass_time(MINUTE)
    over_quota(acme.post("/v1/jobs", {"task": "echo"}))
    acme.delete(f"/v1/jobs/{made['job_id']}")
    world.pass_time(MINUTE)

    acme.create()


# Intervals.


@pytest.mark.parametrize(
    ("quota", "rate", "status"),
    [
        ({}, "60 seconds", 201),
        ({}, "59 seconds", 400),
        ({"min_interval_seconds": 1}, "1 second", 201),
        ({"min_interval_seconds": 10}, "10 seconds", 201),
        ({"min_interval_seconds": 10}, "9 seconds", 400),
    ],
)
def test_an_interval_may_be_as_short_as_its_owner_is_permitted(
    world: MemoryWorld, quota: dict[str, float], rate: str, status: int
) -> None:
    acme = under(world, **quota)

    made = acme.post("/v1/jobs", {"task": "echo", "rate": rate})
    shown = acme.post("/v1/schedules/preview", {"rate": rate})

    assert made.status == status
    assert shown.status == (200 if status == 201 else 400)
    if status == 400:
        assert made.fields == shown.fields == {"rate"}
        shortest = f"{quota.get('min_interval_seconds', 60):g} s"
        assert f"less than {shortest}" in made.json["detail"]


def test_a_patch_is_held_to_the_same_interval(world: MemoryWorld) -> None:
    acme = under(world, min_interval_seconds=5)
    path = f"/v1/jobs/{acme.create(rate='1 minute')['job_id']}"

    assert acme.patch(path, {"rate": "4 seconds"}).fields == {"rate"}
    assert acme.patch(path, {"rate": "5 seconds"}).status == 200


# Limits.


def test_a_recurring_job_begins_within_ten_years(world: MemoryWorld) -> None:
    acme, last = caller(world), START + limits.MAX_HORIZON

    at = acme.post("/v1/jobs", {"task": "echo", "cron": "@daily", "start_at": instant(last)})
    past = {"task": "echo", "cron": "@daily", "start_at": instant(last + TICK)}

    assert at.status == 201
    assert acme.post("/v1/jobs", past).fields == {"start_at"}
    assert "more than 3653 days ahead" in acme.post("/v1/jobs", past).text


def test_a_one_off_is_due_within_ten_years(world: MemoryWorld) -> None:
    acme, last = caller(world), START + limits.MAX_HORIZON

    assert acme.post("/v1/jobs", {"task": "echo", "run_at": instant(last)}).status == 201
    past = acme.post("/v1/jobs", {"task": "echo", "run_at": instant(last + TICK)})
    assert past.fields == {"run_at"}


def instant(moment: datetime) -> str:
    return format_instant(moment)


@pytest.mark.parametrize(
    ("body", "past", "field"),
    [
        (
            {"retry_policy": {"max_attempts": 100}},
            {"retry_policy": {"max_attempts": 101}},
            "retry_policy.max_attempts",
        ),
        ({"timeout_seconds": 840}, {"timeout_seconds": 840.001}, "timeout_seconds"),
        (
            {"rate": "1 hour", "name": "n" * 128},
            {"rate": "1 hour", "name": "n" * 129},
            "name",
        ),
        (
            {"rate": "3660 days"},
            {"rate": "3661 days"},
            "rate",
        ),
        (
            {"rate": "1 hour", "max_occurrences": limits.MAX_OCCURRENCES},
            {"rate": "1 hour", "max_occurrences": limits.MAX_OCCURRENCES + 1},
            "max_occurrences",
        ),
        (
            {"rate": "1 hour", "flexible_window_seconds": 86_400},
            {"rate": "1 hour", "flexible_window_seconds": 86_401},
            "flexible_window_seconds",
        ),
        ({"payload": "x" * 65_534}, {"payload": "x" * 65_535}, "payload"),
        ({"idempotency_key": "k" * 255}, {"idempotency_key": "k" * 256}, "idempotency_key"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_at_a_limit_is_taken_and_one_past_it_refused_by_name(
    world: MemoryWorld, body: dict[str, object], past: dict[str, object], field: str
) -> None:
    acme = caller(world)

    assert acme.post("/v1/jobs", {"task": "echo", **body}).status == 201
    assert acme.post("/v1/jobs", {"task": "echo", **past}).fields == {field}


def test_headers_have_as_many_bytes_as_api_gateway_lets_through(world: MemoryWorld) -> None:
    acme = caller(world)

    def send(size: int) -> Answer:
        headers = {"x-ü": "v" * (size - len("x-ü".encode()))}
        return acme.send(event("GET", "/v1/jobs", headers=headers, claims=acme.claims))

    assert send(limits.HEADERS_MAX_BYTES).status == 200
    refused = send(limits.HEADERS_MAX_BYTES + 1)
    assert refused.status == 431
    assert refused.json["detail"] == "The headers have 10241 bytes, more than 10240"


@pytest.mark.parametrize("path", ["/v1/health", "/v1/jobs", "/docs"])
def test_a_query_has_a_length(world: MemoryWorld, path: str) -> None:
    acme = caller(world)

    def send(length: int) -> Answer:
        query = "task=" + "t" * (length - 5)
        return acme.send(event("GET", path, query=query, claims=acme.claims))

    assert "longer than" not in send(limits.QUERY_MAX_CHARS).text
    assert send(limits.QUERY_MAX_CHARS + 1).fields == {"query"}
    assert f"longer than {limits.QUERY_MAX_CHARS} characters" in send(50_000).text


def test_a_query_of_every_field_at_its_longest_and_a_cursor_fits(world: MemoryWorld) -> None:
    acme = caller(world)
    for _ in range(2):
        acme.create()
    cursor = acme.get("/v1/executions", limit="1").json["next_cursor"]
    statuses = ",".join(["dead_lettered"] * 20)

    answer = acme.get(
        "/v1/executions",
        cursor=cursor,
        status=statuses,
        task="ü" * 128,
        queue="ü" * 128,
        limit="100",
        **{"from": "2026-01-01T00:00:00.000+00:00", "to": "2027-01-01T00:00:00.000+00:00"},
    )

    assert answer.fields == {"cursor"}
