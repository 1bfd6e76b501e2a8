"""Named targets: a job's payload, handed to what its name stands for, once for each try.

A call is made once, never repeated by a client underneath: a try that is counted is a call that
was made. What of it is unknown is left to the next try, which carries the same key.
"""

import time
from collections.abc import Mapping
from concurrent.futures import wait
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Protocol, assert_never

from lamplighter.core.buckets import ExecutionId, JobId
from lamplighter.core.named import (
    FUNCTION_ERROR,
    NO_TARGETS,
    Accepted,
    Answer,
    Directory,
    Entry,
    FunctionFailed,
    Invocation,
    NamedTarget,
    TurnedDown,
    Unanswered,
    failure_of,
    unknown,
)
from lamplighter.core.outcome import Failed
from lamplighter.core.retry import Kind
from lamplighter.core.schedule import format_instant
from lamplighter.services.execute import Claimed
from lamplighter.tasks.calling import failed
from lamplighter.tasks.context import Context
from lamplighter.tasks.failures import failure
from lamplighter.tasks.pinned import LOOK_EVERY_S, Patience, beside


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """One call of a target, with all that it is told."""

    entry: Entry
    invocation: Invocation
    payload: str
    """JSON text, exactly as it was accepted."""
    execution_id: ExecutionId
    job_id: JobId
    attempt: int
    scheduled_for: datetime
    idempotency_key: str
    """The same for every try, and for every replay with the same payload: 30 characters of
    a-z, 0-9 and `_`, which any of the services takes for a name."""
    within: timedelta
    """What comes later is heard by nobody."""

    @property
    def about(self) -> Mapping[str, str]:
        """What goes beside the payload, wherever there is a place beside it."""
        return {
            "execution_id": self.execution_id,
            "idempotency_key": self.idempotency_key,
            "scheduled_for": format_instant(self.scheduled_for),
        }


class Targets(Protocol):
    """What names stand for; its method may be called by several threads."""

    def deliver(self, delivery: Delivery) -> Answer:
        """Call the target once, and tell what came of it; nothing is raised for that.

        Unanswered leaves open whether the target was called. A target that can tell that it was
        called before under the same key (a FIFO queue or topic, a state machine) has Accepted.
        May go on for longer than `within`: then nobody waits for it.
        """
        ...


class NoTargets:
    """`Targets` of a worker that is told of none."""

    def deliver(self, delivery: Delivery) -> Answer:  # noqa: ARG002 -- `Targets`
        return Unanswered(reason="this worker calls nothing")


class NamedCaller:
    """Calls what the names of one process stand for, as many as messages at once."""

    def __init__(self, directory: Directory = NO_TARGETS, targets: Targets | None = None) -> None:
        self._directory = directory
        self._targets = targets or NoTargets()

    def __call__(
        self, target: NamedTarget, claimed: Claimed, context: Context
    ) -> Accepted | Failed:
        """What the target took or returned, or what it means that it did not.

        Who may call it is looked at again: the deployment may have changed since. Raises Stopped
        when the call had to end: then nobody waits for its answer any more, and what the target
        has begun by then is its own to undo.
        """
        entry = self._directory.find(target, owner=context.owner)
        if entry is None:
            # No policy's list names it: another worker may know it.
            return Failed(failure=unknown(target))
        answer = self._answer(_delivery(entry, target, claimed, context), context)
        match answer:
            case Accepted():
                return answer
            case FunctionFailed(type=type_, message=message):
                return _raised_there(type_, message, payload=claimed.payload)
            case TurnedDown() | Unanswered():
                return failed(failure_of(target, answer))
            case other:
                assert_never(other)

    def _answer(self, delivery: Delivery, context: Context) -> Answer:
        patience = Patience(
            signal=context.signal,
            ends_at=time.monotonic() + delivery.within.total_seconds(),
        )
        patience.at_most(LOOK_EVERY_S)
        # A call of boto3 cannot be interrupted.
        future = beside(partial(self._targets.deliver, delivery))
        while not wait([future], timeout=patience.at_most(LOOK_EVERY_S)).done:
            continue
        return future.result()


def _delivery(entry: Entry, target: NamedTarget, claimed: Claimed, context: Context) -> Delivery:
    return Delivery(
        entry=entry,
        invocation=target.invocation,
        payload=claimed.payload,
        execution_id=context.execution_id,
        job_id=context.job_id,
        attempt=context.attempt,
        scheduled_for=context.scheduled_for,
        idempotency_key=context.idempotency_key,
        within=claimed.spec.timeout,
    )


def _raised_there(type_: str, message: str, *, payload: str) -> Failed:
    """A function's error, which a policy may name by its class, or all of them as FunctionError."""
    raised = failure(Kind.RETRYABLE, type_ or FUNCTION_ERROR, message, payload=payload)
    return Failed(failure=raised, names=tuple(dict.fromkeys((raised.type, FUNCTION_ERROR))))
