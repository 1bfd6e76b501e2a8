"""The functions, imported as Lambda imports them, on moto's tables and queues."""

from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from typing import cast

import boto3
import pytest
from moto import mock_aws

from lamplighter.memory import MemoryWorld
from lamplighter.ports import Ports
from tests.support.lambdas import Deployed, Function, OnMemory


@pytest.fixture(scope="session")
def deployed() -> Iterator[Deployed]:
    """All that the functions need, and their environment in place."""
    with mock_aws(), pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
        clients = boto3.client("dynamodb"), boto3.client("sqs"), boto3.client("s3")
        made = Deployed.on(*clients)
        for name, value in made.environment.items():
            patch.setenv(name, value)
        yield made


def _function(deployed: Deployed, name: str) -> Function:
    deployed.empty()
    return cast("Function", import_module(f"{name}.handler"))


@pytest.fixture
def worker(deployed: Deployed) -> Function:
    return _function(deployed, "worker")


@pytest.fixture
def scheduler(deployed: Deployed) -> Function:
    return _function(deployed, "scheduler")


@pytest.fixture
def dead_letters(deployed: Deployed) -> Function:
    return _function(deployed, "dead_letters")


@pytest.fixture
def world() -> MemoryWorld:
    return MemoryWorld()


@pytest.fixture
def on_memory(world: MemoryWorld, monkeypatch: pytest.MonkeyPatch) -> OnMemory:
    def put(function: Function, ports: Ports | None = None) -> Function:
        wired = replace(function.wired, ports=ports or world.ports())
        monkeypatch.setattr(function, "wired", wired)
        return function

    return put
