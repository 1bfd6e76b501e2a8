"""The four guarantees that a distributed scheduler stands on, on every implementation."""

from datetime import datetime, timedelta

import pytest

from lamplighter.core.buckets import Position, before, through
from lamplighter.core.errors import LostClaim, LostLease
from lamplighter.core.lease import Grant, Held, Intent, Kind, Void, Work
from lamplighter.core.lifecycle import State
from lamplighter.core.limits import PARTITION_LEASE
from lamplighter.core.model import Execution, Token
from lamplighter.core.outcome import Succeeded
from lamplighter.ports import Refusal
from tests.contract.racing import race
from tests.contract.worlds import World
from tests.support.partition_work import watermarks
from tests.support.rows import LEASE, T, after, one_off, s

WORK = Work(partition=3, kind=Kind.DISPATCH)
START = before(T)
PAGE = through(T + s(10))


def acquire(world: World, owner: str, now: datetime) -> Grant | Held | Void:
    return world.control.acquire(
        WORK, owner=owner, now=now, until=now + PARTITION_LEASE, start=START
    )


def granted(world: World, owner: str, now: datetime) -> Grant:
    lease = acquire(world, owner, now)
    assert isinstance(lease, Grant)
    return lease


def test_one_owner_holds_a_partition_while_a_second_is_refused(world: World) -> None:
    """S1-L1, S4-H4: a lease is a conditional write to one item; there is no ZooKeeper."""
    answers = race(lambda n: acquire(world, f"owner-{n}", T), 10)

    assert [type(answer) for answer in answers].count(Grant) == 1
    assert {answer.until for answer in answers if isinstance(answer, Held)} == {T + PARTITION_LEASE}
    assert isinstance(acquire(world, "late", T + PARTITION_LEASE - s(0.001)), Held)


def test_after_the_lease_lapses_a_new_owner_has_a_higher_epoch_and_the_old_ones_writes_are_refused(
    world: World,
) -> None:
    """S0-T3, S1-L2: ownership carries an epoch, and stale owners move nothing."""
    old = granted(world, "paused", T)
    intent = Intent(after=START, until=PAGE, decided_at=T)
    world.control.advance(old, watermark=START, intent=intent, until=T + PARTITION_LEASE)

    new = granted(world, "next", T + PARTITION_LEASE)
    with pytest.raises(LostLease):
        world.control.advance(old, watermark=PAGE, intent=None, until=T + 2 * PARTITION_LEASE)

    assert new.epoch > old.epoch
    assert (new.watermark, new.intent) == (START, intent)
    assert watermarks(world.control, [WORK]) == {WORK: Position(START)}


def test_of_ten_workers_racing_to_claim_exactly_one_wins(world: World) -> None:
    """S1-H3, S2-L2: the conditional write decides, whoever was asked."""
    row = one_off()
    world.executions.put([row])

    answers = race(
        lambda n: world.executions.claim(
            row.id,
            attempt=1,
            token=Token(f"{n:032x}"),
            worker=f"worker-{n}",
            now=T,
            lease_until=T + LEASE,
        ),
        10,
    )

    (winner,) = (answer for answer in answers if isinstance(answer, Execution))
    assert world.executions.get(row.id) == winner
    assert {answer.found for answer in answers if isinstance(answer, Refusal)} == {winner}


def test_a_worker_that_falls_silent_loses_the_execution_and_its_late_result_is_refused(
    world: World,
) -> None:
    """S0-E2, S4-L5, S1-W3: its lease ends, and another may try; effects may then repeat."""
    row = one_off()
    world.executions.put([row])
    silent, other = Token("a" * 32), Token("b" * 32)
    held = world.executions.claim(
        row.id, attempt=1, token=silent, worker="silent", now=T, lease_until=T + LEASE
    )
    assert isinstance(held, Execution)

    now = T + LEASE + timedelta(seconds=5)
    taken = world.executions.take_over(
        held, token=other, worker="other", now=now, lease_until=now + LEASE
    )
    assert isinstance(taken, Execution)
    with pytest.raises(LostClaim):
        world.executions.settle(after(held, Succeeded(result='"late"')), token=silent)
    with pytest.raises(LostClaim):
        world.executions.extend(row.id, token=silent, lease_until=now + 2 * LEASE)
    done = world.executions.settle(after(taken, Succeeded(result='"ok"')), token=other)

    assert (done.state, done.result, done.crashes) == (State.SUCCEEDED, '"ok"', 1)
    assert world.executions.get(row.id) == done
