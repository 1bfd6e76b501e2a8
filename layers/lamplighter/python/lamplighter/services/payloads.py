"""Payloads by reference: a place to upload to, what a name leads to, and the bytes themselves.

Whatever a caller names is looked for under their own prefix of the bucket: somebody else's
object is, to them, exactly what was never there.
"""

from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256

from lamplighter.core import limits
from lamplighter.core.buckets import object_key, object_prefix
from lamplighter.core.errors import Rejected
from lamplighter.core.model import Owner, Payload, PayloadRef, check_sha256, check_size
from lamplighter.core.retry import Failure, Kind
from lamplighter.ports import Ports, Upload

_FIELD = "payload_ref"


@dataclass(frozen=True, kw_only=True)
class Named:
    """A payload as a caller names it; what they leave out is taken from what is kept."""

    key: str
    """With the owner's prefix or without."""
    version_id: str | None = None
    """None: the one that is the latest now."""
    sha256: str | None = None
    size: int | None = None


@dataclass(frozen=True, kw_only=True)
class Granted:
    """A place in the bucket that is a caller's to fill, once."""

    key: str
    upload: Upload
    closes_at: datetime


def grant(ports: Ports, owner: Owner, *, size: int, digest: str, content_type: str) -> Granted:
    """Offer a new key for bytes of this size and SHA-256; raises Rejected.

    Nothing is written: a grant that nobody uses leaves nothing behind.
    """
    check_size("size", size)
    check_sha256("sha256", digest)
    key = object_prefix(owner) + ports.chance.token()
    closes_at = ports.clock.now() + limits.UPLOAD_FOR
    upload = ports.payloads.offer(
        key, size=size, sha256=digest, content_type=content_type, open_for=limits.UPLOAD_FOR
    )
    return Granted(key=key, upload=upload, closes_at=closes_at)


def find(ports: Ports, owner: Owner, named: Named) -> Payload:
    """The payload that a name leads to, pinned to its version, size and digest.

    Raises Rejected for what is not there, is not what the caller says that it is, or has no
    digest that anybody could hold the worker to.
    """
    key = object_key(owner, named.key)
    stored = ports.payloads.look(key, named.version_id) if key else None
    if key is None or stored is None:
        raise Rejected(field=_FIELD, value=named.key, reason="you have no such payload")
    if named.size not in {None, stored.size}:
        reason = f"the payload has {stored.size} bytes"
        raise Rejected(field=f"{_FIELD}.size", value=named.size, reason=reason)
    if named.sha256 and stored.sha256 not in {None, named.sha256}:
        reason = "the payload has another SHA-256"
        raise Rejected(field=f"{_FIELD}.sha256", value=named.sha256, reason=reason)
    digest = stored.sha256 or named.sha256
    if digest is None:
        reason = (
            "the payload is kept without a SHA-256: say it here, or upload it anew with "
            "x-amz-checksum-sha256"
        )
        raise Rejected(field=f"{_FIELD}.sha256", value=None, reason=reason)
    return Payload.referring(
        PayloadRef(key=key, version_id=stored.version_id, sha256=digest, size=stored.size)
    )


def given(ports: Ports, owner: Owner, payload: Payload | Named | None) -> Payload | None:
    """What stands in the place of another payload, looked for where it is named; as `find`."""
    return find(ports, owner, payload) if isinstance(payload, Named) else payload


def read(ports: Ports, ref: PayloadRef) -> str | Failure:
    """The text that a reference leads to, if it is still what was accepted; else why not.

    Raises Unavailable while the bucket does not answer.
    """
    content = ports.payloads.fetch(ref, within=limits.PAYLOAD_FETCHED_WITHIN)
    if content is None:
        return _lost("PayloadGone", "is not there any more")
    if len(content) != ref.size:
        return _lost("PayloadMismatch", f"has not the {ref.size} bytes that it was accepted with")
    if sha256(content).hexdigest() != ref.sha256:
        return _lost("PayloadMismatch", "has not the SHA-256 that it was accepted with")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        return _lost("InvalidPayload", f"is not UTF-8: see byte {error.start}")


def _lost(name: str, what: str) -> Failure:
    # Without its key: whose job it is can see that, and whoever reads logs need not.
    return Failure(kind=Kind.PERMANENT, type=name, message=f"the payload of its payload_ref {what}")
