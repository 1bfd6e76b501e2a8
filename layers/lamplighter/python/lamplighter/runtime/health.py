"""What a container's health check asks: whether a worker still serves its queues."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from lamplighter.runtime.serving import Health, Serving

PATH: Final = "/health"
_ASKED_WITHIN_S: Final = 5.0


@contextmanager
def answering(host: str, port: int, document: Callable[[], dict[str, object]]) -> Iterator[int]:
    """`GET /health` for as long as the block runs; gives the port, which 0 leaves to the system.

    503 once the worker is FAILING, else 200; any other path is a 404. Raises OSError when the
    port is taken.
    """

    class Handler(BaseHTTPRequestHandler):
        timeout = _ASKED_WITHIN_S

        def do_GET(self) -> None:
            if self.path != PATH:
                self.send_error(HTTPStatus.NOT_FOUND)
                return
            said = document()
            is_well = said["status"] != Health.FAILING
            body = json.dumps(said).encode()
            self.send_response(HTTPStatus.OK if is_well else HTTPStatus.SERVICE_UNAVAILABLE)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing: it is asked every few seconds."""

    with ThreadingHTTPServer((host, port), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, name="health", daemon=True)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def document_of(serving: Serving, *, queue: str) -> dict[str, object]:
    """What it is answered with."""
    return {
        "status": serving.health,
        "queue": queue,
        "worker": serving.worker,
        "running": serving.running,
        "concurrency": serving.places.number,
    }
