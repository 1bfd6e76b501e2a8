"""Every handler starts from what is deployed: its asset, its layers, its environment."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from lamplighter import version
from tests.infra.templates import Assembly

FUNCTION = "AWS::Lambda::Function"
LAYER = "AWS::Lambda::LayerVersion"
# Lambda's runtime has boto3 and what that needs.
PROVIDED = ("boto3", "botocore", "s3transfer", "jmespath", "dateutil", "six", "urllib3")


@pytest.fixture(scope="module")
def provided(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runtime")
    for name in PROVIDED:
        found = find_spec(name)
        assert found
        assert found.origin
        module = Path(found.origin)
        source = module.parent if found.submodule_search_locations else module
        (folder / source.name).symlink_to(source)
    return folder


@pytest.mark.parametrize(
    "function",
    [
        "Scheduler/Function",
        "DefaultWorker/Function",
        "CriticalWorker/Function",
        "BulkWorker/Function",
        "DeadLetters/Function",
        "ApiHandler/Function",
    ],
)
def test_a_handler_is_imported_with_nothing_but_its_layers_on_the_path(
    local: Assembly, provided: Path, function: str
) -> None:
    module, _, entry = handler_of(local, function).rpartition(".")

    started = with_its_layers(
        local, provided, function, f"from {module} import {entry}; assert callable({entry})"
    )

    assert started.returncode == 0, started.stderr


def test_the_api_finds_swagger_ui_in_its_layer_and_no_other_function_carries_it(
    local: Assembly, provided: Path
) -> None:
    look = "from lamplighter.api.swagger import page; print(len(page().html))"

    found = with_its_layers(local, provided, "ApiHandler/Function", look)

    assert found.returncode == 0, found.stderr
    assert int(found.stdout) > 1_000_000
    carriers = [
        name
        for name, function in local.scheduler.properties(FUNCTION).items()
        if "Layers/Swagger" in [local.named(layer) for layer in function["Layers"]]
    ]
    assert carriers == ["ApiHandler/Function"]


# The caller has a world in memory, which no layer carries; the call itself does without.
ISOLATED_CALL = f"""
import lamplighter

lamplighter.__path__.append({str(Path(version.__file__).parent)!r})

from lamplighter.core.model import Owner, Payload, Spec
from lamplighter.memory import MemoryWorld
from lamplighter.services.execute import begin
from lamplighter.services.heartbeat import Heartbeats
from lamplighter.services.submit import NewJob, submit
from lamplighter.tasks.isolation import Isolation
from lamplighter.tasks.runner import TaskRunner
from lamplighter.tasks.source import Source
from dataclasses import replace

world, source = MemoryWorld(), Source(module="playground.tasks")
spec = Spec(task="echo", payload=Payload.of("7"))
submit(world.ports(), NewJob(owner=Owner("acme"), spec=spec))
claimed = begin(world.ports(), world.queue.receive()[0], worker="worker-1")
claimed = replace(claimed, execution=replace(claimed.execution, crashes=1))
isolation = Isolation(source, lambda _, line: print(line))
runner = TaskRunner(source.load({{}}), Heartbeats(world.ports()), world.clock, isolation=isolation)
print(runner(claimed))
"""


def test_an_isolated_call_finds_what_it_needs_in_the_layers(
    local: Assembly, provided: Path
) -> None:
    found = with_its_layers(local, provided, "DefaultWorker/Function", ISOLATED_CALL)

    assert found.returncode == 0, found.stderr
    assert found.stdout == "Succeeded(result='7', version=1)\n"


def handler_of(local: Assembly, function: str) -> str:
    handler: str = local.scheduler.properties(FUNCTION)[function]["Handler"]
    return handler


def with_its_layers(
    local: Assembly, provided: Path, function: str, program: str
) -> subprocess.CompletedProcess[str]:
    """Run a program with nothing on the path but what the function is deployed with."""
    properties = local.scheduler.properties(FUNCTION)[function]
    layers = local.scheduler.properties(LAYER)
    named = [local.named(layer) for layer in properties["Layers"]]
    path = [
        local.asset(properties["Code"]),
        *(local.asset(layers[name]["Content"]) / "python" for name in named),
        provided,
    ]
    return subprocess.run(
        [sys.executable, "-S", "-c", program],
        env={
            **local.environment(function),
            "PYTHONPATH": os.pathsep.join(map(str, path)),
            "AWS_REGION": "eu-central-1",
            "AWS_DEFAULT_REGION": "eu-central-1",
        },
        check=False,
        capture_output=True,
        text=True,
    )
