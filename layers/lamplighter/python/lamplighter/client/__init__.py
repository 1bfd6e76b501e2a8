"""The HTTP API from Python: `from lamplighter.client import Client`; docs/client.md shows how.

The names are loaded when they are first asked for: whoever wants none pays for no HTTP client.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lamplighter.client.http import (
        UNCHANGED,
        Accepted,
        Client,
        ClientError,
        Document,
        NotReached,
        Refused,
    )

__all__ = [
    "UNCHANGED",
    "Accepted",
    "Client",
    "ClientError",
    "Document",
    "NotReached",
    "Refused",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from lamplighter.client import http

    return getattr(http, name)
