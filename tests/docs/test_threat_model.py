"""docs/threat-model.md: each boundary by all of STRIDE, and each test that it names is there."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "threat-model.md").read_text(encoding="utf-8")
BOUNDARIES = {
    part.splitlines()[0]: part for part in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
}
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)


@cache
def functions_of(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_a_boundary_is_looked_at_from_all_six_sides_and_names_tests(boundary: str) -> None:
    rows = re.findall(r"^\| ([STRIDE]) \| .* \| .* \| .*\|$", BOUNDARIES[boundary], re.MULTILINE)

    assert {*rows} == {*"STRIDE"}
    assert "`tests/" in BOUNDARIES[boundary]


def test_there_are_the_boundaries_of_the_product() -> None:
    assert [*BOUNDARIES] == [
        "Caller and API",
        "API and tables",
        "Scheduler, SQS and worker",
        "Worker and targets",
        "Callbacks of deferred tries",
        "Operator and command line",
        "CI and what is installed",
        "The local stack",
    ]


@pytest.mark.parametrize(("file", "test"), sorted({*NAMED}), ids=str)
def test_what_stops_a_threat_is_a_test_that_is_there(file: str, test: str) -> None:
    assert test.startswith("test_")
    assert test in functions_of(file)


def test_nothing_that_looks_like_a_test_is_written_another_way() -> None:
    assert len(re.findall(r"`tests/", PAGE)) == len(NAMED)
