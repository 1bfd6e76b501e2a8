"""The three tables, and the bucket beside them. Names come from the code that queries them."""

from aws_cdk import RemovalPolicy
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_kms as kms
from constructs import Construct

from infra.components.payloads import PayloadBucket
from lamplighter.aws import schema


class SchedulerTables(Construct):
    """All that is durable. Kept when the stack goes, and restorable to any second of 35 days.

    `Table` and not `TableV2`: one region writes, and emulators know only the former. With an
    `encryption_key` everything that a `JobScheduler` makes for them is encrypted with it too.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        deletion_protection: bool,
        encryption_key: kms.IKey | None = None,
    ) -> None:
        super().__init__(scope, id)
        self._deletion_protection = deletion_protection
        self.encryption_key = encryption_key

        self.executions = self._table("Executions")
        self._index(self.executions, schema.BY_OWNER, schema.OWNER_KEY, schema.SORT_KEY)
        self._index(self.executions, schema.NEEDS_ATTENTION, schema.ATTENTION_KEY, schema.SORT_KEY)
        self._index(self.executions, schema.BY_JOB, schema.JOB_KEY, schema.SORT_KEY)

        self.jobs = self._table("Jobs")
        self._index(
            self.jobs, schema.JOBS_BY_OWNER, schema.JOBS_OWNER_KEY, schema.JOBS_BY_OWNER_SORT
        )

        # A handful of items; restored together with the others, so that watermarks fit the rows.
        self.control = self._table("Control")

        self.payloads = PayloadBucket(self, "Payloads", encryption_key=encryption_key).bucket

    def _table(self, id: str) -> dynamodb.Table:
        return dynamodb.Table(
            self,
            id,
            partition_key=_string(schema.PARTITION_KEY),
            sort_key=_string(schema.SORT_KEY),
            time_to_live_attribute=schema.TTL,
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            removal_policy=RemovalPolicy.RETAIN,
            deletion_protection=self._deletion_protection,
            encryption=dynamodb.TableEncryption.CUSTOMER_MANAGED if self.encryption_key else None,
            encryption_key=self.encryption_key,
        )

    @staticmethod
    def _index(table: dynamodb.Table, name: str, key: str, sort_key: str) -> None:
        """Keys only, and keys that never move: an update of a row costs nothing here."""
        table.add_global_secondary_index(
            index_name=name,
            partition_key=_string(key),
            sort_key=_string(sort_key),
            projection_type=dynamodb.ProjectionType.KEYS_ONLY,
        )


def _string(name: str) -> dynamodb.Attribute:
    return dynamodb.Attribute(name=name, type=dynamodb.AttributeType.STRING)
