"""The handlers as they are, on emulated tables and queues: what they call is what they may."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from hashlib import sha256
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType
from typing import Any

import boto3
import pytest
from aws_lambda_powertools.utilities.typing import LambdaContext
from botocore.model import OperationModel
from moto import mock_aws
from moto.core.utils import utcnow

from infra.paths import FUNCTIONS
from lamplighter.aws import schema
from lamplighter.aws.clock import SystemClock
from lamplighter.aws.queue import body_of
from lamplighter.core.buckets import LAYOUT_KEY, parse_execution_id, parse_job_id
from lamplighter.core.deferral import Terms
from lamplighter.core.limits import LIMITS_FRESH, RECOUNT_AFTER
from lamplighter.core.model import Execution, Job, JobStatus, Message, Owner, Payload, Token
from lamplighter.core.outcome import Deferred
from lamplighter.core.permits import Bound, Limits
from lamplighter.core.watching import first_watch
from lamplighter.ports import Ports, Received
from lamplighter.services import endings, execute, manage, permits, timers, watch
from tests.infra.templates import Assembly, Properties
from tests.infra.test_permissions import ALLOWED
from tests.support import api
from tests.support.buckets import create_bucket

ADA = Owner("ada")

BUCKET = "story-payloads"

Document = Mapping[str, Any]
Call = tuple[str, str]
"""An action, and the name of what it is done to."""

# What Lambda does with a function's role; and what S3 looks at when something is not there.
LAMBDAS_OWN = (
    *("sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes", "logs:"),
    "s3:ListBucket",
)


class Context(LambdaContext):
    """An invocation with all its time left."""

    def __init__(self) -> None:
        self._aws_request_id = "invocation-1"

    @staticmethod
    def get_remaining_time_in_millis() -> int:
        return 899_000


@dataclass
class Calls:
    """Who called what: told by botocore before it sends a request."""

    caller: str = "the test"
    made: dict[str, set[Call]] = field(default_factory=dict)

    def record(self, params: Properties, model: OperationModel, **_: object) -> None:
        found = self.made.setdefault(self.caller, set())
        found.update(_permissions(model.service_model.service_name, model.name, params))

    @contextmanager
    def by(self, caller: str) -> Iterator[None]:
        before, self.caller = self.caller, caller
        try:
            yield
        finally:
            self.caller = before


def _permissions(service: str, operation: str, params: Properties) -> Iterator[Call]:
    match operation:
        case "TransactWriteItems":
            for part in params["TransactItems"]:
                ((kind, write),) = part.items()
                yield f"dynamodb:{kind}Item", write["TableName"]
        case "BatchGetItem":
            for table in params["RequestItems"]:
                yield "dynamodb:BatchGetItem", table
        case _ if service == "s3":
            yield f"s3:{_on_object(operation, params)}", "Payloads/Bucket/*"
        case _ if service == "dynamodb":
            index = f"/index/{params['IndexName']}" if "IndexName" in params else ""
            yield f"dynamodb:{operation}", f"{params['TableName']}{index}"
        case "PutEvents":
            for entry in params["Entries"]:
                yield "events:PutEvents", f"event-bus/{entry['EventBusName']}"
        case _:
            name = params["QueueUrl"].rpartition("/")[2].replace("-", "/")
            yield f"sqs:{operation.removesuffix('Batch')}", name


def _on_object(operation: str, params: Properties) -> str:
    """A HEAD needs what a GET does, and to name a version is a right of its own."""
    action = operation.replace("Head", "Get")
    return f"{action}Version" if "VersionId" in params else action


@dataclass(kw_only=True)
class Stack:
    """The deployed functions, each called by its own event."""

    calls: Calls
    handlers: Mapping[str, ModuleType]
    queues: Mapping[str, str]
    shifted: timedelta = timedelta(0)

    def __post_init__(self) -> None:
        self.sqs = boto3.client("sqs")

    def request(self, method: str, path: str, body: object = None, **headers: str) -> Document:
        """What the API answers, which has to be good."""
        raw = api.event(
            method,
            path.partition("?")[0],
            query=path.partition("?")[2],
            body=None if body is None else json.dumps(body),
            headers={"content-type": "application/json", **headers},
            claims={"sub": ADA, "scope": "admin"},
        )
        answer = self._invoke("ApiHandler", raw)
        assert answer["statusCode"] < 300, answer
        read: Document = json.loads(answer.get("body") or "{}")
        return read

    def pause_resume_and_edit(self, job: Document) -> None:
        """What the API's function does for the three of them."""
        ports, id = self.handlers["ApiHandler"].wired.ports, parse_job_id(job["job_id"])
        with self.calls.by("ApiHandler"):
            paused = manage.pause(ports, ADA, id)
            resumed = manage.resume(ports, ADA, id)
            edited = manage.edit(ports, ADA, id, _with_a_large_payload)
        made = [revised.job for revised in (paused, resumed, edited)]
        assert [(job.version, job.status) for job in made] == [
            (2, JobStatus.PAUSED),
            (3, JobStatus.ACTIVE),
            (4, JobStatus.ACTIVE),
        ]

    def recount(self) -> None:
        """What the API's function does for somebody whose quota is used up."""
        ports = self.handlers["ApiHandler"].wired.ports
        with self.calls.by("ApiHandler"):
            ports.tally.recount(ADA, now=ports.clock.now())
            assert ports.tally.recount(ADA, now=ports.clock.now() + RECOUNT_AFTER)
        assert ports.tally.usage(ADA).live_jobs > 1

    def watch(self, job: Document) -> None:
        """What the scheduler's function does when a job's watch is due."""
        ports = self.handlers["Scheduler"].wired.ports
        found = ports.jobs.get(parse_job_id(job["job_id"]))
        assert found is not None
        due = replace(first_watch(found, ports.clock.now()), since=found.created_at)
        with self.calls.by("Scheduler"):
            watch.visit(ports, due)

    def tell(self, job: Document) -> None:
        """What either function does with what it finds ended, and nobody was told of."""
        id = parse_execution_id(job["execution_id"])
        for function in ("Scheduler", "DeadLetters"):
            ports = self.handlers[function].wired.ports
            row = ports.executions.get(id)
            assert row is not None
            assert row.told_at is not None
            with self.calls.by(function):
                endings.tell(ports, replace(row, told_at=None))

    def call_back(self, job: Document) -> None:
        """A try that is deferred, heard of, and ended by somebody else."""
        id = parse_execution_id(job["execution_id"])
        ports = self.handlers["DefaultWorker"].wired.ports
        with self.calls.by("DefaultWorker"):
            row = ports.executions.get(id)
            assert row is not None
            message = timers.outgoing(row).message
            received = Received(queue="default", message=message, receipt="gone", receive_count=1)
            held = execute.begin(ports, received, worker="w-1")
            assert isinstance(held, execute.Claimed)
            execute.conclude(ports, held, Deferred(terms=Terms(heartbeat=timedelta(hours=1))))
        token = {"token": held.callback}
        told = [
            self.request("POST", f"/v1/executions/{id}/{verb}", token)["status"]
            for verb in ("heartbeat", "complete")
        ]
        assert told == ["RUNNING", "SUCCEEDED"]

    def limit(self, one: Document, other: Document) -> None:
        """Two limits under which one execution has a place, and the other waits for it."""

        def set_to(kind: str, name: str, limit: int) -> None:
            self.request("PUT", "/v1/limits", {"kind": kind, "name": name, "limit": limit})

        def take(ports: Ports, row: Execution, token: str) -> tuple[Bound, ...] | permits.Full:
            with self.calls.by("DefaultWorker"):
                return permits.take(ports, row, Token(token * 32))

        ports = self.handlers["DefaultWorker"].wired.ports
        with self.calls.by("DefaultWorker"):
            assert ports.permits.limits() == Limits()
            ids = [parse_execution_id(job["execution_id"]) for job in (one, other)]
            first, second = (row for id in ids if (row := ports.executions.get(id)))
        set_to("queue", "default", 1)
        set_to("owner", "*", 5)
        self.shifted += LIMITS_FRESH
        bounds = take(ports, first, "a")
        full = take(ports, second, "b")
        assert isinstance(bounds, tuple)
        assert isinstance(full, permits.Full)
        with self.calls.by("DefaultWorker"):
            permits.wait(ports, second, full, receives=1)
        set_to("queue", "default", 2)
        set_to("queue", "default", 1)
        with self.calls.by("DefaultWorker"):
            permits.wait(ports, second, full, receives=1)
            permits.release(ports, bounds, first.id, Token("a" * 32))
            take(ports, first, "c")
        # Nobody runs by that token: whoever looks finds the place free.
        self.shifted += timedelta(minutes=1)
        assert isinstance(take(ports, second, "d"), tuple)
        self.request("GET", "/v1/limits")
        for query in ("kind=queue&name=default", "kind=owner&name=*"):
            self.request("DELETE", f"/v1/limits?{query}")

    def uploaded(self, text: str) -> Document:
        """A payload that was uploaded to where the API said, as a job may refer to it."""
        said = {"sha256": sha256(text.encode()).hexdigest(), "size": len(text.encode())}
        grant = self.request("POST", "/v1/payloads", said)
        made = boto3.client("s3").put_object(Bucket=BUCKET, Key=grant["key"], Body=text)
        return {"key": grant["key"], "version_id": made["VersionId"], **said}

    def forget_layout(self) -> None:
        key = dict(zip((schema.PARTITION_KEY, schema.SORT_KEY), LAYOUT_KEY, strict=True))
        boto3.resource("dynamodb").Table("Control").delete_item(Key=key)

    def tick(self) -> None:
        """A tick, and all the work that it hands out."""
        self._invoke("Scheduler", {"kind": "tick"})
        while records := self._receive("Work/Queue"):
            assert self._invoke("Scheduler", {"Records": records}) == {"batchItemFailures": []}

    def work(self, job: Document) -> None:
        """The message of a job's first try reaches its worker."""
        self._deliver("DefaultWorker", "DefaultLane/Queue", job)

    def return_undelivered(self, job: Document) -> None:
        """That message lands in the lane's dead-letter queue."""
        self._deliver("DeadLetters", "DefaultLane/DeadLetters", job)

    def _deliver(self, function: str, queue: str, job: Document) -> None:
        message = Message(
            execution_id=parse_execution_id(job["execution_id"]),
            attempt=1,
            due_at=datetime.fromisoformat(job["run_at"]),
        )
        body = body_of(message)
        self.sqs.send_message(QueueUrl=self.queues[queue], MessageBody=body)
        # Others' messages lie before it.
        (record, *_) = [one for one in self._received(queue) if one["body"] == body]
        answer = self._invoke(function, {"Records": [record]})
        assert answer == {"batchItemFailures": []}

    def _received(self, queue: str) -> Iterator[Document]:
        while records := self._receive(queue):
            yield from records

    def _receive(self, queue: str) -> Sequence[Document]:
        received = self.sqs.receive_message(
            QueueUrl=self.queues[queue], MaxNumberOfMessages=10, AttributeNames=["All"]
        )
        return [
            {
                "messageId": message["MessageId"],
                "receiptHandle": message["ReceiptHandle"],
                "body": message["Body"],
                "attributes": message["Attributes"],
                "eventSourceARN": f"arn:aws:sqs:eu-central-1:123456789012:{queue}",
            }
            for message in received.get("Messages", [])
        ]

    def _invoke(self, function: str, event: Document) -> Document:
        with self.calls.by(function):
            answer: Document = self.handlers[function].handle(event, Context())
        return answer


