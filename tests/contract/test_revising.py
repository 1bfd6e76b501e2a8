"""Pause, resume and edit through the services, on every backend: what is armed, what runs."""

from dataclasses import dataclass, replace
from datetime import timedelta

import pytest

from lamplighter.core.lifecycle import State
from lamplighter.core.model import Execution, Job, JobStatus, Payload
from lamplighter.core.outcome import Outcome, Succeeded
from lamplighter.memory import Counts, VirtualClock
from lamplighter.ports import Ports
from lamplighter.services import execute, manage, slots
from lamplighter.services.execute import Claimed
from tests.contract.worlds import World
from tests.support.jobs import OWNER, created, every, new_job
from tests.support.partition_work import dispatch
from tests.support.rows import T

HOUR = timedelta(hours=1)
LARGE = '"' + "x" * 600 + '"'


@dataclass(frozen=True, kw_only=True)
class Stage:
    """The services on one backend, with a clock that the test moves, and one hourly job."""

    ports: Ports
    clock: VirtualClock
    world: World
    job: Job

    def row(self, job: Job) -> Execution:
        """The row of the first slot, as it now is."""
        row = self.ports.executions.get(job.occurrence_id(T + HOUR))
        assert row is not None
        return row

    def run_first_slot(self) -> list[str]:
        """Payloads that handlers got once the first slot had come."""
        got: list[str] = []

        def handler(claimed: Claimed) -> Outcome:
            got.append(claimed.payload)
            return Succeeded(result="1")

        # At its very instant: queues count delays in real time.
        self.clock.move_to(T + HOUR)
        dispatch(self.ports, 0, owner="a")
        for message in self.world.receive("default"):
            execute.process(self.ports, message, handler, worker="w")
        return got


@pytest.fixture
def stage(world: World) -> Stage:
    clock = VirtualClock(T)
    ports = replace(world.ports, clock=clock, telemetry=Counts(), shards=1, partitions=1)
    job = created(ports, new_job(schedule=every("1 hour"))).job
    assert job is not None
    return Stage(ports=ports, clock=clock, world=world, job=job)


def test_what_was_armed_when_a_job_was_paused_is_cancelled_and_does_not_run(stage: Stage) -> None:
    paused = manage.pause(stage.ports, OWNER, stage.job.id)

    assert paused.in_flight == []
    assert stage.row(paused.job).state is State.CANCELLED
    assert stage.run_first_slot() == []


def test_a_pause_that_died_half_way_starts_nothing_all_the_same(stage: Stage) -> None:  # P17
    now = stage.clock.now()
    paused = replace(stage.job, version=2, status=JobStatus.PAUSED, effective_from=now)
    stage.ports.jobs.revise(stage.job, paused)

    assert stage.run_first_slot() == []

    row = stage.row(paused)
    assert (row.state, row.attempts) == (State.CANCELLED, ())


def test_a_slot_that_a_pause_took_back_runs_once_after_the_resume(stage: Stage) -> None:  # P19
    manage.pause(stage.ports, OWNER, stage.job.id)

    resumed = manage.resume(stage.ports, OWNER, stage.job.id).job

    assert stage.row(resumed).job_version == 3
    assert stage.run_first_slot() == ["null"]
    assert stage.run_first_slot() == []


def test_a_slot_of_both_versions_runs_once_and_as_the_new_one_says(stage: Stage) -> None:
    def grow(job: Job) -> Job:
        return replace(job, spec=replace(job.spec, payload=Payload.of(LARGE)))

    edited = manage.edit(stage.ports, OWNER, stage.job.id, grow).job

    assert edited.version == 2
    assert stage.run_first_slot() == [LARGE]


def test_a_job_s_history_is_planned_from_all_of_its_versions(stage: Stage) -> None:
    stage.clock.move_to(T + 2.5 * HOUR)
    manage.pause(stage.ports, OWNER, stage.job.id)
    stage.clock.move_to(T + 5.5 * HOUR)
    resumed = manage.resume(stage.ports, OWNER, stage.job.id).job

    planned = slots.planned(stage.ports, resumed, now=T + 6.5 * HOUR)

    hours = [(row.scheduled_for - T) / HOUR for row in planned]
    assert hours == [7, 6, 2, 1]
