"""Executions of one job that meet, by each policy: long handlers beside ticks and messages."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from unittest.mock import patch

import pytest

from lamplighter.core.lifecycle import State
from lamplighter.core.limits import SWEEP_AFTER
from lamplighter.core.model import Execution, Job, JobStatus, MisfirePolicy, OverlapPolicy, Trigger
from lamplighter.memory import MemoryWorld, VirtualClock
from lamplighter.services import cancel, endings, execute, manage, trigger
from lamplighter.services.execute import Claimed
from lamplighter.sim.invariants import violations
from lamplighter.sim.system import System
from tests.support.jobs import OWNER, created, every, new_job

START = datetime(2025, 12, 31, 23, 50, tzinfo=UTC)
FIRST_SLOT = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
LONG = timedelta(minutes=3, seconds=25)
NO_ALLOW = [policy for policy in OverlapPolicy if policy is not OverlapPolicy.ALLOW]


def minutely(policy: OverlapPolicy, *, lasts: timedelta = LONG) -> System:
    """A job that is due every minute from midnight on, and takes longer than that."""
    world = MemoryWorld(clock=VirtualClock(START), shards=4, partitions=1)
    system = System(world=world, lasts=lambda _: lasts)
    schedule = every("1 minute", start_at=FIRST_SLOT)
    created(system.ports, new_job(schedule=schedule, overlap=policy, timeout=10 * MINUTE))
    return system


def slots(rows: Sequence[Execution]) -> list[int]:
    return [(row.scheduled_for - FIRST_SLOT) // MINUTE for row in rows]


def started(system: System, within: timedelta) -> list[int]:
    """The slots that were run, of those due by then, in the order of their starts."""
    rows = system.world.tables.executions
    runs = [rows[run.execution_id] for run in system.runs]
    return slots([row for row in runs if row.scheduled_for < FIRST_SLOT + within])


def settle(system: System) -> None:
    """Let all that goes on come to an end, every later run being short."""
    system.lasts = lambda _: timedelta(0)
    system.run_for(30 * MINUTE)


def the_rows(system: System) -> list[Execution]:
    return sorted(system.world.tables.executions.values(), key=lambda row: row.id)


def test_buffer_one_runs_the_listed_slots() -> None:
    """O-F06, S0-K3: at every instant one runs and one waits at most."""
    system = minutely(OverlapPolicy.BUFFER_ONE)
    system.run_until(FIRST_SLOT + 30 * MINUTE)

    executed = started(system, 20 * MINUTE)
    assert executed == [0, 1, 4, 7, 11, 14, 18]
    others = [row for row in the_rows(system) if 0 <= slots([row])[0] < 20]
    skipped = [row for row in others if slots([row])[0] not in executed]
    assert {row.state for row in skipped} == {State.SKIPPED}
    assert all((row.reason or "").startswith("overlap: ") and row.blocker for row in skipped)
    assert [*violations_but_what_goes_on(system)] == []


def violations_but_what_goes_on(system: System) -> list[str]:
    settle(system)
    return [*violations(system)]


def test_skip_runs_the_listed_slots() -> None:
    """O-F06, S0-K3: Skip."""
    system = minutely(OverlapPolicy.SKIP)
    system.run_until(FIRST_SLOT + 25 * MINUTE)

    assert started(system, 20 * MINUTE) == [0, 4, 8, 12, 16]
    assert violations_but_what_goes_on(system) == []


def test_allow_runs_every_slot_beside_the_others() -> None:
    """S0-K3: Allow."""
    system = minutely(OverlapPolicy.ALLOW)
    system.run_until(FIRST_SLOT + 10 * MINUTE)

    assert started(system, 10 * MINUTE) == [*range(10)]
    assert all(row.predecessor is None for row in the_rows(system))
    assert violations_but_what_goes_on(system) == []


def test_buffer_all_runs_every_slot_one_after_the_other() -> None:
    """S0-K3: Queue."""
    system = minutely(OverlapPolicy.BUFFER_ALL)
    system.run_until(FIRST_SLOT + 40 * MINUTE)

    assert started(system, 10 * MINUTE) == [*range(10)]
    starts = [run.started_at for run in system.runs[:10]]
    gaps = {later - earlier for earlier, later in pairwise(starts)}
    # The next is woken by the end of the one before: no waiting for a sweep.
    assert max(gaps) <= LONG + 2 * SECOND
    settle(system)
    assert [*violations(system)] == []


def test_cancel_other_asks_the_one_before_to_stop_and_starts_when_it_has() -> None:
    """S0-K3: Replace, by asking."""
    system = minutely(OverlapPolicy.CANCEL_OTHER)
    system.run_until(FIRST_SLOT + 10 * MINUTE + 30 * SECOND)

    assert started(system, 10 * MINUTE) == [*range(10)]
    ended = [row for row in the_rows(system) if 0 <= slots([row])[0] < 9]
    assert {row.state for row in ended} == {State.CANCELLED}
    # A beat comes every ten seconds: that is how long it takes to hear of it.
    lateness = [run.started_at - run.due_at for run in system.runs[1:10]]
    assert max(lateness) <= timedelta(seconds=12)
    assert violations_but_what_goes_on(system) == []


def test_terminate_other_fences_the_one_before_off_and_waits_for_its_lease() -> None:
    """S0-K3: Replace, by force."""
    system = minutely(OverlapPolicy.TERMINATE_OTHER)
    system.run_until(FIRST_SLOT + 10 * MINUTE + 50 * SECOND)

    assert started(system, 10 * MINUTE) == [*range(10)]
    ended = [row for row in the_rows(system) if 0 <= slots([row])[0] < 9]
    assert {row.state for row in ended} == {State.CANCELLED}
    assert all(row.attempts[-1].error is not None for row in ended)
    lateness = [run.started_at - run.due_at for run in system.runs[1:10]]
    assert max(lateness) <= timedelta(seconds=37)
    assert violations_but_what_goes_on(system) == []


def test_a_chain_of_which_each_ends_the_one_before_is_not_walked_to_its_beginning() -> None:
    system = minutely(OverlapPolicy.TERMINATE_OTHER)
    system.run_until(FIRST_SLOT + 10 * MINUTE + 50 * SECOND)

    terminated = [row for row in the_rows(system) if row.state is State.CANCELLED]
    assert {row.predecessor for row in terminated} == {None}


@pytest.mark.parametrize("policy", NO_ALLOW)
def test_a_worker_that_dies_keeps_no_later_run_back_for_longer_than_its_lease(
    policy: OverlapPolicy,
) -> None:
    """O-F07, P13: a lost run is taken over and ends, and the next one starts."""
    system = minutely(policy, lasts=timedelta(0))
    system.run_until(FIRST_SLOT + 3 * MINUTE - SECOND)
    system.world.pass_time(SECOND)
    batch = system.world.queue.receive()
    execute.shrink(system.ports, batch)
    begun = [execute.begin(system.ports, received, worker="doomed") for received in batch]
    assert any(isinstance(one, Claimed) for one in begun)
    died = system.world.now()
    system.run_until(FIRST_SLOT + 8 * MINUTE)

    later = [run.started_at for run in system.runs if run.started_at > died]
    assert min(later) - died <= timedelta(seconds=61)
    assert violations_but_what_goes_on(system) == []


def test_a_run_by_hand_gives_way_as_a_slot_does() -> None:
    system = minutely(OverlapPolicy.SKIP)
    system.run_until(FIRST_SLOT + 30 * SECOND)
    (job,) = system.world.tables.jobs.values()
    asked = trigger.trigger(system.ports, OWNER, job.id)
    assert isinstance(asked, Execution)
    system.run_for(5 * SECOND)

    row = system.world.tables.executions[asked.id]
    assert (row.trigger, row.state) == (Trigger.MANUAL, State.SKIPPED)
    assert violations_but_what_goes_on(system) == []


@pytest.mark.parametrize("policy", NO_ALLOW)
def test_a_run_by_hand_and_the_slot_after_it_do_not_overlap(policy: OverlapPolicy) -> None:  # P16
    system = minutely(policy, lasts=timedelta(0))
    system.run_until(FIRST_SLOT + 3 * MINUTE + 40 * SECOND)
    system.lasts = lambda _: timedelta(seconds=100)
    (job,) = system.world.tables.jobs.values()
    for _ in range(3):
        trigger.trigger(system.ports, OWNER, job.id)
        system.run_for(5 * SECOND)
    system.run_for(10 * MINUTE)

    assert violations_but_what_goes_on(system) == []
    by_hand = [row for row in the_rows(system) if row.trigger is Trigger.MANUAL]
    assert len(by_hand) == 3
    assert any(run.execution_id == by_hand[0].id for run in system.runs)


@pytest.mark.parametrize("policy", NO_ALLOW)
def test_runs_by_hand_of_a_paused_job_and_what_follows_its_resume_do_not_overlap(
    policy: OverlapPolicy,
) -> None:
    system = minutely(policy, lasts=timedelta(seconds=100))
    system.run_until(FIRST_SLOT + 3 * MINUTE + 40 * SECOND)
    (job,) = system.world.tables.jobs.values()
    manage.pause(system.ports, OWNER, job.id)
    for _ in range(2):
        trigger.trigger(system.ports, OWNER, job.id)
        system.run_for(30 * SECOND)
    resumed = manage.resume(system.ports, OWNER, job.id).job
    system.run_for(10 * MINUTE)

    assert (resumed.status, resumed.tail) == (JobStatus.ACTIVE, None)
    assert violations_but_what_goes_on(system) == []
    assert len(started(system, 20 * MINUTE)) > 3


@pytest.mark.parametrize("policy", NO_ALLOW)
def test_an_edit_keeps_what_runs_and_what_it_plans_apart(policy: OverlapPolicy) -> None:
    system = minutely(policy, lasts=timedelta(seconds=100))
    system.run_until(FIRST_SLOT + 3 * MINUTE + 5 * SECOND)
    (job,) = system.world.tables.jobs.values()
    faster = every("10 seconds", start_at=FIRST_SLOT)(job.id, job.created_at)
    manage.edit(system.ports, OWNER, job.id, lambda job: replace(job, schedule=faster))
    system.run_for(5 * MINUTE)

    assert violations_but_what_goes_on(system) == []
    assert any(run.started_at > FIRST_SLOT + 3 * MINUTE + 5 * SECOND for run in system.runs)


def test_all_that_was_missed_runs_one_after_the_other_though_a_slot_would_give_way() -> None:
    system = minutely(OverlapPolicy.SKIP, lasts=timedelta(0))
    (job,) = system.world.tables.jobs.values()
    every_one = replace(job, misfire=MisfirePolicy.FIRE_ALL)
    manage.edit(system.ports, OWNER, job.id, lambda _: every_one)
    system.run_until(FIRST_SLOT + 90 * SECOND)
    system.ticking = False
    system.run_for(20 * MINUTE)
    system.ticking = True
    system.lasts = lambda _: 7 * SECOND
    system.run_for(10 * MINUTE)

    executed = started(system, 20 * MINUTE)
    assert executed == [*range(20)]
    assert violations_but_what_goes_on(system) == []


def hourly(*, lasts: timedelta) -> tuple[System, Job]:
    """A job whose next slot is far beyond the line."""
    world = MemoryWorld(clock=VirtualClock(START), shards=4, partitions=1)
    system = System(world=world, lasts=lambda _: lasts)
    new = new_job(schedule=every("1 hour"), overlap=OverlapPolicy.SKIP, timeout=10 * MINUTE)
    job = created(system.ports, new).job
    assert job is not None
    system.run_for(MINUTE)
    return system, job


def by_hand(system: System, job: Job) -> Execution:
    asked = trigger.trigger(system.ports, OWNER, job.id)
    assert isinstance(asked, Execution)
    system.run_for(10 * SECOND)
    return system.world.tables.executions[asked.id]


def test_what_was_armed_far_ahead_when_a_job_was_paused_leads_to_what_runs() -> None:
    system, job = hourly(lasts=100 * SECOND)
    first = by_hand(system, job)
    manage.pause(system.ports, OWNER, job.id)

    second = by_hand(system, job)

    assert (first.state, second.state) == (State.RUNNING, State.SKIPPED)
    assert violations_but_what_goes_on(system) == []


def test_what_a_cancel_armed_even_further_ahead_leads_to_what_runs() -> None:
    system, job = hourly(lasts=100 * SECOND)
    for _ in range(3):
        armed = max(system.world.tables.executions)
        cancel.cancel(system.ports, OWNER, armed)
    first = by_hand(system, job)

    second = by_hand(system, job)
    later = every("50 minutes")(job.id, job.created_at)
    manage.edit(system.ports, OWNER, job.id, lambda job: replace(job, schedule=later))
    third = by_hand(system, job)

    assert [row.state for row in (first, second, third)] == [
        State.RUNNING,
        State.SKIPPED,
        State.SKIPPED,
    ]
    assert violations_but_what_goes_on(system) == []


def test_a_row_that_an_edit_left_behind_does_not_break_the_chain_beside_it() -> None:
    system, job = hourly(lasts=timedelta(0))
    # The API dies before it takes back what the first version armed.
    armed = system.world.tables.executions[max(system.world.tables.executions)]
    offset = armed.run_at - 30 * SECOND
    minutely_now = every("1 minute", start_at=offset)(job.id, job.created_at)
    with patch.object(manage, "_stop_what_was_armed", lambda *_, **__: ()):
        manage.edit(system.ports, OWNER, job.id, lambda job: replace(job, schedule=minutely_now))
    system.lasts = lambda _: LONG
    system.run_until(armed.run_at + 20 * MINUTE)

    assert system.world.tables.executions[armed.id].state is State.CANCELLED
    assert violations_but_what_goes_on(system) == []


def test_one_that_waits_for_a_terminated_run_and_is_itself_replaced_hands_the_wait_on() -> None:
    system = minutely(OverlapPolicy.TERMINATE_OTHER)
    system.run_until(FIRST_SLOT + 50 * SECOND)
    (job,) = system.world.tables.jobs.values()
    trigger.trigger(system.ports, OWNER, job.id)
    system.run_until(FIRST_SLOT + 2 * MINUTE)

    assert violations_but_what_goes_on(system) == []


def test_a_run_by_hand_of_a_paused_job_follows_the_one_before_the_pause() -> None:
    system, job = hourly(lasts=100 * SECOND)
    first = by_hand(system, job)
    # The API dies before it takes back what was armed.
    with patch.object(manage, "_stop_what_was_armed", lambda *_, **__: ()):
        manage.pause(system.ports, OWNER, job.id)

    second = by_hand(system, job)

    assert (first.state, second.state) == (State.RUNNING, State.SKIPPED)
    assert violations_but_what_goes_on(system) == []


def test_an_edit_s_first_occurrence_follows_what_is_due_and_planned_by_both() -> None:
    system = minutely(OverlapPolicy.SKIP, lasts=timedelta(0))
    system.run_until(FIRST_SLOT + 3 * MINUTE - SECOND)
    system.world.pass_time(SECOND)
    (due,) = system.world.queue.receive()  # and nobody claims it yet
    (job,) = system.world.tables.jobs.values()
    manage.edit(system.ports, OWNER, job.id, lambda job: replace(job, name="another"))
    system.world.pass_time(30 * SECOND)
    system.lasts = lambda _: LONG
    system._process(due)
    system.run_for(5 * MINUTE)

    assert violations_but_what_goes_on(system) == []
    assert due.message.execution_id in {run.execution_id for run in system.runs}


def test_what_an_earlier_version_armed_far_ahead_is_not_taken_for_the_next() -> None:
    system, job = hourly(lasts=timedelta(0))
    # Both versions plan the slot that was armed, and the API dies before it takes it back.
    ten = every("10 minutes")(job.id, job.created_at)
    with patch.object(manage, "_stop_what_was_armed", lambda *_, **__: ()):
        manage.edit(system.ports, OWNER, job.id, lambda job: replace(job, schedule=ten))
    first = system.world.tables.jobs[job.id].next_after(system.world.now())
    assert first is not None
    system.run_until(first - 5 * SECOND)
    system.lasts = lambda _: 100 * SECOND
    trigger.trigger(system.ports, OWNER, job.id)
    system.run_for(MINUTE)

    assert violations_but_what_goes_on(system) == []


@pytest.mark.parametrize("policy", OverlapPolicy)
def test_a_slot_that_was_cancelled_before_an_edit_does_not_end_the_chain_after_it(
    policy: OverlapPolicy,
) -> None:
    system, job = hourly(lasts=timedelta(0))
    manage.edit(system.ports, OWNER, job.id, lambda job: replace(job, overlap=policy))
    armed = max(system.world.tables.executions)
    cancel.cancel(system.ports, OWNER, armed)
    ten = every("10 minutes")(job.id, job.created_at)
    manage.edit(system.ports, OWNER, job.id, lambda job: replace(job, schedule=ten))
    system.run_for(timedelta(hours=2))

    assert violations_but_what_goes_on(system) == []
    # Twelve slots, but for the one that its owner had cancelled.
    runs = [run for run in system.runs if run.started_at < START + timedelta(minutes=121)]
    assert len(runs) == 11
    assert armed not in {run.execution_id for run in runs}


@pytest.mark.parametrize("policy", NO_ALLOW)
@pytest.mark.parametrize("times", [1, 3])
def test_a_pause_and_a_resume_before_the_next_slot_leave_nothing_in_its_own_way(
    policy: OverlapPolicy, times: int
) -> None:
    system = System(world=MemoryWorld(clock=VirtualClock(START), shards=4, partitions=1))
    schedule = every("8 hours")
    made = created(system.ports, new_job(schedule=schedule, overlap=policy)).job
    assert made is not None
    system.run_for(MINUTE)
    for _ in range(times):
        manage.pause(system.ports, OWNER, made.id)
        by_hand(system, made)
        manage.resume(system.ports, OWNER, made.id)

    asked = by_hand(system, made)
    system.run_for(timedelta(hours=17))

    assert asked.state is State.SUCCEEDED
    slots_run = [run for run in system.runs if run.execution_id != asked.id]
    assert len(slots_run) == 2 + times
    assert violations_but_what_goes_on(system) == []


@pytest.mark.parametrize("policy", NO_ALLOW)
def test_a_minutely_job_goes_on_after_a_minute_s_pause(policy: OverlapPolicy) -> None:
    system = minutely(policy, lasts=timedelta(0))
    system.run_until(FIRST_SLOT + 3 * MINUTE + 6 * SECOND)
    (job,) = system.world.tables.jobs.values()
    manage.pause(system.ports, OWNER, job.id)
    system.run_for(MINUTE)
    manage.resume(system.ports, OWNER, job.id)
    system.run_until(FIRST_SLOT + 10 * MINUTE + SECOND)

    assert started(system, 20 * MINUTE) == [0, 1, 2, 3, 5, 6, 7, 8, 9, 10]
    assert violations_but_what_goes_on(system) == []


def test_what_was_cancelled_behind_what_waits_is_not_the_end_of_the_chain() -> None:
    system = minutely(OverlapPolicy.SKIP, lasts=timedelta(0))
    system.run_until(FIRST_SLOT + 10 * SECOND)
    (job,) = system.world.tables.jobs.values()
    latest = max(system.world.tables.executions)
    cancel.cancel(system.ports, OWNER, latest)
    further = max(system.world.tables.executions)
    cancel.cancel(system.ports, OWNER, further)

    asked = by_hand(system, job)

    assert asked.state is State.SUCCEEDED
    assert violations_but_what_goes_on(system) == []


@pytest.mark.parametrize("paused", [True, False])
def test_a_job_that_rested_until_its_rows_were_no_longer_kept_goes_on(paused: bool) -> None:
    system = System(world=MemoryWorld(clock=VirtualClock(START), shards=4, partitions=1))
    # More slots than are looked at for what is armed.
    end = None if paused else START + timedelta(days=10)
    schedule = every("1 minute", end_at=end)
    job = created(system.ports, new_job(schedule=schedule, overlap=OverlapPolicy.SKIP)).job
    assert job is not None
    system.world.pass_time(timedelta(days=11))
    if paused:
        manage.pause(system.ports, OWNER, job.id)
    system.world.pass_time(timedelta(days=30))
    system.world.queue.purge()
    system.world.tables.executions.clear()
    system.world.tables.buckets.clear()

    asked = by_hand(system, job)

    assert asked.state is State.SUCCEEDED
    if paused:
        resumed = manage.resume(system.ports, OWNER, job.id).job
        assert (resumed.status, resumed.version) == (JobStatus.ACTIVE, 3)


def test_a_waiter_that_is_woken_as_the_sweep_comes_by_is_no_repair() -> None:
    """P14, P7: its message is under way; the alarm is for what was lost."""
    system = minutely(OverlapPolicy.BUFFER_ALL, lasts=3 * MINUTE)
    system.run_until(FIRST_SLOT + 3 * MINUTE - SECOND)
    waits = [row.state for row in the_rows(system) if slots([row]) == [1]]
    settle(system)

    assert waits == [State.BLOCKED]
    assert system.runs[0].ended_at == FIRST_SLOT + 3 * MINUTE
    assert system.world.counts.events["recovered"] == 0
    assert [*violations(system)] == []


def test_a_waiter_whose_waking_was_lost_is_woken_by_the_sweep() -> None:
    """P14, P7: whoever ended the other died before it sent the message."""
    system = minutely(OverlapPolicy.BUFFER_ALL, lasts=3 * MINUTE)
    system.run_until(FIRST_SLOT + 3 * MINUTE - SECOND)
    with patch.object(endings, "wake", lambda *_: None):
        system.run_until(FIRST_SLOT + 3 * MINUTE)
    system.lasts = lambda _: timedelta(0)
    system.run_for(4 * MINUTE)

    woken = next(run for run in system.runs if run.run_at == FIRST_SLOT + MINUTE)
    assert woken.started_at - (FIRST_SLOT + 3 * MINUTE) <= SWEEP_AFTER + 150 * SECOND
    assert system.world.counts.events["recovered"] == 1
