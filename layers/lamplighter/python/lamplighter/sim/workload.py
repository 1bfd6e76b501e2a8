"""What owners ask for, and what their handlers do: every choice from the seed and a name."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from hashlib import sha256
from random import Random
from typing import Any, Final

from lamplighter.core.buckets import ExecutionId, JobId, execution_of
from lamplighter.core.catch_up import CatchUp
from lamplighter.core.errors import Conflict, NotFound, OverQuota, Rejected, Unavailable
from lamplighter.core.lifecycle import State
from lamplighter.core.model import (
    Execution,
    Job,
    MisfirePolicy,
    OnDeadline,
    OverlapPolicy,
    Owner,
    Payload,
    Spec,
)
from lamplighter.core.outcome import Failed, Interrupted, Outcome, Parked, Succeeded
from lamplighter.core.retry import Failure, RetryPolicy
from lamplighter.core.retry import Kind as FailureKind
from lamplighter.core.schedule import parse
from lamplighter.core.status import Status
from lamplighter.ports import Ports
from lamplighter.services import (
    amend,
    backfill,
    bulk,
    cancel,
    inspect,
    manage,
    payloads,
    replay,
    trigger,
)
from lamplighter.services.submit import Created, IdempotencyKey, NewJob, ScheduleMaker, submit
from lamplighter.sim.books import Books
from lamplighter.sim.features import PLAIN, Feature

_SECOND: Final = timedelta(seconds=1)
_OWNERS: Final = (Owner("ada"), Owner("bea"), Owner("cai"))
_RATES: Final = ("1 minute", "1 minute", "2 minutes", "3 minutes", "7 minutes", "20 minutes")
_CRONS: Final = ("* * * * *", "*/2 * * * *", "*/7 1-3 * * *", "15,30 * * * *", "30 1 * * *")
_ZONES: Final = ("UTC", "Europe/London", "Europe/Berlin")
# Around the line, its margin, and what is past.
_OFFSETS_S: Final = (-5, 0, 3, 30, 200, 239, 240, 241, 250, 254, 255, 256, 260, 300, 900, 2400)
_LANES: Final = ("default", "default", "critical", "bulk")
_ELSEWHERE_S: Final = (0, 1, 25, 70, 300)
_SILENT: Final = 0.2
# While dispatch is at it.
_AS_IT_TICKS: Final = 0.3
_NO_PAYLOAD: Final = "null"
# In the row, an item of its own.
_SIZES: Final = (1, 600, 5_000)
_REFERRED: Final = 0.4
_REPLACED: Final = 0.3
_DELETED: Final = 0.6
_PAGE: Final = 5
_PAGES: Final = 3
_ENDED: Final = frozenset(
    {Status.SUCCEEDED, Status.FAILED, Status.DEAD_LETTERED, Status.CANCELLED, Status.SKIPPED}
)
_WAITING: Final = frozenset(
    {Status.SCHEDULED, Status.QUEUED, Status.RETRYING, Status.BLOCKED, Status.RUNNING}
)
_DURATIONS_S: Final = (0, 0, 1, 5, 12, 45, 90, 150, 260)


class What(StrEnum):
    """What an owner does."""

    CREATE = "create"
    TRIGGER = "trigger"
    PAUSE = "pause"
    RESUME = "resume"
    PATCH = "patch"
    DELETE = "delete"
    CANCEL = "cancel"
    REPLAY = "replay"
    REPLAN = "replan"
    """Cancel what is to come, and change the definition."""
    BACKFILL = "backfill"
    SNOOP = "snoop"
    """Ask for what is another's."""
    CANCEL_MANY = "cancel-many"
    REPLAY_MANY = "replay-many"


_OFTEN: Final = (
    *(What.TRIGGER,) * 5,
    *(What.PAUSE,) * 2,
    *(What.RESUME,) * 4,
    *(What.PATCH,) * 4,
    *(What.CANCEL,) * 3,
    *(What.REPLAN,) * 2,
    *(What.REPLAY,) * 2,
    *(What.BACKFILL,) * 2,
    What.DELETE,
    What.SNOOP,
)


