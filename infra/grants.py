"""Statements that name their actions and their resources: no wildcard, and never a Scan.

`table.grant()` and the event sources' own grants are not used: the former allows `/index/*`,
and both hide from a review what a role may do.
"""

from collections.abc import Sequence

from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sqs as sqs


def on_items(table: dynamodb.ITable, *actions: str) -> iam.PolicyStatement:
    """`GetItem`, `Query`, … on the table itself; a transaction needs what its parts need."""
    return _allow([f"dynamodb:{action}" for action in actions], [table.table_arn])


def query_index(table: dynamodb.ITable, *names: str) -> iam.PolicyStatement:
    return _allow(["dynamodb:Query"], [f"{table.table_arn}/index/{name}" for name in names])


def consume(*queues: sqs.IQueue) -> iam.PolicyStatement:
    """What Lambda's pollers do on a function's behalf."""
    return _on_queues(["ReceiveMessage", "DeleteMessage", "GetQueueAttributes"], queues)


def hide(queue: sqs.IQueue) -> iam.PolicyStatement:
    """Keep a received message from others for longer, or for less long."""
    return _on_queues(["ChangeMessageVisibility"], [queue])


def send(*queues: sqs.IQueue) -> iam.PolicyStatement:
    return _on_queues(["SendMessage"], queues)


def look_at_depth(*queues: sqs.IQueue) -> iam.PolicyStatement:
    return _on_queues(["GetQueueAttributes"], queues)


def write_logs(group: logs.ILogGroup) -> iam.PolicyStatement:
    return _allow(["logs:CreateLogStream", "logs:PutLogEvents"], [group.log_group_arn])


def _on_queues(actions: Sequence[str], queues: Sequence[sqs.IQueue]) -> iam.PolicyStatement:
    return _allow([f"sqs:{action}" for action in actions], [queue.queue_arn for queue in queues])


def _allow(actions: Sequence[str], resources: Sequence[str]) -> iam.PolicyStatement:
    return iam.PolicyStatement(actions=actions, resources=resources)
