"""Executions beside the schedule: run by hand, backfilled, or replayed.

One function makes them all: durable before the answer, sent at once when due soon, and once
for each idempotency key.
"""

from dataclasses import dataclass
from datetime import datetime

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
from lamplighter.core.errors import KeyReused
from lamplighter.core.lifecycle import State
from lamplighter.core.model import Execution, Owner, Spec, Trigger
from lamplighter.core.timing import is_inside
from lamplighter.ports import KeyRecord, Ports
from lamplighter.services import timers
from lamplighter.services.submit import (
    IdempotencyKey,
    Replayed,
    keep_large_payload,
    kept_until,
)


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
    replay_of: ExecutionId | None = None
    idempotent_as: ExecutionId | None = None
    traceparent: str | None = None


def planned(ports: Ports, run: Run, *, now: datetime, hash_bits: int | None = None) -> Execution:
    """The row of a run, not written yet; two with the same `hash_bits` and time are one."""
    run_at = from_ms(ms_up(max(run.run_at, now)))
    bits = ports.chance.hash() if hash_bits is None else hash_bits
    return Execution(
        id=execution_id(run_at, shard_of(bits, ports.layout().shards), bits),
        job_id=run.job_id,
        owner=run.owner,
        trigger=run.trigger,
        job_version=run.job_version,
        task=run.task,
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

    Raises KeyReused when the key came with another body before, and Unavailable; after a crash
    there is the row with its key, or neither, and the sweep sends what was not sent.
    """
    if key is not None and (known := ports.jobs.record_of(row.owner, key.key)):
        return _replayed(ports, known, key)
    if row.spec is not None:
        keep_large_payload(
            ports, row.payload_home, row.spec.payload, kept_until=kept_until(row.run_at)
        )
    record = _record(row, key) if key else None
    known = ports.jobs.create(first=row, key=record)
    if known is not None and key is not None:
        return _replayed(ports, known, key)
    look(ports, row)
    ports.telemetry.created(queue=row.queue, directly=row.sent_directly)
    return row


def look(ports: Ports, row: Execution) -> None:
    """Look at the clock after a put, and send what lies inside the line (P1)."""
    if is_inside(row.run_at, ports.clock.now()):
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
