"""Rows as the adapters' tests need them: valid, and plain but for what the test is about."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from lamplighter.core.buckets import (
    ExecutionId,
    JobId,
    check_position,
    execution_id,
    minute_of,
    one_off_job_id,
    recurring_job_id,
    retry_position,
)
from lamplighter.core.lifecycle import Event, State
from lamplighter.core.model import (
    Execution,
    Job,
    JobStatus,
    MisfirePolicy,
    Owner,
    Payload,
    Pointer,
    PointerKind,
    Spec,
    Token,
    Trigger,
)
from lamplighter.core.outcome import (
    Failed,
    Outcome,
    Refused,
    Succeeded,
    Withdrawn,
    ended,
    finished,
    taken_over,
)
from lamplighter.core.retry import Failure, Kind, RetryPolicy
from lamplighter.core.schedule import parse
from lamplighter.ports import KeyRecord

T = datetime(2026, 7, 12, 2, 5, tzinfo=UTC)
"""The start of a minute: when a row is due unless the test says otherwise."""
AN_HOUR_EARLIER = T - timedelta(hours=1)
MINUTE = minute_of(T)
OWNER = Owner("acme")
TOKEN = Token("a" * 32)
OTHER_TOKEN = Token("b" * 32)
WORKER = "worker-1"
LEASE = timedelta(seconds=30)


def s(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


def spec(payload: str = "null", *, retry: RetryPolicy | None = None) -> Spec:
    return Spec(task="echo", payload=Payload.of(payload), retry=retry or RetryPolicy())


def one_off(
    run_at: datetime = T,
    *,
    shard: int = 0,
    n: int = 1,
    owner: Owner = OWNER,
    payload: str = "null",
) -> Execution:
    """The n-th one-off of its instant and shard, SCHEDULED; its definition lies in it."""
    id = execution_id(run_at, shard, n)
    definition = spec(payload)
    return Execution(
        id=id,
        job_id=one_off_job_id(id),
        owner=owner,
        trigger=Trigger.ONE_OFF,
        job_version=1,
        task=definition.task,
        queue=definition.queue,
        spec=definition,
        scheduled_for=run_at,
        run_at=run_at,
        created_at=run_at - s(60),
    )


def running(
    row: Execution, *, token: Token = TOKEN, lease_until: datetime = T + LEASE
) -> Execution:
    """The row as a claim at its run_at leaves it."""
    return replace(
        row,
        state=State.RUNNING,
        token=token,
        worker=WORKER,
        lease_until=lease_until,
        started_at=row.run_at,
        first_started_at=row.run_at,
    )


def succeeded(row: Execution, *, result: str = "null") -> Execution:
    """A claimed row after its handler returned."""
    return after(row, Succeeded(result=result))


def failed(row: Execution, kind: Kind = Kind.RETRYABLE, *, max_attempts: int = 5) -> Execution:
    """A claimed row after its handler raised: RETRYING, or final for a permanent error."""
    failure = Failure(kind=kind, type="ValueError", message="no such printer")
    return after(row, Failed(failure=failure), policy=RetryPolicy(max_attempts=max_attempts))


def after(row: Execution, outcome: Outcome, *, policy: RetryPolicy | None = None) -> Execution:
    started = row.started_at or row.run_at
    return finished(row, outcome, policy=policy or RetryPolicy(), now=started + s(1), jitter=1.0)


def cancelled(row: Execution) -> Execution:
    return ended(row, Event.CANCEL, now=row.run_at, reason="not needed any more")


def blocked(row: Execution) -> Execution:
    return replace(row, state=State.BLOCKED)


def recurring(
    created_at: datetime = AN_HOUR_EARLIER,
    *,
    shard: int = 0,
    n: int = 1,
    owner: Owner = OWNER,
    payload: str = "null",
) -> Job:
    """An hourly job, made an hour before T."""
    id = recurring_job_id(created_at, shard, n)
    return Job(
        id=id,
        owner=owner,
        version=1,
        status=JobStatus.ACTIVE,
        spec=spec(payload),
        schedule=parse(cron="5 * * * *", seed=id),
        misfire=MisfirePolicy.FIRE_ONCE,
        created_at=created_at,
        name="hourly report",
    )


def occurrence(job: Job, slot: datetime = T) -> Execution:
    """The job's execution of one slot, SCHEDULED."""
    return job.occurrence(slot, now=job.created_at, sent_directly=False)


