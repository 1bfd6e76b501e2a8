"""A try that is deferred: held by a callback token, ended once, and never forgotten."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from lamplighter.core.buckets import ExecutionId
from lamplighter.core.deferral import Terms, digest_of
from lamplighter.core.errors import Conflict, NotFound, Rejected, Unavailable
from lamplighter.core.lifecycle import State
from lamplighter.core.limits import LANE_MAX_RECEIVES, RENEWED_AFTER_RECEIVES
from lamplighter.core.model import Execution, OverlapPolicy
from lamplighter.core.outcome import Deferred, Failed, Outcome, Succeeded
from lamplighter.core.permits import Key
from lamplighter.core.permits import Kind as LimitKind
from lamplighter.core.retry import Failure, Kind, RetryPolicy
from lamplighter.ports import Received
from lamplighter.services import deferred, execute, permits, timers
from lamplighter.services.cancel import cancel
from lamplighter.services.execute import Claimed
from lamplighter.services.settling import Put
from lamplighter.sim.faults import Call, When, interposed
from lamplighter.sim.invariants import violations
from lamplighter.sim.system import System
from tests.simulation.deferred_scenarios import TERMS, handed_over, ready
from tests.simulation.rules import on
from tests.support.jobs import OWNER

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
DONE = Succeeded(result='{"rows":7}')
BUSY = Failed(failure=Failure(kind=Kind.RETRYABLE, type="Busy", message="later"), names=("Busy",))
FOR_GOOD = Failed(failure=Failure(kind=Kind.PERMANENT, type="NoSuchFile", message="gone"))


def row(system: System, claimed: Claimed) -> Execution:
    return system.world.tables.executions[claimed.execution.id]


def end(
    system: System, claimed: Claimed, outcome: Succeeded | Failed = DONE, said: str = "done"
) -> Execution:
    return deferred.end(system.ports, claimed.execution.id, claimed.callback, outcome, said=said)


def beat(system: System, claimed: Claimed) -> Execution:
    return deferred.heartbeat(system.ports, claimed.execution.id, claimed.callback)


def test_it_runs_on_without_a_worker_and_a_message_waits_for_its_end() -> None:
    system, claimed = handed_over()

    held = row(system, claimed)
    assert (held.state, held.worker) == (State.RUNNING, "w-1")
    assert held.lease_until == system.world.now() + TERMS.heartbeat
    assert system.world.queue.next_visible_at() == held.lease_until + 5 * SECOND
    assert len(system.world.queue) == 1


def test_the_row_holds_no_token_that_opens_it() -> None:
    """S0-L3: the token that each write compares is the callback token's digest, never itself."""
    system, claimed = handed_over()
    held = row(system, claimed)

    assert held.token == digest_of(claimed.callback) != claimed.callback
    assert claimed.callback not in repr(held)
    assert claimed.callback not in repr(claimed)
    with pytest.raises(NotFound):
        deferred.end(system.ports, held.id, str(held.token), DONE, said="done")


def test_whoever_has_the_token_ends_it() -> None:
    """S2-A7: ACK, by whoever does the work."""
    system, claimed = handed_over()
    system.world.pass_time(30 * SECOND)

    done = end(system, claimed)

    assert (done.state, done.result, done.token) == (State.SUCCEEDED, DONE.result, None)
    assert [(one.state, one.worker) for one in done.attempts] == [(State.SUCCEEDED, "w-1")]
    assert done.attempts[0].finished_at == system.world.now()
    system.run_for(timedelta(minutes=5))
    assert row(system, claimed) == done
    assert len(system.world.queue) == 0
    assert not [*violations(system)]


def test_that_it_failed_is_followed_by_its_retry_policy() -> None:
    """S2-A7: NACK."""
    system, claimed = handed_over()

    failed = end(system, claimed, BUSY, "busy")

    assert (failed.state, failed.attempt, failed.crashes) == (State.RETRYING, 2, 0)
    assert failed.error == BUSY.failure
    system.run_for(MINUTE)
    assert row(system, claimed).state is State.SUCCEEDED
    assert [run.attempt for run in system.runs] == [2]


