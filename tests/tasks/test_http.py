"""HTTP targets against real servers on loopback: each try ends in time, and says what it means."""

import gzip
import json
import socket
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

import pytest

from lamplighter.core.addresses import Address, Reach
from lamplighter.core.deferral import Terms
from lamplighter.core.errors import Unavailable
from lamplighter.core.lifecycle import State
from lamplighter.core.model import Execution, Payload, Spec
from lamplighter.core.outcome import Failed, Outcome, Succeeded, Withdrawn
from lamplighter.core.retry import Failure, Kind, RetryPolicy
from lamplighter.core.targets import HttpRules, HttpTarget
from lamplighter.core.webhooks import SigningKey, parse_keys, signed
from lamplighter.memory import MemoryWorld, VirtualClock
from lamplighter.services import deferred
from lamplighter.services.execute import Claimed, begin, process
from lamplighter.services.heartbeat import Heartbeats, Stop
from lamplighter.services.submit import Created, NewJob, submit
from lamplighter.tasks.http import HttpCaller, Keys
from lamplighter.tasks.pinned import Resolve, resolved
from lamplighter.tasks.registry import Registry
from lamplighter.tasks.runner import TaskRunner
from lamplighter.version import VERSION
from tests.support.claims import received
from tests.support.jobs import OWNER
from tests.support.web import Talk, Web, raw, saying, silent, web

LOCAL = HttpRules(owners=frozenset({"*"}), allow_http=True, reach=Reach(loopback=True))
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"


class Bench:
    """A runner with an HTTP caller, on a world in memory; the calls themselves are real."""

    def __init__(self, world: MemoryWorld) -> None:
        self.world = world
        self.heartbeats = Heartbeats(world.ports())

    def runner(
        self,
        *,
        rules: HttpRules = LOCAL,
        keys: Keys = tuple,
        resolve: Resolve = resolved,
    ) -> TaskRunner:
        caller = HttpCaller(rules, self.world.clock, keys=keys, resolve=resolve)
        return TaskRunner(Registry(), self.heartbeats, self.world.clock, http=caller)

    def submit(
        self,
        url: str,
        *,
        payload: str = "{}",
        method: str = "POST",
        headers: Sequence[tuple[str, str]] = (),
        timeout: float = 30,
        retry: RetryPolicy | None = None,
        deferred: Terms | None = None,
    ) -> Created:
        target = HttpTarget(url=url, method=method, headers=tuple(headers), deferred=deferred)
        spec = Spec(
            task=target.task_name,
            target=target,
            payload=Payload.of(payload),
            timeout=timedelta(seconds=timeout),
            retry=retry or RetryPolicy(),
        )
        new = NewJob(owner=OWNER, spec=spec, traceparent="00-" + "a" * 32 + "-" + "b" * 16 + "-01")
        made = submit(self.world.ports(), new)
        assert isinstance(made, Created)
        return made

    def claimed(self) -> Claimed:
        begun = begin(self.world.ports(), received(self.world), worker="worker-1")
        assert isinstance(begun, Claimed)
        return begun

    def call(self, url: str, *, timeout: float = 30, runner: TaskRunner | None = None) -> Outcome:
        self.submit(url, timeout=timeout)
        return (runner or self.runner())(self.claimed())

    def failure(
        self, url: str, *, timeout: float = 30, runner: TaskRunner | None = None
    ) -> Failure:
        outcome = self.call(url, timeout=timeout, runner=runner)
        assert isinstance(outcome, Failed)
        return outcome.failure


@pytest.fixture
def world() -> MemoryWorld:
    return MemoryWorld(clock=VirtualClock(datetime(2026, 7, 12, 2, tzinfo=UTC)))


@pytest.fixture
def bench(world: MemoryWorld) -> Bench:
    return Bench(world)


@pytest.fixture
def server() -> Iterator[Web]:
    with web() as running:
        yield running


