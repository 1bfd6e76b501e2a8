"""`ports.Jobs` on the jobs table; creation spans it and the executions table."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from boto3.dynamodb.conditions import Key

from lamplighter.aws import conditions, items, schema
from lamplighter.aws.dynamo import Dynamo, Index, Unmet
from lamplighter.aws.executions import refusal
from lamplighter.aws.reading import Reader, Told, Values, nobody
from lamplighter.core.buckets import (
    ExecutionId,
    JobId,
    Position,
    body_of,
    idempotency_key,
    job_id_at,
    job_key,
    job_version_key,
    owner_keys,
    usage_key,
)
from lamplighter.core.errors import ChainMoved, Contended, Damaged, VersionMoved
from lamplighter.core.model import Execution, Job, JobStatus, Owner
from lamplighter.core.quotas import Quota, Usage
from lamplighter.ports import KeyRecord, Refusal

# All of an owner's creations meet at one item: five seconds of waits, of the 15 s of an API.
_TRIES_TO_COUNT: Final = 12


class DynamoJobs:
    """A definition is one item, each earlier version of it and each key another.

    A one-off's definition is its execution's row.
    """

    def __init__(
        self, dynamo: Dynamo, *, table: str, executions_table: str, unreadable: Told = nobody
    ) -> None:
        """`unreadable` is told of each damaged item, each time that it is met."""
        self._dynamo = dynamo
        self._reader = Reader(unreadable)
        self._table = table
        self._executions_table = executions_table
        self._by_owner = Index(
            table=table,
            name=schema.JOBS_BY_OWNER,
            partition=schema.JOBS_OWNER_KEY,
            sort=schema.JOBS_BY_OWNER_SORT,
        )

    def create(
        self,
        *,
        first: Execution,
        job: Job | None = None,
        key: KeyRecord | None = None,
        quota: Quota | None = None,
    ) -> KeyRecord | None:
        row = conditions.made_once(items.execution_values(first))
        if job is None and key is None:
            # A row that exists is an earlier try's: nobody else makes this id.
            self._dynamo.put(self._executions_table, row)
            return None
        writes: list[tuple[str, conditions.Write]] = [(self._executions_table, row)]
        if job is not None:
            writes.append((self._table, conditions.made_once(items.job_values(job))))
        if key is not None:
            writes.append((self._table, conditions.made_once(items.key_record_values(key))))
        more = Usage.of_job(job.spec.payload.bytes) if job and job.is_counted else Usage()
        unmet = self._counting(writes, first.owner, quota or Quota(), more)
        return None if unmet is None else _earlier(unmet, first, key, self._reader)

    def join(
        self,
        rows: Sequence[Execution],
        *,
        job: Job,
        armed: Execution | None,
        key: KeyRecord | None = None,
    ) -> KeyRecord | None:
        last = rows[-1].id
        made = [
            (self._executions_table, conditions.made_once(items.execution_values(row)))
            for row in rows
        ]
        writes: list[tuple[str, conditions.Write]] = [*made]
        if armed is None:
            writes.append((self._table, conditions.put_last(job, last)))
        else:
            follow = conditions.follow(armed, last, job_version=job.version)
            writes.append((self._executions_table, follow))
            writes.append((self._table, conditions.job_is_at(job.id, job.version)))
        if key is not None:
            writes.append((self._table, conditions.made_once(items.key_record_values(key))))
        unmet = self._dynamo.transact(writes)
        return None if unmet is None else self._not_joined(unmet, rows, job, key)

    def _not_joined(
        self,
        unmet: Sequence[Unmet | None],
        rows: Sequence[Execution],
        job: Job,
        key: KeyRecord | None,
    ) -> KeyRecord | None:
        """What it means that a part of a chain could not be joined to it."""
        if key is not None and (of_key := unmet[-1]) is not None and of_key.found is not None:
            known = self._reader.one(items.key_record_from, of_key.found)
            if known.job_id != key.job_id:
                return known
        if all(unmet[: len(rows)]):
            # An earlier try of this very call took effect.
            return None
        current = self.get(job.id)
        if current is None or current.version != job.version:
            raise VersionMoved(job_id=job.id, version=job.version)
        raise ChainMoved(job_id=job.id)

    def record_of(self, owner: Owner, key: str) -> KeyRecord | None:
        values = self._dynamo.get(self._table, idempotency_key(owner, key))
        return None if values is None else self._reader.one(items.key_record_from, values)

    def get(self, id: JobId) -> Job | None:
        values = self._dynamo.get(self._table, job_key(id))
        return None if values is None else self._reader.one(items.job_from, values)

    def get_many(self, ids: Collection[JobId]) -> Mapping[JobId, Job]:
        jobs = (self._job_or_stand_in(values) for values in self._found(ids))
        return {job.id: job for job in jobs}

    def _found(self, ids: Collection[JobId]) -> Sequence[Values]:
        keys = [job_key(id) for id in ids]
        return self._dynamo.get_many(self._table, keys, consistent=True)

    def _job_or_stand_in(self, values: Values) -> Job:
        try:
            return self._reader.one(items.job_from, values)
        except Damaged as damaged:
            return items.stand_in_for(damaged)

    def delete(self, job: Job) -> Job:
        gone = conditions.delete_job(job)
        if job.is_counted:
            return self._deleted(gone, job)
        answer = self._dynamo.update(self._table, gone)
        if isinstance(answer, Unmet):
            raise VersionMoved(job_id=job.id, version=job.version)
        return self._reader.one(items.job_from, answer)

    def _deleted(self, gone: conditions.Update, job: Job) -> Job:
        less = -Usage.of_job(job.spec.payload.bytes)
        if self._counting([(self._table, gone)], job.owner, Quota(), less) is not None:
            raise VersionMoved(job_id=job.id, version=job.version)
        return replace(job, version=job.version + 1, status=JobStatus.DELETED, is_counted=False)

    def _counting(
        self,
        writes: Sequence[tuple[str, conditions.Write]],
        owner: Owner,
        quota: Quota,
        more: Usage,
    ) -> Sequence[Unmet | None] | None:
        """As a transaction of the writes alone, which counts so much more of what an owner has.

        Raises OverQuota where nothing else was in the way of it.
        """
        if more == Usage():
            return self._dynamo.transact(writes)
        count = (self._table, conditions.count(owner, quota, more))
        try:
            unmet = self._dynamo.transact([*writes, count], tries=_TRIES_TO_COUNT)
        except Contended:
            # Too many at once, and maybe there is nothing left that they could have.
            items.usage_from(self._dynamo.get(self._table, usage_key(owner))).check(quota, more)
            raise
        if unmet is None:
            return None
        *others, of_count = unmet
        if of_count is not None and not any(others):
            raise items.usage_from(of_count.found).refusal(quota, more)
        return others

    def revise(
        self,
        before: Job,
        after: Job,
        *,
        first: Execution | None = None,
        armed: Execution | None = None,
        quota: Quota | None = None,
    ) -> Job | Refusal:
        writes: list[tuple[str, conditions.Write]] = [
            (self._table, conditions.revise_job(before, after)),
            (self._table, conditions.made_once(items.job_version_values(before))),
        ]
        is_same_row = armed is not None and first is not None and armed.id == first.id
        if first is not None:
            planned = conditions.planned(first, over=armed if is_same_row else None)
            writes.append((self._executions_table, planned))
        if armed is not None and not is_same_row:
            writes.append((self._executions_table, conditions.follows_still(armed)))
        grown = (
            Usage.grown(before.spec.payload.bytes, after.spec.payload.bytes)
            if before.is_counted
            else Usage()
        )
        unmet = self._counting(writes, before.owner, quota or Quota(), grown)
        revised = items.job_from(items.job_values(after))
        if unmet is None:
            return revised
        return _not_revised(unmet, before, revised, first, armed, self._reader)

    def versions(self, id: JobId, *, before: int, limit: int) -> Sequence[Job]:
        if before <= 1:
            # DynamoDB refuses a range that ends before it begins.
            return []
        (partition, first), (_, last) = job_version_key(id, 1), job_version_key(id, before - 1)
        of_job = Key(schema.PARTITION_KEY).eq(partition)
        earlier = Key(schema.SORT_KEY).between(first, last)
        found = self._dynamo.last(self._table, of_job & earlier, limit=limit)
        return [self._reader.one(items.job_from, values) for values in found]

    def of_owner(self, owner: Owner, *, before: Position | None, limit: int) -> Sequence[Job]:
        jobs: list[Job] = []
        while True:
            wanted = limit - len(jobs)
            ids = self._listed(owner, before, wanted)
            readable = self._reader.each(items.job_from, self._found(ids))
            found = {job.id: job for job in readable}
            # The index may still list what was deleted a moment ago.
            jobs += (
                found[id] for id in ids if id in found and found[id].status is not JobStatus.DELETED
            )
            if len(ids) < wanted or len(jobs) >= limit:
                return jobs
            before = body_of(ids[-1])

    def _listed(self, owner: Owner, before: Position | None, limit: int) -> Sequence[JobId]:
        upper = None if before is None else job_id_at(before)
        keys = self._dynamo.newest(self._by_owner, owner_keys(owner), before=upper, limit=limit)
        return [JobId(key) for key in keys]


def _earlier(
    unmet: Sequence[Unmet | None], first: Execution, key: KeyRecord | None, reader: Reader
) -> KeyRecord | None:
    """What it means that something of a creation was there.

    None when all of it was, by an earlier try of the same call. Raises ValueError when
    another call made the job or the execution: ids are never given twice.
    """
    if key is not None and (of_key := unmet[-1]) is not None and of_key.found is not None:
        known = reader.one(items.key_record_from, of_key.found)
        if known.job_id != key.job_id:
            return known
    if not all(unmet):
        raise ValueError(f"{first.id} was made by another call")
    return None


def _not_revised(
    unmet: Sequence[Unmet | None],
    before: Job,
    revised: Job,
    first: Execution | None,
    armed: Execution | None,
    reader: Reader,
) -> Job | Refusal:
    """What it means that a revision's transaction wrote nothing.

    The job as it was to be, when an earlier try of the same call made it so. Raises
    VersionMoved when it is neither so nor at the version of `before`.
    """
    of_job, _, *others = unmet
    if of_job is not None and of_job.found is not None:
        found = reader.one(items.job_from, of_job.found)
        if found == revised:
            return revised
        if found.version == before.version:
            raise ChainMoved(job_id=before.id)
    if of_job is not None or not any(others):
        raise VersionMoved(job_id=before.id, version=before.version)
    of_first = others[0] if first is not None else None
    if of_first is None:
        raise ChainMoved(job_id=before.id)
    refused = refusal(of_first, reader)
    there = refused.found
    # The very row that is armed: what moved is the chain, unless the row itself did.
    is_armed = there is not None and armed is not None and there.id == armed.id
    if is_armed and _predecessor(there) != _predecessor(armed):
        raise ChainMoved(job_id=before.id)
    return refused


def _predecessor(row: Execution | None) -> ExecutionId | None:
    return row.predecessor if row else None
