"""A worker that is no Lambda: it asks for messages itself, and ends when it is told to.

For a container or a laptop. What runs a message is the same as in Lambda; only who fetches it,
and how long the process lives, are not.
"""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Final

from lamplighter.core.errors import Unavailable
from lamplighter.core.limits import SQS_BATCH
from lamplighter.ports import Received
from lamplighter.runtime import crew
from lamplighter.runtime.crew import EXIT_HUNG, Crew, Work
from lamplighter.services import clock
from lamplighter.services.heartbeat import Stop

Receive = Callable[[int], Sequence[Received]]
"""Up to so many messages of one queue, hidden for as long as a lease; waits for some a while.
Raises Unavailable."""

# Before the next receive, when a queue does not answer or this host's clock is off.
PAUSE_S: Final = 1.0
# How long a queue may go unasked, with places free, until it counts as not served.
SILENT_S: Final = 60.0
# Between two writings of what was counted.
FLUSH_EVERY_S: Final = 10.0


class Health(StrEnum):
    """How a worker is."""

    STARTING = "starting"
    SERVING = "serving"
    DRAINING = "draining"
    FAILING = "failing"
    """It has places, and has not come to a queue for a minute: it should be ended."""


class Places:
    """How many messages may be held at once. Its methods may be called from several threads."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._free = number
        self._changed = threading.Condition()

    def take(self, most: int, *, within: float) -> int:
        """At least one and at most so many; 0 when none became free within so many seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._free > 0, timeout=within)
            took = min(most, self._free)
            self._free -= took
            return took

    def give_back(self, number: int) -> None:
        with self._changed:
            self._free += number
            self._changed.notify_all()


@dataclass(frozen=True, kw_only=True)
class Serving(Crew):
    """Serves the queues of one lane until it is told to stop.

    After a crash what it held comes back when its lease ends, as with any worker.
    """

    worker: str
    """Its name in the history of what it runs."""
    places: Places
    flush: Callable[[], None]
    """Writes what was counted."""
    _stopping: threading.Event = field(default_factory=threading.Event)
    _hurried: threading.Event = field(default_factory=threading.Event)
    _works: set[Work] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _broke: list[Exception] = field(default_factory=list)
    _asked_at: dict[int, float] = field(default_factory=dict)
    """Monotonic, by queue: when its receiver last came round."""

    def stop(self) -> None:
        """Take nothing more; `run` returns when what runs is done. May be called by a signal."""
        self._stopping.set()

    def hurry(self) -> None:
        """Let no grace pass any more."""
        self._hurried.set()

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    @property
    def health(self) -> Health:
        if self._stopping.is_set():
            return Health.DRAINING
        if not self._asked_at:
            return Health.STARTING
        silent = time.monotonic() - min(self._asked_at.values())
        return Health.FAILING if silent > SILENT_S else Health.SERVING

    @property
    def running(self) -> int:
        """How many messages it is at."""
        return len(self._works)

    def run(self, queues: Sequence[Receive], *, grace: timedelta) -> None:
        """Serve until `stop`; then give what runs so long to end.

        A handler that still runs then is asked to stop, and its execution goes on elsewhere at
        once, no attempt used. One that does not stop within five seconds ends with the process,
        as one that hangs past its time-out does: then this does not return, and nor does it
        when the heartbeat breaks. Raises what broke a receiver, once what ran has ended.
        """
        receivers = [
            threading.Thread(target=self._serve, args=(number, queue), daemon=True)
            for number, queue in enumerate(queues)
        ]
        with self.beating() as beating:
            try:
                for receiver in receivers:
                    receiver.start()
                all_done = self._attend(receivers, beating, grace)
            except BaseException:  # noqa: BLE001 -- whatever it was, the handlers still run
                self.end_process(EXIT_HUNG)
            if not all_done:
                self.end_hung()
        self.flush()
        if self._broke:
            raise self._broke[0]

    def _attend(
        self, receivers: Sequence[threading.Thread], beating: "Future[None]", grace: timedelta
    ) -> bool:
        """Watch over all until it is told to stop and nothing runs; False: only hung ones do."""
        over_at, flush_at = float("inf"), time.monotonic() + FLUSH_EVERY_S
        while True:
            now, running = time.monotonic(), self._running()
            if self._stopping.is_set():
                over_at = min(over_at, now + grace.total_seconds())
                if not running and not any(receiver.is_alive() for receiver in receivers):
                    return True
                if now >= over_at or self._hurried.is_set():
                    # Each time: what was received last is only now begun.
                    self.runner.stop(Stop.STOPPING)
            if not self.look(running, beating) and running:
                return False
            if self.runner.hung():
                # Nothing more is taken on by a process that is to end.
                self.stop()
            if now >= flush_at:
                self.flush()
                flush_at = now + FLUSH_EVERY_S
            time.sleep(crew.LOOK_EVERY_S)

    def _running(self) -> list[Work]:
        with self._lock:
            return [*self._works]

    def _serve(self, number: int, receive: Receive) -> None:
        try:
            while not self._stopping.is_set():
                self._asked_at[number] = time.monotonic()
                if took := self.places.take(SQS_BATCH, within=crew.LOOK_EVERY_S):
                    self._fill(took, receive)
        except Exception as error:  # noqa: BLE001 -- told by `run`, once what runs has ended
            self._broke.append(error)
            self.stop()

    def _fill(self, took: int, receive: Receive) -> None:
        batch: Sequence[Received] = ()
        try:
            batch = receive(took)
        except Unavailable as error:
            self.ports.telemetry.broke(self.worker, error)
            self._stopping.wait(PAUSE_S)
        finally:
            self.places.give_back(took - len(batch))
        if not batch:
            return
        if self._stopping.is_set():
            self._give_back(batch)
        elif clock.refuses(self.ports, messages=len(batch)):
            # They come back when they would have been beaten for; another host may take them.
            self.places.give_back(len(batch))
            self._stopping.wait(PAUSE_S)
        else:
            for received in batch:
                self._begin(Work(received=received))

    def _give_back(self, batch: Sequence[Received]) -> None:
        try:
            self.ports.queue.hide(batch, timedelta(0))
        except Unavailable as error:
            # Then they are back in half a minute.
            self.ports.telemetry.broke(self.worker, error)
        finally:
            self.places.give_back(len(batch))

    def _begin(self, work: Work) -> None:
        with self._lock:
            self._works.add(work)
        self.start(work, self._do)

    def _do(self, work: Work) -> None:
        try:
            self.process(work, self.worker)
        finally:
            with self._lock:
                self._works.discard(work)
            self.places.give_back(1)
