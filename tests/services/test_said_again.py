"""What was asked for is asked for again: an answer was lost, and its caller cannot know."""

from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from lamplighter.core.errors import Unavailable
from lamplighter.core.lifecycle import State
from lamplighter.core.model import Execution, JobStatus
from lamplighter.core.outcome import Failed, Outcome, Succeeded
from lamplighter.core.retry import Failure, Kind, RetryPolicy
from lamplighter.core.schedule import parse
from lamplighter.memory import MemoryWorld, VirtualClock
from lamplighter.ports import Ports
from lamplighter.services import amend, manage, replay
from lamplighter.services.submit import NewJob
from lamplighter.sim.faults import Call, When, interposed
from lamplighter.sim.system import System
from tests.support.jobs import OWNER, created, every, in_, new_job

START = datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


def a_system() -> System:
    system = System(world=MemoryWorld(clock=VirtualClock(START), shards=2, partitions=1))
    system.run_for(MINUTE)
    return system


def losing_the_answer(ports: Ports, method: str) -> Ports:
    """The same ports, whose call takes effect and answers nothing."""

    def lose(call: Call, when: When) -> None:
        if f"{call.port}.{call.method}" == method and when is When.AFTER:
            raise Unavailable("no answer")

    return interposed(ports, lose)


def test_a_second_pause_tells_of_what_is_in_flight_too() -> None:
    system = a_system()
    system.lasts = lambda _: 5 * MINUTE
    job = created(
        system.ports, new_job(schedule=every("2 minutes"), timeout=timedelta(minutes=10))
    ).job
    assert job is not None
    system.run_for(2 * MINUTE + SECOND)

    with suppress(Unavailable):
        manage.pause(losing_the_answer(system.ports, "jobs.revise"), OWNER, job.id)
    again = manage.pause(system.ports, OWNER, job.id)

    (running,) = [run.execution_id for run in system.runs]
    assert (again.job.status, again.in_flight) == (JobStatus.PAUSED, [running])
    waiting = [
        row for row in system.world.tables.executions.values() if row.state is State.SCHEDULED
    ]
    assert waiting == []


def test_an_edit_whose_answer_was_lost_runs_on_time_once_it_is_said_again() -> None:
    system = a_system()
    job = created(system.ports, new_job(schedule=every("1 hour"))).job
    assert job is not None
    soon = every("1 minute")(job.id, job.created_at)

    def edit(ports: Ports) -> None:
        manage.edit(ports, OWNER, job.id, lambda job: replace(job, schedule=soon))

    with suppress(Unavailable):
        edit(losing_the_answer(system.ports, "jobs.revise"))
    edit(system.ports)
    system.run_for(90 * SECOND)

    (first,) = system.runs
    assert first.started_at - first.due_at <= 2 * SECOND


def test_a_one_off_that_is_moved_and_whose_answer_was_lost_runs_on_time() -> None:
    system = a_system()
    made = created(system.ports, new_job(run_at=in_(system.ports, 3600)))
    wanted = in_(system.ports, 20)

    def move(ports: Ports) -> None:
        def to_then(row: Execution) -> NewJob:
            assert row.spec is not None
            return NewJob(owner=OWNER, spec=row.spec, run_at=wanted)

        amend.amend(ports, OWNER, made.job_id, to_then)

    with suppress(Unavailable):
        move(losing_the_answer(system.ports, "executions.move"))
    move(system.ports)
    system.run_for(MINUTE)

    (run,) = system.runs
    assert run.started_at - wanted <= 2 * SECOND


def test_a_delete_stops_a_replay_however_many_came_after_it() -> None:
    system = a_system()
    outcomes: list[Outcome] = [_failed("first"), _failed("replay")]
    system.handler = lambda _: outcomes.pop(0) if outcomes else Succeeded(result="1")
    policy = RetryPolicy(base_seconds=1800, max_seconds=1800, max_attempts=2)
    made = created(system.ports, new_job(run_at=in_(system.ports, 5), retry=policy))
    system.run_for(10 * SECOND)
    _ended(system, made.first)
    first = replay.replay(system.ports, OWNER, made.first.id)
    assert isinstance(first, Execution)
    system.run_for(10 * SECOND)
    for _ in range(120):
        replay.replay(system.ports, OWNER, made.first.id)
    system.run_for(MINUTE)
    assert system.world.tables.executions[first.id].state is State.RETRYING

    manage.delete(system.ports, OWNER, made.job_id)

    assert system.world.tables.executions[first.id].state is State.CANCELLED


def _ended(system: System, row: Execution) -> None:
    """The first try's retry is taken out of the way: only what has ended is replayed."""
    found = system.world.tables.executions[row.id]
    system.world.tables.executions[row.id] = replace(
        found, state=State.FAILED, next_run_at=None, finished_at=system.world.now()
    )


def _failed(message: str) -> Failed:
    return Failed(failure=Failure(kind=Kind.RETRYABLE, type="OSError", message=message))


def test_a_slot_that_starts_while_its_window_is_edited_runs_once() -> None:
    system = a_system()
    job = created(system.ports, new_job(schedule=every("1 minute"))).job
    assert job is not None
    slot = job.next_after(system.world.now() + MINUTE)
    assert slot is not None
    system.run_until(slot - timedelta(milliseconds=50))

    def meanwhile(call: Call, when: When) -> None:
        if call.method == "revise" and when is When.BEFORE and system.world.now() < slot:
            system.run_for(timedelta(milliseconds=100))

    schedule = parse(
        rate="rate(1 minute)", anchor=job.created_at, flexible_window_seconds=90, seed=job.id
    )
    manage.edit(
        interposed(system.ports, meanwhile),
        OWNER,
        job.id,
        lambda job: replace(job, schedule=schedule),
    )
    system.run_for(5 * MINUTE)

    rows = system.world.tables.executions
    runs = [run for run in system.runs if rows[run.execution_id].scheduled_for == slot]
    assert len(runs) == 1
