"""The deciding side as its requirements ask for it: who holds what, for how long, and where."""

import ast
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import lamplighter.services
from lamplighter.core.buckets import before
from lamplighter.core.errors import Unavailable
from lamplighter.core.lease import Held, Kind, Work
from lamplighter.core.lifecycle import State
from lamplighter.core.limits import LOOK_AHEAD, MAX_CLOCK_ERROR, PAGE_ROWS, PARTITION_LEASE
from lamplighter.memory import MemoryExecutions, MemoryWorld, VirtualClock
from lamplighter.ports import Page, Ports
from lamplighter.sim.faults import Call, When, interposed
from lamplighter.sim.invariants import violations
from lamplighter.sim.system import System
from tests.support import partition_work
from tests.support.jobs import created, every, in_, new_job

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
START = datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)
SERVICES = Path(lamplighter.services.__path__[0])


def a_system(*, shards: int = 4, partitions: int = 2) -> System:
    world = MemoryWorld(clock=VirtualClock(START), shards=shards, partitions=partitions)
    system = System(world=world)
    system.run_for(MINUTE)
    return system


def latest_start(system: System) -> timedelta:
    return max(run.started_at - run.due_at for run in system.runs)


def test_a_shard_whose_owner_is_gone_is_another_s_within_its_lease_and_a_tick() -> None:
    """S2-L1, S4-H4: nothing starts late for it, as dispatch is four minutes ahead."""
    system = a_system()
    for number in range(40):
        created(system.ports, new_job(run_at=in_(system.ports, 300 + 5 * number)))
    now = system.world.now()
    for partition in (0, 1):
        lease = system.ports.control.acquire(
            Work(partition=partition, kind=Kind.DISPATCH),
            owner="gone",
            now=now,
            until=now + PARTITION_LEASE,
            start=before(START),
        )
        assert not isinstance(lease, Held)
    partition_work.dispatch(system.ports, 0, owner="too early")
    assert len(system.world.queue) == 0
    system.run_for(10 * MINUTE)

    assert len(system.runs) == 40
    assert latest_start(system) <= SECOND
    assert [*violations(system)] == []


def test_what_is_far_lies_in_the_table_and_what_is_near_in_the_queue() -> None:
    """S0-T4, S4-D3: a delayed message is the wheel, so that no process has to remember a timer."""
    system = a_system()
    for number in range(100):
        created(system.ports, new_job(run_at=in_(system.ports, 200 + 60 * number)))
    waiting: list[int] = []
    for _ in range(100):
        system.run_for(MINUTE)
        waiting.append(len(system.world.queue))

    # The look-ahead, the margin, and the minute until the next tick.
    assert max(waiting) <= (LOOK_AHEAD + MINUTE) // MINUTE + 1
    assert len(system.runs) == 97


def test_a_dispatcher_holds_a_page_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """S0-T4: so its memory is bounded, however much is due; a runner in a container is the same."""
    pages: list[int] = []
    due = MemoryExecutions.due

    def seen(self: MemoryExecutions, minute: object, shards: object, **how: object) -> Page:
        page = due(self, minute, shards, **how)  # type: ignore[arg-type]
        pages.append(len(page.rows))
        return page

    system = a_system(partitions=1)
    at = in_(system.ports, 400)
    for _ in range(3 * PAGE_ROWS):
        created(system.ports, new_job(run_at=at))
    monkeypatch.setattr(MemoryExecutions, "due", seen)
    system.run_for(4 * MINUTE)

    assert sum(pages) >= 3 * PAGE_ROWS
    assert max(pages) <= PAGE_ROWS


@pytest.mark.parametrize("minutes", [2, 3])
def test_a_control_table_that_does_not_answer_for_a_while_makes_nothing_late(minutes: int) -> None:
    """S2-L3: nobody dispatches without a lease; what lies ahead was sent before."""
    system = a_system()
    created(system.ports, new_job(schedule=every("1 minute")))
    for number in range(30):
        created(system.ports, new_job(run_at=in_(system.ports, 60 + 20 * number)))
    until = system.world.now() + minutes * MINUTE
    refused: list[Call] = []

    def hook(call: Call, when: When) -> None:
        if call.port == "control" and when is When.BEFORE and system.world.now() < until:
            refused.append(call)
            raise Unavailable("the control table is down")

    class Blipped(System):
        @property
        def ports(self) -> Ports:
            return interposed(self.world.ports(), hook)

        def work(self) -> None:
            try:
                super().work()
            except Unavailable:
                super().work()

    blipped = Blipped(world=system.world)
    blipped.ticks_come = False
    blipped.run_until(until)
    blipped.ticks_come = True
    blipped.run_for(10 * MINUTE)

    assert refused
    assert len(blipped.runs) >= 40
    assert latest_start(blipped) <= SECOND
    assert [*violations(blipped)] == []


@pytest.mark.parametrize("slow", [True, False], ids=["the API's slow", "the API's fast"])
def test_clocks_that_are_off_by_what_is_allowed_make_nothing_late_or_early(*, slow: bool) -> None:
    """S0-X3: what one host takes for beyond the line another has passed; the margin is for both."""
    system = a_system()
    clock = system.world.clock
    off = -MAX_CLOCK_ERROR if slow else MAX_CLOCK_ERROR
    line = system.world.now() + LOOK_AHEAD
    clock.skew = -off
    for partition in (0, 1):
        partition_work.dispatch(system.ports, partition, owner="dispatcher")
    clock.skew = off
    for number in range(-20, 21):
        created(system.ports, new_job(run_at=line + number * SECOND / 10))
    clock.skew = timedelta(0)
    system.run_for(10 * MINUTE)

    assert len(system.runs) == 41
    assert latest_start(system) <= SECOND
    assert system.world.counts.events["recovered"] == 0
    assert [*violations(system)] == []


