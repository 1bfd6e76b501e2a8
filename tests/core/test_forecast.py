"""What a planned load comes to on a capacity (S2-K1, S4-N3: spikes at the top of the hour)."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamplighter.core.forecast import (
    Arrival,
    Assessment,
    Capacity,
    Late,
    Load,
    assess,
    crowded,
    summed,
    together,
    told,
)
from lamplighter.core.limits import FORECAST_PER_SECOND, LATENESS_STEPS, ON_TIME

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


class TestSeveralLanes:
    def test_minutes_are_summed_as_if_their_busiest_seconds_were_the_same(self) -> None:
        found = summed([load(1, 5, 2), load(0, 10), load(1, 7, 3)])

        assert found == [load(0, 10), load(1, 12, 5)]

    def test_what_is_late_in_any_of_them_is_late_by_the_most(self) -> None:
        late = Late(minute=NOON, planned=300, lateness=3 * SECOND)
        later = Late(minute=NOON, planned=500, lateness=5 * SECOND)
        some = Assessment(late=[late], worst=3 * SECOND, flexible_window=3 * SECOND)
        more = Assessment(late=[later], worst=5 * SECOND, flexible_window=5 * SECOND)
        never = Assessment(late=[], worst=9 * SECOND, flexible_window=None)

        assert together([some, more]) == Assessment(
            late=[Late(minute=NOON, planned=800, lateness=5 * SECOND)],
            worst=5 * SECOND,
            flexible_window=5 * SECOND,
        )
        assert together([some, never, more]).flexible_window is None
        assert together([]) == assess([], per_second=1)


class TestBehindACrowd:
    @given(st.integers(0, 5000), st.floats(1, 1000))
    def test_a_burst_makes_what_is_due_with_it_as_late_as_the_forecast_says(
        self, count: int, per_second: float
    ) -> None:
        """The same number warns at create (issue 4, spikes)."""
        found = crowded([Arrival(at=NOON, count=count)], NOON, per_second=per_second)

        assert found == assess([load(0, count)], per_second=per_second).worst

    def test_what_was_due_before_has_been_started_in_part(self) -> None:
        before = Arrival(at=NOON, count=1000)

        found = [
            crowded([before], NOON + seconds * SECOND, per_second=100) for seconds in (0, 4, 10, 20)
        ]

        assert found == [10 * SECOND, 6 * SECOND, 0 * SECOND, 0 * SECOND]

    def test_what_starts_in_between_does_not_help_what_comes_after(self) -> None:
        """An idle lane stores nothing up."""
        arrivals = [Arrival(at=NOON), Arrival(at=NOON + 30 * SECOND, count=500)]

        assert crowded(arrivals, NOON + 30 * SECOND, per_second=100) == 5 * SECOND

    @given(st.lists(st.tuples(st.integers(0, 59), st.integers(1, 500)), max_size=10))
    def test_of_an_incomplete_sample_it_is_never_more(self, bursts: list[tuple[int, int]]) -> None:
        arrivals = [Arrival(at=NOON + second * SECOND, count=n) for second, n in sorted(bursts)]
        at = NOON + 59 * SECOND

        whole = crowded(arrivals, at, per_second=10)

        assert all(crowded(arrivals[n:], at, per_second=10) <= whole for n in range(len(arrivals)))

    @given(st.timedeltas(timedelta(0), timedelta(days=2)))
    def test_an_owner_is_told_of_it_in_steps(self, lateness: timedelta) -> None:
        step = told(lateness)

        if lateness <= ON_TIME:
            assert step is None
        else:
            assert step in LATENESS_STEPS
            assert step >= lateness or step == LATENESS_STEPS[-1]


class TestCapacity:
    def test_is_that_of_a_lane_on_demand_where_nobody_said(self) -> None:
        capacity = Capacity.from_json('{"critical": 2000, "bulk": 0.5}')

        assert [capacity.of(lane) for lane in ("critical", "bulk", "default")] == [
            2000,
            0.5,
            FORECAST_PER_SECOND,
        ]

    @pytest.mark.parametrize(
        ("text", "named"),
        [
            ("[]", "not a JSON object"),
            ('{"bulk": "5"}', "lane bulk: '5'"),
            ('{"bulk": true}', "lane bulk: True"),
            ('{"bulk": 0}', "lane bulk: 0"),
            ('{"bulk": 1000001}', "lane bulk: 1000001"),
            ('{"bulk": NaN}', "lane bulk: nan"),
            ("nothing", "Expecting value"),
        ],
    )
    def test_that_cannot_be_is_refused_with_lane_and_value(self, text: str, named: str) -> None:
        with pytest.raises(ValueError, match=named):
            Capacity.from_json(text)
