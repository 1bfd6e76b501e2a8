"""What is done to a running stack: to its processes, all of them this run's own, and its queues."""

import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Final, TypeVar

from tests.local.books import Try, tries_of
from tests.local.emulated import Emulated
from tests.local.product import commands, descendants

T = TypeVar("T")

WORKERS: Final = ("DefaultWorker", "CriticalWorker", "BulkWorker")
SCHEDULER: Final = "JobSchedulerFunction"
API: Final = "ApiHandler"

# Past a worker's lease and grace, so that another takes over before it wakes.
WORKER_FROZEN_S: Final = (40.0, 50.0)
# Past a partition's lease and the next tick, so that another dispatches before it wakes.
DISPATCHER_FROZEN_S: Final = (75.0, 85.0)
EMULATOR_FROZEN_S: Final = (10.0, 40.0)
# How long a task or a dispatcher at work is waited for: a tick comes every minute.
CAUGHT_WITHIN_S: Final = 75.0


@dataclass(frozen=True, kw_only=True)
class Struck:
    """A fault that took place."""

    fault: str
    at: float
    """Seconds since the beginning."""
    told: str


@dataclass
class Faults:
    """Each strikes once when it is called, and has undone what can be undone when it returns."""

    emulated: Emulated
    book: Path
    chance: random.Random
    began: float = field(default_factory=time.monotonic)
    struck: list[Struck] = field(default_factory=list)
    over: Event = field(default_factory=Event)
    """Set: nothing stays frozen any longer."""

    def kill_worker(self) -> None:
        """Whatever it does, or does not."""
        function = self.chance.choice(WORKERS)
        if pids := self.emulated.product.processes_of(function):
            self._kill([self.chance.choice(pids)])
            self._told("worker killed", function)

    def kill_mid_task(self) -> None:
        if (caught := self._working()) is not None:
            one, worker = caught
            self._kill([worker])
            self._told("worker killed in mid-task", f"{time.monotonic() - one.begun:.1f} s into it")

    def freeze_worker(self) -> None:
        """All of its host: what it started, too."""
        if (caught := self._working()) is not None:
            _, worker = caught
            duration = self.chance.uniform(*WORKER_FROZEN_S)
            with self._frozen([worker, *descendants(worker)]):
                self.over.wait(duration)
            self._told("worker frozen in mid-task", f"for {duration:.0f} s")

    def freeze_dispatcher(self) -> None:
        """While it works; those of its kind with it, so that a new one takes over."""
        if self._dispatching() is not None:
            duration = self.chance.uniform(*DISPATCHER_FROZEN_S)
            pids = self.emulated.product.processes_of(SCHEDULER)
            with self._frozen(pids):
                self.over.wait(duration)
            self._told("dispatchers frozen at work", f"{len(pids)} for {duration:.0f} s")

    def kill_dispatcher(self) -> None:
        if (pid := self._dispatching()) is not None:
            self._kill([pid])
            self._told("dispatcher killed at work", "")

    def kill_api(self) -> None:
        pids = self.emulated.product.processes_of(API)
        self._kill(pids)
        self._told("API killed", f"{len(pids)} processes")

    def purge_lane(self) -> None:
        function = self.chance.choice(WORKERS)
        self.emulated.purge(function)
        self._told("lane purged", function)

    def purge_work(self) -> None:
        self.emulated.purge(SCHEDULER)
        self._told("partition work purged", "")

    def freeze_emulator(self) -> None:
        """Tables, queues and the API with it; what functions run goes on, and reaches nobody."""
        duration = self.chance.uniform(*EMULATOR_FROZEN_S)
        with self._frozen([_emulator(self.emulated.product.process.pid)]):
            self.over.wait(duration)
        self._told("emulator frozen", f"for {duration:.0f} s")

    def _working(self) -> tuple[Try, int] | None:
        """A try that goes on, and the worker's process that holds it."""

        def find() -> tuple[Try, int] | None:
            workers = {pid for name in WORKERS for pid in self.emulated.product.processes_of(name)}
            now = time.monotonic()
            living = [one for one in tries_of(self.book) if one.end is None and one.seen > now - 1]
            self.chance.shuffle(living)
            for one in living:
                if (worker := _ancestor_in(one.pid, workers)) is not None:
                    return one, worker
            return None

        return _caught(find, every_s=0.2)

    def _dispatching(self) -> int | None:
        """A process of the scheduler that uses its core, which an idle one does not."""
        used: dict[int, int] = {}

        def find() -> int | None:
            for pid in list(used):
                with suppress(OSError):
                    if _cpu_ticks(pid) > used[pid]:
                        return pid
            if not used:
                for pid in self.emulated.product.processes_of(SCHEDULER):
                    with suppress(OSError):
                        used[pid] = _cpu_ticks(pid)
            return None

        return _caught(find, every_s=0.002)

    @contextmanager
    def _frozen(self, pids: Sequence[int]) -> Iterator[None]:
        _signal(pids, signal.SIGSTOP)
        try:
            yield
        finally:
            _signal(pids, signal.SIGCONT)

    def _kill(self, pids: Sequence[int]) -> None:
        _signal(pids, signal.SIGKILL)

    def _told(self, fault: str, told: str) -> None:
        at = time.monotonic() - self.began
        self.struck.append(Struck(fault=fault, at=at, told=told))
        print(f"{at:6.0f} s  {fault} {told}".rstrip(), flush=True)


