"""The completeness ledger: each slot that was planned, once, with what became of it."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lamplighter.core.buckets import ExecutionId, JobId, body_of
from lamplighter.core.catch_up import CatchUp
from lamplighter.core.completeness import Outcome
from lamplighter.core.errors import Conflict, NotFound, Rejected
from lamplighter.core.lifecycle import Event
from lamplighter.core.model import Job, MisfirePolicy, OnDeadline, OverlapPolicy, Owner, Watch
from lamplighter.core.outcome import Failed, ended
from lamplighter.core.retry import Failure, Kind
from lamplighter.core.schedule import parse, read_record
from lamplighter.memory import MemoryWorld, VirtualClock
from lamplighter.ports import Ports
from lamplighter.services import completeness, manage
from lamplighter.services.cancel import cancel
from lamplighter.services.completeness import Account, account
from lamplighter.sim.faults import (
    Call,
    Crash,
    Hook,
    When,
    calls_of,
    every_crash,
    every_strike,
    interposed,
    pause_at,
    survives,
)
from lamplighter.sim.system import System
from tests.support import partition_work
from tests.support.examples import ALWAYS_THE_SAME, examples
from tests.support.jobs import OWNER, created, every, new_job
from tests.support.strikes import some_of

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
START = datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)
Counts = dict[tuple[str, str], int]


def a_system() -> System:
    system = System(world=MemoryWorld(clock=VirtualClock(START), shards=4, partitions=1))
    system.run_for(MINUTE)
    return system


def a_job(
    system: System,
    *,
    misfire: MisfirePolicy = MisfirePolicy.FIRE_ONCE,
    catch_up: CatchUp | None = None,
    overlap: OverlapPolicy = OverlapPolicy.ALLOW,
    deadline: timedelta | None = None,
    on_deadline: OnDeadline = OnDeadline.DEAD_LETTER,
    end_at: datetime | None = None,
) -> Job:
    job = created(
        system.ports,
        new_job(
            schedule=every("1 minute", end_at=end_at),
            misfire=misfire,
            catch_up=catch_up,
            overlap=overlap,
            deadline=deadline,
            on_deadline=on_deadline,
        ),
    ).job
    assert job is not None
    return job


def parts(
    system: System, id: JobId, *, start: datetime = START, end: datetime | None = None
) -> Iterator[Account]:
    """A client's loop: it has to end."""
    after = None
    for _ in range(1000):
        part = account(
            system.ports, OWNER, id, start=start, end=end or system.world.now(), after=after
        )
        yield part
        after = part.next
        if after is None:
            return
    raise AssertionError("the walk does not end")


def ledger(
    system: System, id: JobId, *, start: datetime = START, end: datetime | None = None
) -> Counts:
    counted: Counter[tuple[str, str]] = Counter()
    for part in parts(system, id, start=start, end=end):
        assert part.count() == sum(part.count(outcome) for outcome in Outcome)
        for group in part.groups:
            assert start <= group.first <= group.last
            counted[group.entry.outcome.value, group.entry.reason] += group.count
    return dict(counted)


def lose(system: System, job: Job, *slots: datetime) -> None:
    for slot in slots:
        forget(system, job.occurrence_id(slot))


def forget(system: System, id: ExecutionId) -> None:
    """Remove a row from the table, as nothing here ever does."""
    tables = system.world.tables
    del tables.executions[id]
    for positions in tables.buckets.values():
        positions.discard(body_of(id))


def unwatched(system: System) -> None:
    """Take away what would find a dead chain, and mend it."""
    tables = system.world.tables
    for position, row in [*tables.pointers.items()]:
        if isinstance(row, Watch):
            del tables.pointers[position]
            for positions in tables.buckets.values():
                positions.discard(position)


def slots_of(job: Job, start: datetime, end: datetime) -> Sequence[datetime]:
    return [*job.schedule.between(max(start, job.since + SECOND), end)]


def dies_after(method: str) -> Hook:
    def die(call: Call, when: When) -> None:
        if call.method == method and when is When.AFTER:
            raise Crash

    return die


def outage(system: System, duration: timedelta) -> None:
    system.ticking = False
    system.run_for(duration)
    system.ticking = True


