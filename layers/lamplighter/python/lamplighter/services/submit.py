"""Accepting a job: durable before the answer, sent at once when it is due soon."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, Generic, TypeVar

from lamplighter.core import limits
from lamplighter.core.buckets import (
    ExecutionId,
    JobId,
    execution_id,
    execution_of,
    from_ms,
    hash_of,
    ms_up,
    one_off_job_id,
    recurring_job_id,
    shard_of,
    to_ms,
)
from lamplighter.core.catch_up import CatchUp
from lamplighter.core.errors import KeyReused, Rejected
from lamplighter.core.lifecycle import State
from lamplighter.core.model import (
    Execution,
    Job,
    JobStatus,
    MisfirePolicy,
    OverlapPolicy,
    Owner,
    Payload,
    Spec,
    Trigger,
)
from lamplighter.core.schedule import Schedule, format_instant, never_due
from lamplighter.core.timing import is_inside
from lamplighter.ports import KeyRecord, Ports
from lamplighter.services import admission, inspect, payloads, timers, watch

# Of a hash of 70 bits: what is left every reader of JSON and DynamoDB's numbers keep exactly.
_SPARE_BITS: Final = 18

ScheduleMaker = Callable[[JobId, datetime], Schedule]
"""Makes a schedule once the job's id (its seed) and its creation (its anchor) are known."""


@dataclass(frozen=True, kw_only=True)
class NewJob:
    """What a caller asks for: a spec, and either a schedule or one instant (None: now)."""

    owner: Owner
    spec: Spec
    named: payloads.Named | None = None
    """Where the payload is kept, in place of the one in `spec`."""
    run_at: datetime | None = None
    schedule: ScheduleMaker | None = None
    misfire: MisfirePolicy = MisfirePolicy.FIRE_ONCE
    catch_up: CatchUp = field(default_factory=CatchUp)
    overlap: OverlapPolicy = OverlapPolicy.ALLOW
    name: str | None = None
    traceparent: str | None = None


Made_contra = TypeVar("Made_contra", contravariant=True)


@dataclass(frozen=True, kw_only=True)
class IdempotencyKey(Generic[Made_contra]):
    """The caller's key, the digest of the body that it came with, and how to answer.

    `render` makes the JSON text that is kept with the key and given again.
    """

    key: str
    fingerprint: str
    render: Callable[[Made_contra], str]


@dataclass(frozen=True, kw_only=True)
class Created:
    """A job that is durable: its id, its definition, and its first execution."""

    job_id: JobId
    job: Job | None
    """None for a one-off: its definition lies in its execution."""
    first: Execution


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """The key was used before, with the same body: the first answer, again."""

    job_id: JobId
    answer: str


def submit(
    ports: Ports, new: NewJob, key: IdempotencyKey["Created"] | None = None
) -> Created | Replayed:
    """Make a job and its first execution; when this returns, it will run.

    Raises Rejected for what can never run, OverQuota for more than its owner may have, KeyReused
    when the key came with another body before, Unavailable when a service did not answer: then
    the job may exist, and only a key lets the caller ask again without making two. A crash after
    the write leaves a row that dispatch or, when it was due soon, the sweep sends.
    """
    if key is not None and (known := ports.jobs.record_of(new.owner, key.key)):
        return _replay(ports, known, key)
    new = _found(ports, new)
    now = _whole_ms(ports.clock.now())
    planned = _recurring(ports, new, now) if new.schedule else _one_off(ports, new, now)
    created = _admitted(ports, planned)
    until = None if created.job else kept_until(created.first.run_at)
    keep_large_payload(ports, created.job_id, new.spec.payload, kept_until=until)
    record = _record(new.owner, key, created, now) if key else None
    if created.job is not None:
        watch.begin(ports, created.job)
    # Were we frozen since, and to die right after, nobody might come by it any more (P7).
    timers.keep_in_sight(ports, created.first, ports.clock.now())
    known = admission.counting_anew(
        ports,
        new.owner,
        lambda: ports.jobs.create(
            first=created.first, job=created.job, key=record, quota=ports.quotas.of(new.owner)
        ),
    )
    if known is not None and key is not None:
        return _replay(ports, known, key)
    look(ports, created.first, created.job)
    ports.telemetry.created(queue=new.spec.queue, directly=created.first.sent_directly)
    return created


def _admitted(ports: Ports, planned: Created) -> Created:
    if planned.job is not None:
        return replace(planned, job=admission.admitted_job(ports, planned.job))
    (first,) = admission.admitted(ports, [planned.first])
    return replace(planned, first=first)


def kept_until(run_at: datetime) -> datetime:
    """How long a payload is kept that is one execution's."""
    return run_at + limits.PAYLOAD_KEPT


def numbered(payload: Payload, *, kept_until: datetime | None) -> Payload:
    """A payload that takes another's place, by the number that its item goes by.

    The number is of what is kept and for how long: an item is never updated, and of two edits
    that race each has its own.
    """
    if payload.text is None or payload.is_inline:
        return payload
    until = 0 if kept_until is None else to_ms(kept_until)
    return replace(payload, version=hash_of("payload", payload.text, until) >> _SPARE_BITS)