def test_that_it_failed_is_followed_by_its_tasks_policy_where_its_job_has_none() -> None:
    """S0-R1: whoever ends it knows no tasks, so the try brings its policy along."""
    once = RetryPolicy(max_attempts=1)
    system, claimed = ready(retry_is_default=True)
    execute.conclude(system.ports, claimed, Deferred(terms=TERMS, retry=once))

    assert end(system, claimed, BUSY, "busy").state is State.DEAD_LETTERED


def test_that_it_lapsed_is_followed_by_its_tasks_policy_where_its_job_has_none() -> None:
    """S0-R1."""
    once = RetryPolicy(max_attempts=1)
    system, claimed = ready(retry_is_default=True)
    execute.conclude(system.ports, claimed, Deferred(terms=TERMS, retry=once))

    system.run_for(2 * MINUTE)

    over = row(system, claimed)
    assert (over.state, over.reason) == (State.DEAD_LETTERED, "all 1 attempts used")


def test_the_policy_of_its_job_goes_before_its_tasks() -> None:
    """S0-R1."""
    system, claimed = ready()
    execute.conclude(
        system.ports, claimed, Deferred(terms=TERMS, retry=RetryPolicy(max_attempts=1))
    )

    assert end(system, claimed, BUSY, "busy").state is State.RETRYING


def test_a_permanent_failure_ends_it_for_good() -> None:
    system, claimed = handed_over()

    assert end(system, claimed, FOR_GOOD, "gone").state is State.FAILED


def test_the_same_again_is_answered_with_the_same_and_anything_else_is_refused() -> None:
    system, claimed = handed_over()
    done = end(system, claimed)

    assert end(system, claimed) == done
    others: list[Callable[[], Execution]] = [
        lambda: end(system, claimed, Succeeded(result="8"), "other"),
        lambda: end(system, claimed, BUSY, "busy"),
        lambda: beat(system, claimed),
    ]
    for again in others:
        with pytest.raises(Conflict, match="the try is over: it was ended; the execution is SUCC"):
            again()
    assert row(system, claimed) == done


def test_heartbeats_hold_it_for_longer_than_any_worker_may() -> None:
    """S2-A7, S2-E3: HEARTBEAT; and a hard limit all the same."""
    system, claimed = handed_over()
    ends_at = claimed.execution.started_at
    assert ends_at is not None

    for _ in range(11):
        system.run_for(50 * SECOND)
        held = beat(system, claimed)
        assert held.lease_until is not None
        assert held.lease_until <= ends_at + TERMS.hard_limit
    assert not system.runs

    system.run_for(MINUTE)
    late = row(system, claimed)
    assert late.attempts[0].error is not None
    assert late.attempts[0].error.type == "HardLimit"
    assert late.attempts[0].finished_at is not None
    assert late.attempts[0].finished_at - ends_at <= TERMS.hard_limit + 6 * SECOND
    with pytest.raises(Conflict, match="nothing was heard of it in time"):
        end(system, claimed)


def test_its_message_is_kept_and_now_and_then_replaced_before_it_ends_among_the_dead() -> None:
    """One for each lease would be one more for each that cannot be deleted."""
    system, claimed = ready()
    terms = replace(TERMS, hard_limit=timedelta(hours=2))
    execute.conclude(system.ports, claimed, Deferred(terms=terms))
    seen: dict[int, int] = {}
    for _ in range(110):
        system.run_for(50 * SECOND)
        beat(system, claimed)
        (stored,) = system.world.queue._stored.values()
        seen[stored.id] = stored.receives

    assert max(seen.values()) < RENEWED_AFTER_RECEIVES < LANE_MAX_RECEIVES
    assert len(seen) == 3
    assert not system.runs


def test_while_nothing_can_be_deleted_its_messages_do_not_multiply() -> None:
    system, claimed = handed_over()

    def is_unwell(call: Call, when: When) -> None:
        if call.method == "delete":
            raise Unavailable("unwell")

    unwell = interposed(system.ports, is_unwell)
    for _ in range(10):
        visible_at = system.world.queue.next_visible_at()
        assert visible_at is not None
        system.world.pass_time(visible_at - 20 * SECOND - system.world.now())
        beat(system, claimed)
        system.world.pass_time(20 * SECOND)
        (received,) = system.world.queue.receive("default")
        execute.process(unwell, received, refuse_to_run, worker="w")

    assert len(system.world.queue) == 1


