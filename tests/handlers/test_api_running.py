"""Running a job beside its schedule over HTTP: now, or for slots of the past."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lamplighter.core.outcome import Outcome, Succeeded
from lamplighter.memory import MemoryWorld, VirtualClock
from lamplighter.services.execute import Claimed
from lamplighter.sim.system import System
from tests.support.api import Answer, Caller, caller, event

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
MORNING = {"from": "2026-01-01T09:00:00Z", "to": "2026-01-01T12:00:00Z"}


@pytest.fixture
def world() -> MemoryWorld:
    return MemoryWorld(clock=VirtualClock(NOON))


@pytest.fixture
def system(world: MemoryWorld) -> System:
    return System(world=world)


@pytest.fixture
def acme(world: MemoryWorld) -> Caller:
    return caller(world)


@pytest.fixture
def job(acme: Caller) -> dict[str, Any]:
    """Due on the hour, from one o'clock on."""
    return acme.create(cron="0 * * * *", payload={"its": "own"}, overlap_policy="ALLOW")


def trigger(acme: Caller, job: dict[str, Any], body: object = None, **headers: str) -> Answer:
    path = f"/v1/jobs/{job['job_id']}/trigger"
    return acme.post_text(path, None if body is None else json.dumps(body), **headers)


def backfill(acme: Caller, job: dict[str, Any], **body: object) -> Answer:
    return acme.post(f"/v1/jobs/{job['job_id']}/backfill", {**MORNING, **body})


def executions(acme: Caller, job: dict[str, Any]) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = acme.get(f"/v1/jobs/{job['job_id']}/executions").json["items"]
    return items


class TestTrigger:
    def test_answers_with_the_execution_and_where_it_is(
        self, acme: Caller, system: System, job: dict[str, Any]
    ) -> None:
        answer = trigger(acme, job)

        assert answer.status == 201
        made = answer.json
        assert answer.headers["location"] == f"/v1/executions/{made['execution_id']}"
        told = {name: made[name] for name in ("job_id", "trigger", "status", "run_at", "replay_of")}
        assert told == {
            "job_id": job["job_id"],
            "trigger": "MANUAL",
            "status": "QUEUED",
            "run_at": "2026-01-01T12:00:00.000Z",
            "replay_of": None,
        }
        system.work()
        shown = acme.get(answer.headers["location"]).json
        assert (shown["status"], shown["payload"]) == ("SUCCEEDED", {"its": "own"})

    @pytest.mark.parametrize("text", ["", " ", "{}"])
    def test_takes_a_body_that_says_nothing(
        self, acme: Caller, job: dict[str, Any], text: str
    ) -> None:
        answer = acme.post_text(f"/v1/jobs/{job['job_id']}/trigger", text)

        assert answer.status == 201

    @pytest.mark.parametrize(
        "payload", [None, False, [], {"a": 1}, "x" * 60_000], ids=lambda value: repr(value)[:9]
    )
    def test_gives_the_handler_the_payload_that_it_came_with(
        self, acme: Caller, system: System, job: dict[str, Any], payload: object
    ) -> None:
        given: list[object] = []

        def keep(claimed: Claimed) -> Outcome:
            given.append(json.loads(claimed.payload))
            return Succeeded(result="1")

        system.handler = keep
        made = trigger(acme, job, {"payload": payload}).json
        system.work()

        assert given == [payload]
        assert acme.get(f"/v1/executions/{made['execution_id']}").json["payload"] == payload

    def test_keeps_the_trace_that_it_came_with(self, acme: Caller, job: dict[str, Any]) -> None:
        made = trigger(acme, job, traceparent=TRACE).json

        assert made["traceparent"] == TRACE

    @pytest.mark.parametrize(
        ("body", "field"),
        [
            ({"payloads": 1}, "payloads"),
            ({"run_at": "2026-01-01T12:00:00Z"}, "run_at"),
            ({"payload": "x" * 65_535}, "payload"),
            ([], "body"),
        ],
    )
    def test_refuses_what_it_does_not_know_by_name(
        self, acme: Caller, world: MemoryWorld, job: dict[str, Any], body: object, field: str
    ) -> None:
        answer = trigger(acme, job, body)

        assert (answer.status, answer.fields) == (400, {field})
        assert len(world.tables.executions) == 1

    def test_under_a_key_is_answered_the_same_again_and_runs_once(
        self, acme: Caller, system: System, job: dict[str, Any]
    ) -> None:
        body = {"payload": "x" * 600}
        first = trigger(acme, job, body, Idempotency_Key="k")
        system.run_for(2 * MINUTE)

        again = trigger(acme, job, body, Idempotency_Key="k")

        assert (again.status, again.json) == (201, first.json)
        assert again.headers["location"] == first.headers["location"]
        assert again.headers["idempotent-replayed"] == "true"
        assert "idempotent-replayed" not in first.headers
        assert len(system.runs) == 1

    def test_under_a_key_of_another_request_is_a_422(
        self, acme: Caller, world: MemoryWorld, job: dict[str, Any]
    ) -> None:
        other = acme.create(rate="1 hour")
        trigger(acme, job, Idempotency_Key="k")
        acme.post("/v1/jobs", {"task": "echo"}, Idempotency_Key="of a create")
        there = dict(world.tables.executions)

        answers = [
            trigger(acme, job, {"payload": 1}, Idempotency_Key="k"),
            trigger(acme, other, Idempotency_Key="k"),
            acme.post("/v1/jobs", {"task": "echo"}, Idempotency_Key="k"),
            acme.post(f"/v1/jobs/{job['job_id']}/backfill", MORNING, Idempotency_Key="k"),
            trigger(acme, job, Idempotency_Key="of a create"),
        ]

        assert [answer.status for answer in answers] == [422] * 5
        assert world.tables.executions == there

    def test_runs_a_paused_job_and_no_deleted_one(self, acme: Caller, job: dict[str, Any]) -> None:
        acme.post(f"/v1/jobs/{job['job_id']}/pause", {})
        assert trigger(acme, job).status == 201

        acme.delete(f"/v1/jobs/{job['job_id']}")
        refused = trigger(acme, job)

        assert (refused.status, refused.json["detail"]) == (409, f"{job['job_id']} is deleted")

    def test_of_a_one_off_is_a_409_that_says_what_to_do(self, acme: Caller) -> None:
        refused = trigger(acme, acme.create())

        assert refused.status == 409
        assert "once it has ended it can be replayed" in refused.json["detail"]


