"""What a finished try makes of its execution."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, assert_never

from lamplighter.core import limits
from lamplighter.core.buckets import ExecutionId
from lamplighter.core.deferral import LAPSED, TAKEN_OVER, TERMINATED, CalledBack, Deferral, Terms
from lamplighter.core.lateness import waiting
from lamplighter.core.lifecycle import Event, State, after
from lamplighter.core.model import Attempt, Execution
from lamplighter.core.retry import Failure, GiveUp, Kind, RetryAt, RetryPolicy
from lamplighter.core.schedule import format_instant
from lamplighter.core.waits import Part


@dataclass(frozen=True, kw_only=True)
class Succeeded:
    """The handler returned; `result` is JSON text."""

    result: str
    version: int | None = None
    """Of the task that ran, here and below."""


@dataclass(frozen=True, kw_only=True)
class Failed:
    """The handler raised, timed out, or was stopped."""

    failure: Failure
    names: tuple[str, ...] = ()
    """The classes of its error, the nearest first, for the retry policy to go by; not kept.
    None: not the task's own failure, of which a policy's lists say nothing."""
    version: int | None = None
    retry: RetryPolicy | None = None
    """The task's own policy, here and below; None: it has none, or a target was called."""


@dataclass(frozen=True, kw_only=True)
class Refused:
    """The handler was never called: the look after the claim said no."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class Parked:
    """The handler was never called: this worker does not know the task, or that version of it."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class Withdrawn:
    """The handler left when it was asked to, its execution being cancelled."""

    reason: str
    version: int | None = None


@dataclass(frozen=True, kw_only=True)
class Interrupted:
    """The handler left, or was ended, because its worker has to end: no try is used."""

    reason: str
    after: timedelta = timedelta(0)
    """How long until it may be begun again."""
    version: int | None = None


@dataclass(frozen=True, kw_only=True)
class Deferred:
    """The handler returned, and its try goes on: whoever has the callback token ends it."""

    terms: Terms
    version: int | None = None
    retry: RetryPolicy | None = None


Outcome = Succeeded | Failed | Refused | Withdrawn | Parked | Interrupted | Deferred


def finished(
    running: Execution,
    outcome: Outcome,
    *,
    policy: RetryPolicy,
    now: datetime,
    jitter: float,
    parked_for: timedelta = limits.PARKED_FOR,
) -> Execution:
    """The execution after its try: final, or RETRYING with its next_run_at.

    One that is deferred is RUNNING, held until it has to be heard of. What stays parked for as
    long as `parked_for` has FAILED. `policy` is the one that counts, whoever gave it.
    """
    if isinstance(outcome, Parked):
        return _parked(running, outcome.reason, now=now, jitter=jitter, within=parked_for)
    if isinstance(outcome, Deferred):
        return _deferred(running, outcome, now=now)
    done = _finished(running, outcome, policy=policy, now=now, jitter=jitter)
    if isinstance(outcome, Refused) or outcome.version is None:
        return done
    told = replace(done.attempts[-1], handler_version=outcome.version)
    return replace(done, attempts=(*done.attempts[:-1], told))


def _finished(
    running: Execution,
    outcome: Succeeded | Failed | Refused | Withdrawn | Interrupted,
    *,
    policy: RetryPolicy,
    now: datetime,
    jitter: float,
) -> Execution:
    match outcome:
        case Succeeded(result=result):
            return _closed(running, Event.SUCCEED, now, result=result)
        case Withdrawn(reason=reason):
            return _closed(running, Event.CANCEL, now, reason=reason)
        case Refused(reason=reason):
            # No try: so a later version of its job may plan it anew (P19).
            return ended(running, Event.CANCEL, now=now, reason=reason)
        case Interrupted():
            return _interrupted(running, outcome, now=now)
        case Failed():
            return _failed(running, outcome, policy=policy, now=now, jitter=jitter)
        case other:
            assert_never(other)