class TestAHealthyJob:
    def test_fired_all_its_slots(self) -> None:
        system = a_system()
        job = a_job(system)
        system.run_for(30 * MINUTE)

        assert ledger(system, job.id) == {("FIRED", "SUCCEEDED"): 29}

    def test_is_told_by_status_how_its_runs_ended(self) -> None:
        system = a_system()
        failure = Failure(kind=Kind.PERMANENT, type="OSError", message="no route")
        system.handler = lambda _: Failed(failure=failure)
        job = a_job(system)
        system.run_for(5 * MINUTE + SECOND)

        assert ledger(system, job.id) == {("FIRED", "FAILED"): 5}

    def test_has_what_is_not_due_pending_however_far_ahead(self) -> None:
        system = a_system()
        job = a_job(system)
        system.run_for(10 * MINUTE + SECOND)

        found = ledger(system, job.id, end=system.world.now() + HOUR)

        assert found.pop(("FIRED", "SUCCEEDED")) == 10
        assert {outcome for outcome, _ in found} == {"PENDING"}
        assert sum(found.values()) == 60

    @pytest.mark.parametrize("end", [5, 10])
    def test_is_asked_for_a_range_in_its_middle(self, end: int) -> None:
        system = a_system()
        job = a_job(system)
        system.run_for(20 * MINUTE)

        found = ledger(system, job.id, start=job.since + MINUTE, end=job.since + end * MINUTE)

        assert found == {("FIRED", "SUCCEEDED"): end - 1}

    def test_tells_nobody_of_a_miss(self) -> None:
        system = a_system()
        job = a_job(system)
        system.run_for(20 * MINUTE)

        ledger(system, job.id)

        assert system.world.counts.events["missed"] == 0


