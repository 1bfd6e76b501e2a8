"""`ports.Tally` in memory."""

from dataclasses import replace
from datetime import datetime

from lamplighter.core.buckets import to_ms
from lamplighter.core.limits import RECOUNT_AFTER
from lamplighter.core.model import Owner
from lamplighter.core.quotas import Empty, Quota, Rate, Taken, Usage, charged, is_to_be_marked, take
from lamplighter.memory.stores import Account, Tables

_MS_NS = 1_000_000


class MemoryTally:
    """What is counted lies in the tables; the rows that are queued are counted one by one."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def usage(self, owner: Owner) -> Usage:
        with self._tables.lock:
            return self._tables.account(owner).usage

    def reserve(self, owner: Owner, quota: Quota, more: Usage, *, now: datetime) -> None:
        with self._tables.lock:
            self._tables.count(owner, quota, more)
            account = self._tables.account(owner)
            account = replace(account, queued_bytes=account.queued_bytes + more.payload_bytes)
            if is_to_be_marked(quota, account.usage, account.mark, now):
                account = account.marked(now)
            self._tables.accounts[owner] = account

    def recount(self, owner: Owner, *, now: datetime) -> bool:
        with self._tables.lock:
            account = self._tables.account(owner)
            mark = account.mark
            if mark is None and account.usage.queued_executions:
                self._tables.accounts[owner] = account.marked(now)
            if mark is None or not mark.is_old(now, RECOUNT_AFTER):
                return False
            rows = [
                row
                for row in self._tables.executions.values()
                if row.owner == owner and row.is_counted and not row.is_final
            ]
            found = sum(charged(row.spec.payload.bytes) for row in rows if row.spec)
            more = Usage(
                queued_executions=len(rows) - mark.executions,
                payload_bytes=found - mark.payload_bytes,
            )
            self._tables.accounts[owner] = Account(
                usage=account.usage.plus(more),
                queued_bytes=account.queued_bytes + more.payload_bytes,
            ).marked(now)
            return True

    def take(
        self, owner: Owner, rate: Rate, *, least: int, most: int, now: datetime
    ) -> Taken | Empty:
        with self._tables.lock:
            full_at = self._tables.full_at_ns.get(owner, 0)
            now_ns = to_ms(now) * _MS_NS
            taken = take(rate, full_at, now_ns=now_ns, least=least, most=most)
            if isinstance(taken, Taken):
                self._tables.full_at_ns[owner] = taken.full_at_ns
            return taken
