"""Which occurrences of a recurring job become executions when they are found late.

Everything here is given the instant of the decision, so that a page that is done again as of
the same instant decides the same (P5). Whatever was missed, however long the outage was, costs
no more than the job's cap.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice, takewhile
from typing import assert_never

from lamplighter.core.buckets import ExecutionId
from lamplighter.core.catch_up import CaughtUp
from lamplighter.core.deadline import overdue
from lamplighter.core.lifecycle import Event, State
from lamplighter.core.limits import PASSED_OVER_COUNTED
from lamplighter.core.model import Execution, Job, JobStatus, MisfirePolicy
from lamplighter.core.schedule.instants import whole_ms

_MILLISECOND = timedelta(milliseconds=1)
_TOO_OLD = "misfire: older than the catch-up window"
_TOO_MANY = "misfire: more than catchup_max"


@dataclass(frozen=True, kw_only=True)
class Send:
    """Its message goes out."""


@dataclass(frozen=True, kw_only=True)
class Pass:
    """Nothing to send; only its successor is armed (P3)."""


@dataclass(frozen=True, kw_only=True)
class Drop:
    """It ends without a run: passed over by a policy, or past its deadline."""

    event: Event
    reason: str
    blocker: ExecutionId | None = None
    """What it gives way to, if to anything."""


@dataclass(frozen=True, kw_only=True)
class EndChain:
    """The job makes no more occurrences.

    The row is cancelled if the job's version still is what this decision saw (P17).
    """

    job_version: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class Park:
    """It waits, unsent, for a release that can read its job's definition, or for an edit."""

    reason: str


Decision = Send | Pass | Drop | EndChain | Park


@dataclass(frozen=True, kw_only=True)
class Gap:
    """Missed slots in a row that are not run and have no rows: they are told of together."""

    first: datetime
    last: datetime
    count: int
    """How many, up to `PASSED_OVER_COUNTED`; there may be more then."""
    reason: str


@dataclass(frozen=True, kw_only=True)
class Successor:
    """The slot that is armed after another, its place in a catch-up, and what lies between."""

    slot: datetime | None
    """None when the job makes no more."""
    caught_up: CaughtUp | None = None
    passed_over: Gap | None = None


def decide(row: Execution, job: Job | None, decided_at: datetime) -> Decision:
    """What dispatch does with a row that it meets; `job` is None where none is asked."""
    if row.state is not State.SCHEDULED:
        return Pass()
    # What was asked for by name is never missed, and only its job's deletion holds it up.
    is_kept = row.is_additional and job is not None and job.status is not JobStatus.DELETED
    of = None if is_kept else job
    decided = None if of is None else _by_its_job(row, of, decided_at)
    if decided is None and (late := overdue(row, job, decided_at)):
        decided = Drop(event=late.event, reason=late.reason)
    if decided is None and of is not None and _is_given_up(row, of, decided_at):
        decided = Drop(event=Event.SKIP, reason=_TOO_OLD)
    return decided or (Pass() if row.sent_directly else Send())


def _by_its_job(row: Execution, job: Job, decided_at: datetime) -> Decision | None:
    if job.status is not JobStatus.ACTIVE:
        return EndChain(job_version=job.version, reason=f"job is {job.status}")
    if job.unreadable is not None:
        return Park(reason=job.unreadable)
    why = _why_not(row, job, decided_at)
    return Drop(event=Event.SKIP, reason=f"misfire: {why}") if why else None


def _is_given_up(row: Execution, job: Job, decided_at: datetime) -> bool:
    """Whether a longer deadline would let it start, but not the catch-up window."""
    return row.caught_up is None and _is_too_old(job, row.scheduled_for, decided_at)


def _why_not(row: Execution, job: Job, decided_at: datetime) -> str | None:
    """Why a row is passed over for the sake of others, or of none; None: it is not."""
    if not _is_missed(job, row.run_at, decided_at):
        return None
    match job.misfire:
        case MisfirePolicy.SKIP:
            return f"{decided_at - row.run_at} late"
        case MisfirePolicy.FIRE_ONCE:
            latest = job.latest_until(decided_at)
            later = latest is not None and latest > row.scheduled_for
            return f"{latest.isoformat()} runs for it" if latest and later else None
        case MisfirePolicy.FIRE_ALL:
            if row.caught_up is not None:
                # Chosen before; since then it has only become later.
                return None
            most = job.catch_up.most
            latest_so_many = islice(_missed(job, decided_at, since=row.scheduled_for), most + 1)
            return f"{most} later slots run" if sum(1 for _ in latest_so_many) > most else None
        case other:
            assert_never(other)


