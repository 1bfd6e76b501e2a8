"""`lamplighter simulate`."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lamplighter.cli.main import app
from lamplighter.sim import simulation
from tests.simulation.mutations import MUTATIONS
from tests.support.short_histories import SHORT, short_histories

pytestmark = pytest.mark.usefixtures("short")
runner = CliRunner()
_SHORT = ["simulate", "--executions", "1", "--processes", "1"]


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # Where a broken promise is made short.
    monkeypatch.setattr(simulation, "Setup", SHORT)
    with short_histories():
        yield


def test_a_calm_night_breaks_nothing_and_says_its_seed() -> None:
    result = runner.invoke(app, [*_SHORT, "--seed", "3", "--faults", "none"])

    assert result.exit_code == 0, result.output
    assert result.stderr == "seed 3\n"
    assert "no promise was broken" in result.stdout
    assert "in 1 history, " in result.stdout


def test_without_a_seed_a_fresh_one_is_told() -> None:
    result = runner.invoke(app, [*_SHORT, "--faults", "none"])

    assert result.exit_code == 0, result.output
    assert result.stderr.startswith("seed ")


def test_programs_get_json() -> None:
    result = runner.invoke(app, [*_SHORT, "--seed", "3", "--faults", "pause,loss", "--json"])

    report = json.loads(result.stdout)
    assert report["seed"] == 3
    assert report["executions"] > 10
    assert set(report["faults"]) <= {"pause", "loss"}
    assert report["cpu_seconds"] > 0


def test_a_broken_promise_ends_it_with_1_and_a_history_to_read() -> None:
    mutation = next(one for one in MUTATIONS if one.id == "retry")

    with mutation.without():
        result = runner.invoke(app, [*_SHORT, "--seed", "3", "--faults", "none", "--replays", "3"])

    assert result.exit_code == 1
    assert result.stderr.startswith("seed 3\nseed 3 breaks a promise: ")
    assert "seed 3 breaks a promise: nothing needs mending" in result.stdout
    assert "seed 3, as short as" in result.stdout


def test_a_fault_that_is_none_is_refused() -> None:
    result = runner.invoke(app, ["simulate", "--faults", "fire"])

    assert result.exit_code == 2
    assert "faults" in result.stderr
    assert "'fire'" in result.stderr


def test_without_greenlet_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("lamplighter.sim.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "greenlet", None)

    result = runner.invoke(app, ["simulate"])

    assert result.exit_code == 2
    assert result.stderr == "lamplighter: greenlet is missing: pip install 'lamplighter[cli,sim]'\n"


@pytest.mark.parametrize("file", ["nowhere/history.jsonl", "/dev/full"])
def test_a_history_that_cannot_be_written_ends_it_with_2(file: str, tmp_path: Path) -> None:
    path = tmp_path / file

    result = runner.invoke(app, [*_SHORT, "--seed", "3", "--history", str(path)])

    assert result.exit_code == 2
    assert f"lamplighter: --history {path}: " in result.stderr
