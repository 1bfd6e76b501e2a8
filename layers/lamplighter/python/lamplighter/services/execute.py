"""Running one message: hold, claim, look, run, and the outcome before the message goes.

Whatever happens between two lines, the row and the message left behind are enough for
another worker to go on: the claim is one conditional write, the outcome is another, and the
message is deleted only after it (P8–P11).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import assert_never

from lamplighter.core.claim import Drop, Keep, Rearm, TakeOver, refused
from lamplighter.core.deadline import overdue
from lamplighter.core.errors import LostClaim, Unavailable, Unreadable, VersionMoved
from lamplighter.core.lifecycle import State
from lamplighter.core.limits import MAX_HOLD, TAKE_OVER_GRACE, WORKER_LEASE
from lamplighter.core.model import (
    Arrival,
    Execution,
    Job,
    JobStatus,
    Message,
    OverlapPolicy,
    Spec,
    Token,
    Trigger,
)
from lamplighter.core.outcome import (
    Failed,
    Outcome,
    Refused,
    crashed_too_often,
    ended,
    finished,
    put_off,
)
from lamplighter.core.overlap import policy_of
from lamplighter.core.retry import Failure, RetryPolicy
from lamplighter.ports import Ports, Received, Refusal
from lamplighter.services import endings, payloads, timers, turns

_TRIES = 5
_BETWEEN_TRIES = timedelta(milliseconds=200)
_SHORTEST_HIDE = timedelta(seconds=1)
_PUT_OFF_FOR = timedelta(seconds=15)
_HELD_S = (WORKER_LEASE - TAKE_OVER_GRACE).total_seconds()


@dataclass(frozen=True, kw_only=True)
class Claimed:
    """An execution in our hands, with all that its handler needs.

    `claimed_at` is on the monotonic clock, read before the claim was written: our lease ends
    no earlier than `claimed_at` + 30 s.
    """

    received: Received
    execution: Execution
    token: Token
    spec: Spec
    payload: str
    claimed_at: float


Runner = Callable[[Claimed], Outcome]
"""Calls the task's handler and turns whatever comes of it into an outcome."""


@dataclass(frozen=True, kw_only=True)
class Put:
    """What became of a message that no handler is to be called for."""

    deleted: bool


def shrink(ports: Ports, batch: Sequence[Received]) -> None:
    """Have the whole batch reappear in 30 s unless it is extended or deleted.

    The queue's own visibility timeout has to cover the function's; without this, the death
    of a worker would hide its messages for that long.
    """
    ports.queue.hide(batch, WORKER_LEASE)


def process(ports: Ports, received: Received, runner: Runner, *, worker: str) -> Put:
    """Take one message as far as it goes: to its outcome, or back into hiding.

    Never starts before it is due. Raises Unavailable when a service did not answer: the
    message is then kept, and whoever receives it next finds the row as it was left.
    """
    begun = begin(ports, received, worker=worker)
    if isinstance(begun, Put):
        return begun
    return conclude(ports, begun, runner(begun))


def begin(ports: Ports, received: Received, *, worker: str) -> Claimed | Put:
    """Hold until due, claim, then look: what comes back claimed may start at once."""
    received_at = ports.clock.now()
    wait = received.message.due_at - received_at
    if wait > MAX_HOLD:
        return _keep(ports, received, wait)
    if wait > timedelta(0):
        ports.clock.sleep(wait)
    token, claimed_at = ports.chance.token(), ports.clock.monotonic()
    sent_at = received.sent_at
    arrival = Arrival(sent_at=sent_at, received_at=received_at) if sent_at else None
    claimed = _claim(ports, received, token=token, worker=worker, arrival=arrival)
    if isinstance(claimed, Put):
        return claimed
    try:
        ready = _ready(ports, received, claimed, token)
    except Unavailable as error:
        if isinstance(error, Unreadable):
            ports.telemetry.definition_unreadable(claimed.job_id, reason=str(error))
        return _put_off(ports, received, claimed, token, reason=str(error))
    if isinstance(ready, Put):
        return ready
    spec, payload = ready
    if ports.clock.monotonic() - claimed_at >= _HELD_S:
        # Stalled since the claim: another may have taken over by now (P9).
        ports.telemetry.late_result_refused(claimed.id)
        return Put(deleted=False)
    return Claimed(
        received=received,
        execution=claimed,
        token=token,
        spec=spec,
        payload=payload,
        claimed_at=claimed_at,
    )


