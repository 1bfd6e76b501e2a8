"""`lamplighter check-trace`: any history, simulated, listed or exported."""

import gzip
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner, Result

from lamplighter.aws import items
from lamplighter.cli.main import app
from lamplighter.cli.surroundings import Surroundings
from lamplighter.cli.tracing import record
from lamplighter.core.buckets import LAYOUT_KEY, partition_key
from lamplighter.core.lifecycle import State
from lamplighter.core.model import Execution, OverlapPolicy
from lamplighter.memory import MemoryWorld
from lamplighter.services import manage
from lamplighter.sim.simulation import Setup
from lamplighter.sim.system import System
from tests.client.test_payloads import API, Network
from tests.simulation.mutations import MUTATIONS
from tests.support.jobs import OWNER, created, every, new_job

runner = CliRunner()
Document = Mapping[str, Any]


def checked(*files: Path, options: tuple[str, ...] = ()) -> Result:
    return runner.invoke(app, ["check-trace", *map(str, files), *options])


def simulated(file: Path, *, seed: int) -> Path:
    """A history of the simulator's, written down as it is played."""
    setup = Setup(seed=seed, trouble=timedelta(minutes=20), rest=timedelta(minutes=25))
    record(setup, file)
    return file


def lived() -> System:
    """A few hours of a stack with two jobs, and a one-off that failed."""
    system = System(world=MemoryWorld(), lasts=lambda _: timedelta(seconds=20))
    created(system.ports, new_job(schedule=every("20 minutes")))
    created(
        system.ports,
        new_job(schedule=every("1 minute"), overlap=OverlapPolicy.SKIP),
    )
    created(system.ports, new_job())
    system.run_for(timedelta(hours=2))
    return system


def table_export(system: System, file: Path, *, with_control: bool = True) -> Path:
    """As DynamoDB exports tables to S3."""
    tables = system.world.tables
    rows = [
        *(items.execution_values(row) for row in tables.executions.values()),
        *(items.job_values(job) for job in tables.jobs.values()),
        *(items.job_version_values(job) for job in tables.versions.values()),
        *(control_values(system) if with_control else ()),
    ]
    with gzip.open(file, "wt") as lines:
        for values in rows:
            lines.write(json.dumps({"Item": items.marshal(values)}, default=sorted) + "\n")
    return file


def control_values(system: System) -> Iterator[Mapping[str, Any]]:
    """The layouts, and how far dispatch and sweep have come."""
    layouts = system.ports.layouts()
    yield items.layouts_values(layouts, LAYOUT_KEY)
    works = [work for layout in layouts.of for work in layout.works()]
    for work, progress in system.ports.control.progress(works).items():
        key = partition_key(work.generation, work.partition, work.kind)
        yield {**items.key_values(key), items.WATERMARK: progress.watermark}


def listed(system: System, file: Path) -> Path:
    """As `export-trace` prints it."""
    network = Network(world=system.world)
    here = Surroundings(transport=httpx.MockTransport(network.answer), now=system.world.now)
    printed = runner.invoke(app, ["export-trace", "--url", API, "--token", "acme"], obj=here)
    assert printed.exit_code == 0, printed.output
    file.write_text(printed.stdout)
    return file


@pytest.mark.parametrize("written", [listed, table_export])
def test_what_a_stack_exports_is_well(
    written: Callable[[System, Path], Path], tmp_path: Path
) -> None:
    file = tmp_path / ("trace.json.gz" if written is table_export else "trace")

    result = checked(written(lived(), file))

    assert result.exit_code == 0, result.output
    assert "2 jobs, " in result.stdout or "3 jobs, " in result.stdout
    assert "no promise was broken" in result.stdout


