"""`ports.Jobs`: what holds of every implementation, sentence by sentence."""

from dataclasses import replace

import pytest

from lamplighter.core.buckets import body_of, one_off_job_id
from lamplighter.core.errors import VersionMoved
from lamplighter.core.model import Execution, Job, JobStatus, Owner, Payload
from lamplighter.ports import KeyRecord
from tests.contract.racing import race
from tests.contract.worlds import World
from tests.support.rows import (
    LEASE,
    OWNER,
    TOKEN,
    WORKER,
    T,
    key_record,
    occurrence,
    one_off,
    recurring,
    s,
)


def create(world: World, job: Job) -> Job:
    """The job with its first row."""
    assert world.jobs.create(first=occurrence(job), job=job) is None
    return job


# Creating.


def test_a_one_off_is_its_execution(world: World) -> None:
    row = one_off()

    assert world.jobs.create(first=row) is None

    assert world.executions.get(row.id) == row
    assert world.jobs.get(row.job_id) is None


def test_a_recurring_job_is_made_with_its_first_execution(world: World) -> None:
    job = recurring()

    assert world.jobs.create(first=occurrence(job), job=job) is None

    assert world.jobs.get(job.id) == job
    assert world.executions.get(occurrence(job).id) == occurrence(job)


def test_a_key_is_kept_with_its_answer(world: World) -> None:
    row = one_off()
    record = key_record(row)

    assert world.jobs.create(first=row, key=record) is None

    assert world.jobs.record_of(OWNER, "order-17") == record
    assert world.executions.get(row.id) == row


def test_a_key_that_was_used_answers_with_its_record_and_nothing_is_written(world: World) -> None:
    first = one_off()
    world.jobs.create(first=first, key=key_record(first))
    job = recurring(n=2)
    second = occurrence(job)

    known = world.jobs.create(first=second, job=job, key=key_record(second))

    assert known == key_record(first)
    assert world.executions.get(second.id) is None
    assert world.jobs.get(job.id) is None
    assert world.jobs.record_of(OWNER, "order-17") == key_record(first)


def test_two_owners_may_use_the_same_key(world: World) -> None:
    mine, theirs = one_off(n=1), one_off(n=2, owner=Owner("other"))

    world.jobs.create(first=mine, key=key_record(mine))
    known = world.jobs.create(first=theirs, key=key_record(theirs, owner=Owner("other")))

    assert known is None
    assert world.jobs.record_of(OWNER, "order-17") == key_record(mine)
    assert world.executions.get(theirs.id) == theirs


def test_a_key_that_nobody_used_has_no_record(world: World) -> None:
    assert world.jobs.record_of(OWNER, "order-17") is None


@pytest.mark.parametrize(
    ("with_job", "with_key"), [(False, False), (False, True), (True, False), (True, True)]
)
def test_a_creation_that_is_sent_again_counts_as_made(
    world: World, with_job: bool, with_key: bool
) -> None:
    job = recurring() if with_job else None
    first = occurrence(job) if job else one_off()
    key = key_record(first) if with_key else None

    answers = [world.jobs.create(first=first, job=job, key=key) for _ in range(2)]

    assert answers == [None, None]
    assert world.executions.get(first.id) == first


def test_a_creation_that_is_sent_again_leaves_a_claimed_row_alone(world: World) -> None:
    first = one_off()
    world.jobs.create(first=first, key=key_record(first))
    won = world.executions.claim(
        first.id, attempt=1, token=TOKEN, worker=WORKER, now=T, lease_until=T + LEASE
    )

    assert world.jobs.create(first=first, key=key_record(first)) is None

    assert world.executions.get(first.id) == won


def test_of_ten_who_use_a_key_at_once_one_creates_and_nine_get_its_answer(world: World) -> None:
    rows = [one_off(n=n) for n in range(10)]

    answers = race(lambda n: world.jobs.create(first=rows[n], key=key_record(rows[n])), 10)

    record = world.jobs.record_of(OWNER, "order-17")
    assert [answer for answer in answers if answer is not None] == [record] * 9
    made = [row for row in rows if world.executions.get(row.id) is not None]
    assert [row.job_id for row in made] == [record.job_id if record else None]


