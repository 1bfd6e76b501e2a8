"""Rules P2, P17 and P19 where an owner cancels an occurrence: as histories, see `rules`."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any
from unittest.mock import patch

from lamplighter.core.model import Execution, Job
from lamplighter.ports import Ports
from lamplighter.services import cancel, manage, watch
from lamplighter.sim.faults import Call, Crash, When, interposed
from lamplighter.sim.invariants import violations
from lamplighter.sim.system import System
from tests.simulation.rules import (
    MINUTE,
    Rule,
    a_system,
    crashing,
    die,
    end_whatever_the_version,
    on,
)
from tests.support.jobs import OWNER, created, every, new_job


def an_unseen_first(system: System) -> tuple[Job, Execution]:
    """A job whose API died before it looked at the clock; dispatch is past its first row.

    When it planned the row that lay beyond the line, so it is not marked "sent directly".
    """
    stall = on("jobs.create", When.BEFORE, lambda: system.run_for(3 * MINUTE))
    crash = on("jobs.create", When.AFTER, die)

    def hook(call: Call, when: When) -> None:
        stall(call, when)
        crash(call, when)

    with suppress(Crash):
        created(interposed(system.ports, hook), new_job(schedule=every("5 minutes")))
    (job,) = system.world.tables.jobs.values()
    (first,) = system.world.tables.executions.values()
    return job, first


def unmended(system: System, duration: timedelta) -> None:
    """Let it run without the watch, which would find a dead chain within the hour and mend it."""
    with patch.object(watch, "_mend", lambda *_, **__: None):
        system.run_for(duration)


# P2


def cancelled_before_its_successor_exists() -> Iterator[str]:
    """The first occurrence, behind the watermark and unsent, is cancelled before it is swept."""
    system = a_system()
    _, first = an_unseen_first(system)
    cancel.cancel(system.ports, OWNER, first.id)
    unmended(system, 30 * MINUTE)
    yield from violations(system)


def arm_nothing() -> AbstractContextManager[Any]:
    """P2 out: the row is ended, and that is all."""
    return patch.object(cancel, "_job_of", lambda _ports, _row: None)


# P17


def cancelled_by_a_stale_pause() -> Iterator[str]:
    """A cancel reads a job as paused; a resume takes the row as its first, and dies."""
    system = a_system()
    job, first = an_unseen_first(system)
    with patch.object(manage, "_stop_what_was_armed", lambda *_, **__: ()):
        manage.pause(system.ports, OWNER, job.id)

    def resume(ports: Ports) -> object:
        return manage.resume(ports, OWNER, job.id)

    def resume_and_die() -> None:
        crashing(system.ports, "jobs.revise", When.AFTER, resume)

    stale = interposed(system.ports, on("executions.end", When.BEFORE, resume_and_die))
    cancel.cancel(stale, OWNER, first.id)
    unmended(system, 30 * MINUTE)
    yield from violations(system)


# P19


def edited_after_its_owner_s_word() -> Iterator[str]:
    """An occurrence is cancelled, then its job edited; both versions plan its slot."""
    system = a_system()
    made = created(system.ports, new_job(schedule=every("10 minutes")))
    cancel.cancel(system.ports, OWNER, made.first.id)
    manage.edit(system.ports, OWNER, made.job_id, lambda job: replace(job, name="another"))
    system.run_for(15 * MINUTE)
    if any(run.execution_id == made.first.id for run in system.runs):
        yield f"{made.first.id} ran though its owner had cancelled it"
    yield from violations(system)


def end_without_the_owner_s_word() -> AbstractContextManager[Any]:
    """P19 out: the row does not say who cancelled it."""

    def unmarked(row: Execution, *, cancel_requested_at: object) -> Execution:
        return row

    return patch.object(cancel, "replace", unmarked)


CANCEL_RULES: Sequence[Rule] = (
    Rule(
        id="P2",
        says="a cancel arms the successor first",
        history=cancelled_before_its_successor_exists,
        without=arm_nothing,
    ),
    Rule(
        id="P17",
        says="a cancel checks the version by which it armed",
        history=cancelled_by_a_stale_pause,
        without=end_whatever_the_version,
    ),
    Rule(
        id="P19",
        says="what its owner cancelled stays cancelled",
        history=edited_after_its_owner_s_word,
        without=end_without_the_owner_s_word,
    ),
)
