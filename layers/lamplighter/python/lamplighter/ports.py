"""What the services need of the world: each docstring is the contract.

`tests/contract` holds every implementation to it, in memory and on AWS; a new rule is a new
case there first. Any call may raise Unavailable; then whether a write took effect is unknown,
and every caller is written so that doing it again is harmless. Damaged, a kind of it, is what
cannot be read back: what was asked for by name raises it, lists and pages leave it out, and
telemetry is told each time.
"""

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from lamplighter.core.buckets import ExecutionId, JobId, Minute, Position, minute_of, start_of
from lamplighter.core.clock_offset import Bounds
from lamplighter.core.errors import Damaged
from lamplighter.core.forecast import Capacity
from lamplighter.core.lanes import Rules
from lamplighter.core.lease import (
    Backlog,
    Grant,
    Held,
    Intent,
    Layout,
    Layouts,
    Progress,
    Ticker,
    Void,
    Work,
    WorkItem,
)
from lamplighter.core.limits import (
    DEFAULT_PARTITIONS,
    DEFAULT_SHARDS,
    DRAIN_PER_SECOND,
    PARKED_FOR,
)
from lamplighter.core.misfire import Gap
from lamplighter.core.model import (
    Arrival,
    Execution,
    Job,
    Message,
    Owner,
    Payload,
    PayloadRef,
    Pointer,
    Row,
    Token,
    Watch,
)
from lamplighter.core.notices import Notice
from lamplighter.core.permits import Bound, Key, Limits, Permit, Use
from lamplighter.core.quotas import Empty, Lease, Quota, Quotas, Rate, Taken, Usage
from lamplighter.core.waits import Boot
from lamplighter.core.writes import OwnWrite


class Clock(Protocol):
    """The time of this host."""

    def now(self) -> datetime:
        """The wall clock: aware, UTC. Only ever compared with what is due."""
        ...

    def monotonic(self) -> float:
        """Seconds from an arbitrary start, never set back: for durations and time-outs."""
        ...

    def sleep(self, duration: timedelta) -> None:
        """Return once the wall clock is at least this much later."""
        ...


class ClockOffset(Protocol):
    """How far this host's wall clock is off, as the services that it talks to prove it."""

    def bounds(self) -> Bounds | None:
        """What is known now; None: too little, as after a start or a jump of the clocks."""
        ...

    def measure(self) -> None:
        """Ask a service, so that more is known; nothing, when that was done a moment ago."""
        ...


class Chance(Protocol):
    """Randomness, so that a simulation can repeat it."""

    def hash(self) -> int:
        """70 random bits, for an id."""
        ...

    def token(self) -> Token:
        """128 random bits, for a claim."""
        ...

    def jitter(self) -> float:
        """Uniform over [0.5, 1.5)."""
        ...


@dataclass(frozen=True, kw_only=True)
class Page:
    """Rows in (after, reached], from every shard asked, in order of position."""

    rows: Sequence[Row]
    reached: Position
    damaged: Sequence[Damaged] = ()
    """What lies there too and cannot be read back; it keeps nothing else from going on."""


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """A conditional write that wrote nothing, and the row as it was found; None: no row."""

    found: Execution | None


@dataclass(frozen=True, kw_only=True)
class KeyRecord:
    """What an idempotency key was first used for, and what was answered."""

    owner: Owner
    key: str
    fingerprint: str
    """A digest of the canonical body: another body under the same key is refused."""
    job_id: JobId
    answer: str
    """JSON text."""
    created_at: datetime


