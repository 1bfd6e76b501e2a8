"""One history: owners, ticks, schedulers, workers, and everything that goes wrong for a while.

Then nothing goes wrong for another while, so that what was promised has to be kept by then.
"""

import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from random import Random
from typing import Any, Final

from lamplighter.core.buckets import body_of
from lamplighter.core.deferral import Terms
from lamplighter.core.errors import Conflict, NotFound, Unavailable
from lamplighter.core.lease import Grant, Kind, WorkItem
from lamplighter.core.limits import DRAIN_PER_SECOND, MAX_CLOCK_ERROR, SQS_BATCH
from lamplighter.core.model import Execution, Job, Message
from lamplighter.core.outcome import Deferred, Failed, Outcome, Parked, Succeeded, Withdrawn
from lamplighter.core.permits import EVERY_OWNER, Key, Limits
from lamplighter.core.permits import Kind as LimitKind
from lamplighter.core.quotas import Quotas
from lamplighter.core.retry import Failure
from lamplighter.core.retry import Kind as FailureKind
from lamplighter.memory import MemoryWorld, SeededChance, VirtualClock
from lamplighter.ports import Leases, Outgoing, Ports, Received, Refusal
from lamplighter.services import deferred, partitions, permits
from lamplighter.services.execute import Claimed, begin, conclude, shrink
from lamplighter.services.heartbeat import Heartbeats, Stop
from lamplighter.services.tick import tick
from lamplighter.services.undeliverable import undeliverable
from lamplighter.sim.behind import Behind
from lamplighter.sim.decisions import ALL, Decisions, Fault
from lamplighter.sim.declared import Declared
from lamplighter.sim.engine import NOTHING, Actor, Engine, Host, Process
from lamplighter.sim.faults import Crash
from lamplighter.sim.features import (
    EVERYTHING,
    Feature,
    Habits,
    busy,
    drawn,
    idle_lanes,
    lanes,
    quotas,
)
from lamplighter.sim.handlers import Working
from lamplighter.sim.history import History
from lamplighter.sim.watch import Live, Mended, Violation, Watch
from lamplighter.sim.weather import Weather, forecast
from lamplighter.sim.wire import Wire
from lamplighter.sim.workload import Mood, Owners, Play, Whim, broken_off, more_whims, play, whims

_MS: Final = timedelta(milliseconds=1)
_SECOND: Final = timedelta(seconds=1)
_MINUTE: Final = timedelta(minutes=1)
_API_ENDS_IN: Final = 15 * _SECOND
_SCHEDULER_ENDS_IN: Final = 120 * _SECOND
_SCHEDULER_MARGIN: Final = 20 * _SECOND
_WORKER_ENDS_IN: Final = 900 * _SECOND
_VISIBLE_AGAIN_AFTER: Final = 900 * _SECOND
_LOOK_EVERY_S: Final = 0.5
_DEAD_LETTER_AGAIN: Final = 360 * _SECOND
# The last ones lie where dispatch may be, or is not yet.
_HEARTBEATS_S: Final = (30, 30, 253, 400)
_HARD_LIMIT: Final = 600 * _SECOND
_BEATS_EVERY: Final = 20 * _SECOND
_SAID_AT_MOST: Final = 5
_LANES: Final = ("default", "critical", "bulk")
_NOBODY_WORKS: Final = ((Fault.OUTAGE, "workers"), (Fault.DEPLOY, "workers"))
_UNLIMITED: Final = 0.7
_LIMITED: Final = (
    Key(kind=LimitKind.QUEUE, name="default"),
    Key(kind=LimitKind.QUEUE, name="critical"),
    Key(kind=LimitKind.OWNER, name=EVERY_OWNER),
)
# A plain night, and one in which half of Europe sets its clocks.
_STARTS: Final = (
    datetime(2026, 1, 1, tzinfo=UTC),
    datetime(2026, 3, 29, 0, 40, tzinfo=UTC),
)


# With few rows, too, a backlog is to last.
_DRAINS_PER_SECOND: Final = (1.0, 3.0, DRAIN_PER_SECOND, DRAIN_PER_SECOND)
_PARKED_FOR: Final = (2 * _MINUTE, 20 * _MINUTE)
_PATIENCES: Final = (NOTHING, 100 * _MS, 400 * _MS)

