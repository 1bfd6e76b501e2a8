"""Web applications on sockets of our own, each in a thread."""

import contextlib
import errno
import socket
import threading
import time
from collections.abc import Iterator
from typing import Final

import uvicorn
from starlette.applications import Starlette

from lamplighter.local.errors import CannotRun

START_TIMEOUT_S: Final = 10.0
OPEN_REQUESTS_GET_S: Final = 2


def listen(port: int) -> socket.socket:
    """A listening socket on 127.0.0.1, so that a second run fails at once; 0: any free port.

    Raises CannotRun if the port is taken.
    """
    try:
        return socket.create_server(("127.0.0.1", port), backlog=128)
    except OSError as error:
        if error.errno not in {errno.EADDRINUSE, errno.EACCES}:
            raise
        raise CannotRun(
            f"port {port} of 127.0.0.1: {error.strerror}. If another run is going, end it with "
            "Ctrl-C; or choose another port: LAMPLIGHTER_PORT=8081 make run"
        ) from None


def port_of(listening: socket.socket) -> int:
    port: int = listening.getsockname()[1]
    return port


@contextlib.contextmanager
def serving(app: Starlette, listening: socket.socket) -> Iterator[None]:
    """Answers while the context lasts; then the socket is closed.

    In a thread, so that the signals and the order of stopping stay with the main one.
    """
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            log_level="error",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=OPEN_REQUESTS_GET_S,
        )
    )
    thread = threading.Thread(target=server.run, args=([listening],), name="server", daemon=True)
    thread.start()
    try:
        _wait_until_started(server, thread)
        yield
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


def _wait_until_started(server: uvicorn.Server, thread: threading.Thread) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while not server.started:
        if not thread.is_alive() or time.monotonic() > deadline:
            raise CannotRun("the server did not start")
        time.sleep(0.01)
