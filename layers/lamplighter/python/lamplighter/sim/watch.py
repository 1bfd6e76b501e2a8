"""What is checked all along: each write of a row, each lease, each call of a handler."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import Final

from lamplighter.core.buckets import ExecutionId, JobId, Position
from lamplighter.core.lease import Work
from lamplighter.core.lifecycle import TRANSITIONS, State, event_to
from lamplighter.core.limits import (
    CRASH_LIMIT,
    MAX_BACKOFF,
    MAX_CLOCK_ERROR,
    TAKE_OVER_GRACE,
    WORKER_LEASE,
)
from lamplighter.core.model import Execution, Job, OverlapPolicy
from lamplighter.core.outcome import Interrupted, Outcome, Parked
from lamplighter.core.planning import supersedes
from lamplighter.core.sweeping import is_backlog
from lamplighter.memory import Counts, MemoryWorld
from lamplighter.ports import Outgoing, Received
from lamplighter.services.execute import Claimed
from lamplighter.sim.books import Books
from lamplighter.sim.system import Run

_HELD_S: Final = (WORKER_LEASE - TAKE_OVER_GRACE).total_seconds()
_UNHEARD: Final = frozenset({"NoHeartbeat", "HardLimit"})
_FOR_AGE: Final = "older than the catch-up window"
# Of two hosts, as one sees the other.
_APART: Final = 2 * MAX_CLOCK_ERROR


@dataclass(frozen=True, kw_only=True)
class Violation:
    """A broken promise: which, in words, and what it is about."""

    promise: str
    says: str
    about: Sequence[str] = ()

    def __str__(self) -> str:
        return f"{self.promise}: {self.says}"


@dataclass(kw_only=True)
class Live:
    """A handler that was called and has not returned, and until when it may go on (P9)."""

    claimed: Claimed
    number: int
    """Its place among the runs."""
    held_until: float
    """Monotonic."""


@dataclass(kw_only=True)
class Mended(Counts):
    """Telemetry of one visit of the sweep, which counts beside what all the others tell."""

    of_jobs: set[JobId] = field(default_factory=set)
    """Of whose executions it told why it sent something."""
    reasons: list[str] = field(default_factory=list)
    """Of what was recovered."""
    aged: dict[ExecutionId, Execution] = field(default_factory=dict)
    """What it told that it promoted, as it had read it."""

    @classmethod
    def beside(cls, counts: Counts, reasons: list[str]) -> "Mended":
        """One that counts into these, too, and adds to these reasons."""
        shared = {one.name: getattr(counts, one.name) for one in fields(counts)}
        return cls(**shared, reasons=reasons)

    def recovered(self, execution: Execution, *, reason: str) -> None:
        self.of_jobs.add(execution.job_id)
        self.reasons.append(reason)
        super().recovered(execution, reason=reason)

    def finished(self, execution: Execution) -> None:
        self.of_jobs.add(execution.job_id)
        super().finished(execution)

    def promoted(self, execution: Execution, *, to: str) -> None:
        self.of_jobs.add(execution.job_id)
        self.aged[execution.id] = execution
        super().promoted(execution, to=to)


@dataclass(kw_only=True)
class Watch:
    """Looks at everything that happens in one history."""

    world: MemoryWorld
    runs: list[Run] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)
    seen: Callable[[Execution], object] = lambda _: None
    """Told of every row that is about to be written."""
    mended: list[str] = field(default_factory=list)
    """Why the sweep sent something, each time that it did."""
    told: Callable[[Violation], object] = lambda _: None
    """Told of every broken promise."""
    counts: Callable[[Execution | Job], object] = lambda _: None
    """Told of every execution and every job that is about to be made."""
    books: Books = field(init=False)

    def __post_init__(self) -> None:
        self.books = Books(world=self.world, tell=self.tell)
        self._watermarks: dict[Work, Position] = {}
        self._of_execution: dict[ExecutionId, list[Live]] = defaultdict(list)
        self._of_job: dict[JobId, list[Live]] = defaultdict(list)
        self._of_token: dict[str, Live] = {}
        self._deferred: dict[JobId, list[Claimed]] = defaultdict(list)
        self._asked_at: dict[str, float] = {}
        self._came_to: dict[str, Outcome] = {}
        self._parked_since: dict[ExecutionId, datetime] = {}
        self.world.tables.executions = _Rows(self)
        self.world.tables.jobs = _Jobs(self)

    def tell(self, promise: str, says: str, *about: str) -> None:
        """Note a broken promise; each is told once."""
        violation = Violation(promise=promise, says=says, about=about)
        if violation not in self.violations:
            self.violations.append(violation)
            self.told(violation)

    def claims(self, token: str, *, asked_at: float) -> None:
        """A claim got through that was asked for then, whenever its answer comes."""
        self._asked_at[token] = asked_at

    def begins(self, claimed: Claimed) -> Live:
        """A handler is called now."""
        asked_at = self._asked_at.pop(claimed.token, claimed.claimed_at)
        live = Live(claimed=claimed, number=len(self.runs), held_until=asked_at + _HELD_S)
        self.goes_on(live)
        self._not_early(claimed)
        self._not_twice(claimed)
        self._not_beside_another(claimed)
        self._not_beside_too_many(claimed)
        self._not_too_often(claimed)
        self._of_execution[claimed.execution.id].append(live)
        self._of_job[claimed.execution.job_id].append(live)
        self._of_token[claimed.token] = live
        self.runs.append(
            Run(
                execution_id=claimed.execution.id,
                job_id=claimed.execution.job_id,
                attempt=claimed.execution.attempt,
                token=claimed.token,
                run_at=claimed.execution.run_at,
                due_at=claimed.received.message.due_at,
                started_at=self.world.now(),
            )
        )
        return live

    def comes_to(self, claimed: Claimed, outcome: Outcome) -> None:
        """Its handler has returned: this is about to be written down."""
        self._came_to[claimed.token] = outcome

    def defers(self, claimed: Claimed) -> None:
        """Its handler returns, and its try goes on elsewhere."""
        self._deferred[claimed.execution.job_id].append(claimed)

    def goes_on(self, live: Live) -> None:
        """A handler was just looked after, and nobody asked it to stop."""
        if live.held_until < self.world.clock.monotonic():
            id = live.claimed.execution.id
            self.tell("one live try", f"{id} goes on though it may have lost its lease", id)

    def ends(self, live: Live) -> None:
        """Its handler has returned, or its process is dead."""
        self._of_execution[live.claimed.execution.id].remove(live)
        self._of_job[live.claimed.execution.job_id].remove(live)
        del self._of_token[live.claimed.token]
        self.runs[live.number] = replace(self.runs[live.number], ended_at=self.world.now())

    def extended(self, token: str, *, asked_at: float) -> None:
        """A beat got through that was sent then."""
        if live := self._of_token.get(token):
            live.held_until = asked_at + _HELD_S

    def live(self) -> Sequence[Live]:
        """The handlers that have not returned, in order."""
        return sorted(self._of_token.values(), key=lambda live: live.number)

    def restore(self, live: Sequence[Live], runs: Sequence[Run]) -> None:
        """Go on from what was seen at another time."""
        self.runs[:] = runs
        self.violations.clear()
        self._of_execution.clear()
        self._of_job.clear()
        self._of_token = {one.claimed.token: one for one in live}
        for one in live:
            self._of_execution[one.claimed.execution.id].append(one)
            self._of_job[one.claimed.execution.job_id].append(one)

    def sent(self, outgoing: Sequence[Outgoing]) -> None:
        """Messages are sent: each in its execution's lane, or in the one that it grows old into."""
        for one in outgoing:
            row = self.world.tables.executions[one.message.execution_id]
            rules = self.world.lanes.get(row.queue)
            if one.queue not in {row.queue, rules and rules.promotes_to}:
                says = f"{row.id} of {row.queue} is sent in {one.queue}"
                self.tell("each in its lane", says, row.id)

    def deleted(self, who: str, received: Sequence[Received]) -> None:
        """A worker deletes messages: whatever they were for, it is not at it any more."""
        for one in received:
            row = self.world.tables.executions.get(one.message.execution_id)
            is_held = row is not None and row.state is State.RUNNING and row.deferral is None
            if row is not None and is_held and row.worker == who:
                says = f"{who} deletes the message of {row.id}, which it holds"
                self.tell("the outcome comes before the ack", says, row.id)

    def swept(
        self, who: str, *, sent: Sequence[Outgoing], told: Mended, waiting: Mapping[str, int]
    ) -> None:
        """A visit of the sweep has ended: whatever it mended is counted.

        What waits in a lane is late, and no more than that: its message is sent in silence.
        `waiting` is how many messages the visit was told wait in each.
        """
        for one in sent:
            if row := told.aged.get(one.message.execution_id):
                self._not_promoted_early(row, one)
        for id in [one.message.execution_id for one in sent]:
            row = self.world.tables.executions[id]
            is_backed_up = is_backlog(waiting.get(row.queue, 0), due_each_minute=0)
            if row.job_id not in told.of_jobs and not is_backed_up:
                self.tell("every repair is counted", f"{who} sends {id} in silence", id)

    def _not_promoted_early(self, row: Execution, sent: Outgoing) -> None:
        """A message in another lane is due once the row has waited in its own (S0-P2)."""
        rules = self.world.lanes[row.queue]
        if sent.queue != rules.promotes_to or rules.promote_after is None:
            return
        if sent.message.due_at < row.due_at + rules.promote_after:
            says = f"{row.id}, due {row.due_at}, is due in {sent.queue} at {sent.message.due_at}"
            self.tell("nothing is promoted early", says, row.id)

    def advanced(self, work: Work, watermark: Position) -> None:
        """A watermark is written, by whoever may."""
        before = self._watermarks.setdefault(work, watermark)
        self._watermarks[work] = watermark
        if watermark < before:
            self.tell("no watermark goes back", f"{work} goes from {before} to {watermark}")

    def defined(self, before: Job | None, after: Job) -> None:
        """A job is written."""
        if before is None:
            self.counts(after)
        self.books.refers(after)

    def written(self, before: Execution | None, after: Execution) -> None:
        """A row is written."""
        self.seen(after)
        self.books.refers(after)
        self._not_skipped_for_age(after)
        if before is None:
            self.counts(after)
            if after.state is not State.SCHEDULED:
                self.tell("rows are legal", f"{after.id} is made {after.state}", after.id)
        elif why := illegal(before, after):
            self.tell("rows are legal", f"{after.id} {why}", after.id)
        elif before.token is not None and after.token is None:
            self._let_go(before, after)
        elif before.token is not None and after.token not in {None, before.token}:
            self._not_too_soon(before, after)
        elif before.next_run_at is not None and after.state is State.RUNNING:
            self._not_before(before.next_run_at, after)
        elif after.state is State.RUNNING:
            self._not_shorter(before, after)

    def _let_go(self, before: Execution, after: Execution) -> None:
        """A try is over: by what it came to, or because nobody was heard of it."""
        error = after.attempts[-1].error if after.attempts else None
        if before.deferral is not None and error is not None and error.type in _UNHEARD:
            self._not_too_soon(before, after)
        outcome = self._came_to.pop(before.token or "", None)
        if isinstance(outcome, Parked | Interrupted) and after.attempt != before.attempt:
            says = f"try {before.attempt} of {after.id} was broken off, and counts"
            self.tell("no more tries than it has", says, after.id)
        if isinstance(outcome, Parked):
            self._parked(after)
        elif outcome is not None:
            self._parked_since.pop(after.id, None)
        if after.state is State.RETRYING:
            self._waited_for(after)

    def _parked(self, row: Execution) -> None:
        """What is parked has FAILED only once it was nothing else for as long as that may last."""
        since = self._parked_since.setdefault(row.id, self.world.now())
        lasted = self.world.now() - since
        if row.state is State.FAILED and lasted < self.world.parked_for - _APART:
            self.tell("what is parked is waited for", f"{row.id} has FAILED after {lasted}", row.id)

    def _not_skipped_for_age(self, row: Execution) -> None:
        """What a catch-up has chosen runs, however long that takes."""
        if row.state is State.SKIPPED and row.caught_up and _FOR_AGE in (row.reason or ""):
            says = f"{row.id}, {row.caught_up.number} of a catch-up: {row.reason}"
            self.tell("what is made up for runs", says, row.id)

    def _not_shorter(self, before: Execution, after: Execution) -> None:
        """A beat that comes late, after those that follow it, takes nothing back (P9)."""
        held, holds = before.lease_until, after.lease_until
        # A handler that hands its try over is done: whoever has it has a lease of their own.
        is_same = before.deferral == after.deferral
        if held is not None and holds is not None and holds < held and is_same:
            says = f"{after.id} was held until {held}, and is until {holds}"
            self.tell("no lease is shortened", says, after.id)

    def _waited_for(self, row: Execution) -> None:
        """Whoever asked to be left alone for a while is."""
        error, due_at = row.error, row.next_run_at
        ended_at = row.attempts[-1].finished_at if row.attempts else None
        if error is None or error.retry_after is None or ended_at is None or due_at is None:
            return
        if due_at < ended_at + min(error.retry_after, MAX_BACKOFF):
            says = f"{row.id} is tried at {due_at}, {error.retry_after} after {ended_at} or later"
            self.tell("a rate limit is waited for", says, row.id)

    def _not_too_soon(self, before: Execution, after: Execution) -> None:
        lease = before.lease_until
        if lease is not None and lease + TAKE_OVER_GRACE - _APART > self.world.now():
            self.tell(
                "one live try", f"{after.id} is taken from who holds it until {lease}", after.id
            )

    def _not_before(self, next_run_at: datetime, after: Execution) -> None:
        if self.world.now() < next_run_at - MAX_CLOCK_ERROR:
            says = f"try {after.attempt} of {after.id} is claimed, due {next_run_at}"
            self.tell("never early", f"{says}, at {self.world.now()}", after.id)

    def _not_early(self, claimed: Claimed) -> None:
        row, now = claimed.execution, self.world.now()
        due = max(row.run_at, claimed.received.message.due_at)
        # A clock that is set back once it is due says that it is not.
        is_early_by_its_host = now < due and (row.started_at or now) < due
        if is_early_by_its_host or now < due - MAX_CLOCK_ERROR:
            self.tell("never early", f"{row.id} starts at {now}, due {due}", row.id)

    def _not_twice(self, claimed: Claimed) -> None:
        id, now = claimed.execution.id, self.world.clock.monotonic()
        for other in self._of_execution[id]:
            if now <= other.held_until:
                self.tell("one live try", f"{id} starts beside itself at {self.world.now()}", id)

    def _not_too_often(self, claimed: Claimed) -> None:
        """What has had all its tries, or has killed its workers too often, is not started."""
        row, most = claimed.execution, claimed.spec.retry.max_attempts
        if row.attempt > most or row.crashes >= CRASH_LIMIT:
            says = f"{row.id} starts its try {row.attempt} of {most}, after {row.crashes} crashes"
            self.tell("no more tries than it has", says, row.id)

    def _not_beside_another(self, claimed: Claimed) -> None:
        row, now = claimed.execution, self.world.clock.monotonic()
        job = self.world.tables.jobs.get(row.job_id)
        if job is None or job.overlap is OverlapPolicy.ALLOW:
            return
        for other in self._of_job[row.job_id]:
            beside = other.claimed.execution.id
            if beside != row.id and now <= other.held_until and not self._is_done(other):
                says = f"{row.id} starts beside {beside} of a job with {job.overlap}"
                self.tell("no overlap", f"{says}, at {self.world.now()}", row.id, beside)

        for deferred in self._deferred[row.job_id]:
            id = deferred.execution.id
            beside_it = self.world.tables.executions[id]
            is_held = beside_it.state is State.RUNNING and beside_it.token == deferred.token
            if id != row.id and is_held:
                says = (
                    f"{row.id} starts beside {id}, which is deferred, of a job with {job.overlap}"
                )
                self.tell("no overlap", f"{says}, at {self.world.now()}", row.id, id)

    def _is_done(self, live: Live) -> bool:
        """Whether a handler has completed its execution itself, and has yet to return."""
        claimed = live.claimed.execution
        row = self.world.tables.executions[claimed.id]
        is_its_own = (row.attempt, row.crashes) == (claimed.attempt, claimed.crashes)
        return row.state is State.SUCCEEDED and is_its_own

    def _not_beside_too_many(self, claimed: Claimed) -> None:
        """Of those that started under a limit no more run than it says now (S0-K1)."""
        now = self.world.clock.monotonic()
        live = [one for one in self._of_token.values() if now <= one.held_until]
        for bound in claimed.permits:
            own = self.world.permits.held[bound.key].limit
            most = bound.most if own is None else own
            beside = [
                one.claimed.execution.id
                for one in live
                if bound.key in {other.key for other in one.claimed.permits}
            ]
            if len(beside) >= most:
                id = claimed.execution.id
                says = f"{id} starts beside {len(beside)} of {bound.key}, {most} may"
                self.tell("never over a limit", f"{says}, at {self.world.now()}", id, *beside)


class _Rows(dict[ExecutionId, Execution]):
    """The table of executions; each write of it is looked at."""

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self._watch = watch

    def __setitem__(self, id: ExecutionId, row: Execution) -> None:
        self._watch.written(self.get(id), row)
        super().__setitem__(id, row)


class _Jobs(dict[JobId, Job]):
    """The table of jobs; each write of it is looked at."""

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self._watch = watch

    def __setitem__(self, id: JobId, job: Job) -> None:
        self._watch.defined(self.get(id), job)
        super().__setitem__(id, job)


def illegal(before: Execution, after: Execution) -> str | None:
    """Why the lifecycle does not lead from one to the other; None: it does."""
    if after.state is before.state:
        changed = before.is_final and _said(before) != _said(after)
        return f"is {before.state} and changes" if changed else None
    if after.state is State.SCHEDULED:
        legal = supersedes(after, before)
    else:
        legal = (before.state, event_to(after.state)) in TRANSITIONS
    return None if legal else f"goes from {before.state} to {after.state}"


def _said(row: Execution) -> object:
    """What nobody changes any more of one that has ended."""
    return (row.attempt, row.attempts, row.result, row.error, row.finished_at, row.reason)
