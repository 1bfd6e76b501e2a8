"""The adapters on moto, through clients that can be made to fail; time is virtual."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import boto3
import pytest
from moto import mock_aws

from lamplighter.aws.control import DynamoControl
from lamplighter.aws.dynamo import Dynamo
from lamplighter.aws.executions import DynamoExecutions
from lamplighter.aws.jobs import DynamoJobs
from lamplighter.aws.patience import Fan, Patience
from lamplighter.aws.queue import SqsQueue
from lamplighter.memory import SeededChance, VirtualClock
from tests.support.faulty import Faulty
from tests.support.rows import T
from tests.support.tables import TableNames, create_tables

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_sqs import SQSClient


@dataclass(frozen=True, kw_only=True)
class Clients:
    dynamodb: "DynamoDBClient"
    unmetered: "DynamoDBClient"
    sqs: "SQSClient"


@dataclass(frozen=True, kw_only=True)
class Bench:
    """The stores and the queue, and the clients underneath."""

    executions: DynamoExecutions
    jobs: DynamoJobs
    control: DynamoControl
    queue: SqsQueue
    clock: VirtualClock
    dynamodb: Faulty
    sqs: Faulty
    clients: Clients
    tables: TableNames
    lanes: dict[str, str]
    work_url: str

    def bodies(self, url: str) -> list[str]:
        """What is visible in a queue; it is then hidden."""
        found: list[str] = []
        while messages := self.clients.sqs.receive_message(
            QueueUrl=url, MaxNumberOfMessages=10
        ).get("Messages"):
            found += (message["Body"] for message in messages)
        return found


@pytest.fixture(scope="package")
def clients() -> Iterator[Clients]:
    with mock_aws():
        session = boto3.Session(region_name="us-east-1")
        yield Clients(
            dynamodb=session.client("dynamodb"),
            unmetered=session.client("dynamodb"),
            sqs=session.client("sqs"),
        )


@pytest.fixture
def bench(clients: Clients) -> Iterator[Bench]:
    tables = create_tables(clients.unmetered, "bench")
    urls = {
        name: clients.sqs.create_queue(QueueName=name)["QueueUrl"]
        for name in ("default", "critical", "work")
    }
    clock, fan = VirtualClock(T), Fan(8)
    patience = Patience(clock=clock, chance=SeededChance())
    dynamodb, sqs = Faulty(clients.dynamodb), Faulty(clients.sqs)
    dynamo = Dynamo(cast("DynamoDBClient", dynamodb), patience=patience, fan=fan)
    lanes = {name: urls[name] for name in ("default", "critical")}
    yield Bench(
        executions=DynamoExecutions(dynamo, table=tables.executions, jobs_table=tables.jobs),
        jobs=DynamoJobs(dynamo, table=tables.jobs, executions_table=tables.executions),
        control=DynamoControl(dynamo, table=tables.control, clock=clock),
        queue=SqsQueue(
            cast("SQSClient", sqs),
            lanes={lane: (url,) for lane, url in lanes.items()},
            work_url=urls["work"],
            clock=clock,
            patience=patience,
            fan=fan,
        ),
        clock=clock,
        dynamodb=dynamodb,
        sqs=sqs,
        clients=clients,
        tables=tables,
        lanes=lanes,
        work_url=urls["work"],
    )
    fan.close()
    tables.delete(clients.unmetered)
    for url in urls.values():
        clients.sqs.delete_queue(QueueUrl=url)