def _with_a_large_payload(job: Job) -> Job:
    return replace(job, spec=replace(job.spec, payload=Payload.of(f'"{"x" * 600}"')))


@pytest.fixture(scope="module")
def stack(local: Assembly) -> Iterator[Stack]:
    with pytest.MonkeyPatch.context() as patch, mock_aws():
        for name, value in {
            "AWS_DEFAULT_REGION": "eu-central-1",
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
        }.items():
            patch.setenv(name, value)
        session = boto3.Session()
        patch.setattr(boto3, "DEFAULT_SESSION", session)
        calls = Calls()
        places = _make_tables(local) | (queues := _make_queues(local)) | _make_bucket(local)
        session.events.register("provide-client-params", calls.record)
        handlers = {
            function: _load(folder, local.environment(f"{function}/Function", places), patch)
            for function, folder in {
                "Scheduler": "scheduler",
                "DefaultWorker": "worker",
                "DeadLetters": "dead_letters",
                "ApiHandler": "api",
            }.items()
        }
        stack = Stack(calls=calls, handlers=handlers, queues=queues)
        true_now = SystemClock.now
        patch.setattr(SystemClock, "now", lambda clock: true_now(clock) + stack.shifted)
        # A worker whose clock is not that of DynamoDB's answers would take no work.
        patch.setattr("moto.core.responses.utcnow", lambda: utcnow() + stack.shifted)
        yield stack


