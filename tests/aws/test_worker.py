"""The composition root of a worker: what must not start does not."""

from dataclasses import replace

import pytest

from lamplighter.aws.settings import WorkerSettings
from lamplighter.aws.telemetry import LambdaTelemetry
from lamplighter.aws.wiring import Wired
from lamplighter.aws.worker import batch_runner
from lamplighter.core.addresses import Reach
from lamplighter.core.targets import HttpRules
from lamplighter.memory import MemoryWorld
from lamplighter.tasks.shell import NotAllowedHere

LAMBDA = {"AWS_LAMBDA_FUNCTION_NAME": "worker"}
SETTINGS = WorkerSettings(
    stage="test",
    executions_table="executions",
    jobs_table="jobs",
    queues={"default": ("https://sqs.example/default",)},
    lane="default",
    tasks="playground.tasks",
    log_sample_rate=1.0,
    shell_owners=frozenset(),
    http=HttpRules(owners=frozenset({"*"}), reach=Reach(loopback=True)),
)


@pytest.fixture
def wired() -> Wired:
    return Wired(ports=MemoryWorld().ports(), telemetry=LambdaTelemetry(sample_rate=1.0))


def test_a_deployed_worker_that_may_call_its_own_runtime_does_not_start(wired: Wired) -> None:
    with pytest.raises(NotAllowedHere, match="loopback in a deployed Lambda"):
        batch_runner(wired, SETTINGS, LAMBDA)

    batch_runner(wired, replace(SETTINGS, http=HttpRules(owners=frozenset({"*"}))), LAMBDA)


@pytest.mark.parametrize(
    "environment",
    [{}, LAMBDA | {"AWS_ENDPOINT_URL": "http://127.0.0.1:4566"}],
    ids=["container", "emulator"],
)
def test_on_ones_own_machine_it_does(wired: Wired, environment: dict[str, str]) -> None:
    batch_runner(wired, SETTINGS, environment)
