"""Nobody asks, and still it is told what was missed; and a chain that died goes on."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from unittest.mock import patch

import pytest

from lamplighter.core.buckets import (
    ExecutionId,
    before,
    through,
    watch_place,
    watch_position,
)
from lamplighter.core.catch_up import CatchUp
from lamplighter.core.lease import Grant, Kind, Work
from lamplighter.core.lifecycle import State
from lamplighter.core.limits import (
    DYNAMODB_BATCH_GET,
    LEDGER_SLOTS,
    WATCH_AGAIN,
    WATCH_EVERY,
    WATCH_FIRST,
    WATCH_PARTS,
)
from lamplighter.core.model import (
    Execution,
    Job,
    MisfirePolicy,
    OverlapPolicy,
    Watch,
)
from lamplighter.core.schedule import parse, read_record
from lamplighter.core.timing import line
from lamplighter.core.watching import first_watch
from lamplighter.memory import MemoryWorld, VirtualClock
from lamplighter.ports import Ports
from lamplighter.services import manage, watch
from lamplighter.services.cancel import cancel
from lamplighter.services.submit import ScheduleMaker
from lamplighter.services.trigger import trigger
from lamplighter.sim.faults import interposed
from lamplighter.sim.invariants import violations
from lamplighter.sim.system import System
from tests.services.test_completeness import forget, ledger, lose, outage, slots_of
from tests.support.jobs import OWNER, created, cron, every, new_job

SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
START = datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)
# A visit comes within two minutes of the watch's own, the first of a job a quarter later.
STATED = WATCH_EVERY + 2 * MINUTE
FIRST = WATCH_FIRST + STATED


def a_system() -> System:
    system = System(world=MemoryWorld(clock=VirtualClock(START), shards=4, partitions=1))
    system.run_for(MINUTE)
    return system


def a_job(
    system: System,
    schedule: ScheduleMaker | None = None,
    *,
    misfire: MisfirePolicy = MisfirePolicy.FIRE_ONCE,
    catch_up: CatchUp | None = None,
    overlap: OverlapPolicy = OverlapPolicy.ALLOW,
) -> Job:
    new = new_job(
        schedule=schedule or every("1 minute"), misfire=misfire, catch_up=catch_up, overlap=overlap
    )
    job = created(system.ports, new).job
    assert job is not None
    return job


def watches(system: System, job: Job) -> Sequence[Watch]:
    """Those that no visit has come to."""
    swept = system.world.now() - 2 * MINUTE
    return [
        row
        for row in system.world.tables.pointers.values()
        if isinstance(row, Watch) and row.job_id == job.id and row.at > swept
    ]


def told(system: System) -> tuple[int, int]:
    events = system.world.counts.events
    return events["missed"], events["recovered"]


def armed(system: System, job: Job) -> Sequence[Execution]:
    rows = system.world.tables.executions.values()
    return [row for row in rows if row.job_id == job.id and row.state is State.SCHEDULED]


def kill(system: System, job: Job) -> None:
    """Lose all that was armed, and its messages: nothing of the job is due any more."""
    lose(system, job, *(row.scheduled_for for row in armed(system, job)))


def visit(system: System, job: Job, *, since: datetime | None = None) -> None:
    """Look at a job's ledger now, whenever its watch is due."""
    latest = max(watches(system, job), key=lambda one: one.at)
    watch.visit(system.ports, replace(latest, since=since or latest.since))


