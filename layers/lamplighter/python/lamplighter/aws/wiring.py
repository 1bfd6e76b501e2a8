"""The composition root on AWS: the only place that knows all the adapters.

Called once for each execution environment; clients, threads and connections are then shared
by every invocation.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final, NoReturn, cast

import boto3
from botocore.config import Config

from lamplighter.aws.clock import SystemChance, SystemClock
from lamplighter.aws.control import DynamoControl
from lamplighter.aws.dynamo import Dynamo
from lamplighter.aws.executions import DynamoExecutions
from lamplighter.aws.jobs import DynamoJobs
from lamplighter.aws.ledger import DynamoLedger
from lamplighter.aws.notices import AwsNotices
from lamplighter.aws.offset import NOBODY, DynamoClockOffset
from lamplighter.aws.patience import Fan, Patience
from lamplighter.aws.payloads import S3_CONFIG, S3Payloads
from lamplighter.aws.permits import DynamoPermits
from lamplighter.aws.queue import SqsQueue
from lamplighter.aws.settings import Settings
from lamplighter.aws.tally import DynamoTally
from lamplighter.aws.telemetry import LambdaTelemetry
from lamplighter.core.limits import SAMPLE_PATIENCE
from lamplighter.ports import (
    Control,
    Jobs,
    Notices,
    Payloads,
    Permits,
    Ports,
    Queue,
    Tally,
    Telemetry,
)

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


# For what is only good to know: no second try, and no wait that anybody would notice.
HASTY_CONFIG: Final = Config(
    connect_timeout=SAMPLE_PATIENCE.total_seconds(),
    read_timeout=SAMPLE_PATIENCE.total_seconds(),
    retries={"mode": "standard", "total_max_attempts": 1},
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
    return wire_to(settings, dynamodb=dynamodb, sqs=sqs, hasty=_hasty_client)


def wire_to(
    settings: Settings,
    *,
    dynamodb: "DynamoDBClient",
    sqs: "SQSClient",
    s3: Callable[[], "S3Client"] | None = None,
    hasty: Callable[[], "DynamoDBClient"] | None = None,
) -> Wired:
    """As `wire`, on clients made elsewhere; that of S3 when it is first needed.

    So is `hasty`, for what may as well not be known; without it that is asked as all else is.
    """
    clock, chance, fan = SystemClock(), SystemChance(), Fan(THREADS)
    patience = Patience(clock=clock, chance=chance)
    dynamo = Dynamo(dynamodb, patience=patience, fan=fan)
    clock_offset = DynamoClockOffset(
        dynamodb, clock=clock, ask=lambda: dynamo.get(settings.executions_table, NOBODY)
    )
    telemetry = LambdaTelemetry(
        sample_rate=settings.log_sample_rate, clock_offset=clock_offset.to_tell
    )
    ports = Ports(
        clock=clock,
        clock_offset=clock_offset,
        chance=chance,
        executions=DynamoExecutions(
            dynamo,
            table=settings.executions_table,
            jobs_table=settings.jobs_table,
            hasty=cache(lambda: Dynamo(hasty(), patience=patience, fan=fan)) if hasty else None,
            unreadable=telemetry.row_unreadable,
        ),
        jobs=_jobs(dynamo, settings, telemetry),
        tally=_tally(dynamo, settings, telemetry),
        control=_control(dynamo, settings, clock, telemetry),
        permits=_permits(dynamo, settings, clock, telemetry),
        payloads=_payloads(s3, settings, clock),
        ledger=DynamoLedger(
            dynamo,
            table=settings.executions_table,
            others=[name for name in (settings.jobs_table, settings.control_table) if name],
        ),
        queue=SqsQueue(
            sqs,
            lanes=settings.queues,
            fair=[lane for lane, rules in settings.lanes.items() if rules.fair],
            work_url=settings.work_queue_url,
            clock=clock,
            patience=patience,
            fan=fan,
        ),
        telemetry=telemetry,
        shards=settings.shards,
        partitions=settings.partitions,
        drain_per_second=settings.drain_per_second,
        quotas=settings.quotas,
        capacity=settings.capacity,
        lanes=settings.lanes,
        parked_for=settings.parked_for,
        notices=_notices(settings),
    )
    return Wired(ports=ports, telemetry=telemetry)


def operating(
    dynamodb: "DynamoDBClient",
    *,
    executions_table: str,
    jobs_table: str,
    control_table: str,
    telemetry: Telemetry,
    shards: int,
    partitions: int,
) -> Ports:
    """What whoever operates a stack reaches of it: its tables, and none of its queues."""
    clock, chance, fan = SystemClock(), SystemChance(), Fan(THREADS)
    dynamo = Dynamo(dynamodb, patience=Patience(clock=clock, chance=chance), fan=fan)
    return Ports(
        clock=clock,
        chance=chance,
        executions=DynamoExecutions(
            dynamo,
            table=executions_table,
            jobs_table=jobs_table,
            unreadable=telemetry.row_unreadable,
        ),
        jobs=DynamoJobs(
            dynamo,
            table=jobs_table,
            executions_table=executions_table,
            unreadable=telemetry.row_unreadable,
        ),
        tally=DynamoTally(
            dynamo,
            table=jobs_table,
            executions_table=executions_table,
            unreadable=telemetry.row_unreadable,
        ),
        control=DynamoControl(
            dynamo, table=control_table, clock=clock, unreadable=telemetry.row_unreadable
        ),
        permits=DynamoPermits(
            dynamo, table=control_table, clock=clock, unreadable=telemetry.row_unreadable
        ),
        payloads=cast("Payloads", _Absent("payloads", "bucket")),
        ledger=DynamoLedger(dynamo, table=executions_table, others=[jobs_table, control_table]),
        queue=cast("Queue", _Absent("queue", "queue")),
        telemetry=telemetry,
        shards=shards,
        partitions=partitions,
    )


def s3_client() -> "S3Client":
    """A client of S3: of the few functions and jobs that need one, each makes it once."""
    return boto3.client("s3", config=CLIENT_CONFIG.merge(S3_CONFIG))


def _hasty_client() -> "DynamoDBClient":
    return boto3.client("dynamodb", config=CLIENT_CONFIG.merge(HASTY_CONFIG))


def _payloads(
    connect: Callable[[], "S3Client"] | None, settings: Settings, clock: SystemClock
) -> Payloads:
    if settings.payloads_bucket is None:
        return cast("Payloads", _Absent("payloads", "bucket"))
    return S3Payloads(connect or s3_client, bucket=settings.payloads_bucket, clock=clock)


def _notices(settings: Settings) -> Notices | None:
    bus, topic_arn = settings.notice_bus, settings.notice_topic
    if bus is None and topic_arn is None:
        return None
    return AwsNotices(stage=settings.stage, bus=bus, topic_arn=topic_arn)


def _jobs(dynamo: Dynamo, settings: Settings, telemetry: Telemetry) -> Jobs:
    if settings.jobs_table is None:
        return cast("Jobs", _Absent("jobs"))
    return DynamoJobs(
        dynamo,
        table=settings.jobs_table,
        executions_table=settings.executions_table,
        unreadable=telemetry.row_unreadable,
    )


def _tally(dynamo: Dynamo, settings: Settings, telemetry: Telemetry) -> Tally:
    if settings.jobs_table is None:
        return cast("Tally", _Absent("tally"))
    return DynamoTally(
        dynamo,
        table=settings.jobs_table,
        executions_table=settings.executions_table,
        unreadable=telemetry.row_unreadable,
    )


def _control(
    dynamo: Dynamo, settings: Settings, clock: SystemClock, telemetry: Telemetry
) -> Control:
    if settings.control_table is None:
        return cast("Control", _Absent("control"))
    return DynamoControl(
        dynamo, table=settings.control_table, clock=clock, unreadable=telemetry.row_unreadable
    )


def _permits(
    dynamo: Dynamo, settings: Settings, clock: SystemClock, telemetry: Telemetry
) -> Permits:
    if settings.control_table is None:
        return cast("Permits", _Absent("permits"))
    return DynamoPermits(
        dynamo, table=settings.control_table, clock=clock, unreadable=telemetry.row_unreadable
    )
