"""The implementations under test: each a world of ports, and what only a test can see of it."""

import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any, Protocol

import boto3
import requests

from lamplighter.aws import items
from lamplighter.aws.offset import DynamoClockOffset
from lamplighter.aws.payloads import S3_CONFIG
from lamplighter.aws.queue import received_from, work_of
from lamplighter.aws.settings import SchedulerSettings
from lamplighter.aws.wiring import CLIENT_CONFIG, wire_to
from lamplighter.core.buckets import ExecutionId, JobId, job_key
from lamplighter.core.errors import Damaged, Rejected
from lamplighter.core.lease import WorkItem
from lamplighter.core.model import Message
from lamplighter.memory import MemoryPayloads, MemoryWorld
from lamplighter.ports import (
    Clock,
    Control,
    Executions,
    Jobs,
    Ledger,
    Payloads,
    Ports,
    Queue,
    Received,
    Upload,
)
from tests.contract.unused import Unused
from tests.support.buckets import create_bucket, delete_bucket
from tests.support.own_table import DynamoOwnTable, MemoryOwnTable, OwnTable
from tests.support.rows import OWNER
from tests.support.tables import TABLES, TableNames, create_table

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sqs import SQSClient

LANES = ("default", "critical")


@dataclass(frozen=True, kw_only=True)
class Uploaded:
    """The answer to an upload."""

    status: int
    version_id: str | None


class Bucket(Protocol):
    """What whoever owns the bucket may do with it."""

    def put(self, key: str, content: bytes) -> str:
        """Make a version, without a digest."""
        ...

    def delete(self, key: str, version_id: str | None = None) -> None:
        """Delete an object, whose versions stay; or one of them, for good."""
        ...


@dataclass(frozen=True, kw_only=True)
class World:
    """Ports on one backend; nothing else is in its tables and queues."""

    ports: Ports
    receive: Callable[[str], Sequence[Received]]
    """What is visible in a lane now; it is then hidden for 900 s."""
    handed_out: Callable[[], Sequence[WorkItem]]
    pass_time: Callable[[timedelta], None]
    upload: Callable[[Upload, bytes], Uploaded]
    """What a caller meets who does as they were told, with these bytes."""
    bucket: Bucket
    own: OwnTable
    redrive: Callable[[str, int], Callable[[], Sequence[Message]]]
    """Have what is received from a lane more often than this set aside; what it returns tells
    what was."""
    damage: Callable[[ExecutionId | JobId], Callable[[], None]]
    """Make an execution's row or a job's definition unreadable; what it returns mends it."""

    @property
    def ledger(self) -> Ledger:
        return self.ports.ledger

    @property
    def payloads(self) -> Payloads:
        return self.ports.payloads

    @property
    def executions(self) -> Executions:
        return self.ports.executions

    @property
    def jobs(self) -> Jobs:
        return self.ports.jobs

    @property
    def control(self) -> Control:
        return self.ports.control

    @property
    def queue(self) -> Queue:
        return self.ports.queue

    @property
    def clock(self) -> Clock:
        return self.ports.clock


def memory() -> World:
    world = MemoryWorld()
    own = MemoryOwnTable()
    world.own.take = own.take
    return World(
        ports=world.ports(),
        receive=world.queue.receive,
        handed_out=world.queue.take_work,
        pass_time=world.pass_time,
        upload=partial(_to_memory, world.payloads),
        bucket=_InMemory(world.payloads),
        own=own,
        redrive=partial(_redrive_in_memory, world),
        damage=partial(_damage_in_memory, world),
    )


def _redrive_in_memory(world: MemoryWorld, lane: str, most: int) -> Callable[[], Sequence[Message]]:
    world.queue.max_receives = most
    return lambda: [one.message for one in world.queue.dead if one.queue == lane]


def _damage_in_memory(world: MemoryWorld, id: ExecutionId | JobId) -> Callable[[], None]:
    kind = "execution" if id in world.tables.executions else "job"
    world.tables.damaged[id] = Damaged(kind=kind, id=id, attribute=items.STATE, owner=OWNER)
    return world.tables.damaged.clear


