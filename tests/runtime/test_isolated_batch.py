"""One poisonous job among nine good ones: it ends, they do not notice (S2-K4)."""

import os
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import NoReturn

import pytest

from lamplighter import Context
from lamplighter.core.buckets import ExecutionId
from lamplighter.core.lifecycle import State
from lamplighter.core.limits import CRASH_LIMIT, WORKER_LEASE
from lamplighter.core.model import Execution
from lamplighter.core.retry import RetryPolicy
from lamplighter.memory import MemoryWorld
from lamplighter.runtime.batch import BatchRunner
from lamplighter.services.heartbeat import Heartbeats
from lamplighter.tasks import isolation
from lamplighter.tasks.isolation import Isolation
from lamplighter.tasks.registry import Registry
from lamplighter.tasks.runner import TaskRunner
from lamplighter.tasks.source import Source
from tests.support.claims import submitted
from tests.tasks.isolated import MODULE, nothing_left, rogue_tasks, until

AMPLE = timedelta(seconds=900)
# A crash, a death without a word, too much memory, and what nothing but a kill ends.
POISONS = [("segfault", "null"), ("exit", "0"), ("hoard", "400000000"), ("deaf", "null")]


class Bench:
    """A worker on memory ports whose tasks may be the rogues."""

    def __init__(self) -> None:
        self.world = MemoryWorld()
        self.tasks: Registry = rogue_tasks()
        self.said: list[str] = []
        self.heartbeats = Heartbeats(self.world.ports())
        self.runner = BatchRunner(
            ports=self.world.ports(),
            runner=TaskRunner(
                self.tasks,
                self.heartbeats,
                self.world.clock,
                isolation=Isolation(Source(module=MODULE), lambda _, line: self.said.append(line)),
            ),
            heartbeats=self.heartbeats,
            end_process=self.end_process,
        )

    def end_process(self, code: int) -> NoReturn:
        raise AssertionError(f"the worker ended itself: {code}")

    def submit(self, task: str, payload: str = "null") -> ExecutionId:
        return submitted(
            self.world, task=task, payload=payload, retry=RetryPolicy(max_attempts=1)
        ).first.id

    def run(self) -> set[str]:
        batch = self.world.queue.receive()
        return self.runner.run(batch, worker="worker-1", time_left=lambda: AMPLE)

    def row(self, id: ExecutionId) -> Execution:
        row = self.world.ports().executions.get(id)
        assert row is not None
        return row

    def pass_a_minute(self) -> None:
        """Time goes by for who still runs, and every beat comes through."""
        for _ in range(6):
            self.world.pass_time(timedelta(seconds=10))
            until(self._all_have_beaten)

    def _all_have_beaten(self) -> bool:
        due = self.world.now() + WORKER_LEASE
        rows = [row for row in self.world.tables.executions.values() if row.lease_until]
        return all(row.lease_until == due for row in rows)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr("lamplighter.runtime.crew.LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(isolation, "ASKED_FOR_S", 0.5)
    return Bench()


@pytest.mark.parametrize(("task", "payload"), POISONS, ids=[task for task, _ in POISONS])
def test_nine_neighbours_of_a_poisonous_job_are_done(bench: Bench, task: str, payload: str) -> None:
    good = [bench.submit("double", str(n)) for n in range(9)]
    bad = bench.submit(task, payload)

    with nothing_left():
        kept = in_time(bench, bench.run)

    assert kept == set()
    assert [bench.row(id).result for id in good] == [str(2 * n) for n in range(9)]
    assert bench.row(bad).state is State.DEAD_LETTERED
    assert bench.world.counts.events["hung"] == 0


def in_time(bench: Bench, run: Callable[[], set[str]]) -> set[str]:
    """Run, and let a minute go by once somebody says that it will not stop."""
    kept: list[set[str]] = []
    thread = threading.Thread(target=lambda: kept.append(run()))
    thread.start()
    until(lambda: "ready" in bench.said or not thread.is_alive())
    if thread.is_alive():
        bench.pass_a_minute()
    thread.join(20)
    assert kept, "the batch did not end"
    return kept[0]


def test_an_isolated_job_that_runs_for_long_keeps_its_lease(bench: Bench) -> None:
    """S0-L2: its beats are its worker's, whatever its own process is at."""
    long = bench.submit("deaf")

    in_time(bench, bench.run)

    row = bench.row(long)
    assert row.crashes == 0
    assert [attempt.error.type for attempt in row.attempts if attempt.error] == ["TimedOut"]
    assert bench.world.counts.events["taken_over"] == 0


def test_after_a_crash_it_is_alone_and_its_next_crash_is_only_a_failure(bench: Bench) -> None:
    """A job that killed its worker once kills nobody the next time."""
    id = bench.submit("where")
    crash(bench, id)

    bench.run()

    row = bench.row(id)
    assert (row.state, row.crashes) == (State.SUCCEEDED, 1)
    assert row.result is not None
    assert row.result != str(os.getpid())


def test_three_crashes_are_the_limit_whatever_its_policy_says(bench: Bench) -> None:
    """Counted apart from failures: this one would have been tried once."""
    id = bench.submit("where")
    for _ in range(CRASH_LIMIT):
        crash(bench, id)

    assert bench.run() == set()

    row = bench.row(id)
    assert (row.state, row.crashes, row.attempt) == (State.DEAD_LETTERED, CRASH_LIMIT, 1)
    assert row.reason == "3 workers died or fell silent while running it"


def crash(bench: Bench, id: ExecutionId) -> None:
    """Have a worker claim it, or take it over, and never be heard of again."""
    world, now = bench.world, bench.world.now()
    row, until = bench.row(id), bench.world.now() + WORKER_LEASE
    executions, token = world.ports().executions, world.chance.token()
    if row.state is State.RUNNING:
        executions.take_over(row, token=token, worker="worker-0", now=now, lease_until=until)
    else:
        executions.claim(id, attempt=1, token=token, worker="worker-0", now=now, lease_until=until)
    world.pass_time(timedelta(seconds=36))


def test_isolated_jobs_run_side_by_side_with_others(bench: Bench) -> None:
    @bench.tasks.task("beside")
    def beside(payload: None, ctx: Context) -> str:
        return "done"

    ids = [bench.submit("where") for _ in range(3)] + [bench.submit("beside")]
    for id in ids[:3]:
        crash(bench, id)

    bench.run()

    results = [bench.row(id).result for id in ids]
    assert len(set(results)) == 4
    assert results[-1] == '"done"'
