"""`lamplighter run` as a process of its own, as a person has it in a terminal."""

import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

READY_WITHIN_S = 90.0
ENDS_WITHIN_S = 20.0

RUN = """
import sys
from pathlib import Path
from lamplighter.local.home import Home
from lamplighter.local.run import main
checkout = Path(sys.argv[3]) if sys.argv[3:] else None
sys.exit(main(port=int(sys.argv[1]), home=Home.of(checkout, Path(sys.argv[2]))))
"""


@dataclass(kw_only=True)
class Product:
    """A run, and what it has printed so far."""

    process: subprocess.Popen[str]
    port: int
    lines: list[str] = field(default_factory=list)
    ready_after_s: float = 0.0

    @property
    def token(self) -> str:
        [token] = [line.split()[1] for line in self.lines if line.startswith("token: ")]
        return token

    def client(self, token: str | None = None) -> httpx.Client:
        return httpx.Client(
            base_url=f"http://127.0.0.1:{self.port}",
            headers={"Authorization": f"Bearer {token or self.token}"},
            timeout=30,
            trust_env=False,
        )

    def end(self, number: signal.Signals = signal.SIGINT) -> int:
        """Ctrl-C, or another signal; returns the exit code."""
        self.process.send_signal(number)
        return self.process.wait(ENDS_WITHIN_S)


@contextmanager
def run(
    folder: Path, *, port: int | None = None, checkout: Path | None = None
) -> Iterator[Product]:
    """Started, not awaited. Whatever happens, it is ended."""
    port = port or free_port()
    extra = [str(checkout)] if checkout else []
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, str(port), str(folder), *extra],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    product = Product(process=process, port=port)
    reader = threading.Thread(target=_read, args=(product,))
    reader.start()
    try:
        yield product
    finally:
        if process.poll() is None:
            product.end()
        reader.join()


def await_ready(product: Product) -> None:
    begun = time.monotonic()
    while not any(line.startswith("token: ") for line in product.lines):
        assert product.process.poll() is None, "\n".join(product.lines)
        assert time.monotonic() < begun + READY_WITHIN_S, "\n".join(product.lines)
        time.sleep(0.05)
    product.ready_after_s = time.monotonic() - begun


def descendants(pid: int) -> set[int]:
    """All that a process has started, directly or not."""
    table = subprocess.run(
        ["ps", "-wweo", "pid=,ppid="], capture_output=True, text=True, check=True
    )
    parents = [tuple(map(int, line.split())) for line in table.stdout.splitlines()]
    found = {pid}
    while more := {child for child, parent in parents if parent in found} - found:
        found |= more
    return found - {pid}


def commands(pids: set[int]) -> list[str]:
    """The command lines of those that still live; a zombie does not."""
    table = subprocess.run(
        ["ps", "-wweo", "pid=,stat=,args="], capture_output=True, text=True, check=True
    )
    rows = [line.split(maxsplit=2) for line in table.stdout.splitlines()]
    return [args for pid, state, args in rows if int(pid) in pids and not state.startswith("Z")]


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
    return port


def _read(product: Product) -> None:
    assert product.process.stdout
    with product.process.stdout as output:
        for line in output:
            product.lines.append(line.rstrip())
