"""Deploys that take a task's version away, or have not brought it yet: what was made for it waits.

Worker and registry are the real ones; a deploy is another registry.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from lamplighter import Context
from lamplighter.core.lifecycle import State
from lamplighter.core.limits import PARKED_FOR, PARKED_LOOKS
from lamplighter.core.model import Execution, OnDeadline
from lamplighter.core.outcome import Parked
from lamplighter.core.status import Status, status_of
from lamplighter.memory import MemoryWorld
from lamplighter.services import execute, timers
from lamplighter.services.cancel import cancel
from lamplighter.services.heartbeat import Heartbeats
from lamplighter.services.submit import NewJob
from lamplighter.sim.system import System
from lamplighter.tasks.registry import Registry
from lamplighter.tasks.runner import TaskRunner
from tests.support.claims import submitted
from tests.support.jobs import OWNER, created, every, new_job

SOONEST, LATEST = PARKED_LOOKS
SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
UNKNOWN = Parked(reason="no worker knows task 'echo' yet; the last one asked has: other")


@pytest.fixture
def world() -> MemoryWorld:
    return MemoryWorld()


def answering(version: int) -> Callable[[None, Context], int]:
    return lambda payload, ctx: version


class Deploy:
    """A worker with these versions of one task; each answers which one it is."""

    def __init__(self, world: MemoryWorld, *versions: int, task: str = "bill") -> None:
        self.world = world
        tasks = Registry()
        for version in versions:
            tasks.task(task, version=version)(answering(version))
        self.runner = TaskRunner(tasks, Heartbeats(world.ports()), world.clock)

    def work(self) -> None:
        """Take whatever is visible."""
        for received in self.world.queue.receive():
            execute.process(self.world.ports(), received, self.runner, worker="worker")


def for_version(new: NewJob, version: int) -> NewJob:
    """The same job, made for a version of its task."""
    return replace(new, spec=replace(new.spec, task_version=version))


def the_row(world: MemoryWorld) -> Execution:
    (row,) = world.tables.executions.values()
    return row


def test_a_deploy_that_removes_a_task_version_parks_what_was_made_for_it(
    world: MemoryWorld,
) -> None:
    """S0-O10: visibly, and without an attempt or a crash."""
    submitted(world, task="bill", task_version=1)

    Deploy(world, 2, 3).work()

    row = the_row(world)
    assert (row.state, status_of(row, dispatched=True)) == (State.RETRYING, Status.PARKED)
    assert (
        row.reason == "no worker knows version 1 of task 'bill' yet; the last one asked has: 2, 3"
    )
    assert (row.attempt, row.attempts, row.crashes, row.first_started_at) == (1, (), 0, None)
    assert row.next_run_at == world.now() + SOONEST
    assert world.counts.events["parked"] == 1


def test_a_deploy_that_brings_the_version_back_runs_it_at_its_next_look(
    world: MemoryWorld,
) -> None:
    submitted(world, task="bill", task_version=1)
    for _ in range(3):
        Deploy(world, 2).work()
        world.pass_time(2 * SOONEST)

    Deploy(world, 1, 2).work()

    row = the_row(world)
    assert (row.state, row.result, row.parked_since) == (State.SUCCEEDED, "1", None)
    assert [try_.handler_version for try_ in row.attempts] == [1]


def test_what_was_made_for_no_version_runs_by_whichever_there_is(world: MemoryWorld) -> None:
    submitted(world, task="bill")

    Deploy(world, 2, 3).work()

    assert the_row(world).result == "3"


def test_while_two_deploys_share_a_queue_each_runs_what_it_knows(world: MemoryWorld) -> None:
    old, new = Deploy(world, 1), Deploy(world, 2)
    for version in (1, 2, 1, 2):
        submitted(world, task="bill", task_version=version)

    for deploy in (old, new, old, new):
        deploy.work()
        world.pass_time(LATEST)

    rows = world.tables.executions.values()
    assert all(row.result == str(row.task_version) for row in rows)


def test_a_job_made_before_the_first_deploy_of_its_task_waits_for_it(world: MemoryWorld) -> None:
    submitted(world, task="bill", task_version=1)
    Deploy(world, 1, task="other").work()
    assert the_row(world).is_parked

    world.pass_time(SOONEST)
    Deploy(world, 1).work()

    assert the_row(world).state is State.SUCCEEDED


def test_the_longer_it_waits_the_less_often_it_is_looked_at(world: MemoryWorld) -> None:
    submitted(world, task="bill", task_version=1)
    waits = []
    for _ in range(12):
        Deploy(world, 2).work()
        row = the_row(world)
        assert row.next_run_at is not None
        waits.append(row.next_run_at - world.now())
        world.clock.move_to(row.next_run_at)
        world.queue.purge()
        world.queue.send([timers.outgoing(row)], now=world.now())

    assert waits[0] == SOONEST
    assert waits == sorted(waits)
    assert waits[-1] == LATEST


def parked_system(world: MemoryWorld) -> System:
    """A system whose workers know nothing of what is asked of them."""
    return System(world=world, handler=lambda _: UNKNOWN)


def test_what_nobody_knows_for_days_fails_with_that_reason_and_its_owner_is_told() -> None:
    """S0-O10, S4-R4: never silently lost, and no dead-letter queue has a part in it."""
    world = MemoryWorld(parked_for=3 * HOUR, shards=4, partitions=1)
    system = parked_system(world)
    created(system.ports, new_job())

    system.run_for(3 * HOUR - SECOND)
    assert the_row(world).is_parked
    system.run_for(timedelta(minutes=1))

    row = the_row(world)
    assert (row.state, row.attempts, row.crashes) == (State.FAILED, (), 0)
    assert row.reason is not None
    assert UNKNOWN.reason in row.reason
    assert row.error is not None
    assert row.error.type == "UnknownTask"
    assert world.counts.events["undeliverable"] == 0
    assert world.counts.events["recovered"] == 0
    (notice,) = world.notices.of(row.id)
    assert notice.detail["reason"] == row.reason


def test_it_is_parked_for_a_week_unless_told_otherwise() -> None:
    assert MemoryWorld().ports().parked_for == PARKED_FOR == timedelta(days=7)


@pytest.mark.parametrize(
    ("on_deadline", "state"),
    [(OnDeadline.DEAD_LETTER, State.EXPIRED), (OnDeadline.SKIP, State.SKIPPED)],
    ids=["expires", "is skipped"],
)
def test_a_deadline_that_passes_while_it_is_parked_ends_it(
    on_deadline: OnDeadline, state: State
) -> None:
    world = MemoryWorld(shards=4, partitions=1)
    system = parked_system(world)
    created(system.ports, new_job(deadline=HOUR, on_deadline=on_deadline))

    system.run_for(HOUR + LATEST + SECOND)

    assert the_row(world).state is state


def test_what_is_parked_can_be_cancelled(world: MemoryWorld) -> None:
    submitted(world, task="bill", task_version=1)
    Deploy(world, 2).work()

    cancel(world.ports(), OWNER, the_row(world).id)

    assert the_row(world).state is State.CANCELLED


def test_a_cancel_that_came_while_it_was_looked_at_is_heeded(world: MemoryWorld) -> None:
    submitted(world, task="bill", task_version=1)
    (received,) = world.queue.receive()
    ports = world.ports()
    held = execute.begin(ports, received, worker="worker")
    assert isinstance(held, execute.Claimed)
    ports.executions.request_cancel(held.execution.id, now=world.now())

    execute.conclude(ports, held, UNKNOWN)

    world.pass_time(LATEST)
    Deploy(world, 1).work()
    assert the_row(world).state is State.CANCELLED


def test_every_occurrence_of_a_job_carries_the_version_it_was_made_for(
    world: MemoryWorld,
) -> None:
    """S0-O10."""
    new = new_job(schedule=every("1 minute"))
    made = created(world.ports(), for_version(new, 4))

    assert made.first.task_version == 4
    assert made.job is not None
    assert made.job.spec.task_version == 4
