from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from lamplighter.core.errors import Unavailable
from lamplighter.core.lifecycle import State
from lamplighter.core.outcome import Failed, Succeeded
from lamplighter.core.retry import Failure, Kind, RetryPolicy
from lamplighter.memory import MemoryExecutions, MemoryQueue, MemoryWorld, VirtualClock
from lamplighter.ports import Received
from lamplighter.services import execute
from lamplighter.services.execute import Claimed
from lamplighter.services.heartbeat import Heartbeats, Stop
from lamplighter.services.settling import Put
from lamplighter.sim.invariants import violations
from lamplighter.sim.system import System
from tests.support.jobs import created, every, in_, new_job

SECOND = timedelta(seconds=1)
MS = timedelta(milliseconds=1)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def system() -> System:
    system = System(
        world=MemoryWorld(clock=VirtualClock(datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)))
    )
    system.run_for(MINUTE)
    return system


def received(system: System, *, due_in: float = 5) -> Received:
    """The message of a new one-off, in a worker's hands when it is due."""
    created(system.ports, new_job(run_at=in_(system.ports, due_in)))
    system.world.pass_time(due_in * SECOND)
    (message,) = system.world.queue.receive()
    return message


def claimed(system: System) -> Claimed:
    begun = execute.begin(system.ports, received(system), worker="w-1")
    assert isinstance(begun, Claimed)
    return begun


def failing(kind: Kind = Kind.RETRYABLE) -> Failed:
    return Failed(failure=Failure(kind=kind, type="ValueError", message="no"))


@pytest.mark.parametrize("millis", [1, 149, 150, 151, 500, 849, 999])
def test_a_start_is_never_early_and_at_most_150_ms_late(system: System, millis: int) -> None:
    made = created(system.ports, new_job(run_at=in_(system.ports, 5) + millis * MS))

    system.run_for(MINUTE)

    lateness = system.world.tables.executions[made.first.id].lateness
    assert lateness is not None
    assert timedelta(0) <= lateness <= 150 * MS


def test_a_message_that_comes_far_too_early_goes_back_into_hiding(system: System) -> None:
    created(system.ports, new_job(run_at=in_(system.ports, 60)))
    (stored,) = system.world.queue._stored.values()
    stored.visible_at = system.world.now()

    (early,) = system.world.queue.receive()
    put = execute.process(system.ports, early, system.run, worker="w-1")

    assert put == Put(deleted=False)
    assert not system.runs
    system.run_for(2 * MINUTE)
    assert [run.started_at >= run.due_at for run in system.runs] == [True]


def test_a_job_that_keeps_failing_ends_with_every_try_on_record(system: System) -> None:
    """S1-H3: claimed, run, and what came of it written before its message goes."""
    policy = RetryPolicy(max_attempts=4, base_seconds=10)
    made = created(system.ports, new_job(retry=policy))
    system.handler = lambda _: failing()

    system.run_for(30 * MINUTE)

    row = system.world.tables.executions[made.first.id]
    assert (row.state, row.reason) == (State.DEAD_LETTERED, "all 4 attempts used")
    assert [attempt.number for attempt in row.attempts] == [1, 2, 3, 4]
    waits = [
        later.started_at - earlier.finished_at
        for earlier, later in zip(row.attempts, row.attempts[1:], strict=False)
        if earlier.finished_at
    ]
    for wait, nominal in zip(waits, (10, 20, 40), strict=True):
        assert 0.5 * nominal * SECOND <= wait <= 1.5 * nominal * SECOND + SECOND


def test_a_retry_past_the_look_ahead_comes_through_dispatch_on_time(system: System) -> None:
    """O-F14, S0-R3, S4-R3: it waits in the table, not in the queue."""
    policy = RetryPolicy(max_attempts=2, base_seconds=1200)
    made = created(system.ports, new_job(retry=policy))
    system.handler = lambda one: failing() if one.execution.attempt == 1 else Succeeded(result="1")
    system.run_for(MINUTE)
    due = system.world.tables.executions[made.first.id].next_run_at
    assert due is not None
    assert len(system.world.queue) == 0

    system.run_for(40 * MINUTE)

    row = system.world.tables.executions[made.first.id]
    assert row.state is State.SUCCEEDED
    assert row.started_at is not None
    assert timedelta(0) <= row.started_at - due <= SECOND


