"""Limits on DynamoDB: how long they are gone by, and answers that are lost or refused."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, cast

import pytest
from botocore.exceptions import ReadTimeoutError

from lamplighter.aws.dynamo import Dynamo
from lamplighter.aws.patience import Fan, Patience
from lamplighter.aws.permits import DynamoPermits
from lamplighter.core.errors import Unavailable
from lamplighter.core.limits import LIMIT_MAX, LIMITS_FRESH
from lamplighter.core.permits import Bound, Key, Kind, Limits, Permit
from lamplighter.memory import SeededChance
from tests.aws.conftest import Bench
from tests.support.faulty import Call, Fault, lost, never, refusal, repeated
from tests.support.rows import OTHER_TOKEN, TOKEN, T, one_off, s

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

LANE = Key(kind=Kind.QUEUE, name="default")
ONE = Bound(key=LANE, most=1)
PERMIT = Permit.of(one_off().id, TOKEN)
OTHER = Permit.of(one_off().id, OTHER_TOKEN)
TIMEOUT = ReadTimeoutError(endpoint_url="https://dynamodb.us-east-1.amazonaws.com")
SILENT: list[Callable[[Exception], Fault]] = [never, lost]


def host(bench: Bench) -> DynamoPermits:
    """Another process."""
    patience = Patience(clock=bench.clock, chance=SeededChance())
    dynamo = Dynamo(cast("DynamoDBClient", bench.dynamodb), patience=patience, fan=Fan(2))
    return DynamoPermits(dynamo, table=bench.tables.control, clock=bench.clock)


@pytest.fixture
def permits(bench: Bench) -> DynamoPermits:
    made = host(bench)
    before = made.limits()
    assert made.revise(before, before.set(LANE, 1))
    return made


def test_a_host_goes_by_the_limits_that_it_read_for_ten_seconds(
    bench: Bench, permits: DynamoPermits
) -> None:
    other = host(bench)
    before = other.limits()
    permits.revise(before, before.without(LANE))

    bench.clock.sleep(LIMITS_FRESH - s(0.1))
    assert other.limits().of == {LANE: 1}
    bench.clock.sleep(s(0.1))
    assert other.limits().of == {}


def test_nobody_goes_by_limits_of_long_ago_while_another_thread_reads_them_anew(
    bench: Bench, permits: DynamoPermits
) -> None:
    """Of fifty that raced for three places, 26 ran at once on the local stack."""
    other = host(bench)
    before = other.limits()
    permits.revise(before, before.without(LANE))
    bench.clock.sleep(LIMITS_FRESH)
    meanwhile: list[Limits] = []

    def slow(call: Call, parameters: Mapping[str, object]) -> Mapping[str, object]:
        meanwhile.append(other.limits())
        return call(**parameters)

    bench.dynamodb.next("get_item", slow)
    other.limits()

    assert [limits.of for limits in meanwhile] == [{}]


@pytest.mark.parametrize("fault", SILENT)
def test_a_host_goes_on_by_the_limits_that_it_read_while_the_table_does_not_answer(
    bench: Bench, permits: DynamoPermits, fault: Callable[[Exception], Fault]
) -> None:
    """What is not limited must not wait for that; and it is not asked at every start."""
    bench.clock.sleep(LIMITS_FRESH)
    bench.dynamodb.next("get_item", fault(TIMEOUT))
    asked = bench.dynamodb.calls["get_item"]

    assert [permits.limits().of for _ in range(3)] == [{LANE: 1}] * 3
    assert bench.dynamodb.calls["get_item"] == asked + 1


def test_a_host_that_knows_no_limits_yet_waits_for_them(bench: Bench) -> None:
    bench.dynamodb.next("get_item", never(TIMEOUT))

    with pytest.raises(Unavailable):
        host(bench).limits()


def test_whoever_changes_limits_goes_by_none_that_it_knew(
    bench: Bench, permits: DynamoPermits
) -> None:
    bench.dynamodb.next("get_item", never(TIMEOUT))

    with pytest.raises(Unavailable):
        permits.limits(anew=True)


def test_a_place_whose_answer_was_lost_is_there_when_it_is_asked_for_again(
    bench: Bench, permits: DynamoPermits
) -> None:
    bench.dynamodb.next("update_item", lost(TIMEOUT))
    with pytest.raises(Unavailable):
        permits.acquire(ONE, PERMIT, until=T + s(35))

    assert permits.acquire(ONE, PERMIT, until=T + s(36)) is None
    assert permits.acquire(ONE, OTHER, until=T + s(35)) is not None


@pytest.mark.parametrize("call", ["acquire", "release", "wait"])
def test_botocore_may_send_each_call_twice(bench: Bench, permits: DynamoPermits, call: str) -> None:
    assert permits.acquire(ONE, OTHER, until=T + s(35)) is None
    permits.release(LANE, OTHER)
    bench.dynamodb.next("update_item", repeated)

    if call == "acquire":
        assert permits.acquire(ONE, PERMIT, until=T + s(35)) is None
    elif call == "release":
        assert permits.release(LANE, OTHER).holders == {}
    else:
        permits.wait(LANE, one_off().id, kept_until=T + s(60))
        assert permits.waiting(LANE, most=9) == 1

    assert len(permits.uses([LANE])[LANE].holders) == (call == "acquire")


def test_a_place_in_the_way_of_a_change_of_limits_is_asked_for_again(
    bench: Bench, permits: DynamoPermits
) -> None:
    bench.dynamodb.next("update_item", never(refusal("TransactionConflictException")))

    assert permits.acquire(ONE, PERMIT, until=T + s(35)) is None


def test_a_change_of_limits_whose_answer_was_lost_is_seen_when_it_is_made_again(
    bench: Bench, permits: DynamoPermits
) -> None:
    before = permits.limits()
    bench.dynamodb.next("transact_write_items", lost(TIMEOUT))
    with pytest.raises(Unavailable):
        permits.revise(before, before.set(LANE, 7))

    assert not permits.revise(before, before.set(LANE, 8))
    assert permits.limits(anew=True) == Limits(of={LANE: 7}, version=before.version + 1)


def test_as_many_places_as_may_be_fit_into_one_item(bench: Bench, permits: DynamoPermits) -> None:
    """Of 400 KB; and each write of it is a unit for each KB."""
    holders = {
        Permit.of(one_off(n=n).id, TOKEN).text: {"N": "1767225600"} for n in range(LIMIT_MAX)
    }
    size = sum(len(text) + len("1767225600") // 2 + 3 for text in holders)

    assert size < 45 * 1024
    assert permits.acquire(ONE, PERMIT, until=T) is None
