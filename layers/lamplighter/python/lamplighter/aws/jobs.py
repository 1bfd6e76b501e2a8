"""`ports.Jobs` on the jobs table; creation spans it and the executions table."""

from collections.abc import Collection, Mapping, Sequence

from boto3.dynamodb.conditions import Key

from lamplighter.aws import conditions, items, schema
from lamplighter.aws.dynamo import Dynamo, Index, Unmet
from lamplighter.aws.executions import refusal
from lamplighter.core.buckets import (
    JobId,
    Position,
    body_of,
    idempotency_key,
    job_id_at,
    job_key,
    job_version_key,
    owner_keys,
)
from lamplighter.core.errors import VersionMoved
from lamplighter.core.model import Execution, Job, JobStatus, Owner
from lamplighter.ports import KeyRecord, Refusal


class DynamoJobs:
    """A definition is one item, each earlier version of it and each key another.

    A one-off's definition is its execution's row.
    """

    def __init__(self, dynamo: Dynamo, *, table: str, executions_table: str) -> None:
        self._dynamo = dynamo
        self._table = table
        self._executions_table = executions_table
        self._by_owner = Index(
            table=table,
            name=schema.JOBS_BY_OWNER,
            partition=schema.JOBS_OWNER_KEY,
            sort=schema.JOBS_BY_OWNER_SORT,
        )

    def create(
        self, *, first: Execution, job: Job | None = None, key: KeyRecord | None = None
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
        unmet = self._dynamo.transact(writes)
        return None if unmet is None else _earlier(unmet, first, key)

    def record_of(self, owner: Owner, key: str) -> KeyRecord | None:
        values = self._dynamo.get(self._table, idempotency_key(owner, key))
        return None if values is None else items.key_record_from(values)

    def get(self, id: JobId) -> Job | None:
        values = self._dynamo.get(self._table, job_key(id))
        return None if values is None else items.job_from(values)

    def get_many(self, ids: Collection[JobId]) -> Mapping[JobId, Job]:
        keys = [job_key(id) for id in ids]
        found = self._dynamo.get_many(self._table, keys, consistent=True)
        jobs = (items.job_from(values) for values in found)
        return {job.id: job for job in jobs}

    def delete(self, job: Job) -> Job:
        answer = self._dynamo.update(self._table, conditions.delete_job(job))
        if isinstance(answer, Unmet):
            raise VersionMoved(job_id=job.id, version=job.version)
        return items.job_from(answer)

    def revise(self, before: Job, after: Job, *, first: Execution | None = None) -> Job | Refusal:
        writes: list[tuple[str, conditions.Write]] = [
            (self._table, conditions.revise_job(before, after)),
            (self._table, conditions.made_once(items.job_version_values(before))),
        ]
        if first is not None:
            writes.append((self._executions_table, conditions.planned(first)))
        unmet = self._dynamo.transact(writes)
        revised = items.job_from(items.job_values(after))
        return revised if unmet is None else _not_revised(unmet, before, revised)

    def versions(self, id: JobId, *, before: int, limit: int) -> Sequence[Job]:
        if before <= 1:
            # DynamoDB refuses a range that ends before it begins.
            return []
        (partition, first), (_, last) = job_version_key(id, 1), job_version_key(id, before - 1)
        of_job = Key(schema.PARTITION_KEY).eq(partition)
        earlier = Key(schema.SORT_KEY).between(first, last)
        found = self._dynamo.last(self._table, of_job & earlier, limit=limit)
        return [items.job_from(values) for values in found]

    def of_owner(self, owner: Owner, *, before: Position | None, limit: int) -> Sequence[Job]:
        jobs: list[Job] = []
        while True:
            wanted = limit - len(jobs)
            ids = self._listed(owner, before, wanted)
            found = self.get_many(ids)
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
    unmet: Sequence[Unmet | None], first: Execution, key: KeyRecord | None
) -> KeyRecord | None:
    """What it means that something of a creation was there.

    None when all of it was, by an earlier try of the same call. Raises ValueError when
    another call made the job or the execution: ids are never given twice.
    """
    if key is not None and (of_key := unmet[-1]) is not None and of_key.found is not None:
        known = items.key_record_from(of_key.found)
        if known.job_id != key.job_id:
            return known
    if not all(unmet):
        raise ValueError(f"{first.id} was made by another call")
    return None


def _not_revised(unmet: Sequence[Unmet | None], before: Job, revised: Job) -> Job | Refusal:
    """What it means that a revision's transaction wrote nothing.

    The job as it was to be, when an earlier try of the same call made it so. Raises
    VersionMoved when it is neither so nor at the version of `before`.
    """
    match [*unmet]:
        case [None, None, Unmet() as of_first]:
            return refusal(of_first)
        case [Unmet(found=found), *_] if found is not None and items.job_from(found) == revised:
            return revised
        case _:
            raise VersionMoved(job_id=before.id, version=before.version)
