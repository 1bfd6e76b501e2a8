"""Keeping what runs: extend its lease and its message, and tell the handler when to stop."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from lamplighter.core.errors import LostClaim, Unavailable
from lamplighter.core.limits import BEAT_EVERY, TAKE_OVER_GRACE, WORKER_LEASE
from lamplighter.core.stopping import Stop
from lamplighter.ports import Ports
from lamplighter.services import permits
from lamplighter.services.execute import Claimed

__all__ = ["Handling", "Heartbeats", "Stop"]

_BEAT_S = BEAT_EVERY.total_seconds()
_HELD_S = (WORKER_LEASE - TAKE_OVER_GRACE).total_seconds()


class Handling(Protocol):
    """One call of a handler, as the heartbeat sees it."""

    def stop(self, why: Stop) -> None:
        """Ask the handler to stop; the first reason stays. Called from another thread."""
        ...


@dataclass
class _Watched:
    claimed: Claimed
    handling: Handling
    next_beat: float
    held_until: float
    """Monotonic: five seconds before the lease ends, unless a beat succeeds before."""
    timeout_at: float
    lease_until: datetime
    """By the wall clock, which goes on where the monotonic one may stand still."""


class Heartbeats:
    """The executions of one process.

    `beat` and `check` are called about twice a second, each by a thread of its own, or `tick`
    by one. A job that ends within ten seconds never beats. A beat that is refused, and a lease
    that is about to end because no beat got through, stop the handler; so do its time-out and
    a cancel that the beat finds requested (P9).
    """

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._watched: dict[str, _Watched] = {}
        self._lock = threading.Lock()

    @contextmanager
    def watch(self, claimed: Claimed, handling: Handling) -> Iterator[None]:
        """Keep the execution's lease for as long as the block runs."""
        start = claimed.claimed_at
        watched = _Watched(
            claimed=claimed,
            handling=handling,
            next_beat=start + _BEAT_S,
            held_until=start + _HELD_S,
            timeout_at=self._ports.clock.monotonic() + claimed.spec.timeout.total_seconds(),
            lease_until=claimed.execution.lease_until or self._ports.clock.now(),
        )
        with self._lock:
            self._watched[claimed.token] = watched
        try:
            yield
        finally:
            with self._lock:
                self._watched.pop(claimed.token, None)

    def tick(self) -> None:
        """Beat, then stop what is over its time: for whoever has one thread for both."""
        self.beat()
        self.check()

    def beat(self) -> None:
        """Extend the lease and the message of whatever is due for it, one after the other.

        It waits for services that may not answer: `check` is for another thread then.
        """
        for one in self._all():
            now = self._ports.clock.monotonic()
            if now >= one.next_beat:
                self._beat(one, now)

    def check(self) -> None:
        """Stop whatever is over its time, or about to lose its lease; waits for nothing."""
        now = self._ports.clock.monotonic()
        for one in self._all():
            if now >= one.timeout_at:
                one.handling.stop(Stop.TIMEOUT)
            if now >= one.held_until:
                one.handling.stop(Stop.LOST_LEASE)

    def next_due(self) -> float:
        """When there is something to do next, on the monotonic clock; inf: nothing is watched."""
        return min(
            (min(one.next_beat, one.held_until, one.timeout_at) for one in self._all()),
            default=float("inf"),
        )

    def _all(self) -> list[_Watched]:
        with self._lock:
            return [*self._watched.values()]

    def _beat(self, one: _Watched, now: float) -> None:
        claimed = one.claimed
        lease_until = self._ports.clock.now() + WORKER_LEASE
        try:
            row = self._ports.executions.extend(
                claimed.execution.id, token=claimed.token, lease_until=lease_until
            )
            if self._had_run_out(one) and not self._holds_permits(claimed):
                # Nobody took it over, but others run in its place.
                self._give_up(one)
                return
            one.lease_until = lease_until
            # The lease is what holds it: whoever receives the message meanwhile keeps it (P8).
            one.held_until = now + _HELD_S
            if row.cancel_requested_at is not None:
                one.handling.stop(Stop.CANCELLED)
            self._ports.queue.hide([claimed.received], WORKER_LEASE)
        except LostClaim:
            self._give_up(one)
            return
        except Unavailable:
            # The next tick tries again, until the lease itself is about to end.
            return
        one.next_beat = now + _BEAT_S

    @staticmethod
    def _give_up(one: _Watched) -> None:
        one.handling.stop(Stop.LOST_LEASE)
        one.next_beat = float("inf")

    def _had_run_out(self, one: _Watched) -> bool:
        """Whether the lease that a beat extended may have been over, by either clock."""
        clock = self._ports.clock
        return clock.monotonic() >= one.held_until or (
            clock.now() >= one.lease_until - TAKE_OVER_GRACE
        )

    def _holds_permits(self, claimed: Claimed) -> bool:
        return permits.holds(self._ports, claimed.permits, claimed.execution.id, claimed.token)
