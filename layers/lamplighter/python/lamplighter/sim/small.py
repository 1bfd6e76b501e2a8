"""Small worlds of which every history within a bound is played: a job, three occurrences.

Two dispatchers come together, a worker for each message, and owners who do what they have in mind
at any moment. At the end of each history everything is run to rest, by the tick and the sweep,
and judged as every other history is.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from lamplighter.core.buckets import JobId
from lamplighter.core.lease import Kind as WorkKind
from lamplighter.core.lease import Work, WorkItem
from lamplighter.core.lifecycle import State
from lamplighter.core.limits import MISFIRE_THRESHOLD, ON_TIME
from lamplighter.core.model import (
    Execution,
    Job,
    JobStatus,
    MisfirePolicy,
    OverlapPolicy,
    Owner,
    Payload,
    Spec,
    Trigger,
)
from lamplighter.core.outcome import Failed, Outcome, Succeeded, Withdrawn
from lamplighter.core.permits import Key
from lamplighter.core.permits import Kind as LimitKind
from lamplighter.core.retry import Failure, RetryPolicy
from lamplighter.core.retry import Kind as FailureKind
from lamplighter.core.schedule import Schedule, parse
from lamplighter.memory import MemoryWorld
from lamplighter.ports import Ports, Received
from lamplighter.services import (
    amend,
    backfill,
    cancel,
    execute,
    inspect,
    manage,
    partitions,
    permits,
    submit,
    trigger,
    undeliverable,
)
from lamplighter.services.execute import Claimed
from lamplighter.services.heartbeat import Heartbeats, Stop
from lamplighter.sim import invariants, quiescence
from lamplighter.sim.explore import Bound, Ended, Explorer, Found, Kind, Scene
from lamplighter.sim.places import Cast, Hands
from lamplighter.sim.stills import a_world
from lamplighter.sim.system import System

OWNER: Final = Owner("ada")
START: Final = datetime(2026, 1, 1, tzinfo=UTC)
_SECOND: Final = timedelta(seconds=1)
_MINUTE: Final = timedelta(minutes=1)
_SUCCEEDED: Final = Succeeded(result="1")


@dataclass(frozen=True, kw_only=True)
class Play:
    """What the handler of a try does."""

    lasts: timedelta = timedelta(0)
    comes_to: Outcome = _SUCCEEDED


Deed = Callable[[Ports, Hands], object]
Begins = Callable[[MemoryWorld], Sequence[Cast]]
Plays = Callable[[Claimed], Play]


@dataclass(frozen=True, kw_only=True)
class Walk:
    """A small world, and what happens in it."""

    name: str
    says: str
    begins: Begins
    """Makes what is there at the beginning, and says who else acts."""
    dispatch: Sequence[float] = ()
    """When two dispatchers come, in seconds."""
    sweep: Sequence[float] = ()
    ends: float
    """When nobody comes any more."""
    rest: timedelta = 25 * _MINUTE
    """How long it then goes on, until all is at rest."""
    plays: Plays = lambda _: Play()
    is_returned: bool = False
    """Whether each execution's first message goes to the dead-letter queue."""
    is_alone: bool = False
    """Whether nothing is in the way of its executions: they start on time."""
    is_mended_by_messages: bool = False
    """Whether the death of a worker is mended by its message, and the sweep finds nothing."""
    is_safe_when_frozen: bool = False
    """Whether the sweep finds nothing where somebody was only slow: nothing is due meanwhile."""
    frozen_for: Sequence[float] = (40,)
    checks: Callable[[System], Iterator[str]] = lambda _: iter(())
    """What must hold at the end beside all that always must."""
    calm: Callable[[MemoryWorld], Iterator[str]] | None = None
    """What must hold whenever nobody is at anything, and nothing went wrong."""


# What there is, and what is done to it.


