"""`ports.Permits`: what holds of every implementation (S0-F5, S0-K1, S0-K2)."""

import threading
import time
from collections.abc import Iterator, Sequence

import pytest

from lamplighter.core.buckets import ExecutionId, execution_id
from lamplighter.core.model import Token
from lamplighter.core.permits import Bound, Key, Kind, Limits, Permit, Use
from lamplighter.ports import Permits
from tests.contract.racing import race
from tests.contract.worlds import World
from tests.support.rows import T, s

LANE = Key(kind=Kind.QUEUE, name="default")
# As names are: anything printable.
OWNER = Key(kind=Kind.OWNER, name="auth0|a.b@example.com/ü#1")
UNTIL = T + s(35)


def permit(n: int, mark: str = "f00dcafe") -> Permit:
    return Permit.of(waiter(n), Token(mark + "0" * 24))


def waiter(n: int) -> ExecutionId:
    return execution_id(T + s(n), 0, n)


def limited(world: World, key: Key, most: int | None) -> Limits:
    before = world.ports.permits.limits(anew=True)
    after = before.without(key) if most is None else before.set(key, most)
    assert world.ports.permits.revise(before, after)
    return after


def take(world: World, n: int, key: Key = LANE, *, most: int = 2) -> bool:
    bound = Bound(key=key, most=most)
    return world.ports.permits.acquire(bound, permit(n), until=UNTIL) is None


def use(world: World, key: Key = LANE) -> Use:
    return world.ports.permits.uses([key])[key]


def holders(world: World, key: Key = LANE) -> set[Permit]:
    return {*use(world, key).holders}


# The limits.


def test_there_are_none_at_first(world: World) -> None:
    assert world.ports.permits.limits() == Limits()


def test_a_limit_that_is_set_is_read_back_and_one_that_is_removed_is_not(world: World) -> None:
    limited(world, LANE, 3)
    limited(world, OWNER, 0)
    assert world.ports.permits.limits(anew=True).of == {LANE: 3, OWNER: 0}

    limited(world, LANE, None)

    assert world.ports.permits.limits(anew=True).of == {OWNER: 0}


def test_of_ten_who_change_the_limits_at_once_each_builds_on_the_one_before(world: World) -> None:
    before = world.ports.permits.limits(anew=True)

    won = race(lambda n: world.ports.permits.revise(before, before.set(LANE, n)), 10)

    assert sum(won) == 1
    assert world.ports.permits.limits(anew=True).of == {LANE: won.index(True)}


# Places.


def test_as_many_get_in_as_may_and_the_next_is_told_who_is_in(world: World) -> None:
    limited(world, OWNER, 2)
    assert take(world, 1, OWNER)
    assert take(world, 2, OWNER)

    found = world.ports.permits.acquire(Bound(key=OWNER, most=2), permit(3), until=UNTIL)

    assert found is not None
    assert found == Use(holders={permit(1): UNTIL, permit(2): UNTIL}, limit=2)
    assert found == use(world, OWNER)


def test_a_place_that_is_given_back_is_anothers(world: World) -> None:
    limited(world, LANE, 1)
    assert take(world, 1)

    after = world.ports.permits.release(LANE, permit(1))

    assert after.holders == {}
    assert take(world, 2)
    assert holders(world) == {permit(2)}


def test_whoever_is_in_stays_in_however_often_it_asks(world: World) -> None:
    """An answer may be lost, and the call made again."""
    limited(world, LANE, 1)
    assert take(world, 1)

    assert (
        world.ports.permits.acquire(Bound(key=LANE, most=1), permit(1), until=UNTIL + s(9)) is None
    )

    assert use(world).holders == {permit(1): UNTIL + s(9)}
    assert not take(world, 2)


def test_a_place_is_a_trys_and_another_try_does_not_give_it_back(world: World) -> None:
    limited(world, LANE, 2)
    assert take(world, 1)

    world.ports.permits.release(LANE, permit(1, mark="0badf00d"))

    assert holders(world) == {permit(1)}


def test_giving_back_what_is_not_there_changes_nothing(world: World) -> None:
    assert world.ports.permits.release(LANE, permit(1)) == Use()
    limited(world, LANE, 1)
    assert take(world, 1)

    assert world.ports.permits.release(LANE, permit(2)).holders == {permit(1): UNTIL}
    world.ports.permits.release(LANE, permit(1))
    assert world.ports.permits.release(LANE, permit(1)).holders == {}


def test_a_limit_that_is_lowered_holds_at_once_whatever_a_host_had_read(world: World) -> None:
    limited(world, LANE, 3)
    assert take(world, 1, most=3)
    assert take(world, 2, most=3)

    limited(world, LANE, 1)

    assert not take(world, 3, most=3)
    world.ports.permits.release(LANE, permit(1))
    assert not take(world, 3, most=3)
    world.ports.permits.release(LANE, permit(2))
    assert take(world, 3, most=3)


def test_a_limit_that_is_raised_holds_at_once_whatever_a_host_had_read(world: World) -> None:
    limited(world, LANE, 1)
    assert take(world, 1, most=1)
    assert not take(world, 2, most=1)

    limited(world, LANE, 2)

    assert take(world, 2, most=1)


def test_under_a_limit_of_none_nobody_gets_in(world: World) -> None:
    limited(world, LANE, 0)

    assert not take(world, 1)
    assert use(world) == Use(limit=0)


def test_a_key_without_a_limit_of_its_own_goes_by_the_one_that_its_bound_names(
    world: World,
) -> None:
    """`owner:*`: each owner has a count of their own, and as many as all may."""
    assert take(world, 1, OWNER, most=2)
    assert take(world, 2, OWNER, most=2)
    assert not take(world, 3, OWNER, most=2)
    limited(world, OWNER, 3)
    assert take(world, 3, OWNER, most=2)

    limited(world, OWNER, None)

    assert use(world, OWNER).limit is None
    assert not take(world, 4, OWNER, most=3)
    assert len(holders(world, OWNER)) == 3


