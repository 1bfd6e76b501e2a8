"""The working process of an isolated call: takes its assignment, runs the handler, answers."""

import faulthandler
import os
import resource
import socket
import sys
import threading
from contextlib import suppress
from dataclasses import replace
from typing import Final, NoReturn

from lamplighter.core.errors import Permanent, Unavailable
from lamplighter.core.outcome import Deferred, Failed, Interrupted, Outcome, Succeeded, Withdrawn
from lamplighter.core.retry import Kind
from lamplighter.tasks.calling import Terms, failed, of_task, outcome_of
from lamplighter.tasks.context import Context, Stopped, StopSignal
from lamplighter.tasks.failures import failure
from lamplighter.tasks.registry import InvalidTasks
from lamplighter.tasks.source import Source
from lamplighter.tasks.wire import (
    FROM_CHILD_MAX_BYTES,
    TO_CHILD_MAX_BYTES,
    Answer,
    Assignment,
    Inbox,
    Question,
    ToWorker,
    read_by_child,
    to_worker,
)

_PIECE_BYTES: Final = 65_536


def work(channel: int) -> NoReturn:
    """Run the one call that the worker sends, answer, and end this process.

    Threads that the handler leaves behind end with it, and so does whatever it started.
    """
    # Where a crash in native code came from stands in the log: files, lines and names.
    faulthandler.enable()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # What it said before it crashed is wanted most.
            stream.reconfigure(line_buffering=True, errors="backslashreplace")
    worker = _Worker(socket.socket(fileno=channel))
    outcome = _outcome(worker.assignment, worker)
    _unbounded()
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    worker.tell(outcome)
    os._exit(0)


def _outcome(assignment: Assignment, worker: "_Worker") -> Outcome:
    terms = Terms(payload=assignment.payload, timeout=assignment.timeout, signal=worker.signal)
    source = Source(module=assignment.tasks, shell_owners=assignment.shell_owners)
    try:
        task = source.find(
            assignment.task, assignment.version, home=assignment.home, environ=os.environ
        )
    except InvalidTasks as error:
        return failed(failure(Kind.RETRYABLE, "NotStarted", str(error)))
    outcome = outcome_of(lambda: of_task(task, _context(assignment, worker), terms), terms)
    if isinstance(outcome, Failed) and outcome.failure.type == MemoryError.__name__:
        limit = assignment.memory_bytes // 2**20
        told = failure(Kind.RETRYABLE, "MemoryLimit", f"asked for more than its {limit} MB")
        return replace(outcome, failure=told, names=("MemoryLimit", *outcome.names))
    return outcome


def _context(assignment: Assignment, worker: "_Worker") -> Context:
    return Context(
        execution_id=assignment.execution_id,
        job_id=assignment.job_id,
        owner=assignment.owner,
        attempt=assignment.attempt,
        scheduled_for=assignment.scheduled_for,
        run_at=assignment.run_at,
        deadline=assignment.deadline,
        idempotency_key=assignment.idempotency_key,
        task_version=assignment.task_version,
        signal=worker.signal,
        calls=worker,
    )


def _unbounded() -> None:
    """Let go of the bound on memory: to tell that it was reached takes some, too."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))


class _Worker:
    """The worker at the other end of the channel; `calls.ContextCalls` for the handler."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._inbox = Inbox(TO_CHILD_MAX_BYTES)
        self._sending = threading.Lock()
        self._answered = threading.Condition()
        self._answers: dict[int, Answer] = {}
        self._asked = 0
        self.signal = StopSignal()
        self.assignment, later = self._first()
        threading.Thread(target=self._listen, args=(later,), name="worker", daemon=True).start()

    def tell(self, outcome: Outcome) -> None:
        match outcome:
            case Succeeded():
                self._send(ToWorker(succeeded=outcome))
            case Failed():
                self._send(ToWorker(failed=outcome))
            case Withdrawn():
                self._send(ToWorker(withdrawn=outcome))
            case Interrupted():
                self._send(ToWorker(interrupted=outcome))
            case Deferred():
                self._send(ToWorker(deferred=outcome))
            case _:
                raise ValueError(f"no outcome of a call: {outcome}")

    def ask(self, name: str, argument: str) -> str:
        with self._answered:
            self._asked += 1
            number = self._asked
        if len(name) + len(argument.encode()) > FROM_CHILD_MAX_BYTES // 2:
            raise Permanent(f"{name!r}: its argument is larger than can be sent")
        self._send(ToWorker(question=Question(number=number, name=name, argument=argument)))
        with self._answered:
            self._answered.wait_for(lambda: number in self._answers)
            return _value(self._answers.pop(number))

    def _send(self, said: ToWorker) -> None:
        with self._sending:
            self._channel.sendall(to_worker(said))

    def _first(self) -> tuple[Assignment, list[bytes]]:
        while True:
            frames = self._received()
            if frames:
                assignment = read_by_child(frames[0]).assignment
                if assignment is None:
                    raise ValueError("the first thing said is no assignment")
                return assignment, frames[1:]

    def _listen(self, frames: list[bytes]) -> None:
        while True:
            for frame in frames:
                said = read_by_child(frame)
                if said.stop is not None:
                    self.signal.stop(said.stop)
                if said.answer is not None:
                    with self._answered:
                        self._answers[said.answer.number] = said.answer
                        self._answered.notify_all()
            frames = self._received()

    def _received(self) -> list[bytes]:
        piece = self._channel.recv(_PIECE_BYTES)
        if not piece:
            # The worker is gone, and so is its claim. The guard ends what this one started.
            os._exit(os.EX_IOERR)
        return self._inbox.feed(piece)


def _value(answer: Answer) -> str:
    match answer.error:
        case None:
            return answer.value or "null"
        case "LostClaim":
            raise Stopped(answer.message)
        case "Unavailable":
            raise Unavailable(answer.message)
        case _:
            raise Permanent(answer.message)
