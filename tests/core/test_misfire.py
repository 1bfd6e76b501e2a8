"""What is found late: six missed occurrences are six runs, one or none, and never cost more."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamplighter.core.buckets import recurring_job_id
from lamplighter.core.catch_up import CatchUp, CaughtUp
from lamplighter.core.errors import Rejected
from lamplighter.core.lifecycle import Event, State
from lamplighter.core.limits import PASSED_OVER_COUNTED
from lamplighter.core.misfire import Drop, EndChain, Gap, Pass, Send, decide, successor
from lamplighter.core.model import (
    Execution,
    Job,
    JobStatus,
    MisfirePolicy,
    OnDeadline,
    Owner,
    Payload,
    Spec,
    Trigger,
)
from lamplighter.core.schedule import parse
from lamplighter.core.schedule.timeline import WallTimeline

CREATED = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)
FIRE_ALL = MisfirePolicy.FIRE_ALL


def hourly(
    misfire: MisfirePolicy = MisfirePolicy.FIRE_ONCE,
    status: JobStatus = JobStatus.ACTIVE,
    window: int = 0,
    catch_up: CatchUp | None = None,
    cron: str = "0 * * * *",
) -> Job:
    id = recurring_job_id(CREATED, 3, 99)
    return Job(
        id=id,
        owner=Owner("acme"),
        version=4,
        status=status,
        spec=Spec(task="echo", payload=Payload.of("null")),
        schedule=parse(cron=cron, seed=id, flexible_window_seconds=window),
        misfire=misfire,
        catch_up=catch_up or CatchUp(),
        created_at=CREATED,
    )


def slot(hour: float) -> datetime:
    return CREATED + hour * HOUR


def row(job: Job, hour: float, *, directly: bool = False) -> Execution:
    return job.occurrence(slot(hour), now=CREATED, sent_directly=directly)


def dropped(row: Execution, job: Job | None, now: datetime) -> Event | None:
    """How a row ends without a run; None: it is sent."""
    match decide(row, job, now):
        case Drop(event=event):
            return event
        case other:
            assert other == Send()
            return None


def chain(job: Job, first: datetime, now: datetime) -> Sequence[Execution]:
    """The row that was armed before an outage, and those that are armed after it was over.

    Up to the last that is missed, each as of the same instant.
    """
    rows = [job.occurrence(first, now=first, sent_directly=False)]
    while True:
        last = rows[-1]
        found = successor(job, last.scheduled_for, now, caught_up=last.caught_up)
        if found.slot is None or found.slot >= now - job.catch_up.threshold:
            return rows
        rows.append(
            job.occurrence(found.slot, now=now, sent_directly=False, caught_up=found.caught_up)
        )


def ran(job: Job, first: datetime, now: datetime) -> Sequence[datetime]:
    """The slots of a chain that are sent, in the order of their starts."""
    sent = [row for row in chain(job, first, now) if decide(row, job, now) == Send()]
    return [row.scheduled_for for row in sorted(sent, key=lambda row: max(row.due_at, now))]


@pytest.mark.parametrize("policy", MisfirePolicy)
def test_what_is_at_most_a_minute_late_is_sent_whatever_the_policy(policy: MisfirePolicy) -> None:
    job = hourly(policy)

    assert decide(row(job, 1), job, slot(1) + 60 * SECOND) == Send()


SIX_LATER = slot(6) + 5 * MINUTE


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        pytest.param(FIRE_ALL, [1, 2, 3, 4, 5, 6], id="every one"),
        pytest.param(MisfirePolicy.FIRE_ONCE, [6], id="the latest"),
        pytest.param(MisfirePolicy.SKIP, [], id="none"),
    ],
)
def test_six_missed_slots_are_six_runs_one_or_none(
    policy: MisfirePolicy, expected: list[int]
) -> None:
    """S0-S5, S2-M3: every, the latest, none; and a word on each that is not run."""
    job = hourly(policy)

    assert ran(job, slot(1), SIX_LATER) == [slot(hour) for hour in expected]


def test_fire_once_tells_of_what_the_latest_runs_for() -> None:
    found = successor(hourly(), slot(1), SIX_LATER)

    assert found.slot == slot(6)
    assert found.caught_up == CaughtUp(decided_at=SIX_LATER)
    assert found.passed_over == Gap(
        first=slot(2), last=slot(5), count=4, reason="misfire: a later slot runs for them"
    )
    assert successor(hourly(), slot(6), SIX_LATER).slot == slot(7)


def test_skip_tells_of_what_is_not_run_and_goes_on_with_the_next() -> None:
    found = successor(hourly(MisfirePolicy.SKIP), slot(1), SIX_LATER)

    assert (found.slot, found.caught_up) == (slot(7), None)
    assert found.passed_over == Gap(first=slot(2), last=slot(6), count=5, reason="misfire: skipped")


def test_skip_keeps_the_slot_that_is_not_late_enough_to_be_missed() -> None:
    job = hourly(MisfirePolicy.SKIP)

    assert successor(job, slot(1), slot(6) + 60 * SECOND).slot == slot(6)


def test_a_job_that_ends_in_an_outage_still_tells_of_what_it_missed() -> None:
    schedule = parse(cron="0 * * * *", end_at=slot(3), seed="x")
    job = replace(hourly(MisfirePolicy.SKIP), schedule=schedule)

    found = successor(job, slot(1), SIX_LATER)

    assert found.slot is None
    assert found.passed_over is not None
    assert (found.passed_over.first, found.passed_over.last) == (slot(2), slot(3))


def test_the_threshold_is_the_jobs() -> None:
    job = hourly(MisfirePolicy.SKIP, catch_up=CatchUp(threshold=10 * MINUTE))

    assert dropped(row(job, 6), job, slot(6) + 10 * MINUTE) is None
    assert dropped(row(job, 6), job, slot(6) + 10 * MINUTE + SECOND) is Event.SKIP
    assert successor(job, slot(1), slot(6) + 10 * MINUTE).slot == slot(6)


def test_all_are_spread_from_the_decision_on_the_oldest_first() -> None:
    """S2-M4: over a window, and not at one instant."""
    job = hourly(FIRE_ALL, catch_up=CatchUp(spread=60 * SECOND))

    rows = chain(job, slot(1), SIX_LATER)

    starts = [max(row.due_at, SIX_LATER) - SIX_LATER for row in rows]
    assert starts == [timedelta(0), *(number * 10 * SECOND for number in range(1, 6))]


def test_all_means_the_latest_so_many() -> None:
    """S0-S5, S2-M4: not thousands at once: a cap."""
    job = hourly(FIRE_ALL, catch_up=CatchUp(most=4, spread=40 * SECOND))

    assert ran(job, slot(1), SIX_LATER) == [slot(hour) for hour in (3, 4, 5, 6)]
    found = successor(job, slot(1), SIX_LATER)
    assert found.caught_up == CaughtUp(decided_at=SIX_LATER, number=0, step=10 * SECOND)
    assert found.passed_over == Gap(
        first=slot(2), last=slot(2), count=1, reason="misfire: more than catchup_max"
    )


def test_all_means_none_that_is_older_than_the_window() -> None:
    job = hourly(FIRE_ALL, catch_up=CatchUp(window=3 * HOUR))

    assert ran(job, slot(1), SIX_LATER) == [slot(hour) for hour in (4, 5, 6)]
    found = successor(job, slot(1), SIX_LATER)
    assert found.passed_over == Gap(
        first=slot(2), last=slot(3), count=2, reason="misfire: older than the catch-up window"
    )


def test_the_one_that_is_run_for_all_is_not_older_than_the_window_either() -> None:
    job = hourly(catch_up=CatchUp(window=3 * MINUTE))

    found = successor(job, slot(1), SIX_LATER)

    assert found.slot == slot(7)
    assert found.passed_over is not None
    assert found.passed_over.last == slot(6)


def test_a_catch_up_goes_on_as_it_was_decided_whenever_its_next_page_comes() -> None:  # P5
    job = hourly(FIRE_ALL)
    first = successor(job, slot(1), SIX_LATER)
    assert first.slot is not None

    later = successor(job, first.slot, SIX_LATER + 30 * SECOND, caught_up=first.caught_up)

    assert later.slot == slot(3)
    assert later.caught_up == CaughtUp(decided_at=SIX_LATER, number=2, step=10 * SECOND)


def test_what_was_missed_since_is_a_catch_up_of_its_own() -> None:
    job = hourly(FIRE_ALL)
    last = CaughtUp(decided_at=SIX_LATER, number=5, step=10 * SECOND)
    resumed = slot(8) + 5 * MINUTE

    found = successor(job, slot(6), resumed, caught_up=last)

    assert found.slot == slot(7)
    assert found.caught_up is not None
    assert found.caught_up.decided_at == resumed


def test_an_occurrence_chosen_for_a_catch_up_is_not_passed_over_later() -> None:
    job = hourly(FIRE_ALL, catch_up=CatchUp(most=2))
    chosen = replace(row(job, 5), caught_up=CaughtUp(decided_at=SIX_LATER))

    assert decide(chosen, job, SIX_LATER + 5 * HOUR) == Send()


@given(
    st.sampled_from(["0 * * * *", "*/7 * * * *", "30 2 * * *", "0 9 * * 1-5", "* * * * *"]),
    st.integers(2, 20_000).map(lambda minutes: minutes * MINUTE),
    st.integers(1, 40),
    st.integers(1, 60).map(lambda hours: hours * HOUR),
    st.integers(0, 600).map(lambda seconds: seconds * SECOND),
)
def test_all_is_each_missed_slot_once_within_the_bounds(
    cron: str, outage: timedelta, most: int, window: timedelta, spread: timedelta
) -> None:
    catch_up = CatchUp(most=most, window=window, spread=spread)
    job = hourly(FIRE_ALL, catch_up=catch_up, cron=cron)
    armed = job.next_after(CREATED)
    assert armed is not None
    now = armed + outage

    missed = [
        slot
        for slot in job.schedule.between(armed, now)
        if catch_up.threshold < now - slot <= window
    ]

    assert ran(job, armed, now) == missed[-most:]
    starts = [row.due_at for row in chain(job, armed, now) if row.caught_up]
    assert all(now <= start <= now + spread for start in starts)
    assert starts == sorted(starts)


@pytest.mark.parametrize("policy", MisfirePolicy)
def test_five_years_of_missed_minutes_cost_what_a_day_of_them_costs(policy: MisfirePolicy) -> None:
    """O-F01, S0-S5: as much as the cap, not the time since the last one."""

    def steps(outage: timedelta) -> int:
        """How many slots are computed, for the row that was armed and for its successor."""
        seen = [0]
        between = WallTimeline.between

        def counting(*args: object, **kwargs: object) -> object:
            for one in between(*args, **kwargs):  # type: ignore[arg-type]
                seen[0] += 1
                yield one

        job, now = hourly(policy, cron="* * * * *"), slot(1) + outage
        with patch.object(WallTimeline, "between", counting):
            decide(row(job, 1), job, now)
            successor(job, slot(1), now)
        return seen[0]

    assert steps(5 * 365 * DAY) == steps(DAY) > 0
    assert steps(DAY) <= PASSED_OVER_COUNTED + 2 * CatchUp().most + 10


def test_a_gap_of_five_years_has_exact_bounds_and_is_counted_as_far_as_that_is_cheap() -> None:
    job, now = hourly(MisfirePolicy.SKIP, cron="* * * * *"), slot(1) + 5 * 365 * DAY

    gap = successor(job, slot(1), now).passed_over

    assert gap is not None
    assert (gap.first, gap.last) == (slot(1) + MINUTE, now - 2 * MINUTE)
    assert gap.count == PASSED_OVER_COUNTED


@pytest.mark.parametrize(
    ("field", "catch_up"),
    [
        ("misfire_threshold_seconds", {"threshold": timedelta(0)}),
        ("misfire_threshold_seconds", {"threshold": DAY + SECOND}),
        ("catchup_window_seconds", {"window": 59 * SECOND}),
        ("catchup_window_seconds", {"window": 367 * DAY}),
        ("catchup_spread_seconds", {"spread": -SECOND}),
        ("catchup_spread_seconds", {"spread": 601 * SECOND}),
    ],
)
def test_a_duration_out_of_bounds_is_named(field: str, catch_up: dict[str, timedelta]) -> None:
    with pytest.raises(Rejected) as refused:
        CatchUp(**catch_up)  # type: ignore[arg-type]

    assert refused.value.field == field


@pytest.mark.parametrize("most", [0, 1001])
def test_a_cap_out_of_bounds_is_named(most: int) -> None:
    with pytest.raises(Rejected) as refused:
        CatchUp(most=most)

    assert (refused.value.field, refused.value.value) == ("catchup_max", most)


def test_a_flexible_window_is_not_lateness() -> None:
    """S1-Q6."""
    job = hourly(window=3600)
    offset = job.run_at(slot(1)) - slot(1)
    assert offset > timedelta(minutes=2)

    assert decide(row(job, 1), job, slot(1) + offset) == Send()
    assert successor(job, slot(1), slot(2) + offset).slot == slot(2)
    assert successor(job, slot(1), slot(3) + offset - SECOND).slot == slot(2)
    assert successor(job, slot(1), slot(3) + offset).slot == slot(3)


def test_a_row_marked_sent_directly_is_passed() -> None:  # P3
    job = hourly()

    assert decide(row(job, 1, directly=True), job, slot(1)) == Pass()


@pytest.mark.parametrize("state", [State.SUCCEEDED, State.CANCELLED, State.FAILED])
def test_a_row_that_has_moved_on_is_passed(state: State) -> None:
    job = hourly()

    assert decide(replace(row(job, 1), state=state), job, slot(9)) == Pass()


def test_a_one_off_is_sent_however_late_it_is() -> None:
    late = one_off(None, OnDeadline.DEAD_LETTER)

    assert decide(late, None, slot(1) + 5 * 365 * DAY) == Send()


def test_the_chain_of_a_deleted_job_ends_on_condition_of_its_version() -> None:
    job = hourly(status=JobStatus.DELETED)

    assert decide(row(job, 1), job, slot(1)) == EndChain(job_version=4, reason="job is DELETED")
    assert successor(job, slot(1), slot(1)).slot is None


def test_the_same_instant_decides_the_same_and_a_later_one_may_not() -> None:  # P5
    job = hourly()
    found, redone = slot(6), slot(9)

    assert successor(job, slot(1), found) == successor(job, slot(1), found)
    assert successor(job, slot(1), found).slot == slot(6)
    assert successor(job, slot(1), redone).slot == slot(9)


# The deadline.


def one_off(deadline: timedelta | None, on_deadline: OnDeadline) -> Execution:
    job = hourly()
    spec = replace(job.spec, deadline=deadline, on_deadline=on_deadline)
    return replace(row(job, 1), trigger=Trigger.ONE_OFF, spec=spec)


@pytest.mark.parametrize(
    ("on_deadline", "event"),
    [(OnDeadline.DEAD_LETTER, Event.EXPIRE), (OnDeadline.SKIP, Event.SKIP)],
)
def test_a_one_off_past_its_deadline_ends_as_it_says(on_deadline: OnDeadline, event: Event) -> None:
    """S2-M5: shown among what needs attention, or skipped."""
    late = one_off(5 * MINUTE, on_deadline)

    assert dropped(late, None, slot(1) + 5 * MINUTE) is None
    assert dropped(late, None, slot(1) + 5 * MINUTE + SECOND) is event


def test_an_occurrence_expires_with_the_catch_up_window_by_default() -> None:
    """S1-W5."""
    job = hourly(cron="0 0 1 * *")
    late = job.occurrence(datetime(2026, 2, 1, tzinfo=UTC), now=CREATED, sent_directly=False)

    assert dropped(late, job, late.run_at + DAY) is None
    assert dropped(late, job, late.run_at + DAY + SECOND) is Event.EXPIRE


def test_one_that_another_runs_for_is_skipped_rather_than_expired() -> None:
    job = hourly()

    assert dropped(row(job, 1), job, slot(1) + 2 * DAY) is Event.SKIP


def test_a_longer_deadline_does_not_lengthen_the_catch_up_window() -> None:
    job = hourly(cron="0 0 1 * *")
    job = replace(job, spec=replace(job.spec, deadline=10 * DAY))
    late = job.occurrence(datetime(2026, 2, 1, tzinfo=UTC), now=CREATED, sent_directly=False)

    assert dropped(late, job, late.run_at + 2 * DAY) is Event.SKIP


def test_what_was_chosen_at_the_windows_edge_does_not_expire_at_once() -> None:
    job = hourly(FIRE_ALL)
    now = slot(30)
    chosen = chain(job, slot(1), now)[1]

    assert now - chosen.run_at > DAY - HOUR
    assert dropped(chosen, job, now + HOUR) is None
    assert dropped(chosen, job, now + DAY + SECOND) is Event.EXPIRE


@pytest.mark.parametrize("trigger", [Trigger.MANUAL, Trigger.BACKFILL, Trigger.REPLAY])
def test_what_runs_beside_the_schedule_is_not_missed_by_it(trigger: Trigger) -> None:
    job = hourly(MisfirePolicy.SKIP)
    beside = replace(row(job, 1), trigger=trigger)

    assert decide(beside, job, slot(1) + 30 * DAY) == Send()


def test_what_runs_beside_the_schedule_has_the_deadline_that_its_job_names() -> None:
    job = hourly()
    job = replace(job, spec=replace(job.spec, deadline=HOUR))
    beside = replace(row(job, 1), trigger=Trigger.MANUAL)

    assert dropped(beside, job, slot(2) + SECOND) is Event.EXPIRE


@pytest.mark.parametrize("deadline", [timedelta(0), 367 * DAY])
def test_a_deadline_out_of_bounds_is_named(deadline: timedelta) -> None:
    with pytest.raises(Rejected) as refused:
        replace(hourly().spec, deadline=deadline)

    assert refused.value.field == "deadline_seconds"
