"""`lamplighter import crontab`: a job for each line of a crontab, once.

A job's name begins with a digest of what its line says. A line whose job is there is left
alone, so importing a file again creates only what is new in it; and for as long as the API
keeps idempotency keys, also where the list of jobs does not show a new job yet.
"""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.table import Table

from lamplighter.cli.surroundings import (
    FAILED,
    HERE,
    REFUSED,
    AsJson,
    Surroundings,
    Token,
    Url,
    column,
    fail,
    terminal,
    words,
)
from lamplighter.client.http import Client, Document, Refused
from lamplighter.core.crontab import Crontab, Entry, parse_crontab
from lamplighter.core.errors import Rejected, shown
from lamplighter.core.limits import MAX_TIMEOUT, NAME_MAX_CHARS
from lamplighter.core.schedule import format_instant

NEXT_TIMES: Final = 3
# Where cron looks for commands unless the crontab says so; not where its user's shell does.
DEFAULT_PATH: Final = "/usr/bin:/bin"
# What no user's name has, and what paths, tests, redirections and assignments begin with.
_NO_USER: Final = frozenset("/=[](){}<>&|;!\"'`")
_LONGEST_S: Final = MAX_TIMEOUT.total_seconds()
_KEY_CHARS: Final = len("crontab-") + 12
_SHOWN_CHARS: Final = 60


@dataclass(frozen=True, kw_only=True)
class Planned:
    """The job that one line becomes."""

    entry: Entry
    body: Mapping[str, object]
    """Of the request that creates it; the same line always makes the same."""
    next_times: tuple[datetime, ...]

    @property
    def name(self) -> str:
        return str(self.body["name"])

    def document(self) -> dict[str, object]:
        """What the command prints about it, as JSON."""
        return {
            "line": self.entry.line,
            **self.body,
            "next": [format_instant(time) for time in self.next_times],
        }


def import_crontab(
    context: typer.Context,
    file: Annotated[str, typer.Argument(help="A crontab; - reads standard input.")],
    timezone: Annotated[
        str | None,
        typer.Option(help="The zone of its times where no CRON_TZ says so; else this machine's."),
    ] = None,
    system: Annotated[
        bool | None,
        typer.Option(
            "--system/--no-system",
            help="Whether a user stands before each command; else its path tells.",
        ),
    ] = None,
    queue: Annotated[str, typer.Option(help="The lane of the jobs.")] = "default",
    timeout: Annotated[
        float,
        typer.Option(help="Seconds that a command may take.", min=1, max=_LONGEST_S),
    ] = _LONGEST_S,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be created, and create nothing.")
    ] = False,
    as_json: AsJson = False,
    url: Url = HERE,
    token: Token = "",
) -> None:
    """Create a job for each line of a crontab; importing it again changes nothing.

    The lines run as tasks `shell`, which a worker has only where it is switched on. A command
    that fails is not tried again, and times that were missed are not caught up: cron does
    neither. Ends with 1 if any line was refused; the others are imported all the same.
    """
    surroundings = Surroundings.of(context)
    crontab = _read(file, timezone or _zone_here(), system)
    now = surroundings.now()
    plan = [planned(entry, queue=queue, timeout=timeout, now=now) for entry in crontab.entries]
    (_print_json if as_json else _print)(plan, crontab)
    refused = len(crontab.problems)
    if not dry_run:
        with surroundings.client(url, token) as client:
            refused += _create_all(client, plan, quiet=as_json)
    elif not as_json:
        typer.echo(f"{_jobs(len(plan))} to create, if not there already; nothing was done")
    if refused:
        raise typer.Exit(FAILED)


def planned(entry: Entry, *, queue: str, timeout: float, now: datetime) -> Planned:
    """The job of one line, and its next times after now."""
    environment = {"PATH": DEFAULT_PATH, **dict(entry.environment)}
    shell = environment.get("SHELL")
    payload: dict[str, object] = {"command": entry.command}
    payload |= {"stdin": entry.stdin} if entry.stdin else {}
    payload |= {"environment": environment}
    payload |= {"shell": shell} if shell else {}
    return Planned(
        entry=entry,
        body={
            "name": _name(entry),
            "task": "shell",
            "payload": payload,
            "cron": entry.expression,
            "timezone": entry.timezone,
            "queue": queue,
            "timeout_seconds": timeout,
            "retry_policy": {"max_attempts": 1},
            "misfire_policy": "SKIP",
        },
        next_times=tuple(islice(entry.schedule.occurrences(now), NEXT_TIMES)),
    )