def _to_memory(payloads: MemoryPayloads, upload: Upload, content: bytes) -> Uploaded:
    try:
        version_id = payloads.upload(upload.url, upload.headers, content)
    except Rejected as refusal:
        return Uploaded(status=int(str(refusal.value)), version_id=None)
    return Uploaded(status=200, version_id=version_id)


@dataclass(frozen=True)
class _InMemory:
    payloads: MemoryPayloads

    def put(self, key: str, content: bytes) -> str:
        return self.payloads.put(key, content, has_digest=False)

    def delete(self, key: str, version_id: str | None = None) -> None:
        self.payloads.delete(key, version_id)


@dataclass(frozen=True, kw_only=True)
class Clients:
    """botocore clients of one emulator, made once: each takes a tenth of a second."""

    dynamodb: "DynamoDBClient"
    sqs: "SQSClient"
    s3: "S3Client"
    unused: Unused = field(default_factory=Unused)

    @classmethod
    def of(cls, endpoint_url: str | None = None) -> "Clients":
        """Of moto, or of the emulator that answers at an address."""
        session = _session()
        return cls(
            dynamodb=session.client("dynamodb", config=CLIENT_CONFIG, endpoint_url=endpoint_url),
            sqs=session.client("sqs", config=CLIENT_CONFIG, endpoint_url=endpoint_url),
            s3=session.client(
                "s3", config=CLIENT_CONFIG.merge(S3_CONFIG), endpoint_url=endpoint_url
            ),
        )


@cache
def _session() -> boto3.Session:
    """One for all clients: each session reads the services' descriptions anew."""
    return boto3.Session(
        aws_access_key_id="test", aws_secret_access_key="test", region_name="us-east-1"
    )


@contextmanager
def aws(clients: Clients) -> Iterator[World]:
    """Ports on empty tables and queues."""
    prefix = uuid.uuid4().hex[:12]
    dynamodb, sqs, unused = clients.dynamodb, clients.sqs, clients.unused
    tables = {kind: partial(create_table, dynamodb, prefix) for kind in TABLES}
    queues = {lane: partial(_queue, sqs, prefix) for lane in (*LANES, "work")}
    with (
        unused.some(tables, delete=partial(_delete_table, dynamodb), client=dynamodb) as names,
        unused.some(queues, delete=partial(_delete_queue, sqs), client=sqs) as urls,
    ):
        bucket = _OnS3(clients.s3, f"{prefix}-payloads")
        own = DynamoOwnTable(dynamodb, f"{prefix}-own")
        extra: list[str] = []
        world = _on(clients, TableNames(**names), urls, bucket, own, extra)
        try:
            yield world
        finally:
            _stop_listening(clients, world.ports)
            own.delete()
            bucket.delete_all()
            for url in extra:
                _delete_queue(sqs, url)


def _stop_listening(clients: Clients, ports: Ports) -> None:
    """Without this every request is heard by all the worlds before: the last ones take forever."""
    offset = ports.clock_offset
    assert isinstance(offset, DynamoClockOffset)
    events = clients.dynamodb.meta.events
    events.unregister("before-send.dynamodb", offset._on_send)
    events.unregister("response-received.dynamodb", offset._on_answer)


def _on(
    clients: Clients,
    names: TableNames,
    urls: Mapping[str, str],
    bucket: "_OnS3",
    own: OwnTable,
    extra: list[str],
) -> World:
    wired = wire_to(
        SchedulerSettings(
            stage="test",
            executions_table=names.executions,
            jobs_table=names.jobs,
            control_table=names.control,
            payloads_bucket=bucket.planned,
            queues={lane: (urls[lane],) for lane in LANES},
            work_queue_url=urls["work"],
            log_sample_rate=1.0,
        ),
        dynamodb=clients.dynamodb,
        sqs=clients.sqs,
        s3=lambda: bucket.made,
    )
    return World(
        ports=wired.ports,
        receive=lambda lane: [
            received_from(record, queue=lane) for record in _receive(clients.sqs, urls[lane])
        ],
        handed_out=lambda: [
            work_of(record["body"]) for record in _receive(clients.sqs, urls["work"])
        ],
        pass_time=lambda duration: time.sleep(duration.total_seconds()),
        upload=_send,
        bucket=bucket,
        own=own,
        redrive=partial(_redrive, clients.sqs, urls, extra),
        damage=partial(_damage, clients.dynamodb, names),
    )


