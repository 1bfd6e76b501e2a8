"""Watching over recurring jobs: their ledger is told without anybody's asking.

A watch is a row in a bucket to come; the sweep visits it as it does a check. Each visit tells
what was missed since the one before, arms what a chain lacks that has died, and books the
next. So it finds a job of which no row is due any more, without a scan: its watch is.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Final

from lamplighter.core.buckets import ExecutionId, before, body_of, instant_of
from lamplighter.core.completeness import Place
from lamplighter.core.lifecycle import State
from lamplighter.core.limits import (
    CHAIN_SLOTS,
    DYNAMODB_BATCH_GET,
    EXECUTION_KEPT,
    LEDGER_LATE,
    WATCH_PARTS,
    ZONES_MOVE,
)
from lamplighter.core.model import Execution, Job, JobStatus, Rest, Watch
from lamplighter.core.planning import supersedes
from lamplighter.core.schedule.instants import whole_ms
from lamplighter.core.watching import first_watch, judged_from, next_watch
from lamplighter.ports import Ports
from lamplighter.services import progress, timers
from lamplighter.services.completeness import account_of
from lamplighter.services.progress import Dispatched

_TICK: Final = timedelta(milliseconds=1)
_ZONE_STEP: Final = timedelta(minutes=15)  # all offsets from UTC are a multiple of it


def begin(ports: Ports, job: Job) -> None:
    """Put the first watch of a version that is about to be written.

    The watch comes first: whatever crashes between the two, a job that was accepted has one, and
    one without a job ends at its first visit.
    """
    ports.executions.point([first_watch(job, ports.clock.now())])


def visit(ports: Ports, watch: Watch) -> None:
    """Tell what was missed, mend the chain if it is dead, and book the next visit (P7).

    In this order: after a crash in between the visit is made again, by the next owner of the
    partition. That tells the same once more; what is armed twice is the same row.
    """
    job = ports.jobs.get(watch.job_id)
    if job is None:
        # It was never made, nor will it be: see `limits.WATCH_FIRST`.
        return
    # Asked before any row is read, so that what lacks then is not under way.
    dispatched = progress.of_jobs(ports, [job.id])[job.id]
    since, rest = _tell(ports, job, watch, dispatched)
    if job.status is JobStatus.ACTIVE and job.unreadable is None:
        _mend(ports, job, dispatched, unaccounted=watch.since)
    following = next_watch(job, since=since, rest=rest, now=ports.clock.now())
    if following is not None:
        ports.executions.point([following])


def _tell(
    ports: Ports, job: Job, watch: Watch, dispatched: Dispatched
) -> tuple[datetime, Rest | None]:
    """Account for what dispatch has done since the last visit; up to where, and but for what.

    Of a job that cannot be read nothing is told until it can.
    """
    since, rest = watch.since, watch.rest
    if job.unreadable is not None:
        return since, rest
    end = _end(ports, job, dispatched)
    for _ in range(WATCH_PARTS):
        if rest is None and since >= end:
            break
        until = rest.until if rest else end
        after = Place.read(rest.place) if rest else None
        part = account_of(ports, job, start=since, end=until, after=after)
        rest = Rest(until=until, place=part.next.text) if part.next else None
        since = since if rest else until
    return since, rest


def _end(ports: Ports, job: Job, dispatched: Dispatched) -> datetime:
    """Before this, slots are over: the sweep, too, has had time for what dispatch did."""
    over = min(ports.clock.now() - LEDGER_LATE, instant_of(dispatched.committed))
    return whole_ms(over - _later(job))


def _later(job: Job) -> timedelta:
    """How much later than its slots a job's occurrences are due."""
    return job.run_at(job.since) - job.since


def _mend(ports: Ports, job: Job, dispatched: Dispatched, *, unaccounted: datetime) -> None:
    """Go on with a chain that has ended though its job makes more, as its misfire policy says."""
    now = ports.clock.now()
    if now < judged_from(job) or dispatched.committed < before(now):
        return
    slot = _first_to_come(job, dispatched)
    planned = slot and job.occurrence(slot, now=now, sent_directly=False)
    if not planned or _is_armed(ports, job, planned, dispatched):
        return
    # Told before it is done: whoever comes after a crash may find it done.
    ports.telemetry.recovered(planned, reason="its job had nothing armed")
    link = _end_of_chain(ports, job, planned.scheduled_for, unaccounted=unaccounted)
    following = timers.arm_chains(ports, [link], decided_at=now)
    timers.send(ports, [timers.outgoing(one) for one in following])


def _first_to_come(job: Job, dispatched: Dispatched) -> datetime | None:
    """The first slot that dispatch has not been at: whoever passed the one before it armed it."""
    reached = dispatched.committed
    slots = job.schedule.occurrences(max(job.since, instant_of(reached) - _later(job) - _TICK))
    return next((slot for slot in slots if body_of(job.occurrence_id(slot)) > reached), None)


def _is_armed(ports: Ports, job: Job, planned: Execution, dispatched: Dispatched) -> bool:
    """Whether something is there for dispatch to come to, which goes on from it.

    As a rule that is the first to come. Its owner may have cancelled it so long ago that it is
    forgotten: then one of those after it is armed. And it may have been planned by another
    release of the zone database, at another time of that day.
    """
    there = ports.executions.get(planned.id)
    if there is not None and not supersedes(planned, there):
        return True
    slot = planned.scheduled_for
    later = islice(job.schedule.occurrences(slot), DYNAMODB_BATCH_GET)
    steps = ZONES_MOVE // _ZONE_STEP
    moved = (slot + number * _ZONE_STEP for number in range(-steps, steps + 1) if number)
    ids = [*dict.fromkeys(job.occurrence_id(one) for one in (*later, *moved))]
    return any(
        row.state is State.SCHEDULED
        and body_of(row.id) > dispatched.committed
        and job.produces(row)
        for row in _rows(ports, ids)
    )


def _end_of_chain(ports: Ports, job: Job, slot: datetime, *, unaccounted: datetime) -> timers.Link:
    """The place behind which a chain goes on: its latest row before a slot.

    Where that is not found, it goes on with what nobody has accounted for: what lies before it
    may have run, and be forgotten.
    """
    kept_from = max(job.since, ports.clock.now() - EXECUTION_KEPT)
    slots = job.schedule.occurrences_before(slot)
    for _ in range(CHAIN_SLOTS // DYNAMODB_BATCH_GET):
        some = [one for one in islice(slots, DYNAMODB_BATCH_GET) if one > kept_from]
        rows = _rows(ports, [job.occurrence_id(one) for one in some])
        ours = [row for row in rows if job.produces(row)]
        if ours:
            last = timers.link_of(job, max(ours, key=lambda row: row.scheduled_for))
            return replace(last, execution=job.tail or last.execution)
        if len(some) < DYNAMODB_BATCH_GET:
            break
    begin = max(unaccounted - _TICK, kept_from)
    # Of what was there before, the row is gone or never was: it has ended long ago.
    return timers.Link(
        job=job, slot=begin, execution=job.tail or job.occurrence_id(begin), caught_up=None
    )


def _rows(ports: Ports, ids: Sequence[ExecutionId]) -> Sequence[Execution]:
    return [*ports.executions.get_many(ids, strongly=True).values()] if ids else []
