from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lamplighter.core.buckets import before, through
from lamplighter.core.lease import Backlog, Kind, Layout, Layouts, Progress

T = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


@given(st.integers(1, 300), st.integers(1, 300))
def test_every_shard_belongs_to_exactly_one_partition(shards: int, partitions: int) -> None:
    assume(partitions <= shards)
    layout = Layout(
        shards=shards, partitions=partitions, effective_from=datetime(2026, 1, 1, tzinfo=UTC)
    )

    owned = [shard for partition in range(partitions) for shard in layout.shards_of(partition)]

    assert owned == [*range(shards)]
    for partition in range(partitions):
        assert {layout.partition_of(shard) for shard in layout.shards_of(partition)} == {partition}


@pytest.mark.parametrize(("shards", "partitions"), [(4, 5), (4, 0), (0, 0)])
def test_a_layout_with_an_empty_partition_cannot_be_made(shards: int, partitions: int) -> None:
    with pytest.raises(ValueError, match=f"{partitions} partitions of {shards} shards"):
        Layout(
            shards=shards, partitions=partitions, effective_from=datetime(2026, 1, 1, tzinfo=UTC)
        )


# Layouts, one after the other.

sizes = st.integers(1, 64).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n)))


@given(st.lists(sizes, min_size=1, max_size=5))
def test_every_bucket_that_may_hold_a_row_belongs_to_exactly_one_partition(
    changes: list[tuple[int, int]],
) -> None:
    """S2-L1, S0-T2: whatever the number of shards was when a row's id was made, and is now."""
    (shards, partitions), *others = changes
    layouts = Layouts(of=(Layout(shards=shards, partitions=partitions, effective_from=T),))
    for n, (more, of_them) in enumerate(others, 1):
        layouts = layouts.changed(
            shards=more, partitions=of_them, effective_from=T + n * 10 * MINUTE
        )

    for made_in in layouts.of:
        for later in (one for one in layouts.of if one.generation >= made_in.generation):
            at = later.effective_from
            assert layouts.at(at) == later
            for shard in range(made_in.shards):
                owners = [
                    work
                    for work in later.works()
                    if work.kind is Kind.DISPATCH and shard in later.shards_of(work.partition)
                ]
                assert owners == [later.work_on(shard, Kind.DISPATCH)]


def test_a_layout_ends_where_the_next_begins() -> None:
    first = Layout(shards=16, partitions=4, effective_from=T)
    layouts = Layouts(of=(first,)).changed(shards=4, partitions=2, effective_from=T + 10 * MINUTE)

    before_it, after_it = layouts.of

    assert before_it.ends_at == after_it.effective_from == T + 10 * MINUTE
    assert layouts.at(T + 10 * MINUTE - timedelta(milliseconds=1)) == before_it
    assert layouts.at(T - MINUTE) == before_it
    assert (after_it.shards, after_it.width, after_it.generation) == (4, 16, 1)
    assert layouts.reached_by(T + 9 * MINUTE) == [before_it]
    assert layouts.of_generation(1) == after_it
    assert layouts.without_first().of_generation(0) is None


def test_a_layout_does_not_begin_before_the_one_before_it() -> None:
    layouts = Layouts(of=(Layout(shards=16, partitions=4, effective_from=T),))

    with pytest.raises(ValueError, match="before"):
        layouts.changed(shards=4, partitions=2, effective_from=T)


# Progress.


def test_what_lies_in_the_backlog_is_not_done_though_the_watermark_is_past_it() -> None:
    backlog = Backlog.between(
        before(T + MINUTE), before(T + 5 * MINUTE), now=T + 10 * MINUTE, settled=before(T)
    )
    progress = Progress(watermark=through(T + 9 * MINUTE), backlog=backlog)

    done = [progress.has(through(T + n * MINUTE)) for n in range(11)]

    assert done == [True, False, False, False, False, True, True, True, True, True, False]
    assert progress.committed == backlog.after
    assert Progress(watermark=backlog.until).committed == backlog.until


def test_the_sweep_stays_behind_what_was_sent_of_a_backlog_a_moment_ago() -> None:
    """P6: what is overdue and was sent just now is not lost."""
    now, places = T + HOUR, [before(T + n * MINUTE) for n in range(5)]
    backlog = Backlog.between(places[0], places[4], now=now, settled=places[0])
    settled = []
    for n, seconds in [(1, 1), (2, 31), (3, 40), (4, 62), (4, 70)]:
        moved = backlog.moved(places[n], sent=1, now=now + timedelta(seconds=seconds))
        assert moved is not None
        backlog = moved
        settled.append(places.index(backlog.settled))

    assert settled == [0, 0, 0, 2, 2]
    assert backlog.is_drained
    assert backlog.sent == 5
    assert backlog.moved(places[4], sent=0, now=now + timedelta(seconds=100)) is None