@pytest.mark.parametrize("written", [listed, table_export])
def test_what_a_stack_exports_is_judged(
    written: Callable[[System, Path], Path], tmp_path: Path
) -> None:
    system = lived()
    rows = system.world.tables.executions
    row = next(row for row in rows.values() if row.state is State.SUCCEEDED)
    early = replace(row.attempts[0], started_at=row.run_at - timedelta(seconds=9))
    rows[row.id] = replace(row, attempts=(early,))
    file = tmp_path / ("trace.json.gz" if written is table_export else "trace")

    result = checked(written(system, file))

    assert result.exit_code == 1
    assert f"never early: {row.id} starts at" in result.stdout
    assert "1 promises broken" in result.stdout


def test_a_ledger_with_a_hole_is_judged(tmp_path: Path) -> None:
    system = lived()
    rows = system.world.tables.executions
    lost = [row for row in rows.values() if row.trigger == "SCHEDULE" and row.is_final][2]
    del rows[lost.id]

    result = checked(listed(system, tmp_path / "trace"))

    assert result.exit_code == 1
    assert f"the ledger balances: {lost.job_id} has 1 slots that neither ran" in result.stdout


def slot_of(system: System, number: int) -> Execution:
    """One of the slots that ran."""
    rows = system.world.tables.executions.values()
    return [row for row in rows if row.trigger == "SCHEDULE" and row.is_final][number]


def test_a_slot_that_an_export_lacks_is_judged(tmp_path: Path) -> None:
    system = lived()
    manage.pause(system.ports, OWNER, slot_of(system, 9).job_id)
    system.run_for(timedelta(minutes=10))
    lost = slot_of(system, 2)
    del system.world.tables.executions[lost.id]

    result = checked(table_export(system, tmp_path / "trace.json.gz"))

    assert result.exit_code == 1
    assert f"the ledger balances: {lost.job_id} has 1 slots that neither ran" in result.stdout
    assert "1 promises broken" in result.stdout


def test_without_its_control_table_nothing_is_said_of_an_exports_slots(tmp_path: Path) -> None:
    """What dispatch has not come to is not told from what is lost."""
    system = lived()
    del system.world.tables.executions[slot_of(system, 2).id]

    result = checked(table_export(system, tmp_path / "trace.json.gz", with_control=False))

    assert result.exit_code == 0, result.output


def test_slots_that_dispatch_has_not_come_to_are_not_lost(tmp_path: Path) -> None:
    system = lived()
    system.ticking = False
    system.run_for(timedelta(hours=1))
    created(system.ports, new_job())

    result = checked(table_export(system, tmp_path / "trace.json.gz"))

    assert result.exit_code == 0, result.output


def test_a_simulated_history_is_well_and_a_planted_bug_is_seen_in_it(tmp_path: Path) -> None:
    well = checked(simulated(tmp_path / "well", seed=3), options=("--json",))
    mutation = next(one for one in MUTATIONS if one.id == "early")
    with mutation.without():
        ill = checked(simulated(tmp_path / "ill", seed=1), options=("--json",))

    assert (well.exit_code, json.loads(well.stdout)["violations"]) == (0, [])
    assert ill.exit_code == 1
    assert "never early" in {one["promise"] for one in json.loads(ill.stdout)["violations"]}


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"execution": {}}',
        '{"execution": 7}',
        '{"write": {"at": "yesterday"}}',
        '{"unknown": {}}',
        '{"Item": {"pk": 7}}',
        '{"ledger": {"job_id": "job_1"}}',
        "[" * 100_000,
    ],
    ids=lambda text: text[:30],
)
def test_what_is_no_history_is_refused_by_its_line(text: str, tmp_path: Path) -> None:
    file = tmp_path / "trace"
    file.write_text(f'{{"job": {{"job_id": "one_1"}}}}\n{text}\n')

    result = checked(file)

    assert result.exit_code == 2
    assert f"{file}: line 2 is no part of a history" in result.stderr


@pytest.mark.parametrize("content", [b"", b"\x80\x81"], ids=["nothing", "no text"])
def test_a_file_with_nothing_in_it_is_no_history(content: bytes, tmp_path: Path) -> None:
    for name in ("trace", "trace.gz"):
        (tmp_path / name).write_bytes(content)

        assert checked(tmp_path / name).exit_code == 2
    assert checked(tmp_path / "none").exit_code == 2
