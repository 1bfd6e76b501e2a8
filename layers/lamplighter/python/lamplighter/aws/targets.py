"""Named targets on AWS: one call of one service for each delivery, and what it answered.

No call is repeated here, and none is sent over a connection that another has left: after a freeze
those are dead, and whoever finds that out does not know whether the call was made.
"""

import json
import threading
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Protocol, assert_never

import boto3
from botocore.awsrequest import AWSPreparedRequest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError
from botocore.parsers import ResponseParserError
from pydantic_core import from_json

from lamplighter.aws.clock import SystemClock
from lamplighter.aws.failures import code_of
from lamplighter.core.named import (
    FUNCTION_ERROR,
    Accepted,
    Answer,
    FunctionFailed,
    Invocation,
    TargetKind,
    TurnedDown,
    Unanswered,
    kind_of,
)
from lamplighter.core.retry import Kind
from lamplighter.core.targets import asked_wait
from lamplighter.ports import Telemetry
from lamplighter.tasks.named import Delivery

DEFAULT_SOURCE: Final = "lamplighter"
DEFAULT_DETAIL_TYPE: Final = "Job due"
_CONNECT_TIMEOUT_S: Final = 3.0
# A service that takes something answers within milliseconds, or not at all.
_TAKEN_WITHIN_S: Final = 10.0
# A function may take as long as its job; a client has one time-out for all of its calls. The
# thread of a call that is not waited for any more ends with it.
_FUNCTIONS_WITHIN_S: Final = (15.0, 30.0, 60.0, 120.0, 300.0, 900.0)
_ALREADY_THERE: Final = "ExecutionAlreadyExists"
# Queues take the characters of XML 1.0; of those outside it JSON text can hold only these two.
_NO_XML: Final = {0xFFFE: "\\ufffe", 0xFFFF: "\\uffff"}

Response = Mapping[str, Any]


class Client(Protocol):
    """A client of boto3: its operations are made at run time."""

    def __getattr__(self, operation: str) -> Callable[..., Response]: ...


Connect = Callable[[str, float], Client]
"""The client of a service, by its name and how long (in seconds) an answer may take."""


def connected(service: str, read_timeout_s: float) -> Client:
    """A client that makes each call once, over a connection of its own."""
    config = Config(
        connect_timeout=_CONNECT_TIMEOUT_S,
        read_timeout=read_timeout_s,
        retries={"mode": "standard", "total_max_attempts": 1},
        # Nothing comes from a function at work, and gateways forget a connection in 350 s.
        tcp_keepalive=True,
    )
    client: Any = boto3.session.Session().client(service, config=config)  # type: ignore[call-overload]
    client.meta.events.register("before-send", _close)
    made: Client = client
    return made


def _close(request: AWSPreparedRequest, **_: object) -> None:
    # Once it is signed: the header is none of what is signed.
    request.headers["Connection"] = "close"


