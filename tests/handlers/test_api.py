"""Every route of API v1, on ports in memory: what it answers, and to whom."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lamplighter.api.access import Access
from lamplighter.api.requests import Request
from lamplighter.api.routes import Api
from lamplighter.core.errors import Contended, Unavailable, VersionMoved
from lamplighter.core.outcome import Failed, Outcome, Succeeded
from lamplighter.core.retry import Failure, Kind
from lamplighter.memory import MemoryWorld, VirtualClock
from lamplighter.ports import Ports
from lamplighter.services.execute import Claimed, begin
from lamplighter.sim.faults import Call, When, interposed
from lamplighter.sim.system import System
from lamplighter.version import VERSION
from tests.support.api import ANY_TOKEN, LANES, Caller, caller, event

MINUTE = timedelta(minutes=1)
START = datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)
NEVER_WAS = "0" * 26


@pytest.fixture
def world() -> MemoryWorld:
    return MemoryWorld(clock=VirtualClock(START))


@pytest.fixture
def system(world: MemoryWorld) -> System:
    return System(world=world)


@pytest.fixture
def acme(world: MemoryWorld) -> Caller:
    return caller(world)


def without(ports: Ports, *, port: str, method: str = "") -> Ports:
    """Ports of which one, or one call of one, does not answer."""

    def hook(call: Call, when: When) -> None:
        if call.port == port and method in {"", call.method}:
            raise Unavailable(f"{port} does not answer")

    return interposed(ports, hook)


class TestCreate:
    def test_without_a_time_the_job_runs_now(self, acme: Caller, system: System) -> None:
        """S0-F1."""
        answer = acme.post("/v1/jobs", {"task": "echo", "payload": {"a": [1, None]}})

        assert answer.status == 201
        made = answer.json
        assert answer.headers["location"] == f"/v1/jobs/{made['job_id']}"
        now = "2026-01-01T00:00:01.000Z"
        assert made == {
            "job_id": made["job_id"],
            "execution_id": made["execution_id"],
            "task": "echo",
            "queue": "default",
            "status": "QUEUED",
            "scheduled_for": now,
            "run_at": now,
            "next_run_at": now,
            "created_at": now,
        }
        system.work()
        assert acme.get(f"/v1/executions/{made['execution_id']}").json["status"] == "SUCCEEDED"

    def test_with_a_run_at_the_job_runs_then(self, acme: Caller, system: System) -> None:
        """S0-F1."""
        made = acme.create(run_at="2026-01-01T01:06:00+01:00")

        assert (made["run_at"], made["status"]) == ("2026-01-01T00:06:00.000Z", "SCHEDULED")
        system.run_for(10 * MINUTE)
        done = acme.get(f"/v1/executions/{made['execution_id']}").json
        assert (done["started_at"], done["lateness_ms"]) == ("2026-01-01T00:06:00.000Z", 0)

    @pytest.mark.parametrize(
        ("schedule", "first"),
        [
            ({"cron": "0 2 * * *"}, "2026-01-01T02:00:00.000Z"),
            ({"cron": "0 2 * * *", "timezone": "America/Chicago"}, "2026-01-01T08:00:00.000Z"),
            ({"cron": "cron(0 12 ? * 2 *)"}, "2026-01-05T12:00:00.000Z"),
            (
                {"cron": "0 12 ? * 2 *", "dialect": "eventbridge"},
                "2026-01-05T12:00:00.000Z",
            ),
            ({"cron": "@daily", "start_at": "2026-03-01T00:00:00Z"}, "2026-03-01T00:00:00.000Z"),
            ({"cron": "@daily", "except": ["2026-01-02"]}, "2026-01-03T00:00:00.000Z"),
            (
                {"cron": "30 2 29 3 *", "timezone": "Europe/Berlin", "dst_gap": "SHIFT"},
                "2026-03-29T01:30:00.000Z",
            ),
            ({"rate": "rate(5 minutes)"}, "2026-01-01T00:05:01.000Z"),
            ({"rate": "5 minutes", "max_occurrences": 2}, "2026-01-01T00:05:01.000Z"),
            ({"at": "at(2026-07-01T09:00:00)"}, "2026-07-01T09:00:00.000Z"),
            (
                {"at": "2026-07-01T09:00:00", "timezone": "Europe/Paris"},
                "2026-07-01T07:00:00.000Z",
            ),
            (
                {"run_at": "2026-10-25T02:30:00", "timezone": "Europe/Paris", "dst_fold": "SECOND"},
                "2026-10-25T01:30:00.000Z",
            ),
            ({"cron": "H 3 * * *"}, None),
        ],
        ids=str,
    )
    def test_takes_every_way_to_say_when(
        self, acme: Caller, schedule: dict[str, object], first: str | None
    ) -> None:
        """S0-F2, S1-F1, S4-F1."""
        made = acme.create(**schedule)

        assert first in {None, made["run_at"]}
        assert made["next_run_at"] == made["scheduled_for"] == made["run_at"]

    def test_keeps_what_the_definition_says(self, acme: Caller) -> None:
        made = acme.create(
            task="report",
            payload=[1.5, {"ü": "\u0000"}],
            cron="*/15 * * * *",
            timezone="Asia/Kolkata",
            queue="bulk",
            misfire_policy="skip",
            retry_policy={
                "max_attempts": 3,
                "base_seconds": 0.5,
                "factor": 3,
                "max_seconds": 60,
                "jitter": 0.25,
                "retry_on": ["TimedOut", "OSError"],
                "no_retry_on": ["FileNotFoundError"],
                "honor_retry_after": False,
            },
            timeout_seconds=90,
            end_at="2027-01-01T00:00:00Z",
            name="quarter-hourly",
        )

        job = acme.get(f"/v1/jobs/{made['job_id']}").json
        executions = job.pop("executions")
        assert job == {
            "job_id": made["job_id"],
            "name": "quarter-hourly",
            "task": "report",
            "task_version": None,
            "payload": [1.5, {"ü": "\u0000"}],
            "queue": "bulk",
            "retry_policy": {
                "max_attempts": 3,
                "base_seconds": 0.5,
                "factor": 3,
                "max_seconds": 60,
                "jitter": 0.25,
                "retry_on": ["TimedOut", "OSError"],
                "no_retry_on": ["FileNotFoundError"],
                "honor_retry_after": False,
            },
            "retry_policy_is_default": False,
            "timeout_seconds": 90,
            "deadline_seconds": None,
            "on_deadline": "DEAD_LETTER",
            "cron": "*/15 * * * *",
            "timezone": "Asia/Kolkata",
            "dialect": None,
            "dst_gap": "NEXT_VALID",
            "dst_fold": "FIRST",
            "start_at": None,
            "end_at": "2027-01-01T00:00:00.000Z",
            "max_occurrences": None,
            "flexible_window_seconds": 0,
            "except": [],
            "anchor": "2026-01-01T00:00:01.000Z",
            "tzdb_version": job["tzdb_version"],
            "misfire_policy": "SKIP",
            "misfire_threshold_seconds": 60,
            "catchup_window_seconds": 86_400,
            "catchup_max": 100,
            "catchup_spread_seconds": 60,
            "overlap_policy": "SKIP",
            "status": "ACTIVE",
            "version": 1,
            "created_at": "2026-01-01T00:00:01.000Z",
            "next_run_at": "2026-01-01T00:15:00.000Z",
            "schedule_error": None,
        }
        assert [one["execution_id"] for one in executions] == [made["execution_id"]]

    def test_what_is_left_out_has_its_default(self, acme: Caller) -> None:
        made = acme.create(retry_policy={"max_attempts": 7})

        job = acme.get(f"/v1/jobs/{made['job_id']}").json
        assert job["payload"] == {}
        assert job["queue"] == "default"
        assert job["timeout_seconds"] == 60
        assert job["retry_policy"] == {
            "max_attempts": 7,
            "base_seconds": 1,
            "factor": 2,
            "max_seconds": 3600,
            "jitter": 0.5,
            "retry_on": [],
            "no_retry_on": [],
            "honor_retry_after": True,
        }

    @pytest.mark.parametrize(
        "payload", [None, False, 0, "", [], {}, "x" * 60_000], ids=lambda value: repr(value)[:9]
    )
    def test_any_json_is_a_payload(self, acme: Caller, system: System, payload: object) -> None:
        made = acme.create(payload=payload)
        given: list[str] = []

        def keep(claimed: Claimed) -> Outcome:
            given.append(claimed.payload)
            return Succeeded(result="1")

        system.handler = keep
        system.work()

        assert [json.loads(text) for text in given] == [payload]
        assert acme.get(f"/v1/executions/{made['execution_id']}").json["payload"] == payload

    def test_a_trace_that_is_well_formed_is_kept(self, acme: Caller) -> None:
        trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

        def kept(traceparent: str) -> object:
            made = acme.post("/v1/jobs", {"task": "echo"}, traceparent=traceparent).json
            return acme.get(f"/v1/executions/{made['execution_id']}").json["traceparent"]

        assert kept(trace) == trace
        assert kept(trace.replace("00-4", "ff-4")) is None
        assert kept("00-" + "0" * 32 + "-00f067aa0ba902b7-01") is None
        assert kept("not a trace") is None

    def test_a_job_without_the_version_in_its_path_is_the_same(self, acme: Caller) -> None:
        made = acme.post("/jobs", {"task": "echo"})

        assert made.status == 201
        assert acme.get(f"/jobs/{made.json['job_id']}").status == 200

    def test_when_nothing_answers_the_caller_is_told_to_try_again(self, world: MemoryWorld) -> None:
        """S0-E4."""
        answer = caller(without(world.ports(), port="jobs")).post(
            "/v1/jobs", {"task": "echo"}, Idempotency_Key="k"
        )

        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        assert not world.tables.executions

    def test_when_only_the_queue_is_down_nothing_is_lost(
        self, world: MemoryWorld, system: System
    ) -> None:
        answer = caller(without(world.ports(), port="queue")).post("/v1/jobs", {"task": "echo"})

        assert answer.status == 503
        system.run_for(10 * MINUTE)
        assert len(system.runs) == 1


class TestRefusals:
    """400 names every field at fault with its value, and nothing was written."""

    @pytest.mark.parametrize(
        ("body", "fields"),
        [
            ({}, {"task"}),
            ({"task": "echo", "runAt": "2026-09-12T02:00:00Z"}, {"runAt"}),
            ({"task": "echo", "owner": "somebody else"}, {"owner"}),
            ({"task": ""}, {"task"}),
            ({"task": " echo"}, {"task"}),
            ({"task": "a\u0000b"}, {"task"}),
            ({"task": "e" * 129}, {"task"}),
            ({"task": 5}, {"task"}),
            ({"task": "echo", "queue": "fast"}, {"queue"}),
            ({"task": "echo", "queue": None}, {"queue"}),
            ({"task": "echo", "payload": "x" * 65_535}, {"payload"}),
            ({"task": "echo", "cron": "61 * * * *"}, {"cron"}),
            ({"task": "echo", "cron": "0 0 31 2 *"}, {"cron"}),
            ({"task": "echo", "cron": "0 2 * * *", "timezone": "Mars/Base"}, {"timezone"}),
            ({"task": "echo", "cron": "0 2 * * *", "dst_gap": "JUMP"}, {"dst_gap"}),
            ({"task": "echo", "cron": "0 2 * * *", "dst_fold": "BOTH "}, {"dst_fold"}),
            ({"task": "echo", "cron": "0 2 * * *", "dialect": "quartz"}, {"dialect"}),
            ({"task": "echo", "cron": "0 2 * * *", "end_at": "2026-13-01T00:00:00Z"}, {"end_at"}),
            ({"task": "echo", "cron": "0 2 * * *", "end_at": "2025-01-01T00:00:00Z"}, {"end_at"}),
            (
                {"task": "echo", "cron": "61 * * * *", "timezone": "Mars/Base", "dst_gap": "LATER"}
                | {"start_at": "soon", "max_occurrences": 0, "except": ["2026-02-30"]},
                {"cron", "timezone", "dst_gap", "start_at", "max_occurrences", "except"},
            ),
            (
                {"task": "echo", "cron": "61 * * * *", "timezone": "Mars/Base", "unheard_of": 1}
                | {"queue": "fast", "max_occurrences": "3", "retry_policy": {"factor": 0}},
                {"cron", "timezone", "unheard_of", "queue", "max_occurrences"}
                | {"retry_policy.factor"},
            ),
            (
                {"task": "echo", "cron": 5, "overlap_policy": "SKIP", "catchup_max": 5}
                | {"queue": "fast"},
                {"cron", "queue"},
            ),
            (
                {"task": 5, "run_at": "2026-09-12T02:00:00", "timezon": "Europe/Berlin"}
                | {"on_deadline": "never"},
                {"task", "timezon", "on_deadline"},
            ),
            ({"task": "echo", "rate": "rate(30 seconds)"}, {"rate"}),
            ({"task": "echo", "rate": "rate(1 minutes)"}, {"rate"}),
            ({"task": "echo", "rate": "1 minute", "max_occurrences": 0}, {"max_occurrences"}),
            ({"task": "echo", "rate": "1 minute", "max_occurrences": True}, {"max_occurrences"}),
            (
                {"task": "echo", "rate": "1 hour", "flexible_window_seconds": 86_401},
                {"flexible_window_seconds"},
            ),
            ({"task": "echo", "flexible_window_seconds": 60}, {"flexible_window_seconds"}),
            ({"task": "echo", "at": "tomorrow"}, {"at"}),
            (
                {"task": "echo", "at": "2026-03-29T02:30:00", "timezone": "Europe/Paris"}
                | {"dst_gap": "SKIP"},
                {"at"},
            ),
            (
                {"task": "echo", "cron": "0 2 * * *", "run_at": "2026-07-01T09:00:00Z"},
                {"cron", "run_at"},
            ),
            (
                {"task": "echo", "run_at": "2026-03-29T02:30:00", "timezone": "Europe/Paris"}
                | {"dst_gap": "SKIP"},
                {"run_at"},
            ),
            ({"task": "echo", "timezone": "Mars/Base"}, {"timezone"}),
            ({"task": "echo", "dst_gap": "SKIP"}, {"dst_gap"}),
            (
                {"task": "echo", "run_at": "2026-07-01T09:00:00Z", "except": ["2026-07-01"]},
                {"except"},
            ),
            ({"task": "echo", "name": "only recurring jobs have one"}, {"name"}),
            ({"task": "echo", "rate": "1 minute", "name": ""}, {"name"}),
            ({"task": "echo", "retry_policy": {"max_attempts": 0}}, {"retry_policy.max_attempts"}),
            (
                {"task": "echo", "retry_policy": {"max_attempts": 5.0}},
                {"retry_policy.max_attempts"},
            ),
            ({"task": "echo", "retry_policy": {"factor": "2"}}, {"retry_policy.factor"}),
            ({"task": "echo", "retry_policy": {"jitter": 1.5}}, {"retry_policy.jitter"}),
            ({"task": "echo", "retry_policy": {"jitter": True}}, {"retry_policy.jitter"}),
            ({"task": "echo", "retry_policy": {"retry_on": "OSError"}}, {"retry_policy.retry_on"}),
            (
                {"task": "echo", "retry_policy": {"retry_on": ["A", "B", "C", 4]}},
                {"retry_policy.retry_on.3"},
            ),
            (
                {"task": "echo", "retry_policy": {"no_retry_on": ["A", "socket.timeout"]}},
                {"retry_policy.no_retry_on.1"},
            ),
            (
                {"task": "echo", "retry_policy": {"retry_on": ["A"], "no_retry_on": ["A"]}},
                {"retry_policy.no_retry_on.0"},
            ),
            (
                {"task": "echo", "retry_policy": {"no_retry_on": [f"E{n}" for n in range(21)]}},
                {"retry_policy.no_retry_on"},
            ),
            (
                {"task": "echo", "retry_policy": {"honor_retry_after": 1}},
                {"retry_policy.honor_retry_after"},
            ),
            (
                {"task": "echo", "retry_policy": {"honour_retry_after": True}},
                {"retry_policy.honour_retry_after"},
            ),
            ({"task": "echo", "retry_policy": 3}, {"retry_policy"}),
            ({"task": "echo", "timeout_seconds": 0}, {"timeout_seconds"}),
            ({"task": "echo", "timeout_seconds": 841}, {"timeout_seconds"}),
            ({"task": "echo", "timeout_seconds": 10**400}, {"timeout_seconds"}),
            ({"task": "echo", "misfire_policy": "FIRE_SOME"}, {"misfire_policy"}),
            (
                {"task": "", "queue": "fast", "cron": "61 * * * *", "misfire_policy": "never"}
                | {"retry_policy": {"max_seconds": -1}},
                {"task", "queue", "cron", "misfire_policy", "retry_policy.max_seconds"},
            ),
        ],
        ids=lambda value: json.dumps(value)[:60] if isinstance(value, dict) else "",
    )
    def test_name_the_field(
        self, world: MemoryWorld, acme: Caller, body: object, fields: set[str]
    ) -> None:
        answer = acme.post("/v1/jobs", body)

        assert (answer.status, answer.fields) == (400, fields)
        assert not world.tables.executions
        assert not world.tables.jobs
        assert len(world.queue) == 0

    @pytest.mark.parametrize(
        ("body", "value"),
        [
            ({"task": "echo", "cron": "0 25 * * *"}, "25"),
            ({"task": "echo", "queue": "fast"}, "fast"),
            ({"task": "echo", "timeout_seconds": 0.5}, 0.5),
            ({"task": "echo", "retry_policy": {"max_attempts": True}}, True),
            ({"task": "echo", "retry_policy": {"retry_on": ["OSError", "a.B"]}}, "a.B"),
            ({"task": "echo", "unheard_of": {"a": 1}}, "{'a': 1}"),
            ({"task": "echo", "unheard_of": "x" * 500}, "'" + "x" * 78 + "…"),
            ({"task": "echo", "unheard_of": 10**30}, str(10**30)),
        ],
        ids=str,
    )
    def test_quote_the_value_and_not_much_of_it(
        self, acme: Caller, body: object, value: object
    ) -> None:
        (error,) = acme.post("/v1/jobs", body).json["errors"]

        assert error["value"] == value

    @pytest.mark.parametrize(
        ("said", "reason"),
        [
            ({"retry_policy": 5}, "not an object"),
            ({"retry_policy": {"factor": "2"}}, "not a number"),
            ({"retry_policy": {"max_attempts": 2.5}}, "not a whole number"),
            ({"retry_policy": {"honor_retry_after": 1}}, "not true or false"),
            ({"except": "2026-12-25"}, "not a list"),
            ({"queue": ["default"]}, "not a string"),
        ],
        ids=str,
    )
    def test_say_what_a_value_is_not_in_the_words_of_json(
        self, acme: Caller, said: dict[str, object], reason: str
    ) -> None:
        (error,) = acme.post("/v1/jobs", {"task": "echo", **said}).json["errors"]

        assert error["reason"] == reason

    def test_say_what_may_have_been_meant(self, acme: Caller) -> None:
        problem = acme.post("/v1/jobs", {"task": "echo", "runAt": "2026-09-12T02:00:00Z"}).json

        assert problem["title"] == "Invalid request"
        assert problem["detail"] == (
            "runAt: unknown field; did you mean run_at? (got '2026-09-12T02:00:00Z')"
        )

    def test_name_the_queues_that_there_are(self, acme: Caller) -> None:
        (error,) = acme.post("/v1/jobs", {"task": "echo", "queue": "fast"}).json["errors"]

        assert error["reason"] == "no such queue; there are bulk, critical, default"

    def test_name_no_more_than_twenty_fields(self, acme: Caller) -> None:
        body = {"task": "echo", **{f"field {n}": n for n in range(5000)}}

        answer = acme.post("/v1/jobs", body)

        assert len(answer.json["errors"]) == 20
        assert len(answer.text) < 10_000

    @pytest.mark.parametrize(
        "content_type",
        ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin-1"],
    )
    def test_of_what_is_not_said_to_be_json(self, acme: Caller, content_type: str) -> None:
        answer = acme.post_text("/v1/jobs", '{"task": "echo"}', content_type=content_type)

        assert answer.status == 415
        assert content_type in answer.json["detail"]

    def test_of_a_compressed_body(self, acme: Caller) -> None:
        answer = acme.post_text("/v1/jobs", '{"task": "echo"}', Content_Encoding="gzip")

        assert answer.status == 415

    def test_of_a_body_that_is_too_large_before_it_is_read(self, acme: Caller) -> None:
        assert acme.post_text("/v1/jobs", "[" * (256 * 1024 + 1)).status == 413
        assert acme.post_text("/v1/jobs", '"' + "ü" * (128 * 1024) + '"').status == 413
        assert acme.post_text("/v1/jobs", "[" * (256 * 1024)).status == 400

    @pytest.mark.parametrize("key", ["", " ", "k" * 256, "a\nb", " k"], ids=repr)
    def test_of_a_key_that_is_none(self, acme: Caller, key: str) -> None:
        answer = acme.post("/v1/jobs", {"task": "echo"}, Idempotency_Key=key)

        assert (answer.status, answer.fields) == (400, {"Idempotency-Key"})

    def test_of_a_query_where_there_is_none(self, acme: Caller) -> None:
        answer = acme.send(
            event(
                "POST", "/v1/jobs", query="dry_run=1", body='{"task":"echo"}', claims={"sub": "a"}
            )
        )

        assert (answer.status, answer.fields) == (400, {"dry_run"})


BODY = {"task": "echo", "payload": {"a": 1, "b": 2}}


class TestIdempotency:
    def test_the_same_key_and_body_get_the_first_answer_again(
        self, acme: Caller, world: MemoryWorld
    ) -> None:
        """S0-A2."""
        first = acme.post("/v1/jobs", BODY, Idempotency_Key="k")
        world.pass_time(timedelta(hours=1))

        again = acme.post("/v1/jobs", BODY, Idempotency_Key="k")

        assert (again.status, again.json) == (first.status, first.json)
        assert again.headers["location"] == first.headers["location"]
        assert again.headers["idempotent-replayed"] == "true"
        assert "idempotent-replayed" not in first.headers
        assert len(world.tables.executions) == 1

    def test_another_body_under_the_same_key_is_refused(
        self, acme: Caller, world: MemoryWorld
    ) -> None:
        """S0-A2."""
        acme.post("/v1/jobs", BODY, Idempotency_Key="k")

        answer = acme.post("/v1/jobs", {"task": "other"}, Idempotency_Key="k")

        assert answer.status == 422
        assert answer.json["type"] == "urn:lamplighter:problem:idempotency-key-reused"
        assert len(world.tables.executions) == 1

    def test_the_same_key_of_another_owner_is_another_key(
        self, acme: Caller, world: MemoryWorld
    ) -> None:
        acme.post("/v1/jobs", BODY, Idempotency_Key="k")

        answer = acme.calling_as("other").post("/v1/jobs", {"task": "x"}, Idempotency_Key="k")

        assert answer.status == 201
        assert len(world.tables.executions) == 2

    def test_without_a_key_twice_makes_two(self, acme: Caller, world: MemoryWorld) -> None:
        acme.post("/v1/jobs", BODY)
        acme.post("/v1/jobs", BODY)

        assert len(world.tables.executions) == 2

    def test_a_create_that_died_before_its_send_is_sent_by_the_next_try(
        self, world: MemoryWorld, system: System
    ) -> None:
        dying = caller(without(world.ports(), port="queue"))
        assert dying.post("/v1/jobs", BODY, Idempotency_Key="k").status == 503
        assert len(world.queue) == 0

        again = caller(world).post("/v1/jobs", BODY, Idempotency_Key="k")

        assert (again.status, again.headers["idempotent-replayed"]) == (201, "true")
        system.work()
        assert len(system.runs) == 1


class TestJobs:
    def test_lists_definitions_the_recurring_first(self, acme: Caller) -> None:
        one_off = acme.create()
        hourly = acme.create(rate="1 hour")

        page = acme.get("/v1/jobs").json

        assert [job["job_id"] for job in page["items"]] == [hourly["job_id"], one_off["job_id"]]
        assert page["next_cursor"] is None
        assert page["items"][0]["rate"] == "1 hour"
        assert page["items"][1]["run_at"] == one_off["run_at"]

    def test_with_a_status_lists_executions_newest_first(
        self, acme: Caller, system: System, world: MemoryWorld
    ) -> None:
        """S1-A2, S1-F2."""
        first = acme.create()
        world.pass_time(MINUTE)
        second = acme.create()
        system.work()
        acme.create(run_at="2026-06-01T00:00:00Z")

        for status in ("SUCCEEDED", "completed", "Success"):
            page = acme.get("/v1/jobs", status=status).json
            assert [one["execution_id"] for one in page["items"]] == [
                second["execution_id"],
                first["execution_id"],
            ]
        assert len(acme.get("/v1/jobs", status="").json["items"]) == 3

    def test_pages_follow_each_other_to_the_end(self, acme: Caller) -> None:
        made = {acme.create(rate="1 hour")["job_id"] for _ in range(3)}
        made |= {acme.create()["job_id"] for _ in range(4)}

        ids = [job["job_id"] for job in every_item(acme, "/v1/jobs", limit="2")]

        assert len(ids) == len(made) == 7
        assert set(ids) == made

    def test_filters_by_task_and_queue(self, acme: Caller) -> None:
        acme.create(task="a", queue="bulk")
        acme.create(task="b", rate="1 hour")

        def tasks(**query: str) -> list[str]:
            return [job["task"] for job in acme.get("/v1/jobs", **query).json["items"]]

        assert tasks(task="a") == ["a"]
        assert tasks(queue="default") == ["b"]
        assert tasks(task="b", queue="bulk") == []

    def test_one_job_shows_its_definition_and_executions(
        self, acme: Caller, system: System
    ) -> None:
        """S1-A3, S2-A2."""
        made = acme.create(payload="p")
        system.work()

        job = acme.get(f"/v1/jobs/{made['job_id']}").json

        assert (job["task"], job["payload"], job["status"]) == ("echo", "p", "SUCCEEDED")
        (execution,) = job["executions"]
        assert execution["execution_id"] == job["execution_id"] == made["execution_id"]

    @pytest.mark.parametrize("path", ["executions", "runs"])
    def test_a_jobs_executions(self, acme: Caller, system: System, path: str) -> None:
        """S2-A3, S4-A2."""
        made = acme.create(rate="1 minute")
        acme.create(rate="1 minute")
        system.run_for(5 * MINUTE)

        items = [*every_item(acme, f"/v1/jobs/{made['job_id']}/{path}", limit="3")]

        assert {one["job_id"] for one in items} == {made["job_id"]}
        slots = [one["scheduled_for"] for one in items]
        assert slots == sorted(slots, reverse=True)
        assert [one["status"] for one in items][-5:] == ["SUCCEEDED"] * 5
        done = acme.get(f"/v1/jobs/{made['job_id']}/{path}", status="succeeded").json
        assert {one["status"] for one in done["items"]} == {"SUCCEEDED"}


class TestPauseAndResume:
    def test_a_paused_job_starts_nothing_until_it_is_resumed(
        self, acme: Caller, system: System
    ) -> None:
        """S2-A5, S4-A4, S4-F3."""
        made = acme.create(rate="1 minute")

        paused = acme.post(f"/v1/jobs/{made['job_id']}/pause", {}).json
        system.run_for(5 * MINUTE)
        ran = len(system.runs)
        resumed = acme.post(f"/v1/jobs/{made['job_id']}/resume", {}).json
        system.run_for(5 * MINUTE)

        assert (paused["status"], paused["version"], paused["next_run_at"]) == ("PAUSED", 2, None)
        assert paused["in_flight"] == []
        assert (ran, len(system.runs)) == (0, 5)
        assert (resumed["status"], resumed["version"]) == ("ACTIVE", 3)
        assert resumed["next_run_at"] is not None

    def test_a_one_off_is_neither_paused_nor_resumed(self, acme: Caller) -> None:
        made = acme.create()

        for verb in ("pause", "resume"):
            answer = acme.post(f"/v1/jobs/{made['job_id']}/{verb}", {})
            assert answer.status == 409
            assert "is a one-off" in answer.json["detail"]

    def test_a_deleted_job_is_not_resumed(self, acme: Caller) -> None:
        made = acme.create(rate="1 minute")
        acme.delete(f"/v1/jobs/{made['job_id']}")

        assert acme.post(f"/v1/jobs/{made['job_id']}/resume", {}).status == 409


class TestDelete:
    def test_answers_nothing_and_the_job_is_over(self, acme: Caller, system: System) -> None:
        """S4-A3."""
        made = acme.create(rate="1 minute")

        answer = acme.delete(f"/v1/jobs/{made['job_id']}")

        assert (answer.status, answer.text) == (204, "")
        system.run_for(5 * MINUTE)
        assert system.runs == []
        job = acme.get(f"/v1/jobs/{made['job_id']}").json
        assert (job["status"], job["next_run_at"]) == ("DELETED", None)
        assert acme.get("/v1/jobs").json["items"] == []
        assert acme.delete(f"/v1/jobs/{made['job_id']}").status == 204

    def test_of_one_that_runs_is_refused_unless_it_may_be_asked_to_stop(
        self, acme: Caller, world: MemoryWorld
    ) -> None:
        """S2-A6."""
        made = acme.create()
        (message,) = world.queue.receive()
        begin(world.ports(), message, worker="worker")
        path = f"/v1/jobs/{made['job_id']}"

        refused = acme.delete(path)
        requested = acme.delete(path, mode="request")

        assert refused.status == 409
        assert "mode=request" in refused.json["detail"]
        assert requested.status == 204
        shown = acme.get(f"/v1/executions/{made['execution_id']}").json
        assert (shown["status"], shown["cancel_requested_at"]) == (
            "RUNNING",
            "2026-01-01T00:00:01.000Z",
        )

    @pytest.mark.parametrize("query", [{"mode": "now"}, {"mode": ""}, {"force": "1"}], ids=str)
    def test_in_a_way_that_there_is_none_of_is_refused(
        self, acme: Caller, query: dict[str, str]
    ) -> None:
        made = acme.create(rate="1 hour")

        answer = acme.delete(f"/v1/jobs/{made['job_id']}", **query)

        assert (answer.status, answer.fields) == (400, {*query})
        assert acme.get(f"/v1/jobs/{made['job_id']}").json["status"] == "ACTIVE"


class TestExecutions:
    def test_one_shows_its_tries_its_times_and_its_result(
        self, acme: Caller, system: System
    ) -> None:
        """S0-F6, S4-F4, S4-M1."""
        failure = Failure(kind=Kind.RETRYABLE, type="OSError", message="no route")
        outcomes: list[Outcome] = [
            Failed(failure=failure, version=2),
            Succeeded(result='{"n": 7}', version=3),
        ]
        system.handler = lambda _: outcomes.pop(0)
        made = acme.create(run_at="2026-01-01T00:00:31Z", retry_policy={"base_seconds": 60})
        system.run_for(5 * MINUTE)

        shown = acme.get(f"/v1/executions/{made['execution_id']}").json

        first, second = shown["attempts"]
        assert first == {
            "number": 1,
            "queued_at": "2026-01-01T00:00:01.000Z",
            "started_at": "2026-01-01T00:00:31.000Z",
            "finished_at": "2026-01-01T00:00:31.000Z",
            "status": "RETRYING",
            "worker": "worker",
            "handler_version": 2,
            "error": {"kind": "retryable", "type": "OSError", "message": "no route"},
        }
        assert (second["number"], second["status"], second["error"]) == (2, "SUCCEEDED", None)
        assert second["handler_version"] == 3
        assert {name: shown[name] for name in shown if name not in {"attempts", "finished_at"}} == {
            "execution_id": made["execution_id"],
            "job_id": made["job_id"],
            "job_version": 1,
            "task": "echo",
            "task_version": None,
            "payload": {},
            "queue": "default",
            "status": "SUCCEEDED",
            "trigger": "ONE_OFF",
            "scheduled_for": "2026-01-01T00:00:31.000Z",
            "run_at": "2026-01-01T00:00:31.000Z",
            "created_at": "2026-01-01T00:00:01.000Z",
            "started_at": "2026-01-01T00:00:31.000Z",
            "next_run_at": None,
            "lateness_ms": 0,
            "lateness": dict.fromkeys(
                (
                    *("total_ms", "total_from_slot_ms", "splay_ms", "scan_ms", "blocked_ms"),
                    *("permit_ms", "queue_ms", "cold_start_ms", "hold_ms", "claim_ms"),
                ),
                0,
            ),
            "attempt": 2,
            "result": {"n": 7},
            "error": None,
            "reason": None,
            "cancel_requested_at": None,
            "replay_of": None,
            "idempotency_key": made["execution_id"],
            "traceparent": None,
        }
        assert shown["finished_at"] == second["finished_at"] > "2026-01-01T00:01"

    def test_one_that_will_be_tried_again_says_when(self, acme: Caller, system: System) -> None:
        failure = Failure(kind=Kind.RETRYABLE, type="OSError", message="no route")
        system.handler = lambda _: Failed(failure=failure)
        made = acme.create(retry_policy={"base_seconds": 600})
        system.work()

        shown = acme.get(f"/v1/executions/{made['execution_id']}").json

        assert (shown["status"], shown["attempt"], shown["finished_at"]) == ("RETRYING", 1, None)
        assert "2026-01-01T00:05" <= shown["next_run_at"] <= "2026-01-01T00:15:02"
        assert shown["error"]["message"] == "no route"

    @pytest.mark.parametrize(
        "result", ['"\\ud800"', "NaN", '{"a": [Infinity]}'], ids=["surrogate", "NaN", "inf"]
    )
    def test_a_result_that_is_hardly_json_goes_out_as_json(
        self, acme: Caller, system: System, result: str
    ) -> None:
        system.handler = lambda _: Succeeded(result=result)
        made = acme.create()
        system.work()

        answer = acme.get(f"/v1/executions/{made['execution_id']}")

        assert answer.json["status"] == "SUCCEEDED"
        answer.text.encode()

    def test_of_several_statuses_are_listed_together(self, acme: Caller, system: System) -> None:
        acme.create()
        system.work()
        acme.create(run_at="2026-06-01T00:00:00Z")
        acme.create(run_at="2026-01-01T00:01:00Z")

        def statuses(query: str) -> list[str]:
            answer = acme.send(event("GET", "/v1/executions", query=query, claims={"sub": "acme"}))
            return [one["status"] for one in answer.json["items"]]

        assert statuses("status=succeeded,scheduled") == ["SCHEDULED", "SUCCEEDED"]
        assert statuses("status=queued&status=SUCCEEDED") == ["QUEUED", "SUCCEEDED"]
        assert statuses("") == ["SCHEDULED", "QUEUED", "SUCCEEDED"]

    @pytest.mark.parametrize(
        ("query", "field"),
        [
            ("status=lost", "status"),
            ("status=succeeded,lost", "status"),
            ("limit=0", "limit"),
            ("limit=101", "limit"),
            ("limit=ten", "limit"),
            ("limit=%D9%A3", "limit"),
            ("limit=-1", "limit"),
            ("limit=1&limit=2", "limit"),
            ("task=a&task=b", "task"),
            ("state=RUNNING", "state"),
            ("owner=other", "owner"),
            ("status=%ff", "query"),
            ("&".join(f"task={n}" for n in range(60)), "query"),
        ],
    )
    def test_a_query_that_makes_no_sense_is_refused_by_name(
        self, acme: Caller, query: str, field: str
    ) -> None:
        for path in ("/v1/executions", "/v1/jobs", f"/v1/jobs/job_{NEVER_WAS}/executions"):
            answer = acme.send(event("GET", path, query=query, claims={"sub": "acme"}))
            assert (answer.status, answer.fields) == (400, {field})


class TestOwners:
    """Nobody can see, guess or touch what is another's: it is as if it were not there."""

    @pytest.fixture
    def made(self, acme: Caller) -> dict[str, str]:
        hourly, one_off = acme.create(rate="1 hour"), acme.create(run_at="2026-06-01T00:00:00Z")
        return {
            "hourly": hourly["job_id"],
            "hourly_run": hourly["execution_id"],
            "one_off": one_off["job_id"],
            "one_off_run": one_off["execution_id"],
        }

    @pytest.mark.parametrize(
        ("method", "path", "status"),
        [
            ("GET", "/v1/jobs/{hourly}", 200),
            ("GET", "/v1/jobs/{one_off}", 200),
            ("GET", "/v1/jobs/{hourly}/executions", 200),
            ("GET", "/v1/jobs/{one_off}/executions", 200),
            ("GET", "/v1/jobs/{hourly}/runs", 200),
            ("GET", "/v1/jobs/{one_off}/runs", 200),
            ("GET", "/v1/jobs/{hourly}/ledger", 200),
            ("GET", "/v1/jobs/{one_off}/ledger", 409),
            ("GET", "/v1/executions/{hourly_run}", 200),
            ("GET", "/v1/executions/{one_off_run}", 200),
            ("POST", "/v1/executions/{hourly_run}/cancel", 200),
            ("POST", "/v1/executions/{one_off_run}/cancel", 200),
            ("POST", "/v1/executions/{hourly_run}/replay", 409),
            ("POST", "/v1/executions/{one_off_run}/replay", 409),
            ("PATCH", "/v1/jobs/{hourly}", 200),
            ("PATCH", "/v1/jobs/{one_off}", 200),
            ("POST", "/v1/jobs/{hourly}/pause", 200),
            ("POST", "/v1/jobs/{hourly}/resume", 200),
            ("POST", "/v1/jobs/{hourly}/trigger", 201),
            ("POST", "/v1/jobs/{one_off}/trigger", 409),
            ("DELETE", "/v1/jobs/{hourly}", 204),
            ("DELETE", "/v1/jobs/{one_off}", 204),
        ],
    )
    def test_a_thing_of_anothers_is_a_404_like_one_that_never_was(
        self,
        acme: Caller,
        world: MemoryWorld,
        made: dict[str, str],
        method: str,
        path: str,
        status: int,
    ) -> None:
        before = dict(world.tables.executions), dict(world.tables.jobs)
        body = "{}" if method == "PATCH" else None
        mine = event(method, path.format(**made), body=body, claims={"sub": "acme"})
        stranger = event(method, path.format(**made), body=body, claims={"sub": "stranger"})
        nothing = {name: id[:-26] + NEVER_WAS for name, id in made.items()}
        never_was = event(method, path.format(**nothing), body=body, claims={"sub": "acme"})

        theirs = acme.send(stranger)

        assert (world.tables.executions, world.tables.jobs) == before
        missing = acme.send(never_was)
        assert theirs.status == missing.status == 404
        assert theirs.json.keys() == missing.json.keys()
        assert acme.send(mine).status == status

    @pytest.mark.parametrize("path", ["/v1/jobs", "/v1/executions"])
    def test_lists_hold_ones_own(self, acme: Caller, made: dict[str, str], path: str) -> None:
        assert len(acme.get(path).json["items"]) == 2
        assert acme.calling_as("stranger").get(path).json["items"] == []
        assert acme.calling_as("acme#0").get(path).json["items"] == []

    def test_a_cursor_of_anothers_reaches_nothing(self, acme: Caller, made: dict[str, str]) -> None:
        cursor = acme.get("/v1/executions", limit="1").json["next_cursor"]

        answer = acme.calling_as("stranger").get("/v1/executions", cursor=cursor)

        assert (answer.status, answer.fields) == (400, {"cursor"})

    @pytest.mark.parametrize(
        "claims",
        [
            None,
            {},
            {"sub": None},
            {"sub": ""},
            {"sub": " "},
            {"sub": "a\u0000"},
            {"sub": "a\n"},
            {"sub": 5},
            {"sub": ["acme"]},
            {"sub": "a" * 256},
            {"email": "acme"},
        ],
        ids=str,
    )
    @pytest.mark.parametrize(
        ("method", "path"),
        [
            ("POST", "/v1/jobs"),
            ("GET", "/v1/jobs"),
            ("GET", f"/v1/jobs/job_{NEVER_WAS}"),
            ("DELETE", f"/v1/jobs/job_{NEVER_WAS}"),
            ("PATCH", f"/v1/jobs/job_{NEVER_WAS}"),
            ("POST", f"/v1/jobs/job_{NEVER_WAS}/pause"),
            ("POST", f"/v1/jobs/job_{NEVER_WAS}/resume"),
            ("POST", f"/v1/jobs/job_{NEVER_WAS}/trigger"),
            ("POST", f"/v1/jobs/job_{NEVER_WAS}/backfill"),
            ("GET", f"/v1/jobs/job_{NEVER_WAS}/executions"),
            ("GET", f"/v1/jobs/job_{NEVER_WAS}/ledger"),
            ("GET", "/v1/forecast"),
            ("GET", "/v1/progress"),
            ("GET", "/v1/recovery"),
            ("GET", "/v1/limits"),
            ("PUT", "/v1/limits"),
            ("DELETE", "/v1/limits"),
            ("GET", "/v1/executions"),
            ("GET", f"/v1/executions/ex_{NEVER_WAS}"),
            ("POST", f"/v1/executions/ex_{NEVER_WAS}/cancel"),
            ("POST", f"/v1/executions/ex_{NEVER_WAS}/replay"),
            ("POST", "/v1/executions/cancel"),
            ("POST", "/v1/executions/replay"),
            ("POST", "/v1/payloads"),
        ],
    )
    def test_a_token_that_names_no_owner_gets_a_403(
        self, acme: Caller, world: MemoryWorld, method: str, path: str, claims: dict[str, object]
    ) -> None:
        answer = acme.send(event(method, path, body='{"task": "echo"}', claims=claims))

        assert answer.status == 403
        assert "'sub'" in answer.json["detail"]
        assert not world.tables.executions

    def test_the_claim_that_names_the_owner_can_be_another(self, world: MemoryWorld) -> None:
        tenant = caller(world, access=Access(owner_claim="custom:tenant", requires_scopes=False))
        body = '{"task": "echo"}'
        claims = {"sub": "somebody", "custom:tenant": "acme"}

        made = tenant.send(event("POST", "/v1/jobs", body=body, claims=claims))

        assert made.status == 201
        assert caller(world).calling_as("acme").get("/v1/jobs").json["items"]
        refused = tenant.send(event("GET", "/v1/jobs", claims={"sub": "acme"}))
        assert refused.status == 403


