"""Which slots a job's history looks at: those that may have rows, each once, and no more."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lamplighter.core.buckets import ExecutionId, JobId
from lamplighter.core.lifecycle import State
from lamplighter.core.limits import EXECUTION_KEPT
from lamplighter.core.model import Execution, Job
from lamplighter.core.schedule import Kind, Schedule
from lamplighter.memory import MemoryWorld, VirtualClock
from lamplighter.ports import Ports
from lamplighter.services import inspect, manage, slots
from lamplighter.services.cancel import cancel
from lamplighter.services.inspect import Wanted
from tests.support.examples import examples
from tests.support.jobs import OWNER, created, cron, new_job

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Counted(Schedule):
    """A schedule that knows what it was asked for."""

    told: list[datetime] = field(default_factory=list, compare=False)

    def occurrences(self, after: datetime) -> Iterator[datetime]:
        return self._counting(super().occurrences(after))

    def occurrences_before(self, before: datetime) -> Iterator[datetime]:
        return self._counting(super().occurrences_before(before))

    def _counting(self, walk: Iterator[datetime]) -> Iterator[datetime]:
        for slot in walk:
            self.told.append(slot)
            yield slot


@pytest.fixture
def world() -> MemoryWorld:
    return MemoryWorld(clock=VirtualClock(NOON))


@pytest.fixture
def ports(world: MemoryWorld) -> Ports:
    return world.ports()


def counted(ports: Ports, text: str) -> tuple[JobId, list[datetime]]:
    """A job, and what its schedule was asked for since it was made."""
    schedule = Counted(kind=Kind.CRON, text=text)
    made = created(ports, new_job(schedule=lambda _id, _at: schedule))
    schedule.told.clear()
    return made.job_id, schedule.told


def to_window(window: timedelta) -> manage.Change:
    return lambda job: replace(job, schedule=replace(job.schedule, flexible_window=window))


def paged(ports: Ports, job_id: JobId, limit: int) -> list[ExecutionId]:
    found: list[ExecutionId] = []
    after: ExecutionId | None = None
    while True:
        page = inspect.executions_of(ports, OWNER, job_id, Wanted(), after=after, limit=limit)
        found += (one.row.id for one in page.items)
        after = page.next
        if after is None:
            return found


class TestAnOldJob:
    @pytest.mark.parametrize("is_edited", [False, True])
    def test_is_not_walked_through_to_where_a_page_begins(
        self, world: MemoryWorld, ports: Ports, is_edited: bool
    ) -> None:
        job_id, told = counted(ports, "* * * * *")
        world.clock.move_to(NOON + 362 * DAY)
        if is_edited:
            manage.edit(ports, OWNER, job_id, lambda job: replace(job, name="edited"))
        world.clock.move_to(NOON + 365 * DAY)
        told.clear()

        before = NOON + 361 * DAY
        planned = slots.planned(
            ports, job_of(ports, job_id), now=ports.clock.now(), due_before=before
        )
        found = [row.scheduled_for for row, _ in zip(planned, range(50), strict=False)]

        assert found == [before - n * MINUTE for n in range(1, 51)]
        assert len(told) <= 60

    def test_is_shown_as_far_back_as_executions_are_kept(
        self, world: MemoryWorld, ports: Ports
    ) -> None:
        job_id, told = counted(ports, "0 * * * *")
        world.clock.move_to(NOON + 365 * DAY)
        told.clear()

        found = paged(ports, job_id, 100)

        assert found == []
        assert min(told) >= ports.clock.now() - EXECUTION_KEPT - DAY - HOUR
        assert len(told) <= 2 * 8 * 24

    def test_is_not_walked_through_for_versions_that_are_long_gone(
        self, world: MemoryWorld, ports: Ports
    ) -> None:
        job_id, told = counted(ports, "* * * * *")
        world.clock.move_to(NOON + 100 * DAY)
        hourly = Counted(kind=Kind.CRON, text="0 * * * *")
        manage.edit(ports, OWNER, job_id, lambda job: replace(job, schedule=hourly))
        world.clock.move_to(NOON + 200 * DAY)
        told.clear()

        assert paged(ports, job_id, 100) == []
        assert told == []


class TestWhatACancelArmedFarAhead:
    def test_is_in_the_list_and_ends_with_its_job(self, world: MemoryWorld, ports: Ports) -> None:
        world.clock.move_to(NOON + 7 * MINUTE)
        made = created(ports, new_job(schedule=cron("30 * * * *")))
        cancel(ports, OWNER, made.first.id)
        (far,) = (row for row in world.tables.executions.values() if row.id != made.first.id)
        assert far.scheduled_for == NOON + 90 * MINUTE

        assert paged(ports, made.job_id, 1) == [far.id, made.first.id]
        manage.delete(ports, OWNER, made.job_id)

        assert world.tables.executions[far.id].state is State.CANCELLED
        assert paged(ports, made.job_id, 1) == [far.id, made.first.id]

    def test_ends_with_a_pause_however_far_it_is(self, world: MemoryWorld, ports: Ports) -> None:
        made = created(ports, new_job(schedule=cron("* * * * *")))
        armed = made.first.id
        for _ in range(250):
            cancel(ports, OWNER, armed)
            armed = max(world.tables.executions)
        last = world.tables.executions[armed]
        assert last.state is State.SCHEDULED

        job = job_of(ports, made.job_id)
        assert slots.latest_armed(ports, job, now=NOON) == last.scheduled_for > NOON + 4 * HOUR
        manage.pause(ports, OWNER, made.job_id)

        assert {row.state for row in world.tables.executions.values()} == {State.CANCELLED}


def job_of(ports: Ports, job_id: JobId) -> Job:
    return inspect.recurring_job(ports, OWNER, job_id)


def rows_until(job: Job, end: datetime) -> list[Execution]:
    planned = job.schedule.between(job.since + SECOND, end)
    return [job.occurrence(slot, now=NOON, sent_directly=True) for slot in planned]


@settings(max_examples=examples(40), suppress_health_check=list(HealthCheck))
@given(
    edits=st.lists(
        st.tuples(
            st.integers(1, 150), st.sampled_from([0 * MINUTE, 7 * MINUTE, HOUR, 5 * HOUR, DAY])
        ),
        min_size=1,
        max_size=5,
    ),
    limit=st.integers(1, 30),
)
def test_pages_hold_each_row_once_in_order_whatever_edits_did_to_the_window(
    edits: list[tuple[int, timedelta]], limit: int
) -> None:
    world = MemoryWorld(clock=VirtualClock(NOON))
    ports = world.ports()
    job = created(ports, new_job(schedule=cron("*/5 * * * *"))).job
    assert job is not None
    rows: list[Execution] = []
    for minutes, window in edits:
        world.clock.sleep(minutes * MINUTE + SECOND)
        revised = manage.edit(ports, OWNER, job.id, to_window(window)).job
        if revised != job:
            rows += rows_until(job, revised.since)
        job = revised
    world.clock.sleep(HOUR)
    rows += rows_until(job, ports.clock.now())
    world.tables.executions.clear()
    world.tables.executions.update((row.id, row) for row in rows)

    assert paged(ports, job.id, limit) == sorted((row.id for row in rows), reverse=True)
