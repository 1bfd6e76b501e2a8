"""Limits of what runs at once: what an execution comes under, and who has a place."""

from dataclasses import replace
from datetime import timedelta

import pytest

from lamplighter.core.errors import Rejected
from lamplighter.core.lifecycle import State
from lamplighter.core.limits import (
    LANE_MAX_RECEIVES,
    LIMIT_MAX,
    LIMITS_MAX,
    OWNER_MAX_CHARS,
    PERMIT_POLL_MOST,
    PERMIT_POLLED_WITHIN,
    RENEWED_AFTER_RECEIVES,
    TAKE_OVER_GRACE,
)
from lamplighter.core.model import Execution
from lamplighter.core.outcome import terminated, without_permit
from lamplighter.core.permits import (
    EVERY_OWNER,
    Bound,
    Key,
    Kind,
    Limits,
    Permit,
    Use,
    held_until,
    polled_after,
)
from lamplighter.core.sweeping import Leave, Repair, visit
from tests.support.rows import LEASE, OTHER_TOKEN, TOKEN, WORKER, T, one_off, s

LANE = Key(kind=Kind.QUEUE, name="default")
ACME = Key(kind=Kind.OWNER, name="acme")
EVERY = Key(kind=Kind.OWNER, name=EVERY_OWNER)
ECHO = Key(kind=Kind.TASK, name="echo")


def running() -> Execution:
    return replace(
        one_off(),
        state=State.RUNNING,
        token=TOKEN,
        lease_until=T + LEASE,
        worker=WORKER,
        started_at=T,
        first_started_at=T,
    )


def on(**limits: int) -> list[tuple[str, int]]:
    keys = {"lane": LANE, "acme": ACME, "every": EVERY, "echo": ECHO}
    made = Limits(of={keys[name]: most for name, most in limits.items()})
    found = made.on(queue="default", owner="acme", task="echo")
    return [(str(bound.key), bound.most) for bound in found]


def test_what_an_execution_comes_under_the_tightest_first() -> None:
    assert on() == []
    assert on(lane=5, acme=2, echo=9) == [("owner:acme", 2), ("queue:default", 5), ("task:echo", 9)]


def test_an_owner_without_a_limit_of_their_own_has_that_of_every_owner() -> None:
    """Under a key of their own: their places are nobody else's."""
    assert on(every=3) == [("owner:acme", 3)]
    assert on(every=3, acme=7) == [("owner:acme", 7)]
    assert on(every=3, acme=0) == [("owner:acme", 0)]


@pytest.mark.parametrize("most", [-1, LIMIT_MAX + 1])
def test_a_limit_out_of_range_is_refused(most: int) -> None:
    with pytest.raises(Rejected, match=str(LIMIT_MAX)):
        Limits().set(LANE, most)


def test_there_are_only_so_many() -> None:
    full = Limits(of={Key(kind=Kind.TASK, name=f"{n}"): 1 for n in range(LIMITS_MAX)})

    assert full.set(Key(kind=Kind.TASK, name="7"), 2).version == 1
    with pytest.raises(Rejected, match="already"):
        full.set(LANE, 1)


def test_all_limits_with_the_longest_names_fit_into_an_item() -> None:
    """DynamoDB takes 400 KB; a character of a name may be four bytes."""
    assert LIMITS_MAX * (OWNER_MAX_CHARS * 4 + 30) < 400 * 1024


def test_what_changed_between_two_versions() -> None:
    before = Limits().set(LANE, 1).set(ACME, 2)

    assert before.changed(before.set(ACME, 3).set(ECHO, 4).without(LANE)) == {
        LANE: None,
        ACME: 3,
        ECHO: 4,
    }


def test_a_permit_reads_back_from_its_text() -> None:
    permit = Permit.of(one_off().id, TOKEN)

    assert Permit.from_text(permit.text) == permit
    # It is part of a path in an expression.
    assert permit.text.isalnum()


def test_there_is_as_much_room_as_a_limit_of_its_own_leaves_or_else_the_bound_s() -> None:
    holders = {Permit.of(one_off(n=n).id, TOKEN): T for n in range(3)}
    bound = Bound(key=LANE, most=5)

    assert Use(holders=holders).room(bound) == 2
    assert Use(holders=holders, limit=4).room(bound) == 1
    assert Use(holders=holders, limit=1).room(bound) == 0


@pytest.mark.parametrize(
    ("row", "until"),
    [
        (running(), T + LEASE + TAKE_OVER_GRACE),
        (replace(running(), token=OTHER_TOKEN), None),
        (replace(running(), lease_until=T - s(4)), T + s(1)),
        (replace(running(), lease_until=T - s(5)), None),
        (one_off(), None),
        (None, None),
        (terminated(running(), now=T, reason="r"), T + LEASE + TAKE_OVER_GRACE),
    ],
    ids=[
        *("held", "another try's", "in its grace", "past it", "never claimed", "gone"),
        "ended over its holder's head",
    ],
)
def test_a_place_is_held_while_a_handler_may_go_on(row: Execution | None, until: object) -> None:
    """S0-K2: expiring with the lease, and with nothing else."""
    permit = Permit.of(running().id, TOKEN)

    assert held_until(permit, row, T) == until


def test_who_waits_looks_ever_less_often_and_never_as_often_as_a_lane_allows() -> None:
    waits = [polled_after(receives) for receives in range(1, 30)]

    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (s(5), PERMIT_POLL_MOST)
    assert RENEWED_AFTER_RECEIVES < LANE_MAX_RECEIVES
    # The sweep lets two looks be late before it takes a message for lost.
    assert PERMIT_POLLED_WITHIN >= 3 * PERMIT_POLL_MOST


def test_the_sweep_leaves_alone_what_asked_for_a_place_not_long_ago() -> None:
    waiting = without_permit(running(), of="queue:default", until=T + s(5))

    assert isinstance(visit(waiting, T + s(179)), Leave)
    found = visit(waiting, T + s(180))
    assert isinstance(found, Repair)
    assert found.again_at - (T + s(180)) == timedelta(minutes=5)
