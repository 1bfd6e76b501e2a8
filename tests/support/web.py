"""Servers on loopback for the length of a block: one that answers as told, or only bytes."""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A request as it arrived."""

    method: str
    path: str
    headers: Mapping[str, str]
    """By lower-case name."""
    body: bytes


@dataclass(kw_only=True)
class Web:
    """A server: what it answers next, and what it was asked."""

    port: int = 0
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b'{"ok":true}'
    seen: list[Seen] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"


@contextmanager
def web(tls: ssl.SSLContext | None = None) -> Iterator[Web]:
    """A real HTTP server of this process."""
    told = Web()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            told.seen.append(
                Seen(
                    method=self.command,
                    path=self.path,
                    headers={name.lower(): value for name, value in self.headers.items()},
                    body=self.rfile.read(length),
                )
            )
            self.send_response(told.status)
            for name, value in told.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(told.body)))
            self.end_headers()
            with suppress(OSError):
                self.wfile.write(told.body)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer  # noqa: N815

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if tls is not None:
        server.socket = tls.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
    told.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield told
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


Talk = Callable[[socket.socket, threading.Event], None]
"""What a raw server does with a connection, until the event is set."""


@contextmanager
def raw(talk: Talk) -> Iterator[Web]:
    """A server that speaks as it likes; `seen` counts the connections that it took."""
    told, over = Web(), threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.05)
        told.port = server.getsockname()[1]

        def serve() -> None:
            while not over.is_set():
                with suppress(TimeoutError):
                    connected, _ = server.accept()
                    told.seen.append(Seen(method="", path="", headers={}, body=b""))
                    with connected, suppress(OSError):
                        connected.settimeout(0.05)
                        talk(connected, over)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield told
        finally:
            over.set()
            thread.join()


def silent(connected: socket.socket, over: threading.Event) -> None:
    """It takes the connection, and never says a word."""
    over.wait()


def saying(*parts: bytes, every: float = 0.0, again: bytes = b"") -> Talk:
    """It reads what has come, says these parts, and goes on with `again` for as long as it can."""

    def talk(connected: socket.socket, over: threading.Event) -> None:
        with suppress(TimeoutError):
            while connected.recv(65_536):
                pass
        for part in parts:
            connected.sendall(part)
        while again and not over.is_set():
            with suppress(TimeoutError):
                connected.sendall(again)
            over.wait(every)

    return talk
