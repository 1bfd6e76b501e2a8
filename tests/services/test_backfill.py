"""Running slots of the past: those of an interval, each once, and what is left out."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from lamplighter.core import limits
from lamplighter.core.buckets import ExecutionId
from lamplighter.core.errors import Conflict, KeyReused, NotFound, Rejected
from lamplighter.core.lifecycle import FINAL, State
from lamplighter.core.model import Execution, Job, OverlapPolicy, Owner, Trigger
from lamplighter.core.outcome import Failed
from lamplighter.core.retry import Failure, Kind
from lamplighter.core.schedule import parse
from lamplighter.core.status import Status
from lamplighter.memory import MemoryExecutions, MemoryWorld, VirtualClock
from lamplighter.ports import Ports
from lamplighter.services import manage
from lamplighter.services.backfill import Asked, Backfill, Key, backfill, planned
from lamplighter.services.trigger import trigger
from lamplighter.sim.faults import Call, Crash, When, calls_of, every_crash, interposed, survives
from lamplighter.sim.invariants import violations
from lamplighter.sim.system import System
from tests.support.jobs import OWNER, created, cron, every, in_, new_job
from tests.support.strikes import some_of

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
START = datetime(2026, 1, 1, tzinfo=UTC)
STRANGER = Owner("somebody else")
KEY = Key(key="k", fingerprint="body")


@pytest.fixture
def world() -> MemoryWorld:
    """The first of January, noon."""
    return MemoryWorld(clock=VirtualClock(START + 12 * HOUR), shards=4, partitions=1)


@pytest.fixture
def ports(world: MemoryWorld) -> Ports:
    return world.ports()


@pytest.fixture
def system(world: MemoryWorld) -> System:
    return System(world=world)


@pytest.fixture
def job(ports: Ports) -> Job:
    return hourly(ports)


def hourly(ports: Ports) -> Job:
    """Due on the hour; made at noon, so that nothing of the morning has run."""
    made = created(ports, new_job(schedule=cron("0 * * * *"))).job
    assert made
    return made


def hours(first: float, last: float, **more: object) -> Asked:
    """The slots of these hours of the first of January."""
    asked = Asked(start=START + first * HOUR, end=START + last * HOUR)
    return replace(asked, **more)  # type: ignore[arg-type]


def slots_of(rows: Sequence[Execution]) -> list[float]:
    """The hours that the rows are for."""
    return [(row.scheduled_for - START) / HOUR for row in rows]


def backfilled(world: MemoryWorld) -> list[Execution]:
    rows = world.tables.executions.values()
    return sorted(
        (row for row in rows if row.trigger is Trigger.BACKFILL), key=lambda row: row.scheduled_for
    )


class TestTheSlots:
    def test_are_those_of_the_schedule_from_the_one_end_to_before_the_other(
        self, system: System, ports: Ports, job: Job
    ) -> None:
        made = backfill(ports, OWNER, job.id, hours(3, 7))

        assert slots_of(made.rows) == [3, 4, 5, 6]
        assert backfilled(system.world) == [*made.rows]
        system.work()
        assert {row.state for row in backfilled(system.world)} == {State.SUCCEEDED}
        assert [*violations(system)] == []

    def test_are_found_where_an_end_lies_within_a_millisecond_of_one(
        self, ports: Ports, job: Job
    ) -> None:
        tick = timedelta(milliseconds=1)
        start, end = START + 3 * HOUR, START + 5 * HOUR

        def found(start: datetime, end: datetime) -> list[float]:
            return slots_of(planned(ports, OWNER, job.id, Asked(start=start, end=end)).rows)

        assert found(start, end) == [3, 4]
        assert found(start + tick, end) == [4]
        assert found(start, end + tick) == [3, 4, 5]

    def test_reach_back_before_the_job_was_made(self, ports: Ports, job: Job) -> None:
        made = backfill(ports, OWNER, job.id, hours(-48, -46))

        assert slots_of(made.rows) == [-48, -47]

    def test_are_those_of_the_definition_as_it_is_now(self, ports: Ports, job: Job) -> None:
        every_three = parse(cron="0 */3 * * *", seed=job.id)
        manage.edit(ports, OWNER, job.id, lambda job: replace(job, schedule=every_three))

        assert slots_of(planned(ports, OWNER, job.id, hours(0, 12)).rows) == [0, 3, 6, 9]

    def test_may_be_none(self, world: MemoryWorld, ports: Ports, job: Job) -> None:
        asked = Asked(start=START + MINUTE, end=START + 2 * MINUTE)

        made = backfill(ports, OWNER, job.id, asked, key=KEY)

        assert (made.rows, made.left) == ([], [])
        assert not backfilled(world)

    @pytest.mark.parametrize(("first", "last"), [(3, 3), (4, 3)])
    def test_of_an_interval_that_is_none_are_refused(
        self, ports: Ports, job: Job, first: int, last: int
    ) -> None:
        with pytest.raises(Rejected, match="from: not before to"):
            backfill(ports, OWNER, job.id, hours(first, last))

    def test_of_the_future_are_refused_and_those_up_to_now_are_not(
        self, ports: Ports, job: Job
    ) -> None:
        now = ports.clock.now()

        assert slots_of(planned(ports, OWNER, job.id, Asked(start=START, end=now)).rows) == [
            *range(12)
        ]
        with pytest.raises(Rejected, match="to: later than now, 2026-01-01T12:00:00"):
            backfill(ports, OWNER, job.id, Asked(start=START, end=now + SECOND))

    def test_more_than_asked_for_are_refused_and_never_cut(
        self, world: MemoryWorld, ports: Ports, job: Job
    ) -> None:
        assert len(planned(ports, OWNER, job.id, hours(0, 5, most=5)).rows) == 5

        with pytest.raises(Rejected, match="max: the interval has at least 5 slots"):
            backfill(ports, OWNER, job.id, hours(0, 5, most=4))
        assert not backfilled(world)

    def test_of_a_century_are_refused_at_once(self, ports: Ports) -> None:
        often = created(ports, new_job(schedule=every("1 minute")))

        asked = Asked(start=datetime(1970, 1, 1, tzinfo=UTC), end=ports.clock.now())

        with pytest.raises(Rejected, match="at least 101 slots"):
            backfill(ports, OWNER, often.job_id, asked)


class TestTheRuns:
    def test_are_spread_evenly_over_the_time_from_now(
        self, system: System, ports: Ports, job: Job
    ) -> None:
        now = ports.clock.now()

        made = backfill(ports, OWNER, job.id, hours(0, 4, spread=2 * HOUR))

        assert [row.run_at - now for row in made.rows] == [n * HOUR / 2 for n in range(4)]
        system.run_for(3 * HOUR)
        rows = backfilled(system.world)
        assert {row.state for row in rows} == {State.SUCCEEDED}
        assert {row.lateness for row in rows} == {timedelta(0)}
        assert [*violations(system)] == []

    def test_go_on_while_the_job_is_paused(self, system: System, ports: Ports, job: Job) -> None:
        backfill(ports, OWNER, job.id, hours(0, 4, spread=2 * HOUR))
        manage.pause(ports, OWNER, job.id)

        system.run_for(3 * HOUR)

        assert [row.state for row in backfilled(system.world)] == [State.SUCCEEDED] * 4

    def test_end_with_their_job(self, system: System, ports: Ports, job: Job) -> None:
        backfill(ports, OWNER, job.id, hours(0, 4, spread=2 * HOUR))
        system.run_for(45 * MINUTE)
        ports.jobs.delete(job)

        system.run_for(3 * HOUR)

        states = [row.state for row in backfilled(system.world)]
        assert states == [State.SUCCEEDED, State.SUCCEEDED, State.CANCELLED, State.CANCELLED]

    def test_of_a_dry_run_are_told_and_not_made(
        self, world: MemoryWorld, ports: Ports, job: Job
    ) -> None:
        there = dict(world.tables.executions)

        told = planned(ports, OWNER, job.id, hours(0, 4, spread=2 * HOUR))

        assert slots_of(told.rows) == [0, 1, 2, 3]
        assert world.tables.executions == there
        assert not world.queue.receive()

    def test_are_sent_in_time_however_long_their_writes_take(
        self, system: System, ports: Ports
    ) -> None:
        """P1: a row that was planned beyond the line may be put inside it."""
        often = created(ports, new_job(schedule=every("1 minute"))).job
        assert often

        def stall(call: Call, when: When) -> None:
            if (call.method, when) == ("put", When.BEFORE):
                system.run_for(MINUTE)

        asked = Asked(start=START, end=START + 300 * MINUTE, most=300, spread=20 * MINUTE)
        backfill(interposed(ports, stall), OWNER, often.id, asked)
        system.run_for(30 * MINUTE)

        rows = backfilled(system.world)
        assert len(rows) == 300
        assert {row.state for row in rows} == {State.SUCCEEDED}
        # Those of the first minute were put after their time. Dispatch, which is first called
        # here, paces what it finds behind it.
        late = [row.lateness for row in rows[15:] if row.lateness is not None]
        assert len(late) == 285
        assert max(late) <= timedelta(milliseconds=10)
        assert [*violations(system)] == []


class TestWhatIsThere:
    """A slot that has come to something, or still may, is left out unless it is asked for."""

    def test_is_left_out_and_told(self, system: System, ports: Ports, job: Job) -> None:
        system.run_for(4 * HOUR)

        made = backfill(ports, OWNER, job.id, hours(10, 16))

        assert slots_of(made.rows) == [10, 11, 12]
        assert [(left.slot - START) / HOUR for left in made.left] == [13, 14, 15]
        assert {left.status for left in made.left} == {Status.SUCCEEDED}
        ids = [job.occurrence_id(left.slot) for left in made.left]
        assert [left.execution_id for left in made.left] == ids

    def test_is_run_again_when_that_is_asked_for(
        self, system: System, ports: Ports, job: Job
    ) -> None:
        system.run_for(4 * HOUR)

        made = backfill(ports, OWNER, job.id, hours(10, 16, skip_existing=False))

        assert slots_of(made.rows) == [10, 11, 12, 13, 14, 15]
        assert made.left == []

    @pytest.mark.parametrize("state", sorted(State))
    def test_is_left_out_by_what_has_come_of_it(
        self, world: MemoryWorld, ports: Ports, job: Job, state: State
    ) -> None:
        slot = START + 13 * HOUR
        first = world.tables.executions[job.occurrence_id(slot)]
        world.pass_time(2 * HOUR)
        world.tables.executions[first.id] = in_state(first, state)

        found = planned(ports, OWNER, job.id, hours(13, 14))

        came_to_nothing = state in FINAL and state is not State.SUCCEEDED
        assert bool(found.rows) is came_to_nothing
        assert bool(found.left) is not came_to_nothing

    def test_counts_what_an_earlier_backfill_ran(
        self, system: System, ports: Ports, job: Job
    ) -> None:
        backfill(ports, OWNER, job.id, hours(2, 4))
        system.work()

        made = backfill(ports, OWNER, job.id, hours(0, 6))

        assert slots_of(made.rows) == [0, 1, 4, 5]
        assert len(made.left) == 2

    def test_does_not_count_what_failed_there(self, system: System, ports: Ports, job: Job) -> None:
        system.handler = lambda _: Failed(
            failure=Failure(kind=Kind.PERMANENT, type="ValueError", message="no")
        )
        backfill(ports, OWNER, job.id, hours(2, 4))
        system.work()

        assert slots_of(planned(ports, OWNER, job.id, hours(2, 4)).rows) == [2, 3]

    def test_does_not_count_a_run_by_hand_at_that_very_time(
        self, system: System, ports: Ports, job: Job
    ) -> None:
        system.world.clock.move_to(START + 12 * HOUR)
        trigger(ports, OWNER, job.id)
        system.world.pass_time(MINUTE)

        assert slots_of(planned(ports, OWNER, job.id, hours(12, 12.01)).rows) == [12]

    def test_is_found_though_an_edit_moved_its_runs_within_a_window(
        self, system: System, ports: Ports, job: Job
    ) -> None:
        system.run_for(2 * HOUR)
        in_a_window = parse(cron="0 * * * *", seed=job.id, flexible_window_seconds=900)
        manage.edit(ports, OWNER, job.id, lambda job: replace(job, schedule=in_a_window))

        found = planned(ports, OWNER, job.id, hours(11, 14))

        assert slots_of(found.rows) == [11, 12]

    def test_is_looked_for_where_the_version_of_then_had_it(
        self, system: System, ports: Ports
    ) -> None:
        job_id = created(ports, new_job(schedule=cron("* * * * *"))).job_id
        system.run_for(30 * MINUTE + SECOND)
        for seconds in range(60, 85):
            manage.edit(ports, OWNER, job_id, to_window(timedelta(seconds=seconds)))
            system.world.clock.sleep(SECOND)
        asked: list[int] = []

        class Counting(MemoryExecutions):
            def get_many(
                self, ids: Collection[ExecutionId], *, strongly: bool = False
            ) -> Mapping[ExecutionId, Execution]:
                asked.append(len(ids))
                return super().get_many(ids, strongly=strongly)

        counting = replace(ports, executions=Counting(system.world.tables))
        found = planned(counting, OWNER, job_id, hours(0, 12.5, most=1000))

        assert len(found.left) == 29
        assert len(found.rows) == 12 * 60 + 1
        assert sum(asked) < 100


def to_window(window: timedelta) -> manage.Change:
    return lambda job: replace(job, schedule=replace(job.schedule, flexible_window=window))


def in_state(row: Execution, state: State) -> Execution:
    is_held = state is State.RUNNING
    return replace(
        row,
        state=state,
        token="a" * 32 if is_held else None,  # type: ignore[arg-type]
        lease_until=row.run_at + HOUR if is_held else None,
        next_run_at=row.run_at + HOUR if state is State.RETRYING else None,
    )


class TestWhoMayAsk:
    def test_nobody_else(self, ports: Ports, job: Job) -> None:
        with pytest.raises(NotFound, match="no job"):
            backfill(ports, STRANGER, job.id, hours(0, 4))

    def test_nobody_for_a_deleted_job(self, ports: Ports, job: Job) -> None:
        manage.delete(ports, OWNER, job.id)

        with pytest.raises(Conflict, match="is deleted"):
            backfill(ports, OWNER, job.id, hours(0, 4))

    def test_nobody_for_a_one_off(self, ports: Ports) -> None:
        one_off = created(ports, new_job(run_at=in_(ports, 3600)))

        with pytest.raises(Conflict, match="is a one-off"):
            backfill(ports, OWNER, one_off.job_id, hours(0, 4))

    def test_anybody_while_their_job_is_paused(self, ports: Ports, job: Job) -> None:
        manage.pause(ports, OWNER, job.id)

        assert slots_of(backfill(ports, OWNER, job.id, hours(0, 2)).rows) == [0, 1]


class TestWithAKey:
    def test_asked_again_it_answers_the_same_and_makes_nothing(
        self, system: System, ports: Ports, job: Job
    ) -> None:
        asked = hours(0, 4, spread=HOUR, skip_existing=False)
        first = backfill(ports, OWNER, job.id, asked, key=KEY)
        system.run_for(2 * HOUR)

        again = backfill(ports, OWNER, job.id, asked, key=KEY)

        assert (first.is_replayed, again.is_replayed) == (False, True)
        assert again == first
        assert len(backfilled(system.world)) == 4
        system.run_for(HOUR)
        assert len([run for run in system.runs if is_backfill(system, run.execution_id)]) == 4

    def test_the_answer_is_the_same_whatever_has_changed(
        self, system: System, ports: Ports, job: Job
    ) -> None:
        asked = hours(8, 14)
        system.run_for(3 * HOUR)
        first = backfill(ports, OWNER, job.id, asked, key=KEY)
        system.run_for(HOUR)
        manage.edit(ports, OWNER, job.id, lambda job: replace(job, name="another"))
        manage.delete(ports, OWNER, job.id)

        assert backfill(ports, OWNER, job.id, asked, key=KEY) == first

    def test_another_request_under_it_is_refused(self, ports: Ports, job: Job) -> None:
        backfill(ports, OWNER, job.id, hours(0, 4), key=KEY)

        with pytest.raises(KeyReused):
            backfill(ports, OWNER, job.id, hours(0, 5), key=replace(KEY, fingerprint="other"))

    def test_an_answer_that_is_a_day_old_makes_nothing_any_more(
        self, world: MemoryWorld, ports: Ports, job: Job
    ) -> None:
        """Rows that ended go before the key does: to make them again would run them again."""
        first = backfill(ports, OWNER, job.id, hours(0, 4), key=KEY)
        world.pass_time(limits.BACKFILL_FINISHED_WITHIN + SECOND)
        for row in first.rows:
            del world.tables.executions[row.id]

        again = backfill(ports, OWNER, job.id, hours(0, 4), key=KEY)

        assert again == first
        assert not backfilled(world)

    def test_two_at_once_make_one_backfill(self, system: System, ports: Ports, job: Job) -> None:
        others: list[Backfill] = []

        def overtake(call: Call, when: When) -> None:
            if (call.method, when) == ("create", When.BEFORE) and not others:
                system.world.pass_time(SECOND)
                others.append(backfill(ports, OWNER, job.id, hours(0, 4), key=KEY))

        mine = backfill(interposed(ports, overtake), OWNER, job.id, hours(0, 4), key=KEY)

        assert [*others] == [mine]
        assert backfilled(system.world) == [*mine.rows]

    @pytest.mark.strikes
    @pytest.mark.parametrize("later", [timedelta(0), 3 * MINUTE, 2 * HOUR])
    def test_a_call_that_died_anywhere_is_finished_by_the_next(self, later: timedelta) -> None:
        asked = Asked(start=START, end=START + 130 * MINUTE, most=130, spread=20 * MINUTE)

        def call(job: Job) -> Callable[[Ports], Backfill]:
            return lambda ports: backfill(ports, OWNER, job.id, asked, key=KEY)

        system, use_case = self.ready(call)
        strikes = [*every_crash(calls_of(system.ports, use_case))]
        assert len(strikes) > 10
        for strike in some_of(strikes):
            system, use_case = self.ready(call)
            survives(system.ports, use_case, strike)
            system.run_for(later)
            first = use_case(system.ports)
            again = use_case(system.ports)
            system.run_for(40 * MINUTE)

            rows = backfilled(system.world)
            slots = {row.scheduled_for for row in rows}
            assert len(slots) == len(rows) == 130, strike
            assert [row.id for row in rows] == [row.id for row in again.rows], strike
            assert first == again, strike
            ran = [run.execution_id for run in system.runs]
            assert sorted(ran) == sorted({*ran}), strike
            assert {row.state for row in rows} == {State.SUCCEEDED}, strike
            assert [*violations(system)] == [], strike

    @staticmethod
    def ready(
        call: Callable[[Job], Callable[[Ports], Backfill]],
    ) -> tuple[System, Callable[[Ports], Backfill]]:
        clock = VirtualClock(START + 12 * HOUR)
        system = System(world=MemoryWorld(clock=clock, shards=4, partitions=2))
        system.run_for(MINUTE)
        made = created(system.ports, new_job(schedule=cron("* 0-4 * * *"))).job
        assert made
        return system, call(made)

    def test_a_call_that_finishes_late_and_dies_leaves_what_it_made_to_the_sweep(
        self, system: System, ports: Ports, job: Job
    ) -> None:
        """The rows are due long ago, in buckets that were swept: only a check finds them."""
        with pytest.raises(Crash):
            backfill(dying(ports, "put", When.BEFORE), OWNER, job.id, hours(0, 4), key=KEY)
        system.run_for(2 * HOUR)
        with pytest.raises(Crash):
            backfill(dying(ports, "put", When.AFTER), OWNER, job.id, hours(0, 4), key=KEY)

        system.run_for(HOUR)

        assert [row.state for row in backfilled(system.world)] == [State.SUCCEEDED] * 4

    @pytest.mark.parametrize("overlap", [OverlapPolicy.ALLOW, OverlapPolicy.SKIP])
    def test_a_call_that_is_frozen_before_its_write_has_the_sweep_look(
        self, system: System, overlap: OverlapPolicy
    ) -> None:
        """P7: its rows lie where the sweep has been by then, and the first message is lost."""
        job = created(system.ports, new_job(schedule=cron("0 * * * *"), overlap=overlap)).job
        assert job is not None
        write = "put" if overlap is OverlapPolicy.ALLOW else "join"

        def freeze(call: Call, when: When) -> None:
            if call.method == write and when is When.BEFORE:
                system.run_for(5 * MINUTE)

        made = backfill(interposed(system.ports, freeze), OWNER, job.id, hours(1, 3)).rows
        system.world.queue.purge()
        system.run_for(20 * MINUTE)

        assert len(made) == 2
        assert {row.id for row in made} == {run.execution_id for run in system.runs}


def dying(ports: Ports, method: str, at: When) -> Ports:
    def hook(call: Call, when: When) -> None:
        if (call.method, when) == (method, at):
            raise Crash

    return interposed(ports, hook)


def is_backfill(system: System, id: ExecutionId) -> bool:
    return system.world.tables.executions[id].trigger is Trigger.BACKFILL


def test_a_thousand_slots_are_kept_with_a_key_in_far_less_than_an_item_holds(
    world: MemoryWorld, ports: Ports
) -> None:
    often = created(ports, new_job(schedule=every("1 minute")))
    asked = Asked(
        start=ports.clock.now() - 1000 * MINUTE,
        end=ports.clock.now(),
        most=limits.BACKFILL_MAX_SLOTS,
    )

    made = backfill(ports, OWNER, often.job_id, asked, key=KEY)

    (record,) = world.tables.keys.values()
    assert len(made.rows) == 1000
    assert len(record.answer) < 60_000
