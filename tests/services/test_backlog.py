"""After an outage: what is due now goes first, and what was missed drains beside it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from lamplighter.core.buckets import body_of, instant_of
from lamplighter.core.draining import drain_of
from lamplighter.core.lease import Kind
from lamplighter.core.lifecycle import State
from lamplighter.core.limits import ON_TIME, SWEEP_AFTER
from lamplighter.core.model import Execution, Job, MisfirePolicy, OverlapPolicy, Pointer
from lamplighter.memory import MemoryWorld, VirtualClock
from lamplighter.services import manage, timers
from lamplighter.services.progress import overall
from lamplighter.sim.faults import (
    calls_of,
    every_crash,
    every_strike,
    interposed,
    pause_at,
    survives,
)
from lamplighter.sim.invariants import violations
from lamplighter.sim.system import System
from tests.simulation.limited import LimitedQueue
from tests.support.jobs import OWNER, created, every, in_, new_job
from tests.support.partition_work import dispatch, sweep
from tests.support.strikes import some_of

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
START = datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)


def a_system(*, per_second: float = 1000.0, partitions: int = 1) -> System:
    world = MemoryWorld(
        clock=VirtualClock(START), shards=4, partitions=partitions, drain_per_second=per_second
    )
    system = System(world=world)
    system.run_for(MINUTE)
    return system


def out_for(system: System, duration: timedelta) -> datetime:
    """Have the deciding side be down for a while; when it is back."""
    system.ticking = False
    system.run_for(duration)
    system.ticking = True
    return system.world.now()


def test_a_backlog_drains_oldest_first_at_its_rate_beside_what_is_due_now() -> None:
    """S1-O3, S0-E3: 3,000 missed at 10 a second take five minutes; nothing else is late."""
    system = a_system(per_second=10)
    for n in range(3000):
        created(system.ports, new_job(run_at=in_(system.ports, 300 + n)))
    back = out_for(system, HOUR)
    for n in range(60):
        created(system.ports, new_job(run_at=in_(system.ports, 5 * n + 1)))
        # Beyond the line, so by the dispatcher.
        created(system.ports, new_job(run_at=in_(system.ports, 260 + 5 * n)))

    system.run_for(20 * MINUTE)

    missed = [run for run in system.runs if run.run_at <= back]
    on_time = [run for run in system.runs if run.run_at > back]
    assert (len(missed), len(on_time)) == (3000, 120)
    assert all(earlier.run_at <= later.run_at for earlier, later in pairwise(missed))
    took = missed[-1].started_at - back
    assert 5 * MINUTE * 0.9 <= took <= 5 * MINUTE * 1.5
    assert max(run.started_at - run.run_at for run in on_time) <= ON_TIME
    assert [*violations(system)] == []


@pytest.mark.parametrize(("misfire", "ran"), [("FIRE_ONCE", 1), ("FIRE_ALL", 100), ("SKIP", 0)])
def test_a_day_of_a_minutely_job_in_a_backlog_is_what_its_policy_says(
    misfire: str, ran: int
) -> None:
    """S2-M3, S2-M4: the newest hundred, the last one, or none; and on it goes."""
    system = a_system()
    created(system.ports, new_job(schedule=every("1 minute"), misfire=MisfirePolicy(misfire)))
    for n in range(500):
        created(system.ports, new_job(run_at=in_(system.ports, 3600 + n)))
    back = out_for(system, 24 * HOUR)

    system.run_for(20 * MINUTE)

    recurring = [run for run in system.runs if run.job_id.startswith("job_")]
    late = [run for run in recurring if START + 6 * MINUTE < run.run_at <= back - MINUTE]
    assert abs(len(late) - ran) <= 1
    assert len([run for run in recurring if run.run_at > back]) >= 19
    assert [*violations(system)] == []


def test_a_second_outage_while_a_backlog_drains_loses_nothing() -> None:
    system = a_system(per_second=2)
    created(system.ports, new_job(schedule=every("2 minutes")))
    for n in range(300):
        created(system.ports, new_job(run_at=in_(system.ports, 300 + 2 * n)))
    out_for(system, 20 * MINUTE)
    system.run_for(MINUTE)
    for n in range(100):
        created(system.ports, new_job(run_at=in_(system.ports, 300 + 2 * n)))
    out_for(system, 20 * MINUTE)

    system.run_for(30 * MINUTE)

    assert len([run for run in system.runs if run.job_id.startswith("one_")]) == 400
    assert [*violations(system)] == []


def test_progress_and_the_end_are_told() -> None:
    """S1-O3: how far it is, and when it will be over."""
    system = a_system(per_second=10)
    for n in range(3000):
        created(system.ports, new_job(run_at=in_(system.ports, 300 + n)))
    back = out_for(system, HOUR)
    before = overall(system.ports)
    system.run_for(150 * SECOND)
    half_way = overall(system.ports).drain
    system.run_for(10 * MINUTE)
    after = overall(system.ports)

    assert before.drain is None
    assert before.dispatched_until < back - 50 * MINUTE
    assert half_way is not None
    assert half_way.since >= back
    assert 0.3 < half_way.share < 0.8
    assert half_way.sent > 1000
    assert half_way.ends_at is not None
    assert back + 3 * MINUTE < half_way.ends_at < back + 9 * MINUTE
    assert after.drain is None
    assert after.dispatched_until > system.world.now()


def test_nothing_is_over_before_it_began() -> None:
    assert drain_of([], START) is None


def test_the_sweep_waits_for_the_backlog() -> None:
    """P6: what dispatch has not come to is none of the sweep's business."""
    system = a_system(per_second=1)
    for n in range(600):
        created(system.ports, new_job(run_at=in_(system.ports, 300 + n)))
    out_for(system, 30 * MINUTE)
    system.run_for(4 * MINUTE)

    layout = system.ports.layout()
    works = {kind: layout.work_on(0, kind) for kind in Kind}
    progress = system.ports.control.progress(works.values())

    assert progress[works[Kind.DISPATCH]].backlog is not None
    assert progress[works[Kind.SWEEP]].committed <= progress[works[Kind.DISPATCH]].committed
    assert instant_of(progress[works[Kind.DISPATCH]].watermark) > system.world.now()
    assert system.world.counts.events["recovered"] == 0


