"""What the emulators answer otherwise than AWS, one by one: each is asked, so the list stays true.

AWS's answers are those of its documentation; nothing here was asked of AWS itself. Written into
docs/conformance.md by `python -m tests.contract.deviations`.
"""

import hashlib
import uuid
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import requests
from botocore.exceptions import ClientError

from lamplighter.aws.clock import SystemClock
from lamplighter.aws.payloads import S3Payloads
from tests.contract.worlds import Clients
from tests.support.buckets import create_bucket, delete_bucket

PAGE: Final = Path(__file__).parents[2] / "docs" / "conformance.md"
BEGIN, END = "<!-- deviations: begin -->", "<!-- deviations: end -->"
TAKEN: Final = "taken"
INVALID: Final = "ValidationException"


@dataclass(frozen=True, kw_only=True)
class Place:
    """A table, and a way to the other services of one emulator."""

    clients: Clients
    table: str

    def put(self, partition: str, sort: str = "1", **values: Any) -> None:  # noqa: ANN401
        self.clients.dynamodb.put_item(
            TableName=self.table, Item={"pk": {"S": partition}, "sk": {"S": sort}, **values}
        )

    def get(self, partition: str) -> Mapping[str, Any]:
        key: Any = {"pk": {"S": partition}, "sk": {"S": "1"}}
        return self.clients.dynamodb.get_item(TableName=self.table, Key=key).get("Item", {})

    def update(self, partition: str, expression: str, **more: Any) -> None:  # noqa: ANN401
        self.clients.dynamodb.update_item(
            TableName=self.table,
            Key={"pk": {"S": partition}, "sk": {"S": "1"}},
            UpdateExpression=expression,
            ExpressionAttributeValues={":one": {"N": "1"}},
            **more,
        )

    def query(self, condition: str, *, index: str | None = None, **more: Any) -> Mapping[str, Any]:  # noqa: ANN401
        request: dict[str, Any] = {"KeyConditionExpression": condition, **more}
        values = {":pk": {"S": "p"}} | request.pop("values", {})
        if index:
            request["IndexName"] = index
        answer: Any = self.clients.dynamodb.query(
            TableName=self.table, ExpressionAttributeValues=values, **request
        )
        found: Mapping[str, Any] = answer
        return found

    def queue(self, *, visibility_s: int = 30) -> str:
        """Of its own; few of them, and the emulator goes with the tests."""
        made = self.clients.sqs.create_queue(
            QueueName=uuid.uuid4().hex[:12], Attributes={"VisibilityTimeout": f"{visibility_s}"}
        )
        return made["QueueUrl"]

    def transact(self, *items: Any, token: str) -> None:  # noqa: ANN401
        self.clients.dynamodb.transact_write_items(TransactItems=items, ClientRequestToken=token)


def answer_to(call: Callable[[], object]) -> str:
    """The code that a call is refused with, or that it was taken."""
    try:
        call()
    except ClientError as error:
        return error.response["Error"].get("Code", "").rpartition(".")[2]
    except (NotImplementedError, TypeError) as error:
        return type(error).__name__
    return TAKEN


def _token_twice(place: Place) -> str:
    place.put("p", n={"N": "0"})
    add = {
        "Update": {
            "TableName": place.table,
            "Key": {"pk": {"S": "p"}, "sk": {"S": "1"}},
            "UpdateExpression": "ADD n :one",
            "ExpressionAttributeValues": {":one": {"N": "1"}},
        }
    }
    for _ in range(2):
        place.transact(add, token="the same call")
    return f"n = {place.get('p')['n']['N']}"


def _token_of_another(place: Place) -> str:
    def put(sort: str) -> Mapping[str, Any]:
        return {"Put": {"TableName": place.table, "Item": {"pk": {"S": "p"}, "sk": {"S": sort}}}}

    place.transact(put("1"), token="one call")
    return answer_to(lambda: place.transact(put("2"), token="one call"))


def _large_transaction(place: Place) -> str:
    item = {"pk": {"S": "p"}, "b": {"S": "x" * 390_000}}
    puts = [
        {"Put": {"TableName": place.table, "Item": {**item, "sk": {"S": f"{n}"}}}}
        for n in range(11)
    ]
    return answer_to(lambda: place.transact(*puts, token="a large one"))


def _last_key_at_the_end(place: Place) -> str:
    for n in range(3):
        place.put("p", f"{n}")
    return "there is one" if "LastEvaluatedKey" in place.query("pk = :pk", Limit=3) else "none"


def _number(place: Place) -> str:
    place.put("p", n={"N": "1.50"})
    return str(place.get("p")["n"]["N"])


