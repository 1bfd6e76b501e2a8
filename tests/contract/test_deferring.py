"""`ports.Executions` of tries that go on without a worker: what their writes hang on."""

from dataclasses import replace

import pytest

from lamplighter.core.deferral import (
    LAPSED,
    TAKEN_OVER,
    TERMINATED,
    CalledBack,
    Terms,
    callback_of,
    digest_of,
)
from lamplighter.core.errors import LostClaim
from lamplighter.core.lifecycle import State
from lamplighter.core.model import Execution, Token
from lamplighter.core.outcome import Deferred, Succeeded, called_back, lapsed, terminated
from lamplighter.core.retry import RetryPolicy
from tests.contract.racing import race
from tests.contract.worlds import World
from tests.support.rows import LEASE, OTHER_TOKEN, WORKER, T, after, one_off, s

CALLBACK = callback_of("5" * 32)
TOKEN = Token(digest_of(CALLBACK))
TERMS = Terms(heartbeat=s(60), hard_limit=s(600))


def handed_over(world: World) -> Execution:
    row = one_off()
    world.executions.put([row])
    held = world.executions.claim(
        row.id, attempt=1, token=TOKEN, worker=WORKER, now=T, lease_until=T + LEASE
    )
    assert isinstance(held, Execution)
    return world.executions.settle(after(held, Deferred(terms=TERMS, version=3)), token=TOKEN)


def completed(held: Execution, result: str = "7") -> Execution:
    return called_back(
        held,
        Succeeded(result=result),
        answer=f"said {result}",
        policy=RetryPolicy(),
        now=T + s(30),
        jitter=1.0,
    )


def silent(held: Execution) -> Execution:
    assert held.deferral is not None
    return lapsed(held, held.deferral, policy=RetryPolicy(), now=T + s(66), jitter=1.0)


def test_a_try_that_was_handed_over_is_held_on_and_by_what_it_was_deferred(world: World) -> None:
    """S2-A7."""
    held = handed_over(world)

    assert (held.state, held.token, held.worker) == (State.RUNNING, TOKEN, WORKER)
    assert held.deferral is not None
    assert (held.deferral.heartbeat, held.deferral.version) == (s(60), 3)
    assert (held.deferral.ends_at, held.lease_until) == (T + s(600), T + s(61))
    assert world.executions.get(held.id) == held


def test_handing_it_over_again_takes_back_nothing_that_was_heard_of_it_since(
    world: World,
) -> None:
    """P9: whoever had no answer asks again, while elsewhere it goes on."""
    held = handed_over(world)
    beaten = world.executions.extend(held.id, token=TOKEN, lease_until=T + s(90))

    again = world.executions.settle(held, token=TOKEN)

    assert again == beaten
    assert world.executions.get(held.id) == beaten


def test_it_is_handed_over_in_one_way_only(world: World) -> None:
    held = handed_over(world)
    assert held.deferral is not None
    longer = replace(held, deferral=replace(held.deferral, ends_at=T + s(900)))

    with pytest.raises(LostClaim):
        world.executions.settle(longer, token=TOKEN)

    assert world.executions.get(held.id) == held


def test_a_heartbeat_moves_its_lease_and_leaves_the_rest(world: World) -> None:
    """S2-A7."""
    held = handed_over(world)

    beaten = world.executions.extend(held.id, token=TOKEN, lease_until=T + s(90))

    assert beaten == replace(held, lease_until=T + s(90))
    assert world.executions.get(held.id) == beaten


def test_the_policy_of_its_task_is_kept_until_it_has_ended(world: World) -> None:
    """S0-R1: who ends it knows no tasks."""
    row, policy = one_off(), RetryPolicy(max_attempts=7, retry_on=("Busy",))
    world.executions.put([row])
    held = world.executions.claim(
        row.id, attempt=1, token=TOKEN, worker=WORKER, now=T, lease_until=T + LEASE
    )
    assert isinstance(held, Execution)

    given = world.executions.settle(
        after(held, Deferred(terms=TERMS, version=3, retry=policy)), token=TOKEN
    )
    done = world.executions.settle(completed(given), token=TOKEN)

    assert given.deferral is not None
    assert (given.deferral.version, given.deferral.retry) == (3, policy)
    assert done.deferral is None
    assert world.executions.get(row.id) == done


