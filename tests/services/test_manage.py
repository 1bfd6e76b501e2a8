"""Taking jobs back, in whatever state they are met."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from lamplighter.core.buckets import JobId
from lamplighter.core.errors import Conflict, NotFound, Unavailable, VersionMoved
from lamplighter.core.lifecycle import State
from lamplighter.core.model import Execution, Job, JobStatus, Owner
from lamplighter.core.outcome import Failed, Outcome, Succeeded
from lamplighter.core.retry import Failure, Kind, RetryPolicy
from lamplighter.memory import MemoryExecutions, MemoryJobs, MemoryWorld, Tables, VirtualClock
from lamplighter.ports import Ports, Refusal
from lamplighter.services import manage
from lamplighter.services.execute import Claimed, begin, conclude
from lamplighter.sim.faults import Call, When, interposed
from lamplighter.sim.system import System
from tests.support.jobs import OWNER, created, cron, every, in_, new_job

MINUTE = timedelta(minutes=1)


@pytest.fixture
def world() -> MemoryWorld:
    return MemoryWorld(clock=VirtualClock(datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)))


@pytest.fixture
def ports(world: MemoryWorld) -> Ports:
    return world.ports()


@pytest.fixture
def system(world: MemoryWorld) -> System:
    return System(world=world)


def row(ports: Ports, execution: Execution) -> Execution:
    found = ports.executions.get(execution.id)
    assert found
    return found


def running(world: MemoryWorld) -> tuple[Execution, Claimed]:
    """A one-off in a worker's hands."""
    first = created(world.ports(), new_job()).first
    (message,) = world.queue.receive()
    claimed = begin(world.ports(), message, worker="worker")
    assert isinstance(claimed, Claimed)
    return first, claimed


class TestAOneOff:
    def test_that_is_scheduled_is_cancelled_and_never_runs(
        self, system: System, ports: Ports
    ) -> None:
        made = created(ports, new_job(run_at=in_(ports, 60)))

        manage.delete(ports, OWNER, made.job_id)

        assert row(ports, made.first).state is State.CANCELLED
        assert row(ports, made.first).reason == "its job was deleted"
        system.run_for(5 * MINUTE)
        assert system.runs == []

    def test_that_waits_for_its_next_try_is_cancelled(self, system: System, ports: Ports) -> None:
        system.handler = lambda _: Failed(
            failure=Failure(kind=Kind.RETRYABLE, type="OSError", message="no route")
        )
        made = created(ports, new_job(retry=RetryPolicy(base_seconds=100)))
        system.work()
        assert row(ports, made.first).state is State.RETRYING

        manage.delete(ports, OWNER, made.job_id)

        system.run_for(10 * MINUTE)
        assert row(ports, made.first).state is State.CANCELLED
        assert len(system.runs) == 1

    def test_that_runs_is_a_conflict(self, world: MemoryWorld, ports: Ports) -> None:
        first, _ = running(world)

        with pytest.raises(Conflict, match="is RUNNING; mode=request asks it to stop"):
            manage.delete(ports, OWNER, first.job_id)

        assert row(ports, first).cancel_requested_at is None

    def test_that_runs_is_asked_to_stop_on_request(self, world: MemoryWorld, ports: Ports) -> None:
        first, claimed = running(world)

        manage.delete(ports, OWNER, first.job_id, request=True)

        assert row(ports, first).cancel_requested_at == world.now()
        lease_until = world.now() + MINUTE
        beat = ports.executions.extend(first.id, token=claimed.token, lease_until=lease_until)
        assert beat.cancel_requested_at is not None

    def test_that_failed_after_the_request_is_not_tried_again(
        self, world: MemoryWorld, ports: Ports
    ) -> None:
        first, claimed = running(world)
        manage.delete(ports, OWNER, first.job_id, request=True)

        failure = Failure(kind=Kind.RETRYABLE, type="OSError", message="no route")
        conclude(ports, replace(claimed, execution=row(ports, first)), Failed(failure=failure))

        assert row(ports, first).state is State.CANCELLED

    def test_that_has_ended_stays_as_it_ended(self, system: System, ports: Ports) -> None:
        made = created(ports, new_job())
        system.work()

        manage.delete(ports, OWNER, made.job_id)

        assert row(ports, made.first).state is State.SUCCEEDED

    def test_is_deleted_twice_with_the_same_end(self, ports: Ports) -> None:
        made = created(ports, new_job(run_at=in_(ports, 3600)))
        manage.delete(ports, OWNER, made.job_id)
        once = row(ports, made.first)

        manage.delete(ports, OWNER, made.job_id)

        assert row(ports, made.first) == once

    def test_of_somebody_else_is_not_found_and_not_touched(self, ports: Ports) -> None:
        made = created(ports, new_job(run_at=in_(ports, 3600)))

        with pytest.raises(NotFound):
            manage.delete(ports, Owner("somebody else"), made.job_id)

        assert row(ports, made.first) == made.first

    def test_claimed_between_the_read_and_the_write_is_read_again(self, world: MemoryWorld) -> None:
        made = created(world.ports(), new_job())
        (message,) = world.queue.receive()

        def claim_it() -> None:
            begin(world.ports(), message, worker="worker")

        with pytest.raises(Conflict, match="RUNNING"):
            manage.delete(_just_before(world, "executions.end", claim_it), OWNER, made.job_id)

        assert row(world.ports(), made.first).state is State.RUNNING

    def test_finished_between_the_read_and_the_request_is_read_again(
        self, world: MemoryWorld
    ) -> None:
        first, claimed = running(world)

        def finish_it() -> None:
            conclude(world.ports(), claimed, Succeeded(result="1"))

        ports = _just_before(world, "executions.request_cancel", finish_it)
        manage.delete(ports, OWNER, first.job_id, request=True)

        assert row(world.ports(), first).state is State.SUCCEEDED

    def test_that_changes_under_every_try_ends_in_a_conflict(self, world: MemoryWorld) -> None:
        made = created(world.ports(), new_job(run_at=in_(world.ports(), 3600)))
        ports = replace(world.ports(), executions=Restless(world.tables))

        with pytest.raises(Conflict, match="changes faster than it can be written"):
            manage.delete(ports, OWNER, made.job_id)


