"""Running one message: hold, claim, look, run, and the outcome before the message goes.

Whatever happens between two lines, the row and the message left behind are enough for
another worker to go on: the claim is one conditional write, the outcome is another, and the
message is deleted only after it (P8–P11).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import assert_never

from lamplighter.core.claim import Drop, Keep, Lapsed, Rearm, TakeOver, Watch, refused
from lamplighter.core.deadline import overdue
from lamplighter.core.deferral import callback_of, digest_of
from lamplighter.core.errors import LostClaim, Unavailable, Unreadable, VersionMoved
from lamplighter.core.lifecycle import State
from lamplighter.core.limits import MAX_HOLD, PERMIT_MAX_POLLS, TAKE_OVER_GRACE, WORKER_LEASE
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
    lapsed,
    put_off,
    was_without_permit,
    without_permit,
)
from lamplighter.core.overlap import policy_of
from lamplighter.core.permits import Bound, polled_after
from lamplighter.core.retry import Failure, RetryPolicy
from lamplighter.ports import Ports, Received, Refusal
from lamplighter.services import deferred, endings, payloads, permits, timers, turns

_TRIES = 5
_BETWEEN_TRIES = timedelta(milliseconds=200)
_SHORTEST_HIDE = timedelta(seconds=1)
_NO_TIME = timedelta(0)
_PUT_OFF_FOR = timedelta(seconds=15)
_HELD_S = (WORKER_LEASE - TAKE_OVER_GRACE).total_seconds()


@dataclass(kw_only=True)
class Completion:
    """What a handler has made of its execution by itself (`services/ledger.py: complete`)."""

    row: Execution | None = None
    """As it is then; None: its outcome is still to be written."""


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
    callback: str = field(default="", repr=False)
    """What `token` is the digest of; a handler that defers its try is told it."""
    permits: tuple[Bound, ...] = ()
    """What it comes under and has a place of, until its outcome is written or its lease over."""
    version: int | None = None
    """Of the task that runs it; None: none does yet, or it has a target."""
    completion: Completion = field(default_factory=Completion, compare=False)
    """The same for all copies of it."""


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
    received_at, held_from = ports.clock.now(), ports.clock.monotonic()
    wait = received.message.due_at - received_at
    if wait > MAX_HOLD:
        return _keep(ports, received, wait)
    if wait > timedelta(0):
        ports.clock.sleep(wait)
    held = timedelta(seconds=ports.clock.monotonic() - held_from)
    arrival = _arrival(ports, received, received_at, held=held)
    callback, claimed_at = callback_of(ports.chance.token()), ports.clock.monotonic()
    token = Token(digest_of(callback))
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
    spec, payload, taken = ready
    if ports.clock.monotonic() - claimed_at >= _HELD_S:
        # Stalled since the claim: another may have taken over by now (P9).
        ports.telemetry.late_result_refused(claimed.id)
        return Put(deleted=False)
    if was_without_permit(claimed):
        _tell_start(ports, received, claimed)
    return Claimed(
        received=received,
        execution=claimed,
        token=token,
        spec=spec,
        payload=payload,
        claimed_at=claimed_at,
        callback=callback,
        permits=taken,
    )


def _arrival(
    ports: Ports, received: Received, received_at: datetime, *, held: timedelta
) -> Arrival | None:
    """How a message came; None where its queue tells nothing."""
    if received.sent_at is None:
        return None
    due_at, boot = received.message.due_at, ports.boot
    return Arrival(
        sent_at=received.sent_at,
        received_at=received_at,
        hold=held if received_at < due_at else _NO_TIME,
        cold_start=boot.within(max(received.sent_at, due_at), received_at) if boot else _NO_TIME,
    )


def _ready(
    ports: Ports, received: Received, claimed: Execution, token: Token
) -> tuple[Spec, str, tuple[Bound, ...]] | Put:
    """What it runs by, its payload, and its places under limits; without a payload it is FAILED."""
    spec = _look(ports, received, claimed, token)
    if isinstance(spec, Put):
        return spec
    payload = _payload(ports, claimed, spec)
    if isinstance(payload, str):
        taken = _take(ports, received, claimed, token)
        return taken if isinstance(taken, Put) else (spec, payload, taken)
    after = _after(ports, claimed, Failed(failure=payload), spec=spec)
    return _close(ports, received, after, token)


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
        waiting = _persistently(ports, lambda: ports.executions.settle(after, token=token))
    except LostClaim:
        ports.telemetry.late_result_refused(after.id)
        return Put(deleted=False)
    ports.telemetry.no_permit(claimed, of=taken.bound.key)
    if waiting.waiters:
        # Who waits for it may not any more: it decides again (P15).
        endings.wake(ports, waiting)
    hidden = permits.wait(ports, waiting, taken, receives=received.receive_count)
    if received.receive_count < PERMIT_MAX_POLLS:
        return _keep(ports, received, hidden)
    timers.send(ports, [timers.outgoing(waiting)])
    return _delete(ports, received)


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
        if not was_without_permit(answer):
            _tell_start(ports, received, answer)
        return answer
    return _refused(ports, received, answer, token=token, worker=worker, arrival=arrival)


def _tell_start(ports: Ports, received: Received, claimed: Execution) -> None:
    """Once for each start: one that waits for a permit is claimed each time that it looks."""
    lateness = ports.clock.now() - _wanted_at(claimed, received.message)
    ports.telemetry.started(claimed, lateness=lateness)


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
                # Whoever ended it may have died before it told anybody (P14).
                endings.finish(ports, refusal.found)
            return _delete(ports, received)
        case Keep(until=until, reason=reason):
            ports.telemetry.claim_lost(message.execution_id, reason=reason)
            return _keep(ports, received, until - now)
        case Rearm(execution=execution, reason=reason):
            ports.telemetry.claim_lost(message.execution_id, reason=reason)
            timers.arm_retry(ports, execution)
            return _delete(ports, received)
        case Watch(execution=execution, reason=reason):
            ports.telemetry.claim_lost(message.execution_id, reason=reason)
            timers.arm_lease(ports, execution)
            return _delete(ports, received)
        case Lapsed(holder=holder):
            return _lapse(ports, received, holder)
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


def _lapse(ports: Ports, received: Received, holder: Execution) -> Put:
    """End a deferred try that nobody ended in time, unless it is heard of in this instant."""
    token, lease_until = holder.token, holder.lease_until
    if holder.deferral is None or token is None or lease_until is None:
        raise ValueError(f"{holder.id} is not deferred")
    after = lapsed(
        holder,
        holder.deferral,
        policy=deferred.policy_of(ports, holder),
        now=ports.clock.now(),
        jitter=ports.chance.jitter(),
    )
    try:
        settled = _persistently(
            ports,
            lambda: ports.executions.settle(after, token=token, lease_until=lease_until),
        )
    except LostClaim:
        return _keep(ports, received, _SHORTEST_HIDE)
    ports.telemetry.finished(settled)
    deferred.follow(ports, holder, settled, token)
    return _delete(ports, received)


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
    what it finds (P11). A result that comes after the claim was lost changes nothing; nor does
    one that comes after the handler has completed its execution itself.
    """
    if (done := claimed.completion.row) is not None:
        _let_go(ports, claimed)
        return _completed(ports, claimed.received, done, outcome)
    after = _after(ports, claimed.execution, outcome, spec=claimed.spec)
    if after.deferral is not None:
        return _hand_over(ports, claimed, after)
    return _close(ports, claimed.received, after, claimed.token, over=claimed)


