"""The look after the claim: what may have changed since an execution was planned (P17, P19).

Whoever looks holds the row; so what is read here cannot change what was promised before.
"""

from typing import assert_never

from lamplighter.core.deadline import overdue
from lamplighter.core.errors import LostClaim, Unavailable, VersionMoved
from lamplighter.core.limits import RENEWED_AFTER_RECEIVES
from lamplighter.core.model import Execution, Job, JobStatus, OverlapPolicy, Spec, Token, Trigger
from lamplighter.core.outcome import Failed, Refused, ended, without_permit
from lamplighter.core.overlap import policy_of
from lamplighter.core.permits import Bound, polled_after
from lamplighter.core.retry import Failure
from lamplighter.ports import Ports, Received
from lamplighter.services import endings, payloads, permits, settling, timers, turns
from lamplighter.services.settling import Put

_TRIES = 5


def look(
    ports: Ports, received: Received, claimed: Execution, token: Token
) -> tuple[Spec, str, tuple[Bound, ...]] | Put:
    """What it runs by, its payload, and its places under limits; without a payload it is FAILED."""
    spec = _definition(ports, received, claimed, token)
    if isinstance(spec, Put):
        return spec
    payload = _payload(ports, claimed, spec)
    if isinstance(payload, str):
        taken = _take(ports, received, claimed, token)
        return taken if isinstance(taken, Put) else (spec, payload, taken)
    after = settling.after_try(ports, claimed, Failed(failure=payload), spec=spec)
    return settling.close(ports, received, after, token)


def _definition(ports: Ports, received: Received, claimed: Execution, token: Token) -> Spec | Put:
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


def _spec_of(one_off: Execution) -> Spec:
    if one_off.spec is None:
        raise ValueError(f"one-off {one_off.id} carries no definition")
    return one_off.spec


def _too_late(
    ports: Ports, received: Received, claimed: Execution, token: Token, job: Job | None
) -> Put | None:
    """None unless its deadline passed before it was ever started: then it has ended."""
    now = ports.clock.now()
    late = overdue(claimed, job, now)
    if late is None:
        return None
    after = ended(claimed, late.event, now=now, reason=late.reason)
    return settling.close(ports, received, after, token, job_version=job.version if job else None)


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
            return settling.delete(ports, received)
        case turns.Over(after=after):
            return settling.close(ports, received, after, token)
        case other:
            assert_never(other)


def _refuse(
    ports: Ports,
    received: Received,
    claimed: Execution,
    token: Token,
    *,
    reason: str,
    job_version: int | None = None,
) -> Put:
    after = settling.after_try(ports, claimed, Refused(reason=reason), spec=None)
    return settling.close(ports, received, after, token, job_version=job_version)


def _payload(ports: Ports, claimed: Execution, spec: Spec) -> str | Failure:
    """What the handler is to be given; what it cannot ever be given is a failure of this try."""
    if spec.payload.ref is not None:
        return payloads.read(ports, spec.payload.ref)
    if spec.payload.text is not None:
        return spec.payload.text
    return ports.executions.get_payload(claimed.payload_home, spec.payload.version)


def _take(
    ports: Ports, received: Received, claimed: Execution, token: Token
) -> tuple[Bound, ...] | Put:
    """Its places under all limits, the last thing before it starts; without, it waits."""
    taken = permits.take(ports, claimed, token)
    if not isinstance(taken, permits.Full):
        return taken
    until = ports.clock.now() + polled_after(received.receive_count)
    after = without_permit(claimed, of=str(taken.bound.key), until=until)
    try:
        waiting = settling.persistently(ports, lambda: ports.executions.settle(after, token=token))
    except LostClaim:
        ports.telemetry.late_result_refused(after.id)
        return Put(deleted=False)
    ports.telemetry.no_permit(claimed, of=taken.bound.key)
    if waiting.waiters:
        # Who waits for it may not any more: it decides again (P15).
        endings.wake(ports, waiting)
    hidden = permits.wait(ports, waiting, taken, receives=received.receive_count)
    if received.receive_count < RENEWED_AFTER_RECEIVES:
        return settling.keep(ports, received, hidden)
    timers.send(ports, [timers.outgoing(waiting)])
    return settling.delete(ports, received)
