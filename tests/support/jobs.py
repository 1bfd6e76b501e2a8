"""Jobs as tests ask for them."""

from datetime import datetime, timedelta

from lamplighter.core.buckets import JobId
from lamplighter.core.model import MisfirePolicy, Owner, Payload, Spec
from lamplighter.core.retry import RetryPolicy
from lamplighter.core.schedule import Schedule, parse
from lamplighter.ports import Ports
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
    retry: RetryPolicy | None = None,
    owner: Owner = OWNER,
) -> NewJob:
    """An echo job with what the test is about."""
    spec = Spec(task="echo", payload=Payload.of(payload), retry=retry or RetryPolicy())
    return NewJob(owner=owner, spec=spec, run_at=run_at, schedule=schedule, misfire=misfire)


def created(ports: Ports, new: NewJob) -> Created:
    """Submit a job that carries no idempotency key."""
    answer = submit(ports, new)
    assert isinstance(answer, Created)
    return answer


def in_(ports: Ports, seconds: float) -> datetime:
    """An instant that many seconds from now."""
    return ports.clock.now() + timedelta(seconds=seconds)