@pytest.mark.parametrize("most", [1, 3, 10])
def test_of_fifty_at_once_never_more_are_in_and_all_get_their_turn(world: World, most: int) -> None:
    limited(world, LANE, most)
    inside, seen, lock = 0, 0, threading.Lock()

    def run(n: int) -> int:
        nonlocal inside, seen
        tries = 0
        while not take(world, n, most=most):
            tries += 1
            time.sleep(0.05)
        with lock:
            inside += 1
            seen = max(seen, inside)
        time.sleep(0.002)
        with lock:
            inside -= 1
        world.ports.permits.release(LANE, permit(n))
        return tries

    # Each look in vain is a request: of fifty at a limit of one, hundreds. Fifty at one of the
    # limits; at the others as many as have some wait.
    waited = race(run, 50 if most == 3 else 20)

    assert seen <= most
    assert any(waited)
    assert use(world).holders == {}


@pytest.mark.parametrize("most", [1, 3, 10])
def test_of_fifty_who_ask_once_exactly_as_many_get_in_as_there_is_room_for(
    world: World, most: int
) -> None:
    limited(world, LANE, most)

    won = race(lambda n: take(world, n, most=most), 50)

    assert sum(won) == most
    assert holders(world) == {permit(n) for n, is_in in enumerate(won) if is_in}


# Those whose time is over.


def test_one_that_is_looked_at_is_asked_again_later_or_gives_its_place_to_others(
    world: World,
) -> None:
    limited(world, LANE, 2)
    assert take(world, 1)
    assert take(world, 2)

    assert world.ports.permits.renew(LANE, use(world), {permit(1): UNTIL + s(30), permit(2): None})

    assert use(world).holders == {permit(1): UNTIL + s(30)}


def test_of_ten_who_look_at_once_one_frees_the_place(world: World) -> None:
    limited(world, LANE, 1)
    assert take(world, 1)
    found = use(world)

    freed = race(lambda _: world.ports.permits.renew(LANE, found, {permit(1): None}), 10)

    assert sum(freed) == 1
    assert holders(world) == set()


def test_one_that_came_back_to_life_meanwhile_keeps_its_place(world: World) -> None:
    """Its beat got through after all, and it made sure of its place since it was looked at."""
    limited(world, LANE, 2)
    assert take(world, 1)
    assert take(world, 2)
    found = use(world)
    world.ports.permits.acquire(Bound(key=LANE, most=2), permit(1), until=UNTIL + s(60))

    assert not world.ports.permits.renew(LANE, found, {permit(1): None, permit(2): None})

    assert holders(world) == {permit(1), permit(2)}


# Those that wait.


def waiting(world: World, *numbers: int) -> Use:
    """Noted in this order."""
    limited(world, LANE, 1)
    assert take(world, 0)
    uses = [world.ports.permits.wait(LANE, waiter(n), kept_until=T + s(3600)) for n in numbers]
    return uses[-1]


def struck(permits: Permits, seen: Use, most: int) -> Iterator[Sequence[ExecutionId]]:
    while ids := permits.next_waiting(LANE, most=most, seen=seen):
        yield ids


def test_who_waits_is_struck_off_the_first_due_first(world: World) -> None:
    seen = waiting(world, 3, 1, 2)
    assert seen.holders == {permit(0): UNTIL}
    assert world.ports.permits.waiting(LANE, most=10) == 3
    assert world.ports.permits.waiting(LANE, most=2) == 2

    assert [*struck(world.ports.permits, seen, 2)] == [[waiter(1), waiter(2)], [waiter(3)]]
    assert world.ports.permits.waiting(LANE, most=10) == 0


def test_who_gives_a_place_back_sees_that_somebody_waits_until_nobody_does(world: World) -> None:
    waiting(world, 1)
    after = world.ports.permits.release(LANE, permit(0))
    assert after.call is not None
    assert [*struck(world.ports.permits, after, 1)] == [[waiter(1)]]

    assert world.ports.permits.release(LANE, permit(0)).call is None


def test_nobody_waits_who_did_not_call(world: World) -> None:
    limited(world, LANE, 1)
    assert take(world, 1)

    assert world.ports.permits.next_waiting(LANE, most=1, seen=use(world)) == []


def test_noted_twice_it_waits_once(world: World) -> None:
    seen = waiting(world, 1, 1)

    assert world.ports.permits.next_waiting(LANE, most=5, seen=seen) == [waiter(1)]


def test_who_calls_while_another_finds_nobody_is_heard(world: World) -> None:
    """Else the one who found the list empty would hush the one who came after it looked."""
    waiting(world, 1)
    seen = use(world)
    assert world.ports.permits.next_waiting(LANE, most=1, seen=seen) == [waiter(1)]
    called = world.ports.permits.wait(LANE, waiter(1), kept_until=T + s(3600))
    assert called.call not in {None, seen.call}
    assert world.ports.permits.next_waiting(LANE, most=1, seen=called) == [waiter(1)]

    # Late, and with what it saw before.
    assert world.ports.permits.next_waiting(LANE, most=1, seen=seen) == []

    assert use(world).call == called.call


def test_of_ten_who_wake_at_once_each_wakes_another(world: World) -> None:
    seen = waiting(world, *range(1, 21))

    found = race(lambda _: world.ports.permits.next_waiting(LANE, most=1, seen=seen), 10)

    ids = [id for some in found for id in some]
    assert len(ids) == len({*ids})
    assert {*ids} <= {waiter(n) for n in range(1, 21)}
    assert len(ids) >= 5