class TestAHealthyJob:
    @pytest.mark.parametrize("overlap", [OverlapPolicy.ALLOW, OverlapPolicy.SKIP])
    @pytest.mark.parametrize("misfire", MisfirePolicy)
    def test_is_told_nothing_of(self, misfire: MisfirePolicy, overlap: OverlapPolicy) -> None:
        system = a_system()
        job = a_job(system, misfire=misfire, overlap=overlap)

        system.run_for(FIRST + 2 * STATED)

        assert told(system) == (0, 0)
        (ahead,) = watches(system, job)
        assert job.since < ahead.since < ahead.at

    def test_has_its_watch_before_it_is_answered(self) -> None:
        """S0-S2: how far a job's slots were materialized is looked at from its creation on."""
        system = a_system()

        job = a_job(system)

        assert watches(system, job) == [first_watch(job, system.world.now())]

    def test_costs_a_look_at_its_job_one_row_and_the_slots_of_an_hour(self) -> None:
        system = a_system()
        job = a_job(system)
        system.run_for(HOUR)
        calls: list[str] = []
        hooked = interposed(
            system.ports,
            lambda call, when: (
                calls.append(f"{call.port}.{call.method}") if when == "before" else None
            ),
        )

        watch.visit(hooked, watches(system, job)[0])

        assert calls.count("executions.point") == calls.count("jobs.get") == 1
        assert calls.count("executions.get") == 1
        assert calls.count("executions.get_many") <= 3
        assert not {call for call in calls if "put" in call or "send" in call}

    def test_that_is_new_is_left_to_whoever_is_making_it(self) -> None:
        """Its first slots are put and sent one after the other; a crash is for the sweep."""
        system = a_system()
        job = a_job(system)
        kill(system, job)

        visit(system, job)

        assert told(system) == (0, 0)
        assert armed(system, job) == []

    def test_whose_next_slot_its_owner_cancelled_is_alive(self) -> None:
        system = a_system()
        job = a_job(system, cron("0 12 * * *"))
        system.run_for(HOUR)
        (upcoming,) = armed(system, job)
        cancel(system.ports, OWNER, upcoming.id)
        # Even once that is forgotten, long before its time.
        lose(system, job, upcoming.scheduled_for)

        visit(system, job)

        assert told(system) == (0, 0)
        assert [row.scheduled_for for row in armed(system, job)] == [upcoming.scheduled_for + DAY]

    @pytest.mark.parametrize("hours", [-1, 1])
    def test_that_was_armed_by_other_zones_is_alive(self, hours: int) -> None:
        """Its row lies where the slot was; one more would run that day twice."""
        system = a_system()
        job = a_job(system, cron("0 12 * * *", "Europe/Berlin"))
        (row,) = armed(system, job)
        lose(system, job, row.scheduled_for)
        elsewhere = job.occurrence(
            row.scheduled_for + hours * HOUR, now=job.since, sent_directly=False
        )
        system.world.ports().executions.put([elsewhere])
        system.run_for(HOUR)

        visit(system, job)

        assert told(system) == (0, 0)
        assert armed(system, job) == [elsewhere]