def refuse_to_run(_: Claimed) -> Outcome:
    raise AssertionError("it is deferred")


def test_silence_is_a_failure_of_the_try_and_no_crash_of_a_worker() -> None:
    system, claimed = handed_over()

    system.run_for(2 * MINUTE)

    after = row(system, claimed)
    assert (after.state, after.attempt, after.crashes) == (State.SUCCEEDED, 2, 0)
    error = after.attempts[0].error
    assert error is not None
    assert (error.kind, error.type) == (Kind.TIMEOUT, "NoHeartbeat")
    assert error.message == "nothing was heard of the deferred try for 60 s"


def test_silence_is_noticed_when_the_heartbeat_and_the_grace_are_over() -> None:
    system, claimed = handed_over()
    handed_over_at = system.world.now()

    system.run_for(64 * SECOND)
    assert row(system, claimed).state is State.RUNNING
    system.run_for(2 * SECOND)

    after = row(system, claimed)
    assert after.state is State.RETRYING
    assert after.attempts[0].finished_at == handed_over_at + 65 * SECOND


def test_what_is_said_after_the_silence_is_refused_while_the_next_try_runs() -> None:
    system, claimed = handed_over()
    system.world.pass_time(66 * SECOND)
    (message,) = system.world.queue.receive()
    assert execute.process(system.ports, message, system.run, worker="w-2") == Put(deleted=True)
    system.world.pass_time(5 * SECOND)
    (message,) = system.world.queue.receive()
    second = execute.begin(system.ports, message, worker="w-2")
    assert isinstance(second, Claimed)

    with pytest.raises(Conflict):
        end(system, claimed)
    with pytest.raises(Conflict):
        beat(system, claimed)

    assert second.callback != claimed.callback
    assert end(system, second).state is State.SUCCEEDED


def test_a_heartbeat_that_comes_too_late_is_told_so_before_anybody_came_by() -> None:
    """No beat once its lease is over, though nobody may take its place until the grace is too."""
    system, claimed = handed_over()
    system.world.pass_time(59 * SECOND)
    assert beat(system, claimed).lease_until == system.world.now() + MINUTE
    system.world.pass_time(60 * SECOND)

    with pytest.raises(Conflict, match="silent for too long"):
        beat(system, claimed)
    # Its end is still welcome: the work is done.
    assert end(system, claimed).state is State.SUCCEEDED


def test_its_token_expires_at_the_hard_limit_though_nobody_came_by_yet() -> None:
    """S2-E3."""
    system, claimed = handed_over()
    started_at = claimed.execution.started_at
    assert started_at is not None
    ends_at = started_at + TERMS.hard_limit
    while system.world.now() < ends_at - 50 * SECOND:
        system.world.pass_time(50 * SECOND)
        beat(system, claimed)
    system.world.pass_time(ends_at - system.world.now())

    calls: list[Callable[[], Execution]] = [
        lambda: end(system, claimed),
        lambda: beat(system, claimed),
    ]
    for call in calls:
        with pytest.raises(Conflict):
            call()
    assert row(system, claimed).state is State.RUNNING
    system.run_for(10 * SECOND)
    error = row(system, claimed).attempts[0].error
    assert error is not None
    assert error.type == "HardLimit"


def lapsing() -> tuple[System, Claimed, Received]:
    """A deferred try that was silent for too long, and the message that is to find it so."""
    system, claimed = handed_over()
    system.world.pass_time(66 * SECOND)
    (message,) = system.world.queue.receive()
    return system, claimed, message


