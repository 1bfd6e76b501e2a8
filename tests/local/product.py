"""`lamplighter run` as a process of its own, as a person has it in a terminal."""

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from lamplighter.local.home import Home

# Some 25 s by itself; beside other tests, on a machine that others share, a multiple.
READY_WITHIN_S = 200.0
ENDS_WITHIN_S = 40.0

RUN = """
import json
import sys
from pathlib import Path
from lamplighter.local.home import Home
from lamplighter.local.run import main
port, folder, checkout, chosen = sys.argv[1:]
home = Home.of(Path(checkout) if checkout else None, Path(folder))
sys.exit(main(port=int(port), home=home, chosen=json.loads(chosen)))
"""


@dataclass(kw_only=True)
class Product:
    """A run, and what it has printed so far."""

    process: subprocess.Popen[str]
    port: int
    folder: Path
    lines: list[str] = field(default_factory=list)
    ready_after_s: float = 0.0

    @property
    def token(self) -> str:
        [token] = [line.split()[1] for line in self.lines if line.startswith("token: ")]
        return token

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def emulator_url(self) -> str:
        return Home.of(folder=self.folder).emulator_url

    def client(self, token: str | None = None) -> httpx.Client:
        return httpx.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {token or self.token}"},
            timeout=30,
            trust_env=False,
        )

    def processes_of(self, function: str) -> list[int]:
        """Of a function, `CriticalWorker`, `ApiHandler`: its folder has its name."""
        table = subprocess.run(
            ["ps", "-wweo", "pid=,args="], capture_output=True, text=True, check=True
        )
        ours = descendants(self.process.pid)
        rows = [line.split(maxsplit=1) for line in table.stdout.splitlines()]
        return [
            int(pid)
            for pid, args in rows
            if int(pid) in ours and function in args and args.endswith("/_worker.py")
        ]

    def end(self, number: signal.Signals = signal.SIGINT) -> int:
        """Ctrl-C, or another signal; returns the exit code."""
        self.process.send_signal(number)
        return self.process.wait(ENDS_WITHIN_S)


@contextmanager
def run(
    folder: Path,
    *,
    port: int | None = None,
    checkout: Path | None = None,
    chosen: Mapping[str, str] | None = None,
) -> Iterator[Product]:
    """Started, not awaited. Whatever happens, it is ended. `chosen` is context of the CDK app."""
    port = port or free_port()
    arguments = [str(port), str(folder), str(checkout or ""), json.dumps(dict(chosen or {}))]
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    product = Product(process=process, port=port, folder=folder)
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
