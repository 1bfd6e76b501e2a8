"""The stack of everything that holds no data."""

from collections.abc import Mapping, Sequence

from aws_cdk import CfnOutput, Duration, Stack
from constructs import Construct

from infra.bundling import LambdaTarget
from infra.components.api import Authentication
from infra.components.job_scheduler import TASK_WRITES, JobScheduler
from infra.components.layers import TaskSource
from infra.components.named_targets import Target
from infra.components.notices import Notices
from infra.components.queues import DEFAULT_LANES, Lane
from infra.components.tables import SchedulerTables
from infra.components.targets import HttpTargets
from infra.components.task_tables import TaskTable
from lamplighter.core import limits
from lamplighter.core.quotas import Quotas


class SchedulerStack(Stack):
    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        tables: SchedulerTables,
        tasks: TaskSource,
        authentication: Authentication,
        target: LambdaTarget,
        stage: str,
        shell_owners: tuple[str, ...],
        http_owners: tuple[str, ...] = (),
        http_allow: tuple[str, ...] = (),
        http_signing_secret: str = "",
        targets: Sequence[Target] = (),
        quotas: Quotas | None = None,
        shards: int = limits.DEFAULT_SHARDS,
        partitions: int = limits.DEFAULT_PARTITIONS,
        drain_per_second: float = limits.DRAIN_PER_SECOND,
        lanes: Sequence[Lane] = DEFAULT_LANES,
        worker_concurrency: int | None = None,
        starts_per_second: Mapping[str, float] | None = None,
        notice_bus: str = "default",
        notice_topic: str = "",
        parked_for_seconds: int | None = None,
        task_tables: Sequence[TaskTable] = (),
        task_names: tuple[str, ...] = (),
    ) -> None:
        super().__init__(
            scope,
            id,
            description="Lamplighter: queues, functions, HTTP API",
            analytics_reporting=False,
        )
        self.job_scheduler = JobScheduler(
            self,
            "JobScheduler",
            tables=tables,
            tasks=tasks,
            authentication=authentication,
            target=target,
            stage=stage,
            shell_owners=shell_owners,
            http_targets=HttpTargets.chosen(
                self, owners=http_owners, allow=http_allow, secret_arn=http_signing_secret
            ),
            targets=targets,
            quotas=quotas,
            shards=shards,
            partitions=partitions,
            drain_per_second=drain_per_second,
            lanes=lanes,
            worker_concurrency=worker_concurrency,
            starts_per_second=starts_per_second,
            notices=Notices.chosen(self, bus=notice_bus, topic_arn=notice_topic),
            parked_for=_seconds(parked_for_seconds),
            task_names=task_names,
        )
        self._let_tasks_write(task_tables)
        self._add_outputs()

    def _let_tasks_write(self, tables: Sequence[TaskTable]) -> None:
        theirs = Construct(self, "TaskTables")
        for one in tables:
            self.job_scheduler.grant_task_writes(
                one.in_(theirs), lanes=one.lanes, actions=one.actions or TASK_WRITES
            )

    def _add_outputs(self) -> None:
        built = self.job_scheduler
        self._output("ApiUrl", built.api.url, "Where the HTTP API answers")
        self._output("ApiId", built.api.http_api.api_id, "The HTTP API's id")
        self._output("WorkQueueUrl", built.work_queue.queue.queue_url, "Queue of partition work")
        self._output("LaneQueueUrls", built.queue_urls(), "Queues of each lane, as JSON")
        self._output(
            "SchedulerFunction",
            built.scheduler.function.function_name,
            'Invoke it with {"kind": "tick"} to dispatch now',
        )

    def _output(self, id: str, value: str, description: str) -> None:
        CfnOutput(self, id, value=value, description=description)


def _seconds(number: int | None) -> Duration | None:
    return None if number is None else Duration.seconds(number)
