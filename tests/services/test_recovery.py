"""What would run if dispatch came back now: just what then does."""

from datetime import UTC, datetime, timedelta
from itertools import takewhile

import pytest

from lamplighter.core.catch_up import CatchUp
from lamplighter.core.model import Job, MisfirePolicy, Owner
from lamplighter.memory import MemoryWorld, VirtualClock
from lamplighter.services import manage
from lamplighter.services.recovery import Overdue, recovery
from lamplighter.sim.system import System
from tests.support.jobs import OWNER, created, every, new_job
from tests.support.partition_work import dispatch

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
START = datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)
FIRE_ALL, FIRE_ONCE, SKIP = MisfirePolicy.FIRE_ALL, MisfirePolicy.FIRE_ONCE, MisfirePolicy.SKIP


@pytest.fixture
def system() -> System:
    made = System(world=MemoryWorld(clock=VirtualClock(START), shards=4, partitions=2))
    made.run_for(MINUTE)
    return made


def a_job(
    system: System,
    misfire: MisfirePolicy,
    catch_up: CatchUp | None = None,
    deadline: timedelta | None = None,
) -> Job:
    new = new_job(schedule=every("1 minute"), misfire=misfire, catch_up=catch_up, deadline=deadline)
    job = created(system.ports, new).job
    assert job is not None
    return job


def outage(system: System, duration: timedelta) -> None:
    system.ticking = False
    system.run_for(duration)
    system.ticking = True


def overdue(system: System) -> list[Overdue]:
    page = recovery(system.ports, OWNER, after=None, limit=100)
    assert page.next is None
    return [*page.items]


@pytest.mark.parametrize(
    ("misfire", "catch_up", "deadline"),
    [
        (SKIP, CatchUp(), None),
        (FIRE_ONCE, CatchUp(), None),
        (FIRE_ONCE, CatchUp(), 10 * MINUTE),
        (FIRE_ONCE, CatchUp(threshold=timedelta(hours=2)), None),
        (FIRE_ALL, CatchUp(), None),
        (FIRE_ALL, CatchUp(most=5, spread=timedelta(0)), None),
        (FIRE_ALL, CatchUp(most=5, spread=60 * SECOND), None),
        (FIRE_ALL, CatchUp(window=20 * MINUTE), None),
    ],
)
def test_what_it_says_is_what_then_runs(
    system: System, misfire: MisfirePolicy, catch_up: CatchUp, deadline: timedelta | None
) -> None:
    job = a_job(system, misfire, catch_up, deadline)
    system.run_for(5 * MINUTE)
    outage(system, 40 * MINUTE + SECOND / 2)
    asked_at, ran = system.world.now(), len(system.runs)
    rows = dict(system.world.tables.executions)

    found = overdue(system)

    assert system.world.tables.executions == rows
    # At the very next moment, and not at the next tick: a slot would be due by then.
    for partition in range(2):
        dispatch(system.ports, partition, owner="back")
    system.run_for(15 * MINUTE)
    late = sorted(run.run_at for run in system.runs[ran:] if run.run_at <= asked_at)
    starts = [run.due_at for run in system.runs[ran:] if run.run_at <= asked_at]
    (only,) = found
    assert only.job == job
    assert only.recovery.is_exact
    assert only.recovery.runs == len(late) > 0
    assert (only.recovery.first, only.recovery.last) == (late[0], late[-1])
    assert only.recovery.last_starts_at == max(asked_at, *starts)
    due = takewhile(lambda slot: slot <= asked_at, job.schedule.occurrences(job.since))
    total = sum(1 for _ in due) - ran
    assert only.recovery.runs + only.recovery.not_run == total


def test_six_missed_are_six_runs_one_or_none(system: System) -> None:
    jobs = {policy: a_job(system, policy) for policy in MisfirePolicy}
    system.run_for(MINUTE)
    outage(system, 10 * MINUTE)

    found = {one.job.id: one.recovery for one in overdue(system)}

    missed = found[jobs[FIRE_ALL].id].runs
    assert missed >= 5
    assert found[jobs[FIRE_ONCE].id].runs == 1
    assert found[jobs[SKIP].id].runs <= 2
    assert {one.runs + one.not_run for one in found.values()} == {missed}


def test_nothing_is_overdue_while_dispatch_goes_on(system: System) -> None:
    a_job(system, FIRE_ALL)
    system.run_for(10 * MINUTE)

    assert overdue(system) == []


def test_what_is_paused_deleted_or_somebody_elses_is_none_of_it(system: System) -> None:
    paused, deleted = a_job(system, FIRE_ALL), a_job(system, FIRE_ALL)
    other = new_job(schedule=every("1 minute"), owner=Owner("eve"))
    created(system.ports, other)
    system.run_for(MINUTE)
    outage(system, 20 * MINUTE)
    manage.pause(system.ports, OWNER, paused.id)
    manage.delete(system.ports, OWNER, deleted.id)

    assert overdue(system) == []


def test_its_deadline_is_the_earliest_of_what_runs(system: System) -> None:
    job = a_job(system, FIRE_ALL)
    system.run_for(MINUTE)
    outage(system, 20 * MINUTE)
    now = system.world.now()

    (found,) = overdue(system)

    assert found.recovery.first is not None
    # The first was armed in time, and has the catch-up window from then on.
    assert found.recovery.deadline == found.recovery.first + timedelta(days=1)
    assert found.recovery.deadline < now + timedelta(days=1)
    assert found.job == job


def test_five_years_cost_no_more_than_the_cap(system: System) -> None:
    a_job(system, FIRE_ALL)
    system.run_for(MINUTE)
    system.world.clock.sleep(timedelta(days=5 * 365))

    (found,) = overdue(system)

    # And what is late by less than the threshold.
    assert 100 <= found.recovery.runs <= 102
    assert not found.recovery.is_exact


def test_many_jobs_are_told_of_a_page_at_a_time(system: System) -> None:
    jobs = {a_job(system, FIRE_ONCE).id for _ in range(5)}
    system.run_for(MINUTE)
    outage(system, 20 * MINUTE)
    found, after = [], None

    while True:
        page = recovery(system.ports, OWNER, after=after, limit=2)
        found += [one.job.id for one in page.items]
        after = page.next
        if after is None:
            break

    assert (len(found), {*found}) == (5, jobs)
