"""A key of the customer's, in place of AWS's own: who may use it for what lies in the stacks."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypedDict

from aws_cdk import Aws, RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sqs as sqs
from constructs import Construct

OURS: Final = "true"
_KEY: Final = re.compile(r"arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/[a-z0-9-]+", re.ASCII)
_CLOCK: Final = "events.amazonaws.com"

# What DynamoDB does with the key in the name of whoever reads or writes a table of it; DynamoDB
# developer guide, usage notes of encryption at rest, with each of its patterns spelt out.
_OF_TABLES: Final = (
    "kms:Encrypt",
    "kms:ReEncryptFrom",
    "kms:ReEncryptTo",
    "kms:GenerateDataKeyWithoutPlaintext",
    "kms:DescribeKey",
)


class QueueKey(TypedDict, total=False):
    """How a queue is encrypted, as `sqs.Queue` has it."""

    encryption: sqs.QueueEncryption
    encryption_master_key: kms.IKey


def chosen_key(scope: Construct, said: str) -> kms.IKey | None:
    """As a deployment's context says it: "": AWS's own keys; "true": a key made here; or an ARN.

    The policy of a key by its ARN is its owner's to write: docs/deploy.md has the statements.
    Raises ValueError.
    """
    if said == "":
        return None
    if said == OURS:
        return customer_key(scope, "Key")
    if not _KEY.fullmatch(said):
        raise ValueError(f"kms: {said!r} is neither {OURS!r} nor the ARN of a key")
    return kms.Key.from_key_arn(scope, "Key", said)


def customer_key(scope: Construct, id: str) -> kms.Key:
    """A key that is changed each year, and kept when its stack goes: without it nothing is left."""
    key = kms.Key(
        scope,
        id,
        description="Lamplighter: tables, payloads, queues, logs and variables",
        enable_key_rotation=True,
        removal_policy=RemovalPolicy.RETAIN,
    )
    for statement in statements_for_services():
        key.add_to_resource_policy(statement)
    return key


def statements_for_services() -> Sequence[iam.PolicyStatement]:
    """What the key's policy has to say: two services use it in nobody's name but their own.

    Everybody else is let in by a role's policy, as the account's root is by the key's.
    """
    logs = f"arn:{Aws.PARTITION}:logs:{Aws.REGION}:{Aws.ACCOUNT_ID}:log-group:*"
    return [
        _for_service(
            _CLOCK,
            "kms:GenerateDataKey",
            "kms:Decrypt",
            conditions={"StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID}},
        ),
        _for_service(
            f"logs.{Aws.REGION}.amazonaws.com",
            *("kms:Encrypt", "kms:Decrypt", "kms:ReEncryptFrom", "kms:ReEncryptTo"),
            *("kms:GenerateDataKey", "kms:GenerateDataKeyWithoutPlaintext", "kms:DescribeKey"),
            conditions={"ArnLike": {"kms:EncryptionContext:aws:logs:arn": logs}},
        ),
    ]


def use_of(key: kms.IKey | None) -> Sequence[iam.PolicyStatement]:
    """What a function needs of it: variables, queues and objects; and tables, through them."""
    if key is None:
        return []
    return [
        iam.PolicyStatement(
            actions=["kms:Decrypt", "kms:GenerateDataKey"], resources=[key.key_arn]
        ),
        iam.PolicyStatement(
            actions=[*_OF_TABLES],
            resources=[key.key_arn],
            conditions={"StringEquals": {"kms:ViaService": f"dynamodb.{Aws.REGION}.amazonaws.com"}},
        ),
    ]


def of_queue(key: kms.IKey | None) -> QueueKey:
    if key is None:
        return {"encryption": sqs.QueueEncryption.SQS_MANAGED}
    return {"encryption": sqs.QueueEncryption.KMS, "encryption_master_key": key}


def _for_service(
    name: str, *actions: str, conditions: Mapping[str, Mapping[str, Any]]
) -> iam.PolicyStatement:
    # Of a key's own policy "*" is the key.
    return iam.PolicyStatement(
        principals=[iam.ServicePrincipal(name)],
        actions=[*actions],
        resources=["*"],
        conditions=conditions,
    )