class Executions(Protocol):
    """The rows that are due, and what happens to each.

    Every read is strongly consistent unless it says otherwise.
    """

    def put(self, rows: Sequence[Execution]) -> Sequence[Execution]:
        """Make each row that does not exist; the answer has, in order, the row as it now is.

        A row of an earlier version of its job of which nothing has come gives way
        (`planning.supersedes`, P19). Of one that is damaged the answer is the row as planned:
        it is there, and the chain goes on behind it.
        Each row is atomic by itself. After a crash or Unavailable any of them may exist.
        """
        ...

    def point(self, pointers: Sequence[Pointer | Watch]) -> None:
        """Make each pointer row; one that exists is left as it is.

        But a watch that `has_more` to tell than the one in its place takes that.
        """
        ...

    def get(self, id: ExecutionId) -> Execution | None:
        """The row, or None."""
        ...

    def get_many(
        self, ids: Collection[ExecutionId], *, strongly: bool = False
    ) -> Mapping[ExecutionId, Execution]:
        """The rows that exist, eventually consistent unless `strongly`: for lists and history."""
        ...

    def due(
        self, minute: Minute, shards: Sequence[int], *, after: Position, until: Position, limit: int
    ) -> Page:
        """Rows of a minute's shards in (after, until], in order of position, about `limit`.

        `reached` is as far as every shard was read: `until` when nothing is left, else a
        position before which no row was left out. A page may hold fewer rows than limit and
        still not have reached `until`; it always gets further than `after`.
        """
        ...

    def sample(
        self, minute: Minute, shard: int, *, queue: str, until: Position, limit: int
    ) -> Sequence[Position]:
        """Where what waits of a lane lies in one shard of a minute, up to `until`, latest first.

        Of the last `limit` rows there, those that are SCHEDULED in the lane. Eventually
        consistent, and quickly given up: raises Unavailable without a second try.
        """
        ...

    def claim(
        self,
        id: ExecutionId,
        *,
        attempt: int,
        token: Token,
        worker: str,
        now: datetime,
        lease_until: datetime,
        arrival: Arrival | None = None,
    ) -> Execution | Refusal:
        """Take the execution for one try; of any number of callers exactly one wins.

        Wins if the row is SCHEDULED, RETRYING or BLOCKED, its attempt is this one, and it is
        due at `now` (P10). The row is then RUNNING under the token.
        """
        ...

    def take_over(
        self,
        holder: Execution,
        *,
        token: Token,
        worker: str,
        now: datetime,
        lease_until: datetime,
        arrival: Arrival | None = None,
    ) -> Execution | Refusal:
        """Take a RUNNING execution from a silent holder; exactly one caller wins.

        Wins if the row still has the holder's token and lease. It then has the crash in its
        history (`outcome.taken_over`) and a new token.
        """
        ...

    def extend(self, id: ExecutionId, *, token: Token, lease_until: datetime) -> Execution:
        """Move the lease's end; the answer tells whether a cancel was requested.

        Raises LostClaim when the token no longer holds the row.
        """
        ...

    def settle(
        self,
        after: Execution,
        *,
        token: Token,
        job_version: int | None = None,
        lease_until: datetime | None = None,
    ) -> Execution:
        """Write what a try led to, on condition that the token holds the row.

        With `job_version`, also on condition that the job still has it: raises VersionMoved
        when it has moved on. With `lease_until`, instead of that, also on condition that no beat
        has moved the lease from there. Raises LostClaim when the token no longer holds the row,
        or its holder has beaten. Handing a try over twice is fine: what was heard of it since
        stays (P9).
        """
        ...

    def end(
        self, before: Execution, after: Execution, *, job_version: int | None = None
    ) -> Execution | Refusal:
        """Make a row that no worker holds final.

        On condition that its state and attempt are those of `before`; of a RUNNING one, which
        is then ended over its holder's head, also its token and lease; of one that is SKIPPED
        for another, also its predecessor (P16). With `job_version` as in `settle`: raises
        VersionMoved; then also on condition that no edit has taken over one that waits (P19).
        The answer has the row's waiters.
        """
        ...

    def block(self, after: Execution, *, token: Token, alone: bool) -> Execution | Refusal:
        """Make a RUNNING row BLOCKED, and a waiter of its blocker, both or neither (P14).

        A Refusal when the blocker has ended, its row with it; with `alone` when it is BLOCKED
        too (P15). Raises LostClaim when the token no longer holds the row. The answer has the
        row's own waiters.
        """
        ...

    def amend(self, before: Execution, after: Execution) -> Execution | Refusal:
        """Put a one-off's next version in the place of `before`, whole.

        On condition that the row is SCHEDULED and at the version of `before`: so of a claim
        and any number of amendments that meet, one finds it so. Doing it twice is fine.
        """
        ...

    def move(self, before: Execution, after: Execution, *, now: datetime) -> Execution | Refusal:
        """Have a one-off run as `after`, a row of its own, and not as `before`: one transaction.

        On the condition of `amend`. `before` ends CANCELLED (`outcome.moved`), and the row that
        the job's id leads to points at `after`, on condition that it pointed at `before`. Doing
        it twice is fine (P20).
        """
        ...

    def request_cancel(self, id: ExecutionId, *, now: datetime) -> Execution | Refusal:
        """Ask a RUNNING execution's handler to stop; its next beat sees it.

        Asked again, the first request's instant stays.
        """
        ...

    def mark_told(self, id: ExecutionId, *, now: datetime) -> None:
        """Note that the owner was told that it needs attention; the first instant stays.

        Nothing when the row is gone.
        """
        ...

    def mark_last(self, id: ExecutionId, *, decided_at: datetime) -> None:
        """Note since when it is decided that nothing follows it; the first instant stays.

        Nothing when the row is gone.
        """
        ...

    def count_undeliverable(self, id: ExecutionId) -> Execution | None:
        """Add one to the times that its message landed in a dead-letter queue."""
        ...

    def put_payload(self, id: JobId, payload: Payload, *, kept_until: datetime | None) -> None:
        """Keep a payload as an item of its own, before the row that refers to it."""
        ...

    def get_payload(self, id: JobId, version: int) -> str:
        """The JSON text of a payload kept so."""
        ...

    def of_owner(
        self, owner: Owner, *, before: Position | None, limit: int
    ) -> Sequence[ExecutionId]:
        """An owner's executions before a position, newest run_at first, eventually consistent.

        Those that were moved are left out. Fewer than limit means that there are no more.
        """
        ...

    def additional_of(
        self, job: JobId, *, before: Position | None, limit: int
    ) -> Sequence[ExecutionId]:
        """As `of_owner`, those of a job that no slot of its schedule has.

        Run by hand, backfilled, or replayed.
        """
        ...

    def needing_attention(
        self, owner: Owner, *, before: Position | None, limit: int
    ) -> Sequence[ExecutionId]:
        """As `of_owner`, only those FAILED, DEAD_LETTERED or EXPIRED."""
        ...


