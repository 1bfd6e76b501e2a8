"""Signatures as Standard Webhooks has them: who sent this body, and when.

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

import hmac
from base64 import b64decode, b64encode
from collections.abc import Sequence
from datetime import datetime
from typing import NewType

SigningKey = NewType("SigningKey", bytes)

_PREFIX = "whsec_"
_KEY_BYTES = range(24, 65)


def parse_keys(text: str) -> tuple[SigningKey, ...]:
    """The keys of a secret: one `whsec_…`, or several between spaces, lines or commas.

    Raises ValueError, with nothing of the secret in it.
    """
    keys = tuple(_key(number, word) for number, word in enumerate(text.replace(",", " ").split()))
    if not keys:
        raise ValueError("the signing secret holds no key")
    return keys


def _key(number: int, word: str) -> SigningKey:
    try:
        key = b64decode(word.removeprefix(_PREFIX), validate=True)
    except ValueError:
        key = b""
    if not word.startswith(_PREFIX) or len(key) not in _KEY_BYTES:
        raise ValueError(f"key {number + 1} is not whsec_ and the base64 of 24–64 bytes")
    return SigningKey(key)


def signed(
    keys: Sequence[SigningKey], *, id: str, timestamp: datetime, body: bytes
) -> dict[str, str]:
    """The three headers; a receiver is content if it knows any one of the keys."""
    seconds = str(int(timestamp.timestamp()))
    content = b".".join((id.encode(), seconds.encode(), body))
    signatures = (hmac.digest(key, content, "sha256") for key in keys)
    return {
        "webhook-id": id,
        "webhook-timestamp": seconds,
        "webhook-signature": " ".join(f"v1,{b64encode(one).decode()}" for one in signatures),
    }
