"""The durable ports in memory: the same contract, one lock, no network."""

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from lamplighter.core.buckets import (
    ExecutionId,
    JobId,
    Minute,
    Position,
    body_of,
    decode,
    execution_at,
    execution_of,
    minute_of,
)
from lamplighter.core.errors import (
    ChainMoved,
    Damaged,
    LostClaim,
    LostLease,
    NotFound,
    VersionMoved,
)
from lamplighter.core.lease import (
    Backlog,
    Grant,
    Held,
    Intent,
    Layout,
    Layouts,
    Progress,
    Void,
    Work,
)
from lamplighter.core.lifecycle import NEEDS_ATTENTION, Event, State, sources_of
from lamplighter.core.model import (
    Arrival,
    Execution,
    Job,
    JobStatus,
    Owner,
    Payload,
    Pointer,
    Row,
    Token,
    Watch,
)
from lamplighter.core.outcome import moved, taken_over
from lamplighter.core.planning import supersedes
from lamplighter.core.quotas import Mark, Quota, Usage
from lamplighter.core.schedule import Schedule, UnreadableSchedule
from lamplighter.core.watching import has_more
from lamplighter.ports import KeyRecord, Page, Refusal

_FRESH = sources_of(Event.CLAIM) - {State.RUNNING}


@dataclass(kw_only=True)
class Tables:
    """What the stores of one world share: all rows, and one lock over them."""

    executions: dict[ExecutionId, Execution] = field(default_factory=dict)
    pointers: dict[Position, Pointer | Watch] = field(default_factory=dict)
    payloads: dict[tuple[JobId, int], str] = field(default_factory=dict)
    jobs: dict[JobId, Job] = field(default_factory=dict)
    versions: dict[tuple[JobId, int], Job] = field(default_factory=dict)
    keys: dict[tuple[Owner, str], KeyRecord] = field(default_factory=dict)
    leases: dict[Work, "_Lease"] = field(default_factory=dict)
    layouts: Layouts | None = None
    accounts: dict[Owner, "Account"] = field(default_factory=dict)
    full_at_ns: dict[Owner, int] = field(default_factory=dict)
    """When each owner's bucket of submissions is full again."""
    lock: threading.RLock = field(default_factory=threading.RLock)
    damaged: dict[str, Damaged] = field(default_factory=dict)
    """What cannot be read back, by its id, and a pointer or a watch by its position."""
    unreadable: Callable[[Damaged], None] = lambda _: None
    """Told of each of these, each time that it is met."""
    buckets: dict[tuple[Minute, int], set[Position]] = field(default_factory=dict)
    """Which positions each shard of a minute holds, as a partition of the table does."""

    def make(self, row: Execution) -> Execution:
        """The row as it now is: this one, unless one is there that does not give way."""
        there = self.executions.get(row.id)
        if self.is_damaged(row.id):
            return _as_stored(row)
        if there is not None and not supersedes(row, there):
            return there
        self._place(body_of(row.id))
        self.executions[row.id] = _as_stored(row)
        return self.executions[row.id]

    def point(self, pointer: Pointer | Watch) -> None:
        """Make a pointer unless one is there that stays."""
        self._place(pointer.position)
        there = self.pointers.setdefault(pointer.position, pointer)
        if isinstance(pointer, Watch) and isinstance(there, Watch) and has_more(pointer, there):
            self.pointers[pointer.position] = pointer

    def row(self, id: ExecutionId) -> Execution | None:
        """An execution, or None; raises Damaged."""
        self.check(id)
        return self.executions.get(id)

    def check(self, key: str) -> None:
        """Raise Damaged for what is."""
        if self.is_damaged(key):
            raise self.damaged[key]

    def is_damaged(self, key: str) -> bool:
        """Whether something cannot be read back: if so, that is told."""
        found = self.damaged.get(key)
        if found is not None:
            self.unreadable(found)
        return found is not None

    def at(self, position: Position) -> Row:
        """The row at a position."""
        return self.pointers.get(position) or self.executions[execution_at(position)]

    def _place(self, position: Position) -> None:
        place = decode(position)
        self.buckets.setdefault((minute_of(place.at), place.shard), set()).add(position)

    def account(self, owner: Owner) -> "Account":
        """What an owner is counted to have."""
        return self.accounts.get(owner) or Account()

    def count(self, owner: Owner, quota: Quota, more: Usage) -> None:
        """Count so much more, or less, of what an owner has; raises OverQuota."""
        account = self.account(owner)
        account.usage.check(quota, more)
        self.accounts[owner] = replace(account, usage=account.usage.plus(more))

    def check_version(self, row: Execution, version: int | None) -> None:
        """Raise VersionMoved when a version is asked for and the job has another."""
        if version is None:
            return
        job = self.jobs.get(row.job_id)
        if job is None or job.version != version:
            raise VersionMoved(job_id=row.job_id, version=version)


