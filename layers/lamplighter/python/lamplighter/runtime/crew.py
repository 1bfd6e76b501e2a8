"""Threads that run messages, one each, under the heartbeats of their process."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Final, NoReturn

from lamplighter.core.errors import Unavailable
from lamplighter.core.outcome import Outcome
from lamplighter.ports import Ports, Received
from lamplighter.services.execute import Claimed, conclude, process
from lamplighter.services.heartbeat import Heartbeats
from lamplighter.tasks.runner import TaskRunner

# How often the heartbeat looks at what runs; the beats themselves are ten seconds apart.
LOOK_EVERY_S: Final = 0.5
EXIT_HUNG: Final = 70  # sysexits.h, EX_SOFTWARE


@dataclass(kw_only=True, eq=False)
class Work:
    """A message, and the thread that runs it."""

    received: Received
    is_kept: bool = True
    """Whether its message is to come back; known when its thread has ended."""
    thread: threading.Thread = field(init=False)


@dataclass(frozen=True, kw_only=True)
class Crew:
    """One for the life of a process."""

    ports: Ports
    runner: TaskRunner
    heartbeats: Heartbeats
    end_process: Callable[[int], NoReturn]
    """Ends this process at once, with what its threads are at."""

    @contextmanager
    def beating(self) -> Iterator["Future[None]"]:
        """A thread that beats until the block ends; its future is done before only if it broke.

        A beat that is under way at the end is waited for: nothing may be left running in an
        environment that freezes.
        """
        over = threading.Event()
        with ThreadPoolExecutor(1, thread_name_prefix="heartbeat") as threads:
            try:
                yield threads.submit(self._beat, over)
            finally:
                over.set()

    def _beat(self, over: threading.Event) -> None:
        while not over.wait(LOOK_EVERY_S):
            self.heartbeats.beat()

    def start(self, work: Work, do: Callable[[Work], None]) -> None:
        """Have a thread of its own `do` a message: what it raises costs its neighbours nothing."""

        def run() -> None:
            try:
                do(work)
            except Exception as error:  # noqa: BLE001 -- one message's bug must not end others
                self.ports.telemetry.broke(work.received.message.execution_id, error)

        name = work.received.message.execution_id
        # A daemon: a handler that hangs must not keep the interpreter from ending.
        work.thread = threading.Thread(target=run, name=name, daemon=True)
        work.thread.start()

    def process(self, work: Work, worker: str) -> None:
        """Take a message as far as it goes."""
        work.is_kept = not process(self.ports, work.received, self.runner, worker=worker).deleted

    def look(self, running: Sequence[Work], beating: "Future[None]") -> bool:
        """Stop what is over its time; False when only hung handlers are left of what runs.

        The beats are another thread's: one that waits for its answer must not keep a handler
        from being stopped before its lease ends. Raises what broke that thread.
        """
        if beating.done():
            beating.result()
        self.heartbeats.check()
        hung = {call.claimed.received.receipt for call in self.runner.hung()}
        return not all(work.received.receipt in hung for work in running)

    def end_hung(self) -> NoReturn:
        """Write what becomes of the hung, and end the process, which alone stops them.

        Not before their neighbours are done, and not after: until here they were beaten for,
        so that no other try can have begun beside them, and the next one waits a moment.
        """
        for call in self.runner.hung():
            self.ports.telemetry.hung(call.claimed.execution)
            if (outcome := call.hung_outcome) is not None:
                self._conclude(call.claimed, outcome)
        self.end_process(EXIT_HUNG)

    def _conclude(self, claimed: Claimed, outcome: Outcome) -> None:
        # Until the process has ended its handler goes on: its places are free with its lease.
        claimed = replace(claimed, permits=())
        try:
            conclude(self.ports, claimed, outcome)
        except Unavailable as error:
            # Then the end of its lease says what happened to it.
            self.ports.telemetry.broke(claimed.execution.id, error)


TimeLeft = Callable[[], timedelta]
"""How long this process still has."""
