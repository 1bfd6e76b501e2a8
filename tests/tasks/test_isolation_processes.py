"""What an isolated call leaves behind: nothing, whoever of its processes dies first."""

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import lamplighter
from lamplighter.core.outcome import Failed, Succeeded
from lamplighter.services.heartbeat import Stop
from lamplighter.tasks import isolation
from tests.tasks.isolated import Yard, is_alive, nothing_left, pids_in, until

ROOT = Path(__file__).parents[2]
CALLS = 20

PROGRAM = """
import json, sys
from tests.tasks.isolated import Yard, rogue_tasks

if __name__ == "__main__":
    task, payload = sys.argv[1:]
    print(Yard(tasks=rogue_tasks()).run(task, payload), flush=True)
"""
WITHOUT_SEMAPHORES = """
import _multiprocessing

class SemLock:
    SEM_VALUE_MAX = 1

    def __new__(cls, *args):
        raise OSError(38, "Function not implemented")

_multiprocessing.SemLock = SemLock
"""


@pytest.mark.slow
def test_twenty_calls_leave_no_process_and_no_file(yard: Yard) -> None:
    tasks = ["double", "exit", "die", "garble", "where"]
    payloads = ["7", "0", f"{signal.SIGKILL:d}", '"noise"', "null"]
    held = [
        yard.claimed(tasks[n % len(tasks)], payloads[n % len(tasks)], crashes=1)
        for n in range(CALLS)
    ]
    # The first one loads what stays open.
    yard.run("where", crashes=1)

    with nothing_left(), ThreadPoolExecutor(4) as threads:
        outcomes = [*threads.map(yard.runner, held)]

    assert sum(isinstance(outcome, Succeeded) for outcome in outcomes) == 2 * CALLS // len(tasks)


def test_what_it_started_ends_with_it(yard: Yard, tmp_path: Path) -> None:
    """In its group, in a session of its own, an orphan that blocks its signals, and a thread."""
    with nothing_left():
        outcome = yard.run("breed", json.dumps(str(tmp_path / "pids")))

    assert outcome == Succeeded(version=1, result='"bred"')
    pids = pids_in(tmp_path / "pids")
    assert len(set(pids)) == 5
    assert [pid for pid in pids if is_alive(pid)] == []


def test_what_it_started_ends_with_its_time_out(yard: Yard, tmp_path: Path) -> None:
    with nothing_left():
        yard.stopped("breed_and_spin", json.dumps(str(tmp_path / "pids")), why=Stop.TIMEOUT)

    assert [pid for pid in pids_in(tmp_path / "pids") if is_alive(pid)] == []


def test_a_guard_that_is_stopped_is_killed_with_its_charge(yard: Yard) -> None:
    with nothing_left():
        outcome, took_s = yard.stopped("stop_the_guard", f"{signal.SIGSTOP:d}", why=Stop.TIMEOUT)

    assert isinstance(outcome, Failed)
    assert outcome.failure.type == "TimedOut"
    assert took_s < 5


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_when_the_worker_dies_everything_of_the_call_dies(
    tmp_path: Path, number: signal.Signals
) -> None:
    """No handler works on beside the take-over of its own execution."""
    file = tmp_path / "pids"
    worker = started("breed_and_spin", json.dumps(str(file)))
    try:
        until(lambda: file.exists() and len(pids_in(file)) == 5)
        pids = pids_in(file)
        assert all(map(is_alive, pids))
    finally:
        worker.send_signal(number)
        worker.communicate()

    try:
        until(lambda: not any(map(is_alive, pids)))
    finally:
        for pid in filter(is_alive, pids):
            os.kill(pid, signal.SIGKILL)


def test_where_there_are_no_semaphores_it_works_as_well(tmp_path: Path) -> None:
    """Lambda has no /dev/shm: multiprocessing's locks, queues and pools fail there."""
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_SEMAPHORES, encoding="utf-8")
    paths = {"PYTHONPATH": str(tmp_path)}

    locks = finished(started("semaphore", "null", **paths))
    doubles = finished(started("tell", "1", **paths))

    assert "Function not implemented" in locks
    assert doubles.startswith("Succeeded(")


def test_the_path_of_the_worker_is_all_that_it_needs(tmp_path: Path) -> None:
    """Neither `site` nor PYTHONPATH nor the folder: Lambda's bootstrap sets its path itself."""
    program = f"import sys\nsys.path[:] = {[path for path in sys.path if path]!r}\n"
    program += f"sys.path[:0] = {[str(ROOT), *package_path()]!r}\n" + PROGRAM

    worker = subprocess.Popen(
        [sys.executable, "-S", "-c", program, "tell", "1"],
        cwd=tmp_path,
        env={"PATH": os.defpath},
        stdout=subprocess.PIPE,
        text=True,
    )

    assert finished(worker).startswith("Succeeded(")


def test_where_no_bytecode_lies_beside_the_code_it_is_kept_elsewhere(
    yard: Yard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A layer has none, and cannot be written to: each call would compile all it imports."""
    monkeypatch.setattr(isolation, "cache_from_source", lambda path: str(tmp_path / "none"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    fresh = Yard(tasks=yard.tasks)

    assert fresh.run("double", "2", crashes=1) == Succeeded(version=1, result="4")

    (folder,) = tmp_path.iterdir()
    assert [*folder.rglob("child.*.pyc")]


def started(task: str, payload: str, **environment: str) -> "subprocess.Popen[str]":
    path = [environment.pop("PYTHONPATH", ""), str(ROOT), *package_path()]
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, task, payload],
        env={**os.environ, **environment, "PYTHONPATH": os.pathsep.join(filter(None, path))},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )


def finished(worker: "subprocess.Popen[str]") -> str:
    output, _ = worker.communicate(timeout=60)
    assert worker.returncode == 0
    return output


def package_path() -> list[str]:
    return [str(Path(str(lamplighter.__file__)).parents[1])]
