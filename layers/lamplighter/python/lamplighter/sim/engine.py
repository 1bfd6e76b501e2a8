"""Actors that take turns in virtual time, each until it waits: one seed, one history.

An actor is a greenlet, so it may wait inside any call, however deep. Nothing but `wait` lets
another have its turn. What is due at one instant goes in the order in which it was asked for.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from heapq import heappop, heappush
from random import Random

from greenlet import getcurrent, greenlet

from lamplighter.memory import VirtualClock
from lamplighter.ports import Outgoing
from lamplighter.sim.faults import Crash

NOTHING = timedelta(0)


@dataclass(kw_only=True)
class Host:
    """A machine, and what its wall clock is off by."""

    skew: timedelta = NOTHING


@dataclass(kw_only=True)
class Process:
    """Actors that live and die together, on one host."""

    host: Host = field(default_factory=Host)
    ends_at: datetime | None = None
    """When whoever runs it ends it; None: never."""
    frozen_until: datetime | None = None
    is_dead: bool = False


@dataclass(kw_only=True)
class Actor:
    """One thread of a process.

    Its chance is its own, so that what happens to others does not change what it draws.
    """

    name: str
    random: Random
    process: Process
    calls: int = 0
    """How many port calls it has made."""
    called_at: float = 0.0
    """When it made the last one, monotonic."""
    sent: list[Outgoing] = field(default_factory=list)
    """Its messages."""
    waiting: dict[str, int] = field(default_factory=dict)
    """How many messages it was told wait in each lane."""
    made: int = 0
    """How many jobs and executions there are by it."""
    reserved_at: datetime | None = None
    """When something was last counted as its owner's, before it is made."""
    has_failed: bool = False
    """Whether a call of it failed: what it was about then it may leave undone."""

    def reserves(self, now: datetime) -> None:
        """Something is counted by it."""
        self.reserved_at = now


Ended = Callable[[Actor, BaseException | None], None]
"""Told of each actor's end: by an error that it did not catch, or by none."""


class Engine:
    """Runs what is due, in order, and moves the clock."""

    def __init__(self, clock: VirtualClock, ended: Ended) -> None:
        self.clock = clock
        self._ended = ended
        self._due: list[tuple[datetime, int, Callable[[], object]]] = []
        self._numbers = itertools.count()
        self._until = clock.now()
        self.is_stopped = False
        self._hub = getcurrent()
        self._current: Actor | None = None

    @property
    def current(self) -> Actor:
        """Whose turn it is; raises LookupError outside of all actors' turns."""
        if self._current is None:
            raise LookupError("no actor has its turn")
        return self._current

    @property
    def is_busy(self) -> bool:
        """Whether it is anybody's turn."""
        return self._current is not None

    def at(self, instant: datetime, do: Callable[[], object]) -> None:
        """Have something done then, outside of all actors; it may not wait."""
        heappush(self._due, (instant, next(self._numbers), do))

    def spawn(
        self, actor: Actor, do: Callable[[Actor], object], after: timedelta = NOTHING
    ) -> None:
        """Begin an actor's life, in a while."""
        lives = greenlet(partial(self._live, actor, do), self._hub)
        self.at(self.clock.now() + after, partial(self._turn, actor, lives))

    def wait(self, duration: timedelta) -> None:
        """Let time go by for the actor whose turn it is, and others have theirs.

        Raises Crash when its process has ended meanwhile. A frozen process waits on.
        """
        actor, clock = self.current, self.clock
        self._wait_until(actor, clock.now() + duration)
        process = actor.process
        while process.frozen_until is not None and process.frozen_until > clock.now():
            self._wait_until(actor, process.frozen_until)
        if process.is_dead or (process.ends_at is not None and process.ends_at < clock.now()):
            raise Crash

    def run_until(self, end: datetime) -> None:
        """Do everything that is due by then, unless it is stopped on the way."""
        self._until = end
        while not self.is_stopped and self._due and self._due[0][0] <= end:
            instant, _, do = heappop(self._due)
            self.clock.move_to(instant)
            do()
        if not self.is_stopped:
            self.clock.move_to(end)

    def stop(self) -> None:
        """Do nothing more, whatever is due: nobody has another turn after this one."""
        self.is_stopped = True

    def _wait_until(self, actor: Actor, wake: datetime) -> None:
        is_next = wake <= self._until and not self.is_stopped
        if is_next and (not self._due or self._due[0][0] > wake):
            # Nobody else would have a turn before: the same as below, for less.
            self.clock.move_to(wake)
            return
        self.at(wake, partial(self._turn, actor, getcurrent()))
        self._hub.switch()

    def _turn(self, actor: Actor, lives: greenlet) -> None:
        self._current = actor
        lives.switch()
        self._current = None

    def _live(self, actor: Actor, do: Callable[[Actor], object]) -> None:
        error: BaseException | None = None
        try:
            do(actor)
        except (Exception, Crash) as raised:  # noqa: BLE001 -- whatever it was, it is this actor's end
            error = raised
        self._ended(actor, error)