def _compared(place: Place) -> str:
    place.put("p", n={"S": "soon"})
    return answer_to(lambda: place.update("p", "SET m = :one", ConditionExpression="n <= :one"))


def _path(place: Place) -> str:
    place.put("p", n={"S": "soon"})
    return answer_to(lambda: place.update("p", "SET n.x = :one"))


def _large_batch(place: Place) -> str:
    for n in range(44):
        place.put("p", f"{n}", b={"S": "x" * 390_000})
    keys: Any = [{"pk": {"S": "p"}, "sk": {"S": f"{n}"}} for n in range(44)]
    found = place.clients.dynamodb.batch_get_item(RequestItems={place.table: {"Keys": keys}})
    return "the rest is left" if found.get("UnprocessedKeys") else "all of it"


def _filtered_index(place: Place) -> str:
    place.put("p", g={"S": "p"}, st={"S": "X"})
    found = place.query(
        "g = :pk", index="by_g", FilterExpression="st = :x", values={":x": {"S": "X"}}
    )
    return f"{found['Count']} found"


def _capacity_of_a_put(place: Place) -> str:
    answer: Any = place.clients.dynamodb.put_item(
        TableName=place.table,
        Item={"pk": {"S": "p"}, "sk": {"S": "1"}, "g": {"S": "x"}},
        ReturnConsumedCapacity="TOTAL",
    )
    return f"{answer['ConsumedCapacity']['CapacityUnits']:g} units"


def _capacity_of_a_query(place: Place) -> str:
    for n in range(3):
        place.put("p", f"{n}", b={"S": "x" * 9_000})
    answer = place.query("pk = :pk", ConsistentRead=True, ReturnConsumedCapacity="TOTAL")
    return f"{answer['ConsumedCapacity']['CapacityUnits']:g} units"


def _delayed(place: Place) -> str:
    url = place.queue()
    return answer_to(
        lambda: place.clients.sqs.send_message(QueueUrl=url, MessageBody="x", DelaySeconds=901)
    )


def _delayed_in_a_batch(place: Place) -> str:
    answer = place.clients.sqs.send_message_batch(
        QueueUrl=place.queue(), Entries=[{"Id": "1", "MessageBody": "x", "DelaySeconds": 901}]
    )
    return "failed" if answer.get("Failed") else TAKEN


def _hidden(place: Place, *, seconds: int, visibility_s: int = 30) -> str:
    sqs, url = place.clients.sqs, place.queue(visibility_s=visibility_s)
    sqs.send_message(QueueUrl=url, MessageBody="x")
    receipt = sqs.receive_message(QueueUrl=url)["Messages"][0]["ReceiptHandle"]
    return answer_to(
        lambda: sqs.change_message_visibility(
            QueueUrl=url, ReceiptHandle=receipt, VisibilityTimeout=seconds
        )
    )


def _nul(place: Place) -> str:
    url = place.queue()
    return answer_to(lambda: place.clients.sqs.send_message(QueueUrl=url, MessageBody="a\0b"))


def _moved_back(place: Place) -> str:
    sqs, url = place.clients.sqs, place.queue()
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]
    return answer_to(lambda: sqs.start_message_move_task(SourceArn=arn["QueueArn"]))


def _fair(place: Place) -> str:
    """Forty of a loud owner are in flight and twenty wait; then a quiet one comes."""
    sqs, url = place.clients.sqs, place.queue()
    loud: Any = [{"Id": f"{n}", "MessageBody": "loud", "MessageGroupId": "l"} for n in range(10)]
    for _ in range(6):
        sqs.send_message_batch(QueueUrl=url, Entries=loud)
    for _ in range(4):
        sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)
    sqs.send_message(QueueUrl=url, MessageBody="quiet", MessageGroupId="q")
    return f"the {sqs.receive_message(QueueUrl=url)['Messages'][0]['Body']} one"


@contextmanager
def _uploading(place: Place, content: bytes, suffix: str = "") -> Any:  # noqa: ANN401
    s3, bucket = place.clients.s3, uuid.uuid4().hex[:12]
    create_bucket(s3, bucket)
    offer = S3Payloads(lambda: s3, bucket=bucket, clock=SystemClock()).offer(
        "k",
        size=3,
        sha256=hashlib.sha256(b"abc").hexdigest(),
        content_type="text/plain",
        open_for=timedelta(minutes=1),
    )
    answer = requests.request(
        offer.method, f"{offer.url}{suffix}", headers=offer.headers, data=content, timeout=10
    )
    yield answer.status_code, s3.head_object if answer.ok else None, bucket
    delete_bucket(s3, bucket)


