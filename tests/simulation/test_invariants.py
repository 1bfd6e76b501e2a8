"""The invariants see what they are for: each is shown a world that breaks it."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from lamplighter.core.lifecycle import State
from lamplighter.core.model import Execution, Watch
from lamplighter.core.permits import Key, Kind, Permit, Use
from lamplighter.memory import MemoryWorld, VirtualClock
from lamplighter.services import permits as limits
from lamplighter.sim.invariants import violations
from lamplighter.sim.system import System
from tests.support.jobs import created, every, new_job

LANE = Key(kind=Kind.QUEUE, name="default")
START = datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)


def a_busy_system() -> System:
    """A one-off and a recurring job have run, and the next occurrence is armed."""
    system = System(world=MemoryWorld(clock=VirtualClock(START), shards=4, partitions=1))
    created(system.ports, new_job())
    created(system.ports, new_job(schedule=every("1 minute")))
    system.run_for(timedelta(minutes=10))
    return system


def rows(system: System) -> dict[str, Execution]:
    return {id: row for id, row in system.world.tables.executions.items() if row.is_final}


def write(system: System, **changes: object) -> None:
    """Change one execution that has run."""
    row = next(iter(rows(system).values()))
    system.world.tables.executions[row.id] = replace(row, **changes)  # type: ignore[arg-type]


def lose(system: System) -> None:
    write(system, state=State.SCHEDULED)


def give_up(system: System) -> None:
    write(system, state=State.DEAD_LETTERED, attempts=())


def tell_nobody(system: System) -> None:
    write(system, state=State.FAILED)


def tell_and_forget(system: System) -> None:
    write(system, state=State.FAILED, told_at=START)


def take_back(system: System) -> None:
    row = next(row for row in rows(system).values() if row.spec is None)
    system.world.tables.executions[row.id] = replace(row, state=State.CANCELLED)


def skip_ahead(system: System) -> None:
    write(system, state=State.SKIPPED, finished_at=START - timedelta(minutes=1))


def start_early(system: System) -> None:
    system.runs[0] = replace(system.runs[0], started_at=START - timedelta(seconds=1))


def accept_twice(system: System) -> None:
    system.world.counts.finishes.append(system.world.counts.finishes[0])


def break_the_chain(system: System) -> None:
    for row in [*system.world.tables.executions.values()]:
        if row.run_at > system.world.now():
            del system.world.tables.executions[row.id]


def look_away(system: System) -> None:
    pointers = system.world.tables.pointers
    for position, row in [*pointers.items()]:
        if isinstance(row, Watch):
            del pointers[position]


def move_what_has_run(system: System) -> None:
    row = next(row for row in rows(system).values() if row.spec is not None)
    place = created(system.ports, new_job()).first
    there = replace(place, job_id=row.job_id, moved_to=None)
    system.world.tables.executions[place.id] = there
    system.world.tables.executions[row.id] = replace(row, moved_to=place.id)


def ignore_a_limit(system: System) -> None:
    """Three run, their places are lost, and a fourth starts where three may."""
    limits.set_limit(system.ports, LANE, 3)
    system.lasts = lambda _: timedelta(seconds=20)
    for _ in range(3):
        created(system.ports, new_job())
    system.run_for(timedelta(seconds=1))
    system.world.permits.held[LANE] = Use(limit=3)
    created(system.ports, new_job())
    system.run_for(timedelta(seconds=1))


def keep_a_place(system: System) -> None:
    row = next(iter(rows(system).values()))
    until = system.world.now() + timedelta(days=1)
    permit = Permit(execution_id=row.id, mark="f00dcafe")
    system.world.permits.held[LANE] = Use(holders={permit: until})


def test_a_system_that_keeps_its_promises_violates_nothing() -> None:
    system = a_busy_system()

    assert len(system.runs) > 5
    assert [*violations(system)] == []


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (lose, "lost: "),
        (give_up, "given up without a try: "),
        (tell_nobody, "nobody was told: "),
        (tell_and_forget, "nobody was told: "),
        (take_back, "cancelled though its job plans it: "),
        (skip_ahead, "skipped too soon: "),
        (start_early, "early: "),
        (accept_twice, "accepted 2 times: "),
        (break_the_chain, "dead chain: "),
        (look_away, "unwatched: "),
        (move_what_has_run, "in two places: "),
        (ignore_a_limit, "over the limit: "),
        (keep_a_place, "kept: "),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_broken_promise_is_told(harm: Callable[[System], None], says: str) -> None:
    system = a_busy_system()

    harm(system)

    assert [one for one in violations(system) if one.startswith(says)]