class Jobs(Protocol):
    """Definitions of recurring jobs; and the one write that creates anything."""

    def create(
        self,
        *,
        first: Execution,
        job: Job | None = None,
        key: KeyRecord | None = None,
        quota: Quota | None = None,
    ) -> KeyRecord | None:
        """Make the first row, the job and the key, all or none; durable once it returns.

        None when all were made, or had been by an earlier try of this very call. When the
        key exists, nothing is written and its record is the answer. A job that `is_counted`
        is counted in the same write: raises OverQuota when that exceeds its owner's `quota`
        of live jobs or payload bytes. Of any number of callers as many get in as there is
        room for.
        """
        ...

    def join(
        self,
        rows: Sequence[Execution],
        *,
        job: Job,
        armed: Execution | None,
        key: KeyRecord | None = None,
    ) -> KeyRecord | None:
        """Make at most 90 rows, a part of their job's chain, at its end: all or none (P16).

        The last of them becomes the predecessor of `armed`, which is then of the job's version,
        on condition that this one is SCHEDULED and has the predecessor that it has here;
        without `armed` it becomes the tail of the job, on condition that this is the one that
        it has here. Raises ChainMoved when the condition does not hold, VersionMoved when the
        job has another version. The key, and an earlier try of this very call, are as in
        `Jobs.create`.
        """
        ...

    def record_of(self, owner: Owner, key: str) -> KeyRecord | None:
        """What an idempotency key was used for."""
        ...

    def get(self, id: JobId) -> Job | None:
        """The current definition, strongly consistent."""
        ...

    def get_many(self, ids: Collection[JobId]) -> Mapping[JobId, Job]:
        """The current definitions, strongly consistent; those that exist.

        A damaged one is there as one that no release can read: `Job.unreadable` says why, and
        nothing else of it means anything.
        """
        ...

    def delete(self, job: Job) -> Job:
        """Mark the job DELETED with the next version, and count it no more, in one write.

        Raises VersionMoved when its version is no longer the one given.
        """
        ...

    def revise(
        self,
        before: Job,
        after: Job,
        *,
        first: Execution | None = None,
        armed: Execution | None = None,
        quota: Quota | None = None,
    ) -> Job | Refusal:
        """Put the job's next version in the place of `before`, and its first row, or neither.

        `before` is kept among its versions. Raises VersionMoved when the job is no longer at
        the version of `before`; a Refusal when the first row's place is taken by one that
        does not give way; ChainMoved when the job's tail is not the one given here, or
        `armed` is not SCHEDULED any more or has another predecessor (P16). Writing the same
        revision twice is fine (P18). Of a job that `is_counted`, what its payload grows by is
        counted in the same write: raises OverQuota when that exceeds its owner's `quota`.
        """
        ...

    def versions(self, id: JobId, *, before: int, limit: int) -> Sequence[Job]:
        """Earlier versions of a job than this one, newest first."""
        ...

    def of_owner(self, owner: Owner, *, before: Position | None, limit: int) -> Sequence[Job]:
        """An owner's jobs created before a position, newest first, eventually consistent.

        DELETED ones are left out. Fewer than limit means that there are no more.
        """
        ...