class TestPaths:
    @pytest.mark.parametrize(
        "path", ["/", "", "/v1", "/v2/jobs", "/v1/job", "/v1/jobs/a/b/c", "/v1/v1/jobs", "/v1/\n"]
    )
    def test_one_that_there_is_not_gets_a_404(self, acme: Caller, path: str) -> None:
        assert acme.get(path).status == 404

    @pytest.mark.parametrize(
        "id", ["x", "job_", "one_" + "z" * 26, "job_" + "!" * 26, "ex_" + NEVER_WAS, "..", "a b"]
    )
    def test_an_id_that_cannot_be_gets_a_404(self, acme: Caller, id: str) -> None:
        assert acme.get(f"/v1/jobs/{id}").status == 404
        assert acme.delete(f"/v1/jobs/{id}").status == 404
        assert acme.get(f"/v1/jobs/{id}/executions").status == 404
        assert acme.get(f"/v1/executions/{id.replace('ex_', 'job_')}").status == 404

    @pytest.mark.parametrize(
        ("method", "path", "allowed"),
        [
            ("PUT", "/v1/jobs", "POST, GET"),
            ("DELETE", "/v1/jobs", "POST, GET"),
            ("POST", f"/v1/jobs/job_{NEVER_WAS}", "GET, PATCH, DELETE"),
            ("POST", "/v1/executions", "GET"),
            ("GET", "/v1/executions/cancel", "POST"),
            ("DELETE", "/v1/executions/replay", "POST"),
            ("GET", "/v1/payloads", "POST"),
            ("GET", f"/v1/executions/ex_{NEVER_WAS}/cancel", "POST"),
            ("HEAD", "/v1/executions", "GET"),
            ("OPTIONS", "/v1/health", "GET"),
        ],
    )
    def test_a_method_that_it_has_not_gets_a_405(
        self, acme: Caller, method: str, path: str, allowed: str
    ) -> None:
        answer = acme.send(event(method, path, claims={"sub": "acme"}))

        assert (answer.status, answer.headers["allow"]) == (405, allowed)
        assert answer.json["status"] == 405

    @pytest.mark.parametrize("path", ["/live/v1/health", "/v1/health", "/live/v1/health/"])
    def test_a_stage_in_front_makes_no_difference(self, acme: Caller, path: str) -> None:
        assert acme.send(event("GET", path, stage="live")).status == 200

    def test_only_the_stages_own_name_is_taken_off(self, acme: Caller) -> None:
        assert acme.send(event("GET", "/lively/v1/health", stage="live")).status == 404


