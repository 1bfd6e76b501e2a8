"""Jobs, executions and attempts: frozen values; an invalid one cannot be made."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NewType

from lamplighter.core import limits
from lamplighter.core.buckets import (
    ExecutionId,
    JobId,
    Position,
    occurrence_id,
    one_off_job_id,
)
from lamplighter.core.errors import Rejected
from lamplighter.core.lifecycle import FINAL, State
from lamplighter.core.retry import Failure, RetryPolicy
from lamplighter.core.schedule import Schedule

_MILLISECOND = timedelta(milliseconds=1)

Owner = NewType("Owner", str)
Token = NewType("Token", str)
"""The claim's fencing token: 128 random bits as hex."""


class Trigger(StrEnum):
    """Why an execution exists."""

    ONE_OFF = "ONE_OFF"
    SCHEDULE = "SCHEDULE"
    MANUAL = "MANUAL"
    """Somebody asked for a run of the job now."""
    BACKFILL = "BACKFILL"
    """Somebody asked for a slot of the past to be run."""
    REPLAY = "REPLAY"
    """Somebody asked for an execution that ended to be run again, as a new one."""


class MisfirePolicy(StrEnum):
    """What becomes of occurrences that nobody dispatched in time."""

    FIRE_ONCE = "FIRE_ONCE"
    """One run, for the latest missed slot."""
    SKIP = "SKIP"
    """None; the next slot in the future goes on."""


class OverlapPolicy(StrEnum):
    """What becomes of an execution whose predecessor in its job's chain has not ended."""

    ALLOW = "ALLOW"
    """It starts all the same; nobody looks."""
    SKIP = "SKIP"
    """It ends SKIPPED."""
    BUFFER_ONE = "BUFFER_ONE"
    """It waits, BLOCKED, unless one is waiting already: then it ends SKIPPED."""
    BUFFER_ALL = "BUFFER_ALL"
    """It waits, BLOCKED, however many do."""
    CANCEL_OTHER = "CANCEL_OTHER"
    """The predecessor is asked to stop; it waits until that has ended."""
    TERMINATE_OTHER = "TERMINATE_OTHER"
    """The predecessor is ended, its result refused; it starts once the holder has let go."""


class JobStatus(StrEnum):
    """Whether a definition makes occurrences."""

    ACTIVE = "ACTIVE"
    PAUSED = "PAUSED"
    """Until it is resumed: nothing that is claimed meanwhile starts."""
    DELETED = "DELETED"
    """For good: the definition stays, for its history."""


@dataclass(frozen=True, kw_only=True)
class Payload:
    """The task's input as canonical JSON text, or where a large one is kept.

    `text` is None when the payload is an item of its own (over 512 bytes): then `version`
    completes its key, and `bytes` tells its size.
    """

    text: str | None
    bytes: int
    version: int = 1

    def __post_init__(self) -> None:
        if self.bytes > limits.PAYLOAD_MAX_BYTES:
            raise Rejected(
                field="payload",
                value=f"{self.bytes} bytes",
                reason=f"larger than {limits.PAYLOAD_MAX_BYTES} bytes",
            )

    @classmethod
    def of(cls, text: str) -> "Payload":
        """The payload with its text at hand, whatever its size."""
        return cls(text=text, bytes=len(text.encode()))

    @property
    def is_inline(self) -> bool:
        """Whether it is small enough to lie in the row itself."""
        return self.bytes <= limits.PAYLOAD_INLINE_BYTES


@dataclass(frozen=True, kw_only=True)
class Spec:
    """What to run and under which policy; the same for every occurrence of a version."""

    task: str
    payload: Payload
    queue: str = "default"
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    timeout: timedelta = limits.DEFAULT_TIMEOUT

    def __post_init__(self) -> None:
        check_name("task", self.task)
        check_name("queue", self.queue)
        if not timedelta(seconds=1) <= self.timeout <= limits.MAX_TIMEOUT:
            raise Rejected(
                field="timeout_seconds",
                value=self.timeout.total_seconds(),
                reason=f"not in 1–{limits.MAX_TIMEOUT.total_seconds():g}",
            )


