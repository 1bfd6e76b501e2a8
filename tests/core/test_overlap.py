"""What an execution does that meets another of its job: every policy, every state (P12–P15)."""

from dataclasses import replace
from datetime import timedelta

import pytest

from lamplighter.core.catch_up import CaughtUp
from lamplighter.core.lifecycle import FINAL, Event, State
from lamplighter.core.limits import TAKE_OVER_GRACE
from lamplighter.core.model import Attempt, Execution, MisfirePolicy, OverlapPolicy, Trigger
from lamplighter.core.outcome import Succeeded, blocked, ended, finished, taken_over, terminated
from lamplighter.core.overlap import (
    GiveWay,
    Start,
    TakeItsPlace,
    Turn,
    Wait,
    before,
    let_go_at,
    policy_of,
    turn,
)
from lamplighter.core.retry import RetryPolicy
from tests.support.rows import LEASE, T, one_off, recurring, running

BEFORE = one_off(n=1)
OTHER = one_off(n=2)
ROW = replace(one_off(T + timedelta(minutes=1), n=3), predecessor=BEFORE.id)
NOT_FINAL = sorted(set(State) - FINAL)


def in_state(state: State) -> Execution:
    """An execution that has not ended, in this state."""
    match state:
        case State.RUNNING:
            return running(BEFORE)
        case State.RETRYING:
            return replace(BEFORE, state=state, next_run_at=T)
        case _:
            return replace(BEFORE, state=state)


@pytest.mark.parametrize("policy", OverlapPolicy)
def test_it_starts_where_nothing_is_in_its_way(policy: OverlapPolicy) -> None:
    assert turn(policy, None) == Start()


@pytest.mark.parametrize("state", NOT_FINAL)
@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (OverlapPolicy.ALLOW, Start()),
        (OverlapPolicy.BUFFER_ALL, Wait()),
        (OverlapPolicy.CANCEL_OTHER, TakeItsPlace(forced=False)),
        (OverlapPolicy.TERMINATE_OTHER, TakeItsPlace(forced=True)),
    ],
)
def test_whatever_has_not_ended_is_in_its_way(
    policy: OverlapPolicy, state: State, expected: Turn
) -> None:
    assert turn(policy, in_state(state)) == expected


@pytest.mark.parametrize("state", NOT_FINAL)
def test_skip_gives_way_and_says_to_what(state: State) -> None:
    assert turn(OverlapPolicy.SKIP, in_state(state)) == GiveWay(
        reason=f"overlap: {BEFORE.id} is {state}"
    )


@pytest.mark.parametrize("state", NOT_FINAL)
def test_of_buffer_one_only_one_waits(state: State) -> None:  # P15
    expected = (
        GiveWay(reason=f"overlap: {BEFORE.id} is BLOCKED")
        if state is State.BLOCKED
        else Wait(alone=True)
    )

    assert turn(OverlapPolicy.BUFFER_ONE, in_state(state)) == expected


@pytest.mark.parametrize("policy", OverlapPolicy)
def test_slots_that_are_run_many_at_once_wait_for_each_other_unless_overlap_is_allowed(
    policy: OverlapPolicy,
) -> None:
    expected = policy if policy is OverlapPolicy.ALLOW else OverlapPolicy.BUFFER_ALL
    once = replace(recurring(), overlap=policy)
    all_of_them = replace(once, misfire=MisfirePolicy.FIRE_ALL)
    late = replace(ROW, caught_up=CaughtUp(decided_at=T))

    assert policy_of(replace(ROW, trigger=Trigger.BACKFILL), once) is expected
    assert policy_of(late, all_of_them) is expected
    assert policy_of(late, once) is policy
    assert policy_of(ROW, all_of_them) is policy
    assert policy_of(replace(ROW, trigger=Trigger.MANUAL), once) is policy


def test_past_one_that_ran_nobody_is_looked_at() -> None:
    done = finished(running(ROW), Succeeded(result="1"), policy=RetryPolicy(), now=T, jitter=1.0)

    assert before(done) is None


@pytest.mark.parametrize("event", [Event.CANCEL, Event.SKIP, Event.EXPIRE, Event.DEAD_LETTER])
def test_past_one_that_never_ran_the_one_before_it_is_looked_at(event: Event) -> None:  # P12
    assert before(ended(ROW, event, now=T, reason="never ran")) == BEFORE.id


def test_past_one_that_was_skipped_its_blocker_is_looked_at() -> None:  # P12
    skipped = ended(ROW, Event.SKIP, now=T, reason="overlap", blocker=OTHER.id)

    assert before(skipped) == OTHER.id


def test_past_one_that_was_cancelled_while_it_waited_its_blocker_is_looked_at() -> None:
    waiting = blocked(running(ROW), by=OTHER.id)

    assert before(ended(waiting, Event.CANCEL, now=T, reason="no more")) == OTHER.id


def test_a_try_that_was_lost_proves_no_look() -> None:
    lost = ended(taken_over(running(ROW)), Event.CANCEL, now=T, reason="its job was paused")

    assert before(lost) == BEFORE.id


def test_one_that_was_terminated_proves_no_look() -> None:
    over = terminated(running(ROW), now=T, reason="overlap")

    assert (over.state, over.token, before(over)) == (State.CANCELLED, None, BEFORE.id)
    assert over.attempts[-1].state is State.CANCELLED


def test_one_that_was_terminated_lets_go_when_its_lease_and_the_grace_are_over() -> None:  # P9
    over = terminated(running(ROW), now=T, reason="overlap")

    assert let_go_at(over) == T + LEASE + TAKE_OVER_GRACE
    assert let_go_at(ended(ROW, Event.CANCEL, now=T, reason="no more")) is None
    assert let_go_at(ended(taken_over(running(ROW)), Event.CANCEL, now=T, reason="")) is None


def test_what_was_waited_for_is_forgotten_by_a_try_that_ends() -> None:
    woken = replace(running(ROW), blocker=OTHER.id)
    done = finished(woken, Succeeded(result="1"), policy=RetryPolicy(), now=T, jitter=1.0)

    assert done.blocker is None


def test_a_try_of_long_ago_proves_a_look() -> None:
    retried = Attempt(number=1, started_at=T, finished_at=T, worker="w", state=State.RETRYING)
    lost = ended(replace(ROW, attempts=(retried,)), Event.CANCEL, now=T, reason="no more")

    assert before(lost) is None