def _digest_kept(place: Place) -> str:
    with _uploading(place, b"abc") as (_, head, bucket):
        is_kept = "ChecksumSHA256" in head(Bucket=bucket, Key="k", ChecksumMode="ENABLED")
        return "kept" if is_kept else "not kept"


def _wrong_digest(place: Place) -> str:
    with _uploading(place, b"abd") as (status, *_):
        return f"{status}"


def _wrong_signature(place: Place) -> str:
    with _uploading(place, b"abc", suffix="0") as (status, *_):
        return f"{status}"


@dataclass(frozen=True, kw_only=True)
class Deviation:
    """One answer that is not AWS's, of one emulator or of both."""

    what: str
    ask: Callable[[Place], str]
    aws: str
    moto: str
    ministack: str
    so: str
    """What the tests, or the product, do about it."""

    def of(self, emulator: str) -> str:
        return self.moto if emulator == "moto" else self.ministack


OURS: Final = "no code relies on it: a refusal is never waited for"
DEVIATIONS: Final = (
    Deviation(
        what="TransactWriteItems again under the same ClientRequestToken",
        ask=_token_twice,
        aws="n = 1",
        moto="n = 2",
        ministack="n = 1",
        so="what says that it took effect is in the item (`conditions.Update.proof`); "
        "`test_ledger.py` has its own writes under a condition",
    ),
    Deviation(
        what="The same token for another transaction",
        ask=_token_of_another,
        aws="IdempotentParameterMismatchException",
        moto=TAKEN,
        ministack="IdempotentParameterMismatchException",
        so=OURS,
    ),
    Deviation(
        what="A transaction of more than 4 MB",
        ask=_large_transaction,
        aws=INVALID,
        moto=TAKEN,
        ministack=INVALID,
        so="ours are bounded by `limits.py`; a handler's own are sent as they are",
    ),
    Deviation(
        what="LastEvaluatedKey when Limit ends exactly with the last item",
        ask=_last_key_at_the_end,
        aws="there is one",
        moto="none",
        ministack="there is one",
        so="`test_executions.py` and `test_damaged.py` ask for exactly as many as there are, and "
        "take an empty page for what it is",
    ),
    Deviation(
        what="A number that is written 1.50",
        ask=_number,
        aws="1.5",
        moto="1.50",
        ministack="1.5",
        so="numbers of ours are whole; other decimals are JSON text",
    ),
    Deviation(
        what="A number of 39 digits",
        ask=lambda place: answer_to(lambda: place.put("p", n={"N": "1" * 39})),
        aws=INVALID,
        moto=TAKEN,
        ministack=INVALID,
        so="boto3's serializer refuses it first",
    ),
    Deviation(
        what="A condition that compares a text with a number",
        ask=_compared,
        aws="ConditionalCheckFailedException",
        moto="TypeError",
        ministack="ConditionalCheckFailedException",
        so="a damaged lease is told by `attribute_type` before anything is compared",
    ),
    Deviation(
        what="SET of a path inside a text",
        ask=_path,
        aws=INVALID,
        moto=TAKEN,
        ministack=INVALID,
        so="only limits have paths, in a map that the condition asks for",
    ),
    Deviation(
        what="A value that no expression uses",
        ask=lambda place: answer_to(lambda: place.query("pk = :pk", values={":other": {"S": "x"}})),
        aws=INVALID,
        moto=TAKEN,
        ministack=INVALID,
        so="the contract suite on the other one",
    ),
    Deviation(
        what="BETWEEN whose ends are the wrong way round",
        ask=lambda place: answer_to(
            lambda: place.query(
                "pk = :pk AND sk BETWEEN :b AND :a", values={":a": {"S": "a"}, ":b": {"S": "b"}}
            )
        ),
        aws=INVALID,
        moto=TAKEN,
        ministack=INVALID,
        so="the stores ask for nothing where there is nothing between",
    ),
    Deviation(
        what="A read by a partition key of more than 2,048 bytes",
        ask=lambda place: answer_to(lambda: place.get("x" * 2_049)),
        aws=INVALID,
        moto=TAKEN,
        ministack=INVALID,
        so="names of owners and keys are bounded at the edge, and digests in most keys",
    ),
    Deviation(
        what="An index's key of another type",
        ask=lambda place: answer_to(lambda: place.put("p", g={"N": "1"})),
        aws=INVALID,
        moto=TAKEN,
        ministack=INVALID,
        so="the contract suite on the other one",
    ),
    Deviation(
        what="A filter on an index by what is not in it",
        ask=_filtered_index,
        aws="0 found",
        moto="0 found",
        ministack="1 found",
        so="no query of ours has a filter; an operator's scan has one, of the table",
    ),
    Deviation(
        what="BatchGetItem of more than 16 MB",
        ask=_large_batch,
        aws="the rest is left",
        moto="the rest is left",
        ministack="all of it",
        so="`test_faults.py` leaves keys unprocessed by hand",
    ),
    Deviation(
        what="Capacity of a put into an index",
        ask=_capacity_of_a_put,
        aws="2 units",
        moto="1 units",
        ministack="2 units",
        so="costs are computed by AWS's rules, from the requests (`tests/support/meter.py`)",
    ),
    Deviation(
        what="Capacity of a query of 27 KB, strongly consistent",
        ask=_capacity_of_a_query,
        aws="7 units",
        moto="1 units",
        ministack="1 units",
        so="the same",
    ),
    Deviation(
        what="DelaySeconds of 901",
        ask=_delayed,
        aws="InvalidParameterValue",
        moto="InvalidParameterValue",
        ministack=TAKEN,
        so="`timing.delay_s` refuses it before anything is sent: `test_queue.py`",
    ),
    Deviation(
        what="The same in a batch",
        ask=_delayed_in_a_batch,
        aws="failed",
        moto="failed",
        ministack=TAKEN,
        so="the same",
    ),
    Deviation(
        what="Hiding for more than 12 hours",
        ask=lambda place: _hidden(place, seconds=43_201),
        aws="InvalidParameterValue",
        moto="InvalidParameterValue",
        ministack=TAKEN,
        so="the adapter cuts it to 11 h 45 min: SQS counts from the receive",
    ),
    Deviation(
        what="Hiding what is not hidden",
        ask=lambda place: _hidden(place, seconds=30, visibility_s=0),
        aws="MessageNotInflight",
        moto=TAKEN,
        ministack=TAKEN,
        so="passed over like what is gone: `tests/aws/test_queue.py` answers so by hand",
    ),
    Deviation(
        what="A message with a NUL in it",
        ask=_nul,
        aws="InvalidMessageContents",
        moto=TAKEN,
        ministack="InvalidMessageContents",
        so="messages are ASCII JSON; payloads for queues are escaped (`aws/targets.py`)",
    ),
    Deviation(
        what="StartMessageMoveTask",
        ask=_moved_back,
        aws=TAKEN,
        moto="NotImplementedError",
        ministack="InvalidAction",
        so="no function calls it; an operator may",
    ),
    Deviation(
        what="A fair queue's next message, when one owner has 40 in flight",
        ask=_fair,
        aws="the quiet one",
        moto="the loud one",
        ministack="the loud one",
        so="fairness is simulated (`memory/queue.py`); on AWS only the group's id is checked",
    ),
    Deviation(
        what="The digest of an upload whose header names it",
        ask=_digest_kept,
        aws="kept",
        moto="not kept",
        ministack="kept",
        so="`worlds.py` tells moto twice",
    ),
    Deviation(
        what="An upload of other bytes than its digest says",
        ask=_wrong_digest,
        aws="400",
        moto="200",
        ministack="400",
        so="`test_payloads.py` asks the two others, and what is fetched is held to its digest",
    ),
    Deviation(
        what="An upload whose signature is another",
        ask=_wrong_signature,
        aws="403",
        moto="200",
        ministack="403",
        so="the contract suite on the other one",
    ),
)


