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
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from lamplighter.aws import items
from lamplighter.cli.main import app
from lamplighter.cli.surroundings import Surroundings
from lamplighter.cli.tracing import record
from lamplighter.core.buckets import LAYOUT_KEY, partition_key
from lamplighter.core.errors import shown
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
    system = System(
        world=MemoryWorld(shards=4, partitions=1), lasts=lambda _: timedelta(seconds=20)
    )
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
    file.write_text(f'{{"job": {{"job_id": "one_1", "version": 1}}}}\n{text}\n')

    result = checked(file)

    assert result.exit_code == 2
    assert f"{file}: line 2 is no part of a history" in result.stderr


@pytest.mark.parametrize("content", [b"", b"\x80\x81"], ids=["nothing", "no text"])
def test_a_file_with_nothing_in_it_is_no_history(content: bytes, tmp_path: Path) -> None:
    for name in ("trace", "trace.gz"):
        (tmp_path / name).write_bytes(content)

        assert checked(tmp_path / name).exit_code == 2
    assert checked(tmp_path / "none").exit_code == 2


NOON = "2026-07-01T12:00:00.000Z"
JOB = {"job_id": "job_1", "version": 1, "overlap_policy": "SKIP"}
TRY = {"number": 1, "started_at": NOON, "finished_at": NOON, "status": "FAILED"}
EXECUTION = {
    "execution_id": "ex_1",
    "job_id": "job_1",
    "job_version": 1,
    "status": "FAILED",
    "run_at": NOON,
    "finished_at": NOON,
    "result": None,
    "attempts": [{**TRY, "error": {"kind": "permanent"}}],
}
LEDGER = {
    "job_id": "job_1",
    "expected": 2,
    "fired": 2,
    "skipped": 0,
    "cancelled": 0,
    "expired": 0,
    "pending": 0,
    "missed": 0,
}
WRITE = {
    "at": NOON,
    "execution_id": "ex_1",
    "job_version": 1,
    "state": "SCHEDULED",
    "attempt": 1,
    "token": None,
    "lease_until": None,
    "due_at": NOON,
    "has_been_tried": False,
    "said": "",
}
LINES: Mapping[str, Document] = {
    "job": JOB,
    "execution": EXECUTION,
    "ledger": LEDGER,
    "write": WRITE,
    "Item": {"pk": {"S": "a"}, "sk": {"S": "job"}, "sc": {"S": "{}"}, "tn": {"S": "t"}},
}


def written(file: Path, *lines: object) -> Path:
    """A history of such lines."""
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return file


def test_lines_of_every_kind_are_well(tmp_path: Path) -> None:
    lines = [{kind: LINES[kind]} for kind in ("job", "execution", "ledger", "write")]

    result = checked(written(tmp_path / "trace", *lines))

    assert result.exit_code == 0, result.output
    assert "1 ledgers, the slots of 1 jobs: no promise was broken" in result.stdout


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        ("job", "version", "1"),
        ("job", "version", -1),
        ("job", "version", True),
        ("job", "overlap_policy", "skip"),
        ("job", "overlap_policy", None),
        ("job", "overlap_policy", ["SKIP"]),
        ("job", "job_id", ["job_1"]),
        ("job", "job_id", "\ud800"),
        ("execution", "status", "SUCEEDED"),
        ("execution", "job_version", "1"),
        ("execution", "job_id", ["job_1"]),
        ("execution", "execution_id", "\ud800"),
        ("execution", "finished_at", "9999-12-31T23:59:59Z"),
        ("ledger", "expected", "2"),
        ("ledger", "fired", -2),
        ("ledger", "fired", None),
        ("ledger", "missed", [0]),
        ("write", "execution_id", []),
        ("write", "has_been_tried", 0),
        ("write", "state", "QUEUED"),
    ],
)
@pytest.mark.parametrize("options", [(), ("--json",)], ids=["text", "json"])
def test_a_value_that_means_nothing_is_refused_by_its_field(
    kind: str, name: str, value: object, options: tuple[str, ...], tmp_path: Path
) -> None:
    file = written(tmp_path / "trace", {"job": JOB}, {kind: {**LINES[kind], name: value}})

    result = checked(file, options=options)

    assert result.exit_code == 2
    assert f"{file}: line 2 is no part of a history: {kind}.{name}: " in result.stderr
    assert f"(got {shown(value)})" in result.stderr


