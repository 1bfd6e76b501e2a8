"""Partition work that asks for itself: it goes on without ticks, and never multiplies."""

import itertools
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from lamplighter.core.buckets import instant_of
from lamplighter.core.errors import Unavailable
from lamplighter.core.lease import Kind, Work, WorkItem
from lamplighter.core.limits import REARM_AFTER
from lamplighter.memory import MemoryWorld, VirtualClock
from lamplighter.services.partitions import do
from lamplighter.services.tick import tick
from lamplighter.sim.faults import (
    Call,
    Crash,
    Hook,
    When,
    calls_of,
    crash_at,
    every_strike,
    interposed,
    unavailable_at,
)
from lamplighter.sim.invariants import violations
from lamplighter.sim.system import System
from tests.support.jobs import created, every, in_, new_job

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
START = datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)
WORK = Work(partition=0, kind=Kind.DISPATCH)
WORKS = 2 * len(Kind)


@pytest.fixture
def system() -> System:
    system = System(world=MemoryWorld(clock=VirtualClock(START), shards=4, partitions=2))
    system.run_for(MINUTE)
    return system


def lateness(system: System) -> timedelta:
    return max(run.started_at - run.due_at for run in system.runs)


def items_of(system: System) -> Counter[Work]:
    """How many items of each work there are, those that are void with them."""
    return Counter(item.work for _, item in system.world.queue.work)


def test_dispatch_goes_on_for_an_hour_without_a_tick(system: System) -> None:
    """S2-L3: what was handed out once goes on, and every start is on time."""
    created(system.ports, new_job(schedule=every("1 minute")))
    created(system.ports, new_job(schedule=every("7 minutes")))
    one_off = created(system.ports, new_job(run_at=in_(system.ports, 3000))).first
    system.ticks_come = False

    system.run_for(HOUR)

    assert len(system.runs) == 60 + 8 + 1
    assert one_off.id in {run.execution_id for run in system.runs}
    assert lateness(system) <= SECOND
    assert [*violations(system)] == []


def test_without_ticks_there_is_one_item_of_each_work(system: System) -> None:
    system.ticks_come = False
    system.run_for(HOUR)

    assert items_of(system) == {
        Work(partition=partition, kind=kind): 1 for kind in Kind for partition in range(2)
    }


def test_a_day_of_doubled_ticks_multiplies_nothing(system: System) -> None:
    most = 0
    for _ in range(24 * 60):
        tick(system.ports)
        system.run_for(MINUTE)
        most = max(most, len(system.world.queue.work))

    # Of each work: the item of the latest grant, and those of the 90 s before, which are void.
    assert most <= WORKS * 5
    system.ticks_come = False
    system.run_for(5 * MINUTE)
    assert len(system.world.queue.work) == WORKS


def test_items_that_arrive_twice_leave_one(system: System) -> None:
    system.ticks_come = False
    system.run_for(5 * MINUTE)
    system.world.queue.work *= 3

    system.run_for(5 * MINUTE)

    assert len(system.world.queue.work) == WORKS


def test_an_item_that_a_tick_overtook_does_nothing(system: System) -> None:
    ports = system.ports
    stale = WorkItem(work=WORK, armed_by=1)
    do(ports, WorkItem(work=WORK), owner="tick")

    methods = [call.method for call in calls_of(ports, lambda on: do(on, stale, owner="late"))]

    assert methods == ["layouts", "acquire"]


@pytest.mark.parametrize("kind", [*Kind])
@pytest.mark.parametrize("redelivered", [True, False], ids=["redelivered", "its last delivery"])
def test_a_visit_that_dies_anywhere_leaves_the_work_asked_for(
    kind: Kind, redelivered: bool
) -> None:
    """S0-E1: its own message comes back, or the next one is there already."""
    item = WorkItem(work=Work(partition=0, kind=kind))

    def ready() -> System:
        system = System(world=MemoryWorld(clock=VirtualClock(START), shards=4, partitions=2))
        system.run_for(MINUTE)
        created(system.ports, new_job(run_at=in_(system.ports, 300)))
        system.ticks_come = False
        system.world.queue.work = [
            (at, other) for at, other in system.world.queue.work if other.work != item.work
        ]
        return system

    calls = calls_of(ready().ports, lambda ports: do(ports, item, owner="undisturbed"))
    for strike in every_strike(calls, whens=(When.BEFORE, When.AFTER)):
        system = ready()
        with pytest.raises(Crash):
            do(interposed(system.ports, crash_at(strike)), item, owner="doomed")
        is_armed = items_of(system)[item.work] > 0
        if redelivered:
            system.world.pass_time(2 * MINUTE)
            system.world.queue.hand_out([item])
        elif not is_armed:
            # It had not come to arming the next: so its own message is not gone either.
            continue
        system.run_for(10 * MINUTE)
        assert items_of(system)[item.work] == 1, strike
        assert [*violations(system)] == []


