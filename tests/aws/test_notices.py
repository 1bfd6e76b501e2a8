"""Notices on EventBridge and SNS, as whoever subscribes to them reads them."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.config import Config
from botocore.stub import Stubber
from moto import mock_aws

from lamplighter.aws.notices import AwsNotices
from lamplighter.core.errors import Unavailable
from lamplighter.core.lifecycle import Event
from lamplighter.core.model import Owner
from lamplighter.core.notices import Notice, notice_of
from lamplighter.core.outcome import ended
from lamplighter.core.retry import Failure, Kind
from tests.support.rows import T, failed, one_off, running

if TYPE_CHECKING:
    from mypy_boto3_events import EventBridgeClient
    from mypy_boto3_sns import SNSClient
    from mypy_boto3_sqs import SQSClient

REGION = "eu-central-1"
_NUMBERS = count()
DEAD = failed(running(one_off(payload='{"card": "4111"}')), max_attempts=1)


class Subscribed:
    """A bus and a topic, and a queue that each of them leads to."""

    def __init__(self) -> None:
        self.events: EventBridgeClient = boto3.client("events", region_name=REGION)
        self.sns: SNSClient = boto3.client("sns", region_name=REGION)
        self.sqs: SQSClient = boto3.client("sqs", region_name=REGION)
        # Its own: moto keeps what there is for as long as any test of the process is inside it.
        name = f"operations-{next(_NUMBERS)}"
        self.topic = self.sns.create_topic(Name=name)["TopicArn"]
        self.bus = self.events.create_event_bus(Name=name)["EventBusArn"]
        self._url = self.sqs.create_queue(QueueName=name)["QueueUrl"]
        self._arn = self.sqs.get_queue_attributes(QueueUrl=self._url, AttributeNames=["QueueArn"])[
            "Attributes"
        ]["QueueArn"]

    def subscribe(self, owner: str) -> None:
        """Have the queue get what concerns one owner."""
        self.sns.subscribe(
            TopicArn=self.topic,
            Protocol="sqs",
            Endpoint=self._arn,
            Attributes={"FilterPolicy": json.dumps({"owner": [owner]})},
        )

    def notices(self, *, bus: str | None = None, topic: str | None = None) -> AwsNotices:
        return AwsNotices(
            stage="prod",
            bus=bus,
            topic_arn=topic,
            events=lambda: self.events,
            sns=lambda: self.sns,
        )

    def mail(self) -> list[Any]:
        received = self.sqs.receive_message(QueueUrl=self._url, MaxNumberOfMessages=10)
        return [json.loads(one["Body"]) for one in received.get("Messages", [])]


@pytest.fixture
def subscribed() -> Iterator[Subscribed]:
    with mock_aws():
        yield Subscribed()


def notice(owner: str = "acme") -> Notice:
    return notice_of(replace(DEAD, owner=Owner(owner)))


def test_the_topic_hands_a_notice_to_whoever_subscribed_for_its_owner(
    subscribed: Subscribed,
) -> None:
    """S4-R4: and it has everything that it takes to act, and no payload."""
    subscribed.subscribe("acme")
    notices = subscribed.notices(topic=subscribed.topic)

    notices.tell(notice("acme"))
    notices.tell(notice("somebody else"))

    (mail,) = subscribed.mail()
    told = json.loads(mail["Message"])
    assert mail["Subject"] == "Lamplighter Execution Dead-Lettered"
    assert {name: one["Value"] for name, one in mail["MessageAttributes"].items()} == {
        "owner": "acme",
        "task": "echo",
        "queue": "default",
        "status": "DEAD_LETTERED",
    }
    assert (told["source"], told["detail-type"]) == (
        "lamplighter",
        "Lamplighter Execution Dead-Lettered",
    )
    assert told["detail"] == {"stage": "prod", **notice().detail}
    assert "4111" not in mail["Message"]


def test_the_bus_takes_an_event(subscribed: Subscribed) -> None:
    """S4-R4; and one that is not there is told from it."""
    subscribed.notices(bus=subscribed.bus).tell(notice())

    with pytest.raises(Unavailable, match="PutEvents: "):
        subscribed.notices(bus=f"{subscribed.bus}-gone").tell(notice())


def test_an_event_says_all_that_a_rule_may_match_and_when_it_ended(subscribed: Subscribed) -> None:
    """The rules of moto lead nowhere, so this is what is sent."""
    late = ended(one_off(), Event.EXPIRE, now=T + timedelta(hours=1), reason="too late")
    with Stubber(subscribed.events) as stub:
        stub.add_response(
            "put_events",
            {"FailedEntryCount": 0, "Entries": [{"EventId": "1"}]},
            {
                "Entries": [
                    {
                        "EventBusName": "default",
                        "Source": "lamplighter",
                        "DetailType": "Lamplighter Execution Expired",
                        "Time": T + timedelta(hours=1),
                        "Detail": json.dumps({"stage": "prod", **notice_of(late).detail}),
                    }
                ]
            },
        )

        subscribed.notices(bus="default").tell(notice_of(late))

        stub.assert_no_pending_responses()


def test_an_entry_that_was_not_taken_is_no_notice_though_the_answer_is_good(
    subscribed: Subscribed,
) -> None:
    with Stubber(subscribed.events) as stub:
        answer = {
            "FailedEntryCount": 1,
            "Entries": [{"ErrorCode": "ThrottlingException", "ErrorMessage": "slow down"}],
        }
        stub.add_response("put_events", answer)

        with pytest.raises(Unavailable, match="PutEvents: ThrottlingException"):
            subscribed.notices(bus="default").tell(notice())


@pytest.mark.parametrize(
    "code", ["AccessDeniedException", "ResourceNotFoundException", "ThrottlingException"]
)
def test_a_refusal_is_tried_again_whatever_it_is_for(subscribed: Subscribed, code: str) -> None:
    """A permission may be mended, and the owner is still to be told."""
    with Stubber(subscribed.events) as stub:
        stub.add_client_error("put_events", code)

        with pytest.raises(Unavailable, match=f"PutEvents: {code}"):
            subscribed.notices(bus="default").tell(notice())


def test_a_topic_that_is_gone_is_unavailable(subscribed: Subscribed) -> None:
    gone = f"{subscribed.topic}-gone"

    with pytest.raises(Unavailable, match="Publish: NotFound"):
        subscribed.notices(topic=gone).tell(notice())


def test_no_answer_is_unavailable() -> None:
    nowhere: EventBridgeClient = boto3.client(
        "events",
        region_name=REGION,
        endpoint_url="http://127.0.0.1:9",
        aws_access_key_id="x",
        aws_secret_access_key="x",
        config=Config(retries={"total_max_attempts": 1}),
    )
    notices = AwsNotices(stage="prod", bus="default", topic_arn=None, events=lambda: nowhere)

    with pytest.raises(Unavailable, match="EndpointConnectionError"):
        notices.tell(notice())


def test_the_largest_notice_fits_into_an_event_and_a_message(subscribed: Subscribed) -> None:
    """Every text at its longest, of characters that JSON writes with twelve."""
    wide = "\U0001f4a1"
    worst = replace(
        DEAD,
        owner=Owner(wide * 255),
        task=wide * 128,
        spec=None,
        queue="q" * 128,
        reason=wide * 1000,
        error=Failure(kind=Kind.RETRYABLE, type="E" * 128, message=wide * 500),
    )
    subscribed.subscribe(worst.owner)

    subscribed.notices(bus=subscribed.bus, topic=subscribed.topic).tell(notice_of(worst))

    assert len(subscribed.mail()) == 1
