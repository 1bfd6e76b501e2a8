"""Connections to an address that was looked at, which end when their handler has to.

A name is resolved once, and the socket goes to one of the very addresses that were looked at:
nobody can answer a second question differently. Every wait is cut into short ones, so that a
peer that sends a byte now and then holds nobody up for longer than the call may take.
"""

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from typing import Final, TypeVar

import httpcore

from lamplighter.core.addresses import Address, Reach
from lamplighter.core.errors import Permanent, Retryable
from lamplighter.services.heartbeat import Stop
from lamplighter.tasks.context import Stopped, StopSignal

# Each of resolving, connecting and the TLS handshake. Connecting and the handshake cannot be
# interrupted, so this is less than a handler may go on once it must stop.
STEP_S: Final = 4.0
LOOK_EVERY_S: Final = 0.2
# Of a name's addresses, those that are tried.
MAX_ADDRESSES: Final = 4

T = TypeVar("T")
Resolve = Callable[[str, int], Sequence[Address]]
"""The addresses of a host; raises OSError."""


class BlockedTarget(Permanent):
    """A target that must not be called from here; not one byte went there."""


class Unreachable(Retryable):
    """No connection to the target: its name, its host, or its certificate is at fault."""


def resolved(host: str, port: int) -> Sequence[Address]:
    """As the system's resolver has it, in its order."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [*dict.fromkeys(ip_address(place[0]) for *_, place in found)]


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long a call may go on: until its time is over, or its handler is asked to stop."""

    signal: StopSignal
    ends_at: float
    """By `time.monotonic`."""

    def at_most(self, seconds: float) -> float:
        """What a single wait may take; raises Stopped when it may not even begin."""
        left = self.ends_at - time.monotonic()
        if left <= 0:
            # The heartbeat says so, too, within half a second.
            self.signal.stop(Stop.TIMEOUT)
        if self.signal.why is not None:
            raise Stopped("the target had not answered in full")
        return min(seconds, left)


class Dialer(httpcore.NetworkBackend):
    """Connects to a host at one of its addresses, if all of them may be reached."""

    def __init__(self, *, reach: Reach, patience: Patience, resolve: Resolve = resolved) -> None:
        self._reach = reach
        self._patience = patience
        self._resolve = resolve

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ARG002 -- httpcore's; the patience is ours
        local_address: str | None = None,  # noqa: ARG002
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,  # noqa: ARG002
    ) -> httpcore.NetworkStream:
        """Raises BlockedTarget when any address is not to be reached, Unreachable, Stopped."""
        addresses = self._look_up(host, port)
        for address in addresses:
            if refusal := self._reach.refusal(address):
                raise BlockedTarget(f"blocked target: {host} leads to an address that is {refusal}")
        return Stream(self._connect(addresses, port), self._patience)

    def _look_up(self, host: str, port: int) -> Sequence[Address]:
        try:
            addresses = self._in_time(partial(self._resolve, host, port))
        except (OSError, UnicodeError) as error:
            raise Unreachable(f"the name {host} could not be resolved") from error
        if not addresses:
            raise Unreachable(f"the name {host} has no address")
        return addresses

    def _connect(self, addresses: Sequence[Address], port: int) -> socket.socket:
        told = ""
        for address in addresses[:MAX_ADDRESSES]:
            try:
                return socket.create_connection(
                    (str(address), port), timeout=self._patience.at_most(STEP_S)
                )
            except OSError as error:
                told = error.strerror or "no answer in time"
        raise Unreachable(f"no connection: {told}")

    def _in_time(self, work: Callable[[], T]) -> T:
        """A resolver cannot be interrupted: it is left behind in a thread of its own."""
        future = beside(work)
        given_up_at = time.monotonic() + STEP_S
        while not wait([future], timeout=self._patience.at_most(LOOK_EVERY_S)).done:
            if time.monotonic() >= given_up_at:
                raise OSError("no answer in time")
        return future.result()


class Stream(httpcore.NetworkStream):
    """A socket that is read and written for as long as there is patience."""

    def __init__(self, connected: socket.socket, patience: Patience) -> None:
        self._socket = connected
        self._patience = patience

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG002
        try:
            return self._patiently(partial(self._socket.recv, max_bytes))
        except OSError as error:
            raise httpcore.ReadError from error

    def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ARG002
        left = memoryview(buffer)
        try:
            while left:
                left = left[self._patiently(partial(self._socket.send, left)) :]
        except OSError as error:
            raise httpcore.WriteError from error

    def close(self) -> None:
        self._socket.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ARG002
    ) -> httpcore.NetworkStream:
        """Raises Unreachable, for a certificate that is not the host's, too."""
        try:
            self._socket.settimeout(self._patience.at_most(STEP_S))
            secured = ssl_context.wrap_socket(self._socket, server_hostname=server_hostname)
        except BaseException as error:
            self.close()
            if isinstance(error, OSError | ValueError):
                raise Unreachable(f"no TLS connection: {_reason(error)}") from error
            raise
        return Stream(secured, self._patience)

    def _patiently(self, operation: Callable[[], T]) -> T:
        """The operation's result; one that timed out has done nothing, under TLS too."""
        while True:
            self._socket.settimeout(self._patience.at_most(LOOK_EVERY_S))
            try:
                return operation()
            except TimeoutError:
                continue


def beside(work: Callable[[], T]) -> Future[T]:
    """What comes of work that cannot be interrupted: it may be left behind, in its own thread."""
    future: Future[T] = Future()
    threading.Thread(target=_complete, args=(future, work), daemon=True).start()
    return future


def _complete(future: Future[T], work: Callable[[], T]) -> None:
    try:
        future.set_result(work())
    except Exception as error:  # noqa: BLE001 -- it is raised by whoever waits for it
        future.set_exception(error)


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    return getattr(error, "reason", None) or "the handshake failed"
