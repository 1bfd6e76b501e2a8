"""Run a command so that nothing of it outlives whoever started it.

`python guard.py COMMAND…`, with a pipe as standard input: the guard ends the command and all
its descendants when the pipe closes, which it does however the starter dies, `kill -9`
included. Nothing but the standard library is imported, so that it starts at once.
"""

import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType

LOOK_EVERY_S = 0.2
# Between asking to stop and killing; the emulator takes about a fifth of a second.
GRACE_S = 5.0
# prctl(2)
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
ON_LINUX = sys.platform == "linux"
# Every function's process unpacks its layers anew: eight times faster in memory than on a disk.
MEMORY = Path("/dev/shm")  # noqa: S108 -- what is made there has an unguessable name
MEMORY_NEEDED_BYTES = 2 * 1024**3


class Stopped(Exception):
    """Somebody asked the guard itself to stop."""


def main(command: Sequence[str]) -> int:
    """Returns the command's exit code, negative if a signal ended it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever holds the pipe decides
    signal.signal(signal.SIGTERM, _stop)
    if ON_LINUX:
        _prctl(PR_SET_CHILD_SUBREAPER, 1)
    with tempfile.TemporaryDirectory(prefix="lamplighter-", dir=_fast_folder()) as scratch:
        child = subprocess.Popen(  # noqa: S603 -- the command is the starter's own
            command,
            env={**os.environ, "TMPDIR": scratch},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=_die_with_the_guard if ON_LINUX else None,  # noqa: PLW1509 -- no threads
        )
        try:
            _watch(child)
        except Stopped:
            pass
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            _end(child)
    return child.returncode


def _watch(child: subprocess.Popen[bytes]) -> None:
    """Return when the child has ended or the pipe is closed."""
    while child.poll() is None:
        readable, _, _ = select.select([sys.stdin], [], [], LOOK_EVERY_S)
        if readable and not os.read(sys.stdin.fileno(), 1):
            return
        # In Lambda a sandbox ends with its process, whatever that had started.
        _kill_orphans(child)


def _end(child: subprocess.Popen[bytes]) -> None:
    _signal_group(child, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        child.wait(GRACE_S)
    _signal_group(child, signal.SIGKILL)
    child.wait()
    deadline = time.monotonic() + GRACE_S
    while _kill_orphans(child) and time.monotonic() < deadline:
        time.sleep(0.01)


def _kill_orphans(child: subprocess.Popen[bytes]) -> bool:
    """Kill descendants whose parent has died; they are the guard's children now. False: none."""
    orphans = [pid for pid in _children() if pid != child.pid]
    for pid in orphans:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    return bool(orphans)


def _children() -> Iterator[int]:
    """Only Linux gives orphans to the guard; elsewhere the process group has to do."""
    of_this_thread = Path("/proc/thread-self/children")
    if of_this_thread.exists():
        yield from map(int, of_this_thread.read_text().split())


def _signal_group(child: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """The child leads its group, and the group may outlive it."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)


def _fast_folder() -> str | None:
    with suppress(OSError):
        if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > MEMORY_NEEDED_BYTES:
            return str(MEMORY)
    return None


def _die_with_the_guard() -> None:
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), f"prctl({option})")


def _stop(_signal: int, _frame: FrameType | None) -> None:
    raise Stopped


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
