"""A whole Lamplighter in memory: the composition root of tests and of the simulator."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from lamplighter.core.forecast import Capacity
from lamplighter.core.lanes import Rules
from lamplighter.core.limits import DRAIN_PER_SECOND, PARKED_FOR
from lamplighter.core.quotas import Quotas
from lamplighter.memory.clock import KnownSkew, SeededChance, VirtualClock
from lamplighter.memory.ledger import MemoryLedger, OwnTables
from lamplighter.memory.notices import MemoryNotices
from lamplighter.memory.payloads import MemoryPayloads
from lamplighter.memory.permits import MemoryPermits
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
    shards: int = 4
    """Fewer than a stack's, as are its partitions: each is visited every minute."""
    partitions: int = 1
    drain_per_second: float = DRAIN_PER_SECOND
    quotas: Quotas = field(default_factory=Quotas)
    capacity: Capacity = field(default_factory=Capacity)
    lanes: Rules = field(default_factory=dict)
    tables: Tables = field(default_factory=Tables)
    counts: Counts = field(default_factory=Counts)
    queue: MemoryQueue = field(init=False)
    payloads: MemoryPayloads = field(init=False)
    own: OwnTables = field(default_factory=OwnTables)
    ledger: MemoryLedger = field(init=False)
    notices: MemoryNotices = field(default_factory=MemoryNotices)
    parked_for: timedelta = PARKED_FOR
    permits: MemoryPermits = field(default_factory=MemoryPermits)
    executions: MemoryExecutions = field(init=False)
    jobs: MemoryJobs = field(init=False)
    tally: MemoryTally = field(init=False)
    control: MemoryControl = field(init=False)

    def __post_init__(self) -> None:
        fair = frozenset(lane for lane, rules in self.lanes.items() if rules.fair)
        self.queue = MemoryQueue(clock=self.clock, fair=fair)
        self.tables.unreadable = self.counts.row_unreadable
        self.payloads = MemoryPayloads(clock=self.clock)
        self.ledger = MemoryLedger(self.tables, self.own)
        self.executions = MemoryExecutions(self.tables)
        self.jobs = MemoryJobs(self.tables)
        self.tally = MemoryTally(self.tables)
        self.control = MemoryControl(self.tables)

    def ports(self) -> Ports:
        """The ports of a host whose clock is right."""
        return Ports(
            clock=self.clock,
            clock_offset=KnownSkew(self.clock),
            chance=self.chance,
            executions=self.executions,
            jobs=self.jobs,
            tally=self.tally,
            control=self.control,
            payloads=self.payloads,
            ledger=self.ledger,
            permits=self.permits,
            queue=self.queue,
            telemetry=self.counts,
            shards=self.shards,
            partitions=self.partitions,
            drain_per_second=self.drain_per_second,
            quotas=self.quotas,
            capacity=self.capacity,
            lanes=self.lanes,
            parked_for=self.parked_for,
            notices=self.notices,
        )

    def now(self) -> datetime:
        """The true time."""
        return self.clock.now() - self.clock.skew

    def pass_time(self, duration: timedelta) -> None:
        """Let time go by with nothing running."""
        self.clock.sleep(duration)
