"""By what it is known that a request is the same again: its idempotency key's other half."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Final, TypeGuard

from lamplighter.api.strict_json import canonical

_OF_BYTES: Final = frozenset({"sha256", "size"})


def fingerprint(body: object) -> str:
    """A digest of a body that is the same however its JSON was written."""
    return sha256(canonical(by_bytes(body)).encode()).hexdigest()


def by_bytes(body: object) -> object:
    """The same, but that a payload by reference counts as its bytes.

    Who asks again may have uploaded them again.
    """
    if isinstance(body, dict) and _tells_bytes(ref := body.get("payload_ref")):
        return {**body, "payload_ref": {name: ref[name] for name in _OF_BYTES}}
    return body


def _tells_bytes(ref: object) -> TypeGuard[Mapping[str, object]]:
    return isinstance(ref, dict) and ref.keys() >= _OF_BYTES