def _failed(
    running: Execution, failed: Failed, *, policy: RetryPolicy, now: datetime, jitter: float
) -> Execution:
    failure = failed.failure
    if running.cancel_requested_at is not None:
        return _closed(running, Event.CANCEL, now, error=failure, reason="cancelled on request")
    decision = policy.decide(
        attempt=running.attempt, failure=failure, names=failed.names, now=now, jitter=jitter
    )
    match decision:
        case RetryAt(due=due, reason=reason):
            return _closed(running, Event.RETRY, now, error=failure, reason=reason, retry_at=due)
        case GiveUp(exhausted=True, reason=reason):
            return _closed(running, Event.DEAD_LETTER, now, error=failure, reason=reason)
        case GiveUp(reason=reason):
            return _closed(running, Event.FAIL, now, error=failure, reason=reason)
        case other:
            assert_never(other)


def _interrupted(running: Execution, left: Interrupted, *, now: datetime) -> Execution:
    """The same try again, which its history shows beside the one that was broken off."""
    if running.cancel_requested_at is not None:
        return _closed(running, Event.CANCEL, now, reason="cancelled on request")
    again = _closed(running, Event.RETRY, now, reason=left.reason, retry_at=now + left.after)
    return replace(again, attempt=running.attempt)


def _deferred(running: Execution, outcome: Deferred, *, now: datetime) -> Execution:
    deferral = Deferral(
        heartbeat=outcome.terms.heartbeat,
        ends_at=(running.started_at or now) + outcome.terms.hard_limit,
        version=outcome.version,
        retry=outcome.retry,
    )
    return replace(running, deferral=deferral, lease_until=deferral.lease_until(now))


def called_back(
    running: Execution,
    outcome: Succeeded | Failed,
    *,
    answer: str,
    policy: RetryPolicy,
    now: datetime,
    jitter: float,
) -> Execution:
    """The execution after a try that was deferred: as after any other, with who ended it."""
    deferral = running.deferral
    version = deferral.version if deferral else None
    done = finished(
        running, replace(outcome, version=version), policy=policy, now=now, jitter=jitter
    )
    return replace(done, called_back=CalledBack(token=running.token or "", answer=answer))


def lapsed(
    running: Execution, deferral: Deferral, *, policy: RetryPolicy, now: datetime, jitter: float
) -> Execution:
    """The execution whose deferred try nobody ended in time: a failure, and no worker's crash."""
    silent, is_over = deferral.heartbeat.total_seconds(), running.lease_until == deferral.ends_at
    failure = Failure(
        kind=Kind.TIMEOUT,
        type="HardLimit" if is_over else "NoHeartbeat",
        message="nobody ended the deferred try within its hard limit"
        if is_over
        else f"nothing was heard of the deferred try for {silent:g} s",
    )
    failed = Failed(failure=failure, names=(failure.type,))
    return called_back(running, failed, answer=LAPSED, policy=policy, now=now, jitter=jitter)


def put_off(
    running: Execution, *, until: datetime, reason: str, on: Part = Part.CLAIM
) -> Execution:
    """An execution whose handler could not be called yet: the same try is due again then.

    `on` is the part of its lateness that the wait is.
    """
    return replace(
        running,
        state=after(running.state, Event.RETRY),
        token=None,
        lease_until=None,
        worker=None,
        next_run_at=until,
        reason=reason,
        blocker=None,
        first_started_at=_first_start(running),
        waited=waiting(running, on, until=until),
    )


def _parked(
    running: Execution, reason: str, *, now: datetime, jitter: float, within: timedelta
) -> Execution:
    """An execution that waits for a worker of another deploy: no attempt is used, and no crash.

    The longer it has waited, the less often it is looked at; `jitter` is drawn from [0.5, 1.5).
    """
    if running.cancel_requested_at is not None:
        return ended(running, Event.CANCEL, now=now, reason="cancelled on request")
    since = running.parked_since or now
    if now - since >= within:
        failure = Failure(kind=Kind.PERMANENT, type="UnknownTask", message=reason)
        given_up = f"parked since {format_instant(since)}: {reason}"
        return replace(ended(running, Event.FAIL, now=now, reason=given_up), error=failure)
    soonest, latest = limits.PARKED_LOOKS
    look_at = now + min(latest, max(soonest, (now - since) * jitter))
    waits = put_off(running, until=min(look_at, since + within), reason=reason, on=Part.QUEUE)
    return replace(waits, parked_since=since)


