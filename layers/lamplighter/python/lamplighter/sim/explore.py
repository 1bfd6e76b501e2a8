"""Every interleaving of a few actors within a bound, enumerated and not sampled.

The actors run the real services on the ports in memory. A state is the world, the time, and each
actor's place, which is all that it was told so far (`places`). Of two schedules that lead to the
same state what follows is the same, so it is gone on from once: that is what makes enumeration
possible. An actor's own business, which nobody else could see the order of, is done at once.

Time stands still while anybody could go on, but for whoever is frozen, and those who do something
on a whim. So what is due at one instant is interleaved in every way, and what is late is a fault.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple

from lamplighter.core.errors import (
    Conflict,
    LamplighterError,
    NotFound,
    OverQuota,
    Rejected,
    Unavailable,
)
from lamplighter.core.lifecycle import State
from lamplighter.core.model import Execution, Trigger
from lamplighter.memory import MemoryWorld
from lamplighter.ports import Received
from lamplighter.sim.faults import Crash
from lamplighter.sim.history import gist
from lamplighter.sim.places import IDLE, SLEEP, Answer, Ask, Cast, Place, Players, Said, sends_of
from lamplighter.sim.stills import Stage, Still
from lamplighter.sim.wire import PORTS

_ACCEPTED: Final = frozenset({State.SUCCEEDED, State.FAILED, State.DEAD_LETTERED})
# What touches only what an actor has to itself: its message, a new one, and who is told.
_OWN: Final = {SLEEP, "queue.hide", "queue.delete", "queue.send", "notices.tell"}
_READS: Final = {
    *("executions.get", "executions.get_many", "executions.due", "executions.sample"),
    *("executions.get_payload", "executions.of_owner", "executions.additional_of"),
    *("jobs.get", "jobs.get_many", "jobs.versions", "jobs.record_of", "jobs.of_owner"),
    *("control.progress", "permits.uses", "permits.waiting", "queue.waiting", "tally.usage"),
}
_READS_OF_JOBS: Final = {"jobs.get", "jobs.get_many", "jobs.versions"}
_ANSWERED: Final = (Rejected, NotFound, Conflict, OverQuota)


class Strike(StrEnum):
    """What goes wrong at a port call, as far as a bound allows."""

    CRASH = "crash"
    """The process dies before the call; before the next one is after this one."""
    STALL = "stall"
    """The process is frozen before the call takes effect."""
    STALL_AFTER = "stall-after"
    """The process is frozen between the effect and the answer."""
    UNAVAILABLE = "unavailable"
    """The service does not answer; nothing was written."""
    FATE_UNKNOWN = "fate-unknown"
    """The service does not answer, and what was asked for has taken effect."""
    TWICE = "twice"
    """The message that is sent is delivered twice."""
    LOST = "lost"
    """It is never delivered."""


class Kind(StrEnum):
    """What an actor is."""

    API = "API"
    DISPATCHER = "dispatcher"
    SWEEPER = "sweeper"
    WORKER = "worker"
    DEAD_LETTERS = "dead letters"


@dataclass(frozen=True, kw_only=True)
class Bound:
    """How much is enumerated."""

    strikes: int = 1
    """How many of `of` may strike in one schedule, anywhere."""
    of: frozenset[Strike] = frozenset({Strike.CRASH})
    switches: int | None = None
    """How often an actor that could go on may have to wait for another; None: always."""

    def __str__(self) -> str:
        kinds = ", ".join(one for one in Strike if one in self.of)
        of = kinds if len(self.of) == 1 else f"of {kinds}"
        faults = f"{self.strikes} {of}" if self.strikes else "no fault"
        switches = "every order" if self.switches is None else f"{self.switches} switches"
        return f"{faults}; {switches}"


@dataclass(frozen=True, kw_only=True)
class Scene:
    """What a walk goes through: a world, who acts in it, and until when."""

    world: MemoryWorld
    begins: Sequence[Cast]
    """Who is there from the beginning."""
    comes: Sequence[tuple[datetime, Cast]]
    """Who comes later, in order."""
    receives: Callable[[Received], Cast]
    """Who comes for a message that is visible."""
    until: datetime
    """When nobody comes any more."""
    frozen_for: Sequence[timedelta]
    calm: Callable[[MemoryWorld], Iterator[str]] | None = None
    """What must hold whenever nobody is at anything, and nothing went wrong."""
    is_mended_by_messages: bool = False
    """Whether the death of a worker is mended by its message, and the sweep finds nothing."""
    is_safe_when_frozen: bool = False
    """Whether the sweep finds nothing where somebody was only slow: nothing is due meanwhile."""


class Actor(NamedTuple):
    """An actor in one state."""

    place: Place
    until: datetime | None = None
    """It sleeps, or is frozen, until then."""
    answer: Answer | None = None
    """What it will be told then; None: its call is still to be made."""


class Node(NamedTuple):
    """One state of a walk."""

    still: Still
    actors: Mapping[str, Actor]
    to_come: int
    """How many have come of those that come later."""
    strikes: int
    """How many faults may strike still."""
    switches: int | None
    last: str | None
    """Who acted last."""
    is_shaken: bool
    """Whether something was lost or died: then repairs are in order."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """What led from one state to the next."""

    at: datetime
    who: str
    does: str
    asks: Ask | None = None
    answer: Answer | None = None

    def __str__(self) -> str:
        return f"{gist(self.at)}  {self.who:<28} {self._said()}"

    def _said(self) -> str:
        if self.asks is None:
            return self.does
        named = (f"{name}={gist(value)}" for name, value in self.asks.named.items())
        given = ", ".join([*map(gist, self.asks.given), *named])
        came = self.answer and gist(self.answer.error or self.answer.value)
        said = f"{self.asks.what}({given}) -> {came}"
        return f"{said}, {self.does}" if self.does else said


@dataclass(frozen=True, kw_only=True)
class Broken:
    """A promise that a schedule breaks, and the schedule."""

    says: str
    steps: Sequence[Step]


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A world in which nobody is at anything any more, to be run to rest."""

    still: Still
    world: MemoryWorld
    """As it is then, for whoever judges to go on with."""
    is_struck: bool
    """Whether anything went wrong on the way."""
    is_shaken: bool
    """Whether something died, was lost or was not answered: repairs are in order."""


