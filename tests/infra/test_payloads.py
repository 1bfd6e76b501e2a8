"""The bucket of payloads by reference: what is kept, for how long, and from whom."""

from pathlib import Path

import pytest
from aws_cdk import App, Stack, Validations
from cdk_nag import AwsSolutionsChecks

from infra.components.api import Authentication
from infra.components.job_scheduler import JobScheduler
from infra.components.layers import TaskSource
from lamplighter.core import limits
from tests.infra.templates import Assembly, Properties

BUCKET = "Payloads/Bucket"


@pytest.fixture
def bucket(assembly: Assembly) -> Properties:
    (properties,) = assembly.data.properties("AWS::S3::Bucket").values()
    return properties


def test_the_bucket_lies_beside_the_tables_and_outlives_its_stack(assembly: Assembly) -> None:
    for kind, name in (("Bucket", BUCKET), ("BucketPolicy", f"{BUCKET}/Policy")):
        resources = assembly.data.resources(f"AWS::S3::{kind}")

        assert set(resources) == {name}
        assert resources[name]["DeletionPolicy"] == "Retain"
        assert resources[name]["UpdateReplacePolicy"] == "Retain"


def test_an_object_that_is_replaced_is_still_there_for_the_jobs_that_go_by_it(
    bucket: Properties,
) -> None:
    assert bucket["VersioningConfiguration"] == {"Status": "Enabled"}


def test_nothing_that_is_current_ever_expires(bucket: Properties) -> None:
    """A recurring job runs for ever: one whose payload went with its age would be lost."""
    (rule,) = bucket["LifecycleConfiguration"]["Rules"]

    assert rule == {
        "Id": "WhatNobodyCanUse",
        "Status": "Enabled",
        "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1},
        "NoncurrentVersionExpiration": {"NoncurrentDays": limits.PAYLOAD_KEPT.days},
        "ExpiredObjectDeleteMarker": True,
    }


def test_it_is_encrypted_and_nobody_outside_the_account_can_be_let_in(bucket: Properties) -> None:
    (rule,) = bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]

    assert rule["ServerSideEncryptionByDefault"] == {"SSEAlgorithm": "AES256"}
    assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}
    assert len(bucket["PublicAccessBlockConfiguration"]) == 4
    assert bucket["OwnershipControls"]["Rules"] == [{"ObjectOwnership": "BucketOwnerEnforced"}]
    assert "BucketName" not in bucket


def test_it_is_reached_by_tls_only(assembly: Assembly) -> None:
    policy = assembly.data.properties("AWS::S3::BucketPolicy")[f"{BUCKET}/Policy"]

    (statement,) = policy["PolicyDocument"]["Statement"]

    assert statement["Effect"] == "Deny"
    assert (statement["Action"], statement["Principal"]) == ("s3:*", {"AWS": "*"})
    assert statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}


@pytest.mark.parametrize("function", ["ApiHandler", "DefaultWorker", "BulkWorker"])
def test_who_makes_or_runs_jobs_is_told_which_bucket_it_is(
    assembly: Assembly, function: str
) -> None:
    environment = assembly.environment(f"{function}/Function")

    assert environment["LAMPLIGHTER_PAYLOADS_BUCKET"] == f"https://deployed.invalid/{BUCKET}"


@pytest.mark.parametrize("function", ["Scheduler", "DeadLetters"])
def test_nobody_else_is(assembly: Assembly, function: str) -> None:
    assert "LAMPLIGHTER_PAYLOADS_BUCKET" not in assembly.environment(f"{function}/Function")


def test_cdk_nag_is_told_of_it_in_a_stack_of_its_own_and_in_one_with_the_functions(
    tmp_path: Path,
) -> None:
    """The first is what all other tests are of: their synth would have raised."""
    (tmp_path / "mytasks.py").write_text("")
    app = App(outdir=str(tmp_path / "out"), analytics_reporting=False)
    JobScheduler(
        Stack(app, "Theirs"),
        "Jobs",
        deletion_protection=False,
        tasks=TaskSource(folder=tmp_path, module="mytasks"),
        authentication=Authentication(issuer="https://login.example.com/", audience=["jobs"]),
    )
    Validations.of(app).add_plugins(AwsSolutionsChecks(app))

    assert [stack.stack_name for stack in app.synth().stacks] == ["Theirs"]