@dataclass(frozen=True, kw_only=True)
class Job:
    """A recurring job's definition, as of one version."""

    id: JobId
    owner: Owner
    version: int
    status: JobStatus
    spec: Spec
    schedule: Schedule
    misfire: MisfirePolicy
    overlap: OverlapPolicy = OverlapPolicy.ALLOW
    created_at: datetime
    effective_from: datetime | None = None
    """When this version replaced the one before it; None for the first. It plans no slot at or
    before this instant: neither an edit nor a resume is retroactive."""
    name: str | None = None

    @property
    def since(self) -> datetime:
        """The instant after which this version plans."""
        return self.effective_from or self.created_at

    def next_after(self, slot: datetime) -> datetime | None:
        """The first slot strictly after another; None once the job makes no more."""
        if self.status is not JobStatus.ACTIVE:
            return None
        return self.schedule.next(max(slot, self.since))

    def latest_until(self, instant: datetime) -> datetime | None:
        """The last slot of this version whose occurrence is due by then."""
        offset = self.run_at(self.created_at) - self.created_at
        slot = self.schedule.previous(instant - offset + _MILLISECOND)
        return slot if slot is not None and slot > self.since else None

    def run_at(self, slot: datetime) -> datetime:
        """When the occurrence of a slot is due: the slot, or later in its flexible window."""
        return self.schedule.run_at(slot)

    def occurrence_id(self, slot: datetime) -> ExecutionId:
        """The id that the occurrence of a slot has, whoever plans it."""
        return occurrence_id(self.id, slot, self.run_at(slot))

    def occurrence(self, slot: datetime, *, now: datetime, sent_directly: bool) -> "Execution":
        """The execution of one slot, SCHEDULED; the same slot always has the same id."""
        return Execution(
            id=self.occurrence_id(slot),
            job_id=self.id,
            owner=self.owner,
            trigger=Trigger.SCHEDULE,
            job_version=self.version,
            task=self.spec.task,
            queue=self.spec.queue,
            spec=None,
            scheduled_for=slot,
            run_at=self.run_at(slot),
            created_at=now,
            sent_directly=sent_directly,
        )

    def produces(self, execution: "Execution") -> bool:
        """Whether this definition, as it is now, makes exactly this execution (P19).

        What this very version planned is its own, even if a zone database that came since
        would have planned it elsewhere: else a day's run would be lost with each change of law.
        """
        if self.status is not JobStatus.ACTIVE:
            return False
        return execution.job_version == self.version or (
            execution.id == self.occurrence_id(execution.scheduled_for)
            and self.schedule.contains(execution.scheduled_for)
        )


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One try, as the history keeps it."""

    number: int
    started_at: datetime
    finished_at: datetime | None
    worker: str
    state: State
    """What the try led to: SUCCEEDED, RETRYING, … or RUNNING while it is under way."""
    error: Failure | None = None


@dataclass(frozen=True, kw_only=True)
class Execution:
    """One planned occurrence: the unit that is queued, claimed, retried and shown.

    `attempt` is the try that is due or under way, from 1: a message must name it to claim
    (P10). `crashes` counts the tries whose holder's lease ended without a word; they do not
    move `attempt`, so the message that returns still names it.
    """

    id: ExecutionId
    job_id: JobId
    owner: Owner
    trigger: Trigger
    job_version: int
    task: str
    queue: str
    spec: Spec | None
    """The definition, of a one-off and of what runs otherwise than its job says; else None: it
    lies with the job."""
    scheduled_for: datetime
    run_at: datetime
    created_at: datetime
    sent_directly: bool = False
    state: State = State.SCHEDULED
    attempt: int = 1
    crashes: int = 0
    undeliverable: int = 0
    """How often its message landed in a dead-letter queue."""
    token: Token | None = None
    lease_until: datetime | None = None
    worker: str | None = None
    next_run_at: datetime | None = None
    started_at: datetime | None = None
    """When the latest try was claimed."""
    first_started_at: datetime | None = None
    finished_at: datetime | None = None
    result: str | None = None
    """JSON text."""
    error: Failure | None = None
    reason: str | None = None
    """Why it ended as it did, where its error does not say."""
    attempts: tuple[Attempt, ...] = ()
    """Tries that have ended, the latest 20."""
    cancel_requested_at: datetime | None = None
    traceparent: str | None = None
    replay_of: ExecutionId | None = None
    """The execution that a REPLAY runs again."""
    idempotent_as: ExecutionId | None = None
    """The first execution of a lineage of replays with one payload; None: this one."""
    predecessor: ExecutionId | None = None
    """The execution before it in its job's chain; None where the job allows overlap."""
    blocker: ExecutionId | None = None
    """What it waits for, BLOCKED, or was SKIPPED for."""
    waiters: frozenset[ExecutionId] = frozenset()
    """BLOCKED executions that are to be woken when it has ended."""

    def __post_init__(self) -> None:
        running = self.state is State.RUNNING
        if running != (self.token is not None) or running != (self.lease_until is not None):
            raise ValueError(f"{self.id}: {self.state} with token {self.token!r}")
        if (self.state is State.RETRYING) != (self.next_run_at is not None):
            raise ValueError(f"{self.id}: {self.state} with next_run_at {self.next_run_at}")

    @property
    def due_at(self) -> datetime:
        """No try starts before this instant."""
        return self.next_run_at or self.run_at

    @property
    def idempotency_key(self) -> str:
        """The same for every try, and for every replay with the same payload."""
        return self.idempotent_as or self.id

    @property
    def payload_home(self) -> JobId:
        """Whose item a large payload is: the job's, or its own where it has a spec of its own."""
        return self.job_id if self.spec is None else one_off_job_id(self.id)

    @property
    def is_additional(self) -> bool:
        """Whether no slot of its job's schedule leads to it: by hand, backfilled, replayed."""
        return self.trigger in {Trigger.MANUAL, Trigger.BACKFILL, Trigger.REPLAY}

    @property
    def is_final(self) -> bool:
        """Whether nothing can happen to it any more."""
        return self.state in FINAL

    @property
    def lateness(self) -> timedelta | None:
        """First start − run_at; None before the first start."""
        return self.first_started_at - self.run_at if self.first_started_at else None


