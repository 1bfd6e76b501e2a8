"""Another number of shards or partitions, while everything goes on."""

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest

from lamplighter.core.buckets import minute_of, place_of, start_of
from lamplighter.core.errors import Unavailable
from lamplighter.core.limits import LAYOUT_FRESH, LOOK_AHEAD
from lamplighter.memory import MemoryWorld, VirtualClock
from lamplighter.services.layouts import begins_at, kept
from lamplighter.services.tick import tick
from lamplighter.sim.faults import (
    Crash,
    calls_of,
    crash_at,
    every_crash,
    interposed,
    unavailable_at,
)
from lamplighter.sim.invariants import violations
from lamplighter.sim.system import System
from tests.support.jobs import created, every, in_, new_job

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
START = datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)
SIZES = [(1, 1), (4, 2), (16, 4), (64, 16), (256, 32)]


def a_system(shards: int, partitions: int) -> System:
    world = MemoryWorld(clock=VirtualClock(START), shards=shards, partitions=partitions)
    system = System(world=world)
    system.run_for(MINUTE)
    return system


def with_jobs(system: System) -> System:
    """Recurring jobs, one-offs on both sides of a change that comes now, and far ones."""
    for rate in ("1 minute", "3 minutes", "17 minutes"):
        for _ in range(4):
            created(system.ports, new_job(schedule=every(rate)))
    for seconds in range(100, 2400, 37):
        created(system.ports, new_job(run_at=in_(system.ports, seconds)))
    return system


def deploy(system: System, shards: int, partitions: int) -> None:
    system.world.shards, system.world.partitions = shards, partitions


def assert_all_well(system: System) -> None:
    assert [*violations(system)] == []
    assert max(run.started_at - run.due_at for run in system.runs) <= SECOND
    assert len({run.execution_id for run in system.runs}) == len(system.runs)
    assert system.world.counts.events["recovered"] == 0


@pytest.mark.parametrize("was", SIZES, ids=str)
@pytest.mark.parametrize("becomes", SIZES, ids=str)
def test_a_change_is_noticed_by_nobody(was: tuple[int, int], becomes: tuple[int, int]) -> None:
    """S1-L4, S2-L1: from one leader to 32 partitions and back, nothing is late, lost or twice."""
    system = with_jobs(a_system(*was))
    system.run_for(3 * MINUTE)
    deploy(system, *becomes)

    system.run_for(40 * MINUTE)

    assert_all_well(system)
    (last,) = system.ports.layouts().of
    assert (last.shards, last.partitions) == becomes
    assert last.width == max(was[0], becomes[0])


def test_shards_grow_and_shrink_and_grow_again() -> None:
    system = with_jobs(a_system(16, 4))
    for shards, partitions in [(64, 8), (1, 1), (128, 16), (4, 4)]:
        deploy(system, shards, partitions)
        system.run_for(11 * MINUTE)
        for _ in range(3):
            created(system.ports, new_job(schedule=every("1 minute")))
            created(system.ports, new_job(run_at=in_(system.ports, 1500)))
    system.run_for(30 * MINUTE)

    assert_all_well(system)
    assert system.ports.layout().generation == 4


def test_new_ids_go_into_the_shards_in_force_now() -> None:
    system = a_system(1, 1)
    deploy(system, 256, 32)
    system.run_for(3 * MINUTE)
    before = [created(system.ports, new_job(run_at=in_(system.ports, 3000))) for _ in range(20)]
    system.run_for(8 * MINUTE)
    after = [created(system.ports, new_job(run_at=in_(system.ports, 3000))) for _ in range(20)]

    assert {place_of(one.first.id).shard for one in before} == {0}
    assert len({place_of(one.first.id).shard for one in after}) > 10


def test_a_change_begins_after_everybody_has_read_of_it() -> None:
    for seconds in range(0, 120, 7):
        now = START + seconds * SECOND
        assert begins_at(now) - now > LAYOUT_FRESH + LOOK_AHEAD
        assert begins_at(now) == start_of(minute_of(begins_at(now)))


def test_one_change_at_a_time() -> None:
    """Two releases that tick in turn do not pile up layouts."""
    system = a_system(4, 2)
    for n in range(5):
        deploy(system, *[(8, 4), (16, 4)][n % 2])
        tick(system.ports)

    assert len(system.ports.layouts().of) == 2


def test_of_two_ticks_at_once_one_changes_the_layouts() -> None:
    system = a_system(4, 2)
    deploy(system, 8, 4)
    slow = interposed(system.ports, _before("revise_layouts", lambda: kept(system.ports)))

    found = kept(slow)

    assert found == system.ports.layouts()
    assert len(found.of) == 2


def test_a_layout_that_is_over_is_dropped_only_when_all_of_it_was_swept() -> None:
    system = with_jobs(a_system(4, 2))
    deploy(system, 8, 4)
    counts = []
    for _ in range(12):
        system.run_for(MINUTE)
        counts.append(len(system.ports.layouts().of))

    # Six minutes ahead, then until the sweep has come to its end.
    assert counts == sorted(counts, key=lambda n: -n)
    assert counts[:8] == [2] * 8
    assert counts[-1] == 1


def test_a_change_in_a_backlog_leaves_nothing_behind() -> None:
    """An outage begins before the change and ends after it."""
    system = with_jobs(a_system(16, 4))
    deploy(system, 4, 2)
    system.run_for(2 * MINUTE)
    system.ticking = False
    system.run_for(25 * MINUTE)
    system.ticking = True

    system.run_for(40 * MINUTE)

    assert [*violations(system)] == []
    assert len(system.ports.layouts().of) == 1


def test_without_ticks_the_next_layout_is_worked_on_all_the_same() -> None:
    system = with_jobs(a_system(16, 4))
    deploy(system, 64, 8)
    system.run_for(2 * MINUTE)
    system.ticks_come = False

    system.run_for(40 * MINUTE)

    assert_all_well(system)
    assert system.ports.layout().generation == 1


def test_a_tick_that_dies_anywhere_in_a_change_leaves_the_change_to_the_next() -> None:
    def ready() -> System:
        system = with_jobs(a_system(16, 4))
        deploy(system, 4, 2)
        return system

    for strike in every_crash(calls_of(ready().ports, tick)):
        for hook in (crash_at(strike), unavailable_at(strike)):
            system = ready()
            with suppress(Crash, Unavailable):
                tick(interposed(system.ports, hook))
            system.run_for(20 * MINUTE)
            assert_all_well(system)
            assert system.ports.layout().generation == 1


def _before(method: str, do: Callable[[], object]) -> Callable[..., None]:
    done: list[bool] = []

    def hook(call: object, when: object) -> None:
        if getattr(call, "method", None) == method and not done:
            done.append(True)
            do()

    return hook
