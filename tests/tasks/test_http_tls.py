"""HTTPS targets: the certificate has to be the name's, whichever address was dialled."""

import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from lamplighter.core.addresses import Reach
from lamplighter.core.model import Payload, Spec
from lamplighter.core.outcome import Failed, Outcome, Succeeded
from lamplighter.core.retry import Failure, Kind
from lamplighter.core.targets import HttpRules, HttpTarget
from lamplighter.memory import MemoryWorld
from lamplighter.services.execute import Claimed, begin
from lamplighter.services.heartbeat import Heartbeats
from lamplighter.services.submit import NewJob, submit
from lamplighter.tasks.http import HttpCaller
from lamplighter.tasks.registry import Registry
from lamplighter.tasks.runner import TaskRunner
from tests.support.claims import received
from tests.support.jobs import OWNER
from tests.support.web import Web, raw, saying, silent, web

RULES = HttpRules(owners=frozenset({"*"}), reach=Reach(loopback=True))


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """Signed by itself, for one name, as a file with its key."""

    path: Path

    @classmethod
    def of(cls, name: str, folder: Path, *, expired: bool = False) -> "Certificate":
        key, subject = ec.generate_private_key(ec.SECP256R1()), _named(name)
        until = datetime.now(UTC) + timedelta(days=-1 if expired else 1)
        made = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(until - timedelta(days=9))
            .not_valid_after(until)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(key, hashes.SHA256())
        )
        path = folder / f"{name}.pem"
        path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
            + made.public_bytes(serialization.Encoding.PEM)
        )
        return cls(path=path)

    def server(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.path)
        return context

    def trusted(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.path))


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


@pytest.fixture
def certificate(tmp_path: Path) -> Certificate:
    return Certificate.of("svc.example.com", tmp_path)


@pytest.fixture
def server(certificate: Certificate) -> Iterator[Web]:
    with web(certificate.server()) as running:
        yield running


def call(
    url: str,
    tls: Callable[[], ssl.SSLContext] = ssl.create_default_context,
    *,
    timeout: float = 30,
) -> Outcome:
    world = MemoryWorld()
    target = HttpTarget(url=url)
    spec = Spec(
        task=target.task_name,
        target=target,
        payload=Payload.of("{}"),
        timeout=timedelta(seconds=timeout),
    )
    submit(world.ports(), NewJob(owner=OWNER, spec=spec))
    claimed = begin(world.ports(), received(world), worker="worker-1")
    assert isinstance(claimed, Claimed)
    caller = HttpCaller(
        RULES, world.clock, resolve=lambda host, port: [ip_address("127.0.0.1")], tls=tls
    )
    runner = TaskRunner(Registry(), Heartbeats(world.ports()), world.clock, http=caller)
    return runner(claimed)


def failure(outcome: Outcome) -> Failure:
    assert isinstance(outcome, Failed)
    return outcome.failure


def test_the_address_is_pinned_and_the_name_is_asked_for(certificate: Certificate) -> None:
    """O-H02: with SNI and Host of the name."""
    asked: list[str | None] = []
    context = certificate.server()
    context.sni_callback = lambda _socket, name, _context: asked.append(name)

    with web(context) as server:
        outcome = call(f"https://svc.example.com:{server.port}/x", certificate.trusted)

    assert isinstance(outcome, Succeeded)
    assert asked == ["svc.example.com"]
    assert server.seen[0].headers["host"] == f"svc.example.com:{server.port}"


def test_another_names_certificate_is_refused(server: Web, certificate: Certificate) -> None:
    found = failure(call(f"https://other.example.com:{server.port}/", certificate.trusted))

    assert (found.kind, found.type) == (Kind.RETRYABLE, "Unreachable")
    assert found.message.startswith("no TLS connection: Hostname mismatch")
    assert not server.seen


def test_a_certificate_that_nobody_vouches_for_is_refused(server: Web) -> None:
    found = failure(call(f"https://svc.example.com:{server.port}/"))

    assert found.message == "no TLS connection: self-signed certificate"
    assert not server.seen


def test_an_expired_certificate_may_be_renewed_before_the_next_try(tmp_path: Path) -> None:
    expired = Certificate.of("svc.example.com", tmp_path, expired=True)

    with web(expired.server()) as server:
        found = failure(call(f"https://svc.example.com:{server.port}/", expired.trusted))

    assert (found.kind, found.message) == (
        Kind.RETRYABLE,
        "no TLS connection: certificate has expired",
    )


def test_a_server_without_tls_is_not_spoken_to(certificate: Certificate) -> None:
    with raw(saying(b"HTTP/1.1 200 OK\r\n\r\n")) as server:
        found = failure(call(f"https://svc.example.com:{server.port}/", certificate.trusted))

    assert found.type == "Unreachable"
    assert found.message.startswith("no TLS connection: ")


def test_a_handshake_that_hangs_ends_with_the_call(certificate: Certificate) -> None:
    with raw(silent) as server:
        url = f"https://svc.example.com:{server.port}/"
        found = failure(call(url, certificate.trusted, timeout=1))

    assert found.type in {"Unreachable", "TimedOut"}
