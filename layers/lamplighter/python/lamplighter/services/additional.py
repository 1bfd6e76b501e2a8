"""Executions beside the schedule: run by hand, backfilled, or replayed.

One function makes them all: durable before the answer, sent at once when due soon, and once
for each idempotency key.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from lamplighter.core.buckets import (
    ExecutionId,
    JobId,
    execution_id,
    execution_of,
    from_ms,
    ms_up,
    one_off_job_id,
    shard_of,
)
from lamplighter.core.errors import Conflict, KeyReused
from lamplighter.core.lease import Layout
from lamplighter.core.lifecycle import State
from lamplighter.core.limits import CHECK_SCHEDULED_AGAIN, SWEEP_AFTER
from lamplighter.core.model import (
    Execution,
    Job,
    JobStatus,
    OverlapPolicy,
    Owner,
    Spec,
    Trigger,
)
from lamplighter.core.timing import is_inside
from lamplighter.ports import KeyRecord, Ports
from lamplighter.services import admission, chain, inspect, timers
from lamplighter.services.submit import (
    IdempotencyKey,
    Replayed,
    keep_large_payload,
    kept_until,
)

# Rows that are put before the clock is looked at and their messages go out.
_AT_ONCE: Final = 100


@dataclass(frozen=True, kw_only=True)
class Run:
    """What is to run beside a job's schedule, when, and why."""

    owner: Owner
    job_id: JobId
    job_version: int
    trigger: Trigger
    task: str
    queue: str
    spec: Spec | None
    """None: as its job says when it is claimed."""
    scheduled_for: datetime
    run_at: datetime
    task_version: int | None = None
    replay_of: ExecutionId | None = None
    idempotent_as: ExecutionId | None = None
    traceparent: str | None = None


def job_to_run(ports: Ports, owner: Owner, id: JobId) -> Job:
    """The recurring job that something is to run for, paused or not.

    Raises NotFound; Conflict for a one-off and for a deleted job.
    """
    if execution_of(id) is not None:
        inspect.one_off_row(ports, owner, id)
        raise Conflict(reason=f"{id} is a one-off: once it has ended it can be replayed, no more")
    job = inspect.recurring_job(ports, owner, id)
    if job.status is JobStatus.DELETED:
        raise Conflict(reason=f"{id} is deleted")
    return job


def planned(
    ports: Ports,
    run: Run,
    *,
    now: datetime,
    hash_bits: int | None = None,
    layout: Layout | None = None,
) -> Execution:
    """The row of a run, not written yet; two with the same `hash_bits` and time are one.

    Whoever plans many asks once for the layout in force.
    """
    run_at = from_ms(ms_up(max(run.run_at, now)))
    bits = ports.chance.hash() if hash_bits is None else hash_bits
    return Execution(
        id=execution_id(run_at, shard_of(bits, (layout or ports.layout()).shards), bits),
        job_id=run.job_id,
        owner=run.owner,
        trigger=run.trigger,
        job_version=run.job_version,
        task=run.task,
        task_version=run.task_version,
        queue=run.queue,
        spec=run.spec,
        scheduled_for=run.scheduled_for,
        run_at=run_at,
        created_at=now,
        sent_directly=is_inside(run_at, now),
        traceparent=run.traceparent,
        replay_of=run.replay_of,
        idempotent_as=run.idempotent_as,
    )


def make(
    ports: Ports, row: Execution, key: IdempotencyKey[Execution] | None = None
) -> Execution | Replayed:
    """Write one row, and its key in the same transaction; then look at the clock (P1).

    Raises KeyReused when the key came with another body before, OverQuota when its owner may
    have no more, and Unavailable; after a crash
    there is the row with its key, or neither, and the sweep sends what was not sent.
    """
    if key is not None and (known := answered(ports, row.owner, key)):
        return known
    (row,) = admission.admitted(ports, [row])
    if row.spec is not None:
        keep_large_payload(
            ports, row.payload_home, row.spec.payload, kept_until=kept_until(row.run_at)
        )
    record = _record(row, key) if key else None
    timers.keep_in_sight(ports, row, ports.clock.now())
    if job := _chained(ports, row):
        earlier = chain.join(ports, job, [row], key=record)
    else:
        earlier = ports.jobs.create(first=row, key=record)
    if earlier is not None and key is not None:
        return _replayed(ports, earlier, key)
    look(ports, row)
    ports.telemetry.created(queue=row.queue, directly=row.sent_directly)
    return row