def a_long_drain() -> System:
    """Ten minutes into a drain of an hour; nothing is left of what came before it."""
    system = a_system(per_second=1)
    for n in range(3600):
        created(system.ports, new_job(run_at=in_(system.ports, 300 + n / 2)))
    out_for(system, 40 * MINUTE)
    system.run_for(10 * MINUTE)
    return system


def first_start_of(system: System, row: Execution) -> datetime | None:
    return next((run.started_at for run in system.runs if run.execution_id == row.id), None)


def test_a_lost_message_of_what_is_due_beside_a_backlog_is_sent_again_in_time() -> None:
    """S1-H2, S2-M1: 150 seconds after its time, though the backlog takes most of an hour."""
    system = a_long_drain()
    recurring = created(system.ports, new_job(schedule=every("2 minutes"))).first
    lost = [created(system.ports, new_job(run_at=in_(system.ports, 5 * n))).first for n in range(9)]
    messages = len(system.world.queue)
    system.world.queue.purge()

    system.run_for(6 * MINUTE)

    assert overall(system.ports).drain is not None
    for row in [recurring, *lost]:
        started_at = first_start_of(system, row)
        assert started_at is not None
        assert started_at - row.run_at <= SWEEP_AFTER + 2 * MINUTE + SECOND
    # What was lost, and neither the backlog nor what is on time.
    assert system.world.counts.events["recovered"] == messages


def test_what_is_due_beside_a_backlog_is_swept_once_more_behind_it() -> None:
    """P7: whatever the look ahead left to the walk, and then the two are one again."""
    system = a_long_drain()
    work = system.ports.layout().work_on(0, Kind.SWEEP)
    beside = system.ports.control.progress([work])[work]
    system.run_for(90 * MINUTE)
    after = system.ports.control.progress([work])[work]

    assert beside.backlog is not None
    assert instant_of(beside.watermark) > system.world.now() - 95 * MINUTE
    assert after.backlog is None
    assert system.world.now() - instant_of(after.watermark) <= SWEEP_AFTER + 2 * MINUTE
    assert system.world.counts.events["recovered"] == 0
    assert [*violations(system)] == []


def test_a_chain_that_was_begun_and_cut_beside_a_backlog_goes_on_in_time() -> None:
    """P2: who had put its first row died; no page of the backlog can come to it."""
    system = a_long_drain()
    first = created(system.ports, new_job(schedule=every("1 minute"))).first
    forget_all_after(system, first)
    system.run_for(10 * MINUTE)
    ran = [run for run in system.runs if run.job_id == first.job_id]
    drain = overall(system.ports).drain
    system.run_for(90 * MINUTE)

    assert drain is not None
    assert first.sent_directly
    assert len(ran) >= 6
    assert [*violations(system)] == []


def test_a_chain_that_was_mended_beside_a_backlog_is_found_alive_by_it() -> None:
    """P6: a page of the backlog comes by an edit's cut chain from before, and does not fork it."""
    system = a_system(per_second=1)
    job = created(
        system.ports, new_job(schedule=every("1 minute"), overlap=OverlapPolicy.SKIP)
    ).first.job_id
    for n in range(3600):
        created(system.ports, new_job(run_at=in_(system.ports, n / 2)))
    out_for(system, 40 * MINUTE)
    system.run_for(MINUTE)
    edited = manage.edit(system.ports, OWNER, job, lambda old: replace(old, name="later")).job
    forget_all_after(system, first_of(system, edited))
    system.run_for(10 * MINUTE)
    drain = overall(system.ports).drain
    system.run_for(90 * MINUTE)

    ran = [run for run in system.runs if run.job_id == job and run.run_at > edited.since]
    assert drain is not None
    assert len(ran) == len({run.run_at for run in ran}) >= 98
    assert [*violations(system)] == []


