"""`ports.Notices` on an EventBridge bus, an SNS topic, or both."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from lamplighter.aws.failures import code_of
from lamplighter.core.errors import Unavailable
from lamplighter.core.notices import SOURCE, Notice
from lamplighter.core.schedule import format_instant

if TYPE_CHECKING:
    from mypy_boto3_events import EventBridgeClient
    from mypy_boto3_sns import SNSClient

# Once and not for long: a worker has its next job to do, and the sweep tries again.
_CONFIG: Final = Config(
    connect_timeout=1, read_timeout=3, retries={"mode": "standard", "total_max_attempts": 1}
)


class AwsNotices:
    """Tells the bus, then the topic; where the second refuses, both are told again later.

    The clients are made with the first notice: most invocations have none.
    """

    def __init__(
        self,
        *,
        stage: str,
        bus: str | None,
        topic_arn: str | None,
        events: "Callable[[], EventBridgeClient] | None" = None,
        sns: "Callable[[], SNSClient] | None" = None,
    ) -> None:
        """`bus`: a bus's name or ARN."""
        self._stage = stage
        self._bus = bus
        self._topic_arn = topic_arn
        self._connect_events = events or _events_client
        self._connect_sns = sns or _sns_client
        self._of_events: EventBridgeClient | None = None
        self._of_sns: SNSClient | None = None
        self._lock = threading.Lock()

    def tell(self, notice: Notice) -> None:
        detail = {"stage": self._stage, **notice.detail}
        if self._bus is not None:
            self._put(self._bus, notice, detail)
        if self._topic_arn is not None:
            self._publish(self._topic_arn, notice, detail)

    def _put(self, bus: str, notice: Notice, detail: Mapping[str, object]) -> None:
        with _refused("PutEvents"):
            answer = self._events.put_events(
                Entries=[
                    {
                        "EventBusName": bus,
                        "Source": SOURCE,
                        "DetailType": notice.title,
                        "Time": notice.at,
                        "Detail": json.dumps(detail),
                    }
                ]
            )
        # An answer of 200 may tell of an entry that was not taken.
        if answer.get("FailedEntryCount"):
            raise Unavailable(f"PutEvents: {answer['Entries'][0].get('ErrorCode')}")

    def _publish(self, topic_arn: str, notice: Notice, detail: Mapping[str, object]) -> None:
        message = {
            "source": SOURCE,
            "detail-type": notice.title,
            "time": format_instant(notice.at),
            "detail": detail,
        }
        about = {
            "owner": notice.owner,
            "task": notice.task,
            "queue": notice.queue,
            "status": notice.state.value,
        }
        with _refused("Publish"):
            self._sns.publish(
                TopicArn=topic_arn,
                Subject=notice.title,
                Message=json.dumps(message),
                # What subscriptions filter by.
                MessageAttributes={
                    name: {"DataType": "String", "StringValue": value}
                    for name, value in about.items()
                },
            )

    @property
    def _events(self) -> "EventBridgeClient":
        with self._lock:
            self._of_events = self._of_events or self._connect_events()
            return self._of_events

    @property
    def _sns(self) -> "SNSClient":
        with self._lock:
            self._of_sns = self._of_sns or self._connect_sns()
            return self._of_sns


@contextmanager
def _refused(call: str) -> Iterator[None]:
    """Whatever was wrong, even a permission: the notice is still to be given."""
    try:
        yield
    except ClientError as error:
        raise Unavailable(f"{call}: {code_of(error)}") from error
    except (BotoCoreError, ResponseParserError) as error:
        raise Unavailable(f"{call}: {type(error).__name__}") from error


def _events_client() -> "EventBridgeClient":
    return boto3.client("events", config=_CONFIG)


def _sns_client() -> "SNSClient":
    return boto3.client("sns", config=_CONFIG)
