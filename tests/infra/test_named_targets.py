"""Named targets: none unless chosen; a worker may then call each of them, and no more."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import boto3
import pytest
from aws_cdk import App, Stack, Validations, assertions
from aws_cdk import aws_events as events
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as stepfunctions
from cdk_nag import AwsSolutionsChecks

from infra.app import build
from infra.components.job_scheduler import TOLD_BYTES, JobScheduler
from infra.components.named_targets import (
    BusTarget,
    FunctionTarget,
    QueueTarget,
    StateMachineTarget,
    Target,
    TopicTarget,
    targets_of,
)
from infra.components.targets import EVERYONE
from lamplighter.aws.settings import TARGETS
from lamplighter.core.named import NamedTarget, TargetKind
from tests.infra.templates import Assembly
from tests.infra.test_http_targets import AUTHENTICATION, KEY, TASKS, functions

HERE = "eu-central-1:123456789012"
FUNCTION = f"arn:aws:lambda:{HERE}:function:billing:live"
QUEUE = f"arn:aws:sqs:{HERE}:letters.fifo"
TOPIC = f"arn:aws:sns:{HERE}:news"
BUS = f"arn:aws:events:{HERE}:event-bus/jobs"
MACHINE = f"arn:aws:states:{HERE}:stateMachine:invoices"
ARNS = {
    "lambda:InvokeFunction": FUNCTION,
    "sqs:SendMessage": QUEUE,
    "sns:Publish": TOPIC,
    "events:PutEvents": BUS,
    "states:StartExecution": MACHINE,
}
SAID: Mapping[str, Mapping[str, object]] = {
    "billing": {"kind": "lambda", "arn": FUNCTION, "owners": ["acme"]},
    "letters": {"kind": "sqs", "arn": QUEUE, "owners": ["acme", "globex"], "key_arn": KEY},
    "news": {"kind": "sns", "arn": TOPIC, "owners": ["*"]},
    "jobs": {"kind": "eventbridge", "arn": BUS, "owners": ["*"], "source": "acme.jobs"},
    "invoices": {"kind": "stepfunctions", "arn": MACHINE, "owners": ["globex"]},
}

Json = Mapping[str, Any]


def scheduler_in(stack: Stack, *targets: Target) -> JobScheduler:
    return JobScheduler(
        stack,
        "Jobs",
        tasks=TASKS,
        authentication=AUTHENTICATION,
        deletion_protection=True,
        targets=targets,
    )


def targets_in(stack: Stack) -> list[Target]:
    """One of each kind, none of them of this app."""
    key = kms.Key.from_key_arn(stack, "Key", KEY)
    queue = sqs.Queue.from_queue_attributes(
        stack, "Queue", queue_arn=QUEUE, key_arn=key.key_arn, fifo=True
    )
    return [
        FunctionTarget(
            name="billing",
            function=lambda_.Function.from_function_arn(stack, "Function", FUNCTION),
            owners=["acme"],
        ),
        QueueTarget(name="letters", queue=queue, owners=["acme", "globex"]),
        TopicTarget(
            name="news", topic=sns.Topic.from_topic_arn(stack, "Topic", TOPIC), owners=EVERYONE
        ),
        BusTarget(
            name="jobs",
            bus=events.EventBus.from_event_bus_arn(stack, "Bus", BUS),
            source="acme.jobs",
            owners=EVERYONE,
        ),
        StateMachineTarget(
            name="invoices",
            machine=stepfunctions.StateMachine.from_state_machine_arn(stack, "Machine", MACHINE),
            owners=["globex"],
        ),
    ]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Json:
    """A template with a target of each kind, as cdk-nag lets it pass."""
    app = App(outdir=str(tmp_path_factory.mktemp("targets")), analytics_reporting=False)
    Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    stack = Stack(app, "Theirs")
    scheduler_in(stack, *targets_in(stack))
    app.synth()
    found: Json = assertions.Template.from_stack(stack).to_json()
    return found


def told(template: Json, handler: str) -> Iterator[str]:
    for name, variables in functions(template):
        if name == handler and "LAMPLIGHTER_TARGETS" in variables:
            value = variables["LAMPLIGHTER_TARGETS"]
            yield value if isinstance(value, str) else _joined(value)


def _joined(value: Json) -> str:
    """What a function is told once it is deployed, where nothing but the suffix is left open."""
    return "".join(
        part if isinstance(part, str) else "amazonaws.com" for part in value["Fn::Join"][1]
    )


def test_unless_chosen_there_are_none(assembly: Assembly) -> None:
    """tests/infra/test_permissions.py has what a worker may do then."""
    found = assembly.scheduler.properties("AWS::Lambda::Function").values()

    assert not [one for one in found if "LAMPLIGHTER_TARGETS" in one["Environment"]["Variables"]]


def test_a_worker_may_call_exactly_what_is_named(template: Json) -> None:
    """S2-F1, least privilege: one action on one resource, and the key that a queue comes with."""
    roles = [
        [
            statement
            for policy in resource["Properties"].get("Policies", [])
            for statement in policy["PolicyDocument"]["Statement"]
        ]
        for resource in template["Resources"].values()
        if resource["Type"] == "AWS::IAM::Role"
    ]

    granted = [
        [one for one in role if HERE in str(one["Resource"])] for role in roles if HERE in str(role)
    ]
    assert len(granted) == 3
    for statements in granted:
        assert {str(one["Action"]): one["Resource"] for one in statements} == {
            **ARNS,
            "['kms:GenerateDataKey', 'kms:Decrypt']": KEY,
        }
        assert all(one["Effect"] == "Allow" for one in statements)
    assert all("sqs:ChangeMessageVisibility" in str(role) for role in roles if HERE in str(role))


def test_the_workers_are_told_where_a_name_leads_and_the_api_only_whose_it_is(
    template: Json,
) -> None:
    api = [*told(template, "api.handler.handle")]
    workers = [*told(template, "worker.handler.handle")]

    assert (len(api), len({*workers}), len(workers)) == (1, 1, 3)
    assert HERE not in api[0]
    directory = TARGETS.parse(workers[0])
    assert {entry.name: entry.at for entry in directory.entries.values()} == {
        "billing": FUNCTION,
        "letters": "https://sqs.eu-central-1.amazonaws.com/123456789012/letters.fifo",
        "news": TOPIC,
        "jobs": BUS,
        "invoices": MACHINE,
    }
    assert directory.entries["jobs"].source == "acme.jobs"
    for text in (api[0], workers[0]):
        read = TARGETS.parse(text)
        billing = NamedTarget(kind=TargetKind.LAMBDA, name="billing")
        assert read.find(billing, owner="acme")
        assert read.find(billing, owner="globex") is None
    assert not [*told(template, "scheduler.handler.handle")]


def test_what_is_made_in_the_same_app_is_named_by_reference() -> None:
    stack = Stack(App(), "Theirs")
    queue = sqs.Queue(stack, "Queue", enforce_ssl=True, encryption=sqs.QueueEncryption.KMS)

    scheduler_in(stack, QueueTarget(name="letters", queue=queue, owners=["acme"]))

    found = assertions.Template.from_stack(stack).to_json()
    (_, variables), *_ = [one for one in functions(found) if one[0].startswith("worker")]
    assert {"Ref": "Queue4A7E3555"} in variables["LAMPLIGHTER_TARGETS"]["Fn::Join"][1]
    assert '{"letters":{"kind":"sqs","owners":["acme"],"at":"' in str(variables)
    assert "'kms:GenerateDataKey', 'kms:Decrypt'" in str(found)


def test_a_deployments_context_says_it_too(tmp_path: Path) -> None:
    build(context={"targets": json.dumps(SAID)}, outdir=tmp_path).synth()

    assembly = Assembly(folder=tmp_path, stage="dev")
    read = TARGETS.parse(assembly.environment("DefaultWorker/Function")["LAMPLIGHTER_TARGETS"])
    assert {name: entry.at for name, entry in read.entries.items()} == {
        "billing": FUNCTION,
        "letters": "https://sqs.eu-central-1.amazonaws.com/123456789012/letters.fifo",
        "news": TOPIC,
        "jobs": BUS,
        "invoices": MACHINE,
    }
    allowed = str(assembly.scheduler.properties("AWS::IAM::Role")["DefaultWorker/Role"])
    assert all(f"'{action}'" in allowed and f"'{arn}'" in allowed for action, arn in ARNS.items())


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"kind": "ec2"}, "'billing': kind 'ec2' is not one of lambda, sqs, sns"),
        ({"arn": QUEUE}, f"'billing': '{QUEUE}' is no ARN of lambda"),
        ({"arn": "billing"}, "'billing': 'billing' is no ARN"),
        ({"arn": f"arn:aws:lambda:{HERE}:function:*"}, "is no ARN without wildcards"),
        ({"arn": 5}, "'billing': arn 5 is not text"),
        ({"owners": []}, "'billing': owners .*: at least one"),
        ({"owners": "acme"}, "'billing': owners 'acme' is not a list"),
        ({"owners": [5]}, r"'billing': owners \[5\]: not all of them text"),
        ({"source": "acme"}, "'billing': source 'acme' of a lambda"),
        ({"key_arn": "alias/mine"}, "'billing': key_arn 'alias/mine' is no key"),
        ({"url": "x"}, "'billing': no url; there are arn, detail_type"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_target_that_makes_no_sense_is_refused_by_name_and_value(
    changed: Mapping[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        targets_of({"billing": {**SAID["billing"], **changed}})


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"a b": SAID["news"]}, "'a b': its name is not 1-64 of"),
        ({"jobs": {**SAID["jobs"], "source": "aws.ec2"}}, "'aws.ec2': aws. is AWS's own"),
        ({"jobs": {**SAID["jobs"], "detail_type": "x" * 129}}, "longer than 128 characters"),
        ({"news": None}, "'news': None is not a JSON object"),
        ([], r"\[\] is not a JSON object"),
    ],
    ids=["name", "source", "detail_type", "null", "list"],
)
def test_so_is_a_name_that_is_none(said: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        targets_of(said)


def test_a_context_that_makes_no_sense_says_which() -> None:
    with pytest.raises(ValueError, match="context targets: target 'news'"):
        build(context={"targets": '{"news": {"kind": "sns"}}'})


def test_a_name_stands_for_one_thing() -> None:
    stack = Stack(App(), "Theirs")
    first, *_ = targets_in(stack)

    with pytest.raises(ValueError, match="each name once"):
        scheduler_in(stack, first, first)


def test_more_than_an_environment_holds_is_refused_before_it_is_deployed() -> None:
    """docs/deploy.md: about twelve beside the three lanes."""

    def named(stack: Stack, count: int) -> list[Target]:
        return [
            QueueTarget(name=f"queue-{n}", queue=sqs.Queue(stack, f"Queue{n}"), owners=["acme"])
            for n in range(count)
        ]

    many, some = Stack(App(), "Many"), Stack(App(), "Some")
    with pytest.raises(ValueError, match=f"targets and quotas: .* more than {TOLD_BYTES}"):
        scheduler_in(many, *named(many, 14))
    scheduler_in(some, *named(some, 12))


def test_what_a_worker_calls_is_what_it_may() -> None:
    """The actions of IAM are called as the operations that `aws/targets.py` makes."""
    session = boto3.Session(region_name="eu-central-1")
    calls = {
        "lambda": "Invoke",
        "sqs": "SendMessage",
        "sns": "Publish",
        "events": "PutEvents",
        "stepfunctions": "StartExecution",
    }

    actions = set()
    for service, operation in calls.items():
        model = session.client(service, aws_access_key_id="x", aws_secret_access_key="y").meta  # type: ignore[call-overload]
        prefix = model.service_model.signing_name
        name = model.service_model.operation_model(operation).name
        actions.add(f"{prefix}:{'InvokeFunction' if name == 'Invoke' else name}")
    assert actions == {*ARNS}
