"""Rule P20, and P1 where a one-off is moved: as histories, see `rules`."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import datetime
from typing import Any
from unittest.mock import patch

from lamplighter.core.errors import Conflict
from lamplighter.core.lifecycle import State
from lamplighter.core.model import Execution
from lamplighter.core.outcome import moved
from lamplighter.memory import MemoryExecutions
from lamplighter.ports import Ports
from lamplighter.services import amend, submit
from lamplighter.services.submit import Created
from lamplighter.sim.faults import When, interposed
from lamplighter.sim.invariants import violations
from lamplighter.sim.system import System
from tests.simulation.rules import MINUTE, Rule, a_system, late, on
from tests.support.jobs import OWNER, created, in_, new_job, to


def a_one_off_due_soon() -> tuple[System, Created]:
    system = a_system()
    return system, created(system.ports, new_job(run_at=in_(system.ports, 5)))


# P20


def moved_while_it_is_claimed() -> Iterator[str]:
    """A worker takes it between the mover's read and its write."""
    system, made = a_one_off_due_soon()
    claim = on("executions.move", When.BEFORE, lambda: system.run_for(MINUTE))
    with suppress(Conflict):
        ports = interposed(system.ports, claim)
        amend.amend(ports, OWNER, made.job_id, to(run_at=in_(system.ports, 600)))
    system.run_for(30 * MINUTE)
    if len(system.runs) != 1:
        yield f"{len(system.runs)} runs of a one-off"
    yield from violations(system)


def moved_twice_at_once() -> Iterator[str]:
    """Two callers have read it in one place, and each moves it to another."""
    system, made = a_one_off_due_soon()

    def meanwhile() -> None:
        amend.amend(system.ports, OWNER, made.job_id, to(run_at=in_(system.ports, 600)))

    ports = interposed(system.ports, on("executions.move", When.BEFORE, meanwhile))
    amend.amend(ports, OWNER, made.job_id, to(run_at=in_(system.ports, 900)))
    system.run_for(30 * MINUTE)
    if len(system.runs) != 1:
        yield f"{len(system.runs)} runs of a one-off"
    yield from violations(system)


def move_whatever_has_come_of_it() -> AbstractContextManager[Any]:
    """P20 out: the row is made elsewhere, whatever is found in the place that it leaves."""

    def move(
        self: MemoryExecutions, before: Execution, after: Execution, *, now: datetime
    ) -> Execution:
        rows = self._tables.executions
        if rows[before.id].state is State.SCHEDULED:
            rows[before.id] = moved(rows[before.id], to=after.id, now=now)
        return self._tables.make(after)

    return patch.object(MemoryExecutions, "move", move)


# P1, of a move


def moved_behind_the_watermark() -> Iterator[str]:
    """The mover finds the new time beyond the line and stalls; dispatch passes it by."""
    system, made = a_one_off_due_soon()
    stall = on("executions.move", When.BEFORE, lambda: system.run_for(3 * MINUTE))
    due = in_(system.ports, 290)
    later = created(system.ports, new_job(run_at=in_(system.ports, 3000)))
    amend.amend(interposed(system.ports, stall), OWNER, later.job_id, to(run_at=due))
    system.run_for(10 * MINUTE)
    yield from late(system, but=[made.first.id])
    yield from violations(system)


def move_and_do_not_look() -> AbstractContextManager[Any]:
    """P1 out of the move: what was decided before it is believed after it."""

    def look(ports: Ports, first: Execution, job: None) -> None:
        if first.sent_directly:
            submit.look(ports, first, job)

    return patch.object(amend, "look", look)


AMEND_RULES: Sequence[Rule] = (
    Rule(
        id="P20",
        says="a one-off is moved only while nobody has claimed it",
        history=moved_while_it_is_claimed,
        without=move_whatever_has_come_of_it,
    ),
    Rule(
        id="P20",
        says="and only from where it still is",
        history=moved_twice_at_once,
        without=move_whatever_has_come_of_it,
    ),
    Rule(
        id="P1",
        says="and after a one-off was moved",
        history=moved_behind_the_watermark,
        without=move_and_do_not_look,
    ),
)
