"""Messages of a lane's queues for a worker that asks for them itself, as no Lambda has to."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import boto3
from botocore.config import Config

from lamplighter.aws.events import Record, batch_of
from lamplighter.aws.failures import translated
from lamplighter.aws.wiring import CLIENT_CONFIG
from lamplighter.core.limits import WORKER_LEASE
from lamplighter.ports import Received, Telemetry

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_sqs.type_defs import MessageTypeDef

# How long a receive waits for a message. SQS takes up to 20 s; a worker that is told to end waits
# for the answer, to give back what comes with it.
WAIT_S: Final = 5
_PATIENT: Final = Config(read_timeout=WAIT_S + 5)


class QueueReceiver:
    """`serving.Receive` of one queue."""

    def __init__(
        self,
        client: "SQSClient",
        *,
        url: str,
        lane: str,
        telemetry: Telemetry,
        wait_s: int = WAIT_S,
    ) -> None:
        self._client = client
        self._url = url
        self._lane = lane
        self._telemetry = telemetry
        self._wait_s = wait_s

    def __call__(self, most: int) -> Sequence[Received]:
        """Up to so many messages, ten at most, hidden for as long as a lease.

        One that is malformed is counted and kept, so that it ends among the dead letters. Raises
        Unavailable, and CallRefused where the queue is not ours or not there.
        """
        with translated("ReceiveMessage"):
            answer = self._client.receive_message(
                QueueUrl=self._url,
                MaxNumberOfMessages=most,
                WaitTimeSeconds=self._wait_s,
                # From the first moment, so that the death of this worker is noticed in its time.
                VisibilityTimeout=int(WORKER_LEASE.total_seconds()),
                MessageSystemAttributeNames=["ApproximateReceiveCount", "SentTimestamp"],
            )
        records = [self._record(message) for message in answer.get("Messages", [])]
        batch = batch_of({"Records": records}, lane=self._lane, telemetry=self._telemetry)
        return batch.received

    def _record(self, message: "MessageTypeDef") -> Record:
        """As an event source mapping would give it."""
        return {
            "messageId": message["MessageId"],
            "receiptHandle": message["ReceiptHandle"],
            "body": message["Body"],
            "attributes": {str(name): value for name, value in message["Attributes"].items()},
            "eventSourceARN": f":{self._url.rpartition('/')[2]}",
        }


def receivers(urls: Sequence[str], *, lane: str, telemetry: Telemetry) -> list[QueueReceiver]:
    """One for each queue of a lane, on a client that waits as long as they do."""
    client = boto3.client("sqs", config=CLIENT_CONFIG.merge(_PATIENT))
    return [QueueReceiver(client, url=url, lane=lane, telemetry=telemetry) for url in urls]