def test_its_end_is_kept_with_who_said_it(world: World) -> None:
    """S2-A7."""
    held = handed_over(world)

    done = world.executions.settle(completed(held), token=TOKEN)

    assert (done.state, done.result, done.token, done.deferral) == (
        State.SUCCEEDED,
        "7",
        None,
        None,
    )
    assert done.called_back is not None
    assert (done.called_back.token, done.called_back.answer) == (TOKEN, "said 7")
    assert done.attempts[-1].handler_version == 3
    assert world.executions.get(held.id) == done


def test_that_it_was_terminated_is_kept_with_whose_try_it_was(world: World) -> None:
    """S0-L3."""
    held = handed_over(world)

    over = world.executions.end(held, terminated(held, now=T + s(30), reason="overlap"))

    assert isinstance(over, Execution)
    assert over.called_back == CalledBack(token=TOKEN, answer=TERMINATED)
    assert world.executions.get(held.id) == over


def test_that_it_was_taken_over_is_kept_with_whose_try_it_was(world: World) -> None:
    """S0-L3."""
    row = one_off()
    world.executions.put([row])
    held = world.executions.claim(
        row.id, attempt=1, token=TOKEN, worker=WORKER, now=T, lease_until=T + LEASE
    )
    assert isinstance(held, Execution)

    taken = world.executions.take_over(
        held, token=OTHER_TOKEN, worker="worker-2", now=T + 2 * LEASE, lease_until=T + 3 * LEASE
    )

    assert isinstance(taken, Execution)
    assert taken.called_back == CalledBack(token=TOKEN, answer=TAKEN_OVER)
    assert world.executions.get(row.id) == taken


def test_of_many_ends_at_once_one_is_written(world: World) -> None:
    """S2-E5."""
    held = handed_over(world)

    def end(n: int) -> Execution | None:
        try:
            return world.executions.settle(completed(held, str(n)), token=TOKEN)
        except LostClaim:
            return None

    (won,) = [row for row in race(end, 6) if row is not None]
    assert world.executions.get(held.id) == won


def test_it_lapses_where_it_was_not_heard_of_since_it_was_read(world: World) -> None:
    held = handed_over(world)

    over = world.executions.settle(silent(held), token=TOKEN, lease_until=held.lease_until)

    assert (over.state, over.attempt, over.deferral) == (State.RETRYING, 2, None)
    assert over.called_back is not None
    assert over.called_back.answer == LAPSED
    assert world.executions.get(held.id) == over


def test_it_does_not_lapse_where_it_was_heard_of(world: World) -> None:
    """S0-L3."""
    held = handed_over(world)
    beaten = world.executions.extend(held.id, token=TOKEN, lease_until=T + s(120))

    with pytest.raises(LostClaim):
        world.executions.settle(silent(held), token=TOKEN, lease_until=held.lease_until)

    assert world.executions.get(held.id) == beaten


def test_with_another_token_it_does_not_lapse(world: World) -> None:
    """S0-L3."""
    held = handed_over(world)

    with pytest.raises(LostClaim):
        world.executions.settle(silent(held), token=OTHER_TOKEN, lease_until=held.lease_until)

    assert world.executions.get(held.id) == held


def test_its_lapse_after_its_end_changes_nothing(world: World) -> None:
    """S2-E5."""
    held = handed_over(world)
    done = world.executions.settle(completed(held), token=TOKEN)

    with pytest.raises(LostClaim):
        world.executions.settle(silent(held), token=TOKEN, lease_until=held.lease_until)

    assert world.executions.get(held.id) == done


def test_the_next_try_is_claimed_by_another_and_the_first_token_opens_it_no_more(
    world: World,
) -> None:
    """S0-L3: a token is bound to one try."""
    held = handed_over(world)
    over = world.executions.settle(silent(held), token=TOKEN, lease_until=held.lease_until)
    assert over.next_run_at is not None
    second = world.executions.claim(
        held.id,
        attempt=2,
        token=OTHER_TOKEN,
        worker="worker-2",
        now=over.next_run_at,
        lease_until=over.next_run_at + LEASE,
    )
    assert isinstance(second, Execution)
    assert second.deferral is None

    with pytest.raises(LostClaim):
        world.executions.settle(completed(held), token=TOKEN)
    with pytest.raises(LostClaim):
        world.executions.extend(held.id, token=TOKEN, lease_until=second.due_at + s(900))

    assert world.executions.get(held.id) == second
