"""Which occurrences of a recurring job become executions when they are found late.

Both functions are given the instant of the decision, so that a page that is done again as
of the same instant decides the same (P5).
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import assert_never

from lamplighter.core.lifecycle import State
from lamplighter.core.limits import MISFIRE_THRESHOLD
from lamplighter.core.model import Execution, Job, JobStatus, MisfirePolicy

_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, kw_only=True)
class Send:
    """Its message goes out."""


@dataclass(frozen=True, kw_only=True)
class Pass:
    """Nothing to send; only its successor is armed (P3)."""


@dataclass(frozen=True, kw_only=True)
class Skip:
    """The misfire policy passes over it, in favour of a later slot or of none."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class EndChain:
    """The job makes no more occurrences.

    The row is cancelled if the job's version still is what this decision saw (P17).
    """

    job_version: int
    reason: str


Decision = Send | Pass | Skip | EndChain


def decide(row: Execution, job: Job | None, decided_at: datetime) -> Decision:
    """What dispatch does with a row that it meets; `job` is None for a one-off."""
    if row.state is not State.SCHEDULED:
        return Pass()
    if job is None:
        return Pass() if row.sent_directly else Send()
    if job.status is not JobStatus.ACTIVE:
        return EndChain(job_version=job.version, reason=f"job is {job.status}")
    if _is_missed(row.run_at, decided_at):
        match job.misfire:
            case MisfirePolicy.SKIP:
                return Skip(reason=f"misfire: {decided_at - row.run_at} late")
            case MisfirePolicy.FIRE_ONCE:
                latest = job.latest_until(decided_at)
                if latest is not None and latest > row.scheduled_for:
                    return Skip(reason=f"misfire: {latest.isoformat()} runs for it")
            case other:
                assert_never(other)
    return Pass() if row.sent_directly else Send()


def successor(job: Job, slot: datetime, decided_at: datetime) -> datetime | None:
    """The slot that is armed after `slot`; None when the job makes no more.

    That is the next one or, when the next one is missed, the one that the misfire policy
    goes on with. It costs the same after a minute and after five years.
    """
    following = job.next_after(slot)
    if following is None or not _is_missed(job.run_at(following), decided_at):
        return following
    match job.misfire:
        case MisfirePolicy.SKIP:
            return _first_on_time(job, following, decided_at)
        case MisfirePolicy.FIRE_ONCE:
            return job.latest_until(decided_at)
        case other:
            assert_never(other)


def _is_missed(run_at: datetime, decided_at: datetime) -> bool:
    return decided_at - run_at > MISFIRE_THRESHOLD


def _first_on_time(job: Job, following: datetime, decided_at: datetime) -> datetime | None:
    """The first slot from `following` on that is not missed."""
    offset = job.run_at(following) - following
    return job.next_after(decided_at - MISFIRE_THRESHOLD - offset - _MILLISECOND)
