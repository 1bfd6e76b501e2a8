"""Samples of a bucket, for what is told at create of a start that will be late."""

from dataclasses import replace
from datetime import datetime

from lamplighter.core.buckets import before, body_of, encode, minute_of, place_of, through, to_ms
from lamplighter.core.model import Execution, Pointer, PointerKind
from tests.contract.worlds import World
from tests.support.rows import LEASE, TOKEN, WORKER, T, one_off, s

MINUTE = minute_of(T)


def lying(world: World, *rows: Execution) -> list[Execution]:
    for row in rows:
        world.jobs.create(first=row)
    return [*rows]


def in_critical(at: datetime) -> Execution:
    row = one_off(run_at=at, n=4)
    assert row.spec is not None
    return replace(row, queue="critical", spec=replace(row.spec, queue="critical"))


def test_the_last_rows_of_a_lane_in_a_shard_come_latest_first(world: World) -> None:
    early, middle, late = lying(
        world,
        one_off(run_at=T, n=1),
        one_off(run_at=T + s(10), n=2),
        one_off(run_at=T + s(20), n=3),
    )
    shard = place_of(early.id).shard
    lying(world, in_critical(T + s(5)))
    lying(world, one_off(run_at=T + s(30), n=5))

    def sampled(limit: int) -> list[str]:
        return [
            *world.executions.sample(
                MINUTE, shard, queue="default", until=before(T + s(21)), limit=limit
            )
        ]

    assert sampled(10) == [body_of(row.id) for row in (late, middle, early)]
    assert sampled(2) == [body_of(row.id) for row in (late, middle)]
    # The limit is of what is read, whichever lane it is in.
    assert sampled(3) == [body_of(row.id) for row in (late, middle)]


def test_what_has_ended_or_runs_and_what_only_points_is_left_out(world: World) -> None:
    (row,) = lying(world, one_off(run_at=T))
    shard = place_of(row.id).shard
    at = T + s(1)
    pointer = Pointer(
        kind=PointerKind.RETRY,
        position=encode(to_ms(at), shard, 77),
        execution_id=row.id,
        queue="default",
        at=at,
        attempt=2,
    )
    world.executions.point([pointer])

    def sampled() -> list[str]:
        until = through(T + s(2))
        return [*world.executions.sample(MINUTE, shard, queue="default", until=until, limit=10)]

    assert sampled() == [body_of(row.id)]
    world.executions.claim(
        row.id, attempt=1, token=TOKEN, worker=WORKER, now=T, lease_until=T + LEASE
    )
    assert sampled() == []
