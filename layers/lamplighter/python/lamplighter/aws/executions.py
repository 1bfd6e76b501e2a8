"""`ports.Executions` on the executions table."""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from boto3.dynamodb.conditions import Key

from lamplighter.aws import conditions, items, schema
from lamplighter.aws.dynamo import Dynamo, Index, Unmet
from lamplighter.aws.reading import Reader, Told, Values, nobody
from lamplighter.core.buckets import (
    ExecutionId,
    JobId,
    Minute,
    Position,
    body_of,
    bucket_key,
    execution_id_at,
    execution_of,
    job_index_keys,
    owner_keys,
    payload_key,
)
from lamplighter.core.errors import Damaged, LostClaim, NotFound, VersionMoved
from lamplighter.core.lifecycle import State
from lamplighter.core.model import Arrival, Execution, Owner, Payload, Pointer, Row, Token, Watch
from lamplighter.ports import Page, Refusal

# Sorts after a position and before or at every row that follows it.
_NEXT = "0"


@dataclass(frozen=True, kw_only=True)
class _Part:
    """What one shard had; `stopped_at` is how far it was read, None when to its end."""

    rows: Sequence[Row]
    damaged: Mapping[Position, Damaged]
    stopped_at: Position | None


class DynamoExecutions:
    """Each execution is one row in the bucket of its run_at; a write is one conditional call."""

    def __init__(
        self,
        dynamo: Dynamo,
        *,
        table: str,
        jobs_table: str | None,
        hasty: Callable[[], Dynamo] | None = None,
        unreadable: Told = nobody,
    ) -> None:
        """`hasty` is for what may as well not be known: it gives up soon.

        `unreadable` is told of each damaged item, each time that it is met.
        """
        self._dynamo = dynamo
        self._reader = Reader(unreadable)
        self._hasty = hasty or (lambda: dynamo)
        self._table = table
        self._jobs_table = jobs_table
        self._by_owner = _index(table, schema.BY_OWNER, schema.OWNER_KEY)
        self._needs_attention = _index(table, schema.NEEDS_ATTENTION, schema.ATTENTION_KEY)
        self._by_job = _index(table, schema.BY_JOB, schema.JOB_KEY)

    def put(self, rows: Sequence[Execution]) -> Sequence[Execution]:
        return self._dynamo.fan.each(self._put, rows)

    def point(self, pointers: Sequence[Pointer | Watch]) -> None:
        self._dynamo.fan.each(self._point, pointers)

    def get(self, id: ExecutionId) -> Execution | None:
        values = self._dynamo.get(self._table, items.execution_key(id))
        row = None if values is None else self._reader.one(items.row_from, values)
        # A pointer's place can be computed by whoever knows its execution's id.
        return row if isinstance(row, Execution) else None

    def get_many(
        self, ids: Collection[ExecutionId], *, strongly: bool = False
    ) -> Mapping[ExecutionId, Execution]:
        keys = [items.execution_key(id) for id in ids]
        found = self._dynamo.get_many(self._table, keys, consistent=strongly)
        rows = self._reader.each(items.row_from, found)
        return {row.id: row for row in rows if isinstance(row, Execution)}

    def due(
        self, minute: Minute, shards: Sequence[int], *, after: Position, until: Position, limit: int
    ) -> Page:
        if after >= until:
            return Page(rows=[], reached=until)
        share = -(-limit // len(shards))
        parts = self._dynamo.fan.each(
            lambda shard: self._part(bucket_key(minute, shard), after, until, share), shards
        )
        stops = [part.stopped_at for part in parts if part.stopped_at is not None]
        # No further than the shard that was read the least: beyond it rows are missing.
        reached = min(stops, default=until)
        rows = sorted(
            (row for part in parts for row in part.rows if _position_of(row) <= reached),
            key=_position_of,
        )
        if len(rows) > limit:
            rows, reached = rows[:limit], _position_of(rows[limit - 1])
        damaged = tuple(
            one for part in parts for position, one in part.damaged.items() if position <= reached
        )
        for one in damaged:
            self._reader.told(one)
        return Page(rows=rows, reached=reached, damaged=damaged)

    def sample(
        self, minute: Minute, shard: int, *, queue: str, until: Position, limit: int
    ) -> Sequence[Position]:
        in_bucket = Key(schema.PARTITION_KEY).eq(bucket_key(minute, shard))
        found = self._hasty().glance(
            self._table,
            in_bucket & Key(schema.SORT_KEY).lte(until),
            names=[schema.SORT_KEY, items.STATE, items.QUEUE],
            limit=limit,
        )
        return [
            Position(values[schema.SORT_KEY])
            for values in found
            if values.get(items.STATE) == State.SCHEDULED and values.get(items.QUEUE) == queue
        ]

    def claim(
        self,
        id: ExecutionId,
        *,
        attempt: int,
        token: Token,
        worker: str,
        now: datetime,
        lease_until: datetime,
        arrival: Arrival | None = None,
    ) -> Execution | Refusal:
        return self._row_or_refusal(
            conditions.claim(
                id,
                attempt=attempt,
                token=token,
                worker=worker,
                now=now,
                lease_until=lease_until,
                arrival=arrival,
            )
        )

    def take_over(
        self,
        holder: Execution,
        *,
        token: Token,
        worker: str,
        now: datetime,
        lease_until: datetime,
        arrival: Arrival | None = None,
    ) -> Execution | Refusal:
        return self._row_or_refusal(
            conditions.take_over(
                holder,
                token=token,
                worker=worker,
                now=now,
                lease_until=lease_until,
                arrival=arrival,
            )
        )

    def extend(self, id: ExecutionId, *, token: Token, lease_until: datetime) -> Execution:
        row = self._row_or_refusal(conditions.extend(id, token=token, lease_until=lease_until))
        if isinstance(row, Execution):
            return row
        if row.found is not None and row.found.token == token:
            return row.found
        raise LostClaim(id)

    def settle(
        self,
        after: Execution,
        *,
        token: Token,
        job_version: int | None = None,
        lease_until: datetime | None = None,
    ) -> Execution:
        update = conditions.settle(after, token=token, lease_until=lease_until)
        if job_version is None:
            answer = self._row_or_refusal(update)
        else:
            answer = self._if_job_is_at(job_version, update, after)
        if isinstance(answer, Refusal):
            raise LostClaim(after.id)
        return answer

    def end(
        self, before: Execution, after: Execution, *, job_version: int | None = None
    ) -> Execution | Refusal:
        update = conditions.end(before, after, same_version=job_version is not None)
        if job_version is None:
            return self._row_or_refusal(update)
        return self._if_job_is_at(job_version, update, after)

    def block(self, after: Execution, *, token: Token, alone: bool) -> Execution | Refusal:
        update = conditions.block(after, token=token)
        if after.blocker is None:
            raise ValueError(f"{after.id} waits for nothing")
        waiting = conditions.wait_for(after.blocker, after.id, alone=alone)
        unmet = self._dynamo.transact([(self._table, update), (self._table, waiting)])
        if unmet is None:
            return self._written(after)
        ours, of_blocker = unmet
        if ours is not None and not update.was_made(ours.found):
            raise LostClaim(after.id)
        if of_blocker is not None and ours is None:
            return refusal(of_blocker, self._reader)
        # An earlier try of this very call took effect.
        return self._written(after)

    def amend(self, before: Execution, after: Execution) -> Execution | Refusal:
        return self._row_or_refusal(conditions.amend(before, after))

    def move(self, before: Execution, after: Execution, *, now: datetime) -> Execution | Refusal:
        ending = conditions.move(before, to=after.id, now=now)
        made = conditions.made_once(items.execution_values(after))
        writes: list[tuple[str, conditions.Write]] = [(self._table, ending), (self._table, made)]
        first = execution_of(before.job_id)
        if first is not None and first != before.id:
            leading = conditions.lead(first, away_from=before.id, to=after.id)
            writes.append((self._table, leading))
        unmet = self._dynamo.transact(writes)
        if unmet is None:
            return items.execution_from(made.values)
        of_ending, of_made, *of_leading = unmet
        if of_made is not None and of_ending is not None and ending.was_made(of_ending.found):
            return self._read(of_made.found or made.values)
        refused = of_ending or next(iter(of_leading), None) or Unmet(found=None)
        return refusal(refused, self._reader)

    def request_cancel(self, id: ExecutionId, *, now: datetime) -> Execution | Refusal:
        return self._row_or_refusal(conditions.request_cancel(id, now=now))

    def mark_told(self, id: ExecutionId, *, now: datetime) -> None:
        self._dynamo.update(self._table, conditions.mark_told(id, now=now))

    def mark_last(self, id: ExecutionId, *, decided_at: datetime) -> None:
        self._dynamo.update(self._table, conditions.mark_last(id, decided_at=decided_at))

    def count_undeliverable(self, id: ExecutionId) -> Execution | None:
        answer = self._row_or_refusal(conditions.count_undeliverable(id))
        return answer if isinstance(answer, Execution) else None

    def put_payload(self, id: JobId, payload: Payload, *, kept_until: datetime | None) -> None:
        values = items.payload_values(id, payload, kept_until)
        # One that exists is the same: an earlier try's.
        self._dynamo.put(self._table, conditions.made_once(values))

    def get_payload(self, id: JobId, version: int) -> str:
        values = self._dynamo.get(self._table, payload_key(id, version))
        if values is None:
            raise NotFound(kind="payload", id=id)
        text: str = values[items.TEXT]
        return text

    def of_owner(
        self, owner: Owner, *, before: Position | None, limit: int
    ) -> Sequence[ExecutionId]:
        return self._newest(self._by_owner, owner_keys(owner), before, limit)

    def additional_of(
        self, job: JobId, *, before: Position | None, limit: int
    ) -> Sequence[ExecutionId]:
        return self._newest(self._by_job, job_index_keys(job), before, limit)

    def needing_attention(
        self, owner: Owner, *, before: Position | None, limit: int
    ) -> Sequence[ExecutionId]:
        return self._newest(self._needs_attention, owner_keys(owner), before, limit)

    def _put(self, row: Execution) -> Execution:
        put = conditions.planned(row)
        unmet = self._dynamo.put(self._table, put)
        if unmet is not None and unmet.found is not None:
            with suppress(Damaged):
                return self._read(unmet.found)
        return items.execution_from(put.values)

    def _point(self, pointer: Pointer | Watch) -> None:
        self._dynamo.put(
            self._table,
            conditions.watched(pointer)
            if isinstance(pointer, Watch)
            else conditions.made_once(items.pointer_values(pointer)),
        )

    def _part(self, bucket: str, after: Position, until: Position, limit: int) -> _Part:
        in_bucket = Key(schema.PARTITION_KEY).eq(bucket)
        past_after = Key(schema.SORT_KEY).between(after + _NEXT, until)
        read = self._dynamo.query(self._table, in_bucket & past_after, limit=limit)
        rows: list[Row] = []
        damaged: dict[Position, Damaged] = {}
        for values in read.values:
            try:
                rows.append(items.row_from(values))
            except Damaged as error:
                damaged[Position(values[schema.SORT_KEY])] = error
        return _Part(
            rows=rows,
            damaged=damaged,
            stopped_at=None if read.last is None else Position(read.last[schema.SORT_KEY]),
        )

    def _read(self, values: Values) -> Execution:
        return self._reader.one(items.execution_from, values)

    def _row_or_refusal(self, update: conditions.Update) -> Execution | Refusal:
        answer = self._dynamo.update(self._table, update)
        if isinstance(answer, Unmet):
            return refusal(answer, self._reader)
        return self._read(answer)

    def _if_job_is_at(
        self, version: int, update: conditions.Update, after: Execution
    ) -> Execution | Refusal:
        """The update and a look at the job, in one transaction."""
        if self._jobs_table is None:
            raise ValueError("a function without the jobs table cannot check a job's version")
        unmet = self._dynamo.transact(
            [
                (self._table, update),
                (self._jobs_table, conditions.job_is_at(after.job_id, version)),
            ]
        )
        if unmet is None:
            return self._written(after)
        row, _ = unmet
        if row is None:
            raise VersionMoved(job_id=after.job_id, version=version)
        if row.found is not None and update.was_made(row.found):
            return self._read(row.found)
        return refusal(row, self._reader)

    def _written(self, after: Execution) -> Execution:
        """A row that a transaction wrote: it does not answer with what else is in it.

        That is its waiters, and a cancel that was requested meanwhile.
        """
        return self.get(after.id) or items.execution_from(items.execution_values(after))

    def _newest(
        self, index: Index, partitions: Sequence[str], before: Position | None, limit: int
    ) -> Sequence[ExecutionId]:
        keys = self._dynamo.newest(index, partitions, before=before, limit=limit)
        return [execution_id_at(Position(key)) for key in keys]


def _index(table: str, name: str, partition: str) -> Index:
    return Index(table=table, name=name, partition=partition, sort=schema.SORT_KEY)


def refusal(unmet: Unmet, reader: Reader) -> Refusal:
    """What a conditional write of an execution was refused for."""
    found = unmet.found
    return Refusal(found=None if found is None else reader.one(items.execution_from, found))


def _position_of(row: Row) -> Position:
    return body_of(row.id) if isinstance(row, Execution) else row.position