class TestBackfill:
    def test_answers_with_an_execution_for_each_slot(
        self, acme: Caller, system: System, job: dict[str, Any]
    ) -> None:
        answer = backfill(acme, job, spread_seconds=5400)

        assert answer.status == 202
        told = answer.json
        ids = [run["execution_id"] for run in told["runs"]]
        times = [
            ("2026-01-01T09:00:00.000Z", "2026-01-01T12:00:00.000Z"),
            ("2026-01-01T10:00:00.000Z", "2026-01-01T12:30:00.000Z"),
            ("2026-01-01T11:00:00.000Z", "2026-01-01T13:00:00.000Z"),
        ]
        assert told == {
            "job_id": job["job_id"],
            "dry_run": False,
            "runs": [
                {"scheduled_for": slot, "run_at": run_at, "execution_id": id}
                for (slot, run_at), id in zip(times, ids, strict=True)
            ],
            "skipped": [],
        }
        system.run_for(2 * HOUR)
        rows = [one for one in executions(acme, job) if one["trigger"] == "BACKFILL"]
        assert [row["execution_id"] for row in reversed(rows)] == ids
        assert {row["status"] for row in rows} == {"SUCCEEDED"}

    def test_tells_in_a_dry_run_what_it_would_do_and_does_nothing(
        self, acme: Caller, world: MemoryWorld, job: dict[str, Any]
    ) -> None:
        answer = backfill(acme, job, dry_run=True, spread_seconds=5400)

        assert answer.status == 200
        assert answer.json["dry_run"] is True
        assert [run["execution_id"] for run in answer.json["runs"]] == [None] * 3
        assert len(world.tables.executions) == 1
        made = backfill(acme, job, spread_seconds=5400).json
        for run in made["runs"]:
            run["execution_id"] = None
        assert {**made, "dry_run": True} == answer.json

    def test_leaves_out_what_ran_unless_it_is_asked_for(
        self, acme: Caller, system: System, job: dict[str, Any]
    ) -> None:
        system.run_for(2 * HOUR)
        interval = {"from": "2026-01-01T11:00:00Z", "to": "2026-01-01T14:00:00Z"}

        told = backfill(acme, job, **interval, dry_run=True).json
        everything = backfill(acme, job, **interval, skip_existing=False, dry_run=True).json

        assert [run["scheduled_for"][11:16] for run in told["runs"]] == ["11:00", "12:00"]
        (skipped,) = told["skipped"]
        assert skipped == {
            "scheduled_for": "2026-01-01T13:00:00.000Z",
            "execution_id": job["execution_id"],
            "status": "SUCCEEDED",
        }
        assert (len(everything["runs"]), everything["skipped"]) == (3, [])

    def test_refuses_more_slots_than_asked_for_with_their_number(
        self, acme: Caller, world: MemoryWorld, job: dict[str, Any]
    ) -> None:
        answer = backfill(acme, job, max=2)

        assert (answer.status, answer.fields) == (400, {"max"})
        assert answer.json["detail"] == "max: the interval has at least 3 slots (got 2)"
        assert len(world.tables.executions) == 1

    @pytest.mark.parametrize(
        ("body", "fields"),
        [
            ({"from": None}, ["from"]),
            ({"from": "yesterday", "to": "2026-01-01"}, ["from", "to"]),
            ({"from": "2026-01-01T12:00:00Z"}, ["from"]),
            ({"to": "2026-01-01T12:00:00.001Z"}, ["to"]),
            ({"to": "2026-01-01T12:00:00"}, ["to"]),
            ({"max": 0}, ["max"]),
            ({"max": 1001}, ["max"]),
            ({"max": "10"}, ["max"]),
            ({"max": True}, ["max"]),
            ({"spread_seconds": -1}, ["spread_seconds"]),
            ({"spread_seconds": 86_401}, ["spread_seconds"]),
            ({"spread_seconds": 0.5}, ["spread_seconds"]),
            ({"dry_run": "yes"}, ["dry_run"]),
            ({"skip_existing": 1}, ["skip_existing"]),
            ({"payload": {}}, ["payload"]),
            ({"from_": "2026-01-01T00:00:00Z"}, ["from_"]),
        ],
        ids=str,
    )
    def test_refuses_what_is_wrong_by_name(
        self,
        acme: Caller,
        world: MemoryWorld,
        job: dict[str, Any],
        body: dict[str, object],
        fields: list[str],
    ) -> None:
        answer = backfill(acme, job, **body)

        assert (answer.status, answer.fields) == (400, {*fields})
        assert len(world.tables.executions) == 1

    def test_without_an_interval_is_refused(self, acme: Caller, job: dict[str, Any]) -> None:
        answer = acme.post(f"/v1/jobs/{job['job_id']}/backfill", {})

        assert (answer.status, answer.fields) == (400, {"from", "to"})

    def test_under_a_key_is_answered_the_same_again_and_runs_each_slot_once(
        self, acme: Caller, system: System, job: dict[str, Any]
    ) -> None:
        def asked() -> Answer:
            path = f"/v1/jobs/{job['job_id']}/backfill"
            return acme.post(path, {**MORNING, "skip_existing": False}, Idempotency_Key="k")

        first = asked()
        system.run_for(2 * MINUTE)

        again = asked()

        assert (again.status, again.json) == (202, first.json)
        assert again.headers["idempotent-replayed"] == "true"
        assert "idempotent-replayed" not in first.headers
        system.run_for(2 * MINUTE)
        assert len(system.runs) == 3

    def test_under_a_key_of_another_request_is_a_422(
        self, acme: Caller, world: MemoryWorld, job: dict[str, Any]
    ) -> None:
        path = f"/v1/jobs/{job['job_id']}/backfill"
        acme.post(path, MORNING, Idempotency_Key="k")
        other = acme.create(rate="1 hour")
        there = dict(world.tables.executions)

        answers = [
            acme.post(path, {**MORNING, "max": 99}, Idempotency_Key="k"),
            acme.post(f"/v1/jobs/{other['job_id']}/backfill", MORNING, Idempotency_Key="k"),
            trigger(acme, job, Idempotency_Key="k"),
        ]

        assert [answer.status for answer in answers] == [422] * 3
        assert world.tables.executions == there

    def test_is_for_a_paused_job_and_for_no_deleted_one(
        self, acme: Caller, job: dict[str, Any]
    ) -> None:
        acme.post(f"/v1/jobs/{job['job_id']}/pause", {})
        assert backfill(acme, job).status == 202

        acme.delete(f"/v1/jobs/{job['job_id']}")
        assert backfill(acme, job).status == 409

    def test_of_a_one_off_is_a_409(self, acme: Caller) -> None:
        assert backfill(acme, acme.create()).status == 409


