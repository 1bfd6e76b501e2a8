"""The life of an execution as data: one table that every condition, diagram and test comes from."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from lamplighter.core.errors import IllegalTransition


class State(StrEnum):
    """Where an execution stands; stored by name."""

    SCHEDULED = "SCHEDULED"
    """Accepted and durable. Dispatch or a direct send moves it on, at its run_at."""
    RUNNING = "RUNNING"
    """Held by one token until its lease ends; the holder finishes it or another takes over."""
    RETRYING = "RETRYING"
    """A try failed, or was put off; the next one is armed for next_run_at."""
    BLOCKED = "BLOCKED"
    """Waits for a permit or a predecessor; woken by whoever ends it, or by its check."""
    SUCCEEDED = "SUCCEEDED"
    """The handler returned and its result was accepted. Final."""
    FAILED = "FAILED"
    """Its handler raised what trying again cannot mend, or no worker ever knew its task. Final."""
    DEAD_LETTERED = "DEAD_LETTERED"
    """Attempts exhausted, crashed too often, or undeliverable. Final; replay starts anew."""
    CANCELLED = "CANCELLED"
    """Its owner, or an edit of its job, took it back. Final."""
    SKIPPED = "SKIPPED"
    """A misfire or overlap policy passed over it. Final."""
    EXPIRED = "EXPIRED"
    """Its deadline passed before it could start. Final."""


class Event(StrEnum):
    """What can happen to an execution."""

    CLAIM = "claim"
    """A worker takes it, or takes it over from a holder whose lease has ended."""
    SUCCEED = "succeed"
    """Its handler returned, and the token still held."""
    RETRY = "retry"
    """A try failed, or was put off, and another is due later."""
    FAIL = "fail"
    """Its handler raised an error that trying again cannot mend."""
    DEAD_LETTER = "dead_letter"
    """Its last allowed try failed, its workers kept dying, or its message kept returning."""
    CANCEL = "cancel"
    """Its owner took it or its job back."""
    SKIP = "skip"
    """A misfire or overlap policy decided against it."""
    EXPIRE = "expire"
    """Its deadline passed."""
    BLOCK = "block"
    """Its claim found a predecessor or a permit in the way."""


_PENDING: Final = (State.SCHEDULED, State.RETRYING, State.BLOCKED)
_LIVE: Final = (*_PENDING, State.RUNNING)

TRANSITIONS: Final[Mapping[tuple[State, Event], State]] = MappingProxyType(
    {
        **{(state, Event.CLAIM): State.RUNNING for state in _LIVE},
        (State.RUNNING, Event.SUCCEED): State.SUCCEEDED,
        (State.RUNNING, Event.RETRY): State.RETRYING,
        (State.RUNNING, Event.FAIL): State.FAILED,
        (State.RUNNING, Event.BLOCK): State.BLOCKED,
        **{(state, Event.DEAD_LETTER): State.DEAD_LETTERED for state in _LIVE},
        **{(state, Event.CANCEL): State.CANCELLED for state in _LIVE},
        **{(state, Event.SKIP): State.SKIPPED for state in _LIVE},
        **{(state, Event.EXPIRE): State.EXPIRED for state in _LIVE},
    }
)
"""(state, event) → the state after it. What is not here does not happen."""

FINAL: Final = frozenset(State) - {state for state, _ in TRANSITIONS}
NEEDS_ATTENTION: Final = frozenset({State.FAILED, State.DEAD_LETTERED, State.EXPIRED})

ALIASES: Final[Mapping[str, State]] = MappingProxyType(
    {
        "pending": State.SCHEDULED,
        "queued": State.SCHEDULED,
        "enqueued": State.SCHEDULED,
        "ready": State.SCHEDULED,
        "available": State.SCHEDULED,
        "created": State.SCHEDULED,
        "dispatched": State.SCHEDULED,
        "executing": State.RUNNING,
        "active": State.RUNNING,
        "retryable": State.RETRYING,
        "suspended": State.BLOCKED,
        "completed": State.SUCCEEDED,
        "success": State.SUCCEEDED,
        "dead_letter": State.DEAD_LETTERED,
        "dead-letter": State.DEAD_LETTERED,
        "dlq": State.DEAD_LETTERED,
        "discarded": State.DEAD_LETTERED,
        "canceled": State.CANCELLED,
        "discard": State.SKIPPED,
        "skip": State.SKIPPED,
        "deadline_exceeded": State.EXPIRED,
    }
)
"""Other systems' names, in lower case, accepted in filters; answers use ours."""


def after(state: State, event: Event) -> State:
    """The state that follows; raises IllegalTransition when the table has none."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalTransition(state=state, event=event) from None


def sources_of(event: Event) -> frozenset[State]:
    """Every state that takes the event: the status clause of its conditional write."""
    return frozenset(state for state, taken in TRANSITIONS if taken is event)


def event_to(state: State) -> Event:
    """The one event that ends in this final or waiting state; for RUNNING it is CLAIM."""
    (event,) = {event for (_, event), target in TRANSITIONS.items() if target is state}
    return event
