"""What commands need of the world, and how they end."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Final
from urllib.parse import urlsplit

import httpx
import typer
from rich.console import Console

from lamplighter.client.http import Client, ClientError, Refused

REFUSED: Final = 2
FAILED: Final = 1
_WIDE: Final = 200

Url = Annotated[str, typer.Option("--url", envvar="LAMPLIGHTER_URL", help="Where the API answers.")]
Token = Annotated[
    str,
    typer.Option(
        "--token",
        envvar="LAMPLIGHTER_TOKEN",
        help="A bearer token. Without one, the local stack's own issuer is asked.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
HERE: Final = "http://127.0.0.1:8080"


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """The network and the time; tests give their own as the context's object."""

    transport: httpx.BaseTransport | None = None
    now: Callable[[], datetime] = _now

    @classmethod
    def of(cls, context: typer.Context) -> "Surroundings":
        return context.obj if isinstance(context.obj, Surroundings) else cls()

    @contextmanager
    def client(self, url: str, token: str) -> Iterator[Client]:
        """The API; whatever it refuses ends the command with one line that says why."""
        try:
            with Client(url, token or _minted(url), transport=self.transport) as client:
                yield client
        except Refused as error:
            raise fail(str(error), REFUSED) from error
        except ClientError as error:
            raise fail(str(error), FAILED) from error


def fail(message: str, code: int) -> typer.Exit:
    """One clear line on standard error; raise what this returns."""
    typer.echo(f"lamplighter: {message}", err=True)
    return typer.Exit(code)


def terminal() -> Console:
    """Standard output. Where that is no terminal, nothing is cut to a terminal's width."""
    width = None if sys.stdout.isatty() else _WIDE
    return Console(width=width, highlight=False, markup=False)


def _minted(url: str) -> str:
    if (urlsplit(url).hostname or "") not in {"127.0.0.1", "localhost", "::1"}:
        raise fail("no token: give --token or LAMPLIGHTER_TOKEN", REFUSED)
    # Only here: signing and serving tokens takes a quarter of a second to import.
    from lamplighter.local.errors import CannotRun  # noqa: PLC0415
    from lamplighter.local.issuer import mint  # noqa: PLC0415
    from lamplighter.local.run import DEFAULT_OWNER  # noqa: PLC0415

    try:
        return mint(owner=DEFAULT_OWNER)
    except CannotRun as error:
        raise fail(str(error), REFUSED) from error
