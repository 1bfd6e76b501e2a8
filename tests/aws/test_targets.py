"""Named targets on AWS: what arrives at each service, and what its answers are taken for.

Queues, topics and state machines are moto's; functions, events, and what moto never answers,
are servers of this process behind the real client.
"""

import json
import socket
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from lamplighter.aws.targets import AwsTargets, Client, connected
from lamplighter.core.buckets import ExecutionId, JobId
from lamplighter.core.named import (
    Accepted,
    Answer,
    Entry,
    FunctionFailed,
    Invocation,
    TargetKind,
    TurnedDown,
    Unanswered,
)
from lamplighter.memory import Counts
from lamplighter.tasks.named import Delivery
from tests.support.web import Web, raw, saying, silent, web

KEY = ExecutionId("ex_06fn77x8000300000000000033")
JOB = JobId("one_06fn77x8000300000000000033")
ABOUT = {
    "execution_id": KEY,
    "idempotency_key": KEY,
    "scheduled_for": "2026-07-12T02:00:00.000Z",
}
PAYLOAD = '{"customer":"c-1","n":1.50}'
ARN = "arn:aws:lambda:us-east-1:123456789012:function:billing"
MACHINE = {"StartAt": "End", "States": {"End": {"Type": "Succeed"}}}


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    # A proxy of this machine's is none for its own servers.
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def moto() -> Iterator[None]:
    with mock_aws():
        yield


@pytest.fixture
def counts() -> Counts:
    return Counts()


@pytest.fixture
def targets(counts: Counts) -> AwsTargets:
    return AwsTargets(telemetry=counts)


def delivery(kind: TargetKind, at: str, **changed: object) -> Delivery:
    entry = Entry(name="it", kind=kind, owners=frozenset({"acme"}), at=at)
    made = Delivery(
        entry=entry,
        invocation=Invocation.REQUEST,
        payload=PAYLOAD,
        execution_id=KEY,
        job_id=JOB,
        attempt=2,
        scheduled_for=datetime(2026, 7, 12, 2, tzinfo=UTC),
        idempotency_key=KEY,
        within=timedelta(seconds=60),
    )
    return replace(made, **cast("Mapping[str, Any]", changed))


def result_of(answer: Answer) -> Mapping[str, Any]:
    assert isinstance(answer, Accepted)
    assert isinstance(answer.result, dict)
    return answer.result


def queue(name: str, *, fifo: bool = False) -> str:
    attributes: Any = {"FifoQueue": "true"} if fifo else {}
    made = boto3.client("sqs").create_queue(QueueName=name, Attributes=attributes)
    return made["QueueUrl"]


def messages(url: str) -> list[Mapping[str, Any]]:
    found = boto3.client("sqs").receive_message(
        QueueUrl=url,
        MaxNumberOfMessages=10,
        MessageAttributeNames=["All"],
        MessageSystemAttributeNames=["All"],
    )
    return [cast("Mapping[str, Any]", message) for message in found.get("Messages", [])]


def attributes_of(message: Mapping[str, Any]) -> Mapping[str, str]:
    return {name: one["StringValue"] for name, one in message["MessageAttributes"].items()}


@pytest.mark.usefixtures("moto")
def test_a_queue_gets_the_payload_as_it_is_and_who_it_is_from(targets: AwsTargets) -> None:
    """S2-F1, S4-L4."""
    url = queue("letters")

    result = result_of(targets.deliver(delivery(TargetKind.SQS, url)))

    (message,) = messages(url)
    assert (message["Body"], message["MessageId"]) == (PAYLOAD, result["message_id"])
    assert attributes_of(message) == ABOUT
    assert "MessageGroupId" not in message["Attributes"]


