"""What must hold in every history, whatever was done to the system."""

from collections import Counter
from collections.abc import Collection, Iterator
from datetime import datetime, timedelta

from lamplighter.core.buckets import ExecutionId, JobId, execution_of
from lamplighter.core.lifecycle import FINAL, NEEDS_ATTENTION, State
from lamplighter.core.model import Execution, OverlapPolicy, Trigger, Watch
from lamplighter.core.permits import held_until
from lamplighter.memory import MemoryWorld
from lamplighter.sim.system import System

_SWEPT = timedelta(minutes=3)  # a bucket was visited that long after its minute
_ACCEPTED = frozenset({State.SUCCEEDED, State.FAILED, State.DEAD_LETTERED})


def violations(system: System) -> Iterator[str]:
    """Every broken promise, in words; nothing when all hold. To be asked at quiescence."""
    yield from _lost(system.world)
    yield from _early(system)
    yield from _dead_chains(system.world)
    yield from _unwatched(system.world)
    yield from _overlapping(system)
    yield from system.over_limits
    yield from _kept_places(system.world)
    yield from of_rows(system.world, {run.execution_id for run in system.runs})


def of_rows(
    world: MemoryWorld, ran: Collection[ExecutionId], *, skew: timedelta = timedelta(0)
) -> Iterator[str]:
    """Broken promises that rows tell of by themselves, of hosts whose clocks are so far apart.

    Whoever ended a row that short a time ago may still be at what comes next.
    """
    yield from _given_up_unrun(world)
    yield from _untold(world, skew)
    yield from _taken_back_by_nobody(world)
    yield from _accepted_twice(world)
    yield from _skipped_for_nothing(world, skew)
    yield from _in_two_places(world, ran)


def _in_two_places(world: MemoryWorld, ran: Collection[ExecutionId]) -> Iterator[str]:
    """A one-off that was moved runs where its id leads, and nowhere else (P20)."""
    rows = world.tables.executions
    places: dict[JobId, list[Execution]] = {}
    for row in rows.values():
        if row.trigger is Trigger.ONE_OFF:
            places.setdefault(row.job_id, []).append(row)
    for job, them in places.items():
        first = rows[execution_of(job) or them[0].id]
        last = rows[first.moved_to or first.id]
        left = [row for row in them if row.id != last.id]
        stray = [row.id for row in left if row.id in ran or row.moved_to is None]
        if stray or last.moved_to is not None:
            yield f"in two places: {job} leads to {last.id}, and there are {stray}"


def _lost(world: MemoryWorld) -> Iterator[str]:
    """An accepted execution whose time is over has ended, or is armed for later."""
    for row in world.tables.executions.values():
        if row.state not in FINAL and row.due_at <= world.now():
            yield f"lost: {row.id} is {row.state}, due {row.due_at}"


def _given_up_unrun(world: MemoryWorld) -> Iterator[str]:
    """What is dead-lettered was tried: no outage of ours may stand for a task's failure."""
    for row in world.tables.executions.values():
        if row.state is State.DEAD_LETTERED and not row.attempts:
            yield f"given up without a try: {row.id}, {row.reason}"


def _untold(world: MemoryWorld, skew: timedelta) -> Iterator[str]:
    """Whoever owns what needs attention was told of it, and the row says so (S4-R4)."""
    told = {notice.detail["execution_id"] for notice in world.notices.given}
    for row in world.tables.executions.values():
        if row.finished_at is not None and row.finished_at > world.now() - skew:
            continue
        if row.state in NEEDS_ATTENTION and (row.told_at is None or row.id not in told):
            yield f"nobody was told: {row.id} is {row.state}, {row.reason}"


def _taken_back_by_nobody(world: MemoryWorld) -> Iterator[str]:
    """What is cancelled was taken back by its owner, or by a later version of its job."""
    for row in world.tables.executions.values():
        job = world.tables.jobs.get(row.job_id)
        planned_still = job is not None and job.produces(row) and row.job_version == job.version
        if row.state is State.CANCELLED and planned_still and row.cancel_requested_at is None:
            yield f"cancelled though its job plans it: {row.id}, {row.reason}"


def _early(system: System) -> Iterator[str]:
    for run in system.runs:
        row = system.world.tables.executions[run.execution_id]
        if run.started_at < max(run.due_at, row.run_at):
            yield f"early: {run.execution_id} started {run.started_at}, due {run.due_at}"


def _accepted_twice(world: MemoryWorld) -> Iterator[str]:
    """One execution has at most one accepted result."""
    counts = Counter(row.id for row in world.counts.finishes if row.state in _ACCEPTED)
    for id, count in counts.items():
        if count > 1:
            yield f"accepted {count} times: {id}"


def _dead_chains(world: MemoryWorld) -> Iterator[str]:
    """An active recurring job that makes more occurrences has one armed and unsent (P2)."""
    armed = Counter(
        row.job_id
        for row in world.tables.executions.values()
        if row.state is State.SCHEDULED and row.run_at > world.now()
    )
    for job in world.tables.jobs.values():
        if job.next_after(world.now()) is not None and not armed[job.id]:
            yield f"dead chain: {job.id} has nothing armed"


def _unwatched(world: MemoryWorld) -> Iterator[str]:
    """A recurring job that makes more occurrences has its ledger looked at, some time soon (P7)."""
    watched = {
        row.job_id
        for row in world.tables.pointers.values()
        if isinstance(row, Watch) and row.at > world.now() - _SWEPT
    }
    for job in world.tables.jobs.values():
        if job.next_after(world.now()) is not None and job.id not in watched:
            yield f"unwatched: nothing will look at the ledger of {job.id}"


def _overlapping(system: System) -> Iterator[str]:
    """Of a job that does not allow overlap, no two handlers run at once (P12–P16)."""
    until: dict[JobId, tuple[datetime, ExecutionId]] = {}
    for run in sorted(system.runs, key=lambda run: run.started_at):
        job = system.world.tables.jobs.get(run.job_id)
        if job is None or job.overlap is OverlapPolicy.ALLOW:
            continue
        ended_at, other = until.get(run.job_id, (run.started_at, run.execution_id))
        if run.started_at < ended_at:
            yield f"overlap: {run.execution_id} started {run.started_at}, {other} ran to {ended_at}"
        ends = run.ended_at or system.world.now()
        until[run.job_id] = max((ended_at, other), (ends, run.execution_id))


def _skipped_for_nothing(world: MemoryWorld, skew: timedelta) -> Iterator[str]:
    """What gave way did so when it was due, for another, which was due by then."""
    rows = world.tables.executions
    for row in rows.values():
        blocker = rows.get(row.blocker) if row.blocker else None
        if row.state is not State.SKIPPED or row.finished_at is None:
            continue
        if row.finished_at + skew < row.run_at:
            yield f"skipped too soon: {row.id} at {row.finished_at}, {row.reason}"
        if blocker is None:
            continue
        if blocker.id == row.id or blocker.run_at > row.finished_at + skew:
            yield f"skipped for nothing: {row.id}, {row.reason}"


def _kept_places(world: MemoryWorld) -> Iterator[str]:
    """Of what has ended nobody keeps a place: who looks finds it free (S0-K2)."""
    for key, use in world.permits.held.items():
        for permit, until in use.holders.items():
            row = world.tables.executions.get(permit.execution_id)
            if until > world.now() or held_until(permit, row, world.now()) is not None:
                yield f"kept: {permit.execution_id} has a place of {key} until {until}"
