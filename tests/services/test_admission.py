"""Quotas as callers meet them: what counts, when, and how fast several hosts let an owner in."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from lamplighter.core.buckets import JobId
from lamplighter.core.errors import KeyReused, OverQuota, Rejected
from lamplighter.core.lifecycle import State
from lamplighter.core.limits import RECOUNT_AFTER
from lamplighter.core.model import Execution, Owner, Payload
from lamplighter.core.quotas import Quota, Quotas, Usage
from lamplighter.core.schedule import Schedule, check, parse
from lamplighter.memory import MemoryWorld, VirtualClock
from lamplighter.ports import Ports
from lamplighter.services import backfill, manage, trigger
from lamplighter.services.backfill import Asked
from lamplighter.services.replay import replay
from lamplighter.services.submit import Created, IdempotencyKey, Replayed, submit
from lamplighter.sim.faults import calls_of
from lamplighter.sim.invariants import violations
from lamplighter.sim.system import System
from tests.support.jobs import OWNER, created, every, in_, new_job

MS = timedelta(milliseconds=1)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
START = datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)
OTHER = Owner("other")
LARGE = '"' + "x" * 1000 + '"'


def world_of(quota: Quota, **owners: Quota) -> MemoryWorld:
    return MemoryWorld(clock=VirtualClock(START), quotas=Quotas(default=quota, owners=owners))


def usage(ports: Ports, owner: Owner = OWNER) -> Usage:
    return ports.tally.usage(owner)


def refused(call: Callable[[], object]) -> OverQuota:
    with pytest.raises(OverQuota) as over:
        call()
    return over.value


def key(name: str, fingerprint: str = "same") -> IdempotencyKey[Created]:
    return IdempotencyKey(key=name, fingerprint=fingerprint, render=lambda made: made.job_id)


# Without a quota.


@pytest.mark.parametrize("new", [new_job(), new_job(schedule=every("1 hour"))])
def test_for_an_owner_without_a_quota_nothing_is_asked(new: object) -> None:
    world = world_of(Quota(), other=Quota(live_jobs=1, payload_bytes=1, submissions_per_second=1))
    assert isinstance(new, type(new_job()))

    calls = calls_of(world.ports(), lambda ports: created(ports, new))

    assert {call.port for call in calls} <= {"control", "jobs", "executions", "queue"}
    assert not any(row.is_counted for row in world.tables.executions.values())
    assert world.tables.accounts == {}


# Live jobs.


def test_live_jobs_are_those_that_recur_and_are_not_deleted() -> None:
    ports = world_of(Quota(live_jobs=2)).ports()
    jobs = [created(ports, new_job(schedule=every("1 hour"))) for _ in range(2)]
    created(ports, new_job())
    manage.pause(ports, OWNER, jobs[0].job_id)

    over = refused(lambda: created(ports, new_job(schedule=every("1 hour"))))

    assert (over.quota, over.limit, over.used) == ("live_jobs", 2, 2)
    assert over.retry_after > timedelta(0)
    created(ports, new_job(schedule=every("1 hour"), owner=OTHER))


def test_deleting_a_job_again_and_again_frees_one_place() -> None:
    ports = world_of(Quota(live_jobs=2)).ports()
    job, _ = [created(ports, new_job(schedule=every("1 hour"))) for _ in range(2)]
    for _ in range(3):
        manage.delete(ports, OWNER, job.job_id)

    created(ports, new_job(schedule=every("1 hour")))

    refused(lambda: created(ports, new_job(schedule=every("1 hour"))))


def test_what_was_refused_leaves_nothing_behind() -> None:
    world = world_of(Quota(live_jobs=0))

    refused(
        lambda: submit(
            world.ports(), new_job(schedule=every("1 hour"), payload=LARGE), key("order-17")
        )
    )

    assert not world.tables.jobs
    assert not world.tables.executions
    assert not world.tables.payloads
    assert not world.tables.keys


def test_a_replay_of_a_key_is_answered_at_the_quota_and_another_body_refused() -> None:
    ports = world_of(Quota(live_jobs=1, queued_executions=1, submissions_per_second=2)).ports()
    new = new_job(schedule=every("1 hour"))
    submit(ports, new, key("order-17"))

    answers = [submit(ports, new, key("order-17")) for _ in range(5)]

    assert all(isinstance(answer, Replayed) for answer in answers)
    with pytest.raises(KeyReused):
        submit(ports, new, key("order-17", "other"))
    assert usage(ports).live_jobs == 1


def test_what_can_never_run_counts_for_nothing() -> None:
    ports = world_of(Quota(queued_executions=1, submissions_per_second=1)).ports()

    with pytest.raises(Rejected):
        created(ports, new_job(run_at=START + timedelta(days=5000)))

    created(ports, new_job())


def test_a_job_from_before_there_was_a_quota_is_counted_neither_up_nor_down() -> None:
    world = MemoryWorld(clock=VirtualClock(START))
    before = created(world.ports(), new_job(schedule=every("1 hour")))
    world.quotas = Quotas(default=Quota(live_jobs=1))
    created(world.ports(), new_job(schedule=every("1 hour")))

    manage.delete(world.ports(), OWNER, before.job_id)

    assert usage(world.ports()).live_jobs == 1


def test_a_counted_job_is_counted_down_after_its_quota_was_lifted() -> None:
    world = world_of(Quota(live_jobs=1))
    job = created(world.ports(), new_job(schedule=every("1 hour")))
    world.quotas = Quotas()

    manage.delete(world.ports(), OWNER, job.job_id)

    assert usage(world.ports()) == Usage()


# Payload bytes.


def test_payloads_are_counted_with_what_holds_them() -> None:
    ports = world_of(Quota(payload_bytes=3072)).ports()
    job = created(ports, new_job(schedule=every("1 hour"), payload=LARGE))
    created(ports, new_job(run_at=in_(ports, 500), payload=LARGE))
    created(ports, new_job(run_at=in_(ports, 500), payload="1"))

    over = refused(lambda: created(ports, new_job(run_at=in_(ports, 500), payload=LARGE)))
    of_job = refused(lambda: created(ports, new_job(schedule=every("1 hour"), payload=LARGE)))

    assert (over.quota, over.limit, over.used) == ("payload_bytes", 3072, 2560)
    assert of_job.quota == "payload_bytes"
    manage.delete(ports, OWNER, job.job_id)
    created(ports, new_job(schedule=every("1 hour"), payload=LARGE))


def test_an_edit_that_grows_a_payload_over_the_quota_is_refused_and_leaves_nothing() -> None:
    world = world_of(Quota(payload_bytes=1023))
    ports = world.ports()
    job = created(ports, new_job(schedule=every("1 hour")))

    def grow(size: int) -> None:
        payload = Payload.of('"' + "x" * size + '"')
        manage.edit(
            ports,
            OWNER,
            job.job_id,
            lambda job: replace(job, spec=replace(job.spec, payload=payload)),
        )

    over = refused(lambda: grow(600))
    grow(500)

    assert over.quota == "payload_bytes"
    assert not world.tables.payloads
    assert usage(ports).payload_bytes == 512


# Queued executions.


def test_an_execution_that_has_ended_makes_room_without_a_write_of_its_own() -> None:
    world = world_of(Quota(queued_executions=3))
    system = System(world=world)
    for _ in range(3):
        created(world.ports(), new_job())
    over = refused(lambda: created(world.ports(), new_job()))
    assert (over.quota, over.limit, over.used) == ("queued_executions", 3, 3)

    system.run_for(over.retry_after)

    assert {row.state for row in world.tables.executions.values()} == {State.SUCCEEDED}
    created(world.ports(), new_job())


def test_what_waits_goes_on_counting() -> None:
    world = world_of(Quota(queued_executions=2))
    for _ in range(2):
        created(world.ports(), new_job(run_at=in_(world.ports(), 10_000)))

    for _ in range(5):
        world.pass_time(RECOUNT_AFTER)
        over = refused(lambda: created(world.ports(), new_job()))
        assert over.used == 2


def test_a_deleted_one_off_frees_its_place() -> None:
    world = world_of(Quota(queued_executions=1))
    ports = world.ports()
    job = created(ports, new_job(run_at=in_(ports, 10_000)))
    manage.delete(ports, OWNER, job.job_id)
    world.pass_time(RECOUNT_AFTER)

    created(ports, new_job())


def test_occurrences_of_a_schedule_are_not_refused() -> None:
    world = world_of(Quota(queued_executions=0, submissions_per_second=1))
    system = System(world=world)
    created(world.ports(), new_job(schedule=every("1 minute")))

    system.run_for(10 * MINUTE)

    assert len(system.runs) == 10


# What counts.


def a_job(ports: Ports) -> JobId:
    job = created(ports, new_job(schedule=every("1 minute")))
    return job.job_id


def ended_one(system: System) -> Execution:
    made = created(system.ports, new_job())
    system.work()
    row = system.ports.executions.get(made.first.id)
    assert row is not None
    return row


ASKING: dict[str, Callable[[Ports, JobId, Execution], object]] = {
    "a create": lambda ports, *_: created(ports, new_job()),
    "a trigger": lambda ports, id, _: trigger.trigger(ports, OWNER, id),
    "a replay": lambda ports, _, row: replay(ports, OWNER, row.id),
    "a backfill": lambda ports, id, _: backfill.backfill(
        ports, OWNER, id, Asked(start=START - MINUTE, end=START + MINUTE, skip_existing=False)
    ),
}
asking = pytest.mark.parametrize("ask", ASKING.values(), ids=ASKING.keys())
Ask = Callable[[Ports, JobId, Execution], object]


@asking
def test_whatever_makes_executions_is_refused_over_the_quota_of_them(ask: Ask) -> None:
    world = MemoryWorld(clock=VirtualClock(START))
    system = System(world=world)
    id, row = a_job(world.ports()), ended_one(system)
    system.run_for(2 * MINUTE)
    there = len(world.tables.executions)
    world.quotas = Quotas(default=Quota(queued_executions=0))

    over = refused(lambda: ask(world.ports(), id, row))

    assert over.quota == "queued_executions"
    assert len(world.tables.executions) == there
    world.quotas = Quotas(default=Quota(queued_executions=9))
    ask(world.ports(), id, row)
    assert usage(world.ports()).queued_executions >= 1


@asking
def test_whatever_is_submitted_takes_of_the_rate(ask: Ask) -> None:
    world = MemoryWorld(clock=VirtualClock(START))
    system = System(world=world)
    id, row = a_job(world.ports()), ended_one(system)
    system.run_for(2 * MINUTE)
    world.quotas = Quotas(default=Quota(submissions_per_second=1, burst=2))
    ports = world.ports()
    for _ in range(2):
        created(ports, new_job())

    over = refused(lambda: ask(ports, id, row))

    assert over.quota == "submissions_per_second"


def test_a_backfill_is_admitted_whole_or_not_at_all() -> None:
    world = MemoryWorld(clock=VirtualClock(START))
    id = a_job(world.ports())
    System(world=world).run_for(10 * MINUTE)
    there = len(world.tables.executions)
    asked = Asked(start=START, end=START + 5 * MINUTE, skip_existing=False)
    world.quotas = Quotas(default=Quota(queued_executions=3))

    refused(lambda: backfill.backfill(world.ports(), OWNER, id, asked))

    assert len(world.tables.executions) == there
    assert usage(world.ports()) == Usage()


def test_more_at_once_than_a_burst_is_refused_however_long_one_waits() -> None:
    world = MemoryWorld(clock=VirtualClock(START))
    id = a_job(world.ports())
    System(world=world).run_for(10 * MINUTE)
    asked = Asked(start=START, end=START + 5 * MINUTE, skip_existing=False)
    world.quotas = Quotas(default=Quota(submissions_per_second=1, burst=3))

    over = refused(lambda: backfill.backfill(world.ports(), OWNER, id, asked))

    assert "at once, of which there may be 3" in str(over)


# Submissions per second.


def test_a_burst_at_once_and_then_as_many_as_come_back() -> None:
    world = world_of(Quota(submissions_per_second=2, burst=4))
    ports = world.ports()
    for _ in range(4):
        created(ports, new_job())

    over = refused(lambda: created(ports, new_job()))

    assert (over.quota, over.limit, over.used) == ("submissions_per_second", 2, 4)
    assert over.retry_after == 500 * MS
    world.pass_time(over.retry_after - MS)
    refused(lambda: created(ports, new_job()))
    world.pass_time(MS)
    created(ports, new_job())


def hosts_of(world: MemoryWorld, number: int) -> Sequence[Ports]:
    """Each has a lease of its own."""
    return [world.ports() for _ in range(number)]


def accepted(ports: Ports) -> bool:
    try:
        created(ports, new_job(run_at=START + timedelta(days=1)))
    except OverQuota:
        return False
    return True


@pytest.mark.parametrize("hosts", [1, 3, 20])
@pytest.mark.parametrize(("rate", "burst"), [(10, 10), (100, 100), (50, 200), (3, 1)])
def test_hosts_that_ask_without_pause_let_in_what_the_bucket_allows(
    hosts: int, rate: int, burst: int
) -> None:
    """No stretch of time has more than 1.1 × its rate and burst; the whole has hardly less."""
    world = world_of(Quota(submissions_per_second=rate, burst=burst))
    asking, chance = hosts_of(world, hosts), random.Random(hosts)
    at: list[datetime] = []
    step = timedelta(seconds=1 / (7 * rate))
    while world.now() < START + 6 * SECOND:
        at += [world.now()] if accepted(chance.choice(asking)) else []
        world.pass_time(step)

    for length in (100 * MS, SECOND, 5 * SECOND):
        most = max(sum(begin <= one < begin + length for one in at) for begin in at)
        assert most <= 1.1 * (burst + rate * length.total_seconds())
    assert 0.9 * 6 * rate <= len(at) <= burst + 6 * rate + 1


def test_a_busy_host_writes_once_for_several_submissions() -> None:
    world = world_of(Quota(submissions_per_second=1000, burst=1000))

    calls = calls_of(world.ports(), lambda ports: [accepted(ports) for _ in range(300)])

    taken = [call for call in calls if call.port == "tally"]
    assert len(taken) < 15


def test_a_host_that_is_asked_now_and_then_holds_no_more_than_it_uses() -> None:
    world = world_of(Quota(submissions_per_second=10))
    hosts = hosts_of(world, 10)

    for _ in range(10):
        assert all(accepted(host) for host in hosts)
        world.pass_time(SECOND)


def test_tokens_that_a_host_took_are_not_used_after_their_time() -> None:
    world = world_of(Quota(submissions_per_second=100, burst=100))
    busy, other = hosts_of(world, 2)
    for _ in range(20):
        assert accepted(busy)
    held = world.tables.full_at_ns[OWNER]
    world.pass_time(timedelta(minutes=5))

    assert sum(accepted(other) for _ in range(200)) == 100
    assert world.tables.full_at_ns[OWNER] > held
    assert sum(accepted(busy) for _ in range(50)) == 0


def test_a_clock_that_was_set_back_does_not_let_a_host_use_its_tokens_forever() -> None:
    world = world_of(Quota(submissions_per_second=1, burst=10))
    ports = world.ports()
    for _ in range(10):
        assert accepted(ports)
    world.clock.skew = -timedelta(hours=1)

    assert not accepted(ports)


# A job every second.


def every_second(id: JobId, created_at: datetime) -> Schedule:
    schedule = parse(rate="rate(1 second)", seed=id, anchor=created_at)
    check(schedule, now=created_at, min_interval=SECOND)
    return schedule


def test_a_job_that_recurs_every_second_runs_each_second_once_and_none_early() -> None:
    world = world_of(Quota(min_interval_seconds=1))
    system = System(world=world)
    created(world.ports(), new_job(schedule=every_second))

    system.run_for(2 * MINUTE)

    slots = [START + n * SECOND for n in range(1, 121)]
    assert [run.due_at for run in system.runs] == slots
    assert all(run.started_at >= run.due_at for run in system.runs)
    assert [*violations(system)] == []


def test_dispatch_arms_a_job_of_every_second_a_write_a_second_ahead() -> None:
    world = world_of(Quota(min_interval_seconds=1))
    system = System(world=world)
    made = calls_of(world.ports(), lambda ports: created(ports, new_job(schedule=every_second)))
    system.run_for(MINUTE)

    # The create itself arms all that lies inside the line.
    assert 255 <= sum(call.method == "put" for call in made) <= 257
    assert len(world.tables.executions) <= 60 + 60 + 257
