"""A queue in memory with SQS's delay, visibility, receive count and redrive."""

import itertools
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from lamplighter.core.lease import Work
from lamplighter.core.limits import LANE_MAX_RECEIVES
from lamplighter.core.model import Message
from lamplighter.core.timing import delay_s
from lamplighter.memory.clock import VirtualClock
from lamplighter.ports import Outgoing, Received

_VISIBILITY = timedelta(seconds=900)


@dataclass(kw_only=True)
class _Stored:
    id: int
    queue: str
    message: Message
    visible_at: datetime
    sent_at: datetime
    receives: int = 0


@dataclass(kw_only=True)
class MemoryQueue:
    """`ports.Queue`, and what only a worker's service sees: `receive`, `purge`, `dead`.

    Times are true times: a host's skew does not reach the queue.
    """

    clock: VirtualClock
    work: list[Work] = field(default_factory=list)
    dead: list[Received] = field(default_factory=list)
    """What was received more than a hundred times."""
    _stored: dict[int, _Stored] = field(default_factory=dict)
    _ids: "itertools.count[int]" = field(default_factory=itertools.count)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def send(self, outgoing: Sequence[Outgoing], *, now: datetime) -> None:
        # All of them first: nothing is sent when one cannot be.
        delays = [timedelta(seconds=delay_s(one.message.due_at, now)) for one in outgoing]
        with self._lock:
            for one, delay in zip(outgoing, delays, strict=True):
                id = next(self._ids)
                self._stored[id] = _Stored(
                    id=id,
                    queue=one.queue,
                    message=one.message,
                    visible_at=self._true_now() + delay,
                    sent_at=self._true_now(),
                )

    def hide(self, received: Sequence[Received], duration: timedelta) -> None:
        with self._lock:
            for stored in self._held(received):
                stored.visible_at = self._true_now() + duration

    def delete(self, received: Sequence[Received]) -> None:
        with self._lock:
            for stored in self._held(received):
                del self._stored[stored.id]

    def waiting(self, queue: str) -> int:
        return sum(
            1
            for stored in self._stored.values()
            if stored.queue == queue and stored.visible_at <= self._true_now()
        )

    def hand_out(self, works: Iterable[Work]) -> None:
        self.work.extend(works)

    def receive(self, queue: str | None = None, limit: int = 10) -> Sequence[Received]:
        """What is visible now, oldest first, hidden for 900 s from now."""
        with self._lock:
            visible = sorted(
                (
                    stored
                    for stored in self._stored.values()
                    if stored.visible_at <= self._true_now() and queue in (None, stored.queue)
                ),
                key=lambda stored: (stored.visible_at, stored.id),
            )
            return [self._take(stored) for stored in visible[:limit] if self._is_alive(stored)]

    def next_visible_at(self) -> datetime | None:
        """When the next message becomes visible; None when the queue is empty."""
        return min((stored.visible_at for stored in self._stored.values()), default=None)

    def purge(self) -> None:
        """Lose every message, as PurgeQueue does."""
        with self._lock:
            self._stored.clear()

    def duplicate(self) -> None:
        """Deliver every stored message once more, as a standard queue may."""
        with self._lock:
            for stored in [*self._stored.values()]:
                id = next(self._ids)
                self._stored[id] = replace(stored, id=id, receives=0)

    def __len__(self) -> int:
        return len(self._stored)

    def _true_now(self) -> datetime:
        return self.clock.now() - self.clock.skew

    def _held(self, received: Sequence[Received]) -> list[_Stored]:
        # The receipt names the receive: an older one no longer moves the message.
        receipts = {one.receipt for one in received}
        return [one for one in self._stored.values() if _receipt(one) in receipts]

    def _take(self, stored: _Stored) -> Received:
        stored.receives += 1
        stored.visible_at = self._true_now() + _VISIBILITY
        return _received(stored)

    def _is_alive(self, stored: _Stored) -> bool:
        if stored.receives < LANE_MAX_RECEIVES:
            return True
        self.dead.append(_received(stored))
        del self._stored[stored.id]
        return False


def _receipt(stored: _Stored) -> str:
    return f"{stored.id}/{stored.receives}"


def _received(stored: _Stored) -> Received:
    return Received(
        queue=stored.queue,
        message=stored.message,
        receipt=_receipt(stored),
        receive_count=stored.receives,
        sent_at=stored.sent_at,
    )