class Cut(System):
    """No message goes out until then."""

    until: datetime

    @property
    def ports(self) -> Ports:
        return interposed(self.world.ports(), self._cut)

    def _cut(self, call: Call, when: When) -> None:
        is_cut = self.world.now() < self.until
        if is_cut and when is When.BEFORE and (call.port, call.method) == ("queue", "send"):
            raise Unavailable("the ready queue is down")

    def work(self) -> None:
        """What fails is kept, and tried again with the next tick."""
        while True:
            try:
                return super().work()
            except Unavailable:
                continue


def test_while_the_ready_queue_is_down_what_is_due_accumulates_and_drains_at_its_rate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """S0-E3: an hour of it; then the oldest goes first, beside what is due, and nothing is lost."""
    world = MemoryWorld(clock=VirtualClock(START), shards=4, partitions=1, drain_per_second=2.0)
    system = Cut(world=world)
    system.until = START
    system.run_for(MINUTE)
    for number in range(600):
        created(system.ports, new_job(run_at=in_(system.ports, 300 + 5 * number)))
    for number in range(60):
        created(system.ports, new_job(run_at=in_(system.ports, 3900 + 10 * number)))
    back = system.until = system.world.now() + timedelta(hours=1)
    ages: list[timedelta] = []

    def dispatched(*, partition: int, sent: int, pages: int, age: timedelta) -> None:
        ages.append(age)

    monkeypatch.setattr(world.counts, "dispatched", dispatched)
    system.run_until(back)
    while_down = max(ages)
    system.run_for(30 * MINUTE)

    late = [run for run in system.runs if run.run_at <= back]
    rest = [run for run in system.runs if run.run_at > back]
    assert (len(late), len(rest)) == (600, 60)
    assert [run.run_at for run in late] == sorted(run.run_at for run in late)
    assert late[-1].started_at - late[0].started_at >= 600 / 2 * SECOND * 0.8
    assert max(run.started_at - run.due_at for run in rest) <= SECOND
    # What `DispatchBehind` goes off by.
    assert while_down > 50 * MINUTE
    assert [*violations(system)] == []


def test_a_chain_goes_on_though_no_run_of_it_ever_ends() -> None:
    """S4-H3: decided otherwise: dispatch arms the next occurrence, not the worker that ran one.

    So a run that is lost, or that lasts, breaks no chain, and those that may overlap do.
    """
    system = a_system()
    system.lasts = lambda _: timedelta(hours=1)
    created(system.ports, new_job(schedule=every("1 minute"), timeout=timedelta(minutes=14)))
    system.run_for(10 * MINUTE)

    assert len(system.runs) == 10
    assert {row.state for row in system.world.tables.executions.values() if row.started_at} == {
        State.RUNNING
    }


def test_a_second_message_is_dropped_and_counted() -> None:
    """S0-D2: a page that was done twice sends twice; the claim takes the first."""
    system = a_system(partitions=1)
    for number in range(5):
        created(system.ports, new_job(run_at=in_(system.ports, 300 + number)))
    system.world.pass_time(2 * MINUTE)
    partition_work.dispatch(system.ports, 0, owner="a")
    system.world.queue.duplicate()
    system.run_for(10 * MINUTE)

    assert Counter(run.execution_id for run in system.runs).most_common(1)[0][1] == 1
    assert system.world.counts.events["claim_lost"] == 5


DECIDING = ("dispatch", "layouts", "partitions", "sweep", "tick", "timers")
RUNNING = ("claim", "execute", "heartbeat", "look", "settling", "turns", "undeliverable")


@pytest.mark.parametrize("module", DECIDING)
def test_the_timer_layer_never_executes(module: str) -> None:
    """S1-H4: nothing that decides what is due imports what runs it."""
    found = imports(module)

    assert not found & {*RUNNING, "tasks", "runtime"}
    assert "claim" not in calls(module)


@pytest.mark.parametrize("module", RUNNING)
def test_the_ready_layer_never_decides_what_is_due(module: str) -> None:
    """S1-H4: nothing that runs an execution looks for one in the table."""
    assert not imports(module) & {"dispatch", "sweep", "tick", "partitions"}
    assert not {"due", "acquire", "advance"} & calls(module)


def imports(module: str) -> set[str]:
    """The last names of all that a service imports."""
    nodes = [*ast.walk(tree(module))]
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    from_ = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    names += [node.module or "" for node in from_]
    names += [alias.name for node in from_ for alias in node.names]
    return {name.rsplit(".", 1)[-1] for name in names}


def calls(module: str) -> set[str]:
    """The names of all methods that a service calls."""
    nodes: Sequence[ast.AST] = [*ast.walk(tree(module))]
    called = [node.func for node in nodes if isinstance(node, ast.Call)]
    return {func.attr for func in called if isinstance(func, ast.Attribute)}


def tree(module: str) -> ast.Module:
    return ast.parse((SERVICES / f"{module}.py").read_text(encoding="utf-8"))
