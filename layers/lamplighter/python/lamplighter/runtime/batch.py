"""A batch of messages, each in a thread of its own, under one heartbeat.

Not Powertools' BatchProcessor: it works on one message after the other or on coroutines, and
leaves every message to the end of the batch, where one slow job would hold nine finished ones.
"""

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from lamplighter.core.errors import Unavailable
from lamplighter.core.limits import MAX_TIMEOUT
from lamplighter.ports import Received
from lamplighter.runtime import crew
from lamplighter.runtime.crew import EXIT_HUNG, Crew, TimeLeft, Work
from lamplighter.services import clock
from lamplighter.services.execute import shrink

# To write an outcome in, trying again while a service does not answer, and to notice that a
# handler hangs.
MARGIN: Final = timedelta(seconds=15)
# How long a job may run is not known before it is claimed.
NEEDED: Final = MAX_TIMEOUT + MARGIN


@dataclass(frozen=True, kw_only=True)
class BatchRunner(Crew):
    """Runs batches one after the other; one for the life of a process."""

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
        works = [Work(received=received) for received in batch]
        with self.beating() as beating:
            try:
                for work in works:
                    self.start(work, lambda work: self._do(work, worker, time_left))
                all_done = self._attend(works, beating)
            except BaseException:  # noqa: BLE001 -- whatever it was, the handlers still run
                # Nobody watches over the handlers any more: they must not outlive their leases.
                self.end_process(EXIT_HUNG)
            if not all_done:
                self.end_hung()
        return {work.received.receipt for work in works if work.is_kept}

    def _shrink(self, batch: Sequence[Received]) -> None:
        try:
            shrink(self.ports, batch)
        except Unavailable as error:
            # Then only a death of this worker would be noticed later. Its beats hide them too.
            for received in batch:
                self.ports.telemetry.broke(received.message.execution_id, error)

    def _do(self, work: Work, worker: str, time_left: TimeLeft) -> None:
        if (left := time_left()) < NEEDED:
            self._give_back(work.received, left)
        else:
            self.process(work, worker)

    def _give_back(self, received: Received, left: timedelta) -> None:
        self.ports.telemetry.gave_back(received.message.execution_id, time_left=left)
        self.ports.queue.hide([received], timedelta(0))

    def _attend(self, works: Sequence[Work], beating: "Future[None]") -> bool:
        """Watch over what runs until nothing does; False when only hung handlers are left."""
        while running := [work for work in works if work.thread.is_alive()]:
            if not self.look(running, beating):
                return False
            running[0].thread.join(crew.LOOK_EVERY_S)
        return True
