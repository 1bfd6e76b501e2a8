"""Where the chain of a recurring job goes on, as its rows tell."""

from collections.abc import Mapping
from datetime import datetime

from lamplighter.core.buckets import ExecutionId
from lamplighter.core.model import Execution, Job


def next_slot(rows: Mapping[ExecutionId, Execution], job: Job, after: datetime) -> datetime | None:
    """The next slot that has not ended ahead of its time; None: there is none."""
    slot = job.next_after(after)
    while slot is not None and _has_ended(rows.get(job.occurrence_id(slot)), job):
        slot = job.next_after(slot)
    return slot


def _has_ended(row: Execution | None, job: Job) -> bool:
    """Whether a slot came to nothing; what an edit took back is planned anew."""
    if row is None or not row.is_final:
        return False
    # What its owner took back stays so, whatever version the job has since.
    return row.job_version >= job.version or row.cancel_requested_at is not None