def test_a_large_payload_is_not_in_the_job(world: World) -> None:
    job = recurring(payload='"' + "x" * 600 + '"')

    create(world, job)

    stored = world.jobs.get(job.id)
    assert stored is not None
    assert stored.spec.payload == Payload(text=None, bytes=602)
    assert replace(stored, spec=job.spec) == job


# Reading.


def test_no_job_is_none(world: World) -> None:
    assert world.jobs.get(recurring().id) is None


def test_get_many_finds_those_that_exist(world: World) -> None:
    jobs = [create(world, recurring(n=n)) for n in range(3)]
    missing = recurring(n=1000).id

    found = world.jobs.get_many([job.id for job in jobs] + [missing, jobs[0].id])

    assert found == {job.id: job for job in jobs}
    assert world.jobs.get_many([]) == {}


def test_get_many_takes_more_ids_than_a_batch(world: World) -> None:
    ids = [recurring(n=n).id for n in range(250)]
    job = create(world, recurring(n=249))

    assert world.jobs.get_many(ids) == {job.id: job}


def test_the_id_of_a_one_off_is_no_job(world: World) -> None:
    row = one_off()
    world.jobs.create(first=row)

    assert world.jobs.get_many([one_off_job_id(row.id)]) == {}


# Deleting.


def test_a_deleted_job_has_the_next_version_and_stays_readable(world: World) -> None:
    job = create(world, recurring())

    deleted = world.jobs.delete(job)

    assert deleted == replace(job, version=2, status=JobStatus.DELETED)
    assert world.jobs.get(job.id) == deleted


def test_a_version_that_has_moved_on_is_not_deleted(world: World) -> None:
    job = create(world, recurring())
    deleted = world.jobs.delete(job)

    with pytest.raises(VersionMoved):
        world.jobs.delete(job)

    assert world.jobs.get(job.id) == deleted


def test_what_does_not_exist_is_not_deleted_and_not_made(world: World) -> None:
    job = recurring()

    with pytest.raises(VersionMoved):
        world.jobs.delete(job)

    assert world.jobs.get(job.id) is None


def test_of_ten_who_delete_at_once_exactly_one_does(world: World) -> None:
    job = create(world, recurring())

    def delete(_: int) -> Job | None:
        try:
            return world.jobs.delete(job)
        except VersionMoved:
            return None

    answers = race(delete, 10)

    assert [answer.version for answer in answers if answer is not None] == [2]


# An owner's jobs.


def test_an_owner_s_jobs_are_listed_newest_first(world: World) -> None:
    jobs = [create(world, recurring(T + s(n), n=n)) for n in range(8)]
    create(world, recurring(n=77, owner=Owner("other")))

    assert [*world.jobs.of_owner(OWNER, before=None, limit=100)] == jobs[::-1]


def test_keys_and_one_offs_are_in_no_list_of_jobs(world: World) -> None:
    row = one_off()
    world.jobs.create(first=row, key=key_record(row))

    assert [*world.jobs.of_owner(OWNER, before=None, limit=10)] == []


def test_deleted_jobs_are_left_out_and_others_fill_the_page(world: World) -> None:
    jobs = [create(world, recurring(T + s(n), n=n)) for n in range(8)]
    for job in jobs[2:7]:
        world.jobs.delete(job)

    listed = world.jobs.of_owner(OWNER, before=None, limit=2)

    assert [*listed] == [jobs[7], jobs[1]]


@pytest.mark.parametrize("limit", [1, 3, 7, 8])
def test_pages_of_a_list_hold_every_job_once(world: World, limit: int) -> None:
    jobs = [create(world, recurring(T + s(n // 3), n=n)) for n in range(7)]

    listed: list[Job] = []
    before = None
    while page := world.jobs.of_owner(OWNER, before=before, limit=limit):
        listed += page
        before = body_of(page[-1].id)
        if len(page) < limit:
            break

    assert [job.id for job in listed] == sorted((job.id for job in jobs), reverse=True)


def test_records_and_rows_of_other_creations_do_not_mix(world: World) -> None:
    rows: list[Execution] = [one_off(n=n) for n in range(3)]
    records: list[KeyRecord] = [key_record(row, key=f"key-{n}") for n, row in enumerate(rows)]

    for row, record in zip(rows, records, strict=True):
        world.jobs.create(first=row, key=record)

    assert [world.jobs.record_of(OWNER, f"key-{n}") for n in range(3)] == records