@dataclass(frozen=True, kw_only=True)
class Rate:
    """A few occurrences, so many seconds apart."""

    seconds: int = 60
    first: float = 300
    number: int = 3
    window: int = 0

    def __call__(self, id: JobId, created_at: datetime) -> Schedule:
        """As a job asks for its schedule."""
        return parse(
            rate=f"rate({self.seconds} seconds)",
            anchor=created_at,
            start_at=START + self.first * _SECOND,
            max_occurrences=self.number,
            flexible_window_seconds=self.window,
            seed=id,
        )


def new_spec(**more: Any) -> Spec:
    """A task."""
    return Spec(task="echo", payload=Payload.of("null"), **more)


def new_job(rate: Rate | None = None, *, spec: Spec | None = None, **more: Any) -> submit.NewJob:
    """A recurring job that is to be made."""
    return submit.NewJob(owner=OWNER, spec=spec or new_spec(), schedule=rate or Rate(), **more)


def api(name: str, *deeds: Deed) -> Cast:
    """Somebody who does one thing after the other, each when they like."""

    def does(ports: Ports, hands: Hands) -> None:
        for deed in deeds:
            hands.idle()
            deed(ports, hands)

    return Cast(name=name, kind=Kind.API, does=does)


def pause(id: JobId) -> Deed:
    """After the answer nothing starts that is claimed then."""

    def does(ports: Ports, hands: Hands) -> None:
        manage.pause(ports, OWNER, id)
        hands.say("stops", id)

    return does


def resume(id: JobId) -> Deed:
    """From when it is asked for things may start."""

    def does(ports: Ports, hands: Hands) -> None:
        hands.say("goes on again", id)
        manage.resume(ports, OWNER, id)

    return does


def delete(id: JobId) -> Deed:
    """After the answer nothing starts that is claimed then."""

    def does(ports: Ports, hands: Hands) -> None:
        manage.delete(ports, OWNER, id)
        hands.say("stops", id)

    return does


def edit(id: JobId, *, rate: Rate | None = None, **others: Any) -> Deed:
    """Another rate, flexible window, name or policy."""

    def change(job: Job) -> Job:
        schedule = rate(job.id, job.created_at) if rate else job.schedule
        return replace(job, schedule=schedule, **others)

    return lambda ports, _: manage.edit(ports, OWNER, id, change)


def cancel_slot(id: JobId, slot: float) -> Deed:
    """Its owner's word is final."""

    def does(ports: Ports, hands: Hands) -> None:
        job = inspect.recurring_job(ports, OWNER, id)
        row = cancel.cancel(ports, OWNER, job.occurrence_id(START + slot * _SECOND))
        if row.state is State.CANCELLED:
            hands.say("stops", row.id)

    return does


def run_by_hand(id: JobId) -> Deed:
    """Now, beside the schedule."""
    return lambda ports, _: trigger.trigger(ports, OWNER, id)


def backfilled(id: JobId, *, start: float, end: float) -> Deed:
    """The slots of some time that is over are run once more."""
    asked = backfill.Asked(
        start=START + start * _SECOND, end=START + end * _SECOND, skip_existing=False
    )
    return lambda ports, _: backfill.backfill(ports, OWNER, id, asked)


def made(new: submit.NewJob, *, key: str | None = None) -> Deed:
    """A job is made."""

    def does(ports: Ports, _: Hands) -> None:
        known: submit.IdempotencyKey[submit.Created] = submit.IdempotencyKey(
            key=key or "", fingerprint="", render=lambda one: one.job_id
        )
        submit.submit(ports, new, known if key else None)

    return does


def moved(id: JobId, *, to: float) -> Deed:
    """A one-off is to run at another time."""

    def change(row: Execution) -> submit.NewJob:
        return submit.NewJob(owner=OWNER, spec=row.spec or new_spec(), run_at=START + to * _SECOND)

    return lambda ports, _: amend.amend(ports, OWNER, id, change)


# Who works.


