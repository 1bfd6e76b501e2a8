from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamplighter.core.errors import Rejected
from lamplighter.core.limits import MAX_ATTEMPTS, MAX_BACKOFF
from lamplighter.core.retry import Failure, GiveUp, Kind, RetryAt, RetryPolicy

NOW = datetime(2026, 7, 12, 2, 0, tzinfo=UTC)


def failure(kind: Kind = Kind.RETRYABLE, retry_after: timedelta | None = None) -> Failure:
    return Failure(kind=kind, type="ValueError", message="no", retry_after=retry_after)


def wait(decision: RetryAt | GiveUp) -> float:
    assert isinstance(decision, RetryAt)
    return (decision.due - NOW).total_seconds()


def test_the_default_waits_one_two_four_eight_seconds() -> None:
    waits = [
        wait(RetryPolicy().decide(attempt=attempt, failure=failure(), now=NOW, jitter=1.0))
        for attempt in (1, 2, 3, 4)
    ]

    assert waits == [1, 2, 4, 8]


@given(
    st.integers(1, MAX_ATTEMPTS - 1),
    st.floats(0, 3600),
    st.floats(1, 100),
    st.floats(0, 86_400),
    st.floats(0.5, 1.5, exclude_max=True),
)
def test_every_wait_is_the_formula_times_its_jitter(
    attempt: int, base: float, factor: float, longest: float, jitter: float
) -> None:
    policy = RetryPolicy(
        max_attempts=MAX_ATTEMPTS, base_seconds=base, factor=factor, max_seconds=longest
    )

    decision = policy.decide(attempt=attempt, failure=failure(), now=NOW, jitter=jitter)

    expected = min(longest, base * factor ** (attempt - 1)) * jitter
    assert wait(decision) == pytest.approx(expected, abs=1e-4)


def test_the_last_attempt_gives_up_for_good() -> None:
    policy = RetryPolicy(max_attempts=3)

    decision = policy.decide(attempt=3, failure=failure(), now=NOW, jitter=1)

    assert decision == GiveUp(exhausted=True, reason="all 3 attempts used")


def test_a_permanent_failure_is_not_tried_again() -> None:
    decision = RetryPolicy().decide(attempt=1, failure=failure(Kind.PERMANENT), now=NOW, jitter=1)

    assert decision == GiveUp(exhausted=False, reason="ValueError is permanent")


@pytest.mark.parametrize(
    ("asked", "waits"),
    [(timedelta(minutes=5), 300), (timedelta(0), 1), (timedelta(days=4000), 86_400), (None, 1)],
    ids=["later than the back-off", "sooner", "a hostile century", "not said"],
)
def test_a_rate_limit_is_respected_within_reason(asked: timedelta | None, waits: float) -> None:
    limited = failure(Kind.RATE_LIMITED, retry_after=asked)

    decision = RetryPolicy().decide(attempt=1, failure=limited, now=NOW, jitter=1)

    assert wait(decision) == waits
    assert timedelta(seconds=waits) <= MAX_BACKOFF


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_attempts", 0),
        ("max_attempts", 101),
        ("base_seconds", -1),
        ("base_seconds", float("nan")),
        ("base_seconds", float("inf")),
        ("factor", 0.5),
        ("factor", float("nan")),
        ("max_seconds", 86_401),
    ],
)
def test_a_policy_out_of_range_is_refused_by_name(field: str, value: float) -> None:
    with pytest.raises(Rejected) as refused:
        RetryPolicy(**{field: value})  # type: ignore[arg-type]

    assert refused.value.field == f"retry_policy.{field}"
    assert refused.value.value is value
