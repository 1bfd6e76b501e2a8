"""Calling a task's handler, and turning whatever comes of it into an outcome."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Final

from lamplighter.core.limits import ERROR_MESSAGE_MAX_CHARS
from lamplighter.core.model import Target
from lamplighter.core.named import NamedTarget
from lamplighter.core.outcome import Deferred, Failed, Outcome, Parked
from lamplighter.core.retry import Failure
from lamplighter.core.targets import NOBODY, HttpTarget
from lamplighter.ports import Clock
from lamplighter.services.execute import Claimed
from lamplighter.services.heartbeat import Heartbeats, Stop
from lamplighter.tasks.calling import (
    Terms,
    declared,
    failed,
    of_task,
    outcome_of,
    returned,
    stopped,
)
from lamplighter.tasks.calls import Answers, DirectCalls, unanswered
from lamplighter.tasks.context import Context, StopSignal
from lamplighter.tasks.http import HttpAnswer, HttpCaller
from lamplighter.tasks.isolation import Isolation
from lamplighter.tasks.masking import shortened
from lamplighter.tasks.named import NamedCaller
from lamplighter.tasks.registry import AnyTask, Registry

# How long a handler may go on once it must stop; then it is taken for hung.
STOP_WITHIN: Final = timedelta(seconds=5)
# Once the outcomes of all hung handlers are written, ten at most and one after the other, their
# process ends. The next try of each waits for that.
AFTER_A_HUNG_ONE: Final = timedelta(seconds=10)
_MUST_STOP: Final = (Stop.TIMEOUT, Stop.LOST_LEASE, Stop.STOPPING)


@dataclass(frozen=True, kw_only=True)
class Call:
    """A handler that is running."""

    claimed: Claimed
    signal: StopSignal
    task: AnyTask | None = None
    """None: a target is called."""

    @property
    def terms(self) -> Terms:
        return Terms(
            payload=self.claimed.payload, timeout=self.claimed.spec.timeout, signal=self.signal
        )

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
        outcome = stopped(self.terms, "the handler did not stop", AFTER_A_HUNG_ONE)
        return declared(self.task, outcome) if self.task else outcome


class TaskRunner:
    """`execute.Runner` over a registry: any number of threads may call it at once.

    Without `http` it refuses what has an HTTP target, whoever asks for it; without `named` it
    knows no target by its name. Without `isolation`
    every handler runs in this process, as tests and simulations want it.
    """

    def __init__(
        self,
        tasks: Registry,
        heartbeats: Heartbeats,
        clock: Clock,
        *,
        http: HttpCaller | None = None,
        named: NamedCaller | None = None,
        isolation: Isolation | None = None,
        answers: Answers = unanswered,
    ) -> None:
        self._tasks = tasks
        self._heartbeats = heartbeats
        self._clock = clock
        self._http = http or HttpCaller(NOBODY, clock)
        self._named = named or NamedCaller()
        self._isolation = isolation
        self._answers = answers
        self._calls: dict[str, Call] = {}
        self._lock = threading.Lock()

    def __call__(self, claimed: Claimed) -> Outcome:
        """Run the execution's task, in a version that takes it, or call its target.

        What no task here takes is parked: a worker of another deploy may. This thread runs it.

        A task that says so runs in a process of its own, and so does any whose last worker fell
        silent: whatever it did to that one, its neighbours shall not pay for it again. This
        thread waits for it then.

        KeyboardInterrupt passes: it is meant for the process, and leaves the try to the end of
        its lease. Everything else becomes an outcome.
        """
        if (target := claimed.spec.target) is not None:
            with self._call(claimed) as call:
                context = self._context(claimed, call.signal)
                return outcome_of(lambda: self._of_target(target, call, context), call.terms)
        task = self._tasks.find(claimed.spec.task, claimed.spec.task_version)
        if task is None:
            return Parked(reason=self._unknown(claimed.spec.task, claimed.spec.task_version))
        claimed = replace(claimed, version=task.version)
        with self._call(claimed, task) as call:
            outcome = self._of_task(task, self._context(claimed, call.signal), call)
        return declared(task, outcome)

    def _unknown(self, name: str, version: int | None) -> str:
        """What is told of it: another worker, with another deploy, may know it."""
        known = self._tasks.versions(name)
        if version is None or not known:
            what, has = f"task {name!r}", self._tasks.names
        else:
            what, has = f"version {version} of task {name!r}", [*map(str, known)]
        told = f"no worker knows {what} yet; the last one asked has: {', '.join(has)}"
        return shortened(told, ERROR_MESSAGE_MAX_CHARS)

    def _of_target(self, target: Target, call: Call, context: Context) -> Outcome:
        if not isinstance(target, NamedTarget):
            return _answered(target, self._http(target, call.claimed, context), call.terms)
        answer = self._named(target, call.claimed, context)
        return answer if isinstance(answer, Failed) else returned(answer.result, call.terms)

    def _of_task(self, task: AnyTask, context: Context, call: Call) -> Outcome:
        is_isolated = task.isolation == "process" or call.claimed.execution.crashes > 0
        if is_isolated and self._isolation is not None:
            return self._isolation(task, call.claimed, context)
        return of_task(task, context, call.terms)

    def hung(self) -> list[Call]:
        """The handlers that go on although they must stop: only the process's end stops them."""
        now = self._clock.monotonic()
        with self._lock:
            return [call for call in self._calls.values() if call.is_hung(now)]

    def stop(self, why: Stop) -> None:
        """Ask every handler that runs to stop; from any thread."""
        with self._lock:
            calls = [*self._calls.values()]
        for call in calls:
            call.signal.stop(why)

    @contextmanager
    def _call(self, claimed: Claimed, task: AnyTask | None = None) -> Iterator[Call]:
        call = Call(claimed=claimed, signal=StopSignal(self._clock.monotonic), task=task)
        with self._heartbeats.watch(claimed, call.signal):
            with self._lock:
                self._calls[claimed.token] = call
            try:
                yield call
            finally:
                with self._lock:
                    del self._calls[claimed.token]

    def _context(self, claimed: Claimed, signal: StopSignal) -> Context:
        return context_of(claimed, now=self._clock.now(), signal=signal, answers=self._answers)


def context_of(claimed: Claimed, *, now: datetime, signal: StopSignal, answers: Answers) -> Context:
    """What a handler is told of a call that begins now, in this process."""
    execution = claimed.execution
    return Context(
        execution_id=execution.id,
        job_id=execution.job_id,
        owner=execution.owner,
        attempt=execution.attempt,
        scheduled_for=execution.scheduled_for,
        run_at=execution.run_at,
        deadline=now + claimed.spec.timeout,
        idempotency_key=execution.idempotency_key,
        task_version=claimed.spec.task_version,
        signal=signal,
        calls=DirectCalls(claimed=claimed, answers=answers),
    )


def _answered(target: HttpTarget, answer: HttpAnswer | Failure, terms: Terms) -> Outcome:
    if isinstance(answer, Failure):
        return failed(answer)
    if answer.status == HTTPStatus.ACCEPTED and target.deferred is not None:
        return Deferred(terms=target.deferred)
    return returned(answer, terms)
