"""Running slots of the past: all that a job's schedule has in an interval, each once.

What is to run is decided once, and kept with the caller's idempotency key: whoever asks again
with that key has the same executions made, those that a crash left out too.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import islice, takewhile
from typing import Final

from lamplighter.core import limits
from lamplighter.core.buckets import (
    ExecutionId,
    JobId,
    from_ms,
    one_off_job_id,
    place_of,
    to_ms,
)
from lamplighter.core.errors import Conflict, KeyReused, Rejected
from lamplighter.core.lifecycle import FINAL, State
from lamplighter.core.model import Execution, Job, OverlapPolicy, Owner, Trigger
from lamplighter.core.schedule import format_instant
from lamplighter.core.status import Status, status_of
from lamplighter.core.timing import is_inside
from lamplighter.ports import KeyRecord, Ports
from lamplighter.services import additional, admission, slots

_CAME_TO_NOTHING: Final = FINAL - {State.SUCCEEDED}
_VERSIONS_LOOKED_AT: Final = 200


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Which slots are to run, and how they are spread over the time from now on."""

    start: datetime
    end: datetime
    """Not one of them."""
    most: int = limits.BACKFILL_SLOTS
    spread: timedelta = timedelta(0)
    skip_existing: bool = True
    """Leave out what ran, runs or will, by the schedule or by a backfill before this one."""
    traceparent: str | None = None


@dataclass(frozen=True, kw_only=True)
class Key:
    """The caller's idempotency key, and the digest of the request that it came with."""

    key: str
    fingerprint: str


@dataclass(frozen=True, kw_only=True)
class Left:
    """A slot that is left out, for the execution that it has."""

    slot: datetime
    execution_id: ExecutionId
    status: Status


@dataclass(frozen=True, kw_only=True)
class Backfill:
    """What a request comes to: an execution for each slot, and the slots that are left out."""

    job_id: JobId
    rows: Sequence[Execution]
    left: Sequence[Left]
    is_replayed: bool = field(default=False, compare=False)
    """Answered before, under the same key."""


def backfill(
    ports: Ports, owner: Owner, id: JobId, asked: Asked, *, key: Key | None = None
) -> Backfill:
    """Make an execution for each slot of the interval, oldest first, due from now on.

    Raises NotFound; Conflict for a one-off and for a deleted job; Rejected for an interval
    that is none, reaches past now, or holds more slots than asked for; OverQuota for all of
    them when there is no room for as many; KeyReused; Unavailable.
    The first execution and the key with all that is to be made are written in one transaction,
    then the others. After a crash some of these may be missing: asked again with the key
    within a day, they are made, those that are there are not made twice, and the answer is the
    same. Without a key, what was made is left out by the next call as long as it skips what
    exists. Where every slot is left out, nothing is written and a key stays unused.
    """
    known = ports.jobs.record_of(owner, key.key) if key else None
    if known is not None and key is not None:
        return _again(ports, known, key)
    plan = planned(ports, owner, id, asked)
    if not plan.rows:
        return plan
    record = _record(plan, key) if key else None
    rows = admission.admitted(ports, plan.rows)
    known = additional.make_many(ports, rows, record=record)
    return plan if known is None or key is None else _again(ports, known, key)


def planned(ports: Ports, owner: Owner, id: JobId, asked: Asked) -> Backfill:
    """What `backfill` would make now; nothing is written. Raises as it does."""
    job = additional.job_to_run(ports, owner, id)
    if asked.spread and job.overlap is not OverlapPolicy.ALLOW:
        # Until the last of them was due, each slot of the schedule would give way to it.
        raise Rejected(
            field="spread_seconds",
            value=asked.spread.total_seconds(),
            reason=f"only where overlap is allowed: by {job.overlap} one runs after the other",
        )
    now = from_ms(to_ms(ports.clock.now()))
    wanted = _slots(job, asked, now)
    there = _executions_of(ports, job, wanted) if asked.skip_existing else {}
    to_run = [slot for slot in wanted if slot not in there]
    layout = ports.layout()
    return Backfill(
        job_id=job.id,
        rows=[
            additional.planned(
                ports,
                _run(job, slot, now + asked.spread * n / len(to_run), asked),
                now=now,
                layout=layout,
            )
            for n, slot in enumerate(to_run)
        ],
        left=[
            Left(slot=slot, execution_id=row.id, status=status_of(row, dispatched=False))
            for slot in wanted
            if (row := there.get(slot))
        ],
    )


def _slots(job: Job, asked: Asked, now: datetime) -> Sequence[datetime]:
    """The slots of the interval, at most as many as asked for; else Rejected."""
    if asked.end > now:
        reason = f"later than now, {format_instant(now)}"
        raise Rejected(field="to", value=format_instant(asked.end), reason=reason)
    if asked.start >= asked.end:
        raise Rejected(field="from", value=format_instant(asked.start), reason="not before to")
    following = job.schedule.occurrences(asked.start - timedelta.resolution)
    inside = takewhile(lambda slot: slot < asked.end, following)
    found = [*islice(inside, asked.most + 1)]
    if len(found) > asked.most:
        reason = f"the interval has at least {len(found)} slots"
        raise Rejected(field="max", value=asked.most, reason=reason)
    return found