class TestADeadChain:
    @pytest.mark.parametrize("overlap", [OverlapPolicy.ALLOW, OverlapPolicy.SKIP])
    @pytest.mark.parametrize("misfire", MisfirePolicy)
    def test_is_found_and_goes_on_as_its_policy_says(
        self, misfire: MisfirePolicy, overlap: OverlapPolicy
    ) -> None:
        """S0-S1, S2-M2: no row of the job is due any more, and still it is found."""
        system = a_system()
        job = a_job(system, misfire=misfire, overlap=overlap, catch_up=CatchUp(most=5))
        system.run_for(FIRST)
        kill(system, job)
        died_at = system.world.now()

        system.run_until(died_at + STATED)

        missed, recovered = told(system)
        assert 0 < missed <= STATED / MINUTE
        assert recovered >= 1
        assert armed(system, job)
        before = len(system.runs)
        system.run_for(30 * MINUTE)
        assert len(system.runs) - before >= 29
        assert [*violations(system)] == []
        # What was missed is told as what the policy made of it.
        assert {outcome for outcome, _ in ledger(system, job.id)} <= {
            "FIRED",
            "SKIPPED",
            "PENDING",
        }

    def test_is_mended_once_and_told_once(self) -> None:
        system = a_system()
        job = a_job(system)
        system.run_for(FIRST)
        kill(system, job)
        system.run_for(STATED)
        first = told(system)

        system.run_for(5 * HOUR)

        assert told(system) == first

    def test_makes_up_for_what_a_policy_runs_each_slot_once(self) -> None:
        """S0-S4: what is planned twice has one id, and one row."""
        system = a_system()
        job = a_job(system, misfire=MisfirePolicy.FIRE_ALL)
        system.run_for(FIRST)
        kill(system, job)
        system.run_for(STATED + 10 * MINUTE)

        ran = [run.execution_id for run in system.runs]

        assert len(ran) == len({*ran})
        slots = slots_of(job, START, system.world.now() - 5 * MINUTE)
        assert {job.occurrence_id(slot) for slot in slots} <= {*ran}

    def test_of_a_job_that_is_seldom_due_is_mended_before_anything_is_missed(self) -> None:
        system = a_system()
        job = a_job(system, cron("0 9 1 7 *"))
        kill(system, job)
        system.run_for(HOUR)

        visit(system, job)

        assert told(system) == (0, 1)
        (row,) = armed(system, job)
        assert row.scheduled_for == datetime(2026, 7, 1, 9, tzinfo=UTC)
        assert [*violations(system)] == []

    def test_whose_last_run_is_forgotten_does_not_run_it_again(self) -> None:
        """Executions are kept for a week; what was accounted for before that did run."""
        system = a_system()
        job = a_job(system, cron("0 3 * * *"), catch_up=CatchUp(window=60 * DAY))
        system.run_for(4 * HOUR)
        (ran,) = system.runs
        kill(system, job)
        forget(system, ran.execution_id)

        visit(system, job, since=system.world.now() - 10 * MINUTE)

        (row,) = armed(system, job)
        assert row.scheduled_for == ran.run_at + DAY
        assert told(system) == (0, 1)

    def test_goes_on_behind_what_ran_beside_it_meanwhile(self) -> None:
        """P16: a run by hand that found nothing armed is the tail, which the next follows."""
        system = a_system()
        system.lasts = lambda claimed: 40 * MINUTE if claimed.execution.is_additional else SECOND
        job = a_job(system, every("30 minutes"), overlap=OverlapPolicy.SKIP)
        system.run_for(FIRST)
        kill(system, job)
        beside = trigger(system.ports, OWNER, job.id)
        system.run_for(MINUTE)

        visit(system, job)

        (row,) = armed(system, job)
        assert row.predecessor == getattr(beside, "id", None)
        system.run_for(HOUR)
        assert [*violations(system)] == []

    def test_that_has_no_row_left_goes_on_from_what_was_not_accounted_for(self) -> None:
        """What lies before that may have run, and be forgotten: it is not run again."""
        system = a_system()
        job = a_job(system, misfire=MisfirePolicy.FIRE_ALL)
        system.run_for(FIRST + STATED)
        for id in [*system.world.tables.executions]:
            forget(system, id)
        since = max(one.since for one in watches(system, job))
        before = len(system.runs)

        visit(system, job)
        system.run_for(10 * MINUTE)

        again = sorted(run.run_at for run in system.runs[before:])
        assert again[0] > since
        assert again[-1] > system.world.now() - 2 * MINUTE


class TestALostRow:
    @pytest.mark.parametrize("number", [1, 3])
    def test_in_the_middle_is_told_once_by_the_next_visit(self, number: int) -> None:
        system = a_system()
        job = a_job(system)
        system.run_for(FIRST)
        slots = slots_of(job, START, system.world.now() - 10 * MINUTE)
        since = max(one.since for one in watches(system, job))
        lost = [slot for slot in slots if slot > since][:number]
        assert len(lost) == number
        lose(system, job, *lost)

        system.run_for(3 * STATED)

        assert told(system) == (number, 0)


