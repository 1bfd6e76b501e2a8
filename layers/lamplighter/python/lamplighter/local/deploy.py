"""The synthesized templates, deployed as they are: what `cdk deploy` does, without its CLI."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from lamplighter.local.assembly import Assembly, Template
from lamplighter.local.errors import CannotRun
from lamplighter.local.home import Home

if TYPE_CHECKING:
    from mypy_boto3_cloudformation import CloudFormationClient
    from mypy_boto3_lambda import LambdaClient
    from mypy_boto3_s3 import S3Client

ACCOUNT: Final = "000000000000"
REGION: Final = "us-east-1"
# What `cdk bootstrap` leaves behind: the version that a template asks for.
BOOTSTRAP_PARAMETER: Final = "/cdk-bootstrap/hnb659fds/version"
BOOTSTRAP_VERSION: Final = "30"
STACK_TIMEOUT_S: Final = 60.0
# A cold function takes seconds, and where other work has the cores a minute and more.
PATIENCE_S: Final = 180
REASONS_SHOWN: Final = 5


@dataclass(frozen=True, kw_only=True)
class Deployed:
    """What the stacks say of themselves, all together."""

    outputs: Mapping[str, str]
    resources: int


class Cloud:
    """Clients of the emulator."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._session = boto3.Session(
            aws_access_key_id=ACCOUNT,  # the emulator takes the account from it
            aws_secret_access_key="none",  # noqa: S106 -- nobody looks at it
            region_name=REGION,
        )
        # Nothing here is worth a second try.
        self._config = Config(
            proxies={},
            read_timeout=PATIENCE_S,
            retries={"total_max_attempts": 1},
            max_pool_connections=32,
        )

    @cached_property
    def s3(self) -> "S3Client":
        return self._session.client("s3", endpoint_url=self.url, config=self._config)

    @cached_property
    def cloudformation(self) -> "CloudFormationClient":
        return self._session.client("cloudformation", endpoint_url=self.url, config=self._config)

    @cached_property
    def functions(self) -> "LambdaClient":
        return self._session.client("lambda", endpoint_url=self.url, config=self._config)

    def bootstrap(self) -> None:
        parameters = self._session.client("ssm", endpoint_url=self.url, config=self._config)
        parameters.put_parameter(Name=BOOTSTRAP_PARAMETER, Value=BOOTSTRAP_VERSION, Type="String")


def deploy(home: Home, cloud: Cloud) -> Deployed:
    """Upload the assets and create every stack.

    Raises CannotRun with the resources that failed, and why, or with those that the emulator
    left out without a word.
    """
    assembly = Assembly(folder=home.assembly, account=ACCOUNT, region=REGION)
    outputs: dict[str, str] = {}
    resources = 0
    try:
        cloud.bootstrap()
        _upload(assembly, cloud)
        for template in assembly.templates():
            outputs |= _create(template, cloud)
            resources += len(template.resources)
    except (BotoCoreError, ClientError) as error:
        raise CannotRun(f"deploy: {error}") from error
    return Deployed(outputs=outputs, resources=resources)


def _upload(assembly: Assembly, cloud: Cloud) -> None:
    buckets: set[str] = set()
    for asset in assembly.assets():
        if asset.bucket not in buckets:
            cloud.s3.create_bucket(Bucket=asset.bucket)
            buckets.add(asset.bucket)
        cloud.s3.put_object(Bucket=asset.bucket, Key=asset.key, Body=asset.content())


def _create(template: Template, cloud: Cloud) -> dict[str, str]:
    cloud.cloudformation.create_stack(
        StackName=template.stack,
        TemplateURL=f"{cloud.url}/{template.bucket}/{template.key}",
        Capabilities=["CAPABILITY_IAM", "CAPABILITY_NAMED_IAM"],
        OnFailure="DO_NOTHING",
    )
    deadline = time.monotonic() + STACK_TIMEOUT_S
    while True:
        [stack] = cloud.cloudformation.describe_stacks(StackName=template.stack)["Stacks"]
        if stack["StackStatus"] == "CREATE_COMPLETE":
            break
        if not stack["StackStatus"].endswith("_IN_PROGRESS") or time.monotonic() > deadline:
            raise CannotRun(f"{template.stack}: {stack['StackStatus']}{_reasons(template, cloud)}")
        time.sleep(0.1)
    _check_complete(template, cloud)
    return {output["OutputKey"]: output["OutputValue"] for output in stack.get("Outputs", ())}


def _reasons(template: Template, cloud: Cloud) -> str:
    events = cloud.cloudformation.describe_stack_events(StackName=template.stack)["StackEvents"]
    reasons = [
        f"\n  {event['LogicalResourceId']}: {event.get('ResourceStatusReason', 'no reason given')}"
        for event in events
        if event["ResourceStatus"].endswith("_FAILED")
    ]
    return "".join(reasons[:REASONS_SHOWN])


def _check_complete(template: Template, cloud: Cloud) -> None:
    pages = cloud.cloudformation.get_paginator("list_stack_resources")
    made = {
        resource["LogicalResourceId"]
        for page in pages.paginate(StackName=template.stack)
        for resource in page["StackResourceSummaries"]
    }
    if missing := sorted(template.resources - made):
        raise CannotRun(f"{template.stack}: the emulator left out {', '.join(missing)}")