def beside(
    job_id: JobId,
    run_at: datetime = T,
    *,
    trigger: Trigger = Trigger.BACKFILL,
    shard: int = 0,
    n: int = 1,
) -> Execution:
    """The n-th execution beside a job's schedule, for the slot of an hour before."""
    planned = one_off(run_at, shard=shard, n=n)
    return replace(
        planned,
        job_id=job_id,
        trigger=trigger,
        spec=planned.spec if trigger is Trigger.REPLAY else None,
        scheduled_for=run_at - s(3600),
    )


def revised(job: Job) -> Job:
    """The job's next version, which has another name, from half an hour before T on."""
    version = job.version + 1
    return replace(job, version=version, effective_from=T - s(1800), name=f"version {version}")


Change = Callable[[Execution], Execution]
"""What has come of a SCHEDULED row."""


def _in_state(state: State) -> Change:
    return lambda row: replace(row, state=state)


GIVES_WAY: Final[Mapping[str, Change]] = {
    "SCHEDULED": lambda row: row,
    "CANCELLED before it was claimed": cancelled,
    "CANCELLED by the look after its claim": lambda row: after(
        running(row), Refused(reason="its job is PAUSED")
    ),
}
"""What a row of an earlier version may be when a later one plans it anew (P19)."""

STAYS: Final[Mapping[str, Change]] = {
    "CANCELLED by its owner": lambda row: replace(cancelled(row), cancel_requested_at=T),
    "CANCELLED by its owner just before the look after its claim": lambda row: after(
        replace(running(row), cancel_requested_at=T), Refused(reason="its job is PAUSED")
    ),
    "CANCELLED while it ran": lambda row: after(running(row), Withdrawn(reason="asked to")),
    "CANCELLED after its worker died": lambda row: after(
        taken_over(running(row)), Refused(reason="its job is PAUSED")
    ),
    "RUNNING": running,
    "RETRYING": lambda row: failed(running(row)),
    "BLOCKED": blocked,
    "SUCCEEDED": lambda row: succeeded(running(row)),
    "FAILED": lambda row: failed(running(row), Kind.PERMANENT),
    "DEAD_LETTERED": _in_state(State.DEAD_LETTERED),
    "SKIPPED": _in_state(State.SKIPPED),
    "EXPIRED": _in_state(State.EXPIRED),
}
"""What it may be when it stays as it is."""


def retry_pointer(execution: Execution, at: datetime, *, attempt: int = 2) -> Pointer:
    return Pointer(
        kind=PointerKind.RETRY,
        position=retry_position(execution.id, attempt, at),
        execution_id=execution.id,
        queue=execution.queue,
        at=at,
        attempt=attempt,
        owner=execution.owner,
    )


def check_pointer(execution: Execution, at: datetime, *, attempt: int = 1) -> Pointer:
    return Pointer(
        kind=PointerKind.CHECK,
        position=check_position(execution.id, at),
        execution_id=execution.id,
        queue=execution.queue,
        at=at,
        attempt=attempt,
    )


def key_record(first: Execution, *, key: str = "order-17", owner: Owner = OWNER) -> KeyRecord:
    return KeyRecord(
        owner=owner,
        key=key,
        fingerprint="0" * 64,
        job_id=first.job_id,
        answer=f'{{"job_id":"{first.job_id}"}}',
        created_at=first.created_at,
    )


def id_at(run_at: datetime, *, shard: int = 0, n: int = 1) -> ExecutionId:
    """The id of the n-th row of an instant and shard."""
    return execution_id(run_at, shard, n)
