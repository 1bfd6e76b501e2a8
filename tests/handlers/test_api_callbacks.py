"""Ending a deferred try over HTTP: by a token of its own, without any other."""

import logging
from datetime import timedelta

import pytest

from lamplighter.core.buckets import ExecutionId
from lamplighter.core.lifecycle import State
from lamplighter.core.limits import ERROR_MESSAGE_MAX_CHARS, RESULT_MAX_BYTES
from lamplighter.core.outcome import Deferred
from lamplighter.memory import MemoryWorld
from lamplighter.services import execute
from lamplighter.services.execute import Claimed
from tests.simulation.deferred_scenarios import TERMS
from tests.support.api import Caller, caller, event
from tests.support.claims import claimed

JSON = {"content-type": "application/json"}


@pytest.fixture
def world() -> MemoryWorld:
    return MemoryWorld()


@pytest.fixture
def anybody(world: MemoryWorld) -> Caller:
    """Somebody without a bearer token."""
    acme = caller(world)
    return Caller(api=acme.api, claims=None)


@pytest.fixture
def held(world: MemoryWorld) -> Claimed:
    held = claimed(world, task="import_file")
    execute.conclude(world.ports(), held, Deferred(terms=TERMS))
    return held


def url(held: Claimed, verb: str) -> str:
    return f"/v1/executions/{held.execution.id}/{verb}"


def state(world: MemoryWorld, id: ExecutionId) -> State:
    return world.tables.executions[id].state


def test_a_heartbeat_says_by_when_the_next_one_has_to_come(
    anybody: Caller, held: Claimed, world: MemoryWorld
) -> None:
    world.pass_time(timedelta(seconds=30))

    answer = anybody.post(url(held, "heartbeat"), {"token": held.callback})

    assert answer.status == 200
    assert answer.json == {
        "execution_id": held.execution.id,
        "status": "RUNNING",
        "attempt": 1,
        "cancel_requested": False,
        "heard_until": (world.now() + timedelta(seconds=60)).strftime("%Y-%m-%dT%H:%M:%S.000Z"),
    }


def test_it_is_told_when_its_owner_takes_it_back(anybody: Caller, held: Claimed) -> None:
    owner = Caller(api=anybody.api)
    assert owner.post(f"/v1/executions/{held.execution.id}/cancel", {}).status == 202

    answer = anybody.post(url(held, "heartbeat"), {"token": held.callback})

    assert answer.json["cancel_requested"] is True


def test_its_result_is_what_the_execution_shows(anybody: Caller, held: Claimed) -> None:
    body = {"token": held.callback, "result": {"rows": [1, 2.5, None]}}

    answers = [anybody.post(url(held, "complete"), body) for _ in range(2)]

    assert [answer.status for answer in answers] == [200, 200]
    assert answers[0].json == answers[1].json
    assert (answers[0].json["status"], answers[0].json["heard_until"]) == ("SUCCEEDED", None)
    shown = Caller(api=anybody.api).get(f"/v1/executions/{held.execution.id}")
    assert (shown.json["status"], shown.json["result"]) == ("SUCCEEDED", {"rows": [1, 2.5, None]})
    assert held.callback not in shown.text
    assert held.token not in shown.text


def test_another_end_is_a_409(anybody: Caller, held: Claimed, world: MemoryWorld) -> None:
    anybody.post(url(held, "complete"), {"token": held.callback})

    for verb, more in (("complete", {"result": 2}), ("fail", {}), ("heartbeat", {})):
        answer = anybody.post(url(held, verb), {"token": held.callback, **more})
        assert answer.status == 409
        assert "the try is over" in answer.json["detail"]
    assert state(world, held.execution.id) is State.SUCCEEDED


