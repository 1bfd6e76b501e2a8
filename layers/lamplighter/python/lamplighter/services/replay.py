"""Running what has ended once more: a new execution beside the old one, which stays as it is."""

from dataclasses import replace

from lamplighter.core.buckets import ExecutionId, execution_of, from_ms, to_ms
from lamplighter.core.errors import Conflict, NotFound
from lamplighter.core.model import Execution, JobStatus, Owner, Payload, Spec, Trigger
from lamplighter.ports import Ports
from lamplighter.services import additional, inspect, payloads, slots
from lamplighter.services.additional import Run
from lamplighter.services.submit import IdempotencyKey, Replayed


def replay(
    ports: Ports,
    owner: Owner,
    id: ExecutionId,
    *,
    payload: Payload | payloads.Named | None = None,
    key: IdempotencyKey[Execution] | None = None,
    traceparent: str | None = None,
) -> Execution | Replayed:
    """A new execution of the same job and slot, due now, by the definition that the old one had.

    With its payload it keeps its idempotency key; with a payload given here it has a new one.
    Raises NotFound; Rejected for a named payload that is not there; Conflict for what has not
    ended, whose recurring job was deleted, or whose payload is no longer kept; and as
    `additional.make` does: after a crash there is the new row with its key, or neither, and
    without a key asking again may make another.
    """
    if key is not None and (known := additional.answered(ports, owner, key)):
        return known
    row = inspect.execution_row(ports, owner, id)
    if row.moved_to is not None:
        raise Conflict(reason=f"{id} was moved: it runs as {row.moved_to}")
    if not row.is_final:
        raise Conflict(reason=f"{id} is {row.state}: only what has ended is replayed")
    now = from_ms(to_ms(ports.clock.now()))
    spec, version = _definition(ports, row)
    other = payloads.given(ports, owner, payload)
    spec = replace(spec, payload=other or _payload(ports, row, spec.payload))
    run = Run(
        owner=owner,
        job_id=row.job_id,
        job_version=version,
        trigger=Trigger.REPLAY,
        task=spec.task,
        task_version=spec.task_version,
        queue=spec.queue,
        spec=spec,
        scheduled_for=row.scheduled_for,
        run_at=now,
        replay_of=row.id,
        idempotent_as=None if other else row.idempotent_as or row.id,
        traceparent=traceparent,
    )
    return additional.make(ports, additional.planned(ports, run, now=now), key)


def _definition(ports: Ports, row: Execution) -> tuple[Spec, int]:
    """What the execution ran by, and the version of its job that this was."""
    is_recurring = execution_of(row.job_id) is None
    job = ports.jobs.get(row.job_id) if is_recurring else None
    if is_recurring and (job is None or job.status is JobStatus.DELETED):
        raise Conflict(reason=f"{row.id} is not replayed: its job was deleted")
    if row.spec is not None:
        return row.spec, row.job_version
    version = slots.in_force(ports, row, job) if job else None
    if version is not None:
        return version.spec, version.version
    reason = f"{row.id} is not replayed: version {row.job_version} of its job is not there"
    raise Conflict(reason=reason)


def _payload(ports: Ports, row: Execution, payload: Payload) -> Payload:
    """The payload with its text, to be kept anew: the old one goes with the old row.

    One in the bucket stays where it is.
    """
    if payload.text is not None or payload.ref is not None:
        return payload
    try:
        return Payload.of(ports.executions.get_payload(row.payload_home, payload.version))
    except NotFound:
        reason = f"the payload of {row.id} is no longer kept: replay it with a payload"
        raise Conflict(reason=reason) from None