def owner_of_work(name: str, kind: WorkKind) -> Cast:
    """Who does the partition's work once."""
    item = WorkItem(work=Work(partition=0, kind=kind))

    def does(ports: Ports, hands: Hands) -> None:
        partitions.do(ports, item, owner=hands.name)

    is_sweep = kind is WorkKind.SWEEP
    return Cast(name=name, kind=Kind.SWEEPER if is_sweep else Kind.DISPATCHER, does=does)


def worker(walk: Walk, received: Received) -> Cast:
    """Who takes one message."""

    def does(ports: Ports, hands: Hands) -> None:
        execute.shrink(ports, [received])
        begun = execute.begin(ports, received, worker=hands.name)
        if isinstance(begun, Claimed):
            execute.conclude(ports, begun, _handled(walk, ports, hands, begun))

    name = f"worker of message {received.receipt}"
    return Cast(name=name, kind=Kind.WORKER, does=does, receipt=received.receipt)


def gravedigger(received: Received) -> Cast:
    """Who takes one message from the dead-letter queue."""

    def does(ports: Ports, _: Hands) -> None:
        undeliverable.undeliverable(ports, received.message)

    name = f"dead letter {received.receipt}"
    return Cast(name=name, kind=Kind.DEAD_LETTERS, does=does, receipt=received.receipt)


@dataclass(kw_only=True)
class _Handler:
    why: Stop | None = None

    def stop(self, why: Stop) -> None:
        self.why = self.why or why


def _handled(walk: Walk, ports: Ports, hands: Hands, claimed: Claimed) -> Outcome:
    """The handler: it takes its time, and stops when it is asked to."""
    play, handler, heartbeats = walk.plays(claimed), _Handler(), Heartbeats(ports)
    end = ports.clock.now() + play.lasts
    hands.say("begins", claimed)
    with heartbeats.watch(claimed, handler):
        while handler.why is None and (left := end - ports.clock.now()) > timedelta(0):
            due_in = max(heartbeats.next_due() - ports.clock.monotonic(), 0.5)
            ports.clock.sleep(min(left, due_in * _SECOND))
            heartbeats.tick()
            if handler.why is None:
                hands.say("goes on", claimed.token)
    hands.say("ends", claimed.token)
    if handler.why is None:
        return play.comes_to
    if handler.why is Stop.CANCELLED:
        return Withdrawn(reason="cancelled on request")
    return Failed(failure=Failure(kind=FailureKind.RETRYABLE, type="Stopped", message=handler.why))


def scene(walk: Walk) -> Scene:
    """The walk's beginning."""
    world = a_world(START)
    for kind in WorkKind:
        partitions.do(world.ports(), WorkItem(work=Work(partition=0, kind=kind)), owner="before")
    begins = walk.begins(world)
    comes = [
        (START + at * _SECOND, owner_of_work(f"dispatcher {n} at {at:g} s", WorkKind.DISPATCH))
        for at in walk.dispatch
        for n in (1, 2)
    ]
    comes += [
        (START + at * _SECOND, owner_of_work(f"sweeper at {at:g} s", WorkKind.SWEEP))
        for at in walk.sweep
    ]

    def receives(received: Received) -> Cast:
        row = world.tables.executions.get(received.message.execution_id)
        waits = row is not None and row.state is State.SCHEDULED and not row.undeliverable
        return gravedigger(received) if walk.is_returned and waits else worker(walk, received)

    return Scene(
        world=world,
        begins=begins,
        comes=sorted(comes, key=lambda one: one[0]),
        receives=receives,
        until=START + walk.ends * _SECOND,
        frozen_for=[seconds * _SECOND for seconds in walk.frozen_for],
        calm=walk.calm,
        is_mended_by_messages=walk.is_mended_by_messages,
        is_safe_when_frozen=walk.is_safe_when_frozen,
    )


# Judgement.


