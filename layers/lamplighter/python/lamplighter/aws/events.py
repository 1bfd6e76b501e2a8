"""What Lambda hands a function for a batch from SQS, and what it has to answer."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict, final

from lamplighter.aws.queue import Malformed, received_from
from lamplighter.ports import Received, Telemetry


class Record(TypedDict):
    """One message, as an event source mapping gives it; other keys are not used."""

    messageId: str
    receiptHandle: str
    body: str
    attributes: Mapping[str, str]
    eventSourceARN: str


@final
class Event(TypedDict):
    """A batch."""

    Records: Sequence[Record]


class ItemFailure(TypedDict):
    """A message that is to be kept."""

    itemIdentifier: str


class Answer(TypedDict):
    """Which messages are to be kept: anything else in its place, and SQS keeps all of them."""

    batchItemFailures: list[ItemFailure]


@dataclass(frozen=True, kw_only=True)
class Batch:
    """A batch of executions' messages, with those that are none of ours apart."""

    received: Sequence[Received]
    ids: Mapping[str, str]
    """SQS's message id by receipt, of all of them."""
    unreadable: Collection[str]
    """Receipts. They are kept, so that they end in the dead-letter queue for somebody to see."""

    def answer(self, kept: Collection[str]) -> Answer:
        """The answer that keeps the messages with these receipts, and the unreadable ones."""
        return keep(self.ids[receipt] for receipt in (*kept, *self.unreadable))


def keep(ids: Iterable[str]) -> Answer:
    """The answer that keeps these messages; SQS's ids."""
    return {"batchItemFailures": [{"itemIdentifier": id} for id in ids]}


def batch_of(event: Event, *, lane: str, telemetry: Telemetry) -> Batch:
    """A lane's messages. One that is malformed is counted, and costs its neighbours nothing."""
    received, unreadable = [], []
    for record in event["Records"]:
        try:
            received.append(received_from(record, queue=lane))
        except Malformed:
            telemetry.unreadable(queue=lane, body=record["body"])
            unreadable.append(record["receiptHandle"])
    ids = {record["receiptHandle"]: record["messageId"] for record in event["Records"]}
    return Batch(received=received, ids=ids, unreadable=unreadable)


def one_by_one(event: Event, do: Callable[[str], object], *, telemetry: Telemetry) -> Answer:
    """Do something with each message's body; those for which it raises are kept."""
    failed = []
    for record in event["Records"]:
        try:
            do(record["body"])
        except Malformed:
            telemetry.unreadable(queue=_queue_of(record), body=record["body"])
            failed.append(record["messageId"])
        except Exception as error:  # noqa: BLE001 -- its neighbours must not be done once more
            telemetry.broke(record["messageId"], error)
            failed.append(record["messageId"])
    return keep(failed)


def _queue_of(record: Record) -> str:
    return record["eventSourceARN"].rpartition(":")[2]
