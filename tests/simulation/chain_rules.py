"""Rules P12–P16, P18 and P19 as histories: executions that meet, jobs that change."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from unittest.mock import patch

from lamplighter.core import overlap
from lamplighter.core.lifecycle import State
from lamplighter.core.model import Execution, Job, OverlapPolicy, Token
from lamplighter.core.outcome import blocked
from lamplighter.core.overlap import Turn, Wait
from lamplighter.memory import MemoryExecutions, stores
from lamplighter.ports import Ports, Received, Refusal
from lamplighter.services import endings, execute, manage, trigger, turns
from lamplighter.services.execute import Claimed
from lamplighter.sim.faults import Crash, When, interposed
from lamplighter.sim.invariants import violations
from lamplighter.sim.system import System
from tests.simulation.rules import MINUTE, SECOND, Rule, a_system, crashing, die, late, on
from tests.support.jobs import OWNER, created, every, in_, new_job

TEN_MINUTES = 10 * MINUTE


def with_a_job(
    policy: OverlapPolicy, *, rate: str = "1 minute", lasts: timedelta = timedelta(0)
) -> tuple[System, Job, datetime]:
    """A system, its one job, and the first slot of it, a minute from now."""
    system = a_system()
    system.lasts = lambda _: lasts
    first = in_(system.ports, 60)
    schedule = every(rate, start_at=first)
    job = created(system.ports, new_job(schedule=schedule, overlap=policy, timeout=TEN_MINUTES)).job
    assert job is not None
    return system, job, first


def at_the_end(system: System) -> Iterator[str]:
    """Whatever is broken once all that goes on has ended."""
    system.lasts = lambda _: timedelta(0)
    system.run_for(30 * MINUTE)
    yield from violations(system)


def taken(system: System, instant: datetime) -> Sequence[Received]:
    """The messages that are visible then, in the hands of a worker that the test plays."""
    system.run_until(instant - SECOND)
    system.world.pass_time(SECOND)
    batch = system.world.queue.receive()
    execute.shrink(system.ports, batch)
    return batch


def played(system: System, ports: Ports, received: Received) -> None:
    """One message, by a worker on these ports."""
    claimed = execute.begin(ports, received, worker="played")
    if isinstance(claimed, Claimed):
        execute.conclude(ports, claimed, system.run(claimed))


# P12


def third_slot_beside_a_run_that_goes_on() -> Iterator[str]:
    """The first slot runs on while the second is skipped and the third is claimed."""
    system, _, first = with_a_job(OverlapPolicy.SKIP, lasts=200 * SECOND)
    system.run_until(first + 150 * SECOND)
    yield from at_the_end(system)


def look_at_the_one_before_only() -> AbstractContextManager[Any]:
    """P12 out: a terminal predecessor is as good as one that ran."""
    return patch.object(overlap, "before", lambda ended: None)


# P13


def slot_between_the_end_of_a_lease_and_its_take_over() -> Iterator[str]:
    """A worker dies; the next slot comes after its lease has ended, before it is taken over."""
    system, _, first = with_a_job(
        OverlapPolicy.SKIP, rate="33 seconds", lasts=timedelta(seconds=20)
    )
    for received in taken(system, first):
        execute.begin(system.ports, received, worker="doomed")
    system.run_until(first + 5 * MINUTE)
    yield from at_the_end(system)


def an_expired_lease_is_no_run() -> AbstractContextManager[Any]:
    """P13 out: what is RUNNING under a lease that has ended is in nobody's way."""
    real = turns._in_its_way

    def in_its_way(ports: Ports, row: Execution) -> object:
        found = real(ports, row)
        if isinstance(found, Execution) and found.lease_until is not None:
            return found if found.lease_until > ports.clock.now() else None
        return found

    return patch.object(turns, "_in_its_way", in_its_way)


# P14


def end_between_the_look_and_the_registration() -> Iterator[str]:
    """The run that the second slot is about to wait for ends before it is registered there."""
    system, _, first = with_a_job(OverlapPolicy.BUFFER_ALL, lasts=65 * SECOND)
    system.run_until(first + SECOND)
    system.lasts = lambda _: timedelta(0)
    meanwhile = on("executions.block", When.BEFORE, lambda: system.run_for(10 * SECOND))
    for received in taken(system, first + MINUTE):
        played(system, interposed(system.ports, meanwhile), received)
    system.run_for(5 * MINUTE)
    yield from late(system, within=MINUTE)
    yield from at_the_end(system)