class PointerKind(StrEnum):
    """What a pointer row has done at its time."""

    RETRY = "retry"
    """Dispatch sends the execution's message for this attempt."""
    CHECK = "check"
    """The sweep looks at the execution again."""


@dataclass(frozen=True, kw_only=True)
class Pointer:
    """A row that points at an execution from the bucket in which something is due for it."""

    kind: PointerKind
    position: Position
    execution_id: ExecutionId
    queue: str
    at: datetime
    attempt: int


@dataclass(frozen=True, kw_only=True)
class Message:
    """What travels through a queue: which execution, for which try, due when.

    `epoch` is diagnostic: dispatch writes no rows. `hops` counts the sends on behalf of this
    try by functions that feed their own queue.
    """

    execution_id: ExecutionId
    attempt: int
    due_at: datetime
    hops: int = 0
    epoch: int = 0
    traceparent: str | None = None


def check_name(name: str, value: str) -> None:
    """Refuse a name that is empty, longer than 128 characters, or not printable."""
    if (
        not 1 <= len(value) <= limits.NAME_MAX_CHARS
        or not value.isprintable()
        or value != value.strip()
    ):
        raise Rejected(
            field=name,
            value=value,
            reason=f"not 1–{limits.NAME_MAX_CHARS} printable characters without spaces at its ends",
        )
