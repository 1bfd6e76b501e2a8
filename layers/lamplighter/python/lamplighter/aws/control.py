"""`ports.Control` on the control table: leases with epochs, and the layout."""

import secrets
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Final

from lamplighter.aws import conditions, items, schema
from lamplighter.aws.dynamo import Dynamo, Unmet
from lamplighter.core.buckets import LAYOUT_KEY, Position, from_ms, partition_key
from lamplighter.core.errors import LostLease
from lamplighter.core.lease import Grant, Held, Intent, Layout, Work
from lamplighter.core.limits import LAYOUT_FRESH
from lamplighter.ports import Clock

_LAYOUT_FRESH_S: Final = LAYOUT_FRESH.total_seconds()


class DynamoControl:
    """One item for each partition's work; DynamoDB's conditional write is the register."""

    def __init__(self, dynamo: Dynamo, *, table: str, clock: Clock) -> None:
        self._dynamo = dynamo
        self._table = table
        self._clock = clock
        self._layout: Layout | None = None
        self._layout_read_at = 0.0

    def layout(self, default: Layout) -> Layout:
        """Read anew after a minute: a layout takes effect later than that."""
        now = self._clock.monotonic()
        if self._layout is None or now - self._layout_read_at >= _LAYOUT_FRESH_S:
            self._layout, self._layout_read_at = self._read_layout(default), now
        return self._layout

    def acquire(
        self, work: Work, *, owner: str, now: datetime, until: datetime, start: Position
    ) -> Grant | Held:
        call = secrets.token_hex(8)
        answer = self._dynamo.update(
            self._table,
            conditions.acquire(work, owner=owner, call=call, now=now, until=until, start=start),
        )
        if not isinstance(answer, Unmet):
            return items.grant_from(answer, work)
        if answer.found is None:
            raise ValueError(f"{work}: a lease that nobody holds was refused")
        return Held(until=from_ms(int(answer.found[items.LEASE_UNTIL])))

    def advance(
        self, grant: Grant, *, watermark: Position, intent: Intent | None, until: datetime
    ) -> Grant:
        answer = self._dynamo.update(
            self._table,
            conditions.advance(grant, watermark=watermark, intent=intent, until=until),
        )
        if not isinstance(answer, Unmet):
            return items.grant_from(answer, grant.work)
        if answer.found is not None and int(answer.found[items.EPOCH]) == grant.epoch:
            raise ValueError(f"{grant.work}: the watermark does not go back to {watermark}")
        raise LostLease(partition=grant.work.partition, epoch=grant.epoch)

    def watermarks(self, works: Collection[Work]) -> Mapping[Work, Position]:
        by_key = {partition_key(work.partition, work.kind): work for work in works}
        found = self._dynamo.get_many(self._table, [*by_key], consistent=True)
        return {
            by_key[values[schema.PARTITION_KEY], values[schema.SORT_KEY]]: Position(
                values[items.WATERMARK]
            )
            for values in found
        }

    def _read_layout(self, default: Layout) -> Layout:
        values = self._dynamo.get(self._table, LAYOUT_KEY)
        if values is not None:
            return items.layout_from(values)
        made = items.layout_values(default, LAYOUT_KEY)
        unmet = self._dynamo.put(self._table, conditions.made_once(made))
        return items.layout_from((unmet and unmet.found) or made)
