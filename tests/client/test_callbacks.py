"""The client of whoever ends a deferred try, against the real API in memory."""

import httpx
import pytest

from lamplighter.client import Callback, NotReached, Refused
from lamplighter.core.lifecycle import State
from lamplighter.core.outcome import Deferred
from lamplighter.memory import MemoryWorld
from lamplighter.services import execute
from lamplighter.services.execute import Claimed
from tests.simulation.deferred_scenarios import TERMS
from tests.support.api import Caller, caller, event
from tests.support.claims import claimed

URL = "https://api.example.com/"


@pytest.fixture
def world() -> MemoryWorld:
    return MemoryWorld()


@pytest.fixture
def held(world: MemoryWorld) -> Claimed:
    held = claimed(world, task="render")
    execute.conclude(world.ports(), held, Deferred(terms=TERMS))
    return held


def calling(world: MemoryWorld, held: Claimed, token: str | None = None) -> Callback:
    anybody = Caller(api=caller(world).api, claims=None)

    def answer(request: httpx.Request) -> httpx.Response:
        assert "authorization" not in request.headers
        answer = anybody.send(
            event(
                request.method,
                request.url.path,
                body=request.content.decode(),
                headers=dict(request.headers),
            )
        )
        return httpx.Response(answer.status, headers=answer.headers, text=answer.text)

    transport = httpx.MockTransport(answer)
    return Callback(URL, held.execution.id, token or held.callback, transport=transport)


def test_it_goes_on_and_ends_with_a_result(world: MemoryWorld, held: Claimed) -> None:
    callback = calling(world, held)

    assert callback.heartbeat() is False
    assert callback.complete({"frames": 3})["status"] == "SUCCEEDED"
    assert callback.complete({"frames": 3})["status"] == "SUCCEEDED"
    with pytest.raises(Refused, match="the try is over") as refused:
        callback.fail("late")
    assert refused.value.status == 409


def test_it_ends_as_a_failure(world: MemoryWorld, held: Claimed) -> None:
    told = calling(world, held).fail("no disk", error_type="DiskFull", permanent=True)

    assert told["status"] == "FAILED"
    row = world.tables.executions[held.execution.id]
    assert row.error is not None
    assert (row.state, row.error.type, row.error.message) == (State.FAILED, "DiskFull", "no disk")


def test_a_wait_may_be_asked_for(world: MemoryWorld, held: Claimed) -> None:
    told = calling(world, held).fail(retry_after_seconds=90)

    assert (told["status"], told["attempt"]) == ("RETRYING", 2)


def test_another_token_is_refused(world: MemoryWorld, held: Claimed) -> None:
    with pytest.raises(Refused) as refused:
        calling(world, held, "cbt_" + "0" * 32).heartbeat()
    assert refused.value.status == 404


def test_no_answer_is_told_apart(held: Claimed) -> None:
    def nobody(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    transport = httpx.MockTransport(nobody)
    callback = Callback(URL, held.execution.id, held.callback, transport=transport)

    with pytest.raises(NotReached) as error:
        callback.heartbeat()
    assert held.callback not in str(error.value)
