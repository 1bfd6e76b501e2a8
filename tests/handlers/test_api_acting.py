"""Cancelling and replaying over HTTP: every state and verb, one and many."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lamplighter.core.buckets import ExecutionId
from lamplighter.core.errors import Unavailable
from lamplighter.core.lifecycle import FINAL, State
from lamplighter.core.model import Token
from lamplighter.core.outcome import Failed, Outcome
from lamplighter.core.retry import Failure, Kind
from lamplighter.memory import MemoryWorld, VirtualClock
from lamplighter.services.execute import Claimed
from lamplighter.sim.faults import Call, When, interposed
from lamplighter.sim.system import System
from tests.support.api import Answer, Caller, caller, event

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
NOW = "2026-01-01T00:00:01.000Z"


def no_route(_: Claimed) -> Outcome:
    return Failed(failure=Failure(kind=Kind.PERMANENT, type="OSError", message="no route"))


@pytest.fixture
def world() -> MemoryWorld:
    return MemoryWorld(clock=VirtualClock(datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)))


@pytest.fixture
def system(world: MemoryWorld) -> System:
    return System(world=world, handler=no_route)


@pytest.fixture
def acme(world: MemoryWorld) -> Caller:
    return caller(world)


def in_state(world: MemoryWorld, state: State) -> ExecutionId:
    """A one-off that is there in a state, however it came to it."""
    id = ExecutionId(caller(world).create(run_at="2026-06-01T00:00:00Z")["execution_id"])
    running, now = state is State.RUNNING, world.now()
    world.tables.executions[id] = replace(
        world.tables.executions[id],
        state=state,
        token=Token("a" * 32) if running else None,
        lease_until=now + MINUTE if running else None,
        next_run_at=now + MINUTE if state is State.RETRYING else None,
        finished_at=now if state in FINAL else None,
    )
    return id


def failed(acme: Caller, system: System, **body: object) -> str:
    """A one-off that has FAILED."""
    id: str = acme.create(**body)["execution_id"]
    system.run_for(SECOND)
    return id


def outcomes(answer: Answer) -> list[tuple[str, str]]:
    assert answer.status == 200, answer.text
    return [(one["execution_id"], one["outcome"]) for one in answer.json["answers"]]


CANCELS = {State.SCHEDULED: 200, State.RETRYING: 200, State.BLOCKED: 200, State.RUNNING: 202}


class TestEveryStateAndVerb:
    @pytest.mark.parametrize("state", State)
    def test_a_cancel(self, acme: Caller, world: MemoryWorld, state: State) -> None:
        id = in_state(world, state)
        expected = 200 if state is State.CANCELLED else CANCELS.get(state, 409)

        answer = acme.post_text(f"/v1/executions/{id}/cancel", None)

        assert answer.status == expected
        if answer.status == 409:
            assert f"{id} is {state}" in answer.json["detail"]
            assert world.tables.executions[id].state is state
        else:
            shown = acme.get(f"/v1/executions/{id}").json
            assert answer.json == shown
            assert shown["status"] == ("RUNNING" if answer.status == 202 else "CANCELLED")

    @pytest.mark.parametrize("state", State)
    def test_a_replay(self, acme: Caller, world: MemoryWorld, state: State) -> None:
        id = in_state(world, state)

        answer = acme.post_text(f"/v1/executions/{id}/replay", None)

        assert answer.status == (201 if state in FINAL else 409)
        if answer.status == 409:
            assert f"{id} is {state}" in answer.json["detail"]
        else:
            new = answer.json["execution_id"]
            assert answer.headers["location"] == f"/v1/executions/{new}"
            assert acme.get(answer.headers["location"]).json == answer.json


class TestReplay:
    def test_shows_the_new_execution_and_its_lineage(self, acme: Caller, system: System) -> None:
        id = failed(acme, system, payload={"order": 17})
        system.run_for(MINUTE)

        new = acme.post(f"/v1/executions/{id}/replay", {}).json

        old = acme.get(f"/v1/executions/{id}").json
        assert (new["trigger"], new["replay_of"], new["job_id"]) == ("REPLAY", id, old["job_id"])
        assert (new["scheduled_for"], new["run_at"]) == (NOW, "2026-01-01T00:01:02.000Z")
        assert (new["payload"], new["status"]) == ({"order": 17}, "QUEUED")
        assert new["idempotency_key"] == old["idempotency_key"] == id
        assert (old["status"], old["replay_of"]) == ("FAILED", None)

    @pytest.mark.parametrize("payload", [None, {"order": 18}, "x" * 2000], ids=type)
    def test_with_a_payload_has_that_and_a_key_of_its_own(
        self, acme: Caller, system: System, payload: object
    ) -> None:
        id = failed(acme, system, payload={"order": 17})

        new = acme.post(f"/v1/executions/{id}/replay", {"payload": payload}).json

        shown = acme.get(f"/v1/executions/{new['execution_id']}").json
        assert (shown["payload"], shown["idempotency_key"]) == (payload, new["execution_id"])

    def test_of_a_trace_keeps_it(self, acme: Caller, system: System) -> None:
        trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        id = failed(acme, system)

        new = acme.post(f"/v1/executions/{id}/replay", {}, traceparent=trace).json

        assert new["traceparent"] == trace

    def test_with_a_key_is_the_first_answer_again(self, acme: Caller, system: System) -> None:
        id = failed(acme, system, payload="x" * 2000)
        path = f"/v1/executions/{id}/replay"
        first = acme.post(path, {}, Idempotency_Key="k")

        again = acme.post(path, {}, Idempotency_Key="k")

        assert (again.status, again.json) == (201, first.json)
        assert again.headers["location"] == first.headers["location"]
        assert "idempotent-replayed" not in first.headers
        assert again.headers["idempotent-replayed"] == "true"
        # What is kept with a key is small, however large the payload.
        (record,) = acme.api._ports.jobs._tables.keys.values()  # type: ignore[attr-defined]
        assert len(record.answer) < 1000

    @pytest.mark.parametrize("what", ["body", "execution", "operation"])
    def test_with_a_key_of_another_request_is_refused(
        self, acme: Caller, system: System, what: str
    ) -> None:
        id, other = failed(acme, system), failed(acme, system)
        acme.post(f"/v1/executions/{id}/replay", {}, Idempotency_Key="k")
        path, body = {
            "body": (f"/v1/executions/{id}/replay", {"payload": 1}),
            "execution": (f"/v1/executions/{other}/replay", {}),
            "operation": ("/v1/jobs", {"task": "echo"}),
        }[what]

        answer = acme.post(path, body, Idempotency_Key="k")

        assert answer.status == 422
        assert answer.json["type"] == "urn:lamplighter:problem:idempotency-key-reused"

    @pytest.mark.parametrize(
        ("body", "field"),
        [('{"paylod": 1}', "paylod"), ("[]", "body"), ("nul", "body"), ('{"a":1,"a":1}', "a")],
    )
    def test_with_a_body_that_is_wrong_is_refused_by_name(
        self, acme: Caller, system: System, body: str, field: str
    ) -> None:
        id = failed(acme, system)

        answer = acme.post_text(f"/v1/executions/{id}/replay", body)

        assert (answer.status, answer.fields) == (400, {field})

    def test_with_a_payload_that_is_too_large_is_refused(
        self, acme: Caller, system: System
    ) -> None:
        id = failed(acme, system)

        answer = acme.post(f"/v1/executions/{id}/replay", {"payload": "x" * 65_536})

        assert (answer.status, answer.fields) == (400, {"payload"})

    def test_of_another_owner_s_is_a_404_like_one_that_never_was(
        self, acme: Caller, system: System
    ) -> None:
        id = failed(acme, system)
        stranger = acme.calling_as("stranger")

        theirs = stranger.post(f"/v1/executions/{id}/replay", {})
        missing = stranger.post(f"/v1/executions/ex_{'0' * 26}/replay", {})

        assert theirs.status == missing.status == 404
        assert theirs.json["detail"].replace(id, "ex_" + "0" * 26) == missing.json["detail"]
        assert len(system.world.tables.executions) == 1


class TestMany:
    def test_cancel_takes_all_that_waits_and_says_what_came_of_each(
        self, acme: Caller, world: MemoryWorld
    ) -> None:
        ids = [in_state(world, state) for state in State]
        expected = {
            ids[i]: "REQUESTED" if state is State.RUNNING else "CANCELLED"
            for i, state in enumerate(State)
            if state not in FINAL
        }

        answer = acme.post("/v1/executions/cancel", {"filter": {"task": "echo"}})

        assert dict(outcomes(answer)) == expected
        for one in answer.json["answers"]:
            assert one["status"] == ("RUNNING" if one["outcome"] == "REQUESTED" else "CANCELLED")
            assert (one["new_execution_id"], one["problem"]) == (None, None)

    def test_replay_takes_what_needs_attention_unless_told_otherwise(
        self, acme: Caller, world: MemoryWorld
    ) -> None:
        ids = {state: in_state(world, state) for state in State}

        answer = acme.post("/v1/executions/replay", {"filter": {"task": "echo"}})

        in_trouble = {State.FAILED, State.DEAD_LETTERED, State.EXPIRED}
        assert {id for id, _ in outcomes(answer)} == {ids[state] for state in in_trouble}
        for one in answer.json["answers"]:
            assert one["outcome"] == "REPLAYED"
            new = acme.get(f"/v1/executions/{one['new_execution_id']}").json
            assert new["replay_of"] == one["execution_id"]
            assert one["status"] in in_trouble

    @pytest.mark.parametrize(
        "status",
        ["succeeded,cancelled", "completed,CANCELED", ["succeeded", "cancelled"]],
        ids=str,
    )
    def test_statuses_are_named_as_in_lists(
        self, acme: Caller, world: MemoryWorld, status: object
    ) -> None:
        ids = {state: in_state(world, state) for state in State}

        answer = acme.post("/v1/executions/replay", {"filter": {"status": status}})

        expected = {ids[State.SUCCEEDED], ids[State.CANCELLED]}
        assert {id for id, _ in outcomes(answer)} == expected

    @pytest.mark.parametrize(
        ("wanted", "number"),
        [
            ({"task": "a"}, 0),
            ({"queue": "bulk"}, 1),
            ({"from": "2026-01-01T00:00:03Z"}, 2),
            ({"to": "2026-01-01T00:00:02Z"}, 0),
            ({"from": "2026-01-01T00:00:02Z", "to": "2026-01-01T00:00:03Z"}, 1),
        ],
        ids=str,
    )
    def test_a_filter_lets_through_what_a_list_s_does(
        self, acme: Caller, system: System, wanted: dict[str, str], number: int
    ) -> None:
        ids = [
            failed(acme, system, task="a"),
            failed(acme, system, queue="bulk"),
            failed(acme, system),
        ]

        answer = acme.post("/v1/executions/replay", {"filter": wanted, "dry_run": True})

        listed = acme.get("/v1/executions", status="failed", **wanted).json["items"]
        assert outcomes(answer) == [(ids[number], "MATCHED")]
        assert [one["execution_id"] for one in listed] == [ids[number]]

    def test_a_filter_may_name_a_job_or_an_error(self, acme: Caller, system: System) -> None:
        id = failed(acme, system)
        job_id = acme.get(f"/v1/executions/{id}").json["job_id"]
        failed(acme, system)

        def matched(**wanted: str) -> int:
            body = {"filter": wanted, "dry_run": True}
            return len(outcomes(acme.post("/v1/executions/replay", body)))

        assert (matched(job_id=job_id), matched(error_type="OSError")) == (1, 2)
        assert matched(error_type="KeyError") == 0

    def test_a_dry_run_changes_nothing(self, acme: Caller, system: System) -> None:
        id = failed(acme, system)
        waiting = acme.create(run_at="2026-06-01T00:00:00Z")["execution_id"]
        before = dict(system.world.tables.executions)

        for verb, found in (("cancel", waiting), ("replay", id)):
            body = {"filter": {"task": "echo"}, "dry_run": True}
            answer = acme.post(f"/v1/executions/{verb}", body)
            assert outcomes(answer) == [(found, "MATCHED")]

        assert system.world.tables.executions == before

    @pytest.mark.parametrize("verb", ["cancel", "replay"])
    def test_pages_follow_each_other_to_the_end(
        self, acme: Caller, world: MemoryWorld, verb: str
    ) -> None:
        state = State.SCHEDULED if verb == "cancel" else State.FAILED
        ids = [in_state(world, state) for _ in range(5)]
        body: dict[str, Any] = {"filter": {"task": "echo"}, "limit": 2}

        found, pages = [], 0
        while True:
            answer = acme.post(f"/v1/executions/{verb}", body)
            found += [id for id, _ in outcomes(answer)]
            pages += 1
            if (cursor := answer.json["next_cursor"]) is None:
                break
            body["cursor"] = cursor

        assert sorted(found) == sorted(ids)
        assert pages == 3

    def test_a_cursor_belongs_to_its_owner_verb_and_filter(
        self, acme: Caller, world: MemoryWorld
    ) -> None:
        for _ in range(2):
            in_state(world, State.FAILED)
        page = {"filter": {"task": "echo"}, "limit": 1, "dry_run": True}
        page["cursor"] = acme.post("/v1/executions/replay", page).json["next_cursor"]
        assert page["cursor"] is not None

        assert acme.post("/v1/executions/replay", page).status == 200
        for answer in (
            acme.calling_as("stranger").post("/v1/executions/replay", page),
            acme.post("/v1/executions/cancel", page),
            acme.post("/v1/executions/replay", {**page, "filter": {"queue": "default"}}),
            acme.post("/v1/executions/replay", {**page, "cursor": "x"}),
        ):
            assert (answer.status, answer.fields) == (400, {"cursor"})

    def test_no_other_owner_s_are_among_them(self, acme: Caller, world: MemoryWorld) -> None:
        in_state(world, State.FAILED)
        recurring = acme.create(rate="1 hour")["job_id"]
        stranger = acme.calling_as("stranger")

        for verb in ("cancel", "replay"):
            path = f"/v1/executions/{verb}"
            assert outcomes(stranger.post(path, {"filter": {"task": "echo"}})) == []
            assert stranger.post(path, {"filter": {"job_id": recurring}}).status == 404

    @pytest.mark.parametrize("verb", ["cancel", "replay"])
    @pytest.mark.parametrize(
        ("body", "fields"),
        [
            ({}, ["filter"]),
            ({"filter": {}}, ["filter"]),
            ({"filter": "failed"}, ["filter"]),
            ({"filter": {"tsak": "x"}}, ["filter.tsak"]),
            ({"filter": {"status": "gone"}}, ["filter.status"]),
            ({"filter": {"status": ""}}, ["filter.status"]),
            ({"filter": {"status": []}}, ["filter.status"]),
            ({"filter": {"status": [1]}}, ["filter.status"]),
            ({"filter": {"from": "today", "to": 5}}, ["filter.to"]),
            (
                {"filter": {"from": "today", "to": "now", "job_id": "x"}},
                ["filter.from", "filter.to", "filter.job_id"],
            ),
            ({"filter": {"task": "x"}, "limit": 0}, ["limit"]),
            ({"filter": {"task": "x"}, "limit": 101}, ["limit"]),
            ({"filter": {"task": "x"}, "dry_run": "yes"}, ["dry_run"]),
            ({"filter": {"task": "x"}, "force": True}, ["force"]),
        ],
        ids=str,
    )
    def test_a_body_that_is_wrong_is_refused_by_name(
        self, acme: Caller, verb: str, body: object, fields: list[str]
    ) -> None:
        answer = acme.post(f"/v1/executions/{verb}", body)

        assert (answer.status, answer.fields) == (400, {*fields})

    @pytest.mark.parametrize("state", State)
    def test_a_status_that_the_verb_is_not_for_is_refused(self, acme: Caller, state: State) -> None:
        body = {"filter": {"status": state.lower()}}
        wrong = "cancel" if state in FINAL else "replay"
        right = "replay" if state in FINAL else "cancel"

        answer = acme.post(f"/v1/executions/{wrong}", body)

        assert (answer.status, answer.fields) == (400, {"filter.status"})
        assert acme.post(f"/v1/executions/{right}", body).status == 200

    def test_one_that_is_refused_ends_no_other(self, acme: Caller, world: MemoryWorld) -> None:
        """The middle one ends between the list and its turn."""
        ids = sorted((in_state(world, State.SCHEDULED) for _ in range(3)), reverse=True)

        def hook(call: Call, when: When) -> None:
            if call.method == "end" and when is When.AFTER:
                row = world.tables.executions[ids[1]]
                world.tables.executions[ids[1]] = replace(row, state=State.SUCCEEDED)

        answer = caller(interposed(world.ports(), hook)).post(
            "/v1/executions/cancel", {"filter": {"status": "scheduled"}}
        )

        assert outcomes(answer) == [
            (ids[0], "CANCELLED"),
            (ids[1], "REFUSED"),
            (ids[2], "CANCELLED"),
        ]
        problem = answer.json["answers"][1]["problem"]
        assert (problem["status"], problem["title"]) == (409, "Conflict")
        assert "is SUCCEEDED" in problem["detail"]

    def test_one_that_nothing_answers_for_is_told_so(
        self, acme: Caller, world: MemoryWorld
    ) -> None:
        """O-F19: a bulk verb names what it could not do."""
        in_state(world, State.SCHEDULED)

        def hook(call: Call, when: When) -> None:
            if call.method == "end":
                raise Unavailable("executions do not answer")

        answer = caller(interposed(world.ports(), hook)).post(
            "/v1/executions/cancel", {"filter": {"status": "scheduled"}}
        )

        (one,) = answer.json["answers"]
        assert (one["outcome"], one["problem"]["status"]) == ("REFUSED", 503)

    def test_under_one_key_nothing_is_replayed_twice(self, acme: Caller, system: System) -> None:
        failed(acme, system)
        failed(acme, system)
        body = {"filter": {"status": "failed"}}
        first = acme.post("/v1/executions/replay", body, Idempotency_Key="k")
        system.run_for(SECOND)

        again = acme.post("/v1/executions/replay", body, Idempotency_Key="k")
        by_pages = acme.post("/v1/executions/replay", {**body, "limit": 3}, Idempotency_Key="k")

        assert first.json["answers"] == again.json["answers"]
        assert {id for id, _ in outcomes(by_pages)} <= {id for id, _ in outcomes(first)}
        assert len(system.world.tables.executions) == 4

    def test_the_key_of_another_filter_refuses_each(self, acme: Caller, system: System) -> None:
        failed(acme, system)
        first, second = (
            acme.post("/v1/executions/replay", {"filter": wanted}, Idempotency_Key="k")
            for wanted in ({"status": "failed"}, {"task": "echo"})
        )

        assert [outcome for _, outcome in outcomes(first)] == ["REPLAYED"]
        (one,) = second.json["answers"]
        assert (one["outcome"], one["problem"]["status"]) == ("REFUSED", 422)


def test_the_words_cancel_and_replay_are_no_executions(acme: Caller) -> None:
    for word in ("cancel", "replay"):
        answer = acme.send(event("GET", f"/v1/executions/{word}", claims={"sub": "acme"}))
        assert (answer.status, answer.headers["allow"]) == (405, "POST")