@dataclass(frozen=True, kw_only=True)
class Account:
    """What an owner is counted to have."""

    usage: Usage = field(default_factory=Usage)
    queued_bytes: int = 0
    """Of the payload bytes, those of queued executions."""
    mark: Mark | None = None

    def marked(self, now: datetime) -> "Account":
        """The same with a mark at what is counted now."""
        mark = Mark(
            at=now, executions=self.usage.queued_executions, payload_bytes=self.queued_bytes
        )
        return replace(self, mark=mark)


class MemoryExecutions:
    """`ports.Executions` over a dictionary."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def put(self, rows: Sequence[Execution]) -> Sequence[Execution]:
        with self._tables.lock:
            return [self._tables.make(row) for row in rows]

    def point(self, pointers: Sequence[Pointer | Watch]) -> None:
        with self._tables.lock:
            for pointer in pointers:
                self._tables.point(pointer)

    def get(self, id: ExecutionId) -> Execution | None:
        with self._tables.lock:
            return self._tables.row(id)

    def get_many(
        self, ids: Collection[ExecutionId], *, strongly: bool = False
    ) -> Mapping[ExecutionId, Execution]:
        with self._tables.lock:
            rows = self._tables.executions
            return {id: rows[id] for id in ids if id in rows and not self._tables.is_damaged(id)}

    def due(
        self, minute: Minute, shards: Sequence[int], *, after: Position, until: Position, limit: int
    ) -> Page:
        with self._tables.lock:
            found = sorted(
                position
                for shard in shards
                for position in self._tables.buckets.get((minute, shard), ())
                if after < position <= until
            )
            page = found[:limit]
            damaged = [one for one in page if self._tables.is_damaged(self._key(one))]
            return Page(
                rows=[self._tables.at(one) for one in page if one not in damaged],
                damaged=tuple(self._tables.damaged[self._key(one)] for one in damaged),
                reached=until if len(found) <= limit else found[limit - 1],
            )

    def _key(self, position: Position) -> str:
        is_pointer = position in self._tables.pointers
        return position if is_pointer else execution_at(position)

    def sample(
        self, minute: Minute, shard: int, *, queue: str, until: Position, limit: int
    ) -> Sequence[Position]:
        with self._tables.lock:
            lie_there = self._tables.buckets.get((minute, shard), ())
            last = sorted((one for one in lie_there if one <= until), reverse=True)[:limit]
            rows = [(position, self._tables.at(position)) for position in last]
        return [
            position
            for position, row in rows
            if isinstance(row, Execution) and row.state is State.SCHEDULED and row.queue == queue
        ]

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
        with self._tables.lock:
            row = self._tables.row(id)
            is_ours = (
                row and row.state in _FRESH and row.attempt == attempt and _may_be_claimed(row, now)
            )
            if row is None or not is_ours:
                return Refusal(found=row)
            return self._write(
                _started(
                    row,
                    token=token,
                    worker=worker,
                    now=now,
                    lease_until=lease_until,
                    arrival=arrival,
                )
            )

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
        with self._tables.lock:
            row = self._tables.row(holder.id)
            is_silent = (
                row
                and row.state is State.RUNNING
                and (row.token, row.lease_until) == (holder.token, holder.lease_until)
            )
            if row is None or not is_silent:
                return Refusal(found=row)
            return self._write(
                _started(
                    taken_over(row),
                    token=token,
                    worker=worker,
                    now=now,
                    lease_until=lease_until,
                    arrival=arrival,
                )
            )

    def extend(self, id: ExecutionId, *, token: Token, lease_until: datetime) -> Execution:
        with self._tables.lock:
            row = self._held(id, token)
            # Forward only: a beat may arrive after the one that followed it.
            latest = max(lease_until, row.lease_until or lease_until)
            return self._write(replace(row, lease_until=latest))

    def settle(
        self,
        after: Execution,
        *,
        token: Token,
        job_version: int | None = None,
        lease_until: datetime | None = None,
    ) -> Execution:
        with self._tables.lock:
            row = self._held(after.id, token)
            if lease_until is not None and row.lease_until != lease_until:
                raise LostClaim(after.id)
            if after.deferral is not None and row.deferral is not None:
                if row.deferral != after.deferral:
                    raise LostClaim(after.id)
                return row
            self._tables.check_version(row, job_version)
            return self._write(_with_notes_of(row, after))

    def end(
        self, before: Execution, after: Execution, *, job_version: int | None = None
    ) -> Execution | Refusal:
        with self._tables.lock:
            row = self._tables.row(before.id)
            if row is None or not _is_as(row, before):
                return Refusal(found=row)
            gives_way = after.state is State.SKIPPED and after.blocker is not None
            if gives_way and row.predecessor != before.predecessor:
                return Refusal(found=row)
            waits = job_version is not None and before.state is State.SCHEDULED
            if waits and row.job_version != before.job_version:
                return Refusal(found=row)
            self._tables.check_version(row, job_version)
            return self._write(
                replace(
                    _with_notes_of(row, after),
                    cancel_requested_at=row.cancel_requested_at or after.cancel_requested_at,
                    # Of one that nobody holds it may have changed since it was read (P16).
                    predecessor=after.predecessor if row.token else row.predecessor,
                )
            )

    def block(self, after: Execution, *, token: Token, alone: bool) -> Execution | Refusal:
        if after.blocker is None:
            raise ValueError(f"{after.id} waits for nothing")
        with self._tables.lock:
            row = self._held(after.id, token)
            blocker = self._tables.row(after.blocker)
            if blocker is None or blocker.is_final or (alone and blocker.state is State.BLOCKED):
                return Refusal(found=blocker)
            self._write(replace(blocker, waiters=blocker.waiters | {after.id}))
            return self._write(_with_notes_of(row, after))

    def amend(self, before: Execution, after: Execution) -> Execution | Refusal:
        with self._tables.lock:
            row = self._tables.row(before.id)
            if row is not None and row == _as_stored(after):
                return row
            if row is None or not _waits_as(row, before):
                return Refusal(found=row)
            return self._write(replace(after, undeliverable=row.undeliverable))

    def move(self, before: Execution, after: Execution, *, now: datetime) -> Execution | Refusal:
        first = execution_of(before.job_id)
        with self._tables.lock:
            rows = self._tables.executions
            row, leads = rows.get(before.id), rows.get(first) if first else None
            if row is not None and row.moved_to == after.id:
                return rows[after.id]
            if row is None or leads is None or not _waits_as(row, before):
                return Refusal(found=row)
            if leads.id != row.id:
                if leads.moved_to != row.id:
                    return Refusal(found=leads)
                self._write(replace(leads, moved_to=after.id))
            self._write(moved(row, to=after.id, now=now))
            return self._tables.make(after)

    def request_cancel(self, id: ExecutionId, *, now: datetime) -> Execution | Refusal:
        with self._tables.lock:
            row = self._tables.row(id)
            if row is None or row.state is not State.RUNNING:
                return Refusal(found=row)
            return self._write(replace(row, cancel_requested_at=row.cancel_requested_at or now))

    def mark_told(self, id: ExecutionId, *, now: datetime) -> None:
        with self._tables.lock:
            row = self._tables.row(id)
            if row is not None:
                self._write(replace(row, told_at=row.told_at or now))

    def mark_last(self, id: ExecutionId, *, decided_at: datetime) -> None:
        with self._tables.lock:
            row = self._tables.executions.get(id)
            if row is not None:
                self._write(replace(row, last_since=row.last_since or decided_at))

    def count_undeliverable(self, id: ExecutionId) -> Execution | None:
        with self._tables.lock:
            row = self._tables.row(id)
            return row and self._write(replace(row, undeliverable=row.undeliverable + 1))

    def put_payload(self, id: JobId, payload: Payload, *, kept_until: datetime | None) -> None:
        if payload.text is None:
            raise ValueError(f"the payload of {id} has no text to keep")
        with self._tables.lock:
            self._tables.payloads.setdefault((id, payload.version), payload.text)

    def get_payload(self, id: JobId, version: int) -> str:
        with self._tables.lock:
            text = self._tables.payloads.get((id, version))
        if text is None:
            raise NotFound(kind="payload", id=id)
        return text

    def of_owner(
        self, owner: Owner, *, before: Position | None, limit: int
    ) -> Sequence[ExecutionId]:
        with self._tables.lock:
            rows = [
                row.id
                for row in self._tables.executions.values()
                if row.owner == owner and row.moved_to is None
            ]
        return _newest(rows, before, limit)

    def additional_of(
        self, job: JobId, *, before: Position | None, limit: int
    ) -> Sequence[ExecutionId]:
        with self._tables.lock:
            rows = [
                row.id
                for row in self._tables.executions.values()
                if row.job_id == job and row.is_additional
            ]
        return _newest(rows, before, limit)

    def needing_attention(
        self, owner: Owner, *, before: Position | None, limit: int
    ) -> Sequence[ExecutionId]:
        with self._tables.lock:
            rows = [
                row.id
                for row in self._tables.executions.values()
                if row.owner == owner and row.state in NEEDS_ATTENTION
            ]
        return _newest(rows, before, limit)

    def _held(self, id: ExecutionId, token: Token) -> Execution:
        row = self._tables.row(id)
        if row is None or row.state is not State.RUNNING or row.token != token:
            raise LostClaim(id)
        return row

    def _write(self, row: Execution) -> Execution:
        self._tables.executions[row.id] = _as_stored(row)
        return self._tables.executions[row.id]


def _with_notes_of(row: Execution, after: Execution) -> Execution:
    """What comes after a row, with what others may have noted on it since it was read."""
    return replace(
        after,
        cancel_requested_at=row.cancel_requested_at,
        waiters=row.waiters,
        last_since=row.last_since,
    )


def _is_as(row: Execution, before: Execution) -> bool:
    """Whether a row is as its caller read it, its holder too where it has one."""
    return (row.state, row.attempt, row.token, row.lease_until) == (
        before.state,
        before.attempt,
        before.token,
        before.lease_until,
    )


def _may_be_claimed(row: Execution, now: datetime) -> bool:
    # The spread of a catch-up is its messages' affair.
    return (row.next_run_at or row.run_at) <= now


def _started(
    row: Execution,
    *,
    token: Token,
    worker: str,
    now: datetime,
    lease_until: datetime,
    arrival: Arrival | None,
) -> Execution:
    return replace(
        row,
        arrival=arrival,
        state=State.RUNNING,
        token=token,
        worker=worker,
        lease_until=lease_until,
        next_run_at=None,
        started_at=now,
        first_started_at=row.first_started_at or now,
        deferral=None,
    )


def _waits_as(row: Execution, before: Execution) -> bool:
    """Whether a row still waits, at the version that it was read at."""
    return row.state is State.SCHEDULED and row.job_version == before.job_version


def _as_stored(row: Execution) -> Execution:
    """A row as it is read back: a large payload's text is an item of its own.

    A final one is not counted as queued any more.
    """
    if row.is_counted and row.is_final:
        row = replace(row, is_counted=False)
    if row.spec is None or row.spec.payload.is_inline:
        return row
    return replace(row, spec=replace(row.spec, payload=replace(row.spec.payload, text=None)))


def _newest(ids: list[ExecutionId], before: Position | None, limit: int) -> Sequence[ExecutionId]:
    return sorted((id for id in ids if before is None or body_of(id) < before), reverse=True)[
        :limit
    ]


class MemoryJobs:
    """`ports.Jobs` over dictionaries; creation is atomic under the tables' lock."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def create(
        self,
        *,
        first: Execution,
        job: Job | None = None,
        key: KeyRecord | None = None,
        quota: Quota | None = None,
    ) -> KeyRecord | None:
        with self._tables.lock:
            known = self._tables.keys.get((key.owner, key.key)) if key else None
            if known is not None and known != key:
                return known
            if job is not None and job.is_counted and job.id not in self._tables.jobs:
                made = Usage.of_job(job.spec.payload.bytes)
                self._tables.count(job.owner, quota or Quota(), made)
            if key is not None:
                self._tables.keys[key.owner, key.key] = key
            if job is not None:
                self._tables.jobs.setdefault(job.id, _job_as_stored(job))
            self._tables.make(first)
            return None

    def join(
        self,
        rows: Sequence[Execution],
        *,
        job: Job,
        armed: Execution | None,
        key: KeyRecord | None = None,
    ) -> KeyRecord | None:
        last = rows[-1].id
        with self._tables.lock:
            if key is not None:
                known = self._tables.keys.get((key.owner, key.key))
                if known is not None and known != key:
                    return known
            if all(row.id in self._tables.executions for row in rows):
                return None
            current = self._tables.jobs.get(job.id)
            if current is None or current.version != job.version:
                raise VersionMoved(job_id=job.id, version=job.version)
            if armed is None:
                if current.tail != job.tail:
                    raise ChainMoved(job_id=job.id)
                self._tables.jobs[job.id] = replace(current, tail=last)
            else:
                there = self._tables.executions.get(armed.id)
                if there is None or not _is_armed(there, armed):
                    raise ChainMoved(job_id=job.id)
                self._tables.executions[armed.id] = replace(
                    there, predecessor=last, job_version=job.version
                )
            if key is not None:
                self._tables.keys[key.owner, key.key] = key
            for row in rows:
                self._tables.make(row)
            return None

    def record_of(self, owner: Owner, key: str) -> KeyRecord | None:
        with self._tables.lock:
            return self._tables.keys.get((owner, key))

    def get(self, id: JobId) -> Job | None:
        with self._tables.lock:
            self._tables.check(id)
            return self._tables.jobs.get(id)

    def get_many(self, ids: Collection[JobId]) -> Mapping[JobId, Job]:
        with self._tables.lock:
            return {id: self._as_read(id) for id in ids if id in self._tables.jobs}

    def _as_read(self, id: JobId) -> Job:
        job = self._tables.jobs[id]
        if not self._tables.is_damaged(id):
            return job
        return replace(job, schedule=unreadable(job.schedule, str(self._tables.damaged[id])))

    def delete(self, job: Job) -> Job:
        with self._tables.lock:
            current = self._tables.jobs.get(job.id)
            if current is None or current.version != job.version:
                raise VersionMoved(job_id=job.id, version=job.version)
            if current.is_counted:
                gone = -Usage.of_job(current.spec.payload.bytes)
                self._tables.count(job.owner, Quota(), gone)
            deleted = replace(
                current, version=job.version + 1, status=JobStatus.DELETED, is_counted=False
            )
            self._tables.jobs[job.id] = deleted
            return deleted

    def revise(
        self,
        before: Job,
        after: Job,
        *,
        first: Execution | None = None,
        armed: Execution | None = None,
        quota: Quota | None = None,
    ) -> Job | Refusal:
        after = _job_as_stored(after)
        with self._tables.lock:
            current = self._tables.jobs.get(before.id)
            if current == after:
                return after
            if current is None or current.version != before.version:
                raise VersionMoved(job_id=before.id, version=before.version)
            if current.tail != before.tail:
                raise ChainMoved(job_id=before.id)
            if armed is not None:
                armed_now = self._tables.executions.get(armed.id)
                if armed_now is None or not _is_armed(armed_now, armed):
                    raise ChainMoved(job_id=before.id)
            if first is not None:
                there = self._tables.executions.get(first.id)
                if there is not None and not supersedes(first, there):
                    return Refusal(found=there)
            if before.is_counted:
                grown = Usage.grown(before.spec.payload.bytes, after.spec.payload.bytes)
                self._tables.count(before.owner, quota or Quota(), grown)
            if first is not None:
                self._tables.make(first)
            self._tables.versions[before.id, before.version] = current
            self._tables.jobs[before.id] = after
            return after

    def versions(self, id: JobId, *, before: int, limit: int) -> Sequence[Job]:
        with self._tables.lock:
            versions = self._tables.versions
            return [
                versions[id, version]
                for version in range(before - 1, 0, -1)
                if (id, version) in versions
            ][:limit]

    def of_owner(self, owner: Owner, *, before: Position | None, limit: int) -> Sequence[Job]:
        with self._tables.lock:
            jobs = [
                job
                for job in self._tables.jobs.values()
                if job.owner == owner
                and not self._tables.is_damaged(job.id)
                and job.status is not JobStatus.DELETED
                and (before is None or body_of(job.id) < before)
            ]
        return sorted(jobs, key=lambda job: job.id, reverse=True)[:limit]


