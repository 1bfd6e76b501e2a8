"""A function with a role and a log group of its own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aws_cdk import Acknowledgment, Duration, IgnoreMode, RemovalPolicy, Validations
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra import grants
from infra.bundling import LambdaTarget
from infra.components.encryption import use_of
from infra.components.queues import Pollers
from infra.paths import FUNCTIONS

SERVICE = "lamplighter"
NAMESPACE = "Lamplighter"


@dataclass(frozen=True, kw_only=True)
class Platform:
    """What all functions of one scheduler have in common."""

    target: LambdaTarget
    layers: Sequence[lambda_.ILayerVersion]
    environment: Mapping[str, str]
    log_retention: logs.RetentionDays
    encryption_key: kms.IKey | None = None


class Handler(Construct):
    """`functions/<folder>/handler.py`, allowed what its statements say and to write its log."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        folder: str,
        platform: Platform,
        description: str,
        timeout: Duration,
        memory_mb: int,
        environment: Mapping[str, str],
        statements: Sequence[iam.PolicyStatement],
        layers: Sequence[lambda_.ILayerVersion] = (),
        reserved_concurrency: int | None = None,
        feeds_itself: bool = False,
        max_event_age: Duration | None = None,
        retry_attempts: int | None = None,
    ) -> None:
        super().__init__(scope, id)
        log_group = logs.LogGroup(
            self,
            "Log",
            retention=platform.log_retention,
            removal_policy=RemovalPolicy.DESTROY,
            encryption_key=platform.encryption_key,
        )
        self.allowed = iam.PolicyDocument(
            statements=[
                *statements,
                *use_of(platform.encryption_key),
                grants.write_logs(log_group),
            ]
        )
        role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
            # Inline, so that the role is never without it while a mapping is being made.
            inline_policies={"Allowed": self.allowed},
        )
        self.environment = {**platform.environment, **environment}
        self.function = lambda_.Function(
            self,
            "Function",
            description=description,
            runtime=platform.target.runtime,
            architecture=platform.target.architecture,
            code=_code_of(folder),
            handler=f"{folder}.handler.handle",
            layers=[*platform.layers, *layers],
            # What is added to a role behind its back would widen it: there is nothing to add.
            role=role.without_policy_updates(),
            log_group=log_group,
            timeout=timeout,
            memory_size=memory_mb,
            environment=self.environment,
            environment_encryption=platform.encryption_key,
            reserved_concurrent_executions=reserved_concurrency,
            # Lambda stops a message chain through the same function after about 16 rounds. Where
            # rounds are the design, our own hop counter bounds them.
            recursive_loop=lambda_.RecursiveLoop.ALLOW if feeds_itself else None,
            max_event_age=max_event_age,
            retry_attempts=retry_attempts,
        )
        Validations.of(self.function).acknowledge(
            Acknowledgment(
                id="AwsSolutions-L1",
                reason="Python 3.13 and not the newest: of the versions that Lamplighter supports "
                "and is tested on it is the last.",
            )
        )

    def allow(self, *statements: iam.PolicyStatement) -> None:
        """Add to what the function may do: of what it is chosen to do, and said by name."""
        self.allowed.add_statements(*statements)

    def consume(
        self,
        id: str,
        queue: sqs.IQueue,
        *,
        batch_size: int,
        max_concurrency: int | None = None,
        pollers: Pollers | None = None,
    ) -> None:
        """Let the function receive from the queue, without waiting to fill a batch."""
        lambda_.EventSourceMapping(
            self,
            id,
            target=self.function,
            event_source_arn=queue.queue_arn,
            batch_size=batch_size,
            max_batching_window=Duration.seconds(0),
            report_batch_item_failures=True,
            max_concurrency=max_concurrency,
            provisioned_poller_config=lambda_.ProvisionedPollerConfig(
                minimum_pollers=pollers.minimum, maximum_pollers=pollers.maximum
            )
            if pollers
            else None,
        )


def _code_of(folder: str) -> lambda_.Code:
    """The root is `functions`, so that the import path is the same here and in Lambda."""
    return lambda_.Code.from_asset(
        str(FUNCTIONS),
        exclude=["*", f"!{folder}", f"!{folder}/**", "**/__pycache__"],
        ignore_mode=IgnoreMode.GIT,
    )
