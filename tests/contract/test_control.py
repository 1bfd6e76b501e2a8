"""`ports.Control`: what holds of every implementation, sentence by sentence."""

from dataclasses import replace
from datetime import datetime

import pytest

from lamplighter.core.buckets import Position, before, through
from lamplighter.core.errors import LostLease
from lamplighter.core.lease import (
    Backlog,
    Grant,
    Held,
    Intent,
    Kind,
    Layout,
    Layouts,
    Progress,
    Void,
    Work,
)
from tests.contract.racing import race
from tests.contract.worlds import World
from tests.support.partition_work import watermarks
from tests.support.rows import LEASE, T, s

WORK = Work(partition=3, kind=Kind.DISPATCH)
START = before(T - s(3600))
LAYOUT = Layout(shards=16, partitions=4, effective_from=T)


def acquire(
    world: World,
    *,
    work: Work = WORK,
    owner: str = "scheduler-1",
    now: datetime = T,
    start: Position = START,
    armed_by: int | None = None,
) -> Grant | Held | Void:
    return world.control.acquire(
        work, owner=owner, now=now, until=now + LEASE, start=start, armed_by=armed_by
    )


def granted(world: World, *, work: Work = WORK, now: datetime = T) -> Grant:
    grant = acquire(world, work=work, now=now)
    assert isinstance(grant, Grant)
    return grant


def page(n: int) -> Intent:
    """The n-th page of a minute each, decided a second after T."""
    return Intent(
        after=before(T + s(60 * n)), until=before(T + s(60 * n + 60)), decided_at=T + s(1)
    )


# The layout.


LAYOUTS = Layouts(of=(LAYOUT,))


def test_the_first_caller_s_layout_is_in_force_for_all(world: World) -> None:
    assert world.control.layouts(LAYOUT) == LAYOUTS

    later = Layout(shards=64, partitions=8, effective_from=T + s(60))
    assert world.control.layouts(later) == LAYOUTS
    assert world.control.layouts(later, anew=True) == LAYOUTS


def test_other_layouts_take_the_place_of_those_that_are_there(world: World) -> None:
    world.control.layouts(LAYOUT)
    after = LAYOUTS.changed(shards=64, partitions=8, effective_from=T + s(600))

    assert world.control.revise_layouts(LAYOUTS, after)
    assert world.control.layouts(LAYOUT, anew=True) == after
    assert world.control.revise_layouts(after, after.without_first())
    assert world.control.layouts(LAYOUT, anew=True) == after.without_first()


def test_other_layouts_do_not_take_the_place_of_what_is_not_there(world: World) -> None:
    world.control.layouts(LAYOUT)
    one = LAYOUTS.changed(shards=64, partitions=8, effective_from=T + s(600))
    other = LAYOUTS.changed(shards=1, partitions=1, effective_from=T + s(600))
    world.control.revise_layouts(LAYOUTS, one)

    assert not world.control.revise_layouts(LAYOUTS, other)
    assert world.control.layouts(LAYOUT, anew=True) == one


def test_of_ten_who_change_the_layouts_exactly_one_does(world: World) -> None:
    world.control.layouts(LAYOUT)

    def change(n: int) -> bool:
        after = LAYOUTS.changed(shards=n + 1, partitions=1, effective_from=T + s(600))
        return world.control.revise_layouts(LAYOUTS, after)

    assert sum(race(change, 10)) == 1


# Leases.


def test_work_that_was_never_done_begins_at_the_start(world: World) -> None:
    grant = granted(world)

    assert (grant.work, grant.watermark, grant.intent) == (WORK, START, None)


def test_a_held_lease_is_refused_and_tells_its_end(world: World) -> None:
    granted(world)

    assert acquire(world, owner="scheduler-2", now=T + s(29.999)) == Held(until=T + LEASE)


