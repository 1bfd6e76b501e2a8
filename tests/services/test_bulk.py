"""Many at once: every one that is meant, none twice, a page at a time."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from lamplighter.core.buckets import ExecutionId, execution_of
from lamplighter.core.errors import KeyReused, NotFound
from lamplighter.core.lifecycle import State
from lamplighter.core.model import Execution, Owner
from lamplighter.core.outcome import Failed, Outcome
from lamplighter.core.retry import Failure, Kind
from lamplighter.core.status import Status
from lamplighter.memory import MemoryWorld, VirtualClock
from lamplighter.ports import Ports
from lamplighter.services import bulk
from lamplighter.services.bulk import Selection
from lamplighter.services.execute import Claimed
from lamplighter.services.inspect import Seen, Wanted
from lamplighter.services.submit import IdempotencyKey, Replayed
from lamplighter.sim.system import System
from tests.support.jobs import OWNER, created, every, in_, new_job

SECOND = timedelta(seconds=1)
FAILED = Selection(wanted=Wanted(statuses=frozenset({Status.FAILED})))
KEY = IdempotencyKey[Execution](key="incident-4", fingerprint="f", render=lambda made: made.id)


def no_route(_: Claimed) -> Outcome:
    return Failed(failure=Failure(kind=Kind.PERMANENT, type="OSError", message="no route"))


@pytest.fixture
def world() -> MemoryWorld:
    return MemoryWorld(clock=VirtualClock(datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)))


@pytest.fixture
def system(world: MemoryWorld) -> System:
    return System(world=world, handler=no_route)


@pytest.fixture
def ports(world: MemoryWorld) -> Ports:
    return world.ports()


def some_failed(system: System, count: int) -> list[ExecutionId]:
    """One-offs that have FAILED, the latest first."""
    ids = []
    for _ in range(count):
        ids.append(created(system.ports, new_job()).first.id)
        system.run_for(SECOND)
    return ids[::-1]


def ids_of(ports: Ports, selection: Selection, *, limit: int = 100) -> list[list[ExecutionId]]:
    """The pages of a selection."""
    pages, after = [], None
    while True:
        page = bulk.found(ports, OWNER, selection, after=after, limit=limit)
        pages.append([seen.row.id for seen in page.items])
        if (after := page.next) is None:
            return pages


def replay_all(ports: Ports, key: IdempotencyKey[Execution] | None) -> list[ExecutionId | None]:
    """What is made, now or before, of all that FAILED."""
    page = bulk.found(ports, OWNER, FAILED, after=None, limit=100)
    made = [bulk.replay_once(ports, OWNER, seen.row, key) for seen in page.items]
    return [_id_of(one) for one in made]


def _id_of(made: Execution | Replayed | None) -> ExecutionId | None:
    if isinstance(made, Replayed):
        return execution_of(made.job_id)
    return made.id if made else None


class TestWhatIsMeant:
    def test_is_found_a_page_at_a_time_to_the_end(self, system: System) -> None:
        failed = some_failed(system, 5)

        assert ids_of(system.ports, FAILED, limit=2) == [failed[:2], failed[2:4], failed[4:]]

    def test_is_the_owner_s(self, system: System) -> None:
        some_failed(system, 1)

        page = bulk.found(system.ports, Owner("somebody else"), FAILED, after=None, limit=10)

        assert page.items == []

    def test_may_be_of_one_job(self, system: System) -> None:
        some_failed(system, 1)
        job = created(system.ports, new_job(schedule=every("1 minute"))).job
        assert job is not None
        system.run_for(150 * SECOND)

        ((first, second),) = ids_of(system.ports, replace(FAILED, job_id=job.id))

        assert first > second
        with pytest.raises(NotFound):
            bulk.found(
                system.ports,
                Owner("somebody else"),
                replace(FAILED, job_id=job.id),
                after=None,
                limit=10,
            )

    def test_may_be_told_by_its_error(self, system: System) -> None:
        failed = some_failed(system, 2)
        created(system.ports, new_job(run_at=in_(system.ports, 3600)))

        def by_error(name: str) -> list[list[ExecutionId]]:
            return ids_of(system.ports, Selection(wanted=Wanted(error_type=name)))

        assert by_error("OSError") == [failed]
        assert by_error("KeyError") == [[]]


class TestEach:
    def test_is_acted_on_once_and_in_order(self, system: System) -> None:
        failed = some_failed(system, 3)
        page = bulk.found(system.ports, OWNER, FAILED, after=None, limit=10)

        handled = bulk.each(system.ports, page, lambda seen: seen.row.id)

        assert (handled.results, handled.next) == (failed, None)

    def test_that_there_is_no_time_for_is_left_to_the_next_page(self, system: System) -> None:
        failed = some_failed(system, 5)
        page = bulk.found(system.ports, OWNER, FAILED, after=None, limit=4)

        def act(seen: Seen) -> ExecutionId:
            system.world.pass_time(6 * SECOND)
            return seen.row.id

        handled = bulk.each(system.ports, page, act, patience=10 * SECOND)

        assert (handled.results, handled.next) == (failed[:2], failed[1])
        rest = bulk.found(system.ports, OWNER, FAILED, after=handled.next, limit=10)
        assert [seen.row.id for seen in rest.items] == failed[2:]

    def test_however_slow_one_is_done_a_call(self, system: System) -> None:
        failed = some_failed(system, 2)
        page = bulk.found(system.ports, OWNER, FAILED, after=None, limit=10)

        def act(_: Seen) -> None:
            system.world.pass_time(60 * SECOND)

        assert bulk.each(system.ports, page, act, patience=SECOND).next == failed[0]

    def test_done_at_the_last_moment_there_is_no_next_page(self, system: System) -> None:
        some_failed(system, 1)
        page = bulk.found(system.ports, OWNER, FAILED, after=None, limit=10)

        def act(_: Seen) -> None:
            system.world.pass_time(60 * SECOND)

        assert bulk.each(system.ports, page, act, patience=SECOND).next is None


class TestReplayingMany:
    def test_under_one_key_none_is_replayed_twice(self, system: System) -> None:
        some_failed(system, 3)
        first = replay_all(system.ports, KEY)

        again = replay_all(system.ports, KEY)

        assert again == first
        assert len(system.world.tables.executions) == 6

    def test_what_the_key_made_and_failed_since_is_not_replayed(self, system: System) -> None:
        """It failed too, so the filter lets it through when all is asked for once more."""
        some_failed(system, 2)
        first = replay_all(system.ports, KEY)
        system.run_for(SECOND)
        assert len(ids_of(system.ports, FAILED)[0]) == 4

        again = replay_all(system.ports, KEY)

        assert [one for one in again if one is not None] == first
        assert len(system.world.tables.executions) == 4

    def test_what_another_key_made_is_replayed(self, system: System) -> None:
        some_failed(system, 1)
        replay_all(system.ports, replace(KEY, key="incident-3"))
        system.run_for(SECOND)

        made = replay_all(system.ports, KEY)

        assert len([one for one in made if one is not None]) == 2

    def test_half_of_it_done_the_other_half_is_what_a_repeat_adds(self, system: System) -> None:
        newest, _ = some_failed(system, 2)
        row = system.world.tables.executions[newest]
        half = bulk.replay_once(system.ports, OWNER, row, KEY)
        assert isinstance(half, Execution)

        made = replay_all(system.ports, KEY)

        assert made[0] == half.id
        assert len(system.world.tables.executions) == 4

    def test_the_key_with_another_filter_is_refused(self, system: System) -> None:
        some_failed(system, 1)
        replay_all(system.ports, KEY)

        with pytest.raises(KeyReused):
            replay_all(system.ports, replace(KEY, fingerprint="g"))

    def test_without_a_key_each_call_replays_what_it_finds(self, system: System) -> None:
        (failed,) = some_failed(system, 1)
        row = system.world.tables.executions[failed]

        first = bulk.replay_once(system.ports, OWNER, row, None)
        second = bulk.replay_once(system.ports, OWNER, row, None)

        assert first != second
        states = [one.state for one in system.world.tables.executions.values()]
        assert states.count(State.SCHEDULED) == 2

    def test_no_caller_s_own_key_is_one_of_these(self, system: System) -> None:
        (failed,) = some_failed(system, 1)
        replay_all(system.ports, KEY)

        ((_, key),) = system.world.tables.keys

        assert failed in key
        assert not key.isprintable()
