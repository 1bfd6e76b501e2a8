"""A handler's own writes on DynamoDB: what its answers mean, and what a checkpoint costs."""

from typing import Any, cast

import pytest
from botocore.exceptions import ReadTimeoutError

from lamplighter.aws.dynamo import Dynamo
from lamplighter.aws.failures import CallRefused
from lamplighter.aws.ledger import DynamoLedger
from lamplighter.aws.patience import Fan, Patience
from lamplighter.core.errors import Contended, LostClaim, Permanent, Retryable, Unavailable
from lamplighter.core.lifecycle import State
from lamplighter.core.model import Execution
from lamplighter.core.outcome import Succeeded
from lamplighter.memory import SeededChance
from lamplighter.ports import Checkpoint
from tests.aws.conftest import Bench
from tests.support.faulty import lost, never, refusal, repeated
from tests.support.meter import Meter
from tests.support.own_table import DynamoOwnTable, one_more
from tests.support.rows import LEASE, TOKEN, WORKER, T, after, one_off

TIMEOUT = ReadTimeoutError(endpoint_url="https://dynamodb.us-east-1.amazonaws.com")
CALL = "c" * 32


@pytest.fixture
def ledger(bench: Bench) -> DynamoLedger:
    dynamo = Dynamo(
        cast("Any", bench.dynamodb),
        patience=Patience(clock=bench.clock, chance=SeededChance()),
        fan=Fan(1),
    )
    others = [bench.tables.jobs, bench.tables.control]
    return DynamoLedger(dynamo, table=bench.tables.executions, others=others)


@pytest.fixture
def own(bench: Bench) -> Any:  # noqa: ANN401 -- a generator's value
    table = DynamoOwnTable(bench.clients.unmetered, "own")
    yield table
    table.delete()


def held(bench: Bench) -> Execution:
    row = one_off()
    bench.executions.put([row])
    won = bench.executions.claim(
        row.id, attempt=1, token=TOKEN, worker=WORKER, now=T, lease_until=T + LEASE
    )
    assert isinstance(won, Execution)
    return won


def cancelled(*codes: str) -> Exception:
    reasons = [{"Code": code, "Message": f"told {code}"} for code in codes]
    return refusal("TransactionCanceledException", CancellationReasons=reasons)


def complete(ledger: DynamoLedger, row: Execution, *writes: Any) -> Execution:  # noqa: ANN401
    done = after(row, Succeeded(result="1"))
    return ledger.complete(done, token=TOKEN, writes=writes, call=CALL)


@pytest.mark.parametrize("fault", [lost(TIMEOUT), repeated], ids=["lost", "repeated"])
def test_an_end_whose_answer_is_lost_is_made_once(
    bench: Bench,
    ledger: DynamoLedger,
    own: DynamoOwnTable,
    fault: Any,  # noqa: ANN401
) -> None:
    row = held(bench)
    bench.dynamodb.next("transact_write_items", fault)

    try:
        complete(ledger, row, one_more(own, "sum"))
    except Unavailable:
        complete(ledger, row, one_more(own, "sum"))

    ended = bench.executions.get(row.id)
    assert ended is not None
    assert ended.state is State.SUCCEEDED
    assert own.count("sum") == 1


def test_long_after_it_an_end_is_known_by_what_it_wrote(
    bench: Bench, ledger: DynamoLedger, own: DynamoOwnTable
) -> None:
    """When DynamoDB has forgotten the call: the token is gone, and the row is what it made."""
    row = held(bench)
    done = after(row, Succeeded(result="1"))
    for call in ("a" * 32, "b" * 32):
        ended = ledger.complete(done, token=TOKEN, writes=[one_more(own, "sum")], call=call)
        assert ended == bench.executions.get(row.id)

    assert own.count("sum") == 1