def test_an_ended_lease_goes_to_the_next_owner_at_a_higher_epoch(world: World) -> None:
    """S0-T3, S2-L1: reassigned on loss."""
    first = granted(world)

    second = granted(world, now=T + LEASE)
    third = granted(world, now=T + 2 * LEASE)

    assert first.epoch < second.epoch < third.epoch


def test_the_next_owner_finds_the_watermark_and_the_intent(world: World) -> None:
    first = granted(world)
    world.control.advance(first, watermark=page(0).after, intent=page(0), until=T + LEASE)

    second = acquire(world, now=T + LEASE, start=before(T + s(9999)))

    assert isinstance(second, Grant)
    assert (second.watermark, second.intent) == (page(0).after, page(0))


def test_dispatch_and_sweep_of_a_partition_are_two_leases(world: World) -> None:
    granted(world)

    assert isinstance(acquire(world, work=Work(partition=3, kind=Kind.SWEEP)), Grant)
    assert isinstance(acquire(world, work=Work(partition=4, kind=Kind.DISPATCH)), Grant)
    assert isinstance(acquire(world), Held)


def test_of_ten_who_want_a_lease_that_never_was_exactly_one_gets_it(world: World) -> None:
    answers = race(lambda n: acquire(world, owner=f"scheduler-{n}"), 10)

    assert sum(isinstance(answer, Grant) for answer in answers) == 1
    assert all(answer == Held(until=T + LEASE) for answer in answers if isinstance(answer, Held))


def test_of_ten_who_want_an_ended_lease_exactly_one_gets_it(world: World) -> None:
    """S1-L1: DynamoDB's conditional write is the register that all agree on."""
    first = granted(world)

    answers = race(lambda n: acquire(world, owner=f"scheduler-{n}", now=T + LEASE), 10)

    (grant,) = (answer for answer in answers if isinstance(answer, Grant))
    assert grant.epoch > first.epoch


# Advancing.


def test_an_advance_commits_the_watermark_and_declares_the_next_page(world: World) -> None:
    grant = granted(world)

    grant = world.control.advance(grant, watermark=START, intent=page(0), until=T + s(31))
    grant = world.control.advance(grant, watermark=page(0).until, intent=page(1), until=T + s(32))

    assert (grant.watermark, grant.intent) == (page(0).until, page(1))
    assert watermarks(world.control, [WORK]) == {WORK: page(0).until}


def test_an_advance_without_a_next_page_leaves_no_intent(world: World) -> None:
    grant = granted(world)
    grant = world.control.advance(grant, watermark=START, intent=page(0), until=T + LEASE)
    world.control.advance(grant, watermark=page(0).until, intent=None, until=T + LEASE)

    assert granted(world, now=T + LEASE).intent is None


def test_an_advance_renews_the_lease(world: World) -> None:
    grant = granted(world)

    world.control.advance(grant, watermark=START, intent=page(0), until=T + s(50))

    assert acquire(world, owner="scheduler-2", now=T + LEASE) == Held(until=T + s(50))


def test_an_advance_until_now_gives_the_lease_back(world: World) -> None:
    grant = granted(world)

    world.control.advance(grant, watermark=page(0).until, intent=None, until=T + s(3))

    following = granted(world, now=T + s(3))
    assert following.epoch > grant.epoch
    assert following.watermark == page(0).until


def test_a_stale_epoch_advances_nothing(world: World) -> None:
    """S0-T3, S1-L2: each control write is refused below the latest epoch."""
    stale = granted(world)
    fresh = granted(world, now=T + LEASE)
    world.control.advance(fresh, watermark=page(0).until, intent=page(1), until=T + s(60))

    with pytest.raises(LostLease):
        world.control.advance(stale, watermark=page(5).until, intent=None, until=T + s(60))

    assert watermarks(world.control, [WORK]) == {WORK: page(0).until}
    assert acquire(world, owner="scheduler-3", now=T + s(59)) == Held(until=T + s(60))
    assert granted(world, now=T + s(60)).intent == page(1)


