"""A batch: side by side, each message on its own, and no handler outlives its claim."""

import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any, NoReturn

import pytest

from lamplighter import Context, Permanent
from lamplighter.core.buckets import ExecutionId
from lamplighter.core.errors import Unavailable
from lamplighter.core.lifecycle import State
from lamplighter.core.limits import MAX_CLOCK_ERROR, WORKER_LEASE
from lamplighter.core.model import Execution
from lamplighter.core.retry import Kind, RetryPolicy
from lamplighter.memory import MemoryWorld
from lamplighter.ports import Ports
from lamplighter.runtime.batch import NEEDED, BatchRunner
from lamplighter.runtime.crew import EXIT_HUNG
from lamplighter.services.heartbeat import Heartbeats, Stop
from lamplighter.sim.faults import Call, Hook, When, interposed
from lamplighter.tasks.registry import Registry
from lamplighter.tasks.runner import TaskRunner
from tests.support.claims import submitted

AMPLE = timedelta(seconds=900)
SOON = 10.0
"""Seconds of real time after which a test that hangs fails."""


class Ended(BaseException):
    """What the end of the process is in a test."""


class Bench:
    """A worker on memory ports, and a batch of jobs for it."""

    def __init__(self) -> None:
        self.world = MemoryWorld()
        self.tasks = Registry()
        self.exit_codes: list[int] = []
        self.released = threading.Event()

    def task(self, name: str) -> Callable[[Callable[[Any, Context], object]], object]:
        return self.tasks.task(name)

    def submit(self, *names: str, retry: RetryPolicy | None = None) -> list[ExecutionId]:
        """Jobs of these tasks, due now; what is to overrun has a minute, the others ten."""
        return [
            submitted(
                self.world,
                task=name,
                retry=retry,
                timeout=timedelta(minutes=1 if name in {"hang", "polite"} else 10),
            ).first.id
            for name in names
        ]

    def run(self, *, ports: Ports | None = None, time_left: timedelta = AMPLE) -> set[str]:
        """Receive what is visible and run it; returns the executions whose messages are kept."""
        ports = ports or self.world.ports()
        heartbeats = Heartbeats(ports)
        runner = BatchRunner(
            ports=ports,
            runner=TaskRunner(self.tasks, heartbeats, self.world.clock),
            heartbeats=heartbeats,
            end_process=self.end_process,
        )
        batch = self.world.queue.receive()
        kept = runner.run(batch, worker="worker-1", time_left=lambda: time_left)
        return {one.message.execution_id for one in batch if one.receipt in kept}

    def end_process(self, code: int) -> NoReturn:
        self.exit_codes.append(code)
        raise Ended

    def row(self, id: ExecutionId) -> Execution:
        row = self.world.ports().executions.get(id)
        assert row is not None
        return row

    def state(self, id: ExecutionId) -> State:
        return self.row(id).state

    def pass_time(self, seconds: float) -> None:
        """Let time go by, and every beat that falls into it come through."""
        whole, rest = divmod(seconds, 10)
        for _ in range(int(whole)):
            self.world.pass_time(timedelta(seconds=10))
            until(self.all_have_beaten)
        self.world.pass_time(timedelta(seconds=rest))

    def all_have_beaten(self) -> bool:
        due = self.world.now() + WORKER_LEASE
        rows = [row for row in self.world.tables.executions.values() if row.lease_until]
        return all(row.lease_until == due for row in rows)

    def hang(self, payload: None, ctx: Context) -> None:
        """Run past the time-out, and take no notice of it."""
        self.pass_time(61)
        until(lambda: ctx.signal.asked_at(Stop.TIMEOUT) is not None)
        self.pass_time(6)
        self.released.wait(SOON)


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SOON
    while not holds():
        assert time.monotonic() < deadline, "waited for too long"
        time.sleep(0.005)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    # A beat is due every ten seconds of virtual time, which pass at once.
    monkeypatch.setattr("lamplighter.runtime.crew.LOOK_EVERY_S", 0.01)
    bench = Bench()
    bench.task("quick")(lambda payload, ctx: "done")
    bench.task("hang")(bench.hang)
    yield bench
    bench.released.set()


