"""`ports.Permits` in memory."""

import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import count

from lamplighter.core.buckets import ExecutionId, body_of
from lamplighter.core.permits import Bound, Key, Limits, Permit, Use


@dataclass(kw_only=True)
class MemoryPermits:
    """Dictionaries under one lock; limits are never older than now."""

    current: Limits = field(default_factory=Limits)
    held: dict[Key, Use] = field(default_factory=dict)
    waits: dict[Key, set[ExecutionId]] = field(default_factory=dict)
    _calls: "count[int]" = field(default_factory=lambda: count(1))
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def limits(self, *, anew: bool = False) -> Limits:
        return self.current

    def revise(self, before: Limits, after: Limits) -> bool:
        with self._lock:
            if before.version != self.current.version:
                return False
            for key, most in before.changed(after).items():
                self.held[key] = replace(self._use(key), limit=most)
            self.current = after
            return True

    def acquire(self, bound: Bound, permit: Permit, *, until: datetime) -> Use | None:
        with self._lock:
            use = self._use(bound.key)
            if permit not in use.holders and not use.room(bound):
                return use
            self.held[bound.key] = replace(use, holders={**use.holders, permit: until})
            return None

    def release(self, key: Key, permit: Permit) -> Use:
        with self._lock:
            return self._hold(key, {permit: None})

    def renew(self, key: Key, found: Use, until: Mapping[Permit, datetime | None]) -> bool:
        with self._lock:
            there = self._use(key).holders
            if any(there.get(permit) != found.holders[permit] for permit in until):
                return False
            self._hold(key, until)
            return True

    def wait(self, key: Key, id: ExecutionId, *, kept_until: datetime) -> Use:
        with self._lock:
            self.waits.setdefault(key, set()).add(id)
            self.held[key] = replace(self._use(key), call=f"{next(self._calls)}")
            return self.held[key]

    def next_waiting(self, key: Key, *, most: int, seen: Use) -> Sequence[ExecutionId]:
        if seen.call is None:
            return []
        with self._lock:
            waits = self.waits.setdefault(key, set())
            first = sorted(waits, key=body_of)[:most]
            waits.difference_update(first)
            use = self._use(key)
            if len(first) < most and use.call == seen.call:
                self.held[key] = replace(use, call=None)
            return first

    def uses(self, keys: Collection[Key]) -> Mapping[Key, Use]:
        with self._lock:
            return {key: self.held[key] for key in keys if key in self.held}

    def waiting(self, key: Key, *, most: int) -> int:
        with self._lock:
            return min(most, len(self.waits.get(key, ())))

    def _use(self, key: Key) -> Use:
        return self.held.get(key) or Use()

    def _hold(self, key: Key, until: Mapping[Permit, datetime | None]) -> Use:
        use = self._use(key)
        holders = {permit: at for permit, at in {**use.holders, **until}.items() if at is not None}
        self.held[key] = replace(use, holders=holders)
        return self.held[key]