class TestAnOutage:
    @pytest.mark.parametrize("duration", [10 * MINUTE, DAY], ids=["ten minutes", "a day"])
    @pytest.mark.parametrize("misfire", MisfirePolicy)
    def test_alarms_nobody_of_what_waits_for_its_end(
        self, misfire: MisfirePolicy, duration: timedelta
    ) -> None:
        """S1-O3: while the backlog is pending, and once it was made up for or passed over."""
        system = a_system()
        job = a_job(system, misfire=misfire, catch_up=CatchUp(most=20))
        system.run_for(FIRST)
        outage(system, duration)
        assert "MISSED" not in {outcome for outcome, _ in ledger(system, job.id)}
        for _ in range(8):
            system.run_for(10 * MINUTE)
            found = ledger(system, job.id, start=system.world.now() - duration - HOUR)
            assert "MISSED" not in {outcome for outcome, _ in found}

        system.run_for(2 * STATED)

        assert system.world.counts.events["missed"] == 0
        assert len(watches(system, job)) == 1
        assert [*violations(system)] == []

    def test_of_workers_alarms_nobody_of_a_miss(self) -> None:
        """What waits in its lane is late, and counted as that."""
        system = a_system()
        a_job(system)
        system.run_for(FIRST)
        with patch.object(type(system), "_process", lambda *_: None):
            system.run_for(2 * STATED)

        assert system.world.counts.events["missed"] == 0


class TestAJobThatChanges:
    def test_is_watched_from_each_change_on_and_by_one(self) -> None:
        system = a_system()
        job = a_job(system, cron("0 9 1 7 *"))
        often = parse(rate="rate(1 minute)", anchor=START, seed=job.id)

        manage.edit(system.ports, OWNER, job.id, lambda old: replace(old, schedule=often))
        system.run_for(FIRST)
        edited = system.world.tables.jobs[job.id]
        kill(system, edited)
        system.run_for(STATED)

        assert told(system)[1] >= 1
        assert [*violations(system)] == []

    def test_twice_in_a_row_has_one_watch_all_the_same(self) -> None:
        system = a_system()
        job = a_job(system)
        system.run_for(HOUR)
        astray = watch_place(job.id, system.world.now(), WATCH_AGAIN)
        second = replace(
            watches(system, job)[0], position=watch_position(job.id, astray), at=astray
        )
        system.ports.executions.point([second])
        assert len(watches(system, job)) == 2

        system.run_for(2 * STATED)

        assert len(watches(system, job)) == 1
        assert told(system) == (0, 0)

    def test_is_watched_no_more_while_it_is_paused_and_again_when_it_is_resumed(self) -> None:
        system = a_system()
        job = a_job(system)
        system.run_for(FIRST)
        manage.pause(system.ports, OWNER, job.id)
        system.run_for(2 * STATED)
        paused = watches(system, job)

        manage.resume(system.ports, OWNER, job.id)

        assert paused == []
        assert len(watches(system, job)) == 1
        system.run_for(3 * STATED)
        assert told(system) == (0, 0)
        assert len(watches(system, job)) == 1

    def test_that_lost_a_row_just_before_a_pause_is_told_of(self) -> None:
        system = a_system()
        job = a_job(system)
        system.run_for(FIRST)
        manage.pause(system.ports, OWNER, job.id)
        lose(system, job, slots_of(job, START, system.world.now())[-1])

        system.run_for(2 * STATED)

        assert told(system) == (1, 0)

    @pytest.mark.parametrize("how", ["deleted", "ended"])
    def test_is_watched_no_more_once_it_is_over(self, how: str) -> None:
        system = a_system()
        if how == "deleted":
            job = a_job(system)
            system.run_for(5 * MINUTE)
            manage.delete(system.ports, OWNER, job.id)
        else:
            job = a_job(system, every("1 minute", end_at=START + HOUR))

        system.run_for(HOUR + 2 * STATED)

        assert watches(system, job) == []
        assert told(system) == (0, 0)

    def test_that_had_ended_is_watched_when_an_edit_has_it_go_on(self) -> None:
        system = a_system()
        job = a_job(system, every("1 minute", end_at=START + HOUR))
        system.run_for(HOUR + 2 * STATED)
        on = parse(rate="rate(1 minute)", anchor=START, seed=job.id)

        manage.edit(system.ports, OWNER, job.id, lambda old: replace(old, schedule=on))

        assert len(watches(system, job)) == 1

    def test_that_cannot_be_read_is_told_of_once_it_can(self) -> None:
        system = a_system()
        job = a_job(system)
        system.run_for(FIRST)
        tables = system.world.tables
        unread = read_record({**job.schedule.to_record(), "timezone": "Nowhere/Else"})
        tables.jobs[job.id] = replace(job, schedule=unread)
        before = max(one.since for one in watches(system, job))

        visit(system, job)

        assert max(one.since for one in watches(system, job)) == before
        assert told(system)[0] == 0

    def test_that_was_never_made_leaves_a_watch_that_ends(self) -> None:
        """A crash between the watch and the job: nobody was answered."""
        system = a_system()
        job = a_job(system)
        del system.world.tables.jobs[job.id]

        system.run_for(FIRST + STATED)

        assert watches(system, job) == []
        assert told(system) == (0, 0)


