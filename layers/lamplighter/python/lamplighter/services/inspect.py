"""The read side: what callers see of their own jobs and executions.

Somebody else's thing is NotFound, exactly as one that never was. One thing is read strongly
consistent, so that what was just created is there; lists and histories are eventual.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice, takewhile
from typing import Final, Generic, TypeVar

from lamplighter.core import limits
from lamplighter.core.buckets import (
    ExecutionId,
    JobId,
    Position,
    body_of,
    execution_of,
    instant_of,
    one_off_job_id,
    place_of,
)
from lamplighter.core.buckets import before as position_before
from lamplighter.core.errors import NotFound
from lamplighter.core.lifecycle import NEEDS_ATTENTION, State
from lamplighter.core.model import Attempt, Execution, Job, Owner, PayloadRef, Spec, Trigger
from lamplighter.core.status import Status, status_of
from lamplighter.core.timing import line
from lamplighter.ports import Ports
from lamplighter.services import progress, slots

_TICK: Final = timedelta(milliseconds=1)
_IN_TROUBLE: Final = frozenset(Status(state) for state in NEEDS_ATTENTION)


@dataclass(frozen=True, kw_only=True)
class Seen:
    """An execution as its owner sees it."""

    row: Execution
    status: Status
    payload: str | None = None
    """JSON text; None in lists, which fetch nothing that lies outside the row, and for one that
    is kept by reference."""
    payload_ref: PayloadRef | None = None

    @property
    def attempts(self) -> Sequence[Attempt]:
        """The tries that have ended, the latest 20, then the one under way."""
        row = self.row
        if row.state is not State.RUNNING or row.started_at is None or row.worker is None:
            return row.attempts
        under_way = Attempt(
            number=row.attempts[-1].number + 1 if row.attempts else 1,
            started_at=row.started_at,
            finished_at=None,
            worker=row.worker,
            state=State.RUNNING,
            arrival=row.arrival,
        )
        return (*row.attempts, under_way)


@dataclass(frozen=True, kw_only=True)
class Recurring:
    """A recurring job's definition and its first slot after now."""

    job: Job
    next_run_at: datetime | None
    """None once it makes no more."""
    payload: str | None = None


@dataclass(frozen=True, kw_only=True)
class OneOff:
    """A one-off job: its definition lies in its one execution."""

    execution: Seen


Definition = Recurring | OneOff


