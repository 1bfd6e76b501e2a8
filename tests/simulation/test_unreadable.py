"""A definition that a release cannot read any more: its own executions wait, all others go on."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from lamplighter.core.errors import Unreadable
from lamplighter.core.lifecycle import State
from lamplighter.core.model import Job
from lamplighter.core.schedule import Record, read_record
from lamplighter.memory import MemoryWorld, VirtualClock
from lamplighter.services import inspect, manage
from lamplighter.sim.invariants import violations
from lamplighter.sim.system import System
from tests.support.jobs import OWNER, created, every, new_job

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
START = datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)


@pytest.fixture
def system() -> System:
    system = System(world=MemoryWorld(clock=VirtualClock(START), shards=1, partitions=1))
    system.run_for(MINUTE)
    return system


@pytest.fixture
def job(system: System) -> Job:
    """A job of every ten minutes, whose zone the next release does not know."""
    job = created(system.ports, new_job(schedule=every("10 minutes"))).job
    assert job is not None
    system.world.tables.jobs[job.id] = unreadable(job)
    return job


def unreadable(job: Job) -> Job:
    record: Record = {**job.schedule.to_record(), "timezone": "Atlantis/Poseidonis"}
    return replace(job, schedule=read_record(json.loads(json.dumps(record))))


def states(system: System, job: Job) -> list[str]:
    rows = system.world.tables.executions.values()
    return [row.state for row in rows if row.job_id == job.id]


def test_its_neighbours_on_a_page_go_on_and_it_waits_for_days(system: System, job: Job) -> None:
    created(system.ports, new_job(schedule=every("10 minutes")))

    system.run_for(timedelta(days=2))

    assert len(system.runs) == 2 * 24 * 6
    assert states(system, job) == [State.SCHEDULED]
    assert system.world.counts.events["definition_unreadable"] > 10


def test_once_it_can_be_read_again_it_runs_and_its_chain_goes_on(system: System, job: Job) -> None:
    system.run_for(2 * HOUR)
    system.world.tables.jobs[job.id] = job

    system.run_for(3 * HOUR)

    assert [*violations(system)] == []
    assert len(system.runs) >= 2 * 6
    assert State.SCHEDULED in states(system, job)


def test_a_new_schedule_is_in_force_at_once(system: System, job: Job) -> None:
    system.run_for(HOUR)

    manage.edit(system.ports, OWNER, job.id, lambda broken: replace(broken, schedule=job.schedule))
    system.run_for(HOUR)

    assert [*violations(system)] == []
    assert len(system.runs) >= 6


def test_what_this_very_version_planned_runs_though_the_next_cannot_be_told(
    system: System, job: Job
) -> None:
    system.world.tables.jobs[job.id] = job
    created(system.ports, new_job(schedule=every("2 minutes")))
    system.run_for(7 * MINUTE)
    before = len(system.runs)
    assert job.occurrence_id(job.since + 10 * MINUTE) in system.world.tables.executions
    system.world.tables.jobs[job.id] = unreadable(job)

    system.run_for(5 * MINUTE)

    assert job.id in {run.job_id for run in system.runs[before:]}


def test_a_claim_that_needs_its_schedule_is_put_off(system: System, job: Job) -> None:
    system.world.tables.jobs[job.id] = job
    system.run_for(7 * MINUTE)
    later = replace(unreadable(job), version=2)
    system.world.tables.jobs[job.id] = later

    system.run_for(5 * MINUTE)

    assert not [run for run in system.runs if run.job_id == job.id]
    assert State.RETRYING in states(system, job)
    assert system.world.counts.events["definition_unreadable"] > 0


def test_lists_and_its_own_page_show_it_with_the_reason(system: System, job: Job) -> None:
    detail = inspect.job(system.ports, OWNER, job.id)
    listed = inspect.jobs(system.ports, OWNER, inspect.Wanted(), after=None, limit=10)

    assert isinstance(detail.definition, inspect.Recurring)
    assert detail.definition.next_run_at is None
    assert "Atlantis/Poseidonis" in (detail.definition.job.unreadable or "")
    assert [one for one in listed.items if isinstance(one, inspect.Recurring)]


def test_it_can_be_paused_and_deleted_but_not_resumed(system: System, job: Job) -> None:
    manage.pause(system.ports, OWNER, job.id)
    with pytest.raises(Unreadable):
        manage.resume(system.ports, OWNER, job.id)
    manage.delete(system.ports, OWNER, job.id)

    system.run_for(20 * MINUTE)

    assert states(system, job) == [State.CANCELLED]
