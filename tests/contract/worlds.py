"""The implementations under test: each a world of ports, and what only a test can see of it."""

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import boto3

from lamplighter.aws.queue import received_from, work_of
from lamplighter.aws.settings import SchedulerSettings
from lamplighter.aws.wiring import CLIENT_CONFIG, wire_to
from lamplighter.core.lease import Work
from lamplighter.memory import MemoryWorld
from lamplighter.ports import Clock, Control, Executions, Jobs, Ports, Queue, Received
from tests.support.tables import TableNames, create_tables

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_sqs import SQSClient

LANES = ("default", "critical")


@dataclass(frozen=True, kw_only=True)
class World:
    """Ports on one backend; nothing else is in its tables and queues."""

    ports: Ports
    receive: Callable[[str], Sequence[Received]]
    """What is visible in a lane now; it is then hidden for 900 s."""
    handed_out: Callable[[], Sequence[Work]]
    pass_time: Callable[[timedelta], None]

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
    return World(
        ports=world.ports(),
        receive=world.queue.receive,
        handed_out=lambda: [*world.queue.work],
        pass_time=world.pass_time,
    )


@dataclass(frozen=True, kw_only=True)
class Clients:
    """botocore clients of one emulator, made once: each takes a tenth of a second."""

    dynamodb: "DynamoDBClient"
    sqs: "SQSClient"

    @classmethod
    def of(cls, endpoint_url: str | None = None) -> "Clients":
        """Of moto, or of the emulator that answers at an address."""
        session = boto3.Session(
            aws_access_key_id="test", aws_secret_access_key="test", region_name="us-east-1"
        )
        return cls(
            dynamodb=session.client("dynamodb", config=CLIENT_CONFIG, endpoint_url=endpoint_url),
            sqs=session.client("sqs", config=CLIENT_CONFIG, endpoint_url=endpoint_url),
        )


@contextmanager
def aws(clients: Clients) -> Iterator[World]:
    """Ports on new tables and queues, deleted afterwards."""
    prefix = uuid.uuid4().hex[:12]
    names = create_tables(clients.dynamodb, prefix)
    urls = {lane: _queue(clients.sqs, f"{prefix}-{lane}") for lane in (*LANES, "work")}
    try:
        yield _on(clients, names, urls)
    finally:
        names.delete(clients.dynamodb)
        for url in urls.values():
            clients.sqs.delete_queue(QueueUrl=url)


def _on(clients: Clients, names: TableNames, urls: dict[str, str]) -> World:
    wired = wire_to(
        SchedulerSettings(
            stage="test",
            executions_table=names.executions,
            jobs_table=names.jobs,
            control_table=names.control,
            queues={lane: urls[lane] for lane in LANES},
            work_queue_url=urls["work"],
            log_sample_rate=1.0,
        ),
        dynamodb=clients.dynamodb,
        sqs=clients.sqs,
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
    )


def _queue(client: "SQSClient", name: str) -> str:
    made = client.create_queue(QueueName=name, Attributes={"VisibilityTimeout": "900"})
    return made["QueueUrl"]


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
