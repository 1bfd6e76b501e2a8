"""Each known deviation of an emulator is there still; one that was mended is to be struck off."""

import re
from pathlib import Path

import pytest

from tests.contract import deviations
from tests.contract.conftest import LOCAL
from tests.contract.deviations import DEVIATIONS, PAGE, Deviation

SUITES = sorted(Path(__file__).parent.glob("test_*.py"))


@pytest.mark.parametrize("one", DEVIATIONS, ids=lambda one: one.what)
@pytest.mark.parametrize("emulator", ["moto", *LOCAL])
def test_it_answers_as_the_page_says(
    request: pytest.FixtureRequest, emulator: str, one: Deviation
) -> None:
    clients = request.getfixturevalue(f"{emulator}_clients")

    with deviations.place_on(clients) as place:
        answer = one.ask(place)

    assert answer == one.of(emulator), f"docs/conformance.md is to be written anew: {answer}"


@pytest.mark.parametrize("one", DEVIATIONS, ids=lambda one: one.what)
def test_each_is_a_deviation_of_at_least_one(one: Deviation) -> None:
    assert one.aws not in {one.moto} & {one.ministack}


def test_the_page_has_all_of_them() -> None:
    """Written by `python -m tests.contract.deviations`."""
    assert PAGE.read_text() == deviations.page()


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
def test_the_page_says_on_which_each_suite_runs(suite: Path) -> None:
    """Those that take a world, or a yard of targets, run on all three."""
    (row,) = (line for line in PAGE.read_text().splitlines() if f"`{suite.name}`" in line[:70])

    runs_on_all = re.search(r"\ndef \w+\(\s*(world: World|yard: Yard)", suite.read_text())
    assert row.endswith("| ✓ | ✓ | ✓ |") == bool(runs_on_all)
