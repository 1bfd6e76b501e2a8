"""A running Lamplighter in virtual time: the tick, the partition work, workers, dead letters."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from lamplighter.core.buckets import ExecutionId, JobId, from_ms, to_ms
from lamplighter.core.lease import WorkItem
from lamplighter.core.limits import BEAT_EVERY
from lamplighter.core.model import Token
from lamplighter.core.outcome import Failed, Interrupted, Outcome, Succeeded, Withdrawn
from lamplighter.core.permits import Key
from lamplighter.core.retry import Failure
from lamplighter.core.retry import Kind as FailureKind
from lamplighter.memory import MemoryWorld
from lamplighter.ports import Ports, Received
from lamplighter.services.execute import Claimed, begin, conclude, shrink
from lamplighter.services.heartbeat import Heartbeats, Stop
from lamplighter.services.partitions import do
from lamplighter.services.tick import tick
from lamplighter.services.undeliverable import undeliverable

_MINUTE_MS = 60_000
_VISIT = timedelta(seconds=1)


@dataclass(frozen=True, kw_only=True)
class Run:
    """One call of a handler."""

    execution_id: ExecutionId
    job_id: JobId
    attempt: int
    token: Token
    run_at: datetime
    due_at: datetime
    """When its message was due: a try again, or a catch-up, later than its run_at."""
    started_at: datetime
    ended_at: datetime | None = None
    """When its handler returned or was stopped; None while it goes on."""


@dataclass(kw_only=True)
class _UnderWay:
    """A handler that takes its time: `heartbeat.Handling`."""

    claimed: Claimed
    number: int
    """Its place among the runs."""
    until: datetime
    next_beat: datetime
    kept: ExitStack
    why: Stop | None = None

    def stop(self, why: Stop) -> None:
        """Be asked to stop; the first reason stays."""
        self.why = self.why or why


@dataclass(kw_only=True)
class System:
    """Drives the real services over a world, from event to event.

    `handler` plays every task. It takes as long as `lasts` says, beside everything else, with
    a heartbeat; it stops when it is asked to.
    """

    world: MemoryWorld
    handler: Callable[[Claimed], Outcome] = lambda _: Succeeded(result="null")
    runs: list[Run] = field(default_factory=list)
    ticking: bool = True
    """Whether the deciding side is up: ticks come, and partition work is done."""
    ticks_come: bool = True
    """Whether ticks come while it is; else it goes on by the work that asks for itself."""
    lasts: Callable[[Claimed], timedelta] = lambda _: timedelta(0)
    over_limits: list[str] = field(default_factory=list)
    """Starts of which more ran at once than may (S0-K1)."""
    _under: dict[Key, set[Token]] = field(default_factory=lambda: defaultdict(set))
    _owners: int = 0
    _under_way: list[_UnderWay] = field(default_factory=list)
    _heartbeats: Heartbeats = field(init=False)

    def __post_init__(self) -> None:
        self._heartbeats = Heartbeats(self.ports)

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
            now = min([next_tick, *self._coming()])
            if now > end:
                break
            self.world.clock.move_to(now)
            if now >= next_tick:
                next_tick = _next_minute(now)
                if self.ticking and self.ticks_come:
                    tick(self.ports)
        self.world.clock.move_to(end)

    def work(self) -> None:
        """Do the partition work that was handed out, and run all that is visible."""
        self._go_on()
        for item in self.world.queue.take_work() if self.ticking else ():
            self._visit(item)
        while batch := self.world.queue.receive():
            shrink(self.ports, batch)
            for received in batch:
                self._process(received)
        while self.world.queue.dead:
            undeliverable(self.ports, self.world.queue.dead.pop(0).message)

    def _visit(self, item: WorkItem) -> None:
        """Do partition work, but not for long: nothing else goes on beside it here."""
        self._owners += 1
        until = self.world.now() + _VISIT
        do(
            self.ports,
            item,
            owner=f"scheduler-{self._owners}",
            time_left=lambda: self.world.now() < until,
        )

    def _coming(self) -> Iterator[datetime]:
        """When something happens next, beside the tick."""
        now, queue = self.world.now(), self.world.queue
        expected = [queue.next_visible_at(), queue.next_work_at() if self.ticking else None]
        yield from (max(at, now) for at in expected if at is not None)
        yield from (min(one.until, one.next_beat) for one in self._under_way)

    def _process(self, received: Received) -> None:
        claimed = begin(self.ports, received, worker="worker")
        if not isinstance(claimed, Claimed):
            return
        lasts = self.lasts(claimed)
        if lasts:
            self._start(claimed, lasts)
        else:
            conclude(self.ports, claimed, self.run(claimed))

    def _start(self, claimed: Claimed, lasts: timedelta) -> None:
        now = self.world.now()
        one = _UnderWay(
            claimed=claimed,
            number=len(self.runs),
            until=now + lasts,
            next_beat=now + BEAT_EVERY,
            kept=ExitStack(),
        )
        one.kept.enter_context(self._heartbeats.watch(claimed, one))
        self._under_way.append(one)
        self._note(claimed, ended_at=None)

    def _go_on(self) -> None:
        """Beat for what is under way, and end what is over."""
        self._heartbeats.tick()
        now, under_way = self.world.now(), self._under_way
        self._under_way = [one for one in under_way if one.why is None and one.until > now]
        for one in under_way:
            one.next_beat = now + BEAT_EVERY
            if one.why is not None or one.until <= now:
                self._end(one)

    def _end(self, one: _UnderWay) -> None:
        one.kept.close()
        self.runs[one.number] = replace(self.runs[one.number], ended_at=self.world.now())
        match one.why:
            case None:
                conclude(self.ports, one.claimed, self.handler(one.claimed))
            case Stop.CANCELLED:
                conclude(self.ports, one.claimed, Withdrawn(reason="cancelled on request"))
            case Stop.TIMEOUT:
                failure = Failure(kind=FailureKind.TIMEOUT, type="Timeout", message="too long")
                conclude(self.ports, one.claimed, Failed(failure=failure))
            case Stop.STOPPING:
                conclude(self.ports, one.claimed, Interrupted(reason="its worker had to end"))
            case Stop.LOST_LEASE:
                # Whatever it says would be refused.
                pass

    def run(self, claimed: Claimed) -> Outcome:
        """Play the task at once, and keep that it was called."""
        self._note(claimed, ended_at=self.world.now())
        return self.handler(claimed)

    def _note(self, claimed: Claimed, *, ended_at: datetime | None) -> None:
        self._count(claimed)
        self.runs.append(
            Run(
                execution_id=claimed.execution.id,
                job_id=claimed.execution.job_id,
                attempt=claimed.execution.attempt,
                token=claimed.token,
                run_at=claimed.execution.run_at,
                due_at=claimed.received.message.due_at,
                started_at=self.world.now(),
                ended_at=ended_at,
            )
        )

    def _count(self, claimed: Claimed) -> None:
        """Look how many run beside what starts, under each limit as it is at this instant.

        Those that started under it: what ran before a limit was made has no place there.
        """
        if not claimed.permits:
            return
        live = {run.token for run in self.runs if run.ended_at is None}
        for bound in claimed.permits:
            use = self.world.permits.held[bound.key]
            most = bound.most if use.limit is None else use.limit
            beside = len(live & self._under[bound.key])
            self._under[bound.key].add(claimed.token)
            if beside >= most:
                says = f"{claimed.execution.id} starts beside {beside} of {bound.key}"
                self.over_limits.append(f"over the limit: {says}, at {self.world.now()}")


def _next_minute(now: datetime) -> datetime:
    return from_ms((to_ms(now) // _MINUTE_MS + 1) * _MINUTE_MS)
