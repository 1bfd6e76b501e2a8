"""A job's executions: those of its schedule and those beside it, in one list."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from lamplighter.core.buckets import ExecutionId, JobId
from lamplighter.core.lifecycle import State
from lamplighter.core.model import Execution, Owner, Trigger
from lamplighter.core.outcome import Failed
from lamplighter.core.retry import Failure, Kind, RetryPolicy
from lamplighter.core.status import Status
from lamplighter.memory import MemoryExecutions, MemoryWorld, VirtualClock
from lamplighter.ports import Ports
from lamplighter.services import inspect
from lamplighter.services.backfill import Asked, backfill
from lamplighter.services.inspect import Executions, OneOff, Wanted
from lamplighter.services.replay import replay
from lamplighter.services.trigger import trigger
from lamplighter.sim.system import System
from tests.support.jobs import OWNER, created, cron, every, in_, new_job

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def world() -> MemoryWorld:
    return MemoryWorld(clock=VirtualClock(NOON), shards=4, partitions=1)


@pytest.fixture
def ports(world: MemoryWorld) -> Ports:
    return world.ports()


@pytest.fixture
def system(world: MemoryWorld) -> System:
    return System(world=world)


@pytest.fixture
def busy(system: System, ports: Ports) -> JobId:
    """A job every five minutes for an hour, with a backfill and two runs by hand among that."""
    job_id = created(ports, new_job(schedule=cron("*/5 * * * *"))).job_id
    system.run_for(20 * MINUTE)
    morning = Asked(start=NOON - HOUR, end=NOON, spread=HOUR)
    backfill(ports, OWNER, job_id, morning)
    system.run_for(10 * MINUTE)
    # Both in one millisecond, which is a slot's too.
    trigger(ports, OWNER, job_id)
    trigger(ports, OWNER, job_id)
    system.run_for(50 * MINUTE)
    return job_id


def rows_of(world: MemoryWorld, job_id: JobId) -> list[Execution]:
    """All that there is of a job, newest first."""
    rows = (row for row in world.tables.executions.values() if row.job_id == job_id)
    return sorted(rows, key=lambda row: row.id, reverse=True)


def pages(
    ports: Ports, job_id: JobId, *, limit: int, wanted: Wanted | None = None
) -> Iterator[Executions]:
    after: ExecutionId | None = None
    while True:
        page = inspect.executions_of(
            ports, OWNER, job_id, wanted or Wanted(), after=after, limit=limit
        )
        yield page
        after = page.next
        if after is None:
            return


def listed(
    ports: Ports, job_id: JobId, *, limit: int = 100, wanted: Wanted | None = None
) -> list[Execution]:
    found = pages(ports, job_id, limit=limit, wanted=wanted)
    return [one.row for page in found for one in page.items]


class TestOfARecurringJob:
    @pytest.mark.parametrize("limit", [1, 2, 3, 7, 50])
    def test_holds_all_of_it_once_newest_first(
        self, world: MemoryWorld, ports: Ports, busy: JobId, limit: int
    ) -> None:
        rows = rows_of(world, busy)
        at_the_same_time = [row for row in rows if row.run_at == NOON + 30 * MINUTE]
        assert len(at_the_same_time) == 4

        found = listed(ports, busy, limit=limit)

        assert found == rows
        assert {row.trigger for row in found} == {
            Trigger.SCHEDULE,
            Trigger.BACKFILL,
            Trigger.MANUAL,
        }

    def test_is_no_other_jobs(self, ports: Ports, busy: JobId) -> None:
        other = created(ports, new_job(schedule=every("1 hour"))).job_id

        assert [row.job_id for row in listed(ports, other)] == [other]

    @pytest.mark.parametrize(
        "wanted",
        [
            Wanted(statuses=frozenset({Status.SUCCEEDED})),
            Wanted(statuses=frozenset({Status.SCHEDULED, Status.QUEUED})),
            Wanted(start=NOON + 30 * MINUTE),
            Wanted(end=NOON + 30 * MINUTE),
            Wanted(start=NOON + 25 * MINUTE, end=NOON + 35 * MINUTE),
            Wanted(task="other"),
        ],
        ids=["done", "to come", "from", "to", "between", "task"],
    )
    @pytest.mark.parametrize("limit", [3, 50])
    def test_is_filtered_whatever_led_to_it(
        self, world: MemoryWorld, ports: Ports, busy: JobId, wanted: Wanted, limit: int
    ) -> None:
        everything = inspect.executions_of(
            ports, OWNER, busy, Wanted(), after=None, limit=100
        ).items
        expected = [one.row for one in everything if wanted.admits(one)]

        assert listed(ports, busy, limit=limit, wanted=wanted) == expected

    def test_is_shown_in_short_with_the_job(self, ports: Ports, busy: JobId) -> None:
        shown = [one.row for one in inspect.job(ports, OWNER, busy).executions]

        assert shown == listed(ports, busy)[:10]
        assert Trigger.BACKFILL in {row.trigger for row in shown}

    def test_reads_at_most_a_thousand_rows_a_call(self, world: MemoryWorld, ports: Ports) -> None:
        job_id = created(ports, new_job(schedule=every("1 minute"))).job_id
        for _ in range(20):
            world.pass_time(HOUR)
            trigger(ports, OWNER, job_id)
        asked: list[int] = []

        class Counting(MemoryExecutions):
            def get_many(
                self, ids: Collection[ExecutionId], *, strongly: bool = False
            ) -> Mapping[ExecutionId, Execution]:
                asked.append(len(ids))
                return super().get_many(ids, strongly=strongly)

        counted = replace(ports, executions=Counting(world.tables))
        first = next(pages(counted, job_id, limit=100, wanted=Wanted(task="rare")))

        # Of 1,200 slots, of which dispatch never made the rows; one told where they begin.
        assert (first.items, asked[0], sum(asked[1:])) == ([], 1, 1000)
        assert first.next is not None


class TestOfAOneOff:
    @pytest.fixture
    def failed(self, system: System, ports: Ports) -> JobId:
        """A one-off that failed and was replayed twice: it runs the second time."""
        failure = Failure(kind=Kind.PERMANENT, type="ValueError", message="no")
        plays, system.handler = system.handler, lambda _: Failed(failure=failure)
        made = created(ports, new_job(payload='"p"', retry=RetryPolicy(max_attempts=1)))
        system.work()
        system.run_for(MINUTE)
        replay(ports, OWNER, made.first.id)
        system.run_for(MINUTE)
        system.handler = plays
        replay(ports, OWNER, made.first.id)
        system.run_for(MINUTE)
        return made.job_id

    @pytest.mark.parametrize("limit", [1, 2, 3, 10])
    def test_has_its_replays_before_it(self, ports: Ports, failed: JobId, limit: int) -> None:
        found = listed(ports, failed, limit=limit)

        assert [row.state for row in found] == [State.SUCCEEDED, State.FAILED, State.FAILED]
        assert [row.trigger for row in found] == [Trigger.REPLAY, Trigger.REPLAY, Trigger.ONE_OFF]

    def test_is_filtered(self, ports: Ports, failed: JobId) -> None:
        wanted = Wanted(statuses=frozenset({Status.SUCCEEDED}))

        (found,) = listed(ports, failed, wanted=wanted)

        assert found.trigger is Trigger.REPLAY

    def test_is_shown_with_the_job_whose_definition_stays_its_own(
        self, ports: Ports, failed: JobId
    ) -> None:
        detail = inspect.job(ports, OWNER, failed)

        assert isinstance(detail.definition, OneOff)
        assert detail.definition.execution.row.trigger is Trigger.ONE_OFF
        assert [one.row for one in detail.executions] == listed(ports, failed)

    def test_makes_no_job_of_a_replay(self, ports: Ports, failed: JobId) -> None:
        page = inspect.jobs(ports, OWNER, Wanted(), after=None, limit=10)

        ids = [one.execution.row.job_id for one in page.items if isinstance(one, OneOff)]
        assert ids == [failed]

    def test_that_was_replayed_before_its_own_time_is_in_order(
        self, system: System, ports: Ports
    ) -> None:
        made = created(ports, new_job(run_at=in_(ports, 7200)))
        # Its owner took it back and then had it run at once.
        row = replace(made.first, state=State.CANCELLED, cancel_requested_at=NOON)
        system.world.tables.executions[row.id] = row
        replay(ports, OWNER, row.id)

        found = listed(ports, made.job_id, limit=1)

        assert [one.trigger for one in found] == [Trigger.ONE_OFF, Trigger.REPLAY]


def test_what_ran_beside_a_schedule_is_among_all_executions_of_its_owner(
    ports: Ports, world: MemoryWorld, busy: JobId
) -> None:
    page = inspect.executions(ports, OWNER, Wanted(), after=None, limit=100)
    others = inspect.executions(ports, Owner("somebody else"), Wanted(), after=None, limit=100)

    assert [one.row for one in page.items] == rows_of(world, busy)
    assert not others.items