def test_an_error_that_its_policy_does_not_retry_fails_at_once(system: System) -> None:
    """S0-R1."""
    policy = RetryPolicy(no_retry_on=("LookupError",))
    made = created(system.ports, new_job(retry=policy))
    failure = Failure(kind=Kind.RETRYABLE, type="KeyError", message="no")
    system.handler = lambda _: Failed(
        failure=failure, names=("KeyError", "LookupError", "Exception", "BaseException")
    )

    system.run_for(30 * MINUTE)

    row = system.world.tables.executions[made.first.id]
    assert (row.state, len(row.attempts), row.error) == (State.FAILED, 1, failure)
    assert row.reason == "no_retry_on has LookupError, a base of KeyError"


@pytest.mark.parametrize(
    ("given", "of_task", "attempts"),
    [
        (RetryPolicy(max_attempts=2), RetryPolicy(max_attempts=4), 2),
        (None, RetryPolicy(max_attempts=4), 4),
        (None, None, 5),
    ],
    ids=["its job's", "its task's", "the default one"],
)
def test_the_policy_of_a_job_goes_before_its_tasks_and_that_before_the_default(
    system: System, given: RetryPolicy | None, of_task: RetryPolicy | None, attempts: int
) -> None:
    """S0-R1."""
    new = new_job(retry=given)
    new = replace(new, spec=replace(new.spec, retry_is_default=given is None))
    made = created(system.ports, new)
    system.handler = lambda _: replace(failing(), retry=of_task)

    system.run_for(30 * MINUTE)

    row = system.world.tables.executions[made.first.id]
    assert (row.state, len(row.attempts)) == (State.DEAD_LETTERED, attempts)
    assert row.reason == f"all {attempts} attempts used"


def test_a_lost_lease_is_taken_over_whatever_a_policy_retries(system: System) -> None:
    policy = RetryPolicy(retry_on=("KeyError",), no_retry_on=("LostLease",))
    made = created(system.ports, new_job(retry=policy, run_at=in_(system.ports, 5)))
    system.world.pass_time(5 * SECOND)
    (message,) = system.world.queue.receive()
    assert isinstance(execute.begin(system.ports, message, worker="silent"), Claimed)
    system.world.pass_time(36 * SECOND)

    execute.process(system.ports, message, lambda _: Succeeded(result="1"), worker="w-2")

    row = system.world.tables.executions[made.first.id]
    assert (row.state, row.crashes) == (State.SUCCEEDED, 1)


@pytest.mark.parametrize(("honored", "longest"), [(True, 301 * SECOND), (False, 2 * SECOND)])
def test_a_rate_limit_is_waited_for_where_its_policy_honors_it(
    system: System, honored: bool, longest: timedelta
) -> None:
    """S0-R4."""
    policy = RetryPolicy(max_attempts=2, jitter=0, honor_retry_after=honored)
    made = created(system.ports, new_job(retry=policy))
    wait = timedelta(minutes=5)
    limited = Failure(kind=Kind.RATE_LIMITED, type="HttpStatus", message="", retry_after=wait)
    system.handler = lambda _: Failed(failure=limited, names=("HttpStatus",))

    system.run_for(30 * MINUTE)

    first, second = system.world.tables.executions[made.first.id].attempts
    assert first.finished_at is not None
    between = second.started_at - first.finished_at
    assert longest - SECOND <= between <= longest


def test_three_silent_workers_make_a_dead_letter_and_no_fourth_try(system: System) -> None:
    """S0-E2, S2-K4: a job that kills its workers is given up, on a count of its own."""
    message = received(system)
    for crash in range(3):
        begun = execute.begin(system.ports, message, worker=f"w-{crash}")
        assert isinstance(begun, Claimed)
        system.world.pass_time(36 * SECOND)

    put = execute.process(system.ports, message, system.run, worker="w-4")

    (row,) = system.world.tables.executions.values()
    assert (row.state, row.crashes, row.attempt) == (State.DEAD_LETTERED, 3, 1)
    assert put.deleted
    assert not system.runs


def test_a_late_result_leaves_the_message_to_whoever_took_over(system: System) -> None:
    """S1-W3."""
    slow = claimed(system)
    system.world.pass_time(36 * SECOND)
    other = execute.begin(system.ports, slow.received, worker="w-2")
    assert isinstance(other, Claimed)

    put = execute.conclude(system.ports, slow, Succeeded(result='"late"'))
    assert put == Put(deleted=False)
    assert len(system.world.queue) == 1
    assert system.world.counts.events["late_result_refused"] == 1

    assert execute.conclude(system.ports, other, Succeeded(result='"ok"')).deleted
    (row,) = system.world.tables.executions.values()
    assert row.result == '"ok"'


