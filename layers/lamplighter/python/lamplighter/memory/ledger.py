"""`ports.Ledger` in memory, and what stands in for the users' own tables."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from lamplighter.core import writes as own_writes
from lamplighter.core.buckets import ExecutionId, ledger_key
from lamplighter.core.errors import LostClaim, WriteRefusal, WritesRefused
from lamplighter.core.model import Execution, Token
from lamplighter.core.writes import OwnWrite
from lamplighter.memory.stores import MemoryExecutions, Tables
from lamplighter.ports import Checkpoint, Step

Take = Callable[[Sequence[OwnWrite]], Sequence[WriteRefusal]]


def _take_all(_: Sequence[OwnWrite]) -> Sequence[WriteRefusal]:
    return ()


@dataclass(kw_only=True)
class OwnTables:
    """The tables of whoever writes the tasks."""

    committed: list[OwnWrite] = field(default_factory=list)
    """All writes that took effect, each with the end of its execution."""
    take: Take = _take_all
    """Makes the writes of one transaction, or says which of them cannot be made, and then makes
    none. Called under the lock of all tables."""


@dataclass(frozen=True, kw_only=True)
class _Kept:
    token: Token
    checkpoint: Checkpoint


class MemoryLedger:
    """Dictionaries under the lock that the rows are under."""

    def __init__(self, tables: Tables, own: OwnTables) -> None:
        self._tables = tables
        self._executions = MemoryExecutions(tables)
        self._own = own
        self._checkpoints: dict[ExecutionId, _Kept] = {}
        self._results: dict[tuple[str, str], str] = {}
        self._calls: set[str] = set()

    def save(
        self, id: ExecutionId, checkpoint: Checkpoint, *, token: Token, kept_until: datetime
    ) -> None:
        with self._tables.lock:
            row = self._tables.executions.get(id)
            if row is None or row.token != token:
                raise LostClaim(id)
            last = self._checkpoints.get(id)
            if last is None or last.token != token or last.checkpoint.number < checkpoint.number:
                self._checkpoints[id] = _Kept(token=token, checkpoint=checkpoint)

    def saved(self, id: ExecutionId) -> str | None:
        with self._tables.lock:
            kept = self._checkpoints.get(id)
        return None if kept is None else kept.checkpoint.text

    def record(self, step: Step, result: str, *, kept_until: datetime) -> str:
        with self._tables.lock:
            return self._results.setdefault(_key(step), result)

    def recorded(self, step: Step) -> str | None:
        with self._tables.lock:
            return self._results.get(_key(step))

    def complete(
        self, after: Execution, *, token: Token, writes: Sequence[OwnWrite], call: str
    ) -> Execution:
        own_writes.check(writes)
        with self._tables.lock:
            row = self._tables.executions.get(after.id)
            if row is not None and call in self._calls:
                return row
            if row is None or row.token != token:
                raise LostClaim(after.id)
            if refusals := self._own.take(writes):
                raise WritesRefused(refusals)
            self._own.committed += writes
            self._calls.add(call)
            return self._executions.settle(after, token=token)


def _key(step: Step) -> tuple[str, str]:
    return ledger_key(step.owner, step.idempotent_as, step.key)