class TestARecurringJob:
    def test_makes_no_more_occurrences_and_what_is_armed_never_starts(
        self, system: System, ports: Ports
    ) -> None:
        made = created(ports, new_job(schedule=every("1 minute")))
        system.run_for(10 * MINUTE)
        runs = len(system.runs)

        manage.delete(ports, OWNER, made.job_id)

        system.run_for(30 * MINUTE)
        assert len(system.runs) == runs > 5
        rows = system.world.tables.executions.values()
        assert {one.state for one in rows} == {State.SUCCEEDED, State.CANCELLED}
        job = ports.jobs.get(made.job_id)
        assert job
        assert (job.status, job.version) == (JobStatus.DELETED, 2)

    def test_shows_what_was_armed_as_cancelled_at_once(self, system: System, ports: Ports) -> None:
        made = created(ports, new_job(schedule=every("1 minute")))
        system.run_for(3 * MINUTE)

        manage.delete(ports, OWNER, made.job_id)

        rows = system.world.tables.executions.values()
        assert State.SCHEDULED not in {one.state for one in rows}

    def test_armed_far_ahead_is_cancelled_there(self, ports: Ports) -> None:
        made = created(ports, new_job(schedule=cron("0 0 1 7 *")))

        manage.delete(ports, OWNER, made.job_id)

        assert row(ports, made.first).state is State.CANCELLED

    def test_never_starts_again_even_when_nothing_armed_could_be_cancelled(
        self, system: System, ports: Ports
    ) -> None:
        """P17: the look after the claim is what the promise rests on."""
        made = created(ports, new_job(schedule=every("1 minute")))
        system.run_for(3 * MINUTE)
        runs = len(system.runs)

        with pytest.raises(Unavailable):
            manage.delete(_without_rows(ports), OWNER, made.job_id)

        system.run_for(10 * MINUTE)
        assert len(system.runs) == runs
        rows = system.world.tables.executions.values()
        assert {one.state for one in rows} == {State.SUCCEEDED, State.CANCELLED}

    def test_deleted_again_after_a_crash_cancels_what_the_first_call_left(
        self, system: System, ports: Ports
    ) -> None:
        made = created(ports, new_job(schedule=every("1 minute")))
        with pytest.raises(Unavailable):
            manage.delete(_without_rows(ports), OWNER, made.job_id)
        assert row(ports, made.first).state is State.SCHEDULED

        manage.delete(ports, OWNER, made.job_id)

        assert row(ports, made.first).state is State.CANCELLED
        job = ports.jobs.get(made.job_id)
        assert job
        assert job.version == 2

    @pytest.mark.parametrize("request_", [False, True])
    def test_that_runs_goes_on_unless_it_is_asked_to_stop(
        self, system: System, ports: Ports, request_: bool
    ) -> None:
        deleted: list[Execution] = []

        def delete_it(claimed: Claimed) -> Outcome:
            manage.delete(ports, OWNER, claimed.execution.job_id, request=request_)
            deleted.append(row(ports, claimed.execution))
            return Succeeded(result="1")

        system.handler = delete_it
        created(ports, new_job(schedule=every("1 minute")))
        system.run_for(5 * MINUTE)

        (under_way,) = deleted
        assert under_way.state is State.RUNNING
        assert (under_way.cancel_requested_at is not None) is request_
        assert row(ports, under_way).state is State.SUCCEEDED

    def test_edited_between_the_read_and_the_write_is_read_again(self, world: MemoryWorld) -> None:
        made = created(world.ports(), new_job(schedule=every("1 hour")))

        def edit_it() -> None:
            job = world.tables.jobs[made.job_id]
            world.tables.jobs[made.job_id] = replace(job, version=7)

        manage.delete(_just_before(world, "jobs.delete", edit_it), OWNER, made.job_id)

        job = world.tables.jobs[made.job_id]
        assert (job.status, job.version) == (JobStatus.DELETED, 8)

    def test_its_armed_rows_end_only_under_the_version_that_was_deleted(
        self, world: MemoryWorld
    ) -> None:
        """P17: a chain ends only in a write that checks the job's version."""
        made = created(world.ports(), new_job(schedule=every("1 hour")))

        def edit_it() -> None:
            job = world.tables.jobs[made.job_id]
            world.tables.jobs[made.job_id] = replace(job, version=7)

        manage.delete(_just_before(world, "executions.end", edit_it), OWNER, made.job_id)

        assert row(world.ports(), made.first).state is State.SCHEDULED

    def test_edited_under_every_try_ends_in_a_conflict(self, world: MemoryWorld) -> None:
        made = created(world.ports(), new_job(schedule=every("1 hour")))
        ports = replace(world.ports(), jobs=AlwaysEdited(world.tables))

        with pytest.raises(Conflict, match="changes faster than it can be written"):
            manage.delete(ports, OWNER, made.job_id)

        assert world.tables.jobs[made.job_id].status is JobStatus.ACTIVE

    def test_of_somebody_else_is_not_found_and_not_touched(self, ports: Ports) -> None:
        made = created(ports, new_job(schedule=every("1 hour")))

        with pytest.raises(NotFound):
            manage.delete(ports, Owner("somebody else"), made.job_id)

        assert ports.jobs.get(made.job_id) == made.job
        assert row(ports, made.first) == made.first

    def test_that_never_was_is_not_found(self, ports: Ports) -> None:
        with pytest.raises(NotFound):
            manage.delete(ports, OWNER, JobId("job_" + "0" * 26))


class Restless(MemoryExecutions):
    """Every row has changed by the time it is ended."""

    def __init__(self, tables: Tables) -> None:
        super().__init__(tables)
        self.tables = tables

    def end(
        self, before: Execution, after: Execution, *, job_version: int | None = None
    ) -> Execution | Refusal:
        return Refusal(found=self.tables.executions[before.id])


class AlwaysEdited(MemoryJobs):
    """Every job has another version by the time it is deleted."""

    def delete(self, job: Job) -> Job:
        raise VersionMoved(job_id=job.id, version=job.version)


def _just_before(world: MemoryWorld, call: str, act: Callable[[], None]) -> Ports:
    """The world's ports, where something happens before a call takes effect."""
    left = [1]

    def hook(this: Call, when: When) -> None:
        if f"{this.port}.{this.method}" == call and when is When.BEFORE and left[0]:
            left[0] -= 1
            act()

    return interposed(world.ports(), hook)


def _without_rows(ports: Ports) -> Ports:
    """Ports that answer no read of rows."""

    def hook(this: Call, when: When) -> None:
        if this.method == "get_many":
            raise Unavailable("no rows today")

    return interposed(ports, hook)