def keep_large_payload(
    ports: Ports, id: JobId, payload: Payload, *, kept_until: datetime | None
) -> None:
    """Write a payload that is an item of its own before the row or job that refers to it."""
    if payload.text is not None and not payload.is_inline:
        ports.executions.put_payload(id, payload, kept_until=kept_until)


def look(ports: Ports, first: Execution, job: Job | None) -> None:
    """Look at the clock after a put: inside the line, arm the successors and send (P1, P2)."""
    now = ports.clock.now()
    if not is_inside(first.run_at, now):
        return
    timers.keep_in_sight(ports, first, now)
    links = [timers.link_of(job, first)] if job else []
    following = timers.arm_chains(ports, links, decided_at=now, directly=True)
    timers.send(ports, [timers.outgoing(row) for row in (first, *following)])


def _found(ports: Ports, new: NewJob) -> NewJob:
    """The same with its payload by reference, if it names one."""
    if new.named is None:
        return new
    payload = payloads.find(ports, new.owner, new.named)
    return replace(new, spec=replace(new.spec, payload=payload), named=None)


def _one_off(ports: Ports, new: NewJob, now: datetime) -> Created:
    first = planned_one_off(ports, new, now)
    return Created(job_id=first.job_id, job=None, first=first)


def planned_one_off(ports: Ports, new: NewJob, now: datetime) -> Execution:
    """The row of a one-off, not written yet; raises Rejected for a time that is too far ahead."""
    wanted = from_ms(ms_up(new.run_at)) if new.run_at else now
    if wanted > now + limits.MAX_HORIZON:
        raise Rejected(
            field="run_at",
            value=format_instant(wanted),
            reason=f"more than {limits.MAX_HORIZON.days} days ahead",
        )
    # A past instant runs now: its row must not lie in a bucket that was swept already.
    run_at = max(wanted, now)
    hash_bits = ports.chance.hash()
    id = execution_id(run_at, shard_of(hash_bits, ports.layout().shards), hash_bits)
    return Execution(
        id=id,
        job_id=one_off_job_id(id),
        owner=new.owner,
        trigger=Trigger.ONE_OFF,
        job_version=1,
        task=new.spec.task,
        task_version=new.spec.task_version,
        queue=new.spec.queue,
        spec=new.spec,
        scheduled_for=wanted,
        run_at=run_at,
        created_at=now,
        sent_directly=is_inside(run_at, now),
        traceparent=new.traceparent,
    )


def defined(new: NewJob, *, id: JobId, now: datetime) -> Job:
    """The first version of a recurring job, not written yet, as if it was created now."""
    if new.schedule is None:
        raise ValueError("a recurring job has a schedule")
    return Job(
        id=id,
        owner=new.owner,
        version=1,
        status=JobStatus.ACTIVE,
        spec=new.spec,
        schedule=new.schedule(id, now),
        misfire=new.misfire,
        catch_up=new.catch_up,
        overlap=new.overlap,
        created_at=now,
        name=new.name,
    )


def _recurring(ports: Ports, new: NewJob, now: datetime) -> Created:
    hash_bits = ports.chance.hash()
    id = recurring_job_id(now, shard_of(hash_bits, ports.layout().shards), hash_bits)
    job = defined(new, id=id, now=now)
    slot = job.next_after(now)
    if slot is None:
        raise never_due(job.schedule, after=now)
    first = job.occurrence(slot, now=now, sent_directly=is_inside(job.run_at(slot), now))
    return Created(job_id=id, job=job, first=first)


def _record(
    owner: Owner, key: IdempotencyKey[Created], created: Created, now: datetime
) -> KeyRecord:
    return KeyRecord(
        owner=owner,
        key=key.key,
        fingerprint=key.fingerprint,
        job_id=created.job_id,
        answer=key.render(created),
        created_at=now,
    )


def _replay(ports: Ports, known: KeyRecord, key: IdempotencyKey[Created]) -> Replayed:
    if known.fingerprint != key.fingerprint:
        raise KeyReused(reason="this idempotency key was used with another body")
    _look_again(ports, known.job_id)
    return Replayed(job_id=known.job_id, answer=known.answer)


def _look_again(ports: Ports, job_id: JobId) -> None:
    # The first call may have died between its write and its send: the replay redoes P1's look.
    one_off = execution_of(job_id)
    job = None if one_off else ports.jobs.get(job_id)
    first_id = one_off or (job and _first_of(job))
    first = inspect.latest_place(ports, first_id) if first_id else None
    if first is None or first.state is not State.SCHEDULED:
        return
    now = ports.clock.now()
    if job is None or now - first.run_at <= job.catch_up.threshold:
        look(ports, first, job)
    else:
        # An outage lies between: dispatch decides what runs for it, once, unless its write came
        # so late that even the sweep has passed its place.
        timers.keep_in_sight(ports, first, now)


def _first_of(job: Job) -> ExecutionId | None:
    slot = job.next_after(job.created_at)
    return job.occurrence(slot, now=job.created_at, sent_directly=False).id if slot else None


def _whole_ms(instant: datetime) -> datetime:
    return from_ms(to_ms(instant))
