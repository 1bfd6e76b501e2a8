"""A chain is one: a successor, once armed, is never decided again (P2, P12)."""

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from lamplighter.core.catch_up import CatchUp
from lamplighter.core.lifecycle import Event, State
from lamplighter.core.model import Execution, Job, MisfirePolicy, OverlapPolicy, Trigger
from lamplighter.core.outcome import ended
from lamplighter.memory import MemoryWorld, VirtualClock
from lamplighter.services import cancel, manage, timers, trigger
from lamplighter.sim.faults import Call, Crash, When, interposed
from lamplighter.sim.invariants import violations
from lamplighter.sim.system import System
from tests.support.jobs import OWNER, created, every, new_job

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
START = datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)


def a_system() -> System:
    system = System(world=MemoryWorld(clock=VirtualClock(START), shards=1, partitions=1))
    system.run_for(3 * MINUTE)
    return system


def forks(system: System) -> list[object]:
    """Slots that two others follow."""
    after = Counter(
        row.predecessor
        for row in system.world.tables.executions.values()
        if row.predecessor and row.trigger is Trigger.SCHEDULE
    )
    return [id for id, count in after.items() if count > 1]


def made_in_an_outage(misfire: MisfirePolicy) -> System:
    """The API arms and sends the first minutes itself; dispatch meets them when they have run."""
    system = a_system()
    system.ticking = False
    new = new_job(
        schedule=every("1 minute"),
        overlap=OverlapPolicy.SKIP,
        misfire=misfire,
        catch_up=CatchUp(most=3),
    )
    created(system.ports, new)
    system.run_for(25 * MINUTE)
    system.ticking = True
    system.run_for(15 * MINUTE)
    return system


@pytest.mark.parametrize("misfire", [*MisfirePolicy])
def test_what_the_api_sent_in_an_outage_is_not_decided_again(misfire: MisfirePolicy) -> None:
    system = made_in_an_outage(misfire)

    assert forks(system) == []
    assert [*violations(system)] == []


def test_without_the_look_the_chain_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timers, "_goes_on", lambda *_: False)

    assert forks(made_in_an_outage(MisfirePolicy.FIRE_ONCE))


def test_what_a_cancel_armed_in_an_outage_is_not_decided_again() -> None:
    """Its process died between arming the successor and ending the row."""
    system = a_system()
    new = new_job(schedule=every("7 minutes"), overlap=OverlapPolicy.SKIP)
    first = created(system.ports, new).first
    system.ticking = False
    (job,) = system.world.tables.jobs.values()
    timers.arm_chains(
        system.ports, timers.links_of(job, first), decided_at=system.world.now(), directly=True
    )
    system.run_for(40 * MINUTE)
    cancel.cancel(system.ports, OWNER, first.id)
    system.ticking = True

    system.run_for(30 * MINUTE)

    assert forks(system) == []
    assert [*violations(system)] == []


def test_a_page_that_is_redone_late_does_not_arm_before_what_a_cancel_armed() -> None:
    """The redo decides as of its intent, when the next slot was not missed; the cancel did not."""
    system = a_system()
    job, last = with_its_last_armed(system, OverlapPolicy.SKIP)
    intended_at = last.run_at
    system.world.clock.move_to(last.run_at + 3 * MINUTE)
    cancel.cancel(system.ports, OWNER, last.id)

    timers.arm_chains(
        system.ports, timers.links_of(job, last), decided_at=intended_at, passed=lambda *_: False
    )

    assert forks(system) == []
    assert job.occurrence_id(last.scheduled_for + MINUTE) not in system.world.tables.executions
    assert job.occurrence_id(last.scheduled_for + 3 * MINUTE) in system.world.tables.executions


def with_its_last_armed(system: System, overlap: OverlapPolicy) -> tuple[Job, Execution]:
    """A job of each minute, and the last of its slots that has a row."""
    created(system.ports, new_job(schedule=every("1 minute"), overlap=overlap))
    (job,) = system.world.tables.jobs.values()
    rows = system.world.tables.executions.values()
    return job, max(rows, key=lambda row: row.scheduled_for)


