"""Notices: over the account's own bus unless chosen otherwise, by what ends executions."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Duration, Stack, assertions
from aws_cdk import aws_events as events
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns

from infra.components.api import Authentication
from infra.components.job_scheduler import JobScheduler
from infra.components.layers import TaskSource
from infra.components.notices import Notices
from infra.paths import ROOT
from tests.infra.templates import Assembly

BUS = "arn:aws:events:eu-central-1:999999999999:event-bus/operations"
TOPIC = "arn:aws:sns:eu-central-1:123456789012:on-call"
TASKS = TaskSource(folder=ROOT / "examples" / "playground", module="playground.tasks")
AUTHENTICATION = Authentication(issuer="https://login.example.com/", audience=["jobs"])
TOLD = ("LAMPLIGHTER_NOTICE_BUS", "LAMPLIGHTER_NOTICE_TOPIC")
ENDS_THINGS = {"BulkWorker", "CriticalWorker", "DeadLetters", "DefaultWorker", "Scheduler"}

Json = Mapping[str, Any]


def template(folder: Path, notices: Notices | None, stack: Stack | None = None) -> Json:
    stack = stack or Stack(App(outdir=str(folder), analytics_reporting=False), "Theirs")
    JobScheduler(
        stack,
        "Jobs",
        tasks=TASKS,
        authentication=AUTHENTICATION,
        deletion_protection=True,
        notices=notices,
        parked_for=Duration.hours(6),
    )
    body: Json = assertions.Template.from_stack(stack).to_json()
    return body


def told(body: Json) -> Iterator[Mapping[str, object]]:
    """What each function is told of notices, of those that are told anything."""
    for resource in body["Resources"].values():
        if resource["Type"] == "AWS::Lambda::Function":
            variables = resource["Properties"].get("Environment", {}).get("Variables", {})
            found = {name: variables[name] for name in TOLD if name in variables}
            if found:
                yield found


def granted(body: Json) -> Iterator[tuple[str, object]]:
    for resource in body["Resources"].values():
        for policy in resource["Properties"].get("Policies", []):
            for statement in policy["PolicyDocument"]["Statement"]:
                action = statement["Action"]
                if str(action).startswith(("events:", "sns:", "['kms:")):
                    yield str(action), statement["Resource"]


def test_unless_chosen_what_ends_things_tells_the_accounts_own_bus(assembly: Assembly) -> None:
    """S4-R4; tests/infra/test_permissions.py has what they may do then."""
    functions = assembly.scheduler.properties("AWS::Lambda::Function")

    tells = {
        name.partition("/")[0]
        for name, function in functions.items()
        if function["Environment"]["Variables"].get("LAMPLIGHTER_NOTICE_BUS") == "default"
    }

    assert tells == ENDS_THINGS
    assert not [one for one in functions.values() if TOLD[1] in one["Environment"]["Variables"]]


def test_a_bus_of_another_account_and_a_topic_with_a_key_are_told(tmp_path: Path) -> None:
    stack = Stack(App(outdir=str(tmp_path), analytics_reporting=False), "Theirs")
    key = kms.Key(stack, "Key")
    topic = sns.Topic(stack, "OnCall", master_key=key)
    bus = events.EventBus.from_event_bus_arn(stack, "Bus", BUS)

    body = template(tmp_path, Notices(bus=bus, topic=topic), stack)

    (topic_ref,) = {str(one["LAMPLIGHTER_NOTICE_TOPIC"]) for one in told(body)}
    assert [one["LAMPLIGHTER_NOTICE_BUS"] for one in told(body)] == [BUS] * len(ENDS_THINGS)
    statements = [*granted(body)]
    assert statements.count(("events:PutEvents", BUS)) == len(ENDS_THINGS)
    assert [str(of) for action, of in statements if action == "sns:Publish"] == [topic_ref] * len(
        ENDS_THINGS
    )
    assert len([1 for action, _ in statements if "kms:GenerateDataKey" in action]) == len(
        ENDS_THINGS
    )


def test_nobody_is_told_where_that_is_chosen(tmp_path: Path) -> None:
    body = template(tmp_path, Notices())

    assert [*told(body)] == []
    assert [*granted(body)] == []


def test_a_deployments_context_says_it_too(tmp_path: Path) -> None:
    stack = Stack(App(outdir=str(tmp_path), analytics_reporting=False), "Theirs")

    chosen = Notices.chosen(stack, bus="none", topic_arn=TOPIC)
    both = Notices.chosen(Stack(stack, "Other"), bus="operations", topic_arn=TOPIC)

    assert chosen.environment == {"LAMPLIGHTER_NOTICE_TOPIC": TOPIC}
    assert both.environment["LAMPLIGHTER_NOTICE_BUS"] == "operations"


@pytest.mark.parametrize(
    ("bus", "topic_arn", "message"),
    [
        ("", "", "notice_bus: ''"),
        ("our bus", "", "notice_bus: 'our bus'"),
        ("default", "on-call", "notice_topic: 'on-call'"),
        ("default", f"{TOPIC}.fifo", "notice_topic"),
    ],
)
def test_a_context_that_makes_no_sense_says_which(bus: str, topic_arn: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Notices.chosen(Stack(App(), "Theirs"), bus=bus, topic_arn=topic_arn)


def test_a_fifo_topic_is_refused_before_it_is_deployed() -> None:
    stack = Stack(App(), "Theirs")

    with pytest.raises(ValueError, match="FIFO"):
        Notices(topic=sns.Topic(stack, "InOrder", fifo=True))


def test_what_is_parked_waits_for_as_long_as_is_chosen(tmp_path: Path) -> None:
    """S0-O10."""
    body = template(tmp_path, None)

    found = [
        resource["Properties"]["Environment"]["Variables"].get("LAMPLIGHTER_PARKED_FOR_SECONDS")
        for resource in body["Resources"].values()
        if resource["Type"] == "AWS::Lambda::Function"
        and "LAMPLIGHTER_TASKS"
        in resource["Properties"].get("Environment", {}).get("Variables", {})
    ]
    assert found == ["21600"] * 3


@pytest.mark.parametrize("seconds", [59, 2_592_001])
def test_a_wait_that_makes_no_sense_is_refused_by_value(seconds: int) -> None:
    with pytest.raises(ValueError, match=f"parked_for: {seconds} s"):
        JobScheduler(
            Stack(App(), "Theirs"),
            "Jobs",
            tasks=TASKS,
            authentication=AUTHENTICATION,
            deletion_protection=True,
            parked_for=Duration.seconds(seconds),
        )
