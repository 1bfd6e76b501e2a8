"""What is told at create of a start that will be late: the lane is full at that time.

It costs a read or a few, so only where somebody asks, or where creates are rare
(docs/decisions/0021). It tells of the next start alone, of what has rows by now: recurring jobs
have one each, and what is planned later has none. And whatever goes wrong with it, the job is
made all the same.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import ceil

from lamplighter.core.buckets import before, body_of, decode, minute_of, place_of
from lamplighter.core.forecast import Arrival, crowded, told
from lamplighter.core.limits import (
    ON_TIME,
    SAMPLE_LEAST,
    SAMPLE_ROWS,
    SAMPLE_SHARDS,
    SAMPLED_WITHIN,
    SAMPLES,
)
from lamplighter.core.model import Execution
from lamplighter.ports import Ports

_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, kw_only=True)
class Crowd:
    """More is due with an execution than its lane can start in time."""

    queue: str
    run_at: datetime
    lateness: timedelta
    """To expect, in steps; the flexible window that would do is as wide."""


@dataclass(kw_only=True)
class Forewarning:
    """Tells of the executions of one request, at a bounded cost: some reads, half a second."""

    ports: Ports
    _known: dict[tuple[str, datetime], list[Arrival]] = field(default_factory=dict)
    _samples_left: int = SAMPLES
    _until: float | None = None

    def of(self, row: Execution) -> Crowd | None:
        """Whether a row that was, or is about to be, made will start late.

        None: it is in time, or nobody knows. Never raises, and takes a second at the very most.
        """
        try:
            return self._of(row)
        except Exception as error:  # noqa: BLE001 -- the job is made: no warning is worth a 500
            self._samples_left = 0
            self.ports.telemetry.forewarning_failed(error)
            return None

    def _of(self, row: Execution) -> Crowd | None:
        arrivals = self._arrivals(row)
        if arrivals is None:
            return None
        # What the same request makes is not in a sample that was taken before.
        arrivals.append(Arrival(at=row.run_at))
        per_second = self.ports.capacity.of(row.queue)
        lateness = told(crowded(arrivals, row.run_at, per_second=per_second))
        if lateness is None:
            return None
        self.ports.telemetry.forewarned(queue=row.queue, lateness=lateness)
        return Crowd(queue=row.queue, run_at=row.run_at, lateness=lateness)

    def _arrivals(self, row: Execution) -> list[Arrival] | None:
        """What is known to be due with the row or before it; None: nobody looked."""
        second = row.run_at.replace(microsecond=0)
        if (row.queue, second) not in self._known:
            if self._samples_left <= 0:
                return None
            self._samples_left -= 1
            self._known[row.queue, second] = self._sampled(row, second)
        return self._known[row.queue, second]

    def _sampled(self, row: Execution, second: datetime) -> list[Arrival]:
        width = self.ports.layouts().at(row.run_at).width
        shards = [*self._shards(row, width)]
        until = before(second + _SECOND)
        found = [
            decode(position).at
            for shard in shards
            if self._has_time()
            for position in self.ports.executions.sample(
                minute_of(row.run_at), shard, queue=row.queue, until=until, limit=SAMPLE_ROWS
            )
            if position != body_of(row.id)
        ]
        if len(shards) < width and len(found) < SAMPLE_LEAST:
            # A few rows of a few shards are chance.
            return []
        return [Arrival(at=at, count=width / len(shards)) for at in found]

    def _shards(self, row: Execution, width: int) -> Iterator[int]:
        """The row's own and, where one holds too little to judge by, others far from it."""
        late = ON_TIME / _SECOND * self.ports.capacity.of(row.queue)
        wanted = min(width, SAMPLE_SHARDS, max(1, ceil(SAMPLE_LEAST * width / late)))
        own = place_of(row.id).shard
        yield from ((own + n * width // wanted) % width for n in range(wanted))

    def _has_time(self) -> bool:
        now = self.ports.clock.monotonic()
        if self._until is None:
            self._until = now + SAMPLED_WITHIN.total_seconds()
        return now < self._until