@pytest.mark.parametrize("overlap", [OverlapPolicy.SKIP, OverlapPolicy.BUFFER_ONE])
def test_who_joins_a_chain_that_has_ended_goes_before_what_is_armed_next(
    overlap: OverlapPolicy,
) -> None:
    """Nothing was armed behind the last: whoever mended that later would look past who joined."""
    system = a_system()
    job, last = with_its_last_armed(system, overlap)
    system.ticking = False
    for row in [*system.world.tables.executions.values()]:
        over = ended(row, Event.SKIP, now=system.world.now(), reason="misfire: by hand")
        system.world.tables.executions[row.id] = over
    system.world.clock.move_to(last.run_at + MINUTE)

    joined = trigger.trigger(system.ports, OWNER, job.id)

    assert isinstance(joined, Execution)
    following = [
        row
        for row in system.world.tables.executions.values()
        if row.trigger is Trigger.SCHEDULE and row.predecessor == joined.id
    ]
    assert [row.state for row in following] == [State.SCHEDULED]
    assert system.world.tables.jobs[job.id].tail is None
    assert system.world.counts.events["recovered"] == 1


def test_who_joins_goes_before_what_is_armed_though_an_earlier_version_left_a_later_row() -> None:
    system = a_system()
    job, last = with_its_last_armed(system, OverlapPolicy.TERMINATE_OTHER)
    manage.edit(system.ports, OWNER, job.id, lambda old: replace(old, name="later"))
    system.ticking = False
    system.world.queue.purge()
    rows = system.world.tables.executions
    armed = min(rows.values(), key=lambda row: row.scheduled_for)
    left = ended(last, Event.CANCEL, now=system.world.now(), reason="its job was edited")
    rows[last.id] = replace(left, job_version=1)
    system.world.clock.move_to(last.run_at + SECOND)

    joined = trigger.trigger(system.ports, OWNER, job.id)

    assert isinstance(joined, Execution)
    assert rows[armed.id].state is State.SCHEDULED
    assert rows[armed.id].predecessor == joined.id


def test_what_runs_for_long_is_followed_though_its_maker_died_before_it_armed_the_next() -> None:
    """The message of an earlier version had it run: it was never late, and is not final."""
    system = a_system()
    system.lasts = lambda _: 13 * MINUTE
    new = new_job(schedule=every("1 minute"), overlap=OverlapPolicy.BUFFER_ALL, timeout=13 * MINUTE)

    def die(call: Call, when: When) -> None:
        if call.method == "create" and when is When.AFTER:
            raise Crash

    with pytest.raises(Crash):
        created(interposed(system.ports, die), new)
    (first,) = system.world.tables.executions.values()
    timers.send(system.ports, [timers.outgoing(first)])

    system.run_for(10 * MINUTE)

    assert first.sent_directly
    assert system.world.tables.executions[first.id].state is State.RUNNING
    assert len(system.world.tables.executions) > 5


@pytest.mark.parametrize("is_alive", [True, False])
def test_a_chain_that_lives_is_told_by_one_read_however_long_nobody_looked(
    *, is_alive: bool
) -> None:
    system = a_system()
    job, last = with_its_last_armed(system, OverlapPolicy.SKIP)
    system.world.clock.move_to(last.run_at + 2 * DAY)
    if is_alive:
        link = timers.link_of(job, last)
        timers.arm_chains(system.ports, [link], decided_at=system.world.now())
    reads: list[int] = []

    def count(call: Call, when: When) -> None:
        if call.method == "get_many" and when is When.BEFORE:
            reads.append(call.number)

    goes_on = timers.goes_on(interposed(system.ports, count), job, last.scheduled_for)

    assert goes_on is is_alive
    assert len(reads) == 1 if is_alive else len(reads) > 1


def test_a_chain_goes_on_by_a_row_just_behind_the_link() -> None:
    """As far from the line as can be."""
    system = a_system()
    job, last = with_its_last_armed(system, OverlapPolicy.SKIP)
    following = job.occurrence(
        last.scheduled_for + MINUTE, now=system.world.now(), sent_directly=False
    )
    system.ports.executions.put([following])
    system.world.clock.move_to(last.run_at + 2 * DAY)

    assert timers.goes_on(system.ports, job, last.scheduled_for)
    assert not timers.goes_on(system.ports, job, following.scheduled_for)