def _ready(
    ports: Ports, received: Received, claimed: Execution, token: Token
) -> tuple[Spec, str] | Put:
    """What it runs by and its payload; what has none any more ends FAILED."""
    spec = _look(ports, received, claimed, token)
    if isinstance(spec, Put):
        return spec
    payload = _payload(ports, claimed, spec)
    if isinstance(payload, str):
        return spec, payload
    after = _after(ports, claimed, Failed(failure=payload), spec=spec)
    return _close(ports, received, after, token)


def _put_off(
    ports: Ports, received: Received, claimed: Execution, token: Token, *, reason: str
) -> Put:
    """Let go of what cannot be looked at now: no attempt is used, and no crash counted."""
    after = put_off(claimed, until=ports.clock.now() + _PUT_OFF_FOR, reason=reason)
    try:
        _settle(ports, after, token, None)
    except LostClaim:
        ports.telemetry.late_result_refused(after.id)
        return Put(deleted=False)
    return _keep(ports, received, _PUT_OFF_FOR)


def _claim(
    ports: Ports, received: Received, *, token: Token, worker: str, arrival: Arrival | None
) -> Execution | Put:
    message, now = received.message, ports.clock.now()
    answer = ports.executions.claim(
        message.execution_id,
        attempt=message.attempt,
        token=token,
        worker=worker,
        now=now,
        lease_until=now + WORKER_LEASE,
        arrival=arrival,
    )
    if isinstance(answer, Execution):
        ports.telemetry.started(answer, lateness=now - _wanted_at(answer, message))
        return answer
    return _refused(ports, received, answer, token=token, worker=worker, arrival=arrival)


def _wanted_at(claimed: Execution, message: Message) -> datetime:
    """When this try should have started: a first one that was caught up on, long ago."""
    is_first = claimed.caught_up is not None and claimed.attempt == 1
    return claimed.run_at if is_first else message.due_at


def _refused(
    ports: Ports,
    received: Received,
    refusal: Refusal,
    *,
    token: Token,
    worker: str,
    arrival: Arrival | None,
) -> Execution | Put:
    message, now = received.message, ports.clock.now()
    meaning = refused(message, refusal.found, now)
    match meaning:
        case Drop(reason=reason):
            ports.telemetry.claim_lost(message.execution_id, reason=reason)
            if refusal.found is not None and refusal.found.is_final:
                # Whoever ended it may have died before it woke them (P14).
                endings.wake(ports, refusal.found)
            return _delete(ports, received)
        case Keep(until=until, reason=reason):
            ports.telemetry.claim_lost(message.execution_id, reason=reason)
            return _keep(ports, received, until - now)
        case Rearm(execution=execution, reason=reason):
            ports.telemetry.claim_lost(message.execution_id, reason=reason)
            timers.arm_retry(ports, execution)
            return _delete(ports, received)
        case TakeOver(holder=holder):
            return _take_over(ports, received, holder, token=token, worker=worker, arrival=arrival)
        case other:
            assert_never(other)


def _take_over(
    ports: Ports,
    received: Received,
    holder: Execution,
    *,
    token: Token,
    worker: str,
    arrival: Arrival | None,
) -> Execution | Put:
    now = ports.clock.now()
    answer = ports.executions.take_over(
        holder,
        token=token,
        worker=worker,
        now=now,
        lease_until=now + WORKER_LEASE,
        arrival=arrival,
    )
    if isinstance(answer, Refusal):
        # The holder finished or beat after all, or another took it over in this instant.
        return _keep(ports, received, _SHORTEST_HIDE)
    ports.telemetry.taken_over(answer)
    if dead := crashed_too_often(answer, now):
        return _close(ports, received, dead, token)
    return answer


def _look(ports: Ports, received: Received, claimed: Execution, token: Token) -> Spec | Put:
    """After the claim, read what may have changed since it was planned (P17, P19)."""
    if claimed.cancel_requested_at is not None:
        return _refuse(ports, received, claimed, token, reason="cancelled on request")
    if not claimed.follows_job:
        return _too_late(ports, received, claimed, token, None) or _spec_of(claimed)
    for _ in range(_TRIES):
        job = ports.jobs.get(claimed.job_id)
        try:
            if spec := _spec_for(claimed, job):
                too_late = _too_late(ports, received, claimed, token, job)
                return too_late or _in_turn(ports, received, claimed, token, job) or spec
            reason = f"its job is {job.status}" if job else "its job's definition is gone"
            version = job.version if job else None
            return _refuse(ports, received, claimed, token, reason=reason, job_version=version)
        except VersionMoved:
            # Edited between the read and the refusal: the edit may have made it valid again.
            continue
    raise Unavailable(f"job {claimed.job_id} changes faster than it can be read")


