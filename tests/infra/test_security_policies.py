"""Over all templates: no wildcard that is not listed here, no deputy to confuse, TLS alone."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Stack
from aws_cdk import aws_kms as kms

from infra.components.api import CALLED_BACK, OPEN, Authentication
from infra.components.encryption import OURS, chosen_key
from infra.components.job_scheduler import JobScheduler
from infra.components.layers import TaskSource
from infra.components.tables import SchedulerTables
from infra.configuration import Configuration
from infra.paths import ROOT
from tests.infra.conftest import synthesized
from tests.infra.templates import Assembly, Properties, Template

KEY_ARN = "arn:aws:kms:eu-central-1:123456789012:key/7f3a0c1e-0000-4000-8000-000000000000"
QUEUE = "AWS::SQS::Queue"
ROLE = "AWS::IAM::Role"
ROOT_OF_ACCOUNT = ":root"

# Every pattern that an Allow has, in any policy of any template, and why.
WILDCARDS = {
    # Keys of objects are owners' prefixes: known when a job is, not when a role is made.
    ("s3:GetObject", "Payloads/Bucket/*"),
    ("s3:GetObjectVersion", "Payloads/Bucket/*"),
    ("s3:PutObject", "Payloads/Bucket/*"),
    # Of a key's own policy "*" is that key; the account's root hands it on to roles' policies,
    # and without it nobody could ever change the key again.
    ("kms:*", "*"),
    ("kms:Decrypt", "*"),
    ("kms:DescribeKey", "*"),
    ("kms:Encrypt", "*"),
    ("kms:GenerateDataKey", "*"),
    ("kms:GenerateDataKeyWithoutPlaintext", "*"),
    ("kms:ReEncryptFrom", "*"),
    ("kms:ReEncryptTo", "*"),
}

Statement = dict[str, Any]


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    """With a key of the customer's: cdk-nag lets it pass as it is."""
    return synthesized(tmp_path_factory.mktemp("kms"), {"kms": OURS})


@pytest.fixture(scope="module", params=["plain", "with a key"])
def built(request: pytest.FixtureRequest, assembly: Assembly, encrypted: Assembly) -> Assembly:
    return assembly if request.param == "plain" else encrypted


def documents(template: Template) -> Iterator[tuple[str, Properties]]:
    """Every policy there is, with its resource's type, trust of roles too."""
    for resource in template.body["Resources"].values():
        properties, kind = resource.get("Properties", {}), resource["Type"]
        for name in ("PolicyDocument", "KeyPolicy", "AssumeRolePolicyDocument"):
            if name in properties:
                yield kind, properties[name]
        for policy in properties.get("Policies", []):
            yield kind, policy["PolicyDocument"]


def statements(built: Assembly) -> Iterator[tuple[str, Statement]]:
    for template in (built.data, built.scheduler):
        for kind, document in documents(template):
            for statement in document["Statement"]:
                yield kind, statement


def listed(value: Any) -> list[Any]:  # noqa: ANN401 -- whatever JSON it is
    return value if isinstance(value, list) else [value]


def place(built: Assembly, arn: object) -> str:
    return arn if isinstance(arn, str) else built.named(arn)


def test_a_pattern_is_allowed_nowhere_but_where_its_reason_stands(built: Assembly) -> None:
    found = {
        (action, place(built, arn))
        for _, statement in statements(built)
        if statement["Effect"] == "Allow"
        for action in listed(statement["Action"])
        for arn in listed(statement.get("Resource", []))
        if "*" in action or "*" in place(built, arn)
    }

    assert found
    assert found <= WILDCARDS


def test_every_reason_for_a_pattern_is_needed(encrypted: Assembly) -> None:
    found = {
        (action, place(encrypted, arn))
        for _, statement in statements(encrypted)
        if statement["Effect"] == "Allow"
        for action in listed(statement["Action"])
        for arn in listed(statement.get("Resource", []))
    }

    assert found >= WILDCARDS


def test_nothing_is_allowed_to_whoever_is_not_named(built: Assembly) -> None:
    """An empty account or a star in an Allow is the public."""
    allowed = [
        principal
        for _, statement in statements(built)
        if statement["Effect"] == "Allow" and "Principal" in statement
        for principal in listed(statement["Principal"])
    ]

    assert allowed
    for principal in allowed:
        assert isinstance(principal, dict), principal
        assert principal.keys() <= {"Service", "AWS"}
        if "AWS" in principal:
            assert json.dumps(principal).count("AWS::AccountId") == 1
            assert ROOT_OF_ACCOUNT in json.dumps(principal)


