"""Canaries of every kind, from create to notice: where they were put they are, and nowhere else."""

import json
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest
from aws_lambda_powertools import Logger
from pydantic import JsonValue

from lamplighter import Context as TaskContext
from lamplighter.aws.queue import body_of
from lamplighter.aws.signing import SecretKeys
from lamplighter.aws.telemetry import LambdaTelemetry
from lamplighter.core.addresses import Reach
from lamplighter.core.lifecycle import State
from lamplighter.core.model import Execution
from lamplighter.core.targets import HttpRules
from lamplighter.memory import MemoryWorld
from lamplighter.services.execute import Claimed, begin, process
from lamplighter.services.heartbeat import Heartbeats
from lamplighter.tasks.http import HttpCaller
from lamplighter.tasks.registry import TASKS, Registry
from lamplighter.tasks.runner import TaskRunner
from tests.support.api import JSON, Caller, caller, event
from tests.support.lambdas import Context, Deployed, Function, kept
from tests.support.web import Web, web

LOCAL = HttpRules(owners=frozenset({"*"}), allow_http=True, reach=Reach(loopback=True))
IN_HEADER, IN_QUERY, IN_PAYLOAD = "canary-header-1f3a", "canary-query-9c2e", "canary-payload-77d0"
IN_BEARER, IN_ANSWER, IN_ENVIRONMENT = "canary-bearer-40b1", "canary-answer-e6", "canary-env-5512"
KEY = b64encode(b"canary-signing-key-0123456789abc").decode()
# A letter that nobody marked as secret: private all the same, wherever its words turn up.
LETTER = "canary-letter: Dear Sir, " + "between you and me, " * 40
CANARIES = (IN_HEADER, IN_QUERY, IN_PAYLOAD, IN_BEARER, IN_ANSWER, IN_ENVIRONMENT, KEY, LETTER[:40])


@dataclass
class Secrets:
    def get_secret_value(self, *, SecretId: str) -> Mapping[str, Any]:  # noqa: N803 -- AWS's
        return {"ARN": SecretId, "SecretString": f"whsec_{KEY}"}


@pytest.fixture
def world() -> MemoryWorld:
    return MemoryWorld()


@pytest.fixture
def server() -> Iterator[Web]:
    with web() as running:
        yield running


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUR_DATABASE_PASSWORD", IN_ENVIRONMENT)


@pytest.fixture
def telemetry(request: pytest.FixtureRequest) -> LambdaTelemetry:
    # Powertools keeps one handler for a name, and it holds the first test's standard output.
    return LambdaTelemetry(logger=Logger(service=request.node.name), sample_rate=1.0)


def quiet(shown: str, *, but: str = "") -> None:
    """No canary is in it; and it is something."""
    assert len(shown) > 20
    found = [canary for canary in CANARIES if canary in shown and canary != but]
    assert found == []


def without_definition(row: Execution) -> str:
    """A row without what its owner put there."""
    assert row.spec is not None
    plain = replace(row.spec, target=None, payload=replace(row.spec.payload, text="0"))
    return repr(replace(row, spec=plain))


def create(acme: Caller, body: Mapping[str, object]) -> str:
    made = acme.send(
        event(
            "POST",
            "/v1/jobs",
            body=json.dumps(body),
            headers={"content-type": JSON, "authorization": f"Bearer {IN_BEARER}"},
            claims=acme.claims,
        )
    )
    assert made.status == 201, made.text
    quiet(made.text, but=IN_PAYLOAD)
    id: str = made.json["execution_id"]
    return id