class Tally(Protocol):
    """What owners are counted to have, and their buckets of submissions.

    Nobody asks it about an owner without a quota.
    """

    def usage(self, owner: Owner) -> Usage:
        """What an owner is counted to have, strongly consistent."""
        ...

    def reserve(self, owner: Owner, quota: Quota, more: Usage, *, now: datetime) -> None:
        """Count so many executions, and their payloads, as queued, or raise OverQuota.

        Of any number of callers as many get in as there is room for. What is counted stays
        so, whether or not it was made, until a recount. Over half of a quota the count is
        marked, now and then (`quotas.Mark`): a recount is about what was counted by a mark.
        """
        ...

    def recount(self, owner: Owner, *, now: datetime) -> bool:
        """Count anew what of an owner's is queued, by the rows that there are.

        What was counted since the mark before counts beside what is found, so that the count
        is never too low: only by what took longer than RECOUNT_AFTER from its reservation
        until it could be seen. False, and nothing is counted, when that mark is not so old yet;
        where there is none, one is made.
        Eventually consistent; after a crash in it the count is as it was.
        """
        ...

    def take(
        self, owner: Owner, rate: Rate, *, least: int, most: int, now: datetime
    ) -> Taken | Empty:
        """Take tokens out of an owner's bucket, as `quotas.take` says; exact for any callers.

        After Unavailable they may have been taken.
        """
        ...


class Control(Protocol):
    """Who dispatches what, and how far: every write here is fenced by an epoch."""

    def layouts(self, default: Layout, *, anew: bool = False) -> Layouts:
        """The layouts that there are; the first caller ever makes `default` the only one.

        May be as they were up to a minute ago, unless `anew`.
        """
        ...

    def revise_layouts(self, before: Layouts, after: Layouts) -> bool:
        """Put other layouts in the place of these; False, and nothing, if they are not these."""
        ...

    def acquire(
        self,
        work: Work,
        *,
        owner: str,
        now: datetime,
        until: datetime,
        start: Position,
        armed_by: int | None = None,
    ) -> Grant | Held | Void:
        """Take the lease if nobody holds it at `now`; exactly one of any number of callers.

        A grant's epoch is higher than every earlier one's. Work never done before has its
        watermark at `start`. With `armed_by`, Void when a grant later than that epoch has
        advanced as the one that armed the next item (`Grant.armed`).
        """
        ...

    def advance(
        self,
        grant: Grant,
        *,
        watermark: Position,
        intent: Intent | None,
        until: datetime,
        backlog: Backlog | None = None,
    ) -> Grant:
        """Commit how far it is done, declare the next intent, renew the lease, in one write.

        `until` = now gives the lease back: the next owner gets in at once. What the grant says
        of arming is written with it. Raises LostLease, and writes nothing, when the epoch is no
        longer the grant's.
        """
        ...

    def rewind(self, grant: Grant, *, to: Progress, intent: Intent | None, until: datetime) -> None:
        """As `advance`, but that the watermark may go back: after a restore, by its operator.

        Nobody else may: what lies behind a watermark is the sweep's (P6). Raises LostLease.
        """
        ...

    def progress(self, works: Collection[Work]) -> Mapping[Work, Progress]:
        """How far each work was done; those never begun are left out."""
        ...


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """How far a handler has come, as it says."""

    text: str
    """JSON."""
    number: int
    """Of the checkpoints of one claim, rising."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """What a handler does once: the same for every try, and for a replay with the same payload."""

    owner: Owner
    idempotent_as: str
    """The execution's idempotency key."""
    key: str
    """1-255 printable characters."""


