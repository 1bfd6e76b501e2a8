"""The bodies of the documents that Lamplighter follows: taken as they are, answered in kind."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lamplighter.api.routes import Api
from lamplighter.core.buckets import object_prefix
from lamplighter.core.errors import Contended, Unavailable
from lamplighter.memory import MemoryWorld, VirtualClock
from lamplighter.sim.faults import Call, When, interposed
from lamplighter.sim.system import System
from tests.support.api import ANY_TOKEN, LANES, Caller, caller

BEFORE_ALL = datetime(2026, 7, 1, tzinfo=UTC)
TYPED = {
    "type": "generate_invoice",
    "payload": {"customerId": "customer-4821"},
    "runAt": "2026-09-12T02:00:00Z",
    "queue": "billing",
    "maxAttempts": 5,
    "timeoutSeconds": 120,
}
BY_CRON = {
    "task_id": "send_email",
    "schedule": {"type": "CRON", "value": "0 10 * * *"},
    "parameters": {"to": "someone@example.com"},
}
ONCE = {**BY_CRON, "schedule": {"type": "ONCE", "value": "2026-07-11T10:00:00Z"}}
TARGETED_HTTP = {
    "type": "recurring",
    "cron": "0 2 * * *",
    "timezone": "Asia/Kolkata",
    "target": {
        "kind": "http",
        "url": "https://svc.example.com/internal/backup",
        "method": "POST",
        "headers": {"x-a": "b"},
    },
    "payload_ref": "s3://payloads/abc",
    "max_attempts": 5,
    "backoff": {"base_ms": 1000, "factor": 2, "max_ms": 60000},
    "misfire_policy": "fire_once",
    "deadline_ms": 300000,
    "idempotency_key": "backup-2026-07-12",
}
KEPT = {
    **{name: TARGETED_HTTP[name] for name in TARGETED_HTTP.keys() - {"payload_ref"}},
    "target": {"kind": "task", "name": "backup"},
}
ONE_OFF = {
    **{name: KEPT[name] for name in KEPT.keys() - {"cron", "timezone"}},
    "type": "one_off",
    "run_at": "2026-07-12T02:00:00Z",
}
CANONICAL = {
    "task": "charge_subscription",
    "payload": {"subscription": "s-17"},
    "cron": "0 * * * *",
    "retry_policy": {"max_attempts": 5, "base_seconds": 1},
}
OTHERWISE_BY_DEFAULT = {
    "jitter": 0.5,
    "retry_on": [],
    "no_retry_on": [],
    "honor_retry_after": True,
}


@pytest.fixture
def world() -> MemoryWorld:
    return MemoryWorld(clock=VirtualClock(BEFORE_ALL))


@pytest.fixture
def acme(world: MemoryWorld) -> Caller:
    return caller(world, lanes=(*LANES, "billing"))


def shown(acme: Caller, id: str) -> dict[str, Any]:
    job: dict[str, Any] = acme.get(f"/v1/jobs/{id}").json
    return job


class TestTyped:
    def test_is_answered_in_camel_case(self, acme: Caller) -> None:
        """S0-A1."""
        answer = acme.post("/v1/jobs", TYPED, Idempotency_Key="invoice-customer-4821-2026-09")

        made = answer.json
        assert answer.status == 201
        assert answer.headers["location"] == f"/v1/jobs/{made['jobId']}"
        assert made == {
            "jobId": made["jobId"],
            "executionId": made["executionId"],
            "status": "scheduled",
            "runAt": "2026-09-12T02:00:00Z",
        }
        job = shown(acme, made["jobId"])
        assert (job["task"], job["payload"]) == ("generate_invoice", TYPED["payload"])
        assert (job["queue"], job["timeout_seconds"]) == ("billing", 120)
        assert job["retry_policy"]["max_attempts"] == 5

    def test_a_second_time_is_answered_the_same(self, acme: Caller, world: MemoryWorld) -> None:
        first = acme.post("/v1/jobs", TYPED, Idempotency_Key="k")
        world.pass_time(timedelta(hours=1))

        again = acme.post("/jobs", dict(reversed(TYPED.items())), Idempotency_Key="k")

        assert (again.status, again.json) == (201, first.json)
        assert again.headers["location"] == first.headers["location"]
        assert again.headers["idempotent-replayed"] == "true"
        assert len(world.tables.executions) == 1

    def test_due_now_is_scheduled_too(self, acme: Caller, system: System) -> None:
        made = acme.post("/v1/jobs", {"type": "echo"}).json

        assert made["status"] == "scheduled"
        system.work()
        assert shown(acme, made["jobId"])["status"] == "SUCCEEDED"

    def test_a_queue_that_there_is_not_is_named_with_those_that_there_are(
        self, world: MemoryWorld
    ) -> None:
        answer = caller(world).post("/v1/jobs", TYPED)

        (error,) = answer.json["errors"]
        assert (error["field"], error["value"]) == ("queue", "billing")
        assert error["reason"] == "no such queue; there are bulk, critical, default"

    def test_faults_of_every_kind_are_told_together(self, world: MemoryWorld) -> None:
        wrong = {"runAt": "soon", "maxAttempts": "5", "unheard_of": 1, "idempotencyKey": " "}

        answer = caller(world).post("/v1/jobs", {**TYPED, **wrong})

        assert (answer.status, answer.fields) == (400, {*wrong, "queue"})

    @pytest.mark.parametrize(
        ("change", "field", "value"),
        [
            ({"runAt": "2026-09-12T02:00:00"}, "runAt", "2026-09-12T02:00:00"),
            ({"maxAttempts": 0}, "maxAttempts", 0),
            ({"maxAttempts": "5"}, "maxAttempts", "5"),
            ({"timeoutSeconds": 0.5}, "timeoutSeconds", 0.5),
            ({"type": ""}, "type", ""),
            ({"type": 5}, "type", 5),
            ({"type": ["one_off"]}, "type", "['one_off']"),
            ({"payload": "x" * 70_000}, "payload", "70002 bytes"),
            ({"cron": "0 2 * * *"}, "cron", "0 2 * * *"),
            ({"max_attempts": 5}, "max_attempts", 5),
            ({"idempotencyKey": " "}, "idempotencyKey", " "),
            ({"idempotency_key": "k"}, "idempotency_key", "k"),
        ],
        ids=str,
    )
    def test_what_is_wrong_is_told_by_the_callers_own_name(
        self,
        acme: Caller,
        world: MemoryWorld,
        change: Mapping[str, object],
        field: str,
        value: object,
    ) -> None:
        answer = acme.post("/v1/jobs", {**TYPED, **change})

        assert (answer.status, answer.fields) == (400, {field})
        assert answer.json["errors"][0]["value"] == value
        assert not world.tables.executions


class TestByTaskId:
    @pytest.mark.parametrize("path", ["/jobs", "/v1/jobs"])
    @pytest.mark.parametrize(
        ("body", "due"),
        [(BY_CRON, "2026-07-01T10:00:00.000Z"), (ONCE, "2026-07-11T10:00:00.000Z")],
        ids=["cron", "once"],
    )
    def test_is_answered_with_the_id_alone(
        self, acme: Caller, path: str, body: object, due: str
    ) -> None:
        """S1-A1."""
        answer = acme.post(path, body)

        assert (answer.status, [*answer.json]) == (201, ["job_id"])
        job = shown(acme, answer.json["job_id"])
        assert (job["task"], job["payload"]) == ("send_email", {"to": "someone@example.com"})
        assert job["next_run_at"] == due

    @pytest.mark.parametrize(
        ("change", "field"),
        [
            ({"schedule": {"type": "CRON", "value": "61 * * * *"}}, "schedule.value"),
            ({"schedule": {"type": "ONCE", "value": "tomorrow"}}, "schedule.value"),
            ({"schedule": {"type": "RATE", "value": "1 hour"}}, "schedule.type"),
            ({"schedule": {"type": "CRON"}}, "schedule.value"),
            ({"schedule": "0 10 * * *"}, "schedule"),
            ({"payload": {}}, "payload"),
            ({"task_id": ""}, "task_id"),
            ({"parameters": "x" * 70_000}, "parameters"),
        ],
        ids=str,
    )
    def test_what_is_wrong_is_told_by_the_callers_own_name(
        self, acme: Caller, change: Mapping[str, object], field: str
    ) -> None:
        answer = acme.post("/jobs", {**BY_CRON, **change})

        assert (answer.status, answer.fields) == (400, {field})

    def test_without_a_task_it_is_still_told_what_is_missing(self, acme: Caller) -> None:
        answer = acme.post("/jobs", {"schedule": BY_CRON["schedule"]})

        assert (answer.status, answer.fields) == (400, {"task_id"})


class TestTargeted:
    @pytest.mark.parametrize(
        ("body", "due"),
        [(KEPT, "2026-07-01T20:30:00Z"), (ONE_OFF, "2026-07-12T02:00:00Z")],
        ids=["recurring", "one_off"],
    )
    def test_is_answered_with_its_next_fire_time(
        self, acme: Caller, body: object, due: str
    ) -> None:
        answer = acme.post("/jobs", body)

        assert answer.status == 201
        assert answer.json == {"job_id": answer.json["job_id"], "next_fire_time": due}
        job = shown(acme, answer.json["job_id"])
        assert job["task"] == "backup"
        assert job["retry_policy"] == {
            "max_attempts": 5,
            "base_seconds": 1,
            "factor": 2,
            "max_seconds": 60,
            **OTHERWISE_BY_DEFAULT,
        }

    def test_its_own_idempotency_key_is_kept(self, acme: Caller, world: MemoryWorld) -> None:
        first = acme.post("/jobs", KEPT)

        again = acme.post("/jobs", KEPT)
        other = acme.post("/jobs", {**KEPT, "cron": "0 3 * * *"})

        assert (again.json, again.headers["idempotent-replayed"]) == (first.json, "true")
        assert other.status == 422
        assert len(world.tables.jobs) == 1

    def test_the_body_of_the_requirement_is_taken_to_the_letter(
        self, acme: Caller, world: MemoryWorld
    ) -> None:
        """S2-A1."""
        world.payloads.put(f"{object_prefix('acme')}abc", b'{"size":1}')

        answer = acme.post("/jobs", TARGETED_HTTP)

        assert answer.status == 201
        assert answer.json == {
            "job_id": answer.json["job_id"],
            "next_fire_time": "2026-07-01T20:30:00Z",
        }
        job = shown(acme, answer.json["job_id"])
        assert (job["task"], job["target"]) == ("http:svc.example.com", TARGETED_HTTP["target"])
        assert (job["cron"], job["timezone"]) == ("0 2 * * *", "Asia/Kolkata")
        assert (job["misfire_policy"], job["deadline_seconds"]) == ("FIRE_ONCE", 300)
        assert job["retry_policy"] == {
            "max_attempts": 5,
            "base_seconds": 1,
            "factor": 2,
            "max_seconds": 60,
            **OTHERWISE_BY_DEFAULT,
        }
        again = acme.post("/jobs", TARGETED_HTTP)
        assert (again.json, again.headers["idempotent-replayed"]) == (answer.json, "true")

    @pytest.mark.parametrize(
        ("change", "field", "value"),
        [
            ({"type": "one_off"}, "run_at", None),
            ({"run_at": "2026-07-12T02:00:00Z"}, "run_at", "2026-07-12T02:00:00Z"),
            ({"backoff": {"base_ms": 10**9}}, "backoff.base_ms", 10**9),
            ({"backoff": {"factor": 0}}, "backoff.factor", 0),
            ({"backoff": {"base": 1}}, "backoff.base", 1),
            ({"timezone": "Asia/Calcuta"}, "timezone", "Asia/Calcuta"),
            ({"misfire_policy": "fire_some"}, "misfire_policy", "fire_some"),
            ({"deadline_ms": 999}, "deadline_ms", 999),
            ({"deadline_ms": "soon"}, "deadline_ms", "soon"),
            ({"target": {"kind": "task"}}, "target.name", None),
            ({"target": {"kind": "task", "name": " "}}, "target.name", " "),
            ({"target": "backup"}, "target", "backup"),
            ({"runAt": "2026-07-12T02:00:00Z"}, "runAt", "2026-07-12T02:00:00Z"),
            ({"idempotency_key": ""}, "idempotency_key", ""),
        ],
        ids=str,
    )
    def test_what_is_wrong_is_told_by_the_callers_own_name(
        self, acme: Caller, change: Mapping[str, object], field: str, value: object
    ) -> None:
        answer = acme.post("/jobs", {**KEPT, **change})

        assert answer.status == 400
        values = {error["field"]: error["value"] for error in answer.json["errors"]}
        assert field in values
        assert values[field] == value

    def test_a_number_that_was_converted_is_told_with_what_it_became(self, acme: Caller) -> None:
        answer = acme.post("/jobs", {**KEPT, "backoff": {"base_ms": 10**9}})

        (error,) = answer.json["errors"]
        assert error["reason"] == "a retry_policy.base_seconds of 1000000.0 is not in 0–86400"


class TestCanonical:
    def test_is_answered_with_the_id(self, acme: Caller) -> None:
        """S4-A1."""
        answer = acme.post("/jobs", CANONICAL)

        assert answer.status == 201
        job = shown(acme, answer.json["job_id"])
        assert (job["cron"], job["payload"]) == ("0 * * * *", {"subscription": "s-17"})
        executions = acme.get(f"/jobs/{answer.json['job_id']}/executions").json["items"]
        assert [one["attempt"] for one in executions] == [0]
        assert acme.delete(f"/jobs/{answer.json['job_id']}").status == 204

    @pytest.mark.parametrize(
        "other", ["type", "runAt", "task_id", "schedule", "parameters", "target", "deadline_ms"]
    )
    def test_takes_no_field_of_another_shape(self, acme: Caller, other: str) -> None:
        answer = acme.post("/jobs", {**CANONICAL, other: "x"})

        assert (answer.status, answer.fields) == (400, {other})


class TestPolicies:
    @pytest.mark.parametrize(
        ("said", "kept"),
        [
            *(("FIRE_ONCE", "FIRE_ONCE"), ("latest", "FIRE_ONCE"), ("fire_once", "FIRE_ONCE")),
            *(("coalesce", "FIRE_ONCE"), ("Relaxed", "FIRE_ONCE")),
            *(("skip", "SKIP"), ("none", "SKIP"), ("Ignorable", "SKIP")),
            *(("fire_all", "FIRE_ALL"), ("every", "FIRE_ALL"), ("Strict", "FIRE_ALL")),
        ],
    )
    def test_a_misfire_policy_is_known_by_other_systems_names(
        self, acme: Caller, said: str, kept: str
    ) -> None:
        made = acme.create(rate="1 hour", misfire_policy=said)

        assert shown(acme, made["job_id"])["misfire_policy"] == kept

    @pytest.mark.parametrize("field", ["misfire_policy", "catch_up_policy"])
    def test_a_misfire_policy_that_nobody_keeps_is_refused(self, acme: Caller, field: str) -> None:
        answer = acme.post("/jobs", {**CANONICAL, field: "never"})

        (error,) = answer.json["errors"]
        assert (error["field"], error["value"]) == (field, "never")
        assert error["reason"] == "not one of FIRE_ALL, FIRE_ONCE, SKIP"

    def test_the_misfire_policy_goes_by_two_names_that_must_agree(self, acme: Caller) -> None:
        by_other = acme.create(rate="1 hour", catch_up_policy="every")
        by_both = acme.create(rate="1 hour", catch_up_policy="none", misfire_policy="SKIP")
        answer = acme.post(
            "/jobs", {**CANONICAL, "catch_up_policy": "skip", "misfire_policy": "latest"}
        )

        assert shown(acme, by_other["job_id"])["misfire_policy"] == "FIRE_ALL"
        assert shown(acme, by_both["job_id"])["misfire_policy"] == "SKIP"
        (error,) = answer.json["errors"]
        assert (error["field"], error["value"]) == ("catch_up_policy", "skip")

    def test_what_is_caught_up_on_is_kept_as_it_was_said(self, acme: Caller) -> None:
        said = {
            "misfire_threshold_seconds": 30,
            "catchup_window_seconds": 7200,
            "catchup_max": 7,
            "catchup_spread_seconds": 0,
            "deadline_seconds": 90.5,
            "on_deadline": "SKIP",
        }

        made = acme.create(rate="1 hour", misfire_policy="every", **said)
        plain = acme.create(rate="1 hour")

        assert shown(acme, made["job_id"]).items() >= said.items()
        assert (
            shown(acme, plain["job_id"]).items()
            >= {
                "misfire_threshold_seconds": 60,
                "catchup_window_seconds": 86_400,
                "catchup_max": 100,
                "catchup_spread_seconds": 60,
                "deadline_seconds": None,
                "on_deadline": "DEAD_LETTER",
            }.items()
        )

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            *(("misfire_threshold_seconds", 0), ("misfire_threshold_seconds", 86_401)),
            *(("catchup_window_seconds", 59), ("catchup_window_seconds", 31_622_401)),
            *(("catchup_max", 0), ("catchup_max", 1001), ("catchup_max", "all")),
            *(("catchup_spread_seconds", -1), ("catchup_spread_seconds", 601)),
            *(("deadline_seconds", 0.5), ("deadline_seconds", 31_622_401)),
            ("on_deadline", "retry"),
        ],
    )
    def test_a_bound_of_a_policy_is_refused_by_name(
        self, acme: Caller, field: str, value: object
    ) -> None:
        answer = acme.post("/jobs", {**CANONICAL, field: value})

        (error,) = answer.json["errors"]
        assert (error["field"], error["value"]) == (field, value)

    def test_a_one_off_has_a_deadline_and_nothing_to_catch_up_on(self, acme: Caller) -> None:
        made = acme.create(deadline_seconds=60, on_deadline="skip", misfire_policy="SKIP")
        answer = acme.post("/jobs", {"task": "echo", "catchup_max": 3})

        job = shown(acme, made["job_id"])
        assert (job["deadline_seconds"], job["on_deadline"]) == (60, "SKIP")
        assert answer.fields == {"catchup_max"}

    def test_a_patch_may_say_either_name_of_the_misfire_policy(self, acme: Caller) -> None:
        made = acme.create(rate="1 hour", misfire_policy="FIRE_ONCE", catchup_max=9)

        answer = acme.patch(f"/jobs/{made['job_id']}", {"catch_up_policy": "every"})

        assert (answer.status, answer.json["misfire_policy"]) == (200, "FIRE_ALL")
        assert answer.json["catchup_max"] == 9

    @pytest.mark.parametrize(
        ("said", "kept"),
        [
            ("ALLOW", "ALLOW"),
            ("allow_all", "ALLOW"),
            ("Skip", "SKIP"),
            ("Forbid", "SKIP"),
            ("buffer_one", "BUFFER_ONE"),
            ("BUFFER_ALL", "BUFFER_ALL"),
            ("Queue", "BUFFER_ALL"),
            ("Replace", "CANCEL_OTHER"),
            ("CANCEL_OTHER", "CANCEL_OTHER"),
            ("terminate_other", "TERMINATE_OTHER"),
        ],
    )
    def test_an_overlap_policy_is_known_by_every_name(
        self, acme: Caller, said: str, kept: str
    ) -> None:
        made = acme.create(rate="1 hour", overlap_policy=said)

        assert shown(acme, made["job_id"])["overlap_policy"] == kept

    def test_occurrences_of_a_recurring_job_do_not_meet_unless_it_says_so(
        self, acme: Caller
    ) -> None:
        assert shown(acme, acme.create(rate="1 hour")["job_id"])["overlap_policy"] == "SKIP"

    def test_an_overlap_policy_that_there_is_not_is_refused(self, acme: Caller) -> None:
        answer = acme.post("/jobs", {**CANONICAL, "overlap_policy": "?"})

        assert (answer.status, answer.fields) == (400, {"overlap_policy"})
        assert "BUFFER_ONE" in answer.json["errors"][0]["reason"]

    @pytest.mark.parametrize(("said", "status"), [("ALLOW", 201), ("SKIP", 400)])
    def test_a_one_off_meets_nothing(self, acme: Caller, said: str, status: int) -> None:
        answer = acme.post("/jobs", {"task": "echo", "overlap_policy": said})

        assert answer.status == status


class TestKeys:
    def test_one_in_the_body_is_as_good_as_one_in_the_header(
        self, acme: Caller, world: MemoryWorld
    ) -> None:
        first = acme.post("/v1/jobs", {**CANONICAL, "idempotency_key": "k"})

        by_header = acme.post("/v1/jobs", CANONICAL, Idempotency_Key="k")
        by_both = acme.post("/v1/jobs", {**CANONICAL, "idempotency_key": "k"}, Idempotency_Key="k")

        for again in (by_header, by_both):
            assert (again.status, again.json) == (201, first.json)
            assert again.headers["idempotent-replayed"] == "true"
        assert len(world.tables.jobs) == 1

    def test_two_that_are_not_the_same_are_refused(self, acme: Caller, world: MemoryWorld) -> None:
        answer = acme.post("/v1/jobs", {**CANONICAL, "idempotency_key": "k"}, Idempotency_Key="l")

        assert answer.status == 422
        assert answer.json["type"] == "urn:lamplighter:problem:idempotency-key-mismatch"
        assert not world.tables.jobs

    @pytest.mark.parametrize("key", ["", " k", "a\nb", "k" * 256, 5])
    def test_one_that_is_none_is_refused(self, acme: Caller, key: object) -> None:
        answer = acme.post("/v1/jobs", {**CANONICAL, "idempotency_key": key})

        assert (answer.status, answer.fields) == (400, {"idempotency_key"})


class TestBatch:
    def test_each_job_gets_its_own_answer_in_order(self, acme: Caller, world: MemoryWorld) -> None:
        bad = {"task": "echo", "cron": "61 * * * *"}
        answer = acme.post("/v1/jobs/batch", {"jobs": [CANONICAL, bad, TYPED, BY_CRON, 5, KEPT]})

        assert answer.status == 200
        answers = answer.json["answers"]
        assert [one["status"] for one in answers] == [201, 400, 201, 201, 400, 201]
        canonical, refused, typed, by_task_id, number, targeted = (one["body"] for one in answers)
        assert canonical["task"] == "charge_subscription"
        assert [error["field"] for error in refused["errors"]] == ["cron"]
        assert typed["status"] == "scheduled"
        assert [*by_task_id] == ["job_id"]
        assert [error["field"] for error in number["errors"]] == ["body"]
        assert targeted["next_fire_time"] == "2026-07-01T20:30:00Z"
        location = f"/v1/jobs/{canonical['job_id']}"
        assert answers[0]["headers"] == {"Location": location, "ETag": '"1"'}
        assert (len(world.tables.executions), len(world.tables.jobs)) == (4, 3)

    def test_a_key_of_each_makes_the_whole_safe_to_send_again(
        self, acme: Caller, world: MemoryWorld
    ) -> None:
        jobs = [{"task": "echo", "payload": n, "idempotency_key": f"k{n}"} for n in range(3)]
        first = acme.post("/v1/jobs/batch", {"jobs": jobs}).json["answers"]

        again = acme.post("/jobs/batch", {"jobs": jobs[::-1]}).json["answers"]

        assert [one["body"] for one in again] == [one["body"] for one in first[::-1]]
        assert {one["headers"].get("Idempotent-Replayed") for one in again} == {"true"}
        assert len(world.tables.executions) == 3

    def test_the_same_key_twice_in_one_batch_makes_one_job(
        self, acme: Caller, world: MemoryWorld
    ) -> None:
        jobs = [{"task": name, "idempotency_key": "k"} for name in ("echo", "echo", "other")]

        answers = acme.post("/v1/jobs/batch", {"jobs": jobs}).json["answers"]

        assert [one["status"] for one in answers] == [201, 201, 422]
        assert len(world.tables.executions) == 1

    @pytest.mark.parametrize(
        ("body", "field"),
        [
            ([CANONICAL], "body"),
            ({}, "jobs"),
            ({"jobs": []}, "jobs"),
            ({"jobs": [{"task": "echo"}] * 101}, "jobs"),
            ({"jobs": CANONICAL}, "jobs"),
            ({"jobs": [CANONICAL], "task": "echo"}, "task"),
        ],
        ids=["list", "none", "empty", "101", "one", "mixed"],
    )
    def test_what_is_no_batch_is_refused_whole(
        self, acme: Caller, world: MemoryWorld, body: object, field: str
    ) -> None:
        answer = acme.post("/v1/jobs/batch", body)

        assert (answer.status, answer.fields) == (400, {field})
        assert not world.tables.executions

    def test_a_hundred_with_payloads_that_fill_four_megabytes_are_taken(
        self, acme: Caller, world: MemoryWorld
    ) -> None:
        jobs = [{"task": "echo", "payload": "x" * 41_000} for _ in range(100)]

        answer = acme.post("/v1/jobs/batch", {"jobs": jobs})

        assert {one["status"] for one in answer.json["answers"]} == {201}
        assert len(world.tables.executions) == 100

    def test_its_body_may_have_four_megabytes_and_a_single_jobs_a_sixteenth(
        self, acme: Caller
    ) -> None:
        body = json.dumps({"jobs": [{"task": "echo"}]})
        at_the_cap = body + " " * (4 * 1024 * 1024 - len(body))

        assert acme.post_text("/v1/jobs/batch", at_the_cap).status == 200
        assert acme.post_text("/v1/jobs/batch", at_the_cap + " ").status == 413
        assert acme.post_text("/v1/jobs", at_the_cap).status == 413

    def test_a_key_of_the_whole_is_refused(self, acme: Caller, world: MemoryWorld) -> None:
        answer = acme.post("/v1/jobs/batch", {"jobs": [CANONICAL]}, Idempotency_Key="k")

        assert (answer.status, answer.fields) == (400, {"Idempotency-Key"})
        assert not world.tables.jobs

    @pytest.mark.parametrize(
        ("error", "status"),
        [(Unavailable("no answer"), 503), (Contended("busy"), 409), (ZeroDivisionError("in"), 500)],
        ids=["unavailable", "contended", "bug"],
    )
    def test_what_befalls_one_does_not_hurt_the_others_and_is_reported(
        self, world: MemoryWorld, error: Exception, status: int
    ) -> None:
        creates: list[Call] = []

        def hook(call: Call, when: When) -> None:
            if call.method == "create" and when is When.BEFORE:
                creates.append(call)
                if len(creates) == 2:
                    raise error

        reported: list[Exception] = []
        api = Api(
            interposed(world.ports(), hook),
            lanes=LANES,
            access=ANY_TOKEN,
            report=lambda one, _: reported.append(one),
        )

        answer = Caller(api=api).post("/v1/jobs/batch", {"jobs": [{"task": "echo"}] * 3})

        answers = answer.json["answers"]

        assert [one["status"] for one in answers] == [201, status, 201]
        assert "in" not in answers[1]["body"]["detail"].split()
        assert reported == [error]

    def test_when_its_time_is_up_the_rest_is_not_begun(self, world: MemoryWorld) -> None:
        def hook(call: Call, when: When) -> None:
            if call.method == "create" and when is When.BEFORE:
                world.pass_time(timedelta(seconds=6))

        slow = caller(interposed(world.ports(), hook))

        answers = slow.post("/v1/jobs/batch", {"jobs": [{"task": "echo"}] * 4}).json["answers"]

        assert [one["status"] for one in answers] == [201, 201, 503, 503]
        assert answers[2]["headers"] == {"Retry-After": "1"}
        assert len(world.tables.executions) == 2

    def test_only_a_post_makes_one(self, acme: Caller) -> None:
        answer = acme.get("/v1/jobs/batch")

        assert (answer.status, answer.headers["allow"]) == (405, "POST")


@pytest.fixture
def system(world: MemoryWorld) -> System:
    return System(world=world)
