"""`Executions.amend` and `Executions.move` on every backend: a one-off that changes (P20)."""

from dataclasses import replace

import pytest

from lamplighter.core.buckets import before as position_before
from lamplighter.core.buckets import body_of, execution_of, minute_of
from lamplighter.core.lifecycle import State
from lamplighter.core.model import Execution, Payload
from lamplighter.core.outcome import moved
from lamplighter.ports import Refusal
from tests.contract.racing import race
from tests.contract.worlds import World
from tests.support.rows import (
    LEASE,
    OWNER,
    STAYS,
    TOKEN,
    WORKER,
    Change,
    T,
    cancelled,
    id_at,
    one_off,
    s,
)

LARGE = '"' + "x" * 600 + '"'


def put(world: World, row: Execution) -> Execution:
    world.executions.put([row])
    return row


def amended(row: Execution, payload: str = "1") -> Execution:
    """The row's next version, which has another task and another payload."""
    assert row.spec is not None
    spec = replace(row.spec, task="other", payload=Payload.of(payload))
    return replace(row, job_version=row.job_version + 1, task="other", spec=spec)


def elsewhere(row: Execution, *, n: int = 2) -> Execution:
    """The row's next version, an hour later."""
    run_at = T + s(3600)
    id, version = id_at(run_at, n=n), row.job_version + 1
    return replace(row, id=id, run_at=run_at, scheduled_for=run_at, job_version=version)


def claim(world: World, row: Execution) -> Execution | Refusal:
    return world.executions.claim(
        row.id, attempt=1, token=TOKEN, worker=WORKER, now=row.run_at, lease_until=T + LEASE
    )


# In its place.


def test_a_row_that_waits_is_what_it_was_amended_to(world: World) -> None:
    row = put(world, one_off())
    after = amended(row)

    assert world.executions.amend(row, after) == after

    assert world.executions.get(row.id) == after
    won = claim(world, after)
    assert isinstance(won, Execution)
    assert won.spec == after.spec


def test_a_row_is_amended_over_any_number_of_versions(world: World) -> None:
    row = put(world, one_off())
    for n in range(3):
        after = amended(row, str(n))
        assert world.executions.amend(row, after) == after
        row = after

    assert world.executions.get(row.id) == row
    assert row.job_version == 4


def test_what_goes_back_to_its_default_is_as_if_it_had_never_been(world: World) -> None:
    row = put(world, replace(one_off(), scheduled_for=T - s(1), traceparent="00-a-b-01"))
    after = replace(row, job_version=2, scheduled_for=T, traceparent=None)

    assert world.executions.amend(row, after) == after

    assert world.executions.get(row.id) == after


def test_an_amendment_that_is_done_again_counts_as_done(world: World) -> None:
    row = put(world, one_off())
    after = amended(row)
    world.executions.amend(row, after)

    assert world.executions.amend(row, after) == after


def test_a_large_payload_is_not_in_the_amended_row(world: World) -> None:
    row = put(world, one_off())
    after = amended(row, LARGE)

    answer = world.executions.amend(row, after)

    assert isinstance(answer, Execution)
    assert answer.spec is not None
    assert answer.spec.payload == Payload(text=None, bytes=len(LARGE))
    assert world.executions.get(row.id) == answer


def test_landings_in_a_dead_letter_queue_outlive_an_amendment(world: World) -> None:
    row = put(world, one_off())
    world.executions.count_undeliverable(row.id)

    answer = world.executions.amend(row, amended(row))

    assert isinstance(answer, Execution)
    assert answer.undeliverable == 1


def test_a_row_of_another_version_is_not_amended(world: World) -> None:
    row = put(world, one_off())
    second = amended(row)
    world.executions.amend(row, second)

    answer = world.executions.amend(row, amended(row, "3"))

    assert answer == Refusal(found=second)
    assert world.executions.get(row.id) == second


COME_OF = {**STAYS, "CANCELLED": cancelled}


@pytest.mark.parametrize("come_of", [*COME_OF.values()], ids=[*COME_OF])
def test_a_row_of_which_something_has_come_is_neither_amended_nor_moved(
    world: World, come_of: Change
) -> None:
    row = one_off()
    there = put(world, come_of(row))
    there = world.executions.get(row.id) or there

    assert world.executions.amend(row, amended(row)) == Refusal(found=there)
    assert world.executions.move(row, elsewhere(row), now=T) == Refusal(found=there)

    assert world.executions.get(row.id) == there
    assert world.executions.get(elsewhere(row).id) is None