@pytest.mark.usefixtures("moto")
def test_a_second_call_with_the_same_key_is_no_second_message_of_a_fifo_queue(
    targets: AwsTargets,
) -> None:
    """S2-F4, S4-L4: the crash between a call and its outcome."""
    url = queue("letters.fifo", fifo=True)
    one = delivery(TargetKind.SQS, url)

    for _ in range(2):
        assert result_of(targets.deliver(one))["sequence_number"]
    targets.deliver(replace(one, idempotency_key="ex_another"))

    found = messages(url)
    assert [message["Attributes"]["MessageDeduplicationId"] for message in found] == [
        KEY,
        "ex_another",
    ]
    assert {message["Attributes"]["MessageGroupId"] for message in found} == {JOB}


@pytest.mark.usefixtures("moto")
def test_what_a_queue_cannot_hold_is_escaped_as_json_has_it(targets: AwsTargets) -> None:
    url = queue("letters")
    payload = json.dumps("a\ufffe\uffff\U0001f600\u0007", ensure_ascii=False)

    result_of(targets.deliver(delivery(TargetKind.SQS, url, payload=payload)))

    (message,) = messages(url)
    assert not {"\ufffe", "\uffff"} & {*message["Body"]}
    assert json.loads(message["Body"]) == json.loads(payload)


@pytest.mark.usefixtures("moto")
def test_a_topics_subscribers_get_the_payload_and_who_it_is_from(targets: AwsTargets) -> None:
    sns, url = boto3.client("sns"), queue("subscriber")
    topic = sns.create_topic(Name="news")["TopicArn"]
    queue_arn = "arn:aws:sqs:us-east-1:123456789012:subscriber"
    sns.subscribe(
        TopicArn=topic,
        Protocol="sqs",
        Endpoint=queue_arn,
        Attributes={"RawMessageDelivery": "true"},
    )

    result = result_of(targets.deliver(delivery(TargetKind.SNS, topic)))

    (message,) = messages(url)
    assert message["Body"] == PAYLOAD
    assert attributes_of(message) == ABOUT
    assert result["message_id"]


@pytest.mark.usefixtures("moto")
def test_a_fifo_topic_is_told_the_job_and_the_key(targets: AwsTargets) -> None:
    sns = boto3.client("sns")
    topic = sns.create_topic(Name="news.fifo", Attributes={"FifoTopic": "true"})["TopicArn"]

    assert result_of(targets.deliver(delivery(TargetKind.SNS, topic)))["message_id"]


@pytest.mark.parametrize("payload", [PAYLOAD, "null", "[1, 2]", '"text"'])
def test_a_bus_gets_an_event_whose_detail_has_the_payload(
    monkeypatch: pytest.MonkeyPatch, targets: AwsTargets, payload: str
) -> None:
    """Any payload: a detail has to be an object, and there is no place beside it."""
    one = delivery(TargetKind.EVENTBRIDGE, "arn:aws:events:us-east-1:123456789012:event-bus/jobs")
    entry = replace(one.entry, source="acme.jobs", detail_type="Invoice due")
    with web() as events:
        monkeypatch.setenv("AWS_ENDPOINT_URL_EVENTBRIDGE", f"http://127.0.0.1:{events.port}")
        events.body = b'{"FailedEntryCount": 0, "Entries": [{"EventId": "e-1"}]}'

        result = result_of(targets.deliver(replace(one, entry=entry, payload=payload)))

    assert result == {"event_id": "e-1"}
    (seen,) = events.seen
    (sent,) = json.loads(seen.body)["Entries"]
    assert json.loads(sent.pop("Detail")) == {**ABOUT, "payload": json.loads(payload)}
    assert sent == {
        "EventBusName": one.entry.at,
        "Source": "acme.jobs",
        "DetailType": "Invoice due",
    }


@pytest.mark.usefixtures("moto")
def test_a_bus_takes_it(targets: AwsTargets) -> None:
    bus = boto3.client("events").create_event_bus(Name="jobs")["EventBusArn"]

    assert result_of(targets.deliver(delivery(TargetKind.EVENTBRIDGE, bus)))["event_id"]