class TestHistory:
    @pytest.fixture
    def ran(self, acme: Caller, system: System, job: dict[str, Any]) -> dict[str, Any]:
        """Three slots of the morning, one by hand, and the first of its own."""
        backfill(acme, job)
        system.run_for(30 * MINUTE)
        trigger(acme, job)
        system.run_for(45 * MINUTE)
        return job

    def test_has_all_of_it_newest_first_page_by_page(
        self, acme: Caller, ran: dict[str, Any]
    ) -> None:
        path, query = f"/v1/jobs/{ran['job_id']}/runs", {"limit": "2"}
        pages = [acme.get(path, **query).json]
        while cursor := pages[-1]["next_cursor"]:
            pages.append(acme.get(path, **query, cursor=cursor).json)

        items = [item for page in pages for item in page["items"]]
        assert [(item["run_at"][11:16], item["trigger"], item["status"]) for item in items] == [
            ("14:00", "SCHEDULE", "SCHEDULED"),
            ("13:00", "SCHEDULE", "SUCCEEDED"),
            ("12:30", "MANUAL", "SUCCEEDED"),
            *[("12:00", "BACKFILL", "SUCCEEDED")] * 3,
        ]
        assert len(pages) == 3

    def test_is_filtered(self, acme: Caller, ran: dict[str, Any]) -> None:
        path = f"/v1/jobs/{ran['job_id']}/executions"

        def triggers(**query: str) -> list[str]:
            return [item["trigger"] for item in acme.get(path, **query).json["items"]]

        assert triggers(status="scheduled") == ["SCHEDULE"]
        assert triggers(to="2026-01-01T12:30:00Z") == ["BACKFILL"] * 3
        assert triggers(**{"from": "2026-01-01T12:30:00Z", "to": "2026-01-01T13:00:00Z"}) == [
            "MANUAL"
        ]

    def test_is_shown_with_the_job_and_in_the_list_of_all(
        self, acme: Caller, ran: dict[str, Any]
    ) -> None:
        detail = acme.get(f"/v1/jobs/{ran['job_id']}").json

        assert detail["executions"] == executions(acme, ran)
        assert acme.get("/v1/executions").json["items"] == executions(acme, ran)

    def test_makes_no_job_of_what_ran_beside_one(self, acme: Caller, ran: dict[str, Any]) -> None:
        items = acme.get("/v1/jobs").json["items"]

        assert [item["job_id"] for item in items] == [ran["job_id"]]


