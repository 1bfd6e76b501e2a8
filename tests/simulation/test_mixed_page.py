"""A page of everything that a page can hold, and its dispatcher killed, stalled, or late.

What it should come to is known beforehand: whatever was done to it, each execution that was due
has run once or says why it has not, and each chain goes on.
"""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache, partial

import pytest

from lamplighter.core.buckets import ExecutionId, JobId
from lamplighter.core.catch_up import CatchUp
from lamplighter.core.completeness import Outcome as Ledgered
from lamplighter.core.lifecycle import FINAL, State
from lamplighter.core.model import (
    Execution,
    Job,
    MisfirePolicy,
    OverlapPolicy,
    Pointer,
    PointerKind,
)
from lamplighter.core.outcome import Failed, Outcome, Succeeded
from lamplighter.core.retry import Failure, RetryPolicy
from lamplighter.core.retry import Kind as FailureKind
from lamplighter.core.schedule import Record, read_record
from lamplighter.memory import MemoryWorld, VirtualClock
from lamplighter.ports import Ports
from lamplighter.services import completeness, manage, timers
from lamplighter.services.cancel import cancel
from lamplighter.services.execute import Claimed
from lamplighter.sim.faults import (
    Call,
    Crash,
    Strike,
    When,
    calls_of,
    every_crash,
    every_strike,
    interposed,
    pause_at,
    survives,
)
from lamplighter.sim.invariants import violations
from lamplighter.sim.system import System
from tests.support import partition_work
from tests.support.jobs import OWNER, created, every, in_, new_job

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
START = datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)
# Until the last check of what the page holds has been made, and what it mends has run.
RECOVERY = timedelta(minutes=20)
POLICIES = [(overlap, [*MisfirePolicy][number % 3]) for number, overlap in enumerate(OverlapPolicy)]


@dataclass(frozen=True, kw_only=True)
class Mixed:
    """A system with a page that nobody has dispatched, and what is on it."""

    system: System
    runs_once: Sequence[ExecutionId]
    """One-offs, and a try again that is minutes away."""
    never_runs: Sequence[ExecutionId]
    """Cancelled; of a paused and of a deleted job, whose rows nobody came to cancel."""
    chains: Sequence[JobId]
    unread: Job
    """One whose schedule this release cannot read; as it was."""


def fails_first(claimed: Claimed) -> Outcome:
    if claimed.execution.attempt > 1 or not claimed.execution.spec:
        return Succeeded(result="1")
    return Failed(failure=Failure(kind=FailureKind.RETRYABLE, type="ValueError", message="no"))


def a_mixed_page(*, down_for: timedelta = 4 * MINUTE) -> Mixed:
    """Dispatch has been down for a while; all this is between the watermark and the line."""
    system = System(world=MemoryWorld(clock=VirtualClock(START), shards=4, partitions=1))
    system.run_for(MINUTE)
    ports = system.ports
    job = partial(created, ports)
    one_offs = [job(new_job(run_at=in_(ports, at))).first.id for at in (300, 330, 390.5)]
    beyond = job(new_job(run_at=in_(ports, 1800))).first.id
    chains = [
        recurring(ports, overlap=overlap, misfire=misfire, catch_up=CatchUp(most=2))
        for overlap, misfire in POLICIES
    ]
    taken_back = job(new_job(run_at=in_(ports, 320))).first.id
    cancel(ports, OWNER, taken_back)
    paused, deleted, broken = recurring(ports), recurring(ports), recurring(ports)
    with suppress(Crash):
        manage.pause(interposed(ports, dying_after("revise")), OWNER, paused.id)
    ports.jobs.delete(deleted)
    system.world.tables.jobs[broken.id] = unreadable(broken)
    # A try again beyond the line is a pointer; a visit of the sweep has left a check.
    system.handler = fails_first
    failed = job(new_job(run_at=in_(ports, 5), retry=RetryPolicy(base_seconds=400))).first
    system.run_for(10 * SECOND)
    ports.executions.point([timers.check(failed, in_(ports, 310))])
    system.ticking = False
    system.run_for(down_for)
    system.ticking = True
    unplanned = [only_row_of(system, one).id for one in (paused, deleted)]
    return Mixed(
        system=system,
        runs_once=[*one_offs, beyond, failed.id],
        never_runs=[taken_back, *unplanned],
        chains=[one.id for one in chains],
        unread=broken,
    )


