"""moto's calls made atomic, as DynamoDB's are.

moto checks a condition and writes the item in two steps of Python, and another thread's call
may come between them.
"""

import threading
from typing import Any


class OneAtATime:
    """Lets one call of a client run at a time, from its request to its answer."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def attach(self, client: Any) -> None:  # noqa: ANN401 -- of any service
        events = client.meta.events
        events.register("before-call", self._begin)
        events.register_last("after-call", self._end)
        events.register_last("after-call-error", self._end)

    def _begin(self, **_: object) -> None:
        self._lock.acquire()

    def _end(self, **_: object) -> None:
        self._lock.release()