Strike = tuple[float, Callable[[Faults], None]]
KINDS: Final[Sequence[Callable[[Faults], None]]] = (
    Faults.kill_worker,
    Faults.kill_mid_task,
    Faults.freeze_worker,
    Faults.kill_dispatcher,
    Faults.kill_api,
    Faults.purge_lane,
    Faults.purge_work,
    Faults.freeze_emulator,
    Faults.kill_mid_task,
)
ROUND_S: Final = 180.0
"""In which each kind strikes once; the dispatchers are frozen at the beginning of it."""


def schedule(duration_s: float, chance: random.Random) -> Sequence[Strike]:
    """When, in seconds from the beginning, and what: round after round until the time is over."""
    strikes: list[Strike] = []
    begin = 0.0
    while begin < duration_s:
        length = min(ROUND_S, duration_s - begin)
        kinds = [*KINDS]
        chance.shuffle(kinds)
        apart = length / (len(kinds) + 1)
        strikes.append((begin, Faults.freeze_dispatcher))
        strikes += [
            (begin + (n + chance.uniform(0.2, 0.8)) * apart, kind)
            for n, kind in enumerate(kinds, start=1)
        ]
        begin += ROUND_S
    return strikes


def _caught(find: Callable[[], T | None], *, every_s: float) -> T | None:
    """What is looked for, as soon as it is there; None: it was not in time."""
    deadline = time.monotonic() + CAUGHT_WITHIN_S
    while (found := find()) is None and time.monotonic() < deadline:
        time.sleep(every_s)
    return found


def _signal(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):  # it ended by itself
            os.kill(pid, number)


def _emulator(run: int) -> int:
    """The emulator's own process, below its guard."""
    [pid] = [
        pid
        for pid in descendants(run)
        if any(
            line.endswith("/bin/ministack") and "guard.py" not in line for line in commands({pid})
        )
    ]
    return pid


def _ancestor_in(pid: int, wanted: set[int]) -> int | None:
    """The process itself, or what started it: an isolated call's is below its worker's."""
    while pid > 1:
        if pid in wanted:
            return pid
        try:
            pid = int(_stat(pid)[1])
        except OSError:
            return None
    return None


def _cpu_ticks(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[11]) + int(fields[12])


def _stat(pid: int) -> Sequence[str]:
    """From the state on: proc(5). Raises OSError for a process that is gone."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
