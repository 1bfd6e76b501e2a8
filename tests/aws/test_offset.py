"""The offset of this host's clock, by a server that says what time it is."""

from collections.abc import Iterator
from datetime import timedelta
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import ClassVar

import boto3
import pytest
from botocore.config import Config

from lamplighter.aws.clock import SystemClock
from lamplighter.aws.offset import DynamoClockOffset
from lamplighter.aws.settings import Settings
from lamplighter.aws.wiring import CLIENT_CONFIG, Wired, wire_to
from lamplighter.core.errors import Unavailable
from lamplighter.core.limits import CLOCK_ANSWERS, MAX_CLOCK_ERROR
from lamplighter.services import clock
from tests.support.rows import one_off


class Timekeeper(BaseHTTPRequestHandler):
    """A DynamoDB that has no items, and a clock of its own."""

    ahead: ClassVar[timedelta]
    says: ClassVar[str | None]
    """In the place of the time; empty: nothing at all."""
    asked: ClassVar[int]
    status: ClassVar[int]

    def do_POST(self) -> None:
        type(self).asked += 1
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response_only(self.status)
        if self.says is None or self.says:
            now = SystemClock().now() + self.ahead
            self.send_header("Date", self.says or formatdate(now.timestamp(), usegmt=True))
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        """Not on a test's standard error."""


@pytest.fixture
def wired() -> Iterator[Wired]:
    Timekeeper.ahead, Timekeeper.says = timedelta(0), None
    Timekeeper.asked, Timekeeper.status = 0, 200
    server = ThreadingHTTPServer(("127.0.0.1", 0), Timekeeper)
    Thread(target=server.serve_forever, daemon=True).start()
    yield wired_to(f"http://127.0.0.1:{server.server_port}")
    server.shutdown()
    server.server_close()


def wired_to(url: str) -> Wired:
    session = boto3.Session(
        aws_access_key_id="test", aws_secret_access_key="test", region_name="eu-central-1"
    )
    once = CLIENT_CONFIG.merge(Config(retries={"mode": "standard", "total_max_attempts": 1}))
    settings = Settings(
        stage="test",
        executions_table="executions",
        queues={"default": (f"{url}/default",)},
        log_sample_rate=1.0,
    )
    return wire_to(
        settings,
        dynamodb=session.client("dynamodb", endpoint_url=url, config=once),
        sqs=session.client("sqs", endpoint_url=url, config=once),
    )


def offset_of(wired: Wired) -> DynamoClockOffset:
    offset = wired.ports.clock_offset
    assert isinstance(offset, DynamoClockOffset)
    return offset


def test_the_answers_to_our_own_reads_tell_the_offset(wired: Wired) -> None:
    """S0-X1: no request is made for it."""
    for _ in range(CLOCK_ANSWERS):
        assert wired.ports.executions.get(one_off().id) is None

    found = wired.ports.clock_offset.bounds()

    assert Timekeeper.asked == CLOCK_ANSWERS
    assert found is not None
    assert found.low <= timedelta(0) <= found.high
    assert found.high - found.low < timedelta(seconds=4)


@pytest.mark.parametrize("seconds", [10, -10], ids=["behind", "ahead"])
def test_a_clock_that_is_far_off_refuses_work(
    wired: Wired, seconds: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """S1-X2."""
    Timekeeper.ahead = timedelta(seconds=seconds)

    assert clock.refuses(wired.ports, messages=7)
    with pytest.raises(Unavailable, match="clock is off by more than"):
        clock.check(wired.ports)

    found = wired.ports.clock_offset.bounds()
    assert found is not None
    assert abs(found.surely) > MAX_CLOCK_ERROR
    assert (found.surely < timedelta(0)) == (seconds > 0)
    capsys.readouterr()
    wired.telemetry.flush()
    flushed = capsys.readouterr().out
    assert '"clock_refused":[7.0,1.0]' in flushed.replace(" ", "")
    assert '"clock_offset_ms"' in flushed


def test_a_clock_that_is_right_takes_work(wired: Wired) -> None:
    assert not clock.refuses(wired.ports, messages=1)
    clock.check(wired.ports)

    assert Timekeeper.asked == CLOCK_ANSWERS


@pytest.mark.parametrize("says", ["", "yesterday", "Thu, 01 Jan 1970 00:00:00 -0000"])
def test_what_names_no_time_tells_nothing_and_is_not_asked_all_the_time(
    wired: Wired, says: str
) -> None:
    Timekeeper.says = says

    assert not clock.refuses(wired.ports, messages=1)
    assert not clock.refuses(wired.ports, messages=1)

    assert wired.ports.clock_offset.bounds() is None
    assert Timekeeper.asked == CLOCK_ANSWERS


def test_a_service_that_is_down_proves_nothing(wired: Wired) -> None:
    Timekeeper.status, Timekeeper.says = 503, ""

    assert not clock.refuses(wired.ports, messages=1)
    assert Timekeeper.asked == 1


def test_an_answer_that_is_an_error_tells_the_time_too(wired: Wired) -> None:
    Timekeeper.status = 503

    for _ in range(CLOCK_ANSWERS):
        with pytest.raises(Unavailable):
            wired.ports.executions.get(one_off().id)

    assert wired.ports.clock_offset.bounds() is not None


def test_the_offset_is_told_once_a_minute(wired: Wired) -> None:
    offset = offset_of(wired)
    assert offset.to_tell() is None
    offset.measure()

    assert offset.to_tell() == timedelta(0)
    assert offset.to_tell() is None