class TestHealth:
    def test_needs_no_token_and_says_which_release_answers(self, acme: Caller) -> None:
        answer = acme.send(event("GET", "/v1/health"))

        assert (answer.status, answer.json) == (200, {"status": "ok", "version": VERSION})

    def test_says_when_the_tables_do_not_answer(self, world: MemoryWorld) -> None:
        ailing = caller(without(world.ports(), port="control"))

        answer = ailing.send(event("GET", "/v1/health"))

        assert (answer.status, answer.json["status"]) == (503, "unavailable")


class TestFaultsOfOurs:
    def test_a_bug_is_a_500_that_says_nothing_of_the_inside_and_is_reported(
        self, world: MemoryWorld
    ) -> None:
        def hook(call: Call, when: When) -> None:
            raise ZeroDivisionError("the inside")

        reported: list[tuple[Exception, str]] = []

        def report(error: Exception, request: Request) -> None:
            reported.append((error, request.id))

        ports = interposed(world.ports(), hook)
        api = Api(ports, lanes=LANES, access=ANY_TOKEN, report=report)

        answer = Caller(api=api).get("/v1/jobs")

        assert answer.status == 500
        assert "inside" not in answer.text
        ((error, request_id),) = reported
        assert (type(error), request_id) == (ZeroDivisionError, "request-1")

    def test_a_service_that_does_not_answer_is_reported_too(self, world: MemoryWorld) -> None:
        reported: list[Exception] = []
        api = Api(
            without(world.ports(), port="jobs"),
            lanes=LANES,
            access=ANY_TOKEN,
            report=lambda error, _: reported.append(error),
        )

        answer = Caller(api=api).get("/v1/jobs")

        assert answer.status == 503
        assert "jobs" not in answer.json["detail"]
        assert [str(error) for error in reported] == ["jobs does not answer"]

    def test_a_create_in_whose_way_others_stay_is_a_409(self, world: MemoryWorld) -> None:
        def hook(call: Call, when: When) -> None:
            if call.method == "create":
                raise Contended("TransactWriteItems: TransactionConflict")

        answer = caller(interposed(world.ports(), hook)).post("/v1/jobs", BODY, Idempotency_Key="k")

        assert (answer.status, answer.headers["retry-after"]) == (409, "1")
        assert not world.tables.executions

    def test_a_delete_that_edits_always_overtake_is_a_409(self, world: MemoryWorld) -> None:
        made = caller(world).create(rate="1 hour")

        def hook(call: Call, when: When) -> None:
            if call.method == "delete":
                raise VersionMoved(job_id=made["job_id"], version=1)

        answer = caller(interposed(world.ports(), hook)).delete(f"/v1/jobs/{made['job_id']}")

        assert answer.status == 409
        assert caller(world).get(f"/v1/jobs/{made['job_id']}").json["status"] == "ACTIVE"

    @pytest.mark.parametrize("port", ["executions", "jobs"])
    def test_a_read_that_nobody_answers_is_a_503(self, world: MemoryWorld, port: str) -> None:
        answer = caller(without(world.ports(), port=port)).get("/v1/jobs")

        assert (answer.status, answer.headers["retry-after"]) == (503, "1")


def every_item(acme: Caller, path: str, **query: str) -> list[dict[str, Any]]:
    """All items of a list, page by page."""
    items: list[dict[str, Any]] = []
    while True:
        page = acme.get(path, **query).json
        items += page["items"]
        if page["next_cursor"] is None:
            return items
        query["cursor"] = page["next_cursor"]
