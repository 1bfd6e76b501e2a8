"""Partition work: whoever gets an item does the work under its lease, and asks for it again.

The item that comes after is armed first. So whatever becomes of this visit, either its own
message comes back or the next one is there; and as an item is void once a later grant has armed
another (`WorkItem`), they do not multiply.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import assert_never

from lamplighter.core.buckets import before, instant_of
from lamplighter.core.errors import LostLease, Unavailable
from lamplighter.core.lease import Grant, Kind, Layout, WorkItem
from lamplighter.core.limits import PARTITION_LEASE, REARM_AFTER
from lamplighter.core.timing import line
from lamplighter.ports import Ports
from lamplighter.services.dispatch import Done, dispatch
from lamplighter.services.sweep import sweep

TimeLeft = Callable[[], bool]


def do(
    ports: Ports, item: WorkItem, *, owner: str, time_left: TimeLeft = lambda: True
) -> Done | None:
    """Do a partition's work for as long as there is time; how far it is done then.

    None when it was not ours to do: another owner held the lease or took it, the item was void,
    or its layout is over. After a crash anywhere the next owner redoes at most one page. Raises
    Unavailable, leaving the page to the next owner.
    """
    layout = _layout_of(ports, item)
    grant = _acquire(ports, item, layout, owner) if layout else None
    if layout is None or grant is None:
        return None
    try:
        done = _do(ports, _arm_next(ports, grant, layout), layout, time_left)
    except LostLease:
        ports.telemetry.lost_lease(partition=item.work.partition)
        return None
    if not layout.is_over(grant.progress):
        _go_on(ports, grant, layout, done)
    return done


def _layout_of(ports: Ports, item: WorkItem) -> Layout | None:
    generation = item.work.generation
    known = ports.layouts()
    if generation > known.latest.generation:
        known = ports.layouts(anew=True)
    return known.of_generation(generation)


def _acquire(ports: Ports, item: WorkItem, layout: Layout, owner: str) -> Grant | None:
    now = ports.clock.now()
    answer = ports.control.acquire(
        item.work,
        owner=owner,
        now=now,
        until=now + PARTITION_LEASE,
        start=before(layout.effective_from),
        armed_by=item.armed_by,
    )
    return answer if isinstance(answer, Grant) else None


def _arm_next(ports: Ports, grant: Grant, layout: Layout) -> Grant:
    if layout.is_over(grant.progress):
        return grant
    following = WorkItem(work=grant.work, armed_by=grant.epoch)
    ports.queue.hand_out([following], delay=REARM_AFTER)
    return replace(grant, armed=grant.epoch)


def _do(ports: Ports, grant: Grant, layout: Layout, time_left: TimeLeft) -> Done:
    match grant.work.kind:
        case Kind.DISPATCH:
            return _dispatch(ports, grant, layout, time_left)
        case Kind.SWEEP:
            return sweep(ports, grant, layout, time_left=time_left)
        case other:
            assert_never(other)


def _dispatch(ports: Ports, grant: Grant, layout: Layout, time_left: TimeLeft) -> Done:
    """Dispatch; a visit that fails tells, too, how far behind it is: that alarms."""
    try:
        return dispatch(ports, grant, layout, time_left=time_left)
    except Unavailable:
        age = ports.clock.now() - instant_of(grant.progress.committed)
        ports.telemetry.dispatched(partition=grant.work.partition, sent=0, pages=0, age=age)
        raise


def _go_on(ports: Ports, grant: Grant, layout: Layout, done: Done) -> None:
    """Ask at once for what this visit had no time for, or for what comes after its layout."""
    if not done.is_finished:
        ports.queue.hand_out([WorkItem(work=grant.work, armed_by=grant.epoch)])
    elif layout.is_over(done.progress) and grant.work.kind is Kind.DISPATCH:
        reached = ports.layouts().reached_by(line(ports.clock.now()))
        later = [one for one in reached if one.generation > layout.generation]
        ports.queue.hand_out(WorkItem(work=work) for one in later for work in one.works())
