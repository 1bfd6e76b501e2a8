"""Jobs, executions and attempts: frozen values; an invalid one cannot be made."""

import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NewType

from lamplighter.core import limits
from lamplighter.core.buckets import (
    ExecutionId,
    JobId,
    Position,
    execution_of,
    occurrence_id,
    one_off_job_id,
)
from lamplighter.core.catch_up import CatchUp, CaughtUp
from lamplighter.core.deferral import CalledBack, Deferral
from lamplighter.core.errors import Rejected
from lamplighter.core.lifecycle import FINAL, State
from lamplighter.core.named import NamedTarget
from lamplighter.core.retry import Failure, RetryPolicy
from lamplighter.core.schedule import Schedule, UnreadableSchedule
from lamplighter.core.targets import HttpTarget
from lamplighter.core.waits import Waited

_MILLISECOND = timedelta(milliseconds=1)
Target = HttpTarget | NamedTarget
"""What a job may have called in place of a task."""
_NOTHING = ("{}", "null")  # a payload that was not given, or is none
_SHA256 = re.compile("[0-9a-f]{64}")

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

    FIRE_ALL = "FIRE_ALL"
    """A run for each missed slot, the oldest first, within the bounds of its job's `CatchUp`."""
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


class OnDeadline(StrEnum):
    """What becomes of an execution that has not started by its deadline."""

    DEAD_LETTER = "DEAD_LETTER"
    """It ends EXPIRED, and is shown among what needs attention."""
    SKIP = "SKIP"
    """It ends SKIPPED."""


class JobStatus(StrEnum):
    """Whether a definition makes occurrences."""

    ACTIVE = "ACTIVE"
    PAUSED = "PAUSED"
    """Until it is resumed: nothing that is claimed meanwhile starts."""
    DELETED = "DELETED"
    """For good: the definition stays, for its history."""


@dataclass(frozen=True, kw_only=True)
class PayloadRef:
    """One version of one object in the stack's own bucket, and what its bytes have to be."""

    key: str
    """With the prefix of its owner (`buckets.object_key`)."""
    version_id: str
    sha256: str
    """Lower-case hex."""
    size: int
    """In bytes, from 1."""

    def __post_init__(self) -> None:
        check_size("payload_ref.size", self.size)
        check_sha256("payload_ref.sha256", self.sha256)


@dataclass(frozen=True, kw_only=True)
class Payload:
    """The task's input as canonical JSON text, or where a large one is kept.

    `text` is None when the payload is an item of its own (over 512 bytes): then `version`
    completes its key, and `bytes` tells its size. It is None, too, when the payload is an
    object of the stack's bucket: then `ref` says which.
    """

    text: str | None
    bytes: int
    version: int = 1
    ref: PayloadRef | None = None

    def __post_init__(self) -> None:
        if self.ref is not None:
            if self.text is not None or self.bytes != self.ref.size:
                raise ValueError(f"a payload of {self.bytes} bytes that lies in {self.ref}")
        elif self.bytes > limits.PAYLOAD_MAX_BYTES:
            raise Rejected(
                field="payload",
                value=f"{self.bytes} bytes",
                reason=f"larger than {limits.PAYLOAD_MAX_BYTES} bytes: upload it, and send a "
                "payload_ref",
            )

    @classmethod
    def of(cls, text: str) -> "Payload":
        """The payload with its text at hand, whatever its size."""
        return cls(text=text, bytes=len(text.encode()))

    @classmethod
    def referring(cls, ref: PayloadRef) -> "Payload":
        """The payload that lies in the bucket."""
        return cls(text=None, bytes=ref.size, ref=ref)

    @property
    def is_inline(self) -> bool:
        """Whether it is small enough to lie in the row itself, and does."""
        return self.ref is None and self.bytes <= limits.PAYLOAD_INLINE_BYTES