@dataclass(frozen=True, kw_only=True)
class Mood:
    """What the owners of one history are like."""

    creates: int
    changes: int
    recurring: float
    lasting: float
    """How many of the handlers take their time."""
    failing: float
    deferring: float
    """How many of them leave their end to somebody else."""
    leaving: float
    """How many of the tries are broken off, for their worker has to end."""
    parking: float
    """How many of them come to a worker that does not know their task."""

    @classmethod
    def of(cls, random: Random) -> "Mood":
        """One of many."""
        return cls(
            creates=random.randrange(60, 180),
            changes=random.randrange(60, 300),
            recurring=random.choice((0.3, 0.6, 0.9)),
            lasting=random.choice((0.05, 0.15, 0.5)),
            failing=random.choice((0.0, 0.1, 0.3)),
            deferring=random.choice((0.0, 0.05, 0.2)),
            leaving=random.choice((0.0, 0.0, 0.05)),
            parking=random.choice((0.0, 0.0, 0.05, 0.3)),
        )


@dataclass(frozen=True, kw_only=True)
class Whim:
    """Something that an owner does at an instant."""

    number: int
    what: What
    at: datetime
    of: int
    """The whim that created what it is about; of a create its own number."""

    @property
    def name(self) -> str:
        """What it is known by among the decisions."""
        return f"{self.what}-{self.number}" + (f"-of-{self.of}" if self.of != self.number else "")


def whims(random: Random, mood: Mood, *, start: datetime, end: datetime) -> Sequence[Whim]:
    """What is done from the beginning to the end, in order of time."""
    length = end - start
    creates = sorted(start + length * random.uniform(0, 0.7) for _ in range(mood.creates))
    found = [Whim(number=n, what=What.CREATE, at=at, of=n) for n, at in enumerate(creates)]
    for n in range(mood.creates, mood.creates + mood.changes):
        of = random.randrange(mood.creates)
        at = creates[of] + (end - creates[of]) * random.random() ** 2
        if random.random() < _AS_IT_TICKS:
            at = at.replace(second=0, microsecond=0) + random.uniform(60, 61.5) * _SECOND
        found.append(Whim(number=n, what=random.choice(_OFTEN), at=at, of=of))
    return sorted(found, key=lambda whim: (whim.at, whim.number))


def more_whims(random: Random, mood: Mood, *, start: datetime, end: datetime) -> Sequence[Whim]:
    """What is done to many at once, in a history with bulk operations."""
    first = mood.creates + mood.changes
    return [
        Whim(
            number=number,
            what=random.choice((What.CANCEL_MANY, What.REPLAY_MANY)),
            at=start + (end - start) * random.uniform(0.2, 1),
            of=random.randrange(mood.creates),
        )
        for number in range(first, first + random.randint(2, 8))
    ]


