"""How far dispatch has come: with single rows, with jobs, and altogether."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from lamplighter.core.buckets import (
    ExecutionId,
    JobId,
    Position,
    before,
    body_of,
    instant_of,
    place_of,
)
from lamplighter.core.draining import Drain, drain_of
from lamplighter.core.lease import Kind, Layout, Progress
from lamplighter.ports import Ports


@dataclass(frozen=True, kw_only=True)
class Dispatched:
    """How far dispatch has come with one shard, layout by layout."""

    parts: Sequence[tuple[Layout, Progress]]

    def has(self, position: Position) -> bool:
        """Whether dispatch has passed this place."""
        at = instant_of(position)
        begun = [progress for layout, progress in self.parts if layout.effective_from <= at]
        return begun[-1].has(position) if begun else self.parts[0][1].has(position)

    @property
    def committed(self) -> Position:
        """Dispatch has passed everything up to here."""
        for layout, progress in self.parts[:-1]:
            if not layout.is_over(progress):
                return progress.committed
        return self.parts[-1][1].committed


def of_shards(ports: Ports, shards: Collection[int]) -> Mapping[int, Dispatched]:
    """How far dispatch has come with each of these shards, strongly consistent."""
    if not shards:
        return {}
    layouts = ports.layouts().of
    works = {
        (shard, layout.generation): layout.work_on(shard, Kind.DISPATCH)
        for layout in layouts
        for shard in shards
        if shard < layout.width
    }
    known = ports.control.progress({*works.values()})
    return {
        shard: Dispatched(
            parts=[
                (layout, known.get(work) or Progress(watermark=before(layout.effective_from)))
                for layout in layouts
                if (work := works.get((shard, layout.generation)))
            ]
        )
        for shard in shards
    }


def is_dispatched(ports: Ports, ids: Collection[ExecutionId]) -> Mapping[ExecutionId, bool]:
    """Whether dispatch has passed the place of each execution's row."""
    shards = of_shards(ports, {_shard_of(id) for id in ids})
    return {id: shards[_shard_of(id)].has(body_of(id)) for id in ids}


def of_jobs(ports: Ports, ids: Collection[JobId]) -> Mapping[JobId, Dispatched]:
    """How far dispatch has come with each of these recurring jobs."""
    shards = of_shards(ports, {_shard_of(id) for id in ids})
    return {id: shards[_shard_of(id)] for id in ids}


@dataclass(frozen=True, kw_only=True)
class Overall:
    """How far the whole stack's dispatch has come."""

    dispatched_until: datetime
    """Everything due before this has been dispatched."""
    due_until: datetime
    """The same but for the backlog, if there is one."""
    drain: Drain | None


def overall(ports: Ports) -> Overall:
    """Of all partitions that are at work, the one that is furthest behind."""
    now = ports.clock.now()
    works = {
        work: layout
        for layout in ports.layouts().reached_by(now)
        for work in layout.works()
        if work.kind is Kind.DISPATCH
    }
    known = ports.control.progress(works)
    at_work = [
        progress
        for work, layout in works.items()
        if not layout.is_over(
            progress := known.get(work) or Progress(watermark=before(layout.effective_from))
        )
    ]
    return Overall(
        dispatched_until=min(instant_of(one.committed) for one in at_work),
        due_until=min(instant_of(one.watermark) for one in at_work),
        drain=drain_of([one.backlog for one in at_work if one.backlog], now),
    )


def _shard_of(id: ExecutionId | JobId) -> int:
    return place_of(id).shard
