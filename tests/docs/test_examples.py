"""What the pages tell a reader to type and to write is there, and works.

The README's shell lines run against the product itself, in tests/local/test_run.py.
"""

import ast
import re
from pathlib import Path

import pytest
from typer.core import TyperCommand, TyperGroup, TyperOption
from typer.main import get_command

from lamplighter.cli.main import app
from lamplighter.tasks.registry import TASKS

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
TASKS_SHOWN = {name: code for name, code in PYTHON.items() if "@task(" in code}
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


def test_the_readme_has_a_task() -> None:
    assert "README.md 1" in TASKS_SHOWN


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