@contextmanager
def place_on(clients: Clients) -> Any:  # noqa: ANN401
    """A table of its own, with an index of keys only."""
    table = uuid.uuid4().hex[:12]
    names: Any = [{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk", "g")]
    clients.dynamodb.create_table(
        TableName=table,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=names,
        KeySchema=[
            {"AttributeName": "pk", "KeyType": "HASH"},
            {"AttributeName": "sk", "KeyType": "RANGE"},
        ],
        GlobalSecondaryIndexes=[
            {
                "IndexName": "by_g",
                "KeySchema": [
                    {"AttributeName": "g", "KeyType": "HASH"},
                    {"AttributeName": "sk", "KeyType": "RANGE"},
                ],
                "Projection": {"ProjectionType": "KEYS_ONLY"},
            }
        ],
    )
    yield Place(clients=clients, table=table)
    clients.dynamodb.delete_table(TableName=table)


def table() -> str:
    """All of them, as the page has them; an answer that is wrong is bold."""

    def cell(one: Deviation, emulator: str) -> str:
        answer = one.of(emulator)
        return answer if answer == one.aws else f"**{answer}**"

    head = ["what is asked", "AWS", "moto", "ministack", "so"]
    rows = [
        [one.what, one.aws, cell(one, "moto"), cell(one, "ministack"), one.so] for one in DEVIATIONS
    ]
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def page() -> str:
    """The page with the table as it is to be."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page())
