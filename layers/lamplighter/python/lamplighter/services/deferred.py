"""Ending, or going on with, a try that was deferred: by whoever has its callback token.

Nobody is asked who they are: the token is the right to one try of one execution, and to nothing
else. It is never the token that the row holds, which is its digest (`core.deferral`).
"""

import hashlib

from lamplighter.core.buckets import ExecutionId
from lamplighter.core.deferral import digest_of, is_same
from lamplighter.core.errors import Conflict, LostClaim, NotFound, Unavailable
from lamplighter.core.lifecycle import State
from lamplighter.core.model import Execution, Token, Trigger
from lamplighter.core.notices import is_owed
from lamplighter.core.outcome import Failed, Succeeded, called_back
from lamplighter.core.retry import RetryPolicy
from lamplighter.ports import Ports
from lamplighter.services import endings, permits, timers

_TRIES = 5


def heartbeat(ports: Ports, id: ExecutionId, callback: str) -> Execution:
    """Say that a deferred try goes on; the answer tells whether a cancel was requested.

    It is then held for another heartbeat, at most until its hard limit. Of a try whose handler
    has not returned yet nothing changes: its worker holds it. Raises NotFound for a token of
    no try, Conflict once it has ended, or was silent for too long.
    """
    row, token = _held(ports, id, callback)
    if row.deferral is None:
        return row
    now = ports.clock.now()
    if row.lease_until is not None and row.lease_until <= now:
        # Whoever comes by after the grace ends it, or has its places (P21): the grace is for
        # the beats that are on their way then.
        raise Conflict(reason="the try was silent for too long")
    try:
        return ports.executions.extend(id, token=token, lease_until=row.deferral.lease_until(now))
    except LostClaim:
        _held(ports, id, callback)
        raise


def end(
    ports: Ports, id: ExecutionId, callback: str, outcome: Succeeded | Failed, *, said: str
) -> Execution:
    """End a deferred try as its worker would have; once, and the first one counts.

    Silence does not keep it from being ended, while nobody has noticed; its hard limit does.

    `said` is all that was said: the same again is answered with the same, so that a caller who
    heard nothing may ask again. Raises NotFound and Conflict as `heartbeat`. After a crash what
    follows from it is done by the message that waits for the end of its lease, or the sweep.
    """
    answer = hashlib.sha256(said.encode()).hexdigest()[:32]
    for _ in range(_TRIES):
        row = _row(ports, id)
        before = row.called_back
        if before and is_same(before.token, digest_of(callback)) and before.answer == answer:
            return row
        row, token = _held(ports, id, callback)
        now = ports.clock.now()
        if row.deferral is not None and row.deferral.ends_at <= now:
            # Whoever comes by next says so in the row.
            raise Conflict(reason="the try is over: its hard limit has passed")
        after = called_back(
            row,
            outcome,
            answer=answer,
            policy=policy_of(ports, row),
            now=now,
            jitter=ports.chance.jitter(),
        )
        try:
            settled = ports.executions.settle(after, token=token)
        except LostClaim:
            # By another call with this token, or because it lapsed: it says which.
            continue
        ports.telemetry.finished(settled)
        follow(ports, row, settled, token)
        return settled
    raise Unavailable(f"{id} changes faster than it can be read")


def follow(ports: Ports, before: Execution, settled: Execution, token: Token) -> None:
    """What follows from the end of a deferred try; doing it again is harmless."""
    try:
        limits = ports.permits.limits()
        bounds = limits.on(queue=before.queue, owner=before.owner, task=before.task)
        permits.release(ports, bounds, before.id, token)
    except Unavailable as error:
        # Then they are free at the end of its lease.
        ports.telemetry.broke(before.id, error)
    if settled.state is State.RETRYING:
        timers.arm_retry(ports, settled)
        return
    endings.finish(ports, settled)
    if ports.notices is None and is_owed(settled):
        # Whoever receives its message tells its owner.
        timers.send(ports, [timers.outgoing(settled)])


def policy_of(ports: Ports, row: Execution) -> RetryPolicy:
    """What a deferred try is followed by: as its own definition says, or its job's, or its task.

    Of a job that is not there any more only the task's own policy is known.
    """
    of_task = row.deferral.retry if row.deferral else None
    if row.spec is not None:
        return row.spec.retried_by(of_task)
    job = ports.jobs.get(row.job_id) if row.trigger is not Trigger.ONE_OFF else None
    return job.spec.retried_by(of_task) if job else of_task or RetryPolicy()


def _row(ports: Ports, id: ExecutionId) -> Execution:
    row = ports.executions.get(id)
    if row is None:
        raise _no_such(id)
    return row


def _held(ports: Ports, id: ExecutionId, callback: str) -> tuple[Execution, Token]:
    """The row that this token holds; the same error for any other token, and for no row."""
    row, digest = _row(ports, id), digest_of(callback)
    if row.state is State.RUNNING and row.token is not None and is_same(row.token, digest):
        return row, row.token
    ended = row.called_back
    if ended is not None and is_same(ended.token, digest):
        raise Conflict(reason=f"the try is over: {ended.reason}; the execution is {row.state}")
    raise _no_such(id)


def _no_such(id: ExecutionId) -> NotFound:
    return NotFound(kind="deferred try", id=id)
