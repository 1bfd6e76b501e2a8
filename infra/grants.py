"""Statements that name their actions and their resources: no wildcard, and never a Scan.

`table.grant()` and the event sources' own grants are not used: the former allows `/index/*`,
and both hide from a review what a role may do.
"""

from collections.abc import Sequence

from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_secretsmanager as secretsmanager
from aws_cdk import aws_sqs as sqs

from lamplighter.aws import schema


def on_items(table: dynamodb.ITable, *actions: str) -> iam.PolicyStatement:
    """`GetItem`, `Query`, … on the table itself; a transaction needs what its parts need."""
    return _allow([f"dynamodb:{action}" for action in actions], [table.table_arn])


def on_permits(table: dynamodb.ITable, *actions: str) -> iam.PolicyStatement:
    """On the limits of what runs at once in the control table, and nothing of its leases."""
    statement = on_items(table, *actions)
    statement.add_condition(
        "ForAllValues:StringLike", {"dynamodb:LeadingKeys": [f"{schema.PERMITS}*"]}
    )
    return statement


def query_index(table: dynamodb.ITable, *names: str) -> iam.PolicyStatement:
    return _allow(["dynamodb:Query"], [f"{table.table_arn}/index/{name}" for name in names])


def on_objects(bucket: s3.IBucket, *actions: str) -> iam.PolicyStatement:
    """`GetObjectVersion`, `PutObject`, … of any key: owners are kept apart by the code."""
    return _allow([f"s3:{action}" for action in actions], [bucket.arn_for_objects("*")])


def tell_what_is_missing(bucket: s3.IBucket) -> iam.PolicyStatement:
    """Without it S3 answers 403 for what is not there, as for what is not allowed."""
    return _allow(["s3:ListBucket"], [bucket.bucket_arn])


def consume(*queues: sqs.IQueue) -> iam.PolicyStatement:
    """What Lambda's pollers do on a function's behalf."""
    return _on_queues(["ReceiveMessage", "DeleteMessage", "GetQueueAttributes"], queues)


def hide(*queues: sqs.IQueue) -> iam.PolicyStatement:
    """Keep a received message from others for longer, or for less long."""
    return _on_queues(["ChangeMessageVisibility"], queues)


def send(*queues: sqs.IQueue) -> iam.PolicyStatement:
    return _on_queues(["SendMessage"], queues)


def look_at_depth(*queues: sqs.IQueue) -> iam.PolicyStatement:
    return _on_queues(["GetQueueAttributes"], queues)


def read_secret(secret: secretsmanager.ISecret) -> iam.PolicyStatement:
    if secret.secret_full_arn is None:
        raise ValueError("a secret without its complete ARN needs a pattern")
    return _allow(["secretsmanager:GetSecretValue"], [secret.secret_full_arn])


def decrypt(key: kms.IKey) -> iam.PolicyStatement:
    return _allow(["kms:Decrypt"], [key.key_arn])


def encrypt(key_arn: str) -> iam.PolicyStatement:
    """What a queue or a topic asks of whoever sends to it, where its key is not AWS's own."""
    return _allow(["kms:GenerateDataKey", "kms:Decrypt"], [key_arn])


def call(action: str, arn: str) -> iam.PolicyStatement:
    """One action on one resource."""
    return _allow([action], [arn])


def write_logs(group: logs.ILogGroup) -> iam.PolicyStatement:
    return _allow(["logs:CreateLogStream", "logs:PutLogEvents"], [group.log_group_arn])


def _on_queues(actions: Sequence[str], queues: Sequence[sqs.IQueue]) -> iam.PolicyStatement:
    return _allow([f"sqs:{action}" for action in actions], [queue.queue_arn for queue in queues])


def _allow(actions: Sequence[str], resources: Sequence[str]) -> iam.PolicyStatement:
    return iam.PolicyStatement(actions=actions, resources=resources)
