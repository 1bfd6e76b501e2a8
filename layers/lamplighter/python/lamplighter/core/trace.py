"""Whether what happened may have happened: a history, checked by itself.

Whoever has a history, of the simulator or of a stack that runs, has its executions with their
tries, maybe each write of their rows, and maybe what the ledger says. Each is checked as far as
it goes: against the table of transitions, and against what is promised of every execution.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from typing import Final

from lamplighter.core.lifecycle import FINAL, TRANSITIONS, State, event_to
from lamplighter.core.limits import MAX_CLOCK_ERROR, TAKE_OVER_GRACE, WORKER_LEASE

# Of two hosts, as one sees the other.
_APART: Final = 2 * MAX_CLOCK_ERROR
_EVER: Final = datetime.min.replace(tzinfo=UTC) + _APART
_NEVER: Final = datetime.max.replace(tzinfo=UTC)
# A try counts from its claim. Before it calls its handler it looks who else is at it, for as long
# as it would still hold its lease.
_LOOKS_FOR: Final = WORKER_LEASE - TAKE_OVER_GRACE
_AFTER_A_TRY: Final = frozenset(
    target for (source, _), target in TRANSITIONS.items() if source is State.RUNNING
)


@dataclass(frozen=True, kw_only=True)
class Try:
    """One try: by whom, from when until when, and what it led to (RUNNING: it goes on)."""

    number: int
    started_at: datetime
    finished_at: datetime | None
    state: State
    has_run: bool
    """Whether its handler was called for certain. A worker that fell silent may have died before
    that, having only looked whether it might."""


@dataclass(frozen=True, kw_only=True)
class Told:
    """An execution, as its owner sees it in the end."""

    id: str
    job_id: str
    job_version: int
    state: State | None
    """None where that is not told exactly; not final then."""
    run_at: datetime
    finished_at: datetime | None
    has_result: bool
    tries: Sequence[Try]
    """The latest 20."""


@dataclass(frozen=True, kw_only=True)
class Write:
    """A row as it was written at an instant."""

    at: datetime
    id: str
    job_version: int
    state: State
    attempt: int
    token: str | None
    lease_until: datetime | None
    due_at: datetime
    """Before this it may not be claimed."""
    has_been_tried: bool
    said: str = ""
    """What nobody changes any more once it has ended, in whatever words."""


@dataclass(frozen=True, kw_only=True)
class Account:
    """How many slots a job planned, and what they came to, by outcome."""

    job_id: str
    expected: int
    by_outcome: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class Trace:
    """A history, as much of it as there is."""

    executions: Sequence[Told] = ()
    writes: Sequence[Write] = ()
    """In the order in which they took effect."""
    accounts: Sequence[Account] = ()
    alone: Mapping[str, int] = field(default_factory=dict)
    """Jobs that do not allow overlap, and the version that says so."""


@dataclass(frozen=True, kw_only=True)
class Violation:
    """A broken promise: which, and of what."""

    promise: str
    of: str
    says: str

    def __str__(self) -> str:
        return f"{self.promise}: {self.of} {self.says}"


def violations(trace: Trace) -> Iterator[Violation]:
    """Everything in a history that may not be; nothing where all is well."""
    yield from _of_writes(trace.writes)
    for told in trace.executions:
        yield from _of_tries(told)
    yield from _beside(trace)
    for account in trace.accounts:
        yield from _of_account(account)


def _of_writes(writes: Sequence[Write]) -> Iterator[Violation]:
    rows: dict[str, Write] = {}
    for write in writes:
        before = rows.get(write.id)
        rows[write.id] = write
        if before is None:
            if write.state is not State.SCHEDULED:
                yield _violation("rows are legal", write.id, f"is made {write.state}")
        elif why := _illegal(before, write):
            yield _violation("rows are legal", write.id, f"{why} at {write.at}")
        else:
            yield from _of_claim(before, write)


def _illegal(before: Write, after: Write) -> str | None:
    if before.state in FINAL and after.state is before.state:
        return f"is {before.state} and changes" if before.said != after.said else None
    if after.state is before.state:
        return None
    if after.state is State.SCHEDULED:
        # A later version of its job takes over what has not begun (P19).
        is_newer = after.job_version > before.job_version
        untouched = before.state is State.CANCELLED and not before.has_been_tried
        legal = is_newer and untouched
    else:
        legal = (before.state, event_to(after.state)) in TRANSITIONS
    return None if legal else f"goes from {before.state} to {after.state}"


def _of_claim(before: Write, after: Write) -> Iterator[Violation]:
    """Of a row that is held from now on by somebody else: not early, and one at a time."""
    if after.state is not State.RUNNING or after.token == before.token:
        return
    if before.token is None and after.at < before.due_at - MAX_CLOCK_ERROR:
        yield _violation("never early", after.id, f"is claimed at {after.at}, due {before.due_at}")
    lease = before.lease_until
    if before.token is not None and lease is not None:
        free_at = lease + TAKE_OVER_GRACE - _APART
        if after.at < free_at:
            says = f"is taken over at {after.at}, held until {lease}"
            yield _violation("one live try", after.id, says)


def _of_tries(told: Told) -> Iterator[Violation]:
    for one in told.tries:
        if one.started_at < told.run_at - _APART:
            says = f"starts at {one.started_at}, due {told.run_at}"
            yield _violation("never early", told.id, says)
        if one.state not in _AFTER_A_TRY:
            yield _violation("rows are legal", told.id, f"goes from RUNNING to {one.state}")
        if one.finished_at is not None and one.finished_at < one.started_at - _APART:
            says = f"has a try that ends at {one.finished_at} and starts at {one.started_at}"
            yield _violation("rows are legal", told.id, says)
    for earlier, later in pairwise(told.tries):
        yield from _of_two(told, earlier, later)
    yield from _of_end(told)


def _of_two(told: Told, earlier: Try, later: Try) -> Iterator[Violation]:
    if earlier.state in FINAL:
        promise = "one accepted result"
        yield _violation(promise, told.id, f"is tried after it was {earlier.state}")
    # What was claimed by a worker that stalled is dated back; it did not run.
    both_ran = earlier.has_run and later.has_run
    if both_ran and (
        earlier.finished_at is None or later.started_at < earlier.finished_at - _APART
    ):
        says = f"starts at {later.started_at} beside a try that ends at {earlier.finished_at}"
        yield _violation("one live try", told.id, says)
    if later.number <= earlier.number:
        says = f"has try {later.number} after try {earlier.number}"
        yield _violation("rows are legal", told.id, says)


def _of_end(told: Told) -> Iterator[Violation]:
    is_final = told.state in FINAL
    if is_final != (told.finished_at is not None):
        says = f"is {told.state} and finished at {told.finished_at}"
        yield _violation("rows are legal", told.id, says)
    accepted = [one for one in told.tries if one.state is State.SUCCEEDED]
    if len(accepted) > 1:
        yield _violation("one accepted result", told.id, f"has {len(accepted)}")
    if (accepted or told.has_result) and told.state is not State.SUCCEEDED:
        says = f"has a result and is {told.state or 'not final'}"
        yield _violation("one accepted result", told.id, says)
    if told.state is State.SUCCEEDED and not accepted:
        yield _violation("one accepted result", told.id, "has succeeded without a try that did")


def _beside(trace: Trace) -> Iterator[Violation]:
    """Of a job that does not allow overlap, no two tries at a time."""
    of_job: dict[str, list[tuple[datetime, datetime, str]]] = defaultdict(list)
    for told in trace.executions:
        if trace.alone.get(told.job_id) == told.job_version:
            of_job[told.job_id] += [
                (one.started_at, one.finished_at or _NEVER, told.id)
                for one in told.tries
                if one.has_run
            ]
    for spans in of_job.values():
        yield from _of_spans(sorted(spans))


def _of_spans(spans: Sequence[tuple[datetime, datetime, str]]) -> Iterator[Violation]:
    until, holder = _EVER, ""
    for started_at, finished_at, id in spans:
        if id != holder and min(until, finished_at) - started_at > _APART + _LOOKS_FOR:
            says = f"starts at {started_at} beside {holder}, which runs until {until}"
            yield _violation("no overlap", id, says)
        until, holder = max((until, holder), (finished_at, id))


def _of_account(account: Account) -> Iterator[Violation]:
    counted = sum(account.by_outcome.values())
    if counted != account.expected:
        says = f"planned {account.expected} slots, and {counted} are accounted for"
        yield _violation("the ledger balances", account.job_id, says)
    if missed := account.by_outcome.get("missed", 0):
        says = f"has {missed} slots that neither ran nor have a reason"
        yield _violation("the ledger balances", account.job_id, says)


def _violation(promise: str, of: str, says: str) -> Violation:
    return Violation(promise=promise, of=of, says=says)