def judged(walk: Walk, ended: Ended) -> Iterator[str]:
    """Every promise that is broken once it is at rest."""
    system = System(
        world=ended.world,
        handler=lambda claimed: walk.plays(claimed).comes_to,
        lasts=lambda claimed: walk.plays(claimed).lasts,
        runs=[*ended.still.scenery.of("runs")],
    )
    system.run_for(walk.rest)
    yield from _broken(system, is_frozen=ended.is_struck)
    yield from map(str, quiescence.of_jobs(system.world))
    if not ended.is_shaken and (ended.still.is_mended or system.world.counts.events["recovered"]):
        yield "nothing needs mending: the sweep found something to repair, though nothing was lost"
    if walk.is_alone and not ended.is_struck:
        yield from _late(system)
    yield from _left_out(system, is_struck=ended.is_struck)
    yield from walk.checks(system)


def _broken(system: System, *, is_frozen: bool) -> Iterator[str]:
    """A try whose process is frozen cannot be stopped: another of its execution runs beside it."""
    for says in invariants.violations(system):
        promise, _, rest = says.partition(": ")
        ids = {word for word in rest.split() if word.startswith("ex_")}
        if not (is_frozen and promise == "overlap" and len(ids) == 1):
            yield says


def _late(system: System) -> Iterator[str]:
    for row in system.world.tables.executions.values():
        if row.lateness is not None and row.lateness > ON_TIME:
            yield f"on time: {row.id}, due {row.run_at}, started {row.first_started_at}"


def _left_out(system: System, *, is_struck: bool) -> Iterator[str]:
    """What an earlier version took back, and the job as it is plans again, is not left so (P19).

    But where a fault made it late: then the misfire policy may have a later slot run for it.
    """
    tables = system.world.tables
    latest = {
        row.job_id: row.scheduled_for
        for row in sorted(tables.executions.values(), key=lambda row: row.scheduled_for)
        if row.trigger is Trigger.SCHEDULE and row.first_started_at is not None
    }
    for row in tables.executions.values():
        job = tables.jobs.get(row.job_id)
        if job is None or job.status is not JobStatus.ACTIVE or row.trigger is not Trigger.SCHEDULE:
            continue
        is_planned = row.scheduled_for > job.since and job.schedule.contains(row.scheduled_for)
        is_its = row.id == job.occurrence_id(row.scheduled_for)
        by_owner = row.cancel_requested_at is not None
        may_be_late = is_struck and job.misfire is MisfirePolicy.FIRE_ONCE
        if may_be_late and latest.get(job.id, job.since) > row.scheduled_for:
            continue
        if row.state is State.CANCELLED and is_planned and is_its and not by_owner:
            yield f"a slot that is planned runs: {row.id} is CANCELLED, {row.reason}"


def explored(walk: Walk, bound: Bound, *, budget: int | None = None, most: int = 1) -> Found:
    """All of a walk's histories within a bound."""
    explorer = Explorer(
        scene(walk), bound, lambda ended: judged(walk, ended), budget=budget, most=most
    )
    return explorer.run()


def _one_job(system: System) -> Iterator[str]:
    jobs = {row.job_id for row in system.world.tables.executions.values()}
    if len(jobs) > 1:
        yield f"a key makes one job: it made {sorted(jobs)}"


def _one_run_for_all(system: System) -> Iterator[str]:
    """Of what was missed in an outage FIRE_ONCE runs one."""
    late = {
        run.execution_id
        for run in system.runs
        if run.started_at - run.run_at > MISFIRE_THRESHOLD and run.attempt == 1
    }
    if len(late) > 1:
        yield f"one run for an outage: there are {sorted(late)}"


def _one_run(system: System) -> Iterator[str]:
    ids = {run.execution_id for run in system.runs}
    if len(ids) > 1:
        yield f"a one-off runs in one place: it ran in {sorted(ids)}"


def _one_waits(world: MemoryWorld) -> Iterator[str]:
    """Of BUFFER_ONE (P15)."""
    waiting = [row.id for row in world.tables.executions.values() if row.state is State.BLOCKED]
    if len(waiting) > 1:
        yield f"one waits: {waiting} do"


# The walks.