def test_a_beat_that_was_on_its_way_keeps_it_from_lapsing() -> None:
    """S0-L3: who was told that it goes on is not ended by what was read before."""
    system, claimed, message = lapsing()
    now = system.world.now()

    def beats() -> None:
        system.ports.executions.extend(
            claimed.execution.id, token=claimed.token, lease_until=now + MINUTE
        )

    raced = interposed(system.ports, on("executions.settle", When.BEFORE, beats))
    put = execute.process(raced, message, system.run, worker="w-2")

    assert not put.deleted
    held = row(system, claimed)
    assert (held.state, held.lease_until) == (State.RUNNING, now + MINUTE)
    system.run_for(50 * SECOND)
    assert end(system, claimed).state is State.SUCCEEDED
    assert not [*violations(system)]


def test_of_its_end_and_its_lapse_that_meet_the_first_counts() -> None:
    """S2-E5."""
    system, claimed, message = lapsing()

    def ends() -> None:
        end(system, claimed)

    raced = interposed(system.ports, on("executions.settle", When.BEFORE, ends))
    execute.process(raced, message, system.run, worker="w-2")
    system.run_for(5 * MINUTE)

    after = row(system, claimed)
    assert (after.state, after.attempt, after.result) == (State.SUCCEEDED, 1, DONE.result)
    assert not system.runs
    assert not [*violations(system)]


def test_an_end_that_a_lapse_overtook_is_told_so() -> None:
    """S2-E5."""
    system, claimed, message = lapsing()

    def lapses() -> None:
        execute.process(system.ports, message, system.run, worker="w-2")

    raced = interposed(system.ports, on("executions.settle", When.BEFORE, lapses))
    with pytest.raises(Conflict, match="nothing was heard of it in time"):
        deferred.end(raced, claimed.execution.id, claimed.callback, DONE, said="done")
    system.run_for(MINUTE)

    assert row(system, claimed).attempt == 2
    assert [run.attempt for run in system.runs] == [2]
    assert not [*violations(system)]


def two_ends_that_meet(first: str, second: str) -> tuple[System, Claimed, Callable[[], Execution]]:
    """The second reads the row before the first writes it, and writes after it."""
    system, claimed = handed_over()

    def ends() -> None:
        end(system, claimed, DONE, first)

    raced = interposed(system.ports, on("executions.settle", When.BEFORE, ends))
    id, token = claimed.execution.id, claimed.callback
    return system, claimed, lambda: deferred.end(raced, id, token, DONE, said=second)


def test_of_two_ends_that_meet_the_first_counts() -> None:
    """S2-E5."""
    system, claimed, late = two_ends_that_meet("done", "other")

    with pytest.raises(Conflict, match="it was ended"):
        late()
    assert len(row(system, claimed).attempts) == 1


def test_the_same_end_said_twice_at_once_is_one() -> None:
    """S2-E5."""
    system, claimed, late = two_ends_that_meet("done", "done")

    assert late() == row(system, claimed)
    assert len(row(system, claimed).attempts) == 1


def test_a_cancel_that_comes_between_is_kept_by_its_end() -> None:
    """S0-U2."""
    system, claimed = handed_over()

    def cancels() -> None:
        cancel(system.ports, OWNER, claimed.execution.id)

    raced = interposed(system.ports, on("executions.settle", When.BEFORE, cancels))
    deferred.end(raced, claimed.execution.id, claimed.callback, BUSY, said="busy")
    system.run_for(MINUTE)

    after = row(system, claimed)
    assert after.state is State.CANCELLED
    assert after.cancel_requested_at is not None
    assert not system.runs


def test_a_second_copy_of_its_message_starts_nothing() -> None:
    """S0-L4: nor is it received so often that it ends among the dead letters."""
    system, claimed = handed_over()
    timers.send(system.ports, [timers.outgoing(row(system, claimed))])

    for _ in range(6):
        system.run_for(50 * SECOND)
        beat(system, claimed)
        assert len(system.world.queue) == 2
        assert all(one.receives < 20 for one in system.world.queue._stored.values())

    assert not system.runs
    end(system, claimed)
    system.run_for(2 * MINUTE)
    assert len(system.world.queue) == 0
    assert not system.runs


