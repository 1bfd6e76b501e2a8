"""What is done to a run behind its API's back: to its queues and functions; and its log."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypedDict

import boto3
from botocore.config import Config

from lamplighter.local.deploy import ACCOUNT, REGION, Cloud
from tests.local.product import Product

if TYPE_CHECKING:
    from mypy_boto3_logs import CloudWatchLogsClient
    from mypy_boto3_sqs import SQSClient

TASKS: Final = "LAMPLIGHTER_TASKS"
LOG_NAMES: Final = ("emulator.log.1", "emulator.log")


class _Terms(TypedDict):
    endpoint_url: str
    aws_access_key_id: str
    aws_secret_access_key: str
    region_name: str
    config: Config


@dataclass(frozen=True)
class Emulated:
    """The emulator of a run, as its operator sees it."""

    product: Product

    def purge(self, function: str) -> None:
        """Empty the queue that a function is fed from, of what is in flight too."""
        self.sqs.purge_queue(QueueUrl=self.queue_of(function))

    def in_flight(self, function: str) -> int:
        """Messages that were received, and neither deleted nor visible again."""
        answer = self.sqs.get_queue_attributes(
            QueueUrl=self.queue_of(function),
            AttributeNames=["ApproximateNumberOfMessagesNotVisible"],
        )
        return int(answer["Attributes"]["ApproximateNumberOfMessagesNotVisible"])

    def queue_of(self, function: str) -> str:
        """Its URL; `function` is a part of the name, as for `Product.processes_of`."""
        mappings = self.cloud.functions.list_event_source_mappings()["EventSourceMappings"]
        [arn] = {
            mapping["EventSourceArn"] for mapping in mappings if function in mapping["FunctionArn"]
        }
        return self.sqs.get_queue_url(QueueName=arn.rpartition(":")[2])["QueueUrl"]

    def deploy_tasks(self, function: str, module: str) -> None:
        """A deploy that changes nothing but a function's tasks: new processes have them."""
        [name] = {
            found["FunctionName"]
            for found in self.cloud.functions.list_functions()["Functions"]
            if function in found["FunctionName"]
        }
        has = self.cloud.functions.get_function_configuration(FunctionName=name)
        variables = {**has["Environment"]["Variables"], TASKS: module}
        self.cloud.functions.update_function_configuration(
            FunctionName=name, Environment={"Variables": variables}
        )

    def logged(self) -> str:
        """All that the functions have logged; the emulator's own log leaves out some calls."""
        return "\n".join(
            event["message"]
            for groups in self.logs.get_paginator("describe_log_groups").paginate()
            for group in groups["logGroups"]
            for page in self.logs.get_paginator("filter_log_events").paginate(
                logGroupName=group["logGroupName"]
            )
            for event in page["events"]
        )

    @cached_property
    def cloud(self) -> Cloud:
        return Cloud(self.product.emulator_url)

    @cached_property
    def sqs(self) -> "SQSClient":
        return boto3.client("sqs", **self._terms())

    @cached_property
    def logs(self) -> "CloudWatchLogsClient":
        return boto3.client("logs", **self._terms())

    def _terms(self) -> "_Terms":
        return {
            "endpoint_url": self.product.emulator_url,
            "aws_access_key_id": ACCOUNT,
            "aws_secret_access_key": "none",
            "region_name": REGION,
            "config": Config(proxies={}),
        }


def events(folder: Path) -> Iterator[Mapping[str, object]]:
    """What the functions of a run have logged, as far as its log is kept."""
    for path in (folder / name for name in LOG_NAMES):
        if path.exists():
            for line in path.read_text(errors="replace").splitlines():
                if line.startswith('{"level"'):
                    yield json.loads(line)  # a logger's; a metric's has no level
