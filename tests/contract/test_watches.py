"""What holds of watches on every backend: rows in a bucket, of which one place holds one (P7)."""

from dataclasses import replace
from datetime import timedelta

import pytest

from lamplighter.core.buckets import (
    before,
    execution_at,
    minute_of,
    place_of,
    start_of,
    through,
    watch_place,
    watch_position,
)
from lamplighter.core.limits import WATCH_EVERY
from lamplighter.core.model import Job, Rest, Row, Watch
from tests.contract.worlds import World
from tests.support.rows import T, check_pointer, occurrence, recurring

HOUR = timedelta(hours=1)


def a_watch(job: Job, *, rest: Rest | None = None) -> Watch:
    at = watch_place(job.id, T, WATCH_EVERY)
    return Watch(
        position=watch_position(job.id, at),
        job_id=job.id,
        at=at,
        since=T - HOUR,
        rest=rest,
    )


def found(world: World, watch: Watch) -> list[Row]:
    """All that its bucket holds."""
    minute = minute_of(watch.at)
    page = world.executions.due(
        minute,
        range(4),
        after=before(start_of(minute)),
        until=through(watch.at + timedelta(seconds=59)),
        limit=10,
    )
    return [*page.rows]


@pytest.mark.parametrize(
    "rest", [None, Rest(until=T, place="2.1.-.12.3.4.-")], ids=["all told", "a rest"]
)
def test_a_watch_is_found_in_its_bucket_as_it_was_put(world: World, rest: Rest | None) -> None:
    watch = a_watch(recurring(shard=2), rest=rest)

    world.executions.point([watch])

    assert found(world, watch) == [watch]


def test_of_two_in_one_place_the_one_with_more_to_tell_stays(world: World) -> None:
    watch = a_watch(recurring())
    more = replace(watch, since=watch.since - HOUR, rest=Rest(until=T, place="1.1.-.-.-"))

    world.executions.point([watch])
    world.executions.point([more])
    world.executions.point([watch])

    assert found(world, watch) == [more]


def test_one_with_as_much_to_tell_leaves_it_as_it_is(world: World) -> None:
    watch = a_watch(recurring())
    world.executions.point([watch])

    world.executions.point([replace(watch, rest=Rest(until=T, place="1.1.-.-.-"))])

    assert found(world, watch) == [watch]


def test_jobs_have_places_of_their_own(world: World) -> None:
    one, other = a_watch(recurring(n=1)), a_watch(recurring(n=2))

    world.executions.point([one, other])

    assert one.position != other.position
    assert one in found(world, one)
    assert other in found(world, other)


def test_no_id_leads_to_a_watch(world: World) -> None:
    watch = a_watch(recurring())
    world.executions.point([watch])

    id = execution_at(watch.position)

    assert world.executions.get(id) is None
    assert world.executions.get_many([id], strongly=True) == {}


def test_it_lies_beside_executions_and_checks_in_the_order_of_all_rows(world: World) -> None:
    job = recurring()
    watch = a_watch(job)
    row = replace(occurrence(job, watch.at), predecessor=None)
    check = check_pointer(row, watch.at - timedelta(minutes=4))

    world.executions.put([row])
    world.executions.point([watch, check])

    rows = [one for one in found(world, watch) if one != check]
    assert sorted(rows, key=_place) == rows
    assert {type(one) for one in rows} == {type(row), Watch}
    assert place_of(job.id).shard == 0


def _place(row: Row) -> str:
    return row.position if isinstance(row, Watch) else getattr(row, "id", "").removeprefix("ex_")
