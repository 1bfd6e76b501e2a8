"""Calling a handler, here or in a process of its own: what it did, as an outcome."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, to_json

from lamplighter.core.limits import RESULT_MAX_BYTES
from lamplighter.core.outcome import (
    Deferred,
    Failed,
    Interrupted,
    Outcome,
    Parked,
    Refused,
    Succeeded,
    Withdrawn,
)
from lamplighter.core.retry import Failure, Kind
from lamplighter.core.stopping import Stop
from lamplighter.tasks.context import Context, Deferral, Stopped, StopSignal
from lamplighter.tasks.failures import failure, failure_of, invalid_payload, names_of
from lamplighter.tasks.registry import AnyTask


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What a call is made with, and what it may be stopped by."""

    payload: str
    timeout: timedelta
    signal: StopSignal


def of_task(task: AnyTask, context: Context, terms: Terms) -> Outcome:
    """Parse the payload and call the task's handler."""
    try:
        payload = task.parse(terms.payload)
    except ValidationError as error:
        return Failed(failure=invalid_payload(error))
    return outcome_of(lambda: returned(task(payload, context), terms), terms)


def declared(task: AnyTask, outcome: Outcome) -> Outcome:
    """An outcome with what its task alone knows, whatever an isolated handler says."""
    if isinstance(outcome, Refused | Parked):
        return outcome
    if isinstance(outcome, Failed | Deferred):
        return replace(outcome, version=task.version, retry=task.retry_policy)
    return replace(outcome, version=task.version)


def outcome_of(run: Callable[[], Outcome], terms: Terms) -> Outcome:
    """What `run` returns, or what its exception means.

    KeyboardInterrupt passes: it is meant for the process.
    """
    try:
        return run()
    except Stopped as error:
        return stopped(terms, str(error))
    except (Exception, SystemExit) as error:  # noqa: BLE001 -- whatever a user's code raises
        return _raised(error, terms)


def returned(value: object, terms: Terms) -> Outcome:
    """What a result is worth: it has to be JSON, bounded, and there before the time-out."""
    # What comes after the time-out may be half the work of a handler that saw it coming. A
    # handler that finished although it was cancelled has finished.
    if terms.signal.asked_at(Stop.TIMEOUT) is not None:
        return stopped(terms, "the handler returned after it")
    if isinstance(value, Deferral):
        return Deferred(terms=value.terms)
    try:
        text = to_json(value, inf_nan_mode="null")
    except (PydanticSerializationError, RecursionError) as error:
        message = f"a result of type {type(value).__qualname__} is not JSON: {error}"
        return Failed(
            failure=failure(Kind.PERMANENT, "InvalidResult", message, payload=terms.payload)
        )
    if len(text) > RESULT_MAX_BYTES:
        # The work is done, and doing it again would not make it smaller.
        text = to_json({"result_too_large": {"bytes": len(text), "max_bytes": RESULT_MAX_BYTES}})
    return Succeeded(result=text.decode())


def stopped(terms: Terms, told: str, retry_after: timedelta | None = None) -> Outcome:
    """What becomes of a call that ended because it had to, or said that it did."""
    if terms.signal.why is Stop.CANCELLED:
        return Withdrawn(reason="cancelled on request")
    if terms.signal.why is Stop.STOPPING:
        return Interrupted(reason="its worker had to end", after=retry_after or timedelta(0))
    if terms.signal.asked_at(Stop.TIMEOUT) is None:
        # Not asked to stop, or with the lease lost: then the outcome is refused anyway.
        return failed(failure(Kind.RETRYABLE, "Stopped", told))
    message = f"ran longer than {terms.timeout.total_seconds():g} s; {told}"
    return failed(failure(Kind.TIMEOUT, "TimedOut", message, retry_after=retry_after))


def failed(failure: Failure) -> Failed:
    """A failure of the task that is known by its type alone."""
    return Failed(failure=failure, names=(failure.type,))


def _raised(error: BaseException, terms: Terms) -> Outcome:
    raised = failure_of(error, payload=terms.payload)
    if terms.signal.why is None or raised.kind is Kind.PERMANENT:
        return Failed(failure=raised, names=names_of(error))
    # A library that was interrupted by the stop raises whatever it likes.
    return stopped(terms, f"the handler raised {raised.type}: {raised.message}")