def _executions_of(
    ports: Ports, job: Job, wanted: Sequence[datetime]
) -> Mapping[datetime, Execution]:
    """Those of the slots that came to something or may still; eventually consistent.

    Of what ran beside the schedule, the latest 1,000 are looked at; of what the schedule ran,
    what the latest 200 versions planned, and no more than 2,000 rows.
    """
    ids = {*islice(_planned_ids(ports, job, wanted), limits.BACKFILL_MAX_READS)}
    beside = ports.executions.additional_of(job.id, before=None, limit=limits.LIST_MAX_READS)
    of_slots = frozenset(wanted)
    return {
        row.scheduled_for: row
        for row in ports.executions.get_many([*ids, *beside]).values()
        if row.scheduled_for in of_slots
        and row.trigger is not Trigger.MANUAL
        and row.state not in _CAME_TO_NOTHING
    }


def _planned_ids(ports: Ports, job: Job, wanted: Sequence[datetime]) -> Iterator[ExecutionId]:
    """The ids that the slots have by the versions in force then, newest first.

    An edit of the flexible window moves the rows of the slots that follow it.
    """
    end: datetime | None = None
    for version in islice(slots.newest_versions(ports, job), _VERSIONS_LOOKED_AT):
        if version.unreadable is None:
            for slot in wanted:
                if version.since < slot and (end is None or slot <= end):
                    yield version.occurrence_id(slot)
        if wanted and version.since < wanted[0]:
            return
        # One due while it was being replaced may have run by it still.
        end = version.since + limits.MARGIN


def _run(job: Job, slot: datetime, run_at: datetime, asked: Asked) -> additional.Run:
    return additional.Run(
        owner=job.owner,
        job_id=job.id,
        job_version=job.version,
        trigger=Trigger.BACKFILL,
        task=job.spec.task,
        task_version=job.spec.task_version,
        queue=job.spec.queue,
        spec=None,
        scheduled_for=slot,
        run_at=run_at,
        traceparent=asked.traceparent,
    )


def _again(ports: Ports, known: KeyRecord, key: Key) -> Backfill:
    """The first answer, and what a crash of the first call left out of it."""
    if known.fingerprint != key.fingerprint:
        raise KeyReused(reason="this idempotency key was used with another body")
    made = _read(known)
    if ports.clock.now() - known.created_at <= limits.BACKFILL_FINISHED_WITHIN:
        there = ports.executions.get_many([row.id for row in made.rows])
        additional.send_waiting(ports, there.values())
        if missing := [row for row in made.rows if row.id not in there]:
            # Of a job that was deleted since, none of them would run: the answer stays.
            with suppress(Conflict):
                additional.make_many(ports, admission.marked(ports, missing))
    return replace(made, is_replayed=True)


def _record(plan: Backfill, key: Key) -> KeyRecord:
    first = plan.rows[0]
    return KeyRecord(
        owner=first.owner,
        key=key.key,
        fingerprint=key.fingerprint,
        # As of any key: the one execution that is made with it.
        job_id=one_off_job_id(first.id),
        answer=_written(plan, first),
        created_at=first.created_at,
    )


def _written(plan: Backfill, first: Execution) -> str:
    """All of the plan as JSON text, short: a thousand slots stay far below an item's 400 KB."""
    kept = {
        "job_id": plan.job_id,
        "job_version": first.job_version,
        "task": first.task,
        "task_version": first.task_version,
        "queue": first.queue,
        "traceparent": first.traceparent,
        "rows": [[row.id, to_ms(row.scheduled_for)] for row in plan.rows],
        "left": [[left.execution_id, to_ms(left.slot), left.status] for left in plan.left],
    }
    return json.dumps(kept, separators=(",", ":"))


def _read(record: KeyRecord) -> Backfill:
    """The inverse of `_written`: the rows as they were made first."""
    kept = json.loads(record.answer)
    job_id = JobId(kept["job_id"])
    return Backfill(
        job_id=job_id,
        rows=[
            Execution(
                id=(id := ExecutionId(text)),
                job_id=job_id,
                owner=record.owner,
                trigger=Trigger.BACKFILL,
                job_version=kept["job_version"],
                task=kept["task"],
                task_version=kept.get("task_version"),  # an earlier release's answers have none
                queue=kept["queue"],
                spec=None,
                scheduled_for=from_ms(slot),
                run_at=(run_at := place_of(id).at),
                created_at=record.created_at,
                sent_directly=is_inside(run_at, record.created_at),
                traceparent=kept["traceparent"],
            )
            for text, slot in kept["rows"]
        ],
        left=[
            Left(slot=from_ms(slot), execution_id=ExecutionId(id), status=Status(status))
            for id, slot, status in kept["left"]
        ],
    )
