"""What each role may do, as a table: a widened policy is a one-line diff here."""

from collections import defaultdict
from collections.abc import Iterator
from typing import TypeVar

import pytest

from lamplighter.aws import schema
from lamplighter.core.buckets import LIMITS_KEY, permit_key
from tests.infra.templates import Assembly, Properties

ROLE = "AWS::IAM::Role"
LANES = ["BulkLane/Queue", "CriticalLane/Queue", "DefaultLane/Queue"]
LANE_DEAD_LETTERS = ["BulkLane/DeadLetters", "CriticalLane/DeadLetters", "DefaultLane/DeadLetters"]
WORK = ["Work/Queue"]
BUCKET = ["Payloads/Bucket"]
OBJECTS = ["Payloads/Bucket/*"]

BUS = ["event-bus/default"]

Allowed = dict[str, list[str]]
T = TypeVar("T")


def _worker(lane: str) -> Allowed:
    return {
        "dynamodb:GetItem": ["Control", "Executions", "Jobs"],
        # Who has a place under a limit that is asked for, and who waits for it.
        "dynamodb:BatchGetItem": ["Control", "Executions"],
        "dynamodb:Query": ["Control"],
        "dynamodb:DeleteItem": ["Control"],
        "dynamodb:ConditionCheckItem": ["Executions", "Jobs"],
        "dynamodb:PutItem": ["Executions"],
        "dynamodb:UpdateItem": ["Control", "Executions"],
        "sqs:ReceiveMessage": [f"{lane}Lane/Queue"],
        "sqs:DeleteMessage": [f"{lane}Lane/Queue"],
        "sqs:ChangeMessageVisibility": [f"{lane}Lane/Queue"],
        "sqs:GetQueueAttributes": [f"{lane}Lane/Queue"],
        "sqs:SendMessage": LANES,
        "events:PutEvents": BUS,
        "s3:GetObjectVersion": OBJECTS,
        "s3:ListBucket": BUCKET,
        "logs:CreateLogStream": [f"{lane}Worker/Log"],
        "logs:PutLogEvents": [f"{lane}Worker/Log"],
    }


ALLOWED: dict[str, Allowed] = {
    "Scheduler/Role": {
        "dynamodb:Query": ["Executions", "Jobs"],
        "dynamodb:GetItem": ["Control", "Executions", "Jobs"],
        "dynamodb:BatchGetItem": ["Control", "Executions", "Jobs"],
        "dynamodb:ConditionCheckItem": ["Jobs"],
        "dynamodb:PutItem": ["Control", "Executions"],
        "dynamodb:UpdateItem": ["Control", "Executions"],
        "sqs:ReceiveMessage": WORK,
        "sqs:DeleteMessage": WORK,
        "sqs:GetQueueAttributes": [*LANES, *WORK],
        "sqs:SendMessage": [*LANES, *WORK],
        "events:PutEvents": BUS,
        "logs:CreateLogStream": ["Scheduler/Log"],
        "logs:PutLogEvents": ["Scheduler/Log"],
    },
    "DefaultWorker/Role": _worker("Default"),
    "CriticalWorker/Role": _worker("Critical"),
    "BulkWorker/Role": _worker("Bulk"),
    "DeadLetters/Role": {
        "dynamodb:GetItem": ["Executions"],
        "dynamodb:PutItem": ["Executions"],
        "dynamodb:UpdateItem": ["Executions"],
        "sqs:ReceiveMessage": LANE_DEAD_LETTERS,
        "sqs:DeleteMessage": LANE_DEAD_LETTERS,
        "sqs:GetQueueAttributes": LANE_DEAD_LETTERS,
        "sqs:SendMessage": LANES,
        "events:PutEvents": BUS,
        "logs:CreateLogStream": ["DeadLetters/Log"],
        "logs:PutLogEvents": ["DeadLetters/Log"],
    },
    "ApiHandler/Role": {
        "dynamodb:DeleteItem": ["Control"],
        "dynamodb:Query": [
            "Control",
            # A sample of the minute that a new job lands on (docs/decisions/0021).
            "Executions",
            "Executions/index/by_job",
            "Executions/index/by_owner",
            "Executions/index/needs_attention",
            "Jobs",
            "Jobs/index/by_owner",
        ],
        "dynamodb:GetItem": ["Control", "Executions", "Jobs"],
        "dynamodb:BatchGetItem": ["Control", "Executions", "Jobs"],
        "dynamodb:ConditionCheckItem": ["Executions", "Jobs"],
        "dynamodb:PutItem": ["Control", "Executions", "Jobs"],
        "dynamodb:UpdateItem": ["Control", "Executions", "Jobs"],
        "sqs:SendMessage": LANES,
        "s3:PutObject": OBJECTS,
        "s3:GetObject": OBJECTS,
        "s3:GetObjectVersion": OBJECTS,
        # For its 404s; see grants.tell_what_is_missing.
        "s3:ListBucket": BUCKET,
        "logs:CreateLogStream": ["ApiHandler/Log"],
        "logs:PutLogEvents": ["ApiHandler/Log"],
    },
    "Tick/Role": {
        "lambda:InvokeFunction": ["Scheduler/Function"],
        "sqs:SendMessage": ["Work/DeadLetters"],
    },
}


