"""Drives the real services over a world in virtual time, and skips the time in which nothing is.

What is skipped are minutes in which dispatch and the sweep would have found empty buckets and
moved their watermarks: they are moved here. Nobody's decision is taken in place of a service's.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from heapq import heappop, heappush
from typing import Final

from lamplighter.core.buckets import (
    ExecutionId,
    JobId,
    Minute,
    Position,
    before,
    body_of,
    execution_at,
    instant_of,
    minute_of,
    start_of,
    through,
)
from lamplighter.core.errors import Unavailable
from lamplighter.core.lease import Grant, Kind, WorkItem
from lamplighter.core.lifecycle import State
from lamplighter.core.limits import BEAT_EVERY, LOOK_AHEAD, SWEEP_AFTER
from lamplighter.core.model import Execution, Message, Pointer, PointerKind, Watch
from lamplighter.core.notices import is_owed
from lamplighter.core.outcome import Failed, Outcome, Parked
from lamplighter.core.timing import line
from lamplighter.memory import MemoryWorld, Tables
from lamplighter.ports import Ports, Received
from lamplighter.services.execute import Claimed, begin, conclude, shrink
from lamplighter.services.heartbeat import Heartbeats, Stop
from lamplighter.services.partitions import do
from lamplighter.services.tick import tick
from lamplighter.services.undeliverable import undeliverable
from lamplighter.sim.decisions import Fault
from lamplighter.sim.faults import Crash
from lamplighter.tasks.answers import ContextAnswers
from lamplighter.tasks.calling import Terms, declared, of_task, stopped
from lamplighter.tasks.context import StopSignal
from lamplighter.tasks.registry import AnyTask, Registry
from lamplighter.tasks.runner import context_of
from lamplighter.testing.trouble import Moment, Mortal, Part, Trouble

_MINUTE: Final = timedelta(minutes=1)
_TICK_MS: Final = timedelta(milliseconds=1)
_VISIT: Final = timedelta(seconds=1)
_NOTHING: Final = timedelta(0)


@dataclass(frozen=True, kw_only=True)
class Run:
    """One call of a handler."""

    task: str
    job_id: JobId
    execution_id: ExecutionId
    attempt: int
    scheduled_for: datetime
    due_at: datetime
    """When this try was due."""
    started_at: datetime
    ended_at: datetime | None = None
    """When it returned, was stopped, or its worker died; None while it goes on."""
    outcome: str | None = None
    """What came of it: `Succeeded`, `Failed`, …; None where its worker died or it goes on."""
    error: str | None = None
    """Of one that failed: the error's class and message."""


class Agenda(Tables):
    """Tables that know when dispatch and the sweep have something to do next."""

    def __init__(self) -> None:
        super().__init__()
        self.unsent: list[Position] = []
        """A heap: places that dispatch may not have come to."""
        self.unswept: list[Position] = []
        """A heap: places that the sweep may not have come to."""

    def make(self, row: Execution) -> Execution:
        """As of all tables; noted for both."""
        heappush(self.unsent, body_of(row.id))
        heappush(self.unswept, body_of(row.id))
        return super().make(row)

    def point(self, pointer: Pointer | Watch) -> None:
        """As of all tables; noted for whoever it is for."""
        heappush(self.unswept, pointer.position)
        if isinstance(pointer, Pointer) and pointer.kind is PointerKind.RETRY:
            heappush(self.unsent, pointer.position)
        super().point(pointer)


class _Signal(StopSignal):
    """A handler's wait lets virtual time go by, under a heartbeat, and nothing else happens."""

    def __init__(self, world: MemoryWorld, heartbeats: Heartbeats) -> None:
        super().__init__(world.clock.monotonic)
        self._world, self._heartbeats = world, heartbeats

    def wait(self, seconds: float) -> bool:
        until = self._world.now() + timedelta(seconds=seconds)
        while self.why is None and (left := until - self._world.now()) > _NOTHING:
            self._world.pass_time(min(left, BEAT_EVERY / 2))
            self._heartbeats.tick()
        return self.why is not None


@dataclass(kw_only=True)
class _UnderWay:
    """A handler that has been called, and takes its time."""

    claimed: Claimed
    task: AnyTask
    process: Mortal
    number: int
    outcome: Outcome
    signal: _Signal
    until: datetime
    next_beat: datetime
    kept: ExitStack