def test_no_limits_to_be_had_keep_who_waits_for_it_from_nothing() -> None:
    """S0-K2: its places are then free at the end of its lease."""
    system, claimed = ready(recurring=True)
    execute.conclude(system.ports, claimed, Deferred(terms=TERMS))
    for _ in range(3):
        system.run_for(50 * SECOND)
        beat(system, claimed)

    def is_throttled() -> None:
        raise Unavailable("throttled")

    broken = interposed(system.ports, on("permits.limits", When.BEFORE, is_throttled))
    done = deferred.end(broken, claimed.execution.id, claimed.callback, DONE, said="done")
    system.run_for(SECOND)

    assert done.state is State.SUCCEEDED
    assert len(system.runs) == 1


@pytest.mark.parametrize("callback", ["", "0" * 32, "é", "x" * 100])
def test_any_other_token_meets_the_same_as_no_execution_at_all(callback: str) -> None:
    system, claimed = handed_over()
    id = claimed.execution.id
    nowhere = ExecutionId("ex_00000000000000000000000000")
    calls: list[Callable[[ExecutionId], Execution]] = [
        lambda of: deferred.heartbeat(system.ports, of, callback),
        lambda of: deferred.end(system.ports, of, callback, DONE, said="done"),
    ]

    for call in calls:
        with pytest.raises(NotFound) as here:
            call(id)
        with pytest.raises(NotFound) as there:
            call(nowhere)
        assert str(here.value).replace(id, "") == str(there.value).replace(nowhere, "")
    assert row(system, claimed).state is State.RUNNING


def refusals(system: System, claimed: Claimed) -> set[str]:
    """What whoever has its token is told, whatever is said."""
    reasons = set()
    for say in (beat, end):
        with pytest.raises(Conflict) as refused:
            say(system, claimed)
        reasons.add(refused.value.reason)
    return reasons


def test_one_that_was_terminated_is_told_so() -> None:
    """S0-L3: a token is bound to its try, and says so once that is over."""
    system, claimed = ready(recurring=True, overlap=OverlapPolicy.TERMINATE_OTHER)
    execute.conclude(system.ports, claimed, Deferred(terms=TERMS))
    for _ in range(3):
        system.run_for(40 * SECOND)
        if row(system, claimed).state is State.RUNNING:
            beat(system, claimed)
    assert row(system, claimed).state is State.CANCELLED

    (reason,) = refusals(system, claimed)
    assert reason == (
        "the try is over: it was terminated, for another execution took its place; "
        "the execution is CANCELLED"
    )
    with pytest.raises(NotFound):
        deferred.heartbeat(system.ports, claimed.execution.id, "another")


def test_one_whose_worker_fell_silent_before_it_was_deferred_is_told_so() -> None:
    """S0-L3."""
    system, claimed = ready()

    system.run_for(20 * MINUTE)

    assert row(system, claimed).state is State.SUCCEEDED
    (reason,) = refusals(system, claimed)
    assert reason == (
        "the try is over: its worker fell silent, and another try took its place; "
        "the execution is SUCCEEDED"
    )


def test_one_whose_handler_told_its_token_and_failed_is_told_so() -> None:
    """S0-L3."""
    system, claimed = ready()
    assert claimed.tell() == claimed.callback

    execute.conclude(system.ports, claimed, BUSY)

    assert refusals(system, claimed) == {
        "the try is over: its handler ended it by itself; the execution is RETRYING"
    }


def test_of_a_token_that_nobody_was_told_nothing_is_kept() -> None:
    system, claimed = ready()

    execute.conclude(system.ports, claimed, BUSY)

    assert row(system, claimed).called_back is None


def test_it_may_be_ended_before_its_handler_has_returned() -> None:
    system, claimed = ready()

    assert beat(system, claimed).lease_until == claimed.execution.lease_until
    done = end(system, claimed)
    put = execute.conclude(system.ports, claimed, Deferred(terms=TERMS))

    assert not put.deleted
    system.run_for(2 * MINUTE)
    assert row(system, claimed) == done
    assert len(system.world.queue) == 0
    assert not system.runs


