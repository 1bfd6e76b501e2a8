"""S0-K3: dispatch skips what is due already and would give way; the rest is its claim's."""

from datetime import UTC, datetime, timedelta

import pytest

from lamplighter.core.lifecycle import State
from lamplighter.core.model import Execution, OverlapPolicy
from lamplighter.core.outcome import Succeeded
from lamplighter.memory import MemoryWorld, VirtualClock
from lamplighter.ports import Ports
from lamplighter.services.execute import Claimed, begin, conclude
from lamplighter.services.trigger import trigger
from lamplighter.sim.faults import Call, When, calls_of, interposed
from lamplighter.sim.invariants import violations
from lamplighter.sim.system import System
from tests.support.jobs import OWNER, created, every, new_job
from tests.support.partition_work import dispatch

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
START = datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)


def a_system() -> System:
    system = System(world=MemoryWorld(clock=VirtualClock(START), shards=1, partitions=1))
    system.run_for(MINUTE)
    return system


def a_long_run(overlap: OverlapPolicy) -> tuple[System, Claimed, Execution]:
    """A job's first slot under way for five minutes with nobody dispatching; its second is due."""
    system = a_system()
    created(system.ports, new_job(schedule=every("5 minutes"), overlap=overlap))
    system.run_for(2 * MINUTE)
    system.ticking = False
    system.world.pass_time(3 * MINUTE)
    (received,) = system.world.queue.receive()
    claimed = begin(system.ports, received, worker="worker")
    assert isinstance(claimed, Claimed)
    system.world.pass_time(5 * MINUTE + 10 * SECOND)
    beat(system, claimed)
    rows = system.world.tables.executions.values()
    (second,) = [row for row in rows if row.state is State.SCHEDULED]
    assert second.run_at <= system.world.now()
    return system, claimed, second


def beat(system: System, claimed: Claimed) -> None:
    system.ports.executions.extend(
        claimed.execution.id,
        token=claimed.token,
        lease_until=system.world.now() + timedelta(seconds=30),
    )


def test_what_is_due_behind_a_run_is_skipped_without_a_message() -> None:
    system, claimed, second = a_long_run(OverlapPolicy.SKIP)

    dispatch(system.ports, 0)

    row = system.world.tables.executions[second.id]
    assert (row.state, row.blocker) == (State.SKIPPED, claimed.execution.id)
    assert row.reason == f"overlap: {claimed.execution.id} is RUNNING"
    assert second.id not in [one.message.execution_id for one in system.world.queue.receive()]
    conclude(system.ports, claimed, Succeeded(result="null"))
    system.ticking = True
    system.run_for(20 * MINUTE)
    assert [*violations(system)] == []
    assert len(system.runs) == 4


def test_what_is_due_behind_a_run_whose_worker_is_silent_is_sent() -> None:
    """O-F07: a dead predecessor suppresses nothing: whoever takes it over ends it."""
    system, _, second = a_long_run(OverlapPolicy.SKIP)
    system.world.pass_time(MINUTE)

    dispatch(system.ports, 0)

    assert system.world.tables.executions[second.id].state is State.SCHEDULED


@pytest.mark.parametrize(
    "overlap",
    [OverlapPolicy.BUFFER_ONE, OverlapPolicy.BUFFER_ALL, OverlapPolicy.CANCEL_OTHER],
)
def test_what_would_not_be_skipped_is_sent(overlap: OverlapPolicy) -> None:
    system, _, second = a_long_run(overlap)

    dispatch(system.ports, 0)

    assert system.world.tables.executions[second.id].state is State.SCHEDULED
    assert second.id in [one.message.execution_id for one in system.world.queue.receive()]


def test_a_run_by_hand_that_comes_between_leaves_it_to_the_claim() -> None:
    """P16: what gave way to the one before the other would hide the other from its successor."""
    system, claimed, second = a_long_run(OverlapPolicy.SKIP)
    by_hand: list[Execution] = []

    def join(call: Call, when: When) -> None:
        if (call.method, when) == ("end", When.BEFORE):
            made = trigger(system.ports, OWNER, claimed.execution.job_id)
            assert isinstance(made, Execution)
            by_hand.append(made)

    dispatch(interposed(system.ports, join), 0)

    row = system.world.tables.executions[second.id]
    assert row.predecessor == by_hand[0].id
    assert row.state is State.SCHEDULED


def test_what_is_not_due_yet_costs_no_read() -> None:
    system = a_system()
    created(system.ports, new_job(schedule=every("5 minutes"), overlap=OverlapPolicy.SKIP))
    system.world.pass_time(2 * MINUTE)

    calls = [f"{call.port}.{call.method}" for call in calls_of(system.ports, dispatch_it)]

    assert "queue.send" in calls
    assert "executions.get_many" not in calls


def dispatch_it(ports: Ports) -> None:
    dispatch(ports, 0)