def test_every_try_of_one_call_says_so(
    bench: Bench, ledger: DynamoLedger, own: DynamoOwnTable
) -> None:
    row = held(bench)
    conflict = never(cancelled("None", "TransactionConflict"))
    bench.dynamodb.next("transact_write_items", *[conflict] * 9)

    complete(ledger, row, one_more(own, "sum"))

    asked = bench.dynamodb.asked["transact_write_items"]
    assert [call["ClientRequestToken"] for call in asked] == 10 * [CALL]
    assert own.count("sum") == 1


@pytest.mark.parametrize(
    ("error", "means", "told"),
    [
        (cancelled("None", "TransactionConflict"), Contended, "TransactionConflict"),
        (cancelled("None", "ThrottlingError"), Unavailable, "ThrottlingError"),
        (
            cancelled("TransactionConflict", "ProvisionedThroughputExceeded"),
            Unavailable,
            "Exceeded",
        ),
        (refusal("InternalServerError", status=500), Unavailable, "InternalServerError"),
        (cancelled("ConditionalCheckFailed", "ConditionalCheckFailed"), LostClaim, "no longer"),
        (cancelled("None", "ConditionalCheckFailed"), Permanent, "item 0: ConditionalCheckFailed"),
        (cancelled("None", "ValidationError"), Permanent, "told ValidationError"),
        (
            cancelled("None", "None", "ItemCollectionSizeLimitExceeded"),
            Permanent,
            "item 1: ItemCollectionSizeLimitExceeded",
        ),
        (refusal("ValidationException"), Permanent, "ValidationException"),
        (refusal("AccessDeniedException"), Retryable, "AccessDeniedException"),
        (refusal("ResourceNotFoundException"), Retryable, "ResourceNotFoundException"),
        (refusal("IdempotentParameterMismatchException"), CallRefused, "Mismatch"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_an_answer_means(
    bench: Bench, ledger: DynamoLedger, error: Exception, means: type[Exception], told: str
) -> None:
    row = held(bench)
    bench.dynamodb.always(never(error), "transact_write_items")

    with pytest.raises(means, match=told):
        complete(ledger, row, {"Delete": {"TableName": "own", "Key": {"pk": {"S": "k"}}}})

    assert bench.executions.get(row.id) == row


@pytest.mark.parametrize(
    ("write", "told"),
    [
        ({"Put": {"TableName": "own", "Item": {"pk": {"S": 1}}}}, "Parameter validation failed"),
        ({"Put": {"TableName": "own", "Itme": {}}}, "Itme"),
    ],
    ids=["a value of another type", "a misspelt name"],
)
def test_what_is_not_even_sent_is_told(
    bench: Bench, ledger: DynamoLedger, write: dict[str, object], told: str
) -> None:
    with pytest.raises(Permanent, match=told):
        complete(ledger, held(bench), write)


@pytest.mark.parametrize("prefix", ["", "arn:aws:dynamodb:us-east-1:123456789012:table/"])
@pytest.mark.parametrize("whose", ["executions", "jobs", "control"])
def test_no_handler_writes_to_our_own_tables(
    bench: Bench, ledger: DynamoLedger, prefix: str, whose: str
) -> None:
    row = held(bench)
    name = prefix + getattr(bench.tables, whose)

    with pytest.raises(Permanent, match="Lamplighter's own"):
        complete(ledger, row, {"Delete": {"TableName": name, "Key": {"pk": {"S": "k"}}}})

    assert bench.executions.get(row.id) == row


def test_a_checkpoint_costs_four_write_units_and_the_row_is_as_it_was(
    bench: Bench, ledger: DynamoLedger
) -> None:
    row = held(bench)
    meter = Meter(bench.clients.unmetered)
    meter.attach(bench.clients.dynamodb)

    with meter.path() as bill:
        ledger.save(row.id, Checkpoint(text="1", number=1), token=TOKEN, kept_until=T)

    # The check of the row and the checkpoint, each at twice a write's price.
    assert bill.calls == {"TransactWriteItems": 2}, bill
    assert bill.write_units == 4, bill
    assert bench.executions.get(row.id) == row