_PLAIN: Final = Habits(of=frozenset())


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What a history follows from; the same setup, the same history."""

    seed: int
    faults: frozenset[Fault] = ALL
    only: frozenset[str] | None = None
    """Of all decisions, those that are not decided against; None: all."""
    trouble: timedelta = timedelta(minutes=150)
    rest: timedelta = timedelta(minutes=25)
    features: frozenset[Feature] = EVERYTHING
    """What may be made use of, beside plain jobs."""
    is_kept: bool = False
    """Whether the history's events are kept, to be read."""
    is_digested: bool = True
    """Whether the history has a digest, to be compared."""


class Simulation:
    """A whole Lamplighter, its owners and its weather, from one seed."""

    def __init__(self, setup: Setup) -> None:
        random = Random(f"{setup.seed} world")
        start = random.choice(_STARTS) + random.randrange(60_000) * _MS
        self.setup = setup
        self.start, self.end_of_trouble = start, start + setup.trouble
        shards = random.choice((1, 2, 4, 16))
        self.decisions = Decisions(faults=setup.faults, only=setup.only)
        self.features = drawn(self._random("features"), setup.features, self.decisions)
        self.world = MemoryWorld(
            clock=VirtualClock(start),
            chance=SeededChance(setup.seed),
            shards=shards,
            partitions=random.randint(1, min(4, shards)),
            quotas=self._quotas(),
            lanes=lanes(self._random("lanes")) if Feature.AGING in self.features else {},
            drain_per_second=self._random("drain").choice(_DRAINS_PER_SECOND),
            parked_for=self._random("parked").choice(_PARKED_FOR),
        )
        self.history = History(
            clock=self.world.clock, is_kept=setup.is_kept, is_digested=setup.is_digested
        )
        self.watch = Watch(world=self.world)
        self.books = self.watch.books
        self.engine = Engine(self.world.clock, self._ended)
        self.behind = Behind(world=self.world, engine=self.engine, tell=self.watch.tell)
        self.watch.seen = self.behind.written
        self._follow_up = self._follow_ups()
        self.weather = self._weather()
        self.wire = Wire(
            engine=self.engine,
            world=self.world,
            decisions=self.decisions,
            weather=self.weather,
            history=self.history,
            told=self._told,
            sent=self._sent,
            page_rows=random.choice((2, 3, 500)),
        )
        mood = Mood.of(self._random("mood"))
        self.owners = Owners(
            mood=mood,
            rows=self.world.tables.executions,
            wait=self.engine.wait,
            tell=self.watch.tell,
            books=self.books,
            more=self._random,
            features=self.features,
            made=lambda: bool(self.engine.current.made),
        )
        self.watch.counts = self._counts
        self._busy = self._busy_times()
        self._names: Counter[str] = Counter()
        self._workers: list[Process] = []
        self._hosts = {
            kind: [Host() for _ in range(number)]
            for kind, number in (("api", 2), ("scheduler", 2), ("worker", 3))
        }

    def run(self, *, until_broken: str | None = None) -> None:
        """Play it to its end, or until that promise is broken on the way.

        What was broken on the way is in `watch.violations`.
        """

        def told(violation: Violation) -> None:
            if violation.promise == until_broken:
                self.engine.stop()

        self.watch.told = told
        self._plan()
        self.engine.run_until(self.end_of_trouble)
        if self.engine.is_stopped:
            return
        self.decisions.is_over = True
        for host in self._all_hosts():
            host.skew = NOTHING
        self.wire.drain_fast()
        self.history.note("weather", "nothing goes wrong any more")
        self.engine.run_until(self.end_of_trouble + self.setup.rest)

    def ports(self) -> Ports:
        """The world as it is, with nothing between."""
        return self.world.ports()

    # What is drawn depends on the seed and on a name, and on nothing that happened before.

    def _random(self, name: str) -> Random:
        return Random(f"{self.setup.seed} {name}")

    def _weather(self) -> Weather:
        weather = forecast(
            self._random("weather"),
            self.setup.faults,
            start=self.start,
            end=self.end_of_trouble,
            shards=self.world.shards,
        )
        if Feature.AGING not in self.features or Fault.OUTAGE not in self.setup.faults:
            return weather
        random = self._random("idle lanes")
        idle = [*idle_lanes(random, start=self.start, end=self.end_of_trouble)]
        return replace(weather, spells={**weather.spells, (Fault.OUTAGE, idle[0].of): idle})

    def _quotas(self) -> Quotas:
        return quotas(self._random("quotas")) if Feature.QUOTAS in self.features else Quotas()

    def _busy_times(self) -> Sequence[tuple[datetime, datetime]]:
        if Feature.BUSY not in self.features:
            return ()
        return [*busy(self._random("busy"), start=self.start, end=self.end_of_trouble)]

    def _plan(self) -> None:
        """Have everything begin, each at its time."""
        self._set_clocks()
        self.engine.at(_next_minute(self.start), self._minute)
        mood = self.owners.mood
        for whim in whims(self._random("whims"), mood, start=self.start, end=self.end_of_trouble):
            self.engine.at(whim.at, partial(self._whim, whim))
        if Feature.BULK in self.features:
            random = self._random("more whims")
            for whim in more_whims(random, mood, start=self.start, end=self.end_of_trouble):
                self.engine.at(whim.at, partial(self._whim, whim))
        self._plan_limits()
        for (fault, _), spells in self.weather.spells.items():
            for spell in spells:
                if fault is Fault.PURGE:
                    self.engine.at(spell.begins, self._purge)
                elif fault is Fault.DEPLOY:
                    self.engine.at(spell.begins, self._replace_workers)
                elif fault is Fault.RESHARD:
                    self.engine.at(spell.begins, partial(self._reshard, spell.begins))

    def _plan_limits(self) -> None:
        """In three of ten histories an operator limits what runs at once, for some minutes each."""
        random = self._random("limits")
        if random.random() < _UNLIMITED:
            return
        for number in range(random.randint(1, 5)):
            key, most = random.choice(_LIMITED), random.choice((0, 1, 2, 5))
            at = self.start + random.random() * self.setup.trouble
            self.engine.at(at, partial(self._limit, f"limit-{number}", key, most))
            # Who waits looks again and again: that is most of what such a history has.
            at += random.uniform(1, 25) * _MINUTE
            self.engine.at(at, partial(self._limit, f"no-limit-{number}", key, None))
        self.engine.at(self.end_of_trouble, self._unlimit)

    def _limit(self, name: str, key: Key, most: int | None) -> None:
        if not self.decisions.happens(name):
            return
        self.history.note("operator", f"has at most {most} of {key} run at once")
        actor = self._actor(name, "api", ends_in=_API_ENDS_IN)
        if most is None:
            self.engine.spawn(actor, lambda _: permits.remove_limit(self.wire.ports(), key))
        else:
            self.engine.spawn(actor, lambda _: permits.set_limit(self.wire.ports(), key, most))

    def _unlimit(self) -> None:
        """Whoever waits looks for itself: nobody is woken by this."""
        before = self.world.permits.current
        self.world.permits.revise(before, Limits(version=before.version + 1))

    # Hosts and actors.

    def _all_hosts(self) -> Sequence[Host]:
        return [host for hosts in self._hosts.values() for host in hosts]

    def _set_clocks(self) -> None:
        random = self._random("clocks")
        for number, host in enumerate(self._all_hosts()):
            skew = _skew(random)
            if self.weather.rate(Fault.SKEW) and self.decisions.strikes(Fault.SKEW, "host", number):
                host.skew = skew
            for jump in range(3):
                at = self.start + self.setup.trouble * random.random()
                set_to = partial(self._jump, host, f"host {number}", jump, _skew(random))
                if self.weather.rate(Fault.JUMP):
                    self.engine.at(at, set_to)

    def _jump(self, host: Host, name: str, number: int, skew: timedelta) -> None:
        if self.decisions.strikes(Fault.JUMP, name, number):
            self.history.note(name, f"has its clock set to {skew.total_seconds():+.3f} s")
            host.skew = skew

    def _actor(self, name: str, kind: str, *, ends_in: timedelta | None) -> Actor:
        """An actor in a process of its own, which ends after a while whatever it is at."""
        name = self._unique(name)
        random = self._random(name)
        ends_at = None if ends_in is None else self.world.now() + ends_in
        process = Process(host=random.choice(self._hosts[kind]), ends_at=ends_at)
        return Actor(name=name, random=random, process=process)

    def _unique(self, name: str) -> str:
        """The name, or another for the second who would have it."""
        self._names[name] += 1
        number = self._names[name]
        return name if number == 1 else f"{name}~{number}"

    def _ended(self, actor: Actor, error: BaseException | None) -> None:
        match error:
            case None:
                self.behind.ended(actor)
            case Crash() | Unavailable():
                self.history.note(actor.name, f"ends: {type(error).__name__} {error}")
            case _:
                where = "".join(traceback.format_exception(error, limit=-4))
                self.history.note(actor.name, f"breaks: {error!r}")
                self.watch.tell("nothing breaks", f"{actor.name}: {error!r}\n{where}", actor.name)

    # Owners.

    def _creator(self, id: str) -> int | None:
        """The whim that created a job, if it was answered for."""
        return next((number for number, one in self.owners.jobs.items() if one == id), None)

    def _whim(self, whim: Whim) -> None:
        if not self.decisions.happens(whim.name):
            return
        actor = self._actor(whim.name, "api", ends_in=None)
        # A caller that asks again waits for longer than its first call may take.
        actor.process.ends_at = self.world.now() + _API_ENDS_IN + 300 * _SECOND
        chance = self._random(f"{whim.name} asks")
        self.engine.spawn(actor, lambda _: self.owners.do(self._api(), whim, chance))

    def _api(self) -> Ports:
        """The ports of one host of the API, which holds the tokens of owners that it took."""
        return (
            replace(self.wire.ports(), leases=Leases())
            if Feature.QUOTAS in self.features
            else self.wire.ports()
        )

    def _counts(self, made: Execution | Job) -> None:
        """Note that something is made by whoever has their turn, and hold it to its quota."""
        if Feature.QUOTAS not in self.features or not self.engine.is_busy:
            return
        actor = self.engine.current
        actor.made += 1
        if isinstance(made, Job):
            self.books.lives(made)
        elif made.is_counted:
            self.books.queued(made, reserved_at=actor.reserved_at)

    # Ticks and partition work.

    def _minute(self) -> None:
        now = self.world.now()
        self.engine.at(now + _MINUTE, self._minute)
        if self.weather.spell(Fault.OUTAGE, "tick", now, self.decisions):
            return
        name = f"tick-{now:%H:%M}"
        random = self._random(name)
        late, missing, twice, by = (random.random() for _ in range(4))
        if self._hit(missing, Fault.TICK_MISSING, name):
            return
        copies = 2 if self._hit(twice, Fault.TICK_TWICE, name) else 1
        after = by * _MINUTE if self._hit(late, Fault.TICK_LATE, name) else NOTHING
        for _ in range(copies):
            actor = self._actor(name, "scheduler", ends_in=after + _SCHEDULER_ENDS_IN)
            self.engine.spawn(actor, lambda _: tick(self.wire.ports()), after)

    def _hit(self, drawn: float, fault: Fault, name: str) -> bool:
        return drawn < self.weather.rate(fault) and self.decisions.strikes(fault, name)

    def _take_work(self) -> None:
        """Deliver what was handed out of partition work, and is visible."""
        for item in self.world.queue.take_work():
            self._deliver_work(item)

    def _deliver_work(self, item: WorkItem) -> None:
        work, now = item.work, self.world.now()
        if self.weather.spell(Fault.OUTAGE, work.kind, now, self.decisions):
            return
        name = self._unique(f"{work.kind}-{work.generation}.{work.partition}-{now:%H:%M}")
        random = self._random(name)
        lost, twice, late, by = (random.random() for _ in range(4))
        if self._hit(lost, Fault.WORK_LOST, name):
            return
        copies = 2 if self._hit(twice, Fault.WORK_TWICE, name) else 1
        after = by * _MINUTE if self._hit(late, Fault.WORK_LATE, name) else NOTHING
        for copy in range(copies):
            actor = self._actor(f"{name}.{copy}", "scheduler", ends_in=after + _SCHEDULER_ENDS_IN)
            self.engine.spawn(actor, partial(self._do_work, item), after)

    def _do_work(self, item: WorkItem, actor: Actor) -> None:
        """The one place where partition work is done."""
        ends_at = self.world.now() + _SCHEDULER_ENDS_IN
        stops_at = ends_at - _SCHEDULER_MARGIN
        if self._hit(actor.random.random(), Fault.SHORT_OF_TIME, actor.name):
            stops_at = self.world.now() + actor.random.choice(_PATIENCES)
        told = Mended.beside(self.world.counts, self.watch.mended)
        try:
            partitions.do(
                self.wire.ports(telemetry=told),
                item,
                owner=actor.name,
                time_left=lambda: self.world.now() < stops_at,
            )
        except (Unavailable, Crash):
            self.engine.at(ends_at + _SECOND, partial(self._deliver_work, item))
            raise
        if item.work.kind is Kind.SWEEP and not actor.has_failed:
            self.watch.swept(actor.name, sent=actor.sent, told=told, waiting=actor.waiting)

    def _reshard(self, at: datetime) -> None:
        random = self._random(f"reshard {at}")
        if self.decisions.strikes(Fault.RESHARD, f"at {at:%H:%M:%S}"):
            shards = random.choice((1, 2, 3, 8, 32))
            self.wire.redeploy(shards=shards, partitions=random.randint(1, min(4, shards)))
            self.history.note("weather", f"a deployment asks for {shards} shards")

    # Lanes and workers.

    def _told(
        self,
        actor: Actor,
        what: str,
        given: Sequence[Any],
        named: Mapping[str, Any],
        answer: object,
    ) -> None:
        """Follow up on a call that took effect."""
        if follow := self._follow_up.get(what):
            follow(actor, given, named, answer)

    def _follow_ups(self) -> Mapping[str, Callable[[Actor, Any, Any, Any], object]]:
        """What follows from a call, by its name."""
        books, watch, behind, now = self.books, self.watch, self.behind, self.world.now
        declared = Declared(rows=self.world.tables.executions, tell=watch.tell)

        def advanced(actor: Actor, grant: Grant) -> None:
            watch.advanced(grant.work, grant.watermark)
            behind.advanced(actor, grant)
            declared.granted(actor.name, grant)

        def granted(actor: Actor, _: object, __: object, answer: object) -> None:
            behind.granted(actor.name, answer)
            declared.granted(actor.name, answer)

        def pointed(_: Actor, given: Sequence[Any], *__: object) -> None:
            behind.pointed(given[0])
            declared.pointed(given[0])

        def claimed(
            actor: Actor, _: Sequence[Any], named: Mapping[str, Any], answer: object
        ) -> None:
            behind.refused(actor.name, answer)
            watch.claims(named["token"], asked_at=actor.called_at)

        def sent(actor: Actor, outgoing: Sequence[Outgoing]) -> None:
            actor.sent.extend(outgoing)
            watch.sent(outgoing)
            behind.sent(outgoing)
            declared.sent(actor.name, outgoing)

        def deleted(actor: Actor, received: Sequence[Received]) -> None:
            watch.deleted(actor.name, received)
            for one in received:
                behind.done_with(actor, one.message)

        return {
            "ledger.save": lambda _, given, named, __: books.saved(
                given[0], given[1], named["token"]
            ),
            "ledger.record": lambda _, given, __, answer: books.recorded(given[0], answer),
            "tally.reserve": lambda actor, *_: actor.reserves(now()),
            "tally.take": lambda _, given, __, answer: books.took(given[0], answer),
            "control.acquire": granted,
            "control.advance": lambda actor, _, __, grant: advanced(actor, grant),
            "queue.waiting": lambda actor, given, _, answer: actor.waiting.update(
                {given[0]: answer}
            ),
            "queue.hide": lambda _, given, *__: self._expect(given[0][0].queue, now() + given[1]),
            "queue.hand_out": self._handed_out,
            "executions.extend": lambda actor, _, named, __: watch.extended(
                named["token"], asked_at=actor.called_at
            ),
            "executions.claim": claimed,
            "executions.take_over": claimed,
            "executions.point": pointed,
            "executions.put": lambda actor, given, *_: declared.put(actor.name, given[0]),
            "executions.settle": lambda actor, _, __, row: behind.settled(actor.name, row),
            "executions.block": lambda actor, _, __, row: behind.settled(actor.name, row),
            "executions.count_undeliverable": lambda actor, _, __, row: behind.outrun(
                actor.name, row
            ),
            "executions.end": lambda actor, _, __, answer: behind.outrun(
                actor.name, answer.found if isinstance(answer, Refusal) else None
            ),
            "queue.send": lambda actor, given, *_: sent(actor, given[0]),
            "queue.delete": lambda actor, given, *_: deleted(actor, given[0]),
        }

    def _handed_out(
        self, actor: Actor, _: Sequence[Any], named: Mapping[str, Any], *__: object
    ) -> None:
        delay = named.get("delay", NOTHING)
        jitter = actor.random.choice((0, 0, 50, 300, 2000)) * _MS
        self.engine.at(self.world.now() + delay + jitter, self._take_work)

    def _sent(self, one: Outgoing, delay: timedelta) -> None:
        """Follow up on a message that will be visible after a while."""
        self._expect(one.queue, self.world.now() + delay)

    def _expect(self, lane: str, visible_at: datetime) -> None:
        self.engine.at(visible_at + 20 * _MS, partial(self._receive, lane))

    def _receive(self, lane: str) -> None:
        """Have a worker take what is visible in a lane, if there are workers."""
        now = self.world.now()
        for fault, of in (*_NOBODY_WORKS, (Fault.OUTAGE, f"lane {lane}")):
            if spell := self.weather.spell(fault, of, now, self.decisions):
                self.engine.at(spell.ends, partial(self._receive, lane))
                return
        is_full = True
        while is_full and (batch := self.world.queue.receive(lane)):
            self._expect(lane, now + _VISIBLE_AGAIN_AFTER)
            self._start_batch(batch)
            is_full = len(batch) == SQS_BATCH
        while self.world.queue.dead:
            self._dead_letter(self.world.queue.dead.pop(0).message)

    def _start_batch(self, batch: Sequence[Received]) -> None:
        first = batch[0].message
        name = f"worker-{body_of(first.execution_id)}-{first.attempt}"
        actor = self._actor(name, "worker", ends_in=_WORKER_ENDS_IN)
        reorder = len(batch) > 1 and self._hit(
            actor.random.random(), Fault.REORDER, f"{actor.name} of {len(batch)}"
        )
        self._workers.append(actor.process)
        kept = [one for one in batch if not self._redrive(actor, one)]
        self.engine.spawn(
            actor, lambda actor: self._take(actor, kept[::-1] if reorder else kept, reorder)
        )

    def _redrive(self, actor: Actor, received: Received) -> bool:
        """Whether a message goes to its dead-letter queue and not to the worker."""
        id = received.message.execution_id
        if not self._hit(actor.random.random(), Fault.REDRIVE, f"{actor.name} {id}"):
            return False
        self.history.note("queue", f"gives {id} up")
        self.world.queue.delete([received])
        self._dead_letter(received.message)
        return True

    def _take(self, actor: Actor, batch: Sequence[Received], slowly: bool) -> None:
        """Run a batch in one process, each message in a thread of its own."""
        ports = self.wire.ports()
        if not batch:
            return
        try:
            shrink(ports, batch)
        except Unavailable:
            # As a worker does: its beats will hide them.
            self.history.note(actor.name, "could not shrink its batch")
        for number, received in enumerate(batch):
            message = received.message
            name = f"try-{body_of(message.execution_id)}-{message.attempt}"
            name = self._unique(name)
            thread = Actor(name=name, random=self._random(name), process=actor.process)
            after = number * _SECOND if slowly else NOTHING
            self.engine.spawn(thread, partial(self._work, received), after)

    def _work(self, received: Received, actor: Actor) -> None:
        ports = self.wire.ports()
        begun = begin(ports, received, worker=actor.name)
        if isinstance(begun, Claimed):
            outcome = self._handle(actor, ports, begun)
            self.watch.comes_to(begun, outcome)
            conclude(ports, begun, outcome)

    def _handle(self, actor: Actor, ports: Ports, claimed: Claimed) -> Outcome:
        """The handler: it takes its time, and stops when it is asked to."""
        row = claimed.execution
        planned = play(self.owners.mood, self._random(f"play {row.id} {row.attempt} {row.crashes}"))
        habits = self._habits(row)
        planned = self._asked_to_wait(planned, habits)
        planned = self._broken_off(actor, planned)
        dies = self._hit(actor.random.random(), Fault.HANDLER_DIES, actor.name)
        handler = _Handler()
        heartbeats = Heartbeats(ports)
        self.history.note(actor.name, f"runs {row.id} try {row.attempt}")
        live, made = self.watch.begins(claimed), None
        self.books.begins(claimed, self._creator(row.job_id))
        try:
            with heartbeats.watch(claimed, handler):
                share = planned.dies_at if dies else 1
                is_called = not isinstance(planned.comes_to, Parked)
                if habits.keeps and is_called and planned.elsewhere is None:
                    working = self._working(
                        actor, ports, claimed, habits, heartbeats, handler, live
                    )
                    made = working.do(planned, dies=dies)
                else:
                    self._last(heartbeats, handler, live, planned.lasts * share)
        finally:
            self.watch.ends(live)
        if dies:
            actor.process.is_dead = True
            raise Crash
        if handler.why is None and planned.elsewhere is not None:
            elsewhere = self._actor(f"elsewhere-{body_of(row.id)}", "api", ends_in=None)
            self.watch.defers(claimed)
            self.engine.spawn(elsewhere, partial(self._end_elsewhere, claimed, planned))
            if Feature.BEATS in self.features and not planned.is_silent:
                another = self._actor(f"beats-{body_of(row.id)}", "api", ends_in=None)
                beats = partial(self._beat_elsewhere, claimed, planned.elsewhere)
                self.engine.spawn(another, lambda _: beats())
            heartbeat = self._random(f"terms {row.id}").choice(_HEARTBEATS_S) * _SECOND
            return Deferred(terms=Terms(heartbeat=heartbeat, hard_limit=_HARD_LIMIT))
        return made or _stopped(handler.why) or planned.comes_to

    def _habits(self, row: Execution) -> Habits:
        """What its job's task makes use of: the same for all of its executions."""
        if not self.features:
            return _PLAIN
        return Habits.drawn(self.features, self._random(f"habits {row.job_id}"))

    def _asked_to_wait(self, planned: Play, habits: Habits) -> Play:
        """The same, unless what it calls is busy: then it is told when to come again."""
        if Feature.BUSY not in habits.of:
            return planned
        now = self.world.now()
        for begins, ends in self._busy:
            if begins <= now < ends:
                failure = Failure(
                    kind=FailureKind.RATE_LIMITED,
                    type="Busy",
                    message="429",
                    retry_after=max(ends - now, _SECOND),
                )
                return replace(
                    planned, lasts=NOTHING, comes_to=Failed(failure=failure), elsewhere=None
                )
        return planned

    def _broken_off(self, actor: Actor, planned: Play) -> Play:
        """The same, unless its worker is being replaced: it leaves the try, or cannot run it."""
        left = broken_off(self.owners.mood, actor.random, planned)
        is_left = left is not planned and self.decisions.strikes(Fault.DEPLOY, actor.name)
        return left if is_left else planned

    def _working(
        self,
        actor: Actor,
        ports: Ports,
        claimed: Claimed,
        habits: Habits,
        heartbeats: Heartbeats,
        handler: "_Handler",
        live: Live,
    ) -> Working:
        """A handler that keeps what it does, and beats between."""

        def goes_on() -> bool:
            heartbeats.tick()
            if handler.why is None:
                self.watch.goes_on(live)
            return handler.why is None

        return Working(
            ports=ports,
            claimed=claimed,
            habits=habits,
            books=self.books,
            who=actor.name,
            chance=self._random(f"works {actor.name}"),
            last=partial(self._last, heartbeats, handler, live),
            goes_on=goes_on,
            loses=partial(handler.stop, Stop.LOST_LEASE),
        )

    def _end_elsewhere(self, claimed: Claimed, planned: Play, actor: Actor) -> None:
        """Somebody else's work on a deferred try: it beats, and says how it ended, or is silent."""
        if planned.is_silent or planned.elsewhere is None:
            return
        ports, id = self.wire.ports(), claimed.execution.id
        with suppress(Conflict, NotFound):
            self._beat(claimed, planned.elsewhere)
            outcome = planned.comes_to
            if isinstance(outcome, Succeeded | Failed):
                said = f"{type(outcome).__name__} {actor.name}"
                self._say(lambda: deferred.end(ports, id, claimed.callback, outcome, said=said))

    def _beat_elsewhere(self, claimed: Claimed, lasts: timedelta) -> None:
        """As `_end_elsewhere`, but that it says no more than that it goes on."""
        with suppress(Conflict, NotFound):
            self._beat(claimed, lasts)

    def _beat(self, claimed: Claimed, lasts: timedelta) -> None:
        ports, id = self.wire.ports(), claimed.execution.id
        until = self.world.clock.now() + lasts
        while (left := until - self.world.clock.now()) > NOTHING:
            self.engine.wait(min(left, _BEATS_EVERY))
            self._say(lambda: deferred.heartbeat(ports, id, claimed.callback))

    def _say(self, call: Callable[[], Execution]) -> None:
        """Until there is an answer, some times: whoever calls knows no more than that."""
        for _ in range(_SAID_AT_MOST):
            try:
                call()
            except Unavailable:
                self.engine.wait(_SECOND)
            else:
                return

    def _last(
        self, heartbeats: Heartbeats, handler: "_Handler", live: Live, lasts: timedelta
    ) -> None:
        clock = self.world.clock
        end = clock.now() + lasts
        while handler.why is None and (left := end - clock.now()) > NOTHING:
            due_in = max(heartbeats.next_due() - clock.monotonic(), _LOOK_EVERY_S)
            self.engine.wait(min(left, due_in * _SECOND))
            heartbeats.tick()
            if handler.why is None:
                self.watch.goes_on(live)

    def _replace_workers(self) -> None:
        if self.weather.spell(Fault.DEPLOY, "workers", self.world.now(), self.decisions):
            self.history.note("weather", "the workers are replaced")
            for process in self._workers:
                process.is_dead = True

    def _purge(self) -> None:
        now = self.world.now()
        if len(self.world.queue) and self.decisions.strikes(Fault.PURGE, f"at {now:%H:%M:%S}"):
            self.history.note("weather", "the lanes are purged")
            self.world.queue.purge()

    def _dead_letter(self, message: Message) -> None:
        name = f"dead-letter-{body_of(message.execution_id)}-{message.attempt}"
        actor = self._actor(name, "worker", ends_in=None)
        self.engine.spawn(actor, partial(self._bury, message))

    def _bury(self, message: Message, actor: Actor) -> None:
        """What the dead-letter queue's function does, until it has done it."""
        while True:
            try:
                undeliverable(self.wire.ports(), message)
            except Unavailable:
                self.engine.wait(_DEAD_LETTER_AGAIN)
            else:
                self.behind.done_with(actor, message)
                return


@dataclass(kw_only=True)
class _Handler:
    """`heartbeat.Handling`."""

    why: Stop | None = None

    def stop(self, why: Stop) -> None:
        self.why = self.why or why


def _stopped(why: Stop | None) -> Outcome | None:
    """What a handler says that was asked to stop; None: it was not."""
    if why is None:
        return None
    if why is Stop.CANCELLED:
        return Withdrawn(reason="cancelled on request")
    # Also where the lease is lost: whoever has no token any more is to be refused.
    kind = FailureKind.TIMEOUT if why is Stop.TIMEOUT else FailureKind.RETRYABLE
    return Failed(failure=Failure(kind=kind, type="Stopped", message=f"stopped: {why}"))


def _skew(random: Random) -> timedelta:
    most = MAX_CLOCK_ERROR // _MS
    return random.randint(-most, most) * _MS


def _next_minute(now: datetime) -> datetime:
    return now.replace(second=0, microsecond=0) + _MINUTE