def _of(
    *deeds: Callable[[JobId], Sequence[Deed]],
    rate: Rate | None = None,
    places: int | None = None,
    **more: Any,
) -> Begins:
    """A job, somebody for each of these deeds, and so many places in its lane."""

    def begins(world: MemoryWorld) -> Sequence[Cast]:
        if places is not None:
            permits.set_limit(world.ports(), Key(kind=LimitKind.QUEUE, name="default"), places)
        id = submit.submit(world.ports(), new_job(rate, **more)).job_id
        return [api(f"owner {n}", *deed(id)) for n, deed in enumerate(deeds, 1)]

    return begins


def _made_by(*deeds: Deed) -> Begins:
    return lambda _: [api(f"owner {n}", deed) for n, deed in enumerate(deeds, 1)]


def _moved_twice(world: MemoryWorld) -> Sequence[Cast]:
    new = submit.NewJob(owner=OWNER, spec=new_spec(), run_at=START + 290 * _SECOND)
    id = submit.submit(world.ports(), new).job_id
    return [api("owner 1", moved(id, to=320)), api("owner 2", moved(id, to=600))]


def _long(seconds: float) -> Plays:
    return lambda _: Play(lasts=seconds * _SECOND)


def _failing_first(claimed: Claimed) -> Play:
    """The first try of each fails."""
    if claimed.execution.attempt > 1:
        return Play()
    failure = Failure(kind=FailureKind.RETRYABLE, type="Oops", message="no")
    return Play(comes_to=Failed(failure=failure))


_FAST: Final = Rate(seconds=20)

