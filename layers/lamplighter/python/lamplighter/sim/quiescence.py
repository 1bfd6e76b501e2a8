"""What must hold once nothing has gone wrong for a while: every promise, of every row."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from lamplighter.core.buckets import ExecutionId, execution_of
from lamplighter.core.completeness import Outcome
from lamplighter.core.lifecycle import State
from lamplighter.core.limits import CHAIN_READS, ON_TIME, SWEEP_AFTER
from lamplighter.core.model import Execution, Job, JobStatus, OverlapPolicy, Trigger
from lamplighter.core.waits import Part
from lamplighter.memory import MemoryWorld
from lamplighter.services import completeness
from lamplighter.sim.chains import next_slot
from lamplighter.sim.invariants import of_rows
from lamplighter.sim.simulation import Simulation
from lamplighter.sim.watch import Violation

_MINUTE: Final = timedelta(minutes=1)
# What is stuck is looked at again after half of its lateness.
_MENDED_WITHIN: Final = timedelta(minutes=20)
_SECOND: Final = timedelta(seconds=1)


def violations(simulation: Simulation) -> Iterator[Violation]:
    """Every promise that is broken at the end, and those that were on the way."""
    yield from simulation.watch.violations
    yield from _lost(simulation)
    yield from of_jobs(simulation.world)
    yield from _late(simulation)
    yield from _needlessly_mended(simulation)
    for promise, says, about in simulation.books.broken(start=simulation.start):
        yield Violation(promise=promise, says=says, about=(about,))
    ran = {run.execution_id for run in simulation.watch.runs}
    for says in of_rows(simulation.world, ran, skew=_SECOND):
        promise, _, rest = says.partition(": ")
        yield Violation(promise=promise, says=rest, about=_ids(simulation, rest))


def of_jobs(world: MemoryWorld) -> Iterator[Violation]:
    """What a recurring job's rows tell: each chain goes on, none forks, every slot is there."""
    yield from _dead_chains(world)
    yield from _forked(world)
    yield from _unaccounted(world)


def _ids(simulation: Simulation, text: str) -> tuple[str, ...]:
    words = [word.strip(",.;'[]") for word in text.split()]
    tables = simulation.world.tables
    return tuple(word for word in words if word in tables.executions or word in tables.jobs)


def _lost(simulation: Simulation) -> Iterator[Violation]:
    """Whatever was answered for is there, and what was due has ended, or is at it."""
    tables, now = simulation.world.tables, simulation.world.now()
    for id in simulation.owners.accepted:
        first = execution_of(id) if id.startswith("one_") else None  # type: ignore[arg-type]
        if not (id in tables.jobs or id in tables.executions or first in tables.executions):
            yield Violation(promise="nothing is lost", says=f"{id} is gone", about=(id,))
    for row in tables.executions.values():
        if row.is_final or _had_to_end_after(simulation, row) >= now - _MENDED_WITHIN:
            continue
        if not _was_never_answered(simulation, row):
            says = f"{row.id} is {row.state}, due {row.due_at}"
            yield Violation(promise="nothing is lost", says=says, about=(row.id, row.job_id))


def _had_to_end_after(simulation: Simulation, row: Execution) -> datetime:
    """When nothing was in a row's way any more; now, where something is."""
    blocker = simulation.world.tables.executions.get(row.blocker) if row.blocker else None
    if row.state is State.BLOCKED and blocker is not None:
        return max(row.due_at, blocker.finished_at or simulation.world.now())
    return max(row.due_at, row.lease_until or row.due_at)


def _was_never_answered(simulation: Simulation, row: Execution) -> bool:
    """Whether a request's maker died without an answer, and nobody has touched what it made.

    It was frozen between its last look at the clock and the write, for longer than an API has:
    then even the sweep had passed the place. Who asked knows nothing.
    """
    is_untouched = row.trigger is not Trigger.SCHEDULE and row.state is State.SCHEDULED
    asked_for = row.job_id if row.trigger is Trigger.ONE_OFF else row.id
    is_answered = asked_for in simulation.owners.accepted
    was_frozen = simulation.behind.put_at(row.id) > row.run_at + SWEEP_AFTER - _SECOND
    return is_untouched and was_frozen and not is_answered


