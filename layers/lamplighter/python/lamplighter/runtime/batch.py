"""A batch of messages, each in a thread of its own, under one heartbeat.

Not Powertools' BatchProcessor: it works on one message after the other or on coroutines, and
leaves every message to the end of the batch, where one slow job would hold nine finished ones.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Final, NoReturn

from lamplighter.core.errors import Unavailable
from lamplighter.core.limits import MAX_TIMEOUT
from lamplighter.core.outcome import Outcome
from lamplighter.ports import Ports, Received
from lamplighter.services import clock
from lamplighter.services.execute import Claimed, conclude, process, shrink
from lamplighter.services.heartbeat import Heartbeats
from lamplighter.tasks.runner import TaskRunner

# How often the heartbeat looks at what runs; the beats themselves are ten seconds apart.
LOOK_EVERY_S: Final = 0.5
# To write an outcome in, trying again while a service does not answer, and to notice that a
# handler hangs.
MARGIN: Final = timedelta(seconds=15)
# How long a job may run is not known before it is claimed.
NEEDED: Final = MAX_TIMEOUT + MARGIN
EXIT_HUNG: Final = 70  # sysexits.h, EX_SOFTWARE

TimeLeft = Callable[[], timedelta]
"""How long this process still has."""


@dataclass(kw_only=True)
class _Work:
    received: Received
    is_kept: bool = True
    thread: threading.Thread = field(init=False)


@dataclass(frozen=True, kw_only=True)
class BatchRunner:
    """Runs batches one after the other; one for the life of a process."""

    ports: Ports
    runner: TaskRunner
    heartbeats: Heartbeats
    end_process: Callable[[int], NoReturn]
    """Ends this process at once, with what its threads are at."""

    def run(self, batch: Sequence[Received], *, worker: str, time_left: TimeLeft) -> set[str]:
        """Take every message as far as it goes; returns the receipts of those to be kept.

        What is finished is deleted at once, and what is kept is hidden for as long as it has
        to be: the caller only has to say which is which. A message that fails costs its
        neighbours nothing. When a handler does not stop in the end, its neighbours are waited
        for, its outcome is written, and the process ends: this does not return.
        Nothing is begun by a host whose clock is off: all of them are kept, for another host.
        """
        self._shrink(batch)
        if clock.refuses(self.ports, messages=len(batch)):
            return {received.receipt for received in batch}
        works = [_Work(received=received) for received in batch]
        with self._beating() as beating:
            try:
                for work in works:
                    self._start(work, worker, time_left)
                all_done = self._attend(works, beating)
            except BaseException:  # noqa: BLE001 -- whatever it was, the handlers still run
                # Nobody watches over the handlers any more: they must not outlive their leases.
                self.end_process(EXIT_HUNG)
            if not all_done:
                self._end_hung()
        return {work.received.receipt for work in works if work.is_kept}

    @contextmanager
    def _beating(self) -> Iterator["Future[None]"]:
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

    def _shrink(self, batch: Sequence[Received]) -> None:
        try:
            shrink(self.ports, batch)
        except Unavailable as error:
            # Then only a death of this worker would be noticed later. Its beats hide them too.
            for received in batch:
                self.ports.telemetry.broke(received.message.execution_id, error)

    def _start(self, work: _Work, worker: str, time_left: TimeLeft) -> None:
        name = work.received.message.execution_id
        # A daemon: a handler that hangs must not keep the interpreter from ending.
        work.thread = threading.Thread(
            target=self._do, args=(work, worker, time_left), name=name, daemon=True
        )
        work.thread.start()

    def _do(self, work: _Work, worker: str, time_left: TimeLeft) -> None:
        received = work.received
        try:
            if (left := time_left()) < NEEDED:
                self._give_back(received, left)
            else:
                work.is_kept = not process(self.ports, received, self.runner, worker=worker).deleted
        except Exception as error:  # noqa: BLE001 -- one message's bug must not end its neighbours
            self.ports.telemetry.broke(received.message.execution_id, error)

    def _give_back(self, received: Received, left: timedelta) -> None:
        self.ports.telemetry.gave_back(received.message.execution_id, time_left=left)
        self.ports.queue.hide([received], timedelta(0))

    def _attend(self, works: Sequence[_Work], beating: "Future[None]") -> bool:
        """Watch over what runs until nothing does; False when only hung handlers are left.

        The beats are another thread's: one that waits for its answer must not keep a handler
        from being stopped before its lease ends.
        """
        while running := [work for work in works if work.thread.is_alive()]:
            if beating.done():
                beating.result()
            self.heartbeats.check()
            hung = {call.claimed.received.receipt for call in self.runner.hung()}
            if all(work.received.receipt in hung for work in running):
                return False
            running[0].thread.join(LOOK_EVERY_S)
        return True

    def _end_hung(self) -> NoReturn:
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
