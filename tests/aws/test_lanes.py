"""Lanes on SQS: whose a message is, and several queues under one lane."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pytest

from lamplighter.aws.patience import Fan, Patience
from lamplighter.aws.queue import SqsQueue, group_of, received_from
from lamplighter.core.buckets import before, minute_of
from lamplighter.core.model import Message, Owner, Pointer
from lamplighter.memory import SeededChance
from lamplighter.ports import Outgoing, Received
from lamplighter.services import timers
from tests.aws.conftest import Bench
from tests.support.rows import OWNER, T, failed, id_at, one_off, retry_pointer, running, s

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

OTHER = Owner("globex")


@dataclass(frozen=True, kw_only=True)
class Lanes:
    """A fair lane of three queues, and an ordinary one."""

    queue: SqsQueue
    bench: Bench
    urls: tuple[str, ...]

    def send(self, *outgoing: Outgoing) -> None:
        self.queue.send(outgoing, now=self.bench.clock.now())

    def records(self, url: str) -> list[dict[str, Any]]:
        """As a mapping hands them to a function; they are then hidden."""
        name = url.rpartition("/")[2]
        found: list[dict[str, Any]] = []
        while messages := self.bench.clients.sqs.receive_message(
            QueueUrl=url, MaxNumberOfMessages=10, AttributeNames=["All"]
        ).get("Messages"):
            found += (
                {
                    "body": message["Body"],
                    "receiptHandle": message["ReceiptHandle"],
                    "attributes": message["Attributes"],
                    "eventSourceARN": f"arn:aws:sqs:us-east-1:123456789012:{name}",
                }
                for message in messages
            )
        return found

    def received(self) -> Sequence[Sequence[Received]]:
        return [
            [received_from(record, queue="fair") for record in self.records(url)]
            for url in self.urls
        ]

    def groups(self) -> list[str | None]:
        records = [record for url in self.urls for record in self.records(url)]
        return [record["attributes"].get("MessageGroupId") for record in records]


@pytest.fixture
def lanes(bench: Bench) -> Iterator[Lanes]:
    sqs, fan = bench.clients.sqs, Fan(4)
    urls = tuple(sqs.create_queue(QueueName=f"fair-{n}")["QueueUrl"] for n in range(3))
    queue = SqsQueue(
        cast("SQSClient", bench.sqs),
        lanes={"fair": urls, "default": (bench.lanes["default"],)},
        fair=["fair"],
        work_url=None,
        clock=bench.clock,
        patience=Patience(clock=bench.clock, chance=SeededChance()),
        fan=fan,
    )
    yield Lanes(queue=queue, bench=bench, urls=urls)
    fan.close()
    for url in urls:
        sqs.delete_queue(QueueUrl=url)


def outgoing(n: int, *, lane: str = "fair", owner: Owner | None = OWNER) -> Outgoing:
    message = Message(execution_id=id_at(T, n=n), attempt=1, due_at=T)
    return Outgoing(queue=lane, message=message, owner=owner)


# Whose it is.


def test_a_fair_lane_is_told_whose_each_message_is_and_no_other_is(lanes: Lanes) -> None:
    """S0-N6: MessageGroupId on a standard queue, one for an owner."""
    lanes.send(outgoing(1), outgoing(2), outgoing(3, owner=OTHER), outgoing(4, lane="default"))

    ordinary = lanes.records(lanes.bench.lanes["default"])
    mine, theirs = group_of(OWNER), group_of(OTHER)
    assert sorted(filter(None, lanes.groups())) == sorted([mine, mine, theirs])
    assert ["MessageGroupId" in record["attributes"] for record in ordinary] == [False]


def test_what_nobody_is_known_to_own_counts_as_somebodys_own(lanes: Lanes) -> None:
    """S0-N6: SQS takes a message without a group for a tenant of its own."""
    lanes.send(outgoing(1, owner=None))

    assert lanes.groups() == [None]


@pytest.mark.parametrize(
    "owner",
    ["a", "x" * 255, "Ærøskøbing GmbH & Co. KG", "auth0|65f0", "見本 owner"],
)
def test_any_owner_has_a_group_that_sqs_takes(lanes: Lanes, owner: str) -> None:
    group = group_of(Owner(owner))

    lanes.send(outgoing(1, owner=Owner(owner)))

    assert group.isascii()
    assert group.isalnum()
    assert len(group) <= 128
    assert lanes.groups() == [group]


def test_groups_are_the_same_in_every_release() -> None:
    """Else a deployment would, for a while, take each owner for two."""
    assert group_of(OWNER) == "822b33ad87c148a0a20a5ba7cd5ebcaa"


def test_a_retry_from_far_ahead_is_still_its_owners(bench: Bench) -> None:
    """S0-N6: the pointer row says whose it is, for there is no other read before the send."""
    row = failed(running(one_off()))
    pointer = retry_pointer(row, T + s(3600))
    bench.executions.point([pointer])

    end = pointer.position
    (found,) = bench.executions.due(
        minute_of(pointer.at), [0], after=before(pointer.at), until=end, limit=9
    ).rows

    assert isinstance(found, Pointer)
    assert timers.pointed(found).owner == row.owner


# Several queues.


def test_executions_are_spread_over_a_lanes_queues_by_their_ids(lanes: Lanes) -> None:
    """S2-K5: N ready queues a lane, by hash."""
    sent = [outgoing(n) for n in range(60)]

    lanes.send(*sent)

    by_queue = [{one.message.execution_id for one in received} for received in lanes.received()]
    assert [len(ids) for ids in by_queue] == [20, 20, 20]
    assert set[str]().union(*by_queue) == {one.message.execution_id for one in sent}


def test_all_messages_of_one_execution_take_the_same_queue(lanes: Lanes) -> None:
    lanes.send(*(outgoing(7) for _ in range(5)))

    assert sorted(len(received) for received in lanes.received()) == [0, 0, 5]


def test_what_waits_in_a_lane_waits_in_all_its_queues(lanes: Lanes) -> None:
    lanes.send(*(outgoing(n) for n in range(10)))

    assert lanes.queue.waiting("fair") == 10


def test_what_was_received_is_hidden_and_deleted_in_the_queue_that_handed_it_out(
    lanes: Lanes,
) -> None:
    lanes.send(*(outgoing(n) for n in range(12)))
    received = [one for of_queue in lanes.received() for one in of_queue]

    lanes.queue.hide(received, s(0))
    again = [one for of_queue in lanes.received() for one in of_queue]
    lanes.queue.delete(again)
    lanes.queue.hide(again, s(0))

    assert len(again) == 12
    assert lanes.received() == [[], [], []]


def test_a_lane_that_gets_more_queues_still_deletes_what_lies_where_it_was(lanes: Lanes) -> None:
    """S2-K5: by its id it would be looked for in a queue that never had it."""
    elsewhere = outgoing(1)
    fan = Fan(1)
    alone = SqsQueue(
        cast("SQSClient", lanes.bench.sqs),
        lanes={"fair": lanes.urls[:1]},
        work_url=None,
        clock=lanes.bench.clock,
        patience=Patience(clock=lanes.bench.clock, chance=SeededChance()),
        fan=fan,
    )
    alone.send([elsewhere], now=lanes.bench.clock.now())
    ((received,), _, _) = lanes.received()

    lanes.queue.delete([received])

    lanes.queue.hide([received], s(0))
    assert lanes.received() == [[], [], []]
    fan.close()