def answered(outcome: Outcome) -> dict[str, object]:
    assert isinstance(outcome, Succeeded)
    result: dict[str, object] = json.loads(outcome.result)
    return result


def test_a_job_with_a_target_goes_from_create_to_succeeded(bench: Bench, server: Web) -> None:
    """S2-F1."""
    server.headers = {"Content-Type": "application/json", "X-Request-Id": "r-1", "X-Other": "no"}
    made = bench.submit(server.url, payload='{"z":1.0,"a":"\u00e4  b"}', headers=[("x-a", "b")])

    process(bench.world.ports(), received(bench.world), bench.runner(), worker="worker-1")

    row = bench.world.ports().executions.get(made.first.id)
    assert isinstance(row, Execution)
    assert (row.state, row.task) == (State.SUCCEEDED, "http:127.0.0.1")
    assert json.loads(row.result or "") == {
        "status": 200,
        "headers": {"content-type": "application/json", "x-request-id": "r-1"},
        "body": '{"ok":true}',
        "truncated": False,
    }


def test_a_request_carries_the_payload_and_who_asks(bench: Bench, server: Web) -> None:
    """S4-L4: the execution's id is the idempotency key."""
    made = bench.submit(
        f"{server.url}?q=1",
        payload='{"z":1.0,"a":"\u00e4"}',
        method="PUT",
        headers=[("x-a", "b"), ("Authorization", "Bearer t")],
    )

    bench.runner()(bench.claimed())

    (seen,) = server.seen
    assert (seen.method, seen.path) == ("PUT", "/hook?q=1")
    assert seen.body == '{"z":1.0,"a":"ä"}'.encode()
    assert seen.headers == {
        "host": f"127.0.0.1:{server.port}",
        "content-type": "application/json; charset=utf-8",
        "content-length": str(len(seen.body)),
        "user-agent": f"Lamplighter/{VERSION}",
        "accept-encoding": "identity",
        "connection": "close",
        "idempotency-key": made.first.id,
        "traceparent": "00-" + "a" * 32 + "-" + "b" * 16 + "-01",
        "x-a": "b",
        "authorization": "Bearer t",
    }


def test_a_request_that_was_accepted_is_ended_later_by_who_was_called(
    bench: Bench, server: Web
) -> None:
    """S2-A7, S0-N7: an HTTP target may answer that it was accepted."""
    terms = Terms(heartbeat=timedelta(minutes=5), hard_limit=timedelta(hours=2))
    server.status = 202
    made = bench.submit(server.url, deferred=terms)
    process(bench.world.ports(), received(bench.world), bench.runner(), worker="worker-1")

    held = bench.world.ports().executions.get(made.first.id)
    assert held is not None
    assert (held.state, held.deferral is not None) == (State.RUNNING, True)
    (seen,) = server.seen
    assert seen.headers["lamplighter-execution-id"] == held.id
    token = seen.headers["lamplighter-callback-token"]
    assert token != held.token
    done = deferred.end(
        bench.world.ports(), held.id, token, Succeeded(result='"later"'), said="later"
    )
    assert (done.state, done.result) == (State.SUCCEEDED, '"later"')


def test_without_terms_a_202_is_an_end_like_another_and_no_token_is_sent(
    bench: Bench, server: Web
) -> None:
    server.status = 202

    outcome = bench.call(server.url)

    assert isinstance(outcome, Succeeded)
    assert not [name for name in server.seen[0].headers if name.startswith("lamplighter-")]


def test_with_terms_any_other_answer_is_an_end(bench: Bench, server: Web) -> None:
    server.status = 200
    bench.submit(server.url, deferred=Terms())

    assert isinstance(bench.runner()(bench.claimed()), Succeeded)


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_a_request_without_a_body_has_none(bench: Bench, server: Web, method: str) -> None:
    bench.submit(server.url, method=method)

    answered(bench.runner()(bench.claimed()))

    (seen,) = server.seen
    assert (seen.method, seen.body) == (method, b"")
    assert not {"content-type", "content-length", "transfer-encoding"} & seen.headers.keys()


