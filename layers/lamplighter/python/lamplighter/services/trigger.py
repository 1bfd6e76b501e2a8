"""Running a recurring job now, because somebody asks for it."""

from dataclasses import replace

from lamplighter.core.buckets import JobId, from_ms, to_ms
from lamplighter.core.model import Execution, Owner, Payload, Trigger
from lamplighter.ports import Ports
from lamplighter.services import additional, payloads
from lamplighter.services.submit import IdempotencyKey, Replayed


def trigger(
    ports: Ports,
    owner: Owner,
    id: JobId,
    *,
    payload: Payload | payloads.Named | None = None,
    traceparent: str | None = None,
    key: IdempotencyKey[Execution] | None = None,
) -> Execution | Replayed:
    """Make a run of the job that is due now, whether the job is paused or not.

    It runs as the job says when it is claimed or, with a payload, as the job says now with
    that in the place of its own; the schedule goes on as if nothing had been. Raises NotFound,
    Conflict for a one-off and for a deleted job, Rejected for a named payload that is not there,
    KeyReused and Unavailable; what holds after a crash, `additional.make` says.
    """
    if key is not None and (known := additional.answered(ports, owner, key)):
        return known
    job = additional.job_to_run(ports, owner, id)
    other = payloads.given(ports, owner, payload)
    now = from_ms(to_ms(ports.clock.now()))
    run = additional.Run(
        owner=owner,
        job_id=job.id,
        job_version=job.version,
        trigger=Trigger.MANUAL,
        task=job.spec.task,
        task_version=job.spec.task_version,
        queue=job.spec.queue,
        spec=None if other is None else replace(job.spec, payload=other),
        scheduled_for=now,
        run_at=now,
        traceparent=traceparent,
    )
    return additional.make(ports, additional.planned(ports, run, now=now), key)
