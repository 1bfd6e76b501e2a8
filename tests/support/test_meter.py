"""The meter against examples worked out by hand.

A row of `row(n)` is n bytes: `pk` + "p" (3) + `sk` + one letter (3) + `v` (1) + n − 7.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from tests.support.meter import Bill, Meter
from tests.support.sizes import item_size, number_size, value_size

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_sqs import SQSClient

TABLE = "things"
INDEXES = {
    "keys_only": {"ProjectionType": "KEYS_ONLY"},
    "include_w": {"ProjectionType": "INCLUDE", "NonKeyAttributes": ["w"]},
    "all": {"ProjectionType": "ALL"},
}


@dataclass(frozen=True, kw_only=True)
class Lab:
    """A metered client of each service, on one table with an index of each kind, and a queue."""

    dynamodb: "DynamoDBClient"
    sqs: "SQSClient"
    meter: Meter
    queue_url: str


@pytest.fixture(scope="module")
def clients() -> "Iterator[tuple[DynamoDBClient, DynamoDBClient, SQSClient]]":
    with mock_aws():
        session = boto3.Session(region_name="us-east-1")
        yield session.client("dynamodb"), session.client("dynamodb"), session.client("sqs")


@pytest.fixture
def lab(clients: "tuple[DynamoDBClient, DynamoDBClient, SQSClient]") -> Iterator[Lab]:
    dynamodb, unmetered, sqs = clients
    create_table(unmetered)
    url = sqs.create_queue(QueueName="work")["QueueUrl"]
    meter = Meter(unmetered)
    meter.attach(dynamodb, sqs)
    yield Lab(dynamodb=dynamodb, sqs=sqs, meter=meter, queue_url=url)
    unmetered.delete_table(TableName=TABLE)
    sqs.delete_queue(QueueUrl=url)


def create_table(client: "DynamoDBClient") -> None:
    """Each index has its own key, `k_` and its name, and is sparse."""
    indexes: Any = [
        {
            "IndexName": name,
            "KeySchema": [{"AttributeName": f"k_{name}", "KeyType": "HASH"}],
            "Projection": projection,
        }
        for name, projection in INDEXES.items()
    ]
    names = ["pk", "sk", *(f"k_{name}" for name in INDEXES)]
    client.create_table(
        TableName=TABLE,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[
            {"AttributeName": "pk", "KeyType": "HASH"},
            {"AttributeName": "sk", "KeyType": "RANGE"},
        ],
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in names],
        GlobalSecondaryIndexes=indexes,
    )


def key(sk: str = "a") -> dict[str, Any]:
    return {"pk": {"S": "p"}, "sk": {"S": sk}}


def row(size: int = 20, sk: str = "a", **more: str) -> dict[str, Any]:
    """An item of so many bytes, and of more attributes on top."""
    return {
        **key(sk),
        "v": {"S": "x" * (size - 7)},
        **{name: {"S": value} for name, value in more.items()},
    }


def put(lab: Lab, item: dict[str, Any]) -> None:
    lab.dynamodb.put_item(TableName=TABLE, Item=item)


def update(lab: Lab, expression: str, sk: str = "a", **values: str) -> None:
    lab.dynamodb.update_item(
        TableName=TABLE,
        Key=key(sk),
        UpdateExpression=expression,
        ExpressionAttributeValues={f":{name}": {"S": value} for name, value in values.items()},
    )


def costs(bill: Bill) -> tuple[int, int, float, int]:
    return bill.table_write_units, bill.index_write_units, bill.read_units, bill.sqs_requests


# Sizes.


def test_an_item_is_its_names_and_its_values() -> None:
    assert item_size(row(20)) == 20
    # "näme" is five bytes, "ü" two.
    assert item_size({"näme": {"S": "ü"}}) == 5 + 2


@pytest.mark.parametrize(
    ("number", "size"),
    [
        *[("0", 1), ("7", 2), ("42", 2), ("123", 3), ("1234", 3), ("-5", 3)],
        *[("1000", 2), ("0.05", 2), ("1.50", 2), ("1783821900000", 5), ("1783821900001", 8)],
    ],
)
def test_a_number_is_a_byte_for_two_significant_digits_and_one(number: str, size: int) -> None:
    assert number_size(number) == size


@pytest.mark.parametrize(
    ("value", "size"),
    [
        ({"BOOL": True}, 1),
        ({"NULL": True}, 1),
        ({"B": b"abc"}, 3),
        ({"SS": ["ab", "c"]}, 3),
        ({"NS": ["1", "22"]}, 4),
        ({"BS": [b"ab", b"c"]}, 3),
        ({"L": []}, 3),
        ({"L": [{"S": "ab"}, {"N": "1"}]}, 3 + (1 + 2) + (1 + 2)),
        ({"M": {}}, 3),
        ({"M": {"k": {"S": "ab"}, "long": {"BOOL": True}}}, 3 + (1 + 1 + 2) + (1 + 4 + 1)),
    ],
)
def test_other_values_are_sized_by_the_guide(value: dict[str, Any], size: int) -> None:
    assert value_size(value) == size


# Writes.


@pytest.mark.parametrize(("size", "units"), [(20, 1), (1024, 1), (1025, 2), (2049, 3)])
def test_a_put_is_rounded_up_to_a_kilobyte(lab: Lab, size: int, units: int) -> None:
    with lab.meter.path() as bill:
        put(lab, row(size))

    assert costs(bill) == (units, 0, 0, 0)


@pytest.mark.parametrize(("before", "after"), [(500, 1500), (1500, 500)])
def test_a_write_costs_the_larger_of_the_item_before_and_after(
    lab: Lab, before: int, after: int
) -> None:
    put(lab, row(before))

    with lab.meter.path() as bill:
        put(lab, row(after))

    assert costs(bill) == (2, 0, 0, 0)


def test_an_update_of_one_attribute_costs_the_whole_item(lab: Lab) -> None:
    put(lab, row(1500))

    with lab.meter.path() as bill:
        update(lab, "SET w = :w", w="1")

    assert costs(bill) == (2, 0, 0, 0)


def test_an_update_that_makes_an_item_costs_what_it_makes(lab: Lab) -> None:
    with lab.meter.path() as bill:
        update(lab, "SET v = :v", v="x" * 1100)

    assert costs(bill) == (2, 0, 0, 0)


def test_a_delete_costs_what_it_deletes_and_one_of_nothing_a_unit(lab: Lab) -> None:
    put(lab, row(1500, k_keys_only="k"))

    with lab.meter.path() as bill:
        lab.dynamodb.delete_item(TableName=TABLE, Key=key())
        lab.dynamodb.delete_item(TableName=TABLE, Key=key())

    assert costs(bill) == (2 + 1, 1, 0, 0)


def test_a_refused_put_costs_the_larger_item_and_touches_no_index(lab: Lab) -> None:
    put(lab, row(20))

    with lab.meter.path() as bill, pytest.raises(ClientError, match="ConditionalCheckFailed"):
        lab.dynamodb.put_item(
            TableName=TABLE,
            Item=row(1500, k_all="k"),
            ConditionExpression="attribute_not_exists(pk)",
        )

    assert costs(bill) == (2, 0, 0, 0)


@pytest.mark.parametrize(("size", "units"), [(None, 1), (20, 1), (1500, 2)])
def test_a_refused_update_costs_the_item_that_is_there(
    lab: Lab, size: int | None, units: int
) -> None:
    if size is not None:
        put(lab, row(size))

    with lab.meter.path() as bill, pytest.raises(ClientError, match="ConditionalCheckFailed"):
        lab.dynamodb.update_item(
            TableName=TABLE,
            Key=key(),
            UpdateExpression="SET w = :w",
            ConditionExpression="v = :w",
            ExpressionAttributeValues={":w": {"S": "1"}},
        )

    assert costs(bill) == (units, 0, 0, 0)


def test_a_call_that_is_refused_as_wrong_costs_nothing(lab: Lab) -> None:
    with lab.meter.path() as bill, pytest.raises(ClientError, match="ValidationException"):
        update(lab, "SET pk = :v", v="q")

    assert costs(bill) == (0, 0, 0, 0)
    assert bill.calls == {"UpdateItem": 1}


def test_a_batch_of_writes_is_the_sum_of_its_writes(lab: Lab) -> None:
    put(lab, row(1500, "c"))
    requests: Any = [
        {"PutRequest": {"Item": row(20, "a", k_all="k")}},
        {"PutRequest": {"Item": row(1500, "b")}},
        {"DeleteRequest": {"Key": key("c")}},
    ]

    with lab.meter.path() as bill:
        lab.dynamodb.batch_write_item(RequestItems={TABLE: requests})

    assert costs(bill) == (1 + 2 + 2, 1, 0, 0)


# Indexes.


def test_an_item_that_enters_three_indexes_is_written_three_times_more(lab: Lab) -> None:
    with lab.meter.path() as bill:
        put(lab, row(20, k_keys_only="k", k_include_w="k", k_all="k"))

    assert costs(bill) == (1, 3, 0, 0)


def test_an_index_entry_is_as_large_as_what_it_holds(lab: Lab) -> None:
    with lab.meter.path() as bill:
        put(lab, row(1500, k_keys_only="k", k_all="k"))

    # One unit for the keys, two for all of it.
    assert costs(bill) == (2, 1 + 2, 0, 0)


@pytest.mark.parametrize(
    ("index", "expression", "value", "units"),
    [
        ("keys_only", "SET v = :v", "changed", 0),
        ("keys_only", "SET w = :v", "changed", 0),
        ("include_w", "SET v = :v", "changed", 0),
        ("include_w", "SET w = :v", "changed", 1),
        ("include_w", "SET w = :v", "as it was", 0),
        ("all", "SET v = :v", "changed", 1),
        ("all", "SET w = :v", "as it was", 0),
        ("keys_only", "SET k_keys_only = :v", "moved", 2),
        ("include_w", "SET k_include_w = :v", "moved", 2),
        ("all", "SET k_all = :v", "moved", 2),
        ("all", "SET k_all = :v", "k", 0),
    ],
)
def test_an_index_is_written_only_when_its_entry_changes(
    lab: Lab, index: str, expression: str, value: str, units: int
) -> None:
    put(lab, row(20, w="as it was", **{f"k_{index}": "k"}))

    with lab.meter.path() as bill:
        update(lab, expression, v=value)

    assert costs(bill) == (1, units, 0, 0)


def test_an_item_that_leaves_an_index_is_deleted_there_once(lab: Lab) -> None:
    put(lab, row(20, k_all="k"))

    with lab.meter.path() as bill:
        lab.dynamodb.update_item(TableName=TABLE, Key=key(), UpdateExpression="REMOVE k_all")

    assert costs(bill) == (1, 1, 0, 0)


# Transactions.


def transact(lab: Lab, *parts: dict[str, Any]) -> None:
    items: Any = [
        {kind: {"TableName": TABLE, **one}} for part in parts for kind, one in part.items()
    ]
    lab.dynamodb.transact_write_items(TransactItems=items)


def test_a_transaction_costs_twice_on_the_table_and_once_on_an_index(lab: Lab) -> None:
    put(lab, row(1500, "b"))
    put(lab, row(20, "c"))
    exists = {"ConditionExpression": "attribute_exists(pk)"}

    with lab.meter.path() as bill:
        transact(
            lab,
            {"Put": {"Item": row(20, "a", k_keys_only="k")}},
            {"Delete": {"Key": key("b")}},
            {"ConditionCheck": {"Key": key("c"), **exists}},
        )

    assert costs(bill) == (2 + 4 + 2, 1, 0, 0)


def test_a_cancelled_transaction_costs_as_much_and_touches_no_index(lab: Lab) -> None:
    put(lab, row(1500, "b"))
    exists = {"ConditionExpression": "attribute_exists(pk)"}

    with lab.meter.path() as bill, pytest.raises(ClientError, match="TransactionCanceled"):
        transact(
            lab,
            {"Put": {"Item": row(20, "a", k_keys_only="k")}},
            {"Delete": {"Key": key("b")}},
            {"ConditionCheck": {"Key": key("missing"), **exists}},
        )

    assert costs(bill) == (2 + 4 + 2, 0, 0, 0)


# Reads.


@pytest.mark.parametrize(
    ("size", "consistent", "units"),
    [
        *[(20, True, 1), (20, False, 0.5), (4096, True, 1), (4097, True, 2), (4097, False, 1)],
        *[(None, True, 1), (None, False, 0.5)],
    ],
)
def test_a_get_is_rounded_up_to_four_kilobytes(
    lab: Lab, size: int | None, consistent: bool, units: float
) -> None:
    if size is not None:
        put(lab, row(size))

    with lab.meter.path() as bill:
        lab.dynamodb.get_item(TableName=TABLE, Key=key(), ConsistentRead=consistent)

    assert costs(bill) == (0, 0, units, 0)


def test_a_projection_does_not_make_a_get_cheaper(lab: Lab) -> None:
    put(lab, row(5000))

    with lab.meter.path() as bill:
        lab.dynamodb.get_item(
            TableName=TABLE, Key=key(), ConsistentRead=True, ProjectionExpression="pk"
        )

    assert costs(bill) == (0, 0, 2, 0)


def test_each_item_of_a_batch_of_gets_is_rounded_up_by_itself(lab: Lab) -> None:
    for letter in "abc":
        put(lab, row(100, letter))
    keys: Any = [key(letter) for letter in "abcd"]

    with lab.meter.path() as bill:
        lab.dynamodb.batch_get_item(RequestItems={TABLE: {"Keys": keys}})
        lab.dynamodb.batch_get_item(RequestItems={TABLE: {"Keys": keys, "ConsistentRead": True}})

    assert costs(bill) == (0, 0, 4 * 0.5 + 4, 0)


def test_a_transaction_of_gets_costs_twice(lab: Lab) -> None:
    put(lab, row(5000))
    gets: Any = [{"Get": {"TableName": TABLE, "Key": key(sk)}} for sk in "ab"]

    with lab.meter.path() as bill:
        lab.dynamodb.transact_get_items(TransactItems=gets)

    assert costs(bill) == (0, 0, 4 + 2, 0)


def query(lab: Lab, **more: Any) -> None:  # noqa: ANN401 -- as the client's
    lab.dynamodb.query(
        **{
            "TableName": TABLE,
            "KeyConditionExpression": "#p = :p",
            "ExpressionAttributeNames": {"#p": "pk"},
            "ExpressionAttributeValues": {":p": {"S": "p"}},
            "ConsistentRead": True,
            **more,
        }
    )


def test_a_query_sums_bytes_and_then_rounds_up(lab: Lab) -> None:
    for letter in "abcdefghij":
        put(lab, row(500, letter))

    with lab.meter.path() as strong:
        query(lab)
    with lab.meter.path() as eventual:
        query(lab, ConsistentRead=False)

    # 5,000 bytes are two units, not ten.
    assert costs(strong) == (0, 0, 2, 0)
    assert costs(eventual) == (0, 0, 1, 0)


def test_a_query_pays_for_the_page_that_it_read(lab: Lab) -> None:
    for letter in "abcdefghij":
        put(lab, row(500, letter))

    with lab.meter.path() as bill:
        query(lab, Limit=8, ExclusiveStartKey=key("a"))
        query(lab, Limit=9)

    # 8 × 500 = 4,000; 9 × 500 = 4,500.
    assert costs(bill) == (0, 0, 1 + 2, 0)


def test_a_query_that_finds_nothing_costs_the_least_read(lab: Lab) -> None:
    with lab.meter.path() as bill:
        query(lab)
        query(lab, ConsistentRead=False)

    assert costs(bill) == (0, 0, 1.5, 0)


def test_a_filter_and_a_projection_do_not_make_a_query_cheaper(lab: Lab) -> None:
    for letter in "abcdefghij":
        put(lab, row(500, letter))

    with lab.meter.path() as bill:
        query(
            lab,
            FilterExpression="#s = :a",
            ProjectionExpression="#s",
            ExpressionAttributeNames={"#p": "pk", "#s": "sk"},
            ExpressionAttributeValues={":p": {"S": "p"}, ":a": {"S": "a"}},
        )

    assert costs(bill) == (0, 0, 2, 0)


def test_a_query_of_an_index_pays_for_what_the_index_holds(lab: Lab) -> None:
    for letter in "abcdefghij":
        put(lab, row(500, letter, k_keys_only="k", k_all="k"))
    by_index = {"ExpressionAttributeValues": {":p": {"S": "k"}}, "ConsistentRead": False}

    with lab.meter.path() as keys_only:
        names = {"#p": "k_keys_only"}
        query(lab, IndexName="keys_only", ExpressionAttributeNames=names, **by_index)
    with lab.meter.path() as all_:
        query(lab, IndexName="all", ExpressionAttributeNames={"#p": "k_all"}, **by_index)

    # Ten entries of 18 bytes, or of 518 and more.
    assert costs(keys_only) == (0, 0, 0.5, 0)
    assert costs(all_) == (0, 0, 1, 0)


# SQS.


def test_each_call_is_a_request_whatever_it_carries_up_to_64_kilobytes(lab: Lab) -> None:
    entries: Any = [{"Id": str(n), "MessageBody": "x" * 300} for n in range(10)]

    with lab.meter.path() as bill:
        lab.sqs.send_message_batch(QueueUrl=lab.queue_url, Entries=entries)
        received = lab.sqs.receive_message(QueueUrl=lab.queue_url, MaxNumberOfMessages=10)
        handles: Any = [
            {"Id": message["MessageId"], "ReceiptHandle": message["ReceiptHandle"]}
            for message in received["Messages"]
        ]
        lab.sqs.delete_message_batch(QueueUrl=lab.queue_url, Entries=handles)
        lab.sqs.receive_message(QueueUrl=lab.queue_url)

    assert costs(bill) == (0, 0, 0, 4)


@pytest.mark.parametrize(("size", "requests"), [(65_536, 1), (65_537, 2), (200_000, 4)])
def test_64_kilobytes_are_a_request_at_the_send_and_at_the_receive(
    lab: Lab, size: int, requests: int
) -> None:
    with lab.meter.path() as sent:
        lab.sqs.send_message(QueueUrl=lab.queue_url, MessageBody="x" * size)
    with lab.meter.path() as received:
        lab.sqs.receive_message(QueueUrl=lab.queue_url)

    assert costs(sent) == (0, 0, 0, requests)
    assert costs(received) == (0, 0, 0, requests)


# Bills.


def test_what_is_called_outside_of_a_path_is_on_no_bill(lab: Lab) -> None:
    with lab.meter.path() as bill:
        pass
    put(lab, row())

    assert bill.lines == []


def test_the_control_plane_is_free(lab: Lab) -> None:
    with lab.meter.path() as bill:
        lab.dynamodb.describe_table(TableName=TABLE)

    assert bill.lines == []


def test_an_inner_path_is_part_of_the_outer_one(lab: Lab) -> None:
    with lab.meter.path() as outer:
        put(lab, row())
        with lab.meter.path() as inner:
            put(lab, row(20, "b"))
        put(lab, row(20, "c"))

    assert (inner.write_units, outer.write_units) == (1, 3)
    assert outer.calls == {"PutItem": 3}


def test_what_all_threads_call_is_on_the_bill(lab: Lab) -> None:
    with lab.meter.path() as bill, ThreadPoolExecutor(10) as pool:
        [*pool.map(lambda n: put(lab, row(20, chr(ord("a") + n))), range(20))]

    assert costs(bill) == (20, 0, 0, 0)


def test_a_call_that_the_meter_has_no_rule_for_does_not_go_unnoticed(lab: Lab) -> None:
    with lab.meter.path(), pytest.raises(NotImplementedError, match="ExecuteStatement"):
        lab.dynamodb.execute_statement(Statement=f'SELECT * FROM "{TABLE}"')

    put(lab, row())


def test_a_bill_has_a_price_and_shows_its_calls(lab: Lab) -> None:
    with lab.meter.path() as bill:
        put(lab, row(20, k_keys_only="k"))
        lab.dynamodb.get_item(TableName=TABLE, Key=key(), ConsistentRead=True)
        lab.sqs.send_message(QueueUrl=lab.queue_url, MessageBody="x")

    assert bill.usd_per_million == pytest.approx(2 * 0.625 + 0.125 + 0.40)
    assert str(bill).splitlines() == [
        "PutItem things: 1 write units, 1 index write units",
        "GetItem things: 1 read units",
        "SendMessage work: 1 SQS requests",
        "total : 1 write units, 1 index write units, 1 read units, 1 SQS requests",
    ]
