"""The dead-letter handler, called with what the lanes could not deliver."""

from datetime import timedelta

from lamplighter.aws.queue import body_of
from lamplighter.core.buckets import ExecutionId
from lamplighter.core.errors import Unavailable
from lamplighter.core.lifecycle import State
from lamplighter.core.limits import UNDELIVERABLE_AFTER
from lamplighter.core.model import Execution, Message
from lamplighter.memory import MemoryWorld
from lamplighter.sim.faults import Call, When, interposed
from tests.support.jobs import created, new_job
from tests.support.lambdas import Context, Deployed, Function, OnMemory, batch, kept, record


def lost(world: MemoryWorld) -> Execution:
    """An execution whose message nobody could deliver."""
    first = created(world.ports(), new_job()).first
    world.queue.purge()
    return first


def body(row: Execution, attempt: int = 1) -> str:
    return body_of(Message(execution_id=row.id, attempt=attempt, due_at=row.run_at))


def state(world: MemoryWorld, id: ExecutionId) -> State:
    row = world.ports().executions.get(id)
    assert row is not None
    return row.state


def test_an_execution_that_still_waits_is_sent_again(
    dead_letters: Function, deployed: Deployed
) -> None:
    """O-F15: what was never tried is not given up."""
    id = deployed.submit("echo")
    event = deployed.receive("default")
    deployed.empty()

    assert dead_letters.handle(event, Context()) == kept()

    (again,) = deployed.receive("default")["Records"]
    assert id in again["body"]
    assert deployed.row(id).undeliverable == 1


def test_the_third_time_a_day_late_it_is_dead_lettered(
    dead_letters: Function, on_memory: OnMemory, world: MemoryWorld
) -> None:
    """S1-W4."""
    row = lost(world)
    on_memory(dead_letters)
    states = []
    world.pass_time(UNDELIVERABLE_AFTER)

    for _ in range(3):
        dead_letters.handle(batch([record(body(row))]), Context())
        states.append(state(world, row.id))

    assert states == [State.SCHEDULED, State.SCHEDULED, State.DEAD_LETTERED]


def test_workers_that_can_claim_nothing_for_hours_cost_no_execution(
    dead_letters: Function, on_memory: OnMemory, world: MemoryWorld
) -> None:
    row = lost(world)
    on_memory(dead_letters)
    world.pass_time(UNDELIVERABLE_AFTER - timedelta(minutes=1))

    for _ in range(10):
        dead_letters.handle(batch([record(body(row))]), Context())

    assert state(world, row.id) is State.SCHEDULED


def test_a_message_that_nobody_needs_is_dropped(
    dead_letters: Function, on_memory: OnMemory, world: MemoryWorld
) -> None:
    row = lost(world)
    on_memory(dead_letters)
    world.pass_time(UNDELIVERABLE_AFTER)
    for _ in range(3):
        dead_letters.handle(batch([record(body(row))]), Context())
    world.queue.purge()

    assert dead_letters.handle(batch([record(body(row))]), Context()) == kept()
    assert len(world.queue) == 0


def test_what_is_none_of_ours_stays_for_somebody_to_see(
    dead_letters: Function, on_memory: OnMemory, world: MemoryWorld
) -> None:
    row = lost(world)
    event = batch(
        [record("not json", id="poison"), record(body(row), id="ours"), record("{}", id="empty")]
    )

    assert on_memory(dead_letters).handle(event, Context()) == kept("poison", "empty")
    assert len(world.queue) == 1


def test_a_service_that_does_not_answer_keeps_its_message_and_no_other(
    dead_letters: Function, on_memory: OnMemory, world: MemoryWorld
) -> None:
    """What was done is not done once more: its count would rise without a reason."""
    first, second = lost(world), lost(world)
    sends = iter([True, False])

    def hook(call: Call, when: When) -> None:
        if call.method == "send" and when is When.BEFORE and next(sends):
            raise Unavailable("no answer")

    on_memory(dead_letters, interposed(world.ports(), hook))
    event = batch([record(body(first), id="first"), record(body(second), id="second")])

    assert dead_letters.handle(event, Context()) == kept("first")
    (sent,) = world.queue.receive()
    assert sent.message.execution_id == second.id
