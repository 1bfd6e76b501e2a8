"""A running Lamplighter in virtual time: the tick, the partition work, workers, dead letters."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import assert_never

from lamplighter.core.buckets import ExecutionId, from_ms, to_ms
from lamplighter.core.lease import Kind, Work
from lamplighter.core.model import Token
from lamplighter.core.outcome import Outcome, Succeeded
from lamplighter.memory import MemoryWorld
from lamplighter.ports import Ports, Received
from lamplighter.services.dispatch import dispatch
from lamplighter.services.execute import Claimed, process, shrink
from lamplighter.services.sweep import sweep
from lamplighter.services.tick import tick
from lamplighter.services.undeliverable import undeliverable

_MINUTE_MS = 60_000


@dataclass(frozen=True, kw_only=True)
class Run:
    """One call of a handler."""

    execution_id: ExecutionId
    attempt: int
    token: Token
    due_at: datetime
    started_at: datetime


@dataclass(kw_only=True)
class System:
    """Drives the real services over a world, from event to event.

    `handler` plays every task; it may move the clock to take its time.
    """

    world: MemoryWorld
    handler: Callable[[Claimed], Outcome] = lambda _: Succeeded(result="null")
    runs: list[Run] = field(default_factory=list)
    ticking: bool = True
    _owners: int = 0

    @property
    def ports(self) -> Ports:
        """What the services of this system run on."""
        return self.world.ports()

    def run_for(self, duration: timedelta) -> None:
        """Let the system run for this long."""
        self.run_until(self.world.now() + duration)

    def run_until(self, end: datetime) -> None:
        """Go from event to event: a minute's tick, or a message becoming visible."""
        next_tick = _next_minute(self.world.now())
        while True:
            self.work()
            visible = self.world.queue.next_visible_at()
            now = min(next_tick, max(visible, self.world.now()) if visible else next_tick)
            if now > end:
                break
            self.world.clock.move_to(now)
            if now >= next_tick:
                next_tick = _next_minute(now)
                if self.ticking:
                    tick(self.ports)
        self.world.clock.move_to(end)

    def work(self) -> None:
        """Do all partition work that was handed out, and run all that is visible."""
        while self.world.queue.work:
            self._do(self.world.queue.work.pop(0))
        while batch := self.world.queue.receive():
            shrink(self.ports, batch)
            for received in batch:
                self._process(received)
        while self.world.queue.dead:
            undeliverable(self.ports, self.world.queue.dead.pop(0).message)

    def _do(self, work: Work) -> None:
        self._owners += 1
        owner = f"scheduler-{self._owners}"
        match work.kind:
            case Kind.DISPATCH:
                dispatch(self.ports, work.partition, owner=owner)
            case Kind.SWEEP:
                sweep(self.ports, work.partition, owner=owner)
            case other:
                assert_never(other)

    def _process(self, received: Received) -> None:
        process(self.ports, received, self.run, worker="worker")

    def run(self, claimed: Claimed) -> Outcome:
        """Play the task, and keep that it was called."""
        self.runs.append(
            Run(
                execution_id=claimed.execution.id,
                attempt=claimed.execution.attempt,
                token=claimed.token,
                due_at=claimed.received.message.due_at,
                started_at=self.world.now(),
            )
        )
        return self.handler(claimed)


def _next_minute(now: datetime) -> datetime:
    return from_ms((to_ms(now) // _MINUTE_MS + 1) * _MINUTE_MS)
