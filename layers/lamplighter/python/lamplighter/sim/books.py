"""What owners and their tasks know of what they asked for, to hold the system to.

Everything here is written down at the instant at which a call takes effect, or is answered.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from lamplighter.core.buckets import ExecutionId, JobId
from lamplighter.core.errors import WriteRefusal
from lamplighter.core.lifecycle import State
from lamplighter.core.limits import RECOUNT_AFTER
from lamplighter.core.model import Execution, Job, JobStatus, Owner, Payload, Token, Trigger
from lamplighter.core.quotas import Quota, Taken, Usage, charged
from lamplighter.core.writes import OwnWrite
from lamplighter.memory import MemoryWorld
from lamplighter.ports import Checkpoint, Step
from lamplighter.services.execute import Claimed

_SECOND: Final = timedelta(seconds=1)
_TABLE: Final = "own"
_REFUSED: Final = "refused"
# Two hosts' clocks, as one sees the other.
_APART: Final = timedelta(seconds=1)


def own_write(id: ExecutionId, result: str, *, is_refused: bool) -> OwnWrite:
    """What a task writes with the end of its execution."""
    item = {"id": {"S": id}, "result": {"S": result}, _REFUSED: {"BOOL": is_refused}}
    return {"Put": {"TableName": _TABLE, "Item": item}}


@dataclass(kw_only=True)
class Books:
    """Of one history: payloads, checkpoints, steps, own writes, replays, and quotas."""

    world: MemoryWorld
    tell: Callable[..., None]
    given: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    """By the whim that created a job: the payloads that its owner gave it."""
    uploads: dict[str, str] = field(default_factory=dict)
    """What every version of an object in the bucket holds."""
    checkpoints: dict[ExecutionId, str] = field(default_factory=dict)
    """The last one of whoever held the execution."""
    steps: dict[Step, str] = field(default_factory=dict)
    """What came of each step first."""
    own: dict[ExecutionId, str] = field(default_factory=dict)
    """The tasks' own table: what each execution's end was written with."""
    replays: Counter[ExecutionId] = field(default_factory=Counter)
    """How often each was asked to be replayed, whatever came of it."""
    tokens: Counter[Owner] = field(default_factory=Counter)
    """How many submissions each owner's bucket has let through."""
    made_late: set[ExecutionId] = field(default_factory=set)
    """What was made so long after it was reserved that a recount may have missed it."""

    def __post_init__(self) -> None:
        self._queued: dict[Owner, set[ExecutionId]] = defaultdict(set)
        self.world.own.take = self._take

    # What tasks keep.

    def saved(self, id: ExecutionId, checkpoint: Checkpoint, token: Token) -> None:
        """A checkpoint was accepted."""
        row = self.world.tables.executions[id]
        if row.token != token:
            says = f"{id} is not held by who keeps {checkpoint.text}"
            self.tell("a try goes on from the last checkpoint", says, id)
        else:
            self.checkpoints[id] = checkpoint.text

    def resumes(self, claimed: Claimed, text: str | None) -> None:
        """A try was told how far the ones before it have come."""
        id = claimed.execution.id
        # Else another may have kept something since it was told.
        is_held = self.world.tables.executions[id].token == claimed.token
        if is_held and text != self.checkpoints.get(id):
            says = f"{id} goes on from {text}, {self.checkpoints.get(id)} was kept"
            self.tell("a try goes on from the last checkpoint", says, id)

    def recorded(self, step: Step, answer: str) -> None:
        """What came of a step was kept, or somebody was told what is."""
        first = self.steps.setdefault(step, answer)
        if answer != first:
            says = f"{step.key} of {step.idempotent_as} came to {first}, and to {answer}"
            self.tell("a step is told as one", says, step.idempotent_as)

    def recalled(self, step: Step, *, known: bool, told: str | None) -> None:
        """A task asked what came of a step; `known`: it was kept before it asked."""
        if known and told is None:
            says = f"{step.key} of {step.idempotent_as} is done again"
            self.tell("a step is told as one", says, step.idempotent_as)

    def _take(self, writes: Sequence[OwnWrite]) -> Sequence[WriteRefusal]:
        """The tasks' own table: makes all of the writes, or none."""
        item: Any = writes[0]["Put"]
        id, result = (ExecutionId(item["Item"][name]["S"]) for name in ("id", "result"))
        if item["Item"][_REFUSED]["BOOL"]:
            return [WriteRefusal(index=0, code="ConditionalCheckFailed")]
        if id in self.own:
            self.tell("own writes are made with the end", f"{id} makes them twice", id)
        self.own[id] = result
        return ()

    # Payloads.

    def begins(self, claimed: Claimed, number: int | None) -> None:
        """A handler is called with its payload; `number` is of the whim that created its job."""
        id, ref = claimed.execution.id, claimed.spec.payload.ref
        if ref is not None and claimed.payload != self.uploads[ref.version_id]:
            self.tell("a payload is what was given", f"{id} is given another version", id)
        if number is not None and claimed.payload not in self.given[number]:
            says = f"{id} is given {claimed.payload[:40]}"
            self.tell("a payload is what was given", says, id)

    def is_kept(self, payload: Payload, home: JobId) -> bool:
        """Whether a payload is there that a row, or a job, refers to."""
        if payload.ref is not None:
            return self.world.payloads.look(payload.ref.key, payload.ref.version_id) is not None
        return payload.is_inline or (home, payload.version) in self.world.tables.payloads

    def refers(self, of: Execution | Job) -> None:
        """A row or a job is written that may refer to a payload."""
        home = of.payload_home if isinstance(of, Execution) else of.id
        if of.spec is not None and not self.is_kept(of.spec.payload, home):
            self.tell("a payload is kept", f"{of.id} refers to what is not there", of.id)

    # Quotas.

    def took(self, owner: Owner, taken: object) -> None:
        """A bucket of submissions was asked."""
        if isinstance(taken, Taken):
            self.tokens[owner] += taken.tokens

    def lives(self, job: Job) -> None:
        """A job is made that its owner's quota counts."""
        live = sum(
            1
            for other in self.world.tables.jobs.values()
            if other.owner == job.owner and other.status is not JobStatus.DELETED
        )
        most = self.world.quotas.of(job.owner).live_jobs
        if most is not None and live >= most:
            says = f"{job.owner} has {live + 1} live jobs, and may have {most}"
            self.tell("nobody has more than their quota", says, job.id)

    def queued(self, row: Execution, *, reserved_at: datetime | None) -> None:
        """An execution is made that its owner's quota counts."""
        now, most = self.world.now(), self.world.quotas.of(row.owner).queued_executions
        if reserved_at is None or now > reserved_at + RECOUNT_AFTER - _SECOND:
            # Whoever counted anew meanwhile has not seen it.
            self.made_late.add(row.id)
            return
        rows, queued = self.world.tables.executions, self._queued[row.owner]
        queued.difference_update([id for id in queued if rows[id].is_final])
        queued.add(row.id)
        if most is not None and len(queued) > most:
            says = f"{row.owner} has {len(queued)} queued executions, and may have {most}"
            self.tell("nobody has more than their quota", says, row.id)

    # At the end.

    def broken(self, *, start: datetime) -> Iterator[tuple[str, str, str]]:
        """Promise, what breaks it, and what it is about."""
        yield from self._own_writes()
        yield from self._payloads()
        yield from self._replays()
        for owner in sorted({row.owner for row in self.world.tables.executions.values()}):
            quota = self.world.quotas.of(owner)
            if quota != Quota():
                yield from self._quota(owner, quota, start)

    def _own_writes(self) -> Iterator[tuple[str, str, str]]:
        promise = "own writes are made with the end"
        for id, result in self.own.items():
            row = self.world.tables.executions[id]
            if row.state is not State.SUCCEEDED or row.result != result:
                yield promise, f"{id} made them, and is {row.state} with {row.result}", id
        for row in self.world.tables.executions.values():
            is_said = row.result is not None and row.result.startswith(WITH_ITS_END)
            if is_said and row.id not in self.own:
                yield promise, f"{row.id} has SUCCEEDED without them", row.id

    def _payloads(self) -> Iterator[tuple[str, str, str]]:
        for row in self.world.tables.executions.values():
            if row.error is not None and row.error.type in _GONE:
                yield "a payload is kept", f"{row.id}: {row.error.message}", row.id
            if row.spec is not None and not row.is_final:
                yield from self._is_gone(row.id, row.spec.payload, row.payload_home)
        for job in self.world.tables.jobs.values():
            if job.status is not JobStatus.DELETED:
                yield from self._is_gone(job.id, job.spec.payload, job.id)

    def _is_gone(self, id: str, payload: Payload, home: JobId) -> Iterator[tuple[str, str, str]]:
        if not self.is_kept(payload, home):
            yield "a payload is kept", f"{id} refers to what is not there", id

    def _replays(self) -> Iterator[tuple[str, str, str]]:
        made = Counter(
            row.replay_of for row in self.world.tables.executions.values() if row.replay_of
        )
        for id, count in made.items():
            if count > self.replays[id]:
                says = f"{id} was to be replayed {self.replays[id]} times, and was {count} times"
                yield "a key makes one execution", says, id

    def _quota(self, owner: Owner, quota: Quota, start: datetime) -> Iterator[tuple[str, str, str]]:
        tables, tally = self.world.tables, self.world.ports().tally
        jobs = [job for job in tables.jobs.values() if job.owner == owner and job.is_counted]
        live = [job for job in jobs if job.status is not JobStatus.DELETED]
        rows = [row for row in tables.executions.values() if row.owner == owner]
        waiting = [row for row in rows if row.is_counted and not row.is_final]
        # The first makes the mark that the second goes by, where there was none.
        for number in range(3):
            tally.recount(owner, now=self.world.now() + number * 2 * RECOUNT_AFTER)
        used = tally.usage(owner)
        specs = [job.spec for job in live] + [row.spec for row in waiting if row.spec is not None]
        there = Usage(
            live_jobs=len(live),
            queued_executions=len(waiting),
            payload_bytes=sum(charged(spec.payload.bytes) for spec in specs),
        )
        if used != there:
            says = f"{owner} is counted to have {used}, and has {there}"
            yield "what is counted is there", says, owner
        if quota.rate is not None:
            # A one-off that was moved has several rows.
            asked = {job.id for job in tables.jobs.values() if job.owner == owner}
            asked |= {row.job_id for row in rows if row.trigger is Trigger.ONE_OFF}
            made = len(asked) + sum(1 for row in rows if row.is_additional)
            seconds = (self.world.now() - start + _APART).total_seconds()
            most = quota.rate.burst + quota.rate.per_second * seconds
            if not made <= self.tokens[owner] <= most:
                says = f"{made} submissions of {owner}, {self.tokens[owner]} tokens of {most:.1f}"
                yield "nobody has more than their quota", says, owner


WITH_ITS_END: Final = '"with its end: '
_GONE: Final = frozenset({"PayloadGone", "PayloadMismatch", "InvalidPayload"})


def said_by(who: str) -> str:
    """The result of an execution whose end was written with own writes, as JSON."""
    return f'{WITH_ITS_END}{who}"'