def _dead_chains(world: MemoryWorld) -> Iterator[Violation]:
    """An active recurring job that makes more occurrences has one armed and unsent (P2)."""
    tables, now = world.tables, world.now()
    armed = Counter(
        row.job_id
        for row in tables.executions.values()
        if row.state is State.SCHEDULED and row.trigger is Trigger.SCHEDULE and row.run_at > now
    )
    for job in tables.jobs.values():
        following = next_slot(tables.executions, job, now)
        if following is not None and not armed[job.id]:
            says = f"{job.id} ({job.schedule.text}) has nothing armed for {following}"
            yield Violation(promise="no chain ends", says=says, about=(job.id,))


def _forked(world: MemoryWorld) -> Iterator[Violation]:
    """No two slots follow the same one: neither would look at the other (P12, P16).

    What runs beside the schedule may look past a slot that gave way, so it is left out.
    """
    following: dict[tuple[ExecutionId, int], list[Execution]] = defaultdict(list)
    for row in world.tables.executions.values():
        if row.trigger is Trigger.SCHEDULE and row.predecessor and row.state is not State.CANCELLED:
            following[row.predecessor, row.job_version].append(row)
    for (predecessor, _), rows in following.items():
        if len(rows) < 2:
            continue
        two = [row.id for row in rows if not _looked_past(world, row)][:2]
        if len(two) == 2:
            says = f"{two[0]} and {two[1]} both follow {predecessor}"
            yield Violation(promise="no chain forks", says=says, about=(*two, predecessor))


def _looked_past(world: MemoryWorld, row: Execution) -> bool:
    """Whether a row that waits for its turn has come so far back that it keeps from where."""
    before = row.predecessor and world.tables.executions.get(row.predecessor)
    if not before:
        return False
    between = (
        one
        for one in world.tables.executions.values()
        if one.job_id == row.job_id and before.scheduled_for < one.scheduled_for < row.scheduled_for
    )
    return sum(1 for _ in between) >= CHAIN_READS


def _unaccounted(world: MemoryWorld) -> Iterator[Violation]:
    """Every slot that a job planned ran, or has a reason why not (the ledger)."""
    ports, now = world.ports(), world.now()
    for job in [*world.tables.jobs.values()]:
        place, total = None, 0
        while True:
            found = completeness.account(
                ports, job.owner, job.id, start=job.created_at, end=now, after=place
            )
            total += found.count()
            for group in found.groups:
                if group.entry.outcome is Outcome.MISSED:
                    says = f"{group.count} of {job.id}, {group.entry.reason}, from {group.first}"
                    yield Violation(promise="the ledger balances", says=says, about=(job.id,))
            place = found.next
            if place is None:
                break
        yield from _uncounted(job, total, now)


def _uncounted(job: Job, total: int, now: datetime) -> Iterator[Violation]:
    """Of a job that was never changed, the ledger has every slot exactly once."""
    if job.version > 1 or job.status is not JobStatus.ACTIVE:
        return
    planned = sum(1 for slot in job.schedule.between(job.created_at, now) if slot > job.created_at)
    if planned != total:
        says = f"{job.id} planned {planned} slots, and {total} are accounted for"
        yield Violation(promise="the ledger balances", says=says, about=(job.id,))


def _late(simulation: Simulation) -> Iterator[Violation]:
    """Where no fault is active, everything starts on time that nothing is in the way of."""
    is_calm = not simulation.setup.faults
    since = simulation.start if is_calm else simulation.end_of_trouble + _MENDED_WITHIN
    until = simulation.world.now() - _MINUTE
    tables = simulation.world.tables
    for row in tables.executions.values():
        job = tables.jobs.get(row.job_id)
        if job is not None and job.overlap is not OverlapPolicy.ALLOW:
            continue
        if row.caught_up is not None or not since <= row.run_at < until:
            continue
        if row.waited is not None and row.waited.on is Part.PERMIT:
            # Others were in its way: as many as an operator lets run at once.
            continue
        lateness = row.lateness
        is_late = lateness is not None and lateness > ON_TIME
        if is_late or (lateness is None and not row.is_final):
            says = f"{row.id}, due {row.run_at}, started {row.first_started_at}"
            yield Violation(promise="on time", says=says, about=(row.id, row.job_id))


def _needlessly_mended(simulation: Simulation) -> Iterator[Violation]:
    """Where nothing goes wrong, the sweep finds nothing to mend.

    But for who is woken in the very instant of its visit: that one is sent twice.
    """
    mended = [why for why in simulation.watch.mended if not why.startswith(State.BLOCKED)]
    if mended and not simulation.setup.faults:
        says = f"{len(mended)} repairs without a fault, of {mended[0]}"
        yield Violation(promise="nothing needs mending", says=says)