@dataclass(frozen=True, kw_only=True)
class Detail:
    """A job with its latest executions, newest first."""

    definition: Definition
    executions: Sequence[Seen]


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A filter: what is empty or None lets everything through."""

    statuses: frozenset[Status] = frozenset()
    task: str | None = None
    queue: str | None = None
    start: datetime | None = None
    """Due then or later."""
    end: datetime | None = None
    """Due before that."""
    error_type: str | None = None
    """That of the error that it ended with, or last met."""

    def is_for(self, of: Spec | Execution) -> bool:
        """Whether the task and the queue are the wanted ones."""
        return self.task in {None, of.task} and self.queue in {None, of.queue}

    def reaches(self, run_at: datetime) -> bool:
        """Whether a walk back in time that has come to here is still in the range."""
        return self.start is None or self.start <= run_at

    def covers(self, run_at: datetime) -> bool:
        """Whether what is due then is wanted."""
        return self.reaches(run_at) and (self.end is None or run_at < self.end)

    def has_slot_of(self, job: Job) -> bool:
        """Whether a recurring job, as it now is, is due in the range; any is when it is open."""
        if self.start is None and self.end is None:
            return True
        if job.unreadable is not None:
            return False
        later = job.run_at(job.since) - job.since
        slot = job.schedule.next(max(job.since, (self.start or job.since) - later - _TICK))
        return slot is not None and self.covers(job.run_at(slot))

    def admits(self, seen: Seen) -> bool:
        """Whether an execution is wanted: by the status that it is shown with.

        What was moved is another row by now; an index may still list this one for a moment.
        """
        return (
            seen.row.moved_to is None
            and self.is_for(seen.row)
            and self.covers(seen.row.run_at)
            and (not self.statuses or seen.status in self.statuses)
            and self.error_type in {None, seen.row.error and seen.row.error.type}
        )


Item = TypeVar("Item")
Id = TypeVar("Id", bound=str)


@dataclass(frozen=True, kw_only=True)
class Listing(Generic[Item, Id]):
    """A page; it may be short, even empty, although `next` says that there is more."""

    items: Sequence[Item]
    next: Id | None
    """The last id that was looked at, from which the following page goes on; None: the end."""


Executions = Listing[Seen, ExecutionId]
Definitions = Listing[Definition, JobId]
Source = Callable[[Id | None, int], Sequence[tuple[Id, Item | None]]]
"""What comes after an id, newest first, at most so many (fewer: there are no more); None in
place of what is not wanted."""


def execution(ports: Ports, owner: Owner, id: ExecutionId) -> Seen:
    """One execution with the payload that it ran by, or will; raises NotFound."""
    row = execution_row(ports, owner, id)
    spec = row.spec
    if spec is None:
        definition = ports.jobs.get(row.job_id)
        version = slots.in_force(ports, row, definition) if definition else None
        spec = version.spec if version else None
    return _with_payload(ports, row, spec)


def execution_row(ports: Ports, owner: Owner, id: ExecutionId) -> Execution:
    """The row of an execution of this owner; raises NotFound."""
    row = ports.executions.get(id)
    if row is None or row.owner != owner:
        raise NotFound(kind="execution", id=id)
    return row


def job(ports: Ports, owner: Owner, id: JobId) -> Detail:
    """One job with its payload and its latest executions; raises NotFound."""
    if execution_of(id) is not None:
        row = one_off_row(ports, owner, id)
        seen = _with_payload(ports, row, row.spec)
        recent = _latest(_history_of_one_off(ports, row, Wanted()))
        return Detail(
            definition=OneOff(execution=seen),
            executions=[seen if one.row.id == row.id else one for one in recent],
        )
    found = recurring_job(ports, owner, id)
    definition = replace(_recurring(ports, found), payload=_payload(ports, id, found.spec))
    executions = _latest(_history_of_recurring(ports, found, Wanted()))
    return Detail(definition=definition, executions=executions)


def one_off_row(ports: Ports, owner: Owner, id: JobId) -> Execution:
    """The row of a one-off job of this owner, wherever it was moved to; raises NotFound."""
    execution_id = execution_of(id)
    row = latest_place(ports, execution_id) if execution_id else None
    # The row of a recurring job's occurrence has its job's id: no one-off goes by its place.
    if row is None or row.owner != owner or row.job_id != id:
        raise NotFound(kind="job", id=id)
    return row


def latest_place(ports: Ports, id: ExecutionId) -> Execution | None:
    """The row, or the one that it was moved to (P20); None if there is none."""
    row = ports.executions.get(id)
    while row is not None and row.moved_to is not None:
        row = ports.executions.get(row.moved_to)
    return row


def one_off(ports: Ports, row: Execution) -> OneOff:
    """A one-off job of which the row is at hand, without fetching its payload."""
    (seen,) = _seen(ports, [row])
    return OneOff(execution=seen)


def recurring_job(ports: Ports, owner: Owner, id: JobId) -> Job:
    """A recurring job of this owner, a deleted one too; raises NotFound."""
    found = ports.jobs.get(id)
    if found is None or found.owner != owner:
        raise NotFound(kind="job", id=id)
    return found


def executions(
    ports: Ports, owner: Owner, wanted: Wanted, *, after: ExecutionId | None, limit: int
) -> Executions:
    """An owner's executions, latest run_at first."""
    source = _rows(ports, owner, wanted)
    return _page(source, after=after, limit=limit, batch=_batch(wanted, limit))


def executions_of(
    ports: Ports, owner: Owner, id: JobId, wanted: Wanted, *, after: ExecutionId | None, limit: int
) -> Executions:
    """A job's executions, beside its schedule too, latest run_at first; raises NotFound."""
    source = (
        _history_of_recurring(ports, recurring_job(ports, owner, id), wanted)
        if execution_of(id) is None
        else _history_of_one_off(ports, one_off_row(ports, owner, id), wanted)
    )
    return _page(source, after=after, limit=limit, batch=_batch(wanted, limit))


