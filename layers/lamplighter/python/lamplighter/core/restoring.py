"""How far partition work was done, once its tables are as they were at an earlier instant."""

from dataclasses import replace
from datetime import datetime

from lamplighter.core.buckets import Position, before
from lamplighter.core.lease import Backlog, Intent, Layout, Progress


def dispatched(
    progress: Progress, intent: Intent | None, *, restored_to: datetime
) -> tuple[Progress, Intent | None]:
    """Where dispatch goes on, of rows that are as they were at that instant.

    No later than there, as if it had stopped then: messages that were out are gone, and nothing
    that is due later can have run. What it had not come to by then stays so, its page too: that
    was decided then (P5). A page beyond is forgotten: what it armed is met again.
    """
    end = before(restored_to)
    if progress.watermark <= end:
        return progress, intent
    kept = intent if intent is not None and intent.until <= end else None
    return Progress(watermark=end, backlog=_clipped(progress.backlog, end)), kept


def swept(progress: Progress, layout: Layout, *, back_to: datetime, is_oldest: bool) -> Progress:
    """Where the sweep goes on: it looks again at every row from there on.

    The oldest layout's goes back beyond its beginning, if need be: those before it are
    forgotten, and its shards are no fewer.
    """
    begin = back_to if is_oldest else max(back_to, layout.effective_from)
    return Progress(watermark=min(progress.committed, before(begin)))


def _clipped(backlog: Backlog | None, end: Position) -> Backlog | None:
    if backlog is None or backlog.is_drained or backlog.after >= end:
        return None
    return replace(
        backlog,
        until=min(backlog.until, end),
        mark=min(backlog.mark, end),
        settled=min(backlog.settled, end),
    )