class TestALostRow:
    @pytest.mark.parametrize("misfire", MisfirePolicy)
    @pytest.mark.parametrize("number", [1, 2, 8], ids="{} of them".format)
    def test_is_missed_in_the_middle_of_a_healthy_chain(
        self, misfire: MisfirePolicy, number: int
    ) -> None:
        system = a_system()
        job = a_job(system, misfire=misfire)
        system.run_for(30 * MINUTE)
        gone = slots_of(job, START + 10 * MINUTE, START + (10 + number) * MINUTE)
        lose(system, job, *gone)

        (part,) = parts(system, job.id)

        (missed,) = [one for one in part.groups if one.entry.outcome is Outcome.MISSED]
        assert (missed.count, missed.first, missed.last) == (number, gone[0], gone[-1])
        assert missed.entry.reason == "no execution"
        assert part.count() == 29
        assert system.world.counts.events["missed"] == number

    @pytest.mark.parametrize("edge", ["first", "last", "before the end"])
    def test_is_missed_at_the_edges_of_a_range_and_of_a_job(self, edge: str) -> None:
        system = a_system()
        job = a_job(system)
        system.run_for(30 * MINUTE)
        slots = slots_of(job, START, system.world.now())
        start, end = slots[5], slots[20]
        gone = {"first": start, "last": slots[19], "before the end": slots[18]}[edge]
        lose(system, job, gone)

        found = ledger(system, job.id, start=start, end=end)

        assert found == {("FIRED", "SUCCEEDED"): 14, ("MISSED", "no execution"): 1}

    def test_is_missed_as_the_very_first_of_a_job(self) -> None:
        system = a_system()
        job = a_job(system)
        system.run_for(10 * MINUTE)
        lose(system, job, slots_of(job, START, system.world.now())[0])

        assert ledger(system, job.id)["MISSED", "no execution"] == 1

    def test_is_pending_until_it_is_three_minutes_late(self) -> None:
        system = a_system()
        job = a_job(system)
        system.run_for(10 * MINUTE + SECOND)
        gone = slots_of(job, START, system.world.now())[-1]
        lose(system, job, gone)

        assert ledger(system, job.id)["PENDING", "just due"] == 1

        system.run_until(gone + 181 * SECOND)

        assert ledger(system, job.id)["MISSED", "no execution"] == 1

    def test_takes_the_rest_of_its_chain_with_it_where_it_was_the_last(self) -> None:
        system = a_system()
        job = a_job(system)
        system.run_for(10 * MINUTE)
        armed = [row for row in system.world.tables.executions.values() if not row.is_final]
        unwatched(system)
        lose(system, job, *(row.scheduled_for for row in armed))
        system.run_for(20 * MINUTE)

        found = ledger(system, job.id)

        assert found["MISSED", "no execution"] > 10
        assert sum(found.values()) == 29

    @pytest.mark.parametrize("misfire", MisfirePolicy)
    def test_is_passed_over_with_the_rest_once_that_is_decided_after_the_job_s_end(
        self, misfire: MisfirePolicy
    ) -> None:
        """No row comes after them to tell when that was: it is noted on the last.

        As if an edit's API had died before it armed what follows the row that it sent.
        """
        system = a_system()
        catch_up = CatchUp(window=HOUR)
        job = a_job(system, misfire=misfire, catch_up=catch_up, end_at=START + 21 * MINUTE)
        system.run_for(5 * MINUTE + SECOND)
        rows = system.world.tables.executions
        lose(system, job, *(row.scheduled_for for row in rows.values() if not row.is_final))
        last = max(rows.values(), key=lambda row: row.scheduled_for)
        rows[last.id] = replace(last, sent_directly=True)
        outage(system, 2 * HOUR)

        before = ledger(system, job.id)
        assert before.pop(("FIRED", "SUCCEEDED")) == 5
        assert {*before} == {("MISSED", "no execution"), ("PENDING", "not dispatched")}

        system.run_for(HOUR)

        reason = "misfire" if misfire is MisfirePolicy.SKIP else "catch-up window"
        assert ledger(system, job.id) == {("FIRED", "SUCCEEDED"): 5, ("SKIPPED", reason): 15}
        assert [row.id for row in rows.values() if row.last_since] == [last.id]
        assert system.world.counts.events["passed_over"] == 15

    def test_that_was_a_chain_s_last_is_told_without_a_look_below_the_range(self) -> None:
        system = a_system()
        job = a_job(system)
        system.run_for(10 * MINUTE)
        armed = [row for row in system.world.tables.executions.values() if not row.is_final]
        unwatched(system)
        lose(system, job, *(row.scheduled_for for row in armed))
        system.run_for(2000 * MINUTE)
        now = system.world.now()

        (part,) = parts(system, job.id, start=now - 10 * MINUTE, end=now - 4 * MINUTE)

        assert (part.count(), part.count(Outcome.MISSED)) == (6, 6)

    def test_is_told_from_what_waits_in_its_lane_however_late(self) -> None:
        """What is dispatched while no worker takes it has a row, which the sweep looks after."""
        system = a_system()
        job = a_job(system)
        system.run_for(10 * MINUTE + SECOND)
        with patch.object(type(system), "_process", lambda *_: None):
            system.run_for(10 * MINUTE)

        found = ledger(system, job.id)

        assert found == {("FIRED", "SUCCEEDED"): 10, ("PENDING", "QUEUED"): 10}


