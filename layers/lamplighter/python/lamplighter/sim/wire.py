"""What lies between a process and the services: time goes by there, and faults strike there.

Every port call is where another actor may have its turn: before it takes effect, and again
before its answer is there.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, NoReturn, TypeVar

from lamplighter.core.buckets import ExecutionId, place_of
from lamplighter.core.clock_offset import Bounds
from lamplighter.core.errors import Unavailable
from lamplighter.core.limits import DRAIN_PER_SECOND
from lamplighter.core.model import Execution, Pointer, Token, Watch
from lamplighter.core.timing import delay_s
from lamplighter.memory import Counts, MemoryWorld
from lamplighter.ports import Outgoing, Ports
from lamplighter.sim.decisions import Decisions, Fault
from lamplighter.sim.engine import NOTHING, Actor, Engine
from lamplighter.sim.faults import PIECEWISE, Crash
from lamplighter.sim.history import History
from lamplighter.sim.weather import Weather

_MS: Final = timedelta(milliseconds=1)
_MICROSECOND: Final = timedelta(microseconds=1)
_SECOND: Final = timedelta(seconds=1)
_LATENCIES: Final = (NOTHING, _MS, 2 * _MS, 5 * _MS, 10 * _MS, 30 * _MS)
# Just past each of the leases and graces, and well past all of them.
_PAUSES_S: Final = (1, 6, 20, 32, 40, 70, 150, 400)
_DELAYS_S: Final = (1, 5, 40, 90)
_THROTTLED: Final = 0.7
PORTS: Final = (
    *("executions", "jobs", "tally", "control", "payloads"),
    *("ledger", "permits", "queue", "notices"),
)
"""Those that leave the process."""
_BEFORE: Final = (Fault.PAUSE, Fault.CRASH_BEFORE, Fault.UNAVAILABLE)
_AFTER: Final = (Fault.CRASH_AFTER, Fault.FATE_UNKNOWN, Fault.PAUSE)
_SETS: Final = (set, frozenset)

Told = Callable[[Actor, str, Sequence[Any], Mapping[str, Any], Any], None]
"""Told of every call that took effect: of whom, which, what with, and the answer."""
Sent = Callable[[Outgoing, timedelta], None]
"""Told of every message that will be visible, and after how long."""
Value = TypeVar("Value")


@dataclass(kw_only=True)
class Wire:
    """Stands in for the ports of every process of one history."""

    engine: Engine
    world: MemoryWorld
    decisions: Decisions
    weather: Weather
    history: History
    told: Told
    sent: Sent
    page_rows: int
    """No page of due rows is longer: so that a few rows are several pages."""

    def __post_init__(self) -> None:
        around = self.world.ports()
        self._ports = replace(
            around,
            clock=HostClock(self.engine),
            clock_offset=HostOffset(self.engine),
            chance=ActorChance(self.engine),
            **{name: _Port(self, name, getattr(around, name)) for name in PORTS},  # type: ignore[arg-type]
        )
        self._before = [(fault, self.weather.rate(fault)) for fault in _BEFORE]
        self._after = [(fault, self.weather.rate(fault)) for fault in _AFTER]
        # Most calls are struck by nothing: that has to be seen at a glance.
        self._struck_before = sum(rate for _, rate in self._before)
        self._struck_after = sum(rate for _, rate in self._after)
        self._throttles = any(fault is Fault.THROTTLE for fault, _ in self.weather.spells)
        self._hot = [
            spell
            for (fault, _), spells in self.weather.spells.items()
            if fault is Fault.HOT_PARTITION
            for spell in spells
        ]

    def redeploy(self, *, shards: int, partitions: int) -> None:
        """Have whoever starts from now on ask for another layout."""
        self._ports = replace(self._ports, shards=shards, partitions=partitions)

    def drain_fast(self) -> None:
        """Have whoever starts from now on drain a backlog as fast as a stack does by itself."""
        self._ports = replace(self._ports, drain_per_second=DRAIN_PER_SECOND)

    def ports(self, *, telemetry: Counts | None = None) -> Ports:
        """The ports as an actor has them who begins now: whoever's turn it is calls them."""
        return replace(self._ports, telemetry=telemetry) if telemetry else self._ports

    def call(self, name: str, real: Callable[..., Any], *given: Any, **named: Any) -> Any:
        """Let a call reach its service, or not, and its answer come back, or not."""
        actor = self.engine.current
        for one in given:
            if isinstance(one, _SETS):
                given = _ordered(given)
                break
        actor.calls += 1
        actor.called_at = self.engine.clock.monotonic()
        draw = actor.random.random
        # All at once: what strikes here does not change what is drawn for the calls after it.
        before, after, there, back, piecewise = draw(), draw(), draw(), draw(), draw()
        latency = _latency(there)
        self.engine.wait(latency + self._heat(actor, given) if self._hot else latency)
        if before < self._struck_before:
            self._strike_before(actor, name, before)
        if self._throttles and before <= _THROTTLED:
            self._throttle(actor, name)
        if name in PIECEWISE:
            given = ([*given[0]], *given[1:])
            if piecewise < self.weather.rate(Fault.PARTIAL) and len(given[0]) > 1:
                self._strike_partly(actor, name, real, given, named)
        answer = self._effect(actor, name, real, given, named)
        if after < self._struck_after:
            self._strike_after(actor, name, after)
        self.engine.wait(_latency(back))
        return answer

    def _strikes(self, actor: Actor, fault: Fault, name: str) -> bool:
        return self.decisions.strikes(fault, actor.name, f"#{actor.calls}", name)

    def _strike_before(self, actor: Actor, name: str, drawn: float) -> None:
        fault, rest = _drawn(self._before, drawn)
        if fault is Fault.PAUSE:
            self._pause(actor, f"before {name}", rest)
        elif fault is Fault.CRASH_BEFORE and self._strikes(actor, fault, name):
            self.history.note(actor.name, f"dies before {name}")
            _die(actor)
        elif fault is Fault.UNAVAILABLE and self._strikes(actor, fault, name):
            self.history.note(actor.name, f"is told that {name} is unavailable")
            _fail(actor, f"{name} is unavailable")

    def _pause(self, actor: Actor, where: str, drawn: float) -> None:
        if self._strikes(actor, Fault.PAUSE, where):
            length = _pick(_PAUSES_S, drawn) * _SECOND
            self.history.note(actor.name, f"is frozen for {length} {where}")
            actor.process.frozen_until = self.engine.clock.now() + length
            self.engine.wait(NOTHING)

    def _throttle(self, actor: Actor, name: str) -> None:
        service = "queue" if name.startswith("queue.") else "table"
        now = self.engine.clock.now()
        if self.weather.spell(Fault.THROTTLE, service, now, self.decisions):
            self.history.note(actor.name, f"is told that {name} is throttled")
            _fail(actor, f"{name} is throttled")

    def _strike_after(self, actor: Actor, name: str, drawn: float) -> None:
        fault, rest = _drawn(self._after, drawn)
        if fault is Fault.PAUSE:
            self._pause(actor, f"after {name}", rest)
        elif fault is Fault.CRASH_AFTER and self._strikes(actor, fault, name):
            self.history.note(actor.name, f"dies after {name}")
            _die(actor)
        elif fault is Fault.FATE_UNKNOWN and self._strikes(actor, fault, name):
            self.history.note(actor.name, f"does not get the answer of {name}")
            _fail(actor, f"{name} did not answer")

    def _strike_partly(
        self, actor: Actor, name: str, real: Callable[..., Any], given: Any, named: Any
    ) -> None:
        if not self._strikes(actor, Fault.PARTIAL, name):
            return
        some = [one for one in given[0] if actor.random.random() < 0.5]
        if some:
            self._effect(actor, name, real, (some, *given[1:]), named)
        if actor.random.random() < 0.5:
            self.history.note(actor.name, f"dies half-way through {name}")
            _die(actor)
        self.history.note(actor.name, f"is told that {name} failed in part")
        _fail(actor, f"{name} failed in part")

    def _effect(
        self, actor: Actor, name: str, real: Callable[..., Any], given: Any, named: Any
    ) -> Any:
        match name:
            case "executions.put" | "executions.point" if len(given[0]) > 1:
                return self._one_by_one(actor, name, real, given, named)
            case "executions.due":
                named = {**named, "limit": min(named["limit"], self.page_rows)}
            case "queue.send":
                real = self._sending(actor, real)
            case _:
                pass
        try:
            answer = real(*given, **named)
        except Exception as error:
            self.history.called(actor.name, name, given, named, error)
            raise
        self.history.called(actor.name, name, given, named, answer)
        self.told(actor, name, given, named, answer)
        return answer

    def _one_by_one(
        self, actor: Actor, name: str, real: Callable[..., Any], given: Any, named: Any
    ) -> Sequence[Any] | None:
        """Each item is atomic by itself: in any order, and with time between two."""
        items = given[0]
        order = [*range(len(items))]
        actor.random.shuffle(order)
        answers: list[Any] = [None] * len(items)
        for number, place in enumerate(order):
            if number and actor.random.random() < 0.3:
                self.engine.wait(_latency(actor.random.random()))
            answer = self._effect(actor, name, real, ([items[place]],), named)
            answers[place] = answer[0] if answer else None
        return answers if name == "executions.put" else None

    def _sending(self, actor: Actor, real: Callable[..., None]) -> Callable[..., None]:
        """The queue's `send`, which may lose, keep back or double a message."""

        def send(outgoing: Sequence[Outgoing], *, now: datetime) -> None:
            for number, one in enumerate(outgoing):
                for late in self._fates(actor, one, number):
                    # What is sent as of earlier than now is visible that much later.
                    due_at = one.message.due_at
                    sent_at = now if late is NOTHING else min(now, due_at) - late
                    real([one], now=sent_at)
                    self.sent(one, delay_s(due_at, sent_at) * _SECOND)

        return send

    def _fates(self, actor: Actor, one: Outgoing, number: int) -> Iterator[timedelta]:
        lost, twice, late = (actor.random.random() for _ in range(3))
        where = (actor.name, f"#{actor.calls}.{number}", one.message.execution_id)
        rate = self.weather.rate
        if lost < rate(Fault.LOSS) and self.decisions.strikes(Fault.LOSS, *where):
            return
        if late < rate(Fault.DELAY) and self.decisions.strikes(Fault.DELAY, *where):
            yield _pick(_DELAYS_S, late / rate(Fault.DELAY)) * _SECOND
        else:
            yield NOTHING
        if twice < rate(Fault.DUPLICATE) and self.decisions.strikes(Fault.DUPLICATE, *where):
            yield NOTHING

    def _heat(self, actor: Actor, given: Sequence[Any]) -> timedelta:
        """How much longer a call takes for the sake of the shard that it is about."""
        for spell in self._hot:
            now = self.engine.clock.now()
            if not spell.begins <= now < spell.ends:
                continue
            is_about = any(f"shard {shard}" == spell.of for shard in _shards(given))
            if is_about and self.weather.spell(spell.fault, spell.of, now, self.decisions):
                return _SECOND * (0.5 + 2.5 * (actor.calls % 7) / 6)
        return NOTHING


