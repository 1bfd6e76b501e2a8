"""The shell task: real commands, killed whole, told apart from the worker they run in."""

import os
import signal
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pydantic import ValidationError
from pydantic_core import to_json

from lamplighter import Context, Permanent, Retryable, Stopped
from lamplighter.core.buckets import ExecutionId, JobId
from lamplighter.core.limits import ERROR_MESSAGE_MAX_CHARS, RESULT_MAX_BYTES
from lamplighter.core.model import Owner
from lamplighter.services.heartbeat import Stop
from lamplighter.tasks.context import StopSignal
from lamplighter.tasks.registry import Registry
from lamplighter.tasks.shell import (
    OUTPUT_MAX_BYTES,
    NotAllowedHere,
    ShellPayload,
    ShellResult,
    enable,
    run,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
PASSED_ON = {"PATH": os.environ["PATH"]}
LAMBDA = {"AWS_LAMBDA_FUNCTION_NAME": "worker"}


def context(owner: str = "acme", signal: StopSignal | None = None) -> Context:
    return Context(
        execution_id=ExecutionId("ex_1"),
        job_id=JobId("one_1"),
        owner=Owner(owner),
        attempt=1,
        scheduled_for=NOON,
        run_at=NOON,
        deadline=NOON,
        idempotency_key="ex_1",
        signal=signal or StopSignal(),
    )


def sh(command: str, **more: object) -> ShellResult:
    payload = ShellPayload.model_validate({"command": command, **more})
    return run(payload, context(), PASSED_ON)


def stopped_after(seconds: float, why: Stop = Stop.TIMEOUT) -> Context:
    stop = StopSignal()
    threading.Timer(seconds, stop.stop, [why]).start()
    return context(signal=stop)


def is_alive(pid: int) -> bool:
    """Whether the process does anything still; one that nobody has buried does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def ends_within(pid: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not is_alive(pid)


def test_a_command_leaves_its_code_and_its_output() -> None:
    assert sh("echo out; echo err >&2") == ShellResult(
        exit_code=0, output="out\nerr\n", truncated=False
    )


def test_a_command_reads_its_input() -> None:
    assert sh("wc -c", stdin="x" * 60_000).output.strip() == "60000"


def test_a_command_without_input_finds_its_end() -> None:
    assert sh("cat").output == ""


def test_a_command_runs_in_the_shell_that_the_crontab_names() -> None:
    assert sh("echo ${BASH_VERSION:+bash}", shell="/bin/bash").output == "bash\n"


def test_a_shell_that_is_not_there_is_permanent() -> None:
    with pytest.raises(Permanent, match="'/no/such/shell' cannot be started"):
        sh("true", shell="/no/such/shell")


def test_a_failed_command_tells_its_code_and_the_end_of_its_output() -> None:
    with pytest.raises(Retryable) as failed:
        sh("seq 1000; echo the last line; exit 3")

    told = str(failed.value)
    assert told.startswith("exit code 3; its output ends:")
    assert told.endswith("the last line")
    assert len(told) <= ERROR_MESSAGE_MAX_CHARS


def test_a_failed_command_that_said_nothing_says_so() -> None:
    with pytest.raises(Retryable, match=r"^exit code 1, without output$"):
        sh("false")


def test_a_command_that_a_signal_ended_says_which() -> None:
    with pytest.raises(Retryable, match=r"^ended by signal 9"):
        sh("kill -9 $$")


def test_of_a_long_output_the_end_is_kept() -> None:
    result = sh("seq 100000; echo end")

    assert result.truncated
    assert result.output.endswith("100000\nend\n")
    assert len(result.output) == OUTPUT_MAX_BYTES


@pytest.mark.parametrize("junk", [r"\000", r"\377", r"\033", r"\"", r"\\\\", r"\n"])
def test_whatever_a_command_says_its_result_fits(junk: str) -> None:
    result = sh(f"for i in $(seq 6000); do printf '{junk}'; done")

    assert len(to_json(result)) <= RESULT_MAX_BYTES


def test_a_command_sees_nothing_of_the_workers_environment_but_what_is_harmless() -> None:
    worker = {
        "PATH": os.environ["PATH"],
        "HOME": "/tmp",
        "LANG": "C.UTF-8",
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SESSION_TOKEN": "b",
        "AWS_LAMBDA_RUNTIME_API": "c",
        "LAMBDA_TASK_ROOT": "d",
        "_X_AMZN_TRACE_ID": "e",
        "_HANDLER": "f",
        "LAMPLIGHTER_EXECUTIONS_TABLE": "g",
        "POWERTOOLS_SERVICE_NAME": "h",
        "PYTHONPATH": "i",
        "DATABASE_PASSWORD": "j",
        "LD_PRELOAD": "k",
    }

    result = in_task("env", {**worker, "AWS_ENDPOINT_URL": "http://127.0.0.1:4566"})

    seen = dict(line.split("=", 1) for line in result.output.splitlines())
    # What the shell itself sets.
    assert seen.keys() - {"PWD", "SHLVL", "_", "OLDPWD"} == {"PATH", "HOME", "LANG", "MAILTO"}
    assert seen["MAILTO"] == "me"


def in_task(command: str, environ: Mapping[str, str]) -> ShellResult:
    tasks = Registry()
    enable(tasks, owners=["acme"], environ=environ)
    task = tasks.newest("shell")
    assert task is not None
    payload = {"command": command, "environment": {"MAILTO": "me"}}
    result = task(ShellPayload.model_validate(payload), context())
    assert isinstance(result, ShellResult)
    return result


def test_what_the_crontab_says_goes_before_what_is_passed_on() -> None:
    result = sh("echo $PATH", environment={"PATH": "/usr/bin:/bin:/extra"})

    assert result.output == "/usr/bin:/bin:/extra\n"


def test_a_command_starts_at_home(tmp_path: Path) -> None:
    assert sh("pwd", environment={"HOME": str(tmp_path)}).output == f"{tmp_path}\n"


def test_the_whole_group_is_killed_at_the_time_out(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    command = f"""
        trap '' TERM
        sh -c 'trap "" TERM; while :; do sleep 1; done' & echo $! >> {pids}
        (sleep 300 & echo $! >> {pids}; wait) & echo $! >> {pids}
        echo $$ >> {pids}
        echo started
        while :; do sleep 1; done
    """
    begun = time.monotonic()

    with pytest.raises(Stopped, match="ended by signal 9; its output ends: started"):
        run(ShellPayload(command=command), stopped_after(0.5), PASSED_ON)

    # Asked first, killed two seconds later: within what the worker waits for.
    assert 2 < time.monotonic() - begun < 4.5
    started = [int(pid) for pid in pids.read_text().split()]
    assert len(started) == 4
    assert all(ends_within(pid, 2) for pid in started)


def test_a_command_may_tidy_up_when_it_is_stopped(tmp_path: Path) -> None:
    begun = time.monotonic()

    with pytest.raises(Stopped, match="tidied"):
        run(
            ShellPayload(command="trap 'echo tidied; exit 0' TERM; sleep 60 & wait"),
            stopped_after(0.3, Stop.CANCELLED),
            PASSED_ON,
        )

    assert time.monotonic() - begun < 2


def test_what_a_command_leaves_behind_is_killed_at_its_end(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    begun = time.monotonic()

    result = sh(f"sleep 300 & echo $! > {pid_file}; echo done")

    assert result.output == "done\n"
    assert time.monotonic() - begun < 5
    assert ends_within(int(pid_file.read_text()), 2)


def test_what_left_the_group_does_not_hold_the_worker(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    begun = time.monotonic()

    result = sh(f"setsid sh -c 'echo $$ > {pid_file}; exec sleep 30' & sleep 0.3; echo done")

    assert result.output == "done\n"
    assert time.monotonic() - begun < 5
    with suppress(ProcessLookupError):
        os.kill(int(pid_file.read_text()), signal.SIGKILL)


def test_a_command_that_closes_its_output_is_waited_for() -> None:
    begun = time.monotonic()

    assert sh("echo said; exec >&- 2>&-; sleep 0.5").output == "said\n"

    assert 0.5 <= time.monotonic() - begun < 3


def test_a_short_command_ends_at_once() -> None:
    begun = time.monotonic()

    for _ in range(5):
        sh("true")

    assert time.monotonic() - begun < 1


@pytest.mark.parametrize(
    "payload",
    [
        {"command": ""},
        {"command": "a\0b"},
        {"command": "true", "environment": {"A=B": "c"}},
        {"command": "true", "environment": {"": "c"}},
        {"command": "true", "cmd": "typo"},
    ],
)
def test_what_no_shell_could_run_is_refused(payload: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        ShellPayload.model_validate(payload)


def test_it_is_switched_off_unless_owners_are_named() -> None:
    tasks = Registry()

    enable(tasks, owners=[], environ={})

    assert tasks.names == []


def test_only_the_named_owners_may_use_it() -> None:
    tasks = Registry()
    enable(tasks, owners=["acme"], environ=PASSED_ON)
    task = tasks.newest("shell")
    assert task is not None

    with pytest.raises(Permanent, match="'umbrella' may not run shell commands"):
        task(ShellPayload(command="true"), context(owner="umbrella"))


@pytest.mark.parametrize(
    "environ",
    [
        LAMBDA,
        LAMBDA | {"AWS_ENDPOINT_URL": ""},
        LAMBDA | {"AWS_ENDPOINT_URL": "https://sqs.eu-central-1.amazonaws.com"},
        LAMBDA | {"AWS_ENDPOINT_URL": "http://127.0.0.1.example.com"},
        LAMBDA | {"AWS_ENDPOINT_URL": "http://10.0.0.1:4566"},
        LAMBDA | {"AWS_ENDPOINT_URL": "http://me@example.com:80"},
    ],
    ids=["no endpoint", "empty", "of AWS", "looks like loopback", "private", "user"],
)
def test_it_is_refused_in_a_deployed_lambda(environ: Mapping[str, str]) -> None:
    tasks = Registry()

    with pytest.raises(NotAllowedHere):
        enable(tasks, owners=["acme"], environ=environ)

    assert tasks.names == []


@pytest.mark.parametrize(
    "environ",
    [
        {},
        LAMBDA | {"AWS_ENDPOINT_URL": "http://127.0.0.1:4566"},
        LAMBDA | {"AWS_ENDPOINT_URL": "http://localhost:4566"},
        LAMBDA | {"AWS_ENDPOINT_URL": "http://[::1]:4566"},
    ],
    ids=["container", "IPv4", "localhost", "IPv6"],
)
def test_it_is_there_on_a_machine_of_ones_own(environ: Mapping[str, str]) -> None:
    tasks = Registry()

    enable(tasks, owners=["acme"], environ=environ)

    assert tasks.names == ["shell"]
