"""What two hundred due executions cost, beside nothing, ten times and a hundred times as many."""

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from lamplighter.core.buckets import recurring_job_id
from lamplighter.core.lifecycle import State
from lamplighter.memory import MemoryExecutions, MemoryWorld, VirtualClock
from lamplighter.ports import Page, Ports
from lamplighter.services import inspect
from lamplighter.sim.faults import Call, When, interposed
from lamplighter.sim.system import System
from tests.support.jobs import OWNER, created, in_, new_job
from tests.support.rows import recurring

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
START = datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)


class Metered(System):
    """Counts every call that leaves the process, and every row that a scan answers with."""

    calls: Counter[str]

    def start(self) -> None:
        self.calls = Counter()

    @property
    def ports(self) -> Ports:
        return interposed(self.world.ports(), self._note_call)

    def _note_call(self, call: Call, when: When) -> None:
        if when is When.BEFORE and hasattr(self, "calls"):
            self.calls[f"{call.port}.{call.method}"] += 1


def cost(*, others: int) -> Counter[str]:
    """All calls, and rows read, for 200 executions from create to look."""
    world = MemoryWorld(clock=VirtualClock(START), shards=4, partitions=2)
    system = Metered(world=world)
    system.run_for(MINUTE)
    fill(world, others)
    system.start()
    made = [created(system.ports, new_job(run_at=in_(system.ports, 600))).first for _ in range(200)]
    system.run_for(20 * MINUTE)
    for one in made:
        assert inspect.execution(system.ports, OWNER, one.id).row.state is State.SUCCEEDED
    return system.calls


def fill(world: MemoryWorld, others: int) -> None:
    """One-offs that are not due within the hour, and as many definitions of recurring jobs."""
    definition = recurring(START)
    for number in range(others):
        created(world.ports(), new_job(run_at=in_(world.ports(), 3600 + 10 * number)))
        id = recurring_job_id(START, 0, number)
        world.tables.jobs[id] = replace(definition, id=id)


def rows_of_scans(monkeypatch: Any, others: int) -> Counter[str]:  # noqa: ANN401 -- pytest's
    due, seen = MemoryExecutions.due, Counter[str]()

    def counted(self: MemoryExecutions, *where: Any, **how: Any) -> Page:  # noqa: ANN401
        page = due(self, *where, **how)
        seen["rows"] += len(page.rows)
        return page

    monkeypatch.setattr(MemoryExecutions, "due", counted)
    return cost(others=others) + seen


def test_reads_do_not_grow_with_the_jobs_that_are_stored(monkeypatch: Any) -> None:  # noqa: ANN401
    """S0-T5, S2-M2, S4-D1: the same calls, one by one, and the same rows."""
    alone, *beside = (rows_of_scans(monkeypatch, others) for others in (0, 1000, 10_000))

    assert beside == [alone, alone]
    assert alone["executions.claim"] == 200


def test_an_idle_stack_asks_each_shard_once_a_minute_and_kind() -> None:
    """S0-T5, S4-D1: nobody polls by the second, whatever is stored for later."""
    world = MemoryWorld(clock=VirtualClock(START), shards=4, partitions=2)
    system = Metered(world=world)
    system.run_for(10 * MINUTE)
    system.start()
    system.run_for(HOUR)

    kinds_and_partitions = 2 * 2
    assert system.calls["executions.due"] <= 60 * kinds_and_partitions * 2
