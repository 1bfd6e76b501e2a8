"""`lamplighter tz-diff`: whose fire times another release of the zone database would change."""

import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.table import Table

from lamplighter.cli.jobs import when
from lamplighter.cli.surroundings import (
    HERE,
    REFUSED,
    AsJson,
    Surroundings,
    Token,
    Url,
    an_owner,
    column,
    fail,
    terminal,
    words,
)
from lamplighter.client.http import Document
from lamplighter.client.schedules import is_recurring, schedule_of
from lamplighter.core.errors import Rejected
from lamplighter.core.schedule import PINNED, ZoneDatabase, format_instant
from lamplighter.core.schedule.moves import Moves, moves

_SHOWN: Final = 3
# Where a package lies in a folder that holds it, in a wheel, and in a source release.
_PLACES: Final = ("", "tzdata", "src/tzdata")


@dataclass(frozen=True, kw_only=True)
class Change:
    """A job whose times are other ones by the other release, or that it cannot read."""

    job: Document
    moves: Moves
    refused: str | None = None

    def document(self) -> dict[str, object]:
        """What the command prints about it, as JSON."""
        return {
            "job_id": self.job["job_id"],
            "name": self.job.get("name"),
            "timezone": self.job["timezone"],
            "before": [format_instant(time) for time in self.moves.gone],
            "after": [format_instant(time) for time in self.moves.new],
            **({} if self.refused is None else {"refused": self.refused}),
        }


def tz_diff(
    context: typer.Context,
    release: Annotated[
        Path, typer.Argument(help="A tzdata package of the other release: a folder or a wheel.")
    ],
    days: Annotated[int, typer.Option(help="How far ahead to look.", min=1, max=3660)] = 366,
    owner: Annotated[
        str | None,
        typer.Option(
            help="Whose jobs, where the local stack's issuer gives the token.", callback=an_owner
        ),
    ] = None,
    url: Url = HERE,
    token: Token = "",
    as_json: AsJson = False,
) -> None:
    """List your recurring jobs whose times another release of the zone database changes."""
    surroundings = Surroundings.of(context)
    other = _database(release)
    start = surroundings.now()
    with surroundings.client(url, token, owner=owner) as client:
        jobs = [job for job in client.jobs() if is_recurring(job)]
    changes = [*_changes(jobs, other, start, start + timedelta(days=days))]
    for version in sorted({job["tzdb_version"] for job in jobs} - {PINNED.version}):
        # What the stack does is said by its own release, which this program does not have.
        typer.echo(f"note: the stack goes by {version}; compared with {PINNED.version}", err=True)
    if as_json:
        document = {
            "before": PINNED.version,
            "after": other.version,
            "jobs": [change.document() for change in changes],
        }
        terminal().print_json(data=document)
        return
    _print(changes)
    between = f"from {PINNED.version} to {other.version}"
    typer.echo(f"{len(changes)} of {len(jobs)} recurring jobs change {between} in {days} days")


def _changes(
    jobs: Sequence[Document], other: ZoneDatabase, start: datetime, end: datetime
) -> Iterator[Change]:
    for job in jobs:
        try:
            after = schedule_of(job, zones=other)
        except Rejected as refused:
            yield Change(job=job, moves=Moves(), refused=str(refused))
            continue
        if moved := moves(schedule_of(job), after, start=start, end=end):
            yield Change(job=job, moves=moved)


def _database(path: Path) -> ZoneDatabase:
    """The zone database of a package; ends the command if there is none."""
    try:
        root: Traversable = zipfile.Path(path) if path.is_file() else path
        for place in _PLACES:
            package = root.joinpath(*place.split("/")) if place else root
            if package.joinpath("zones").is_file():
                database = ZoneDatabase(package)
                _ = database.version, database.names
                return database
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise fail(f"{path}: {error}", REFUSED) from error
    raise fail(f"{path}: no tzdata package: it has no list of zones", REFUSED)


def _print(changes: Sequence[Change]) -> None:
    if not changes:
        return
    table = Table(
        *(column("JOB"), words("NAME"), words("WHEN"), column("BEFORE"), words("AFTER")), box=None
    )
    for change in changes:
        table.add_row(
            change.job["job_id"],
            change.job.get("name") or "",
            when(change.job),
            _times(change.moves.gone),
            change.refused or _times(change.moves.new),
        )
    terminal().print(table)


def _times(times: Sequence[datetime]) -> str:
    shown = [format_instant(time) for time in times[:_SHOWN]]
    rest = len(times) - len(shown)
    return "\n".join([*shown, *([f"and {rest} more"] if rest else [])])