class TestAnOutage:
    @pytest.mark.parametrize("misfire", MisfirePolicy)
    def test_is_pending_while_it_lasts(self, misfire: MisfirePolicy) -> None:
        """S1-O3: what waits for dispatch to come back is said to, and alarms nobody."""
        system = a_system()
        job = a_job(system, misfire=misfire)
        system.run_for(5 * MINUTE)
        outage(system, 30 * MINUTE)

        found = ledger(system, job.id)

        assert found["PENDING", "SCHEDULED"] == 1
        assert found["PENDING", "not dispatched"] > 15
        assert sum(found.values()) == 34
        assert system.world.counts.events["missed"] == 0

    @pytest.mark.parametrize(
        ("misfire", "reason", "catch_up"),
        [
            (MisfirePolicy.SKIP, "misfire", CatchUp()),
            (MisfirePolicy.FIRE_ONCE, "coalesced", CatchUp()),
            (MisfirePolicy.FIRE_ONCE, "coalesced", CatchUp(threshold=10 * MINUTE)),
            (MisfirePolicy.FIRE_ONCE, "coalesced", CatchUp(threshold=SECOND)),
            (MisfirePolicy.FIRE_ALL, "catch-up cap", CatchUp(most=3)),
            (MisfirePolicy.FIRE_ALL, "catch-up cap", CatchUp(most=1)),
            (MisfirePolicy.FIRE_ALL, "catch-up window", CatchUp(window=5 * MINUTE)),
        ],
    )
    def test_is_accounted_for_once_it_is_over(
        self, misfire: MisfirePolicy, reason: str, catch_up: CatchUp
    ) -> None:
        system = a_system()
        job = a_job(system, misfire=misfire, catch_up=catch_up)
        system.run_for(5 * MINUTE)
        outage(system, 30 * MINUTE)
        system.run_for(30 * MINUTE)

        found = ledger(system, job.id)

        assert {outcome for outcome, _ in found} - {"EXPIRED"} == {"FIRED", "SKIPPED"}
        assert found["SKIPPED", reason] > 10
        assert sum(found.values()) == 64
        assert system.world.counts.events["missed"] == 0

    def test_is_accounted_for_before_the_next_slot_comes(self) -> None:
        """What was armed after it lies far beyond the line, and tells when that was decided."""
        system = a_system()
        schedule = every("20 minutes")
        made = created(system.ports, new_job(schedule=schedule, misfire=MisfirePolicy.SKIP))
        system.run_for(10 * MINUTE)
        outage(system, 55 * MINUTE)
        system.run_for(5 * MINUTE)

        assert ledger(system, made.job_id) == {("SKIPPED", "misfire"): 3}

    def test_that_is_made_up_for_whole_fired_all(self) -> None:
        system = a_system()
        job = a_job(system, misfire=MisfirePolicy.FIRE_ALL)
        system.run_for(5 * MINUTE)
        outage(system, 30 * MINUTE)
        system.run_for(30 * MINUTE)

        assert ledger(system, job.id) == {("FIRED", "SUCCEEDED"): 64}

    @pytest.mark.parametrize("number", [1, 2, 5])
    def test_a_row_of_a_catch_up_that_is_lost_is_missed_and_no_other(self, number: int) -> None:
        system = a_system()
        catch_up = CatchUp(most=6)
        job = a_job(system, misfire=MisfirePolicy.FIRE_ALL, catch_up=catch_up)
        system.run_for(5 * MINUTE)
        outage(system, 30 * MINUTE)
        system.run_for(30 * MINUTE)
        before = ledger(system, job.id)
        caught_up = sorted(
            row.scheduled_for for row in system.world.tables.executions.values() if row.caught_up
        )
        lose(system, job, *caught_up[:number])

        found = ledger(system, job.id)

        assert found["MISSED", "no execution"] == number
        assert found["SKIPPED", "catch-up cap"] == before["SKIPPED", "catch-up cap"]

    @pytest.mark.parametrize("misfire", MisfirePolicy)
    @pytest.mark.parametrize("slots", [1, 3, 7])
    def test_is_accounted_for_the_same_in_parts_of_any_size(
        self, misfire: MisfirePolicy, slots: int
    ) -> None:
        system = a_system()
        job = a_job(system, misfire=misfire, catch_up=CatchUp(most=3, threshold=5 * MINUTE))
        system.run_for(5 * MINUTE)
        outage(system, 30 * MINUTE)
        system.run_for(10 * MINUTE)
        lose(system, job, slots_of(job, START, START + 4 * MINUTE)[1])
        whole = ledger(system, job.id)

        pieces = ledger_by(system, job.id, slots)

        assert pieces == whole
        assert whole["MISSED", "no execution"] == 1

    @pytest.mark.parametrize("misfire", MisfirePolicy)
    def test_is_accounted_for_by_a_range_that_lies_wholly_in_it(
        self, misfire: MisfirePolicy
    ) -> None:
        system = a_system()
        job = a_job(system, misfire=misfire, catch_up=CatchUp(most=2, threshold=5 * MINUTE))
        system.run_for(5 * MINUTE)
        outage(system, 60 * MINUTE)
        system.run_for(10 * MINUTE)
        start = START + 30 * MINUTE

        for size in (1000, 5):
            with patch.object(completeness, "LEDGER_SLOTS", size):
                found = ledger_by(system, job.id, size, start=start, end=start + 10 * MINUTE)

            assert {outcome for outcome, _ in found} == {"SKIPPED"}
            assert sum(found.values()) == 10


