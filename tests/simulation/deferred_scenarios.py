"""Tries that go on without their worker: handed over, ended by their token, or forgotten."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from lamplighter.core.deferral import Terms
from lamplighter.core.errors import Conflict
from lamplighter.core.model import OverlapPolicy
from lamplighter.core.outcome import Deferred, Failed, Succeeded
from lamplighter.core.retry import Failure, Kind, RetryPolicy
from lamplighter.memory import MemoryWorld, VirtualClock
from lamplighter.ports import Ports
from lamplighter.services import deferred, execute
from lamplighter.services.execute import Claimed
from lamplighter.sim.system import System
from tests.support.jobs import created, every, in_, new_job

START = datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
TERMS = Terms(heartbeat=timedelta(seconds=60), hard_limit=timedelta(minutes=10))
RETRY = RetryPolicy(base_seconds=3)

UseCase = Callable[[Ports], object]
Ready = tuple[System, UseCase]


def ready(
    *,
    recurring: bool = False,
    overlap: OverlapPolicy = OverlapPolicy.BUFFER_ALL,
    retry_is_default: bool = False,
) -> tuple[System, Claimed]:
    """One execution, claimed; what is tried again later succeeds at once."""
    world = MemoryWorld(clock=VirtualClock(START), shards=4, partitions=1)
    system = System(world=world)
    system.run_for(timedelta(minutes=1))
    if recurring:
        new = new_job(schedule=every("2 minutes"), retry=RETRY, overlap=overlap)
        created(system.ports, new)
        system.run_for(timedelta(seconds=119))
        world.pass_time(2 * SECOND)
    else:
        new = new_job(run_at=in_(system.ports, 5), retry=RETRY)
        new = replace(new, spec=replace(new.spec, retry_is_default=retry_is_default))
        created(system.ports, new)
        world.pass_time(6 * SECOND)
    (message,) = world.queue.receive()
    claimed = execute.begin(system.ports, message, worker="w-1")
    assert isinstance(claimed, Claimed)
    return system, claimed


def handed_over() -> tuple[System, Claimed]:
    system, claimed = ready()
    execute.conclude(system.ports, claimed, Deferred(terms=TERMS))
    return system, claimed


def _told(call: Callable[[Ports], object]) -> UseCase:
    """One that is told that the try is over, for it came too late, has done no harm."""

    def use_case(ports: Ports) -> object:
        with suppress(Conflict):
            return call(ports)
        return None

    return use_case


def hand_over_a_try() -> Ready:
    system, claimed = ready()
    return system, lambda ports: execute.conclude(ports, claimed, Deferred(terms=TERMS))


def hand_over_a_try_of_a_chain() -> Ready:
    system, claimed = ready(recurring=True)
    return system, lambda ports: execute.conclude(ports, claimed, Deferred(terms=TERMS))


def end_a_deferred_try() -> Ready:
    system, claimed = handed_over()
    done = Succeeded(result='"by callback"')
    id, token = claimed.execution.id, claimed.callback
    return system, _told(lambda ports: deferred.end(ports, id, token, done, said="done"))


def fail_a_deferred_try() -> Ready:
    system, claimed = handed_over()
    failed = Failed(failure=Failure(kind=Kind.RETRYABLE, type="Busy", message="later"))
    id, token = claimed.execution.id, claimed.callback
    return system, _told(lambda ports: deferred.end(ports, id, token, failed, said="failed"))


def beat_for_a_deferred_try() -> Ready:
    system, claimed = handed_over()
    system.world.pass_time(50 * SECOND)
    id, token = claimed.execution.id, claimed.callback
    return system, _told(lambda ports: deferred.heartbeat(ports, id, token))


def come_by_a_deferred_try_that_lapsed() -> Ready:
    system, _ = handed_over()
    system.world.pass_time(66 * SECOND)
    (message,) = system.world.queue.receive()
    return system, lambda ports: execute.process(ports, message, system.run, worker="w-2")


DEFERRED_SCENARIOS = [
    hand_over_a_try,
    hand_over_a_try_of_a_chain,
    end_a_deferred_try,
    fail_a_deferred_try,
    beat_for_a_deferred_try,
    come_by_a_deferred_try_that_lapsed,
]
