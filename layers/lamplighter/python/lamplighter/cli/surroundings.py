"""What commands need of the world, and how they end."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Annotated, Final
from urllib.parse import urlsplit

import httpx
import typer
from rich.console import Console
from rich.table import Column

from lamplighter.client.http import Client, ClientError, NotReached, Refused
from lamplighter.core.limits import OWNER_MAX_CHARS

REFUSED: Final = 2
FAILED: Final = 1
# Wider than any row: what goes to a file or a program is one line a row.
_WIDE: Final = 100_000
_LONGEST_CELL: Final = 40
_NOT_TAKEN: Final = (
    ": not a token that it takes, or not any more; see --token and LAMPLIGHTER_TOKEN"
)

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
    def client(self, url: str, token: str, *, owner: str | None = None) -> Iterator[Client]:
        """The API; whatever it refuses ends the command with one line that says why.

        `owner` chooses whose token the local stack's issuer is asked for.
        """
        _check_url(url)
        if token and owner:
            raise fail("--owner with a token, which names its owner already", REFUSED)
        if not (token.isascii() and token.isprintable()):
            where = "--token or LAMPLIGHTER_TOKEN"
            raise fail(f"{where} has what no token has: letters beyond ASCII, or lines", REFUSED)
        try:
            with Client(url, token or _minted(url, owner), transport=self.transport) as client:
                yield client
        except Refused as error:
            hint = _NOT_TAKEN if error.status == HTTPStatus.UNAUTHORIZED else ""
            raise fail(f"{error}{hint}", REFUSED) from error
        except NotReached as error:
            raise fail(f"{error} (--url or LAMPLIGHTER_URL says where)", FAILED) from error
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


def an_owner(name: str | None) -> str | None:
    """What the API takes for one: it would refuse every request of a token for another."""
    if name is None:
        return None
    if not (name.strip() == name != "" and name.isprintable() and len(name) <= OWNER_MAX_CHARS):
        raise typer.BadParameter(
            f"an owner is 1 to {OWNER_MAX_CHARS} printable characters, without blanks at the ends"
        )
    return name


def column(title: str) -> Column:
    """A column of ids, times or states: never broken."""
    return Column(title, no_wrap=True)


def words(title: str) -> Column:
    """A column of what people wrote: on a terminal it takes more lines, not the others' room."""
    return Column(title, overflow="fold", max_width=_LONGEST_CELL if sys.stdout.isatty() else None)


def _check_url(url: str) -> None:
    """End the command for what names no place."""
    try:
        parts = urlsplit(url)
        # Reading the port is what checks it.
        is_good = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        is_good = False
    if not is_good:
        where = "--url or LAMPLIGHTER_URL"
        raise fail(f"{url!r} is no URL: {where} is http://HOST:PORT or https://HOST", REFUSED)


def _minted(url: str, owner: str | None) -> str:
    if (urlsplit(url).hostname or "") not in {"127.0.0.1", "localhost", "::1"}:
        raise fail("no token: give --token or LAMPLIGHTER_TOKEN", REFUSED)
    # Only here: signing and serving tokens takes a quarter of a second to import.
    from lamplighter.local.errors import CannotRun  # noqa: PLC0415
    from lamplighter.local.issuer import mint  # noqa: PLC0415
    from lamplighter.local.run import DEFAULT_OWNER  # noqa: PLC0415

    try:
        return mint(owner=owner or DEFAULT_OWNER)
    except CannotRun as error:
        raise fail(str(error), REFUSED) from error