def test_a_service_is_let_in_for_our_own_account_or_resource_alone(built: Assembly) -> None:
    """The confused deputy: a service acts for whoever asks it.

    Lambda assumes a role for the functions that have it alone: who may pass it is IAM's to say.
    """
    deputies = [
        (kind, statement)
        for kind, statement in statements(built)
        if statement["Effect"] == "Allow" and "Service" in (statement.get("Principal") or {})
    ]
    bound = {
        "aws:SourceAccount",
        "aws:SourceArn",
        "kms:EncryptionContext:aws:logs:arn",
    }

    assert deputies
    for kind, statement in deputies:
        if statement["Principal"]["Service"] == "lambda.amazonaws.com":
            assert kind == ROLE
            continue
        keys = {key for clause in statement.get("Condition", {}).values() for key in clause}
        assert keys & bound, statement


def test_a_function_is_invoked_by_our_api_alone(built: Assembly) -> None:
    permissions = built.scheduler.properties("AWS::Lambda::Permission")

    for name, permission in permissions.items():
        assert permission["Principal"] == "apigateway.amazonaws.com", name
        assert "AWS::AccountId" in json.dumps(permission["SourceArn"]), name
    assert len(permissions) == len(built.scheduler.properties("AWS::ApiGatewayV2::Route"))


def test_queues_topics_and_buckets_refuse_what_comes_without_tls(built: Assembly) -> None:
    kinds = {QUEUE, "AWS::SNS::Topic", "AWS::S3::Bucket"}
    there = {
        template.names[id]
        for template in (built.data, built.scheduler)
        for id, resource in template.body["Resources"].items()
        if resource["Type"] in kinds
    }

    refusing = {
        own(built, arn)
        for _, statement in statements(built)
        if statement["Effect"] == "Deny"
        and statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
        and statement["Principal"] in ("*", {"AWS": "*"})
        for arn in listed(statement["Resource"])
    }

    assert there <= refusing
    assert "Payloads/Bucket" in there


def own(built: Assembly, arn: object) -> str:
    """What a policy is of, in its own stack."""
    for template in (built.scheduler, built.data):
        match arn:
            case {"Fn::GetAtt": [str(id), _]} if id in template.names:
                return template.names[id]
            case {"Fn::Join": ["", [{"Fn::GetAtt": [str(id), _]}, "/*"]]} if id in template.names:
                return f"{template.names[id]}/*"
    raise AssertionError(arn)


def test_the_api_has_no_name_of_its_own_that_takes_older_tls(built: Assembly) -> None:
    """An HTTP API's own endpoint takes TLS 1.2 and later; a domain name would say which."""
    types = {resource["Type"] for resource in built.scheduler.body["Resources"].values()}

    assert "AWS::ApiGatewayV2::Api" in types
    assert not types & {"AWS::ApiGatewayV2::DomainName", "AWS::Lambda::Url"}


def test_every_route_asks_for_a_token_but_those_of_the_list(built: Assembly) -> None:
    routes = built.scheduler.properties("AWS::ApiGatewayV2::Route").values()

    open_ = {one["RouteKey"].split(" ")[1] for one in routes if one["AuthorizationType"] == "NONE"}
    assert open_ == {*OPEN, *CALLED_BACK}
    assert {one["AuthorizationType"] for one in routes} == {"NONE", "JWT"}


def test_the_bucket_is_nobodys_but_ours(built: Assembly) -> None:
    (bucket,) = built.data.properties("AWS::S3::Bucket").values()

    assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}
    assert bucket["OwnershipControls"] == {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]}


@pytest.mark.parametrize(
    ("type_", "property_"),
    [
        (QUEUE, "KmsMasterKeyId"),
        ("AWS::Logs::LogGroup", "KmsKeyId"),
        ("AWS::Lambda::Function", "KmsKeyArn"),
    ],
)
def test_with_a_key_queues_logs_and_variables_are_encrypted_with_it(
    assembly: Assembly, encrypted: Assembly, type_: str, property_: str
) -> None:
    for name, one in encrypted.scheduler.properties(type_).items():
        assert encrypted.named(one[property_]) == "Key", name
    for one in assembly.scheduler.properties(type_).values():
        assert property_ not in one


def test_with_a_key_tables_and_bucket_are_encrypted_with_it(
    assembly: Assembly, encrypted: Assembly
) -> None:
    (bucket,) = encrypted.data.properties("AWS::S3::Bucket").values()
    (rule,) = bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    by_default = rule["ServerSideEncryptionByDefault"]

    for one in encrypted.data.properties("AWS::DynamoDB::Table").values():
        assert one["SSESpecification"]["SSEType"] == "KMS"
        assert own(encrypted, one["SSESpecification"]["KMSMasterKeyId"]) == "Key"
    assert by_default["SSEAlgorithm"] == "aws:kms"
    assert own(encrypted, by_default["KMSMasterKeyID"]) == "Key"
    assert rule["BucketKeyEnabled"] is True
    for one in assembly.data.properties("AWS::DynamoDB::Table").values():
        assert "SSESpecification" not in one