@dataclass(kw_only=True)
class AwsTargets:
    """`tasks.named.Targets`, on clients that are made when they are first needed.

    What a service says of a refusal has ARNs in it: it goes to the operator alone.
    """

    telemetry: Telemetry
    connect: Connect = connected
    now: Callable[[], datetime] = field(default=SystemClock().now)
    _clients: dict[tuple[str, float], Client] = field(default_factory=dict, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def deliver(self, delivery: Delivery) -> Answer:
        try:
            return self._deliver(delivery)
        except ClientError as error:
            return self._turned_down(delivery, error)
        except ParamValidationError as error:
            # The service was not even asked: a name or an ARN in no form that it has.
            self.telemetry.broke(delivery.execution_id, error)
            return TurnedDown(code=type(error).__name__)
        except (BotoCoreError, ResponseParserError) as error:
            return Unanswered(reason=type(error).__name__)

    def _deliver(self, delivery: Delivery) -> Answer:
        match delivery.entry.kind:
            case TargetKind.LAMBDA:
                return self._invoke(delivery)
            case TargetKind.SQS:
                return _sent(self._client("sqs").send_message(**to_queue(delivery)))
            case TargetKind.SNS:
                return _sent(self._client("sns").publish(**to_topic(delivery)))
            case TargetKind.EVENTBRIDGE:
                events = self._client("events")
                return self._put(delivery, events.put_events(Entries=[to_bus(delivery)]))
            case TargetKind.STEPFUNCTIONS:
                self._client("stepfunctions").start_execution(**to_machine(delivery))
                return _started(delivery)
            case other:
                assert_never(other)

    def _invoke(self, delivery: Delivery) -> Answer:
        within = delivery.within.total_seconds()
        longest = next(one for one in _FUNCTIONS_WITHIN_S if one > within)
        response = self._client("lambda", longest).invoke(**to_function(delivery))
        if delivery.invocation is Invocation.EVENT:
            request_id = response["ResponseMetadata"].get("RequestId")
            return Accepted(result={"invocation": "event", "request_id": request_id})
        said = _read(response["Payload"].read())
        return _function_failed(said) if response.get("FunctionError") else Accepted(result=said)

    def _put(self, delivery: Delivery, response: Response) -> Answer:
        """An answer of 200 may tell of an entry that was not taken."""
        (entry,) = response["Entries"]
        if not response.get("FailedEntryCount"):
            return Accepted(result={"event_id": entry.get("EventId")})
        code, message = entry.get("ErrorCode", "InternalFailure"), entry.get("ErrorMessage", "")
        error = ClientError({"Error": {"Code": code, "Message": message}}, "PutEvents")
        return self._turned_down(delivery, error)

    def _turned_down(self, delivery: Delivery, error: ClientError) -> Answer:
        code = code_of(error)
        if code == _ALREADY_THERE:
            # By an earlier try, whose answer was lost; or by the run that this one repeats.
            return _started(delivery)
        metadata: Mapping[str, Any] = {**error.response.get("ResponseMetadata", {})}
        waits = [
            value
            for name, value in metadata.get("HTTPHeaders", {}).items()
            if name.lower() == "retry-after"
        ]
        turned = TurnedDown(
            code=code or "Unknown",
            status=metadata.get("HTTPStatusCode", 400),
            retry_after=asked_wait(waits, self.now()),
        )
        if kind_of(turned) is Kind.PERMANENT:
            self.telemetry.broke(delivery.execution_id, error)
        return turned

    def _client(self, service: str, read_timeout_s: float = _TAKEN_WITHIN_S) -> Client:
        key = service, read_timeout_s
        with self._lock:
            if key not in self._clients:
                self._clients[key] = self.connect(service, read_timeout_s)
            return self._clients[key]


def to_function(delivery: Delivery) -> Mapping[str, object]:
    """Invoke: the payload as it is; beside it what a runtime has as `client_context.custom`."""
    is_event = delivery.invocation is Invocation.EVENT
    about = {**delivery.about, "job_id": delivery.job_id, "attempt": delivery.attempt}
    context = b64encode(json.dumps({"custom": about}).encode()).decode()
    return {
        "FunctionName": delivery.entry.at,
        "InvocationType": "Event" if is_event else "RequestResponse",
        "Payload": delivery.payload.encode(),
        # Lambda's own queue has no place for it.
        **({} if is_event else {"ClientContext": context}),
    }


def to_queue(delivery: Delivery) -> Mapping[str, object]:
    """SendMessage: the payload as the body, and what is beside it as attributes."""
    return {
        "QueueUrl": delivery.entry.at,
        "MessageBody": delivery.payload.translate(_NO_XML),
        **_attributes(delivery),
    }


def to_topic(delivery: Delivery) -> Mapping[str, object]:
    """Publish: the same."""
    return {
        "TopicArn": delivery.entry.at,
        "Message": delivery.payload.translate(_NO_XML),
        **_attributes(delivery),
    }


def _attributes(delivery: Delivery) -> Mapping[str, object]:
    in_order = {
        # One job's messages in their order; different jobs side by side.
        "MessageGroupId": delivery.job_id,
        "MessageDeduplicationId": delivery.idempotency_key,
    }
    return {
        "MessageAttributes": {
            name: {"DataType": "String", "StringValue": value}
            for name, value in delivery.about.items()
        },
        **(in_order if delivery.entry.at.endswith(".fifo") else {}),
    }


def to_bus(delivery: Delivery) -> Mapping[str, object]:
    """An entry of PutEvents, which has no place beside its detail: the payload is a part of it."""
    about = json.dumps(delivery.about)
    return {
        "EventBusName": delivery.entry.at,
        "Source": delivery.entry.source or DEFAULT_SOURCE,
        "DetailType": delivery.entry.detail_type or DEFAULT_DETAIL_TYPE,
        # As text: the payload's numbers stay as they were written.
        "Detail": f'{about[:-1]}, "payload": {delivery.payload}}}',
    }


def to_machine(delivery: Delivery) -> Mapping[str, object]:
    """StartExecution: the payload as the input, and the key as the execution's name."""
    return {
        "stateMachineArn": delivery.entry.at,
        "name": delivery.idempotency_key,
        "input": delivery.payload,
    }


def _sent(response: Response) -> Accepted:
    number = response.get("SequenceNumber")
    in_order = {"sequence_number": number} if number else {}
    return Accepted(result={"message_id": response["MessageId"], **in_order})


def _started(delivery: Delivery) -> Accepted:
    return Accepted(result={"execution": delivery.idempotency_key})


def _read(content: bytes) -> object:
    """What a function returned; what is no JSON, as a runtime of one's own may answer, is text."""
    try:
        return from_json(content) if content else None
    except ValueError:
        return content.decode(errors="replace")


def _function_failed(said: object) -> FunctionFailed:
    told = said if isinstance(said, dict) else {"errorMessage": said}
    type_ = told.get("errorType") or FUNCTION_ERROR
    return FunctionFailed(type=str(type_), message=str(told.get("errorMessage") or "no message"))
