"""How much a worker has, and who its processes are, as the guard of a call finds it out."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lamplighter.tasks import guard, memory

MIB = 2**20


@pytest.fixture
def limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    paths = tmp_path / "memory.max", tmp_path / "memory.limit_in_bytes"
    monkeypatch.setattr(memory, "_LIMITS", paths)
    return paths


def test_an_isolated_call_has_half_of_the_function_s_memory(limits: tuple[Path, Path]) -> None:
    environ = {"AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "512"}

    assert memory.isolated_bytes(environ) == 256 * MIB


def test_a_container_s_limit_counts_and_its_absence_does_not(limits: tuple[Path, Path]) -> None:
    newer, older = limits
    machine = memory.worker_bytes({})

    newer.write_text("max\n")
    assert memory.worker_bytes({}) == machine

    newer.write_text(f"{300 * MIB}\n")
    older.write_text(f"{200 * MIB}\n")
    assert memory.worker_bytes({}) == 200 * MIB
    assert memory.worker_bytes({"AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "128"}) == 128 * MIB


def test_descendants_are_found_with_the_kernel_s_lists_and_without() -> None:
    program = "import subprocess, sys; subprocess.run(['sleep', '30'])"
    child = subprocess.Popen([sys.executable, "-c", program])
    try:
        while not guard._children(child.pid):
            assert child.poll() is None
        (sleeper,) = guard._children(child.pid)

        assert guard._by_parent(child.pid) == [sleeper]
        assert child.pid in guard._by_parent(os.getpid())
        assert {child.pid, sleeper} <= {*guard._descendants(os.getpid())}
        assert guard._held_bytes(child.pid) > MIB
    finally:
        os.kill(sleeper, 9)
        child.wait()

    assert guard._children(child.pid) == []
    assert guard._held_bytes(child.pid) == 0
