"""`ports.Control` on the control table: leases with epochs, and the layouts."""

import secrets
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from functools import partial

from lamplighter.aws import conditions, items, schema
from lamplighter.aws.dynamo import Dynamo, Unmet
from lamplighter.aws.reading import Reader, Told, Values, nobody
from lamplighter.core.buckets import LAYOUT_KEY, Position, partition_key
from lamplighter.core.errors import LostLease
from lamplighter.core.lease import (
    Backlog,
    Grant,
    Held,
    Intent,
    Layout,
    Layouts,
    Progress,
    Void,
    Work,
)
from lamplighter.core.limits import LAYOUT_FRESH
from lamplighter.ports import Clock


class DynamoControl:
    """One item for each partition's work; DynamoDB's conditional write is the register."""

    def __init__(
        self, dynamo: Dynamo, *, table: str, clock: Clock, unreadable: Told = nobody
    ) -> None:
        """`unreadable` is told of each damaged item, each time that it is met."""
        self._dynamo = dynamo
        self._reader = Reader(unreadable)
        self._table = table
        self._clock = clock
        self._layouts: Layouts | None = None
        self._read_at = (clock.now(), clock.monotonic())

    def layouts(self, default: Layout, *, anew: bool = False) -> Layouts:
        """Read anew after a minute: a layout takes effect later than that.

        By both clocks: while a function's environment is frozen, one of them may stand still.
        """
        if (known := self._layouts) is not None and not anew and self._is_fresh():
            return known
        # Told after the read: until then, or where it fails, nobody goes by the old ones.
        read_at = (self._clock.now(), self._clock.monotonic())
        layouts = self._read_layouts(default)
        self._layouts, self._read_at = layouts, read_at
        return layouts

    def revise_layouts(self, before: Layouts, after: Layouts) -> bool:
        unmet = self._dynamo.put(self._table, conditions.revised_layouts(before, after))
        if unmet is None:
            self._layouts = after
        return unmet is None

    def acquire(
        self,
        work: Work,
        *,
        owner: str,
        now: datetime,
        until: datetime,
        start: Position,
        armed_by: int | None = None,
    ) -> Grant | Held | Void:
        call = secrets.token_hex(8)
        answer = self._dynamo.update(
            self._table,
            conditions.acquire(
                work,
                owner=owner,
                call=call,
                now=now,
                until=until,
                start=start,
                armed_by=armed_by,
            ),
        )
        if not isinstance(answer, Unmet):
            return self._grant(answer, work)
        if answer.found is None:
            raise ValueError(f"{work}: a lease that nobody holds was refused")
        found = self._grant(answer.found, work)
        if armed_by is not None and found.armed > armed_by:
            return Void()
        return Held(until=self._reader.one(items.held_until, answer.found))

    def advance(
        self,
        grant: Grant,
        *,
        watermark: Position,
        intent: Intent | None,
        until: datetime,
        backlog: Backlog | None = None,
    ) -> Grant:
        answer = self._dynamo.update(
            self._table,
            conditions.advance(
                grant, watermark=watermark, intent=intent, until=until, backlog=backlog
            ),
        )
        if not isinstance(answer, Unmet):
            return self._grant(answer, grant.work)
        if answer.found and self._grant(answer.found, grant.work).epoch == grant.epoch:
            raise ValueError(f"{grant.work}: the watermark does not go back to {watermark}")
        raise LostLease(partition=grant.work.partition, epoch=grant.epoch)

    def rewind(self, grant: Grant, *, to: Progress, intent: Intent | None, until: datetime) -> None:
        answer = self._dynamo.update(
            self._table, conditions.rewind(grant, to=to, intent=intent, until=until)
        )
        if isinstance(answer, Unmet):
            raise LostLease(partition=grant.work.partition, epoch=grant.epoch)

    def progress(self, works: Collection[Work]) -> Mapping[Work, Progress]:
        by_key = {partition_key(work.generation, work.partition, work.kind): work for work in works}
        found = self._dynamo.get_many(self._table, [*by_key], consistent=True)
        return {
            by_key[values[schema.PARTITION_KEY], values[schema.SORT_KEY]]: self._reader.one(
                items.progress_from, values
            )
            for values in found
        }

    def _grant(self, values: Values, work: Work) -> Grant:
        return self._reader.one(partial(items.grant_from, work=work), values)

    def _is_fresh(self) -> bool:
        now, monotonic = self._read_at
        return (
            timedelta(0) <= self._clock.now() - now < LAYOUT_FRESH
            and self._clock.monotonic() - monotonic < LAYOUT_FRESH.total_seconds()
        )

    def _read_layouts(self, default: Layout) -> Layouts:
        values = self._dynamo.get(self._table, LAYOUT_KEY)
        if values is not None:
            return self._reader.one(items.layouts_from, values)
        made = items.layouts_values(Layouts(of=(default,)), LAYOUT_KEY)
        unmet = self._dynamo.put(self._table, conditions.made_once(made))
        return self._reader.one(items.layouts_from, (unmet and unmet.found) or made)
