"""Nothing outlives a run: what the guard promises, with real processes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lamplighter.local.children import Child, clean_environment

PATIENCE_S = 10.0
ON_LINUX = sys.platform == "linux"

# A worker, and a command of its own group that it started, as a `shell` task does.
FAMILY = """
import os, signal, subprocess, sys, time
{before}
shell = subprocess.Popen(["sleep", "600"], start_new_session=True)
print(os.getpid(), shell.pid, flush=True)
time.sleep(600)
"""
DEAF = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"


def family(*, before: str = "") -> list[str | Path]:
    return [sys.executable, "-c", FAMILY.format(before=before)]


def started(child: Child) -> list[int]:
    return [int(pid) for pid in child.output.readline().split()]


def test_leaving_the_context_ends_the_command_and_what_it_started(tmp_path: Path) -> None:
    with Child(family(), environment=clean_environment(), cwd=tmp_path) as child:
        pids = started(child)
        assert all(map(lives, pids))

    assert not any(map(lives, pids))


def test_a_command_that_ignores_the_request_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Child(family(before=DEAF), environment=clean_environment(), cwd=tmp_path) as child:
        pids = started(child)

    assert not any(map(lives, pids))


def test_a_command_started_by_a_process_that_is_killed_ends_too(tmp_path: Path) -> None:
    """`kill -9` of `lamplighter run` runs no clean-up of its own."""
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER, *map(str, family())],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert starter.stdout
    pids = [int(pid) for pid in starter.stdout.readline().split()]

    starter.kill()
    starter.wait()
    starter.stdout.close()

    eventually(lambda: not any(map(lives, pids)))


def test_what_a_crashed_worker_had_started_ends_with_it(tmp_path: Path) -> None:
    """In Lambda a sandbox ends with its process; the emulator knows nothing of that."""
    emulator = f"import subprocess, time; subprocess.Popen({family()!r}); time.sleep(600)"
    command = [sys.executable, "-c", emulator]
    with Child(command, environment=clean_environment(), cwd=tmp_path) as child:
        worker, shell = started(child)

        os.kill(worker, signal.SIGKILL)

        eventually(lambda: not lives(shell))
        assert child.exit_code is None


def test_what_a_command_unpacked_is_removed(tmp_path: Path) -> None:
    unpack = "import tempfile; print(tempfile.mkdtemp(), flush=True); import time; time.sleep(600)"
    with Child([sys.executable, "-c", unpack], environment=clean_environment(), cwd=tmp_path) as it:
        folder = Path(it.output.readline().strip())
        assert folder.is_dir()

    assert not folder.exists()


def test_the_exit_code_is_the_command_s(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit(7)"]
    with Child(command, environment=clean_environment(), cwd=tmp_path) as child:
        assert child.wait() == 7


def test_a_child_sees_none_of_our_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a real one")
    command = [sys.executable, "-c", "import os; print(sorted(os.environ))"]

    with Child(command, environment=clean_environment(TZ="UTC"), cwd=tmp_path) as child:
        names = child.output.readline()

    assert "'TZ'" in names
    assert "AWS" not in names


STARTER = """
import sys
from pathlib import Path
from lamplighter.local.children import Child, clean_environment
child = Child(sys.argv[1:], environment=clean_environment(), cwd=Path.cwd())
print(child.output.readline(), flush=True)
child.wait()
"""


def lives(pid: int) -> bool:
    """A zombie that its new parent has not collected yet does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not (
        ON_LINUX and stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z"
    )


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S} s"
        time.sleep(0.02)
