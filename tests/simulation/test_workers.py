"""Ten workers at once, messages that come twice, in any order and in mid-run; what each path is."""

import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from lamplighter.core.buckets import ExecutionId
from lamplighter.core.lifecycle import State
from lamplighter.core.limits import TAKE_OVER_GRACE, WORKER_LEASE
from lamplighter.core.outcome import Outcome, Succeeded
from lamplighter.memory import MemoryWorld, VirtualClock
from lamplighter.services import execute, timers
from lamplighter.services.execute import Claimed
from tests.simulation import worker_scenarios as scenarios
from tests.support.jobs import created, new_job

START = datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)
WORKERS = 10
STALLED = 4
COPIES = 3
SOON = 10.0
"""Seconds of real time after which a test that hangs fails."""


class Crowd:
    """Ten workers on one queue; of some executions the first worker stalls in mid-run."""

    def __init__(self, jobs: int) -> None:
        self.world = MemoryWorld(clock=VirtualClock(START))
        self.calls: dict[ExecutionId, list[str]] = defaultdict(list)
        self.goes_on = threading.Event()
        self.over = threading.Event()
        rows = [created(self.world.ports(), new_job()).first for _ in range(jobs)]
        self.ids = [row.id for row in rows]
        self.stalls = {*self.ids[:: jobs // STALLED]}
        # Copies, in no order: what a standard queue may do.
        self.world.queue.purge()
        messages = [timers.outgoing(row) for row in rows for _ in range(COPIES)]
        random.Random(1).shuffle(messages)
        timers.send(self.world.ports(), messages)

    def work(self, number: int) -> None:
        """Take messages until all is over, a few at a time."""
        ports = self.world.ports()
        while not self.over.is_set():
            batch = self.world.queue.receive(limit=3)
            execute.shrink(ports, batch)
            for message in reversed(batch):
                execute.process(ports, message, self.handle, worker=f"worker-{number}")
            if not batch:
                time.sleep(0.001)

    def handle(self, claimed: Claimed) -> Outcome:
        id, worker = claimed.execution.id, claimed.execution.worker or ""
        self.calls[id].append(worker)
        if id in self.stalls and len(self.calls[id]) == 1:
            assert self.goes_on.wait(SOON)
        return Succeeded(result=f'"{worker}"')

    def ended(self) -> Counter[State]:
        return Counter(row.state for row in [*self.world.tables.executions.values()])


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SOON
    while not holds():
        assert time.monotonic() < deadline, "waited for too long"
        time.sleep(0.002)


@pytest.fixture
def crowd() -> Iterator[Crowd]:
    crowd = Crowd(jobs=40)
    with ThreadPoolExecutor(WORKERS) as pool:
        try:
            them = [pool.submit(crowd.work, number) for number in range(WORKERS)]
            yield crowd
        finally:
            crowd.goes_on.set()
            crowd.over.set()
        for one in them:
            one.result()


def test_of_ten_workers_and_three_copies_of_each_message_one_runs_it(crowd: Crowd) -> None:
    """S0-L4, S1-Q4, S4-L1, S0-D2: the first act is the claim, of this very try.

    S1-W3, S0-L3: what comes again in mid-run is left alone until the lease is over; whoever
    stalled past that finds that its late result is refused.
    """
    until(lambda: crowd.ended() == {State.SUCCEEDED: 40 - STALLED, State.RUNNING: STALLED})
    until(lambda: sum(map(len, crowd.calls.values())) == 40)
    # Every copy of what runs comes back when the leases are over, and finds them held by nobody.
    crowd.world.pass_time(WORKER_LEASE + TAKE_OVER_GRACE + timedelta(seconds=1))
    until(lambda: crowd.ended() == {State.SUCCEEDED: 40})
    crowd.goes_on.set()
    until(lambda: crowd.world.counts.events["late_result_refused"] == STALLED)

    calls = {id: len(crowd.calls[id]) for id in crowd.ids}
    assert calls == {id: 2 if id in crowd.stalls else 1 for id in crowd.ids}
    accepted = Counter(row.id for row in crowd.world.counts.finishes)
    assert accepted == dict.fromkeys(crowd.ids, 1)
    rows = crowd.world.tables.executions
    assert all(rows[id].result == f'"{crowd.calls[id][-1]}"' for id in crowd.ids)
    assert [len(rows[id].attempts) for id in sorted(crowd.stalls)] == [2] * STALLED


@pytest.mark.parametrize(
    ("ready", "state", "tries"),
    [
        (scenarios.beat_for_what_runs, State.SUCCEEDED, 1),
        (scenarios.fail_for_good, State.FAILED, 1),
        (scenarios.end_what_was_asked_to_stop, State.CANCELLED, 1),
        (scenarios.give_up_what_kills_its_workers, State.DEAD_LETTERED, 3),
        (scenarios.mend_what_waits, State.SUCCEEDED, 1),
        (scenarios.mend_what_was_ended_and_told_to_nobody, State.FAILED, 1),
        (scenarios.give_up_what_cannot_be_delivered, State.DEAD_LETTERED, 1),
    ],
)
def test_undisturbed_a_worker_s_path_leads_where_it_should(
    ready: Callable[[], scenarios.Ready], state: State, tries: int
) -> None:
    """The scenarios that test_crashes.py kills everywhere; else they might prove little."""
    system, use_case = ready()
    use_case(system.ports)
    if ready is scenarios.mend_what_waits:
        system.work()

    (row,) = system.world.tables.executions.values()
    assert (row.state, len(row.attempts)) == (state, tries)


@pytest.mark.parametrize(
    "ready",
    [scenarios.hand_back_when_told_to_stop, scenarios.put_off_what_cannot_be_looked_at],
)
def test_what_is_handed_back_has_used_no_try(ready: Callable[[], scenarios.Ready]) -> None:
    """S0-R1: an attempt is a failure of the task, and neither a deploy nor an outage is one."""
    system, use_case = ready()
    use_case(system.ports)

    row = min(system.world.tables.executions.values(), key=lambda row: row.run_at)
    assert (row.state, row.attempt, row.crashes) == (State.RETRYING, 1, 0)
    system.run_for(timedelta(minutes=1))
    row = system.world.tables.executions[row.id]
    assert (row.state, row.attempt, row.crashes) == (State.SUCCEEDED, 1, 0)
