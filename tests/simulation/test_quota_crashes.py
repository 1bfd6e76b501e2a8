"""Use cases of an owner with quotas, killed at each port call: no count leaks.

Live jobs are counted in the write that makes or deletes one, so their number is right at any
instant. What is queued may be counted too high, and is right again after a recount.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from lamplighter.core.errors import OverQuota, Unavailable
from lamplighter.core.limits import RECOUNT_AFTER
from lamplighter.core.model import Job, JobStatus, Payload
from lamplighter.core.quotas import Quota, Quotas, charged
from lamplighter.memory import MemoryWorld, VirtualClock
from lamplighter.ports import Ports
from lamplighter.services import manage
from lamplighter.services.submit import Created, IdempotencyKey, submit
from lamplighter.sim.faults import (
    When,
    calls_of,
    every_crash,
    every_strike,
    interposed,
    survives,
    unavailable_at,
)
from lamplighter.sim.invariants import violations
from lamplighter.sim.system import System
from tests.support.jobs import OWNER, created, every, in_, new_job
from tests.support.strikes import some_of

START = datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
QUOTA = Quota(
    live_jobs=3, queued_executions=3, payload_bytes=10_000, submissions_per_second=5, burst=50
)
LARGE = '"' + "x" * 1000 + '"'

UseCase = Callable[[Ports], object]
Ready = Callable[[], tuple[System, UseCase]]


def a_system() -> System:
    world = MemoryWorld(
        clock=VirtualClock(START), shards=4, partitions=1, quotas=Quotas(default=QUOTA)
    )
    system = System(world=world)
    system.run_for(MINUTE)
    return system


def two_jobs() -> tuple[System, Job]:
    """One more fits in."""
    system = a_system()
    jobs = [created(system.ports, new_job(schedule=every("1 hour"))).job for _ in range(2)]
    assert jobs[0] is not None
    return system, jobs[0]


def create_the_last_that_fits() -> tuple[System, UseCase]:
    system, _ = two_jobs()
    return system, lambda ports: created(ports, new_job(schedule=every("1 hour"), payload=LARGE))


def create_with_a_key_and_ask_again() -> tuple[System, UseCase]:
    system, _ = two_jobs()
    new = new_job(schedule=every("1 hour"))
    key = IdempotencyKey[Created](key="k", fingerprint="f", render=lambda made: made.job_id)
    return system, lambda ports: [submit(ports, new, key) for _ in range(3)]


def create_one_too_many() -> tuple[System, UseCase]:
    system, _ = two_jobs()
    created(system.ports, new_job(schedule=every("1 hour")))

    def use_case(ports: Ports) -> None:
        with pytest.raises(OverQuota):
            created(ports, new_job(schedule=every("1 hour")))

    return system, use_case


def delete_one_twice() -> tuple[System, UseCase]:
    system, job = two_jobs()

    def use_case(ports: Ports) -> None:
        for _ in range(2):
            manage.delete(ports, OWNER, job.id)

    return system, use_case


def pause_resume_and_grow_one() -> tuple[System, UseCase]:
    system, job = two_jobs()

    def grown(job: Job) -> Job:
        return replace(job, spec=replace(job.spec, payload=Payload.of(LARGE)))

    def use_case(ports: Ports) -> None:
        manage.pause(ports, OWNER, job.id)
        manage.edit(ports, OWNER, job.id, grown)
        manage.resume(ports, OWNER, job.id)

    return system, use_case


def queue_executions_and_delete_one() -> tuple[System, UseCase]:
    system = a_system()

    def use_case(ports: Ports) -> None:
        jobs = [created(ports, new_job(run_at=in_(ports, 5000), payload=LARGE)) for _ in range(2)]
        manage.delete(ports, OWNER, jobs[0].job_id)

    return system, use_case


def queue_one_after_a_recount() -> tuple[System, UseCase]:
    system = a_system()
    for _ in range(3):
        created(system.ports, new_job())
    system.run_for(RECOUNT_AFTER)
    return system, lambda ports: created(ports, new_job(run_at=in_(ports, 5000)))


SCENARIOS = [
    create_the_last_that_fits,
    create_with_a_key_and_ask_again,
    create_one_too_many,
    delete_one_twice,
    pause_resume_and_grow_one,
    queue_executions_and_delete_one,
    queue_one_after_a_recount,
]
by_scenario = pytest.mark.parametrize(
    "ready", SCENARIOS, ids=lambda ready: ready.__name__.replace("_", " ")
)


def check_counts(system: System) -> None:
    """What is counted is what there is, or, of what is queued, may have been."""
    tables, used = system.world.tables, system.ports.tally.usage(OWNER)
    live = [job for job in tables.jobs.values() if job.status is not JobStatus.DELETED]
    assert used.live_jobs == len(live) <= 3
    queued = [row for row in tables.executions.values() if row.is_counted]
    assert used.queued_executions >= len(queued)
    of_jobs = sum(charged(job.spec.payload.bytes) for job in live)
    of_queued = sum(charged(row.spec.payload.bytes) for row in queued if row.spec)
    assert used.payload_bytes - of_jobs >= of_queued

    # The first makes the mark that the second goes by, where there was none.
    for _ in range(2):
        system.run_for(RECOUNT_AFTER)
        system.ports.tally.recount(OWNER, now=system.world.now())

    used = system.ports.tally.usage(OWNER)
    queued = [row for row in tables.executions.values() if row.is_counted]
    of_queued = sum(charged(row.spec.payload.bytes) for row in queued if row.spec)
    assert used.queued_executions == len(queued)
    assert used.payload_bytes == of_jobs + of_queued


@by_scenario
def test_undisturbed_what_is_counted_is_what_there_is(ready: Ready) -> None:
    system, use_case = ready()

    use_case(system.ports)

    check_counts(system)


@by_scenario
def test_killed_anywhere_no_count_leaks(ready: Ready) -> None:
    system, use_case = ready()
    for strike in every_crash(calls_of(system.ports, use_case)):
        system, use_case = ready()
        survives(system.ports, use_case, strike)

        check_counts(system)
        system.run_for(10 * MINUTE)
        assert [*violations(system)] == [], strike


@pytest.mark.strikes
@by_scenario
def test_a_write_of_unknown_fate_leaks_no_count(ready: Ready) -> None:
    system, use_case = ready()
    calls = calls_of(system.ports, use_case)
    for strike in some_of(every_strike(calls, whens=(When.BEFORE, When.AFTER))):
        system, use_case = ready()
        with suppress(Unavailable):
            use_case(interposed(system.ports, unavailable_at(strike)))

        check_counts(system)