class Ledger(Protocol):
    """What handlers write down of their work, and what they write of their own with its end."""

    def save(
        self, id: ExecutionId, checkpoint: Checkpoint, *, token: Token, kept_until: datetime
    ) -> None:
        """Put a checkpoint in the place of the last one, on condition that the token holds the row.

        Raises LostClaim, and writes nothing, when it does not. One that arrives after a later
        one of the same claim is passed over. Doing it twice is fine.
        """
        ...

    def saved(self, id: ExecutionId) -> str | None:
        """The last checkpoint's text, strongly consistent."""
        ...

    def record(self, step: Step, result: str, *, kept_until: datetime) -> str:
        """Keep a result, unless there is one; the answer is the one that is kept.

        Of any number of callers exactly one's stays, and all are answered with it. No token is
        asked for: what a step has done is so, whoever did it.
        """
        ...

    def recorded(self, step: Step) -> str | None:
        """The result that is kept, strongly consistent."""
        ...

    def complete(
        self, after: Execution, *, token: Token, writes: Sequence[OwnWrite], call: str
    ) -> Execution:
        """`Executions.settle` and the handler's own writes, all of them or none.

        Raises LostClaim when the token no longer holds the row; WritesRefused when a condition
        of theirs does not hold; Permanent for what no DynamoDB takes, and Retryable for what it
        does not take yet, such as for want of a permission. Said again with the same `call`
        within ten minutes it changes nothing more; and later it cannot, for the token is gone.
        """
        ...


class Permits(Protocol):
    """Limits of what runs at once, and who has a place under each (`core/permits.py`).

    Every write of a key is one conditional write of one item: of any number of callers as many
    get in as there is room for, at any instant. None waits for another.
    """

    def limits(self, *, anew: bool = False) -> Limits:
        """All of them; may be as they were up to 10 s ago, unless `anew`.

        Older, too, while the service does not answer: Unavailable only where none were read yet.
        """
        ...

    def revise(self, before: Limits, after: Limits) -> bool:
        """Put other limits in the place of these; False, and nothing, if they are not these.

        What is changed holds for each key from this write on. But a key that had no limit is
        taken note of within 10 s, and who runs by then without a place is not counted.
        """
        ...

    def acquire(self, bound: Bound, permit: Permit, *, until: datetime) -> Use | None:
        """Take a place, or keep the one that it has; None: it has one, to be looked at at `until`.

        Else nothing is written, and the answer is what was found: as many are in as may be. The
        key's own limit is what counts; where it has none, that of the bound.
        """
        ...

    def release(self, key: Key, permit: Permit) -> Use:
        """Give a place back; the answer is as it is then. Giving back what is not there is fine."""
        ...

    def renew(self, key: Key, found: Use, until: Mapping[Permit, datetime | None]) -> bool:
        """Have each of these looked at then, or, None, give its place to others.

        On condition that all of them are as they were found: False, and nothing, if not.
        """
        ...

    def wait(self, key: Key, id: ExecutionId, *, kept_until: datetime) -> Use:
        """Note that an execution waits for a place; the answer is as it is after that.

        Who gives a place back later than that finds it noted. Noted twice, it waits once.
        """
        ...

    def next_waiting(self, key: Key, *, most: int, seen: Use) -> Sequence[ExecutionId]:
        """Strike some off the list of those that wait, the first due first.

        Of any number of callers exactly one gets each. None: nobody waits, as far as `seen` tells.
        """
        ...

    def uses(self, keys: Collection[Key]) -> Mapping[Key, Use]:
        """How each key stands, strongly consistent; those that nobody ever took are left out."""
        ...

    def waiting(self, key: Key, *, most: int) -> int:
        """How many are noted to wait, counted up to `most`: some may have ended meanwhile."""
        ...


@dataclass(frozen=True, kw_only=True)
class Upload:
    """A request by which a caller, without any other right, uploads one object."""

    method: str
    url: str
    headers: Mapping[str, str]
    """To be sent exactly so: they are part of what was granted."""


@dataclass(frozen=True, kw_only=True)
class Stored:
    """One version of an object, as it is kept."""

    version_id: str
    size: int
    sha256: str | None
    """Lower-case hex, of the whole object; None where it was kept without."""