class TestManySlots:
    """A slot a second is 3,600 an hour: what one visit reads is bounded, the rest comes soon."""

    def a_dense_job(self, system: System, hours: int, lost: Collection[int]) -> Job:
        """All of its slots have run; but those are gone."""
        job = a_job(system, every("1 second"))
        kill(system, job)
        system.ticking = False
        system.world.pass_time(hours * HOUR)
        system.ticking = True
        end = system.world.now() + 10 * MINUTE
        put = [
            replace(
                job.occurrence(slot, now=slot, sent_directly=False),
                state=State.SUCCEEDED if slot < end - 2 * MINUTE else State.SCHEDULED,
                first_started_at=slot,
                finished_at=slot,
            )
            for number, slot in enumerate(job.schedule.between(job.since + SECOND, end))
            if number not in lost
        ]
        system.world.ports().executions.put(put)
        dispatched(system)
        return job

    def test_are_told_in_several_visits_and_each_once(self) -> None:
        system = a_system()
        lost = {10, 3000, 3001, 9000, 10_000}
        job = self.a_dense_job(system, 3, lost)
        system.world.queue.purge()
        reads: list[int] = []
        ports = counting(system, reads)
        at = [first_watch(job, job.since)]

        while True:
            reads.clear()
            watch.visit(ports, at[-1])
            assert sum(reads) <= WATCH_PARTS * (LEDGER_SLOTS + DYNAMODB_BATCH_GET)
            following = max(watches(system, job), key=lambda one: one.at)
            at.append(following)
            if following.rest is None:
                break
            assert following.since == job.since
            system.world.clock.move_to(following.at + 2 * MINUTE)
            dispatched(system)

        # The first one left a rest, from which the other went on.
        assert [one.rest is None for one in at] == [True, False, True]
        assert told(system)[0] == len(lost)
        assert at[-1].since > job.since + 2 * HOUR


def dispatched(system: System) -> None:
    """Have dispatch be where it would have come to by now."""
    control, now = system.ports.control, system.world.now()
    work = Work(partition=0, kind=Kind.DISPATCH)
    grant = control.acquire(work, owner="test", now=now, until=now, start=before(START))
    assert isinstance(grant, Grant)
    control.advance(grant, watermark=through(line(now)), intent=None, until=now)


def counting(system: System, reads: list[int]) -> Ports:
    real = system.world.ports()
    executions = real.executions

    class Counting:
        def __getattr__(self, name: str) -> object:
            return getattr(executions, name)

        def get_many(self, ids: Collection[ExecutionId], *, strongly: bool = False) -> object:
            reads.append(len(ids))
            return executions.get_many(ids, strongly=strongly)

    return replace(real, executions=Counting())  # type: ignore[arg-type]
