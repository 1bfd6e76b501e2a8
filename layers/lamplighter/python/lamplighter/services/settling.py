"""What has come of a try is written first; then its message goes.

A crash between the two leaves a message whose try is over: its next receiver does what is left
(P11).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from lamplighter.core.buckets import ExecutionId
from lamplighter.core.errors import LostClaim, Unavailable
from lamplighter.core.lifecycle import State
from lamplighter.core.model import Execution, Spec, Token
from lamplighter.core.outcome import Failed, Outcome, finished, put_off
from lamplighter.core.permits import Bound
from lamplighter.core.retry import RetryPolicy
from lamplighter.ports import Ports, Received
from lamplighter.services import endings, permits, timers

SHORTEST_HIDE: Final = timedelta(seconds=1)
_TRIES = 5
_BETWEEN_TRIES = timedelta(milliseconds=200)
_PUT_OFF_FOR = timedelta(seconds=15)


@dataclass(frozen=True, kw_only=True)
class Put:
    """What became of a message that no handler is to be called for."""

    deleted: bool


def close(
    ports: Ports,
    received: Received,
    after: Execution,
    token: Token,
    *,
    job_version: int | None = None,
    places: Sequence[Bound] = (),
) -> Put:
    """Write what a try has come to, arm the next one if there is one, then delete the message.

    `places` are those that it was started with, and gives back.
    """
    try:
        settled = settle(ports, after, token, job_version)
        let_go(ports, places, after.id, token)
    except LostClaim:
        ports.telemetry.late_result_refused(after.id)
        let_go(ports, places, after.id, token)
        # Not ours to delete: whoever took over may still need the message (P8).
        return Put(deleted=False)
    if settled.state is State.RETRYING:
        if (since := settled.parked_since) is not None:
            ports.telemetry.parked(settled, lasts=ports.clock.now() - since)
        timers.arm_retry(ports, settled)
    else:
        endings.finish(ports, settled)
    return delete(ports, received)


def settle(ports: Ports, after: Execution, token: Token, job_version: int | None) -> Execution:
    """Write the outcome, trying again while the service does not answer.

    An earlier try that took effect unseen makes the next one LostClaim: the message is then
    kept, and dropped by whoever finds the row final.
    """
    settled = persistently(
        ports, lambda: ports.executions.settle(after, token=token, job_version=job_version)
    )
    ports.telemetry.finished(settled)
    return settled


def persistently(ports: Ports, write: Callable[[], Execution]) -> Execution:
    """What a write answers, tried again while the service does not answer."""
    for _ in range(_TRIES - 1):
        try:
            return write()
        except Unavailable:
            ports.clock.sleep(_BETWEEN_TRIES)
    return write()


def after_try(
    ports: Ports, running: Execution, outcome: Outcome, *, spec: Spec | None
) -> Execution:
    """What an outcome makes of the row that was claimed; not written yet."""
    of_task = outcome.retry if isinstance(outcome, Failed) else None
    return finished(
        running,
        outcome,
        policy=spec.retried_by(of_task) if spec else RetryPolicy(),
        now=ports.clock.now(),
        jitter=ports.chance.jitter(),
        parked_for=ports.parked_for,
    )


def let_go(ports: Ports, places: Sequence[Bound], id: ExecutionId, token: Token) -> None:
    """The places of a try are for others, now that its handler has returned.

    Where no answer comes they are free at the end of its lease: nothing more is lost by that.
    """
    try:
        permits.release(ports, places, id, token)
    except Unavailable as error:
        ports.telemetry.broke(id, error)


def postpone(
    ports: Ports, received: Received, claimed: Execution, token: Token, *, reason: str
) -> Put:
    """Let go of what cannot be looked at now: no attempt is used, and no crash counted."""
    after = put_off(claimed, until=ports.clock.now() + _PUT_OFF_FOR, reason=reason)
    try:
        settle(ports, after, token, None)
    except LostClaim:
        ports.telemetry.late_result_refused(after.id)
        return Put(deleted=False)
    return keep(ports, received, _PUT_OFF_FOR)


def keep(ports: Ports, received: Received, duration: timedelta) -> Put:
    """Have a message come back after a while."""
    ports.queue.hide([received], max(duration, SHORTEST_HIDE))
    return Put(deleted=False)


def delete(ports: Ports, received: Received) -> Put:
    """Nothing is left to do by a message."""
    ports.queue.delete([received])
    return Put(deleted=True)
