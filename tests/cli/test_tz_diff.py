"""`lamplighter tz-diff`, on a zone database that was made up for it."""

import json
import shutil
import zipfile
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from typer.testing import Result

from lamplighter.client.schedules import is_recurring, schedule_of
from lamplighter.core.buckets import parse_job_id
from lamplighter.core.schedule import TZDB_VERSION
from lamplighter.memory import MemoryWorld, VirtualClock
from tests.cli.conftest import Terminal
from tests.handlers.test_api_fuzz import good_jobs
from tests.support.api import caller
from tests.support.examples import examples

INSTALLED = Path(str(resources.files("tzdata")))
START = datetime(2026, 3, 20, 12, tzinfo=UTC)


@pytest.fixture
def world() -> MemoryWorld:
    return MemoryWorld(clock=VirtualClock(START))


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """2099z: Berlin keeps its winter time, and Paris is no more."""
    package = tmp_path / "tzdata"
    shutil.copytree(INSTALLED, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "__init__.py").write_text('IANA_VERSION = "2099z"\n')
    shutil.copyfile(
        INSTALLED / "zoneinfo" / "Africa" / "Lagos", package / "zoneinfo" / "Europe" / "Berlin"
    )
    zones = (package / "zones").read_text().split()
    (package / "zones").write_text("\n".join(zone for zone in zones if zone != "Europe/Paris"))
    return package


def create(world: MemoryWorld, **body: object) -> str:
    id: str = caller(world).create(**body)["job_id"]
    return id


def told(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.output
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def test_jobs_whose_times_change_are_listed_with_both(
    terminal: Terminal, world: MemoryWorld, release: Path
) -> None:
    moved = create(world, cron="30 2 * * *", timezone="Europe/Berlin", name="nightly")
    for unmoved in (
        {"cron": "30 2 * * *", "timezone": "Europe/Rome"},
        {"cron": "30 2 * * *"},
        {"cron": "*/15 * * * *", "timezone": "Europe/Berlin"},
        {"cron": "30 2 1 2 *", "timezone": "Europe/Berlin"},
        {"rate": "rate(90 minutes)", "timezone": "Europe/Berlin"},
        {"at": "2026-07-01T09:00:00", "timezone": "Europe/Berlin"},
    ):
        create(world, **unmoved)

    document = told(terminal.type("tz-diff", str(release), "--days", "10", "--json"))

    assert document == {
        "before": TZDB_VERSION,
        "after": "2099z",
        "jobs": [
            {
                "job_id": moved,
                "name": "nightly",
                "timezone": "Europe/Berlin",
                "before": ["2026-03-29T01:00:00.000Z", "2026-03-30T00:30:00.000Z"],
                "after": ["2026-03-29T01:30:00.000Z", "2026-03-30T01:30:00.000Z"],
            }
        ],
    }


def test_an_interval_by_the_calendar_moves_too(
    terminal: Terminal, world: MemoryWorld, release: Path
) -> None:
    id = create(
        world,
        rate="every(1 week)",
        timezone="Europe/Berlin",
        start_at="2026-03-23T08:00:00Z",
    )

    (job,) = told(terminal.type("tz-diff", str(release), "--days", "14", "--json"))["jobs"]

    assert (job["job_id"], job["before"]) == (id, ["2026-03-30T07:00:00.000Z"])
    assert job["after"] == ["2026-03-30T08:00:00.000Z"]


def test_a_zone_that_is_no_more_is_listed_with_the_reason(
    terminal: Terminal, world: MemoryWorld, release: Path
) -> None:
    create(world, cron="0 0 * * *", timezone="Europe/Paris")

    (job,) = told(terminal.type("tz-diff", str(release), "--json"))["jobs"]

    assert "2099z" in job["refused"]


def test_a_person_sees_the_first_of_them_and_how_many(
    terminal: Terminal, world: MemoryWorld, release: Path
) -> None:
    create(world, cron="30 2 * * *", timezone="Europe/Berlin", name="nightly")
    create(world, cron="30 2 * * *", name="in UTC")

    output = terminal.type("tz-diff", str(release), "--days", "31").stdout

    assert "nightly" in output
    assert "2026-03-29T01:00:00.000Z" in output
    assert "and 20 more" in output
    assert "in UTC" not in output
    assert output.splitlines()[-1] == (
        f"1 of 2 recurring jobs change from {TZDB_VERSION} to 2099z in 31 days"
    )


@pytest.mark.parametrize("inside", ["tzdata", "src/tzdata"])
def test_a_release_may_be_a_wheel_or_the_folder_around_it(
    terminal: Terminal, world: MemoryWorld, release: Path, tmp_path: Path, inside: str
) -> None:
    create(world, cron="30 2 * * *", timezone="Europe/Berlin")
    around, wheel = tmp_path / "around", tmp_path / "tzdata-2099.26-py2.py3-none-any.whl"
    shutil.copytree(release, around / inside)
    with zipfile.ZipFile(wheel, "w") as archive:
        for file in release.rglob("*"):
            archive.write(file, Path(inside) / file.relative_to(release))

    for path in (around, wheel):
        assert len(told(terminal.type("tz-diff", str(path), "--json"))["jobs"]) == 1


def test_by_the_same_release_nothing_changes(terminal: Terminal, world: MemoryWorld) -> None:
    create(world, cron="30 2 * * *", timezone="Europe/Berlin")

    output = terminal.type("tz-diff", str(INSTALLED)).stdout

    assert output.startswith("0 of 1 recurring jobs change")


def test_only_ones_own_jobs_are_looked_at(
    terminal: Terminal, world: MemoryWorld, release: Path
) -> None:
    create(world, cron="30 2 * * *", timezone="Europe/Berlin")

    stranger = terminal.type("tz-diff", str(release), "--json", owner="stranger")

    assert told(stranger)["jobs"] == []


@pytest.mark.parametrize("kind", ["nothing", "a folder", "a file", "no release"])
def test_what_is_no_release_is_refused_in_one_line(
    terminal: Terminal, tmp_path: Path, release: Path, kind: str
) -> None:
    path = tmp_path / "other"
    if kind == "a folder":
        path.mkdir()
    elif kind == "a file":
        path.write_text("PK, or not")
    elif kind == "no release":
        shutil.copytree(release, path)
        (path / "__init__.py").write_text("")

    result = terminal.type("tz-diff", str(path))

    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1
    assert str(path) in result.stderr


def test_an_owner_beside_a_token_is_refused(terminal: Terminal, release: Path) -> None:
    result = terminal.type("tz-diff", str(release), "--owner", "ada")

    assert result.exit_code == 2
    assert "--owner" in result.stderr


@settings(max_examples=examples(100))
@given(good_jobs())
def test_the_schedule_that_a_job_is_shown_with_is_the_one_that_it_has(
    body: dict[str, object],
) -> None:
    world = MemoryWorld(clock=VirtualClock(START))
    answer = caller(world).post("/v1/jobs", {**body, "payload": None})

    for shown in caller(world).get("/v1/jobs").json["items"]:
        if is_recurring(shown):
            stored = world.tables.jobs[parse_job_id(answer.json["job_id"])].schedule
            assert schedule_of(shown).to_record() == stored.to_record()
