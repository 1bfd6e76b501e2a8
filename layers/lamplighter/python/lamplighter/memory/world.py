"""A whole Lamplighter in memory: the composition root of tests and of the simulator."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from lamplighter.core.limits import DEFAULT_PARTITIONS, DEFAULT_SHARDS
from lamplighter.core.quotas import Quotas
from lamplighter.memory.clock import SeededChance, VirtualClock
from lamplighter.memory.payloads import MemoryPayloads
from lamplighter.memory.queue import MemoryQueue
from lamplighter.memory.stores import MemoryControl, MemoryExecutions, MemoryJobs, Tables
from lamplighter.memory.tally import MemoryTally
from lamplighter.memory.telemetry import Counts
from lamplighter.ports import Ports


@dataclass(kw_only=True)
class MemoryWorld:
    """Tables, a queue and a clock; `ports()` gives a host's view of them."""

    clock: VirtualClock = field(default_factory=VirtualClock)
    chance: SeededChance = field(default_factory=SeededChance)
    shards: int = DEFAULT_SHARDS
    partitions: int = DEFAULT_PARTITIONS
    quotas: Quotas = field(default_factory=Quotas)
    tables: Tables = field(default_factory=Tables)
    counts: Counts = field(default_factory=Counts)
    queue: MemoryQueue = field(init=False)
    payloads: MemoryPayloads = field(init=False)

    def __post_init__(self) -> None:
        self.queue = MemoryQueue(clock=self.clock)
        self.payloads = MemoryPayloads(clock=self.clock)

    def ports(self) -> Ports:
        """The ports of a host whose clock is right."""
        return Ports(
            clock=self.clock,
            chance=self.chance,
            executions=MemoryExecutions(self.tables),
            jobs=MemoryJobs(self.tables),
            tally=MemoryTally(self.tables),
            control=MemoryControl(self.tables),
            payloads=self.payloads,
            queue=self.queue,
            telemetry=self.counts,
            shards=self.shards,
            partitions=self.partitions,
            quotas=self.quotas,
        )

    def now(self) -> datetime:
        """The true time."""
        return self.clock.now() - self.clock.skew

    def pass_time(self, duration: timedelta) -> None:
        """Let time go by with nothing running."""
        self.clock.sleep(duration)
