"""`ports.Jobs`: what holds of every implementation, sentence by sentence."""

from dataclasses import fields, replace

import pytest

from lamplighter.core.buckets import body_of, one_off_job_id
from lamplighter.core.catch_up import CatchUp
from lamplighter.core.errors import VersionMoved
from lamplighter.core.model import (
    Execution,
    Job,
    JobStatus,
    MisfirePolicy,
    OverlapPolicy,
    Owner,
    Payload,
)
from lamplighter.core.retry import RetryPolicy
from lamplighter.core.schedule import DstFold, DstGap, parse
from lamplighter.ports import KeyRecord, Refusal
from tests.contract.racing import race
from tests.contract.worlds import World
from tests.support.rows import (
    GIVES_WAY,
    LEASE,
    OWNER,
    STAYS,
    TOKEN,
    WORKER,
    Change,
    T,
    key_record,
    occurrence,
    one_off,
    recurring,
    revised,
    running,
    s,
    spec,
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
    """S4-H1: one transaction."""
    job = recurring()

    assert world.jobs.create(first=occurrence(job), job=job) is None

    assert world.jobs.get(job.id) == job
    assert world.executions.get(occurrence(job).id) == occurrence(job)


def test_a_retry_policy_is_kept_in_full(world: World) -> None:
    retry = RetryPolicy(
        jitter=0.1,
        retry_on=("TimedOut", "OSError"),
        no_retry_on=("FileNotFoundError",),
        honor_retry_after=False,
    )
    row = replace(one_off(), spec=spec(retry=retry))
    job = replace(recurring(n=2), spec=spec(retry=retry))

    world.jobs.create(first=row)
    world.jobs.create(first=occurrence(job), job=job)

    assert world.executions.get(row.id) == row
    assert world.jobs.get(job.id) == job


def test_a_key_is_kept_with_its_answer(world: World) -> None:
    row = one_off()
    record = key_record(row)

    assert world.jobs.create(first=row, key=record) is None

    assert world.jobs.record_of(OWNER, "order-17") == record
    assert world.executions.get(row.id) == row


def test_a_key_that_was_used_answers_with_its_record_and_nothing_is_written(world: World) -> None:
    """S4-H1, S0-A2: the job, its first execution and the key are made together, or none is."""
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


# Revising.


def test_a_revised_job_is_what_is_read_from_then_on(world: World) -> None:
    job = create(world, recurring())
    second = revised(job)

    assert world.jobs.revise(job, second) == second

    assert world.jobs.get(job.id) == second
    assert world.jobs.get_many([job.id]) == {job.id: second}


def test_every_part_of_a_definition_can_be_revised(world: World) -> None:
    """S0-S2: expression, zone, start, end, policies, version."""
    job = create(world, recurring())
    other = recurring(payload='{"other":true}')
    second = replace(
        job,
        version=2,
        status=JobStatus.PAUSED,
        effective_from=T - s(0.001),
        spec=replace(other.spec, task="another", queue="critical"),
        schedule=parse(
            cron="30 2 * * MON#1",
            timezone="Europe/Berlin",
            dst_gap=DstGap.SHIFT,
            dst_fold=DstFold.BOTH,
            start_at=T,
            end_at=T + 90 * s(86400),
            max_occurrences=7,
            flexible_window_seconds=30,
            seed=job.id,
        ),
        misfire=MisfirePolicy.SKIP,
        catch_up=CatchUp(threshold=s(30), window=s(3600), most=7, spread=s(10)),
        overlap=OverlapPolicy.BUFFER_ONE,
        name=None,
    )
    kept = {"id", "owner", "created_at", "tail", "is_counted"}
    parts = {field.name for field in fields(job)}
    assert {one for one in parts if getattr(job, one) == getattr(second, one)} == kept

    assert world.jobs.revise(job, second) == second

    assert world.jobs.get(job.id) == second


def test_a_revision_comes_with_its_first_row(world: World) -> None:
    job = create(world, recurring())
    second = revised(job)
    first = occurrence(second, T + s(3600))

    assert world.jobs.revise(job, second, first=first) == second

    assert world.executions.get(first.id) == first
    assert world.executions.get(occurrence(job).id) == occurrence(job)


@pytest.mark.parametrize("come_of", GIVES_WAY.values(), ids=GIVES_WAY.keys())
def test_the_first_row_takes_the_place_of_one_of_which_nothing_has_come(
    world: World, come_of: Change
) -> None:
    job = recurring()
    world.jobs.create(first=come_of(occurrence(job)), job=job)
    second = revised(job)

    assert world.jobs.revise(job, second, first=occurrence(second)) == second

    assert world.executions.get(occurrence(job).id) == occurrence(second)


@pytest.mark.parametrize("come_of", STAYS.values(), ids=STAYS.keys())
def test_a_revision_whose_first_row_has_no_place_writes_nothing(
    world: World, come_of: Change
) -> None:
    job, there = recurring(), come_of(occurrence(recurring()))
    world.jobs.create(first=there, job=job)
    second = revised(job)

    assert world.jobs.revise(job, second, first=occurrence(second)) == Refusal(found=there)

    assert world.jobs.get(job.id) == job
    assert world.executions.get(there.id) == there
    assert [*world.jobs.versions(job.id, before=9, limit=9)] == []


def test_a_revision_that_was_refused_can_be_written_with_another_first_row(world: World) -> None:
    job = recurring()
    world.jobs.create(first=running(occurrence(job)), job=job)
    second = revised(job)
    world.jobs.revise(job, second, first=occurrence(second))
    later = occurrence(second, T + s(3600))

    assert world.jobs.revise(job, second, first=later) == second

    assert world.executions.get(later.id) == later


def test_a_version_that_has_moved_on_is_not_revised(world: World) -> None:
    job = create(world, recurring())
    second, other = revised(job), replace(revised(job), name="another")
    world.jobs.revise(job, second)
    first = occurrence(other, T + s(3600))

    with pytest.raises(VersionMoved):
        world.jobs.revise(job, other, first=first)

    assert world.jobs.get(job.id) == second
    assert world.executions.get(first.id) is None
    assert [*world.jobs.versions(job.id, before=9, limit=9)] == [job]


def test_a_version_that_has_moved_on_is_told_before_a_place_that_is_taken(world: World) -> None:
    """O-F20: reasons go by the place of the item whose condition it was."""
    job = recurring()
    world.jobs.create(first=running(occurrence(job)), job=job)
    world.jobs.revise(job, revised(job))
    other = replace(revised(job), name="another")

    with pytest.raises(VersionMoved):
        world.jobs.revise(job, other, first=occurrence(other))


def test_what_does_not_exist_is_not_revised_and_not_made(world: World) -> None:
    job = recurring()

    with pytest.raises(VersionMoved):
        world.jobs.revise(job, revised(job), first=occurrence(revised(job)))

    assert world.jobs.get(job.id) is None
    assert world.executions.get(occurrence(job).id) is None
    assert [*world.jobs.versions(job.id, before=9, limit=9)] == []


def test_a_deleted_job_is_not_revised(world: World) -> None:
    job = create(world, recurring())
    deleted = world.jobs.delete(job)

    with pytest.raises(VersionMoved):
        world.jobs.revise(job, revised(job))

    assert world.jobs.get(job.id) == deleted


def test_a_revised_job_can_be_deleted(world: World) -> None:
    job = create(world, recurring())
    second = revised(job)
    world.jobs.revise(job, second)

    deleted = world.jobs.delete(second)

    assert deleted == replace(second, version=3, status=JobStatus.DELETED)
    assert world.jobs.get(job.id) == deleted


def test_a_revision_that_is_written_again_counts_as_made(world: World) -> None:
    job = create(world, recurring())
    second = revised(job)

    answers = [world.jobs.revise(job, second, first=occurrence(second)) for _ in range(2)]

    assert answers == [second, second]
    assert [*world.jobs.versions(job.id, before=9, limit=9)] == [job]


def test_a_revision_that_is_written_again_leaves_its_claimed_row_alone(world: World) -> None:
    job = create(world, recurring())
    second = revised(job)
    world.jobs.revise(job, second, first=occurrence(second))
    won = world.executions.claim(
        occurrence(second).id, attempt=1, token=TOKEN, worker=WORKER, now=T, lease_until=T + LEASE
    )

    assert world.jobs.revise(job, second, first=occurrence(second)) == second

    assert world.executions.get(occurrence(second).id) == won


def test_a_revision_that_is_written_again_after_the_next_one_has_moved(world: World) -> None:
    job = create(world, recurring())
    second = revised(job)
    world.jobs.revise(job, second)
    third = revised(second)
    world.jobs.revise(second, third)

    with pytest.raises(VersionMoved):
        world.jobs.revise(job, second)

    assert world.jobs.get(job.id) == third


def test_of_ten_who_revise_at_once_exactly_one_does(world: World) -> None:
    job = create(world, recurring())

    def revise(n: int) -> Job | Refusal | None:
        mine = replace(revised(job), name=f"by {n}")
        try:
            return world.jobs.revise(job, mine, first=occurrence(mine))
        except VersionMoved:
            return None

    answers = race(revise, 10)

    (won,) = [answer for answer in answers if answer is not None]
    assert world.jobs.get(job.id) == won
    assert [*world.jobs.versions(job.id, before=9, limit=9)] == [job]


def test_a_large_payload_is_in_no_version_of_a_job(world: World) -> None:
    job = create(world, recurring(payload='"' + "x" * 600 + '"'))
    payload = replace(Payload.of('"' + "y" * 700 + '"'), version=2)
    second = replace(revised(job), spec=replace(job.spec, payload=payload))

    answer = world.jobs.revise(job, second)

    assert isinstance(answer, Job)
    assert answer.spec.payload == Payload(text=None, bytes=702, version=2)
    assert world.jobs.get(job.id) == answer
    (earlier,) = world.jobs.versions(job.id, before=2, limit=9)
    assert earlier.spec.payload == Payload(text=None, bytes=602)


# Earlier versions.


def create_with_versions(world: World, number: int) -> list[Job]:
    """A job's versions, the first one first."""
    versions = [create(world, recurring())]
    while len(versions) < number:
        versions.append(revised(versions[-1]))
        world.jobs.revise(versions[-2], versions[-1])
    return versions


def test_a_job_that_was_never_revised_has_no_earlier_version(world: World) -> None:
    job = create(world, recurring())

    assert [*world.jobs.versions(job.id, before=1, limit=10)] == []
    assert [*world.jobs.versions(job.id, before=2, limit=10)] == []
    assert [*world.jobs.versions(recurring(n=2).id, before=2, limit=10)] == []


def test_earlier_versions_are_kept_as_they_were_newest_first(world: World) -> None:
    *earlier, current = create_with_versions(world, 12)

    found = world.jobs.versions(current.id, before=current.version, limit=100)

    assert [*found] == earlier[::-1]


@pytest.mark.parametrize("limit", [1, 3, 11, 12])
def test_pages_of_versions_hold_each_earlier_one_once(world: World, limit: int) -> None:
    *earlier, current = create_with_versions(world, 12)

    found: list[Job] = []
    before = current.version
    while page := world.jobs.versions(current.id, before=before, limit=limit):
        assert len(page) <= limit
        found += page
        before = page[-1].version

    assert found == earlier[::-1]


def test_the_versions_of_another_job_are_its_own(world: World) -> None:
    mine, theirs = create(world, recurring()), create(world, recurring(n=2))
    for job in (mine, theirs):
        world.jobs.revise(job, revised(job))

    assert [*world.jobs.versions(mine.id, before=2, limit=10)] == [mine]


def test_earlier_versions_of_a_deleted_job_stay_readable(world: World) -> None:
    *earlier, current = create_with_versions(world, 3)
    world.jobs.delete(current)

    assert [*world.jobs.versions(current.id, before=4, limit=10)] == earlier[::-1]


# An owner's jobs.


def test_an_owner_s_jobs_are_listed_newest_first(world: World) -> None:
    jobs = [create(world, recurring(T + s(n), n=n)) for n in range(8)]
    create(world, recurring(n=77, owner=Owner("other")))

    assert [*world.jobs.of_owner(OWNER, before=None, limit=100)] == jobs[::-1]


def test_keys_and_one_offs_are_in_no_list_of_jobs(world: World) -> None:
    row = one_off()
    world.jobs.create(first=row, key=key_record(row))

    assert [*world.jobs.of_owner(OWNER, before=None, limit=10)] == []


def test_a_revised_or_paused_job_keeps_its_one_place_in_its_owner_s_list(world: World) -> None:
    jobs = [create(world, recurring(T + s(n), n=n)) for n in range(3)]
    paused = replace(revised(jobs[1]), status=JobStatus.PAUSED)
    world.jobs.revise(jobs[1], paused)

    assert [*world.jobs.of_owner(OWNER, before=None, limit=10)] == [jobs[2], paused, jobs[0]]


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