def _hand_over(ports: Ports, claimed: Claimed, after: Execution) -> Put:
    """Leave a deferred try to whoever has its callback token; its places stay its own.

    After a crash between the two writes the message comes back, and arms the same.
    """
    try:
        held = _persistently(ports, lambda: ports.executions.settle(after, token=claimed.token))
    except LostClaim:
        # Ended already by whoever was told the token, or taken over.
        ports.telemetry.late_result_refused(after.id)
        _let_go(ports, claimed)
        return _keep(ports, claimed.received, _SHORTEST_HIDE)
    timers.arm_lease(ports, held)
    return _delete(ports, claimed.received)


def _let_go(ports: Ports, claimed: Claimed) -> None:
    """Its places are for others, now that its handler has returned.

    Where no answer comes they are free at the end of its lease: nothing more is lost by that.
    """
    try:
        permits.release(ports, claimed.permits, claimed.execution.id, claimed.token)
    except Unavailable as error:
        ports.telemetry.broke(claimed.execution.id, error)


def _completed(ports: Ports, received: Received, done: Execution, outcome: Outcome) -> Put:
    """What is left to do of an execution whose outcome is written.

    After a crash the message comes back, and whoever finds the row final does the same.
    """
    ports.telemetry.finished(done)
    if isinstance(outcome, Failed):
        error = outcome.failure
        ports.telemetry.said(done, f"failed after it was complete: {error.type}: {error.message}")
    endings.finish(ports, done)
    return _delete(ports, received)


def _close(
    ports: Ports,
    received: Received,
    after: Execution,
    token: Token,
    *,
    job_version: int | None = None,
    over: Claimed | None = None,
) -> Put:
    """`over` is what was started and has places to give back."""
    try:
        settled = _settle(ports, after, token, job_version)
        if over is not None:
            _let_go(ports, over)
    except LostClaim:
        ports.telemetry.late_result_refused(after.id)
        if over is not None:
            _let_go(ports, over)
        # Not ours to delete: whoever took over may still need the message (P8).
        return Put(deleted=False)
    if settled.state is State.RETRYING:
        if (since := settled.parked_since) is not None:
            ports.telemetry.parked(settled, lasts=ports.clock.now() - since)
        timers.arm_retry(ports, settled)
    else:
        endings.finish(ports, settled)
    return _delete(ports, received)


def _after(ports: Ports, running: Execution, outcome: Outcome, *, spec: Spec | None) -> Execution:
    return finished(
        running,
        outcome,
        policy=spec.retry if spec else RetryPolicy(),
        now=ports.clock.now(),
        jitter=ports.chance.jitter(),
        parked_for=ports.parked_for,
    )


def _settle(ports: Ports, after: Execution, token: Token, job_version: int | None) -> Execution:
    """Write the outcome, trying again while the service does not answer.

    An earlier try that took effect unseen makes the next one LostClaim: the message is then
    kept, and dropped by whoever finds the row final.
    """
    settled = _persistently(
        ports, lambda: ports.executions.settle(after, token=token, job_version=job_version)
    )
    ports.telemetry.finished(settled)
    return settled


def _persistently(ports: Ports, write: Callable[[], Execution]) -> Execution:
    for _ in range(_TRIES - 1):
        try:
            return write()
        except Unavailable:
            ports.clock.sleep(_BETWEEN_TRIES)
    return write()


def _keep(ports: Ports, received: Received, duration: timedelta) -> Put:
    ports.queue.hide([received], max(duration, _SHORTEST_HIDE))
    return Put(deleted=False)


def _delete(ports: Ports, received: Received) -> Put:
    ports.queue.delete([received])
    return Put(deleted=True)