def register_whatever_it_is() -> AbstractContextManager[Any]:
    """P14 out: a waiter is registered on a row that has ended."""

    def block(self: MemoryExecutions, after: Execution, *, token: Token, alone: bool) -> Execution:
        assert after.blocker is not None
        blocker = self._tables.executions[after.blocker]
        self._write(replace(blocker, waiters=blocker.waiters | {after.id}))
        return self._write(after)

    return patch.object(MemoryExecutions, "block", block)


def run_that_ends_while_another_waits() -> Iterator[str]:
    """The second slot waits for the first, which takes a little longer than a minute."""
    system, _, first = with_a_job(OverlapPolicy.BUFFER_ALL, lasts=65 * SECOND)
    system.run_until(first + 30 * SECOND)
    system.lasts = lambda _: timedelta(0)
    system.run_for(5 * MINUTE)
    yield from late(system, within=MINUTE)
    yield from at_the_end(system)


def crash_between_an_end_and_its_wake() -> Iterator[str]:
    """A worker writes its result and dies before it wakes the one that waits."""
    system, _, first = with_a_job(OverlapPolicy.BUFFER_ALL)
    begun = [
        execute.begin(system.ports, received, worker="doomed") for received in taken(system, first)
    ]
    (claimed,) = [one for one in begun if isinstance(one, Claimed)]
    for _ in range(6):
        system.run_for(10 * SECOND)
        until = in_(system.ports, 30)
        system.ports.executions.extend(claimed.execution.id, token=claimed.token, lease_until=until)
        system.ports.queue.hide([claimed.received], timedelta(seconds=30))
    crashing(
        system.ports,
        "executions.settle",
        When.AFTER,
        lambda ports: execute.conclude(ports, claimed, system.run(claimed)),
    )
    system.run_for(5 * MINUTE)
    yield from late(system, within=MINUTE, but=[claimed.execution.id])
    yield from at_the_end(system)


def wake_nobody() -> AbstractContextManager[Any]:
    """P14 out: whoever ends a row, or finds it ended, leaves its waiters to the sweep."""
    return patch.object(endings, "wake", lambda ports, ended: None)


# P15


def slots_beside_a_long_run() -> Iterator[str]:
    """Three slots come while the first goes on."""
    system, _, first = with_a_job(OverlapPolicy.BUFFER_ONE, lasts=205 * SECOND)
    for second in range(0, 600, 10):
        system.run_until(first + second * SECOND)
        yield from _waiting(system)
    yield from at_the_end(system)


def second_slot_claimed_after_the_third() -> Iterator[str]:
    """The third slot waits for the second, whose message comes late and finds the first."""
    system, _, first = with_a_job(OverlapPolicy.BUFFER_ONE, lasts=205 * SECOND)
    held = taken(system, first + MINUTE)
    system.ports.queue.hide(held, 5 * MINUTE)
    system.run_until(first + 2 * MINUTE + SECOND)
    for received in held:
        played(system, system.ports, received)
    system.run_for(SECOND)
    yield from _waiting(system)
    yield from at_the_end(system)


def _waiting(system: System) -> Iterator[str]:
    rows = system.world.tables.executions.values()
    waiting = [row.id for row in rows if row.state is State.BLOCKED]
    if len(waiting) > 1:
        yield f"{len(waiting)} wait: {waiting}"


def wait_whoever_waits() -> AbstractContextManager[Any]:
    """P15 out: what waits for one that waits is not told from the rest."""
    real = overlap.turn

    def turn(policy: OverlapPolicy, in_its_way: Execution | None) -> Turn:
        taken = real(policy, in_its_way)
        waits = in_its_way is not None and policy is OverlapPolicy.BUFFER_ONE
        return Wait() if waits else taken

    return patch.object(overlap, "turn", turn)


def become_blocked_in_silence() -> AbstractContextManager[Any]:
    """P15 out: becoming BLOCKED wakes nobody."""

    def wait(
        ports: Ports, claimed: Execution, found: Execution, token: Token, *, alone: bool
    ) -> turns.Turned | None:
        after = blocked(claimed, by=found.id)
        answer = ports.executions.block(after, token=token, alone=alone)
        return None if isinstance(answer, Refusal) else turns.Waiting()

    return patch.object(turns, "_wait", wait)


# P16


def slot_claimed_while_a_run_joins() -> Iterator[str]:
    """A run by hand has read where the chain ends; then the armed slot is claimed and runs on."""
    system, job, first = with_a_job(OverlapPolicy.SKIP)
    system.run_until(first + 50 * SECOND)

    def meanwhile() -> None:
        system.lasts = lambda _: timedelta(seconds=45)
        system.run_for(15 * SECOND)

    stale = interposed(system.ports, on("jobs.join", When.BEFORE, meanwhile))
    trigger.trigger(stale, OWNER, job.id)
    system.run_for(MINUTE)
    yield from at_the_end(system)


