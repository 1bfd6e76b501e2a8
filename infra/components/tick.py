"""The clock: two that tick each minute, by different services and on different ways."""

import json

from aws_cdk import Duration, Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as event_targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_scheduler as scheduler
from aws_cdk import aws_scheduler_targets as targets
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra import grants
from lamplighter.aws.schema import TICK


class Tick(Construct):
    """EventBridge Scheduler and a rule of EventBridge, each once a minute.

    Each is up to 59 s late, sometimes twice, rarely not at all: where one of them fails, the
    other goes on, and where both do, partition work asks for itself.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        function: lambda_.IFunction,
        work: sqs.IQueue,
        undelivered: sqs.IQueue,
        encryption_key: kms.IKey | None = None,
    ) -> None:
        super().__init__(scope, id)
        self._encryption_key = encryption_key
        self._call(function, undelivered)
        self._send(work)

    def _send(self, work: sqs.IQueue) -> None:
        """By the work queue: it needs neither the function's throttles nor its permissions."""
        rule = events.Rule(
            self,
            "Rule",
            description="Lamplighter's second tick",
            schedule=events.Schedule.rate(Duration.minutes(1)),
            targets=[
                event_targets.SqsQueue(
                    # Of a queue by its ARN it changes no policy: it would say more than this one,
                    # and of an encrypted queue not whose rule it is.
                    sqs.Queue.from_queue_arn(self, "WorkByArn", work.queue_arn),
                    # As an object: a text would arrive in quotes, as a JSON string of JSON.
                    message=events.RuleTargetInput.from_object(json.loads(TICK)),
                )
            ],
        )
        work.add_to_resource_policy(
            iam.PolicyStatement(
                principals=[iam.ServicePrincipal("events.amazonaws.com")],
                actions=["sqs:SendMessage"],
                resources=[work.queue_arn],
                conditions={"ArnEquals": {"aws:SourceArn": rule.rule_arn}},
            )
        )

    def _call(self, function: lambda_.IFunction, undelivered: sqs.IQueue) -> None:
        key = self._encryption_key
        role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal(
                "scheduler.amazonaws.com",
                # Not for schedules of another account that learnt this role's name.
                conditions={"StringEquals": {"aws:SourceAccount": Stack.of(self).account}},
            ),
            inline_policies={
                "Allowed": iam.PolicyDocument(
                    statements=[
                        iam.PolicyStatement(
                            actions=["lambda:InvokeFunction"], resources=[function.function_arn]
                        ),
                        grants.send(undelivered),
                        *([grants.encrypt(key.key_arn)] if key else []),
                    ]
                )
            },
        )
        scheduler.Schedule(
            self,
            "Schedule",
            description="Lamplighter's tick",
            schedule=scheduler.ScheduleExpression.rate(Duration.minutes(1)),
            target=targets.LambdaInvoke(
                function,
                # The target would add every version of the function, `<arn>:*`.
                role=role.without_policy_updates(),
                input=scheduler.ScheduleTargetInput.from_text(TICK),
                # A tick that could not be delivered for a minute is the next one's work.
                max_event_age=Duration.minutes(1),
                retry_attempts=10,
                dead_letter_queue=undelivered,
            ),
        )