def _spec_for(claimed: Execution, job: Job | None) -> Spec | None:
    """What a claimed execution runs by, as its job is now; None: it must not start.

    What runs beside the schedule was asked for by name: only its job's deletion stops it.
    """
    if claimed.trigger is Trigger.SCHEDULE:
        return job.spec if job is not None and job.produces(claimed) else None
    if job is not None and job.status is JobStatus.DELETED:
        return None
    return claimed.spec or (job.spec if job else None)


def _too_late(
    ports: Ports, received: Received, claimed: Execution, token: Token, job: Job | None
) -> Put | None:
    """None unless its deadline passed before it was ever started: then it has ended."""
    now = ports.clock.now()
    late = overdue(claimed, job, now)
    if late is None:
        return None
    after = ended(claimed, late.event, now=now, reason=late.reason)
    return _close(ports, received, after, token, job_version=job.version if job else None)


def _in_turn(
    ports: Ports, received: Received, claimed: Execution, token: Token, job: Job | None
) -> Put | None:
    """None where nothing before it in its chain is in its way, or nobody minds (P12-P16)."""
    if job is None or job.overlap is OverlapPolicy.ALLOW:
        return None
    try:
        turned = turns.look_back(ports, claimed, policy_of(claimed, job), token)
    except LostClaim:
        ports.telemetry.late_result_refused(claimed.id)
        return Put(deleted=False)
    match turned:
        case turns.Mine():
            return None
        case turns.Waiting():
            return _delete(ports, received)
        case turns.Over(after=after):
            return _close(ports, received, after, token)
        case other:
            assert_never(other)


def _spec_of(one_off: Execution) -> Spec:
    if one_off.spec is None:
        raise ValueError(f"one-off {one_off.id} carries no definition")
    return one_off.spec


def _refuse(
    ports: Ports,
    received: Received,
    claimed: Execution,
    token: Token,
    *,
    reason: str,
    job_version: int | None = None,
) -> Put:
    after = _after(ports, claimed, Refused(reason=reason), spec=None)
    return _close(ports, received, after, token, job_version=job_version)


def _payload(ports: Ports, claimed: Execution, spec: Spec) -> str | Failure:
    """What the handler is to be given; what it cannot ever be given is a failure of this try."""
    if spec.payload.ref is not None:
        return payloads.read(ports, spec.payload.ref)
    if spec.payload.text is not None:
        return spec.payload.text
    return ports.executions.get_payload(claimed.payload_home, spec.payload.version)


def conclude(ports: Ports, claimed: Claimed, outcome: Outcome) -> Put:
    """Write what came of the try, arm the next one if there is one, then delete the message.

    A crash between the two writes leaves a message whose try is over: its next receiver arms
    what it finds (P11). A result that comes after the claim was lost changes nothing.
    """
    after = _after(ports, claimed.execution, outcome, spec=claimed.spec)
    return _close(ports, claimed.received, after, claimed.token)


def _close(
    ports: Ports,
    received: Received,
    after: Execution,
    token: Token,
    *,
    job_version: int | None = None,
) -> Put:
    try:
        settled = _settle(ports, after, token, job_version)
    except LostClaim:
        ports.telemetry.late_result_refused(after.id)
        # Not ours to delete: whoever took over may still need the message (P8).
        return Put(deleted=False)
    if settled.state is State.RETRYING:
        timers.arm_retry(ports, settled)
    else:
        endings.wake(ports, settled)
    return _delete(ports, received)


def _after(ports: Ports, running: Execution, outcome: Outcome, *, spec: Spec | None) -> Execution:
    return finished(
        running,
        outcome,
        policy=spec.retry if spec else RetryPolicy(),
        now=ports.clock.now(),
        jitter=ports.chance.jitter(),
    )


def _settle(ports: Ports, after: Execution, token: Token, job_version: int | None) -> Execution:
    """Write the outcome, trying again while the service does not answer.

    An earlier try that took effect unseen makes the next one LostClaim: the message is then
    kept, and dropped by whoever finds the row final.
    """
    for _ in range(_TRIES - 1):
        try:
            return _settled(ports, after, token, job_version)
        except Unavailable:
            ports.clock.sleep(_BETWEEN_TRIES)
    return _settled(ports, after, token, job_version)


def _settled(ports: Ports, after: Execution, token: Token, job_version: int | None) -> Execution:
    settled = ports.executions.settle(after, token=token, job_version=job_version)
    ports.telemetry.finished(settled)
    return settled


def _keep(ports: Ports, received: Received, duration: timedelta) -> Put:
    ports.queue.hide([received], max(duration, _SHORTEST_HIDE))
    return Put(deleted=False)


def _delete(ports: Ports, received: Received) -> Put:
    ports.queue.delete([received])
    return Put(deleted=True)