class Payloads(Protocol):
    """The stack's own bucket: what is too large for an item, as versions that never change.

    A version is there until somebody deletes that very version, or for a good while after
    its object was replaced or deleted.
    """

    def offer(
        self, key: str, *, size: int, sha256: str, content_type: str, open_for: timedelta
    ) -> Upload:
        """A place to upload to, for bytes of exactly this size and digest (lower-case hex).

        Nothing is written. The upload's answer says in `x-amz-version-id` which version it
        made. It is refused with 412 once the key has an object: uploading twice makes one.
        """
        ...

    def look(self, key: str, version_id: str | None) -> Stored | None:
        """What lies under a key: this version of it, or the latest; None: nothing."""
        ...

    def fetch(self, ref: PayloadRef, *, within: timedelta) -> bytes | None:
        """That version's bytes, as they are, but no more than one beyond `ref.size`.

        None when it is not there. Raises Unavailable, too, when they have not all come in
        time, or may not be read.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Outgoing:
    """A message on its way to a lane."""

    queue: str
    message: Message
    owner: Owner | None = None
    """Whose execution it is, for a lane that is fair: it is not in the message. None: not known,
    and the message counts as somebody's own."""


@dataclass(frozen=True, kw_only=True)
class Received:
    """A message in a worker's hands, invisible to others for a while."""

    queue: str
    message: Message
    receipt: str
    receive_count: int = 1
    sent_at: datetime | None = None
    """By the queue's clock; None where that does not tell."""
    via: str | None = None
    """The name of the queue itself, of a lane that has several; None where nothing tells."""


class Queue(Protocol):
    """The lanes, and the queue of partition work.

    A lane that is fair hands out what belongs to owners who have little of it in hand before
    what belongs to one who has much; it keeps nobody's messages back. How soon it notices, and
    what much is, is the queue's own.
    """

    def send(self, outgoing: Sequence[Outgoing], *, now: datetime) -> None:
        """Send every message, each invisible until about its due_at (`timing.delay_s`).

        When it returns, all are sent. After a crash or Unavailable any of them may be.
        """
        ...

    def hide(self, received: Sequence[Received], duration: timedelta) -> None:
        """Keep the messages from others for this long from now, 0 … 12 h.

        One that is gone is passed over. All of them come from one lane.
        """
        ...

    def delete(self, received: Sequence[Received]) -> None:
        """Remove the messages for good; one that is gone is passed over.

        All of them come from one lane.
        """
        ...

    def waiting(self, queue: str) -> int:
        """About how many messages of a lane are visible and not taken."""
        ...

    def hand_out(self, items: Iterable[WorkItem], *, delay: timedelta = timedelta(0)) -> None:
        """Send work items, invisible for so long, 0 … 900 s; any may arrive twice or late."""
        ...


class Notices(Protocol):
    """How owners are told that an execution of theirs needs attention."""

    def tell(self, notice: Notice) -> None:
        """Hand a notice to whatever carries it; it is carried once this returns, or twice.

        Raises Unavailable when it was not taken, for whatever reason, or perhaps in part.
        """
        ...


