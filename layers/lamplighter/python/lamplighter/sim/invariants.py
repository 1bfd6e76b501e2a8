"""What must hold in every history, whatever was done to the system."""

from collections import Counter
from collections.abc import Iterator

from lamplighter.core.lifecycle import FINAL, State
from lamplighter.memory import MemoryWorld
from lamplighter.sim.system import System

_ACCEPTED = frozenset({State.SUCCEEDED, State.FAILED, State.DEAD_LETTERED})


def violations(system: System) -> Iterator[str]:
    """Every broken promise, in words; nothing when all hold. To be asked at quiescence."""
    yield from _lost(system.world)
    yield from _early(system)
    yield from _accepted_twice(system.world)
    yield from _dead_chains(system.world)


def _lost(world: MemoryWorld) -> Iterator[str]:
    """An accepted execution whose time is over has ended, or is armed for later."""
    for row in world.tables.executions.values():
        if row.state not in FINAL and row.due_at <= world.now():
            yield f"lost: {row.id} is {row.state}, due {row.due_at}"


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