class TestADispatcherThatDies:
    """Whatever a crash or a stall in a recovery leaves behind, no slot is called missed for it."""

    @pytest.mark.strikes
    @pytest.mark.parametrize("misfire", MisfirePolicy)
    def test_anywhere_in_a_recovery_has_nothing_missed(self, misfire: MisfirePolicy) -> None:
        for strike in some_of(every_crash(calls_of(late(misfire)[0].ports, dispatcher))):
            system, job = late(misfire)
            survives(system.ports, dispatcher, strike)
            # The page is done again minutes later, as of the instant of its first decision.
            system.world.clock.sleep(7 * MINUTE)
            system.run_for(20 * MINUTE)

            found = ledger(system, job.id)

            assert "MISSED" not in {outcome for outcome, _ in found}, strike

    @pytest.mark.strikes
    @pytest.mark.parametrize("misfire", MisfirePolicy)
    def test_or_stalls_there_while_another_goes_on(self, misfire: MisfirePolicy) -> None:
        calls = calls_of(late(misfire)[0].ports, dispatcher)
        for strike in some_of(every_strike(calls, whens=(When.BEFORE, When.AFTER))):
            system, job = late(misfire)
            stall = pause_at(strike, partial(system.run_for, 5 * MINUTE))
            dispatcher(interposed(system.ports, stall))
            system.run_for(20 * MINUTE)

            found = ledger(system, job.id)

            assert "MISSED" not in {outcome for outcome, _ in found}, strike


def late(misfire: MisfirePolicy) -> tuple[System, Job]:
    """A job of every minute, whose dispatcher has been down for twenty."""
    system = a_system()
    job = a_job(system, misfire=misfire, catch_up=CatchUp(most=4, threshold=100 * SECOND))
    system.run_for(3 * MINUTE)
    outage(system, 20 * MINUTE)
    return system, job


def dispatcher(ports: Ports) -> object:
    return partition_work.dispatch(ports, 0, owner="doomed")


def ledger_by(
    system: System,
    id: JobId,
    slots: int,
    *,
    start: datetime = START,
    end: datetime | None = None,
) -> Counts:
    original = completeness._Walk

    def small(**given: object) -> completeness._Walk:
        return original(**given, budget=slots)  # type: ignore[arg-type]

    with patch.object(completeness, "_Walk", small):
        return ledger(system, id, start=start, end=end)


class TestWhatDidNotRun:
    def test_a_policy_against_overlap_is_named(self) -> None:
        system = a_system()
        system.lasts = lambda _: 150 * SECOND
        job = a_job(system, overlap=OverlapPolicy.SKIP)
        system.run_for(10 * MINUTE)

        found = ledger(system, job.id)

        assert found["SKIPPED", "overlap"] >= 4
        assert {outcome for outcome, _ in found} <= {"FIRED", "SKIPPED", "PENDING"}

    def test_what_its_owner_cancelled_is_told_from_what_an_edit_did(self) -> None:
        system = a_system()
        job = a_job(system)
        system.run_for(5 * MINUTE + SECOND)
        upcoming = job.next_after(system.world.now())
        assert upcoming is not None
        cancel(system.ports, OWNER, job.occurrence_id(upcoming))
        system.run_for(10 * MINUTE)

        assert ledger(system, job.id) == {
            ("FIRED", "SUCCEEDED"): 14,
            ("CANCELLED", "owner"): 1,
        }

    @pytest.mark.parametrize(
        ("on_deadline", "came_to"),
        [(OnDeadline.DEAD_LETTER, "EXPIRED"), (OnDeadline.SKIP, "SKIPPED")],
    )
    def test_a_deadline_is_named(self, on_deadline: OnDeadline, came_to: str) -> None:
        system = a_system()
        job = a_job(system, deadline=90 * SECOND, on_deadline=on_deadline)
        system.run_for(5 * MINUTE + SECOND)
        with patch.object(type(system), "_process", lambda *_: None):
            system.run_for(10 * MINUTE)
        system.run_for(10 * MINUTE)

        found = ledger(system, job.id)

        assert found[came_to, "deadline"] >= 7
        assert "MISSED" not in {outcome for outcome, _ in found}


