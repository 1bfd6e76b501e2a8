"""The bucket of payloads that are too large for a table."""

from aws_cdk import Acknowledgment, Duration, RemovalPolicy, Stack, Validations
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct

from lamplighter.core import limits


class PayloadBucket(Construct):
    """Kept when the stack goes, as the tables are, and in versions that nobody changes.

    No rule lets what is current expire: no age tells what a job still needs. What was replaced
    or deleted by hand is kept as long as the payloads in the table, for the jobs that go by it.
    """

    def __init__(
        self, scope: Construct, id: str, *, encryption_key: kms.IKey | None = None
    ) -> None:
        super().__init__(scope, id)
        self.bucket = s3.Bucket(
            self,
            "Bucket",
            versioned=True,
            encryption=s3.BucketEncryption.KMS
            if encryption_key
            else s3.BucketEncryption.S3_MANAGED,
            encryption_key=encryption_key,
            # One call of the key for many objects.
            bucket_key_enabled=True if encryption_key else None,
            enforce_ssl=True,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            lifecycle_rules=[
                s3.LifecycleRule(
                    id="WhatNobodyCanUse",
                    abort_incomplete_multipart_upload_after=Duration.days(1),
                    noncurrent_version_expiration=Duration.days(limits.PAYLOAD_KEPT.days),
                    expired_object_delete_marker=True,
                )
            ],
            removal_policy=RemovalPolicy.RETAIN,
        )
        if self.bucket.policy is not None:
            # What is kept is kept behind TLS.
            self.bucket.policy.apply_removal_policy(RemovalPolicy.RETAIN)
        Validations.of(self.bucket).acknowledge(
            Acknowledgment(
                id="AwsSolutions-S1",
                reason="Access logs need a bucket of their own, which grows for ever. Who asked "
                "for an upload is in the API's access log; CloudTrail's data events say the rest "
                "where an account wants them.",
            )
        )


def arn_in_findings(scope: Construct, bucket: s3.Bucket) -> str:
    """What cdk-nag calls a bucket's ARN where something in `scope` refers to it."""
    here, there = Stack.of(scope), Stack.of(bucket)
    if here.node.path == there.node.path:
        logical_id, attribute = here.resolve(bucket.bucket_arn)["Fn::GetAtt"]
        return f"<{logical_id}.{attribute}>"
    # The export that the reference makes anyway, made a moment earlier.
    export: str = here.resolve(there.export_value(bucket.bucket_arn))["Fn::ImportValue"]
    return export