def _redrive(
    client: "SQSClient", urls: Mapping[str, str], extra: list[str], lane: str, most: int
) -> Callable[[], Sequence[Message]]:
    dead = client.create_queue(QueueName=f"{uuid.uuid4().hex[:12]}-dead")["QueueUrl"]
    extra.append(dead)
    arn = client.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]
    policy = {"deadLetterTargetArn": arn["QueueArn"], "maxReceiveCount": most}
    client.set_queue_attributes(
        QueueUrl=urls[lane], Attributes={"RedrivePolicy": json.dumps(policy)}
    )
    return lambda: [
        received_from(record, queue="dead").message for record in _receive(client, dead)
    ]


def _damage(
    client: "DynamoDBClient", names: TableNames, id: ExecutionId | JobId
) -> Callable[[], None]:
    """A state is a word: here it is a number."""
    is_execution = id.startswith("ex_")
    key = items.execution_key(ExecutionId(id)) if is_execution else job_key(JobId(id))
    found = client.update_item(
        TableName=names.executions if is_execution else names.jobs,
        Key=items.marshal(items.key_values(key)),
        UpdateExpression="SET #st = :one",
        ExpressionAttributeNames={"#st": items.STATE},
        ExpressionAttributeValues={":one": {"N": "1"}},
        ReturnValues="UPDATED_OLD",
    )["Attributes"]

    def mend() -> None:
        client.update_item(
            TableName=names.executions if is_execution else names.jobs,
            Key=items.marshal(items.key_values(key)),
            UpdateExpression="SET #st = :was",
            ExpressionAttributeNames={"#st": items.STATE},
            ExpressionAttributeValues={":was": found[items.STATE]},
        )

    return mend


def _send(upload: Upload, content: bytes) -> Uploaded:
    # moto keeps a digest only if it is told so twice. S3 refuses any header that it knows and
    # that was not signed, and so does the other emulator.
    twice = {"x-amz-sdk-checksum-algorithm": "SHA256"} if ".amazonaws.com" in upload.url else {}
    answer = requests.request(
        upload.method, upload.url, headers={**upload.headers, **twice}, data=content, timeout=10
    )
    return Uploaded(status=answer.status_code, version_id=answer.headers.get("x-amz-version-id"))


@dataclass(frozen=True)
class _OnS3:
    """Made when it is first used: most tests never do."""

    client: "S3Client"
    planned: str

    @cached_property
    def made(self) -> "S3Client":
        create_bucket(self.client, self.planned)
        return self.client

    def put(self, key: str, content: bytes) -> str:
        return self.made.put_object(Bucket=self.planned, Key=key, Body=content)["VersionId"]

    def delete(self, key: str, version_id: str | None = None) -> None:
        if version_id is None:
            self.made.delete_object(Bucket=self.planned, Key=key)
        else:
            self.made.delete_object(Bucket=self.planned, Key=key, VersionId=version_id)

    def delete_all(self) -> None:
        if "made" in vars(self):
            delete_bucket(self.client, self.planned)


def _queue(client: "SQSClient", prefix: str, lane: str) -> str:
    made = client.create_queue(
        QueueName=f"{prefix}-{lane}", Attributes={"VisibilityTimeout": "900"}
    )
    return made["QueueUrl"]


def _delete_queue(client: "SQSClient", url: str) -> None:
    client.delete_queue(QueueUrl=url)


def _delete_table(client: "DynamoDBClient", name: str) -> None:
    client.delete_table(TableName=name)


def _receive(client: "SQSClient", url: str) -> list[dict[str, Any]]:
    """Records as an event source mapping hands them to a function."""
    records: list[dict[str, Any]] = []
    while messages := client.receive_message(
        QueueUrl=url, MaxNumberOfMessages=10, AttributeNames=["ApproximateReceiveCount"]
    ).get("Messages"):
        records += (
            {
                "body": message["Body"],
                "receiptHandle": message["ReceiptHandle"],
                "attributes": message["Attributes"],
            }
            for message in messages
        )
    return records