def test_each_role_may_do_exactly_this(assembly: Assembly) -> None:
    roles = {
        name: _allowed(assembly, role) for name, role in assembly.scheduler.properties(ROLE).items()
    }

    assert roles == {
        name: {action: sorted(resources) for action, resources in allowed.items()}
        for name, allowed in ALLOWED.items()
    }


@pytest.mark.parametrize("role", ["DefaultWorker/Role", "ApiHandler/Role"])
def test_of_the_control_table_limits_alone_are_written_but_by_the_scheduler(
    assembly: Assembly, role: str
) -> None:
    """Leases and layouts lie there too."""
    writes = {"dynamodb:UpdateItem", "dynamodb:DeleteItem"}
    found = [
        statement["Condition"]
        for statement in _statements(assembly.scheduler.properties(ROLE)[role])
        if {assembly.named(arn) for arn in _list(statement["Resource"])} == {"Control"}
        and writes & {*_list(statement["Action"])}
    ]

    assert found == [{"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["permit#*"]}}]
    assert permit_key("owner", "acme")[0].startswith(schema.PERMITS)
    assert LIMITS_KEY[0].startswith(schema.PERMITS)


def test_no_role_has_a_policy_from_anywhere_else(assembly: Assembly) -> None:
    types = {resource["Type"] for resource in assembly.scheduler.body["Resources"].values()}

    assert not types & {"AWS::IAM::Policy", "AWS::IAM::ManagedPolicy"}
    assert all(
        "ManagedPolicyArns" not in role for role in assembly.scheduler.properties(ROLE).values()
    )


@pytest.mark.parametrize("pattern", ["dynamodb:Scan", "*"])
def test_no_action_is_a_scan_and_no_pattern_is_wider_than_the_keys_of_the_bucket(
    assembly: Assembly, pattern: str
) -> None:
    statements = [
        statement
        for role in assembly.scheduler.properties(ROLE).values()
        for statement in _statements(role)
        if not _is_of_objects(assembly, statement)
    ]

    found = [
        text
        for statement in statements
        for text in _texts([statement["Action"], statement["Resource"]])
        if pattern in text
    ]

    assert statements
    assert found == []


def test_a_role_is_for_one_function(assembly: Assembly) -> None:
    roles = [
        assembly.named(function["Role"])
        for function in assembly.scheduler.properties("AWS::Lambda::Function").values()
    ]

    assert len(set(roles)) == len(roles)


def test_the_ticks_role_is_not_for_schedules_of_other_accounts(assembly: Assembly) -> None:
    role = assembly.scheduler.properties(ROLE)["Tick/Role"]

    (statement,) = role["AssumeRolePolicyDocument"]["Statement"]

    assert statement["Principal"] == {"Service": "scheduler.amazonaws.com"}
    assert statement["Condition"] == {
        "StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}
    }


def _allowed(assembly: Assembly, role: Properties) -> Allowed:
    allowed: defaultdict[str, list[str]] = defaultdict(list)
    for statement in _statements(role):
        assert statement["Effect"] == "Allow"
        for action in _list(statement["Action"]):
            allowed[action] += [assembly.named(arn) for arn in _list(statement["Resource"])]
    return {action: sorted(resources) for action, resources in allowed.items()}


def _is_of_objects(assembly: Assembly, statement: Properties) -> bool:
    return isinstance(statement["Resource"], dict) and (
        [assembly.named(statement["Resource"])] == OBJECTS
    )


def _statements(role: Properties) -> Iterator[Properties]:
    for policy in role["Policies"]:
        yield from policy["PolicyDocument"]["Statement"]


def _list(value: T | list[T]) -> list[T]:
    return value if isinstance(value, list) else [value]


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts(part)
