"""Cancelling an execution: in whatever state it is met, and what its job does then."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from lamplighter.core.errors import Conflict, NotFound
from lamplighter.core.lifecycle import FINAL, State
from lamplighter.core.model import Execution, Job, Owner, Token
from lamplighter.core.outcome import Failed, Succeeded
from lamplighter.core.retry import Failure, Kind, RetryPolicy
from lamplighter.core.schedule import parse
from lamplighter.memory import MemoryExecutions, MemoryWorld, VirtualClock
from lamplighter.ports import Ports, Refusal
from lamplighter.services import manage
from lamplighter.services.cancel import cancel
from lamplighter.services.execute import Claimed, begin, conclude, process
from lamplighter.sim.faults import Call, When, interposed
from lamplighter.sim.invariants import violations
from lamplighter.sim.system import System
from tests.support.jobs import OWNER, created, every, in_, new_job

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


def claimed(world: MemoryWorld) -> Claimed:
    """What the one visible message leads to, held."""
    (message,) = world.queue.receive()
    begun = begin(world.ports(), message, worker="worker")
    assert isinstance(begun, Claimed)
    return begun


def in_state(world: MemoryWorld, state: State) -> Execution:
    """A one-off that is there in a state, however it came to it."""
    first = created(world.ports(), new_job(run_at=in_(world.ports(), 3600))).first
    running = state is State.RUNNING
    now = world.now()
    world.tables.executions[first.id] = replace(
        first,
        state=state,
        token=Token("a" * 32) if running else None,
        lease_until=now + MINUTE if running else None,
        worker="worker" if running else None,
        started_at=now if running else None,
        next_run_at=now + MINUTE if state is State.RETRYING else None,
        finished_at=now if state in FINAL else None,
    )
    return world.tables.executions[first.id]


@pytest.mark.parametrize("state", [State.SCHEDULED, State.RETRYING, State.BLOCKED])
def test_what_waits_ends_at_once_and_never_runs(system: System, state: State) -> None:
    """S0-U1, S0-F3."""
    before = in_state(system.world, state)

    answer = cancel(system.ports, OWNER, before.id)

    assert answer == row(system.ports, before)
    assert (answer.state, answer.reason) == (State.CANCELLED, "cancelled on request")
    assert answer.cancel_requested_at == answer.finished_at == system.world.now()
    system.run_for(70 * MINUTE)
    assert system.runs == []


def test_what_runs_is_asked_to_stop(world: MemoryWorld) -> None:
    """S0-U2."""
    before = in_state(world, State.RUNNING)

    answer = cancel(world.ports(), OWNER, before.id)

    assert answer == replace(before, cancel_requested_at=world.now())
    assert answer.token is not None
    until = world.now() + MINUTE
    beat = world.ports().executions.extend(before.id, token=answer.token, lease_until=until)
    assert beat.cancel_requested_at is not None


def test_what_waited_for_it_is_woken(world: MemoryWorld) -> None:
    """P14: every final write, by anyone."""
    waiter = in_state(world, State.BLOCKED)
    before = in_state(world, State.BLOCKED)
    world.tables.executions[before.id] = replace(before, waiters=frozenset({waiter.id}))

    world.pass_time(61 * MINUTE)

    cancel(world.ports(), OWNER, before.id)

    assert [one.message.execution_id for one in world.queue.receive()] == [waiter.id]


def test_asked_twice_it_was_asked_at_the_first_instant(world: MemoryWorld) -> None:
    before = in_state(world, State.RUNNING)
    first = cancel(world.ports(), OWNER, before.id)
    world.pass_time(MINUTE)

    assert cancel(world.ports(), OWNER, before.id) == first


def test_cancelled_twice_it_stays_as_it_ended_first(world: MemoryWorld) -> None:
    before = in_state(world, State.SCHEDULED)
    first = cancel(world.ports(), OWNER, before.id)
    world.pass_time(MINUTE)

    assert cancel(world.ports(), OWNER, before.id) == first


@pytest.mark.parametrize("state", sorted(FINAL - {State.CANCELLED}))
def test_what_ended_otherwise_is_a_conflict_that_names_how(
    world: MemoryWorld, state: State
) -> None:
    before = in_state(world, state)

    with pytest.raises(Conflict, match=f"{before.id} is {state}: what has ended is not cancelled"):
        cancel(world.ports(), OWNER, before.id)

    assert row(world.ports(), before) == before


def test_somebody_else_s_is_not_found_as_one_that_never_was(world: MemoryWorld) -> None:
    before = in_state(world, State.SCHEDULED)

    with pytest.raises(NotFound) as foreign:
        cancel(world.ports(), Owner("somebody else"), before.id)
    del world.tables.executions[before.id]
    with pytest.raises(NotFound) as missing:
        cancel(world.ports(), OWNER, before.id)

    assert str(foreign.value) == str(missing.value)


def test_what_was_moved_is_a_conflict_that_says_where_it_went(world: MemoryWorld) -> None:
    before = in_state(world, State.CANCELLED)
    there = in_state(world, State.SCHEDULED)
    world.tables.executions[before.id] = replace(before, moved_to=there.id)

    with pytest.raises(Conflict, match=f"it runs as {there.id}"):
        cancel(world.ports(), OWNER, before.id)


class TestARace:
    def test_claimed_in_between_it_is_asked_to_stop(self, world: MemoryWorld) -> None:
        first = created(world.ports(), new_job()).first
        ports = just_before(world, "executions.end", lambda: claimed(world))

        assert cancel(ports, OWNER, first.id).state is State.RUNNING

        assert row(world.ports(), first).cancel_requested_at == world.now()

    def test_ended_in_between_it_is_a_conflict(self, world: MemoryWorld) -> None:
        first = created(world.ports(), new_job()).first
        held = claimed(world)
        ports = just_before(
            world,
            "executions.request_cancel",
            lambda: conclude(world.ports(), held, Succeeded(result="1")),
        )

        with pytest.raises(Conflict, match="is SUCCEEDED"):
            cancel(ports, OWNER, first.id)

    def test_asked_before_its_try_failed_it_is_not_tried_again(self, world: MemoryWorld) -> None:
        """O-F23: a failure after the request is a cancel."""
        policy = RetryPolicy(max_attempts=5)
        first = created(world.ports(), new_job(retry=policy)).first
        held = claimed(world)
        cancel(world.ports(), OWNER, first.id)

        failure = Failure(kind=Kind.RETRYABLE, type="OSError", message="no route")
        running = replace(held, execution=row(world.ports(), first))
        conclude(world.ports(), running, Failed(failure=failure))

        assert row(world.ports(), first).state is State.CANCELLED

    def test_whoever_takes_it_over_from_a_dead_worker_does_not_start_it(
        self, system: System
    ) -> None:
        first = created(system.ports, new_job()).first
        claimed(system.world)
        cancel(system.ports, OWNER, first.id)

        system.run_for(30 * MINUTE)

        assert row(system.ports, first).state is State.CANCELLED
        assert system.runs == []

    def test_under_a_row_that_never_stands_still_it_gives_up(self, world: MemoryWorld) -> None:
        before = in_state(world, State.SCHEDULED)
        ports = replace(world.ports(), executions=Restless(world.tables))

        with pytest.raises(Conflict, match="changes faster than it can be written"):
            cancel(ports, OWNER, before.id)


class Restless(MemoryExecutions):
    """Rows that are never as they were read."""

    def end(
        self, before: Execution, after: Execution, *, job_version: int | None = None
    ) -> Execution | Refusal:
        return Refusal(found=before)


class TestAnOccurrence:
    @pytest.fixture
    def job(self, system: System) -> Job:
        job = created(system.ports, new_job(schedule=every("10 minutes"))).job
        assert job is not None
        system.run_for(2 * MINUTE)
        return job

    def armed(self, system: System, job: Job) -> Execution:
        (row,) = [
            one
            for one in system.world.tables.executions.values()
            if one.state is State.SCHEDULED and one.job_id == job.id
        ]
        return row

    def test_ends_and_the_next_one_runs(self, system: System, job: Job) -> None:
        first = self.armed(system, job)

        cancel(system.ports, OWNER, first.id)

        assert self.armed(system, job).scheduled_for == job.next_after(first.scheduled_for)
        system.run_for(35 * MINUTE)
        assert [run.due_at.minute for run in system.runs] == [20, 30]
        assert [*violations(system)] == []

    def test_inside_the_line_has_its_successors_sent(self, system: System) -> None:
        job = created(system.ports, new_job(schedule=every("1 minute"))).job
        assert job is not None
        system.ticking = False
        for execution in [*system.world.tables.executions.values()]:
            cancel(system.ports, OWNER, execution.id)

        system.world.pass_time(3 * MINUTE)
        cancelled = [one.id for one in system.world.tables.executions.values() if one.is_final]
        assert len(cancelled) == 5
        fresh = job.occurrence_id(job.created_at + 6 * MINUTE)
        assert system.world.tables.executions[fresh].state is State.SCHEDULED

    def test_cancelled_stays_cancelled_through_an_edit(self, system: System, job: Job) -> None:
        first = self.armed(system, job)
        cancel(system.ports, OWNER, first.id)

        manage.edit(system.ports, OWNER, job.id, lambda job: replace(job, name="another"))

        system.run_for(15 * MINUTE)
        assert row(system.ports, first).state is State.CANCELLED
        assert system.runs == []

    def test_cancelled_stays_cancelled_through_a_pause_and_a_resume(
        self, system: System, job: Job
    ) -> None:
        first = self.armed(system, job)
        cancel(system.ports, OWNER, first.id)
        manage.pause(system.ports, OWNER, job.id)

        manage.resume(system.ports, OWNER, job.id)

        system.run_for(25 * MINUTE)
        assert row(system.ports, first).state is State.CANCELLED
        assert [run.due_at.minute for run in system.runs] == [20]

    def test_of_a_job_that_was_edited_in_between_arms_what_the_edit_says(
        self, system: System, job: Job
    ) -> None:
        """The old version's next slot is in ten minutes, the new one's in one."""
        first = self.armed(system, job)
        often = parse(cron="* * * * *", seed=job.id)

        def edit() -> None:
            manage.edit(system.ports, OWNER, job.id, lambda job: replace(job, schedule=often))

        cancel(just_before(system.world, "executions.end", edit), OWNER, first.id)

        system.run_for(15 * MINUTE)
        assert [*violations(system)] == []
        assert len(system.runs) >= 14

    def test_a_worker_who_holds_its_message_drops_it(self, world: MemoryWorld) -> None:
        """S0-U1."""
        job = created(world.ports(), new_job(schedule=every("1 minute"))).job
        assert job is not None
        world.pass_time(MINUTE)
        (message,) = world.queue.receive()

        cancel(world.ports(), OWNER, message.message.execution_id)

        system = System(world=world)
        assert process(world.ports(), message, system.run, worker="w").deleted
        assert system.runs == []


def just_before(world: MemoryWorld, method: str, act: object) -> Ports:
    """Ports whose first call of a method finds that something else was done before it."""
    left = [act]

    def hook(call: Call, when: When) -> None:
        if f"{call.port}.{call.method}" == method and when is When.BEFORE and left:
            do = left.pop()
            assert callable(do)
            do()

    return interposed(world.ports(), hook)
