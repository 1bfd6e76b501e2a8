"""What a planned load comes to on a capacity (S2-K1, S4-N3: spikes at the top of the hour)."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from lamplighter.core.forecast import Load, assess

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)


def load(minute: int, planned: int, burst: int | None = None) -> Load:
    return Load(
        minute=NOON + minute * MINUTE, planned=planned, burst=planned if burst is None else burst
    )


def test_what_is_spread_over_its_minute_is_in_time() -> None:
    found = assess([load(0, 6000, burst=100), load(1, 6000, burst=100)], per_second=100)

    assert (found.late, found.worst, found.flexible_window) == ([], SECOND, timedelta(0))


def test_a_spike_is_as_late_as_it_takes_to_start_it_and_a_window_as_wide_helps() -> None:
    found = assess([load(0, 1000)], per_second=100)

    (late,) = found.late
    assert (late.minute, late.planned, late.lateness) == (NOON, 1000, 10 * SECOND)
    assert found.flexible_window == found.worst == 10 * SECOND


def test_what_a_minute_cannot_start_makes_the_next_late() -> None:
    found = assess([load(0, 10_000, burst=200), load(1, 100, burst=2), load(2, 0)], per_second=100)

    assert [late.lateness for late in found.late] == [40 * SECOND, 40 * SECOND + SECOND / 50]
    assert found.flexible_window == 41 * SECOND


def test_minutes_without_load_drain_what_was_left() -> None:
    found = assess([load(0, 10_000, burst=200), load(2, 100, burst=2)], per_second=100)

    assert [late.minute for late in found.late] == [NOON]


def test_for_more_than_the_capacity_all_along_no_window_helps() -> None:
    found = assess([load(minute, 10_000) for minute in range(60)], per_second=100)

    assert found.flexible_window is None
    assert len(found.late) == 60


@given(
    st.lists(st.tuples(st.integers(0, 20_000), st.integers(0, 20_000)), max_size=20),
    st.floats(1, 1000),
)
def test_more_capacity_never_makes_anything_later(
    counts: list[tuple[int, int]], per_second: float
) -> None:
    loads = [load(n, max(pair), burst=min(pair)) for n, pair in enumerate(counts)]

    less, more = assess(loads, per_second=per_second), assess(loads, per_second=per_second * 2)

    assert more.worst <= less.worst
    assert {late.minute for late in more.late} <= {late.minute for late in less.late}
