"""A bucket as `infra` declares it, for an emulator."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import CreateBucketConfigurationTypeDef


def create_bucket(client: "S3Client", name: str) -> str:
    """An empty bucket that keeps versions."""
    if client.meta.region_name == "us-east-1":
        # S3's first region is the one that must not be named.
        client.create_bucket(Bucket=name)
    else:
        place: CreateBucketConfigurationTypeDef = {"LocationConstraint": "eu-central-1"}
        client.create_bucket(Bucket=name, CreateBucketConfiguration=place)
    client.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
    return name


def delete_bucket(client: "S3Client", name: str) -> None:
    """With all versions of all that is in it."""
    found = client.list_object_versions(Bucket=name)
    for one in (*found.get("Versions", ()), *found.get("DeleteMarkers", ())):
        client.delete_object(Bucket=name, Key=one["Key"], VersionId=one["VersionId"])
    client.delete_bucket(Bucket=name)