def test_a_field_within_a_try_is_named(tmp_path: Path) -> None:
    tries = [{**TRY, "error": None, "number": None}]
    file = written(tmp_path / "trace", {"execution": {**EXECUTION, "attempts": tries}})

    assert "execution.attempts.0.number: " in checked(file).stderr


@pytest.mark.parametrize("name", ["version", "overlap_policy"])
def test_a_recurring_job_has_to_say_what_it_promises(name: str, tmp_path: Path) -> None:
    job = {field: value for field, value in JOB.items() if field != name}
    file = written(tmp_path / "trace", {"job": job})

    result = checked(file)

    assert result.exit_code == 2
    assert f"job.{name}: Field required" in result.stderr


def with_damaged_row(file: Path, attribute: str, value: object) -> Path:
    """An export whose first row has lost its sense."""
    with gzip.open(file, "rt") as lines:
        first, *rest = map(json.loads, lines)
    first["Item"].pop(attribute)
    if value is not None:
        first["Item"][attribute] = value
    file = file.parent / "damaged"
    return written(file, first, *rest)


@pytest.mark.parametrize(
    ("attribute", "value"),
    [(items.STATE, {"S": "NOPE"}), (items.STATE, None), (items.ATTEMPT, {"S": "one"})],
)
def test_a_row_that_cannot_be_read_back_is_left_out_and_counted(
    attribute: str, value: object, tmp_path: Path
) -> None:
    system = lived()
    row = next(iter(system.world.tables.executions.values()))
    file = with_damaged_row(table_export(system, tmp_path / "trace.json.gz"), attribute, value)

    result, as_json = checked(file), checked(file, options=("--json",))

    assert (result.exit_code, as_json.exit_code) == (2, 2), result.output
    place = f"{file}: line 1: execution {row.id} cannot be read back: {attribute}"
    assert place in result.stdout
    assert "no promise was broken in what could be read; 1 rows could not be" in result.stdout
    assert json.loads(as_json.stdout)["unreadable_rows"] == [
        {"file": str(file), "line": 1, "item": f"execution {row.id}", "attribute": attribute}
    ]


def test_a_promise_that_is_broken_beside_a_row_that_cannot_be_read_ends_it_with_1(
    tmp_path: Path,
) -> None:
    system = lived()
    export = table_export(system, tmp_path / "trace.json.gz")
    damaged = with_damaged_row(export, items.STATE, {"S": "NOPE"})
    hole = written(tmp_path / "hole", {"ledger": {**LEDGER, "expected": 3}})

    result = checked(damaged, hole)

    assert result.exit_code == 1
    assert "1 promises broken in what could be read; 1 rows could not be" in result.stdout


def test_of_an_export_it_is_told_how_many_jobs_slots_were_accounted_for(tmp_path: Path) -> None:
    system = lived()
    whole = table_export(system, tmp_path / "whole.gz")
    part = table_export(system, tmp_path / "part.gz", with_control=False)

    assert "0 ledgers, the slots of 2 jobs: no promise" in checked(whole).stdout
    assert "0 ledgers, the slots of 0 jobs: no promise" in checked(part).stdout


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters())
    | st.sampled_from([NOON, "SUCCEEDED", "QUEUED", "\ud800", 10**400, "job_1"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["S", "N", "kind", "status", "\ud800"]), inner, max_size=3
        )
    ),
    max_leaves=6,
)


@st.composite
def lines_with_one_field_replaced(draw: st.DrawFn) -> object:
    kind = draw(st.sampled_from([*LINES]))
    name = draw(st.sampled_from([*LINES[kind]]))
    return {kind: {**LINES[kind], name: draw(VALUES)}}


@given(
    lines=st.lists(
        VALUES
        | st.dictionaries(st.sampled_from([*LINES]), VALUES, min_size=1, max_size=1)
        | lines_with_one_field_replaced(),
        max_size=3,
    )
)
def test_whatever_the_lines_are_it_ends_with_0_1_or_2(
    lines: list[object], tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = written(tmp_path_factory.getbasetemp() / "any", *lines)

    for options in ((), ("--json",)):
        result = checked(file, options=options)

        assert result.exception is None or isinstance(result.exception, SystemExit)
        assert result.exit_code in {0, 1, 2}
