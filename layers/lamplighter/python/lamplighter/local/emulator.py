"""The AWS emulator as a child process: ministack, in an environment of its own."""

import contextlib
import logging
import os
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from logging.handlers import RotatingFileHandler
from typing import Final

from lamplighter.local.children import Child, clean_environment
from lamplighter.local.errors import CannotRun
from lamplighter.local.home import Home

START_TIMEOUT_S: Final = 30.0
LOG_MAX_BYTES: Final = 5_000_000
# Function processes are kept for as long as the run: a new one takes about a second.
KEEP_WARM_S: Final = 7 * 24 * 3600


class Emulator:
    """Where it answers, and whether it still does."""

    def __init__(self, child: Child, port: int) -> None:
        self._child = child
        self.port = port
        self.url = f"http://127.0.0.1:{port}"

    @property
    def ended(self) -> bool:
        return self._child.exit_code is not None

    def wait_until_healthy(self) -> None:
        """Raises CannotRun when it ends or says nothing for too long."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._is_healthy():
            if self.ended:
                raise CannotRun(f"the emulator ended with code {self._child.exit_code}")
            if time.monotonic() > deadline:
                raise CannotRun(f"the emulator did not answer within {START_TIMEOUT_S:.0f} s")
            time.sleep(0.05)

    def _is_healthy(self) -> bool:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(f"{self.url}/_ministack/health", timeout=1) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


@contextlib.contextmanager
def running(home: Home, heard: Callable[[str], None]) -> Iterator[Emulator]:
    """A fresh emulator: what an earlier run left in its tables and queues is gone.

    Each line that it or a function writes is kept in the folder's log and given to `heard`,
    in a thread of its own.
    """
    if not home.emulator.is_file():
        raise CannotRun(f"{home.emulator} is missing: make run installs it")
    port = _free_port()
    with Child([home.emulator], environment=_environment(port), cwd=home.folder) as child:
        reader = threading.Thread(
            target=_listen, args=(child, home, heard), name="emulator's log", daemon=True
        )
        reader.start()
        try:
            yield Emulator(child, port)
        finally:
            child.stop()
            reader.join()


def _environment(port: int) -> dict[str, str]:
    """What functions see too: the emulator gives them its own environment and theirs."""
    proxies = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")
    return clean_environment(
        BIND_HOST="127.0.0.1",
        GATEWAY_PORT=str(port),
        # It would listen on ports of its own for services that nobody here uses.
        SFTP_ENABLED="0",
        IOT_MTLS_ENABLED="0",
        LAMBDA_WARM_TTL_SECONDS=str(KEEP_WARM_S),
        TZ="UTC",  # as in Lambda
        PYTHONUNBUFFERED="1",
        # What a function has unpacked it compiles anew in each process, and never finds again.
        PYTHONDONTWRITEBYTECODE="1",
        NO_PROXY="127.0.0.1,localhost",
        **{name: os.environ[name] for name in proxies if name in os.environ},
    )


def _listen(child: Child, home: Home, heard: Callable[[str], None]) -> None:
    log = RotatingFileHandler(home.folder / "emulator.log", maxBytes=LOG_MAX_BYTES, backupCount=1)
    with contextlib.closing(log):
        for line in child.output:
            log.handle(logging.makeLogRecord({"msg": line.rstrip("\n")}))
            # Nobody may read what we print any more; the emulator's pipe is drained all the same.
            with contextlib.suppress(OSError):
                heard(line)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
    return port
