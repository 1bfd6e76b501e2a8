"""The stack that is never replaced."""

from aws_cdk import CfnOutput, Stack
from constructs import Construct

from infra.components.backups import CopiesElsewhere
from infra.components.encryption import chosen_key
from infra.components.tables import SchedulerTables


class DataStack(Stack):
    """What is durable alone, so that everything else can be taken down and put up again."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        production: bool,
        backup_copies: str = "",
        kms: str = "",
    ) -> None:
        super().__init__(
            scope,
            id,
            description="Lamplighter: tables, and the bucket of large payloads",
            termination_protection=production,
            analytics_reporting=False,
        )
        self.tables = SchedulerTables(
            self,
            "Tables",
            deletion_protection=production,
            encryption_key=chosen_key(Construct(self, "Encryption"), kms),
        )
        if backup_copies:
            tables = (self.tables.executions, self.tables.jobs, self.tables.control)
            CopiesElsewhere(self, "Backups", tables=tables, vault_arn=backup_copies)
        for name, table in (
            ("ExecutionsTable", self.tables.executions),
            ("JobsTable", self.tables.jobs),
            ("ControlTable", self.tables.control),
        ):
            CfnOutput(self, name, value=table.table_name)
        CfnOutput(self, "PayloadsBucket", value=self.tables.payloads.bucket_name)
