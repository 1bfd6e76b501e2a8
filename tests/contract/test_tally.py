"""`ports.Tally`, and what `ports.Jobs` counts: what holds of every implementation."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from lamplighter.core.errors import OverQuota, VersionMoved
from lamplighter.core.limits import MARK_EVERY, RECOUNT_AFTER
from lamplighter.core.model import Execution, Job, JobStatus, Owner, Payload
from lamplighter.core.quotas import Empty, Quota, Rate, Taken, Usage
from lamplighter.ports import KeyRecord
from tests.contract.racing import race
from tests.contract.worlds import World
from tests.support.rows import (
    LEASE,
    OWNER,
    TOKEN,
    WORKER,
    T,
    cancelled,
    key_record,
    occurrence,
    one_off,
    recurring,
    revised,
    s,
    succeeded,
)

OTHER = Owner("other")
TEN = Quota(live_jobs=10)
LARGE = '"' + "x" * 1000 + '"'
ONE = Usage(queued_executions=1, payload_bytes=512)


def counted(n: int = 1, payload: str = "null", owner: Owner = OWNER) -> Job:
    return replace(recurring(n=n, payload=payload, owner=owner), is_counted=True)


def create(world: World, job: Job, quota: Quota = TEN) -> Job:
    assert world.jobs.create(first=occurrence(job), job=job, quota=quota) is None
    return job


def refused(call: Callable[[], object]) -> OverQuota:
    with pytest.raises(OverQuota) as over:
        call()
    return over.value


def usage(world: World, owner: Owner = OWNER) -> Usage:
    return world.ports.tally.usage(owner)


# Live jobs.


def test_a_job_is_counted_from_its_creation_to_its_deletion(world: World) -> None:
    job = create(world, counted())
    assert usage(world) == Usage(live_jobs=1, payload_bytes=512)
    assert world.jobs.get(job.id) == job

    deleted = world.jobs.delete(job)

    assert usage(world) == Usage()
    assert deleted == replace(job, version=2, status=JobStatus.DELETED, is_counted=False)
    assert world.jobs.get(job.id) == deleted


def test_a_job_that_is_not_counted_is_counted_neither_up_nor_down(world: World) -> None:
    create(world, counted(n=1))
    job = recurring(n=2)
    world.jobs.create(first=occurrence(job), job=job)

    world.jobs.delete(job)

    assert usage(world).live_jobs == 1


def test_a_job_deleted_twice_is_counted_down_once(world: World) -> None:
    create(world, counted(n=1))
    job = create(world, counted(n=2))
    world.jobs.delete(job)

    with pytest.raises(VersionMoved):
        world.jobs.delete(job)

    assert usage(world).live_jobs == 1


def test_of_ten_who_delete_a_job_at_once_one_counts_it_down(world: World) -> None:
    create(world, counted(n=1))
    job = create(world, counted(n=2))

    def delete(_: int) -> bool:
        try:
            world.jobs.delete(job)
        except VersionMoved:
            return False
        return True

    assert sum(race(delete, 10)) == 1
    assert usage(world).live_jobs == 1


def test_over_the_quota_nothing_is_made(world: World) -> None:
    for n in range(2):
        create(world, counted(n=n), Quota(live_jobs=2))
    job = counted(n=3)
    first = occurrence(job)

    over = refused(
        lambda: world.jobs.create(
            first=first, job=job, key=key_record(first), quota=Quota(live_jobs=2)
        )
    )

    assert (over.quota, over.limit, over.used) == ("live_jobs", 2, 2)
    assert usage(world).live_jobs == 2
    assert world.jobs.get(job.id) is None
    assert world.executions.get(first.id) is None
    assert world.jobs.record_of(OWNER, "order-17") is None


def test_a_quota_of_none_admits_none(world: World) -> None:
    job = counted()

    refused(lambda: world.jobs.create(first=occurrence(job), job=job, quota=Quota(live_jobs=0)))

    assert usage(world) == Usage()


def test_a_quota_that_was_lowered_refuses_and_raised_admits(world: World) -> None:
    for n in range(3):
        create(world, counted(n=n))
    job = counted(n=9)

    over = refused(
        lambda: world.jobs.create(first=occurrence(job), job=job, quota=Quota(live_jobs=2))
    )
    create(world, job, Quota(live_jobs=4))

    assert (over.limit, over.used) == (2, 3)
    assert usage(world).live_jobs == 4


def test_two_owners_are_counted_apart(world: World) -> None:
    create(world, counted(n=1), Quota(live_jobs=1))
    create(world, counted(n=2, owner=OTHER), Quota(live_jobs=1))

    assert (usage(world).live_jobs, usage(world, OTHER).live_jobs) == (1, 1)


@pytest.mark.parametrize("with_key", [False, True])
def test_a_creation_that_is_sent_again_counts_once_even_at_the_quota(
    world: World, with_key: bool
) -> None:
    job = counted()
    first, quota = occurrence(job), Quota(live_jobs=1)
    key = key_record(first) if with_key else None

    answers = [world.jobs.create(first=first, job=job, key=key, quota=quota) for _ in range(2)]

    assert answers == [None, None]
    assert usage(world).live_jobs == 1


def test_a_key_that_was_used_answers_with_its_record_at_the_quota(world: World) -> None:
    job, quota = counted(n=1), Quota(live_jobs=1)
    record = key_record(occurrence(job))
    world.jobs.create(first=occurrence(job), job=job, key=record, quota=quota)
    other = counted(n=2)

    known = world.jobs.create(
        first=occurrence(other), job=other, key=key_record(occurrence(other)), quota=quota
    )

    assert known == record
    assert usage(world).live_jobs == 1


def test_of_fifty_who_create_at_once_as_many_get_in_as_there_is_room_for(world: World) -> None:
    """Case O-A07: 99 of 100 are used, and 50 ask at once."""
    quota = Quota(live_jobs=13)
    for n in range(9):
        create(world, counted(n=n), quota)
    jobs = [counted(n=100 + n) for n in range(50)]

    def attempt(n: int) -> OverQuota | KeyRecord | None:
        try:
            return world.jobs.create(first=occurrence(jobs[n]), job=jobs[n], quota=quota)
        except OverQuota as over:
            return over

    answers = race(attempt, 50)

    assert answers.count(None) == 4
    assert sum(isinstance(answer, OverQuota) for answer in answers) == 46
    assert usage(world).live_jobs == 13
    assert len(world.jobs.of_owner(OWNER, before=None, limit=100)) == 13


def test_deleting_one_frees_exactly_one(world: World) -> None:
    quota = Quota(live_jobs=3)
    jobs = [create(world, counted(n=n), quota) for n in range(3)]
    world.jobs.delete(jobs[1])

    create(world, counted(n=10), quota)

    job = counted(n=11)
    refused(lambda: world.jobs.create(first=occurrence(job), job=job, quota=quota))


def test_a_revision_counts_what_its_payload_grows_and_shrinks_by(world: World) -> None:
    job = create(world, counted())
    second = with_payload(job, LARGE)
    third = with_payload(second, "1")

    world.jobs.revise(job, second, quota=Quota(payload_bytes=1024))
    assert usage(world) == Usage(live_jobs=1, payload_bytes=1024)
    world.jobs.revise(second, third, quota=Quota(payload_bytes=0))
    assert usage(world) == Usage(live_jobs=1, payload_bytes=512)
    world.jobs.delete(third)

    assert usage(world) == Usage()


def test_a_revision_that_grows_over_the_quota_writes_nothing(world: World) -> None:
    job = create(world, counted())
    second = with_payload(job, LARGE)

    over = refused(lambda: world.jobs.revise(job, second, quota=Quota(payload_bytes=1023)))

    assert (over.quota, over.limit, over.used) == ("payload_bytes", 1023, 512)
    assert world.jobs.get(job.id) == job
    assert usage(world).payload_bytes == 512


def test_a_revision_of_a_version_that_has_moved_on_counts_nothing(world: World) -> None:
    job = create(world, counted())
    world.jobs.revise(job, revised(job))

    with pytest.raises(VersionMoved):
        world.jobs.revise(job, with_payload(job, LARGE), quota=Quota(payload_bytes=0))

    assert usage(world).payload_bytes == 512


def test_a_revision_that_is_sent_again_counts_once(world: World) -> None:
    job = create(world, counted())
    second = with_payload(job, LARGE)

    for _ in range(2):
        world.jobs.revise(job, second, quota=Quota(payload_bytes=1024))

    assert usage(world).payload_bytes == 1024


def with_payload(job: Job, text: str) -> Job:
    after = revised(job)
    payload = replace(Payload.of(text), version=after.version)
    return replace(after, spec=replace(after.spec, payload=payload))


# Queued executions.


def reserve(world: World, quota: Quota, more: Usage = ONE, now: datetime = T) -> None:
    world.ports.tally.reserve(OWNER, quota, more, now=now)


def queue(world: World, n: int, payload: str = "null") -> Execution:
    row = replace(one_off(n=n, payload=payload), is_counted=True)
    if row.spec is not None and not row.spec.payload.is_inline:
        world.executions.put_payload(row.job_id, row.spec.payload, kept_until=None)
    assert world.jobs.create(first=row) is None
    return row


def test_what_is_reserved_is_counted_until_there_is_no_room(world: World) -> None:
    quota = Quota(queued_executions=3)
    reserve(world, quota)
    reserve(world, quota, Usage(queued_executions=2, payload_bytes=2048))

    over = refused(lambda: reserve(world, quota))

    assert (over.quota, over.limit, over.used) == ("queued_executions", 3, 3)
    assert usage(world) == Usage(queued_executions=3, payload_bytes=2560)


def test_several_are_reserved_all_or_none(world: World) -> None:
    quota = Quota(queued_executions=3)
    reserve(world, quota)

    refused(lambda: reserve(world, quota, Usage(queued_executions=3)))

    assert usage(world).queued_executions == 1


def test_payloads_of_jobs_and_of_executions_count_together(world: World) -> None:
    quota = Quota(payload_bytes=2048)
    create(world, counted(payload=LARGE), quota)
    reserve(world, quota)

    over = refused(lambda: reserve(world, quota, Usage(queued_executions=1, payload_bytes=1024)))
    job = counted(n=2, payload=LARGE)
    of_job = refused(lambda: world.jobs.create(first=occurrence(job), job=job, quota=quota))

    assert (over.quota, over.limit, over.used) == ("payload_bytes", 2048, 1536)
    assert (of_job.quota, of_job.used) == ("payload_bytes", 1536)
    reserve(world, quota)


def test_of_fifty_who_reserve_at_once_as_many_get_in_as_there_is_room_for(world: World) -> None:
    def attempt(_: int) -> bool:
        try:
            reserve(world, Quota(queued_executions=7))
        except OverQuota:
            return False
        return True

    assert sum(race(attempt, 50)) == 7
    assert usage(world).queued_executions == 7


def test_a_recount_counts_those_that_have_not_ended(world: World) -> None:
    quota = Quota(queued_executions=6)
    reserve(world, quota, Usage(queued_executions=6, payload_bytes=6 * 512))
    rows = [queue(world, n) for n in range(1, 7)]
    end(world, rows[0])
    run(world, rows[1])
    claim(world, rows[2])

    assert world.ports.tally.recount(OWNER, now=T + RECOUNT_AFTER)

    assert usage(world) == Usage(queued_executions=4, payload_bytes=4 * 512)


def test_a_recount_counts_each_payload_for_its_size_rounded_up(world: World) -> None:
    quota = Quota(queued_executions=4)
    sizes = [10, 1000, 5000]
    for n, size in enumerate(sizes, 1):
        queue(world, n, payload='"' + "x" * size + '"')
    job = counted(payload=LARGE)
    create(world, job)
    world.jobs.create(first=beside_the_schedule(job))
    reserve(world, quota, Usage(queued_executions=4, payload_bytes=1))

    world.ports.tally.recount(OWNER, now=T + RECOUNT_AFTER)

    # The fourth runs with its job's payload, which counts as long as the job lives.
    queued = 512 + 1024 + 8192
    assert usage(world) == Usage(live_jobs=1, queued_executions=4, payload_bytes=1024 + queued)


def beside_the_schedule(job: Job) -> Execution:
    row = one_off(n=77)
    return replace(row, job_id=job.id, spec=None, is_counted=True)


def test_what_was_reserved_and_never_made_is_given_back_by_a_recount(world: World) -> None:
    quota = Quota(queued_executions=2)
    reserve(world, quota)
    reserve(world, quota)

    world.ports.tally.recount(OWNER, now=T + RECOUNT_AFTER)

    assert usage(world) == Usage()


def test_what_may_still_be_on_its_way_is_not_given_back(world: World) -> None:
    quota = Quota(queued_executions=2)
    reserve(world, quota)
    reserve(world, quota)
    almost = T + RECOUNT_AFTER - timedelta(milliseconds=1)

    assert not world.ports.tally.recount(OWNER, now=almost)

    assert usage(world).queued_executions == 2


def test_what_was_reserved_since_the_mark_counts_beside_what_is_found(world: World) -> None:
    quota = Quota(queued_executions=5)
    for n in range(3):
        reserve(world, quota, now=T + n * MARK_EVERY / 10)
    reserve(world, quota, now=T + MARK_EVERY / 2)

    # The mark was made at the third.
    assert world.ports.tally.recount(OWNER, now=T + MARK_EVERY / 2)
    assert usage(world) == Usage(queued_executions=1, payload_bytes=512)

    # And the next one finds that it is not there.
    assert world.ports.tally.recount(OWNER, now=T + MARK_EVERY)
    assert usage(world) == Usage()


def test_a_mark_is_made_anew_only_after_a_while(world: World) -> None:
    quota = Quota(queued_executions=4)
    for _ in range(3):
        reserve(world, quota, now=T)
    later = T + MARK_EVERY
    reserve(world, quota, now=later)

    assert not world.ports.tally.recount(OWNER, now=later)
    assert world.ports.tally.recount(OWNER, now=later + RECOUNT_AFTER)
    assert usage(world) == Usage()


def test_a_count_that_was_never_marked_is_marked_when_it_is_asked_for(world: World) -> None:
    reserve(world, Quota(queued_executions=100))

    assert not world.ports.tally.recount(OWNER, now=T)
    assert world.ports.tally.recount(OWNER, now=T + RECOUNT_AFTER)
    assert usage(world) == Usage()


def test_of_ten_who_recount_at_once_the_count_is_as_of_one(world: World) -> None:
    quota = Quota(queued_executions=6)
    reserve(world, quota, Usage(queued_executions=6, payload_bytes=6 * 512))
    queue(world, 1)

    race(lambda _: world.ports.tally.recount(OWNER, now=T + RECOUNT_AFTER), 10)

    assert usage(world) == ONE


def test_an_owner_of_whom_nothing_is_counted_has_nothing_to_recount(world: World) -> None:
    assert not world.ports.tally.recount(OWNER, now=T)
    assert usage(world) == Usage()


def test_nobodys_executions_count_as_anothers(world: World) -> None:
    """An owner's name may look like a part of an index's key."""
    owners = [Owner(name) for name in ("a", "a#q", "a#q0", "a#q00", "a#", "#", "q")]
    for n, owner in enumerate(owners, 1):
        for m in range(n):
            row = replace(one_off(n=100 * n + m, owner=owner), is_counted=True)
            world.jobs.create(first=row)
        world.ports.tally.reserve(owner, Quota(queued_executions=1), ONE, now=T)

    for n, owner in enumerate(owners, 1):
        world.ports.tally.recount(owner, now=T + RECOUNT_AFTER)

        assert usage(world, owner).queued_executions == n
        assert world.executions.needing_attention(owner, before=None, limit=10) == []


def test_a_row_is_counted_until_it_has_ended(world: World) -> None:
    row = queue(world, 1)

    assert world.executions.get(row.id) == row
    claimed = claim(world, row)
    assert claimed.is_counted
    settled = world.executions.settle(succeeded(claimed), token=TOKEN)
    assert not settled.is_counted


def claim(world: World, row: Execution) -> Execution:
    claimed = world.executions.claim(
        row.id, attempt=1, token=TOKEN, worker=WORKER, now=T, lease_until=T + LEASE
    )
    assert isinstance(claimed, Execution)
    return claimed


def run(world: World, row: Execution) -> None:
    world.executions.settle(succeeded(claim(world, row)), token=TOKEN)


def end(world: World, row: Execution) -> None:
    assert isinstance(world.executions.end(row, cancelled(row)), Execution)


# Submissions.

RATE = Rate(per_second=10, burst=5)


def take(world: World, number: int = 1, *, now: datetime = T) -> Taken | Empty:
    return world.ports.tally.take(OWNER, RATE, least=number, most=number, now=now)


def tokens(answer: Taken | Empty) -> int:
    return answer.tokens if isinstance(answer, Taken) else 0


def test_a_bucket_gives_its_burst_then_nothing_and_then_what_has_come(world: World) -> None:
    assert [tokens(take(world)) for _ in range(6)] == [1, 1, 1, 1, 1, 0]
    assert [tokens(take(world, now=T + s(0.2))) for _ in range(3)] == [1, 1, 0]
    assert tokens(take(world, 5, now=T + s(60))) == 5


def test_an_empty_bucket_says_when_there_are_tokens_again(world: World) -> None:
    take(world, 5)

    empty = take(world, 2)

    assert isinstance(empty, Empty)
    assert tokens(take(world, 2, now=T + s(0.199))) == 0
    assert tokens(take(world, 2, now=T + s(0.2))) == 2
    assert empty.until_ns == int((T + s(0.2)).timestamp() * 1000) * 1_000_000


def test_of_what_is_asked_for_a_bucket_gives_what_it_has(world: World) -> None:
    take(world, 3)

    rest = world.ports.tally.take(OWNER, RATE, least=1, most=9, now=T)

    assert tokens(rest) == 2


def test_of_twenty_who_take_at_once_as_many_get_one_as_there_are(world: World) -> None:
    answers = race(lambda _: take(world), 20)

    assert sum(tokens(answer) for answer in answers) == 5


def test_each_owner_has_a_bucket(world: World) -> None:
    take(world, 5)

    other = world.ports.tally.take(OTHER, RATE, least=5, most=5, now=T)

    assert tokens(other) == 5
