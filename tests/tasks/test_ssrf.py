"""Targets inside the network: not a byte reaches an address that is not public.

Every address of the world is one listener on loopback here: whatever is connected to arrives
there, and is counted. Nothing arrives, whichever way a host is written, whatever its name is
answered with, and wherever an answer points.
"""

import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from ipaddress import ip_address

import pytest

from lamplighter.core.addresses import Address, Reach
from lamplighter.core.errors import Rejected
from lamplighter.core.lifecycle import State
from lamplighter.core.model import Payload, Spec
from lamplighter.core.retry import Failure, Kind
from lamplighter.core.targets import HttpRules, HttpTarget
from lamplighter.memory import MemoryWorld, VirtualClock
from lamplighter.services.execute import process
from lamplighter.services.heartbeat import Heartbeats
from lamplighter.services.submit import Created, NewJob, submit
from lamplighter.tasks.context import StopSignal
from lamplighter.tasks.http import HttpCaller
from lamplighter.tasks.pinned import BlockedTarget, Dialer, Patience, Resolve, resolved
from lamplighter.tasks.registry import Registry
from lamplighter.tasks.runner import TaskRunner
from tests.support.claims import received
from tests.support.jobs import OWNER
from tests.support.web import Web, web

RULES = HttpRules(owners=frozenset({"*"}), allow_http=True)
PUBLIC = "8.8.8.8"
NAME = "http://svc.example.com:8080/"

# Whatever of the case some resolver, or some parser, takes for an address or a place.
HOSTS = [
    *("169.254.169.254", "2852039166", "0xA9FEA9FE", "0251.0376.0251.0376", "169.254.43518"),
    *("127.1", "0", "127.0.0.1", "2130706433", "0x7f000001", "0177.0.0.1", "0x7f.1", "10.0.0.1"),
    *("169.254.170.2", "169.254.169.254.", "127.0.0.1.", "localhost", "LOCALHOST", "localhost."),
    *("::ffff:169.254.169.254", "::ffff:a9fe:a9fe", "::ffff:127.0.0.1", "::1", "::", "fd12::1"),
    *("fd00:ec2::254", "fe80::1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::1"),
    *("::7f00:1", "0:0:0:0:0:0:0:1", "::ffff:0:127.0.0.1"),
]
URLS = [
    "http://good.example@169.254.169.254/",
    "http://good.example\\@169.254.169.254/",
    "http://good.example:80@169.254.169.254:80/",
    "http://\uff11\uff16\uff19.254.169.254/",
    "http://\u2460\u2461\u2466.0.0.1/",
    "http://169\u3002254\u3002169\u3002254/",
    "file:///etc/passwd",
    "gopher://169.254.169.254:80/_GET",
    "http://svc.example.com:0/",
    "http://svc.example.com:22/",
    "http://svc.example.com:99999/",
]
# What a name may be answered with, in place of a public address or beside it.
ANSWERS = [
    *("169.254.169.254", "169.254.170.2", "127.0.0.1", "127.8.8.8", "0.0.0.0", "10.0.0.1"),
    *("172.16.0.1", "192.168.0.1", "100.64.0.1", "224.0.0.1", "255.255.255.255", "198.18.0.1"),
    *("::1", "::", "fd00:ec2::254", "fe80::1", "fc00::1", "ff02::1", "::ffff:169.254.169.254"),
    *("::ffff:10.0.0.1", "64:ff9b::7f00:1", "2002:a9fe:a9fe::1", "::a9fe:a9fe"),
]


@dataclass(kw_only=True)
class Everywhere:
    """The one listener, and the addresses that somebody meant to connect to."""

    server: Web
    dialled: list[str] = field(default_factory=list)


@pytest.fixture
def everywhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[Everywhere]:
    with web() as server:
        found = Everywhere(server=server)
        connect = socket.create_connection

        def dial(address: tuple[str, int], timeout: float) -> socket.socket:
            found.dialled.append(address[0])
            return connect(("127.0.0.1", server.port), timeout)

        monkeypatch.setattr(socket, "create_connection", dial)
        yield found


def as_written(host: str, port: int) -> Sequence[Address]:
    """As the system's resolver reads a number, and as every resolver has localhost."""
    bare = host.removesuffix(".")
    if bare.lower() == "localhost":
        return [ip_address("127.0.0.1"), ip_address("::1")]
    flags = socket.AI_NUMERICHOST
    answers = socket.getaddrinfo(bare, port, type=socket.SOCK_STREAM, flags=flags)
    return [ip_address(place[0]) for *_, place in answers]


def answering(*addresses: str) -> Resolve:
    return lambda host, port: [ip_address(address) for address in addresses]


@dataclass(kw_only=True)
class Bench:
    """One job that calls a URL, and its only try."""

    resolve: Resolve
    rules: HttpRules = RULES
    world: MemoryWorld = field(
        default_factory=lambda: MemoryWorld(clock=VirtualClock(datetime(2026, 7, 12, tzinfo=UTC)))
    )

    def call(self, url: str) -> tuple[State, Failure | None]:
        """How its execution ends, or stands, after one try."""
        target = HttpTarget(url=url)
        spec = Spec(task=target.task_name, target=target, payload=Payload.of("{}"))
        made = submit(self.world.ports(), NewJob(owner=OWNER, spec=spec))
        assert isinstance(made, Created)
        ports, clock = self.world.ports(), self.world.clock
        caller = HttpCaller(self.rules, clock, resolve=self.resolve)
        runner = TaskRunner(Registry(), Heartbeats(ports), clock, http=caller)
        process(ports, received(self.world), runner, worker="worker-1")
        row = ports.executions.get(made.first.id)
        assert row is not None
        return row.state, row.error


