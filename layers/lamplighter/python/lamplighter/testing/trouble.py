"""What goes wrong in a rehearsal: the simulator's faults, as far as a task can tell them."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from random import Random
from types import MappingProxyType
from typing import Final

from lamplighter.core.errors import Rejected, Unavailable
from lamplighter.core.lease import WorkItem
from lamplighter.ports import Outgoing, Ports, Queue, Received
from lamplighter.sim.decisions import Fault
from lamplighter.sim.faults import Call, Crash, When, interposed

_RATES: Final[Mapping[Fault, float]] = MappingProxyType(
    {
        Fault.CRASH_BEFORE: 0.003,
        Fault.CRASH_AFTER: 0.003,
        Fault.PARTIAL: 0.02,
        Fault.UNAVAILABLE: 0.006,
        Fault.FATE_UNKNOWN: 0.006,
        Fault.HANDLER_DIES: 0.02,
        Fault.DUPLICATE: 0.05,
        Fault.DELAY: 0.03,
        Fault.LOSS: 0.01,
        Fault.REDRIVE: 0.01,
        Fault.TICK_MISSING: 0.1,
    }
)
KNOWN_FAULTS: Final = tuple(fault.value for fault in _RATES)
"""The names that `Scheduler.faults` takes."""
_LONGEST_DELAY_S: Final = 90


class Moment(StrEnum):
    """When a worker is killed."""

    BEFORE = "before"
    """Its handler has not begun."""
    AFTER = "after"
    """Its handler has returned, and nobody else knows: the next try does it all again."""


class Part(StrEnum):
    """What an outage is of."""

    WORKERS = "workers"
    SCHEDULER = "scheduler"
    """The tick, dispatch and the sweep; the API goes on."""
    ALL = "all"


@dataclass(kw_only=True)
class Mortal:
    """A process that may die at any of its port calls, and is dead from then on."""

    is_dead: bool = False

    def die(self) -> None:
        """End it here."""
        self.is_dead = True
        raise Crash


@dataclass(kw_only=True)
class _Kill:
    task: str
    moment: Moment
    left: int


@dataclass(kw_only=True)
class Trouble:
    """The faults of one rehearsal; the same seed, the same faults."""

    random: Random
    rates: Mapping[Fault, float] = field(default_factory=dict)
    struck: Counter[str] = field(default_factory=Counter)
    """How often each has struck, by name; kills as `kill`."""
    has_been: bool = False
    """Whether there ever was any, whose traces may still be there."""
    _kills: list[_Kill] = field(default_factory=list)
    _out: Counter[Part] = field(default_factory=Counter)

    def choose(self, names: str, *, often: float) -> None:
        """Have these strike from now on, and no others.

        Raises Rejected for a name that is none, or that does not strike here.
        """
        chosen = _named(names)
        self.rates = {
            fault: min(1.0, rate * often) for fault, rate in _RATES.items() if fault in chosen
        }
        self.has_been = self.has_been or bool(self.rates)

    def kill(self, task: str, moment: Moment, *, times: int) -> None:
        """Have the next workers die that run this task."""
        self._kills.append(_Kill(task=task, moment=moment, left=times))
        self.has_been = True

    @contextmanager
    def outage(self, of: Part) -> Iterator[None]:
        """Have a part of the system stand still for as long as the block runs."""
        parts = (Part.WORKERS, Part.SCHEDULER) if of is Part.ALL else (of,)
        self.has_been = True
        self._out.update(parts)
        try:
            yield
        finally:
            self._out.subtract(parts)

    def is_out(self, part: Part) -> bool:
        """Whether a part stands still now."""
        return self._out[part] > 0

    def hits(self, fault: Fault) -> bool:
        """Whether a fault strikes here; where it is not about, nothing is drawn."""
        rate = self.rates.get(fault, 0.0)
        if not rate or self.random.random() >= rate:
            return False
        self.struck[fault.value] += 1
        return True

    def kills(self, task: str, moment: Moment) -> bool:
        """Whether the worker that runs a task dies at this moment."""
        for kill in self._kills:
            if kill.left and (kill.task, kill.moment) == (task, moment):
                kill.left -= 1
                self.struck["kill"] += 1
                return True
        return moment is Moment.AFTER and self.hits(Fault.HANDLER_DIES)

    def ports(self, ports: Ports, process: Mortal) -> Ports:
        """The ports as a process has them that is subject to all this."""
        if not self.rates:
            return ports
        unreliable = _Sending(ports.queue, self) if self._strikes_messages else ports.queue
        return interposed(replace(ports, queue=unreliable), self._hook(process))

    @property
    def _strikes_messages(self) -> bool:
        return bool({Fault.DUPLICATE, Fault.DELAY, Fault.LOSS} & self.rates.keys())

    def _hook(self, process: Mortal) -> Callable[[Call, When], None]:
        def hook(call: Call, when: When) -> None:
            if process.is_dead:
                raise Crash
            match when:
                case When.BEFORE:
                    self._strike(process, call, Fault.CRASH_BEFORE, Fault.UNAVAILABLE)
                case When.DURING:
                    if self.hits(Fault.PARTIAL):
                        process.die()
                case When.AFTER:
                    self._strike(process, call, Fault.CRASH_AFTER, Fault.FATE_UNKNOWN)

        return hook

    def _strike(self, process: Mortal, call: Call, crash: Fault, silence: Fault) -> None:
        if self.hits(crash):
            process.die()
        if self.hits(silence):
            raise Unavailable(f"{call} did not answer")


def _named(names: str) -> frozenset[Fault]:
    if names in {"all", "none"}:
        return frozenset(_RATES) if names == "all" else frozenset()
    wanted = [name.strip() for name in names.split(",")]
    for name in wanted:
        if name not in KNOWN_FAULTS:
            known = ", ".join(KNOWN_FAULTS)
            raise Rejected(field="faults", value=name, reason=f"not all, none, or of: {known}")
    return frozenset(Fault(name) for name in wanted)


class _Sending:
    """A queue that loses, keeps back and doubles what is sent."""

    def __init__(self, queue: Queue, trouble: Trouble) -> None:
        self._queue, self._trouble = queue, trouble

    def hide(self, received: Sequence[Received], duration: timedelta) -> None:
        self._queue.hide(received, duration)

    def delete(self, received: Sequence[Received]) -> None:
        self._queue.delete(received)

    def waiting(self, queue: str) -> int:
        return self._queue.waiting(queue)

    def hand_out(self, items: Iterable[WorkItem], *, delay: timedelta = timedelta(0)) -> None:
        self._queue.hand_out(items, delay=delay)

    def send(self, outgoing: Sequence[Outgoing], *, now: datetime) -> None:
        for one in outgoing:
            if self._trouble.hits(Fault.LOSS):
                continue
            self._queue.send([one], now=self._sent_at(one, now))
            if self._trouble.hits(Fault.DUPLICATE):
                self._queue.send([one], now=now)

    def _sent_at(self, one: Outgoing, now: datetime) -> datetime:
        if not self._trouble.hits(Fault.DELAY):
            return now
        # What is sent as of earlier than now is visible that much later.
        late = timedelta(seconds=self._trouble.random.randint(1, _LONGEST_DELAY_S))
        return min(now, one.message.due_at) - late
