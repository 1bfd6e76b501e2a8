"""What an owner sees of jobs and executions."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from lamplighter.core.buckets import ExecutionId, JobId, execution_of
from lamplighter.core.errors import NotFound
from lamplighter.core.lifecycle import State
from lamplighter.core.model import Execution, Job, MisfirePolicy, Owner, Payload
from lamplighter.core.outcome import Failed, Outcome, Succeeded
from lamplighter.core.retry import Failure, Kind, RetryPolicy
from lamplighter.core.status import Status
from lamplighter.memory import MemoryExecutions, MemoryWorld, VirtualClock
from lamplighter.ports import Ports
from lamplighter.services import inspect, manage
from lamplighter.services.execute import Claimed, begin
from lamplighter.services.inspect import Executions, OneOff, Recurring, Wanted
from lamplighter.sim.faults import Call, When, interposed
from lamplighter.sim.system import System
from tests.support.jobs import OWNER, created, cron, every, in_, new_job

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


class CountingExecutions(MemoryExecutions):
    """Knows how many rows were asked for by id."""

    rows_asked_for = 0

    def get_many(
        self, ids: Collection[ExecutionId], *, strongly: bool = False
    ) -> Mapping[ExecutionId, Execution]:
        self.rows_asked_for += len(ids)
        return super().get_many(ids, strongly=strongly)


def failing(times: int) -> Callable[[Claimed], Outcome]:
    """A handler that fails so many times, then returns 7."""

    def handler(claimed: Claimed) -> Outcome:
        if claimed.execution.attempt > times:
            return Succeeded(result="7")
        failure = Failure(kind=Kind.RETRYABLE, type="OSError", message="no route")
        return Failed(failure=failure)

    return handler


def seen(ports: Ports, id: ExecutionId) -> inspect.Seen:
    return inspect.execution(ports, OWNER, id)


def pages(turn: Callable[[ExecutionId | None], Executions]) -> Iterator[Executions]:
    """Every page of a list, to its end."""
    page = turn(None)
    yield page
    while page.next is not None:
        page = turn(page.next)
        yield page


def all_ids(turn: Callable[[ExecutionId | None], Executions]) -> list[ExecutionId]:
    return [one.row.id for page in pages(turn) for one in page.items]


def counting(ports: Ports) -> tuple[Ports, Counter[str]]:
    """The ports, and how often each of their calls was made."""
    calls: Counter[str] = Counter()

    def hook(call: Call, when: When) -> None:
        calls[f"{call.port}.{call.method}"] += when is When.BEFORE

    return interposed(ports, hook), calls


class TestAnExecution:
    def test_is_there_as_soon_as_its_job_was_created(self, ports: Ports) -> None:
        first = created(ports, new_job(run_at=in_(ports, 3600), payload='{"a":1}')).first

        found = seen(ports, first.id)

        assert (found.row, found.status, found.payload) == (first, Status.SCHEDULED, '{"a":1}')
        assert found.attempts == ()

    def test_of_somebody_else_looks_like_one_that_never_was(self, ports: Ports) -> None:
        first = created(ports, new_job()).first

        with pytest.raises(NotFound, match="no execution"):
            inspect.execution(ports, STRANGER, first.id)

    def test_of_a_recurring_job_has_the_payload_of_its_job(self, ports: Ports) -> None:
        first = created(ports, new_job(schedule=every("1 hour"), payload='"p"')).first

        assert seen(ports, first.id).payload == '"p"'

    @pytest.mark.parametrize("schedule", [None, every("1 hour")], ids=["one-off", "recurring"])
    def test_has_its_large_payload_though_that_lies_elsewhere(
        self, ports: Ports, schedule: None
    ) -> None:
        large = f'"{"x" * 5000}"'
        first = created(ports, new_job(schedule=schedule, payload=large)).first

        assert seen(ports, first.id).payload == large

    def test_keeps_the_payload_that_it_ran_by_whatever_its_job_is_edited_to(
        self, system: System, ports: Ports
    ) -> None:
        made = created(ports, new_job(schedule=cron("* * * * *"), payload='"old"'))
        system.run_for(2 * MINUTE)

        def renew(job: Job) -> Job:
            return replace(job, spec=replace(job.spec, payload=Payload.of('"new"')))

        manage.edit(ports, OWNER, made.job_id, renew)
        rows = [one.row for one in inspect.job(ports, OWNER, made.job_id).executions]
        waiting = [row for row in rows if not row.is_final]

        assert seen(ports, made.first.id).payload == '"old"'
        assert {seen(ports, row.id).payload for row in waiting} == {'"new"'}

    def test_whose_definition_is_gone_is_shown_without_a_payload(
        self, world: MemoryWorld, ports: Ports
    ) -> None:
        made = created(ports, new_job(schedule=every("1 hour"), payload='"p"'))
        del world.tables.jobs[made.job_id]

        assert seen(ports, made.first.id).payload is None

    def test_shows_each_try_with_its_time_and_error(self, system: System, ports: Ports) -> None:
        system.handler = failing(2)
        made = created(ports, new_job(retry=RetryPolicy(max_attempts=3)))
        system.run_for(MINUTE)

        found = seen(ports, made.first.id)

        assert found.status == Status.SUCCEEDED
        assert [one.number for one in found.attempts] == [1, 2, 3]
        assert [one.error and one.error.message for one in found.attempts] == [
            "no route",
            "no route",
            None,
        ]
        starts = [one.started_at for one in found.attempts]
        assert starts == sorted(starts)
        assert all(one.finished_at for one in found.attempts)

    def test_that_runs_shows_the_try_under_way(self, system: System, ports: Ports) -> None:
        under_way: list[inspect.Seen] = []

        def look(claimed: Claimed) -> Outcome:
            if claimed.execution.attempt == 2:
                under_way.append(seen(ports, claimed.execution.id))
            return failing(1)(claimed)

        system.handler = look
        created(ports, new_job())
        system.run_for(MINUTE)

        (found,) = under_way
        assert found.status == Status.RUNNING
        first, second = found.attempts
        assert (first.number, first.state) == (1, State.RETRYING)
        assert (second.number, second.state, second.finished_at) == (2, State.RUNNING, None)


class TestQueued:
    """QUEUED is SCHEDULED whose message is out: sent directly, or passed by dispatch."""

    def test_what_was_sent_directly_is_queued_at_once(self, ports: Ports) -> None:
        first = created(ports, new_job(run_at=in_(ports, 60))).first

        assert seen(ports, first.id).status == Status.QUEUED

    def test_what_dispatch_has_not_reached_is_scheduled(self, system: System, ports: Ports) -> None:
        first = created(ports, new_job(run_at=in_(ports, 600))).first
        system.run_for(2 * MINUTE)

        assert seen(ports, first.id).status == Status.SCHEDULED

    def test_what_dispatch_has_passed_is_queued_until_it_is_claimed(
        self, system: System, ports: Ports
    ) -> None:
        first = created(ports, new_job(run_at=in_(ports, 600))).first
        system.run_for(9 * MINUTE)
        assert seen(ports, first.id).status == Status.QUEUED

        system.run_for(2 * MINUTE)
        assert seen(ports, first.id).status == Status.SUCCEEDED

    def test_what_is_late_because_nobody_dispatches_is_still_scheduled(
        self, world: MemoryWorld, ports: Ports
    ) -> None:
        first = created(ports, new_job(run_at=in_(ports, 600))).first
        world.pass_time(timedelta(hours=1))

        assert seen(ports, first.id).status == Status.SCHEDULED

    def test_of_a_row_far_ahead_nobody_asks_how_far_dispatch_is(self, ports: Ports) -> None:
        first = created(ports, new_job(run_at=in_(ports, 3600))).first
        counted, calls = counting(ports)

        inspect.execution(counted, OWNER, first.id)

        assert calls == {"executions.get": 1}


class TestAJob:
    def test_that_recurs_shows_its_definition_and_its_next_slot(self, ports: Ports) -> None:
        made = created(ports, new_job(schedule=cron("0 2 * * *"), payload='"p"'))

        detail = inspect.job(ports, OWNER, made.job_id)

        assert isinstance(detail.definition, Recurring)
        assert detail.definition.job == made.job
        assert detail.definition.payload == '"p"'
        assert detail.definition.next_run_at == datetime(2026, 1, 1, 2, tzinfo=UTC)
        assert [one.row.id for one in detail.executions] == [made.first.id]

    def test_shows_its_latest_executions_newest_first(self, system: System, ports: Ports) -> None:
        made = created(ports, new_job(schedule=every("1 minute")))
        system.run_for(20 * MINUTE)

        shown = inspect.job(ports, OWNER, made.job_id).executions

        slots = [one.row.scheduled_for for one in shown]
        assert slots == sorted(slots, reverse=True)
        assert len(slots) == 10
        now = ports.clock.now()
        have_run = [one.status for one in shown if one.row.scheduled_for <= now]
        assert 0 < len(have_run) < len(shown), "what is armed ahead is shown too"
        assert set(have_run) == {Status.SUCCEEDED}

    def test_that_is_a_one_off_is_its_execution(self, ports: Ports) -> None:
        made = created(ports, new_job(run_at=in_(ports, 3600), payload='"p"'))

        detail = inspect.job(ports, OWNER, made.job_id)

        assert isinstance(detail.definition, OneOff)
        assert detail.definition.execution.payload == '"p"'
        assert [one.row.id for one in detail.executions] == [made.first.id]

    def test_that_was_deleted_keeps_its_history(self, system: System, ports: Ports) -> None:
        made = created(ports, new_job(schedule=every("1 minute")))
        system.run_for(3 * MINUTE)
        assert made.job
        ports.jobs.delete(made.job)

        detail = inspect.job(ports, OWNER, made.job_id)

        assert isinstance(detail.definition, Recurring)
        assert (detail.definition.job.status, detail.definition.next_run_at) == ("DELETED", None)
        assert Status.SUCCEEDED in {one.status for one in detail.executions}

    @pytest.mark.parametrize("schedule", [None, every("1 hour")], ids=["one-off", "recurring"])
    def test_of_somebody_else_looks_like_one_that_never_was(
        self, ports: Ports, schedule: None
    ) -> None:
        id = created(ports, new_job(schedule=schedule)).job_id

        with pytest.raises(NotFound, match="no job"):
            inspect.job(ports, STRANGER, id)
        with pytest.raises(NotFound, match="no job"):
            inspect.executions_of(ports, STRANGER, id, Wanted(), after=None, limit=10)

    def test_no_one_off_goes_by_the_place_of_an_occurrence(self, ports: Ports) -> None:
        occurrence = created(ports, new_job(schedule=every("1 hour"))).first
        id = JobId(occurrence.id.replace("ex_", "one_"))
        assert execution_of(id) == occurrence.id

        with pytest.raises(NotFound, match="no job"):
            inspect.job(ports, OWNER, id)


class TestExecutionsOfAJob:
    def test_are_found_without_an_index_page_by_page(self, system: System, ports: Ports) -> None:
        made = created(ports, new_job(schedule=every("1 minute")))
        created(ports, new_job(schedule=every("1 minute")))
        system.run_for(30 * MINUTE)

        ids = all_ids(
            lambda after: inspect.executions_of(
                ports, OWNER, made.job_id, Wanted(), after=after, limit=7
            )
        )

        rows = system.world.tables.executions.values()
        expected = {row.id for row in rows if row.job_id == made.job_id}
        assert len(expected) > 30
        assert ids == sorted(expected, reverse=True)

    def test_after_a_long_silence_only_what_exists_is_listed(
        self, system: System, ports: Ports
    ) -> None:
        made = created(ports, new_job(schedule=every("1 minute"), misfire=MisfirePolicy.SKIP))
        system.run_for(5 * MINUTE)
        system.world.pass_time(timedelta(hours=40))
        system.run_for(5 * MINUTE)

        pages_ = [
            *pages(
                lambda after: inspect.executions_of(
                    ports, OWNER, made.job_id, Wanted(), after=after, limit=50
                )
            )
        ]

        rows = system.world.tables.executions.values()
        ids = [one.row.id for page in pages_ for one in page.items]
        assert sorted(ids) == sorted(row.id for row in rows if row.job_id == made.job_id)
        # 2,400 slots without a row lie between: one call looks at no more than a thousand.
        assert len(pages_) > 2

    def test_one_call_reads_at_most_a_thousand_rows(self, world: MemoryWorld) -> None:
        made = created(world.ports(), new_job(schedule=every("1 minute")))
        world.pass_time(timedelta(days=3))
        executions = CountingExecutions(world.tables)
        ports = replace(world.ports(), executions=executions)

        page = inspect.executions_of(ports, OWNER, made.job_id, Wanted(), after=None, limit=100)

        assert page.next is not None
        assert 900 <= executions.rows_asked_for <= 1000

    def test_of_a_one_off_are_the_one(self, ports: Ports) -> None:
        made = created(ports, new_job())

        def listed(wanted: Wanted, after: ExecutionId | None = None) -> list[ExecutionId]:
            page = inspect.executions_of(ports, OWNER, made.job_id, wanted, after=after, limit=10)
            assert page.next is None
            return [one.row.id for one in page.items]

        assert listed(Wanted()) == [made.first.id]
        assert listed(Wanted(statuses=frozenset({Status.FAILED}))) == []
        assert listed(Wanted(), after=made.first.id) == []


class TestExecutions:
    def test_are_listed_newest_first_across_pages(self, ports: Ports) -> None:
        made = [created(ports, new_job(run_at=in_(ports, 3600 * n))).first.id for n in range(1, 26)]

        ids = all_ids(
            lambda after: inspect.executions(ports, OWNER, Wanted(), after=after, limit=10)
        )

        assert ids == made[::-1]

    def test_a_page_that_ends_the_list_says_so(self, ports: Ports) -> None:
        for _ in range(10):
            created(ports, new_job())

        counted, calls = counting(ports)
        exact, roomy = (
            inspect.executions(counted, OWNER, Wanted(), after=None, limit=limit)
            for limit in (10, 50)
        )

        assert (len(exact.items), exact.next) == (len(roomy.items), roomy.next) == (10, None)
        assert calls["executions.of_owner"] == 2

    def test_of_somebody_else_are_not_listed(self, ports: Ports) -> None:
        created(ports, new_job())

        assert not inspect.executions(ports, STRANGER, Wanted(), after=None, limit=10).items

    @pytest.mark.parametrize(
        "status",
        [
            Status.SUCCEEDED,
            Status.FAILED,
            Status.DEAD_LETTERED,
            Status.SCHEDULED,
            Status.QUEUED,
        ],
    )
    def test_are_filtered_by_the_status_that_they_are_shown_with(
        self, system: System, ports: Ports, status: Status
    ) -> None:
        outcomes: dict[str, Outcome] = {
            "fine": Succeeded(result="1"),
            "broken": Failed(failure=Failure(kind=Kind.PERMANENT, type="E", message="m")),
            "flaky": Failed(failure=Failure(kind=Kind.RETRYABLE, type="E", message="m")),
        }
        system.handler = lambda claimed: outcomes[claimed.payload.strip('"')]
        for payload in outcomes:
            created(ports, new_job(payload=f'"{payload}"', retry=RetryPolicy(max_attempts=1)))
        system.work()
        created(ports, new_job(run_at=in_(ports, 3600)))
        created(ports, new_job(run_at=in_(ports, 30)))
        wanted = Wanted(statuses=frozenset({status}))

        page = inspect.executions(ports, OWNER, wanted, after=None, limit=10)

        assert [one.status for one in page.items] == [status]

    def test_are_filtered_by_several_statuses_at_once(self, system: System, ports: Ports) -> None:
        created(ports, new_job())
        system.work()
        created(ports, new_job(run_at=in_(ports, 3600)))
        statuses = frozenset({Status.SUCCEEDED, Status.SCHEDULED})

        page = inspect.executions(ports, OWNER, Wanted(statuses=statuses), after=None, limit=10)

        assert {one.status for one in page.items} == statuses

    def test_are_filtered_by_task_and_queue(self, ports: Ports) -> None:
        created(ports, new_job())

        def count(wanted: Wanted) -> int:
            return len(inspect.executions(ports, OWNER, wanted, after=None, limit=10).items)

        assert count(Wanted(task="echo", queue="default")) == 1
        assert count(Wanted(task="other")) == 0
        assert count(Wanted(queue="bulk")) == 0

    def test_a_filter_that_little_passes_costs_at_most_a_thousand_reads(
        self, world: MemoryWorld
    ) -> None:
        """O-F18: a page may be empty and have a next one."""
        ports = world.ports()
        oldest = created(ports, new_job(run_at=in_(ports, 600)))
        for n in range(1200):
            created(ports, new_job(run_at=in_(ports, 3600 + n)))
        world.tables.executions[oldest.first.id] = _with_task(oldest.first, "rare")
        wanted = Wanted(task="rare")

        first, second = pages(
            lambda after: inspect.executions(ports, OWNER, wanted, after=after, limit=10)
        )

        assert not first.items
        assert [one.row.id for one in second.items] == [oldest.first.id]

    def test_that_need_attention_are_found_in_their_own_index(
        self, system: System, ports: Ports
    ) -> None:
        system.handler = failing(9)
        created(ports, new_job(retry=RetryPolicy(max_attempts=1)))
        system.work()
        counted, calls = counting(ports)
        trouble = frozenset({Status.FAILED, Status.DEAD_LETTERED})

        page = inspect.executions(counted, OWNER, Wanted(statuses=trouble), after=None, limit=10)

        assert [one.status for one in page.items] == [Status.DEAD_LETTERED]
        assert "executions.of_owner" not in calls


class TestJobs:
    def test_are_listed_the_recurring_newest_first_and_then_the_one_offs(
        self, world: MemoryWorld, ports: Ports
    ) -> None:
        expected: list[JobId] = []
        for _ in range(5):
            world.pass_time(MINUTE)
            expected.insert(0, created(ports, new_job(schedule=every("1 hour"))).job_id)
        later = [created(ports, new_job(run_at=in_(ports, 9000 + n))).job_id for n in range(5)]
        expected += later[::-1]

        for limit in (1, 2, 3, 5, 7, 10, 50):
            assert self.listed(ports, limit=limit) == expected

    def test_that_were_deleted_are_left_out(self, ports: Ports) -> None:
        made = created(ports, new_job(schedule=every("1 hour")))
        assert made.job
        ports.jobs.delete(made.job)

        assert self.listed(ports, limit=10) == []

    def test_of_somebody_else_are_not_listed(self, ports: Ports) -> None:
        created(ports, new_job())
        created(ports, new_job(schedule=every("1 hour")))

        assert not inspect.jobs(ports, STRANGER, Wanted(), after=None, limit=10).items

    def test_are_filtered_by_task_and_queue(self, ports: Ports) -> None:
        created(ports, new_job())
        created(ports, new_job(schedule=every("1 hour")))

        assert len(self.listed(ports, limit=10, wanted=Wanted(task="echo"))) == 2
        assert self.listed(ports, limit=10, wanted=Wanted(task="other")) == []
        assert self.listed(ports, limit=10, wanted=Wanted(queue="bulk")) == []

    @staticmethod
    def listed(ports: Ports, *, limit: int, wanted: Wanted | None = None) -> list[JobId]:
        ids: list[JobId] = []
        after: JobId | None = None
        while True:
            page = inspect.jobs(ports, OWNER, wanted or Wanted(), after=after, limit=limit)
            assert len(page.items) <= limit
            ids += [
                one.job.id if isinstance(one, Recurring) else one.execution.row.job_id
                for one in page.items
            ]
            after = page.next
            if after is None:
                return ids


def test_a_try_that_was_taken_over_counts_as_a_try_of_its_own(
    world: MemoryWorld, ports: Ports
) -> None:
    first = created(ports, new_job()).first
    (message,) = world.queue.receive()
    assert isinstance(begin(ports, message, worker="dies"), Claimed)
    world.pass_time(MINUTE)
    begin(ports, message, worker="takes over")

    attempts = seen(ports, first.id).attempts

    assert [(one.number, one.worker) for one in attempts] == [(1, "dies"), (2, "takes over")]


def _with_task(row: Execution, task: str) -> Execution:
    return replace(row, task=task)
