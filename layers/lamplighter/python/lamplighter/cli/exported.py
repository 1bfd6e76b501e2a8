"""What an export of the tables tells of slots: the ledger, kept from the rows themselves.

The rows are put into tables in memory, and the ledger of each job is asked for as of then.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from lamplighter.aws import items, schema
from lamplighter.core.buckets import JOB_SORT_KEY, LAYOUT_KEY, partition_key
from lamplighter.core.completeness import Outcome
from lamplighter.core.errors import Rejected
from lamplighter.core.lease import Grant, Kind, Layouts, Progress, Work
from lamplighter.core.limits import EXECUTION_KEPT
from lamplighter.core.model import Execution, Job, JobStatus
from lamplighter.core.trace import Account
from lamplighter.memory import MemoryWorld, VirtualClock
from lamplighter.ports import Ports
from lamplighter.services import completeness

Values = Mapping[str, Any]


@dataclass(kw_only=True)
class Exported:
    """The rows of an export, as many of them as were read."""

    executions: list[Execution] = field(default_factory=list)
    jobs: dict[str, Job] = field(default_factory=dict)
    versions: list[Job] = field(default_factory=list)
    layouts: Layouts | None = None
    progress: dict[tuple[str, str], Progress] = field(default_factory=dict)
    """How far the work of each control item was done."""

    def take(self, item: object) -> Execution | Job | None:
        """Take a row in; the execution or the job that it is, as it is now.

        Raises Damaged for one that cannot be read back, Rejected for what is none.
        """
        values = _unmarshalled(item)
        key = (_key(values, schema.PARTITION_KEY), _key(values, schema.SORT_KEY))
        if items.SCHEDULE in values or key[1] == JOB_SORT_KEY:
            job = items.job_from(values)
            if key[1] == JOB_SORT_KEY:
                self.jobs[job.id] = job
                return job
            self.versions.append(job)
        elif _is_execution(values):
            self.executions.append(items.execution_from(values))
            return self.executions[-1]
        elif key == LAYOUT_KEY:
            self.layouts = items.layouts_from(values)
        elif items.WATERMARK in values:
            self.progress[key] = items.progress_from(values)
        return None

    def accounts(self) -> Iterator[Account]:
        """What became of each slot of the last week, job by job.

        None without the control table: what dispatch has not come to is not told from what is
        lost. Nor without executions, which say when it was.
        """
        if self.layouts is None or not self.executions:
            return
        ports, as_of = self._ports(self.layouts), self._as_of()
        for job in self.jobs.values():
            found = [*_parts(ports, job, as_of)]
            counts = {
                outcome.lower(): sum(part.count(outcome) for part in found) for outcome in Outcome
            }
            if not any(part.unreadable for part in found):
                counted = sum(counts.values())
                expected = _planned(job, as_of)
                yield Account(
                    job_id=job.id,
                    expected=counted if expected is None else expected,
                    by_outcome=counts,
                )

    def _as_of(self) -> datetime:
        """When it was exported, or a moment before: the latest that any row tells of."""
        told = (
            at
            for row in self.executions
            for at in (row.created_at, row.started_at, row.finished_at)
            if at is not None
        )
        return max(told)

    def _ports(self, layouts: Layouts) -> Ports:
        world = MemoryWorld(clock=VirtualClock(self._as_of()))
        tables, ports = world.tables, world.ports()
        tables.executions.update((row.id, row) for row in self.executions)
        tables.jobs.update((job.id, job) for job in self.jobs.values())
        tables.versions.update(((job.id, job.version), job) for job in self.versions)
        tables.layouts = layouts
        for work, progress in self._done(layouts):
            grant = ports.control.acquire(
                work, owner="export", now=world.now(), until=world.now(), start=progress.watermark
            )
            if isinstance(grant, Grant):
                ports.control.advance(
                    grant,
                    watermark=progress.watermark,
                    intent=None,
                    until=world.now(),
                    backlog=progress.backlog,
                )
        return ports

    def _done(self, layouts: Layouts) -> Iterator[tuple[Work, Progress]]:
        for layout in layouts.of:
            for work in layout.works():
                key = partition_key(work.generation, work.partition, work.kind)
                if work.kind is Kind.DISPATCH and (progress := self.progress.get(key)):
                    yield work, progress


def _unmarshalled(item: object) -> Values:
    if not isinstance(item, dict):
        raise Rejected(field="Item", value=item, reason="not a JSON object")
    return {name: _unmarshalled_one(name, value) for name, value in item.items()}


def _unmarshalled_one(name: str, value: object) -> object:
    try:
        return items.unmarshal({name: value})[name]
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        reason = "no attribute of DynamoDB JSON"
        raise Rejected(field=f"Item.{name}", value=value, reason=reason) from None


def _key(values: Values, name: str) -> str:
    key = values.get(name)
    if not isinstance(key, str):
        raise Rejected(field=f"Item.{name}", value=key, reason="not a text")
    return key


def _is_execution(values: Values) -> bool:
    """Also of one that has lost an attribute: what is damaged is no other kind of row."""
    its_own = {items.TASK, items.STATE, items.CREATED_AT}
    return items.POINTER_KIND not in values and len(its_own & values.keys()) >= len(its_own) - 1


def _parts(ports: Ports, job: Job, as_of: datetime) -> Iterator[completeness.Account]:
    place = None
    while True:
        found = completeness.account(
            ports, job.owner, job.id, start=job.created_at, end=as_of, after=place
        )
        yield found
        place = found.next
        if place is None:
            return


def _planned(job: Job, as_of: datetime) -> int | None:
    """How many slots a job has planned that was never changed; None: one that was."""
    is_whole = job.created_at >= as_of - EXECUTION_KEPT
    if job.version > 1 or job.status is not JobStatus.ACTIVE or not is_whole:
        return None
    slots: Sequence[datetime] = [*job.schedule.between(job.created_at, as_of)]
    return sum(slot > job.created_at for slot in slots)
