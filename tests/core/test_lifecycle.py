import itertools

import pytest

from lamplighter.core.errors import IllegalTransition
from lamplighter.core.lifecycle import (
    ALIASES,
    FINAL,
    NEEDS_ATTENTION,
    TRANSITIONS,
    Event,
    State,
    after,
    event_to,
    sources_of,
)

S, E = State, Event

# Written out by hand, so that a change of the table has to be made twice and on purpose.
EXPECTED = {
    S.SCHEDULED: {
        E.CLAIM: S.RUNNING,
        E.DEAD_LETTER: S.DEAD_LETTERED,
        E.CANCEL: S.CANCELLED,
        E.SKIP: S.SKIPPED,
        E.EXPIRE: S.EXPIRED,
    },
    S.RETRYING: {
        E.CLAIM: S.RUNNING,
        E.DEAD_LETTER: S.DEAD_LETTERED,
        E.CANCEL: S.CANCELLED,
        E.SKIP: S.SKIPPED,
        E.EXPIRE: S.EXPIRED,
    },
    S.BLOCKED: {
        E.CLAIM: S.RUNNING,
        E.DEAD_LETTER: S.DEAD_LETTERED,
        E.CANCEL: S.CANCELLED,
        E.SKIP: S.SKIPPED,
        E.EXPIRE: S.EXPIRED,
    },
    S.RUNNING: {
        E.CLAIM: S.RUNNING,
        E.SUCCEED: S.SUCCEEDED,
        E.RETRY: S.RETRYING,
        E.FAIL: S.FAILED,
        E.BLOCK: S.BLOCKED,
        E.DEAD_LETTER: S.DEAD_LETTERED,
        E.CANCEL: S.CANCELLED,
        E.SKIP: S.SKIPPED,
        E.EXPIRE: S.EXPIRED,
    },
}


@pytest.mark.parametrize(("state", "event"), [*itertools.product(State, Event)])
def test_every_state_takes_exactly_the_events_of_the_table(state: State, event: Event) -> None:
    expected = EXPECTED.get(state, {}).get(event)

    if expected is None:
        with pytest.raises(IllegalTransition, match=f"{state} does not take {event}"):
            after(state, event)
    else:
        assert after(state, event) is expected


def test_a_final_state_takes_nothing() -> None:
    assert set(State) - set(EXPECTED) == FINAL
    assert not {state for state, _ in TRANSITIONS} & FINAL


def test_what_needs_attention_is_final() -> None:
    assert NEEDS_ATTENTION < FINAL


@pytest.mark.parametrize("event", Event)
def test_the_sources_of_an_event_are_the_states_that_take_it(event: Event) -> None:
    assert sources_of(event) == {state for state in EXPECTED if event in EXPECTED[state]}


@pytest.mark.parametrize("state", [state for state in State if state is not State.SCHEDULED])
def test_exactly_one_event_leads_to_a_state(state: State) -> None:
    assert state in {after(source, event_to(state)) for source in sources_of(event_to(state))}


def test_every_state_can_be_reached_from_the_first() -> None:
    reached, new = {State.SCHEDULED}, {State.SCHEDULED}
    while new:
        new = {target for (state, _), target in TRANSITIONS.items() if state in new} - reached
        reached |= new

    assert reached == set(State)


def test_no_alias_shadows_a_state_of_another_name() -> None:
    for alias, state in ALIASES.items():
        assert alias == alias.lower()
        assert State.__members__.get(alias.upper(), state) is state
