"""Partition work as tests ask for it, and what came of it."""

from collections.abc import Callable, Collection, Mapping

from lamplighter.core.buckets import Position
from lamplighter.core.lease import Kind, Work, WorkItem
from lamplighter.ports import Control, Ports
from lamplighter.services.dispatch import Done
from lamplighter.services.partitions import do


def dispatch(
    ports: Ports,
    partition: int,
    *,
    owner: str = "scheduler",
    time_left: Callable[[], bool] = lambda: True,
) -> Done | None:
    """Dispatch one partition of the first layout, as a tick asks for it."""
    return _do(ports, Kind.DISPATCH, partition, owner, time_left)


def sweep(
    ports: Ports,
    partition: int,
    *,
    owner: str = "scheduler",
    time_left: Callable[[], bool] = lambda: True,
) -> Done | None:
    """Sweep one partition of the first layout, as a tick asks for it."""
    return _do(ports, Kind.SWEEP, partition, owner, time_left)


def watermarks(control: Control, works: Collection[Work]) -> Mapping[Work, Position]:
    """How far each work was done."""
    return {work: progress.watermark for work, progress in control.progress(works).items()}


def _do(
    ports: Ports, kind: Kind, partition: int, owner: str, time_left: Callable[[], bool]
) -> Done | None:
    item = WorkItem(work=Work(partition=partition, kind=kind))
    return do(ports, item, owner=owner, time_left=time_left)