def test_a_cancel_is_told_at_the_next_heartbeat() -> None:
    """S0-U2."""
    system, claimed = handed_over()
    cancel(system.ports, OWNER, claimed.execution.id)

    told = beat(system, claimed)
    assert told.cancel_requested_at == system.world.now()
    after = end(system, claimed, BUSY, "stopped")
    system.run_for(MINUTE)

    assert after.state in {State.CANCELLED, State.RETRYING}
    assert row(system, claimed).state is State.CANCELLED
    assert not system.runs


def test_a_cancelled_one_that_nobody_ends_is_cancelled_when_it_lapses() -> None:
    system, claimed = handed_over()
    cancel(system.ports, OWNER, claimed.execution.id)

    system.run_for(2 * MINUTE)

    assert row(system, claimed).state is State.CANCELLED


def test_its_places_are_its_own_until_it_ends() -> None:
    """S0-K2."""
    system, claimed = ready()
    key = Key(kind=LimitKind.TASK, name=claimed.execution.task)
    permits.set_limit(system.ports, key, 1)
    bounds = permits.take(system.ports, claimed.execution, claimed.token)
    assert not isinstance(bounds, permits.Full)
    claimed = replace(claimed, permits=bounds)
    execute.conclude(system.ports, claimed, Deferred(terms=TERMS))

    def holders() -> int:
        (standing,) = permits.standing(system.ports)
        return standing.holders

    for _ in range(4):
        system.run_for(50 * SECOND)
        beat(system, claimed)
        assert holders() == 1
    end(system, claimed)
    assert holders() == 0


def test_what_follows_in_its_chain_waits_for_it() -> None:
    system, claimed = ready(recurring=True)
    execute.conclude(system.ports, claimed, Deferred(terms=TERMS))
    for _ in range(4):
        system.run_for(50 * SECOND)
        beat(system, claimed)
    assert not system.runs

    end(system, claimed)
    system.run_for(SECOND)

    assert len(system.runs) == 1
    assert not [*violations(system)]


def test_what_follows_gives_way_to_it_where_its_job_says_so() -> None:
    system, claimed = ready(recurring=True, overlap=OverlapPolicy.SKIP)
    execute.conclude(system.ports, claimed, Deferred(terms=TERMS))
    for _ in range(4):
        system.run_for(50 * SECOND)
        beat(system, claimed)

    (skipped,) = [
        row for row in system.world.tables.executions.values() if row.state is State.SKIPPED
    ]
    assert skipped.blocker == claimed.execution.id
    assert not system.runs
    assert end(system, claimed).state is State.SUCCEEDED
    assert not [*violations(system)]


def test_a_purged_queue_is_made_up_for_by_the_sweep() -> None:
    system, claimed = handed_over()
    system.world.queue.purge()

    system.run_for(6 * MINUTE)

    assert row(system, claimed).state is State.SUCCEEDED


@pytest.mark.parametrize(
    ("terms", "field"),
    [
        (lambda: Terms(heartbeat=timedelta(seconds=29)), "heartbeat_seconds"),
        (lambda: Terms(heartbeat=timedelta(hours=12, seconds=1)), "heartbeat_seconds"),
        (lambda: Terms(hard_limit=timedelta(seconds=29)), "hard_limit_seconds"),
        (lambda: Terms(hard_limit=timedelta(days=7, seconds=1)), "hard_limit_seconds"),
    ],
)
def test_terms_that_are_out_of_range_are_refused(terms: Callable[[], Terms], field: str) -> None:
    with pytest.raises(Rejected) as refused:
        terms()
    assert refused.value.field == field


def test_the_longest_heartbeat_is_watched_from_afar() -> None:
    system, claimed = ready()
    far = Terms(heartbeat=timedelta(hours=3), hard_limit=timedelta(days=7))
    outcome: Outcome = Deferred(terms=far)
    execute.conclude(system.ports, claimed, outcome)
    assert len(system.world.queue) == 0

    system.run_for(timedelta(hours=3) + 4 * SECOND)
    assert row(system, claimed).state is State.RUNNING
    system.run_for(10 * SECOND)

    assert row(system, claimed).state is State.SUCCEEDED
    assert row(system, claimed).attempts[0].state is State.RETRYING
