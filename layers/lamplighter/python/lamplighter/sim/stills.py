"""A world that can be put back to where it was, and compared with another."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeVar

from lamplighter.core.buckets import ExecutionId
from lamplighter.core.model import Execution, Message, Token
from lamplighter.core.permits import Key, Use
from lamplighter.memory import MemoryQueue, MemoryWorld, VirtualClock
from lamplighter.memory.permits import MemoryPermits
from lamplighter.memory.queue import _Stored
from lamplighter.memory.stores import Tables
from lamplighter.ports import Outgoing
from lamplighter.sim.sights import Sights

Value = TypeVar("Value")
Stock = tuple[tuple[Any, ...], ...]
"""What lies in a queue, message by message."""
_TABLES: Final = (
    *("executions", "pointers", "jobs", "versions", "payloads"),
    *("keys", "leases", "accounts", "full_at_ns"),
)
_EVERYTHING: Final = (*_TABLES, "buckets", "stock", "permits", "told", "live", "runs")
_TOUCHED: Final[Mapping[str, Sequence[str]]] = {
    "queue": ("stock",),
    "control": ("leases",),
    "permits": ("permits",),
    "notices": ("told",),
    "sights": ("live", "runs"),
    "executions": ("executions", "pointers", "payloads", "buckets", "live"),
}
"""What a call of each port may change; any other: everything."""


@dataclass(kw_only=True)
class NumberedQueue(MemoryQueue):
    """A queue whose messages are numbered by what they say, and not by who came first.

    So two sends in either order leave the same queue.
    """

    _known: dict[object, int] = field(default_factory=dict)

    def send(self, outgoing: Sequence[Outgoing], *, now: datetime) -> None:
        for one in outgoing:
            said = (one.queue, one.message, one.owner, self.clock.now())
            self._ids = iter([self._number(said)])  # type: ignore[assignment]
            super().send([one], now=now)

    def duplicate_of(self, message: Message) -> None:
        """Deliver what was sent last of this message once more."""
        ids = [id for id, stored in self._stored.items() if stored.message == message]
        stored = self._stored[ids[-1]]
        said = (stored.queue, stored.message, stored.owner, self.clock.now())
        number = self._number(said)
        self._stored[number] = replace(stored, id=number, receives=0)

    def stock(self) -> Stock:
        """All that lies there now."""
        return tuple(
            (one.id, one.queue, one.message, one.owner, one.visible_at, one.sent_at, one.receives)
            for _, one in sorted(self._stored.items())
        )

    def restock(self, stock: Stock) -> None:
        """Have this lie there, and nothing else."""
        names = ("id", "queue", "message", "owner", "visible_at", "sent_at", "receives")
        self._stored = {said[0]: _Stored(**dict(zip(names, said, strict=True))) for said in stock}
        self.work.clear()
        self.dead.clear()

    def _number(self, said: object) -> int:
        """The lowest that no message has which says the same."""
        for copy in range(1000):
            number = self._known.setdefault((said, copy), len(self._known) + 1)
            if number not in self._stored:
                return number
        raise ValueError(f"a thousand copies of {said}")


@dataclass(kw_only=True)
class NumberedPermits(MemoryPermits):
    """Permits of which each call of a waiter is known by whose it is."""

    def wait(self, key: Key, id: ExecutionId, *, kept_until: datetime) -> Use:
        self._calls = iter([f"{id} {kept_until}"])  # type: ignore[assignment]
        return super().wait(key, id, kept_until=kept_until)


class SettableClock(VirtualClock):
    """A clock that goes back, to where another history was."""

    def set_to(self, instant: datetime) -> None:
        self._time = instant


class Part(NamedTuple):
    """A part of a world: what tells it from others, and what it is."""

    key: Any
    value: Any


_NOTHING: Final = Part(None, {})


class Scenery(NamedTuple):
    """A world, and what was seen of it; nobody changes it."""

    number: int
    """The same for two only if nothing tells them apart."""
    parts: Mapping[str, Part]
    visible_at: datetime | None
    """When the next message can be received."""

    def of(self, part: str) -> Any:
        """One of its parts."""
        return self.parts[part].value


class Still(NamedTuple):
    """A world at one instant, and what was noted on the way there."""

    now: datetime
    scenery: Scenery
    accepted: frozenset[str] = frozenset()
    """Executions that have an accepted result."""
    is_mended: bool = False
    """Whether the sweep found something to repair."""
    stopped: frozenset[str] = frozenset()
    """Jobs and executions of which was answered that nothing of them starts any more."""
    doomed: frozenset[str] = frozenset()
    """Tokens of claims that were made after such an answer."""

    @property
    def key(self) -> tuple[object, ...]:
        """The same for two only if nothing tells them apart."""
        return (self.now, self.scenery.number, *self[2:])


class Stage:
    """The world in which one history after another goes on from where it was."""

    def __init__(self, world: MemoryWorld) -> None:
        if not (isinstance(world.clock, SettableClock) and isinstance(world.queue, NumberedQueue)):
            raise TypeError("a world that is not one of `a_world`")
        self.world, self.clock, self.queue = world, world.clock, world.queue
        self.sights = Sights(world=world)
        self.values = Values()
        self._sceneries: dict[object, Scenery] = {}
        self._plains: dict[int, Execution] = {}
        self._now: Scenery | None = None

    def put_back(self, still: Still) -> None:
        """Have everything as it was."""
        self.clock.set_to(still.now)
        there = still.scenery
        if self._now is there:
            return
        tables = self.world.tables
        for name in _TABLES:
            table = getattr(tables, name)
            dict.clear(table)
            dict.update(table, there.of(name))
        tables.buckets = {place: {*them} for place, them in there.of("buckets").items()}
        self.queue.restock(there.of("stock"))
        held, waits = there.of("permits")
        self.world.permits.held = {**held}
        self.world.permits.waits = {key: {*ids} for key, ids in waits.items()}
        self.sights.put_back(there.of("live"), there.of("runs"))
        self._now = there

    def taken(self, port: str | None = None) -> Scenery:
        """Everything as it is now; where a port is named, nothing but by that has changed."""
        before = self._now
        touched = _EVERYTHING if port is None or before is None else _TOUCHED.get(port, _EVERYTHING)
        parts = {} if before is None else {**before.parts}
        for name in touched:
            if name not in parts or name != "told" or self.world.notices.given:
                parts[name] = self._part(name, parts.get(name, _NOTHING))
        keys = tuple([parts[name].key for name in _EVERYTHING])
        known = self._sceneries.get(keys)
        if known is None:
            stock = parts["stock"].value
            known = self._sceneries[keys] = Scenery(
                number=len(self._sceneries),
                parts=parts,
                visible_at=min((one[4] for one in stock), default=None),
            )
        self._now = known
        return known

    def _part(self, name: str, before: "Part") -> "Part":
        world, number = self.world, self.values.number
        match name:
            case "stock":
                stock = self.queue.stock()
                return Part(stock, stock)
            case "permits":
                waits = world.permits.waits.items()
                kept = ({**world.permits.held}, {key: frozenset(ids) for key, ids in waits if ids})
                return Part(self.values.frozen(kept), kept)
            case "told":
                given = world.notices.given
                told = {str(one.detail["execution_id"]): one for one in given} | before.value
                given.clear()
                return Part(frozenset(told), told)
            case "live":
                live = (*self.sights.live.values(),)
                return Part(frozenset(live), live)
            case "runs":
                runs = (*self.sights.runs.values(),)
                return Part(frozenset(map(number, runs)), runs)
            case _:
                return self._table(name)

    def _table(self, name: str) -> Part:
        value, tables = self.values.known, self.world.tables
        if name == "buckets":
            # They follow from the rows.
            there = tables.buckets.items()
            return Part(None, {place: frozenset(them) for place, them in there})
        table = {key: value(row) for key, row in getattr(tables, name).items()}
        return Part(frozenset([(key, id(row)) for key, row in table.items()]), table)

    def rest(self, still: Still) -> object:
        """The same for two worlds only if they come to rest alike: names of workers are nothing."""
        there = still.scenery
        leases = there.of("leases")
        return (
            still.now,
            frozenset(self._plain(row) for row in there.of("executions").values()),
            *(
                there.parts[name].key
                for name in ("pointers", "jobs", "versions", "keys", "permits")
            ),
            frozenset((work, lease.until, lease.grant.progress) for work, lease in leases.items()),
            frozenset(
                (queue, replace(message, epoch=0), *rest[1:])
                for _, queue, message, *rest in there.of("stock")
            ),
            there.parts["told"].key,
            frozenset((run.execution_id, run.started_at, run.ended_at) for run in there.of("runs")),
            (still.accepted, still.is_mended),
        )

    def _plain(self, row: Execution) -> Execution:
        known = self._plains.get(id(row))
        if known is None:
            tries = tuple(replace(one, worker="", arrival=None) for one in row.attempts)
            token = row.token and Token("")
            plain = replace(row, worker=None, arrival=None, token=token, attempts=tries)
            known = self._plains[id(row)] = self.values.known(plain)
        return known

    def copied(self, still: Still) -> MemoryWorld:
        """A world of its own that goes on from there."""
        world, there = self.world, still.scenery
        queue = NumberedQueue(clock=VirtualClock(still.now))
        queue.restock(there.of("stock"))
        copy = MemoryWorld(
            clock=queue.clock,
            shards=world.shards,
            partitions=world.partitions,
            tables=Tables(
                layouts=world.tables.layouts,
                buckets={place: {*them} for place, them in there.of("buckets").items()},
                **{name: {**there.of(name)} for name in _TABLES},  # type: ignore[arg-type]
            ),
            permits=MemoryPermits(
                current=world.permits.current,
                held={**there.of("permits")[0]},
                waits={key: {*ids} for key, ids in there.of("permits")[1].items()},
            ),
        )
        copy.queue = queue
        copy.notices.given = [*there.of("told").values()]
        return copy


def a_world(start: datetime) -> MemoryWorld:
    """A world that can be put back: of one shard, with nothing in it."""
    clock = SettableClock(start)
    world = MemoryWorld(clock=clock, shards=1, partitions=1, permits=NumberedPermits())
    world.queue = NumberedQueue(clock=clock)
    return world


class Values:
    """One object for all that are equal, so that its address is enough to know it by."""

    def __init__(self) -> None:
        self._known: dict[object, object] = {}
        self._kept: dict[int, object] = {}

    def known(self, value: Value) -> Value:
        """The first that was equal to this one."""
        if id(value) in self._kept:
            return value
        found = self._known.setdefault(self._said(value), value)
        self._kept[id(found)] = found
        return found  # type: ignore[return-value]

    def number(self, value: object) -> int:
        """The same for two values only if they are equal."""
        return id(self.known(value))

    def frozen(self, value: object) -> object:
        """What can be compared, and is the same for two values only if they are equal."""
        match value:
            case dict():
                # In any order: nobody asks a dictionary for its first.
                return frozenset((self.frozen(key), self.frozen(one)) for key, one in value.items())
            case set() | frozenset():
                return frozenset(map(self.frozen, value))
            case list() | tuple():
                return tuple(map(self.frozen, value))
            case _:
                return self.number(value) if is_dataclass(value) else value

    def _said(self, value: object) -> object:
        if not is_dataclass(value) or isinstance(value, type):
            return self.frozen(value)
        try:
            hash(value)
        except TypeError:
            parts = (self.frozen(getattr(value, one.name)) for one in fields(value))
            return type(value).__name__, tuple(parts)
        return value