def two_runs_that_join_at_once() -> Iterator[str]:
    """Two runs by hand read the same end of the chain."""
    system, job, first = with_a_job(OverlapPolicy.SKIP, lasts=45 * SECOND)
    system.run_until(first + 50 * SECOND)

    def another() -> None:
        trigger.trigger(system.ports, OWNER, job.id)

    trigger.trigger(interposed(system.ports, on("jobs.join", When.BEFORE, another)), OWNER, job.id)
    system.run_for(5 * MINUTE)
    yield from at_the_end(system)


def join_where_the_end_was() -> AbstractContextManager[Any]:
    """P16 out: nobody checks that the chain ends where it was read to end."""
    return patch.object(stores, "_is_armed", lambda there, armed: True)


# P18


def crash_in_a_resume() -> Iterator[str]:
    """A paused job is resumed by an API that dies before it puts any row by itself."""
    system, job, first = with_a_job(OverlapPolicy.ALLOW, rate="1 hour")
    manage.pause(system.ports, OWNER, job.id)
    doomed = interposed(system.ports, on("executions.put", When.BEFORE, die))
    with suppress(Crash):
        manage.resume(doomed, OWNER, job.id)
    system.run_for(TEN_MINUTES)
    yield from _unless_run(system, first)
    yield from violations(system)


def version_first_row_later() -> AbstractContextManager[Any]:
    """P18 out: the version and its first row are two writes."""

    def write(ports: Ports, before: Job, after: Job) -> Job:
        revised = ports.jobs.revise(before, after)
        assert isinstance(revised, Job)
        slot = after.next_after(after.since)
        if slot is not None:
            ports.executions.put([after.occurrence(slot, now=after.since, sent_directly=False)])
        return revised

    return patch.object(manage, "_write", write)


# P19


def paused_and_resumed_before_the_slot() -> Iterator[str]:
    """A job is paused, which cancels its armed row, and resumed before that row's slot."""
    system, job, first = with_a_job(OverlapPolicy.ALLOW, rate="1 hour")
    system.run_until(first - 30 * SECOND)
    manage.pause(system.ports, OWNER, job.id)
    manage.resume(system.ports, OWNER, job.id)
    system.run_for(5 * MINUTE)
    yield from _unless_run(system, first)
    yield from violations(system)


def _unless_run(system: System, slot: datetime) -> Iterator[str]:
    if not any(run.due_at == slot for run in system.runs):
        yield f"the slot {slot} did not run"


def nothing_gives_way() -> AbstractContextManager[Any]:
    """P19 out: a row that is there stays as it is."""
    return patch.object(stores, "supersedes", lambda planned, there: False)


CHAIN_RULES: Sequence[Rule] = (
    Rule(
        id="P12",
        says="a terminal row that never ran is looked past, a skipped one to its blocker",
        history=third_slot_beside_a_run_that_goes_on,
        without=look_at_the_one_before_only,
    ),
    Rule(
        id="P13",
        says="a run whose lease has ended is in the way until it was taken over and finished",
        history=slot_between_the_end_of_a_lease_and_its_take_over,
        without=an_expired_lease_is_no_run,
    ),
    Rule(
        id="P14",
        says="a waiter is registered only where the end is still to come",
        history=end_between_the_look_and_the_registration,
        without=register_whatever_it_is,
    ),
    Rule(
        id="P14",
        says="whoever ends a row wakes its waiters",
        history=run_that_ends_while_another_waits,
        without=wake_nobody,
    ),
    Rule(
        id="P14",
        says="a message for a final row wakes its waiters before it is deleted",
        history=crash_between_an_end_and_its_wake,
        without=wake_nobody,
    ),
    Rule(
        id="P15",
        says="of BUFFER_ONE one waits",
        history=slots_beside_a_long_run,
        without=wait_whoever_waits,
    ),
    Rule(
        id="P15",
        says="whoever becomes BLOCKED has its own waiters decide again",
        history=second_slot_claimed_after_the_third,
        without=become_blocked_in_silence,
    ),
    Rule(
        id="P16",
        says="a run by hand joins only where nobody was claimed since",
        history=slot_claimed_while_a_run_joins,
        without=join_where_the_end_was,
    ),
    Rule(
        id="P16",
        says="and where nobody else joined",
        history=two_runs_that_join_at_once,
        without=join_where_the_end_was,
    ),
    Rule(
        id="P18",
        says="a resume and its first row are one write",
        history=crash_in_a_resume,
        without=version_first_row_later,
    ),
    Rule(
        id="P19",
        says="a row that an edit took back gives way to the same slot of a later version",
        history=paused_and_resumed_before_the_slot,
        without=nothing_gives_way,
    ),
)
