"""Running a recurring job now: once for each call, beside the schedule."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from lamplighter.core.buckets import JobId
from lamplighter.core.errors import Conflict, KeyReused, NotFound
from lamplighter.core.lifecycle import State
from lamplighter.core.limits import PAYLOAD_INLINE_BYTES
from lamplighter.core.model import (
    Execution,
    Job,
    JobStatus,
    OverlapPolicy,
    Owner,
    Payload,
    Trigger,
)
from lamplighter.core.outcome import Outcome, Succeeded
from lamplighter.memory import MemoryWorld, VirtualClock
from lamplighter.ports import Ports
from lamplighter.services import manage
from lamplighter.services.execute import Claimed
from lamplighter.services.submit import IdempotencyKey, Replayed
from lamplighter.services.trigger import trigger
from lamplighter.sim.faults import Call, Crash, When, interposed
from lamplighter.sim.invariants import violations
from lamplighter.sim.system import System
from tests.support import partition_work
from tests.support.jobs import OWNER, created, every, in_, new_job
from tests.support.partition_work import dispatch

MINUTE = timedelta(minutes=1)
STRANGER = Owner("somebody else")


@pytest.fixture
def world() -> MemoryWorld:
    return MemoryWorld(clock=VirtualClock(datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)))


@pytest.fixture
def ports(world: MemoryWorld) -> Ports:
    return world.ports()


@pytest.fixture
def system(world: MemoryWorld) -> System:
    return System(world=world)


@pytest.fixture
def job(ports: Ports) -> Job:
    made = created(ports, new_job(schedule=every("1 hour"), payload='"its own"')).job
    assert made
    return made


def key(fingerprint: str = "body") -> IdempotencyKey[Execution]:
    return IdempotencyKey(key="k", fingerprint=fingerprint, render=lambda row: f'"{row.id}"')


def triggered(ports: Ports, id: JobId, payload: str | None = None) -> Execution:
    answer = trigger(ports, OWNER, id, payload=None if payload is None else Payload.of(payload))
    assert isinstance(answer, Execution)
    return answer


def row_of(world: MemoryWorld, execution: Execution) -> Execution:
    return world.tables.executions[execution.id]


def payloads_of(system: System) -> list[str]:
    """What each call of the handler is given, as it comes."""
    given: list[str] = []

    def handler(claimed: Claimed) -> Outcome:
        given.append(claimed.payload)
        return Succeeded(result="1")

    system.handler = handler
    return given


def test_the_run_is_due_now_and_the_schedule_goes_on_as_before(
    system: System, ports: Ports, job: Job
) -> None:
    armed = {*system.world.tables.executions}
    row = triggered(ports, job.id)

    system.work()

    assert (row.trigger, row.run_at, row.spec) == (Trigger.MANUAL, ports.clock.now(), None)
    assert row_of(system.world, row).state is State.SUCCEEDED
    assert {*system.world.tables.executions} == armed | {row.id}
    assert [*violations(system)] == []


def test_without_a_payload_it_runs_as_its_job_says_when_it_starts(
    system: System, ports: Ports, job: Job
) -> None:
    given = payloads_of(system)
    triggered(ports, job.id)
    manage.edit(ports, OWNER, job.id, with_payload('"edited"'))

    system.work()

    assert given == ['"edited"']


@pytest.mark.parametrize("size", [10, PAYLOAD_INLINE_BYTES + 1], ids=["small", "large"])
def test_with_a_payload_it_runs_by_the_definition_as_it_was_with_that(
    system: System, ports: Ports, job: Job, size: int
) -> None:
    given, payload = payloads_of(system), f'"{"x" * size}"'
    row = triggered(ports, job.id, payload)
    manage.edit(ports, OWNER, job.id, with_payload('"edited"'))

    system.work()

    assert given == [payload]
    assert row.spec is not None
    assert row.spec.task == job.spec.task


def with_payload(text: str) -> Callable[[Job], Job]:
    return lambda job: replace(job, spec=replace(job.spec, payload=Payload.of(text)))


@pytest.mark.parametrize("payload", [None, '"p"'], ids=["its own payload", "another"])
@pytest.mark.parametrize("paused_first", [True, False])
def test_a_pause_stops_the_schedule_and_not_what_was_asked_for_by_name(
    system: System, ports: Ports, job: Job, payload: str | None, paused_first: bool
) -> None:
    if paused_first:
        manage.pause(ports, OWNER, job.id)
    row = triggered(ports, job.id, payload)
    if not paused_first:
        manage.pause(ports, OWNER, job.id)

    system.run_for(2 * MINUTE)

    assert row_of(system.world, row).state is State.SUCCEEDED


@pytest.mark.parametrize("payload", [None, '"p"'], ids=["its own payload", "another"])
def test_a_run_of_a_job_that_is_deleted_before_it_starts_does_not(
    system: System, ports: Ports, job: Job, payload: str | None
) -> None:
    row = triggered(ports, job.id, payload)
    # No more than the mark: the call that deletes it died there.
    ports.jobs.delete(job)

    system.run_for(5 * MINUTE)

    ended = row_of(system.world, row)
    assert (ended.state, ended.reason) == (State.CANCELLED, f"its job is {JobStatus.DELETED}")
    assert system.runs == []


def test_a_deleted_job_is_not_run(ports: Ports, job: Job) -> None:
    manage.delete(ports, OWNER, job.id)

    with pytest.raises(Conflict, match="is deleted"):
        trigger(ports, OWNER, job.id)


def test_a_one_off_is_not_run_beside_its_time(ports: Ports) -> None:
    one_off = created(ports, new_job(run_at=in_(ports, 3600)))

    with pytest.raises(Conflict, match="is a one-off: once it has ended it can be replayed"):
        trigger(ports, OWNER, one_off.job_id)


@pytest.mark.parametrize("schedule", [None, every("1 hour")], ids=["one-off", "recurring"])
def test_somebody_elses_job_looks_like_one_that_never_was(ports: Ports, schedule: None) -> None:
    theirs = created(ports, new_job(schedule=schedule))

    with pytest.raises(NotFound, match="no job"):
        trigger(ports, STRANGER, theirs.job_id)


class TestWithAKey:
    def test_it_runs_once_and_the_first_answer_is_given_again(
        self, system: System, ports: Ports, job: Job
    ) -> None:
        first = trigger(ports, OWNER, job.id, key=key())
        system.run_for(5 * MINUTE)

        again = trigger(ports, OWNER, job.id, key=key())

        assert isinstance(first, Execution)
        assert isinstance(again, Replayed)
        assert again.answer == f'"{first.id}"'
        system.run_for(5 * MINUTE)
        assert [run.execution_id for run in system.runs] == [first.id]

    def test_the_answer_outlives_the_job(self, ports: Ports, job: Job) -> None:
        trigger(ports, OWNER, job.id, key=key())
        manage.delete(ports, OWNER, job.id)

        assert isinstance(trigger(ports, OWNER, job.id, key=key()), Replayed)

    def test_another_request_under_it_is_refused(self, ports: Ports, job: Job) -> None:
        trigger(ports, OWNER, job.id, key=key())

        with pytest.raises(KeyReused):
            trigger(ports, OWNER, job.id, key=key("another body"))

    def test_a_call_that_died_before_its_send_is_finished_by_the_next(
        self, system: System, ports: Ports, job: Job
    ) -> None:
        def die(call: Call, when: When) -> None:
            if (call.method, when) == ("send", When.BEFORE):
                raise Crash

        with pytest.raises(Crash):
            trigger(interposed(ports, die), OWNER, job.id, key=key())
        system.work()
        assert system.runs == []

        trigger(ports, OWNER, job.id, key=key())

        system.work()
        assert len(system.runs) == 1


class TestWhatDispatchMeets:
    """Rows that were put, and of which no message is out: dispatch sends them, or nobody does."""

    @pytest.fixture
    def row(self, world: MemoryWorld, ports: Ports, job: Job) -> Execution:
        def lose(call: Call, when: When) -> None:
            if (call.method, when) == ("send", When.BEFORE):
                raise Crash

        with pytest.raises(Crash):
            trigger(interposed(ports, lose), OWNER, job.id)
        (row,) = [one for one in world.tables.executions.values() if one.is_additional]
        # As if it had been put from beyond the line.
        world.tables.executions[row.id] = replace(row, sent_directly=False)
        return world.tables.executions[row.id]

    def test_is_sent_however_late(self, system: System, ports: Ports, row: Execution) -> None:
        system.world.pass_time(timedelta(hours=5))

        system.run_for(2 * MINUTE)

        assert row_of(system.world, row).state is State.SUCCEEDED

    def test_is_sent_though_its_job_is_paused(
        self, system: System, ports: Ports, job: Job, row: Execution
    ) -> None:
        manage.pause(ports, OWNER, job.id)

        self.dispatch_all(ports)
        system.work()

        assert row_of(system.world, row).state is State.SUCCEEDED

    def test_is_cancelled_when_its_job_is_deleted(
        self, world: MemoryWorld, ports: Ports, job: Job, row: Execution
    ) -> None:
        ports.jobs.delete(job)

        self.dispatch_all(ports)

        assert row_of(world, row).state is State.CANCELLED

    def test_arms_nothing(self, world: MemoryWorld, ports: Ports, row: Execution) -> None:
        there = {*world.tables.executions}

        self.dispatch_all(ports)

        assert {*world.tables.executions} == there

    def test_is_sent_by_the_sweep_when_its_message_is_lost(
        self, system: System, ports: Ports, row: Execution
    ) -> None:
        self.dispatch_all(ports)
        system.world.queue.purge()
        system.world.pass_time(10 * MINUTE)
        self.dispatch_all(ports)
        system.world.queue.purge()

        for partition in range(ports.partitions):
            partition_work.sweep(ports, partition, owner="sweeper")
        system.work()

        assert row_of(system.world, row).state is State.SUCCEEDED

    @staticmethod
    def dispatch_all(ports: Ports) -> None:
        for partition in range(ports.partitions):
            dispatch(ports, partition, owner="dispatcher")


@pytest.mark.parametrize("overlap", [OverlapPolicy.ALLOW, OverlapPolicy.SKIP])
def test_what_was_written_so_late_that_the_sweep_had_passed_and_whose_message_was_lost_runs(
    system: System, ports: Ports, overlap: OverlapPolicy
) -> None:
    """S1-L3: stalled before its write, and its message lost after it: a check was booked (P7)."""
    job = created(ports, new_job(schedule=every("1 hour"), overlap=overlap)).job
    assert job

    def stall(call: Call, when: When) -> None:
        if call.method in {"create", "join"} and when is When.BEFORE:
            system.run_for(5 * MINUTE)

    row = triggered(interposed(ports, stall), job.id)
    system.world.queue.purge()
    system.run_for(15 * MINUTE)

    assert system.world.tables.executions[row.id].state is State.SUCCEEDED
    assert [*violations(system)] == []
