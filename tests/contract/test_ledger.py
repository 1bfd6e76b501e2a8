"""`ports.Ledger`: what holds of every implementation, sentence by sentence."""

import uuid
from dataclasses import replace
from datetime import timedelta

import pytest

from lamplighter.core.errors import LostClaim, Permanent, WritesRefused
from lamplighter.core.lifecycle import State
from lamplighter.core.limits import COMPLETION_MAX_WRITES
from lamplighter.core.model import Execution, Owner, Token
from lamplighter.core.outcome import Succeeded, finished
from lamplighter.core.retry import RetryPolicy
from lamplighter.ports import Checkpoint, Step
from tests.contract.racing import race
from tests.contract.worlds import World
from tests.support.own_table import UNMET, new_counter, one_more
from tests.support.rows import LEASE, OTHER_TOKEN, OWNER, TOKEN, WORKER, T, one_off, s

KEPT_UNTIL = T + timedelta(days=30)
STEP = Step(owner=OWNER, idempotent_as="ex_1", key="charge")


def a_call() -> str:
    """An emulator remembers them through all tests."""
    return uuid.uuid4().hex


def held(world: World, row: Execution | None = None) -> Execution:
    row = row or one_off()
    world.executions.put([row])
    won = world.executions.claim(
        row.id, attempt=1, token=TOKEN, worker=WORKER, now=T, lease_until=T + LEASE
    )
    assert isinstance(won, Execution)
    return won


def taken_over(world: World, holder: Execution) -> Execution:
    won = world.executions.take_over(
        holder, token=OTHER_TOKEN, worker="w-2", now=T + s(40), lease_until=T + s(70)
    )
    assert isinstance(won, Execution)
    return won


def done(running: Execution, *, seconds: float = 1) -> Execution:
    outcome = Succeeded(result="7")
    return finished(running, outcome, policy=RetryPolicy(), now=T + s(seconds), jitter=1.0)


def save(world: World, row: Execution, text: str, *, number: int = 1, token: Token = TOKEN) -> None:
    world.ledger.save(
        row.id, Checkpoint(text=text, number=number), token=token, kept_until=KEPT_UNTIL
    )


# Checkpoints.


def test_the_last_checkpoint_is_what_is_read(world: World) -> None:
    """S0-U2, S2-Q3: resumable progress."""
    row = held(world)
    assert world.ledger.saved(row.id) is None

    save(world, row, '{"page":1}')
    save(world, row, '{"page":"ä"}', number=2)

    assert world.ledger.saved(row.id) == '{"page":"ä"}'
    assert world.executions.get(row.id) == row


def test_a_checkpoint_outlives_its_claim(world: World) -> None:
    row = held(world)
    save(world, row, "1", number=9)

    other = taken_over(world, row)
    save(world, other, "2", token=OTHER_TOKEN)

    assert world.ledger.saved(row.id) == "2"


def test_whoever_lost_the_claim_keeps_nothing(world: World) -> None:
    row = held(world)
    save(world, row, "1")
    taken_over(world, row)

    with pytest.raises(LostClaim):
        save(world, row, "2", number=2)

    assert world.ledger.saved(row.id) == "1"


def test_an_execution_that_has_ended_takes_no_checkpoint(world: World) -> None:
    row = held(world)
    world.executions.settle(done(row), token=TOKEN)

    with pytest.raises(LostClaim):
        save(world, row, "1")

    assert world.ledger.saved(row.id) is None


def test_a_checkpoint_that_arrives_after_a_later_one_is_passed_over(world: World) -> None:
    row = held(world)
    save(world, row, "2", number=2)

    save(world, row, "1", number=1)
    save(world, row, "2", number=2)

    assert world.ledger.saved(row.id) == "2"


# Steps.


def test_the_first_result_of_a_step_stays(world: World) -> None:
    """S0-N5, S0-L5, S2-E4."""
    assert world.ledger.recorded(STEP) is None

    first = world.ledger.record(STEP, '{"paid":"ä"}', kept_until=KEPT_UNTIL)
    second = world.ledger.record(STEP, "2", kept_until=KEPT_UNTIL)

    assert first == second == world.ledger.recorded(STEP) == '{"paid":"ä"}'


@pytest.mark.parametrize(
    "other",
    [
        replace(STEP, owner=Owner("other")),
        replace(STEP, idempotent_as="ex_2"),
        replace(STEP, key="charge#2"),
        replace(STEP, key="ä" * 255),
    ],
    ids=["another owner", "another execution", "another key", "the longest key"],
)
def test_a_step_is_of_its_owner_its_execution_and_its_key(world: World, other: Step) -> None:
    world.ledger.record(STEP, "1", kept_until=KEPT_UNTIL)

    assert world.ledger.recorded(other) is None
    assert world.ledger.record(other, "2", kept_until=KEPT_UNTIL) == "2"
    assert world.ledger.recorded(STEP) == "1"