@pytest.mark.usefixtures("moto")
def test_a_state_machine_runs_once_for_a_key_however_often_it_is_started(
    targets: AwsTargets,
) -> None:
    """S2-F4: ExecutionAlreadyExists is what an earlier try left behind."""
    machines: Any = boto3.client("stepfunctions")
    arn = machines.create_state_machine(
        name="invoices",
        definition=json.dumps(MACHINE),
        roleArn="arn:aws:iam::123456789012:role/invoices",
    )["stateMachineArn"]

    first = targets.deliver(delivery(TargetKind.STEPFUNCTIONS, arn))
    second = targets.deliver(delivery(TargetKind.STEPFUNCTIONS, arn))
    changed = targets.deliver(delivery(TargetKind.STEPFUNCTIONS, arn, payload="{}"))

    assert first == second == changed == Accepted(result={"execution": KEY})
    (run,) = machines.list_executions(stateMachineArn=arn)["executions"]
    assert run["name"] == KEY
    told = machines.describe_execution(executionArn=run["executionArn"])
    assert json.loads(told["input"]) == json.loads(PAYLOAD)


@pytest.mark.usefixtures("moto")
@pytest.mark.parametrize(
    ("kind", "at"),
    [
        (TargetKind.SQS, "https://sqs.us-east-1.amazonaws.com/123456789012/gone"),
        (TargetKind.SNS, "arn:aws:sns:us-east-1:123456789012:gone"),
        (TargetKind.STEPFUNCTIONS, "arn:aws:states:us-east-1:123456789012:stateMachine:gone"),
        (TargetKind.LAMBDA, "arn:aws:lambda:us-east-1:123456789012:function:gone"),
        (TargetKind.LAMBDA, "no function at all"),
    ],
)
def test_what_is_not_there_any_more_is_told_to_the_operator(
    targets: AwsTargets, counts: Counts, kind: TargetKind, at: str
) -> None:
    answer = targets.deliver(delivery(kind, at))

    assert isinstance(answer, TurnedDown)
    assert answer.status < 500
    assert [name for name in counts.events if name.startswith("broke ")]


@dataclass
class Told:
    """A client whose operations answer, or raise, what it was told."""

    answer: Mapping[str, Any] | Exception

    def __getattr__(self, operation: str) -> Callable[..., Mapping[str, Any]]:
        def call(**_: object) -> Mapping[str, Any]:
            if isinstance(self.answer, Exception):
                raise self.answer
            return self.answer

        return call


@pytest.mark.parametrize(
    ("code", "is_permanent"),
    [
        ("ThrottlingException", False),
        ("InternalFailure", False),
        ("MalformedDetail", True),
        ("NotAuthorizedForSourceException", True),
    ],
)
def test_an_entry_that_an_answer_of_200_says_was_not_taken_has_failed(
    counts: Counts, code: str, is_permanent: bool
) -> None:
    """The trap of PutEvents; S0-R1."""
    failed = {"FailedEntryCount": 1, "Entries": [{"ErrorCode": code, "ErrorMessage": "arn:x"}]}
    targets = AwsTargets(telemetry=counts, connect=lambda *_: Told(failed))

    answer = targets.deliver(delivery(TargetKind.EVENTBRIDGE, "arn:x"))

    assert answer == TurnedDown(code=code)
    assert bool([name for name in counts.events if name.startswith("broke ")]) is is_permanent


@pytest.mark.parametrize(("wait", "seconds"), [("7", 7.0), ("soon", None), (None, None)], ids=str)
def test_a_throttle_says_when_to_come_again(
    counts: Counts, wait: str | None, seconds: float | None
) -> None:
    """S0-R4."""
    error = ClientError(
        {
            "Error": {"Code": "TooManyRequestsException", "Message": "slow down"},
            "ResponseMetadata": {
                "HTTPStatusCode": 429,
                "HTTPHeaders": {"retry-after": wait} if wait else {},
                "RequestId": "r",
                "RetryAttempts": 0,
                "HostId": "",
            },
        },
        "Invoke",
    )
    targets = AwsTargets(telemetry=counts, connect=lambda *_: Told(error))

    answer = targets.deliver(delivery(TargetKind.LAMBDA, ARN))

    assert answer == TurnedDown(
        code="TooManyRequestsException",
        status=429,
        retry_after=None if seconds is None else timedelta(seconds=seconds),
    )
    assert not [name for name in counts.events if name.startswith("broke ")]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    """Lambda's endpoint, of this process."""
    with web() as running:
        monkeypatch.setenv("AWS_ENDPOINT_URL_LAMBDA", f"http://127.0.0.1:{running.port}")
        yield running