def _make_tables(local: Assembly) -> dict[str, str]:
    client = boto3.client("dynamodb")
    wanted = ("AttributeDefinitions", "KeySchema", "GlobalSecondaryIndexes", "BillingMode")
    tables = local.data.properties("AWS::DynamoDB::Table")
    for name, properties in tables.items():
        client.create_table(
            TableName=name, **{key: properties[key] for key in wanted if key in properties}
        )
    return {name: name for name in tables}


def _make_bucket(local: Assembly) -> dict[str, str]:
    (name,) = local.data.properties("AWS::S3::Bucket")
    return {name: create_bucket(boto3.client("s3"), BUCKET)}


def _make_queues(local: Assembly) -> dict[str, str]:
    client = boto3.client("sqs")
    return {
        name: client.create_queue(QueueName=name.replace("/", "-"))["QueueUrl"]
        for name in local.scheduler.properties("AWS::SQS::Queue")
    }


def _load(folder: str, environment: Mapping[str, str], patch: pytest.MonkeyPatch) -> ModuleType:
    """A module of its own, whichever other test has imported the same handler."""
    for name, value in environment.items():
        patch.setenv(name, value)
    spec = spec_from_file_location(f"deployed_{folder}", FUNCTIONS / folder / "handler.py")
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def story(stack: Stack) -> Calls:
    """Every way that a job can go, once."""
    now = SystemClock().now()
    earlier = now - timedelta(minutes=10)
    stack.shifted = earlier - now

    def post(**body: object) -> Document:
        return stack.request("POST", "/v1/jobs", body)

    # The layout is made by whoever comes first.
    stack.tick()
    stack.forget_layout()
    large = {"task": "echo", "payload": "x" * 600}
    echo = stack.request("POST", "/v1/jobs", large, **{"idempotency-key": "once"})
    stack.request("POST", "/v1/jobs", large, **{"idempotency-key": "once"})
    fails = {"task": "flaky", "payload": {"failures": 9}}
    soon = post(**fails, retry_policy={"max_attempts": 2, "base_seconds": 1})
    later = post(**fails, retry_policy={"max_attempts": 2, "base_seconds": 3600})
    given_up = post(**fails, retry_policy={"max_attempts": 1})
    kept_progress = post(task="pages")
    lost, undelivered = post(task="echo"), post(task="echo")
    moved = post(**large, run_at="2030-01-01T00:00:00Z")
    kept, forgotten, refused, deleted, changed = (
        post(task="echo", rate="1 minute") for _ in range(5)
    )
    by_reference = stack.uploaded('"large"')
    pinned = post(task="echo", payload_ref=by_reference)
    latest = {name: value for name, value in by_reference.items() if name != "version_id"}
    post(task="echo", payload_ref=latest)
    for job in (echo, soon, later, given_up, pinned, kept_progress):
        stack.work(job)

    # The API died between marking these two and cancelling what was armed.
    jobs = stack.handlers["ApiHandler"].wired.ports.jobs
    for job in (forgotten, refused):
        jobs.delete(jobs.get(parse_job_id(job["job_id"])))
    stack.shifted += timedelta(minutes=2)
    stack.tick()
    stack.work(refused)
    stack.request("DELETE", f"/v1/jobs/{deleted['job_id']}")
    stack.request("DELETE", f"/v1/jobs/{lost['job_id']}")
    stack.pause_resume_and_edit(changed)
    # Another time: its first slot takes the place of another row, which must still wait.
    stack.request("PATCH", f"/v1/jobs/{changed['job_id']}", {"rate": "1 hour"})
    for patch in ({"task": "flaky"}, {"run_at": "2031-01-01T00:00:00Z"}, {"queue": "bulk"}):
        stack.request("PATCH", f"/v1/jobs/{moved['job_id']}", patch)

    stack.shifted = timedelta(0)
    post(task="echo", run_at=(now + timedelta(hours=1)).isoformat())
    stack.tick()
    stack.tick()
    for _ in range(3):
        stack.return_undelivered(undelivered)
    # A stale message of a retry that is an hour away.
    stack.return_undelivered(later)
    for path, body in {
        f"{kept['execution_id']}/cancel": None,
        f"{echo['execution_id']}/replay": None,
        f"{given_up['execution_id']}/replay": {"payload": large["payload"]},
        "replay": {"filter": {"task": "flaky"}},
        "cancel": {"filter": {"status": "retrying"}},
    }.items():
        stack.request("POST", f"/v1/executions/{path}", body)
    run = f"/v1/jobs/{kept['job_id']}"
    interval = {"from": (now - timedelta(hours=1)).isoformat(), "to": earlier.isoformat()}
    for _ in range(2):
        stack.request("POST", f"{run}/trigger", {"payload": "x" * 600}, **{"idempotency-key": "t"})
        stack.request("POST", f"{run}/backfill", interval, **{"idempotency-key": "b"})
    stack.call_back(stack.request("POST", "/v1/jobs", {"task": "echo"}))
    stack.recount()
    stack.watch(changed)
    stack.tell(given_up)
    stack.limit(echo, soon)
    for path in (
        "health",
        "jobs",
        "executions",
        "executions?status=dead_lettered",
        f"jobs/{echo['job_id']}",
        f"jobs/{kept['job_id']}/executions",
        f"jobs/{changed['job_id']}/executions",
        f"jobs/{changed['job_id']}/ledger",
        "forecast",
        "recovery",
        f"executions/{echo['execution_id']}",
    ):
        stack.request("GET", f"/v1/{path}")
    return stack.calls


def allowed(function: str) -> set[Call]:
    return {
        (action, resource)
        for action, resources in ALLOWED[f"{function}/Role"].items()
        for resource in resources
    }


@pytest.mark.parametrize("function", ["Scheduler", "DefaultWorker", "DeadLetters", "ApiHandler"])
def test_a_function_may_do_all_that_it_does(story: Calls, function: str) -> None:
    assert story.made[function] - allowed(function) == set()


@pytest.mark.parametrize("function", ["Scheduler", "DefaultWorker", "DeadLetters", "ApiHandler"])
def test_a_function_does_all_that_it_may(story: Calls, function: str) -> None:
    unused = {
        (action, resource)
        for action, resource in in_any_lane(allowed(function)) - in_any_lane(story.made[function])
        if not action.startswith(LAMBDAS_OWN)
    }

    assert unused == set()


def in_any_lane(calls: set[Call]) -> set[Call]:
    """The story is of one lane; the others are like it."""
    return {(action, re.sub("^(Bulk|Critical|Default)Lane", "Lane", on)) for action, on in calls}