def test_the_listener_would_get_what_goes_to_any_address(everywhere: Everywhere) -> None:
    """Else nothing below would prove anything."""
    for address in (PUBLIC, "10.0.0.1", "fd12::1"):
        everywhere.server.seen.clear()
        rules = HttpRules(owners=RULES.owners, allow_http=True, reach=Reach(private=True))

        state, _ = Bench(resolve=answering(address), rules=rules).call(NAME)

        assert (state, len(everywhere.server.seen)) == (State.SUCCEEDED, 1)
        assert everywhere.dialled.pop() == address


@pytest.mark.parametrize("host", HOSTS)
def test_a_host_that_is_not_public_gets_no_byte_however_it_is_written(
    everywhere: Everywhere, host: str
) -> None:
    """O-H01: refused where a job is made; and, were it not, where it is connected to."""
    written = f"[{host}]" if ":" in host else host
    with pytest.raises(Rejected, match="blocked target") as refused:
        RULES.check(HttpTarget(url=f"http://{written}:8080/"), owner="acme")
    patience = Patience(signal=StopSignal(), ends_at=time.monotonic() + 10)
    dialer = Dialer(reach=Reach(), patience=patience, resolve=as_written)
    with pytest.raises(BlockedTarget, match="leads to an address that is"):
        dialer.connect_tcp(host, 8080)

    assert refused.value.field == "target.url"
    assert (everywhere.dialled, everywhere.server.seen) == ([], [])


@pytest.mark.parametrize("url", URLS)
def test_a_url_that_leads_elsewhere_than_it_looks_cannot_be_a_target(url: str) -> None:
    """O-H01: whoever reads it, an older row or another writer: there is no such value."""
    with pytest.raises(Rejected) as refused:
        HttpTarget(url=url)

    assert refused.value.field == "target.url"


@pytest.mark.parametrize("host", ["169.254.169.254", "[::1]", "[::ffff:a9fe:a9fe]", "localhost"])
def test_a_row_that_was_allowed_when_it_was_made_is_looked_at_again_when_it_is_run(
    everywhere: Everywhere, host: str
) -> None:
    """O-H01: it fails at once, and is not tried for ever."""
    state, error = Bench(resolve=resolved).call(f"http://{host}:8080/")

    assert error is not None
    assert (state, error.type, error.kind) == (State.FAILED, "BlockedTarget", Kind.PERMANENT)
    assert (everywhere.dialled, everywhere.server.seen) == ([], [])


@pytest.mark.parametrize("address", ANSWERS)
def test_a_name_is_called_only_if_each_address_of_it_is_public(
    everywhere: Everywhere, address: str
) -> None:
    """O-H01: one bad answer among good ones is enough, wherever it stands."""
    mixed = [(address,), (address, PUBLIC), (PUBLIC, address), (PUBLIC,) * 9 + (address,)]
    for answers in mixed:
        state, error = Bench(resolve=answering(*answers)).call(NAME)

        assert error is not None
        assert (state, error.type) == (State.FAILED, "BlockedTarget")
    assert (everywhere.dialled, everywhere.server.seen) == ([], [])


@pytest.mark.parametrize("address", ["169.254.169.254", "127.0.0.1", "::1", "fd00:ec2::254"])
def test_a_name_that_is_answered_differently_each_time_is_connected_to_as_it_was_looked_at(
    everywhere: Everywhere, address: str
) -> None:
    """O-H02: a name is asked for once in a try, and the socket goes to that very answer."""
    asked: list[str] = []

    def rebinding(host: str, port: int) -> Sequence[Address]:
        asked.append(host)
        return [ip_address(PUBLIC if len(asked) % 2 else address)]

    bench = Bench(resolve=rebinding)
    states = [bench.call(NAME)[0] for _ in range(4)]

    assert states == [State.SUCCEEDED, State.FAILED] * 2
    assert everywhere.dialled == [PUBLIC, PUBLIC]
    assert [seen.headers["host"] for seen in everywhere.server.seen] == ["svc.example.com:8080"] * 2
    assert len(asked) == 4


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_an_answer_leads_nowhere_wherever_it_points(everywhere: Everywhere, status: int) -> None:
    """O-H03: into the network, to this very URL, down to plain HTTP, and by a relative path."""
    hosts = [f"[{host}]" if ":" in host else host for host in HOSTS]
    places = [f"http://{host}/" for host in hosts if host.isascii()]
    for location in [*places, NAME, "https://svc.example.com/", "//127.0.0.1/", "/else", "..", ""]:
        everywhere.server.seen.clear()
        everywhere.server.status, everywhere.server.headers = status, {"Location": location}

        state, error = Bench(resolve=answering(PUBLIC)).call(NAME)

        assert error is not None
        assert (state, error.kind) == (State.FAILED, Kind.PERMANENT)
        assert [seen.path for seen in everywhere.server.seen] == ["/"]
    assert {*everywhere.dialled} == {PUBLIC}
