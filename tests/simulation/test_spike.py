"""Ten thousand executions that are due in one second."""

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from lamplighter.core.lease import WorkItem
from lamplighter.core.lifecycle import State
from lamplighter.core.limits import ON_TIME
from lamplighter.memory import MemoryWorld, VirtualClock
from lamplighter.ports import Ports
from lamplighter.services import dispatch
from lamplighter.sim.faults import Call, Crash, When, interposed
from lamplighter.sim.invariants import violations
from lamplighter.sim.system import System
from tests.simulation.limited import LimitedQueue
from tests.support.jobs import created, in_, new_job

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
START = datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)
SPIKE = 10_000
# Where the spike is not about its size.
FEWER = 3000
# As many as the workers of a default stack begin each second in `bench`, and no more.
STARTS_PER_SECOND = 5000


@dataclass(kw_only=True)
class Mortal(System):
    """A system of which every second visit of a partition dies, at one of its calls."""

    died: Counter[str] = field(default_factory=Counter)
    _random: Random = field(default_factory=lambda: Random(4))
    _left: int | None = None

    @property
    def ports(self) -> Ports:
        return interposed(self.world.ports(), self._hook)

    def _hook(self, call: Call, when: When) -> None:
        if (call.port, call.method, when) == ("control", "acquire", When.AFTER):
            self._left = self._random.choice([None, self._random.randrange(20)])
        if self._left is not None and call.method in {"advance", "send"}:
            self._left -= 1
            if self._left < 0:
                self._left = None
                self.died[f"{call.method} {when}"] += 1
                raise Crash

    def _visit(self, item: WorkItem) -> None:
        # Its item dies with it: the tick asks again, and so does what it may have armed.
        with suppress(Crash):
            super()._visit(item)
        self._left = None


def spiked(system: System, size: int = SPIKE) -> list[float]:
    """Each start's lateness in seconds, in order, once the spike is over."""
    at = in_(system.ports, 600).replace(microsecond=0)
    for number in range(size):
        created(system.ports, new_job(run_at=at + number * SECOND / size))
    system.run_for(20 * MINUTE)
    return sorted((run.started_at - run.run_at) / SECOND for run in system.runs)


def told(lateness: list[float], title: str) -> list[float]:
    """Its percentiles, printed: `pytest -rP -s` shows them."""
    shares = (0.5, 0.95, 0.99, 0.999)
    percentiles = [lateness[int(share * len(lateness))] for share in shares]
    shown = ", ".join(
        f"p{share * 100:g} {at:.3f} s" for share, at in zip(shares, percentiles, strict=True)
    )
    print(f"{title}: {shown}, latest {lateness[-1]:.3f} s")
    return percentiles


@pytest.mark.parametrize(
    ("shards", "partitions", "size"),
    [(1, 1, FEWER), (64, 32, SPIKE)],
    ids="{}".format,
)
def test_all_start_once_and_none_early(shards: int, partitions: int, size: int) -> None:
    """S4-N3, S1-L4: with one shard and one leader as with many, it is the same code."""
    world = MemoryWorld(clock=VirtualClock(START), shards=shards, partitions=partitions)
    world.queue = LimitedQueue(clock=world.clock, per_second=STARTS_PER_SECOND)
    system = System(world=world)
    system.run_for(MINUTE)
    lateness = spiked(system, size)

    assert len(lateness) == len({run.execution_id for run in system.runs}) == size
    assert {row.state for row in world.tables.executions.values()} == {State.SUCCEEDED}
    assert lateness[0] >= 0
    assert told(lateness, f"{shards} shards, {partitions} partitions")[-1] <= ON_TIME / SECOND
    assert [*violations(system)] == []


def test_all_start_once_though_every_second_dispatcher_dies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """S4-N3, S4-N4: the next one goes on; what was sent twice falls at the claim."""
    monkeypatch.setattr(dispatch, "PAGE_ROWS", 100)
    world = MemoryWorld(clock=VirtualClock(START), shards=64, partitions=16)
    world.queue = LimitedQueue(clock=world.clock, per_second=STARTS_PER_SECOND)
    system = Mortal(world=world)
    system.run_for(MINUTE)
    lateness = spiked(system, FEWER)

    assert min(sum(system.died[f"{call} {when}"] for when in When) for call in ("advance", "send"))
    assert world.counts.events["claim_lost"] > 0
    assert len({run.execution_id for run in system.runs}) == len(system.runs) == FEWER
    assert {row.state for row in world.tables.executions.values()} == {State.SUCCEEDED}
    assert lateness[0] >= 0
    told(lateness, f"{system.died.total()} deaths")
    assert [*violations(system)] == []
