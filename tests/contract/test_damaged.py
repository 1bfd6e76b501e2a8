"""What cannot be read back: told of where it is asked for by name, and in nobody else's way."""

import pytest

from lamplighter.core.buckets import before, through
from lamplighter.core.errors import Damaged
from lamplighter.core.lifecycle import State
from lamplighter.core.model import Execution
from lamplighter.ports import Page
from tests.contract.worlds import World
from tests.support.rows import (
    LEASE,
    MINUTE,
    OTHER_TOKEN,
    OWNER,
    TOKEN,
    WORKER,
    T,
    occurrence,
    one_off,
    recurring,
    s,
)


def three(world: World) -> tuple[Execution, Execution, Execution]:
    """Rows of one minute, in two shards, in order."""
    first, second, third = (one_off(T + s(n), shard=n % 2, n=n) for n in range(3))
    world.executions.put([first, second, third])
    return first, second, third


def due(world: World, *, limit: int = 100) -> Page:
    return world.executions.due(
        MINUTE, range(2), after=before(T), until=through(T + s(59)), limit=limit
    )


def test_a_page_has_all_others_and_says_what_it_left_out(world: World) -> None:
    first, second, third = three(world)
    world.damage(second.id)

    page = due(world)

    assert [row.id for row in page.rows if isinstance(row, Execution)] == [first.id, third.id]
    assert [(one.kind, one.id) for one in page.damaged] == [("execution", second.id)]
    assert page.reached == through(T + s(59))


def test_a_page_of_nothing_else_still_gets_further(world: World) -> None:
    rows = three(world)
    for row in rows:
        world.damage(row.id)
    after, told, pages = before(T), 0, 0

    while after < through(T + s(59)):
        page = world.executions.due(
            MINUTE, range(2), after=after, until=through(T + s(59)), limit=2
        )
        assert page.reached > after
        assert not page.rows
        after, told, pages = page.reached, told + len(page.damaged), pages + 1

    # At the very end of a shard, one that asks for more finds nothing.
    assert told == 3
    assert pages <= 4


def test_a_row_that_is_asked_for_by_name_is_told_to_be_damaged_until_it_is_mended(
    world: World,
) -> None:
    row, _, _ = three(world)
    mend = world.damage(row.id)

    with pytest.raises(Damaged) as damaged:
        world.executions.get(row.id)
    mend()

    assert (damaged.value.kind, damaged.value.id) == ("execution", row.id)
    assert (damaged.value.attribute, damaged.value.owner) == ("st", OWNER)
    assert str(damaged.value).startswith(f"execution {row.id} cannot be read back")
    assert world.executions.get(row.id) == row


@pytest.mark.parametrize("strongly", [False, True])
def test_a_list_has_all_others(world: World, strongly: bool) -> None:
    first, second, third = three(world)
    world.damage(second.id)

    found = world.executions.get_many([first.id, second.id, third.id], strongly=strongly)

    assert {*found} == {first.id, third.id}


def test_planning_it_again_leaves_it_as_it_is_and_answers_what_was_planned(world: World) -> None:
    row = occurrence(recurring())
    world.executions.put([row])
    claimed = world.executions.claim(
        row.id, attempt=1, token=TOKEN, worker=WORKER, now=T, lease_until=T + LEASE
    )
    mend = world.damage(row.id)

    made = world.executions.put([row])
    mend()

    assert [(one.id, one.state) for one in made] == [(row.id, State.SCHEDULED)]
    assert world.executions.get(row.id) == claimed


def test_nobody_claims_it_and_nothing_of_it_is_lost(world: World) -> None:
    row, _, _ = three(world)
    mend = world.damage(row.id)

    for token in (TOKEN, OTHER_TOKEN):
        with pytest.raises(Damaged):
            world.executions.claim(
                row.id, attempt=1, token=token, worker=WORKER, now=T, lease_until=T + LEASE
            )
    mend()

    assert isinstance(
        world.executions.claim(
            row.id, attempt=1, token=TOKEN, worker=WORKER, now=T, lease_until=T + LEASE
        ),
        Execution,
    )


def test_a_definition_is_told_to_be_damaged_and_among_others_counts_as_unreadable(
    world: World,
) -> None:
    broken, whole = recurring(n=1), recurring(n=2)
    for job in (broken, whole):
        world.jobs.create(first=occurrence(job), job=job)
    mend = world.damage(broken.id)

    with pytest.raises(Damaged) as damaged:
        world.jobs.get(broken.id)
    found = world.jobs.get_many([broken.id, whole.id])
    listed = world.jobs.of_owner(OWNER, before=None, limit=10)
    mend()

    assert found[whole.id] == whole
    assert found[broken.id].unreadable == str(damaged.value)
    assert listed == [whole]
    assert world.jobs.get(broken.id) == broken


def test_a_definition_that_is_damaged_is_not_written_over(world: World) -> None:
    job = recurring()
    world.jobs.create(first=occurrence(job), job=job)
    mend = world.damage(job.id)

    world.jobs.create(first=occurrence(job), job=job)
    mend()

    assert world.jobs.get(job.id) == job