def _first_start(row: Execution) -> datetime | None:
    """When the first try started, of a row whose present claim led to none."""
    return row.first_started_at if row.attempts else None


_NO_PERMIT: Final = "no permit"


def without_permit(running: Execution, *, of: str, until: datetime) -> Execution:
    """An execution that waits for a place under a limit: no try is used, no crash counted.

    Its message is hidden `until` then, unless another wakes it before.
    """
    waits = blocked(running, by=None)
    return replace(
        waits,
        reason=f"{_NO_PERMIT}: as many as may run at once of {of} do",
        waited=waiting(running, Part.PERMIT, until=until),
    )


def was_without_permit(claimed: Execution) -> bool:
    """Whether an execution waited for a place when it was claimed."""
    return claimed.reason is not None and claimed.reason.startswith(_NO_PERMIT)


def blocked(running: Execution, *, by: ExecutionId | None) -> Execution:
    """An execution that waits until another has ended; whoever ends that one wakes it.

    Without another it may be claimed at any time.
    """
    return replace(
        running,
        state=after(running.state, Event.BLOCK),
        token=None,
        lease_until=None,
        worker=None,
        blocker=by,
        first_started_at=_first_start(running),
        waited=waiting(running, Part.BLOCKED),
    )


def terminated(holder: Execution, *, now: datetime, reason: str) -> Execution:
    """A RUNNING execution that is ended over its holder's head: its result will be refused.

    Its handler may go on until the lease ends, which is what its history says. Whoever was told
    its callback token can be told that it is over.
    """
    failure = Failure(kind=Kind.LOST_LEASE, type="Terminated", message=reason)
    lost = _attempt(holder, State.CANCELLED, holder.lease_until, failure)
    over = ended(holder, Event.CANCEL, now=now, reason=reason)
    return replace(
        over,
        attempts=_kept(holder, lost),
        arrival=None,
        cancel_requested_at=now,
        first_started_at=holder.first_started_at,
        called_back=CalledBack(token=holder.token or "", answer=TERMINATED),
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
    return replace(
        holder,
        crashes=holder.crashes + 1,
        attempts=_kept(holder, lost),
        error=failure,
        called_back=CalledBack(token=holder.token or "", answer=TAKEN_OVER),
    )


def ended(
    pending: Execution,
    event: Event,
    *,
    now: datetime,
    reason: str,
    blocker: ExecutionId | None = None,
) -> Execution:
    """An execution that ends without a try: cancelled, skipped, expired, undeliverable.

    `blocker` is the one that it was skipped for. What it waited for stays with it: its
    successor looks on from there (P12).
    """
    return replace(
        pending,
        state=after(pending.state, event),
        next_run_at=None,
        token=None,
        lease_until=None,
        worker=None,
        finished_at=now,
        deferral=None,
        reason=reason,
        blocker=blocker or pending.blocker,
        first_started_at=_first_start(pending),
    )


def moved(waiting: Execution, *, to: ExecutionId, now: datetime) -> Execution:
    """A one-off's row that another one has taken the place of."""
    over = ended(waiting, Event.CANCEL, now=now, reason=f"moved to {to}")
    return replace(over, moved_to=to)


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
        deferral=None,
        parked_since=None,
        attempt=running.attempt + (retry_at is not None),
        next_run_at=retry_at,
        finished_at=None if retry_at else now,
        result=result,
        error=error,
        reason=reason,
        blocker=None,
        # It lies with its try from here on.
        arrival=None,
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
        arrival=row.arrival,
    )