def first_of(system: System, job: Job) -> Execution:
    slot = job.next_after(job.since)
    assert slot is not None
    return system.world.tables.executions[job.occurrence_id(slot)]


def forget_all_after(system: System, first: Execution) -> None:
    """Have the chain end there, as when the process died that had put this row."""
    tables = system.world.tables
    rows = [row for row in tables.executions.values() if row.job_id == first.job_id]
    for row in rows:
        if row.id > first.id:
            del tables.executions[row.id]
            for bucket in tables.buckets.values():
                bucket.discard(body_of(row.id))


def test_a_check_beside_a_backlog_of_what_lies_in_it_is_left_to_the_walk() -> None:
    """P6: a row of the backlog is dispatch's until it was sent a while ago."""
    system = a_long_drain()
    rows = system.world.tables.executions
    last = max((row for row in rows.values() if row.state is State.SCHEDULED), key=lambda r: r.id)
    system.ports.executions.point([timers.check(last, in_(system.ports, 10))])
    system.run_for(5 * MINUTE)

    assert rows[last.id].state is State.SCHEDULED
    assert system.world.counts.events["recovered"] == 0
    assert not [
        row
        for row in system.world.tables.pointers.values()
        if isinstance(row, Pointer)
        and row.execution_id == last.id
        and row.at > in_(system.ports, 0)
    ]


def test_what_a_second_outage_made_late_is_not_taken_for_lost() -> None:
    """P6: it was sent a moment ago, however long ago it was due."""
    system = a_system(per_second=1)
    system.world.queue = LimitedQueue(clock=system.world.clock, per_second=4)
    for n in range(900):
        created(system.ports, new_job(run_at=in_(system.ports, 300 + n)))
    out_for(system, 20 * MINUTE)
    system.run_for(3 * MINUTE)
    for n in range(100):
        created(system.ports, new_job(run_at=in_(system.ports, 300 + n)))
    out_for(system, 15 * MINUTE)

    system.run_for(60 * MINUTE)

    assert len(system.runs) == 1000
    assert system.world.counts.events["recovered"] == 0


@pytest.mark.strikes
def test_a_sweep_that_dies_anywhere_beside_a_backlog_loses_nothing() -> None:
    """S0-E1, P7: whoever comes next looks at the same page again."""
    calls = calls_of(lost_beside_a_backlog().ports, lambda ports: sweep(ports, 0))
    strikes = [*every_crash(calls)]
    for strike in some_of(strikes):
        system = lost_beside_a_backlog()
        survives(system.ports, lambda ports: sweep(ports, 0), strike)
        system.run_for(20 * MINUTE)
        assert [*violations(system)] == [], strike
    assert len(strikes) > 10


def lost_beside_a_backlog() -> System:
    system = a_system(per_second=1)
    for n in range(240):
        created(system.ports, new_job(run_at=in_(system.ports, 300 + n)))
    out_for(system, 10 * MINUTE)
    system.run_for(MINUTE)
    for n in range(3):
        created(system.ports, new_job(run_at=in_(system.ports, n)))
    system.world.queue.purge()
    system.ticking = False
    system.run_for(2 * MINUTE)
    dispatch(system.ports, 0, time_left=lambda: False)
    system.ticking = True
    return system


def a_backlog_under_way() -> System:
    system = a_system(per_second=50)
    for misfire in MisfirePolicy:
        created(system.ports, new_job(schedule=every("1 minute"), misfire=misfire))
    for n in range(40):
        created(system.ports, new_job(run_at=in_(system.ports, 300 + 20 * n)))
    out_for(system, 20 * MINUTE)
    return system


@pytest.mark.strikes
def test_a_dispatcher_that_dies_anywhere_in_a_backlog_loses_nothing() -> None:
    """S0-E1, P5: whoever comes next redoes one page, of what is due or of the backlog."""
    calls = calls_of(a_backlog_under_way().ports, lambda ports: dispatch(ports, 0))
    for strike in some_of(every_crash(calls)):
        system = a_backlog_under_way()
        survives(system.ports, lambda ports: dispatch(ports, 0), strike)
        system.run_for(20 * MINUTE)
        assert [*violations(system)] == [], strike
        assert len([run for run in system.runs if run.job_id.startswith("one_")]) == 40


@pytest.mark.strikes
def test_a_dispatcher_that_sleeps_past_its_lease_anywhere_in_a_backlog_moves_nothing() -> None:
    """S1-L3: the next owner drains it, and the sleeper's writes are refused."""
    calls = calls_of(a_backlog_under_way().ports, lambda ports: dispatch(ports, 0))
    for strike in some_of(every_strike(calls)):
        system = a_backlog_under_way()

        def meanwhile(system: System = system) -> None:
            system.run_for(6 * MINUTE)

        dispatch(interposed(system.ports, pause_at(strike, meanwhile)), 0)
        system.run_for(15 * MINUTE)
        assert [*violations(system)] == [], strike
        assert len([run for run in system.runs if run.job_id.startswith("one_")]) == 40