def _name(entry: Entry) -> str:
    command = "".join(c if c.isprintable() else " " for c in entry.command)
    return f"{entry.key[:_KEY_CHARS]} {command.strip()}"[:NAME_MAX_CHARS].strip()


def _read(file: str, timezone: str, system: bool | None) -> Crontab:
    try:
        raw = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        path = str(Path(file).absolute())
        crontab = parse_crontab(raw.decode(), timezone=timezone, has_user_column=system, path=path)
    except OSError as error:
        raise fail(f"{file}: {error.strerror}", REFUSED) from error
    except UnicodeDecodeError as error:
        raise fail(f"{file}: not UTF-8 at byte {error.start}", REFUSED) from error
    except Rejected as error:
        raise fail(str(error), REFUSED) from error
    for note in crontab.ignored:
        if _NO_USER & set(note.value):
            raise fail(
                f"{file}: line {note.line}: {shown(note.value)} stands where a system crontab "
                "names a user. If the lines name none, import it with --no-system",
                REFUSED,
            )
    return crontab


def _zone_here() -> str:
    """This machine's time zone, by which its own cron goes; UTC where nothing names one."""
    if zone := os.environ.get("TZ", "").removeprefix(":"):
        return zone
    _, is_named, zone = str(Path("/etc/localtime").resolve()).partition("/zoneinfo/")
    return zone if is_named else "UTC"


def _create_all(client: Client, plan: list[Planned], *, quiet: bool) -> int:
    """Create what is not there; returns how many lines the API refused."""
    # One-offs have no names.
    there = {job["name"]: job for job in client.jobs(task="shell") if job.get("name")}
    created, refused = 0, 0
    for job in plan:
        try:
            found = there.get(job.name) or _create(client, job)
        except Refused as error:
            typer.echo(f"line {job.entry.line}: {error}", err=True)
            refused += 1
            continue
        created += found is None
        if found is not None:
            # Standard output is the document alone, for programs.
            typer.echo(f"line {job.entry.line}: {_unchanged(found, job)}", err=quiet)
    if not quiet:
        unchanged = len(plan) - created - refused
        typer.echo(f"{_jobs(created)} created, {unchanged} there already")
    return refused


def _unchanged(found: Document, job: Planned) -> str:
    """That a line's job is there, and in what it is not as the options would have it."""
    differs = [
        f"{field} {found[field]}, not {job.body[field]}"
        for field in ("queue", "timeout_seconds")
        if found[field] != job.body[field]
    ]
    kept = f"; it keeps its {' and its '.join(differs)}" if differs else ""
    return f"{job.name!r} is there already, as {found['job_id']}{kept}"


def _create(client: Client, job: Planned) -> Document | None:
    """Create the job unless it is there; what is there, or None if it was created."""
    key = _digest(job.body)
    while True:
        accepted = client.create(job.body, key=key)
        if not accepted.is_replayed:
            return None
        id = accepted.job["job_id"]
        if (found := client.find(id)) is not None:
            return found
        # Deleted since, while its key is still kept: whoever imports it again wants it back.
        key = _digest([job.body, id])


def _digest(value: object) -> str:
    return f"crontab-{sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()}"


def _print(plan: list[Planned], crontab: Crontab) -> None:
    table = Table(
        *(column("LINE"), words("WHEN"), column("ZONE"), column("NEXT"), words("COMMAND")),
        box=None,
    )
    for job in plan:
        table.add_row(
            str(job.entry.line),
            job.entry.expression,
            job.entry.timezone,
            "\n".join(format_instant(time) for time in job.next_times) or "never",
            _cut(job.entry.command),
        )
    terminal().print(table)
    for note in crontab.ignored:
        typer.echo(f"line {note.line}: {note.field} {note.value} is ignored: {note.reason}")
    for note in crontab.problems:
        what = "" if note.field == "line" else f"{note.field}: "
        typer.echo(f"line {note.line}: {what}{note.reason} (got {shown(note.value)})", err=True)


def _print_json(plan: list[Planned], crontab: Crontab) -> None:
    document = {
        "jobs": [job.document() for job in plan],
        "refused": [asdict(note) for note in crontab.problems],
        "ignored": [asdict(note) for note in crontab.ignored],
    }
    terminal().print_json(data=document)


def _cut(command: str) -> str:
    return command if len(command) <= _SHOWN_CHARS else f"{command[: _SHOWN_CHARS - 1]}…"


def _jobs(count: int) -> str:
    return f"{count} job{'' if count == 1 else 's'}"
