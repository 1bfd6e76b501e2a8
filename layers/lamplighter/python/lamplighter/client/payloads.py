"""Payloads that a job's body cannot hold: uploaded first, and named there."""

import json
import time
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final

import httpx

from lamplighter.core.limits import PAYLOAD_MAX_BYTES

_TRIES: Final = 3
_BETWEEN_TRIES_S: Final = 0.2


def too_large(body: Mapping[str, Any]) -> bytes | None:
    """The payload of a job's body as it is to be uploaded; None where it fits in there.

    Raises ValueError for a large one that JSON has no text for.
    """
    # The other shapes have no place for a payload by reference.
    return None if body.keys().isdisjoint({"task", "target"}) else too_large_in_patch(body)


def too_large_in_patch(body: Mapping[str, Any]) -> bytes | None:
    """The same of a body that says in part what a job is; its shape is known."""
    if "payload" not in body:
        return None
    if len(json.dumps(body["payload"], separators=(",", ":"))) <= PAYLOAD_MAX_BYTES:
        # At most longer than the text that counts, which escapes nothing.
        return None
    text = json.dumps(
        body["payload"], ensure_ascii=False, separators=(",", ":"), allow_nan=False
    ).encode()
    return text if len(text) > PAYLOAD_MAX_BYTES else None


def described(content: bytes) -> dict[str, Any]:
    """What a grant is asked for by, and what the bytes are held to ever after."""
    return {"sha256": sha256(content).hexdigest(), "size": len(content)}


def put(http: httpx.Client, upload: Mapping[str, Any], content: bytes) -> httpx.Response:
    """The answer to an upload, which may be made again: there is one object, whatever happens.

    Raises httpx.TransportError when nobody answered each time.
    """
    request = http.build_request(
        upload["method"], upload["url"], headers=upload["headers"], content=content
    )
    # Our own token is for the API; the bucket goes by what is in the URL, and takes no other.
    del request.headers["authorization"]
    for n in range(_TRIES):
        if n:
            time.sleep(_BETWEEN_TRIES_S)
        is_last = n == _TRIES - 1
        try:
            answer = http.send(request)
        except httpx.TransportError:
            if is_last:
                raise
            continue
        if is_last or not answer.is_server_error:
            return answer
    raise AssertionError("the last try returns or raises")
