"""The README's promises: each with the test that shows it, and with what would disprove it."""

import re
from pathlib import Path

import pytest

from lamplighter.aws import telemetry

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
TABLE = re.findall(
    r"^\| (?!promise|---)(.+) \|$", README.split("## What it promises")[1], re.MULTILINE
)
ROWS = [[cell.strip() for cell in line.split("|")] for line in TABLE]
SOURCE = Path(telemetry.__file__).read_text(encoding="utf-8")
MEASURED = set(re.findall(r"_(?:count|measure|add)\(\"(\w+)\"", SOURCE))


def test_there_are_promises() -> None:
    assert len(ROWS) == 8


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_promise_names_a_test_that_there_is_and_what_would_disprove_it(row: list[str]) -> None:
    _promise, holds_when, _breaks, shown_by, disproved_by = row

    tests = re.findall(r"\]\((tests/[^)#]+)\)", f"{holds_when} {shown_by}")
    assert tests
    assert all((ROOT / path).is_file() for path in tests)
    assert len(disproved_by) > 20


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_the_counters_that_it_names_are_counted(row: list[str]) -> None:
    named = {name for name in re.findall(r"`([a-z_]+)`", row[-1]) if name not in OF_THE_API}

    assert named <= MEASURED


OF_THE_API = {"started_at", "run_at"}
