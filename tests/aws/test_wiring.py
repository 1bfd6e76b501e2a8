"""The composition root: what each kind of function gets, and how patient its clients are."""

import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import ClassVar

import pytest

from lamplighter.aws.notices import AwsNotices
from lamplighter.aws.settings import DeadLetterSettings, SchedulerSettings, Settings
from lamplighter.aws.wiring import CLIENT_CONFIG, THREADS, wire, wire_to
from lamplighter.core.buckets import before, minute_of
from lamplighter.core.errors import Unavailable
from lamplighter.core.lanes import LaneRules
from lamplighter.core.lease import Layout
from lamplighter.core.limits import SAMPLE_PATIENCE
from lamplighter.services import timers
from tests.aws.conftest import Bench
from tests.support.rows import T, one_off, recurring

AWS = {
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
}


def scheduler(bench: Bench) -> SchedulerSettings:
    return SchedulerSettings(
        stage="test",
        executions_table=bench.tables.executions,
        jobs_table=bench.tables.jobs,
        control_table=bench.tables.control,
        queues={lane: (url,) for lane, url in bench.lanes.items()},
        work_queue_url=bench.work_url,
        log_sample_rate=1.0,
        shards=32,
        partitions=2,
    )


def test_a_scheduler_has_every_port(bench: Bench) -> None:
    ports = wire_to(scheduler(bench), dynamodb=bench.clients.dynamodb, sqs=bench.clients.sqs).ports

    assert ports.executions.get(one_off().id) is None
    assert ports.jobs.get(recurring().id) is None
    assert ports.queue.waiting("default") == 0
    layout = ports.layout()
    assert (layout.shards, layout.partitions) == (32, 2)


def test_lanes_are_fair_and_promote_as_the_settings_say(bench: Bench) -> None:
    """S0-N6, S0-P2: what a deployment chose reaches the queue and the sweep."""
    rules = {"critical": LaneRules(fair=True)}
    settings = replace(scheduler(bench), lanes=rules)
    ports = wire_to(settings, dynamodb=bench.clients.dynamodb, sqs=bench.clients.sqs).ports

    ports.queue.send([replace(timers.outgoing(one_off()), queue="critical")], now=T)

    (message,) = bench.clients.sqs.receive_message(
        QueueUrl=bench.lanes["critical"], AttributeNames=["All"]
    )["Messages"]
    assert "MessageGroupId" in message["Attributes"]
    assert ports.lanes == rules


def test_a_port_whose_table_a_function_is_not_told_says_so_when_it_is_used(bench: Bench) -> None:
    settings = DeadLetterSettings(
        stage="test",
        executions_table=bench.tables.executions,
        queues={lane: (url,) for lane, url in bench.lanes.items()},
        log_sample_rate=1.0,
    )
    ports = wire_to(settings, dynamodb=bench.clients.dynamodb, sqs=bench.clients.sqs).ports

    assert ports.executions.get(one_off().id) is None
    with pytest.raises(LookupError, match=r"jobs\.get: this function is not given that table"):
        ports.jobs.get(recurring().id)
    with pytest.raises(LookupError, match=r"control\.layout"):
        ports.control.layouts(Layout(shards=1, partitions=1, effective_from=T))
    with pytest.raises(ValueError, match="without the work queue"):
        ports.queue.hand_out([])


def test_there_are_more_connections_than_threads_that_use_them() -> None:
    assert CLIENT_CONFIG.max_pool_connections >= THREADS + 10  # type: ignore[attr-defined] # botocore sets it from its arguments


class Failing(BaseHTTPRequestHandler):
    """A DynamoDB that is down, and counts who asks."""

    status: ClassVar[int]
    body: ClassVar[bytes]
    asked: ClassVar[int]

    def do_POST(self) -> None:
        type(self).asked += 1
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_: object) -> None:
        """Not on a test's standard error."""


@pytest.fixture
def failing() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Failing)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def silent() -> Iterator[str]:
    """A service that takes calls and answers none."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_what_may_as_well_not_be_known_is_given_up_soon_and_not_asked_for_again(
    bench: Bench, silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decision 0021: a warning never slows a create down by more than that."""
    for name, value in AWS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", silent)
    ports = wire(scheduler(bench)).ports
    began = time.monotonic()

    with pytest.raises(Unavailable, match="Query: ReadTimeoutError"):
        ports.executions.sample(minute_of(T), 0, queue="default", until=before(T), limit=10)

    assert time.monotonic() - began < 4 * SAMPLE_PATIENCE.total_seconds()


THROTTLED = b'{"__type":"com.amazonaws.dynamodb.v20120810#ThrottlingException","message":"slow"}'


@pytest.mark.parametrize(
    ("status", "body"),
    [(500, b"{}"), (503, b"<html>no gateway</html>"), (400, THROTTLED)],
    ids=["500", "503 that is no JSON", "throttled"],
)
def test_a_service_that_is_down_is_asked_three_times_and_then_unavailable(
    failing: str, monkeypatch: pytest.MonkeyPatch, status: int, body: bytes
) -> None:
    Failing.status, Failing.body, Failing.asked = status, body, 0
    for name, value in {
        "AWS_ENDPOINT_URL": failing,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
    }.items():
        monkeypatch.setenv(name, value)
    settings = Settings(
        stage="test",
        executions_table="executions",
        queues={"default": (f"{failing}/default",)},
        log_sample_rate=1.0,
    )

    with pytest.raises(Unavailable):
        wire(settings).ports.executions.get(one_off().id)

    assert Failing.asked == 3


def test_notices_go_where_the_settings_say_and_nowhere_unless_they_do(bench: Bench) -> None:
    """S4-R4."""
    told = replace(scheduler(bench), notice_bus="default", parked_for=timedelta(hours=1))

    silent, ports = (
        wire_to(one, dynamodb=bench.clients.dynamodb, sqs=bench.clients.sqs).ports
        for one in (scheduler(bench), told)
    )

    assert silent.notices is None
    assert isinstance(ports.notices, AwsNotices)
    assert ports.parked_for == timedelta(hours=1)