def test_of_a_call_that_fails_for_good_nothing_secret_is_told(
    world: MemoryWorld,
    server: Web,
    telemetry: LambdaTelemetry,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Header, query, payload, token, key and answer: through create, run, failure and notice."""
    ports = replace(world.ports(), telemetry=telemetry)
    acme = caller(ports, http=LOCAL)
    target = {"kind": "http", "url": f"{server.url}?token={IN_QUERY}"}
    id = create(
        acme,
        {
            "target": {**target, "headers": {"Authorization": f"Bearer {IN_HEADER}"}},
            "payload": {"password": IN_PAYLOAD, "letter": LETTER},
            "retry_policy": {"max_attempts": 2, "base_seconds": 1},
        },
    )
    keys = SecretKeys(Secrets, arn="arn:x", clock=world.clock, telemetry=telemetry)
    runner = TaskRunner(
        Registry(),
        Heartbeats(ports),
        world.clock,
        http=HttpCaller(LOCAL, world.clock, keys=keys),
    )
    # A target that says back all that it heard.
    server.status, server.body = 500, f"{IN_ANSWER} {IN_HEADER} {IN_QUERY}".encode()

    sent = []
    for _ in range(2):
        (received,) = world.queue.receive()
        sent.append(body_of(received.message))
        process(ports, received, runner, worker="worker-1")
        world.pass_time(timedelta(minutes=1))

    telemetry.flush()
    row = next(one for one in world.tables.executions.values() if one.id == id)
    assert row.state is State.DEAD_LETTERED
    assert server.seen[0].headers["authorization"] == f"Bearer {IN_HEADER}"
    assert server.seen[0].headers["webhook-signature"]
    quiet(capsys.readouterr().out)
    quiet(" ".join(sent))
    quiet(repr(world.notices.given))
    quiet(without_definition(row))
    for path in (f"/v1/executions/{id}", f"/v1/executions/{id}/explain", "/v1/executions"):
        quiet(acme.get(path).text.replace(json.dumps(LETTER)[1:-1], ""), but=IN_PAYLOAD)


def test_a_callback_token_is_in_no_log_no_message_and_no_row(
    world: MemoryWorld,
    server: Web,
    telemetry: LambdaTelemetry,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The one that is called has it, and a row its digest alone."""
    ports = replace(world.ports(), telemetry=telemetry)
    acme = caller(ports, http=LOCAL)
    deferred = {"kind": "http", "url": server.url, "deferred": {}}
    id = create(acme, {"target": deferred})
    server.status = 202
    runner = TaskRunner(
        Registry(), Heartbeats(ports), world.clock, http=HttpCaller(LOCAL, world.clock)
    )
    (received,) = world.queue.receive()

    process(ports, received, runner, worker="worker-1")

    telemetry.flush()
    token = server.seen[0].headers["lamplighter-callback-token"]
    row = next(one for one in world.tables.executions.values() if one.id == id)
    assert len(token) >= 22
    answer = acme.get(f"/v1/executions/{id}").text
    for shown in (capsys.readouterr().out, repr(row), answer, body_of(received.message)):
        assert shown
        assert token not in shown


def test_what_a_task_throws_is_masked_before_it_is_written_anywhere(
    worker: Function,
    deployed: Deployed,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On moto's tables and queues, item by item: the payload is in its own, and in no other."""
    monkeypatch.setattr(TASKS, "_tasks", {**TASKS._tasks})

    @TASKS.task("indiscreet", version=1)
    def indiscreet(payload: JsonValue, ctx: TaskContext) -> object:
        told = f"{json.dumps(payload)} with {IN_ENVIRONMENT} at try {ctx.attempt}"
        raise ValueError(told)

    payload = {"password": IN_PAYLOAD, "letter": LETTER}
    id = deployed.submit("indiscreet", json.dumps(payload))
    batch = deployed.receive("default")
    bodies = [record["body"] for record in batch["Records"]]

    assert worker.handle(batch, Context()) == kept()

    row = deployed.row(id)
    assert row.error is not None
    assert row.error.type == "ValueError"
    items = [
        json.dumps(item, default=str)
        for table in (deployed.tables.executions, deployed.tables.jobs, deployed.tables.control)
        for item in deployed.dynamodb.scan(TableName=table)["Items"]
    ]
    with_payload = [item for item in items if IN_PAYLOAD in item]
    assert len(with_payload) == 1
    assert "ValueError" not in with_payload[0]
    quiet(" ".join(item for item in items if item not in with_payload))
    quiet(" ".join(bodies))
    quiet(repr(row.error) + repr(row.attempts))


def test_a_token_that_is_refused_is_not_quoted(world: MemoryWorld) -> None:
    """Of claims that name no owner: what else they hold is not told, nor the header."""
    stranger = replace(caller(world), claims={"email": IN_PAYLOAD, "sub": 5})

    answer = stranger.send(
        event(
            "GET",
            "/v1/jobs",
            headers={"authorization": f"Bearer {IN_BEARER}"},
            claims=stranger.claims,
        )
    )

    assert answer.status == 403
    quiet(answer.text)


def test_a_key_that_cannot_be_used_is_not_told(world: MemoryWorld) -> None:
    broken = f"whsec_{KEY}!"

    class Broken(Secrets):
        def get_secret_value(self, *, SecretId: str) -> Mapping[str, Any]:  # noqa: N803 -- AWS's
            return {"ARN": SecretId, "SecretString": broken}

    keys = SecretKeys(Broken, arn="arn:x", clock=world.clock, telemetry=world.counts)

    with pytest.raises(Exception, match="cannot be read") as raised:
        keys()

    quiet(f"{raised.value!r} {raised.value.__context__!r} {world.counts.events!r}" + "." * 20)


def test_a_claim_in_hand_shows_no_token_when_it_is_printed(world: MemoryWorld) -> None:
    """A traceback with locals, a debugger's log: what is printed is what leaks."""
    caller(world).create()
    (received,) = world.queue.receive()
    claimed = begin(world.ports(), received, worker="worker-1")

    assert isinstance(claimed, Claimed)
    assert claimed.callback
    assert claimed.callback not in repr(claimed)
