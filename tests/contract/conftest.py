"""One suite, several implementations: in memory, on moto, and on the emulator of `make run`."""

from collections.abc import Iterator

import pytest
from moto import mock_aws

from lamplighter.local import emulator
from lamplighter.local.home import Home
from tests.contract import worlds
from tests.contract.worlds import Clients, World
from tests.support.atomic import OneAtATime

# The emulator is there once `make run` has installed it; nothing else needs it.
LOCAL = [pytest.param("ministack", marks=pytest.mark.local)] if Home.of().emulator.is_file() else []


@pytest.fixture(scope="package")
def moto_clients() -> Iterator[Clients]:
    with mock_aws():
        clients = Clients.of()
        OneAtATime().attach(clients.dynamodb)
        yield clients


@pytest.fixture(scope="package")
def ministack_clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clients]:
    home = Home.of(folder=tmp_path_factory.mktemp("ministack"))
    with emulator.running(home, heard=lambda _: None) as running:
        running.wait_until_healthy()
        clients = Clients.of(running.url)
        # A service is loaded by its first call, which a client may give up and make again: of a
        # create that would be one too many.
        clients.dynamodb.list_tables()
        clients.sqs.list_queues()
        clients.s3.list_buckets()
        yield clients


@pytest.fixture(params=["memory", "moto", *LOCAL])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    if request.param == "memory":
        yield worlds.memory()
        return
    clients = request.getfixturevalue(f"{request.param}_clients")
    with worlds.aws(clients) as on_aws:
        yield on_aws