def test_of_many_that_record_at_once_all_are_told_of_the_same_one(world: World) -> None:
    told = race(lambda n: world.ledger.record(STEP, str(n), kept_until=KEPT_UNTIL), 8)

    assert len({*told}) == 1
    assert world.ledger.recorded(STEP) == told[0]


# Their own writes, and the end of their execution.


def test_their_writes_and_the_end_of_the_execution_are_one(world: World) -> None:
    """S0-L5, S2-E5: effectively once, for their data."""
    row = held(world)
    writes = [one_more(world.own, "sum"), new_counter(world.own, row.id)]

    ended = world.ledger.complete(done(row), token=TOKEN, writes=writes, call=a_call())

    assert ended == world.executions.get(row.id)
    assert (ended.state, ended.result, ended.token) == (State.SUCCEEDED, "7", None)
    assert (world.own.count("sum"), world.own.count(row.id)) == (1, 1)


def test_without_writes_of_their_own_it_ends_all_the_same(world: World) -> None:
    row = held(world)

    ended = world.ledger.complete(done(row), token=TOKEN, writes=[], call=a_call())

    assert ended.state is State.SUCCEEDED


def test_what_was_asked_for_meanwhile_is_in_the_row(world: World) -> None:
    row = held(world)
    world.executions.request_cancel(row.id, now=T + s(1))

    ended = world.ledger.complete(done(row), token=TOKEN, writes=[], call=a_call())

    assert ended.cancel_requested_at == T + s(1)


def test_whoever_lost_the_claim_writes_nothing(world: World) -> None:
    row = held(world)
    other = taken_over(world, row)

    with pytest.raises(LostClaim):
        world.ledger.complete(
            done(row), token=TOKEN, writes=[one_more(world.own, "sum")], call=a_call()
        )

    assert world.own.count("sum") is None
    assert world.executions.get(row.id) == other


def test_a_condition_of_theirs_is_told_and_nothing_is_written(world: World) -> None:
    row = held(world)
    spare = held(world, one_off(n=2))
    world.ledger.complete(
        done(spare), token=TOKEN, writes=[new_counter(world.own, "b")], call=a_call()
    )
    writes = [one_more(world.own, "a"), new_counter(world.own, "b"), new_counter(world.own, "c")]

    with pytest.raises(WritesRefused) as refused:
        world.ledger.complete(done(row), token=TOKEN, writes=writes, call=a_call())

    assert [(one.index, one.code) for one in refused.value.refusals] == [(1, UNMET)]
    assert [world.own.count(key) for key in "abc"] == [None, 1, None]
    assert world.executions.get(row.id) == row


def test_after_a_refusal_other_writes_may_follow(world: World) -> None:
    row = held(world)
    spare = held(world, one_off(n=2))
    world.ledger.complete(
        done(spare), token=TOKEN, writes=[new_counter(world.own, "b")], call=a_call()
    )
    with pytest.raises(WritesRefused):
        world.ledger.complete(
            done(row), token=TOKEN, writes=[new_counter(world.own, "b")], call=a_call()
        )

    ended = world.ledger.complete(
        done(row, seconds=2), token=TOKEN, writes=[one_more(world.own, "b")], call=a_call()
    )

    assert ended.state is State.SUCCEEDED
    assert world.own.count("b") == 2


def test_the_same_call_again_changes_nothing(world: World) -> None:
    row, call = held(world), a_call()
    calls = [
        world.ledger.complete(
            done(row), token=TOKEN, writes=[one_more(world.own, "sum")], call=call
        )
        for _ in range(2)
    ]

    assert calls[0] == calls[1] == world.executions.get(row.id)
    assert world.own.count("sum") == 1


def test_of_many_that_end_it_at_once_one_writes(world: World) -> None:
    row = held(world)

    def complete(n: int) -> bool:
        try:
            world.ledger.complete(
                done(row, seconds=n),
                token=TOKEN,
                writes=[one_more(world.own, "sum")],
                call=a_call(),
            )
        except LostClaim:
            return False
        return True

    won = race(complete, 6)

    assert won.count(True) == 1
    assert world.own.count("sum") == 1


@pytest.mark.parametrize(
    ("writes", "told"),
    [
        ([{"Put": {"TableName": "t"}}] * (COMPLETION_MAX_WRITES + 1), "100 items; at most 99"),
        ([{"Get": {"TableName": "t"}}], "item 0: one of Put, Update, Delete, ConditionCheck"),
        ([{}], "item 0: one of .*, not nothing"),
        ([{"Put": {"TableName": "t"}, "Delete": {}}], "not Delete, Put"),
        ([{"Put": {"Item": {}}}], "item 0: no TableName"),
        ([{"Put": None}], "item 0: no TableName"),
    ],
    ids=["too many", "another verb", "none", "two", "no table", "nothing in it"],
)
def test_what_is_no_list_of_writes_is_refused(
    world: World, writes: list[dict[str, object]], told: str
) -> None:
    row = held(world)

    with pytest.raises(Permanent, match=told):
        world.ledger.complete(done(row), token=TOKEN, writes=writes, call=a_call())

    assert world.executions.get(row.id) == row
