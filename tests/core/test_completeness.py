"""What became of a slot: by its row, or by the rows around it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from lamplighter.core.buckets import recurring_job_id
from lamplighter.core.catch_up import CatchUp, CaughtUp
from lamplighter.core.completeness import (
    JUST_DUE,
    NO_EXECUTION,
    NOT_DUE,
    Entry,
    Hole,
    Outcome,
    entry_of,
    entry_of_none,
    group_of,
)
from lamplighter.core.deadline import overdue
from lamplighter.core.lifecycle import State
from lamplighter.core.misfire import Drop, EndChain, decide, successor
from lamplighter.core.model import (
    Arrival,
    Execution,
    Job,
    JobStatus,
    MisfirePolicy,
    OverlapPolicy,
    Owner,
    Payload,
    Spec,
    Token,
)
from lamplighter.core.overlap import GiveWay, turn
from lamplighter.core.schedule import format_instant, parse
from lamplighter.core.status import Status

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)
FIRE_ALL, FIRE_ONCE, SKIP = MisfirePolicy.FIRE_ALL, MisfirePolicy.FIRE_ONCE, MisfirePolicy.SKIP


def a_job(misfire: MisfirePolicy = FIRE_ONCE, **catch_up: int | timedelta) -> Job:
    """Due every minute."""
    id = recurring_job_id(NOON - MINUTE, 3, 99)
    return Job(
        id=id,
        owner=Owner("acme"),
        version=1,
        status=JobStatus.ACTIVE,
        spec=Spec(task="echo", payload=Payload.of("null")),
        schedule=parse(cron="* * * * *", seed=id),
        misfire=misfire,
        catch_up=CatchUp(**catch_up),  # type: ignore[arg-type]
        created_at=NOON - MINUTE / 2,
    )


def row(
    job: Job, minute: int, *, made_at: datetime | None = None, caught_up: CaughtUp | None = None
) -> Execution:
    """The execution of a minute after noon, made four minutes ahead unless it says when."""
    slot = NOON + minute * MINUTE
    return job.occurrence(
        slot, now=made_at or slot - 4 * MINUTE, sent_directly=False, caught_up=caught_up
    )


def hole(job: Job, first: int, last: int, *, later: Execution | None, **rest: object) -> Hole:
    given: dict[str, object] = {"earlier": row(job, first - 1), **rest}
    return Hole(
        version=job,
        first=NOON + first * MINUTE,
        size=last - first + 1,
        later=later,
        **given,  # type: ignore[arg-type]
    )


class TestARow:
    @pytest.mark.parametrize(
        ("state", "outcome"),
        [
            (State.SUCCEEDED, Outcome.FIRED),
            (State.FAILED, Outcome.FIRED),
            (State.DEAD_LETTERED, Outcome.FIRED),
            (State.RUNNING, Outcome.FIRED),
            (State.RETRYING, Outcome.FIRED),
            (State.SKIPPED, Outcome.SKIPPED),
            (State.CANCELLED, Outcome.CANCELLED),
            (State.EXPIRED, Outcome.EXPIRED),
            (State.BLOCKED, Outcome.PENDING),
            (State.SCHEDULED, Outcome.PENDING),
        ],
    )
    def test_that_is_an_hour_old_is_one_thing_in_each_state(
        self, state: State, outcome: Outcome
    ) -> None:
        running = {"token": Token("t"), "lease_until": NOON} if state is State.RUNNING else {}
        retrying = {"next_run_at": NOON} if state is State.RETRYING else {}
        one = replace(row(a_job(), 1), state=state, **running, **retrying)  # type: ignore[arg-type]

        assert entry_of(one, Status(state)).outcome is outcome

    @pytest.mark.parametrize("status", [Status.SCHEDULED, Status.QUEUED, Status.BLOCKED])
    def test_that_waits_is_pending_and_says_for_what(self, status: Status) -> None:
        assert entry_of(row(a_job(), 1), status) == Entry(outcome=Outcome.PENDING, reason=status)

    @pytest.mark.parametrize(
        ("seconds", "entry"), [(-1, NOT_DUE), (0, JUST_DUE), (180, JUST_DUE), (181, NO_EXECUTION)]
    )
    def test_that_is_not_there_is_missed_as_late(self, seconds: int, entry: Entry) -> None:
        assert entry_of_none(NOON, NOON + seconds * SECOND) == entry


class TestAReason:
    """Each is counted by one word; these are what the decisions really say."""

    @pytest.mark.parametrize(
        ("job", "word"),
        [
            (a_job(SKIP), "misfire"),
            (a_job(FIRE_ONCE), "coalesced"),
            (a_job(FIRE_ALL, most=2), "catch-up cap"),
        ],
    )
    def test_of_a_row_that_dispatch_drops(self, job: Job, word: str) -> None:
        decision = decide(row(job, 1), job, NOON + 60 * MINUTE)

        assert isinstance(decision, Drop)
        assert group_of(decision.reason) == word

    @pytest.mark.parametrize(
        ("job", "word"),
        [
            (a_job(SKIP), "misfire"),
            (a_job(FIRE_ONCE), "coalesced"),
            (a_job(FIRE_ONCE, window=MINUTE), "coalesced"),
            (a_job(FIRE_ALL, most=2), "catch-up cap"),
            (a_job(FIRE_ALL, window=5 * MINUTE), "catch-up window"),
        ],
    )
    def test_of_slots_that_have_no_rows(self, job: Job, word: str) -> None:
        gap = successor(job, NOON + MINUTE, NOON + 60 * MINUTE).passed_over

        assert gap is not None
        assert group_of(gap.reason) == word

    def test_of_a_deadline(self) -> None:
        job = a_job()
        late = overdue(row(job, 1), job, NOON + timedelta(days=3))

        assert late is not None
        assert group_of(late.reason) == "deadline"
        until = row(job, 1).run_at + job.catch_up.window
        assert late.reason == f"not started by its deadline, {format_instant(until)}"

    def test_of_an_overlap(self) -> None:
        met = turn(OverlapPolicy.SKIP, row(a_job(), 1))

        assert isinstance(met, GiveWay)
        assert group_of(met.reason) == "overlap"

    @pytest.mark.parametrize("status", [JobStatus.PAUSED, JobStatus.DELETED])
    def test_of_a_chain_that_ends(self, status: JobStatus) -> None:
        job = replace(a_job(), status=status)

        decision = decide(row(job, 1), job, NOON)

        assert isinstance(decision, EndChain)
        assert group_of(decision.reason) == status.lower()

    def test_that_nobody_knows_is_another(self) -> None:
        assert group_of(None) == group_of("who knows") == "other"


class TestAHole:
    @pytest.mark.parametrize("misfire", MisfirePolicy)
    @pytest.mark.parametrize("size", [1, 2, 10, 200])
    def test_before_a_row_that_was_armed_in_time_is_lost(
        self, misfire: MisfirePolicy, size: int
    ) -> None:
        job = a_job(misfire)

        assert hole(job, 10, 9 + size, later=row(job, 10 + size)).explained == (0, NO_EXECUTION)

    @pytest.mark.parametrize(
        "job",
        [
            a_job(SKIP),
            a_job(FIRE_ONCE),
            a_job(FIRE_ONCE, threshold=20 * MINUTE),
            a_job(FIRE_ALL, most=3),
            a_job(FIRE_ALL, window=5 * MINUTE),
        ],
        ids=lambda job: f"{job.misfire}, {job.catch_up}",
    )
    @pytest.mark.parametrize("delay", [timedelta(0), SECOND, 10 * MINUTE], ids=str)
    def test_that_the_policy_made_is_explained_by_it(self, job: Job, delay: timedelta) -> None:
        before, decided_at = row(job, 1), NOON + 60 * MINUTE
        found = successor(job, before.scheduled_for, decided_at)
        assert found.slot is not None
        assert found.passed_over is not None
        later = job.occurrence(
            found.slot, now=decided_at + delay, sent_directly=False, caught_up=found.caught_up
        )
        size = found.passed_over.count

        number, entry = hole(job, 2, 1 + size, later=later, earlier=before).explained

        assert (number, entry.outcome) == (size, Outcome.SKIPPED)

    def test_in_a_catch_up_is_lost_as_far_as_that_goes_back(self) -> None:
        job, decided_at = a_job(FIRE_ALL, most=10), NOON + 60 * MINUTE
        place = CaughtUp(decided_at=decided_at, number=3)
        later = row(job, 52, made_at=decided_at, caught_up=place)

        number, entry = hole(job, 2, 51, later=later).explained

        # 49, 50 and 51 ran before it; those before were over the cap.
        assert (number, entry) == (47, Entry(outcome=Outcome.SKIPPED, reason="catch-up cap"))

    def test_at_the_end_of_a_version_that_dispatch_had_not_come_to_was_taken_back(self) -> None:
        job = a_job()
        newer = replace(job, version=2, effective_from=NOON + 30 * MINUTE)
        for before in (row(job, 4), replace(row(job, 4), finished_at=NOON + 31 * MINUTE)):
            found = hole(job, 5, 29, later=None, newer=newer, earlier=before).explained

            assert found == (25, Entry(outcome=Outcome.CANCELLED, reason="edited"))

    def test_after_what_its_api_sent_before_it_died_was_taken_back_by_an_edit(self) -> None:
        """It ran, and dispatch, which arms what follows, was still to come to it."""
        job = a_job()
        newer = replace(job, version=2, effective_from=NOON + 30 * MINUTE)
        before = replace(row(job, 4), sent_directly=True, first_started_at=NOON + 4 * MINUTE)

        found = hole(job, 5, 29, later=None, newer=newer, earlier=before).explained

        assert found == (25, Entry(outcome=Outcome.CANCELLED, reason="edited"))

    def test_at_the_end_of_a_version_that_ran_until_then_is_lost(self) -> None:
        job = a_job()
        newer = replace(job, version=2, effective_from=NOON + 30 * MINUTE)
        before = replace(row(job, 27), first_started_at=NOON + 27 * MINUTE)

        found = hole(job, 28, 29, later=None, newer=newer, earlier=before).explained

        assert found == (0, NO_EXECUTION)

    def test_of_a_job_that_was_deleted_since_is_judged_as_it_was(self) -> None:
        job = replace(a_job(SKIP), status=JobStatus.DELETED)

        assert hole(job, 10, 10, later=row(job, 11)).explained == (0, NO_EXECUTION)
        recovered = row(job, 60, made_at=NOON + 60 * MINUTE)
        assert hole(job, 10, 59, later=recovered).explained[0] == 50

    def test_after_a_catch_up_s_row_is_lost_however_late_the_next_row_was_made(self) -> None:
        """What the catch-up had chosen stays chosen, whatever the cap would be by then."""
        job, much_later = a_job(FIRE_ALL, most=4), NOON + 80 * MINUTE
        place = CaughtUp(decided_at=NOON + 60 * MINUTE, number=1)
        before = row(job, 50, made_at=NOON + 60 * MINUTE, caught_up=place)
        later = row(job, 75, made_at=much_later, caught_up=CaughtUp(decided_at=much_later))

        found = hole(job, 51, 74, later=later, earlier=before).explained

        assert found == (0, NO_EXECUTION)


class TestTheEnd:
    """Slots without rows at the end of a schedule: no row after them tells why."""

    @pytest.mark.parametrize("misfire", [SKIP, FIRE_ONCE, FIRE_ALL])
    def test_is_explained_by_the_skip_of_the_last_row(self, misfire: MisfirePolicy) -> None:
        job = ending(a_job(misfire, window=5 * MINUTE))
        skipped = replace(
            row(job, 1),
            state=State.SKIPPED,
            reason="misfire: 0:30:00 late",
            finished_at=NOON + 31 * MINUTE,
        )

        found = hole(job, 2, 5, later=None, earlier=skipped).explained

        reason = "misfire" if misfire is SKIP else "catch-up window"
        assert found == (4, Entry(outcome=Outcome.SKIPPED, reason=reason))

    def test_is_missed_after_a_row_that_ran(self) -> None:
        job = ending(a_job(SKIP))
        ran = replace(row(job, 1), state=State.SUCCEEDED, finished_at=NOON + 31 * MINUTE)

        assert hole(job, 2, 5, later=None, earlier=ran).explained == (0, NO_EXECUTION)

    @pytest.mark.parametrize("state", [State.SUCCEEDED, State.EXPIRED])
    def test_is_explained_by_a_last_row_that_was_sent_late(self, state: State) -> None:
        """Its message tells when dispatch was there, and that the others were too old by then."""
        job = ending(a_job(SKIP))
        sent = Arrival(sent_at=NOON + 31 * MINUTE, received_at=NOON + 31 * MINUTE)
        late = replace(row(job, 1), state=state, arrival=sent)

        found = hole(job, 2, 5, later=None, earlier=late).explained

        assert found == (4, Entry(outcome=Outcome.SKIPPED, reason="misfire"))

    def test_is_missed_after_a_last_row_that_was_sent_in_time_and_ran_late(self) -> None:
        job = ending(a_job(SKIP))
        sent = Arrival(sent_at=NOON + MINUTE, received_at=NOON + 31 * MINUTE)
        late = replace(
            row(job, 1), state=State.SUCCEEDED, arrival=sent, first_started_at=NOON + 31 * MINUTE
        )

        assert hole(job, 2, 5, later=None, earlier=late).explained == (0, NO_EXECUTION)

    def test_is_missed_after_a_skip_at_which_it_was_still_to_come(self) -> None:
        job = ending(a_job(SKIP))
        skipped = replace(
            row(job, 1), state=State.SKIPPED, reason="overlap: x", finished_at=NOON + MINUTE
        )

        assert hole(job, 2, 5, later=None, earlier=skipped).explained == (0, NO_EXECUTION)


def ending(job: Job) -> Job:
    """The job with its last slot five minutes past noon."""
    end = NOON + 5 * MINUTE + SECOND
    return replace(job, schedule=parse(cron="* * * * *", seed=job.id, end_at=end))
