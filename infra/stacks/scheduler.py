"""The stack of everything that holds no data."""

from aws_cdk import CfnOutput, Stack
from constructs import Construct

from infra.bundling import LambdaTarget
from infra.components.api import Authentication
from infra.components.job_scheduler import JobScheduler
from infra.components.layers import TaskSource
from infra.components.tables import SchedulerTables
from infra.components.targets import HttpTargets
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
        quotas: Quotas | None = None,
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
            quotas=quotas,
        )
        self._add_outputs()

    def _add_outputs(self) -> None:
        built = self.job_scheduler
        self._output("ApiUrl", built.api.url, "Where the HTTP API answers")
        self._output("ApiId", built.api.http_api.api_id, "The HTTP API's id")
        self._output("WorkQueueUrl", built.work_queue.queue.queue_url, "Queue of partition work")
        self._output("LaneQueueUrls", built.queue_urls(), "Queue of each lane, as JSON")
        self._output(
            "SchedulerFunction",
            built.scheduler.function.function_name,
            'Invoke it with {"kind": "tick"} to dispatch now',
        )

    def _output(self, id: str, value: str, description: str) -> None:
        CfnOutput(self, id, value=value, description=description)
