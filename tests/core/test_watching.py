"""When a job's ledger is looked at next: seldom enough to cost little, and never by two at once."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamplighter.core.buckets import place_of, recurring_job_id, row_key, watch_place
from lamplighter.core.completeness import Open, Place
from lamplighter.core.limits import (
    LAMBDA_MAX_TIMEOUT_S,
    LEDGER_LATE,
    POINTER_KEPT,
    WATCH_AGAIN,
    WATCH_AT_LEAST,
    WATCH_EVERY,
    WATCH_FIRST,
    WATCH_SELDOM,
)
from lamplighter.core.model import (
    Job,
    JobStatus,
    MisfirePolicy,
    Owner,
    Payload,
    Rest,
    Spec,
    Watch,
)
from lamplighter.core.schedule import parse, read_record
from lamplighter.core.watching import first_watch, has_more, next_watch
from tests.support.examples import ALWAYS_THE_SAME, examples

START = datetime(2026, 3, 3, 10, 17, 20, tzinfo=UTC)
SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
# A bucket is visited half a minute after its end, and the tick may come a minute after that.
SWEPT = 2 * MINUTE

SCHEDULES = {
    "every second": "rate(1 second)",
    "every minute": "* * * * *",
    "every 5 minutes": "*/5 * * * *",
    "every 15 minutes": "rate(15 minutes)",
    "every 15 minutes of office hours": "*/15 9-16 * * 1-5",
    "every hour": "40 * * * *",
    "every 6 hours": "rate(6 hours)",
    "daily": "0 9 * * *",
    "weekly": "0 9 * * 1",
    "yearly": "0 9 1 7 *",
    "every leap day": "0 0 29 2 *",
}


def a_job(schedule: str = "* * * * *", *, n: int = 7, end_at: datetime | None = None) -> Job:
    id = recurring_job_id(START, 3, n)
    rate = schedule if schedule.startswith("rate") else None
    return Job(
        id=id,
        owner=Owner("acme"),
        version=1,
        status=JobStatus.ACTIVE,
        spec=Spec(task="echo", payload=Payload.of("null")),
        schedule=parse(
            rate=rate,
            cron=None if rate else schedule,
            anchor=START if rate else None,
            end_at=end_at,
            seed=id,
        ),
        misfire=MisfirePolicy.FIRE_ONCE,
        created_at=START,
    )


def visited(job: Job, watch: Watch) -> Watch:
    """The watch after this one, which the sweep visits in its time."""
    now = watch.at + SWEPT
    following = next_watch(job, since=now - LEDGER_LATE, rest=None, now=now)
    assert following is not None
    return following


def visits(job: Job, *, during: timedelta) -> list[Watch]:
    watch, found = first_watch(job, START), []
    while watch.at < START + during:
        found.append(watch)
        watch = visited(job, watch)
    return found


class TestTheFirst:
    @pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)
    def test_is_visited_when_whoever_puts_the_job_has_put_it_or_is_gone(
        self, schedule: str
    ) -> None:
        """P7, S0-S2: the watch is put before the job; a visit that finds none may end it."""
        watch = first_watch(a_job(schedule), START)

        assert watch.at > START + WATCH_FIRST
        assert timedelta(seconds=LAMBDA_MAX_TIMEOUT_S) <= WATCH_FIRST

    def test_begins_with_its_version(self) -> None:
        edited = replace(a_job(), version=2, effective_from=START + HOUR)

        assert first_watch(a_job(), START).since == START
        assert first_watch(edited, START + HOUR).since == START + HOUR

    def test_lies_in_its_job_s_shard(self) -> None:
        job = a_job()
        watch = first_watch(job, START)

        key, position = row_key(watch.position)

        assert key == f"{watch.at:%Y-%m-%dT%H:%M}#{place_of(job.id).shard:03x}"
        assert position == watch.position


class TestTheNext:
    @pytest.mark.parametrize(
        ("schedule", "at_most_a_day", "runs_a_day"),
        [
            ("rate(1 second)", 24, 86_400),
            ("* * * * *", 24, 1440),
            ("*/5 * * * *", 24, 288),
            ("rate(15 minutes)", 24, 96),
            ("40 * * * *", 7, 24),
            ("rate(6 hours)", 2, 4),
        ],
    )
    def test_costs_at_most_an_eighth_of_what_the_runs_cost(
        self, schedule: str, at_most_a_day: int, runs_a_day: int
    ) -> None:
        """A visit writes one unit, a run four."""
        found = visits(a_job(schedule), during=28 * DAY)

        assert len(found) / 28 <= at_most_a_day + 0.25
        assert len(found) / 28 <= 4 * runs_a_day / 8 + 0.25

    @pytest.mark.parametrize(
        ("schedule", "a_week"), [("0 9 * * *", 8), ("0 9 * * 1", 2), ("0 9 1 7 *", 1)]
    )
    def test_of_what_runs_seldom_comes_after_each_slot_and_once_a_week(
        self, schedule: str, a_week: int
    ) -> None:
        assert len(visits(a_job(schedule), during=10 * WATCH_SELDOM)) <= 10 * a_week + 1

    @pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)
    def test_tells_each_slot_in_a_day_and_an_hour(self, schedule: str) -> None:
        """And an hour after, where there are many: what died is not dead for long."""
        job, dense = a_job(schedule), schedule in {"* * * * *", "*/5 * * * *", "rate(1 second)"}
        found = visits(job, during=30 * DAY)
        for watch in found[1:]:
            told = watch.at + SWEPT - LEDGER_LATE
            oldest = job.schedule.next(watch.since)

            assert oldest is not None
            waited = told - oldest
            assert waited <= (HOUR + SWEPT if dense else DAY + WATCH_EVERY + SWEPT)

    @pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)
    def test_lies_ahead_and_long_before_a_pointer_is_forgotten(self, schedule: str) -> None:
        job = a_job(schedule)
        for watch in visits(job, during=30 * DAY):
            gap = visited(job, watch).at - watch.at

            assert SWEPT < gap <= WATCH_SELDOM < POINTER_KEPT / 2

    def test_comes_soon_with_the_rest_of_what_was_too_much(self) -> None:
        job, rest = a_job(), Rest(until=START + HOUR, place="1.5.-.-.-")
        now = START + 2 * HOUR

        watch = next_watch(job, since=START, rest=rest, now=now)

        assert watch is not None
        assert (watch.since, watch.rest) == (START, rest)
        assert now < watch.at <= now + WATCH_AGAIN

    def test_is_none_once_a_job_has_no_more_slots(self) -> None:
        job = a_job(end_at=START + 30 * MINUTE)

        before = next_watch(job, since=START + 20 * MINUTE, rest=None, now=START + HOUR)
        after = next_watch(job, since=START + 31 * MINUTE, rest=None, now=START + HOUR)

        assert before is not None
        assert after is None

    def test_is_none_once_a_deleted_job_was_looked_at(self) -> None:
        deleted = replace(a_job(), status=JobStatus.DELETED, version=2)

        assert next_watch(deleted, since=START + HOUR, rest=None, now=START + 2 * HOUR) is None

    def test_is_none_once_all_was_told_that_came_before_a_pause(self) -> None:
        paused = replace(a_job(), status=JobStatus.PAUSED, version=2, effective_from=START + HOUR)
        now = START + 2 * HOUR

        assert next_watch(paused, since=START + HOUR, rest=None, now=now) is not None
        assert next_watch(paused, since=START + HOUR + SECOND, rest=None, now=now) is None

    def test_of_what_cannot_be_read_waits_until_it_can(self) -> None:
        job = a_job()
        schedule = read_record({**job.schedule.to_record(), "timezone": "Nowhere/Else"})
        unread = replace(job, schedule=schedule)
        now = START + 3 * HOUR

        watch = next_watch(unread, since=START, rest=None, now=now)

        assert watch is not None
        assert (watch.since, watch.at <= now + WATCH_EVERY) == (START, True)


class TestTwoOfOneJob:
    @settings(max_examples=examples(150), derandomize=ALWAYS_THE_SAME)
    @given(
        schedule=st.sampled_from(sorted(SCHEDULES.values())),
        n=st.integers(0, 2**40),
        apart=st.integers(0, 14 * 24 * 3600),
        late=st.integers(0, 3600),
    )
    def test_become_one(self, schedule: str, n: int, apart: int, late: int) -> None:
        """However far apart they began: in a week, or a day where slots come close together."""
        job = a_job(schedule, n=n)
        one, other = first_watch(job, START), first_watch(job, START + apart * SECOND)
        # One visit is late, so that they do not go in step.
        now = other.at + SWEPT + late * SECOND
        following = next_watch(job, since=now - LEDGER_LATE, rest=None, now=now)
        assert following is not None
        other = following

        begun = max(one.at, other.at)
        while one.position != other.position:
            if one.at < other.at:
                one = visited(job, one)
            else:
                other = visited(job, other)
            assert min(one.at, other.at) <= begun + WATCH_SELDOM
        assert max(one.at, other.at) <= begun + WATCH_SELDOM + WATCH_AT_LEAST
        assert visited(job, one).position == visited(job, other).position

    def test_the_one_that_has_more_to_tell_stays(self) -> None:
        job = a_job()
        watch = first_watch(job, START)
        later = replace(watch, since=watch.since + HOUR)

        assert has_more(watch, later)
        assert not has_more(later, watch)
        assert not has_more(watch, watch)


class TestAPlace:
    @given(
        n=st.integers(0, 2**60),
        seconds=st.integers(0, 10**7),
        step=st.sampled_from([WATCH_AGAIN, WATCH_EVERY, WATCH_AT_LEAST, WATCH_SELDOM]),
    )
    def test_is_the_next_of_a_few_and_one_of_the_more_frequent(
        self, n: int, seconds: int, step: timedelta
    ) -> None:
        job, after = recurring_job_id(START, 3, n), START + seconds * SECOND

        place = watch_place(job, after, step)

        assert after < place <= after + step
        assert watch_place(job, place - SECOND, step) == place
        assert watch_place(job, place, step) == place + step
        for finer in (WATCH_AGAIN, WATCH_EVERY, WATCH_AT_LEAST):
            if finer <= step:
                assert watch_place(job, place - SECOND, finer) == place

    @pytest.mark.parametrize(
        "place",
        [
            Place(version=1, before=START),
            Place(version=12, before=START, later=START + MINUTE, above=START + HOUR),
            Place(version=3, before=START, open=Open(size=12, below=3, last=START)),
        ],
        ids=["bare", "looking above", "with open slots"],
    )
    def test_of_a_walk_is_read_as_it_was_written(self, place: Place) -> None:
        assert Place.read(place.text) == place

    @pytest.mark.parametrize("text", ["", "1", "1.2.3", "0.1.-.-.-", "1.2.-.-.-\n", "1.2.-.-.x"])
    def test_of_a_walk_is_no_other_text(self, text: str) -> None:
        with pytest.raises(ValueError, match="no place of a walk"):
            Place.read(text)
