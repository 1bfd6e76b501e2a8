"""Functions as Lambda runs them: their environment, their events, the time they have."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

from lamplighter.aws.settings import SchedulerSettings
from lamplighter.aws.wiring import Wired, wire_to
from lamplighter.core.buckets import ExecutionId
from lamplighter.core.model import Execution, Payload, Spec
from lamplighter.ports import Ports
from lamplighter.services.submit import NewJob
from tests.support.buckets import create_bucket
from tests.support.jobs import OWNER, created
from tests.support.tables import TableNames, create_tables

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sqs import SQSClient

LANES = ("default", "bulk")
Record = dict[str, Any]
Event = dict[str, list[Record]]


@dataclass(frozen=True, kw_only=True)
class Context:
    """What a handler asks Lambda's context for."""

    aws_request_id: str = "request-1"
    time_left_ms: int = 900_000

    def get_remaining_time_in_millis(self) -> int:
        return self.time_left_ms


class Function(Protocol):
    """A module `handler`."""

    wired: Wired

    def handle(self, event: Mapping[str, object], context: Context) -> object: ...


class OnMemory(Protocol):
    """Puts a function onto ports in memory for the rest of a test."""

    def __call__(self, function: Function, ports: Ports | None = None) -> Function: ...


@dataclass(frozen=True, kw_only=True)
class Deployed:
    """Tables, queues and a bucket, and what each function's environment says about them."""

    dynamodb: "DynamoDBClient"
    sqs: "SQSClient"
    s3: "S3Client"
    bucket: str
    tables: TableNames
    urls: Mapping[str, str]
    """By lane, and `work`."""

    @classmethod
    def on(cls, dynamodb: "DynamoDBClient", sqs: "SQSClient", s3: "S3Client") -> "Deployed":
        return cls(
            dynamodb=dynamodb,
            sqs=sqs,
            s3=s3,
            bucket=create_bucket(s3, "payloads"),
            tables=create_tables(dynamodb, "functions"),
            urls={name: _made(sqs, name) for name in (*LANES, "work")},
        )

    @property
    def environment(self) -> Mapping[str, str]:
        """What the template tells the functions, all of it."""
        return {
            "LAMPLIGHTER_STAGE": "test",
            "LAMPLIGHTER_EXECUTIONS_TABLE": self.tables.executions,
            "LAMPLIGHTER_JOBS_TABLE": self.tables.jobs,
            "LAMPLIGHTER_CONTROL_TABLE": self.tables.control,
            "LAMPLIGHTER_PAYLOADS_BUCKET": self.bucket,
            "LAMPLIGHTER_QUEUES": json.dumps({lane: self.urls[lane] for lane in LANES}),
            "LAMPLIGHTER_WORK_QUEUE_URL": self.urls["work"],
            "LAMPLIGHTER_LANE": "default",
            "LAMPLIGHTER_TASKS": "playground.tasks",
        }

    def ports(self) -> Ports:
        """All of them, as the API has them."""
        settings = replace(SchedulerSettings.of(self.environment), payloads_bucket=self.bucket)
        return wire_to(settings, dynamodb=self.dynamodb, sqs=self.sqs, s3=lambda: self.s3).ports

    def submit(
        self,
        task: str,
        payload: str = "null",
        *,
        timeout: timedelta = timedelta(seconds=60),
        in_seconds: float = 0,
    ) -> ExecutionId:
        """A job that is due then."""
        ports = self.ports()
        new = NewJob(
            owner=OWNER,
            spec=Spec(task=task, payload=Payload.of(payload), timeout=timeout),
            run_at=ports.clock.now() + timedelta(seconds=in_seconds),
        )
        return created(ports, new).first.id

    def row(self, id: ExecutionId) -> Execution:
        found = self.ports().executions.get(id)
        assert found is not None
        return found

    def receive(self, queue: str) -> Event:
        """A batch of what is visible, as an event source mapping hands it over."""
        messages = self.sqs.receive_message(
            QueueUrl=self.urls[queue],
            MaxNumberOfMessages=10,
            AttributeNames=["ApproximateReceiveCount"],
        ).get("Messages", [])
        return batch(
            record(
                message["Body"],
                id=message["MessageId"],
                receipt=message["ReceiptHandle"],
                receive_count=message["Attributes"]["ApproximateReceiveCount"],
            )
            for message in messages
        )

    def messages(self, queue: str) -> Mapping[str, int]:
        """How many are visible, in somebody's hands, and delayed."""
        names = {
            "visible": "ApproximateNumberOfMessages",
            "hidden": "ApproximateNumberOfMessagesNotVisible",
            "delayed": "ApproximateNumberOfMessagesDelayed",
        }
        found = self.sqs.get_queue_attributes(QueueUrl=self.urls[queue], AttributeNames=["All"])
        attributes: Mapping[str, str] = dict(found["Attributes"].items())
        return {name: int(attributes[of]) for name, of in names.items()}

    def empty(self) -> None:
        """Lose every message."""
        for name, url in self.urls.items():
            # A purge is refused for a minute after another.
            self.sqs.delete_queue(QueueUrl=url)
            _made(self.sqs, name)


def _made(sqs: "SQSClient", name: str) -> str:
    return sqs.create_queue(QueueName=name, Attributes={"VisibilityTimeout": "900"})["QueueUrl"]


def record(
    body: str, *, id: str = "message-1", receipt: str = "receipt-1", receive_count: str = "1"
) -> Record:
    """One message of a batch, with all the keys that Lambda gives it."""
    return {
        "messageId": id,
        "receiptHandle": receipt,
        "body": body,
        "attributes": {
            "ApproximateReceiveCount": receive_count,
            "SentTimestamp": "1767225600000",
            "SenderId": "AIDAEXAMPLE",
            "ApproximateFirstReceiveTimestamp": "1767225600001",
        },
        "messageAttributes": {},
        "md5OfBody": "0" * 32,
        "eventSource": "aws:sqs",
        "eventSourceARN": "arn:aws:sqs:eu-central-1:123456789012:lane",
        "awsRegion": "eu-central-1",
    }


def batch(records: Iterable[Record]) -> Event:
    return {"Records": [*records]}


def ids_of(event: Event) -> Sequence[str]:
    return [one["messageId"] for one in event["Records"]]


def kept(*ids: str) -> object:
    """The answer that keeps these messages, exactly."""
    return {"batchItemFailures": [{"itemIdentifier": id} for id in ids]}
