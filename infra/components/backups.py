"""Copies of the tables in another region: what a failover goes on from (docs/regions.md)."""

import re
from collections.abc import Sequence
from typing import Final

from aws_cdk import Acknowledgment, Duration, RemovalPolicy, Validations
from aws_cdk import aws_backup as backup
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_events as events
from constructs import Construct

VAULT_ARN: Final = re.compile(r"arn:[a-z-]+:backup:[a-z0-9-]+:\d{12}:backup-vault:[\w-]{2,50}")
# As long as tables can be restored to any second in their own region.
KEPT: Final = Duration.days(35)
# A backup that has not begun after this is the next one's work.
BEGUN_WITHIN: Final = Duration.hours(1)


class CopiesElsewhere(Construct):
    """Backs up tables every hour, all at the same minute, and copies that to a vault elsewhere.

    Every hour is as often as AWS Backup does it. In this region the backups are in a vault of
    their own, which stays when its stack goes.
    """

    def __init__(
        self, scope: Construct, id: str, *, tables: Sequence[dynamodb.ITable], vault_arn: str
    ) -> None:
        if not VAULT_ARN.fullmatch(vault_arn):
            raise ValueError(f"backup_copies: {vault_arn!r} is no ARN of a backup vault")
        super().__init__(scope, id)
        vault = backup.BackupVault(self, "Vault", removal_policy=RemovalPolicy.RETAIN)
        there = backup.BackupVault.from_backup_vault_arn(self, "There", vault_arn)
        plan = backup.BackupPlan(
            self,
            "Plan",
            backup_vault=vault,
            backup_plan_rules=[
                backup.BackupPlanRule(
                    rule_name="EveryHour",
                    schedule_expression=events.Schedule.cron(minute="0"),
                    start_window=BEGUN_WITHIN,
                    completion_window=Duration.hours(2),
                    delete_after=KEPT,
                    copy_actions=[
                        backup.BackupPlanCopyActionProps(
                            destination_backup_vault=there, delete_after=KEPT
                        )
                    ],
                )
            ],
        )
        selection = plan.add_selection(
            "Tables", resources=[backup.BackupResource.from_dynamo_db_table(one) for one in tables]
        )
        Validations.of(selection).acknowledge(
            Acknowledgment(
                id="AwsSolutions-IAM4[Policy::arn:<AWS::Partition>:iam::aws:policy/service-role/"
                "AWSBackupServiceRolePolicyForBackup]",
                reason="AWS Backup's own policy: which calls a backup of a table takes, AWS "
                "changes now and then, and a copy of the policy here would fall behind.",
            )
        )
