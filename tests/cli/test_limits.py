"""`lamplighter limits`, against the real API on memory ports."""

import json

import pytest

from lamplighter.memory import MemoryWorld
from tests.cli.conftest import Terminal


@pytest.fixture
def terminal(world: MemoryWorld) -> Terminal:
    return Terminal(world=world, scope="ops:limits")


def test_a_limit_is_set_listed_and_removed(terminal: Terminal) -> None:
    made = terminal.type("limits", "set", "queue", "default", "3")
    assert made.exit_code == 0, made.output
    assert made.stdout == "queue:default: 3 at once, 0 run now\n"
    terminal.type("limits", "set", "owner", "*", "0")

    listed = terminal.type("limits", "list")
    assert [line.split() for line in listed.stdout.splitlines()] == [
        ["KIND", "NAME", "LIMIT", "RUNNING", "WAITING"],
        ["owner", "*", "0", "0", "0"],
        ["queue", "default", "3", "0", "0"],
    ]

    removed = terminal.type("limits", "remove", "owner", "*")
    assert removed.stdout == "owner:*: no limit\n"
    rest = json.loads(terminal.type("limits", "list", "--json").stdout)
    assert [one["kind"] for one in rest] == ["queue"]


def test_a_limit_that_is_not_there_is_not_removed(terminal: Terminal) -> None:
    result = terminal.type("limits", "remove", "task", "echo")

    assert result.exit_code == 2
    assert "limit" in result.stderr


def test_without_the_scope_it_ends_with_what_the_token_lacks(world: MemoryWorld) -> None:
    result = Terminal(world=world).type("limits", "list")

    assert result.exit_code == 2
    assert "ops:limits" in result.stderr


@pytest.mark.parametrize("args", [("lane", "default", "1"), ("queue", "default", "-1")])
def test_what_is_no_limit_is_refused_before_anything_is_asked(
    terminal: Terminal, args: tuple[str, str, str]
) -> None:
    result = terminal.type("limits", "set", *args)

    assert result.exit_code == 2
    assert terminal.requests == []
