"""What is told at create of a start that will be late (issue 4, spikes; S2-K1, S4-N3)."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from lamplighter.core.buckets import Minute, Position
from lamplighter.core.errors import Unavailable
from lamplighter.core.forecast import Capacity
from lamplighter.core.limits import SAMPLED_WITHIN, SAMPLES
from lamplighter.core.model import Execution, Owner
from lamplighter.memory import MemoryExecutions, MemoryWorld, VirtualClock
from lamplighter.memory.stores import Tables
from lamplighter.ports import Ports
from lamplighter.services.forewarning import Crowd, Forewarning
from tests.support.jobs import created, cron, new_job

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)


class Counting(MemoryExecutions):
    """Counts its samples, each of which takes a while."""

    def __init__(self, tables: Tables, clock: VirtualClock, takes: timedelta) -> None:
        super().__init__(tables)
        self.samples = 0
        self._clock = clock
        self._takes = takes

    def sample(
        self, minute: Minute, shard: int, *, queue: str, until: Position, limit: int
    ) -> list[Position]:
        self.samples += 1
        self._clock.sleep(self._takes)
        return [*super().sample(minute, shard, queue=queue, until=until, limit=limit)]


class Broken(MemoryExecutions):
    """Has no samples."""

    def __init__(self, tables: Tables, error: Exception) -> None:
        super().__init__(tables)
        self.asked = 0
        self._error = error

    def sample(
        self, minute: Minute, shard: int, *, queue: str, until: Position, limit: int
    ) -> list[Position]:
        self.asked += 1
        raise self._error


@pytest.fixture
def world() -> MemoryWorld:
    return MemoryWorld(clock=VirtualClock(NOON), capacity=Capacity(lanes={"default": 10.0}))


def crowd(ports: Ports, count: int, *, at: datetime = NOON + HOUR) -> None:
    for _ in range(count):
        created(ports, new_job(run_at=at, owner=Owner("somebody else")))


def one_more(ports: Ports, *, at: datetime = NOON + HOUR) -> Execution:
    return created(ports, new_job(run_at=at)).first


@pytest.mark.parametrize("shards", [1, 4, 16])
def test_a_start_behind_a_crowd_is_told_of(world: MemoryWorld, shards: int) -> None:
    world.shards, world.partitions = shards, 1
    ports = world.ports()
    crowd(ports, 300)

    found = Forewarning(ports=ports).of(one_more(ports))

    assert found is not None
    assert (found.queue, found.run_at) == ("default", NOON + HOUR)
    # 30 s, read off one to four shards of which each has a share of it by chance.
    assert 20 * SECOND <= found.lateness <= 60 * SECOND
    assert world.counts.events["forewarned"] == 1


def test_where_all_shards_are_read_it_is_exact(world: MemoryWorld) -> None:
    world.shards, world.partitions = 1, 1
    ports = world.ports()
    crowd(ports, 49)

    assert Forewarning(ports=ports).of(one_more(ports)) == Crowd(
        queue="default", run_at=NOON + HOUR, lateness=5 * SECOND
    )
    # One more, and 51 take longer than five seconds at ten a second.
    assert Forewarning(ports=ports).of(one_more(ports)) == Crowd(
        queue="default", run_at=NOON + HOUR, lateness=10 * SECOND
    )


def test_the_row_itself_is_no_crowd(world: MemoryWorld) -> None:
    world.shards, world.partitions = 1, 1
    ports = replace(world.ports(), capacity=Capacity(lanes={"default": 0.5}))

    assert Forewarning(ports=ports).of(one_more(ports)) is None


def test_what_is_due_later_or_in_another_minute_or_lane_is_not_in_the_way(
    world: MemoryWorld,
) -> None:
    world.shards, world.partitions = 1, 1
    ports = world.ports()
    crowd(ports, 60, at=NOON + HOUR + 30 * SECOND)
    crowd(ports, 60, at=NOON + HOUR - SECOND)
    for _ in range(60):
        new = new_job(run_at=NOON + HOUR)
        created(ports, replace(new, spec=replace(new.spec, queue="bulk")))

    assert Forewarning(ports=ports).of(one_more(ports)) is None


def test_a_few_rows_of_a_few_shards_are_chance(world: MemoryWorld) -> None:
    """Of a capacity that so few exceed, nothing is told rather than something wrong."""
    world.shards = 4096
    world.partitions = 1
    ports = world.ports()
    crowd(ports, 5)

    warned = [Forewarning(ports=ports).of(one_more(ports)) for _ in range(20)]

    assert warned == [None] * 20


def test_what_one_request_makes_adds_up(world: MemoryWorld) -> None:
    ports = world.ports()
    forewarning = Forewarning(ports=ports)

    warned = [forewarning.of(one_more(ports)) for _ in range(30)]

    assert warned[:20] == [None] * 20
    assert all(one is not None for one in warned[20:])


def test_a_recurring_job_is_told_of_its_next_start(world: MemoryWorld) -> None:
    ports = world.ports()
    for _ in range(300):
        created(ports, new_job(schedule=cron("0 * * * *")))

    found = Forewarning(ports=ports).of(created(ports, new_job(schedule=cron("0 * * * *"))).first)

    assert found is not None
    assert found.lateness >= 20 * SECOND


def test_one_request_reads_a_bounded_number_of_samples(world: MemoryWorld) -> None:
    executions = Counting(world.tables, world.clock, timedelta(0))
    ports = replace(world.ports(), executions=executions, capacity=Capacity())
    forewarning = Forewarning(ports=ports)

    for n in range(100):
        forewarning.of(one_more(ports, at=NOON + HOUR + n * SECOND))
        forewarning.of(one_more(ports, at=NOON + HOUR + n * SECOND))

    # With a hundred a second, one of 16 shards tells enough.
    assert executions.samples == SAMPLES


def test_it_ends_when_its_time_is_over(world: MemoryWorld) -> None:
    world.shards, takes = 64, 3 * SAMPLED_WITHIN / 4
    executions = Counting(world.tables, world.clock, takes)
    ports = replace(world.ports(), executions=executions)
    forewarning = Forewarning(ports=ports)
    rows = [one_more(ports, at=NOON + HOUR + n * SECOND) for n in range(10)]
    began = world.now()

    for row in rows:
        forewarning.of(row)

    # The second began in time, and nothing after it.
    assert (executions.samples, world.now() - began) == (2, 2 * takes)


@pytest.mark.parametrize("error", [Unavailable("no answer"), RuntimeError("a bug")])
def test_what_goes_wrong_is_counted_and_nothing_more(world: MemoryWorld, error: Exception) -> None:
    executions = Broken(world.tables, error)
    ports = replace(world.ports(), executions=executions)
    forewarning = Forewarning(ports=ports)

    warned = [forewarning.of(one_more(ports, at=NOON + HOUR + n * SECOND)) for n in range(5)]

    assert warned == [None] * 5
    # Not asked again by the same request.
    assert executions.asked == 1
    assert world.counts.events[f"forewarning_failed {type(error).__name__}"] == 1
