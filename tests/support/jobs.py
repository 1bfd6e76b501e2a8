"""Jobs as tests ask for them."""

from dataclasses import replace
from datetime import datetime, timedelta

from lamplighter.core.buckets import JobId
from lamplighter.core.catch_up import CatchUp
from lamplighter.core.limits import DEFAULT_TIMEOUT
from lamplighter.core.model import (
    Execution,
    MisfirePolicy,
    OnDeadline,
    OverlapPolicy,
    Owner,
    Payload,
    Spec,
)
from lamplighter.core.retry import RetryPolicy
from lamplighter.core.schedule import Schedule, parse
from lamplighter.ports import Ports
from lamplighter.services.amend import Change
from lamplighter.services.submit import Created, NewJob, ScheduleMaker, submit

OWNER = Owner("acme")


def every(
    rate: str, *, start_at: datetime | None = None, end_at: datetime | None = None
) -> ScheduleMaker:
    """An interval such as "1 minute", counted from start_at or the job's creation."""

    def make(job_id: JobId, created_at: datetime) -> Schedule:
        return parse(
            rate=f"rate({rate})",
            anchor=created_at,
            start_at=start_at,
            end_at=end_at,
            seed=job_id,
        )

    return make


def cron(expression: str, timezone: str = "UTC") -> ScheduleMaker:
    """A five-field expression in a zone."""

    def make(job_id: JobId, created_at: datetime) -> Schedule:
        return parse(cron=expression, timezone=timezone, seed=job_id)

    return make


def new_job(
    *,
    run_at: datetime | None = None,
    schedule: ScheduleMaker | None = None,
    payload: str = "null",
    misfire: MisfirePolicy = MisfirePolicy.FIRE_ONCE,
    catch_up: CatchUp | None = None,
    deadline: timedelta | None = None,
    on_deadline: OnDeadline = OnDeadline.DEAD_LETTER,
    overlap: OverlapPolicy = OverlapPolicy.ALLOW,
    retry: RetryPolicy | None = None,
    timeout: timedelta = DEFAULT_TIMEOUT,
    owner: Owner = OWNER,
) -> NewJob:
    """An echo job with what the test is about."""
    spec = Spec(
        task="echo",
        payload=Payload.of(payload),
        retry=retry or RetryPolicy(),
        timeout=timeout,
        deadline=deadline,
        on_deadline=on_deadline,
    )
    return NewJob(
        owner=owner,
        spec=spec,
        run_at=run_at,
        schedule=schedule,
        misfire=misfire,
        catch_up=catch_up or CatchUp(),
        overlap=overlap,
    )


def to(
    *,
    run_at: datetime | None = None,
    payload: str | None = None,
    queue: str | None = None,
    task: str | None = None,
) -> Change:
    """A change of what is given in a one-off; the rest stays."""

    def change(row: Execution) -> NewJob:
        assert row.spec is not None
        spec = replace(
            row.spec,
            task=task or row.task,
            queue=queue or row.queue,
            payload=row.spec.payload if payload is None else Payload.of(payload),
        )
        return NewJob(owner=row.owner, spec=spec, run_at=run_at or row.scheduled_for)

    return change


def created(ports: Ports, new: NewJob) -> Created:
    """Submit a job that carries no idempotency key."""
    answer = submit(ports, new)
    assert isinstance(answer, Created)
    return answer


def in_(ports: Ports, seconds: float) -> datetime:
    """An instant that many seconds from now."""
    return ports.clock.now() + timedelta(seconds=seconds)