class TestAJobThatChanges:
    def test_plans_nothing_while_it_is_paused(self) -> None:
        system = a_system()
        job = a_job(system)
        system.run_for(10 * MINUTE + SECOND)
        manage.pause(system.ports, OWNER, job.id)
        system.run_for(10 * MINUTE)
        manage.resume(system.ports, OWNER, job.id)
        system.run_for(10 * MINUTE)

        assert ledger(system, job.id) == {("FIRED", "SUCCEEDED"): 20}

    def test_goes_by_the_version_that_planned_each_slot(self) -> None:
        system = a_system()
        job = a_job(system)
        system.run_for(10 * MINUTE + SECOND)
        rarely = parse(rate="rate(5 minutes)", anchor=START, seed=job.id)
        manage.edit(system.ports, OWNER, job.id, lambda old: replace(old, schedule=rarely))
        system.run_for(20 * MINUTE)

        assert ledger(system, job.id) == {("FIRED", "SUCCEEDED"): 14}

    @pytest.mark.parametrize(("change", "reason"), [("pause", "paused"), ("edit", "edited")])
    def test_in_an_outage_has_what_was_not_dispatched_taken_back(
        self, change: str, reason: str
    ) -> None:
        system = a_system()
        job = a_job(system)
        system.run_for(5 * MINUTE)
        outage(system, 30 * MINUTE)
        if change == "pause":
            manage.pause(system.ports, OWNER, job.id)
            system.run_for(5 * MINUTE)
            manage.resume(system.ports, OWNER, job.id)
        else:
            often = parse(rate="rate(2 minutes)", anchor=START, seed=job.id)
            manage.edit(system.ports, OWNER, job.id, lambda old: replace(old, schedule=often))
        system.run_for(30 * MINUTE)

        found = ledger(system, job.id)

        assert found["CANCELLED", reason] > 20
        assert "MISSED" not in {outcome for outcome, _ in found}

    def test_is_not_told_by_what_an_earlier_version_left_behind(self) -> None:
        """The sweep had armed one slot, before those, when the next edit came."""
        system = a_system()
        job = a_job(system, overlap=OverlapPolicy.SKIP)
        system.run_for(5 * MINUTE)
        manage.edit(system.ports, OWNER, job.id, lambda old: replace(old, name="later"))
        rows, now = system.world.tables.executions, system.world.now()
        waiting = sorted((row for row in rows.values() if not row.is_final), key=lambda row: row.id)
        for row in waiting[-2:]:
            over = ended(row, Event.CANCEL, now=now, reason="its job is ACTIVE")
            rows[row.id] = replace(over, job_version=1)
        system.world.queue.purge()
        outage(system, 30 * MINUTE)
        rarely = parse(rate="rate(1 hour)", anchor=START, seed=job.id)
        manage.edit(system.ports, OWNER, job.id, lambda old: replace(old, schedule=rarely))
        system.run_for(60 * MINUTE)

        found = ledger(system, job.id)

        assert found["CANCELLED", "edited"] > 20
        assert "MISSED" not in {outcome for outcome, _ in found}

    @pytest.mark.parametrize("seconds", range(0, 60, 10))
    def test_by_an_edit_whose_process_dies_misses_no_slot(self, seconds: int) -> None:
        """The sweep goes on with the new chain, past what the earlier version has run since."""
        system = a_system()
        job = a_job(system)
        system.run_for(5 * MINUTE + seconds * SECOND)
        often = parse(rate="rate(30 seconds)", anchor=START, seed=job.id)

        with pytest.raises(Crash):
            manage.edit(
                interposed(system.ports, dies_after("revise")),
                OWNER,
                job.id,
                lambda old: replace(old, schedule=often),
            )
        system.run_for(20 * MINUTE)

        found = ledger(system, job.id)

        assert found.pop(("SKIPPED", "coalesced"), 0) <= 1
        assert found.keys() == {("FIRED", "SUCCEEDED")}

    def test_by_an_edit_whose_process_dies_and_then_a_pause_misses_no_slot(self) -> None:
        """What the earlier version has run since is not where the new chain ended."""
        system = a_system()
        job = a_job(system)
        system.run_for(5 * MINUTE)
        with pytest.raises(Crash):
            manage.edit(
                interposed(system.ports, dies_after("revise")),
                OWNER,
                job.id,
                lambda old: replace(old, name="later"),
            )
        outage(system, 8 * MINUTE)
        manage.pause(system.ports, OWNER, job.id)
        system.run_for(20 * MINUTE)

        rows = [row for row in system.world.tables.executions.values() if row.started_at]
        assert max(rows, key=lambda row: row.id).job_version == 1
        assert max(row.job_version for row in rows) == 2
        found = ledger(system, job.id)
        assert found["CANCELLED", "paused"] >= 3
        assert "MISSED" not in {outcome for outcome, _ in found}

    def test_lost_just_before_an_edit_is_missed(self) -> None:
        system = a_system()
        job = a_job(system)
        system.run_for(10 * MINUTE + SECOND)
        manage.pause(system.ports, OWNER, job.id)
        lose(system, job, *slots_of(job, START, system.world.now())[-2:])
        system.run_for(10 * MINUTE)

        assert ledger(system, job.id) == {
            ("FIRED", "SUCCEEDED"): 8,
            ("MISSED", "no execution"): 2,
        }

    def test_is_accounted_for_up_to_its_last_row_once_it_is_deleted(self) -> None:
        system = a_system()
        job = a_job(system)
        system.run_for(10 * MINUTE + SECOND)
        lose(system, job, slots_of(job, START, system.world.now())[4])
        manage.delete(system.ports, OWNER, job.id)
        system.run_for(60 * MINUTE)

        found = ledger(system, job.id)

        assert found.pop(("CANCELLED", "deleted")) in {1, 2, 3, 4, 5}
        assert found == {("FIRED", "SUCCEEDED"): 9, ("MISSED", "no execution"): 1}

    def test_has_each_slot_once_when_its_window_is_changed(self) -> None:
        system = a_system()
        job = a_job(system)
        system.run_for(10 * MINUTE + SECOND)
        wide = replace(job.schedule, flexible_window=50 * SECOND)
        manage.edit(system.ports, OWNER, job.id, lambda old: replace(old, schedule=wide))
        system.run_for(20 * MINUTE)

        found = ledger(system, job.id)

        assert sum(found.values()) == 30
        assert {outcome for outcome, _ in found} <= {"FIRED", "PENDING"}

    def test_that_cannot_be_read_counts_nothing_and_says_so(self) -> None:
        system = a_system()
        job = a_job(system)
        system.run_for(10 * MINUTE + SECOND)
        unread = read_record({**job.schedule.to_record(), "timezone": "Nowhere/Else"})
        manage.edit(system.ports, OWNER, job.id, lambda old: replace(old, name="later"))
        tables = system.world.tables
        tables.jobs[job.id] = replace(tables.jobs[job.id], schedule=unread)
        system.run_for(10 * MINUTE)

        (part,) = parts(system, job.id)

        assert (part.unreadable, part.count()) == ([2], 10)


