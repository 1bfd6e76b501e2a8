"""`ports.ClockOffset` by the `Date` header that DynamoDB's answers have, and costs nothing.

Every request of a client is listened to, each try of it by itself; a request of our own is
made only where too little is known.
"""

import threading
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final

from lamplighter.core.clock_offset import Answers, Bounds, Reading
from lamplighter.core.limits import CLOCK_ANSWERS, CLOCK_MEASURED_EVERY, CLOCK_TOLD_EVERY
from lamplighter.ports import Clock

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

NOBODY: Final = ("clock", "clock")
"""A key that no item has: to read it is the cheapest request that there is."""


class DynamoClockOffset:
    """What the answers of one client prove; its methods may be called from several threads."""

    def __init__(
        self, client: "DynamoDBClient", *, clock: Clock, ask: Callable[[], object]
    ) -> None:
        """`ask` makes one request of that client."""
        self._clock = clock
        self._ask = ask
        self._answers = Answers()
        self._lock = threading.Lock()
        self._asked = threading.local()
        self._measured_at: float | None = None
        self._told_at: float | None = None
        # First, so that whatever else is done before the request is a part of its time.
        client.meta.events.register_first("before-send.dynamodb", self._on_send)
        client.meta.events.register("response-received.dynamodb", self._on_answer)

    def bounds(self) -> Bounds | None:
        with self._lock:
            return self._answers.bounds(self._now())

    def measure(self) -> None:
        with self._lock:
            now = self._clock.monotonic()
            if _is_within(CLOCK_MEASURED_EVERY, self._measured_at, now):
                return
            self._measured_at = now
        for _ in range(CLOCK_ANSWERS):
            self._ask()

    def to_tell(self) -> timedelta | None:
        """What the metric has to say, once a minute: how far off the clock surely is."""
        found = self.bounds()
        with self._lock:
            now = self._clock.monotonic()
            if found is None or _is_within(CLOCK_TOLD_EVERY, self._told_at, now):
                return None
            self._told_at = now
        return found.surely

    def _on_send(self, **_: object) -> None:
        # botocore sends, and hears, in one thread.
        self._asked.at = self._now()

    def _on_answer(self, response_dict: Mapping[str, Any] | None = None, **_: object) -> None:
        received, sent = self._now(), getattr(self._asked, "at", None)
        second = _second_of(response_dict)
        if sent is None or second is None:
            return
        with self._lock:
            self._answers = self._answers.heard(sent=sent, received=received, second=second)

    def _now(self) -> Reading:
        return Reading(wall=self._clock.now(), monotonic=self._clock.monotonic())


def _is_within(span: timedelta, since: float | None, now: float) -> bool:
    return since is not None and now - since < span.total_seconds()


def _second_of(response: Mapping[str, Any] | None) -> datetime | None:
    """The instant that an answer names; None where there is none, or it makes no sense."""
    text = response["headers"].get("date") if response else None
    if text is None:
        return None
    try:
        second = parsedate_to_datetime(text)
    except ValueError:
        return None
    return second if second.tzinfo is not None else None
