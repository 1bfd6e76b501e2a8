"""Pause, resume and edit: what the answer says holds for every later claim (P17–P19)."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from lamplighter.core.errors import Conflict, NotFound, WrongVersion
from lamplighter.core.lifecycle import State
from lamplighter.core.limits import PAYLOAD_INLINE_BYTES
from lamplighter.core.model import Execution, Job, JobStatus, Owner, Payload
from lamplighter.core.outcome import Outcome, Succeeded
from lamplighter.core.schedule import parse
from lamplighter.memory import MemoryWorld, VirtualClock
from lamplighter.services import manage, slots
from lamplighter.services.execute import Claimed
from lamplighter.services.manage import Change
from lamplighter.sim.invariants import violations
from lamplighter.sim.system import System
from tests.support.jobs import OWNER, created, cron, every, in_, new_job

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


@pytest.fixture
def system() -> System:
    start = datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)
    system = System(world=MemoryWorld(clock=VirtualClock(start), shards=4, partitions=2))
    system.run_for(MINUTE)
    return system


def minutely(system: System) -> Job:
    job = created(system.ports, new_job(schedule=cron("* * * * *"))).job
    assert job is not None
    return job


def to_cron(expression: str) -> Change:
    return lambda job: replace(job, schedule=parse(cron=expression, seed=job.id))


def ran(system: System, since: datetime | None = None) -> list[datetime]:
    rows = system.world.tables.executions
    return [
        rows[run.execution_id].scheduled_for
        for run in system.runs
        if since is None or run.started_at > since
    ]


def rows(system: System) -> list[Execution]:
    return [*system.world.tables.executions.values()]


def test_nothing_that_is_claimed_after_the_pause_starts(system: System) -> None:
    """S0-U3."""
    job = minutely(system)
    system.run_for(3 * MINUTE)
    paused_at = system.world.now()

    paused = manage.pause(system.ports, OWNER, job.id)
    system.run_for(HOUR)

    assert (paused.job.status, paused.job.version) == (JobStatus.PAUSED, 2)
    assert ran(system, paused_at) == []
    assert {row.state for row in rows(system) if row.run_at > paused_at} == {State.CANCELLED}


def test_a_resumed_job_goes_on_with_the_first_slot_after_now(system: System) -> None:
    job = minutely(system)
    manage.pause(system.ports, OWNER, job.id)
    system.run_for(HOUR + 30 * SECOND)
    resumed_at = system.world.now()

    manage.resume(system.ports, OWNER, job.id)
    system.run_for(10 * MINUTE)

    first = resumed_at.replace(second=0) + MINUTE
    assert ran(system, resumed_at) == [first + n * MINUTE for n in range(10)]
    assert [*violations(system)] == []


def test_a_pause_taken_back_at_once_loses_no_slot(system: System) -> None:  # P19
    job = minutely(system)
    system.run_for(30 * SECOND)
    at = system.world.now()

    for _ in range(3):
        manage.pause(system.ports, OWNER, job.id)
        manage.resume(system.ports, OWNER, job.id)
    system.run_for(5 * MINUTE)

    assert ran(system, at) == [at.replace(second=0) + n * MINUTE for n in range(1, 6)]
    assert [*violations(system)] == []


def test_an_edit_keeps_the_slots_of_both_versions_and_drops_the_old_ones(system: System) -> None:
    """S0-U3."""
    job = minutely(system)
    system.run_for(30 * SECOND)
    at = system.world.now()

    edited = manage.edit(system.ports, OWNER, job.id, to_cron("*/3 * * * *"))
    system.run_for(10 * MINUTE)

    assert edited.job.version == 2
    assert [slot.minute for slot in ran(system, at)] == [3, 6, 9]
    assert [*violations(system)] == []


def test_an_edit_there_and_back_loses_no_slot(system: System) -> None:  # P19
    job = minutely(system)
    system.run_for(30 * SECOND)
    at = system.world.now()

    manage.edit(system.ports, OWNER, job.id, to_cron("0 0 1 1 *"))
    manage.edit(system.ports, OWNER, job.id, to_cron("* * * * *"))
    system.run_for(5 * MINUTE)

    assert ran(system, at) == [at.replace(second=0) + n * MINUTE for n in range(1, 6)]


def test_an_edit_is_not_retroactive(system: System) -> None:
    job = created(system.ports, new_job(schedule=cron("0 0 1 1 *"))).job
    assert job is not None
    system.run_for(HOUR)

    manage.edit(system.ports, OWNER, job.id, to_cron("*/20 * * * *"))
    system.run_for(HOUR)

    assert [slot.minute for slot in ran(system)] == [20, 40, 0]


def test_an_outage_across_an_edit_runs_no_slot_from_before_it(system: System) -> None:
    job = created(system.ports, new_job(schedule=cron("0 12 * * *"))).job
    assert job is not None
    system.ticking = False
    system.run_for(13 * HOUR)
    edited_at = system.world.now()
    manage.edit(system.ports, OWNER, job.id, to_cron("30 * * * *"))
    system.run_for(10 * MINUTE)
    system.ticking = True

    system.run_for(HOUR)

    assert all(slot > edited_at for slot in ran(system))
    assert len(ran(system)) == 1


def test_what_its_owner_cancelled_stays_cancelled_through_an_edit(system: System) -> None:
    job = created(system.ports, new_job(schedule=every("10 minutes"))).job
    assert job is not None
    (row,) = rows(system)
    system.world.tables.executions[row.id] = replace(
        row, state=State.CANCELLED, cancel_requested_at=system.world.now()
    )

    manage.edit(system.ports, OWNER, job.id, lambda job: replace(job, name="renamed"))
    system.run_for(25 * MINUTE)

    assert row.scheduled_for not in ran(system)
    assert ran(system) == [row.scheduled_for + 10 * MINUTE]
    assert [*violations(system)] == []


def test_what_runs_when_a_job_is_paused_is_named_and_runs_to_its_end(system: System) -> None:
    job = minutely(system)
    paused: list[manage.Revised] = []

    def handler(claimed: Claimed) -> Outcome:
        if not paused:
            paused.append(manage.pause(system.ports, OWNER, job.id))
        return Succeeded(result="1")

    system.handler = handler
    system.run_for(10 * MINUTE)

    (run,) = system.runs
    assert paused[0].in_flight == [run.execution_id]
    assert system.world.tables.executions[run.execution_id].state is State.SUCCEEDED


def test_an_edited_payload_is_what_the_next_run_gets(system: System) -> None:
    job = minutely(system)
    seen: list[int] = []

    def handler(claimed: Claimed) -> Outcome:
        seen.append(len(claimed.payload))
        return Succeeded(result="1")

    def grow(job: Job) -> Job:
        text = '"' + "x" * (2 * PAYLOAD_INLINE_BYTES) + '"'
        return replace(job, spec=replace(job.spec, payload=Payload.of(text)))

    system.handler = handler
    manage.edit(system.ports, OWNER, job.id, grow)
    manage.edit(system.ports, OWNER, job.id, lambda job: replace(job, name="again"))
    system.run_for(MINUTE)

    assert seen == [2 * PAYLOAD_INLINE_BYTES + 2]


def test_a_job_that_is_as_asked_keeps_its_version(system: System) -> None:
    job = minutely(system)

    assert manage.resume(system.ports, OWNER, job.id).job == job


def test_a_request_about_another_version_changes_nothing(system: System) -> None:
    job = minutely(system)
    manage.pause(system.ports, OWNER, job.id, version=1)

    with pytest.raises(WrongVersion) as refused:
        manage.resume(system.ports, OWNER, job.id, version=1)

    assert refused.value.version == 2


def test_a_deleted_job_takes_no_edit(system: System) -> None:
    job = minutely(system)
    manage.delete(system.ports, OWNER, job.id)

    with pytest.raises(Conflict, match="is deleted"):
        manage.resume(system.ports, OWNER, job.id)


def test_nobody_pauses_somebody_elses_job(system: System) -> None:
    job = minutely(system)

    with pytest.raises(NotFound):
        manage.pause(system.ports, Owner("globex"), job.id)
    assert system.world.tables.jobs[job.id] == job


def test_history_shows_what_each_version_planned(system: System) -> None:

    job = minutely(system)
    system.run_for(3 * MINUTE + 30 * SECOND)
    manage.edit(system.ports, OWNER, job.id, to_cron("*/5 * * * *"))
    manage.pause(system.ports, OWNER, job.id)
    system.run_for(10 * MINUTE)
    resumed = manage.resume(system.ports, OWNER, job.id).job
    now = in_(system.ports, 0)

    planned = [row.scheduled_for.minute for row in slots.planned(system.ports, resumed, now=now)]

    assert planned == [20, 15, 4, 3, 2]