def test_the_key_is_changed_each_year_and_outlives_its_stack(
    assembly: Assembly, encrypted: Assembly
) -> None:
    (key,) = encrypted.data.resources("AWS::KMS::Key").values()

    assert key["Properties"]["EnableKeyRotation"] is True
    assert (key["DeletionPolicy"], key["UpdateReplacePolicy"]) == ("Retain", "Retain")
    types = {one["Type"] for one in assembly.data.body["Resources"].values()}
    assert "AWS::KMS::Key" not in types


def of_key(built: Assembly, role: str) -> list[tuple[list[str], object]]:
    """What a role may do with the key, and on what condition."""
    return [
        (sorted(listed(statement["Action"])), statement.get("Condition"))
        for policy in built.scheduler.properties(ROLE)[role]["Policies"]
        for statement in policy["PolicyDocument"]["Statement"]
        if [place(built, arn) for arn in listed(statement["Resource"])] == ["Key"]
    ]


def test_a_role_uses_the_key_and_administers_nothing(encrypted: Assembly) -> None:
    """DynamoDB's share by way of DynamoDB alone."""
    used = ["kms:Decrypt", "kms:GenerateDataKey"]
    of_tables = [
        *("kms:DescribeKey", "kms:Encrypt"),
        *("kms:GenerateDataKeyWithoutPlaintext", "kms:ReEncryptFrom", "kms:ReEncryptTo"),
    ]
    via = {"Fn::Join": ["", ["dynamodb.", {"Ref": "AWS::Region"}, ".amazonaws.com"]]}

    roles = encrypted.scheduler.properties(ROLE)

    for role in roles.keys() - {"Tick/Role"}:
        assert of_key(encrypted, role) == [
            (used, None),
            (of_tables, {"StringEquals": {"kms:ViaService": via}}),
        ], role
    assert of_key(encrypted, "Tick/Role") == [(used, None)]


def test_the_second_clock_may_send_to_an_encrypted_queue(encrypted: Assembly) -> None:
    """Without it the rule fails silently: EventBridge has no role there, the key has to say so."""
    (key,) = encrypted.data.properties("AWS::KMS::Key").values()

    (clock,) = [
        statement
        for statement in key["KeyPolicy"]["Statement"]
        if statement["Principal"] == {"Service": "events.amazonaws.com"}
    ]

    assert clock["Action"] == ["kms:GenerateDataKey", "kms:Decrypt"]
    assert clock["Condition"] == {"StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}}


@pytest.mark.parametrize(
    ("said", "message"),
    [("yes", "kms: 'yes'"), (KEY_ARN.replace("key/", "alias/"), "kms: 'arn:")],
)
def test_what_is_no_key_is_refused_by_value(said: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        chosen_key(Stack(App(), "Theirs"), said)


@pytest.mark.parametrize(("said", "means"), [(False, ""), (None, ""), (True, OURS), (OURS, OURS)])
def test_a_context_may_say_it_as_json_does(said: object, means: str, tmp_path: Path) -> None:
    defaults = json.loads((ROOT / "cdk.json").read_text())["context"]
    app = App(context={**defaults, "kms": said}, outdir=str(tmp_path), analytics_reporting=False)

    assert Configuration.of(app.node).kms == means


def test_a_key_by_its_arn_is_used_and_none_is_made(tmp_path: Path) -> None:
    stack = Stack(App(outdir=str(tmp_path)), "Theirs")

    tables = SchedulerTables(
        stack, "Tables", deletion_protection=True, encryption_key=chosen_key(stack, KEY_ARN)
    )

    assert tables.encryption_key is not None
    assert stack.resolve(tables.encryption_key.key_arn) == KEY_ARN


def test_tables_bring_their_key_and_another_is_refused() -> None:
    stack = Stack(App(), "Theirs")
    tables = SchedulerTables(stack, "Tables", deletion_protection=True)

    with pytest.raises(ValueError, match="tables or encryption_key, not both"):
        JobScheduler(
            stack,
            "Jobs",
            tasks=TaskSource(folder=ROOT / "examples" / "playground", module="playground.tasks"),
            authentication=Authentication(issuer="https://login.example.com/", audience=["x"]),
            tables=tables,
            encryption_key=kms.Key(stack, "Key"),
        )
