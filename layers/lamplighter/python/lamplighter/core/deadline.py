"""The deadline of an execution: past it, it is not started any more."""

from dataclasses import dataclass
from datetime import datetime

from lamplighter.core.lifecycle import Event, State
from lamplighter.core.model import Execution, Job, OnDeadline, Trigger
from lamplighter.core.schedule import format_instant


@dataclass(frozen=True, kw_only=True)
class Overdue:
    """It ends without a run."""

    event: Event
    reason: str


def deadline_of(row: Execution, job: Job | None) -> datetime | None:
    """The instant until which a try may start; None: late is never never.

    What its definition says counts from `run_at`. Where that says nothing, an occurrence of a
    schedule has its job's catch-up window, and one that was caught up on has that from the
    decision on: what was chosen at the window's edge is not given up at once.
    """
    spec = row.spec or (job.spec if job else None)
    if spec is not None and spec.deadline is not None:
        return row.run_at + spec.deadline
    if job is None or row.trigger is not Trigger.SCHEDULE:
        return None
    begin = max(row.run_at, row.caught_up.decided_at) if row.caught_up else row.run_at
    return begin + job.catch_up.window


def overdue(row: Execution, job: Job | None, now: datetime) -> Overdue | None:
    """What ends an execution that has not been started by its deadline; None: nothing does.

    The deadline is about the first start: once a handler has been called, retries go by the
    retry policy.
    """
    until = deadline_of(row, job)
    if until is None or now <= until or row.attempts or row.is_final:
        return None
    spec = row.spec or (job.spec if job else None)
    is_skipped = spec is not None and spec.on_deadline is OnDeadline.SKIP
    return Overdue(
        event=Event.SKIP if is_skipped else Event.EXPIRE,
        reason=f"not started by its deadline, {format_instant(until)}",
    )


def can_be_overdue(row: Execution) -> bool:
    """Whether nobody holds it and no handler of it was ever called."""
    return row.state in {State.SCHEDULED, State.BLOCKED, State.RETRYING} and not row.attempts
