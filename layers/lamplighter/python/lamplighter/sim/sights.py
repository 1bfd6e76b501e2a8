"""What is looked at in every step of an exploration: each write of a row, each call of a handler.

It is all in values that can be put back, as the world is: there is one for every state.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from lamplighter.core.buckets import ExecutionId, JobId
from lamplighter.core.lifecycle import State
from lamplighter.core.limits import TAKE_OVER_GRACE, WORKER_LEASE
from lamplighter.core.model import Execution, OverlapPolicy, Token
from lamplighter.core.permits import Key
from lamplighter.memory import MemoryWorld
from lamplighter.ports import Received
from lamplighter.services.execute import Claimed
from lamplighter.sim.system import Run
from lamplighter.sim.watch import illegal

_HELD_S: Final = (WORKER_LEASE - TAKE_OVER_GRACE).total_seconds()


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """A handler that was called and has not returned, and until when it may go on (P9)."""

    execution_id: ExecutionId
    job_id: JobId
    token: Token
    receipt: str
    """Of the message that its worker has."""
    limits: frozenset[Key]
    """What it has places of."""
    held_until: float
    """Monotonic."""


@dataclass(kw_only=True)
class Sights:
    """Looks at everything that happens in a world."""

    world: MemoryWorld
    live: dict[Token, Live] = field(default_factory=dict)
    runs: dict[Token, Run] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        rows = _Rows(self)
        dict.update(rows, self.world.tables.executions)
        self.world.tables.executions = rows

    def put_back(self, live: Sequence[Live], runs: Sequence[Run]) -> None:
        """Go on from what was seen at another time."""
        self.live = {one.token: one for one in live}
        self.runs = {run.token: run for run in runs}

    def begins(self, claimed: Claimed) -> None:
        """A handler is called now."""
        row, now = claimed.execution, self.world.now()
        self.broken += self._out_of_turn(claimed)
        self.live[claimed.token] = Live(
            execution_id=row.id,
            job_id=row.job_id,
            token=claimed.token,
            receipt=claimed.received.receipt,
            limits=frozenset(bound.key for bound in claimed.permits),
            held_until=claimed.claimed_at + _HELD_S,
        )
        self.runs[claimed.token] = Run(
            execution_id=row.id,
            job_id=row.job_id,
            attempt=row.attempt,
            token=claimed.token,
            run_at=row.run_at,
            due_at=claimed.received.message.due_at,
            started_at=now,
        )

    def goes_on(self, token: Token) -> None:
        """A handler was just looked after, and nobody asked it to stop."""
        one = self.live.get(token)
        if one is not None and one.held_until < self.world.clock.monotonic():
            says = f"{one.execution_id} goes on though it may have lost its lease"
            self.broken.append(f"one live try: {says}")

    def ends(self, token: Token) -> None:
        """Its handler has returned, or its process is dead."""
        if self.live.pop(token, None):
            self.runs[token] = replace(self.runs[token], ended_at=self.world.now())

    def dies(self, receipt: str) -> None:
        """The process of whoever has a message is dead."""
        for token in [token for token, one in self.live.items() if one.receipt == receipt]:
            self.ends(token)

    def extended(self, token: Token, *, asked_at: float) -> None:
        """A beat got through that was sent then."""
        if one := self.live.get(token):
            self.live[token] = replace(one, held_until=asked_at + _HELD_S)

    def deleted(self, who: str, received: Sequence[Received]) -> None:
        """A worker deletes messages: whatever they were for, it is not at it any more."""
        for one in received:
            row = self.world.tables.executions.get(one.message.execution_id)
            is_held = row is not None and row.state is State.RUNNING and row.deferral is None
            if row is not None and is_held and row.worker == who:
                says = f"{who} deletes the message of {row.id}, which it holds"
                self.broken.append(f"the outcome comes before the ack: {says}")

    def written(self, before: Execution | None, after: Execution) -> None:
        """A row is written."""
        now = self.world.now()
        if before is None:
            if after.state is not State.SCHEDULED:
                self.broken.append(f"rows are legal: {after.id} is made {after.state}")
        elif why := illegal(before, after):
            self.broken.append(f"rows are legal: {after.id} {why}")
        elif before.token is not None and after.token not in {None, before.token}:
            lease = before.lease_until
            if lease is not None and lease + TAKE_OVER_GRACE > now:
                says = f"{after.id} is taken over, held until {lease}"
                self.broken.append(f"one live try: {says}")
        elif after.state is State.RUNNING and (before.next_run_at or now) > now:
            says = f"try {after.attempt} of {after.id} is claimed, due {before.next_run_at}"
            self.broken.append(f"never early: {says}")

    def _out_of_turn(self, claimed: Claimed) -> Iterator[str]:
        row, now = claimed.execution, self.world.now()
        due = max(row.run_at, claimed.received.message.due_at)
        if now < due:
            yield f"never early: {row.id} starts at {now}, due {due}"
        job = self.world.tables.jobs.get(row.job_id)
        may_overlap = job is None or job.overlap is OverlapPolicy.ALLOW
        live = [one for one in self.live.values() if self._is_held(one)]
        for one in live:
            if one.execution_id == row.id:
                yield f"one live try: {row.id} starts beside itself at {now}"
            elif one.job_id == row.job_id and not may_overlap:
                yield f"no overlap: {row.id} starts beside {one.execution_id} at {now}"
        for bound in claimed.permits:
            own = self.world.permits.held[bound.key].limit
            most = bound.most if own is None else own
            beside = [one for one in live if bound.key in one.limits]
            if len(beside) >= most:
                says = f"{row.id} starts beside {len(beside)} of {bound.key}, {most} may"
                yield f"never over a limit: {says}"

    def _is_held(self, one: Live) -> bool:
        return self.world.clock.monotonic() <= one.held_until


class _Rows(dict[ExecutionId, Execution]):
    """The table of executions; each write of it is looked at."""

    def __init__(self, sights: Sights) -> None:
        super().__init__()
        self._sights = sights

    def __setitem__(self, id: ExecutionId, row: Execution) -> None:
        self._sights.written(self.get(id), row)
        super().__setitem__(id, row)