def test_what_is_signed_is_what_is_sent_and_each_try_is_signed_anew(
    bench: Bench, server: Web
) -> None:
    """O-H07: bytes signed = bytes sent; the id stays, the time and so the signature do not."""
    old, new = parse_keys(f"whsec_{'b2xk' * 8} whsec_{'bmV3' * 8}")
    runner = bench.runner(keys=lambda: [new, old])
    made = bench.submit(server.url, payload='{"z": 1.0,"a":"\u00e4\u20ac\\n", "n":[ ]}')
    server.status = 500
    process(bench.world.ports(), received(bench.world), runner, worker="worker-1")
    bench.world.pass_time(timedelta(seconds=2))

    process(bench.world.ports(), received(bench.world), runner, worker="worker-1")

    first, second = server.seen
    for seen in (first, second):
        at = datetime.fromtimestamp(int(seen.headers["webhook-timestamp"]), UTC)
        expected = signed([new, old], id=made.first.id, timestamp=at, body=seen.body)
        assert expected.items() <= seen.headers.items()
        assert len(seen.headers["webhook-signature"].split()) == 2
    assert first.headers["webhook-id"] == second.headers["webhook-id"] == made.first.id
    assert first.headers["webhook-signature"] != second.headers["webhook-signature"]
    assert first.body == second.body


def test_without_the_keys_at_hand_nothing_is_sent(bench: Bench, server: Web) -> None:
    def keys() -> Sequence[SigningKey]:
        raise Unavailable("the keys to sign with cannot be read")

    failure = bench.failure(server.url, runner=bench.runner(keys=keys))

    assert (failure.kind, failure.type) == (Kind.RETRYABLE, "Unavailable")
    assert not server.seen


def test_without_keys_nothing_is_signed(bench: Bench, server: Web) -> None:
    bench.call(server.url)

    assert not [name for name in server.seen[0].headers if name.startswith("webhook-")]


def test_a_500_is_tried_again_and_then_dead_lettered(bench: Bench, server: Web) -> None:
    """S2-F5, S2-E2."""
    server.status, server.body = 500, b"hunter2"
    made = bench.submit(server.url)
    runner = bench.runner()

    for _ in range(5):
        process(bench.world.ports(), received(bench.world), runner, worker="worker-1")
        bench.world.pass_time(timedelta(seconds=60))

    row = bench.world.ports().executions.get(made.first.id)
    assert row is not None
    assert (row.state, len(row.attempts)) == (State.DEAD_LETTERED, 5)
    assert row.error == Failure(
        kind=Kind.RETRYABLE, type="HttpStatus", message="the target answered 500"
    )


def test_a_policy_may_say_that_no_answer_of_a_target_is_tried_again(
    bench: Bench, server: Web
) -> None:
    server.status = 503
    made = bench.submit(server.url, retry=RetryPolicy(retry_on=("Unreachable", "TimedOut")))

    process(bench.world.ports(), received(bench.world), bench.runner(), worker="worker-1")

    row = bench.world.ports().executions.get(made.first.id)
    assert row is not None
    assert (row.state, row.reason) == (State.FAILED, "retry_on does not have HttpStatus")


@pytest.mark.parametrize("status", [400, 404, 422])
def test_a_4xx_ends_it_at_once(bench: Bench, server: Web, status: int) -> None:
    server.status, server.body = status, b"hunter2"

    failure = bench.failure(f"{server.url}?token=hunter2")

    assert (failure.kind, failure.message) == (Kind.PERMANENT, f"the target answered {status}")