@dataclass(frozen=True, kw_only=True)
class Spec:
    """What to run and under which policy; the same for every occurrence of a version."""

    task: str
    """Of a target, its `task_name`."""
    payload: Payload
    target: Target | None = None
    """None: the task of that name."""
    task_version: int | None = None
    """The version of the task that it is made for, from 1; None: whichever its worker has."""
    queue: str = "default"
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    retry_is_default: bool = False
    """Nobody gave `retry`: the task's own policy, where it has one, goes before it."""
    timeout: timedelta = limits.DEFAULT_TIMEOUT
    deadline: timedelta | None = None
    """How long past its run_at an execution may start for the first time; None: by default."""
    on_deadline: OnDeadline = OnDeadline.DEAD_LETTER

    def __post_init__(self) -> None:
        if self.target is not None:
            self._check_target(self.target)
        check_name("task", self.task)
        self._check_version()
        check_name("queue", self.queue)
        if not timedelta(seconds=1) <= self.timeout <= limits.MAX_TIMEOUT:
            raise Rejected(
                field="timeout_seconds",
                value=self.timeout.total_seconds(),
                reason=f"not in 1–{limits.MAX_TIMEOUT.total_seconds():g}",
            )
        low, high = limits.DEADLINE_RANGE
        if self.deadline is not None and not low <= self.deadline <= high:
            raise Rejected(
                field="deadline_seconds",
                value=self.deadline.total_seconds(),
                reason=f"not in {low.total_seconds():.0f}–{high.total_seconds():.0f}",
            )

    def retried_by(self, of_task: RetryPolicy | None) -> RetryPolicy:
        """The policy that a failed try goes by, where its task has this one, or none."""
        return of_task if self.retry_is_default and of_task is not None else self.retry

    def _check_version(self) -> None:
        if self.task_version is None:
            return
        if self.target is not None:
            raise Rejected(field="task_version", value=self.task_version, reason="only of a task")
        check_task_version(self.task_version)

    def _check_target(self, target: Target) -> None:
        if self.task != target.task_name:
            raise ValueError(f"{self.task!r} is not {target.task_name!r}, its target's name")
        if isinstance(target, NamedTarget):
            target.check_payload(self.payload.bytes)
        elif not target.has_body and self.payload.text not in _NOTHING:
            raise Rejected(
                field="payload",
                value=f"{self.payload.bytes} bytes",
                reason=f"a {target.method} sends none",
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
    catch_up: CatchUp = field(default_factory=CatchUp)
    overlap: OverlapPolicy = OverlapPolicy.ALLOW
    created_at: datetime
    effective_from: datetime | None = None
    """When this version replaced the one before it; None for the first. It plans no slot at or
    before this instant: neither an edit nor a resume is retroactive."""
    name: str | None = None
    tail: ExecutionId | None = None
    """The last of its chain, where no armed occurrence follows it (P16); None: look there."""
    is_counted: bool = False
    """Whether it is counted among its owner's live jobs, from its creation to its deletion."""

    @property
    def unreadable(self) -> str | None:
        """Why this release cannot tell when it is due; None: it can."""
        schedule = self.schedule
        return schedule.reason if isinstance(schedule, UnreadableSchedule) else None

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

    def occurrence(
        self,
        slot: datetime,
        *,
        now: datetime,
        sent_directly: bool,
        predecessor: ExecutionId | None = None,
        caught_up: CaughtUp | None = None,
    ) -> "Execution":
        """The execution of one slot, SCHEDULED; the same slot always has the same id.

        Its predecessor is kept where the job does not allow overlap.
        """
        return Execution(
            id=self.occurrence_id(slot),
            job_id=self.id,
            owner=self.owner,
            trigger=Trigger.SCHEDULE,
            job_version=self.version,
            task=self.spec.task,
            task_version=self.spec.task_version,
            queue=self.spec.queue,
            spec=None,
            scheduled_for=slot,
            run_at=self.run_at(slot),
            created_at=now,
            sent_directly=sent_directly,
            predecessor=None if self.overlap is OverlapPolicy.ALLOW else predecessor,
            caught_up=caught_up,
        )

    def produces(self, execution: "Execution") -> bool:
        """Whether this definition, as it is now, makes exactly this execution (P19).

        What this very version planned is its own, even if a zone database that came since
        would have planned it elsewhere: else a day's run would be lost with each change of law.

        Where executions must not overlap, what an earlier version armed for later than this
        one's beginning is not in its chain (P16): the chain, when it comes to that slot, takes
        its row over.
        """
        if self.status is not JobStatus.ACTIVE:
            return False
        if execution.job_version == self.version:
            return True
        is_in_the_chain = execution.scheduled_for <= self.since
        return (
            (is_in_the_chain or self.overlap is OverlapPolicy.ALLOW)
            and execution.id == self.occurrence_id(execution.scheduled_for)
            and self.schedule.contains(execution.scheduled_for)
        )


@dataclass(frozen=True, kw_only=True)
class Arrival:
    """How a try's message came to its worker."""

    sent_at: datetime
    """When it was sent, by the queue's clock."""
    received_at: datetime
    hold: timedelta = timedelta(0)
    """How long its worker then held it until it was due."""
    cold_start: timedelta = timedelta(0)
    """How much of its wait before that its worker's process took to begin."""


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
    arrival: Arrival | None = None
    """None where nothing tells."""
    handler_version: int | None = None
    """The version of the task that ran; None where no handler was called, or nobody told."""


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
    task_version: int | None = None
    """The version of the task that it was made for; None: whichever its worker has."""
    sent_directly: bool = False
    caught_up: CaughtUp | None = None
    """Its place in a catch-up, where a misfire policy armed it after its time."""
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
    """When the first try was claimed that went on to its handler, or may have."""
    arrival: Arrival | None = None
    """Of the latest try, until that has ended."""
    deferral: Deferral | None = None
    """Of a try that goes on without a worker, until that has ended."""
    called_back: CalledBack | None = None
    """How the last try ended whose callback token somebody may have."""
    parked_since: datetime | None = None
    """When a worker first found that it does not know its task, or that version of it. Kept until
    one that does has called the handler."""
    waited: Waited | None = None
    """What it had behind it when, before its first try, it last had to wait after a claim."""
    finished_at: datetime | None = None
    told_at: datetime | None = None
    """When its owner was told that it needs attention."""
    last_since: datetime | None = None
    """When it was decided that nothing follows it in its job's chain, where a misfire policy passed
    over all that was left; None: that was not decided."""
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
    moved_to: ExecutionId | None = None
    """Where a one-off went when it was given another time or lane: this row ended CANCELLED.
    The first row of a job, to which its id leads, has the latest place; any other the next."""

    is_counted: bool = False
    """Whether it is counted among its owner's queued executions, until it is final."""

    def __post_init__(self) -> None:
        running = self.state is State.RUNNING
        if running != (self.token is not None) or running != (self.lease_until is not None):
            raise ValueError(f"{self.id}: {self.state} with token {self.token!r}")
        if (self.state is State.RETRYING) != (self.next_run_at is not None):
            raise ValueError(f"{self.id}: {self.state} with next_run_at {self.next_run_at}")

    @property
    def due_at(self) -> datetime:
        """No try is meant to start before this: a catch-up's spread delays it, its message does."""
        starts_at = self.caught_up.starts_at if self.caught_up else self.run_at
        return self.next_run_at or max(starts_at, self.run_at)

    @property
    def idempotency_key(self) -> str:
        """The same for every try, and for every replay with the same payload."""
        return self.idempotent_as or self.id

    @property
    def payload_home(self) -> JobId:
        """Whose item a large payload is: the job's, or its own where it has a spec of its own."""
        has_its_own = self.spec is not None and self.trigger is not Trigger.ONE_OFF
        return one_off_job_id(self.id) if has_its_own else self.job_id

    @property
    def is_additional(self) -> bool:
        """Whether no slot of its job's schedule leads to it: by hand, backfilled, replayed."""
        return self.trigger in {Trigger.MANUAL, Trigger.BACKFILL, Trigger.REPLAY}

    @property
    def follows_job(self) -> bool:
        """Whether its job is a recurring one, of which it is asked when it is sent and claimed."""
        return execution_of(self.job_id) is None

    @property
    def is_final(self) -> bool:
        """Whether nothing can happen to it any more."""
        return self.state in FINAL

    @property
    def is_parked(self) -> bool:
        """Whether it waits for a worker that knows its task in the version it was made for."""
        return self.state is State.RETRYING and self.parked_since is not None

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
    owner: Owner | None = None
    """Whose execution it is; for a RETRY, whose message says so to a lane that is fair."""


@dataclass(frozen=True, kw_only=True)
class Watch:
    """A row that has a recurring job's ledger looked at, from the bucket of that minute.

    It tells how far the ledger was told, so the job's own row is only read. Of two that come to
    lie in the same place the one that has more to tell stays.
    """

    position: Position
    job_id: JobId
    at: datetime
    since: datetime
    """What became of the slots before this was told."""
    rest: "Rest | None" = None
    """Where it goes on with what was too much for one visit; None: with `since`."""


@dataclass(frozen=True, kw_only=True)
class Rest:
    """A walk through a ledger, newest first, that began at `until` and has come to a place."""

    until: datetime
    place: str
    """As `completeness.Place.text` writes it."""


Row = Execution | Pointer | Watch
"""Whatever lies in a bucket."""


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


def check_size(field: str, size: int) -> None:
    """Refuse a size in bytes that no payload by reference has."""
    if not 1 <= size <= limits.PAYLOAD_REF_MAX_BYTES:
        reason = f"not in 1–{limits.PAYLOAD_REF_MAX_BYTES} bytes"
        raise Rejected(field=field, value=size, reason=reason)


def check_sha256(field: str, text: str) -> None:
    """Refuse what is no SHA-256 in lower-case hex."""
    if not _SHA256.fullmatch(text):
        raise Rejected(field=field, value=text, reason="not 64 lower-case hexadecimal digits")


def check_task_version(version: int) -> None:
    """Refuse a number that no version of a task has."""
    if not 1 <= version <= limits.MAX_TASK_VERSION:
        reason = f"not in 1–{limits.MAX_TASK_VERSION}"
        raise Rejected(field="task_version", value=version, reason=reason)


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
