"""Named targets: what is delivered arrives as it is, and what is not there is told as refused."""

import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import boto3
import pytest

from lamplighter.aws.targets import AwsTargets, Client
from lamplighter.core.buckets import JobId, one_off_job_id
from lamplighter.core.named import (
    Accepted,
    Answer,
    Entry,
    Invocation,
    TargetKind,
    TurnedDown,
    kind_of,
)
from lamplighter.core.retry import Kind
from lamplighter.memory import Counts
from lamplighter.memory.targets import MemoryTargets
from lamplighter.tasks.named import Delivery, Targets
from tests.contract.conftest import LOCAL
from tests.support.rows import id_at

KINDS = (TargetKind.SQS, TargetKind.SNS)
KEY = id_at(datetime(2026, 7, 12, 2, tzinfo=UTC))
PAYLOAD = '{"customer":"c-1","n":1.50,"text":"Grüße ✓ <&> \\\\n"}'


@dataclass(frozen=True, kw_only=True)
class Yard:
    """Targets, the names of places that are there, and what has arrived at them."""

    targets: Targets
    at: Mapping[TargetKind, str]
    arrived: Callable[[TargetKind], Sequence[tuple[str, Mapping[str, str]]]]
    """Payloads, each with what came beside it."""
    gone: Callable[[TargetKind], str]
    """Where there is nothing any more."""


def in_memory() -> Yard:
    targets = MemoryTargets()

    def arrived(kind: TargetKind) -> Sequence[tuple[str, Mapping[str, str]]]:
        there = [one for one in targets.deliveries if one.entry.kind is kind]
        return [(one.payload, one.about) for one in there]

    def gone(kind: TargetKind) -> str:
        targets.answer("it", TurnedDown(code="NotFound", status=404))
        return f"{kind} is gone"

    at = {kind: kind.value for kind in KINDS}
    return Yard(targets=targets, at=at, arrived=arrived, gone=gone)


@contextmanager
def on_aws(endpoint_url: str | None) -> Iterator[Yard]:
    session = boto3.Session(
        aws_access_key_id="test", aws_secret_access_key="test", region_name="us-east-1"
    )
    sqs = session.client("sqs", endpoint_url=endpoint_url)
    sns = session.client("sns", endpoint_url=endpoint_url)
    prefix = uuid.uuid4().hex[:12]
    urls = {kind: sqs.create_queue(QueueName=f"{prefix}-{kind}")["QueueUrl"] for kind in KINDS}
    topic = sns.create_topic(Name=f"{prefix}-topic")["TopicArn"]
    of_topic = sqs.get_queue_attributes(QueueUrl=urls[TargetKind.SNS], AttributeNames=["QueueArn"])
    sns.subscribe(
        TopicArn=topic,
        Protocol="sqs",
        Endpoint=of_topic["Attributes"]["QueueArn"],
        Attributes={"RawMessageDelivery": "true"},
    )

    def arrived(kind: TargetKind) -> Sequence[tuple[str, Mapping[str, str]]]:
        found = sqs.receive_message(
            QueueUrl=urls[kind], MaxNumberOfMessages=10, MessageAttributeNames=["All"]
        )
        return [
            (
                message["Body"],
                {
                    name: value["StringValue"]
                    for name, value in message.get("MessageAttributes", {}).items()
                },
            )
            for message in found.get("Messages", [])
        ]

    def connect(service: str, _read_timeout_s: float) -> Client:
        made: Any = session.client(cast("Any", service), endpoint_url=endpoint_url)
        return cast("Client", made)

    gone = {TargetKind.SQS: f"{urls[TargetKind.SQS]}-gone", TargetKind.SNS: f"{topic}-gone"}
    yield Yard(
        targets=AwsTargets(telemetry=Counts(), connect=connect),
        at={TargetKind.SQS: urls[TargetKind.SQS], TargetKind.SNS: topic},
        arrived=arrived,
        gone=gone.__getitem__,
    )
    sns.delete_topic(TopicArn=topic)
    for url in urls.values():
        sqs.delete_queue(QueueUrl=url)


@pytest.fixture(params=["memory", "moto", *LOCAL])
def yard(request: pytest.FixtureRequest) -> Iterator[Yard]:
    if request.param == "memory":
        yield in_memory()
        return
    clients = request.getfixturevalue(f"{request.param}_clients")
    is_local = request.param == "ministack"
    with on_aws(clients.sqs.meta.endpoint_url if is_local else None) as made:
        yield made


def delivered(yard: Yard, kind: TargetKind, at: str, payload: str = PAYLOAD) -> Answer:
    entry = Entry(name="it", kind=kind, owners=frozenset({"acme"}), at=at)
    return yard.targets.deliver(
        Delivery(
            entry=entry,
            invocation=Invocation.REQUEST,
            payload=payload,
            execution_id=KEY,
            job_id=JobId(one_off_job_id(KEY)),
            attempt=2,
            scheduled_for=datetime(2026, 7, 12, 2, tzinfo=UTC),
            idempotency_key=KEY,
            within=timedelta(seconds=10),
        )
    )


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_delivered_arrives_as_it_is_with_whose_it_is_beside_it(
    yard: Yard, kind: TargetKind
) -> None:
    answer = delivered(yard, kind, yard.at[kind])

    assert isinstance(answer, Accepted)
    ((payload, about),) = yard.arrived(kind)
    assert payload == PAYLOAD
    assert json.loads(payload)["text"] == json.loads(PAYLOAD)["text"]
    assert {about["execution_id"], about["idempotency_key"]} == {KEY}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_delivered_twice_may_arrive_twice_and_says_that_it_is_the_same(
    yard: Yard, kind: TargetKind
) -> None:
    for _ in range(2):
        assert isinstance(delivered(yard, kind, yard.at[kind]), Accepted)

    assert {about["idempotency_key"] for _, about in yard.arrived(kind)} == {KEY}


@pytest.mark.parametrize("kind", KINDS)
def test_a_target_that_is_not_there_any_more_fails_for_good(yard: Yard, kind: TargetKind) -> None:
    answer = delivered(yard, kind, yard.gone(kind))

    assert isinstance(answer, TurnedDown)
    assert kind_of(answer) is Kind.PERMANENT