WALKS: Sequence[Walk] = (
    Walk(
        name="line",
        says="three occurrences come to the line, and are dispatched and run",
        begins=_of(),
        dispatch=(60, 120, 180, 240),
        ends=450,
        is_alone=True,
        is_mended_by_messages=True,
    ),
    Walk(
        name="create",
        says="a job is made while dispatch passes its first slot",
        begins=_made_by(made(new_job(Rate(first=290)))),
        dispatch=(60, 120, 180),
        ends=450,
        is_safe_when_frozen=True,
        frozen_for=(40, 100),
    ),
    Walk(
        name="slow-create",
        says="a job is made so slowly that dispatch has passed its first slot",
        begins=_made_by(made(new_job(Rate(first=290)))),
        dispatch=(60,),
        ends=320,
        frozen_for=(100,),
    ),
    Walk(
        name="key",
        says="two make a job with one key",
        begins=_made_by(*(made(new_job(Rate(first=290)), key="key") for _ in range(2))),
        dispatch=(60,),
        ends=200,
        checks=_one_job,
    ),
    Walk(
        name="pause",
        says="a job is paused, and resumed",
        begins=_of(lambda id: [pause(id), resume(id)]),
        dispatch=(60, 120, 180),
        ends=450,
    ),
    Walk(
        name="edit",
        says="a job is given another rate, then another name",
        begins=_of(lambda id: [edit(id, rate=Rate(seconds=120)), edit(id, name="other")]),
        dispatch=(60, 120, 180),
        ends=450,
    ),
    Walk(
        name="denser",
        says="a job is given twice its rate while dispatch passes its first slot",
        begins=_of(lambda id: [edit(id, rate=Rate(seconds=30))]),
        dispatch=(60, 120),
        ends=450,
    ),
    Walk(
        name="window",
        says="the flexible window of a job is taken away, and given to it again",
        begins=_of(
            lambda id: [edit(id, rate=Rate()), edit(id, rate=Rate(window=50))],
            rate=Rate(window=50),
            overlap=OverlapPolicy.SKIP,
        ),
        dispatch=(60, 120, 180),
        ends=520,
    ),
    Walk(
        name="cancel",
        says="the second occurrence is cancelled, and the job edited",
        begins=_of(lambda id: [cancel_slot(id, 360)], lambda id: [edit(id, name="other")]),
        dispatch=(60, 120, 180),
        ends=450,
    ),
    Walk(
        name="delete",
        says="a job is deleted, and run by hand",
        begins=_of(lambda id: [delete(id)], lambda id: [run_by_hand(id)]),
        dispatch=(60, 120, 180),
        ends=450,
    ),
    *(
        Walk(
            name=policy.lower().replace("_", "-"),
            says=f"`{policy}`: each goes on beyond the next slot, and one is run by hand",
            begins=_of(lambda id: [run_by_hand(id)], rate=_FAST, overlap=policy),
            dispatch=(60, 120),
            ends=420,
            plays=_long(25),
            calm=_one_waits if policy is OverlapPolicy.BUFFER_ONE else None,
        )
        for policy in OverlapPolicy
        if policy is not OverlapPolicy.ALLOW
    ),
    Walk(
        name="fire-once",
        says="dispatch is down while three slots are missed; the sweep is not",
        begins=_of(rate=Rate(first=290)),
        dispatch=(500, 560),
        sweep=(380, 480, 600),
        ends=650,
        frozen_for=(60,),
        checks=_one_run_for_all,
    ),
    Walk(
        name="redo",
        says="an owner is frozen in a page of missed slots, and the next one does it again",
        begins=_of(rate=Rate(first=290)),
        dispatch=(400, 560),
        ends=650,
        frozen_for=(200,),
        checks=_one_run_for_all,
    ),
    Walk(
        name="fire-all",
        says="the same, each of them is run, and the job paused",
        begins=_of(lambda id: [pause(id)], rate=Rate(first=290), misfire=MisfirePolicy.FIRE_ALL),
        dispatch=(500, 560),
        ends=650,
    ),
    Walk(
        name="deadline",
        says="dispatch comes back when the deadline of some has passed",
        begins=_of(
            rate=Rate(seconds=30),
            spec=new_spec(deadline=40 * _SECOND),
            misfire=MisfirePolicy.FIRE_ALL,
        ),
        dispatch=(350, 400),
        sweep=(400, 480),
        ends=480,
    ),
    Walk(
        name="permits",
        says="one may run at once, and each goes on beyond the next slot",
        begins=_of(rate=_FAST, places=1),
        dispatch=(60, 120),
        ends=430,
        plays=_long(25),
    ),
    Walk(
        name="dead-letters",
        says="the first message of each is returned as undeliverable, and one is cancelled",
        begins=_of(lambda id: [cancel_slot(id, 360)]),
        dispatch=(60, 120, 180),
        ends=450,
        is_returned=True,
    ),
    Walk(
        name="backfill",
        says="two slots are run once more while the schedule goes on, one after the other",
        begins=_of(
            lambda id: [backfilled(id, start=0, end=140)],
            rate=Rate(first=60),
            overlap=OverlapPolicy.BUFFER_ALL,
        ),
        ends=300,
        plays=_long(8),
    ),
    Walk(
        name="far-retry",
        says="a try again lies beyond the line, and is cancelled",
        begins=_of(
            lambda id: [cancel_slot(id, 10)],
            rate=Rate(first=10, number=1),
            spec=new_spec(retry=RetryPolicy(base_seconds=256, max_seconds=900)),
        ),
        dispatch=(30, 90),
        ends=400,
        plays=_failing_first,
        is_mended_by_messages=True,
        is_safe_when_frozen=True,
        # Back before its message is there again, or after.
        frozen_for=(25, 40),
    ),
    Walk(
        name="move",
        says="two move a one-off while it comes to the line",
        begins=_moved_twice,
        dispatch=(60, 120),
        ends=450,
        checks=_one_run,
    ),
    Walk(
        name="together",
        says="one may run, one may wait, each fails once and has a deadline; one is run by hand",
        begins=_of(
            lambda id: [run_by_hand(id)],
            rate=_FAST,
            places=1,
            overlap=OverlapPolicy.BUFFER_ONE,
            spec=new_spec(
                deadline=120 * _SECOND, retry=RetryPolicy(base_seconds=5, max_attempts=2)
            ),
        ),
        dispatch=(60, 120),
        ends=420,
        plays=_failing_first,
    ),
)
