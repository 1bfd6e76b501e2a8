"""What the sweep books for what it could not read, so that it comes by once it is mended."""

from datetime import timedelta

import pytest

from lamplighter.core.buckets import Minute, before, minute_of, start_of, through
from lamplighter.core.errors import Damaged
from lamplighter.core.model import Pointer, PointerKind, Row, Watch
from lamplighter.memory import MemoryWorld, VirtualClock
from lamplighter.ports import Page
from lamplighter.services import damaged
from tests.support.rows import T, check_pointer, one_off, recurring

ROW, JOB = one_off(), recurring()
WATCH = Watch(position=before(T), job_id=JOB.id, at=T, since=T - timedelta(hours=7))


@pytest.fixture
def world() -> MemoryWorld:
    return MemoryWorld(clock=VirtualClock(T), shards=1, partitions=1)


def booked(world: MemoryWorld, *, within: timedelta) -> list[Row]:
    """All that lies in the minutes to come."""
    first = minute_of(T) + 1
    minutes = [Minute(first + n) for n in range(within // timedelta(minutes=1))]
    pages = [
        world.ports().executions.due(
            minute,
            range(1),
            after=before(start_of(minute)),
            until=through(start_of(minute) + timedelta(seconds=59)),
            limit=10,
        )
        for minute in minutes
    ]
    return [row for page in pages for row in page.rows]


def left_out(world: MemoryWorld, kind: str, about: str | None) -> list[Row]:
    one = Damaged(kind=kind, id="it", about=about)
    damaged.keep_in_sight(world.ports(), Page(rows=[], reached=before(T), damaged=[one]))
    return booked(world, within=timedelta(hours=2))


@pytest.mark.parametrize("kind", ["execution", "pointer"])
def test_an_execution_is_looked_at_again_soon(world: MemoryWorld, kind: str) -> None:
    """Of a pointer, the one that it points at."""
    (check,) = left_out(world, kind, ROW.id)

    assert isinstance(check, Pointer)
    assert (check.kind, check.execution_id) == (PointerKind.CHECK, ROW.id)
    assert check.at - T <= timedelta(minutes=10)


def test_a_watch_is_put_anew_and_tells_once_more_rather_than_not_at_all(
    world: MemoryWorld,
) -> None:
    (watch,) = left_out(world, "watch", JOB.id)

    assert isinstance(watch, Watch)
    assert watch.job_id == JOB.id
    assert watch.since <= WATCH.since


def test_what_nobody_can_name_is_not_made_up(world: MemoryWorld) -> None:
    assert left_out(world, "pointer", None) == []


@pytest.mark.parametrize(
    "row", [ROW, check_pointer(ROW, T), WATCH], ids=lambda row: type(row).__name__
)
def test_a_row_whose_visit_failed_is_visited_again(world: MemoryWorld, row: Row) -> None:
    damaged.put_off(world.ports(), row)

    (again,) = booked(world, within=timedelta(hours=2))
    if isinstance(row, Watch):
        assert isinstance(again, Watch)
        assert (again.job_id, again.since, again.rest) == (row.job_id, row.since, row.rest)
    else:
        assert isinstance(again, Pointer)
        assert (again.kind, again.execution_id) == (PointerKind.CHECK, ROW.id)


def test_a_row_that_cannot_be_read_is_none_and_told_of(world: MemoryWorld) -> None:
    world.ports().executions.put([ROW])
    found = damaged.row(world.ports(), ROW.id)
    world.tables.damaged[ROW.id] = Damaged(kind="execution", id=ROW.id)

    assert found == ROW
    assert damaged.row(world.ports(), ROW.id) is None
    assert world.counts.events["row_unreadable"] == 1