def test_a_function_gets_the_payload_as_it_is_and_who_it_is_from(
    targets: AwsTargets, server: Web
) -> None:
    server.body = b'{"invoice": 17}'

    answer = targets.deliver(delivery(TargetKind.LAMBDA, ARN))

    assert answer == Accepted(result={"invoice": 17})
    (seen,) = server.seen
    assert seen.body.decode() == PAYLOAD
    assert seen.headers["x-amz-invocation-type"] == "RequestResponse"
    context = json.loads(b64decode(seen.headers["x-amz-client-context"]))
    assert context == {"custom": {**ABOUT, "job_id": JOB, "attempt": 2}}
    assert "billing" in seen.path


def test_no_call_goes_over_a_connection_that_another_has_left(
    targets: AwsTargets, server: Web
) -> None:
    for _ in range(2):
        targets.deliver(delivery(TargetKind.LAMBDA, ARN))

    assert [seen.headers["connection"] for seen in server.seen] == ["close", "close"]


def test_an_event_is_handed_over_and_labelled_so(targets: AwsTargets, server: Web) -> None:
    """S2-E1: that it was taken is all that is known, and its result says so."""
    server.status, server.body = 202, b""
    server.headers = {"x-amzn-RequestId": "r-1"}
    one = delivery(TargetKind.LAMBDA, ARN, invocation=Invocation.EVENT)

    result = result_of(targets.deliver(one))

    assert result == {"invocation": "event", "request_id": "r-1"}
    (seen,) = server.seen
    assert seen.headers["x-amz-invocation-type"] == "Event"
    assert "x-amz-client-context" not in seen.headers


@pytest.mark.parametrize(
    ("body", "result"),
    [
        (b"", None),
        (b"null", None),
        (b"[1, 2.5]", [1, 2.5]),
        (b"no json", "no json"),
        (b'"\\ud800"', '"\\ud800"'),
        (b"\xff", "\ufffd"),
    ],
    ids=ascii,
)
def test_whatever_a_function_returns_is_a_result(
    targets: AwsTargets, server: Web, body: bytes, result: object
) -> None:
    server.body = body

    assert targets.deliver(delivery(TargetKind.LAMBDA, ARN)) == Accepted(result=result)


@pytest.mark.parametrize(
    ("body", "type_", "message"),
    [
        (
            b'{"errorMessage": "no such customer", "errorType": "KeyError", "stackTrace": ["x"]}',
            "KeyError",
            "no such customer",
        ),
        (
            b'{"errorMessage": "2026 Task timed out after 3.00 seconds"}',
            "FunctionError",
            "2026 Task timed out after 3.00 seconds",
        ),
        (b'{"errorType": null}', "FunctionError", "no message"),
        (b"broken", "FunctionError", "broken"),
    ],
    ids=["raised", "timed out", "nothing said", "no json"],
)
def test_a_functions_error_is_a_failure_of_the_try(
    targets: AwsTargets, server: Web, body: bytes, type_: str, message: str
) -> None:
    """S0-R1: an answer of 200, too."""
    server.headers, server.body = {"X-Amz-Function-Error": "Unhandled"}, body

    answer = targets.deliver(delivery(TargetKind.LAMBDA, ARN))

    assert answer == FunctionFailed(type=type_, message=message)