def test_a_stale_epoch_is_lost_even_if_it_asks_for_what_is_there(world: World) -> None:
    stale = granted(world)
    fresh = granted(world, now=T + LEASE)

    with pytest.raises(LostLease):
        world.control.advance(
            stale, watermark=fresh.watermark, intent=fresh.intent, until=T + 2 * LEASE
        )


def test_a_lease_that_ran_out_is_still_its_owner_s_until_somebody_takes_it(world: World) -> None:
    grant = granted(world)

    late = world.control.advance(grant, watermark=page(0).until, intent=None, until=T + s(100))

    assert late.watermark == page(0).until
    assert isinstance(acquire(world, now=T + s(99)), Held)


def test_an_advance_of_a_lease_that_never_was_is_lost_and_makes_nothing(world: World) -> None:
    grant = Grant(work=WORK, epoch=1, watermark=START, intent=None)

    with pytest.raises(LostLease):
        world.control.advance(grant, watermark=page(0).until, intent=None, until=T + LEASE)

    assert world.control.progress([WORK]) == {}


def test_a_partition_of_another_layout_is_another_work(world: World) -> None:
    granted(world)

    assert isinstance(acquire(world, work=replace(WORK, generation=1)), Grant)


# Arming the next item.


def armed(world: World, *, now: datetime = T) -> Grant:
    """A grant that armed the next item, and told so."""
    grant = granted(world, now=now)
    return world.control.advance(
        replace(grant, armed=grant.epoch), watermark=grant.watermark, intent=None, until=now
    )


def test_an_item_is_void_once_a_later_grant_has_armed_another(world: World) -> None:
    first = armed(world)
    second = armed(world)

    assert acquire(world, armed_by=first.epoch) == Void()
    assert isinstance(acquire(world, armed_by=second.epoch), Grant)


def test_an_item_is_not_void_for_a_grant_that_only_was_given(world: World) -> None:
    first = armed(world)
    granted(world)

    assert isinstance(acquire(world, armed_by=first.epoch, now=T + LEASE), Grant)


def test_a_void_item_of_held_work_is_void(world: World) -> None:
    first = armed(world)
    second = armed(world)
    granted(world)

    assert acquire(world, armed_by=first.epoch) == Void()
    assert isinstance(acquire(world, armed_by=second.epoch), Held)


def test_who_armed_last_is_found_by_the_next_owner(world: World) -> None:
    first = armed(world)

    assert granted(world).armed == first.epoch


# A backlog.

BACKLOG = Backlog(
    after=before(T - s(7200)),
    until=before(T - s(60)),
    first=before(T - s(9000)),
    since=T,
    mark=before(T - s(7500)),
    marked_at=T + s(50),
    settled=before(T - s(7700)),
    sent=17,
)


def test_a_backlog_is_kept_beside_the_watermark(world: World) -> None:
    grant = granted(world)
    world.control.advance(
        grant, watermark=page(0).until, intent=page(1), backlog=BACKLOG, until=T + LEASE
    )

    found = granted(world, now=T + LEASE)

    assert (found.watermark, found.intent, found.backlog) == (page(0).until, page(1), BACKLOG)
    assert world.control.progress([WORK]) == {
        WORK: Progress(watermark=page(0).until, backlog=BACKLOG)
    }


def test_a_backlog_that_is_over_is_gone(world: World) -> None:
    grant = granted(world)
    grant = world.control.advance(
        grant, watermark=page(0).until, intent=None, backlog=BACKLOG, until=T + LEASE
    )
    world.control.advance(grant, watermark=page(0).until, intent=None, until=T + LEASE)

    assert granted(world, now=T + LEASE).backlog is None


# Watermarks.


def test_watermarks_of_many_works_leave_out_those_never_begun(world: World) -> None:
    works = [Work(partition=n, kind=kind) for n in range(60) for kind in Kind]
    begun = {work: through(T + s(n)) for n, work in enumerate(works[::7])}
    for work, watermark in begun.items():
        acquire(world, work=work, start=watermark)

    assert watermarks(world.control, works) == begun
    assert world.control.progress([]) == {}