def recurring(
    ports: Ports,
    *,
    overlap: OverlapPolicy = OverlapPolicy.ALLOW,
    misfire: MisfirePolicy = MisfirePolicy.FIRE_ONCE,
    catch_up: CatchUp | None = None,
) -> Job:
    new = new_job(schedule=every("6 minutes"), overlap=overlap, misfire=misfire, catch_up=catch_up)
    job = created(ports, new).job
    assert job is not None
    return job


def dying_after(method: str) -> Callable[[Call, When], None]:
    def hook(call: Call, when: When) -> None:
        if call.method == method and when is When.AFTER:
            raise Crash

    return hook


def unreadable(job: Job) -> Job:
    record: Record = {**job.schedule.to_record(), "timezone": "Atlantis/Poseidonis"}
    return replace(job, schedule=read_record(json.loads(json.dumps(record))))


def only_row_of(system: System, job: Job) -> Execution:
    (row,) = [row for row in system.world.tables.executions.values() if row.job_id == job.id]
    return row


def dispatcher(ports: Ports) -> object:
    return partition_work.dispatch(ports, 0, owner="doomed")


def broken_promises(mixed: Mixed, *, within: timedelta = RECOVERY) -> list[str]:
    """What is wrong, in words, once all is quiet again.

    The job that could not be read can be by then, and is found `within` that time.
    """
    system = mixed.system
    rows = system.world.tables.executions
    waited = [row.state for row in rows.values() if row.job_id == mixed.unread.id]
    found = [] if waited == [State.SCHEDULED] else [f"did not wait: {waited}"]
    system.world.tables.jobs[mixed.unread.id] = mixed.unread
    system.run_for(within)
    tries = Counter((run.execution_id, run.attempt) for run in system.runs)
    found += [f"run twice: {one}" for one, count in tries.items() if count > 1]
    found += [
        f"not run: {id} is {rows[id].state}"
        for id in mixed.runs_once
        if rows[id].state is not State.SUCCEEDED
    ]
    found += [f"run: {id}" for id in mixed.never_runs if any(id == one for one, _ in tries)]
    found += [f"not ended: {id}" for id in mixed.never_runs if rows[id].state not in FINAL]
    found += violations(system)
    found += [f"missed: {gap}" for job in mixed.chains for gap in missed(system, job)]
    for chain in [*mixed.chains, mixed.unread.id]:
        armed = [row for row in rows.values() if row.job_id == chain and not row.is_final]
        if len([row for row in armed if row.run_at > system.world.now() + 5 * MINUTE]) > 1:
            found.append(f"armed twice: {[row.id for row in armed]}")
    return found


def missed(system: System, job: JobId) -> Sequence[completeness.Group]:
    """Slots of the ledger that neither ran nor say why not."""
    part = completeness.account(
        system.ports, OWNER, job, start=START, end=system.world.now() - 5 * MINUTE
    )
    assert part.next is None
    return [group for group in part.groups if group.entry.outcome is Ledgered.MISSED]


@cache
def the_calls(down_for: timedelta) -> Sequence[Call]:
    """What an undisturbed dispatcher does after such an outage."""
    return calls_of(a_mixed_page(down_for=down_for).system.ports, dispatcher)


in_time_or_late = pytest.mark.parametrize(
    "down_for", [4 * MINUTE, 10 * MINUTE], ids=["in time", "after an outage"]
)


