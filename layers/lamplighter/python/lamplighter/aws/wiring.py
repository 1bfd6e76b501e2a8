"""The composition root on AWS: the only place that knows all the adapters.

Called once for each execution environment; clients, threads and connections are then shared
by every invocation.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn, cast

import boto3
from botocore.config import Config

from lamplighter.aws.clock import SystemChance, SystemClock
from lamplighter.aws.control import DynamoControl
from lamplighter.aws.dynamo import Dynamo
from lamplighter.aws.executions import DynamoExecutions
from lamplighter.aws.jobs import DynamoJobs
from lamplighter.aws.patience import Fan, Patience
from lamplighter.aws.payloads import S3_CONFIG, S3Payloads
from lamplighter.aws.queue import SqsQueue
from lamplighter.aws.settings import Settings
from lamplighter.aws.tally import DynamoTally
from lamplighter.aws.telemetry import LambdaTelemetry
from lamplighter.ports import Control, Jobs, Payloads, Ports, Tally

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sqs import SQSClient

# Independent calls of one invocation at once; together with a batch's own threads.
THREADS: Final = 16
CLIENT_CONFIG: Final = Config(
    # More than the fan and a batch of ten, each with a beat under way: nobody waits for one.
    max_pool_connections=2 * THREADS,
    tcp_keepalive=True,
    # A call that hangs is given up three times before a beat is missed.
    connect_timeout=1,
    read_timeout=3,
    retries={"mode": "standard", "total_max_attempts": 3},
)


@dataclass(frozen=True, kw_only=True)
class Wired:
    """The ports, and the telemetry that has to be flushed at the end of an invocation."""

    ports: Ports
    telemetry: LambdaTelemetry


class _Absent:
    """A port whose table or bucket this function is not told: to use it is a bug, and says so."""

    def __init__(self, name: str, what: str = "table") -> None:
        self._name = name
        self._what = what

    def __getattr__(self, method: str) -> NoReturn:
        raise LookupError(f"{self._name}.{method}: this function is not given that {self._what}")


def wire(settings: Settings) -> Wired:
    """All the ports that the settings allow for."""
    dynamodb: DynamoDBClient = boto3.client("dynamodb", config=CLIENT_CONFIG)
    sqs: SQSClient = boto3.client("sqs", config=CLIENT_CONFIG)
    return wire_to(settings, dynamodb=dynamodb, sqs=sqs)


def wire_to(
    settings: Settings,
    *,
    dynamodb: "DynamoDBClient",
    sqs: "SQSClient",
    s3: Callable[[], "S3Client"] | None = None,
) -> Wired:
    """As `wire`, on clients made elsewhere; that of S3 when it is first needed."""
    clock, chance, fan = SystemClock(), SystemChance(), Fan(THREADS)
    patience = Patience(clock=clock, chance=chance)
    dynamo = Dynamo(dynamodb, patience=patience, fan=fan)
    telemetry = LambdaTelemetry(sample_rate=settings.log_sample_rate)
    ports = Ports(
        clock=clock,
        chance=chance,
        executions=DynamoExecutions(
            dynamo, table=settings.executions_table, jobs_table=settings.jobs_table
        ),
        jobs=_jobs(dynamo, settings),
        tally=_tally(dynamo, settings),
        control=_control(dynamo, settings, clock),
        payloads=_payloads(s3, settings, clock),
        queue=SqsQueue(
            sqs,
            lanes=settings.queues,
            work_url=settings.work_queue_url,
            clock=clock,
            patience=patience,
            fan=fan,
        ),
        telemetry=telemetry,
        shards=settings.shards,
        partitions=settings.partitions,
        quotas=settings.quotas,
    )
    return Wired(ports=ports, telemetry=telemetry)


def s3_client() -> "S3Client":
    """A client of S3: of the few functions and jobs that need one, each makes it once."""
    return boto3.client("s3", config=CLIENT_CONFIG.merge(S3_CONFIG))


def _payloads(
    connect: Callable[[], "S3Client"] | None, settings: Settings, clock: SystemClock
) -> Payloads:
    if settings.payloads_bucket is None:
        return cast("Payloads", _Absent("payloads", "bucket"))
    return S3Payloads(connect or s3_client, bucket=settings.payloads_bucket, clock=clock)


def _jobs(dynamo: Dynamo, settings: Settings) -> Jobs:
    if settings.jobs_table is None:
        return cast("Jobs", _Absent("jobs"))
    return DynamoJobs(dynamo, table=settings.jobs_table, executions_table=settings.executions_table)


def _tally(dynamo: Dynamo, settings: Settings) -> Tally:
    if settings.jobs_table is None:
        return cast("Tally", _Absent("tally"))
    return DynamoTally(
        dynamo, table=settings.jobs_table, executions_table=settings.executions_table
    )


def _control(dynamo: Dynamo, settings: Settings, clock: SystemClock) -> Control:
    if settings.control_table is None:
        return cast("Control", _Absent("control"))
    return DynamoControl(dynamo, table=settings.control_table, clock=clock)