@dataclass(kw_only=True)
class Owners:
    """Does what is on the owners' minds, and keeps what they were promised."""

    mood: Mood
    rows: Mapping[ExecutionId, Execution]
    wait: Callable[[timedelta], None]
    tell: Callable[..., None]
    books: Books
    more: Callable[[str], Random]
    """The chance of what is chosen beside the plain, by a name."""
    features: frozenset[Feature] = PLAIN
    made: Callable[[], bool] = lambda: False
    """Whether whoever has their turn has made a job or an execution."""
    jobs: dict[int, JobId] = field(default_factory=dict)
    """What each create came to."""
    accepted: dict[str, datetime] = field(default_factory=dict)
    """Jobs, and executions beside a schedule, that were answered for."""

    def do(self, ports: Ports, whim: Whim, random: Random) -> None:
        """One whim; what the API refuses, and what it does not answer, is its end."""
        owner = _OWNERS[whim.of % len(_OWNERS)]
        try:
            if whim.what is What.CREATE:
                self._create(ports, owner, whim, random)
            elif (id := self.jobs.get(whim.of)) is not None:
                self._change(ports, owner, id, whim, random)
        except OverQuota as over:
            # Of two things that were asked for the first one was done.
            if self.made() and whim.what is not What.REPLAN:
                says = f"{whim.name} is refused, over {over.quota}, and makes something"
                self.tell("nobody has more than their quota", says)
        except (Conflict, NotFound, Rejected, Unavailable):
            return

    def _change(self, ports: Ports, owner: Owner, id: JobId, whim: Whim, random: Random) -> None:
        match whim.what:
            case What.TRIGGER:
                key = _key(whim) if random.random() < 0.5 else None
                self._accept(trigger.trigger(ports, owner, id, key=key))
            case What.PAUSE | What.RESUME:
                change = manage.pause if whim.what is What.PAUSE else manage.resume
                change(ports, owner, id)
            case What.PATCH:
                self._patch(ports, owner, id, whim, random)
            case What.DELETE:
                manage.delete(ports, owner, id, request=random.random() < 0.5)
            case What.CANCEL | What.REPLAY:
                self._of_one(ports, owner, id, whim, random)
            case What.REPLAN:
                self._cancel_some(ports, owner, id, random)
                self._patch(ports, owner, id, whim, random)
            case What.BACKFILL:
                self._backfill(ports, owner, id, whim, random)
            case What.SNOOP:
                self._snoop(ports, owner, id)
            case What.CANCEL_MANY | What.REPLAY_MANY:
                self._to_many(ports, owner, id, whim)
            case other:
                raise AssertionError(other)

    def _create(self, ports: Ports, owner: Owner, whim: Whim, random: Random) -> None:
        new = self._loaded(ports, self._new(ports, owner, random), whim)
        key = None
        if random.random() < 0.5:
            key = IdempotencyKey[Created](
                key=whim.name, fingerprint="body", render=lambda made: made.job_id
            )
        again = random.random() < 0.3
        for _ in range(4):
            try:
                answer = submit(ports, new, key)
            except Unavailable:
                if key is None:
                    raise
                self.wait(random.choice((0, 1, 3)) * _SECOND)
                continue
            id = answer.job_id
            known = self.jobs.setdefault(whim.number, id)
            if known != id:
                self.tell("a key makes one job", f"{whim.name} made {known} and {id}", known, id)
            self.accepted[id] = ports.clock.now()
            if key is None or not again:
                return
            again = False
            self.wait(random.choice((1, 30, 200)) * _SECOND)

    def _new(self, ports: Ports, owner: Owner, random: Random) -> NewJob:
        now = ports.clock.now()
        spec = _spec(random)
        if random.random() < self.mood.recurring:
            return NewJob(
                owner=owner,
                spec=spec,
                schedule=_schedule(random, now),
                misfire=random.choice([*MisfirePolicy]),
                catch_up=_catch_up(random),
                overlap=random.choice([*OverlapPolicy, OverlapPolicy.ALLOW]),
            )
        offset = random.choice(_OFFSETS_S) + random.randrange(-999, 999) / 1000
        is_now = random.random() < 0.1
        return NewJob(owner=owner, spec=spec, run_at=None if is_now else now + offset * _SECOND)

    def _loaded(self, ports: Ports, new: NewJob, whim: Whim) -> NewJob:
        """With a payload of its own, in a history where they are large."""
        self.books.given[whim.of].add(_NO_PAYLOAD)
        if Feature.PAYLOADS not in self.features:
            return new
        random = self.more(f"{whim.name} gives")
        text = _text_of(whim, size=random.choice(_SIZES))
        self.books.given[whim.of].add(text)
        if random.random() < _REFERRED:
            return replace(new, named=self._uploaded(ports, new.owner, text, random))
        return replace(new, spec=replace(new.spec, payload=Payload.of(text)))

    def _uploaded(self, ports: Ports, owner: Owner, text: str, random: Random) -> payloads.Named:
        """An object in the bucket, which may be replaced or deleted once a version is named."""
        content, bucket = text.encode(), self.books.world.payloads
        granted = payloads.grant(
            ports,
            owner,
            size=len(content),
            digest=sha256(content).hexdigest(),
            content_type="application/json",
        )
        version = bucket.upload(granted.upload.url, granted.upload.headers, content)
        self.books.uploads[version] = text
        meanwhile = random.random()
        if meanwhile < _REPLACED:
            self.books.uploads[bucket.put(granted.key, b"null")] = "null"
        elif meanwhile < _DELETED:
            bucket.delete(granted.key)
        return payloads.Named(key=granted.key, version_id=version)

    def _patch(self, ports: Ports, owner: Owner, id: JobId, whim: Whim, random: Random) -> None:
        now = ports.clock.now()
        text = str(random.random())
        if Feature.PAYLOADS in self.features:
            text = _text_of(whim, size=self.more(f"{whim.name} gives").choice(_SIZES))
        self.books.given[whim.of].add(text)
        payload = Payload.of(text)
        if execution_of(id) is not None:
            offset = random.choice(_OFFSETS_S) * _SECOND
            run_at = now + offset if random.random() < 0.6 else None
            amend.amend(ports, owner, id, lambda row: _amended(row, payload, run_at))
            return
        schedule = _schedule(random, now) if random.random() < 0.6 else None
        misfire = random.choice([*MisfirePolicy])

        def change(job: Job) -> Job:
            if schedule is not None:
                return replace(job, schedule=schedule(job.id, job.created_at), misfire=misfire)
            return replace(job, spec=replace(job.spec, payload=payload))

        manage.edit(ports, owner, id, change)

    def _of_one(self, ports: Ports, owner: Owner, id: JobId, whim: Whim, random: Random) -> None:
        """Cancel one of a job's executions that has not ended, or replay one that has."""
        wanted = whim.what is What.REPLAY
        ids = sorted(
            row.id for row in self.rows.values() if row.job_id == id and row.is_final is wanted
        )
        if not ids:
            return
        one = random.choice(ids[-5:])
        if wanted:
            self.books.replays[one] += 1
            self._accept(replay.replay(ports, owner, one, key=_key(whim)))
        else:
            cancel.cancel(ports, owner, one)

    def _cancel_some(self, ports: Ports, owner: Owner, id: JobId, random: Random) -> None:
        """Cancel the first of a job's executions that are still to come, or the last."""
        now = ports.clock.now()
        coming = sorted(
            row.id
            for row in self.rows.values()
            if row.job_id == id and row.state is State.SCHEDULED and row.run_at > now
        )
        number = random.choice((1, 1, 2))
        for one in coming[:number] if random.random() < 0.5 else coming[-number:]:
            with suppress(Conflict):
                cancel.cancel(ports, owner, one)
        self.wait(random.choice((0, 5, 70)) * _SECOND)

    def _to_many(self, ports: Ports, owner: Owner, id: JobId, whim: Whim) -> None:
        """Cancel or replay some of what an owner has, a page at a time; asked again with its key.

        Each is replayed once, however often the whole is asked for.
        """
        random, key = self.more(f"{whim.name} means"), _key(whim)
        is_replay = whim.what is What.REPLAY_MANY
        wanted = inspect.Wanted(statuses=_ENDED if is_replay else _WAITING)
        selection = bulk.Selection(wanted=wanted, job_id=id if random.random() < 0.7 else None)
        asked: set[ExecutionId] = set()

        def act(seen: inspect.Seen) -> None:
            if seen.row.owner != owner:
                says = f"{owner} may change {seen.row.id} of {seen.row.owner}"
                self.tell("no owner sees another", says, seen.row.id)
            if is_replay and seen.row.id not in asked:
                asked.add(seen.row.id)
                self.books.replays[seen.row.id] += 1
            with suppress(Conflict, OverQuota):
                if is_replay:
                    self._accept(bulk.replay_once(ports, owner, seen.row, key))
                else:
                    cancel.cancel(ports, owner, seen.row.id)

        for _ in range(random.randint(1, 2)):
            after = None
            for _ in range(_PAGES):
                with suppress(Unavailable):
                    page = bulk.found(ports, owner, selection, after=after, limit=_PAGE)
                    after = bulk.each(ports, page, act).next
                    if after is None:
                        break
                self.wait(_SECOND)

    def _backfill(self, ports: Ports, owner: Owner, id: JobId, whim: Whim, random: Random) -> None:
        end = ports.clock.now()
        start = end - random.choice((120, 600, 1800)) * _SECOND
        asked = backfill.Asked(start=start, end=end, most=50, skip_existing=random.random() < 0.7)
        key = backfill.Key(key=whim.name, fingerprint="body")
        for made in backfill.backfill(ports, owner, id, asked, key=key).rows:
            self._accept(made)

    def _accept(self, made: object) -> None:
        if isinstance(made, Execution):
            self.accepted[made.id] = made.created_at

    def _snoop(self, ports: Ports, owner: Owner, id: JobId) -> None:
        other = _OWNERS[(_OWNERS.index(owner) + 1) % len(_OWNERS)]
        asked: Sequence[Callable[[Ports, Owner, JobId], Any]] = (
            inspect.job,
            manage.pause,
            manage.resume,
            trigger.trigger,
            manage.delete,
        )
        for ask in asked:
            try:
                ask(ports, other, id)
            except NotFound:
                continue
            self.tell("no owner sees another", f"{other} may {ask.__name__} {id}", id)
        wanted = inspect.Wanted()
        seen = inspect.executions(ports, other, wanted, after=None, limit=20).items
        for one in seen:
            if one.row.owner != other:
                says = f"{other} is shown {one.row.id} of {one.row.owner}"
                self.tell("no owner sees another", says, one.row.id)


