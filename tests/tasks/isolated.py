"""A worker's runner with the rogues, and what there is of processes and files around it."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from importlib import import_module
from pathlib import Path

import pytest

from lamplighter.core.model import Execution
from lamplighter.core.outcome import Failed, Outcome
from lamplighter.core.retry import Failure
from lamplighter.memory import MemoryWorld
from lamplighter.services.execute import Claimed
from lamplighter.services.heartbeat import Heartbeats, Stop
from lamplighter.tasks.calls import Answers, unanswered
from lamplighter.tasks.isolation import Isolation
from lamplighter.tasks.registry import TASKS, Registry, Task
from lamplighter.tasks.runner import TaskRunner
from lamplighter.tasks.source import Source
from tests.support.claims import claimed

MODULE = "tests.tasks.rogues"
SOON_S = 20.0
"""After which a test that waits fails."""


def rogue_tasks() -> Registry:
    """Those of tests/tasks/rogues.py, which no other test finds in this process's registry."""
    found = Registry()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TASKS, "_tasks", {})
        module = import_module(MODULE)
    for value in vars(module).values():
        if isinstance(value, Task):
            found.add(value)
    return found


@dataclass(kw_only=True)
class Yard:
    """Calls the rogues, each in a process of its own, and stops them."""

    tasks: Registry
    answers: Answers = unanswered
    memory_bytes: int = 2**30
    world: MemoryWorld = field(default_factory=MemoryWorld)
    said: list[str] = field(default_factory=list)
    runner: TaskRunner = field(init=False)
    heartbeats: Heartbeats = field(init=False)

    def __post_init__(self) -> None:
        self.heartbeats = Heartbeats(self.world.ports())
        self.runner = TaskRunner(
            self.tasks, self.heartbeats, self.world.clock, isolation=self.isolation
        )

    @property
    def isolation(self) -> Isolation:
        return Isolation(
            Source(module=MODULE),
            self._hear,
            answers=self.answers,
            memory_bytes=self.memory_bytes,
        )

    def _hear(self, execution: Execution, line: str) -> None:
        self.said.append(line)

    def run(self, task: str, payload: str = "null", *, crashes: int = 0) -> Outcome:
        return self.runner(self.claimed(task, payload, crashes=crashes))

    def claimed(self, task: str, payload: str = "null", *, crashes: int = 0) -> Claimed:
        held = claimed(self.world, task=task, payload=payload)
        return replace(held, execution=replace(held.execution, crashes=crashes))

    def failure(self, task: str, payload: str = "null") -> Failure:
        outcome = self.run(task, payload)
        assert isinstance(outcome, Failed), outcome
        return outcome.failure

    def stopped(self, task: str, payload: str = "null", *, why: Stop) -> tuple[Outcome, float]:
        """What becomes of it when it is stopped once it says that it is ready, and how soon."""
        held = self.claimed(task, payload)
        outcomes: list[Outcome] = []
        thread = threading.Thread(target=lambda: outcomes.append(self.runner(held)))
        thread.start()
        try:
            until(lambda: "ready" in self.said)
        finally:
            begun = time.monotonic()
            self._stop(held, why)
            thread.join(SOON_S)
        assert outcomes, f"{task} was not stopped"
        return outcomes[0], time.monotonic() - begun

    def _stop(self, held: Claimed, why: Stop) -> None:
        match why:
            case Stop.CANCELLED:
                executions = self.world.ports().executions
                executions.request_cancel(held.execution.id, now=self.world.now())
                self.world.pass_time(timedelta(seconds=10))
                self.heartbeats.beat()
            case Stop.STOPPING:
                self.runner.stop(why)
            case Stop.LOST_LEASE:
                self.world.pass_time(timedelta(seconds=25))
                self.heartbeats.check()
            case Stop.TIMEOUT:
                self.world.pass_time(timedelta(seconds=20))
                self.heartbeats.beat()
                self.world.pass_time(timedelta(seconds=20))
                self.heartbeats.beat()
                self.world.pass_time(timedelta(seconds=20))
                self.heartbeats.check()


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SOON_S
    while not holds():
        assert time.monotonic() < deadline, "waited for too long"
        time.sleep(0.01)


def children() -> set[int]:
    """The processes of this one, the dead that nobody has buried among them."""
    found: set[int] = set()
    for thread in Path("/proc/self/task").iterdir():
        # A thread may have ended since it was listed.
        with suppress(FileNotFoundError):
            found |= {int(pid) for pid in (thread / "children").read_text().split()}
    return found


def files() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def pids_in(file: Path) -> Sequence[int]:
    return [int(pid) for pid in file.read_text(encoding="utf-8").split()]


@contextmanager
def nothing_left() -> Iterator[None]:
    """Fail if more processes or files are there at the end than at the beginning."""
    processes, open_files = children(), files()
    yield
    assert children() <= processes
    assert files() == open_files
