"""Secrets that a task meets: none is in its row, in the log, or in a message to the queue."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Annotated, Literal

import pytest
from aws_lambda_powertools import Logger
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from lamplighter.aws.telemetry import LambdaTelemetry
from lamplighter.core.limits import ERROR_MESSAGE_MAX_CHARS, RETRY_NAME_MAX_CHARS
from lamplighter.core.model import Execution
from lamplighter.core.retry import Kind
from lamplighter.memory import MemoryWorld
from lamplighter.services.execute import process
from lamplighter.services.heartbeat import Heartbeats
from lamplighter.tasks.failures import failure_of, invalid_payload
from lamplighter.tasks.isolation import Isolation
from lamplighter.tasks.masking import known_secrets
from lamplighter.tasks.registry import Registry
from lamplighter.tasks.runner import TaskRunner
from lamplighter.tasks.source import Source
from tests.support.claims import received, submitted
from tests.tasks.isolated import MODULE

CANARY = "canary-5ae81c"
OF_ENVIRONMENT = "canary-of-environment"
LONG = "Dear Sir, " * 12


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROGUE_PASSWORD", OF_ENVIRONMENT)


@pytest.mark.parametrize("is_isolated", [False, True], ids=["in process", "isolated"])
@pytest.mark.parametrize("by", ["quote", "inner"])
def test_a_secret_is_in_no_row_no_log_and_no_message(
    rogues: Registry, capsys: pytest.CaptureFixture[str], by: str, is_isolated: bool
) -> None:
    world = MemoryWorld()
    # Powertools keeps one handler for a name, and it holds the first test's standard output.
    telemetry = LambdaTelemetry(logger=Logger(service=f"canary {by} {is_isolated}"))
    ports = replace(world.ports(), telemetry=telemetry)
    isolation = Isolation(Source(module=MODULE), telemetry.said) if is_isolated else None
    runner = TaskRunner(rogues, Heartbeats(ports), world.clock, isolation=isolation)
    payload = {"by": by, "secret": CANARY, "letter": LONG, "password": "hunter2-canary"}
    id = submitted(world, task="fail", payload=json.dumps(payload)).first.id

    process(ports, received(world), runner, worker="worker-1")

    telemetry.flush()
    row = ports.executions.get(id)
    assert row is not None
    world.pass_time(timedelta(days=1))
    shown = f"{told(row)} {capsys.readouterr()} {world.queue.receive()}"
    assert "fail" in shown
    for secret in (CANARY, OF_ENVIRONMENT, "hunter2", "Dear Sir"):
        assert secret not in shown


def told(row: Execution) -> str:
    """A row without what the user himself put there."""
    assert row.spec is not None
    return repr(replace(row, spec=replace(row.spec, payload=replace(row.spec.payload, text="0"))))


class Card(BaseModel):
    number: int


class Letter(BaseModel):
    kind: Literal["letter"] = "letter"


class Parcel(BaseModel):
    kind: Literal["parcel"] = "parcel"


def refused(kind: type[object], payload: object) -> ValidationError:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter[object](kind).validate_json(json.dumps(payload))
    return caught.value


class Tagged(BaseModel):
    sent: Annotated[Letter | Parcel, Field(discriminator="kind")]


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (int, CANARY),
        (Card, {"number": CANARY}),
        (Card, [CANARY]),
        (dict[str, int], {f"{CANARY}@example.com": "x"}),
        (Tagged, {"sent": {"kind": CANARY}}),
        (Literal["a", "b"], CANARY),
    ],
    ids=["value", "field", "whole", "key", "tag", "choice"],
)
def test_what_does_not_fit_its_type_is_not_quoted(kind: type[object], payload: object) -> None:
    error = refused(kind, payload)
    assert CANARY in str(error)

    for failure in (invalid_payload(error), failure_of(error)):
        assert CANARY not in failure.message
        assert failure.message


def test_a_failure_is_bounded_whatever_it_is_called() -> None:
    error = type("E" * 10_000, (Exception,), {})("m" * 1_000_000)

    failure = failure_of(error, payload=json.dumps({"password": "p" * 100_000}))

    assert failure.kind is Kind.RETRYABLE
    assert len(failure.type) == RETRY_NAME_MAX_CHARS
    assert len(failure.message) <= ERROR_MESSAGE_MAX_CHARS


def test_a_name_in_a_payload_may_be_told() -> None:
    """What helps to understand it stays: ids and names are what a task's messages are about."""
    failure = failure_of(ValueError("no customer c-17"), payload='{"customer": "c-17"}')

    assert failure.message == "no customer c-17"


def test_a_secret_is_known_by_the_name_of_its_field_wherever_it_lies() -> None:
    payload = {"login": {"Password": ["s3cr"], "user": "bob"}, "api_key": 'a"b\n', "pin": "0000"}

    found = known_secrets(json.dumps(payload), {})

    assert found == sorted({"s3cr", 'a"b\n', 'a\\"b\\n', 'a"b\\n'}, key=lambda x: (-len(x), x))


def test_a_secret_is_known_by_the_name_of_its_variable() -> None:
    environ = {
        "DB_PASSWORD": "correct horse",
        "AWS_SESSION_TOKEN": "IQoJb3JpZ2lu",
        "PWD": "/var/task/of/mine",
        "TOKEN_MODE": "short",
        "HOME": "/home/somebody",
    }

    assert known_secrets("null", environ) == ["correct horse", "IQoJb3JpZ2lu"]


@pytest.mark.parametrize("payload", ["", "{", "[" * 100_000, '"\\ud800"', "1e999"])
def test_no_payload_keeps_an_error_from_being_told(payload: str) -> None:
    assert failure_of(ValueError("told"), payload=payload).message == "told"
