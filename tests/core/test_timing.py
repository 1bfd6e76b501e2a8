from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamplighter.core.limits import LOOK_AHEAD, MARGIN, MAX_CLOCK_ERROR, MAX_HOLD, SQS_MAX_DELAY_S
from lamplighter.core.timing import delay_s, is_inside

NOW = datetime(2026, 7, 12, 2, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("wait_ms", "seconds"),
    [
        (-5000, 0),
        (0, 0),
        (1, 0),
        (849, 0),
        (850, 1),
        (1000, 1),
        (1001, 1),
        (1849, 1),
        (1850, 2),
        (255_000, 255),
        (900_000, 900),
    ],
)
def test_a_delay_is_rounded_up_where_that_costs_150_ms_at_most(wait_ms: int, seconds: int) -> None:
    """S0-X4."""
    assert delay_s(NOW + timedelta(milliseconds=wait_ms), NOW) == seconds


@given(st.integers(0, 900_000))
def test_a_message_appears_at_most_150_ms_late_or_a_hold_early(wait_ms: int) -> None:
    """S0-X4: never more than a second early, which is what its worker may hold it for."""
    wait = timedelta(milliseconds=wait_ms)

    late_by = timedelta(seconds=delay_s(NOW + wait, NOW)) - wait

    assert -MAX_HOLD < late_by <= timedelta(milliseconds=150)


def test_a_delay_that_sqs_cannot_carry_is_a_bug() -> None:
    """O-F14: over 900 s is refused here; what is due already has none."""
    with pytest.raises(ValueError, match="901 s is over SQS's 900 s"):
        delay_s(NOW + timedelta(seconds=901), NOW)


def test_what_is_inside_the_line_and_its_margin_can_be_carried_by_sqs() -> None:
    furthest = LOOK_AHEAD + MARGIN

    assert is_inside(NOW + furthest, NOW)
    assert not is_inside(NOW + furthest + timedelta(milliseconds=1), NOW)
    assert furthest < timedelta(seconds=SQS_MAX_DELAY_S)


def test_the_margin_covers_twice_the_clock_error() -> None:
    """S0-X3."""
    # The model finds a lost row at twice the error less one unit.
    assert 2 * MAX_CLOCK_ERROR <= MARGIN