def answered(ports: Ports, owner: Owner, key: IdempotencyKey[Execution]) -> Replayed | None:
    """What a key was answered before, whatever may have changed since; raises KeyReused."""
    known = ports.jobs.record_of(owner, key.key)
    return _replayed(ports, known, key) if known else None


def make_many(
    ports: Ports, rows: Sequence[Execution], *, record: KeyRecord | None = None
) -> KeyRecord | None:
    """Write rows without payloads of their own, and send those that are due soon (P1).

    They were admitted, or some of them were before a crash.
    With a record, it and the first row are written first, in one transaction; when its key
    exists, nothing is written and the answer is the record that is there. After a crash or
    Unavailable any of the others may be missing: to make all of them again is harmless.
    """
    if job := _chained(ports, rows[0]):
        return _make_chain(ports, job, rows, record)
    if record is not None and (known := ports.jobs.create(first=rows[0], key=record)):
        return known
    for start in range(0, len(rows), _AT_ONCE):
        some = rows[start : start + _AT_ONCE]
        _book_checks(ports, some)
        send_waiting(ports, ports.executions.put(some))
    for row in rows:
        ports.telemetry.created(queue=row.queue, directly=row.sent_directly)
    return None


def _chained(ports: Ports, row: Execution) -> Job | None:
    """The job of a row that joins a chain; None where overlap is allowed, or there is no job."""
    job = None if execution_of(row.job_id) else ports.jobs.get(row.job_id)
    return None if job is None or job.overlap is OverlapPolicy.ALLOW else job


def _make_chain(
    ports: Ports, job: Job, rows: Sequence[Execution], record: KeyRecord | None
) -> KeyRecord | None:
    """As `make_many`, each after the one before it."""
    _book_checks(ports, rows)
    if known := chain.join(ports, job, rows, key=record):
        return known
    send_waiting(ports, rows)
    for row in rows:
        ports.telemetry.created(queue=row.queue, directly=row.sent_directly)
    return None


def send_waiting(ports: Ports, rows: Iterable[Execution]) -> None:
    """As `look`, for many: of what was made, all that still waits inside the line is sent."""
    now = ports.clock.now()
    waiting = [row for row in rows if row.state is State.SCHEDULED and is_inside(row.run_at, now)]
    # Its maker may have been frozen since it booked the others.
    _book_checks(ports, waiting)
    timers.send(ports, [timers.outgoing(row) for row in waiting])


def _book_checks(ports: Ports, rows: Sequence[Execution]) -> None:
    """Have the sweep look at rows that are made later than they are due.

    Their buckets may have been swept: if their maker died before it sent them, nobody would.
    """
    now = ports.clock.now()
    late = [row for row in rows if row.run_at <= now - SWEEP_AFTER]
    if late:
        ports.executions.point([timers.check(row, now + CHECK_SCHEDULED_AGAIN) for row in late])


def look(ports: Ports, row: Execution) -> None:
    """Look at the clock after a put, and send what lies inside the line (P1)."""
    now = ports.clock.now()
    if is_inside(row.run_at, now):
        timers.keep_in_sight(ports, row, now)
        timers.send(ports, [timers.outgoing(row)])


def _record(row: Execution, key: IdempotencyKey[Execution]) -> KeyRecord:
    return KeyRecord(
        owner=row.owner,
        key=key.key,
        fingerprint=key.fingerprint,
        # Not its job's: this id leads to the one row that the key made.
        job_id=one_off_job_id(row.id),
        answer=key.render(row),
        created_at=row.created_at,
    )


def _replayed(ports: Ports, known: KeyRecord, key: IdempotencyKey[Execution]) -> Replayed:
    if known.fingerprint != key.fingerprint:
        raise KeyReused(reason="this idempotency key was used with another body")
    # The first call may have died between its write and its send.
    id = execution_of(known.job_id)
    row = ports.executions.get(id) if id else None
    if row is not None and row.state is State.SCHEDULED:
        look(ports, row)
    return Replayed(job_id=known.job_id, answer=known.answer)