class Telemetry(Protocol):
    """One method for each thing worth counting; an implementation never raises."""

    def ticked(self, *, by: Ticker) -> None: ...
    def created(self, *, queue: str, directly: bool) -> None: ...
    def dispatched(self, *, partition: int, sent: int, pages: int, age: timedelta) -> None:
        """`age` is now − watermark as it was found: negative while dispatch is ahead of time."""
        ...

    def draining(self, *, partition: int, backlog: Backlog) -> None:
        """A visit left so much of a backlog to the next one."""
        ...

    def swept(self, *, partition: int, rows: int, age: timedelta) -> None:
        """`age` is how long ago what it came to was due: 90 to 150 s while all goes well.

        Told of a visit that failed, too.
        """
        ...

    def lost_lease(self, *, partition: int) -> None: ...
    def started(self, execution: Execution, *, lateness: timedelta) -> None: ...
    def finished(self, execution: Execution) -> None: ...
    def parked(self, execution: Execution, *, lasts: timedelta) -> None:
        """No worker has known its task in the version that it was made for; told at each look.

        `lasts` is how long nobody has: in a rolling deploy, a few minutes.
        """
        ...

    def told(self, execution: Execution) -> None:
        """Its owner was told that it needs attention."""
        ...

    def not_told(self, execution: Execution, error: Exception) -> None:
        """Its owner could not be told that it needs attention; that is tried again later."""
        ...

    def claim_lost(self, id: ExecutionId, *, reason: str) -> None: ...
    def late_result_refused(self, id: ExecutionId) -> None: ...
    def taken_over(self, execution: Execution) -> None: ...
    def recovered(self, execution: Execution, *, reason: str) -> None: ...
    def promoted(self, execution: Execution, *, to: str) -> None:
        """What waited for too long in its lane got a message in another one."""
        ...

    def no_permit(self, execution: Execution, *, of: Key) -> None:
        """What was claimed has to wait: as many as may run at once of a key do."""
        ...

    def undeliverable(self, id: ExecutionId, *, count: int) -> None: ...
    def forewarned(self, *, queue: str, lateness: timedelta) -> None:
        """Somebody was told at create that it will start late, by about so much."""
        ...

    def forewarning_failed(self, error: Exception) -> None:
        """Nobody knows whether a job that was made will start late; it was made all the same."""
        ...

    def unreadable(self, *, queue: str, body: str) -> None:
        """A message that is none of ours; its body is shown in part at most."""
        ...

    def broke(self, id: str, error: Exception) -> None:
        """A service did not answer, or a bug: the message is kept, its neighbours go on.

        `id` is the execution's; the message's own where that is all there is.
        """
        ...

    def clock_refused(self, off: Bounds, *, messages: int) -> None:
        """Work was not begun, for this host's clock is off by more than MAX_CLOCK_ERROR."""
        ...

    def gave_back(self, id: ExecutionId, *, time_left: timedelta) -> None:
        """A message was not begun: too little of the process's time was left for it."""
        ...

    def row_unreadable(self, damaged: Damaged) -> None:
        """An item cannot be read back: it is left where it is, and told of each time it is met."""
        ...

    def definition_unreadable(self, id: JobId, *, reason: str) -> None:
        """A job's schedule means nothing to this release: its executions wait until it does."""
        ...

    def passed_over(self, job: Job, gap: Gap) -> None:
        """Missed occurrences that are not run and have no rows; told again after a crash."""
        ...

    def missed(self, job: Job, count: int) -> None:
        """A ledger has slots that neither ran nor have a reason; told again by each that does."""
        ...

    def said(self, execution: Execution, line: str) -> None:
        """A line that an isolated handler wrote; masked and bounded by whoever read it."""
        ...

    def hung(self, execution: Execution) -> None:
        """A handler would not stop; its process ends."""
        ...


@dataclass(kw_only=True)
class Leases:
    """The tokens that this host holds: lost with it, and then nobody's."""

    of: dict[Owner, Lease] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Over looking at an owner's tokens and taking others."""


class _Unmeasured:
    """Of a host that is not measured: nothing is known, ever."""

    def bounds(self) -> Bounds | None:
        return None

    def measure(self) -> None:
        return None


@dataclass(frozen=True, kw_only=True)
class Ports:
    """All of them, as a use case takes them."""

    clock: Clock
    chance: Chance
    executions: Executions
    jobs: Jobs
    tally: Tally
    control: Control
    payloads: Payloads
    ledger: Ledger
    permits: Permits
    queue: Queue
    telemetry: Telemetry
    shards: int = DEFAULT_SHARDS
    partitions: int = DEFAULT_PARTITIONS
    drain_per_second: float = DRAIN_PER_SECOND
    quotas: Quotas = field(default_factory=Quotas)
    capacity: Capacity = field(default_factory=Capacity)
    lanes: Rules = field(default_factory=dict)
    leases: Leases = field(default_factory=Leases)
    parked_for: timedelta = PARKED_FOR
    """How long what no worker knows waits for one that does."""
    notices: Notices | None = None
    """None: nobody is told, but by the lists."""
    clock_offset: ClockOffset = field(default_factory=_Unmeasured)
    boot: Boot | None = None
    """Of a worker: when its process began. None: nothing is known of that."""

    def layout(self) -> Layout:
        """The layout in force now: the one by whose shards a new id is made."""
        return self.layouts().at(self.clock.now())

    def layouts(self, *, anew: bool = False) -> Layouts:
        """All of them; these shards and partitions when there never was one."""
        # A minute back: another host, whose clock is behind, may be the first to put a row.
        beginning = start_of(Minute(minute_of(self.clock.now()) - 1))
        first = Layout(shards=self.shards, partitions=self.partitions, effective_from=beginning)
        return self.control.layouts(first, anew=anew)