@dataclass(kw_only=True)
class Found:
    """What an exploration came to."""

    states: int = 0
    """Different ones, that were gone on from."""
    steps: int = 0
    ends: int = 0
    """Different worlds in which it ended, each run to rest and judged."""
    schedules: int = 0
    """Ways through the states, from the beginning to an end, that were followed."""
    broken: list[Broken] = field(default_factory=list)
    is_whole: bool = True
    """Whether all within the bound was enumerated: no budget ended it."""


class Explorer:
    """Goes through one scene in every way that a bound allows."""

    def __init__(
        self,
        scene: Scene,
        bound: Bound,
        judge: Callable[["Ended"], Iterator[str]],
        *,
        most: int = 1,
        budget: int | None = None,
    ) -> None:
        self.scene, self.bound = scene, bound
        self.stage = Stage(scene.world)
        self.players = Players(scene.world.ports(), self.stage.values)
        self.found = Found()
        self._judge, self._most, self._budget = judge, most, budget
        self._seen: dict[object, int] = {}
        self._ends: set[object] = set()
        self._told: list[str] = []
        self._parts: dict[object, int] = {}
        self._roots: dict[str, Place] = {}
        self._ports = scene.world.ports()
        self._real = {name: getattr(self._ports, name) for name in PORTS}

    def run(self) -> Found:
        """Enumerate; stops at as many broken promises as are wanted, or at the budget."""
        way: list[Step] = []
        # Of each state on the way those after it that are still to be gone on from.
        open_: list[Iterator[tuple[Step, Node]]] = [iter([self._begin()])]
        while open_:
            following = next(open_[-1], None)
            if following is not None:
                way.append(following[0])
            if self._is_over(way):
                break
            if following is None:
                open_.pop()
                del way[-1:]
            elif self._is_new(following[1]):
                open_.append(self._after(following[1]))
            else:
                way.pop()
        return self.found

    def _is_over(self, way: Sequence[Step]) -> bool:
        found = self.found
        for says in self._told:
            if len(found.broken) < self._most:
                found.broken.append(Broken(says=says, steps=[*way]))
        self._told.clear()
        if len(found.broken) >= self._most:
            found.is_whole = False
            return True
        if self._budget is not None and found.states >= self._budget:
            found.is_whole = False
            return True
        return False

    def _begin(self) -> tuple[Step, Node]:
        now = self.stage.world.now()
        actors = {cast.name: self._entered(cast, now) for cast in self.scene.begins}
        node = Node(
            still=Still(now, self.stage.taken()),
            actors=actors,
            to_come=0,
            strikes=self.bound.strikes,
            switches=self.bound.switches,
            last=None,
            is_shaken=False,
        )
        return Step(at=now, who="", does="it begins"), self._come(node)

    def _entered(self, cast: Cast, now: datetime) -> Actor:
        # Of one name there is one, whatever led to it.
        place = self._roots.get(f"{cast.name} {now}")
        if place is None:
            place = self._roots[f"{cast.name} {now}"] = self.players.enter(cast, now)
        return Actor(place)

    # States.

    def _is_new(self, node: Node) -> bool:
        """Whether nothing was gone on from this state with as much left of the bound."""
        key = self._key(node)
        left = -1 if node.switches is None else node.switches
        best = self._seen.get(key)
        if best is not None and best >= left:
            return False
        if best is None:
            self.found.states += 1
        self._seen[key] = left
        return True

    def _key(self, node: Node) -> object:
        last = node.last if node.switches is not None else None
        actors = tuple(
            (one.place.number, one.until, one.answer and self.players.key(one.answer))
            for _, one in sorted(node.actors.items())
        )
        return (
            *node.still.key,
            self._part(actors),
            *(node.to_come, node.strikes, node.is_shaken, last),
        )

    def _part(self, part: object) -> int:
        """A number for each different part of a state: a key of numbers is short."""
        return self._parts.setdefault(part, len(self._parts))

    def _after(self, node: Node) -> Iterator[tuple[Step, Node]]:
        """All that may happen next, one after the other."""
        able = {name: actor for name, actor in node.actors.items() if not actor.until}
        busy = [name for name, actor in able.items() if not _is_idle(actor)]
        own = next((name for name in busy if self._is_own(name, able)), None)
        if own is not None:
            yield from self._steps(node, own)
            return
        for name in able:
            left = self._switched(node, name, busy)
            if left != _TOO_OFTEN:
                yield from self._steps(node._replace(switches=left, last=name), name)
        if not busy:
            self._rests(node)
            if moved := self._moved(node):
                yield moved
            else:
                self._end(node)

    def _rests(self, node: Node) -> None:
        if self.scene.calm is not None and node.strikes == self.bound.strikes:
            self.stage.put_back(node.still)
            self._told += self.scene.calm(self.scene.world)

    def _switched(self, node: Node, name: str, busy: Sequence[str]) -> int | None:
        """How many switches are left if this one goes on now."""
        if node.switches is None:
            return None
        is_one = node.last is not None and node.last != name and node.last in busy
        return node.switches - 1 if is_one else node.switches

    @staticmethod
    def _is_own(name: str, able: Mapping[str, Actor]) -> bool:
        """Whether what an actor is about to do is the same before and after all that others do."""
        asks = able[name].place.asked
        if asks.what in _OWN:
            return True
        others = {other.place.cast.kind for who, other in able.items() if who != name}
        if asks.what.startswith("control."):
            return not others & {Kind.DISPATCHER, Kind.SWEEPER}
        return asks.what in _READS_OF_JOBS and Kind.API not in others

    # Steps.

    def _steps(self, node: Node, name: str) -> Iterator[tuple[Step, Node]]:
        """One actor's next call, and all that may go wrong there."""
        actor = node.actors[name]
        if _is_idle(actor):
            place = self._told_on(node, actor.place, Answer())
            node = self._settled(node, name, place)
            if place.asks is None:
                yield self._step(node, name, "ends"), node
                return
            actor = node.actors[name]
        asks = actor.place.asked
        yield self._called(node, name, asks)
        if node.strikes:
            struck = node._replace(strikes=node.strikes - 1)
            for strike in Strike:
                if strike in self.bound.of:
                    yield from self._struck(struck, name, asks, strike)

    def _struck(
        self, node: Node, name: str, asks: Ask, strike: Strike
    ) -> Iterator[tuple[Step, Node]]:
        if strike is Strike.CRASH:
            is_mended = self.scene.is_mended_by_messages and _comes_back(node, name)
            dead = self._dead(node if is_mended else node._replace(is_shaken=True), name)
            yield self._step(node, name, f"dies before {asks.what}"), dead
        elif asks.what != SLEEP:
            yield from self._struck_alive(node, name, asks, strike)

    def _struck_alive(
        self, node: Node, name: str, asks: Ask, strike: Strike
    ) -> Iterator[tuple[Step, Node]]:
        shaken = node._replace(is_shaken=True)
        # A message that is sent with the delay of then comes that much too late.
        is_late = sends_of(asks) or not self.scene.is_safe_when_frozen
        stalled = shaken if is_late else node
        match strike:
            case Strike.STALL:
                for duration in self.scene.frozen_for:
                    yield self._frozen(stalled, name, asks, duration)
            case Strike.STALL_AFTER:
                for duration in self.scene.frozen_for:
                    yield self._called(stalled, name, asks, frozen_for=duration)
            case Strike.UNAVAILABLE:
                error = Unavailable(f"{asks.what} is unavailable")
                yield self._refused(shaken, name, asks, error)
            case Strike.FATE_UNKNOWN:
                error = Unavailable(f"{asks.what} did not answer")
                yield self._called(shaken, name, asks, error=error)
            case Strike.TWICE if sends_of(asks):
                yield self._called(node, name, asks, copies=2)
            case Strike.LOST if sends_of(asks):
                yield self._called(shaken, name, asks, copies=0)
            case _:
                return

    def _called(
        self,
        node: Node,
        name: str,
        asks: Ask,
        *,
        copies: int = 1,
        error: Exception | None = None,
        frozen_for: timedelta | None = None,
    ) -> tuple[Step, Node]:
        """A call takes effect, and its answer comes back, or an error, or later."""
        if asks.what == SLEEP:
            return self._asleep(node, name, asks)
        actor, stage = node.actors[name], self.stage
        stage.put_back(node.still)
        answer = self._effect(actor, asks, copies)
        still = node.still
        if asks.what not in _READS:
            still = _looked_at(self._taken(still, asks.what), asks, answer)
            node = node._replace(still=still)
        does = "" if copies == 1 else "twice" if copies else "which is lost"
        if frozen_for is not None:
            does = f"and is frozen until {gist(still.now + frozen_for)}"
        if error is not None:
            does = "of which it is told nothing"
        step = replace(self._step(node, name, does), asks=asks, answer=answer)
        answer = answer if error is None else Answer(error=error)
        if frozen_for is not None:
            frozen = Actor(actor.place, still.now + frozen_for, answer)
            return step, self._come(_put(node, name, frozen))
        return step, self._settled(node, name, self._told_on(node, actor.place, answer))

    def _refused(self, node: Node, name: str, asks: Ask, error: Exception) -> tuple[Step, Node]:
        place = self._told_on(node, node.actors[name].place, Answer(error=error))
        return (
            self._step(node, name, f"is told that {asks.what} is unavailable"),
            self._settled(node, name, place),
        )

    def _frozen(self, node: Node, name: str, asks: Ask, duration: timedelta) -> tuple[Step, Node]:
        until = node.still.now + duration
        frozen = Actor(node.actors[name].place, until)
        step = self._step(node, name, f"is frozen until {gist(until)} before {asks.what}")
        return step, _put(node, name, frozen)

    def _asleep(self, node: Node, name: str, asks: Ask) -> tuple[Step, Node]:
        (until,) = asks.given
        sleeps = Actor(node.actors[name].place, max(until, node.still.now), Answer())
        return self._step(node, name, f"waits until {gist(until)}"), _put(node, name, sleeps)

    def _dead(self, node: Node, name: str) -> Node:
        """Its process is no more, and what it ran does not run."""
        receipt, still = node.actors[name].place.cast.receipt, node.still
        if receipt is not None and any(one.receipt == receipt for one in still.scenery.of("live")):
            self.stage.put_back(still)
            self.stage.sights.dies(receipt)
            still = self._taken(still, "sights")
        actors = {who: one for who, one in node.actors.items() if who != name}
        return node._replace(still=still, actors=actors)

    def _effect(self, actor: Actor, asks: Ask, copies: int) -> Answer:
        """What a port answers, once it has done what it was asked for."""
        port, _, method = asks.what.partition(".")
        outgoing = sends_of(asks)
        if outgoing is not None and not copies:
            return Answer()
        try:
            value = getattr(self._real[port], method)(*asks.given, **asks.named)
        except LamplighterError as error:
            return Answer(error=error)
        if outgoing is not None and copies > 1:
            self.stage.queue.duplicate_of(outgoing.message)
        if asks.what == "executions.extend":
            asked_at = self.players.monotonic(actor.place.at)
            self.stage.sights.extended(asks.named["token"], asked_at=asked_at)
        if asks.what == "queue.delete":
            self.stage.sights.deleted(actor.place.cast.name, asks.given[0])
        return Answer(value=value)

    def _told_on(self, node: Node, place: Place, answer: Answer) -> Place:
        return self.players.go_on(place, answer, node.still.now)

    def _with(self, node: Node, name: str, place: Place) -> Node:
        return _put(node, name, Actor(place))

    def _settled(self, node: Node, name: str, place: Place) -> Node:
        """An actor is at its next place: what it did on the way there has been done."""
        if place.said:
            self.stage.put_back(node.still)
            still = node.still
            for said in place.said:
                still = self._heard(still, said)
            node = node._replace(still=self._taken(still, "sights"))
        if place.asks is not None:
            return self._come(self._with(node, name, place))
        error = place.error
        may = (
            (*_ANSWERED, Unavailable, Crash)
            if place.cast.kind == Kind.API
            else (Unavailable, Crash)
        )
        if error is not None and not isinstance(error, may):
            self._told.append(f"nothing breaks: {name}: {error!r}")
        actors = {who: one for who, one in node.actors.items() if who != name}
        return self._come(node._replace(actors=actors))

    def _heard(self, still: Still, said: Said) -> Still:
        """What an actor did by itself is seen, or noted."""
        sights, about = self.stage.sights, said.about
        match said.what:
            case "begins":
                if about.token in still.doomed:
                    id = about.execution.id
                    self._told.append(f"what was answered holds: {id} starts all the same")
                sights.begins(about)
            case "goes on":
                sights.goes_on(about)
            case "ends":
                sights.ends(about)
            case _:
                return self._noted(still, said)
        return still

    def _noted(self, still: Still, said: Said) -> Still:
        about = said.about
        match said.what:
            case "finished" if about.state in _ACCEPTED:
                if about.id in still.accepted:
                    self._told.append(f"accepted twice: {about.id}")
                return still._replace(accepted=still.accepted | {about.id})
            case "recovered":
                return still._replace(is_mended=True)
            case "stops":
                return still._replace(stopped=still.stopped | {about})
            case "goes on again":
                return still._replace(stopped=still.stopped - {about})
            case _:
                return still

    def _taken(self, still: Still, by: str) -> Still:
        """The world as it is now, and what was broken on the way there."""
        if broken := self.stage.sights.broken:
            self._told += broken
            broken.clear()
        return still._replace(scenery=self.stage.taken(by.partition(".")[0]))

    # Time, and who comes.

    def _moved(self, node: Node) -> tuple[Step, Node] | None:
        """The next instant at which something happens; None: nothing does."""
        now, end = node.still.now, self.scene.until
        expected = [actor.until for actor in node.actors.values() if actor.until]
        comes = self.scene.comes
        if node.to_come < len(comes):
            expected.append(comes[node.to_come][0])
        if (visible_at := node.still.scenery.visible_at) is not None and visible_at < end:
            expected.append(visible_at)
        if not expected:
            return None
        at = max(min(expected), now)
        actors = {}
        woken: list[str] = []
        for name, actor in node.actors.items():
            if actor.until is not None and actor.until <= at:
                woken.append(name)
            else:
                actors[name] = actor
        actors |= {name: node.actors[name] for name in woken}
        moved = node._replace(still=node.still._replace(now=at), last=None, actors=actors)
        for name in woken:
            moved = self._awake(moved, name)
        return Step(at=at, who="", does="time goes by"), self._come(moved)

    def _awake(self, node: Node, name: str) -> Node:
        actor = node.actors[name]
        if actor.answer is None:
            return _put(node, name, Actor(actor.place))
        place = self._told_on(node, actor.place, actor.answer)
        return self._settled(_put(node, name, Actor(actor.place)), name, place)

    def _come(self, node: Node) -> Node:
        """With whoever comes at this instant."""
        now, comes = node.still.now, self.scene.comes
        actors, to_come = {**node.actors}, node.to_come
        while to_come < len(comes) and comes[to_come][0] <= now:
            cast = comes[to_come][1]
            actors[cast.name] = self._entered(cast, now)
            to_come += 1
        visible_at = node.still.scenery.visible_at
        if visible_at is not None and visible_at <= now < self.scene.until:
            self.stage.put_back(node.still)
            while received := self.stage.queue.receive(limit=1):
                cast = self.scene.receives(received[0])
                if cast.kind == Kind.DEAD_LETTERS:
                    self.stage.queue.delete(received)
                actors[cast.name] = self._entered(cast, now)
            node = node._replace(still=self._taken(node.still, "queue"))
        if to_come == node.to_come and len(actors) == len(node.actors):
            return node
        return node._replace(actors=actors, to_come=to_come)

    def _step(self, node: Node, name: str, does: str) -> Step:
        self.found.steps += 1
        return Step(at=node.still.now, who=name, does=does)

    # Ends.

    def _end(self, node: Node) -> None:
        """Nobody is left who does anything: run it to rest, and judge it."""
        self.found.schedules += 1
        key = (self.stage.rest(node.still), node.is_shaken, node.strikes == self.bound.strikes)
        if key in self._ends:
            return
        self._ends.add(key)
        self.found.ends += 1
        self._told += self._judge(
            Ended(
                still=node.still,
                world=self.stage.copied(node.still),
                is_struck=node.strikes < self.bound.strikes,
                is_shaken=node.is_shaken,
            )
        )


_TOO_OFTEN: Final = -1
_SOON: Final = timedelta(minutes=1)


def _looked_at(still: Still, asks: Ask, answer: Answer) -> Still:
    """The same, with whether it claims what was answered not to start any more."""
    row = answer.value
    if asks.what not in {"executions.claim", "executions.take_over"}:
        return still
    if not isinstance(row, Execution) or row.token is None:
        return still
    is_planned = row.trigger is Trigger.SCHEDULE and row.job_id in still.stopped
    if is_planned or row.id in still.stopped:
        return still._replace(doomed=still.doomed | {row.token})
    return still


def _comes_back(node: Node, name: str) -> bool:
    """Whether the message of who dies is there again soon: then no repair is needed (P8, P11)."""
    receipt = node.actors[name].place.cast.receipt
    hidden = {one[0]: one[4] for one in node.still.scenery.of("stock")}
    until = hidden.get(int(receipt.partition("/")[0])) if receipt else None
    return until is not None and until - node.still.now <= _SOON


def _is_idle(actor: Actor) -> bool:
    return actor.place.asks is not None and actor.place.asks.what == IDLE


def _put(node: Node, name: str, actor: Actor) -> Node:
    return node._replace(actors={**node.actors, name: actor})
