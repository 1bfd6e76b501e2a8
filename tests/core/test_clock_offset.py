"""The offset of a host's clock: what servers' answers prove of it, and that nothing else counts."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamplighter.core.clock_offset import Answers, Bounds, Reading
from lamplighter.core.limits import CLOCK_ANSWERS, MAX_CLOCK_ERROR
from tests.support.rows import T, s


@dataclass(kw_only=True)
class Host:
    """A host whose wall clock is off, and the answers that it gets."""

    offset: float = 0
    true: datetime = T + s(0.25)
    monotonic: float = 1000
    answers: Answers = field(default_factory=Answers)

    @property
    def now(self) -> Reading:
        return Reading(wall=self.true + s(self.offset), monotonic=self.monotonic)

    @property
    def bounds(self) -> Bounds | None:
        return self.answers.bounds(self.now)

    def wait(self, seconds: float) -> None:
        self.true += s(seconds)
        self.monotonic += seconds

    def freeze(self, seconds: float) -> None:
        """Its processor stands still, and its monotonic clock with it; the wall clock is set."""
        self.true += s(seconds)

    def step(self, seconds: float) -> None:
        """Somebody, or the time service, sets its wall clock."""
        self.offset += seconds

    def ask(self, *, there: float = 0.002, back: float = 0.002, stale: float = 0) -> None:
        """Of a server whose header may be up to a second old."""
        sent = self.now
        self.wait(there)
        second = (self.true - s(stale)).replace(microsecond=0)
        self.wait(back)
        self.answers = self.answers.heard(sent=sent, received=self.now, second=second)

    def ask_often(self, times: int = 100) -> None:
        for _ in range(times):
            self.ask()
            self.wait(0.093)

    def is_proven(self) -> bool:
        assert self.bounds is not None
        return self.bounds.is_off


delays = st.floats(0, 2)
events = st.one_of(
    st.tuples(st.just("wait"), st.floats(0, 300)),
    st.tuples(st.just("freeze"), st.floats(0, 3000)),
    st.tuples(st.just("step"), st.floats(-20, 20)),
)


@given(
    offset=st.floats(-5, 5),
    story=st.lists(st.tuples(st.none() | events, delays, delays, st.floats(0, 1)), max_size=30),
)
def test_the_bounds_hold_the_offset_whatever_happens_to_the_clocks(
    offset: float, story: list[tuple[tuple[str, float] | None, float, float, float]]
) -> None:
    """S0-X1, S1-X2: so nobody is refused who is right."""
    host = Host(offset=offset)
    for event, there, back, stale in story:
        match event:
            case "wait", seconds:
                host.wait(seconds)
            case "freeze", seconds:
                host.freeze(seconds)
            case "step", seconds:
                host.step(seconds)
            case _:
                host.ask(there=there, back=back, stale=stale)
        if host.bounds is not None:
            # Instants are whole microseconds, and many are summed.
            assert host.bounds.low - s(0.001) <= s(host.offset) <= host.bounds.high + s(0.001)


@given(offset=st.floats(-0.5, 0.5), stale=st.floats(0, 1))
def test_a_clock_that_is_off_by_less_than_the_bound_is_never_proven_to_be_off(
    offset: float, stale: float
) -> None:
    host = Host(offset=offset)
    for _ in range(50):
        host.ask(stale=stale)
        host.wait(0.09)

    assert not host.is_proven()


@pytest.mark.parametrize(
    "offset",
    [pytest.param(2.5, id="ahead"), pytest.param(-2.5, id="behind"), pytest.param(3600, id="far")],
)
def test_three_answers_prove_a_clock_that_is_far_off(offset: float) -> None:
    """S1-X2."""
    host = Host(offset=offset)
    for _ in range(CLOCK_ANSWERS - 1):
        host.ask()
    assert host.bounds is None

    host.ask()

    assert host.is_proven()


@pytest.mark.parametrize("offset", [1.6, -0.6])
def test_a_few_seconds_of_answers_prove_one_that_is_off_by_less(offset: float) -> None:
    """A header may be a second old: so what is ahead is proven a second later than the bound."""
    host = Host(offset=offset)

    host.ask_often()

    assert host.is_proven()
    assert host.bounds is not None
    assert abs(host.bounds.surely) > MAX_CLOCK_ERROR


def test_answers_together_tell_more_than_each() -> None:
    host = Host(offset=0.125)

    host.ask_often()

    assert host.bounds is not None
    assert s(0.125) <= host.bounds.high <= s(0.125) + s(0.05)
    assert s(0.125) - s(1.05) <= host.bounds.low <= s(0.125)
    assert host.bounds.surely == timedelta(0)


def test_what_was_measured_tells_less_and_less() -> None:
    """Samples age by the monotonic clock, at a thousandth: twice what a clock is slewed by."""
    host = Host()
    host.ask_often()
    before = host.bounds
    assert before is not None

    host.wait(100)

    assert host.bounds is not None
    assert host.bounds.high - before.high == s(0.1)
    assert before.low - host.bounds.low == s(0.1)
    host.wait(3600)
    assert host.bounds is None


@pytest.mark.parametrize("jump", [10, -10])
def test_a_clock_that_is_set_wrong_is_noticed(jump: float) -> None:
    host = Host()
    host.ask_often()

    host.step(jump)

    assert host.bounds is None
    for _ in range(CLOCK_ANSWERS):
        host.ask()
    assert host.is_proven()


def test_a_frozen_host_is_not_taken_for_one_with_a_wrong_clock() -> None:
    host = Host()
    host.ask_often()

    host.freeze(900)

    assert host.bounds is None
    host.ask_often()
    assert not host.is_proven()


def test_one_server_that_is_wrong_proves_nothing() -> None:
    host = Host()
    host.ask_often()

    host.ask(stale=60)

    assert host.bounds is None
    host.ask_often()
    assert not host.is_proven()


def test_an_answer_that_seems_to_come_before_its_question_tells_nothing() -> None:
    host = Host()
    host.ask_often()
    before = host.answers
    sent = host.now
    host.wait(0.01)

    heard = before.heard(
        sent=sent,
        received=Reading(wall=sent.wall - s(5), monotonic=host.monotonic),
        second=host.true.replace(microsecond=0),
    )

    assert heard is before