class TestARange:
    def test_begins_no_earlier_than_executions_are_kept(self) -> None:
        system = a_system()
        hourly = created(system.ports, new_job(schedule=every("1 hour"))).job
        assert hourly is not None
        system.run_for(timedelta(days=9))
        kept = system.world.now() - timedelta(days=7)

        part = account(system.ports, OWNER, hourly.id, start=START, end=system.world.now())

        assert (part.start, part.is_cut, part.next) == (kept, True, None)
        assert part.count() == part.count(Outcome.FIRED) == 168

    def test_that_is_none_is_refused(self) -> None:
        system = a_system()
        job = a_job(system)

        with pytest.raises(Rejected, match="from: not before to"):
            account(system.ports, OWNER, job.id, start=START, end=START)

    def test_of_more_than_a_thousand_slots_is_read_in_parts(self) -> None:
        system = a_system()
        job = a_job(system)
        system.run_for(1500 * MINUTE)

        found = [*parts(system, job.id)]

        assert [part.count() > 0 for part in found] == [True, True]
        assert sum(part.count(Outcome.FIRED) for part in found) == 1499

    def test_of_somebody_elses_job_is_not_found(self) -> None:
        system = a_system()
        job = a_job(system)

        with pytest.raises(NotFound):
            account(system.ports, Owner("eve"), job.id, start=START, end=system.world.now() + HOUR)

    def test_of_a_one_off_is_a_conflict(self) -> None:
        system = a_system()
        one_off = created(system.ports, new_job()).job_id

        with pytest.raises(Conflict, match="one-off"):
            account(system.ports, OWNER, one_off, start=START, end=START + HOUR)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["run", "outage", "pause", "resume", "edit", "cancel"]),
        st.integers(1, 25),
    ),
    max_size=6,
)