def successor(
    job: Job, slot: datetime, decided_at: datetime, *, caught_up: CaughtUp | None = None
) -> Successor:
    """What is armed after `slot`, whose own place in a catch-up is `caught_up`.

    That is the next slot or, when the next one is missed, the one that the misfire policy
    goes on with.
    """
    # As an intent keeps it, and the row: done again, the decision is the same to the millisecond.
    decided_at = whole_ms(decided_at)
    following = job.next_after(slot)
    if following is None or not _is_missed(job, job.run_at(following), decided_at):
        return Successor(slot=following)
    if caught_up and _goes_on(job, following, caught_up, decided_at):
        its_place = replace(caught_up, number=caught_up.number + 1)
        return Successor(slot=following, caught_up=its_place)
    match job.misfire:
        case MisfirePolicy.SKIP:
            return _on_time(job, following, decided_at, reason="misfire: skipped")
        case MisfirePolicy.FIRE_ONCE:
            return _latest(job, following, decided_at)
        case MisfirePolicy.FIRE_ALL:
            return _first_of_all(job, slot, following, decided_at)
        case other:
            assert_never(other)


def _is_missed(job: Job, run_at: datetime, decided_at: datetime) -> bool:
    return decided_at - run_at > job.catch_up.threshold


def _is_too_old(job: Job, slot: datetime, decided_at: datetime) -> bool:
    return decided_at - job.run_at(slot) > job.catch_up.window


def _goes_on(job: Job, following: datetime, caught_up: CaughtUp, decided_at: datetime) -> bool:
    """Whether the catch-up of a slot has the next one too, and it is not too late for that."""
    return (
        job.misfire is MisfirePolicy.FIRE_ALL
        and _is_missed(job, job.run_at(following), caught_up.decided_at)
        and not _is_too_old(job, following, decided_at)
    )


def _latest(job: Job, following: datetime, decided_at: datetime) -> Successor:
    latest = job.latest_until(decided_at)
    if latest is None or _is_too_old(job, latest, decided_at):
        return _on_time(job, following, decided_at, reason=_TOO_OLD)
    is_late = _is_missed(job, job.run_at(latest), decided_at)
    return Successor(
        slot=latest,
        caught_up=CaughtUp(decided_at=decided_at) if is_late else None,
        passed_over=_gap(job, following, latest, reason="misfire: a later slot runs for them"),
    )


def _first_of_all(job: Job, slot: datetime, following: datetime, decided_at: datetime) -> Successor:
    """The first of the missed slots that are all run, and how the others follow it.

    `slot` itself, where it is one of them, starts before it.
    """
    young = takewhile(
        lambda one: not _is_too_old(job, one, decided_at),
        _missed(job, decided_at, since=slot),
    )
    kept = [*islice(young, job.catch_up.most)]
    if not kept:
        return _on_time(job, following, decided_at, reason=_TOO_OLD)
    oldest = kept[-1]
    return Successor(
        slot=max(oldest, following),
        caught_up=CaughtUp(
            decided_at=decided_at,
            number=int(oldest == slot),
            step=job.catch_up.spread // len(kept) // _MILLISECOND * _MILLISECOND,
        ),
        passed_over=_gap(
            job,
            following,
            oldest,
            reason=_TOO_MANY if len(kept) == job.catch_up.most else _TOO_OLD,
        ),
    )


def _on_time(job: Job, following: datetime, decided_at: datetime, *, reason: str) -> Successor:
    """The first slot from `following` on that is not missed."""
    begin = _end_of_missed(job, decided_at)
    return Successor(
        slot=job.next_after(begin - _MILLISECOND),
        passed_over=_gap(job, following, begin, reason=reason),
    )


def _gap(job: Job, first: datetime, end: datetime, *, reason: str) -> Gap | None:
    """The slots from `first` on and before `end`."""
    if first >= end:
        return None
    slots = job.schedule.between(first, end)
    return Gap(
        first=first,
        last=next(job.schedule.occurrences_before(end)),
        count=sum(1 for _ in islice(slots, PASSED_OVER_COUNTED)),
        reason=reason,
    )


def _missed(job: Job, decided_at: datetime, *, since: datetime) -> Iterator[datetime]:
    """The missed slots from one on, the latest first."""
    slots = job.schedule.occurrences_before(_end_of_missed(job, decided_at))
    return takewhile(lambda slot: slot >= since and slot > job.since, slots)


def _end_of_missed(job: Job, decided_at: datetime) -> datetime:
    """Every slot before this instant is missed, and no later one."""
    offset = job.run_at(decided_at) - decided_at
    return decided_at - job.catch_up.threshold - offset
