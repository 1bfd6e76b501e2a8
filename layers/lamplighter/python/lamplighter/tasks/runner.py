"""Calling a task's handler, and turning whatever comes of it into an outcome."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, to_json

from lamplighter.core.limits import RESULT_MAX_BYTES
from lamplighter.core.outcome import Failed, Outcome, Refused, Succeeded, Withdrawn
from lamplighter.core.retry import Failure, Kind
from lamplighter.core.targets import NOBODY
from lamplighter.ports import Clock
from lamplighter.services.execute import Claimed
from lamplighter.services.heartbeat import Heartbeats, Stop
from lamplighter.tasks.context import Context, Stopped, StopSignal
from lamplighter.tasks.failures import failure, failure_of, invalid_payload, names_of
from lamplighter.tasks.http import HttpAnswer, HttpCaller
from lamplighter.tasks.registry import AnyTask, Registry

# How long a handler may go on once it must stop; then it is taken for hung.
STOP_WITHIN: Final = timedelta(seconds=5)
# Once the outcomes of all hung handlers are written, ten at most and one after the other, their
# process ends. The next try of each waits for that.
AFTER_A_HUNG_ONE: Final = timedelta(seconds=10)
_MUST_STOP: Final = (Stop.TIMEOUT, Stop.LOST_LEASE)


@dataclass(frozen=True, kw_only=True)
class Call:
    """A handler that is running."""

    claimed: Claimed
    signal: StopSignal

    def is_hung(self, now: float) -> bool:
        """Whether it was told (monotonic) that it must stop, and has gone on for five seconds."""
        asked = [self.signal.asked_at(why) for why in _MUST_STOP]
        first = min((at for at in asked if at is not None), default=now)
        return now - first >= STOP_WITHIN.total_seconds()

    @property
    def hung_outcome(self) -> Outcome | None:
        """What to write for a hung handler; None when it is no longer ours to write."""
        if self.signal.asked_at(Stop.LOST_LEASE) is not None:
            return None
        return _stopped(self.claimed, self.signal, "the handler did not stop", AFTER_A_HUNG_ONE)


class TaskRunner:
    """`execute.Runner` over a registry: any number of threads may call it at once.

    Without `http` it refuses what has an HTTP target, whoever asks for it.
    """

    def __init__(
        self,
        tasks: Registry,
        heartbeats: Heartbeats,
        clock: Clock,
        *,
        http: HttpCaller | None = None,
    ) -> None:
        self._tasks = tasks
        self._heartbeats = heartbeats
        self._clock = clock
        self._http = http or HttpCaller(NOBODY, clock)
        self._calls: dict[str, Call] = {}
        self._lock = threading.Lock()

    def __call__(self, claimed: Claimed) -> Outcome:
        """Run the newest version of the execution's task, or call its target, in this thread.

        KeyboardInterrupt passes: it is meant for the process, and leaves the try to the end of
        its lease. Everything else becomes an outcome.
        """
        if (target := claimed.spec.target) is not None:
            with self._call(claimed) as call:
                context = self._context(claimed, call.signal)
                return _outcome(lambda: _answered(self._http(target, claimed, context), call), call)
        task = self._tasks.newest(claimed.execution.task)
        if task is None:
            # A worker with other tasks, or a newer one, may know it: no policy's list names it.
            known = ", ".join(self._tasks.names)
            message = f"no task {claimed.execution.task!r} here; there are: {known}"
            return Failed(failure=failure(Kind.RETRYABLE, "UnknownTask", message))
        with self._call(claimed) as call:
            outcome = _of_task(task, self._context(claimed, call.signal), call)
        return outcome if isinstance(outcome, Refused) else replace(outcome, version=task.version)

    def hung(self) -> list[Call]:
        """The handlers that go on although they must stop: only the process's end stops them."""
        now = self._clock.monotonic()
        with self._lock:
            return [call for call in self._calls.values() if call.is_hung(now)]

    @contextmanager
    def _call(self, claimed: Claimed) -> Iterator[Call]:
        call = Call(claimed=claimed, signal=StopSignal(self._clock.monotonic))
        with self._heartbeats.watch(claimed, call.signal):
            with self._lock:
                self._calls[claimed.token] = call
            try:
                yield call
            finally:
                with self._lock:
                    del self._calls[claimed.token]

    def _context(self, claimed: Claimed, signal: StopSignal) -> Context:
        execution = claimed.execution
        return Context(
            execution_id=execution.id,
            job_id=execution.job_id,
            owner=execution.owner,
            attempt=execution.attempt,
            scheduled_for=execution.scheduled_for,
            run_at=execution.run_at,
            deadline=self._clock.now() + claimed.spec.timeout,
            idempotency_key=execution.idempotency_key,
            signal=signal,
        )


def _of_task(task: AnyTask, context: Context, call: Call) -> Outcome:
    try:
        payload = task.parse(call.claimed.payload)
    except ValidationError as error:
        return Failed(failure=invalid_payload(error))
    return _outcome(lambda: _returned(task(payload, context), call), call)


def _outcome(run: Callable[[], Outcome], call: Call) -> Outcome:
    try:
        return run()
    except Stopped as stopped:
        return _stopped(call.claimed, call.signal, str(stopped))
    except (Exception, SystemExit) as error:  # noqa: BLE001 -- whatever a user's code raises
        return _raised(error, call)


def _answered(answer: HttpAnswer | Failure, call: Call) -> Outcome:
    return _failed(answer) if isinstance(answer, Failure) else _returned(answer, call)


def _returned(value: object, call: Call) -> Outcome:
    # What comes after the time-out may be half the work of a handler that saw it coming. A
    # handler that finished although it was cancelled has finished.
    if call.signal.asked_at(Stop.TIMEOUT) is not None:
        return _stopped(call.claimed, call.signal, "the handler returned after it")
    try:
        text = to_json(value, inf_nan_mode="null")
    except (PydanticSerializationError, RecursionError) as error:
        message = f"a result of type {type(value).__qualname__} is not JSON: {error}"
        return Failed(failure=failure(Kind.PERMANENT, "InvalidResult", message))
    if len(text) > RESULT_MAX_BYTES:
        # The work is done, and doing it again would not make it smaller.
        text = to_json({"result_too_large": {"bytes": len(text), "max_bytes": RESULT_MAX_BYTES}})
    return Succeeded(result=text.decode())


def _raised(error: BaseException, call: Call) -> Outcome:
    raised = failure_of(error)
    if call.signal.why is None or raised.kind is Kind.PERMANENT:
        return Failed(failure=raised, names=names_of(error))
    # A library that was interrupted by the stop raises whatever it likes.
    return _stopped(
        call.claimed, call.signal, f"the handler raised {raised.type}: {raised.message}"
    )


def _stopped(
    claimed: Claimed, signal: StopSignal, told: str, retry_after: timedelta | None = None
) -> Outcome:
    if signal.why is Stop.CANCELLED:
        return Withdrawn(reason="cancelled on request")
    if signal.asked_at(Stop.TIMEOUT) is None:
        # Not asked to stop, or with the lease lost: then the outcome is refused anyway.
        return _failed(failure(Kind.RETRYABLE, "Stopped", told))
    message = f"ran longer than {claimed.spec.timeout.total_seconds():g} s; {told}"
    return _failed(failure(Kind.TIMEOUT, "TimedOut", message, retry_after=retry_after))


def _failed(failure: Failure) -> Failed:
    """A failure of the task that is known by its type alone."""
    return Failed(failure=failure, names=(failure.type,))
