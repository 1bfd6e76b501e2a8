"""What cannot be read back: everything else goes on, and it stays in sight until it is mended.

Whoever met it has had it counted (`ports`). Nothing here writes to it.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from lamplighter.core.buckets import (
    ExecutionId,
    JobId,
    check_position,
    watch_place,
    watch_position,
)
from lamplighter.core.errors import Damaged
from lamplighter.core.limits import CHECK_SCHEDULED_AGAIN, WATCH_EVERY, WATCH_SELDOM
from lamplighter.core.model import Execution, Pointer, PointerKind, Row, Watch
from lamplighter.ports import Page, Ports
from lamplighter.services import timers

_NO_LANE = ""  # of a check, which nobody sends


def row(ports: Ports, id: ExecutionId) -> Execution | None:
    """The execution; None, too, where it cannot be read."""
    try:
        return ports.executions.get(id)
    except Damaged:
        return None


def keep_in_sight(ports: Ports, page: Page) -> None:
    """Have the sweep look again at what it could not read of a page (P7)."""
    now = ports.clock.now()
    if again := [one for damaged in page.damaged for one in _again(damaged, now)]:
        ports.executions.point(again)


def put_off(ports: Ports, row: Row) -> None:
    """Have the sweep come by a row again whose visit met something that cannot be read (P7)."""
    now = ports.clock.now()
    ports.executions.point([_later(row, now)])


def _again(damaged: Damaged, now: datetime) -> Sequence[Pointer | Watch]:
    if damaged.about is None:
        return []
    if damaged.kind == "watch":
        # How far it had told is lost: what is told twice does no harm.
        return [_watch(JobId(damaged.about), now, since=now - WATCH_SELDOM)]
    return [_check(ExecutionId(damaged.about), now + CHECK_SCHEDULED_AGAIN)]


def _later(row: Row, now: datetime) -> Pointer | Watch:
    at = now + CHECK_SCHEDULED_AGAIN
    if isinstance(row, Execution):
        return timers.check(row, at)
    if isinstance(row, Watch):
        again = _watch(row.job_id, now, since=row.since)
        return replace(again, rest=row.rest)
    return replace(row, position=check_position(row.execution_id, at), at=at)


def _check(id: ExecutionId, at: datetime) -> Pointer:
    return Pointer(
        kind=PointerKind.CHECK,
        position=check_position(id, at),
        execution_id=id,
        queue=_NO_LANE,
        at=at,
        attempt=1,
    )


def _watch(job: JobId, now: datetime, *, since: datetime) -> Watch:
    at = watch_place(job, now, WATCH_EVERY)
    return Watch(position=watch_position(job, at), job_id=job, at=at, since=since)
