"""What a worker and the process of one of its calls say to each other: frames of JSON.

A socket pair carries them, four bytes of length before each. No semaphore and no shared memory
is needed: Lambda has no /dev/shm.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from pydantic import TypeAdapter, ValidationError

from lamplighter.core.buckets import ExecutionId, JobId
from lamplighter.core.errors import Rejected
from lamplighter.core.limits import COMPLETION_MAX_BYTES
from lamplighter.core.model import Owner
from lamplighter.core.outcome import Deferred, Failed, Interrupted, Outcome, Succeeded, Withdrawn
from lamplighter.core.stopping import Stop

# What is taken from a child: JSON within JSON takes twice its bytes at the most. The largest is
# what its context asks to be written.
FROM_CHILD_MAX_BYTES: Final = 2 * COMPLETION_MAX_BYTES + 256 * 1024
# A payload by reference has 5 MiB; as JSON within JSON at worst six times that.
TO_CHILD_MAX_BYTES: Final = 64 * 1024 * 1024
_LENGTH_BYTES: Final = 4


class BadFrame(Exception):
    """The other side sent what is none of ours; nothing that follows means anything."""


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """One call, with all that it takes to make it elsewhere."""

    tasks: str
    """The module whose import registers the user's tasks."""
    shell_owners: tuple[str, ...]
    task: str
    version: int
    home: str
    """The module of the task's function."""
    memory_bytes: int
    payload: str
    timeout: timedelta
    execution_id: ExecutionId
    job_id: JobId
    owner: Owner
    attempt: int
    scheduled_for: datetime
    run_at: datetime
    deadline: datetime
    idempotency_key: str
    task_version: int | None = None
    """The version that its job was made for; `version` is the handler's."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """What a handler's context asks of the worker; `argument` is JSON text."""

    number: int
    name: str
    argument: str


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What came of a question: JSON text, or the error by the name of its class."""

    number: int
    value: str | None = None
    error: str | None = None
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class ToChild:
    """Exactly one of these."""

    assignment: Assignment | None = None
    stop: Stop | None = None
    answer: Answer | None = None


@dataclass(frozen=True, kw_only=True)
class ToWorker:
    """Exactly one of these; after an outcome nothing more is read."""

    succeeded: Succeeded | None = None
    failed: Failed | None = None
    withdrawn: Withdrawn | None = None
    interrupted: Interrupted | None = None
    deferred: Deferred | None = None
    question: Question | None = None

    @property
    def outcome(self) -> Outcome | None:
        """What became of the call; None: it goes on."""
        ends = (self.succeeded, self.failed, self.withdrawn, self.interrupted, self.deferred)
        return next((end for end in ends if end is not None), None)


TO_CHILD: Final = TypeAdapter(ToChild)
TO_WORKER: Final = TypeAdapter(ToWorker)


def to_child(said: ToChild) -> bytes:
    return _framed(TO_CHILD.dump_json(said, exclude_none=True))


def to_worker(said: ToWorker) -> bytes:
    return _framed(TO_WORKER.dump_json(said, exclude_none=True))


def read_by_child(text: bytes) -> ToChild:
    return TO_CHILD.validate_json(text)


def read_by_worker(text: bytes) -> ToWorker:
    """Raises BadFrame: a handler may write to its channel what it likes."""
    try:
        return TO_WORKER.validate_json(text)
    except (ValidationError, Rejected) as error:
        raise BadFrame("not one of ours") from error


class Inbox:
    """Puts together what arrives in pieces."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._waiting = bytearray()

    def feed(self, piece: bytes) -> list[bytes]:
        """The frames that are complete by now; raises BadFrame for one that is too long."""
        self._waiting += piece
        complete = []
        while len(self._waiting) >= _LENGTH_BYTES:
            end = _LENGTH_BYTES + int.from_bytes(self._waiting[:_LENGTH_BYTES])
            if end > _LENGTH_BYTES + self._max_bytes:
                raise BadFrame(f"a frame of {end - _LENGTH_BYTES} bytes")
            if len(self._waiting) < end:
                break
            complete.append(bytes(self._waiting[_LENGTH_BYTES:end]))
            del self._waiting[:end]
        return complete


def _framed(text: bytes) -> bytes:
    return len(text).to_bytes(_LENGTH_BYTES) + text
