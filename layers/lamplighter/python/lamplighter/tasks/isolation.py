"""Isolated calls, the worker's side: each in a process of its own, which always ends.

A handler that is to stop is asked first, through its context; then it is sent SIGTERM; then it
is killed, with all that it started. What it does until then - allocate, spin, crash, block its
signals, close its channel, write without end - costs its neighbours nothing, and the outcome
says which it was.
"""

import json
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.util import cache_from_source
from pathlib import Path
from typing import IO, Final

from lamplighter.core.errors import LamplighterError, LostClaim, TaskError, Unavailable
from lamplighter.core.limits import RESULT_MAX_BYTES, RETRY_NAME_MAX_CHARS
from lamplighter.core.model import Execution
from lamplighter.core.outcome import Deferred, Failed, Interrupted, Outcome, Succeeded
from lamplighter.core.retry import Failure, Kind
from lamplighter.services.execute import Claimed
from lamplighter.services.heartbeat import Stop
from lamplighter.tasks import guard
from lamplighter.tasks.calling import Terms, failed, stopped
from lamplighter.tasks.calls import Answers, unanswered
from lamplighter.tasks.context import Context, Stopped, StopSignal
from lamplighter.tasks.failures import failure
from lamplighter.tasks.masking import known_secrets, shortened
from lamplighter.tasks.memory import isolated_bytes
from lamplighter.tasks.registry import AnyTask
from lamplighter.tasks.source import Source
from lamplighter.tasks.wire import (
    FROM_CHILD_MAX_BYTES,
    Answer,
    Assignment,
    BadFrame,
    Inbox,
    Question,
    ToChild,
    read_by_worker,
    to_child,
)

# From the request to stop to SIGTERM. What must stop is gone before its worker takes it for
# hung (five seconds), and long before its lease ends; what was cancelled may take its time.
ASKED_FOR_S: Final = 2.0
CANCELLED_FOR_S: Final = 10.0
# From SIGTERM to SIGKILL.
TERMINATED_FOR_S: Final = 1.0
# From the end of a channel to the kill: nothing can come through it any more.
UNHEARD_FOR_S: Final = 0.5
# For the guard to bury what it has killed. Then it is killed itself.
BURIED_WITHIN_S: Final = 1.0
OUTPUT_MAX_BYTES: Final = 64 * 1024
LINE_MAX_CHARS: Final = 1000
_LOOK_EVERY_S: Final = 0.1
_LOOK_SOON_S: Final = 0.005
_DRAIN_EVERY_S: Final = 0.02
_PIECE_BYTES: Final = 65_536
# Of what is thrown away, in one look: a handler that only writes must not keep its worker busy.
# A pipe holds 64 KiB, so that it is let go at some MiB a second.
_DRAINED_BYTES: Final = 1024 * 1024
_NAMES_AT_MOST: Final = 32

Said = Callable[[Execution, str], None]
"""Takes a line of a handler's output: masked, and bounded in length and number."""


class Isolation:
    """Makes isolated calls; any number of threads may, each waits for its own."""

    def __init__(
        self,
        source: Source,
        said: Said,
        *,
        answers: Answers = unanswered,
        memory_bytes: int | None = None,
    ) -> None:
        self._source = source
        self._said = said
        self._answers = answers
        self._memory_bytes = memory_bytes or isolated_bytes(os.environ)
        self._options = _options()

    def __call__(self, task: AnyTask, claimed: Claimed, context: Context) -> Outcome:
        """Run the task's handler in a process of its own, to its end or to its kill.

        Raises nothing: whatever becomes of the process is an outcome. It is the thread that
        calls whose end would end the process, too.
        """
        assignment = self._assignment(task, claimed, context)
        terms = Terms(payload=claimed.payload, timeout=claimed.spec.timeout, signal=context.signal)
        with ExitStack() as stack:
            try:
                child = stack.enter_context(_started(assignment, self._options))
            except OSError as error:
                # No more processes, files or memory to start one with.
                reason = f"no process could be started for it: {error.strerror}"
                return Failed(failure=failure(Kind.RETRYABLE, "NotStarted", reason))
            call = _Call(
                child=child,
                output=_Output(lambda line: self._said(claimed.execution, line), terms.payload),
                signal=context.signal,
                answer=lambda question: self._answer(claimed, question),
            )
            call.say(ToChild(assignment=assignment))
            return _outcome(call.follow(), terms, assignment)

    def _assignment(self, task: AnyTask, claimed: Claimed, context: Context) -> Assignment:
        return Assignment(
            tasks=self._source.module,
            shell_owners=self._source.shell_owners,
            task=task.name,
            version=task.version,
            home=task.handler.__module__,
            memory_bytes=task.memory_mb * 2**20 if task.memory_mb else self._memory_bytes,
            payload=claimed.payload,
            timeout=claimed.spec.timeout,
            execution_id=context.execution_id,
            job_id=context.job_id,
            owner=context.owner,
            attempt=context.attempt,
            scheduled_for=context.scheduled_for,
            run_at=context.run_at,
            deadline=context.deadline,
            idempotency_key=context.idempotency_key,
            task_version=context.task_version,
        )

    def _answer(self, claimed: Claimed, question: Question) -> Answer:
        number = question.number
        try:
            return Answer(
                number=number, value=self._answers(claimed, question.name, question.argument)
            )
        except (LostClaim, Stopped) as error:
            return Answer(number=number, error="LostClaim", message=str(error))
        except Unavailable as error:
            return Answer(number=number, error="Unavailable", message=str(error))
        except (LamplighterError, TaskError) as error:
            return Answer(number=number, error="Permanent", message=str(error))


