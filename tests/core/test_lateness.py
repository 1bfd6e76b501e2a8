"""What an execution's lateness is made of: parts that are never negative and sum to the whole."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamplighter.core.lateness import Lateness, lateness_of
from lamplighter.core.lifecycle import Event
from lamplighter.core.model import Arrival, Attempt, Execution
from lamplighter.core.outcome import Succeeded, blocked, ended, put_off
from tests.support.rows import T, after, failed, one_off, running, s


def started(*, sent: float, received: float, start: float) -> Execution:
    """An execution due at T whose first try was claimed so many seconds later."""
    arrival = Arrival(sent_at=T + s(sent), received_at=T + s(received))
    row = running(one_off())
    return replace(row, started_at=T + s(start), first_started_at=T + s(start), arrival=arrival)


def parts(sending: float, queue: float, claim: float) -> Lateness:
    total = s(sending) + s(queue) + s(claim)
    return Lateness(total=total, sending=s(sending), queue=s(queue), claim=s(claim))


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        pytest.param(
            started(sent=-60, received=0, start=0.01),
            parts(0, 0, 0.01),
            id="on time, sent a minute ahead",
        ),
        pytest.param(
            started(sent=-60, received=3, start=3.5), parts(0, 3, 0.5), id="it waited in its queue"
        ),
        pytest.param(
            started(sent=100, received=101, start=101.5),
            parts(100, 1, 0.5),
            id="dispatch was late",
        ),
        pytest.param(
            started(sent=-60, received=-0.8, start=0.02),
            parts(0, 0, 0.02),
            id="its worker held it until it was due",
        ),
        pytest.param(
            started(sent=5, received=3, start=4),
            parts(4, 0, 0),
            id="the queue's clock is ahead of the worker's",
        ),
    ],
)
def test_each_cause_has_its_part(row: Execution, expected: Lateness) -> None:
    assert lateness_of(row) == expected


offsets = st.floats(min_value=-1000, max_value=1000, allow_nan=False)


@given(sent=offsets, received=offsets, start=st.floats(min_value=0, max_value=1000))
def test_the_parts_sum_to_the_whole_whatever_the_clocks_say(
    sent: float, received: float, start: float
) -> None:
    found = lateness_of(started(sent=sent, received=received, start=start))

    assert found is not None
    assert found.sending + found.queue + found.claim == found.total
    assert min(found.sending, found.queue, found.claim) >= timedelta(0)


def test_it_stays_that_of_the_first_try() -> None:
    first = started(sent=-60, received=3, start=3.5)
    again = replace(
        first,
        attempts=failed(first).attempts,
        started_at=T + s(90),
        arrival=Arrival(sent_at=T + s(80), received_at=T + s(89)),
    )

    assert lateness_of(again) == parts(0, 3, 0.5)
    assert lateness_of(after(again, Succeeded(result="1"))) == parts(0, 3, 0.5)


def test_what_never_started_has_none() -> None:
    claimed = started(sent=0, received=3, start=4)

    assert lateness_of(one_off()) is None
    assert lateness_of(blocked(claimed, by=one_off(n=2).id)) is None
    assert lateness_of(put_off(claimed, until=T + s(30), reason="no answer")) is None
    assert lateness_of(ended(claimed, Event.SKIP, now=T + s(5), reason="overlap")) is None


def test_the_oldest_of_more_than_twenty_tries_is_not_guessed() -> None:
    second = Attempt(
        number=2, started_at=T, finished_at=T, worker="w", state=failed(running(one_off())).state
    )
    row = replace(one_off(), first_started_at=T + s(1), attempts=(second,))

    assert lateness_of(row) is None
