"""`ports.Tally` on the jobs table: two items for each owner who has a quota.

What is queued is in an index as long as it is queued, so that it can be counted.
"""

from datetime import datetime
from typing import Final

from lamplighter.aws import conditions, items, schema
from lamplighter.aws.dynamo import Dynamo, Index, Unmet
from lamplighter.aws.reading import Reader, Told, Values, nobody
from lamplighter.core.buckets import queued_keys, to_ms, usage_key
from lamplighter.core.errors import Contended
from lamplighter.core.limits import RECOUNT_AFTER
from lamplighter.core.model import Owner
from lamplighter.core.quotas import (
    STEPS,
    Empty,
    Mark,
    Quota,
    Rate,
    Taken,
    Usage,
    charged_at,
    is_to_be_marked,
    take,
)

_MS_NS: Final = 1_000_000
# Each time another host was first, and the bucket is emptier than it was.
_TRIES: Final = 20


class DynamoTally:
    """Counters, in the end: a conditional write for each call, and seldom one more."""

    def __init__(
        self, dynamo: Dynamo, *, table: str, executions_table: str, unreadable: Told = nobody
    ) -> None:
        """`unreadable` is told of each damaged item, each time that it is met."""
        self._dynamo = dynamo
        self._reader = Reader(unreadable)
        self._table = table
        self._queued = Index(
            table=executions_table,
            name=schema.NEEDS_ATTENTION,
            partition=schema.ATTENTION_KEY,
            sort=schema.SORT_KEY,
        )
        # As last seen: most often they are as this host left them.
        self._full_at_ns: dict[Owner, int] = {}

    def usage(self, owner: Owner) -> Usage:
        return self._usage(self._dynamo.get(self._table, usage_key(owner)))

    def reserve(self, owner: Owner, quota: Quota, more: Usage, *, now: datetime) -> None:
        answer = self._dynamo.update(self._table, conditions.reserve(owner, quota, more))
        if isinstance(answer, Unmet):
            raise self._usage(answer.found).refusal(quota, more)
        usage, mark = self._usage(answer), self._reader.one(items.mark_from, answer)
        if is_to_be_marked(quota, usage, mark, now):
            # If others were counted meanwhile, one of them marks.
            self._dynamo.update(self._table, conditions.mark(owner, answer, now=now))

    def _usage(self, values: Values | None) -> Usage:
        return self._reader.one(items.usage_from, values or {})

    def recount(self, owner: Owner, *, now: datetime) -> bool:
        counted = self._dynamo.get(self._table, usage_key(owner)) or {}
        old = self._reader.one(items.mark_from, counted)
        if old is None and items.QUEUED in counted:
            self._dynamo.update(self._table, conditions.mark(owner, counted, now=now))
        if old is None or not old.is_old(now, RECOUNT_AFTER):
            return False
        found = self._count(owner)
        more = found.plus(-Usage(queued_executions=old.executions, payload_bytes=old.payload_bytes))
        new = Mark(
            at=now,
            executions=int(counted[items.QUEUED]) + more.queued_executions,
            payload_bytes=int(counted[items.QUEUED_BYTES]) + more.payload_bytes,
        )
        # Where another caller was first, it is done too.
        self._dynamo.update(self._table, conditions.recount(owner, old, new, more))
        return True

    def take(
        self, owner: Owner, rate: Rate, *, least: int, most: int, now: datetime
    ) -> Taken | Empty:
        now_ns = to_ms(now) * _MS_NS
        for _ in range(_TRIES):
            full_at = self._full_at_ns.get(owner, 0)
            taken = take(rate, full_at, now_ns=now_ns, least=least, most=most)
            if isinstance(taken, Empty):
                return taken
            write = conditions.take(owner, rate, taken, now_ns=now_ns)
            answer = self._dynamo.update(self._table, write)
            if not isinstance(answer, Unmet):
                self._full_at_ns[owner] = int(answer[items.FULL_AT])
                return taken
            self._full_at_ns[owner] = int((answer.found or {}).get(items.FULL_AT, 0))
        raise Contended(f"the submissions of {owner}: others took them each time")

    def _count(self, owner: Owner) -> Usage:
        """The executions that are queued, and what their payloads count for."""
        step_of = queued_keys(owner, 1 + STEPS)
        counts = self._dynamo.fan.each(
            lambda key: self._dynamo.count(self._queued, key), [*step_of]
        )
        found = [*zip(step_of.values(), counts, strict=True)]
        return Usage(
            queued_executions=sum(n for _, n in found),
            payload_bytes=sum(n * charged_at(step - 1) for step, n in found if step),
        )