@dataclass(frozen=True, kw_only=True)
class Play:
    """What a handler does in one try."""

    lasts: timedelta
    comes_to: Outcome
    dies_at: float
    """How far it has come where its process dies, if it does: a share of its time."""
    elsewhere: timedelta | None
    """How long its work goes on elsewhere, where it is deferred; None: it is not."""
    is_silent: bool
    """Whether nothing is heard of it from there."""


def play(mood: Mood, random: Random) -> Play:
    """What the task of an execution does."""
    lasts = random.choice(_DURATIONS_S) if random.random() < mood.lasting else 0
    failed, kind = random.random() < mood.failing, random.choice([*FailureKind])
    asked = random.choice((None, None, 20 * _SECOND))
    wait = asked if kind is FailureKind.RATE_LIMITED else None
    if kind is FailureKind.PERMANENT and random.random() < 0.8:
        kind = FailureKind.RETRYABLE
    failure = Failure(kind=kind, type="Oops", message="no", retry_after=wait)
    return Play(
        lasts=lasts * _SECOND,
        comes_to=Failed(failure=failure) if failed else Succeeded(result="1"),
        dies_at=random.random(),
        elsewhere=_elsewhere(mood, random),
        is_silent=random.random() < _SILENT,
    )


def broken_off(mood: Mood, random: Random, planned: Play) -> Play:
    """The same, unless its worker has to leave it, or cannot run it: then no try is used."""
    drawn, after = random.random(), random.choice((0, 10)) * _SECOND
    if drawn < mood.leaving:
        left = Interrupted(reason="its worker has to end", after=after)
        return replace(planned, lasts=planned.lasts / 2, comes_to=left, elsewhere=None)
    if drawn < mood.leaving + mood.parking:
        return replace(planned, lasts=0 * _SECOND, comes_to=Parked(reason="no"), elsewhere=None)
    return planned


