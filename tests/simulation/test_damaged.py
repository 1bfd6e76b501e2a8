"""Rows and definitions that cannot be read back: all others go on, and they do once mended."""

from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest

from lamplighter.core.errors import Damaged
from lamplighter.core.lifecycle import Event, State
from lamplighter.core.model import Execution, Job, OverlapPolicy
from lamplighter.core.outcome import ended
from lamplighter.memory import MemoryWorld, VirtualClock
from lamplighter.ports import Received
from lamplighter.services import endings
from lamplighter.sim.invariants import violations
from lamplighter.sim.system import System
from tests.support.jobs import created, every, new_job
from tests.support.rows import blocked

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
START = datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)


@dataclass(kw_only=True)
class Hosts(System):
    """Its workers keep a message that they fail at, as `runtime.crew` does."""

    def _process(self, received: Received) -> None:
        with suppress(Damaged):
            super()._process(received)


@pytest.fixture
def system() -> System:
    system = Hosts(world=MemoryWorld(clock=VirtualClock(START), shards=1, partitions=1))
    system.run_for(MINUTE)
    return system


def damage(system: System, kind: str, id: str) -> None:
    system.world.tables.damaged[id] = Damaged(kind=kind, id=id, attribute="st", about=id)


def mend(system: System) -> None:
    system.world.tables.damaged.clear()


def recurring(system: System, *, overlap: OverlapPolicy = OverlapPolicy.ALLOW) -> Job:
    job = created(system.ports, new_job(schedule=every("10 minutes"), overlap=overlap)).job
    assert job is not None
    return job


def one_off(system: System, after: timedelta) -> Execution:
    return created(system.ports, new_job(run_at=system.world.now() + after)).first


def row_of(system: System, execution: Execution) -> Execution:
    return system.world.tables.executions[execution.id]


def rows_of(system: System, job: Job) -> list[Execution]:
    rows = system.world.tables.executions.values()
    return sorted((row for row in rows if row.job_id == job.id), key=lambda row: row.id)


def runs_of(system: System, job: Job) -> int:
    return sum(run.job_id == job.id for run in system.runs)


def told(system: System, kind: str) -> int:
    return system.world.counts.events[f"row_unreadable {kind}"]


def test_a_damaged_row_holds_up_neither_dispatch_nor_the_sweep_and_runs_once_it_is_mended(
    system: System,
) -> None:
    neighbour = recurring(system)
    row = one_off(system, 10 * MINUTE)
    damage(system, "execution", row.id)

    system.run_for(2 * HOUR)
    waited, others = row_of(system, row).state, runs_of(system, neighbour)
    mend(system)
    system.run_for(30 * MINUTE)

    assert (waited, others) == (State.SCHEDULED, 12)
    assert told(system, "execution") >= 2 * 60 / 10
    assert row_of(system, row).state is State.SUCCEEDED
    assert system.world.counts.events["recovered"] == 1
    assert [*violations(system)] == []


def test_a_message_of_a_damaged_row_is_kept_and_its_row_is_run_once_it_is_mended(
    system: System,
) -> None:
    row = one_off(system, MINUTE)  # sent directly: its message is there
    damage(system, "execution", row.id)

    system.run_for(2 * MINUTE)
    waited = row_of(system, row).state
    mend(system)
    system.run_for(2 * MINUTE)

    assert waited is State.SCHEDULED
    assert told(system, "execution") > 2
    assert system.world.counts.events["recovered"] == 0
    assert row_of(system, row).state is State.SUCCEEDED
    assert [*violations(system)] == []


def test_a_chain_goes_on_past_a_row_that_is_damaged_and_then_given_up(system: System) -> None:
    job = recurring(system)
    system.run_for(7 * MINUTE)
    armed = rows_of(system, job)[-1]
    damage(system, "execution", armed.id)

    system.run_for(12 * HOUR)

    assert runs_of(system, job) > 40
    assert row_of(system, armed).state is State.SCHEDULED


def test_a_page_is_not_done_again_for_a_damaged_row_in_the_place_that_it_arms(
    system: System,
) -> None:
    job, neighbour = recurring(system), recurring(system)
    planned = job.occurrence(job.since + 20 * MINUTE, now=START, sent_directly=False)
    system.ports.executions.put([planned])
    damage(system, "execution", planned.id)

    system.run_for(6 * HOUR)

    assert runs_of(system, neighbour) == 36
    assert runs_of(system, job) > 20
    assert row_of(system, planned).state is State.SCHEDULED


def test_executions_of_a_damaged_definition_wait_and_run_once_it_is_mended(
    system: System,
) -> None:
    job, neighbour = recurring(system), recurring(system)
    damage(system, "job", job.id)

    system.run_for(2 * HOUR)
    waited = {row.state for row in rows_of(system, job)}
    others = runs_of(system, neighbour)
    mend(system)
    system.run_for(3 * HOUR)

    assert waited == {State.SCHEDULED}
    assert others == 12
    assert told(system, "job") > 10
    assert system.world.counts.events["definition_unreadable"] == 1
    assert runs_of(system, job) >= 2 * 6
    assert [*violations(system)] == []


def test_what_is_claimed_while_its_definition_is_damaged_is_put_off_with_the_reason(
    system: System,
) -> None:
    job = recurring(system)
    system.run_for(7 * MINUTE)  # the first of them is sent
    damage(system, "job", job.id)

    system.run_for(5 * MINUTE)
    row, *_ = rows_of(system, job)
    mend(system)
    system.run_for(5 * MINUTE)

    assert (row.state, row.attempt) == (State.RETRYING, 1)
    assert f"job {job.id} cannot be read back" in (row.reason or "")
    assert row_of(system, row).state is State.SUCCEEDED


def test_no_execution_starts_beside_one_that_cannot_be_read(system: System) -> None:
    job = recurring(system, overlap=OverlapPolicy.BUFFER_ALL)
    system.run_for(21 * MINUTE)
    before = runs_of(system, job)
    last = max(row.id for row in rows_of(system, job) if row.is_final)
    damage(system, "execution", last)

    system.run_for(HOUR)
    beside = runs_of(system, job) - before
    mend(system)
    system.run_for(HOUR)

    assert beside == 0
    assert runs_of(system, job) >= before + 6
    assert [*violations(system)] == []


def test_a_job_that_was_damaged_for_hours_is_still_watched_over(system: System) -> None:
    job = recurring(system)
    damage(system, "job", job.id)
    system.run_for(5 * HOUR)
    mend(system)
    system.run_for(HOUR)
    # Its chain dies: only a watch finds that.
    rows, now = system.world.tables.executions, system.world.now()
    for row in rows_of(system, job):
        if not row.is_final:
            rows[row.id] = ended(row, Event.CANCEL, now=now, reason="by hand")
    before = runs_of(system, job)

    system.run_for(5 * HOUR)

    assert runs_of(system, job) > before + 3 * 6


def test_a_waiter_that_cannot_be_read_keeps_no_other_from_being_woken(system: System) -> None:
    waiters = [blocked(one_off(system, MINUTE)) for _ in range(3)]
    blocker = replace(one_off(system, MINUTE), waiters=frozenset(row.id for row in waiters))
    system.world.tables.executions |= {row.id: row for row in (blocker, *waiters)}
    damage(system, "execution", min(blocker.waiters))
    system.world.queue.purge()

    endings.wake(system.ports, blocker)

    system.world.pass_time(MINUTE)
    woken = {received.message.execution_id for received in system.world.queue.receive("default")}
    assert woken == {*sorted(blocker.waiters)[1:]}
