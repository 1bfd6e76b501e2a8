"""To the millisecond: how a start comes to its instant, and that it is never before it."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from lamplighter.core.lateness import lateness_of
from lamplighter.core.lifecycle import State
from lamplighter.core.limits import MAX_HOLD, ROUND_UP_WITHIN
from lamplighter.core.model import Execution, OverlapPolicy
from lamplighter.core.waits import Boot
from lamplighter.memory import MemoryWorld, VirtualClock
from lamplighter.ports import Ports, Received
from lamplighter.services import execute
from lamplighter.services.execute import Claimed
from lamplighter.services.settling import Put
from lamplighter.sim.system import System
from tests.support.examples import examples
from tests.support.jobs import created, every, in_, new_job

START = datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)
MS = timedelta(milliseconds=1)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
NONE = timedelta(0)


def world_at(offset_ms: int = 0) -> MemoryWorld:
    return MemoryWorld(clock=VirtualClock(START + offset_ms * MS))


def received(world: MemoryWorld) -> Received:
    """The one message, taken as soon as it can be."""
    visible_at = world.queue.next_visible_at()
    assert visible_at is not None
    world.clock.move_to(visible_at)
    (message,) = world.queue.receive()
    return message


def begun(ports: Ports, message: Received) -> Execution:
    claimed = execute.begin(ports, message, worker="w-1")
    assert isinstance(claimed, Claimed)
    return claimed.execution


@settings(max_examples=examples(200))
@given(now_ms=st.integers(0, 2_000), wait_ms=st.integers(0, 240_000))
def test_no_start_is_early_and_none_is_more_than_150_ms_late(now_ms: int, wait_ms: int) -> None:
    """S0-X4, S2-K1: for any millisecond that is due, and any at which it is sent."""
    world = world_at(now_ms)
    due = world.now() + wait_ms * MS
    created(world.ports(), new_job(run_at=due))

    row = begun(world.ports(), received(world))

    assert row.started_at is not None
    assert due <= row.started_at <= due + ROUND_UP_WITHIN


@given(early_ms=st.integers(-2_000, 5_000))
def test_a_worker_never_claims_before_it_is_due_however_early_a_message_comes(
    early_ms: int,
) -> None:
    """S0-X4: it holds for a second at most; what comes earlier still goes back into hiding."""
    world = world_at()
    due = world.now() + 10 * SECOND
    created(world.ports(), new_job(run_at=due))
    (stored,) = world.queue._stored.values()
    stored.visible_at = world.now()
    world.clock.move_to(due - early_ms * MS)
    (message,) = world.queue.receive()

    came = execute.begin(world.ports(), message, worker="w-1")

    row = world.tables.executions[message.message.execution_id]
    if early_ms * MS > MAX_HOLD:
        assert came == Put(deleted=False)
        assert row.state is State.SCHEDULED
        assert world.now() == due - early_ms * MS
    else:
        assert row.started_at is not None
        assert due <= row.started_at
        assert row.started_at - max(due, due - early_ms * MS) == NONE


@dataclass(kw_only=True)
class Watching:
    """A clock that looks at the one row while somebody sleeps by it."""

    world: MemoryWorld
    oversleeps: timedelta = NONE
    seen: list[tuple[Execution, timedelta]] = field(default_factory=list)

    def now(self) -> datetime:
        return self.world.clock.now()

    def monotonic(self) -> float:
        return self.world.clock.monotonic()

    def sleep(self, duration: timedelta) -> None:
        (row,) = self.world.tables.executions.values()
        self.seen.append((row, duration))
        self.world.clock.sleep(duration + self.oversleeps)


def test_what_is_held_is_nobody_s_yet() -> None:
    """S0-X4: no claim, no lease and no beat: a death in it costs a receive, and no try."""
    world = world_at()
    made = created(world.ports(), new_job(run_at=in_(world.ports(), 5) + 400 * MS))
    watching = Watching(world=world)

    row = begun(replace(world.ports(), clock=watching), received(world))

    assert watching.seen == [(made.first, 400 * MS)]
    assert row.started_at == row.run_at


def test_a_hold_that_lasts_too_long_is_a_part_of_the_lateness() -> None:
    world = world_at()
    created(world.ports(), new_job(run_at=in_(world.ports(), 5) + 400 * MS))
    message = received(world)
    sluggish = Watching(world=world, oversleeps=70 * MS)

    found = lateness_of(begun(replace(world.ports(), clock=sluggish), message))

    assert found is not None
    assert (found.hold, found.total) == (70 * MS, 70 * MS)


def test_a_message_that_its_process_began_for_had_a_cold_start() -> None:
    world = world_at()
    created(world.ports(), new_job(run_at=in_(world.ports(), 5)))
    message = received(world)
    due = world.now()
    world.pass_time(2 * SECOND)
    boot = Boot(began_at=due + 500 * MS, ready_at=due + 1900 * MS)

    found = lateness_of(begun(replace(world.ports(), boot=boot), message))

    assert found is not None
    assert (found.queue, found.cold_start) == (600 * MS, 1400 * MS)
    assert found.total == 2 * SECOND


def test_whoever_waits_for_the_one_before_it_is_told_how_long() -> None:
    """S0-N2: each run takes a minute and a half, so that each waits half a minute longer."""
    world = world_at()
    system = System(world=world, lasts=lambda _: 90 * SECOND)
    job = new_job(schedule=every("1 minute"), overlap=OverlapPolicy.BUFFER_ALL, timeout=10 * MINUTE)
    created(system.ports, job)

    system.run_for(10 * MINUTE)

    rows = [row for row in world.tables.executions.values() if row.first_started_at]
    found = [late for row in rows if (late := lateness_of(row))]
    assert len(found) == len(rows) >= 4
    for n, late in enumerate(found):
        assert late.total - late.blocked <= SECOND
        assert abs(late.blocked - n * 30 * SECOND) <= 3 * SECOND
