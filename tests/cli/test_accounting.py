"""`lamplighter ledger`, `progress` and `recover`, against the real API on memory ports."""

import json
from datetime import timedelta

import pytest

from lamplighter.core.buckets import JobId, body_of
from lamplighter.core.model import MisfirePolicy
from lamplighter.memory import MemoryWorld
from lamplighter.sim.system import System
from tests.cli.conftest import Terminal
from tests.support.jobs import created, every, new_job

MINUTE = timedelta(minutes=1)


@pytest.fixture
def system(world: MemoryWorld) -> System:
    made = System(world=world)
    made.run_for(MINUTE)
    return made


@pytest.fixture
def job(system: System) -> JobId:
    new = new_job(schedule=every("1 minute"), misfire=MisfirePolicy.FIRE_ALL)
    id = created(system.ports, new).job_id
    system.run_for(10 * MINUTE)
    return id


class TestLedger:
    def test_is_a_table_with_a_row_for_each_reason(self, terminal: Terminal, job: JobId) -> None:
        result = terminal.type("ledger", job)

        assert result.exit_code == 0, result.output
        head, fired, expected = (line.split() for line in result.stdout.splitlines())
        assert head == ["OUTCOME", "REASON", "COUNT", "FIRST", "LAST"]
        assert fired[:3] == ["FIRED", "SUCCEEDED", "9"]
        assert expected[:2] == ["EXPECTED", "9"]

    def test_ends_with_1_when_something_is_missed(
        self, terminal: Terminal, system: System, job: JobId
    ) -> None:
        lost = min(id for id, row in system.world.tables.executions.items() if row.attempts)
        del system.world.tables.executions[lost]
        for positions in system.world.tables.buckets.values():
            positions.discard(body_of(lost))

        result = terminal.type("ledger", job)

        assert result.exit_code == 1
        assert "MISSED    no execution" in result.stdout

    def test_of_many_parts_is_put_together(
        self, terminal: Terminal, system: System, job: JobId
    ) -> None:
        system.run_for(2500 * MINUTE)
        now = system.world.now()

        result = terminal.type(
            *("ledger", job, "--json", "--from", (now - 2200 * MINUTE).isoformat()),
            *("--to", now.isoformat()),
        )

        assert result.exit_code == 0, result.output
        found = json.loads(result.stdout)
        assert (found["expected"], found["fired"], found["next_cursor"]) == (2200, 2200, None)
        (group,) = found["groups"]
        assert group["count"] == 2200
        assert len(terminal.requests) == 3

    def test_says_what_is_forgotten(self, terminal: Terminal, job: JobId) -> None:
        result = terminal.type(
            "ledger", job, "--from", "1999-01-01T00:00:00Z", "--to", "1999-02-01T00:00:00Z"
        )

        assert result.exit_code == 0, result.output
        assert "is forgotten" in result.stderr

    def test_of_a_range_that_cannot_be_is_refused(self, terminal: Terminal, job: JobId) -> None:
        result = terminal.type("ledger", job, "--from", "yesterday")

        assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)