def test_ten_jobs_run_side_by_side(bench: Bench) -> None:
    together = threading.Barrier(10)
    bench.task("meet")(lambda payload, ctx: together.wait(SOON))
    ids = bench.submit(*["meet"] * 10)

    kept = bench.run()

    assert kept == set()
    assert {bench.state(id) for id in ids} == {State.SUCCEEDED}
    assert len(bench.world.queue) == 0


def test_what_has_finished_is_deleted_while_its_neighbour_runs(bench: Bench) -> None:
    """S1-Q3."""

    @bench.task("slow")
    def slow(payload: None, ctx: Context) -> None:
        until(lambda: len(bench.world.queue) == 1)

    ids = bench.submit("slow", "quick", "quick")

    assert bench.run() == set()
    assert {bench.state(id) for id in ids} == {State.SUCCEEDED}


def test_the_batch_is_shrunk_to_the_lease_before_anything_runs(bench: Bench) -> None:
    """S1-W2, S4-L1."""
    hidden_until = []

    @bench.task("look")
    def look(payload: None, ctx: Context) -> None:
        hidden_until.append(bench.world.queue.next_visible_at())

    bench.submit("look")
    now = bench.world.now()

    bench.run()

    assert hidden_until == [now + WORKER_LEASE]


def test_a_job_that_fails_costs_its_neighbours_nothing(bench: Bench) -> None:
    @bench.task("fail")
    def fail(payload: None, ctx: Context) -> None:
        raise Permanent("no such customer")

    failed, done = bench.submit("fail", "quick")

    # Both have their outcome: neither message is needed any more.
    assert bench.run() == set()
    assert (bench.state(failed), bench.state(done)) == (State.FAILED, State.SUCCEEDED)


def test_a_message_whose_execution_is_held_elsewhere_is_kept(bench: Bench) -> None:
    held, free = bench.submit("quick", "quick")
    now = bench.world.now()
    bench.world.ports().executions.claim(
        held,
        attempt=1,
        token=bench.world.chance.token(),
        worker="worker-2",
        now=now,
        lease_until=now + WORKER_LEASE,
    )

    assert bench.run() == {held}
    assert (bench.state(held), bench.state(free)) == (State.RUNNING, State.SUCCEEDED)


def failing(method: str, error: Exception, *, times: int = 1_000) -> Hook:
    """A hook that makes the first calls of a method raise."""
    left = iter(range(times))

    def hook(call: Call, when: When) -> None:
        if call.method == method and when is When.BEFORE and next(left, None) is not None:
            raise error

    return hook


@pytest.mark.parametrize("error", [Unavailable("no answer"), KeyError("a bug")])
def test_an_error_in_one_message_keeps_it_and_its_neighbours_go_on(
    bench: Bench, error: Exception
) -> None:
    """S1-Q3."""
    ids = bench.submit("quick", "quick", "quick")
    ports = interposed(bench.world.ports(), failing("claim", error, times=1))

    kept = bench.run(ports=ports)

    (broken,) = [id for id in ids if id in kept]
    states = {id: bench.state(id) for id in ids}
    assert states.pop(broken) is State.SCHEDULED
    assert set(states.values()) == {State.SUCCEEDED}
    assert bench.world.counts.events[f"broke {type(error).__name__}"] == 1


@pytest.mark.parametrize("skew", [timedelta(seconds=2), timedelta(seconds=-2)])
def test_a_host_whose_clock_is_off_leaves_the_batch_to_others_until_it_is_right(
    bench: Bench, skew: timedelta
) -> None:
    """S1-X2: nothing is claimed, no attempt is used, and the messages come back soon."""
    ids = bench.submit("quick", "quick")
    bench.world.clock.skew = skew

    assert bench.run() == set(ids)
    assert bench.world.counts.events["clock_refused"] == len(ids)
    assert {(bench.state(id), bench.row(id).attempt) for id in ids} == {(State.SCHEDULED, 1)}
    assert bench.world.queue.next_visible_at() == bench.world.now() + WORKER_LEASE

    bench.world.clock.skew = timedelta(0)
    bench.world.pass_time(WORKER_LEASE)
    assert bench.run() == set()
    assert {bench.state(id) for id in ids} == {State.SUCCEEDED}