def _elsewhere(mood: Mood, random: Random) -> timedelta | None:
    return random.choice(_ELSEWHERE_S) * _SECOND if random.random() < mood.deferring else None


def _text_of(whim: Whim, *, size: int) -> str:
    """A payload that is nobody else's."""
    return json.dumps({"by": whim.name, "more": "x" * size})


def _key(whim: Whim) -> IdempotencyKey[Execution]:
    return IdempotencyKey(key=whim.name, fingerprint="body", render=lambda row: row.id)


def _amended(row: Execution, payload: Payload, run_at: datetime | None) -> NewJob:
    if row.spec is None:
        raise ValueError(f"one-off {row.id} carries no definition")
    spec = replace(row.spec, payload=payload)
    return NewJob(owner=row.owner, spec=spec, run_at=run_at or row.scheduled_for)


def _spec(random: Random) -> Spec:
    return Spec(
        task="echo",
        payload=Payload.of(_NO_PAYLOAD),
        queue=random.choice(_LANES),
        timeout=random.choice((30, 120, 840, 840)) * _SECOND,
        retry=RetryPolicy(
            max_attempts=random.choice((1, 3, 50)),
            base_seconds=random.choice((1, 5, 60, 300, 600)),
            max_seconds=900,
        ),
        deadline=random.choice((None, None, None, 60 * _SECOND, 600 * _SECOND)),
        on_deadline=random.choice([*OnDeadline]),
    )


def _catch_up(random: Random) -> CatchUp:
    return CatchUp(
        threshold=random.choice((1, 60, 60, 600)) * _SECOND,
        window=random.choice((600, 86400, 86400)) * _SECOND,
        most=random.choice((1, 3, 100)),
        spread=random.choice((0, 60, 300)) * _SECOND,
    )


def _schedule(random: Random, now: datetime) -> ScheduleMaker:
    more: dict[str, Any] = {}
    if random.random() < 0.3:
        more["start_at"] = now + random.randrange(1, 900) * _SECOND
    if random.random() < 0.2:
        more["end_at"] = (more.get("start_at") or now) + random.randrange(60, 7200) * _SECOND
    if random.random() < 0.2:
        more["max_occurrences"] = random.randrange(1, 20)
    if random.random() < 0.2:
        more["flexible_window_seconds"] = random.choice((30, 240, 600))
    if random.random() < 0.25:
        more |= {
            "cron": random.choice(_CRONS),
            "timezone": random.choice(_ZONES),
            "dst_gap": random.choice(("NEXT_VALID", "SKIP", "SHIFT")),
            "dst_fold": random.choice(("FIRST", "BOTH", "SECOND")),
        }
    else:
        more["rate"] = f"rate({random.choice(_RATES)})"
    return lambda id, created_at: parse(anchor=created_at, seed=id, **more)
