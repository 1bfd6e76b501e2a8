"""What a client asks of a recurring job's schedule; and what importing the client costs."""

import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta

import httpx
import pytest

import lamplighter.client
from lamplighter.client import Client, Refused, callbacks
from lamplighter.core.forecast import Capacity
from lamplighter.memory import MemoryWorld
from lamplighter.sim.system import System
from tests.client.test_payloads import API, Network


@pytest.fixture
def world() -> MemoryWorld:
    return MemoryWorld()


@pytest.fixture
def client(world: MemoryWorld) -> Iterator[Client]:
    network = Network(world=world)
    with Client(API, "acme", transport=httpx.MockTransport(network.answer)) as client:
        yield client


def test_a_job_that_is_paused_runs_no_more_until_it_is_resumed(
    client: Client, world: MemoryWorld
) -> None:
    system = System(world=world)
    id = client.create({"task": "echo", "rate": "1 minute"}).job["job_id"]

    paused = client.pause(id)
    system.run_for(timedelta(minutes=10))
    assert (paused["status"], paused["version"], system.runs) == ("PAUSED", 2, [])

    resumed = client.resume(id)
    system.run_for(timedelta(minutes=2))
    assert (resumed["status"], resumed["version"]) == ("ACTIVE", 3)
    assert system.runs != []


def test_a_job_that_somebody_changed_is_neither_paused_nor_resumed(client: Client) -> None:
    id = client.create({"task": "echo", "rate": "1 hour"}).job["job_id"]
    client.update(id, {"name": "other"})

    for call in (client.pause, client.resume):
        with pytest.raises(Refused) as refused:
            call(id, version=1)
        assert refused.value.status == 412
    assert client.pause(id, version=2)["version"] == 3


def test_a_schedule_is_previewed(client: Client) -> None:
    wanted = {"cron": "0 2 * * *", "after": "2026-07-12T00:00:00Z", "count": 2}

    seen = client.preview(wanted)

    assert seen["occurrences"] == ["2026-07-12T02:00:00.000Z", "2026-07-13T02:00:00.000Z"]


def test_what_a_preview_cannot_tell_is_refused(client: Client) -> None:
    with pytest.raises(Refused, match="minute 61"):
        client.preview({"cron": "61 2 * * *"})


def test_all_that_is_named_is_there() -> None:
    for name in lamplighter.client.__all__:
        module = callbacks if name == "Callback" else lamplighter.client.http
        assert getattr(lamplighter.client, name) is getattr(module, name)
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = lamplighter.client.Nothing  # type: ignore[attr-defined]


def test_nothing_is_loaded_before_it_is_asked_for() -> None:
    code = (
        "import sys, lamplighter.client\n"
        "assert 'httpx' not in sys.modules\n"
        "from lamplighter.client import Client\n"
        "assert 'httpx' in sys.modules and Client.__name__ == 'Client'"
    )

    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_client_is_told_of_a_start_that_will_be_late(client: Client, world: MemoryWorld) -> None:
    world.capacity, world.shards, world.partitions = Capacity(lanes={"default": 1.0}), 1, 1
    at = (world.now() + timedelta(hours=1)).isoformat()
    body = {"task": "echo", "run_at": at}

    answers = client.create_many([body] * 4, forecast=True)
    asked = client.create(body, forecast=True).job
    unasked = client.create(body).job
    changed = client.update(asked["job_id"], {"queue": "default"}, forecast=True)

    told = [len(answer["body"].get("warnings", ())) for answer in answers]
    assert told == [0, 0, 1, 1]
    assert asked["warnings"][0]["code"] == changed["warnings"][0]["code"] == "minute-is-full"
    assert "warnings" not in unasked
