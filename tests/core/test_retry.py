from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamplighter.core.errors import Rejected
from lamplighter.core.limits import MAX_ATTEMPTS, MAX_BACKOFF
from lamplighter.core.retry import Failure, GiveUp, Kind, RetryAt, RetryPolicy

NOW = datetime(2026, 7, 12, 2, 0, tzinfo=UTC)


RESET = ("ConnectionResetError", "ConnectionError", "OSError", "Exception", "BaseException")

draws = st.floats(0.5, 1.5, exclude_max=True)
policies = st.builds(
    RetryPolicy,
    base_seconds=st.floats(0, 86_400),
    factor=st.floats(1, 100) | st.integers(1, 100),
    max_seconds=st.floats(0, 86_400),
    jitter=st.floats(0, 1),
)


def failure(kind: Kind = Kind.RETRYABLE, retry_after: timedelta | None = None) -> Failure:
    return Failure(kind=kind, type="ValueError", message="no", retry_after=retry_after)


def wait(decision: RetryAt | GiveUp) -> float:
    assert isinstance(decision, RetryAt)
    return (decision.due - NOW).total_seconds()


def test_the_default_waits_one_two_four_eight_seconds() -> None:
    """S4-R2, S2-E2."""
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
    draws,
)
def test_every_wait_is_the_formula_times_its_jitter(
    attempt: int, base: float, factor: float, longest: float, jitter: float
) -> None:
    """S0-R2, S4-R2."""
    policy = RetryPolicy(
        max_attempts=MAX_ATTEMPTS, base_seconds=base, factor=factor, max_seconds=longest
    )

    decision = policy.decide(attempt=attempt, failure=failure(), now=NOW, jitter=jitter)

    expected = min(longest, base * factor ** (attempt - 1)) * jitter
    assert wait(decision) == pytest.approx(expected, abs=1e-4)


@given(
    policies,
    st.integers(0, 10**6) | st.sampled_from([1, 10, 64, 100, 1023, 1024, 10**6]),
    draws,
)
def test_no_wait_overflows_or_leaves_its_bounds(policy: RetryPolicy, n: int, jitter: float) -> None:
    """O-H05."""
    longest = policy.max_seconds * (1 + policy.jitter)

    assert 0 <= policy.wait(n, jitter).total_seconds() <= longest + 1e-6


@pytest.mark.parametrize("n", [1023, 1024, 10**6])
def test_a_wait_grows_until_its_cap_and_stays_there(n: int) -> None:
    """O-H05: 0.1 · 2.0 ** 1024 is more than a float holds."""
    policy = RetryPolicy(base_seconds=0.1, max_seconds=3600)

    waits = [policy.wait(step, 1.0).total_seconds() for step in (0, 1, 10, 64, n)]

    assert waits == pytest.approx([0.1, 0.2, 102.4, 3600, 3600])
    assert RetryPolicy(base_seconds=0).wait(n, 1.0) == timedelta(0)


@pytest.mark.parametrize(
    ("jitter", "shortest", "longest"), [(0, 60, 60), (0.1, 54, 66), (0.5, 30, 90), (1, 0, 120)]
)
def test_the_jitter_of_a_policy_spreads_its_waits_around_the_formula(
    jitter: float, shortest: float, longest: float
) -> None:
    policy = RetryPolicy(base_seconds=60, jitter=jitter)

    waits = [policy.wait(0, drawn).total_seconds() for drawn in (0.5, 1.0, 1.5)]

    assert waits == pytest.approx([shortest, 60, longest])


def test_the_last_attempt_gives_up_for_good() -> None:
    """S2-E2."""
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
    """S0-R4, O-H04."""
    limited = failure(Kind.RATE_LIMITED, retry_after=asked)

    decision = RetryPolicy().decide(attempt=1, failure=limited, now=NOW, jitter=1)

    assert wait(decision) == waits
    assert timedelta(seconds=waits) <= MAX_BACKOFF


def test_a_rate_limit_that_is_not_honored_has_the_plain_back_off() -> None:
    limited = failure(Kind.RATE_LIMITED, retry_after=timedelta(minutes=5))

    decision = RetryPolicy(honor_retry_after=False).decide(
        attempt=2, failure=limited, now=NOW, jitter=1
    )

    assert decision == RetryAt(
        due=NOW + timedelta(seconds=2),
        reason="attempt 2 failed: rate limited, which is not waited for",
    )


def test_what_a_worker_needs_after_a_hung_handler_is_waited_for_all_the_same() -> None:
    hung = failure(Kind.TIMEOUT, retry_after=timedelta(seconds=10))

    decision = RetryPolicy(honor_retry_after=False).decide(
        attempt=1, failure=hung, now=NOW, jitter=1
    )

    assert wait(decision) == 10