@pytest.mark.parametrize("skew", [MAX_CLOCK_ERROR, -MAX_CLOCK_ERROR])
def test_a_clock_that_is_off_by_no_more_than_the_bound_takes_work(
    bench: Bench, skew: timedelta
) -> None:
    (done,) = bench.submit("quick")
    bench.world.pass_time(timedelta(seconds=1))
    bench.world.clock.skew = skew

    assert bench.run() == set()
    assert bench.state(done) is State.SUCCEEDED
    assert bench.world.counts.events["clock_refused"] == 0


def test_a_batch_that_cannot_be_shrunk_is_run_all_the_same(bench: Bench) -> None:
    (done,) = bench.submit("quick")
    ports = interposed(bench.world.ports(), failing("hide", Unavailable("no answer")))

    assert bench.run(ports=ports) == set()
    assert bench.state(done) is State.SUCCEEDED


def test_what_too_little_time_is_left_for_is_given_back_untouched(bench: Bench) -> None:
    (given_back,) = bench.submit("quick")
    before = bench.row(given_back)

    kept = bench.run(time_left=NEEDED - timedelta(milliseconds=1))

    assert kept == {given_back}
    assert bench.row(given_back) == before
    assert bench.world.queue.waiting("default") == 1
    assert bench.run(time_left=NEEDED) == set()
    assert bench.state(given_back) is State.SUCCEEDED


def test_a_long_job_keeps_its_lease_and_its_message(bench: Bench) -> None:
    """S4-L2."""
    leases = []

    @bench.task("long")
    def long(payload: None, ctx: Context) -> str:
        for _ in range(5):
            bench.pass_time(10)
            leases.append(bench.world.queue.next_visible_at() == now() + WORKER_LEASE)
        return "stopped" if ctx.stopped else "done"

    now = bench.world.now
    (id,) = bench.submit("long")

    assert bench.run() == set()
    assert bench.row(id).result == '"done"'
    assert leases == [True] * 5


def test_a_job_that_stops_at_its_time_out_is_tried_again(bench: Bench) -> None:
    @bench.task("polite")
    def polite(payload: None, ctx: Context) -> None:
        bench.pass_time(61)
        ctx.wait(SOON)
        ctx.raise_if_stopped()

    (id,) = bench.submit("polite")

    assert bench.run() == set()
    row = bench.row(id)
    assert (row.state, row.attempt) == (State.RETRYING, 2)
    assert row.error is not None
    assert row.error.kind is Kind.TIMEOUT
    assert bench.exit_codes == []


def test_a_hung_handler_is_recorded_once_its_neighbours_are_done_and_ends_the_process(
    bench: Bench,
) -> None:
    """S2-K4: its neighbours lose nothing by it."""

    @bench.task("neighbour")
    def neighbour(payload: None, ctx: Context) -> None:
        until(lambda: bench.world.clock.monotonic() >= 67)
        # The hung one's row is still held, and nobody has been sent after it.
        time.sleep(0.2)
        states.append(bench.state(hung))

    states: list[State] = []
    hung, done = bench.submit("hang", "neighbour", retry=RetryPolicy(base_seconds=0))

    with pytest.raises(Ended):
        bench.run()

    assert bench.exit_codes == [EXIT_HUNG]
    assert states == [State.RUNNING]
    assert bench.state(done) is State.SUCCEEDED
    row = bench.row(hung)
    assert row.state is State.RETRYING
    assert row.error is not None
    assert row.error.kind is Kind.TIMEOUT
    # The thread that cannot be stopped lives a moment longer: the retry does not meet it.
    assert row.due_at >= bench.world.now() + timedelta(seconds=2)
    assert bench.world.counts.events["hung"] == 1


def test_a_hung_handlers_lease_is_kept_until_its_outcome_is_written(bench: Bench) -> None:
    @bench.task("neighbour")
    def neighbour(payload: None, ctx: Context) -> None:
        until(lambda: bench.world.clock.monotonic() >= 67)
        bench.world.pass_time(timedelta(seconds=3))
        bench.pass_time(40)

    hung, _ = bench.submit("hang", "neighbour")

    with pytest.raises(Ended):
        bench.run()

    assert bench.state(hung) is State.RETRYING
    assert bench.world.counts.events["taken_over"] == 0


