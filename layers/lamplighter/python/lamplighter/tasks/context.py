"""What a handler is told about its call, and how it learns that it has to stop."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from time import monotonic as _monotonic

from lamplighter.core.buckets import ExecutionId, JobId
from lamplighter.core.model import Owner
from lamplighter.services.heartbeat import Stop


class Stopped(BaseException):
    """The handler gave up because it was asked to.

    No Exception, so that a handler's own `except Exception` lets it pass.
    """


class StopSignal:
    """`heartbeat.Handling`: carries the request to stop from the heartbeat to the handler."""

    def __init__(self, monotonic: Callable[[], float] = _monotonic) -> None:
        self._monotonic = monotonic
        self._event = threading.Event()
        self._asked_at: dict[Stop, float] = {}
        self.why: Stop | None = None
        """The first reason; None while the handler may go on."""

    def stop(self, why: Stop) -> None:
        """Ask the handler to stop; the first reason stays, later ones are kept beside it."""
        self._asked_at.setdefault(why, self._monotonic())
        self.why = self.why or why
        self._event.set()

    def wait(self, seconds: float) -> bool:
        """Return after so many seconds, or with True as soon as the handler is to stop."""
        return self._event.wait(seconds)

    def asked_at(self, why: Stop) -> float | None:
        """When (monotonic) this reason was first given; None: not yet."""
        return self._asked_at.get(why)


@dataclass(frozen=True, kw_only=True)
class Context:
    """One call of a handler.

    A handler that runs for long looks at `stopped`, waits with `wait`, or calls
    `raise_if_stopped` where it can be left: it is asked to stop at its `deadline`, when its
    execution is cancelled, and when the worker can no longer hold it. One that goes on for
    five seconds past its deadline takes its process with it.
    """

    execution_id: ExecutionId
    job_id: JobId
    owner: Owner
    attempt: int
    """From 1; a try whose worker died is made again under its number."""
    scheduled_for: datetime
    """The slot of the schedule; the same for every try."""
    run_at: datetime
    deadline: datetime
    """When the job's time-out ends this call: aware, UTC."""
    idempotency_key: str
    """For services that accept such a key: the same for every try of this execution, and for
    every replay of it with the same payload."""
    signal: StopSignal = field(default_factory=StopSignal, repr=False)

    @property
    def stopped(self) -> bool:
        """Whether the handler is asked to stop, for whatever reason."""
        return self.signal.why is not None

    @property
    def cancelled(self) -> bool:
        """Whether that is because its execution was cancelled."""
        return self.signal.why is Stop.CANCELLED

    def raise_if_stopped(self) -> None:
        """Raise Stopped if the handler is asked to stop."""
        if self.stopped:
            raise Stopped("the handler stopped when it was asked to")

    def wait(self, seconds: float) -> bool:
        """Sleep, but no longer than until the handler is asked to stop; True if it is."""
        return self.signal.wait(seconds)
