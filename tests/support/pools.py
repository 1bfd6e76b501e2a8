"""A world whose lanes have few workers: what an account's concurrency makes of real ones."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from lamplighter.core.buckets import ExecutionId, to_ms
from lamplighter.core.outcome import Succeeded
from lamplighter.memory import MemoryWorld
from lamplighter.ports import Ports
from lamplighter.services.execute import Claimed, begin, conclude, shrink
from lamplighter.services.partitions import do
from lamplighter.services.tick import tick

_STEP = timedelta(milliseconds=250)
_MINUTE_MS = 60_000


@dataclass(frozen=True, kw_only=True)
class Start:
    """A call of a handler: in which lane's worker, and when."""

    lane: str
    execution_id: ExecutionId
    at: datetime


@dataclass(kw_only=True)
class Pools:
    """Drives the real services; each lane runs so many jobs at once, and each takes as long."""

    world: MemoryWorld
    slots: Mapping[str, int]
    lasts: timedelta
    starts: list[Start] = field(default_factory=list)
    _busy: dict[str, list[tuple[datetime, Claimed]]] = field(default_factory=dict)

    @property
    def ports(self) -> Ports:
        """What the services run on."""
        return self.world.ports()

    def starts_of(self, id: ExecutionId) -> list[Start]:
        """Every call of an execution's handler."""
        return [start for start in self.starts if start.execution_id == id]

    def run_for(self, duration: timedelta) -> None:
        """Go on for so long, a quarter of a second at a time, with a tick each minute."""
        end = self.world.now() + duration
        while self.world.now() < end:
            self._step()
            before = self.world.now()
            self.world.pass_time(_STEP)
            if to_ms(before) // _MINUTE_MS != to_ms(self.world.now()) // _MINUTE_MS:
                self.decide()

    def decide(self) -> None:
        """A tick, and the work that is there for the deciding side."""
        tick(self.ports)
        for number, item in enumerate(self.world.queue.take_work()):
            do(self.ports, item, owner=f"{self.world.now()}-{number}")

    def _step(self) -> None:
        for lane, slots in self.slots.items():
            busy = [*self._still_busy(lane)]
            self._busy[lane] = busy
            if len(busy) < slots:
                self._take(lane, slots - len(busy))

    def _still_busy(self, lane: str) -> list[tuple[datetime, Claimed]]:
        going_on = []
        for until, claimed in self._busy.get(lane, []):
            if until > self.world.now():
                going_on.append((until, claimed))
            else:
                conclude(self.ports, claimed, Succeeded(result="null"))
        return going_on

    def _take(self, lane: str, limit: int) -> None:
        received = self.world.queue.receive(lane, limit)
        shrink(self.ports, received)
        for one in received:
            claimed = begin(self.ports, one, worker=f"{lane} worker")
            if isinstance(claimed, Claimed):
                now = self.world.now()
                self._busy[lane].append((now + self.lasts, claimed))
                id = claimed.execution.id
                self.starts.append(Start(lane=lane, execution_id=id, at=now))
