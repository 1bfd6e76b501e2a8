from datetime import UTC, datetime, timedelta

import pytest

from lamplighter.core.buckets import instant_of
from lamplighter.core.lease import Kind, Work
from lamplighter.core.lifecycle import State
from lamplighter.core.limits import LOOK_AHEAD, PARTITION_LEASE
from lamplighter.core.model import MisfirePolicy
from lamplighter.memory import MemoryWorld, VirtualClock
from lamplighter.services import dispatch as dispatching
from lamplighter.services.tick import tick
from lamplighter.sim.faults import calls_of
from lamplighter.sim.invariants import violations
from lamplighter.sim.system import System
from tests.support.jobs import created, every, in_, new_job
from tests.support.partition_work import dispatch, watermarks

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
WORK = Work(partition=0, kind=Kind.DISPATCH)


@pytest.fixture
def system() -> System:
    start = datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)
    world = MemoryWorld(clock=VirtualClock(start), shards=4, partitions=1)
    system = System(world=world)
    system.run_for(MINUTE)
    return system


def states(system: System) -> list[str]:
    rows = sorted(system.world.tables.executions.values(), key=lambda row: row.run_at)
    return [row.state for row in rows if row.run_at <= system.world.now()]


def test_a_job_past_the_look_ahead_starts_on_time(system: System) -> None:
    """S1-H1, S4-H2, S4-D3: a message's delay is what is left until its time."""
    for seconds in range(241, 900, 47):
        created(system.ports, new_job(run_at=in_(system.ports, seconds)))

    system.run_for(16 * MINUTE)

    assert len(system.runs) == 15
    assert all(timedelta(0) <= run.started_at - run.due_at <= SECOND for run in system.runs)


def test_nothing_past_the_line_is_sent(system: System) -> None:
    """S0-T2, S1-H1, S4-H2: it looks a few minutes ahead and no further."""
    created(system.ports, new_job(run_at=in_(system.ports, 600)))

    dispatch(system.ports, 0, owner="a")

    assert len(system.world.queue) == 0
    watermark = watermarks(system.ports.control, [WORK])[WORK]
    assert instant_of(watermark) - system.world.now() - LOOK_AHEAD <= timedelta(milliseconds=1)


def test_a_second_dispatcher_leaves_a_held_partition_alone(system: System) -> None:
    """S2-L1, S4-H4: one owner a partition."""
    now = system.world.now()
    system.ports.control.acquire(
        WORK,
        owner="first",
        now=now,
        until=now + PARTITION_LEASE,
        start=watermarks(system.ports.control, [WORK])[WORK],
    )

    done = dispatch(system.ports, 0, owner="second")

    assert done is None


def test_two_ticks_at_once_a_late_one_and_a_missing_one_change_nothing(system: System) -> None:
    created(system.ports, new_job(schedule=every("1 minute")))
    system.ticks_come = False
    for late_by in (0, 0, 119, 30, 61, 0, 90, 119):
        system.run_for(late_by * SECOND)
        tick(system.ports)
        tick(system.ports)
        system.work()

    assert states(system) == ["SUCCEEDED"] * 6
    assert all(run.started_at - run.due_at <= SECOND for run in system.runs)


def test_a_dispatcher_without_time_stops_between_pages_and_the_next_one_goes_on(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatching, "PAGE_ROWS", 2)
    for seconds in range(300, 312):
        created(system.ports, new_job(run_at=in_(system.ports, seconds)))
    system.world.pass_time(2 * MINUTE)

    done = dispatch(system.ports, 0, owner="hurried", time_left=lambda: False)
    sent_first = len(system.world.queue)
    dispatch(system.ports, 0, owner="next")

    assert done is not None
    assert done.pages <= 1
    assert sent_first <= 2
    assert len(system.world.queue) == 12


@pytest.mark.parametrize(
    ("misfire", "ran"),
    [(MisfirePolicy.FIRE_ALL, 6), (MisfirePolicy.FIRE_ONCE, 1), (MisfirePolicy.SKIP, 0)],
)
def test_an_outage_of_six_slots_is_six_runs_one_or_none(
    system: System, misfire: MisfirePolicy, ran: int
) -> None:
    """S0-S5, S2-M3: each policy, through the whole system."""
    created(system.ports, new_job(schedule=every("10 minutes"), misfire=misfire))
    system.ticking = False
    system.run_for(65 * MINUTE)
    outage_ended = system.world.now()
    system.ticking = True

    system.run_for(20 * MINUTE)

    late = [run.run_at for run in system.runs if run.run_at <= outage_ended]
    assert len(late) == ran
    assert late == sorted(late)
    assert [*violations(system)] == []
    assert system.world.tables.executions[system.runs[-1].execution_id].lateness is not None


def test_a_day_without_ticks_costs_calls_by_the_minute_and_not_by_the_slot(
    system: System,
) -> None:
    created(system.ports, new_job(schedule=every("1 minute")))
    system.ticking = False
    system.world.pass_time(timedelta(days=1))

    calls = calls_of(system.ports, lambda ports: dispatch(ports, 0, owner="a"))

    methods = [call.method for call in calls]
    # One read a bucket, and a page of work only for the armed row and the one it becomes.
    assert methods.count("due") <= 24 * 60 + 6
    assert methods.count("put") + methods.count("send") + methods.count("end") <= 20


def test_ten_thousand_jobs_of_one_second_are_all_sent_once(system: System) -> None:
    at = in_(system.ports, 600)
    for _ in range(10_000):
        created(system.ports, new_job(run_at=at))

    system.world.pass_time(7 * MINUTE)
    dispatch(system.ports, 0, owner="a")

    assert len(system.world.queue) == 10_000
    assert {State.SCHEDULED} == {row.state for row in system.world.tables.executions.values()}
