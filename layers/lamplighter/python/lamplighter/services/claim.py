"""Claiming: one conditional write, and what it means that it was refused (P8–P10)."""

from datetime import datetime
from typing import assert_never

from lamplighter.core.claim import Drop, Keep, Lapsed, Rearm, TakeOver, Watch, refused
from lamplighter.core.errors import LostClaim
from lamplighter.core.limits import RENEWED_AFTER_RECEIVES, WORKER_LEASE
from lamplighter.core.model import Arrival, Execution, Message, Token
from lamplighter.core.outcome import crashed_too_often, lapsed, was_without_permit
from lamplighter.core.timing import is_inside
from lamplighter.ports import Ports, Received, Refusal
from lamplighter.services import deferred, endings, settling, timers
from lamplighter.services.settling import Put


def claim(
    ports: Ports, received: Received, *, token: Token, worker: str, arrival: Arrival | None
) -> Execution | Put:
    """Take the execution of a message for one try; exactly one caller wins.

    One that holds it no longer is taken over from. Of what there is nothing to take, the
    message is put where it belongs.
    """
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
            tell_start(ports, received, answer)
        return answer
    return _refused(ports, received, answer, token=token, worker=worker, arrival=arrival)


def tell_start(ports: Ports, received: Received, claimed: Execution) -> None:
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
            return settling.delete(ports, received)
        case Keep(until=until, reason=reason):
            ports.telemetry.claim_lost(message.execution_id, reason=reason)
            return settling.keep(ports, received, until - now)
        case Rearm(execution=execution, reason=reason):
            ports.telemetry.claim_lost(message.execution_id, reason=reason)
            timers.arm_retry(ports, execution)
            return settling.delete(ports, received)
        case Watch(execution=execution, until=until, reason=reason):
            ports.telemetry.claim_lost(message.execution_id, reason=reason)
            return _wait(ports, received, execution, until=until, now=now)
        case Lapsed(holder=holder):
            return _lapse(ports, received, holder)
        case TakeOver(holder=holder):
            return _take_over(ports, received, holder, token=token, worker=worker, arrival=arrival)
        case other:
            assert_never(other)


def _wait(
    ports: Ports, received: Received, held: Execution, *, until: datetime, now: datetime
) -> Put:
    """Have a message come when a deferred try is to have been heard of.

    Another for each lease would be one more for each that could not be deleted: while SQS is
    unwell they would multiply, for as long as the try goes on.
    """
    if is_inside(until, now) and received.receive_count < RENEWED_AFTER_RECEIVES:
        return settling.keep(ports, received, until - now)
    timers.arm_lease(ports, held)
    return settling.delete(ports, received)


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
        return settling.keep(ports, received, settling.SHORTEST_HIDE)
    ports.telemetry.taken_over(answer)
    if dead := crashed_too_often(answer, now):
        return settling.close(ports, received, dead, token)
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
        settled = settling.persistently(
            ports,
            lambda: ports.executions.settle(after, token=token, lease_until=lease_until),
        )
    except LostClaim:
        return settling.keep(ports, received, settling.SHORTEST_HIDE)
    ports.telemetry.finished(settled)
    deferred.follow(ports, holder, settled, token)
    return settling.delete(ports, received)