def test_a_service_that_does_not_answer_keeps_the_item(system: System) -> None:
    item = WorkItem(work=WORK)
    calls = calls_of(system.ports, lambda ports: do(ports, item, owner="undisturbed"))
    for strike in every_strike(calls, whens=(When.BEFORE, When.AFTER)):
        with pytest.raises(Unavailable):
            do(interposed(system.ports, unavailable_at(strike)), item, owner="struck")
        system.world.pass_time(30 * SECOND)


def test_the_next_item_comes_before_the_look_ahead_is_used_up(system: System) -> None:
    system.world.queue.work = []
    do(system.ports, WorkItem(work=WORK), owner="a")

    (at, item) = system.world.queue.work[0]

    assert at == system.world.now() + REARM_AFTER
    assert item.work == WORK


def test_a_visit_without_time_has_the_next_one_come_at_once(system: System) -> None:
    for seconds in range(300, 330):
        created(system.ports, new_job(run_at=in_(system.ports, seconds)))
    system.world.pass_time(2 * MINUTE)
    system.world.queue.work = []

    do(system.ports, WorkItem(work=WORK), owner="hurried", time_left=lambda: False)

    assert min(at for at, _ in system.world.queue.work) == system.world.now()


def ages_of_sweeps(system: System, monkeypatch: pytest.MonkeyPatch) -> list[timedelta]:
    """How far behind each visit of the sweep found itself, from now on."""
    ages: list[timedelta] = []

    def swept(*, partition: int, rows: int, age: timedelta) -> None:
        ages.append(age)

    monkeypatch.setattr(system.world.counts, "swept", swept)
    return ages


def test_a_sweep_that_comes_each_minute_is_at_most_150_s_behind(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S0-N4: what a message was lost of waits no longer than that to be looked at."""
    system.run_for(5 * MINUTE)
    ages = ages_of_sweeps(system, monkeypatch)
    system.run_for(10 * MINUTE)

    assert ages
    assert max(ages) <= 150 * SECOND


def test_a_sweep_whose_every_visit_fails_tells_how_far_behind_it_is(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S1-N6: nothing else would: dispatch goes on, and nothing is late but what was lost."""
    system.run_for(5 * MINUTE)
    ages = ages_of_sweeps(system, monkeypatch)
    work = WorkItem(work=Work(partition=0, kind=Kind.SWEEP))
    system.ticking = False
    for _ in range(4):
        system.run_for(2 * MINUTE)
        with pytest.raises(Unavailable):
            do(interposed(system.ports, raise_at_due), work, owner="failing")

    assert ages == sorted(ages)
    assert ages[-1] > 8 * MINUTE


def raise_at_due(call: Call, when: When) -> None:
    if call.method == "due" and when is When.BEFORE:
        raise Unavailable("the bucket cannot be read")


def test_a_sweep_whose_every_tenth_read_fails_gets_on(system: System) -> None:
    """P6: what it had come to when a call failed is done; the next one goes on from there."""
    system.ticking = False
    system.run_for(HOUR)
    work = Work(partition=0, kind=Kind.SWEEP)
    for _ in range(4):
        do(system.ports, WorkItem(work=WORK), owner="dispatch")
        system.run_for(2 * MINUTE)
    before = system.ports.control.progress([work])[work].watermark
    failed = 0
    for _ in range(40):
        try:
            done = do(interposed(system.ports, fails_at(9)), WorkItem(work=work), owner="sweep")
        except Unavailable:
            failed += 1
        else:
            assert done is not None
            break

    after = system.ports.control.progress([work])[work].watermark
    assert failed >= 5
    assert instant_of(after) - instant_of(before) >= HOUR


def fails_at(number: int) -> Hook:
    """One call to read a bucket fails, after some that did not."""
    reads = itertools.count()

    def fail(call: Call, when: When) -> None:
        if call.method == "due" and when is When.BEFORE and next(reads) == number:
            raise Unavailable("the bucket cannot be read")

    return fail