@pytest.mark.parametrize(
    ("retry_on", "no_retry_on", "refusal"),
    [
        ((), (), None),
        (("ConnectionResetError",), (), None),
        (("KeyError", "OSError"), (), None),
        (("KeyError",), (), "retry_on does not have ConnectionResetError"),
        ((), ("ConnectionResetError",), "no_retry_on has ConnectionResetError"),
        ((), ("OSError",), "no_retry_on has OSError, a base of ConnectionResetError"),
        ((), ("KeyError",), None),
        (("ConnectionError",), ("OSError",), None),
        (
            ("OSError",),
            ("ConnectionError",),
            "no_retry_on has ConnectionError, a base of ConnectionResetError",
        ),
        (("KeyError",), ("LookupError",), "retry_on does not have ConnectionResetError"),
    ],
    ids=[
        *("no lists", "itself", "a base", "others only", "not itself", "not a base", "not others"),
        *("a nearer base that is tried again", "a nearer base that is not", "in neither"),
    ],
)
@pytest.mark.parametrize("attempt", [1, 5])
def test_of_an_errors_classes_the_nearest_that_is_listed_decides(
    attempt: int, retry_on: tuple[str, ...], no_retry_on: tuple[str, ...], refusal: str | None
) -> None:
    policy = RetryPolicy(retry_on=retry_on, no_retry_on=no_retry_on)
    reset = Failure(kind=Kind.RETRYABLE, type=RESET[0], message="")

    decision = policy.decide(attempt=attempt, failure=reset, now=NOW, jitter=1, names=RESET)

    if refusal is not None:
        assert decision == GiveUp(exhausted=False, reason=refusal)
    elif attempt == 5:
        assert decision == GiveUp(exhausted=True, reason="all 5 attempts used")
    else:
        assert wait(decision) == 1


@pytest.mark.parametrize("kind", [Kind.RETRYABLE, Kind.RATE_LIMITED, Kind.TIMEOUT])
def test_what_a_task_says_of_its_failure_does_not_outdo_the_lists(kind: Kind) -> None:
    policy = RetryPolicy(retry_on=("ConnectionError",))

    decision = policy.decide(
        attempt=1, failure=failure(kind), now=NOW, jitter=1, names=("ValueError",)
    )

    assert decision == GiveUp(exhausted=False, reason="retry_on does not have ValueError")


def test_a_permanent_failure_is_permanent_whatever_the_lists_have() -> None:
    policy = RetryPolicy(retry_on=("ValueError",))

    decision = policy.decide(
        attempt=1, failure=failure(Kind.PERMANENT), now=NOW, jitter=1, names=("ValueError",)
    )

    assert decision == GiveUp(exhausted=False, reason="ValueError is permanent")


def test_what_is_not_the_tasks_own_failure_is_in_no_list() -> None:
    policy = RetryPolicy(retry_on=("ConnectionError",), no_retry_on=("ValueError",))

    assert wait(policy.decide(attempt=1, failure=failure(), now=NOW, jitter=1)) == 1


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
        ("jitter", -0.1),
        ("jitter", 1.01),
        ("jitter", float("nan")),
    ],
)
def test_a_policy_out_of_range_is_refused_by_name(field: str, value: float) -> None:
    with pytest.raises(Rejected) as refused:
        RetryPolicy(**{field: value})  # type: ignore[arg-type]

    assert refused.value.field == f"retry_policy.{field}"
    assert refused.value.value is value


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({"max_attempts": 2.5}, "max_attempts"),
        ({"max_attempts": 3.0}, "max_attempts"),
        ({"max_attempts": True}, "max_attempts"),
        ({"max_attempts": "3"}, "max_attempts"),
        ({"max_attempts": None}, "max_attempts"),
        ({"base_seconds": "1"}, "base_seconds"),
        ({"jitter": True}, "jitter"),
        ({"factor": None}, "factor"),
        ({"honor_retry_after": "no"}, "honor_retry_after"),
        ({"honor_retry_after": 0}, "honor_retry_after"),
        ({"retry_on": "Busy"}, "retry_on"),
        ({"retry_on": None}, "retry_on"),
        ({"retry_on": ["Busy"]}, "retry_on"),
        ({"no_retry_on": {"Busy"}}, "no_retry_on"),
        ({"retry_on": (ValueError,)}, "retry_on.0"),
        ({"no_retry_on": ("Busy", None)}, "no_retry_on.1"),
    ],
    ids=str,
)
def test_a_policy_of_another_type_is_refused_by_name(said: dict[str, object], field: str) -> None:
    with pytest.raises(Rejected) as refused:
        RetryPolicy(**said)  # type: ignore[arg-type]

    assert refused.value.field == f"retry_policy.{field}"


MANY = tuple(f"E{n}" for n in range(21))


@pytest.mark.parametrize(
    ("lists", "field", "value", "reason"),
    [
        ({"retry_on": MANY}, "retry_on", "21 names", "more than 20"),
        ({"retry_on": ("A", "B", "C", "")}, "retry_on.3", "", "not the name"),
        ({"no_retry_on": ("socket.timeout",)}, "no_retry_on.0", "socket.timeout", "its module"),
        ({"no_retry_on": ("A" * 129,)}, "no_retry_on.0", "A" * 129, "longer than 128"),
        ({"retry_on": ("A", "B", "A")}, "retry_on.2", "A", "twice"),
        ({"retry_on": ("A",), "no_retry_on": ("B", "A")}, "no_retry_on.1", "A", "in retry_on too"),
    ],
    ids=["too many", "no name", "a module's", "too long", "twice", "in both"],
)
def test_a_name_that_cannot_be_meant_is_refused_by_its_place(
    lists: dict[str, tuple[str, ...]], field: str, value: str, reason: str
) -> None:
    with pytest.raises(Rejected, match=reason) as refused:
        RetryPolicy(**lists)  # type: ignore[arg-type]

    assert refused.value.field == f"retry_policy.{field}"
    assert refused.value.value == value


def test_as_many_names_as_are_allowed_are_taken() -> None:
    longest = tuple(f"{name:x<128}" for name in MANY[:20])

    assert RetryPolicy(retry_on=longest).retry_on == longest
