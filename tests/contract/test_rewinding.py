"""A work taken back to where it was, after a restore: by its operator alone."""

import pytest

from lamplighter.core.buckets import before
from lamplighter.core.errors import LostLease
from lamplighter.core.lease import Backlog, Grant, Intent, Kind, Progress, Work
from tests.contract.worlds import World
from tests.support.rows import LEASE, T, s

WORK = Work(partition=1, kind=Kind.DISPATCH)
BACKLOG = Backlog.between(before(T), before(T + s(60)), now=T + s(90), settled=before(T))
PAGE = Intent(after=before(T), until=before(T + s(30)), decided_at=T + s(91))


def granted(world: World, at: float = 0) -> Grant:
    now = T + s(at)
    grant = world.control.acquire(
        WORK, owner="a", now=now, until=now + LEASE, start=before(T - s(3600))
    )
    assert isinstance(grant, Grant)
    return grant


def test_its_watermark_goes_back_and_the_lease_is_free(world: World) -> None:
    grant = world.control.advance(
        granted(world), watermark=before(T + s(600)), intent=None, until=T + LEASE
    )

    world.control.rewind(grant, to=Progress(watermark=before(T)), intent=None, until=T)

    again = granted(world)
    assert (again.watermark, again.intent, again.backlog) == (before(T), None, None)
    assert again.epoch == grant.epoch + 1


def test_a_backlog_and_a_page_are_kept_with_it(world: World) -> None:
    to = Progress(watermark=before(T + s(60)), backlog=BACKLOG)

    world.control.rewind(granted(world), to=to, intent=PAGE, until=T)

    again = granted(world)
    assert (again.progress, again.intent) == (to, PAGE)
    assert world.control.progress([WORK]) == {WORK: to}


def test_who_no_longer_holds_it_takes_nothing_back(world: World) -> None:
    """P-rules' fence: a higher epoch wins, whatever the watermark (S1-L2)."""
    stale = granted(world)
    world.control.advance(
        granted(world, at=60), watermark=before(T + s(600)), intent=None, until=T + s(60)
    )

    with pytest.raises(LostLease):
        world.control.rewind(stale, to=Progress(watermark=before(T)), intent=None, until=T)
    assert world.control.progress([WORK])[WORK].watermark == before(T + s(600))


def test_done_twice_it_is_done_once(world: World) -> None:
    grant, to = granted(world), Progress(watermark=before(T))

    world.control.rewind(grant, to=to, intent=None, until=T)
    world.control.rewind(grant, to=to, intent=None, until=T)

    assert world.control.progress([WORK]) == {WORK: to}
