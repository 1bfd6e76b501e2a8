"""What a finished try makes of its execution."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import assert_never

from lamplighter.core import limits
from lamplighter.core.lifecycle import Event, State, after
from lamplighter.core.model import Attempt, Execution
from lamplighter.core.retry import Failure, GiveUp, Kind, RetryAt, RetryPolicy


@dataclass(frozen=True, kw_only=True)
class Succeeded:
    """The handler returned; `result` is JSON text."""

    result: str


@dataclass(frozen=True, kw_only=True)
class Failed:
    """The handler raised, timed out, or was stopped."""

    failure: Failure


@dataclass(frozen=True, kw_only=True)
class Refused:
    """The handler was never called: the look after the claim said no."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class Withdrawn:
    """The handler left when it was asked to, its execution being cancelled."""

    reason: str


Outcome = Succeeded | Failed | Refused | Withdrawn


def finished(
    running: Execution, outcome: Outcome, *, policy: RetryPolicy, now: datetime, jitter: float
) -> Execution:
    """The execution after its try: final, or RETRYING with its next_run_at."""
    match outcome:
        case Succeeded(result=result):
            return _closed(running, Event.SUCCEED, now, result=result)
        case Withdrawn(reason=reason):
            return _closed(running, Event.CANCEL, now, reason=reason)
        case Refused(reason=reason):
            # No try: so a later version of its job may plan it anew (P19).
            return ended(running, Event.CANCEL, now=now, reason=reason)
        case Failed(failure=failure):
            return _failed(running, failure, policy=policy, now=now, jitter=jitter)
        case other:
            assert_never(other)


def _failed(
    running: Execution, failure: Failure, *, policy: RetryPolicy, now: datetime, jitter: float
) -> Execution:
    if running.cancel_requested_at is not None:
        return _closed(running, Event.CANCEL, now, error=failure, reason="cancelled on request")
    decision = policy.decide(attempt=running.attempt, failure=failure, now=now, jitter=jitter)
    match decision:
        case RetryAt(due=due, reason=reason):
            return _closed(running, Event.RETRY, now, error=failure, reason=reason, retry_at=due)
        case GiveUp(exhausted=True, reason=reason):
            return _closed(running, Event.DEAD_LETTER, now, error=failure, reason=reason)
        case GiveUp(reason=reason):
            return _closed(running, Event.FAIL, now, error=failure, reason=reason)
        case other:
            assert_never(other)


def put_off(running: Execution, *, until: datetime, reason: str) -> Execution:
    """An execution whose handler could not be called yet: the same try is due again then."""
    return replace(
        running,
        state=after(running.state, Event.RETRY),
        token=None,
        lease_until=None,
        worker=None,
        next_run_at=until,
        reason=reason,
    )


def crashed_too_often(running: Execution, now: datetime) -> Execution | None:
    """The dead letter that a take-over makes once three holders have fallen silent."""
    if running.crashes < limits.CRASH_LIMIT:
        return None
    reason = f"{running.crashes} workers died or fell silent while running it"
    last = running.attempts[-1].error if running.attempts else None
    return replace(
        running,
        state=after(running.state, Event.DEAD_LETTER),
        token=None,
        lease_until=None,
        worker=None,
        finished_at=now,
        error=last,
        reason=reason,
    )


def taken_over(holder: Execution) -> Execution:
    """The holder's row with the try that it lost written into its history."""
    failure = Failure(
        kind=Kind.LOST_LEASE,
        type="LostLease",
        message=f"worker {holder.worker} was silent past the end of its lease",
    )
    lost = _attempt(holder, State.RETRYING, holder.lease_until, failure)
    return replace(holder, crashes=holder.crashes + 1, attempts=_kept(holder, lost), error=failure)


def ended(pending: Execution, event: Event, *, now: datetime, reason: str) -> Execution:
    """An execution that ends without a try: cancelled, skipped, expired, undeliverable."""
    return replace(
        pending,
        state=after(pending.state, event),
        next_run_at=None,
        token=None,
        lease_until=None,
        worker=None,
        finished_at=now,
        reason=reason,
    )


def _closed(
    running: Execution,
    event: Event,
    now: datetime,
    *,
    result: str | None = None,
    error: Failure | None = None,
    reason: str | None = None,
    retry_at: datetime | None = None,
) -> Execution:
    """The execution with this try closed; with `retry_at`, another one is due then."""
    state = after(running.state, event)
    return replace(
        running,
        state=state,
        token=None,
        lease_until=None,
        worker=None,
        attempt=running.attempt + (retry_at is not None),
        next_run_at=retry_at,
        finished_at=None if retry_at else now,
        result=result,
        error=error,
        reason=reason,
        attempts=_kept(running, _attempt(running, state, now, error)),
    )


def _kept(row: Execution, latest: Attempt) -> tuple[Attempt, ...]:
    return (*row.attempts, latest)[-limits.HISTORY_MAX_ATTEMPTS :]


def _attempt(
    row: Execution, state: State, finished_at: datetime | None, error: Failure | None
) -> Attempt:
    if row.started_at is None or row.worker is None:
        raise ValueError(f"{row.id} was never claimed")
    return Attempt(
        number=row.attempts[-1].number + 1 if row.attempts else 1,
        started_at=row.started_at,
        finished_at=finished_at,
        worker=row.worker,
        state=state,
        error=error,
    )
