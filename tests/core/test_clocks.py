"""Which clock is asked for what, read off the source itself.

The wall clock has one reader, whatever is due is compared by it, and nothing else; durations,
renewals and time-outs go by the monotonic clock, which nobody sets.
"""

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "layers/lamplighter/python/lamplighter"
OURS = "layers/lamplighter/python/lamplighter/"
WALL = {
    *("datetime.datetime.now", "datetime.datetime.utcnow", "datetime.datetime.today"),
    *("datetime.date.today", "time.time", "time.time_ns", "time.ctime", "time.localtime"),
    *("time.gmtime", "time.CLOCK_REALTIME"),
}
READERS = {
    OURS + "aws/clock.py": "the clock that all services are given",
    OURS + "cli/surroundings.py": "what a person at a terminal calls now",
    OURS + "local/issuer.py": "when a token that is minted here was",
}


@cache
def sources() -> Mapping[str, ast.Module]:
    """Each of our modules, by its path."""
    return {
        str(path.relative_to(ROOT)): ast.parse(path.read_text(encoding="utf-8"))
        for folder in (PACKAGE, *(ROOT / name for name in ("functions", "infra", "examples")))
        for path in sorted(folder.rglob("*.py"))
    }


def names_of(tree: ast.Module) -> Mapping[str, str]:
    """What a module's imports call things → where they come from."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.asname or alias.name: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {
                alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names
            }
    return found


def dotted(node: ast.expr, names: Mapping[str, str]) -> str:
    """An expression such as `dt.now`, as `datetime.datetime.now`; empty where it is none."""
    if isinstance(node, ast.Name):
        return names.get(node.id, "")
    if isinstance(node, ast.Attribute) and (of := dotted(node.value, names)):
        return f"{of}.{node.attr}"
    return ""


def readings_of_the_wall_clock(tree: ast.Module) -> set[str]:
    """Called or only passed on."""
    names = names_of(tree)
    return {
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.Name | ast.Attribute) and (name := dotted(node, names)) in WALL
    }


def test_the_wall_clock_is_read_in_one_place_by_all_that_runs_in_aws() -> None:
    """S0-X2, S1-X1."""
    found = {name for name, tree in sources().items() if readings_of_the_wall_clock(tree)}

    assert found == set(READERS)


def durations_by_the_wall_clock(tree: ast.Module) -> Iterator[str]:
    """Where two readings of a function's own are subtracted."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    for function in (node for node in ast.walk(tree) if isinstance(node, functions)):
        read = {
            target.id
            for node in ast.walk(function)
            if isinstance(node, ast.Assign)
            for target, value in assigned(node)
            if is_now(value)
        }
        for node in ast.walk(function):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
                sides = [
                    is_now(side) or (isinstance(side, ast.Name) and side.id in read)
                    for side in (node.left, node.right)
                ]
                if all(sides):
                    yield f"{function.name}: {ast.unparse(node)}"


def assigned(node: ast.Assign) -> Iterator[tuple[ast.Name, ast.expr]]:
    for target in node.targets:
        if isinstance(target, ast.Name):
            yield target, node.value
        elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            for one, value in zip(target.elts, node.value.elts, strict=True):
                if isinstance(one, ast.Name):
                    yield one, value


def is_now(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "now"
    )


def test_no_duration_is_measured_by_the_wall_clock() -> None:
    """S0-X2, S1-X1."""
    found = {
        name: durations
        for name, tree in sources().items()
        if (durations := [*durations_by_the_wall_clock(tree)])
    }

    assert found == {}


@pytest.mark.parametrize(
    ("source", "readings", "durations"),
    [
        ("import time\nx = time.time()", {"time.time"}, []),
        ("from time import time as t\nx = t()", {"time.time"}, []),
        ("import datetime as d\nf = d.datetime.now", {"datetime.datetime.now"}, []),
        ("from datetime import datetime\nx = datetime.now(UTC)", {"datetime.datetime.now"}, []),
        ("import time\nx = time.monotonic()", set(), []),
        ("def f(c, due):\n    now = c.now()\n    return due - now", set(), []),
        (
            "def f(c):\n    a, b = c.now(), 1\n    return c.now() - a",
            set(),
            ["f: c.now() - a"],
        ),
    ],
)
def test_these_rules_see_what_they_are_for(
    source: str, readings: set[str], durations: list[str]
) -> None:
    tree = ast.parse(source)

    assert readings_of_the_wall_clock(tree) == readings
    assert [*durations_by_the_wall_clock(tree)] == durations
