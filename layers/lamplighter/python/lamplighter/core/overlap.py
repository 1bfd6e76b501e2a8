"""What an execution whose predecessor has not ended does about it (P12–P16).

The executions of a job that does not allow overlap are a chain: each names the one before it.
Whoever claims one looks back along the chain to the nearest that has not ended; that one is in
its way.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import assert_never

from lamplighter.core.buckets import ExecutionId
from lamplighter.core.lifecycle import State
from lamplighter.core.limits import TAKE_OVER_GRACE
from lamplighter.core.model import Execution, Job, MisfirePolicy, OverlapPolicy, Trigger
from lamplighter.core.retry import Kind


@dataclass(frozen=True, kw_only=True)
class Start:
    """Nothing is in its way."""


@dataclass(frozen=True, kw_only=True)
class GiveWay:
    """It ends SKIPPED."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class Wait:
    """It is BLOCKED until what is in its way has ended.

    `alone`: only one may wait, so what is in its way must not be waiting itself (P15).
    """

    alone: bool = False


@dataclass(frozen=True, kw_only=True)
class TakeItsPlace:
    """What is in its way is to end: asked to stop, or with `forced` fenced off at once."""

    forced: bool


Turn = Start | GiveWay | Wait | TakeItsPlace


def turn(policy: OverlapPolicy, in_its_way: Execution | None) -> Turn:
    """What comes of an execution that meets another, by its job's policy."""
    if in_its_way is None or policy is OverlapPolicy.ALLOW:
        return Start()
    reason = f"overlap: {in_its_way.id} is {in_its_way.state}"
    match policy:
        case OverlapPolicy.SKIP:
            return GiveWay(reason=reason)
        case OverlapPolicy.BUFFER_ONE:
            is_waiting = in_its_way.state is State.BLOCKED
            return GiveWay(reason=reason) if is_waiting else Wait(alone=True)
        case OverlapPolicy.BUFFER_ALL:
            return Wait()
        case OverlapPolicy.CANCEL_OTHER:
            return TakeItsPlace(forced=False)
        case OverlapPolicy.TERMINATE_OTHER:
            return TakeItsPlace(forced=True)
        case other:
            assert_never(other)


def is_in_the_way(predecessor: Execution, now: datetime) -> bool:
    """Whether one that is due now would meet its predecessor: that runs, and is alive."""
    return (
        predecessor.state is State.RUNNING
        and predecessor.lease_until is not None
        and predecessor.lease_until > now
    )


def policy_of(execution: Execution, job: Job) -> OverlapPolicy:
    """The policy that an execution goes by: its job's, unless it is one of many slots at once.

    Slots that are backfilled, or all caught up on, wait for each other. Else the first of them
    would run, and the others make way for it or end it.
    """
    is_caught_up = execution.caught_up is not None and job.misfire is MisfirePolicy.FIRE_ALL
    is_one_of_many = execution.trigger is Trigger.BACKFILL or is_caught_up
    if is_one_of_many and job.overlap is not OverlapPolicy.ALLOW:
        return OverlapPolicy.BUFFER_ALL
    return job.overlap


def let_go_at(ended: Execution) -> datetime | None:
    """When no handler runs any more of one that was ended over its holder's head (P9)."""
    last = ended.attempts[-1] if ended.attempts else None
    was_lost = last is not None and last.error is not None and last.error.kind is Kind.LOST_LEASE
    if last is None or not was_lost or last.state is not State.CANCELLED:
        return None
    return last.finished_at and last.finished_at + TAKE_OVER_GRACE


def before(ended: Execution) -> ExecutionId | None:
    """Who is looked at next, past one that has ended; None: all before it have ended too.

    They have if a handler of it was called: it looked before that. One that never ran looked
    at nothing, or was skipped for one that may still run (P12).
    """
    if any(
        attempt.error is None or attempt.error.kind is not Kind.LOST_LEASE
        for attempt in ended.attempts
    ):
        return None
    return ended.blocker or ended.predecessor
