"""Workers of a lane on Fargate: for tasks that want more than a Lambda has, or other libraries."""

from collections.abc import Sequence
from dataclasses import dataclass

from aws_cdk import Acknowledgment, Duration, RemovalPolicy, Validations
from aws_cdk import aws_applicationautoscaling as scaling
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.components.job_scheduler import JobScheduler

# Between SIGTERM and SIGKILL: the longest that Fargate takes (ContainerDefinition, stopTimeout).
STOP_TIMEOUT_S = 120
# Of that for what runs; then handlers are asked to stop, and outcomes are written.
GRACE_S = 100
HEALTH_PORT = 8081
_NOTHING_THERE = 0.5
# A metric of math has ten at most, and each queue three of them.
_MOST_QUEUES = 3
_ASK = (
    "import sys; from urllib.request import urlopen; "
    f"sys.exit(urlopen('http://127.0.0.1:{HEALTH_PORT}/health', timeout=3).status != 200)"
)


@dataclass(frozen=True, kw_only=True)
class Size:
    """Of each container, and how many there are."""

    cpu: int = 512
    """In 1/1024 of a core; with `memory_mb` one of the pairs that Fargate has."""
    memory_mb: int = 1024
    concurrency: int = 10
    """Executions at once in each."""
    minimum: int = 1
    maximum: int = 10
    backlog_seconds: int = 60
    """The age of the oldest message from which there are more of them."""

    def __post_init__(self) -> None:
        for name, value, low, high in (
            ("concurrency", self.concurrency, 1, 100),
            ("minimum", self.minimum, 0, 1000),
            ("maximum", self.maximum, max(1, self.minimum), 1000),
            ("backlog_seconds", self.backlog_seconds, 10, 86_400),
        ):
            if not low <= value <= high:
                raise ValueError(f"{name} {value}: not in {low}-{high}")


class ContainerWorkers(Construct):
    """A Fargate service that runs `lamplighter worker` on one lane of a scheduler.

    It may what the lane's function may, and is told the same; your image has Lamplighter and the
    tasks. The function goes on beside it unless the lane has `functions=False`. There are
    as many containers as the age of the lane's oldest message asks for; one that is to end
    drains, and what it cannot end goes on elsewhere with all its attempts.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        scheduler: JobScheduler,
        lane: str,
        cluster: ecs.ICluster,
        image: ecs.ContainerImage,
        size: Size | None = None,
        subnets: ec2.SubnetSelection | None = None,
        architecture: ecs.CpuArchitecture | None = None,
    ) -> None:
        super().__init__(scope, id)
        if lane not in scheduler.workers:
            raise ValueError(f"lane {lane!r}: not among {sorted(scheduler.workers)}")
        queues = scheduler.lane_queues[lane].queues
        if len(queues) > _MOST_QUEUES:
            raise ValueError(f"lane {lane!r}: {len(queues)} queues, more than {_MOST_QUEUES}")
        size = size or Size()
        self.task = self._task(scheduler, lane, image, size, architecture)
        self.service = ecs.FargateService(
            self,
            "Service",
            cluster=cluster,
            task_definition=self.task,
            vpc_subnets=subnets,
            desired_count=size.minimum,
            # A new one serves before an old one drains, and what does not come up is undone.
            min_healthy_percent=100,
            max_healthy_percent=200,
            circuit_breaker=ecs.DeploymentCircuitBreaker(rollback=True),
        )
        self._scale(queues, size)

    def _task(
        self,
        scheduler: JobScheduler,
        lane: str,
        image: ecs.ContainerImage,
        size: Size,
        architecture: ecs.CpuArchitecture | None,
    ) -> ecs.FargateTaskDefinition:
        worker = scheduler.workers[lane]
        task = ecs.FargateTaskDefinition(
            self,
            "Task",
            cpu=size.cpu,
            memory_limit_mib=size.memory_mb,
            runtime_platform=ecs.RuntimePlatform(
                cpu_architecture=architecture or ecs.CpuArchitecture.ARM64,
                operating_system_family=ecs.OperatingSystemFamily.LINUX,
            ),
            task_role=iam.Role(
                self,
                "Role",
                assumed_by=iam.ServicePrincipal("ecs-tasks.amazonaws.com"),
                inline_policies={"Allowed": worker.allowed},
            ),
        )
        log_group = logs.LogGroup(
            self,
            "Log",
            retention=scheduler.log_retention,
            removal_policy=RemovalPolicy.DESTROY,
            encryption_key=scheduler.tables.encryption_key,
        )
        task.add_container(
            "Worker",
            image=image,
            command=_command(lane, size),
            environment=worker.environment,
            logging=ecs.LogDrivers.aws_logs(stream_prefix=lane, log_group=log_group),
            stop_timeout=Duration.seconds(STOP_TIMEOUT_S),
            health_check=ecs.HealthCheck(
                command=["CMD", "python", "-c", _ASK],
                interval=Duration.seconds(30),
                start_period=Duration.seconds(30),
            ),
        )
        Validations.of(task).acknowledge(
            Acknowledgment(
                id="AwsSolutions-ECS2",
                reason="Names of tables and queues, and no secret: those a worker reads by name.",
            )
        )
        return task

    def _scale(self, queues: Sequence[sqs.Queue], size: Size) -> None:
        """Up while messages wait, by the age of the oldest; down when there are none.

        Its age alone does not tell: that of a message in flight is how long its job has run.
        """
        count = self.service.auto_scale_task_count(
            min_capacity=size.minimum, max_capacity=size.maximum
        )
        count.scale_on_metric(
            "OnBacklog",
            metric=_backlog(queues),
            scaling_steps=[
                scaling.ScalingInterval(upper=_NOTHING_THERE, change=-1),
                scaling.ScalingInterval(lower=size.backlog_seconds, change=1),
                scaling.ScalingInterval(lower=3 * size.backlog_seconds, change=3),
            ],
            cooldown=Duration.minutes(2),
            adjustment_type=scaling.AdjustmentType.CHANGE_IN_CAPACITY,
        )


def _command(lane: str, size: Size) -> list[str]:
    return [
        *("lamplighter", "worker", "--queue", lane),
        *("--concurrency", str(size.concurrency), "--grace", str(GRACE_S)),
        *("--health-port", str(HEALTH_PORT)),
    ]


def _backlog(queues: Sequence[sqs.Queue]) -> cloudwatch.MathExpression:
    """Seconds that the oldest has waited; 1 where all that there is runs, 0 where nothing is."""
    minute = Duration.minutes(1)
    metrics: dict[str, cloudwatch.IMetric] = {}
    for n, queue in enumerate(queues):
        metrics[f"age{n}"] = queue.metric_approximate_age_of_oldest_message(
            period=minute, statistic="Maximum"
        )
        metrics[f"visible{n}"] = queue.metric_approximate_number_of_messages_visible(
            period=minute, statistic="Maximum"
        )
        metrics[f"running{n}"] = queue.metric_approximate_number_of_messages_not_visible(
            period=minute, statistic="Maximum"
        )
    each = [f"IF(visible{n} > 0, age{n}, IF(running{n} > 0, 1, 0))" for n in range(len(queues))]
    return cloudwatch.MathExpression(
        expression=each[0] if len(each) == 1 else f"MAX([{', '.join(each)}])",
        using_metrics=metrics,
        period=minute,
        label="seconds that the oldest has waited",
    )