def test_an_occurrence_of_a_deleted_job_is_claimed_but_never_run(system: System) -> None:  # P17
    job = created(system.ports, new_job(schedule=every("1 minute"))).job
    assert job is not None
    system.ports.jobs.delete(job)

    system.run_for(10 * MINUTE)

    assert not system.runs
    assert {row.state for row in system.world.tables.executions.values()} == {State.CANCELLED}
    assert [*violations(system)] == []


class Handler:
    """A handler that remembers why it was asked to stop."""

    def __init__(self) -> None:
        self.stopped: list[Stop] = []

    def stop(self, why: Stop) -> None:
        self.stopped.append(why)


def test_a_long_job_keeps_its_lease_and_its_message(system: System) -> None:
    """S1-H3, S0-L2, S4-L2: beaten for while it runs."""
    begun, handler, beats = claimed(system), Handler(), Heartbeats(system.ports)
    execute.shrink(system.ports, [begun.received])

    with beats.watch(begun, handler):
        for _ in range(55):
            system.world.pass_time(SECOND)
            beats.tick()
            assert not system.world.queue.receive()

    assert handler.stopped == []
    assert execute.conclude(system.ports, begun, Succeeded(result="1")).deleted
    (row,) = system.world.tables.executions.values()
    assert (row.state, row.crashes) == (State.SUCCEEDED, 0)


def test_a_short_job_never_beats(system: System) -> None:
    """S1-W2."""
    begun, beats = claimed(system), Heartbeats(system.ports)

    with beats.watch(begun, Handler()):
        system.world.pass_time(9.9 * SECOND)
        beats.tick()

    (row,) = system.world.tables.executions.values()
    assert row.lease_until == begun.execution.lease_until


def test_a_beat_after_a_take_over_stops_the_handler(system: System) -> None:
    begun, handler, beats = claimed(system), Handler(), Heartbeats(system.ports)

    with beats.watch(begun, handler):
        system.world.pass_time(36 * SECOND)
        assert isinstance(execute.begin(system.ports, begun.received, worker="w-2"), Claimed)
        beats.tick()

    assert Stop.LOST_LEASE in handler.stopped


def test_a_handler_whose_beats_do_not_get_through_is_stopped_before_its_lease_ends(  # P9
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    def extend(*_: object, **__: object) -> None:
        raise Unavailable("no answer")

    monkeypatch.setattr(MemoryExecutions, "extend", extend)
    begun, handler, beats = claimed(system), Handler(), Heartbeats(system.ports)
    lease_until = begun.execution.lease_until
    assert lease_until is not None

    with beats.watch(begun, handler):
        while not handler.stopped:
            system.world.pass_time(SECOND / 2)
            beats.tick()

    assert handler.stopped[0] is Stop.LOST_LEASE
    assert lease_until - system.world.now() == 5 * SECOND


def test_a_handler_past_its_timeout_is_asked_to_stop(system: System) -> None:
    """S2-K4, S2-E3: by a timeout of its own."""
    begun, handler, beats = claimed(system), Handler(), Heartbeats(system.ports)

    with beats.watch(begun, handler):
        for _ in range(130):
            if handler.stopped:
                break
            system.world.pass_time(SECOND / 2)
            beats.tick()

    assert handler.stopped == [Stop.TIMEOUT]
    assert begun.execution.started_at is not None
    assert system.world.now() - begun.execution.started_at == begun.spec.timeout


def test_a_requested_cancel_reaches_the_handler_at_its_next_beat(system: System) -> None:
    """S0-U2."""
    begun, handler, beats = claimed(system), Handler(), Heartbeats(system.ports)
    system.ports.executions.request_cancel(begun.execution.id, now=system.world.now())

    with beats.watch(begun, handler):
        system.world.pass_time(10 * SECOND)
        beats.tick()

    assert handler.stopped == [Stop.CANCELLED]


def test_a_queue_that_does_not_answer_stops_no_handler_whose_lease_is_renewed(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hide(*_: object, **__: object) -> None:
        raise Unavailable("no answer")

    begun, handler, beats = claimed(system), Handler(), Heartbeats(system.ports)
    monkeypatch.setattr(MemoryQueue, "hide", hide)

    with beats.watch(begun, handler):
        for _ in range(55):
            system.world.pass_time(SECOND)
            beats.tick()

    assert handler.stopped == []
