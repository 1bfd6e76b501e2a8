"""A whole Lamplighter for a test: what is asked of it comes through the API, time is virtual."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from random import Random
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from lamplighter.core.buckets import JobId, execution_of
from lamplighter.core.completeness import Outcome
from lamplighter.core.lifecycle import State
from lamplighter.core.limits import EXECUTION_KEPT
from lamplighter.core.model import Execution, Owner
from lamplighter.core.writes import OwnWrite
from lamplighter.memory import MemoryWorld, SeededChance, VirtualClock
from lamplighter.services import completeness
from lamplighter.sim.invariants import violations
from lamplighter.sim.system import Run as SystemRun
from lamplighter.sim.system import System
from lamplighter.tasks.registry import TASKS, Registry
from lamplighter.testing.stage import Agenda, Run, Stage
from lamplighter.testing.trouble import Moment, Part, Trouble

if TYPE_CHECKING:
    from lamplighter.api.routes import Api

_START: Final = datetime(2026, 1, 1, tzinfo=UTC)
_LANES: Final = ("default", "critical", "bulk")
# A part of a ledger is told once all of it must have ended, and while all of it is kept.
_TOLD_AFTER: Final = EXECUTION_KEPT / 2
_SETTLED_WITHIN: Final = timedelta(hours=2)
_SHOWN: Final = 10


class Refused(AssertionError):
    """The API refused a request; `status` and `problem` say how and why."""

    def __init__(self, status: int, problem: Mapping[str, object]) -> None:
        self.status, self.problem = status, problem
        super().__init__(f"{status}: {json.dumps(problem)}")


class Promise(AssertionError):
    """Something that Lamplighter promises does not hold; every broken promise is in the message."""


@dataclass(kw_only=True)
class Books:
    """What became of the slots of a job: each is exactly one of these."""

    by_reason: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How many slots came to an outcome, and why."""
    missed_from: list[datetime] = field(default_factory=list)
    """Where holes begin."""

    def count(self, outcome: str) -> int:
        """How many slots came to FIRED, SKIPPED, CANCELLED, EXPIRED, PENDING or MISSED."""
        wanted = Outcome(outcome.upper())
        return sum(many for (one, _), many in self.by_reason.items() if one == wanted)

    @property
    def fired(self) -> int:
        """Runs, whatever came of them."""
        return self.count(Outcome.FIRED)

    @property
    def skipped(self) -> int:
        """What a policy of the job decided against."""
        return self.count(Outcome.SKIPPED)

    @property
    def pending(self) -> int:
        """What is not due, or under way."""
        return self.count(Outcome.PENDING)

    @property
    def missed(self) -> int:
        """What neither ran nor has a reason: never, or Lamplighter is broken."""
        return self.count(Outcome.MISSED)

    @property
    def total(self) -> int:
        """All slots that were planned."""
        return self.by_reason.total()

    def add(self, found: completeness.Account) -> None:
        """Count a part in."""
        for group in found.groups:
            self.by_reason[group.entry.outcome.value, group.entry.reason] += group.count
            if group.entry.outcome is Outcome.MISSED:
                self.missed_from.append(group.first)

    def copy(self) -> "Books":
        """The same, to be added to."""
        return Books(by_reason=Counter(self.by_reason), missed_from=[*self.missed_from])


@dataclass(kw_only=True)
class _Told:
    books: Books
    until: datetime