def test_the_page_holds_one_of_everything() -> None:
    """The others would prove little if it did not."""
    mixed = a_mixed_page()
    rows = mixed.system.world.tables.executions.values()
    pointers = mixed.system.world.tables.pointers.values()

    assert {row.state for row in rows} >= {State.SCHEDULED, State.CANCELLED, State.RETRYING}
    kinds = {pointer.kind for pointer in pointers if isinstance(pointer, Pointer)}
    assert kinds == {*PointerKind}
    assert len(mixed.chains) == len(OverlapPolicy)
    assert {misfire for _, misfire in POLICIES} == {*MisfirePolicy}
    assert len({call.method for call in the_calls(4 * MINUTE)}) >= 8


def test_undisturbed_it_comes_to_what_it_should() -> None:
    mixed = a_mixed_page()
    dispatcher(mixed.system.ports)

    mixed.system.run_for(RECOVERY)

    assert mixed.system.world.counts.events["recovered"] == 0
    assert broken_promises(mixed) == []


@in_time_or_late
def test_killed_between_any_two_calls_it_loses_nothing_and_runs_nothing_twice(
    down_for: timedelta,
) -> None:
    """S0-D1, S0-E1: the page is written down before it is done, so that the next does it again."""
    for strike in every_crash(the_calls(down_for)):
        mixed = a_mixed_page(down_for=down_for)
        survives(mixed.system.ports, dispatcher, strike)

        mixed.system.run_for(RECOVERY)

        assert broken_promises(mixed) == [], f"{strike}, {the_calls(down_for)[strike.number]}"


@in_time_or_late
def test_killed_again_and_again_it_loses_nothing(down_for: timedelta) -> None:
    """The owner after it dies too, at the next call on, and so on: each gets a little further."""
    mixed = a_mixed_page(down_for=down_for)
    for strike in every_crash(the_calls(down_for)):
        survives(mixed.system.ports, dispatcher, strike)
        mixed.system.world.pass_time(31 * SECOND)

    mixed.system.run_for(RECOVERY)

    assert broken_promises(mixed, within=3 * RECOVERY) == []


@in_time_or_late
def test_stalled_past_its_lease_at_any_call_it_moves_nothing(down_for: timedelta) -> None:
    """S1-L2, S1-L3: nobody ends the stalled owner; what it writes afterwards is refused."""
    for strike in every_strike(the_calls(down_for), whens=(When.BEFORE, When.AFTER)):
        mixed = a_mixed_page(down_for=down_for)
        meanwhile = partial(mixed.system.run_for, 2 * MINUTE)
        dispatcher(interposed(mixed.system.ports, pause_at(strike, meanwhile)))

        mixed.system.run_for(RECOVERY)

        assert broken_promises(mixed) == [], f"{strike}, {the_calls(down_for)[strike.number]}"


@in_time_or_late
def test_with_the_queue_purged_after_any_call_it_is_filled_again(down_for: timedelta) -> None:
    """S2-M1: what lies in the queue is a copy of what lies in the table."""
    for number in range(len(the_calls(down_for))):
        mixed = a_mixed_page(down_for=down_for)
        strike = Strike(number=number, when=When.AFTER)
        dispatcher(interposed(mixed.system.ports, pause_at(strike, mixed.system.world.queue.purge)))

        mixed.system.run_for(RECOVERY)

        assert broken_promises(mixed) == [], f"{strike}, {the_calls(down_for)[number]}"


@pytest.mark.parametrize(
    ("down_for", "within"),
    # What waits unread for a day is looked at again within half of one more.
    [(10 * MINUTE, RECOVERY), (timedelta(days=1), timedelta(hours=13))],
    ids=["ten minutes", "a day"],
)
def test_after_an_outage_every_slot_has_run_or_says_why_not(
    down_for: timedelta, within: timedelta
) -> None:
    """S2-M3, S2-N4: each misfire policy and each overlap policy, and no tick for a while."""
    mixed = a_mixed_page(down_for=down_for)

    mixed.system.run_for(RECOVERY)

    assert broken_promises(mixed, within=within) == []
