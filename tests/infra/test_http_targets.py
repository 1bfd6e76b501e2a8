"""HTTP targets: off unless chosen; a worker may then read one secret, and nothing else is new."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Stack, Validations, assertions
from aws_cdk import aws_kms as kms
from aws_cdk import aws_secretsmanager as secretsmanager
from cdk_nag import AwsSolutionsChecks

from infra.app import build
from infra.components.api import Authentication
from infra.components.job_scheduler import JobScheduler
from infra.components.layers import TaskSource
from infra.components.targets import EVERYONE, HttpTargets
from infra.paths import ROOT
from tests.infra.templates import Assembly

SECRET = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:signing-AbCdEf"
TASKS = TaskSource(folder=ROOT / "examples" / "playground", module="playground.tasks")
AUTHENTICATION = Authentication(issuer="https://login.example.com/", audience=["jobs"])
KEY = "arn:aws:kms:eu-central-1:123456789012:key/7f3a0c1e-0000-4000-8000-000000000000"
HTTP = "LAMPLIGHTER_HTTP_"
MAY_READ = {
    "Action": "secretsmanager:GetSecretValue",
    "Effect": "Allow",
    "Resource": SECRET,
}

Json = Mapping[str, Any]


def scheduler_in(stack: Stack, http: HttpTargets | None, *, stage: str = "dev") -> JobScheduler:
    return JobScheduler(
        stack,
        "Jobs",
        tasks=TASKS,
        authentication=AUTHENTICATION,
        deletion_protection=True,
        stage=stage,
        http_targets=http,
    )


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Json:
    """A template with everything chosen, as cdk-nag lets it pass."""
    app = App(outdir=str(tmp_path_factory.mktemp("targets")), analytics_reporting=False)
    stack = Stack(app, "Theirs")
    secret = secretsmanager.Secret.from_secret_complete_arn(stack, "Secret", SECRET)
    scheduler_in(
        stack, HttpTargets(owners=["ada", "grace"], signing_secret=secret, allow_private=True)
    )
    template: Json = assertions.Template.from_stack(stack).to_json()
    return template


def functions(template: Json) -> Iterator[tuple[str, Json]]:
    """Each function's handler and variables."""
    for resource in template["Resources"].values():
        if resource["Type"] == "AWS::Lambda::Function":
            properties = resource["Properties"]
            yield properties["Handler"], properties["Environment"]["Variables"]


def test_unless_chosen_nobody_may_call_any(assembly: Assembly) -> None:
    found = assembly.scheduler.properties("AWS::Lambda::Function").values()

    assert not [
        name for one in found for name in one["Environment"]["Variables"] if name.startswith(HTTP)
    ]
    assert "secretsmanager" not in str(assembly.scheduler.body)


def test_the_api_and_the_workers_are_told_who_may_and_what(signed: Json) -> None:
    told = {
        (handler, name, value)
        for handler, variables in functions(signed)
        for name, value in variables.items()
        if name.startswith(HTTP)
    }

    both = {("LAMPLIGHTER_HTTP_OWNERS", "ada,grace"), ("LAMPLIGHTER_HTTP_ALLOW", "private")}
    assert told == {
        *(("api.handler.handle", *variable) for variable in both),
        *(("worker.handler.handle", *variable) for variable in both),
        ("worker.handler.handle", "LAMPLIGHTER_HTTP_SIGNING_SECRET", SECRET),
    }


def test_workers_alone_may_read_the_one_secret(signed: Json) -> None:
    roles = [
        [
            statement
            for policy in resource["Properties"].get("Policies", [])
            for statement in policy["PolicyDocument"]["Statement"]
        ]
        for resource in signed["Resources"].values()
        if resource["Type"] == "AWS::IAM::Role"
    ]

    reading = [role for role in roles if "secretsmanager" in str(role)]
    assert len(reading) == 3
    for role in reading:
        assert [one for one in role if "secretsmanager" in str(one)] == [MAY_READ]
        assert "sqs:ChangeMessageVisibility" in str(role)


def test_a_deployments_context_says_it_too(tmp_path: Path) -> None:
    context = {"http_owners": "*", "http_allow": "http", "http_signing_secret": SECRET}

    build(context=context, outdir=tmp_path).synth()

    assembly = Assembly(folder=tmp_path, stage="dev")
    assert assembly.environment("DefaultWorker/Function").items() >= {
        ("LAMPLIGHTER_HTTP_OWNERS", "*"),
        ("LAMPLIGHTER_HTTP_ALLOW", "http"),
        ("LAMPLIGHTER_HTTP_SIGNING_SECRET", SECRET),
    }


@pytest.mark.parametrize(
    ("context", "message"),
    [
        ({"http_owners": "*", "http_allow": "everything"}, "'everything'"),
        ({"http_owners": "*", "http_allow": "loopback"}, "a Lambda's own runtime answers there"),
        ({"http_owners": "*", "http_signing_secret": "signing"}, "'signing' is no"),
    ],
)
def test_a_context_that_makes_no_sense_is_refused(context: Mapping[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(context=context)


def test_only_a_worker_on_ones_own_machine_may_call_that_machine() -> None:
    http = HttpTargets(owners=EVERYONE, allow_http=True, allow_loopback=True)

    scheduler_in(Stack(App(), "Mine"), http, stage="local")
    with pytest.raises(ValueError, match="allow_loopback in stage 'dev'"):
        scheduler_in(Stack(App(), "Theirs"), http)


@pytest.mark.parametrize("owners", [[], ["ada,grace"], [" ada"]], ids=["none", "comma", "space"])
def test_owners_are_named_one_by_one(owners: list[str]) -> None:
    with pytest.raises(ValueError, match="at least one, no commas"):
        HttpTargets(owners=owners)


def test_a_secret_by_name_alone_would_need_a_pattern() -> None:
    secret = secretsmanager.Secret.from_secret_name_v2(Stack(App(), "Theirs"), "Secret", "signing")

    with pytest.raises(ValueError, match="complete ARN"):
        HttpTargets(owners=EVERYONE, signing_secret=secret)


def test_a_secret_with_a_key_of_its_own_comes_with_that_key() -> None:
    stack = Stack(App(), "Theirs")
    key = kms.Key.from_key_arn(stack, "Key", KEY)
    secret = secretsmanager.Secret.from_secret_attributes(
        stack, "Secret", secret_complete_arn=SECRET, encryption_key=key
    )

    statements = HttpTargets(owners=EVERYONE, signing_secret=secret).statements

    assert [one.to_statement_json() for one in statements] == [
        MAY_READ,
        {"Action": "kms:Decrypt", "Effect": "Allow", "Resource": KEY},
    ]


def test_cdk_nag_has_nothing_to_say_about_it(tmp_path: Path) -> None:
    app = App(outdir=str(tmp_path), analytics_reporting=False)
    Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    stack = Stack(app, "Theirs")
    secret = secretsmanager.Secret.from_secret_complete_arn(stack, "Secret", SECRET)
    scheduler_in(stack, HttpTargets(owners=EVERYONE, signing_secret=secret))

    app.synth()
