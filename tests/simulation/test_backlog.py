"""A backlog of ten times what the workers do, with the sweep on: it drains, and does not grow.

A backlog outlives its cause where what is late makes more to do. Here only the sweep could: it
sends again what it takes for lost. So messages are counted, and each costs as much as a run.
"""

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lamplighter.core.lifecycle import State
from lamplighter.core.limits import SWEEP_AFTER
from lamplighter.memory import MemoryWorld, VirtualClock
from lamplighter.services import sweep
from lamplighter.sim.invariants import violations
from lamplighter.sim.system import System
from tests.simulation.limited import LimitedQueue
from tests.support.examples import ALWAYS_THE_SAME
from tests.support.jobs import created, in_, new_job

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
START = datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)
PAGE = (Path(__file__).parents[2] / "docs" / "operations.md").read_text(encoding="utf-8")


@dataclass(frozen=True, kw_only=True)
class Load:
    """So many executions within one minute, and a steady stream beside and after them."""

    per_second: int
    """What the workers do."""
    flood: int
    arrivals: float
    """Each second, until all is drained."""

    @property
    def drained_in_s(self) -> float:
        """What was left over, at what is left of the capacity: no more can be had."""
        return self.flood / (self.per_second - self.arrivals)

    @property
    def count(self) -> int:
        return self.flood + math.ceil(self.drained_in_s * self.arrivals)


SMALL = Load(per_second=1, flood=600, arrivals=0)
USUAL = Load(per_second=5, flood=3000, arrivals=2.5)
LONG = Load(per_second=1, flood=2400, arrivals=0.4)
LOADS = {"small": SMALL, "usual": USUAL, **({} if ALWAYS_THE_SAME else {"long": LONG})}


def flooded(load: Load) -> tuple[System, LimitedQueue]:
    """A system of which the flood begins in this very second."""
    world = MemoryWorld(clock=VirtualClock(START), shards=4, partitions=2)
    queue = world.queue = LimitedQueue(clock=world.clock, per_second=load.per_second)
    system = System(world=world)
    system.run_for(MINUTE)
    began = in_(system.ports, 600)
    for number in range(load.flood):
        created(system.ports, new_job(run_at=began + number * MINUTE / load.flood))
    for number in range(load.count - load.flood):
        created(system.ports, new_job(run_at=began + number / load.arrivals * SECOND))
    system.run_until(began)
    return system, queue


@pytest.mark.strikes
@pytest.mark.parametrize("load", LOADS.values(), ids=LOADS)
def test_a_backlog_of_ten_times_the_capacity_drains_when_it_should(load: Load) -> None:
    """S0-E3, S1-O3: as fast as the workers are, though the sweep sees all of it as late."""
    assert load.flood >= 10 * load.per_second * 60
    system, queue = flooded(load)
    began = system.world.now()
    system.run_for(load.drained_in_s * SECOND * 1.1 + 2 * MINUTE)

    rows = system.world.tables.executions.values()
    assert {row.state for row in rows} == {State.SUCCEEDED}
    last = max(run.started_at for run in system.runs) - began
    messages = queue.sent.total() / load.count
    print(f"{load}: drained in {last}, {messages:.3f} messages an execution")
    assert messages <= 1.1
    assert [*violations(system)] == []
    # The published figures.
    told = (
        f"| {load.per_second} | {load.flood:,} | {load.arrivals:g} | {load.drained_in_s / 60:.0f} |"
    )
    assert f"{told} {last / MINUTE:.0f} | {messages:.2f} |" in PAGE


def test_a_lane_at_half_its_capacity_is_not_kept_busy_by_what_was_sent_again() -> None:
    """Once it is drained it stays so: a thousand late messages used to keep themselves alive."""
    load = Load(per_second=1, flood=1200, arrivals=0.5)
    system, queue = flooded(load)
    system.run_for(load.drained_in_s * SECOND * 1.1 + 2 * MINUTE)
    sent = queue.sent.total()
    assert queue.waiting("default") <= 1
    for number in range(600):
        created(system.ports, new_job(run_at=in_(system.ports, 300 + 2 * number)))
    system.run_for(30 * MINUTE)

    assert queue.sent.total() == sent + 600


def test_without_holding_back_the_sweep_doubles_a_backlog(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the tests above would say, if it sent again whatever is late."""
    monkeypatch.setattr(sweep, "is_backlog", lambda *_, **__: False)
    system, queue = flooded(SMALL)
    system.run_for(SMALL.drained_in_s * SECOND * 1.1 + 2 * MINUTE)

    assert queue.sent.total() > 1.5 * SMALL.count


def test_a_lost_message_is_sent_again_in_time_in_a_lane_that_is_busy_and_healthy() -> None:
    """S1-H2: 150 seconds after its time, beside a hundred others each minute."""
    world = MemoryWorld(clock=VirtualClock(START), shards=4, partitions=2)
    queue = world.queue = LimitedQueue(clock=world.clock, per_second=10)
    system = System(world=world)
    system.run_for(MINUTE)
    lost = created(system.ports, new_job(run_at=in_(system.ports, 30))).first
    queue.purge()
    for number in range(600):
        created(system.ports, new_job(run_at=in_(system.ports, number / 2)))
    system.run_for(5 * MINUTE)

    (run,) = [run for run in system.runs if run.execution_id == lost.id]
    assert run.started_at - lost.run_at <= SWEEP_AFTER + 2 * MINUTE + 2 * SECOND


def test_a_purged_backlog_is_sent_again() -> None:
    """S2-M1: nothing waits in the lane any more, so what is late was lost."""
    system, queue = flooded(SMALL)
    system.run_for(4 * MINUTE)
    queue.purge()
    system.run_for(60 * MINUTE)

    assert {row.state for row in system.world.tables.executions.values()} == {State.SUCCEEDED}


def test_what_was_lost_in_a_lane_that_stays_backed_up_is_sent_again_within_a_day(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Late, never never: each in its turn, so that a lane which is slow is not doubled."""
    world = MemoryWorld(clock=VirtualClock(START), shards=1, partitions=1)
    queue = world.queue = LimitedQueue(clock=world.clock, per_second=10)
    system = System(world=world)
    made = [created(system.ports, new_job(run_at=in_(system.ports, 5))).first for _ in range(40)]
    queue.purge()
    monkeypatch.setattr(queue, "waiting", lambda _: 10_000)
    counts, recovered = [], []
    for _ in range(18):
        system.run_for(timedelta(hours=1))
        counts.append(len(system.runs))
        recovered.append(world.counts.events["recovered"])

    assert len({run.execution_id for run in system.runs}) == len(made)
    # A quarter of them each time that their lateness has doubled, about.
    assert counts[0] == 0
    assert 0 < counts[2] < 25
    # What is left to wait for its turn is no repair.
    assert recovered[0] == 0
    assert recovered[-1] == len(made)
