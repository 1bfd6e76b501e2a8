"""The stack's own bucket in memory: versions of objects, and who may upload which."""

import base64
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from itertools import count

from lamplighter.core.errors import Rejected
from lamplighter.core.model import PayloadRef
from lamplighter.memory.clock import VirtualClock
from lamplighter.ports import Stored, Upload

_HOST = "https://payloads.invalid/"


@dataclass(frozen=True, kw_only=True)
class _Version:
    id: str
    content: bytes
    has_digest: bool


@dataclass(frozen=True, kw_only=True)
class _Offer:
    key: str
    headers: Mapping[str, str]
    closes_at: datetime


@dataclass(kw_only=True)
class MemoryPayloads:
    """`ports.Payloads` over a dictionary; `upload` and the others are what S3 itself does."""

    clock: VirtualClock
    _versions: dict[str, list[_Version | None]] = field(default_factory=dict)
    """By key, the latest last; None: deleted."""
    _offers: dict[str, _Offer] = field(default_factory=dict)
    _numbers: "count[int]" = field(default_factory=lambda: count(1))
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def offer(
        self, key: str, *, size: int, sha256: str, content_type: str, open_for: timedelta
    ) -> Upload:
        headers = {
            "content-length": str(size),
            "content-type": content_type,
            "if-none-match": "*",
            "x-amz-checksum-sha256": base64.b64encode(bytes.fromhex(sha256)).decode(),
        }
        with self._lock:
            url = f"{_HOST}{key}?signature={next(self._numbers)}"
            closes_at = self.clock.now() + open_for
            self._offers[url] = _Offer(key=key, headers=headers, closes_at=closes_at)
        return Upload(method="PUT", url=url, headers=headers)

    def look(self, key: str, version_id: str | None) -> Stored | None:
        with self._lock:
            found = self._latest(key) if version_id is None else self._version(key, version_id)
        if found is None:
            return None
        digest = sha256(found.content).hexdigest() if found.has_digest else None
        return Stored(version_id=found.id, size=len(found.content), sha256=digest)

    def fetch(self, ref: PayloadRef, *, within: timedelta) -> bytes | None:
        with self._lock:
            found = self._version(ref.key, ref.version_id)
        return None if found is None else found.content[: ref.size + 1]

    def upload(self, url: str, headers: Mapping[str, str], content: bytes) -> str:
        """What the bucket makes of an upload; returns the version that it made.

        Raises Rejected, with the status as its value, for one that was not offered so, comes
        too late, or finds that the key has an object.
        """
        with self._lock:
            offer = self._offers.get(url)
            if offer is None or offer.closes_at <= self.clock.now():
                raise Rejected(field="upload", value=403, reason="not offered")
            given = {name.lower(): value for name, value in headers.items()}
            if any(given.get(name) != value for name, value in offer.headers.items()):
                raise Rejected(field="upload", value=403, reason="not as it was offered")
            digest = base64.b64encode(sha256(content).digest()).decode()
            if digest != offer.headers["x-amz-checksum-sha256"]:
                raise Rejected(field="upload", value=400, reason="other bytes")
            if self._latest(offer.key) is not None:
                raise Rejected(field="upload", value=412, reason="there is one")
            return self.put(offer.key, content)

    def put(self, key: str, content: bytes, *, has_digest: bool = True) -> str:
        """Make a version, as whoever owns the bucket may."""
        with self._lock:
            made = _Version(id=f"v{next(self._numbers)}", content=content, has_digest=has_digest)
            self._versions.setdefault(key, []).append(made)
            return made.id

    def delete(self, key: str, version_id: str | None = None) -> None:
        """Delete an object, whose versions stay; or one of them, for good."""
        with self._lock:
            versions = self._versions.setdefault(key, [])
            if version_id is None:
                versions.append(None)
            else:
                versions[:] = [one for one in versions if one is None or one.id != version_id]

    def _latest(self, key: str) -> _Version | None:
        return (self._versions.get(key) or [None])[-1]

    def _version(self, key: str, version_id: str) -> _Version | None:
        versions = self._versions.get(key, [])
        return next((one for one in versions if one and one.id == version_id), None)