class Scheduler:
    """Jobs of one owner, their tasks, and a clock that only a test moves.

    Whatever it does it does again for the same seed. All is in one thread: a handler that takes
    time, by `ctx.wait` or as `lasts` says, takes virtual time.
    """

    def __init__(
        self,
        *,
        start: datetime = _START,
        seed: int = 0,
        owner: str = "me",
        tasks: Registry = TASKS,
        lanes: Sequence[str] = _LANES,
    ) -> None:
        agenda = Agenda()
        self.owner, self.seed, self.start = owner, seed, start
        self._lanes, self._tasks = lanes, tasks
        self._world = MemoryWorld(
            clock=VirtualClock(start),
            chance=SeededChance(seed),
            shards=1,
            partitions=1,
            tables=agenda,
        )
        self._trouble = Trouble(random=Random(f"{seed} faults"))
        self._stage = Stage(world=self._world, agenda=agenda, tasks=tasks, trouble=self._trouble)
        self._told: dict[JobId, _Told] = {}

    # What is asked of it.

    def create(self, body: Mapping[str, object]) -> JobId:
        """Make a job of a body as `POST /v1/jobs` takes it; its id.

        Raises Refused, and LookupError for a task that is not registered here: what has a target
        in place of a task is not run in a rehearsal.
        """
        if isinstance(task := body.get("task"), str):
            self._check_task(task)
        return JobId(str(self.call("POST", "/v1/jobs", body)["job_id"]))

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        headers: Mapping[str, str] | None = None,
        **query: str,
    ) -> Mapping[str, object]:
        """Whatever else the API can do, as this owner; its answer. Raises Refused."""
        from aws_lambda_powertools.utilities.typing import LambdaContext  # noqa: PLC0415

        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        event: dict[str, object] = {
            "version": "2.0",
            "rawPath": path,
            "rawQueryString": urlencode(query),
            "headers": {"content-type": kind, **(headers or {})},
            "requestContext": {
                "http": {"method": method, "path": path, "protocol": "HTTP/1.1"},
                "stage": "$default",
                "requestId": "rehearsal",
                "authorizer": {"jwt": {"claims": {"sub": self.owner}}},
            },
            "isBase64Encoded": False,
        }
        if body is not None:
            event["body"] = json.dumps(body)
        answer = self._api.handle(event, LambdaContext())
        said = json.loads(answer.get("body") or "{}")
        if not 200 <= answer["statusCode"] < 300:
            raise Refused(answer["statusCode"], said)
        found: Mapping[str, object] = said
        return found

    # Time.

    @property
    def now(self) -> datetime:
        """The virtual time."""
        return self._world.now()

    def advance(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0
    ) -> None:
        """Let so much time go by, with everything that is due in it."""
        self.advance_to(
            self.now + timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        )

    def advance_to(self, instant: datetime) -> None:
        """Let time go by until then; raises ValueError where that is past."""
        if instant < self.now:
            raise ValueError(f"it is {self.now}: time does not go back to {instant}")
        while self.now < instant:
            self._stage.run_until(min(instant, self.now + _TOLD_AFTER / 2))
            self._tell()

    # What happens to it.

    def lasts(self, task: str, duration: timedelta) -> None:
        """Have every call of a task take so long, under a heartbeat and beside everything else.

        Raises LookupError for a task that is not registered here, TypeError and ValueError for
        what is no duration.
        """
        self._check_task(task)
        if not isinstance(duration, timedelta):
            raise TypeError(f"lasts takes a timedelta, not {duration!r}")
        if duration < timedelta(0):
            raise ValueError(f"{task} cannot take {duration}")
        self._stage.lasts[task] = duration

    def faults(self, names: str = "all", *, often: float = 1.0) -> None:
        """Have faults strike from now on: all, none, or some of `KNOWN_FAULTS`, with commas.

        `often` times as often as in the simulator. Raises Rejected for a name that is none.
        """
        self._trouble.choose(names, often=often)

    def kill_worker(
        self, task: str, moment: Moment | str = Moment.AFTER, *, times: int = 1
    ) -> None:
        """Have the next worker die that runs a task, before its handler begins or after it ends.

        Raises LookupError for a task that is not registered here, ValueError for another moment,
        and for less than once.
        """
        self._check_task(task)
        if times < 1:
            raise ValueError(f"a worker is killed once or more often, not {times} times")
        self._trouble.kill(task, Moment(moment), times=times)

    def outage(self, of: Part | str = Part.ALL) -> AbstractContextManager[None]:
        """Have the workers, the scheduler or all stand still for as long as a block runs."""
        return self._trouble.outage(Part(of))

    @property
    def struck(self) -> Mapping[str, int]:
        """How often each fault has struck so far, by its name; `kill` for killed workers."""
        return dict(self._trouble.struck)

    # What came of it.

    def executions(self, job: JobId | str | None = None) -> Sequence[Execution]:
        """Those of a job, or all, by the time that they were planned for.

        Raises LookupError for a job that was never made here.
        """
        if job is not None:
            self._check_job(job)
        rows = [
            row
            for row in self._world.tables.executions.values()
            if row.owner == self.owner and job in {None, row.job_id}
        ]
        return sorted(rows, key=lambda row: (row.scheduled_for, row.id))

    def runs(self, task: str | None = None) -> Sequence[Run]:
        """The calls of a task's handler, or of all, in order; more than one a try where it died.

        Raises LookupError for a task that is not registered here.
        """
        if task is not None:
            self._check_task(task)
        return [run for run in self._stage.runs if task in {None, run.task}]

    @property
    def committed(self) -> Sequence[OwnWrite]:
        """What `complete_with` wrote, in order: each with the end of its execution, so once."""
        return self._world.own.committed

    @property
    def notices(self) -> Sequence[Mapping[str, object]]:
        """What the owner was told of what needs attention, in order."""
        return [notice.detail for notice in self._world.notices.given]

    def ledger(self, job: JobId | str) -> Books:
        """What became of each slot of a recurring job so far, as its ledger tells it.

        Raises LookupError for a job that was never made here, and for a one-off.
        """
        id = JobId(job)
        self._check_job(id)
        if id not in self._world.tables.jobs:
            raise LookupError(f"{id} is a one-off: it has no slots to account for")
        told = self._told.get(id)
        made = self._world.tables.jobs[id].created_at
        books = told.books.copy() if told else Books()
        self._account(id, told.until if told else made, self.now, books)
        return books

    def check(self) -> None:
        """See that every promise holds once nothing goes wrong for two hours; raises Promise.

        Nothing lost, early, accepted twice or beside another, every slot accounted for. From
        then on no fault strikes.
        """
        self._trouble.choose("none", often=1)
        self.advance_to(self.now + _SETTLED_WITHIN)
        at_it = {f"lost: {row.id} " for row in self.executions() if self._is_at_it(row)}
        told = [
            one
            for one in violations(self._as_system())
            if not any(one.startswith(known) for known in at_it)
        ]
        found = [*told, *self._holes()]
        if found:
            shown = "\n".join(f"  {one}" for one in found[:_SHOWN])
            raise Promise(f"{len(found)} broken, seed {self.seed}:\n{shown}")

    def _check_task(self, name: str) -> None:
        if self._tasks.newest(name) is None:
            known = ", ".join(self._tasks.names) or "none: import the module that registers it"
            raise LookupError(f"no task {name!r} is registered here, but {known}")

    def _check_job(self, id: JobId | str) -> None:
        jobs = {row.job_id for row in self._world.tables.executions.values()}
        if id not in jobs and id not in self._world.tables.jobs:
            raise LookupError(f"no job {id!r} was made here")

    def _is_at_it(self, row: Execution) -> bool:
        """Whether a row that has not ended is held by a worker, or waits for one that is."""
        if row.is_final:
            return False
        if row.state is State.BLOCKED and row.blocker is not None:
            blocker = self._world.tables.executions.get(row.blocker)
            return blocker is not None and self._is_at_it(blocker)
        return row.lease_until is not None and row.lease_until > self.now

    def _holes(self) -> Sequence[str]:
        jobs = [job for job in self._world.tables.jobs if execution_of(job) is None]
        return [
            f"the ledger of {job} has {books.missed} holes, from {min(books.missed_from)}"
            for job in jobs
            if (books := self.ledger(job)).missed
        ]

    def _as_system(self) -> System:
        """What the simulator's invariants look at."""
        rows = self._world.tables.executions
        runs = [
            SystemRun(
                execution_id=run.execution_id,
                job_id=run.job_id,
                attempt=run.attempt,
                token=self._world.chance.token(),
                run_at=rows[run.execution_id].run_at,
                due_at=run.due_at,
                started_at=run.started_at,
                ended_at=run.ended_at,
            )
            for run in self._stage.runs
            if run.execution_id in rows
        ]
        return System(world=self._world, runs=runs)

    def _tell(self) -> None:
        """Account for what is over, before it is forgotten."""
        until = self.now - _TOLD_AFTER
        for id, job in self._world.tables.jobs.items():
            told = self._told.get(id) or _Told(books=Books(), until=job.created_at)
            if told.until < until:
                self._account(id, told.until, until, told.books)
                told.until = until
                self._told[id] = told

    def _account(self, id: JobId, start: datetime, end: datetime, books: Books) -> None:
        place = None
        while start < end:
            found = completeness.account(
                self._world.ports(), Owner(self.owner), id, start=start, end=end, after=place
            )
            books.add(found)
            place = found.next
            if place is None:
                break

    @cached_property
    def _api(self) -> "Api":
        from lamplighter.api.access import Access  # noqa: PLC0415 -- pay for it when it is used
        from lamplighter.api.routes import Api  # noqa: PLC0415

        def report(error: Exception, request: object) -> None:
            raise AssertionError(f"a bug answering {request}") from error

        return Api(
            self._world.ports(),
            lanes=self._lanes,
            access=Access(owner_claim="sub", requires_scopes=False),
            report=report,
        )