@pytest.mark.parametrize(
    ("error", "status"),
    [
        ({}, "RETRYING"),
        ({"type": "Busy", "message": "later", "retry_after_seconds": 600}, "RETRYING"),
        ({"type": "NoSuchFile", "kind": "permanent"}, "FAILED"),
    ],
)
def test_that_it_failed_is_said_as_a_handler_would(
    anybody: Caller, held: Claimed, world: MemoryWorld, error: dict[str, object], status: str
) -> None:
    answer = anybody.post(url(held, "fail"), {"token": held.callback, "error": error})

    assert (answer.status, answer.json["status"]) == (200, status)
    row = world.tables.executions[held.execution.id]
    assert row.error is not None
    assert row.error.type == error.get("type", "Failed")
    if "retry_after_seconds" in error:
        assert row.next_run_at is not None
        assert row.next_run_at - world.now() >= timedelta(seconds=600)


@pytest.mark.parametrize("verb", ["heartbeat", "complete", "fail"])
class TestWhoHasNoTokenOfIt:
    @pytest.mark.parametrize("token", ["", "0" * 32, "ü" * 9, "x" * 128])
    def test_meets_the_same_as_where_nothing_is(
        self, anybody: Caller, held: Claimed, world: MemoryWorld, verb: str, token: str
    ) -> None:
        nowhere = f"/v1/executions/ex_{'0' * 26}/{verb}"

        here = anybody.post(url(held, verb), {"token": token})
        there = anybody.post(nowhere, {"token": token})

        assert (here.status, there.status) == (404, 404)
        id = held.execution.id
        assert here.text.replace(id, "") == there.text.replace(f"ex_{'0' * 26}", "")
        assert state(world, id) is State.RUNNING

    def test_is_not_helped_by_the_token_that_the_row_holds(
        self, anybody: Caller, held: Claimed, verb: str
    ) -> None:
        assert anybody.post(url(held, verb), {"token": held.token}).status == 404

    def test_is_not_helped_by_being_its_owner(
        self, anybody: Caller, held: Claimed, verb: str
    ) -> None:
        owner = Caller(api=anybody.api)
        assert owner.post(url(held, verb), {"token": "mine"}).status == 404

    def test_is_not_helped_by_the_token_of_another_execution(
        self, anybody: Caller, held: Claimed, world: MemoryWorld, verb: str
    ) -> None:
        other = claimed(world, task="import_file")
        execute.conclude(world.ports(), other, Deferred(terms=TERMS))

        assert anybody.post(url(held, verb), {"token": other.callback}).status == 404


@pytest.mark.parametrize(
    ("verb", "body", "field"),
    [
        ("complete", {}, "token"),
        ("complete", {"token": 5}, "token"),
        ("complete", {"token": "x", "results": 1}, "results"),
        ("complete", {"token": "x", "result": "y" * RESULT_MAX_BYTES}, "result"),
        ("fail", {"token": "x", "error": {"kind": "fatal"}}, "error.kind"),
        ("fail", {"token": "x", "error": {"type": ""}}, "error.type"),
        (
            "fail",
            {"token": "x", "error": {"message": "y" * (ERROR_MESSAGE_MAX_CHARS + 1)}},
            "error.message",
        ),
        ("fail", {"token": "x", "error": {"retry_after_seconds": -1}}, "error.retry_after_seconds"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(
    anybody: Caller, held: Claimed, world: MemoryWorld, verb: str, body: object, field: str
) -> None:
    answer = anybody.post(url(held, verb), body)

    assert answer.status == 400
    assert field in answer.fields
    assert state(world, held.execution.id) is State.RUNNING


def test_a_refusal_quotes_no_token(anybody: Caller, held: Claimed) -> None:
    answer = anybody.post(url(held, "complete"), {"token": held.callback, "results": 1})

    assert answer.status == 400
    assert held.callback not in answer.text


def test_no_token_is_logged(
    anybody: Caller, held: Claimed, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        anybody.post(url(held, "heartbeat"), {"token": held.callback})
        anybody.post(url(held, "complete"), {"token": held.callback})

    assert held.callback not in caplog.text


def test_a_body_that_is_none_is_refused(anybody: Caller, held: Claimed) -> None:
    for body, status in (("[]", 400), ("{", 400), ("x" * 2_000_000, 413)):
        raw = event("POST", url(held, "complete"), body=body, headers=JSON)
        assert anybody.send(raw).status == status