def unreadable(schedule: Schedule, reason: str) -> UnreadableSchedule:
    """What a schedule counts as while nobody can read its job."""
    return UnreadableSchedule(
        kind=schedule.kind,
        text=schedule.text,
        timezone=schedule.timezone,
        seed=schedule.seed,
        stored="{}",
        reason=reason,
    )


def _is_armed(there: Execution, armed: Execution) -> bool:
    return there.state is State.SCHEDULED and there.predecessor == armed.predecessor


def _job_as_stored(job: Job) -> Job:
    if job.spec.payload.is_inline:
        return job
    payload = replace(job.spec.payload, text=None)
    return replace(job, spec=replace(job.spec, payload=payload))


@dataclass(frozen=True, kw_only=True)
class _Lease:
    until: datetime
    grant: Grant


class MemoryControl:
    """`ports.Control` over a dictionary of leases."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def layouts(self, default: Layout, *, anew: bool = False) -> Layouts:
        with self._tables.lock:
            self._tables.layouts = self._tables.layouts or Layouts(of=(default,))
            return self._tables.layouts

    def revise_layouts(self, before: Layouts, after: Layouts) -> bool:
        with self._tables.lock:
            if self._tables.layouts != before:
                return False
            self._tables.layouts = after
            return True

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
        with self._tables.lock:
            lease = self._tables.leases.get(work)
            if lease is None:
                grant = Grant(work=work, epoch=0, watermark=start, intent=None)
            elif armed_by is not None and armed_by < lease.grant.armed:
                return Void()
            elif lease.until > now:
                return Held(until=lease.until)
            else:
                grant = lease.grant
            grant = replace(grant, epoch=grant.epoch + 1)
            self._tables.leases[work] = _Lease(until=until, grant=grant)
            return grant

    def advance(
        self,
        grant: Grant,
        *,
        watermark: Position,
        intent: Intent | None,
        until: datetime,
        backlog: Backlog | None = None,
    ) -> Grant:
        with self._tables.lock:
            lease = self._tables.leases.get(grant.work)
            if lease is None or lease.grant.epoch != grant.epoch:
                raise LostLease(partition=grant.work.partition, epoch=grant.epoch)
            if watermark < lease.grant.watermark:
                raise ValueError(f"the watermark of {grant.work} does not go back")
            advanced = replace(grant, watermark=watermark, intent=intent, backlog=backlog)
            self._tables.leases[grant.work] = _Lease(until=until, grant=advanced)
            return advanced

    def rewind(self, grant: Grant, *, to: Progress, intent: Intent | None, until: datetime) -> None:
        with self._tables.lock:
            lease = self._tables.leases.get(grant.work)
            if lease is None or lease.grant.epoch != grant.epoch:
                raise LostLease(partition=grant.work.partition, epoch=grant.epoch)
            back = replace(grant, watermark=to.watermark, backlog=to.backlog, intent=intent)
            self._tables.leases[grant.work] = _Lease(until=until, grant=back)

    def progress(self, works: Collection[Work]) -> Mapping[Work, Progress]:
        with self._tables.lock:
            leases = self._tables.leases
            return {work: leases[work].grant.progress for work in works if work in leases}