class _Port:
    """One port, of whoever's turn it is."""

    def __init__(self, wire: Wire, name: str, real: object) -> None:
        self._wire, self._name, self._real = wire, name, real

    def __getattr__(self, method: str) -> Any:
        real = getattr(self._real, method)
        call = partial(self._wire.call, f"{self._name}.{method}", real)
        # Kept: the next use of this method does not come here.
        setattr(self, method, call)
        return call


class HostClock:
    """`ports.Clock` of the host that the actor is on whose turn it is."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def now(self) -> datetime:
        now = self._engine.clock.now() + self._engine.current.process.host.skew
        return now - now.microsecond % 1000 * _MICROSECOND

    def monotonic(self) -> float:
        return self._engine.clock.monotonic()

    def sleep(self, duration: timedelta) -> None:
        until = self.now() + duration
        while (left := until - self.now()) > NOTHING:
            # A clock that is set back meanwhile has to be waited for once more.
            self._engine.wait(left)


class HostOffset:
    """`ports.ClockOffset` of a host that knows exactly how far it is off."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def bounds(self) -> Bounds | None:
        skew = self._engine.current.process.host.skew
        return Bounds(low=skew, high=skew)

    def measure(self) -> None:
        """Nothing is left to be found out."""


class ActorChance:
    """`ports.Chance` of the actor whose turn it is."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def hash(self) -> int:
        return self._engine.current.random.getrandbits(70)

    def token(self) -> Token:
        return Token(f"{self._engine.current.random.getrandbits(128):032x}")

    def jitter(self) -> float:
        return self._engine.current.random.uniform(0.5, 1.5)


def _ordered(given: Sequence[Any]) -> tuple[Any, ...]:
    """The same with sets in the same order in every process, whatever hashes are there."""
    return tuple(sorted(one, key=str) if isinstance(one, _SETS) else one for one in given)


def _drawn(rates: Sequence[tuple[Fault, float]], drawn: float) -> tuple[Fault | None, float]:
    """Which of the faults a draw over [0, 1) hits, and where within its share."""
    for fault, rate in rates:
        if drawn < rate:
            return fault, drawn / rate
        drawn -= rate
    return None, 0.0


def _die(actor: Actor) -> None:
    actor.process.is_dead = True
    raise Crash


def _fail(actor: Actor, says: str) -> NoReturn:
    actor.has_failed = True
    raise Unavailable(says)


def _latency(drawn: float) -> timedelta:
    return _pick(_LATENCIES, drawn)


def _pick(values: Sequence[Value], drawn: float) -> Value:
    return values[int(drawn * len(values))]


def _shards(given: Sequence[Any]) -> Iterator[int]:
    """The shards that a call is about, by the first of what it was given."""
    for one in given[:2]:
        match one:
            case range():
                yield from one
            case list() | tuple():
                yield from _shards(one[:10])
            case Execution(id=id) | Pointer(execution_id=id) | Watch(job_id=id):
                yield place_of(id).shard
            case str() if one.startswith(("ex_", "job_", "one_")):
                yield place_of(ExecutionId(one)).shard
