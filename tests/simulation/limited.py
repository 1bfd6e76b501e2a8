"""A queue whose workers take only so many messages a second: what a backlog is made of."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from lamplighter.core.buckets import ExecutionId
from lamplighter.memory.queue import MemoryQueue
from lamplighter.ports import Outgoing, Received

_SECOND = timedelta(seconds=1)


@dataclass(kw_only=True)
class LimitedQueue(MemoryQueue):
    """Hands out `per_second` messages each second, over all lanes.

    Each message costs the same, whether its execution runs or it turns out to be a duplicate:
    the worst case, for the claim that a duplicate loses is all that there is to it.
    """

    per_second: int
    sent: Counter[ExecutionId] = field(default_factory=Counter)
    """How many messages each execution got."""
    _second: int = 0
    _taken: int = 0
    """In this second."""

    def send(self, outgoing: Sequence[Outgoing], *, now: datetime) -> None:
        super().send(outgoing, now=now)
        self.sent.update(one.message.execution_id for one in outgoing)

    def receive(self, queue: str | None = None, limit: int = 10) -> Sequence[Received]:
        second = math.floor(self.clock.monotonic())
        if second > self._second:
            self._second, self._taken = second, 0
        received = super().receive(queue, min(limit, self.per_second - self._taken))
        self._taken += len(received)
        return received

    def next_visible_at(self) -> datetime | None:
        """When a worker takes the next message."""
        visible_at = super().next_visible_at()
        second = self.clock.monotonic()
        if visible_at is None or self._taken < self.per_second or second >= self._second + 1:
            return visible_at
        return max(visible_at, self._true_now() + (self._second + 1 - second) * _SECOND)