@settings(
    max_examples=examples(40),
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=ALWAYS_THE_SAME,
)
@given(
    steps=STEPS,
    misfire=st.sampled_from(MisfirePolicy),
    most=st.sampled_from([1, 4, 100]),
    threshold=st.sampled_from([1, 60, 300]),
    lost=st.sets(st.integers(0, 60), max_size=3),
    budget=st.sampled_from([1, 3, 1000]),
)
def test_the_counts_sum_to_what_was_planned_and_only_what_is_lost_is_missed(
    steps: Sequence[tuple[str, int]],
    misfire: MisfirePolicy,
    most: int,
    threshold: int,
    lost: set[int],
    budget: int,
) -> None:
    system = a_system()
    catch_up = CatchUp(most=most, threshold=threshold * SECOND)
    job = a_job(system, misfire=misfire, catch_up=catch_up)
    for verb, minutes in steps:
        play(system, job, verb, minutes * MINUTE)
    manage.resume(system.ports, OWNER, job.id)
    system.run_for(15 * MINUTE)
    expected = planned(system, job.id)

    intact = ledger_by(system, job.id, budget)
    assert sum(intact.values()) == len(expected)
    assert "MISSED" not in {outcome for outcome, _ in intact}

    ran = [row for row in system.world.tables.executions.values() if row.attempts]
    on_time = sorted(
        row.id
        for row in ran
        if row.scheduled_for in expected
        and row.first_started_at == row.run_at < system.world.now() - 4 * MINUTE
    )
    gone = [on_time[number] for number in lost if number < len(on_time)]
    for id in gone:
        forget(system, id)
    found = ledger_by(system, job.id, budget)
    assert sum(found.values()) == len(expected)
    assert found.get(("MISSED", "no execution"), 0) >= len(gone)


def play(system: System, job: Job, verb: str, duration: timedelta) -> None:
    match verb:
        case "outage":
            outage(system, duration)
        case "pause":
            manage.pause(system.ports, OWNER, job.id)
        case "resume":
            manage.resume(system.ports, OWNER, job.id)
        case "edit":
            every_so = parse(
                rate=f"rate({2 + duration // MINUTE % 3} minutes)", anchor=START, seed=job.id
            )
            manage.edit(system.ports, OWNER, job.id, lambda old: replace(old, schedule=every_so))
        case "cancel":
            rows = sorted(system.world.tables.executions.values(), key=lambda row: row.id)
            waiting = [row for row in rows if not row.is_final]
            if waiting:
                cancel(system.ports, OWNER, waiting[0].id)
        case _:
            pass
    if verb != "outage":
        system.run_for(duration)


def planned(system: System, id: JobId) -> set[datetime]:
    """The slots of the versions, told without a look at any execution."""
    tables = system.world.tables
    versions = [
        *(job for (of, _), job in sorted(tables.versions.items()) if of == id),
        tables.jobs[id],
    ]
    ends = [*(version.since for version in versions[1:]), system.world.now() - SECOND / 1000]
    return {
        slot
        for version, end in zip(versions, ends, strict=True)
        if version.next_after(START) is not None
        for slot in version.schedule.between(version.since, end + SECOND / 1000)
        if slot > version.since
    }
