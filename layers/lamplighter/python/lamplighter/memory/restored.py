"""Tables in memory as they were at earlier instants, and the operator's view of them."""

from collections.abc import Iterator
from datetime import datetime

from lamplighter.core.model import Job
from lamplighter.memory.stores import Tables
from lamplighter.ports import KeyRecord


def copied(tables: Tables) -> Tables:
    """What a backup of this instant has, of all three tables."""
    return joined(executions=tables, jobs=tables, control=tables)


def joined(*, executions: Tables, jobs: Tables, control: Tables) -> Tables:
    """Tables of which each is as in another copy: they are restored one by one."""
    return Tables(
        executions={**executions.executions},
        pointers={**executions.pointers},
        payloads={**executions.payloads},
        buckets={place: {*positions} for place, positions in executions.buckets.items()},
        jobs={**jobs.jobs},
        versions={**jobs.versions},
        keys={**jobs.keys},
        accounts={**jobs.accounts},
        full_at_ns={**jobs.full_at_ns},
        leases={**control.leases},
        layouts=control.layouts,
    )


class MemoryRestored:
    """`failover.Restored` over dictionaries."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def changed_since(self, instant: datetime) -> Iterator[Job | KeyRecord]:
        with self._tables.lock:
            jobs = [job for job in self._tables.jobs.values() if job.since >= instant]
            keys = [key for key in self._tables.keys.values() if key.created_at >= instant]
        yield from jobs
        yield from keys

    def forget(self, key: KeyRecord) -> None:
        with self._tables.lock:
            self._tables.keys.pop((key.owner, key.key), None)