@dataclass(kw_only=True)
class Stage:
    """One host of everything: ticks, partition work, dead letters, and workers without number."""

    world: MemoryWorld
    agenda: Agenda
    tasks: Registry
    trouble: Trouble
    lasts: dict[str, timedelta] = field(default_factory=dict)
    """How long a task takes, by name; a call of any other takes no time."""
    runs: list[Run] = field(default_factory=list)
    ticks: int = 0
    _workers: int = 0
    _under_way: list[_UnderWay] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._ports = self.world.ports()
        self._heartbeats = Heartbeats(self._ports)

    def run_until(self, end: datetime) -> None:
        """Go from event to event, whichever comes next."""
        while True:
            self._go_on()
            self._visit_what_is_due()
            self._receive()
            coming = min(self._coming())
            if coming > end:
                break
            self.world.clock.move_to(coming)
            if coming == self._next_tick:
                self._tick()
        self.world.clock.move_to(end)

    # What comes next.

    def _coming(self) -> Iterator[datetime]:
        now, queue = self.world.now(), self.world.queue
        self._next_tick = self._tick_at(now)
        yield self._next_tick
        if not self.trouble.is_out(Part.WORKERS) and (at := queue.next_visible_at()) is not None:
            yield max(at, now)
        if not self.trouble.is_out(Part.SCHEDULER) and (at := queue.next_work_at()) is not None:
            yield max(at, now)
        yield from (min(one.until, one.next_beat) for one in self._under_way)

    def _tick_at(self, now: datetime) -> datetime:
        """The first minute from now on in which a tick finds something to do."""
        needed = max(now + _TICK_MS, min(self._needed(), default=now + timedelta(days=1)))
        minute = start_of(minute_of(needed))
        return minute if minute == needed else minute + _MINUTE

    def _needed(self) -> Iterator[datetime]:
        for kind in Kind:
            at = self._needed_by(kind)
            if at is not None:
                yield at

    def _needed_by(self, kind: Kind) -> datetime | None:
        """When work of this kind has something to do; None: not as far as anybody knows."""
        grant = self._grant(kind)
        if grant is None or grant.intent is not None or grant.backlog is not None:
            return self.world.now()
        first = self._first_to_come(kind, grant.watermark)
        if first is None:
            return None
        if kind is Kind.DISPATCH:
            return instant_of(first) - LOOK_AHEAD
        return start_of(Minute(minute_of(instant_of(first)) + 1)) + SWEEP_AFTER

    def _first_to_come(self, kind: Kind, watermark: Position) -> Position | None:
        """The first row beyond a watermark that work of this kind has something to do with."""
        if kind is Kind.DISPATCH:
            return _first(self.agenda.unsent, watermark)
        while (first := _first(self.agenda.unswept, watermark)) and self._is_over(first):
            heappop(self.agenda.unswept)
        return first

    def _grant(self, kind: Kind) -> Grant | None:
        leases = self.agenda.leases.items()
        return next((lease.grant for work, lease in leases if work.kind is kind), None)

    def _is_over(self, position: Position) -> bool:
        """Whether the sweep would find nothing to do for a row: it never was in any trouble."""
        row = self.agenda.executions.get(execution_at(position))
        if row is None or self.trouble.has_been or position in self.agenda.pointers:
            return False
        return row.is_final and not is_owed(row) and row.state is State.SUCCEEDED

    # Ticks and partition work.

    def _tick(self) -> None:
        if self.trouble.is_out(Part.SCHEDULER) or self.trouble.hits(Fault.TICK_MISSING):
            return
        self._pass_over_what_is_empty()
        self.ticks += 1
        try:
            tick(self.trouble.ports(self._ports, Mortal()))
        except (Crash, Unavailable):
            return
        self._visit_what_is_due()
        # The next tick does what these were armed for: with it, they are void.
        now, work = self.world.now(), self.world.queue.work
        self.world.queue.work = [one for one in work if one[0] <= now]

    def _pass_over_what_is_empty(self) -> None:
        """Move the watermarks as those ticks would have that were not made."""
        last = self.world.now() - _MINUTE
        reached = {
            Kind.DISPATCH: through(line(last)),
            Kind.SWEEP: before(start_of(minute_of(last - SWEEP_AFTER))),
        }
        for work, lease in self.agenda.leases.items():
            grant = lease.grant
            if grant.intent is not None or grant.backlog is not None:
                continue
            first = self._first_to_come(work.kind, grant.watermark)
            empty_to = reached[work.kind]
            if first is not None:
                empty_to = min(empty_to, before(instant_of(first)))
            moved = replace(grant, watermark=max(grant.watermark, empty_to))
            self.agenda.leases[work] = replace(lease, grant=moved)

    def _visit_what_is_due(self) -> None:
        if self.trouble.is_out(Part.SCHEDULER):
            return
        for item in self.world.queue.take_work():
            if item.armed_by is not None or self._calls_for(item):
                self._visit(item)

    def _calls_for(self, item: WorkItem) -> bool:
        needed = self._needed_by(item.work.kind)
        return needed is not None and needed <= self.world.now()

    def _visit(self, item: WorkItem) -> None:
        self._workers += 1
        until = self.world.now() + _VISIT
        try:
            do(
                self.trouble.ports(self._ports, Mortal()),
                item,
                owner=f"scheduler-{self._workers}",
                time_left=lambda: self.world.now() < until,
            )
        except (Crash, Unavailable):
            # As a function's invocation that failed: its message comes back.
            self.world.queue.hand_out([item], delay=_MINUTE)

    # Workers.

    def _receive(self) -> None:
        if self.trouble.is_out(Part.WORKERS):
            return
        while batch := self.world.queue.receive():
            for received in batch:
                if self.trouble.hits(Fault.REDRIVE):
                    self.world.queue.delete([received])
                    self._bury(received.message)
                else:
                    self._work(received)
        while self.world.queue.dead:
            self._bury(self.world.queue.dead.pop(0).message)

    def _bury(self, message: Message) -> None:
        undeliverable(self._ports, message)

    def _work(self, received: Received) -> None:
        process = Mortal()
        ports = self.trouble.ports(self._ports, process)
        self._workers += 1
        try:
            shrink(self._ports, [received])
            claimed = begin(ports, received, worker=f"worker-{self._workers}")
            if isinstance(claimed, Claimed):
                self._call(claimed, ports, process)
        except (Crash, Unavailable):
            # Whoever receives it next finds the row as it was left.
            return

    def _call(self, claimed: Claimed, ports: Ports, process: Mortal) -> None:
        name = claimed.spec.task
        if self.trouble.kills(name, Moment.BEFORE):
            process.die()
        task = self.tasks.find(name, claimed.spec.task_version)
        if task is None:
            version = claimed.spec.task_version
            conclude(ports, claimed, Parked(reason=f"no version {version} of {name!r} is here"))
            return
        signal, number = _Signal(self.world, self._heartbeats), self._note(claimed)
        terms = Terms(payload=claimed.payload, timeout=claimed.spec.timeout, signal=signal)
        with ExitStack() as kept:
            kept.enter_context(self._heartbeats.watch(claimed, signal))
            kept.callback(self._note_end, number)
            context = context_of(
                claimed,
                now=self.world.now(),
                signal=signal,
                answers=ContextAnswers(ports),
            )
            outcome = declared(task, of_task(task, context, terms))
            if process.is_dead or self.trouble.kills(name, Moment.AFTER):
                process.die()
            now, lasts = self.world.now(), self.lasts.get(name, _NOTHING)
            if lasts:
                under_way = _UnderWay(
                    claimed=claimed,
                    task=task,
                    process=process,
                    number=number,
                    outcome=outcome,
                    signal=signal,
                    until=now + lasts,
                    next_beat=now + BEAT_EVERY,
                    kept=kept.pop_all(),
                )
                self._under_way.append(under_way)
                return
        self._end(claimed, ports, number, outcome)

    def _end(self, claimed: Claimed, ports: Ports, number: int, outcome: Outcome) -> None:
        failure = outcome.failure if isinstance(outcome, Failed) else None
        self.runs[number] = replace(
            self.runs[number],
            outcome=type(outcome).__name__,
            error=f"{failure.type}: {failure.message}" if failure else None,
        )
        conclude(ports, claimed, outcome)

    def _go_on(self) -> None:
        """Beat for what is under way, and end what is over."""
        if not self._under_way:
            return
        self._heartbeats.tick()
        now, under_way = self.world.now(), self._under_way
        self._under_way = []
        for one in under_way:
            one.next_beat = now + BEAT_EVERY
            if one.until > now and one.signal.why is None:
                self._under_way.append(one)
            else:
                self._end_of(one)

    def _end_of(self, one: _UnderWay) -> None:
        one.kept.close()
        why = one.signal.why
        terms = Terms(
            payload=one.claimed.payload, timeout=one.claimed.spec.timeout, signal=one.signal
        )
        outcome = one.outcome
        if why is not None:
            outcome = declared(one.task, stopped(terms, "the rehearsal stopped it"))
        if why is Stop.LOST_LEASE:
            # Whatever it says would be refused.
            return
        try:
            self._end(
                one.claimed, self.trouble.ports(self._ports, one.process), one.number, outcome
            )
        except (Crash, Unavailable):
            return

    def _note(self, claimed: Claimed) -> int:
        row = claimed.execution
        self.runs.append(
            Run(
                task=claimed.spec.task,
                job_id=row.job_id,
                execution_id=row.id,
                attempt=row.attempt,
                scheduled_for=row.scheduled_for,
                due_at=max(row.run_at, claimed.received.message.due_at),
                started_at=self.world.now(),
            )
        )
        return len(self.runs) - 1

    def _note_end(self, number: int) -> None:
        self.runs[number] = replace(self.runs[number], ended_at=self.world.now())


def _first(places: list[Position], watermark: Position) -> Position | None:
    """The first place that lies beyond the watermark; those before it are forgotten."""
    while places and places[0] <= watermark:
        heappop(places)
    return places[0] if places else None
