"""`ports.Permits` on the control table: one item for each limit, one for each that waits.

All of them, and the list of limits, lie under keys that begin with `permit#`: a worker's role is
given those, and no lease.
"""

import secrets
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from boto3.dynamodb.conditions import Key as KeyCondition

from lamplighter.aws import conditions, items, schema
from lamplighter.aws.dynamo import Dynamo, Unmet
from lamplighter.aws.reading import Reader, Told, Values, nobody
from lamplighter.core.buckets import (
    LIMITS_KEY,
    WAITS,
    ExecutionId,
    Position,
    execution_at,
    permit_key,
    waits_key,
)
from lamplighter.core.errors import Contended, Unavailable
from lamplighter.core.limits import LIMITS_FRESH
from lamplighter.core.permits import Bound, Key, Limits, Permit, Use
from lamplighter.ports import Clock

# More than are asked for, because others strike off the first of them at the same time.
_AHEAD: Final = 9
_LISTS: Final = 3
# A change of limits is a transaction beside the plain writes of all who start and end.
_TRIES: Final = 20


class DynamoPermits:
    """A conditional write for each place that is taken, and one for each that is given back."""

    def __init__(
        self, dynamo: Dynamo, *, table: str, clock: Clock, unreadable: Told = nobody
    ) -> None:
        """`unreadable` is told of each damaged item, each time that it is met."""
        self._dynamo = dynamo
        self._reader = Reader(unreadable)
        self._table = table
        self._clock = clock
        self._limits: Limits | None = None
        self._read_at = (clock.now(), clock.monotonic())

    def limits(self, *, anew: bool = False) -> Limits:
        if (known := self._limits) is not None and not anew and self._is_fresh():
            return known
        # Looked at before the read, so that what is known is never older than it seems; and told
        # after it, so that no thread goes by the old ones meanwhile, however old they are.
        read_at = (self._clock.now(), self._clock.monotonic())
        limits = self._read_limits(anew=anew)
        self._limits, self._read_at = limits, read_at
        return limits

    def _read_limits(self, *, anew: bool) -> Limits:
        """Those that were known, where the table does not answer: most that run are not limited."""
        try:
            values = self._dynamo.get(self._table, LIMITS_KEY)
            return Limits() if values is None else self._reader.one(items.limits_from, values)
        except Unavailable:
            if anew or self._limits is None:
                raise
            return self._limits

    def revise(self, before: Limits, after: Limits) -> bool:
        changed = before.changed(after).items()
        writes: list[conditions.Write] = [
            conditions.revised_limits(before, after),
            *(conditions.limit(key, most) for key, most in changed),
        ]
        if self._dynamo.transact([(self._table, write) for write in writes], tries=_TRIES):
            return False
        self._limits = after
        return True

    def acquire(self, bound: Bound, permit: Permit, *, until: datetime) -> Use | None:
        write = conditions.acquire_permit(bound, permit, until=until)
        answer = self._dynamo.update(self._table, write)
        if isinstance(answer, Unmet) and items.is_unused(answer.found):
            self._dynamo.update(self._table, conditions.begin_use(bound.key))
            answer = self._dynamo.update(self._table, write)
        if not isinstance(answer, Unmet):
            return None
        return self._use(answer.found)

    def release(self, key: Key, permit: Permit) -> Use:
        answer = self._dynamo.update(self._table, conditions.release_permit(key, permit))
        return self._use(answer.found if isinstance(answer, Unmet) else answer)

    def renew(self, key: Key, found: Use, until: Mapping[Permit, datetime | None]) -> bool:
        write = conditions.renew_permits(key, found, until)
        return not isinstance(self._dynamo.update(self._table, write), Unmet)

    def wait(self, key: Key, id: ExecutionId, *, kept_until: datetime) -> Use:
        self._dynamo.update(self._table, conditions.wait_for_permit(key, id, kept_until=kept_until))
        write = conditions.call_for_permit(key, call=secrets.token_hex(4))
        answer = self._dynamo.update(self._table, write)
        if isinstance(answer, Unmet):
            raise Contended(f"{key}: nobody ever took a place there")
        return self._use(answer)

    def next_waiting(self, key: Key, *, most: int, seen: Use) -> Sequence[ExecutionId]:
        if seen.call is None:
            return []
        for _ in range(_LISTS):
            listed = self._waiting(key, limit=most + _AHEAD)
            if not listed:
                # Unless somebody called since: then it is another call that is there.
                self._dynamo.update(self._table, conditions.nobody_calls(key, seen.call))
                return []
            if struck := self._strike(key, listed, most):
                return struck
        return []

    def _strike(self, key: Key, listed: Sequence[ExecutionId], most: int) -> Sequence[ExecutionId]:
        struck: list[ExecutionId] = []
        for id in listed:
            place = waits_key(key.kind, key.name, id)
            # Of all who strike it off, one is told that it was there.
            if len(struck) < most and self._dynamo.delete(self._table, place):
                struck.append(id)
        return struck

    def uses(self, keys: Collection[Key]) -> Mapping[Key, Use]:
        by_key = {permit_key(key.kind, key.name): key for key in keys}
        found = self._dynamo.get_many(self._table, [*by_key], consistent=True)
        return {
            by_key[values[schema.PARTITION_KEY], values[schema.SORT_KEY]]: self._use(values)
            for values in found
        }

    def _use(self, values: Values | None) -> Use:
        return Use() if values is None else self._reader.one(items.use_from, values)

    def waiting(self, key: Key, *, most: int) -> int:
        return len(self._waiting(key, limit=most))

    def _waiting(self, key: Key, *, limit: int) -> Sequence[ExecutionId]:
        partition, _ = permit_key(key.kind, key.name)
        condition = KeyCondition(schema.PARTITION_KEY).eq(partition) & KeyCondition(
            schema.SORT_KEY
        ).begins_with(WAITS)
        found = self._dynamo.query(self._table, condition, limit=limit).values
        return [
            execution_at(Position(values[schema.SORT_KEY].removeprefix(WAITS))) for values in found
        ]

    def _is_fresh(self) -> bool:
        now, monotonic = self._read_at
        return (
            timedelta(0) <= self._clock.now() - now < LIMITS_FRESH
            and self._clock.monotonic() - monotonic < LIMITS_FRESH.total_seconds()
        )
