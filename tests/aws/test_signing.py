"""The keys that requests are signed with: read once, anew when they are rotated, never shown."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from moto import mock_aws

from lamplighter.aws.settings import WorkerSettings
from lamplighter.aws.signing import SecretKeys
from lamplighter.aws.telemetry import LambdaTelemetry
from lamplighter.aws.wiring import Wired
from lamplighter.aws.worker import _keys
from lamplighter.core.errors import Unavailable
from lamplighter.core.webhooks import parse_keys
from lamplighter.memory import MemoryWorld

OLD, NEW = f"whsec_{'b2xk' * 8}", f"whsec_{'bmV3' * 8}"
DENIED = ClientError(
    {"Error": {"Code": "AccessDeniedException", "Message": "arn:aws:iam::123456789012:role/x"}},
    "GetSecretValue",
)


@dataclass
class Secrets:
    """Secrets Manager with one secret: its text, or what asking for it raises."""

    answer: str | Exception
    asked: list[str] = field(default_factory=list)

    def get_secret_value(self, *, SecretId: str) -> Mapping[str, Any]:  # noqa: N803 -- AWS's
        self.asked.append(SecretId)
        if isinstance(self.answer, Exception):
            raise self.answer
        return {"SecretString": self.answer}


@pytest.fixture
def world() -> MemoryWorld:
    return MemoryWorld()


def keys(world: MemoryWorld, secrets: Secrets) -> SecretKeys:
    return SecretKeys(lambda: secrets, arn="arn:x", clock=world.clock, telemetry=world.counts)


def test_the_secret_is_read_when_it_is_needed_and_then_kept(world: MemoryWorld) -> None:
    secrets = Secrets(f"{OLD}\n{NEW}")
    read = keys(world, secrets)
    assert secrets.asked == []

    assert (read(), read()) == (parse_keys(f"{OLD} {NEW}"), parse_keys(f"{OLD} {NEW}"))

    assert secrets.asked == ["arn:x"]


def test_a_rotated_key_is_known_after_five_minutes(world: MemoryWorld) -> None:
    secrets = Secrets(OLD)
    read = keys(world, secrets)
    read()
    secrets.answer = f"{NEW} {OLD}"

    world.pass_time(timedelta(seconds=299))
    assert read() == parse_keys(OLD)
    world.pass_time(timedelta(seconds=1))
    assert read() == parse_keys(f"{NEW} {OLD}")


@pytest.mark.parametrize(
    "answer",
    [DENIED, EndpointConnectionError(endpoint_url="https://x.invalid"), "", "hunter2", f"{OLD} x"],
    ids=["denied", "no answer", "empty", "no key", "half a secret"],
)
def test_a_secret_that_cannot_be_read_is_told_to_the_operator_alone(
    world: MemoryWorld, answer: str | Exception
) -> None:
    read = keys(world, Secrets(answer))

    with pytest.raises(Unavailable) as raised:
        read()

    assert str(raised.value) == "the keys to sign with cannot be read"
    assert [name for name in world.counts.events if name.startswith("broke ")]


def test_keys_that_cannot_be_read_anew_are_used_on_and_asked_for_again_soon(
    world: MemoryWorld,
) -> None:
    secrets = Secrets(OLD)
    read = keys(world, secrets)
    read()
    secrets.answer = DENIED
    world.pass_time(timedelta(minutes=5))

    assert (read(), read()) == (parse_keys(OLD), parse_keys(OLD))
    assert len(secrets.asked) == 2

    secrets.answer = NEW
    world.pass_time(timedelta(seconds=30))
    assert read() == parse_keys(NEW)


@pytest.fixture
def secret(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    with mock_aws():
        made = boto3.client("secretsmanager").create_secret(Name="signing", SecretString=OLD)
        yield made["ARN"]


def settings(secret: str | None) -> WorkerSettings:
    return WorkerSettings(
        stage="test",
        executions_table="executions",
        jobs_table="jobs",
        queues={"default": ("https://sqs.example/default",)},
        lane="default",
        tasks="playground.tasks",
        log_sample_rate=1.0,
        shell_owners=frozenset(),
        signing_secret=secret,
    )


def test_a_worker_reads_the_secret_that_its_settings_name(world: MemoryWorld, secret: str) -> None:
    wired = Wired(ports=world.ports(), telemetry=LambdaTelemetry(sample_rate=1.0))

    assert _keys(wired, settings(secret))() == parse_keys(OLD)
    assert _keys(wired, settings(None))() == ()
