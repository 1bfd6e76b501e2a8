"""Workers whose handlers keep checkpoints, do steps once, and write to tables of their own."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from lamplighter import Context
from lamplighter.core.model import Execution
from lamplighter.core.outcome import Outcome
from lamplighter.core.retry import RetryPolicy
from lamplighter.memory import MemoryWorld, VirtualClock
from lamplighter.ports import Ports
from lamplighter.services import execute, timers
from lamplighter.services.execute import Claimed
from lamplighter.services.heartbeat import Heartbeats
from lamplighter.sim.system import System
from lamplighter.tasks.answers import ContextAnswers
from lamplighter.tasks.registry import Registry
from lamplighter.tasks.runner import TaskRunner
from tests.support.jobs import created, in_, new_job
from tests.support.own_table import MemoryOwnTable, one_more

START = datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)
DOOMED = "doomed"
PAGES = 2

UseCase = Callable[[Ports], object]
Handler = Callable[[None, Context], object]


@dataclass(kw_only=True)
class Works:
    """What handlers did: in their own table, and otherwise."""

    own: MemoryOwnTable = field(default_factory=MemoryOwnTable)
    pages: list[tuple[str, int]] = field(default_factory=list)
    charged: list[str] = field(default_factory=list)

    def with_its_end(self, payload: None, ctx: Context) -> None:
        """Page by page, a charge that is made once, and the counters with the end."""
        charge = self._charged(ctx)
        writes = [one_more(self.own, ctx.execution_id), one_more(self.own, "all")]
        ctx.complete_with(writes, result=charge)

    def on_its_own(self, payload: None, ctx: Context) -> object:
        """The same, but that the counters are moved before the handler returns."""
        charge = self._charged(ctx)
        self.own.take([one_more(self.own, ctx.execution_id)])
        return charge

    def _charged(self, ctx: Context) -> object:
        for page in range(ctx.state or 0, PAGES):
            self.pages.append((ctx.execution_id, page))
            ctx.checkpoint(page + 1)
        return ctx.once("charge", lambda: self._charge(ctx))

    def _charge(self, ctx: Context) -> str:
        self.charged.append(ctx.execution_id)
        return f"charge {len(self.charged)}"


def runner_on(ports: Ports, handler: Handler) -> TaskRunner:
    tasks = Registry()
    tasks.task("echo")(handler)
    return TaskRunner(tasks, Heartbeats(ports), ports.clock, answers=ContextAnswers(ports))


def working(
    works: Works, handler: Handler, *, copies: int = 0
) -> tuple[System, UseCase, Sequence[Execution]]:
    """Two executions whose messages, and copies of them, wait for a doomed worker."""
    world = MemoryWorld(clock=VirtualClock(START), shards=4, partitions=1)
    world.own.take = works.own.take
    system = System(world=world)
    system.run_for(timedelta(minutes=1))
    policy = RetryPolicy(base_seconds=3)
    rows = [
        created(system.ports, new_job(run_at=in_(system.ports, 5), retry=policy)).first
        for _ in range(2)
    ]
    for _ in range(copies):
        timers.send(system.ports, [timers.outgoing(row) for row in rows])
    world.pass_time(timedelta(seconds=6))
    others = runner_on(system.ports, handler)
    system.handler = others

    def use_case(ports: Ports) -> object:
        doomed = runner_on(ports, handler)

        def run(claimed: Claimed) -> Outcome:
            return doomed(claimed) if claimed.execution.worker == DOOMED else others(claimed)

        system.handler = run
        batch = world.queue.receive()
        execute.shrink(ports, batch)
        return [execute.process(ports, one, system.run, worker=DOOMED) for one in batch]

    return system, use_case, rows


def execute_that_ends_with_its_own_writes() -> tuple[System, UseCase]:
    works = Works()
    system, use_case, _ = working(works, works.with_its_end)
    return system, use_case


def execute_with_checkpoints_and_steps() -> tuple[System, UseCase]:
    works = Works()
    system, use_case, _ = working(works, works.on_its_own)
    return system, use_case


LEDGER_SCENARIOS = [execute_that_ends_with_its_own_writes, execute_with_checkpoints_and_steps]