@pytest.mark.parametrize("value", ["90", "Sun, 12 Jul 2026 02:01:30 GMT"], ids=["seconds", "date"])
def test_a_rate_limit_is_waited_for(bench: Bench, server: Web, value: str) -> None:
    """S0-R4."""
    server.status, server.headers = 429, {"Retry-After": value}

    failure = bench.failure(server.url)

    assert (failure.kind, failure.retry_after) == (Kind.RATE_LIMITED, timedelta(seconds=90))


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("location", ["absolute", "/elsewhere", "http://169.254.169.254/"])
def test_a_redirect_is_not_followed_and_ends_it(
    bench: Bench, server: Web, status: int, location: str
) -> None:
    """O-H03."""
    with web() as elsewhere:
        location = elsewhere.url if location == "absolute" else location
        server.status, server.headers = status, {"Location": location}

        failure = bench.failure(server.url)

        assert not elsewhere.seen
    assert failure.kind is Kind.PERMANENT
    assert failure.message == f"the target answered {status}; redirects are not followed"
    assert len(server.seen) == 1


def test_a_proxy_of_the_environment_is_not_asked(
    bench: Bench, server: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    with web() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")

        answered(bench.call(server.url))

        assert (len(server.seen), len(proxy.seen)) == (1, 0)


def test_a_long_answer_is_cut_and_a_success_all_the_same(bench: Bench, server: Web) -> None:
    server.body = b'\0\xff"' * 10_000

    answer = answered(bench.call(server.url))

    assert answer["truncated"] is True
    assert answer["body"] == ('\ufffd\ufffd"' * 1366)[:4096]


@pytest.mark.parametrize(
    "talk",
    [
        pytest.param(silent, id="never answers"),
        pytest.param(saying(b"HTTP/1.1 2", again=b"0", every=0.1), id="drips its status"),
        pytest.param(
            saying(b"HTTP/1.1 200 OK\r\nX: ", again=b"x", every=0.1), id="drips its headers"
        ),
        pytest.param(saying(OK, b"x", every=0.3, again=b""), id="stops in its body"),
        pytest.param(saying(OK.replace(b"5", b"999"), again=b"x", every=0.1), id="drips its body"),
        pytest.param(
            saying(again=b"HTTP/1.1 100 Continue\r\n\r\n", every=0.05), id="goes on for ever"
        ),
    ],
)
def test_a_call_ends_by_the_time_of_the_whole(bench: Bench, talk: Talk) -> None:
    """O-H06: what never ends is ended by the time of the whole call, not of one read."""

    def held(connected: socket.socket, over: threading.Event) -> None:
        talk(connected, over)
        over.wait()

    with raw(held) as server:
        begun = time.monotonic()
        failure = bench.failure(server.url, timeout=1)
        took = time.monotonic() - begun

    assert (failure.kind, failure.type) == (Kind.TIMEOUT, "TimedOut")
    assert failure.message == "ran longer than 1 s; the target had not answered in full"
    assert 0.9 <= took < 2


def test_an_answer_without_an_end_is_read_to_the_cap(bench: Bench) -> None:
    """O-H06."""
    endless = saying(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", again=b"x" * 65_536)

    with raw(endless) as server:
        answer = answered(bench.call(server.url, timeout=5))

    assert answer["truncated"] is True
    assert answer["body"] == "x" * 4096


def test_a_compressed_answer_is_kept_as_it_came(bench: Bench, server: Web) -> None:
    """O-H06: none is asked for, and none is unpacked: 30 MB of nothing stay 30 KB."""
    server.headers = {"Content-Encoding": "gzip"}
    server.body = gzip.compress(bytes(30_000_000), compresslevel=1)

    answer = answered(bench.call(server.url))

    assert server.seen[0].headers["accept-encoding"] == "identity"
    assert answer["truncated"] is True
    assert len(str(answer["body"])) <= 4096


def test_a_204_with_a_body_is_a_success_without_one(bench: Bench) -> None:
    """O-H06."""
    with raw(saying(b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello")) as server:
        answer = answered(bench.call(server.url))

    assert (answer["status"], answer["body"]) == (204, "")


def reset(connected: socket.socket, over: threading.Event) -> None:
    """It takes the request, and drops the connection."""
    saying()(connected, over)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@pytest.mark.parametrize(
    "talk",
    [
        pytest.param(saying(OK, b"x"), id="closes in its body"),
        pytest.param(saying(), id="says nothing"),
        pytest.param(saying(b"SSH-2.0-OpenSSH_9.6\r\n"), id="another protocol"),
        pytest.param(
            saying(b"HTTP/1.1 200 OK\r\n", again=b"X: " + b"y" * 9000), id="10 MB headers"
        ),
        pytest.param(reset, id="reset"),
    ],
)
def test_an_answer_that_breaks_off_is_tried_again(bench: Bench, talk: Talk) -> None:
    """O-H06: after a 200 too: what it has done is known by the key, not by half an answer."""
    with raw(talk) as server:
        failure = bench.failure(server.url)

    assert (failure.kind, failure.type) == (Kind.RETRYABLE, "BadAnswer")
    assert failure.message == "the answer broke off, or was no HTTP"


def test_a_target_that_nobody_listens_at_is_tried_again(bench: Bench) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

    failure = bench.failure(f"http://127.0.0.1:{port}/?token=hunter2")

    assert (failure.kind, failure.type) == (Kind.RETRYABLE, "Unreachable")
    assert failure.message == "no connection: Connection refused"


def stopped_soon(bench: Bench, claimed: Claimed, why: Stop) -> Outcome:
    runner = bench.runner()

    def stop() -> None:
        time.sleep(0.3)
        (call,) = runner._calls.values()
        call.signal.stop(why)

    thread = threading.Thread(target=stop)
    thread.start()
    try:
        return runner(claimed)
    finally:
        thread.join()


@pytest.mark.parametrize("why", [Stop.CANCELLED, Stop.LOST_LEASE, Stop.TIMEOUT])
def test_a_call_that_has_to_stop_closes_its_connection(bench: Bench, why: Stop) -> None:
    ended = threading.Event()

    def until_closed(connected: socket.socket, over: threading.Event) -> None:
        while not over.is_set():
            try:
                if not connected.recv(65_536):
                    ended.set()
                    return
            except TimeoutError:
                continue

    with raw(until_closed) as server:
        bench.submit(server.url)
        begun = time.monotonic()
        outcome = stopped_soon(bench, bench.claimed(), why)

        assert time.monotonic() - begun < 2
        assert ended.wait(2)
    if why is Stop.CANCELLED:
        assert outcome == Withdrawn(reason="cancelled on request")
    else:
        assert isinstance(outcome, Failed)
        assert outcome.failure.type == ("TimedOut" if why is Stop.TIMEOUT else "Stopped")


def to(*addresses: str) -> Resolve:
    return lambda host, port: [ip_address(address) for address in addresses]


@pytest.mark.parametrize(
    "addresses",
    [
        *(["127.0.0.1"], ["::1"], ["10.0.0.1"], ["169.254.169.254"], ["fd00:ec2::254"]),
        *(["::ffff:127.0.0.1"], ["64:ff9b::7f00:1"], ["0.0.0.0"], ["::"], ["100.64.0.1"]),
        *(["8.8.8.8", "127.0.0.1"], ["127.0.0.1", "8.8.8.8"], ["2606:4700::1111", "::1"]),
    ],
    ids=" ".join,
)
def test_a_name_that_leads_to_an_address_that_is_not_public_is_never_connected_to(
    bench: Bench, server: Web, addresses: list[str]
) -> None:
    """O-H01: proved by a listener on loopback that gets not even a connection."""
    rules = HttpRules(owners=frozenset({"*"}), allow_http=True)
    runner = bench.runner(rules=rules, resolve=to(*addresses))

    failure = bench.failure(f"http://svc.example.com:{server.port}/", runner=runner)

    assert (failure.kind, failure.type) == (Kind.PERMANENT, "BlockedTarget")
    assert failure.message.startswith(
        "blocked target: svc.example.com leads to an address that is "
    )
    assert not server.seen


def test_only_the_address_that_was_looked_at_is_connected_to(
    bench: Bench, server: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    """O-H02: whatever the name would be answered a second time, nobody asks."""
    asked: list[str] = []
    dialled: list[tuple[str, int]] = []

    def rebinding(host: str, port: int) -> Sequence[Address]:
        asked.append(host)
        return [ip_address("8.8.8.8" if len(asked) == 1 else "127.0.0.1")]

    def dial(address: tuple[str, int], timeout: float) -> socket.socket:
        dialled.append(address)
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(socket, "create_connection", dial)
    rules = HttpRules(owners=frozenset({"*"}), allow_http=True)
    runner = bench.runner(rules=rules, resolve=rebinding)

    first = bench.failure(f"http://svc.example.com:{server.port}/", runner=runner)
    second = bench.failure(f"http://svc.example.com:{server.port}/", runner=runner)

    assert dialled == [("8.8.8.8", server.port)]
    assert (first.type, second.type) == ("Unreachable", "BlockedTarget")
    assert len(asked) == 2
    assert not server.seen


@pytest.mark.parametrize(
    "host", ["2852039166", "0x7f000001", "0177.0.0.1", "127.1", "localhost", "127.0.0.1"]
)
def test_a_resolver_that_takes_a_name_for_a_number_is_looked_at_too(
    bench: Bench, server: Web, host: str
) -> None:
    """What create refuses by its looks, and the connection would by where it leads."""
    found = resolved(host, server.port)

    assert found
    assert all(Reach().refusal(address) for address in found)


def test_a_second_address_is_tried_when_the_first_does_not_answer(
    bench: Bench, server: Web
) -> None:
    runner = bench.runner(resolve=to("127.0.0.2", "127.0.0.1"))

    assert answered(bench.call(f"http://a.example:{server.port}/", runner=runner))
    assert server.seen[0].headers["host"] == f"a.example:{server.port}"


def test_a_name_that_nobody_knows_is_tried_again(bench: Bench) -> None:
    def unknown(host: str, port: int) -> Sequence[Address]:
        raise socket.gaierror(-2, "Name or service not known")

    failure = bench.failure("http://a.example/", runner=bench.runner(resolve=unknown))

    assert (failure.kind, failure.type) == (Kind.RETRYABLE, "Unreachable")
    assert failure.message == "the name a.example could not be resolved"


def test_a_resolver_that_hangs_does_not_hang_the_call(bench: Bench) -> None:
    over = threading.Event()

    def slow(host: str, port: int) -> Sequence[Address]:
        over.wait(10)
        return []

    begun = time.monotonic()
    failure = bench.failure("http://a.example/", timeout=1, runner=bench.runner(resolve=slow))
    took = time.monotonic() - begun
    over.set()

    assert failure.kind is Kind.TIMEOUT
    assert took < 2


@pytest.mark.parametrize(
    "rules",
    [
        HttpRules(allow_http=True, reach=Reach(loopback=True)),
        HttpRules(owners=frozenset({"globex"}), allow_http=True, reach=Reach(loopback=True)),
        HttpRules(owners=frozenset({"*"}), reach=Reach(loopback=True)),
        HttpRules(owners=frozenset({"*"}), allow_http=True, reach=Reach(private=True)),
    ],
    ids=["nobody", "another owner", "https only", "no loopback"],
)
def test_what_the_operator_no_longer_allows_is_not_called(
    bench: Bench, server: Web, rules: HttpRules
) -> None:
    failure = bench.failure(server.url, runner=bench.runner(rules=rules))

    assert (failure.kind, failure.type) == (Kind.PERMANENT, "BlockedTarget")
    assert not server.seen


def test_a_worker_without_http_targets_calls_none(bench: Bench, server: Web) -> None:
    runner = TaskRunner(Registry(), bench.heartbeats, bench.world.clock)

    assert bench.failure(server.url, runner=runner).type == "BlockedTarget"
    assert not server.seen
