"""Every requirement of who decides and who runs, and every case, is named by a test that shows it.

`requirements.txt` and `cases.txt` list them, with a word on each. A test names what it shows at
the beginning of its docstring: `S0-T3, S1-L2: each control write is refused below ...`.
"""

import ast
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
_ID = r"(?:S[0-4]|O)-[A-Z]\d+"
_NAMED = re.compile(rf"(?:Cases? )?({_ID}(?:(?:, | and | to ){_ID})*)")


def listed(name: str) -> Mapping[str, str]:
    """The ids of a list with what each means."""
    lines = (TESTS / "docs" / name).read_text(encoding="utf-8").splitlines()
    entries = [line.split(" ", 1) for line in lines if not line.startswith("#")]
    return {entry[0]: entry[1] for entry in entries}


REQUIREMENTS = listed("requirements.txt")
CASES = listed("cases.txt")
ALL = {**REQUIREMENTS, **CASES}


@cache
def named() -> Mapping[str, list[str]]:
    """Which tests name which ids."""
    found: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        for test, docstring in docstrings(path):
            beginning = _NAMED.match(docstring)
            for id in re.findall(_ID, beginning[1]) if beginning else ():
                found.setdefault(id, []).append(f"{path.relative_to(TESTS)}::{test}")
    # Cases of schedules are a table, each row of which is a test.
    table = TESTS / "core" / "schedule" / "cases.json"
    for case in json.loads(table.read_text(encoding="utf-8")):
        found.setdefault(case["id"], []).append(f"{table.relative_to(TESTS)}")
    return found


def docstrings(path: Path) -> Iterator[tuple[str, str]]:
    """Of each test, and of each class of tests, whose docstring is for all of them."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and is_test(node):
            yield node.name, ast.get_docstring(node) or ""


def is_test(node: ast.AST) -> bool:
    if isinstance(node, ast.ClassDef):
        return any(is_test(one) for one in node.body)
    return isinstance(node, ast.FunctionDef) and node.name.startswith("test_")


@pytest.mark.parametrize("id", [*ALL])
def test_a_test_names_it(id: str) -> None:
    assert named().get(id), f"{id}: {ALL[id]}"


def test_every_id_is_listed_once_and_means_something() -> None:
    for name in ("requirements.txt", "cases.txt"):
        lines = (TESTS / "docs" / name).read_text(encoding="utf-8").splitlines()
        ids = [line.split(" ", 1)[0] for line in lines if not line.startswith("#")]
        assert len({*ids}) == len(ids)
    assert all(re.fullmatch(_ID, id) and len(means) > 5 for id, means in ALL.items())
