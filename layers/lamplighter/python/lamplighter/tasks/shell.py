"""The `shell` task: a line of a crontab, run as cron would, on a machine of the user's own.

It is there only when it is switched on, only for the owners that the switch names, and never
in a deployed Lambda, whose credentials are those of the whole scheduler.
"""

import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import IO, Annotated, Final
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field

from lamplighter.core.errors import LamplighterError, Permanent, Retryable
from lamplighter.core.limits import ERROR_MESSAGE_MAX_CHARS
from lamplighter.tasks.context import Context, Stopped
from lamplighter.tasks.registry import Registry

NAME: Final = "shell"
# The worst of it takes three bytes each in JSON: a result holds it.
OUTPUT_MAX_BYTES: Final = 4096
_TOLD_CHARS: Final = ERROR_MESSAGE_MAX_CHARS - 100
_LOOK_EVERY_S: Final = 0.2
# Between asking the group to stop and killing it; well within what the worker waits for.
_GRACE_S: Final = 2.0
# All that a command sees of the worker's environment. What is not named is not passed on, so
# that no credential of a new kind slips through.
_PASSED_ON: Final = ("PATH", "HOME", "LANG", "LC_ALL", "LOGNAME", "USER", "TZ")
_CHUNK_BYTES: Final = 65_536

_Text = Annotated[str, Field(pattern=r"^[^\x00]*$")]


class NotAllowedHere(LamplighterError):
    """Something is switched on that must not be in a deployed Lambda."""


class ShellPayload(BaseModel):
    """A command line for a shell, as a crontab gives it."""

    model_config = ConfigDict(extra="forbid")

    command: Annotated[_Text, Field(min_length=1)]
    stdin: _Text = ""
    """What follows the first `%` of a crontab's line."""
    environment: dict[Annotated[_Text, Field(pattern=r"^[^=\x00]+$")], _Text] = {}
    """Added to the little that is passed on; the command line sees nothing else."""
    shell: _Text = "/bin/sh"


@dataclass(frozen=True, kw_only=True)
class ShellResult:
    """What a command that ended with code 0 leaves."""

    exit_code: int
    output: str
    """The end of its standard output and error, as they came."""
    truncated: bool
    """Whether there was more before that."""


def enable(tasks: Registry, *, owners: Collection[str], environ: Mapping[str, str]) -> None:
    """Register the task for these owners; with none of them it stays switched off.

    Raises NotAllowedHere in a deployed Lambda.
    """
    if not owners:
        return
    if not is_our_own_machine(environ):
        raise NotAllowedHere(
            "LAMPLIGHTER_SHELL_OWNERS is set in a deployed Lambda, where no shell task may run"
        )
    passed_on = {name: environ[name] for name in _PASSED_ON if name in environ}

    @tasks.task(NAME, version=1)
    def shell(payload: ShellPayload, context: Context) -> ShellResult:
        if context.owner not in owners:
            raise Permanent(f"owner {context.owner!r} may not run shell commands here")
        return run(payload, context, passed_on)


def is_our_own_machine(environ: Mapping[str, str]) -> bool:
    """A container or a laptop; and Lambda only where AWS is an emulator on this machine."""
    if "AWS_LAMBDA_FUNCTION_NAME" not in environ:
        return True
    host = urlsplit(environ.get("AWS_ENDPOINT_URL", "")).hostname or ""
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host == "localhost"


def run(payload: ShellPayload, context: Context, passed_on: Mapping[str, str]) -> ShellResult:
    """Run the command to its end in a session of its own, and let nothing of it live on.

    Whatever is left in its process group is killed: at its end, at the time-out, when it is
    cancelled. Raises Retryable with the code and the end of the output when that is not 0,
    Permanent when the shell cannot be started, Stopped when it had to be stopped.
    """
    environment = {**passed_on, **payload.environment}
    with _input(payload.stdin) as stdin, _started(payload, environment, stdin) as process:
        output = _Output(process)
        try:
            output.follow(until=lambda: context.stopped)
            if must_stop := process.poll() is None:
                _stop(process, output)
        finally:
            _signal_group(process, signal.SIGKILL)
            process.wait()
        output.drain()
    code, told = process.returncode, _told(process.returncode, output.text)
    if must_stop:
        raise Stopped(told)
    if code != 0:
        raise Retryable(told)
    return ShellResult(exit_code=code, output=output.text, truncated=output.is_truncated)


class _Output:
    """The end of what a process says, read while it runs: it never waits for a reader."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        if process.stdout is None:
            raise ValueError("started without a pipe")
        self._process = process
        self._pipe = process.stdout.fileno()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._pipe, selectors.EVENT_READ)
        self._kept = b""
        self._bytes = 0
        self._is_open = True

    def follow(self, *, until: Callable[[], bool]) -> None:
        """Read until the process has ended, or this is true."""
        while self._process.poll() is None and not until():
            if self._is_open:
                self._read(_LOOK_EVERY_S)
            else:
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(_LOOK_EVERY_S)

    def drain(self) -> None:
        """Read what is there. Not to the end of the pipe: what left its group may hold it."""
        while self._is_open and self._read(0):
            pass
        self._selector.close()

    def _read(self, timeout_s: float) -> bool:
        if not self._selector.select(timeout_s):
            return False
        chunk = os.read(self._pipe, _CHUNK_BYTES)
        self._is_open = bool(chunk)
        self._bytes += len(chunk)
        self._kept = (self._kept + chunk)[-OUTPUT_MAX_BYTES:]
        return True

    @property
    def is_truncated(self) -> bool:
        return self._bytes > len(self._kept)

    @property
    def text(self) -> str:
        """What is no text, or would need more room in JSON, is replaced by U+FFFD."""
        text = self._kept.decode(errors="replace")
        return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)


def _input(text: str) -> IO[bytes]:
    file = tempfile.TemporaryFile()  # noqa: SIM115 -- the caller's `with` closes it
    file.write(text.encode())
    file.seek(0)
    return file


def _started(
    payload: ShellPayload, environment: Mapping[str, str], stdin: IO[bytes]
) -> "subprocess.Popen[bytes]":
    home = Path(environment.get("HOME", "/"))
    try:
        return subprocess.Popen(  # noqa: S603 -- running what its owner says is this task's purpose
            [payload.shell, "-c", payload.command],
            env=environment,
            cwd=home if home.is_dir() else "/",
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
        raise Permanent(f"shell {payload.shell!r} cannot be started: {error.strerror}") from error


def _stop(process: "subprocess.Popen[bytes]", output: _Output) -> None:
    given_up_at = time.monotonic() + _GRACE_S
    _signal_group(process, signal.SIGTERM)
    output.follow(until=lambda: time.monotonic() >= given_up_at)


def _signal_group(process: "subprocess.Popen[bytes]", number: signal.Signals) -> None:
    # The group may be gone with its leader, or hold nothing but its corpse.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _told(code: int, output: str) -> str:
    how = f"exit code {code}" if code >= 0 else f"ended by signal {-code}"
    end = output.strip()[-_TOLD_CHARS:]
    return f"{how}; its output ends: {end}" if end else f"{how}, without output"
