"""Going on from tables that were restored, as an operator does once (docs/regions.md).

The executions are as they were at some instant, the other tables as of then or later; the
queues are empty, and no function runs. Each step may be done again after a crash, until the
first function runs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol, assert_never

from lamplighter.core.buckets import (
    ExecutionId,
    before,
    execution_ids_in,
    execution_of,
    instant_of,
    minute_of,
    start_of,
)
from lamplighter.core.errors import Conflict, Unavailable
from lamplighter.core.lease import Grant, Intent, Kind, Layout, Progress, Work
from lamplighter.core.limits import PARTITION_LEASE, RESTORED_APART, RESTORED_SWEEP_BACK
from lamplighter.core.model import Execution, Job, OverlapPolicy
from lamplighter.core.planning import supersedes
from lamplighter.core.restoring import dispatched, swept
from lamplighter.ports import KeyRecord, Ports
from lamplighter.services import chain, watch

_OWNER = "failover"
_TRIES = 100


class Restored(Protocol):
    """The jobs table as its operator sees it: whole."""

    def changed_since(self, instant: datetime) -> Iterator[Job | KeyRecord]:
        """Every job whose version is of then or later, and every key used then or later."""
        ...

    def forget(self, key: KeyRecord) -> None:
        """Remove a key; one that is gone is passed over."""
        ...


@dataclass(frozen=True, kw_only=True)
class Rewound:
    """How far a work was done by what was restored, and from where it goes on."""

    work: Work
    restored: Progress
    goes_on: Progress


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """What was done, or would be."""

    works: Sequence[Rewound]
    begun: Sequence[Job]
    """Jobs whose version had no row: it was written too close to the instant, or after it."""
    forgotten: Sequence[KeyRecord]
    """Keys of what is lost: whoever asks again with one has it made again."""


def prepare(
    ports: Ports,
    restored: Restored,
    *,
    restored_to: datetime,
    sweep_from: datetime | None = None,
    dry_run: bool = False,
) -> Prepared:
    """Have dispatch and the sweep come by everything that was accepted by `restored_to`.

    That is the instant that the executions are of. `sweep_from` is an hour before, unless given:
    the sweep must not have lagged further behind then. Raises Conflict for instants that cannot
    be, and where somebody is at work.
    """
    now = ports.clock.now()
    back_to = restored_to - RESTORED_SWEEP_BACK if sweep_from is None else sweep_from
    if not back_to <= restored_to <= now:
        reason = f"not in order: sweep from {back_to}, restored to {restored_to}, now {now}"
        raise Conflict(reason=reason)
    preparing = _Preparing(ports=ports, restored_to=restored_to, back_to=back_to, dry_run=dry_run)
    layouts = preparing.layouts()
    preparing.check_that_nothing_runs(layouts)
    # Before the watermarks: what is put here, dispatch and the sweep have to come to.
    begun, forgotten = preparing.take_up(restored)
    works = [*preparing.rewind(layouts)]
    return Prepared(works=works, begun=begun, forgotten=forgotten)


@dataclass(frozen=True, kw_only=True)
class _Preparing:
    ports: Ports
    restored_to: datetime
    back_to: datetime
    dry_run: bool

    def layouts(self) -> Sequence[Layout]:
        """What was restored; where the control table is empty, one, in which everything lies."""
        first = Layout(
            shards=self.ports.shards,
            partitions=self.ports.partitions,
            effective_from=start_of(minute_of(self.back_to)),
        )
        return self.ports.control.layouts(first, anew=True).of

    def check_that_nothing_runs(self, layouts: Sequence[Layout]) -> None:
        """Raise Conflict where dispatch is ahead of time, as it only is while it runs."""
        works = [work for layout in layouts for work in layout.works()]
        now = self.ports.clock.now()
        for work, progress in self.ports.control.progress(works).items():
            reached = instant_of(progress.watermark)
            if work.kind is Kind.DISPATCH and reached > now:
                reason = f"dispatch runs: partition {work.partition} has come to {reached}"
                raise Conflict(reason=f"{reason}; stop every function, and wait for five minutes")

    def take_up(self, restored: Restored) -> tuple[Sequence[Job], Sequence[KeyRecord]]:
        """See to what may be in one table and not in the other."""
        begun: list[Job] = []
        keys: list[KeyRecord] = []
        for one in restored.changed_since(self.restored_to - RESTORED_APART):
            if isinstance(one, KeyRecord):
                keys.append(one)
            elif self._begin(one):
                begun.append(one)
        lost = [key for key in keys if not self._is_there(key, begun)]
        for key in () if self.dry_run else lost:
            restored.forget(key)
        return begun, lost

    def rewind(self, layouts: Sequence[Layout]) -> Iterator[Rewound]:
        """Take every work back to where nothing that it has not seen lies behind it."""
        for layout in layouts:
            is_oldest = layout is layouts[0]
            works = [*layout.works()]
            known = self.ports.control.progress(works)
            for work in works:
                if not self.dry_run:
                    yield self._rewind(work, layout, is_oldest=is_oldest)
                elif (progress := known.get(work)) is not None:
                    goes_on, _ = self._goes_on(work, layout, progress, None, is_oldest=is_oldest)
                    yield Rewound(work=work, restored=progress, goes_on=goes_on)

    def _begin(self, job: Job) -> bool:
        """Have a version go on that has no row; whether it had none."""
        for slot in _first_slots(job):
            planned = job.occurrence(slot, now=job.since, sent_directly=False)
            there = self.ports.executions.get(planned.id)
            if there is None or supersedes(planned, there):
                if not self.dry_run:
                    self._put(job, planned)
                return True
            if there.job_version >= job.version:
                return False
            # An earlier version's, which its owner had cancelled: it stays so.
        return False

    def _put(self, job: Job, planned: Execution) -> None:
        # The watch first: whatever comes between, it arms what the chain lacks.
        watch.begin(self.ports, job)
        try:
            predecessor = self._last_before(job, planned)
        except Unavailable as error:
            # Its chain is too long to be looked through here: that is left to the watch.
            self.ports.telemetry.broke(planned.id, error)
            return
        self.ports.executions.put([replace(planned, predecessor=predecessor)])

    def _last_before(self, job: Job, planned: Execution) -> ExecutionId | None:
        """What a version's first row follows, as when it was written."""
        earlier = self.ports.jobs.versions(job.id, before=job.version, limit=1)
        if not earlier or job.overlap is OverlapPolicy.ALLOW:
            return None
        return chain.end_for(self.ports, earlier[0], job, planned.scheduled_for).last

    def _is_there(self, key: KeyRecord, begun: Sequence[Job]) -> bool:
        """Whether anything is left of what was made for a key."""
        one_off = execution_of(key.job_id)
        if one_off is None and self.ports.jobs.get(key.job_id) is None:
            return False
        if key.job_id in {job.id for job in begun}:
            return True
        named = {*execution_ids_in(key.answer), *([one_off] if one_off else ())}
        return not named or bool(self.ports.executions.get_many(named, strongly=True))

    def _rewind(self, work: Work, layout: Layout, *, is_oldest: bool) -> Rewound:
        now = self.ports.clock.now()
        grant = self.ports.control.acquire(
            work,
            owner=_OWNER,
            now=now,
            until=now + PARTITION_LEASE,
            # Of what was never begun, as far as the control table knows.
            start=before(max(layout.effective_from, self.restored_to)),
        )
        if not isinstance(grant, Grant):
            reason = f"{work.kind} of partition {work.partition} is held: stop every function"
            raise Conflict(reason=reason)
        goes_on, intent = self._goes_on(
            work, layout, grant.progress, grant.intent, is_oldest=is_oldest
        )
        self.ports.control.rewind(grant, to=goes_on, intent=intent, until=now)
        return Rewound(work=work, restored=grant.progress, goes_on=goes_on)

    def _goes_on(
        self,
        work: Work,
        layout: Layout,
        progress: Progress,
        intent: Intent | None,
        *,
        is_oldest: bool,
    ) -> tuple[Progress, Intent | None]:
        match work.kind:
            case Kind.DISPATCH:
                return dispatched(progress, intent, restored_to=self.restored_to)
            case Kind.SWEEP:
                back_to = self.back_to
                return swept(progress, layout, back_to=back_to, is_oldest=is_oldest), None
            case other:
                assert_never(other)


def _first_slots(job: Job) -> Iterator[datetime]:
    """The slots of a version that its first row may be at."""
    slot = None if job.unreadable is not None else job.next_after(job.since)
    for _ in range(_TRIES):
        if slot is None:
            return
        yield slot
        slot = job.next_after(slot)
