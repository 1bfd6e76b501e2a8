"""A queue in memory with SQS's delay, visibility, receive count and redrive."""

import heapq
import itertools
import threading
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from operator import attrgetter

from lamplighter.core.lease import WorkItem
from lamplighter.core.limits import LANE_MAX_RECEIVES
from lamplighter.core.model import Message, Owner
from lamplighter.core.timing import delay_s
from lamplighter.memory.clock import VirtualClock
from lamplighter.ports import Outgoing, Received

_VISIBILITY = timedelta(seconds=900)
_oldest = attrgetter("visible_at", "id")
# Amazon SQS developer guide, how fair queues work: that many in flight, and over 10 % of them.
_LOUD_MESSAGES = 30


@dataclass(kw_only=True)
class _Stored:
    id: int
    queue: str
    message: Message
    owner: Owner | None
    visible_at: datetime
    sent_at: datetime
    receives: int = 0


@dataclass(kw_only=True)
class MemoryQueue:
    """`ports.Queue`, and what only a worker's service sees: `receive`, `purge`, `dead`.

    Times are true times: a host's skew does not reach the queue.
    """

    clock: VirtualClock
    fair: Collection[str] = frozenset()
    """Lanes in which who has much in flight comes after who has little."""
    work: list[tuple[datetime, WorkItem]] = field(default_factory=list)
    """Partition work that was handed out, and when it is visible."""
    dead: list[Received] = field(default_factory=list)
    """What was received more than `max_receives` times."""
    max_receives: int = LANE_MAX_RECEIVES
    _stored: dict[int, _Stored] = field(default_factory=dict)
    _loud: dict[str, set[Owner | None]] = field(default_factory=dict)
    """By fair lane: who crowds it."""
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
                    owner=one.owner,
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

    def hand_out(self, items: Iterable[WorkItem], *, delay: timedelta = timedelta(0)) -> None:
        with self._lock:
            self.work += [(self._true_now() + delay, item) for item in items]

    def take_work(self) -> Sequence[WorkItem]:
        """The partition work that is visible now; it is nobody else's any more."""
        with self._lock:
            now = self._true_now()
            taken = [item for visible_at, item in self.work if visible_at <= now]
            self.work = [(at, item) for at, item in self.work if at > now]
            return taken

    def next_work_at(self) -> datetime | None:
        """When the next partition work becomes visible; None when there is none."""
        return min((visible_at for visible_at, _ in self.work), default=None)

    def receive(self, queue: str | None = None, limit: int = 10) -> Sequence[Received]:
        """What is visible now, oldest first, hidden for 900 s from now.

        Of a fair lane, what belongs to quiet owners first. To receive from all lanes at once is
        to receive from none of them fairly.
        """
        with self._lock:
            self._listen(queue)
            loud = self._loud.get(queue, set()) if queue else set()
            now = self._true_now()
            here = [
                stored
                for stored in self._stored.values()
                if stored.visible_at <= now and queue in (None, stored.queue)
            ]
            if not here:
                return []

            def quiet_first(stored: _Stored) -> tuple[object, ...]:
                return stored.owner in loud, *_oldest(stored)

            visible = heapq.nsmallest(limit, here, key=quiet_first if loud else _oldest)
            taken = [self._take(stored) for stored in visible if self._is_alive(stored)]
            self._listen(queue)
            return taken

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

    def _listen(self, queue: str | None) -> None:
        """Note who is loud: 30 messages, and over a tenth, of those in flight, as SQS has it.

        Until nothing of theirs waits; SQS forgets them after five silent minutes as well.
        """
        if queue is None or queue not in self.fair:
            return
        now = self._true_now()
        here = [stored for stored in self._stored.values() if stored.queue == queue]
        waiting = {stored.owner for stored in here if stored.visible_at <= now}
        in_flight = Counter(stored.owner for stored in here if _is_in_flight(stored, now))
        least = max(_LOUD_MESSAGES, in_flight.total() // 10 + 1)
        loud = {owner for owner, count in in_flight.items() if count >= least}
        self._loud[queue] = (self._loud.get(queue, set()) | loud) & (waiting - {None})

    def _true_now(self) -> datetime:
        return self.clock.now() - self.clock.skew

    def _held(self, received: Sequence[Received]) -> list[_Stored]:
        # The receipt names the receive: an older one no longer moves the message.
        ids = {one.receipt: int(one.receipt.split("/")[0]) for one in received}
        held = {receipt: self._stored.get(id) for receipt, id in ids.items()}
        return [one for receipt, one in held.items() if one and _receipt(one) == receipt]

    def _take(self, stored: _Stored) -> Received:
        stored.receives += 1
        stored.visible_at = self._true_now() + _VISIBILITY
        return _received(stored)

    def _is_alive(self, stored: _Stored) -> bool:
        if stored.receives < self.max_receives:
            return True
        self.dead.append(_received(stored))
        del self._stored[stored.id]
        return False


def _is_in_flight(stored: _Stored, now: datetime) -> bool:
    return stored.receives > 0 and stored.visible_at > now


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