@pytest.mark.parametrize("verb", ["trigger", "backfill"])
class TestNobodyElse:
    def test_runs_a_job_that_is_not_theirs(
        self, acme: Caller, world: MemoryWorld, job: dict[str, Any], verb: str
    ) -> None:
        body = {} if verb == "trigger" else MORNING
        stranger = acme.calling_as("stranger")

        answer = stranger.post(f"/v1/jobs/{job['job_id']}/{verb}", body, Idempotency_Key="k")
        never_was = acme.post(f"/v1/jobs/job_{'0' * 26}/{verb}", body)
        malformed = acme.post(f"/v1/jobs/job_1/{verb}", body)

        assert [one.status for one in (answer, never_was, malformed)] == [404] * 3
        assert len(world.tables.executions) == 1
        assert not world.tables.keys

    def test_gets_the_answer_of_anothers_key(
        self, acme: Caller, job: dict[str, Any], verb: str
    ) -> None:
        body = {} if verb == "trigger" else MORNING
        path = f"/v1/jobs/{job['job_id']}/{verb}"
        acme.post(path, body, Idempotency_Key="k")

        answer = acme.calling_as("stranger").post(path, body, Idempotency_Key="k")

        assert answer.status == 404

    def test_asks_with_any_other_method(self, acme: Caller, job: dict[str, Any], verb: str) -> None:
        path = f"/v1/jobs/{job['job_id']}/{verb}"

        answer = acme.send(event("GET", path, claims=acme.claims))

        assert (answer.status, answer.headers["allow"]) == (405, "POST")


def test_a_backfill_is_not_spread_where_slots_wait_for_each_other(acme: Caller) -> None:
    job = acme.create(cron="0 * * * *")

    answer = backfill(acme, job, spread_seconds=60)

    assert (answer.status, answer.fields) == (400, {"spread_seconds"})
    assert "SKIP" in answer.json["errors"][0]["reason"]