class TestForecast:
    def test_tells_what_is_due_in_each_minute(self, terminal: Terminal, job: JobId) -> None:
        result = terminal.type("forecast")

        assert result.exit_code == 0, result.output
        head, *minutes, advice = result.stdout.splitlines()
        assert head.split() == ["MINUTE", "LANE", "DUE", "IN", "ONE", "SECOND", "LATE", "BY"]
        assert {tuple(line.split()[1:]) for line in minutes} == {("default", "1", "1")}
        assert advice == f"default: {len(minutes)} due; at 100 a second all start in time"

    def test_says_so_when_there_is_nothing(self, terminal: Terminal) -> None:
        result = terminal.type("forecast")

        assert result.stdout.splitlines()[1:] == ["nothing is due"]

    def test_names_the_window_that_would_do(self, terminal: Terminal, system: System) -> None:
        start = system.world.now() + 10 * MINUTE
        for _ in range(30):
            created(system.ports, new_job(run_at=start))

        result = terminal.type("forecast", "--per-second", "2.5")

        (late,) = result.stdout.splitlines()[1:-1]
        assert late.split()[1:] == ["all", "30", "30", "12", "s"]
        assert result.stdout.splitlines()[-1] == (
            "30 due; at 2.5 a second up to 12 s late; "
            "flexible_window_seconds=12 on the jobs of those minutes would do"
        )

    def test_says_so_when_no_window_helps(self, terminal: Terminal, job: JobId) -> None:
        result = terminal.type("forecast", "--per-second", "0.01")

        assert result.stdout.endswith("for as long as this looks: no window helps\n")

    def test_of_many_parts_is_put_together(self, terminal: Terminal, system: System) -> None:
        start = system.world.now() + 10 * MINUTE
        for n in range(1100):
            created(system.ports, new_job(run_at=start + n * MINUTE / 600))

        result = terminal.type("forecast", "--per-second", "20", "--json")

        found = json.loads(result.stdout)
        assert len(terminal.requests) == 2
        assert (found["planned"], found["next_cursor"]) == (1100, None)
        assert [one["planned"] for one in found["minutes"]] == [600, 500]
        assert found["flexible_window_seconds"] == 0
        (lane,) = found["lanes"]
        assert (lane["queue"], lane["planned"], lane["per_second"]) == ("default", 1100, 100.0)

    def test_of_many_parts_goes_by_each_lane(self, terminal: Terminal, system: System) -> None:
        for _ in range(1100):
            created(system.ports, new_job(run_at=system.world.now() + 10 * MINUTE))

        found = json.loads(terminal.type("forecast", "--json").stdout)

        assert (len(terminal.requests), found["per_second"]) == (2, 300.0)
        assert (found["worst_lateness_seconds"], found["flexible_window_seconds"]) == (11.0, 11)

    def test_of_a_range_that_cannot_be_is_refused(self, terminal: Terminal) -> None:
        result = terminal.type("forecast", "--to", "1999-01-01T00:00:00Z")

        assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)


class TestProgress:
    def test_tells_until_when_all_was_dispatched(self, terminal: Terminal, job: JobId) -> None:
        result = terminal.type("progress")

        assert result.exit_code == 0, result.output
        assert result.stdout.startswith("Dispatched until 2026-")
        assert json.loads(terminal.type("progress", "--json").stdout)["backlog"] is None

    def test_tells_how_a_backlog_drains(
        self, terminal: Terminal, system: System, job: JobId
    ) -> None:
        system.world.drain_per_second = 1
        for n in range(600):
            created(system.ports, new_job(run_at=system.world.now() + (300 + n) * MINUTE / 60))
        system.ticking = False
        system.run_for(20 * MINUTE)
        system.ticking = True
        system.run_for(2 * MINUTE)

        result = terminal.type("progress")

        assert "dispatched," in result.stdout
        assert "Over: 2026-" in result.stdout.replace("\n", " ")


class TestRecover:
    def test_tells_what_would_run(self, terminal: Terminal, system: System, job: JobId) -> None:
        system.ticking = False
        system.run_for(30 * MINUTE)

        result = terminal.type("recover", "--dry-run")

        assert result.exit_code == 0, result.output
        head, row = result.stdout.splitlines()
        assert head.split()[:4] == ["JOB", "NAME", "POLICY", "RUNS"]
        assert row.split()[:2] == [job, "FIRE_ALL"]
        (found,) = json.loads(terminal.type("recover", "--dry-run", "--json").stdout)
        assert found["runs"] > 20

    def test_is_an_empty_table_while_dispatch_goes_on(self, terminal: Terminal, job: JobId) -> None:
        assert len(terminal.type("recover", "--dry-run").stdout.splitlines()) == 1

    def test_does_nothing_else(self, terminal: Terminal, job: JobId) -> None:
        result = terminal.type("recover")

        assert (result.exit_code, result.stdout) == (2, "")
        assert "--dry-run" in result.stderr
        assert terminal.requests == []
