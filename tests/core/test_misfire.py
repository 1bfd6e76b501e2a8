"""What is found late: six missed occurrences are one run or none, and never cost their number."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from lamplighter.core.buckets import recurring_job_id
from lamplighter.core.lifecycle import State
from lamplighter.core.misfire import EndChain, Pass, Send, Skip, decide, successor
from lamplighter.core.model import Execution, Job, JobStatus, MisfirePolicy, Owner, Payload, Spec
from lamplighter.core.schedule import parse

CREATED = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)


def hourly(
    misfire: MisfirePolicy = MisfirePolicy.FIRE_ONCE,
    status: JobStatus = JobStatus.ACTIVE,
    window: int = 0,
) -> Job:
    id = recurring_job_id(CREATED, 3, 99)
    return Job(
        id=id,
        owner=Owner("acme"),
        version=4,
        status=status,
        spec=Spec(task="echo", payload=Payload.of("null")),
        schedule=parse(cron="0 * * * *", seed=id, flexible_window_seconds=window),
        misfire=misfire,
        created_at=CREATED,
    )


def slot(hour: float) -> datetime:
    return CREATED + hour * HOUR


def row(job: Job, hour: float, *, directly: bool = False) -> Execution:
    return job.occurrence(slot(hour), now=CREATED, sent_directly=directly)


@pytest.mark.parametrize("policy", MisfirePolicy)
def test_what_is_at_most_a_minute_late_is_sent_whatever_the_policy(policy: MisfirePolicy) -> None:
    job = hourly(policy)

    assert decide(row(job, 1), job, slot(1) + 60 * SECOND) == Send()


def test_fire_once_passes_over_all_but_the_latest_of_six_missed_slots() -> None:
    job = hourly()
    now = slot(6) + 5 * timedelta(minutes=1)

    decisions = [decide(row(job, hour), job, now) for hour in range(1, 7)]

    assert [type(decision) for decision in decisions] == [Skip] * 5 + [Send]
    assert successor(job, slot(1), now) == slot(6)
    assert successor(job, slot(6), now) == slot(7)


def test_skip_passes_over_every_missed_slot_and_goes_on_with_the_next() -> None:
    job = hourly(MisfirePolicy.SKIP)
    now = slot(6) + 5 * timedelta(minutes=1)

    decisions = [decide(row(job, hour), job, now) for hour in range(1, 7)]

    assert [type(decision) for decision in decisions] == [Skip] * 6
    assert successor(job, slot(1), now) == slot(7)


def test_skip_keeps_the_slot_that_is_not_late_enough_to_be_missed() -> None:
    job = hourly(MisfirePolicy.SKIP)

    assert successor(job, slot(1), slot(6) + 60 * SECOND) == slot(6)


def test_five_years_of_missed_slots_take_two_steps() -> None:
    job = hourly()
    now = CREATED + timedelta(days=5 * 365, minutes=5)

    first = successor(job, slot(1), now)
    assert first is not None
    second = successor(job, first, now)

    assert first == now - timedelta(minutes=5)
    assert second == first + HOUR


def test_a_flexible_window_is_not_lateness() -> None:
    job = hourly(window=3600)
    offset = job.run_at(slot(1)) - slot(1)
    assert offset > timedelta(minutes=2)

    assert decide(row(job, 1), job, slot(1) + offset) == Send()
    assert successor(job, slot(1), slot(2) + offset) == slot(2)
    assert successor(job, slot(1), slot(3) + offset - SECOND) == slot(2)
    assert successor(job, slot(1), slot(3) + offset) == slot(3)


def test_a_row_marked_sent_directly_is_passed() -> None:  # P3
    job = hourly()

    assert decide(row(job, 1, directly=True), job, slot(1)) == Pass()


@pytest.mark.parametrize("state", [State.SUCCEEDED, State.CANCELLED, State.FAILED])
def test_a_row_that_has_moved_on_is_passed(state: State) -> None:
    job = hourly()

    assert decide(replace(row(job, 1), state=state), job, slot(9)) == Pass()


def test_a_one_off_is_sent_however_late_it_is() -> None:
    job = hourly()

    assert decide(row(job, 1), None, slot(1) + 5 * 365 * 24 * HOUR) == Send()


def test_the_chain_of_a_deleted_job_ends_on_condition_of_its_version() -> None:
    job = hourly(status=JobStatus.DELETED)

    assert decide(row(job, 1), job, slot(1)) == EndChain(job_version=4, reason="job is DELETED")
    assert successor(job, slot(1), slot(1)) is None


def test_the_same_instant_decides_the_same_and_a_later_one_may_not() -> None:  # P5
    job = hourly()
    found, redone = slot(6), slot(9)

    assert successor(job, slot(1), found) == successor(job, slot(1), found) == slot(6)
    assert successor(job, slot(1), redone) == slot(9)
