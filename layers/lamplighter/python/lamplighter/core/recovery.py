"""What dispatch would make of a job's overdue slots, if it came to them at an instant."""

from dataclasses import dataclass
from datetime import datetime

from lamplighter.core.deadline import deadline_of
from lamplighter.core.limits import PASSED_OVER_COUNTED, RECOVERY_STEPS
from lamplighter.core.misfire import Drop, EndChain, Park, Send, decide, successor
from lamplighter.core.model import Execution, Job


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """What would run of a job, and what would not."""

    runs: int = 0
    first: datetime | None = None
    """The oldest slot that would run."""
    last: datetime | None = None
    last_starts_at: datetime | None = None
    """When the last to start would do so, at the earliest: a catch-up is spread."""
    deadline: datetime | None = None
    """The earliest of theirs; None: they may start however late."""
    not_run: int = 0
    """Passed over by the misfire policy, or past the deadline."""
    is_exact: bool = True
    """Whether there are no more than these."""


def foreseen(job: Job, armed: Execution, now: datetime) -> Recovery:
    """What comes of the first row that dispatch has not come to, and of all due after it.

    The very decisions that dispatch takes, each as of `now`. What is due later is no part of
    it. Costs no more than `RECOVERY_STEPS` decisions.
    """
    found = _Counting(job=job, now=now)
    row = armed
    for _ in range(RECOVERY_STEPS):
        decision = decide(row, job, now)
        if isinstance(decision, EndChain | Park):
            return found.so_far()
        if isinstance(decision, Send):
            found.run(row)
        elif isinstance(decision, Drop):
            found.not_run += 1
        following = successor(job, row.scheduled_for, now, caught_up=row.caught_up)
        if following.passed_over is not None:
            found.not_run += following.passed_over.count
            found.is_exact &= following.passed_over.count < PASSED_OVER_COUNTED
        if following.slot is None or job.run_at(following.slot) > now:
            return found.so_far()
        row = job.occurrence(
            following.slot, now=now, sent_directly=False, caught_up=following.caught_up
        )
    found.is_exact = False
    return found.so_far()


@dataclass(kw_only=True)
class _Counting:
    job: Job
    now: datetime
    runs: int = 0
    first: datetime | None = None
    last: datetime | None = None
    starts_at: datetime | None = None
    deadline: datetime | None = None
    not_run: int = 0
    is_exact: bool = True

    def run(self, row: Execution) -> None:
        self.runs += 1
        self.first = self.first or row.scheduled_for
        self.last = row.scheduled_for
        self.starts_at = max(row.due_at, self.starts_at or self.now)
        until = deadline_of(row, self.job)
        if until is not None:
            self.deadline = min(until, self.deadline or until)

    def so_far(self) -> Recovery:
        return Recovery(
            runs=self.runs,
            first=self.first,
            last=self.last,
            last_starts_at=self.starts_at,
            deadline=self.deadline,
            not_run=self.not_run,
            is_exact=self.is_exact,
        )
