"""The load that an owner has planned: how many executions are due in each minute to come."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from lamplighter.core.buckets import JobId, body_of, execution_of, one_off_job_id, place_of
from lamplighter.core.buckets import before as position_before
from lamplighter.core.forecast import Load
from lamplighter.core.lifecycle import State
from lamplighter.core.limits import DYNAMODB_BATCH_GET, FORECAST_SLOTS, LIST_MAX_READS
from lamplighter.core.model import Job, JobStatus, Owner, Trigger
from lamplighter.ports import Ports

_TICK: Final = timedelta(milliseconds=1)


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A part of an owner's load."""

    lanes: Mapping[str, Sequence[Load]]
    """Of each lane that has any the minutes that have any, in order."""
    next: JobId | None
    """The last job that was looked at, after which the next part goes on; None: the end."""


def forecast(
    ports: Ports, owner: Owner, *, start: datetime, end: datetime, after: JobId | None
) -> Planned:
    """What is due in [start, end): of the recurring jobs first, then what waits beside them.

    A part looks at no more than 1,000 jobs or executions, and ends after the job with which it
    has counted 50,000 occurrences. Eventually consistent; what runs or is retried is no part
    of it.
    """
    counting = _Counting(ports=ports, owner=owner, start=start, end=end)
    if after is None or execution_of(after) is None:
        following = counting.recurring(after)
        if following is not None:
            return Planned(lanes=counting.lanes, next=following)
        after = None
    following = counting.beside(after)
    return Planned(lanes=counting.lanes, next=following)


@dataclass(kw_only=True)
class _Counting:
    ports: Ports
    owner: Owner
    start: datetime
    end: datetime
    seconds: defaultdict[str, Counter[datetime]] = field(
        default_factory=lambda: defaultdict(Counter)
    )
    """Of each lane."""
    counted: int = 0

    @property
    def lanes(self) -> Mapping[str, Sequence[Load]]:
        return {lane: _by_minute(self.seconds[lane]) for lane in sorted(self.seconds)}

    def recurring(self, after: JobId | None) -> JobId | None:
        """Count the occurrences of jobs, newest first; None once it has come to the oldest."""
        for _ in range(LIST_MAX_READS // DYNAMODB_BATCH_GET):
            jobs = self.ports.jobs.of_owner(
                self.owner, before=body_of(after) if after else None, limit=DYNAMODB_BATCH_GET
            )
            for job in jobs:
                self._add(job.spec.queue, self._due(job))
                after = job.id
                if self.counted >= FORECAST_SLOTS:
                    return after
            if len(jobs) < DYNAMODB_BATCH_GET:
                return None
        return after

    def beside(self, after: JobId | None) -> JobId | None:
        """Count one-offs and what else waits for no schedule, the latest first."""
        for _ in range(LIST_MAX_READS // DYNAMODB_BATCH_GET):
            ids = self.ports.executions.of_owner(
                self.owner,
                before=body_of(after) if after else position_before(self.end),
                limit=DYNAMODB_BATCH_GET,
            )
            near = [id for id in ids if place_of(id).at >= self.start]
            rows = self.ports.executions.get_many(near)
            for row in rows.values():
                if row.state is State.SCHEDULED and row.trigger is not Trigger.SCHEDULE:
                    self._add(row.queue, [row.run_at])
            if len(near) < DYNAMODB_BATCH_GET:
                return None
            after = one_off_job_id(ids[-1])
        return after

    def _due(self, job: Job) -> Iterator[datetime]:
        if job.status is not JobStatus.ACTIVE or job.unreadable is not None:
            return iter(())
        later = job.run_at(job.since) - job.since
        begin = max(self.start - later, job.since + _TICK)
        return (slot + later for slot in job.schedule.between(begin, self.end - later))

    def _add(self, lane: str, instants: Iterable[datetime]) -> None:
        for instant in instants:
            self.seconds[lane][instant.replace(microsecond=0)] += 1
            self.counted += 1


def _by_minute(seconds: Mapping[datetime, int]) -> Sequence[Load]:
    minutes: defaultdict[datetime, list[int]] = defaultdict(list)
    for second, planned in seconds.items():
        minutes[second.replace(second=0)].append(planned)
    return [
        Load(minute=minute, planned=sum(planned), burst=max(planned))
        for minute, planned in sorted(minutes.items())
    ]