def test_what_does_not_exist_is_neither_amended_nor_moved_and_not_made(world: World) -> None:
    row = one_off()

    assert world.executions.amend(row, amended(row)) == Refusal(found=None)
    assert world.executions.move(row, elsewhere(row), now=T) == Refusal(found=None)

    assert world.executions.get(row.id) is None
    assert world.executions.get(elsewhere(row).id) is None


def test_of_ten_who_amend_at_once_exactly_one_does(world: World) -> None:
    row = put(world, one_off())

    answers = race(lambda n: world.executions.amend(row, amended(row, str(n))), 10)

    (won,) = [answer for answer in answers if isinstance(answer, Execution)]
    assert world.executions.get(row.id) == won


# Elsewhere.


def test_a_moved_row_ends_and_points_at_the_one_that_takes_its_place(world: World) -> None:
    row = put(world, one_off())
    after = elsewhere(row)

    assert world.executions.move(row, after, now=T) == after

    assert world.executions.get(after.id) == after
    assert world.executions.get(row.id) == moved(row, to=after.id, now=T)
    assert isinstance(claim(world, row), Refusal)
    assert isinstance(claim(world, after), Execution)


def test_the_place_that_a_job_s_id_leads_to_points_at_the_latest(world: World) -> None:
    first = put(world, one_off())
    second = elsewhere(first)
    third = elsewhere(second, n=3)
    fourth = elsewhere(third, n=4)

    for before, after in ((first, second), (second, third), (third, fourth)):
        assert world.executions.move(before, after, now=T) == after

    rows = [world.executions.get(row.id) for row in (first, second, third)]
    assert [row and row.moved_to for row in rows] == [fourth.id, third.id, fourth.id]
    assert world.executions.get(fourth.id) == fourth


def test_the_place_that_a_job_s_id_leads_to_outlives_the_job(world: World) -> None:
    """What a row says of its end is not seen from outside: the items' tests look at it."""
    row = put(world, one_off())
    world.executions.move(row, elsewhere(row), now=T)

    found = world.executions.get(execution_of(row.job_id) or row.id)

    assert found is not None
    assert (found.owner, found.state) == (OWNER, State.CANCELLED)


def test_a_move_that_is_done_again_counts_as_done(world: World) -> None:
    first = put(world, one_off())
    second = elsewhere(first)
    third = elsewhere(second, n=3)
    for before, after in ((first, second), (second, third)):
        world.executions.move(before, after, now=T)

        assert world.executions.move(before, after, now=T) == after

    assert world.executions.get(third.id) == third


def test_a_row_is_moved_after_it_was_amended_and_amended_after_it_was_moved(world: World) -> None:
    row = put(world, one_off())
    second = amended(row)
    third = elsewhere(second)
    fourth = amended(third, "4")

    world.executions.amend(row, second)
    world.executions.move(second, third, now=T)
    world.executions.amend(third, fourth)

    assert world.executions.get(third.id) == fourth


def test_what_was_moved_is_in_its_owner_s_list_once_and_lies_in_its_bucket(world: World) -> None:
    row = put(world, one_off())
    after = elsewhere(row)

    world.executions.move(row, after, now=T)

    assert [*world.executions.of_owner(OWNER, before=None, limit=10)] == [after.id]
    page = world.executions.due(
        minute_of(T), [0], after=position_before(T), until=body_of(row.id), limit=10
    )
    assert [one for one in page.rows if isinstance(one, Execution)] == [
        moved(row, to=after.id, now=T)
    ]


def test_of_ten_who_move_at_once_exactly_one_does(world: World) -> None:
    row = put(world, one_off())
    wanted = [elsewhere(row, n=10 + n) for n in range(10)]

    answers = race(lambda n: world.executions.move(row, wanted[n], now=T), 10)

    (won,) = [answer for answer in answers if isinstance(answer, Execution)]
    there = [one.id for one in wanted if world.executions.get(one.id) is not None]
    found = world.executions.get(row.id)
    assert there == [won.id]
    assert found is not None
    assert found.moved_to == won.id


def test_of_a_claim_a_move_and_an_amendment_at_once_exactly_one_happens(world: World) -> None:
    row = put(world, one_off())
    calls = [
        lambda: claim(world, row),
        lambda: world.executions.move(row, elsewhere(row), now=T),
        lambda: world.executions.amend(row, amended(row)),
    ]

    race(lambda n: calls[n % 3](), 9)

    found = world.executions.get(row.id)
    assert found is not None
    is_there = world.executions.get(elsewhere(row).id) is not None
    match found.state:
        case State.RUNNING:
            # It may have been amended first; then it was claimed as what it was amended to.
            assert not is_there
        case State.CANCELLED:
            assert (found.moved_to, is_there) == (elsewhere(row).id, True)
            assert found.job_version == 1
        case _:
            raise AssertionError(f"nobody got it: {found}")