def test_a_hung_handler_that_lost_its_lease_ends_the_process_and_writes_nothing(
    bench: Bench,
) -> None:
    @bench.task("deaf")
    def deaf(payload: None, ctx: Context) -> None:
        ctx.signal.stop(Stop.LOST_LEASE)
        bench.pass_time(6)
        bench.released.wait(SOON)

    (lost,) = bench.submit("deaf")

    with pytest.raises(Ended):
        bench.run()

    assert bench.exit_codes == [EXIT_HUNG]
    assert bench.state(lost) is State.RUNNING
    assert len(bench.world.queue) == 1


def test_a_hung_handlers_outcome_that_cannot_be_written_still_ends_the_process(
    bench: Bench,
) -> None:
    (hung,) = bench.submit("hang")
    ports = interposed(bench.world.ports(), failing("settle", Unavailable("no answer")))

    with pytest.raises(Ended):
        bench.run(ports=ports)

    assert bench.exit_codes == [EXIT_HUNG]
    assert bench.state(hung) is State.RUNNING


def test_without_a_heartbeat_no_handler_goes_on(bench: Bench) -> None:
    @bench.task("wait")
    def wait(payload: None, ctx: Context) -> None:
        bench.world.pass_time(timedelta(seconds=11))
        bench.released.wait(SOON)

    bench.submit("wait")
    ports = interposed(bench.world.ports(), failing("extend", KeyError("a bug")))

    with pytest.raises(Ended):
        bench.run(ports=ports)

    assert bench.exit_codes == [EXIT_HUNG]


def test_a_beat_without_an_answer_does_not_keep_handlers_from_being_stopped(  # P9
    bench: Bench,
) -> None:
    @bench.task("patient")
    def patient(payload: None, ctx: Context) -> None:
        asked = ctx.wait(SOON)
        stopped.append((asked, bench.world.now(), ctx.signal.why))

    @bench.task("clock")
    def clock(payload: None, ctx: Context) -> None:
        for seconds in (10, 14.9, 0.1):
            time.sleep(0.1)
            bench.world.pass_time(timedelta(seconds=seconds))
        ctx.wait(SOON)
        bench.released.set()

    def hook(call: Call, when: When) -> None:
        if call.method == "extend" and when is When.BEFORE:
            bench.released.wait(SOON)
            raise Unavailable("no answer")

    stopped: list[tuple[bool, datetime, Stop | None]] = []
    began = bench.world.now()
    bench.submit("patient", "clock", "patient")

    bench.run(ports=interposed(bench.world.ports(), hook))

    five_before_its_end = began + WORKER_LEASE - timedelta(seconds=5)
    assert stopped == [(True, five_before_its_end, Stop.LOST_LEASE)] * 2


def test_an_empty_batch_is_done(bench: Bench) -> None:
    assert bench.run() == set()


def test_a_batch_does_not_wait_for_what_is_done(bench: Bench) -> None:
    bench.submit(*["quick"] * 10)
    begun = time.monotonic()

    bench.run()

    assert time.monotonic() - begun < 0.4


def test_a_result_that_comes_after_a_take_over_is_refused_and_its_message_kept(
    bench: Bench,
) -> None:
    """S1-W3, S0-L3."""

    @bench.task("stalled")
    def stalled(payload: None, ctx: Context) -> str:
        holder = bench.row(ctx.execution_id)
        now = bench.world.now()
        bench.world.ports().executions.take_over(
            holder,
            token=bench.world.chance.token(),
            worker="worker-2",
            now=now,
            lease_until=now + WORKER_LEASE,
        )
        return "too late"

    (id,) = bench.submit("stalled")

    assert bench.run() == {id}
    row = bench.row(id)
    assert (row.state, row.worker, row.result) == (State.RUNNING, "worker-2", None)
    assert bench.world.counts.events["late_result_refused"] == 1
