"""Cursors: where a list goes on, bound to the query that it belongs to.

A cursor holds an id and a digest of both that id and the query, owner included. There is no
secret in it and none is needed: the owner and the query always come from the request, so that
whoever forges one can only skip about in what they may list anyway.
"""

import base64
import json
from hashlib import sha256
from typing import Final

from lamplighter.api.strict_json import canonical
from lamplighter.core.errors import Rejected

_MAX_CHARS: Final = 200
_DIGEST_CHARS: Final = 16


def write(id: str, query: object) -> str:
    """The cursor of the page that follows this id."""
    text = canonical({"after": id, "query": _digest(id, query)})
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read(cursor: str, query: object) -> str:
    """The id in a cursor that `write` made for the same query; anything else is Rejected."""
    id = _after(cursor) if len(cursor) <= _MAX_CHARS else None
    # One cursor has one spelling: whatever else decodes to the same is damaged too.
    if id is None or write(id, query) != cursor:
        reason = "damaged, or from a list with other filters"
        raise Rejected(field="cursor", value=cursor, reason=reason)
    return id


def _after(cursor: str) -> str | None:
    padding = "=" * (-len(cursor) % 4)
    try:
        held = json.loads(base64.b64decode(cursor + padding, altchars=b"-_", validate=True))
    except ValueError:
        return None
    id = held.get("after") if isinstance(held, dict) else None
    return id if isinstance(id, str) and id.isascii() else None


def _digest(id: str, query: object) -> str:
    return sha256(canonical([id, query]).encode()).hexdigest()[:_DIGEST_CHARS]
