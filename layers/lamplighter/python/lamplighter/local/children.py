"""Child processes under a guard: when this process ends, they end."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

from lamplighter.local import guard

# The guard asks, waits GRACE_S, kills, and waits as long for what was left behind.
STOP_TIMEOUT_S: Final = 3 * guard.GRACE_S


class Child:
    """A command, its output as lines, and all that it starts. Leaving the context ends them.

    If this process is killed the guard ends them, within a second plus the time of grace.
    """

    def __init__(
        self, command: Sequence[str | Path], *, environment: Mapping[str, str], cwd: Path
    ) -> None:
        self._guard = subprocess.Popen(  # noqa: S603 -- our own interpreter and commands
            [sys.executable, guard.__file__, *map(str, command)],
            env=environment,
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            # Out of reach of the terminal's Ctrl-C: the order of stopping is ours.
            start_new_session=True,
        )

    @property
    def output(self) -> IO[str]:
        """Standard output and error; ends when the last writer has."""
        if self._guard.stdout is None:
            raise RuntimeError("started without a pipe")
        return self._guard.stdout

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._guard.poll()

    def wait(self) -> int:
        return self._guard.wait()

    def stop(self) -> None:
        """End the command and its descendants; returns in bounded time, and may be repeated."""
        if self._guard.stdin:
            self._guard.stdin.close()
        try:
            self._guard.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._guard.kill()
            self._guard.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        self.output.close()


def clean_environment(**more: str) -> dict[str, str]:
    """What a child needs of ours, and nothing else.

    What the emulator is given every function sees, and a user's credentials are not for them.
    """
    kept = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "SSL_CERT_FILE")
    return {name: os.environ[name] for name in kept if name in os.environ} | more
