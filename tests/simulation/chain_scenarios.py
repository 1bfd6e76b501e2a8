"""Use cases of executions that meet, for the crashes of `test_crashes`."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

from lamplighter.core.errors import Conflict
from lamplighter.core.model import Job, OverlapPolicy
from lamplighter.memory import MemoryWorld, VirtualClock
from lamplighter.ports import Ports, Received
from lamplighter.services import execute, manage, trigger
from lamplighter.services.execute import Claimed
from lamplighter.sim.system import System
from tests.support.jobs import OWNER, created, every, in_, new_job

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
START = datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)

UseCase = Callable[[Ports], object]
Scenario = Callable[[], tuple[System, UseCase]]


def minutely(policy: OverlapPolicy, *, lasts: timedelta) -> tuple[System, Job]:
    """A job whose third slot is a second away, and whose runs take so long."""
    system = System(world=MemoryWorld(clock=VirtualClock(START), shards=4, partitions=1))
    system.run_for(MINUTE)
    first = in_(system.ports, 61)
    schedule = every("1 minute", start_at=first)
    new = new_job(schedule=schedule, overlap=policy, timeout=10 * MINUTE)
    job = created(system.ports, new).job
    assert job is not None
    system.lasts = lambda _: lasts
    system.run_until(first + 2 * MINUTE - SECOND)
    system.lasts = lambda _: timedelta(0)
    return system, job


def received(system: System) -> Sequence[Received]:
    """The third slot's message, a second later."""
    system.world.pass_time(SECOND)
    batch = system.world.queue.receive()
    execute.shrink(system.ports, batch)
    return batch


def _play(system: System, batch: Sequence[Received], ports: Ports) -> None:
    for one in batch:
        claimed = execute.begin(ports, one, worker="doomed")
        if isinstance(claimed, Claimed):
            execute.conclude(ports, claimed, system.run(claimed))


def meeting(policy: OverlapPolicy) -> Scenario:
    """The third slot is claimed while another run goes on."""

    def ready() -> tuple[System, UseCase]:
        system, _ = minutely(policy, lasts=100 * SECOND)
        return system, partial(_play, system, received(system))

    ready.__name__ = f"meet_another_run_by_{policy.lower()}"
    return ready


def end_what_another_waits_for() -> tuple[System, UseCase]:
    system, _ = minutely(OverlapPolicy.BUFFER_ALL, lasts=timedelta(0))
    batch = received(system)
    begun = [execute.begin(system.ports, one, worker="doomed") for one in batch]
    (claimed,) = [one for one in begun if isinstance(one, Claimed)]
    for _ in range(6):
        system.run_for(10 * SECOND)
        until = in_(system.ports, 30)
        system.ports.executions.extend(claimed.execution.id, token=claimed.token, lease_until=until)
        system.ports.queue.hide([claimed.received], timedelta(seconds=30))
    system.run_for(SECOND)
    # The handler is called before the crash; its run ended with the call.
    outcome = system.run(claimed)
    return system, lambda ports: execute.conclude(ports, claimed, outcome)


def trigger_beside_a_run() -> tuple[System, UseCase]:
    system, job = minutely(OverlapPolicy.BUFFER_ALL, lasts=100 * SECOND)
    return system, lambda ports: trigger.trigger(ports, OWNER, job.id)


def trigger_of_a_paused_job() -> tuple[System, UseCase]:
    system, job = minutely(OverlapPolicy.SKIP, lasts=100 * SECOND)
    manage.pause(system.ports, OWNER, job.id)
    return system, lambda ports: trigger.trigger(ports, OWNER, job.id)


def resume_behind_a_run_by_hand() -> tuple[System, UseCase]:
    system, job = minutely(OverlapPolicy.BUFFER_ALL, lasts=100 * SECOND)
    manage.pause(system.ports, OWNER, job.id)
    system.lasts = lambda _: 100 * SECOND
    trigger.trigger(system.ports, OWNER, job.id)
    system.run_for(2 * SECOND)
    system.lasts = lambda _: timedelta(0)
    return system, lambda ports: manage.resume(ports, OWNER, job.id)


def edit_beside_a_run() -> tuple[System, UseCase]:
    system, job = minutely(OverlapPolicy.BUFFER_ALL, lasts=100 * SECOND)
    faster = every("20 seconds")(job.id, job.created_at)

    def edit(ports: Ports) -> None:
        # Asked again after it was told nothing, it finds what it wants.
        with suppress(Conflict):
            manage.edit(ports, OWNER, job.id, lambda job: replace(job, schedule=faster))

    return system, edit


CHAIN_SCENARIOS: Sequence[Scenario] = [
    *(meeting(policy) for policy in OverlapPolicy if policy is not OverlapPolicy.ALLOW),
    end_what_another_waits_for,
    trigger_beside_a_run,
    trigger_of_a_paused_job,
    resume_behind_a_run_by_hand,
    edit_beside_a_run,
]
