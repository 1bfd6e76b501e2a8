"""Running again what has ended: what the new execution is, and what it is refused for."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from lamplighter.core.buckets import one_off_job_id
from lamplighter.core.errors import Conflict, KeyReused, NotFound
from lamplighter.core.lifecycle import FINAL, State
from lamplighter.core.model import Execution, Job, Owner, Payload, Token, Trigger
from lamplighter.core.outcome import Failed, Outcome, Succeeded
from lamplighter.core.retry import Failure, Kind
from lamplighter.memory import MemoryWorld, VirtualClock
from lamplighter.ports import Ports
from lamplighter.services import inspect, manage
from lamplighter.services.execute import Claimed
from lamplighter.services.inspect import Wanted
from lamplighter.services.replay import replay
from lamplighter.services.submit import IdempotencyKey, Replayed
from lamplighter.sim.faults import Call, Crash, When, interposed
from lamplighter.sim.invariants import violations
from lamplighter.sim.system import System
from tests.support.jobs import OWNER, created, every, in_, new_job

MINUTE = timedelta(minutes=1)
LARGE = '"' + "x" * 600 + '"'
KEY = IdempotencyKey[Execution](key="order-17", fingerprint="f", render=lambda made: made.id)


class Broken:
    """Tasks that fail for good until they are mended, and what they were given."""

    def __init__(self) -> None:
        self.is_mended = False
        self.given: list[str] = []

    def __call__(self, claimed: Claimed) -> Outcome:
        self.given.append(claimed.payload)
        if self.is_mended:
            return Succeeded(result="1")
        return Failed(failure=Failure(kind=Kind.PERMANENT, type="ValueError", message="no"))


@pytest.fixture
def world() -> MemoryWorld:
    return MemoryWorld(clock=VirtualClock(datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)))


@pytest.fixture
def broken() -> Broken:
    return Broken()


@pytest.fixture
def system(world: MemoryWorld, broken: Broken) -> System:
    return System(world=world, handler=broken)


@pytest.fixture
def ports(world: MemoryWorld) -> Ports:
    return world.ports()


def now_of(ports: Ports, execution: Execution) -> Execution:
    found = ports.executions.get(execution.id)
    assert found
    return found


def failed(system: System, *, payload: str = "null") -> Execution:
    """A one-off that has FAILED."""
    first = created(system.ports, new_job(payload=payload)).first
    system.work()
    return now_of(system.ports, first)


def replayed(ports: Ports, of: Execution, *, payload: Payload | None = None) -> Execution:
    made = replay(ports, OWNER, of.id, payload=payload)
    assert isinstance(made, Execution)
    return made


class TestOfAOneOff:
    def test_a_new_execution_runs_and_the_old_one_stays_as_it_is(
        self, system: System, broken: Broken
    ) -> None:
        """S0-R6."""
        old = failed(system, payload='{"order":17}')
        system.run_for(5 * MINUTE)
        broken.is_mended = True

        new = replayed(system.ports, old)

        assert new.id != old.id
        assert (new.trigger, new.replay_of, new.job_id) == (Trigger.REPLAY, old.id, old.job_id)
        assert (new.scheduled_for, new.run_at) == (old.scheduled_for, system.world.now())
        system.work()
        assert now_of(system.ports, new).state is State.SUCCEEDED
        assert broken.given == ['{"order":17}', '{"order":17}']
        assert now_of(system.ports, old) == old
        assert [*violations(system)] == []

    def test_its_idempotency_key_is_that_of_the_first_of_the_lineage(self, system: System) -> None:
        """S2-E4."""
        old = failed(system)
        second = replayed(system.ports, old)
        system.work()

        third = replayed(system.ports, second)

        assert third.replay_of == second.id
        assert {old.idempotency_key, second.idempotency_key, third.idempotency_key} == {old.id}

    def test_with_another_payload_it_has_a_key_of_its_own(
        self, system: System, broken: Broken
    ) -> None:
        """S1-W4."""
        old = failed(system, payload='"a"')

        new = replayed(system.ports, old, payload=Payload.of('"b"'))
        system.work()
        newest = replayed(system.ports, new)

        assert (new.idempotency_key, newest.idempotency_key) == (new.id, new.id)
        assert broken.given == ['"a"', '"b"']

    def test_a_large_payload_is_kept_anew(self, system: System, broken: Broken) -> None:
        old = failed(system, payload=LARGE)

        new = replayed(system.ports, old)

        assert system.world.tables.payloads[one_off_job_id(new.id), 1] == LARGE
        del system.world.tables.payloads[old.job_id, 1]
        system.work()
        assert broken.given == [LARGE, LARGE]

    def test_without_its_payload_it_needs_one(self, system: System) -> None:
        old = failed(system, payload=LARGE)
        del system.world.tables.payloads[old.job_id, 1]

        with pytest.raises(Conflict, match=r"no longer kept: replay it with a payload"):
            replay(system.ports, OWNER, old.id)

        assert replayed(system.ports, old, payload=Payload.of("1")).spec is not None

    @pytest.mark.parametrize("state", sorted(FINAL))
    def test_whatever_has_ended_is_replayed(self, system: System, state: State) -> None:
        old = in_state(system.world, state)

        assert replayed(system.ports, old).replay_of == old.id

    @pytest.mark.parametrize("state", sorted(set(State) - FINAL))
    def test_what_has_not_ended_is_a_conflict_that_names_its_state(
        self, world: MemoryWorld, state: State
    ) -> None:
        old = in_state(world, state)

        with pytest.raises(Conflict, match=f"{old.id} is {state}: only what has ended"):
            replay(world.ports(), OWNER, old.id)

        assert [*world.tables.executions] == [old.id]

    def test_what_was_moved_runs_elsewhere(self, world: MemoryWorld) -> None:
        old, there = in_state(world, State.CANCELLED), in_state(world, State.SCHEDULED)
        world.tables.executions[old.id] = replace(old, moved_to=there.id)

        with pytest.raises(Conflict, match=f"it runs as {there.id}"):
            replay(world.ports(), OWNER, old.id)

    def test_somebody_else_s_is_not_found_as_one_that_never_was(self, system: System) -> None:
        old = failed(system)

        with pytest.raises(NotFound) as foreign:
            replay(system.ports, Owner("somebody else"), old.id)
        del system.world.tables.executions[old.id]
        with pytest.raises(NotFound) as missing:
            replay(system.ports, OWNER, old.id)

        assert str(foreign.value) == str(missing.value)

    def test_is_in_the_owner_s_list_and_in_its_job_s(self, system: System) -> None:
        old = failed(system)
        new = replayed(system.ports, old)

        everything = inspect.executions(system.ports, OWNER, Wanted(), after=None, limit=10)
        of_job = inspect.executions_of(
            system.ports, OWNER, old.job_id, Wanted(), after=None, limit=10
        )

        for listing in (everything, of_job):
            assert {seen.row.id for seen in listing.items} == {old.id, new.id}


def in_state(world: MemoryWorld, state: State) -> Execution:
    first = created(world.ports(), new_job(run_at=in_(world.ports(), 3600))).first
    running, now = state is State.RUNNING, world.now()
    world.tables.executions[first.id] = replace(
        first,
        state=state,
        token=Token("a" * 32) if running else None,
        lease_until=now + MINUTE if running else None,
        next_run_at=now + MINUTE if state is State.RETRYING else None,
        finished_at=now if state in FINAL else None,
    )
    return world.tables.executions[first.id]


class TestOfAnOccurrence:
    @pytest.fixture
    def job(self, system: System) -> Job:
        job = created(system.ports, new_job(schedule=every("10 minutes"), payload='"v1"')).job
        assert job is not None
        return job

    def first(self, system: System, job: Job) -> Execution:
        slot = job.next_after(job.created_at)
        assert slot is not None
        row = system.ports.executions.get(job.occurrence_id(slot))
        assert row is not None
        return row

    def change(self, system: System, job: Job, payload: str) -> None:
        def to_payload(job: Job) -> Job:
            return replace(job, spec=replace(job.spec, payload=Payload.of(payload)))

        manage.edit(system.ports, OWNER, job.id, to_payload)

    def test_runs_by_the_definition_that_it_had(
        self, system: System, broken: Broken, job: Job
    ) -> None:
        system.run_for(15 * MINUTE)
        old = self.first(system, job)
        self.change(system, job, '"v2"')
        self.change(system, job, '"v3"')

        new = replayed(system.ports, old)
        system.work()

        assert (new.job_version, new.job_id) == (1, job.id)
        assert new.scheduled_for == old.scheduled_for
        assert broken.given == ['"v1"', '"v1"']

    def test_that_an_edit_kept_runs_by_what_the_edit_said(
        self, system: System, broken: Broken, job: Job
    ) -> None:
        """Its row is of the first version; the second was in force when it was claimed."""
        old = self.first(system, job)
        self.change(system, job, '"v2"')
        system.world.tables.executions[old.id] = old
        system.run_for(15 * MINUTE)
        self.change(system, job, '"v3"')

        new = replayed(system.ports, self.first(system, job))
        system.work()

        assert new.job_version == 2
        assert broken.given == ['"v2"', '"v2"']

    def test_that_never_started_runs_as_it_was_planned(
        self, system: System, broken: Broken, job: Job
    ) -> None:
        old = self.first(system, job)
        system.world.tables.executions[old.id] = replace(old, state=State.SKIPPED)
        self.change(system, job, '"v2"')

        replayed(system.ports, old)
        system.work()

        assert broken.given == ['"v1"']

    def test_with_a_large_payload_reads_it_from_its_job(
        self, system: System, broken: Broken, job: Job
    ) -> None:
        self.change(system, job, LARGE)
        system.run_for(15 * MINUTE)
        old = self.first(system, job)
        self.change(system, job, '"v3"')

        new = replayed(system.ports, old)
        system.work()

        assert broken.given == [LARGE, LARGE]
        assert new.payload_home == one_off_job_id(new.id)

    def test_of_a_paused_job_runs_because_somebody_asks_for_it(
        self, system: System, broken: Broken, job: Job
    ) -> None:
        system.run_for(15 * MINUTE)
        manage.pause(system.ports, OWNER, job.id)

        replayed(system.ports, self.first(system, job))
        system.run_for(MINUTE)

        assert len(broken.given) == 2

    def test_of_a_deleted_job_is_a_conflict(self, system: System, job: Job) -> None:
        system.run_for(15 * MINUTE)
        manage.delete(system.ports, OWNER, job.id)

        with pytest.raises(Conflict, match="its job was deleted"):
            replay(system.ports, OWNER, self.first(system, job).id)

    def test_whose_definition_is_gone_is_a_conflict(self, system: System, job: Job) -> None:
        system.run_for(15 * MINUTE)
        self.change(system, job, '"v2"')
        system.world.tables.versions.clear()

        with pytest.raises(Conflict, match="version 1 of its job is not there"):
            replay(system.ports, OWNER, self.first(system, job).id)


class TestWithAKey:
    def test_asked_twice_it_runs_once(self, system: System, broken: Broken) -> None:
        old = failed(system)
        first = replay(system.ports, OWNER, old.id, key=KEY)
        assert isinstance(first, Execution)

        again = replay(system.ports, OWNER, old.id, key=KEY)

        assert again == Replayed(job_id=one_off_job_id(first.id), answer=first.id)
        system.work()
        assert len(broken.given) == 2

    def test_its_answer_stays_though_the_job_is_gone(self, system: System) -> None:
        job = created(system.ports, new_job(schedule=every("10 minutes"))).job
        assert job is not None
        system.run_for(15 * MINUTE)
        (old,) = [one for one in system.world.tables.executions.values() if one.is_final]
        made = replay(system.ports, OWNER, old.id, key=KEY)
        manage.delete(system.ports, OWNER, job.id)

        again = replay(system.ports, OWNER, old.id, key=KEY)

        assert isinstance(made, Execution)
        assert isinstance(again, Replayed)
        assert again.answer == made.id

    def test_that_came_with_another_body_it_is_refused(self, system: System) -> None:
        old = failed(system)
        replay(system.ports, OWNER, old.id, key=KEY)

        with pytest.raises(KeyReused):
            replay(system.ports, OWNER, old.id, key=replace(KEY, fingerprint="g"))

    def test_killed_before_it_was_sent_it_is_sent_by_the_repeat(
        self, system: System, broken: Broken
    ) -> None:
        old = failed(system)
        system.ticking = False

        def die(call: Call, when: When) -> None:
            if (call.port, call.method, when) == ("queue", "send", When.BEFORE):
                raise Crash

        with pytest.raises(Crash):
            replay(interposed(system.ports, die), OWNER, old.id, key=KEY)
        system.work()
        assert len(broken.given) == 1

        replay(system.ports, OWNER, old.id, key=KEY)
        system.work()

        assert len(broken.given) == 2


class TestDeletingItsJob:
    def test_a_one_off_takes_its_waiting_replays_along(
        self, system: System, broken: Broken
    ) -> None:
        old = failed(system)
        new = replayed(system.ports, old)

        manage.delete(system.ports, OWNER, old.job_id)

        system.run_for(5 * MINUTE)
        assert now_of(system.ports, new).state is State.CANCELLED
        assert now_of(system.ports, old) == old
        assert len(broken.given) == 1

    def test_a_one_off_of_which_a_replay_runs_is_a_conflict_unless_it_is_asked_to_stop(
        self, system: System
    ) -> None:
        old = failed(system)
        waiting = replayed(system.ports, old)
        running = replayed(system.ports, old)
        system.world.tables.executions[running.id] = replace(
            running, state=State.RUNNING, token=Token("a" * 32), lease_until=system.world.now()
        )

        with pytest.raises(Conflict, match=f"{running.id} is RUNNING; mode=request"):
            manage.delete(system.ports, OWNER, old.job_id)
        assert now_of(system.ports, waiting).state is State.SCHEDULED

        manage.delete(system.ports, OWNER, old.job_id, request=True)
        assert now_of(system.ports, running).cancel_requested_at is not None
        assert now_of(system.ports, waiting).state is State.CANCELLED

    def test_a_recurring_one_takes_its_waiting_replays_along(
        self, system: System, broken: Broken
    ) -> None:
        job = created(system.ports, new_job(schedule=every("10 minutes"))).job
        assert job is not None
        system.run_for(15 * MINUTE)
        (old,) = [one for one in system.world.tables.executions.values() if one.is_final]
        new = replayed(system.ports, old)

        manage.delete(system.ports, OWNER, job.id)

        assert now_of(system.ports, new).state is State.CANCELLED
        system.run_for(5 * MINUTE)
        assert len(broken.given) == 1

    def test_one_that_the_index_does_not_show_yet_is_refused_at_its_claim(
        self, system: System, broken: Broken
    ) -> None:
        job = created(system.ports, new_job(schedule=every("10 minutes"))).job
        assert job is not None
        system.run_for(15 * MINUTE)
        (old,) = [one for one in system.world.tables.executions.values() if one.is_final]
        new = replayed(system.ports, old)

        system.ports.jobs.delete(job)
        system.work()

        assert now_of(system.ports, new).state is State.CANCELLED
        assert len(broken.given) == 1
