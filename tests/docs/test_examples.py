"""What the pages tell a reader to type and to write is there, and works.

The README's shell lines run against the product itself, in tests/local/test_run.py.
"""

import ast
import re
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.core import TyperCommand, TyperGroup, TyperOption
from typer.main import get_command

import lamplighter.client
from lamplighter.cli.main import app
from lamplighter.client.http import Client
from lamplighter.core.model import JobStatus
from lamplighter.memory import MemoryWorld, VirtualClock
from lamplighter.sim.system import System
from lamplighter.tasks.registry import TASKS
from lamplighter.testing import Scheduler
from tests.client.test_payloads import API, Network

ROOT = Path(__file__).parents[2]
PAGES = {
    str(page.relative_to(ROOT)): page.read_text(encoding="utf-8")
    for page in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"))
}
PYTHON = {
    f"{name} {place}": code
    for name, text in PAGES.items()
    for place, code in enumerate(re.findall(r"```python\n(.*?)```", text, re.DOTALL), 1)
}
TASKS_SHOWN = {name: code for name, code in PYTHON.items() if '@task("generate_invoice"' in code}
TREE = re.search(r"## The tree\n\n```\n(.*?)```", PAGES["docs/architecture.md"], re.DOTALL)


@pytest.mark.parametrize("code", PYTHON.values(), ids=PYTHON)
def test_what_an_example_imports_it_uses(code: str) -> None:
    tree = ast.parse(code)
    imported = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}

    assert imported - used == set()


@pytest.mark.parametrize("code", TASKS_SHOWN.values(), ids=TASKS_SHOWN)
def test_a_task_in_an_example_registers_and_takes_its_payload(
    code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TASKS, "_tasks", {})

    exec(compile(code, "example", "exec"), {"__name__": "example"})

    task = TASKS.newest("generate_invoice")
    assert task is not None
    assert task.parse('{"customer": "c-1"}').customer == "c-1"


def test_a_test_of_schedules_passes_as_it_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TASKS, "_tasks", {})
    shown: dict[str, Any] = {"__name__": "example"}

    exec(compile(PYTHON["docs/testing.md 1"], "example", "exec"), shown)

    shown["test_a_reminder_goes_out_each_morning_of_a_year"](Scheduler())


def test_the_readme_has_a_task() -> None:
    assert "README.md 1" in TASKS_SHOWN


def test_what_the_client_is_shown_to_do_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    world = MemoryWorld(clock=VirtualClock(datetime(2026, 7, 13, 12, tzinfo=UTC)))
    system, network = System(world=world), Network(world=world)
    here = partial(Client, transport=httpx.MockTransport(network.answer))
    monkeypatch.setattr(lamplighter.client, "Client", here)
    monkeypatch.setenv("LAMPLIGHTER_URL", API)
    monkeypatch.setenv("LAMPLIGHTER_TOKEN", "acme")
    said: dict[str, Any] = {}

    for name, code in PYTHON.items():
        if name.startswith("docs/client.md "):
            exec(compile(code, name, "exec"), said)
            system.run_for(timedelta(seconds=1))

    assert said["run"]["trigger"] == "MANUAL"
    assert len(said["made"]["runs"]) == 1
    assert said["again"]["execution_id"] in {run.execution_id for run in system.runs}
    assert said["job"]["task"] == "echo"
    assert world.tables.jobs[said["job_id"]].status is JobStatus.DELETED


def test_the_page_on_the_client_names_all_that_it_can() -> None:
    methods = {name for name in vars(Client) if not name.startswith("_")}

    assert methods - {*re.findall(r"\w+", PAGES["docs/client.md"])} == set()


def curls(text: str) -> list[str]:
    """The calls of curl in a page's shell lines, each with the lines that it goes on in."""
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    return [call for block in blocks for call in re.findall(r"\bcurl (?:.*\\\n)*.*", block)]


CURLS = {f"{name}: {call}": call for name, text in PAGES.items() for call in curls(text)}


@pytest.mark.parametrize("call", CURLS.values(), ids=CURLS)
def test_a_curl_that_sends_json_says_that_it_does(call: str) -> None:
    sends = re.search(r" (-d|--data\S*|--json)[ =]", call) is not None

    assert not sends or "Content-Type: application/json" in call


def test_curls_with_a_body_are_found() -> None:
    found = {name.partition(":")[0] for name, call in CURLS.items() if " -d " in call}

    assert {"docs/api.md", "docs/deploy.md", "docs/targets.md"} <= found


def test_every_target_of_make_that_a_page_names_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {
        target
        for text in PAGES.values()
        for target in re.findall(r"(?:^|`|run +|[A-Z]+=\S+ )make ([a-z]+)", text, re.MULTILINE)
    }

    assert {"run", "test"} <= named
    assert named - targets == set()


Command = TyperCommand | TyperGroup


def commands(command: object, name: str = "lamplighter") -> dict[str, Command]:
    """Each by all of its words."""
    assert isinstance(command, Command)
    found: dict[str, Command] = {name: command}
    if isinstance(command, TyperGroup):
        for word, below in command.commands.items():
            found |= commands(below, f"{name} {word}")
    return found


COMMANDS = commands(get_command(app))


def test_every_command_that_a_page_names_exists() -> None:
    named = {
        " ".join(words.split())
        for text in PAGES.values()
        for words in re.findall(r"(?:`|bin/|\()(lamplighter(?: [a-z][a-z-]*)+)", text)
    }

    assert {"lamplighter token", "lamplighter jobs delete"} <= named
    groups = {name for name, command in COMMANDS.items() if isinstance(command, TyperGroup)}
    unknown = {
        name
        for name in named
        if name not in COMMANDS and name.rpartition(" ")[0] not in COMMANDS.keys() - groups
    }
    assert unknown == set()


def test_the_readme_names_what_the_command_line_is_for() -> None:
    for word in ("jobs", "executions", "next", "explain", "import"):
        assert f"`{word}`" in PAGES["README.md"]


def test_every_variable_of_the_command_line_is_explained() -> None:
    variables = {
        str(parameter.envvar)
        for command in COMMANDS.values()
        for parameter in command.params
        if isinstance(parameter, TyperOption) and parameter.envvar
    }

    assert len(variables) >= 4
    assert {name for name in variables if f"| `{name}` |" not in PAGES["docs/local.md"]} == set()


def test_the_map_of_the_tree_is_of_this_tree() -> None:
    assert TREE is not None
    package = ROOT / "layers" / "lamplighter" / "python" / "lamplighter"
    inside = {name for line in re.findall(r"^  (\S+)  ", TREE[1], re.MULTILINE) for name in [line]}
    outside = set(re.findall(r"^(\S+/)", TREE[1], re.MULTILINE))

    assert {name for name in inside if not (package / name).exists()} == set()
    assert {name for name in outside if not (ROOT / name).is_dir()} == set()
    packages = {f"{file.parent.name}/" for file in package.glob("*/__init__.py")}
    assert packages - inside == set()