def _options() -> list[str]:
    """Where bytecode is kept if there is none beside the code, as in a layer of Lambda.

    Without it each call would compile all that it imports.
    """
    if sys.pycache_prefix:
        return ["-X", f"pycache_prefix={sys.pycache_prefix}"]
    if sys.dont_write_bytecode or Path(cache_from_source(guard.__file__)).exists():
        return []
    return ["-X", f"pycache_prefix={tempfile.mkdtemp(prefix='lamplighter-bytecode-')}"]


@dataclass(frozen=True, kw_only=True)
class _Child:
    """A guard, and the process that it watches over."""

    process: "subprocess.Popen[bytes]"
    leash: socket.socket
    """Ends it all when it is closed; tells what became of it."""
    channel: socket.socket
    output: IO[bytes]


@contextmanager
def _started(assignment: Assignment, options: list[str]) -> Iterator[_Child]:
    """Start one; at the end nothing of it is left, processes or files."""
    with ExitStack() as stack:
        leash, its_leash = map(stack.enter_context, socket.socketpair())
        channel, its_channel = map(stack.enter_context, socket.socketpair())
        setting = {
            "worker": os.getpid(),
            "channel": its_channel.fileno(),
            "memory_bytes": assignment.memory_bytes,
            "path": sys.path,
        }
        process = subprocess.Popen(  # noqa: S603 -- our own interpreter and code
            # -P: the folder of this file, whose http.py is not Python's, is not on the path.
            [sys.executable, "-P", *options, guard.__file__, json.dumps(setting)],
            stdin=its_leash.fileno(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=[its_channel.fileno()],
            start_new_session=True,
        )
        if process.stdout is None:
            raise ValueError("started without a pipe")
        stack.enter_context(process.stdout)
        child = _Child(process=process, leash=leash, channel=channel, output=process.stdout)
        try:
            its_leash.close()
            its_channel.close()
            channel.setblocking(False)
            os.set_blocking(process.stdout.fileno(), False)
            yield child
        finally:
            _bury(child)


def _bury(child: _Child) -> None:
    child.leash.close()
    with suppress(subprocess.TimeoutExpired):
        child.process.wait(BURIED_WITHIN_S)
        return
    child.process.kill()
    child.process.wait()


@dataclass(frozen=True, kw_only=True)
class _Ended:
    """How a call's process ended, and what it said before."""

    outcome: Outcome | None
    was_stopped: bool
    """Whether it had been asked to stop before that."""
    code: int | None
    """Of its exit, or of the signal below zero; None: nobody knows."""
    too_much: bool
    """Whether it was killed for its memory."""
    peak_bytes: int
    nonsense: str | None
    """What it sent that was no answer."""


@dataclass(kw_only=True)
class _Call:
    """One call under way, followed by the thread that made it."""

    child: _Child
    output: "_Output"
    signal: StopSignal
    answer: Callable[[Question], Answer]
    _selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    _inbox: Inbox = field(default_factory=lambda: Inbox(FROM_CHILD_MAX_BYTES))
    _to_send: bytearray = field(default_factory=bytearray)
    _sending: threading.Lock = field(default_factory=threading.Lock)
    _told: set[Stop] = field(default_factory=set)
    _asked: int = 0
    """Questions that wait for their answer."""
    _outcome: Outcome | None = None
    _nonsense: str | None = None
    _terminate_at: float = float("inf")
    _kill_at: float = float("inf")
    _is_terminated: bool = False
    _reports: bytes = b""
    _is_over: bool = False

    def say(self, said: ToChild) -> None:
        """To be sent as soon as it is taken; from any thread."""
        with self._sending:
            self._to_send += to_child(said)

    def follow(self) -> _Ended:
        """Attend to it until it has answered, has ended, or must be ended; then end it."""
        with self._selector:
            self._selector.register(self.child.leash, selectors.EVENT_READ, self._hear_guard)
            self._selector.register(self.child.channel, selectors.EVENT_READ, self._hear)
            self._selector.register(self.child.output, selectors.EVENT_READ, self._drain)
            while not self._is_over and time.monotonic() < self._kill_at:
                self._look()
                self._pass_on_stops()
                self._send()
        self._end()
        self.output.drain(self.child.output)
        self.output.close()
        report = self._report()
        status = report.get("status", -1)
        return _Ended(
            outcome=self._outcome,
            was_stopped=bool(self._told),
            code=os.waitstatus_to_exitcode(status) if status >= 0 else None,
            too_much=bool(report.get("too_much")),
            peak_bytes=report.get("peak_bytes", 0),
            nonsense=self._nonsense,
        )

    def _look(self) -> None:
        for key, _ in self._selector.select(self._patience_s):
            key.data()
        if self.output.is_full:
            self._drain()

    @property
    def _patience_s(self) -> float:
        if self._asked or self._to_send:
            return _LOOK_SOON_S
        return _DRAIN_EVERY_S if self.output.is_full else _LOOK_EVERY_S

    def _pass_on_stops(self) -> None:
        now = time.monotonic()
        for why in Stop:
            if self.signal.asked_at(why) is None or why in self._told:
                continue
            self._told.add(why)
            self.say(ToChild(stop=why))
            patience = CANCELLED_FOR_S if why is Stop.CANCELLED else ASKED_FOR_S
            self._terminate_at = min(self._terminate_at, now + patience)
            self._kill_at = min(self._kill_at, now + patience + TERMINATED_FOR_S)
        if now >= self._terminate_at and not self._is_terminated:
            self._is_terminated = True
            with suppress(OSError):
                self.child.leash.send(guard.TERMINATE)

    def _send(self) -> None:
        with self._sending:
            if not self._to_send:
                return
            try:
                sent = self.child.channel.send(self._to_send)
            except BlockingIOError:
                return
            except OSError:
                # It has closed its end, which is seen where it is read from.
                sent = len(self._to_send)
            del self._to_send[:sent]

    def _hear(self) -> None:
        piece = _heard(self.child.channel)
        if not piece:
            self._selector.unregister(self.child.channel)
            self._kill_at = min(self._kill_at, time.monotonic() + UNHEARD_FOR_S)
            return
        try:
            for frame in self._inbox.feed(piece):
                self._take(frame)
        except BadFrame as error:
            self._nonsense = str(error)
            self._is_over = True

    def _take(self, frame: bytes) -> None:
        said = read_by_worker(frame)
        if said.question is not None:
            with self._sending:
                self._asked += 1
            # Not in this thread: what waits for a service must not keep the child from its end.
            threading.Thread(
                target=self._reply, args=(said.question,), name="context call", daemon=True
            ).start()
        elif outcome := said.outcome:
            self._outcome = self._outcome or outcome
            self._is_over = True

    def _reply(self, question: Question) -> None:
        answer = Answer(number=question.number, error="Permanent", message="a bug in the worker")
        try:
            answer = self.answer(question)
        finally:
            with self._sending:
                self._asked -= 1
            self.say(ToChild(answer=answer))

    def _drain(self) -> None:
        if not self.output.read(self.child.output) or self.output.is_full:
            with suppress(KeyError):
                self._selector.unregister(self.child.output)

    def _hear_guard(self) -> None:
        piece = _heard(self.child.leash)
        self._reports += piece
        # The first line is the process's number, the second its end.
        if not piece or self._reports.count(b"\n") > 1:
            self._is_over = True

    def _end(self) -> None:
        """Have the guard kill what is left, and take its report."""
        with suppress(OSError):
            self.child.leash.shutdown(socket.SHUT_WR)
        until = time.monotonic() + BURIED_WITHIN_S
        while (left := until - time.monotonic()) > 0:
            ready, _, _ = select.select([self.child.leash], [], [], left)
            piece = _heard(self.child.leash) if ready else b""
            if not piece and ready:
                return
            self._reports += piece
        # It is stopped, or cannot bury its dead: those of the group it may not have come to.
        self.child.process.kill()
        with suppress(OSError, ValueError, KeyError):
            os.killpg(json.loads(self._reports.splitlines()[0])["pid"], signal.SIGKILL)

    def _report(self) -> dict[str, int]:
        lines = self._reports.splitlines()
        report: dict[str, int] = json.loads(lines[1]) if len(lines) > 1 else {}
        return report


def _heard(side: socket.socket) -> bytes:
    """What there is to read; nothing at the end, however it came about."""
    try:
        return side.recv(_PIECE_BYTES)
    except ConnectionError:
        return b""


class _Output:
    """What a process writes: its first lines go on, the rest is read and thrown away."""

    def __init__(self, said: Callable[[str], None], payload: str) -> None:
        self._said = said
        self._payload = payload
        self._line = b""
        self._bytes = 0
        self._is_open = True

    @property
    def is_full(self) -> bool:
        return self._bytes >= OUTPUT_MAX_BYTES

    def read(self, pipe: IO[bytes]) -> bool:
        """Take what is there, some of it; False at its end."""
        taken = 0
        while self._is_open and taken < _DRAINED_BYTES:
            try:
                piece = os.read(pipe.fileno(), _PIECE_BYTES)
            except BlockingIOError:
                break
            self._is_open = bool(piece)
            taken += len(piece)
            self._take(piece)
            if not self.is_full:
                break
        return self._is_open

    def drain(self, pipe: IO[bytes]) -> None:
        """Take what was written before its end."""
        while self._is_open and not self.is_full:
            before = self._bytes
            self.read(pipe)
            if self._bytes == before:
                return
        self.read(pipe)

    def close(self) -> None:
        """Pass on the last line, and say how much there was beyond what is passed on."""
        if self._line:
            self._pass_on(self._line)
        if self._bytes > OUTPUT_MAX_BYTES:
            self._said(f"{self._bytes - OUTPUT_MAX_BYTES} bytes or more of output are not shown")

    def _take(self, piece: bytes) -> None:
        shown = piece[: max(0, OUTPUT_MAX_BYTES - self._bytes)]
        self._bytes += len(piece)
        *lines, self._line = (self._line + shown).split(b"\n")
        for line in lines:
            self._pass_on(line)

    def _pass_on(self, line: bytes) -> None:
        text = line.decode(errors="replace").rstrip()
        if text:
            self._said(shortened(text, LINE_MAX_CHARS, self._secrets))

    @cached_property
    def _secrets(self) -> Sequence[str]:
        return known_secrets(self._payload, os.environ)


def _outcome(ended: _Ended, terms: Terms, assignment: Assignment) -> Outcome:
    match ended.outcome:
        case Succeeded() | Deferred() if terms.signal.asked_at(Stop.TIMEOUT) is not None:
            return stopped(terms, "the handler returned after it")
        case Succeeded(result=result) if not _is_result(result):
            return failed(failure(Kind.RETRYABLE, "BadAnswer", "its process sent no result"))
        case Failed() as told:
            return replace(
                told, failure=_checked(told.failure, assignment), names=_names(told.names)
            )
        case None if ended.was_stopped and not ended.too_much:
            return stopped(terms, f"the handler did not stop: {_ending(ended)}")
        case None:
            return failed(_death(ended, assignment))
        case outcome:
            # An interruption in our words, and as far as there was one: it may send what it likes.
            is_said = isinstance(outcome, Interrupted)
            return stopped(terms, "it says that it was interrupted") if is_said else outcome


def _is_result(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return len(text.encode()) <= RESULT_MAX_BYTES


def _death(ended: _Ended, assignment: Assignment) -> Failure:
    """Why a process ended that had not answered, and that nobody had asked to."""
    limit, peak = assignment.memory_bytes // 2**20, ended.peak_bytes // 2**20
    if ended.too_much:
        return failure(Kind.RETRYABLE, "MemoryLimit", f"held {peak} MB; its limit is {limit} MB")
    if ended.nonsense is not None:
        return failure(Kind.RETRYABLE, "BadAnswer", f"its process sent {ended.nonsense}")
    if ended.code is not None and ended.code >= 0:
        return failure(Kind.RETRYABLE, "ExitedEarly", f"{_ending(ended)} before it had a result")
    told = _ending(ended)
    if ended.code == -signal.SIGKILL:
        told += f", which this worker did not send: memory may have run out ({peak} MB held)"
    return failure(Kind.RETRYABLE, "Crashed", told)


def _ending(ended: _Ended) -> str:
    match ended.code:
        case None:
            return "its process ended with the one that watched over it"
        case code if code >= 0:
            return f"exit code {code}"
        case code:
            return f"signal {-code}{_signal_name(-code)}"


def _signal_name(number: int) -> str:
    with suppress(ValueError):
        return f" ({signal.Signals(number).name})"
    return ""


def _checked(told: Failure, assignment: Assignment) -> Failure:
    """A failure as this process would have made it: a child's word is not taken for it."""
    kind = Kind.RETRYABLE if told.kind is Kind.LOST_LEASE else told.kind
    return failure(
        kind,
        told.type,
        told.message,
        retry_after=told.retry_after,
        payload=assignment.payload,
    )


def _names(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name[:RETRY_NAME_MAX_CHARS] for name in names[:_NAMES_AT_MOST])
