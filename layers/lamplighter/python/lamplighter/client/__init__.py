"""The HTTP API from Python: `from lamplighter.client import Client`; docs/client.md shows how.

The names are loaded when they are first asked for: whoever wants none pays for no HTTP client.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lamplighter.client.callbacks import Callback
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
    "Callback",
    "Client",
    "ClientError",
    "Document",
    "NotReached",
    "Refused",
]


if not TYPE_CHECKING:  # A checker, too, is to know no other names.

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = "callbacks" if name == "Callback" else "http"
        return getattr(import_module(f"lamplighter.client.{module}"), name)