@pytest.mark.parametrize(
    ("status", "headers", "answer"),
    [
        (
            429,
            {"x-amzn-ErrorType": "TooManyRequestsException", "Retry-After": "3"},
            TurnedDown(
                code="TooManyRequestsException", status=429, retry_after=timedelta(seconds=3)
            ),
        ),
        (
            403,
            {"x-amzn-ErrorType": "AccessDeniedException"},
            TurnedDown(code="AccessDeniedException", status=403),
        ),
        (
            500,
            {"x-amzn-ErrorType": "ServiceException"},
            TurnedDown(code="ServiceException", status=500),
        ),
    ],
    ids=["throttled", "denied", "broken"],
)
def test_a_refusal_is_told_by_its_code_and_asked_for_once(
    targets: AwsTargets,
    server: Web,
    status: int,
    headers: Mapping[str, str],
    answer: Answer,
) -> None:
    server.status, server.headers, server.body = status, headers, b'{"message": "arn:x"}'

    assert targets.deliver(delivery(TargetKind.LAMBDA, ARN)) == answer
    assert len(server.seen) == 1


def soon(service: str, _: float) -> Client:
    """A client that waits for half a second, and is otherwise as a worker's."""
    client: Any = connected(service, 0.5)
    return cast("Client", client)


@pytest.mark.parametrize("kind", [TargetKind.LAMBDA, TargetKind.SQS])
def test_no_answer_leaves_open_whether_it_was_called(
    monkeypatch: pytest.MonkeyPatch, counts: Counts, kind: TargetKind
) -> None:
    with raw(silent) as place:
        url = f"http://127.0.0.1:{place.port}"
        monkeypatch.setenv("AWS_ENDPOINT_URL_LAMBDA", url)
        monkeypatch.setenv("AWS_ENDPOINT_URL_SQS", url)
        targets = AwsTargets(telemetry=counts, connect=soon)

        answer = targets.deliver(delivery(kind, ARN))

    assert answer == Unanswered(reason="ReadTimeoutError")
    assert not counts.events


def test_neither_does_an_answer_that_breaks_off(
    monkeypatch: pytest.MonkeyPatch, targets: AwsTargets
) -> None:
    half = b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{"
    with raw(saying(half)) as place:
        monkeypatch.setenv("AWS_ENDPOINT_URL_LAMBDA", f"http://127.0.0.1:{place.port}")

        answer = targets.deliver(delivery(TargetKind.LAMBDA, ARN))

    assert isinstance(answer, Unanswered)


def test_nor_does_a_service_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch, targets: AwsTargets
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        monkeypatch.setenv("AWS_ENDPOINT_URL_LAMBDA", f"http://127.0.0.1:{port}")

        answer = targets.deliver(delivery(TargetKind.LAMBDA, ARN))

    assert answer == Unanswered(reason="EndpointConnectionError")


def test_a_client_waits_for_a_function_as_long_as_its_job_and_for_others_not_at_all(
    counts: Counts,
) -> None:
    made: list[tuple[str, float]] = []

    def connect(service: str, read_timeout_s: float) -> Client:
        made.append((service, read_timeout_s))
        answer = {"MessageId": "m", "ResponseMetadata": {}}
        return Told(answer)

    targets = AwsTargets(telemetry=counts, connect=connect)
    for seconds in (1, 14, 60, 61, 840, 840):
        one = delivery(
            TargetKind.LAMBDA,
            ARN,
            invocation=Invocation.EVENT,
            within=timedelta(seconds=seconds),
        )
        targets.deliver(one)
        targets.deliver(delivery(TargetKind.SQS, "url", within=timedelta(seconds=seconds)))

    assert made == [
        ("lambda", 15.0),
        ("sqs", 10.0),
        ("lambda", 120.0),
        ("lambda", 900.0),
    ]


def test_a_clients_own_retries_are_off() -> None:
    client: Any = connected("sqs", 7.0)
    config = client.meta.config

    assert config.retries == {"mode": "standard", "total_max_attempts": 1}
    assert (config.read_timeout, config.connect_timeout) == (7.0, 3.0)