def jobs(
    ports: Ports, owner: Owner, wanted: Wanted, *, after: JobId | None, limit: int
) -> Definitions:
    """An owner's definitions: the recurring ones, newest first, then the one-offs by run_at.

    Deleted ones are left out. Of the filter, the statuses do not matter.
    """
    wanted = replace(wanted, statuses=frozenset())
    if after is not None and execution_of(after) is not None:
        return _one_off_jobs(ports, owner, wanted, after=after, limit=limit)
    source = _recurring_jobs(ports, owner, wanted)
    page: Definitions = _page(source, after=after, limit=limit, batch=_batch(wanted, limit))
    if page.next is not None:
        return page
    rest = limit - len(page.items)
    if not rest and isinstance(last := page.items[-1], Recurring):
        return replace(page, next=last.job.id)
    one_offs = _one_off_jobs(ports, owner, wanted, after=None, limit=rest)
    return Listing(items=[*page.items, *one_offs.items], next=one_offs.next)


def _page(
    source: Source[Id, Item],
    *,
    after: Id | None,
    limit: int,
    batch: int,
    reads: int = limits.LIST_MAX_READS,
) -> Listing[Item, Id]:
    """At most `limit` items, found by looking at no more than `reads`."""
    items: list[Item] = []
    for _ in range(reads // batch):
        found = source(after, batch)
        for count, (id, item) in enumerate(found, start=1):
            after = id
            items += [] if item is None else [item]
            if len(items) == limit and (count < len(found) or len(found) == batch):
                return Listing(items=items, next=after)
        if len(found) < batch:
            return Listing(items=items, next=None)
    return Listing(items=items, next=after)


def _latest(source: Source[ExecutionId, Seen]) -> Sequence[Seen]:
    return _page(
        source,
        after=None,
        limit=limits.RECENT_EXECUTIONS,
        batch=limits.RECENT_EXECUTIONS + 1,
        reads=limits.DYNAMODB_BATCH_GET,
    ).items


def _batch(wanted: Wanted, limit: int) -> int:
    # One more than the page tells whether there is another; a filter may pass few of many.
    return limit + 1 if wanted == Wanted() else limits.DYNAMODB_BATCH_GET


def _rows(ports: Ports, owner: Owner, wanted: Wanted) -> Source[ExecutionId, Seen]:
    in_trouble = bool(wanted.statuses) and wanted.statuses <= _IN_TROUBLE
    index = ports.executions.needing_attention if in_trouble else ports.executions.of_owner

    def source(after: ExecutionId | None, limit: int) -> Sequence[tuple[ExecutionId, Seen | None]]:
        end = position_before(wanted.end) if wanted.end else None
        ids = index(owner, before=body_of(after) if after else end, limit=limit)
        near = takewhile(lambda id: wanted.reaches(place_of(id).at), ids)
        return _admitted(ports, [*near], wanted)

    return source


def _history_of_recurring(ports: Ports, of: Job, wanted: Wanted) -> Source[ExecutionId, Seen]:
    """The rows of a recurring job's slots, by their computed ids (no index holds them)."""

    def planned(before: Position | None) -> Iterator[ExecutionId]:
        # What is due in the millisecond of the position itself may lie before it.
        due_before = instant_of(before) + _TICK if before else None
        rows = slots.planned(ports, of, now=ports.clock.now(), due_before=due_before)
        return (row.id for row in rows)

    return _history(ports, of.id, planned, wanted)


def _history_of_one_off(ports: Ports, row: Execution, wanted: Wanted) -> Source[ExecutionId, Seen]:
    return _history(ports, row.job_id, lambda _: iter([row.id]), wanted, at_hand=(row,))


def _history(
    ports: Ports,
    id: JobId,
    planned: Callable[[Position | None], Iterator[ExecutionId]],
    wanted: Wanted,
    *,
    at_hand: Sequence[Execution] = (),
) -> Source[ExecutionId, Seen]:
    """A job's executions: what it planned, newest first, and what ran beside that."""

    def source(after: ExecutionId | None, limit: int) -> Sequence[tuple[ExecutionId, Seen | None]]:
        end = position_before(wanted.end) if wanted.end else None
        before = body_of(after) if after else end
        own = (one for one in planned(before) if before is None or body_of(one) < before)
        beside = ports.executions.additional_of(id, before=before, limit=limit)
        ids = sorted([*islice(own, limit), *beside], reverse=True)[:limit]
        near = takewhile(lambda id: wanted.reaches(place_of(id).at), ids)
        return _admitted(ports, [*near], wanted, at_hand=at_hand)

    return source


def _recurring_jobs(ports: Ports, owner: Owner, wanted: Wanted) -> Source[JobId, Definition]:
    def source(after: JobId | None, limit: int) -> Sequence[tuple[JobId, Definition | None]]:
        before = body_of(after) if after else None
        found = ports.jobs.of_owner(owner, before=before, limit=limit)
        return [
            (
                job.id,
                _recurring(ports, job)
                if wanted.is_for(job.spec) and wanted.has_slot_of(job)
                else None,
            )
            for job in found
        ]

    return source


def _one_off_jobs(
    ports: Ports, owner: Owner, wanted: Wanted, *, after: JobId | None, limit: int
) -> Definitions:
    rows = _rows(ports, owner, wanted)

    def source(after: JobId | None, limit: int) -> Sequence[tuple[JobId, Definition | None]]:
        found = rows(execution_of(after) if after else None, limit)
        return [(one_off_job_id(id), _one_off(seen)) for id, seen in found]

    return _page(source, after=after, limit=limit, batch=limits.DYNAMODB_BATCH_GET)


def _one_off(seen: Seen | None) -> OneOff | None:
    is_one_off = seen is not None and seen.row.trigger is Trigger.ONE_OFF
    return OneOff(execution=seen) if seen and is_one_off else None


def _admitted(
    ports: Ports,
    ids: Sequence[ExecutionId],
    wanted: Wanted,
    *,
    at_hand: Sequence[Execution] = (),
) -> Sequence[tuple[ExecutionId, Seen | None]]:
    rows = {row.id: row for row in at_hand if row.id in ids}
    rows |= ports.executions.get_many([id for id in ids if id not in rows])
    seen = {one.row.id: one for one in _seen(ports, [*rows.values()]) if wanted.admits(one)}
    return [(id, seen.get(id)) for id in ids]


def statuses(ports: Ports, rows: Sequence[Execution]) -> Mapping[ExecutionId, Status]:
    """What each row's status is shown as."""
    return {one.row.id: one.status for one in _seen(ports, rows)}


def _seen(ports: Ports, rows: Sequence[Execution]) -> Sequence[Seen]:
    passed = _passed(ports, rows)
    return [
        Seen(row=row, status=status_of(row, dispatched=passed.get(row.id, False))) for row in rows
    ]


def _passed(ports: Ports, rows: Sequence[Execution]) -> Mapping[ExecutionId, bool]:
    """Whether dispatch has passed each row, of those that it matters to."""
    end = line(ports.clock.now())
    asked = [
        row.id
        for row in rows
        if row.state is State.SCHEDULED and not row.sent_directly and row.run_at <= end
    ]
    return progress.is_dispatched(ports, asked)


def _recurring(ports: Ports, job: Job) -> Recurring:
    following = None if job.unreadable else job.next_after(ports.clock.now())
    return Recurring(job=job, next_run_at=following)


def _with_payload(ports: Ports, row: Execution, spec: Spec | None) -> Seen:
    (seen,) = _seen(ports, [row])
    if spec is None:
        return seen
    payload = _payload(ports, row.payload_home, spec)
    return replace(seen, payload=payload, payload_ref=spec.payload.ref)


def _payload(ports: Ports, id: JobId, spec: Spec) -> str | None:
    if spec.payload.text is not None or spec.payload.ref is not None:
        return spec.payload.text
    return ports.executions.get_payload(id, spec.payload.version)
