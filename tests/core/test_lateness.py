"""What an execution's lateness is made of: parts that are never negative and sum to the whole."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamplighter.core.catch_up import CaughtUp
from lamplighter.core.lateness import Lateness, lateness_of
from lamplighter.core.lifecycle import Event, State
from lamplighter.core.model import Arrival, Attempt, Execution, Trigger
from lamplighter.core.outcome import Succeeded, blocked, ended, put_off
from lamplighter.core.waits import Boot, Part, Waited
from tests.support.rows import T, after, failed, occurrence, one_off, recurring, running, s

OTHER = one_off(n=2).id


def started(
    *,
    sent: float,
    received: float,
    start: float,
    hold: float = 0,
    cold: float = 0,
    row: Execution | None = None,
) -> Execution:
    """An execution due at T whose first try was claimed so many seconds later."""
    arrival = Arrival(
        sent_at=T + s(sent), received_at=T + s(received), hold=s(hold), cold_start=s(cold)
    )
    due = replace(row or one_off(), state=State.SCHEDULED, next_run_at=None)
    held = running(due)
    return replace(held, started_at=T + s(start), first_started_at=T + s(start), arrival=arrival)


def parts(**seconds: float) -> Lateness:
    return Lateness(**{name: s(took) for name, took in seconds.items()})


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        pytest.param(
            started(sent=-60, received=0, start=0.01), parts(claim=0.01), id="sent a minute ahead"
        ),
        pytest.param(
            started(sent=-60, received=3, start=3.5), parts(queue=3, claim=0.5), id="it was queued"
        ),
        pytest.param(
            started(sent=100, received=101, start=101.5),
            parts(scan=100, queue=1, claim=0.5),
            id="dispatch was late",
        ),
        pytest.param(
            started(sent=-60, received=-0.75, hold=0.76, start=0.02),
            parts(hold=0.01, claim=0.01),
            id="its worker held it a little too long",
        ),
        pytest.param(
            started(sent=-60, received=2, cold=1.5, start=2.25),
            parts(queue=0.5, cold_start=1.5, claim=0.25),
            id="its worker had to begin",
        ),
        pytest.param(
            started(sent=5, received=3, start=4), parts(scan=4), id="the queue's clock is ahead"
        ),
        pytest.param(
            started(sent=-60, received=-2, cold=1, start=0.5),
            parts(claim=0.5),
            id="a cold start that was over in time",
        ),
    ],
)
def test_each_cause_has_its_part(row: Execution, expected: Lateness) -> None:
    """S0-N2."""
    assert lateness_of(row) == expected


def test_a_catch_up_waits_for_its_turn_before_it_waits_for_a_worker() -> None:
    """It was sent at once, to be held back until then."""
    turn = CaughtUp(decided_at=T + s(300), number=2, step=s(10))
    row = replace(one_off(), caught_up=turn)

    found = lateness_of(started(sent=300, received=319.5, hold=0.5, start=320.25, row=row))

    assert found == parts(scan=320, claim=0.25)


def test_a_flexible_window_is_a_part_beside_the_lateness() -> None:
    """S2-K1: wanted, so it alarms nobody; both sums are told."""
    row = replace(occurrence(recurring()), scheduled_for=T - s(40))

    found = lateness_of(started(sent=-60, received=3, start=3.5, row=row))

    assert found == parts(splay=40, queue=3, claim=0.5)
    assert (found.total, found.total_from_slot) == (s(3.5), s(43.5))


def test_a_slot_of_the_past_that_is_run_now_has_no_window() -> None:
    row = replace(
        occurrence(recurring()), trigger=Trigger.BACKFILL, scheduled_for=T - timedelta(days=40)
    )

    assert lateness_of(started(sent=0, received=3, start=3, row=row)) == parts(queue=3)


def test_a_wait_for_its_predecessor_is_a_part_of_its_own() -> None:
    """What came before the wait keeps its parts; the wake is a message of its own."""
    claimed = started(sent=1, received=3, start=3.5)
    waiting = blocked(claimed, by=OTHER)

    woken = started(sent=63.5, received=65.5, start=66, row=waiting)

    assert lateness_of(woken) == parts(scan=1, queue=4, claim=1, blocked=60)


def test_waits_of_several_kinds_add_up() -> None:
    """One in its way, then a service that did not answer, then another permit in its way."""
    first = blocked(started(sent=-1, received=2, start=2), by=OTHER)
    second = started(sent=10, received=11, start=11, row=first)
    hidden = put_off(second, until=T + s(26), reason="no answer")
    third = started(sent=10, received=27, start=27, row=hidden)
    permitted = put_off(third, until=T + s(57), reason="no permit", on=Part.PERMIT)

    found = lateness_of(started(sent=57, received=58, start=58.5, row=permitted))

    assert found == parts(blocked=8, queue=5, claim=15.5, permit=30)
    assert found.total == s(58.5)


offsets = st.floats(min_value=-1000, max_value=1000, allow_nan=False)
spans = st.floats(min_value=0, max_value=100)
waits = st.none() | st.builds(
    Waited,
    until=offsets.map(lambda at: T + s(at)),
    on=st.sampled_from(Part),
    spent=st.lists(spans.map(s), max_size=len(Part)).map(tuple),
)


@given(
    slot=offsets,
    sent=offsets,
    received=offsets,
    hold=spans,
    cold=spans,
    start=st.floats(min_value=0, max_value=1000),
    waited=waits,
)
def test_the_parts_sum_to_the_whole_whatever_the_clocks_say(
    slot: float,
    sent: float,
    received: float,
    hold: float,
    cold: float,
    start: float,
    waited: Waited | None,
) -> None:
    """S0-N2: any stamps, in any order."""
    row = replace(occurrence(recurring()), scheduled_for=T + s(slot), waited=waited)
    row = started(sent=sent, received=received, hold=hold, cold=cold, start=start, row=row)

    found = lateness_of(row)

    assert found is not None
    assert found.total == row.lateness
    assert sum(found.parts.values(), timedelta(0)) == found.total + found.splay
    assert min(found.parts.values()) >= timedelta(0)


@given(claims=st.lists(st.tuples(offsets, offsets, spans, st.booleans()), min_size=1, max_size=6))
def test_however_often_it_has_to_wait_the_parts_sum_to_the_whole(
    claims: list[tuple[float, float, float, bool]],
) -> None:
    row = one_off()
    for sent, received, start, meets_another in claims:
        claimed = started(sent=sent, received=received, start=start, row=row)
        found = lateness_of(claimed)
        assert found is not None
        assert found.total == claimed.lateness
        assert min(found.parts.values()) >= timedelta(0)
        row = (
            blocked(claimed, by=OTHER)
            if meets_another
            else put_off(claimed, until=T + s(start + 1), reason="no answer")
        )


def test_it_stays_that_of_the_first_try() -> None:
    first = started(sent=-60, received=3, start=3.5)
    again = replace(
        first,
        attempts=failed(first).attempts,
        started_at=T + s(90),
        arrival=Arrival(sent_at=T + s(80), received_at=T + s(89)),
    )

    for later in (
        again,
        after(again, Succeeded(result="1")),
        put_off(again, until=T + s(100), reason="no answer"),
        blocked(again, by=OTHER),
    ):
        assert lateness_of(later) == parts(queue=3, claim=0.5)


def test_what_never_started_has_none() -> None:
    claimed = started(sent=0, received=3, start=4)

    assert lateness_of(one_off()) is None
    assert lateness_of(blocked(claimed, by=OTHER)) is None
    assert lateness_of(put_off(claimed, until=T + s(30), reason="no answer")) is None
    assert lateness_of(ended(claimed, Event.SKIP, now=T + s(5), reason="overlap")) is None


def test_a_wait_of_which_no_message_told_is_none() -> None:
    silent = replace(started(sent=0, received=3, start=4), arrival=None)

    assert blocked(silent, by=OTHER).waited is None


def test_the_oldest_of_more_than_twenty_tries_is_not_guessed() -> None:
    second = Attempt(
        number=2, started_at=T, finished_at=T, worker="w", state=failed(running(one_off())).state
    )
    row = replace(one_off(), first_started_at=T + s(1), attempts=(second,))

    assert lateness_of(row) is None


@pytest.mark.parametrize(
    ("sent", "received", "cold"),
    [
        pytest.param(-5, 14, 3, id="all of it, where the message was there before"),
        pytest.param(11, 14, 2, id="what was left of it"),
        pytest.param(-5, 11, 1, id="what had passed of it"),
        pytest.param(20, 22, 0, id="none, where it was over: a process that begins ahead"),
        pytest.param(3, 5, 0, id="none, by a clock that says that it was not there yet"),
    ],
)
def test_a_cold_start_is_what_a_message_waits_while_its_process_begins(
    sent: float, received: float, cold: float
) -> None:
    boot = Boot(began_at=T + s(10), ready_at=T + s(13))

    found = boot.within(T + s(sent), T + s(received))

    assert found == s(cold)
