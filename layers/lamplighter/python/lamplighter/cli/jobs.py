"""`lamplighter jobs`: definitions."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn, TextIO
from uuid import uuid4

import typer
from rich.table import Table

from lamplighter.cli.surroundings import (
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
from lamplighter.client.http import UNCHANGED, Document, Refused
from lamplighter.core.limits import BACKFILL_MAX_SLOTS, BACKFILL_MAX_SPREAD, BACKFILL_SLOTS

app = typer.Typer(help="Create jobs, look at them, change and delete them.", no_args_is_help=True)

JobId = Annotated[str, typer.Argument(metavar="JOB", help="A job's id.")]
IfMatch = Annotated[
    int | None,
    typer.Option(help="Only if this is still the job's version.", min=1, show_default=False),
]


@app.command("list")
def list_jobs(
    context: typer.Context, url: Url = HERE, token: Token = "", as_json: AsJson = False
) -> None:
    """List all your jobs, newest first."""
    with Surroundings.of(context).client(url, token) as client:
        found = [*client.jobs()]
    if as_json:
        terminal().print_json(data=found)
        return
    table = Table(
        *(column("JOB"), words("NAME"), words("TASK"), words("WHEN")),
        *(column("NEXT"), column("STATUS")),
        box=None,
    )
    for job in found:
        table.add_row(
            job["job_id"],
            job.get("name") or "",
            job["task"],
            when(job),
            job.get("next_run_at") or "",
            job["status"],
        )
    terminal().print(table)


@app.command()
def show(context: typer.Context, job: JobId, url: Url = HERE, token: Token = "") -> None:
    """Print a job with its latest executions, as JSON."""
    with Surroundings.of(context).client(url, token) as client:
        terminal().print_json(data=client.job(job))


@app.command()
def delete(
    context: typer.Context,
    job: JobId,
    request: Annotated[
        bool, typer.Option("--request", help="If it runs right now, ask its handler to stop.")
    ] = False,
    url: Url = HERE,
    token: Token = "",
) -> None:
    """Delete a job: it runs no more."""
    with Surroundings.of(context).client(url, token) as client:
        try:
            client.delete(job, request=request)
        except Refused as error:
            # The API names its own parameter.
            raise fail(str(error).replace("mode=request", "--request"), REFUSED) from error
    typer.echo(f"deleted {job}")


@app.command()
def pause(
    context: typer.Context, job: JobId, if_match: IfMatch = None, url: Url = HERE, token: Token = ""
) -> None:
    """Have a recurring job start nothing by its schedule, until it is resumed."""
    with Surroundings.of(context).client(url, token) as client:
        paused = client.pause(job, version=if_match)
    _tell_revised(paused)


@app.command()
def resume(
    context: typer.Context, job: JobId, if_match: IfMatch = None, url: Url = HERE, token: Token = ""
) -> None:
    """Have a paused job go on with its first slot after now; nothing is made up for."""
    with Surroundings.of(context).client(url, token) as client:
        resumed = client.resume(job, version=if_match)
    _tell_revised(resumed)


@app.command()
def trigger(
    context: typer.Context,
    job: JobId,
    payload: Annotated[
        str | None,
        typer.Option(
            help="JSON in the place of the job's own; @FILE is read from there, @- here.",
            metavar="JSON",
        ),
    ] = None,
    key: Annotated[
        str, typer.Option(help="An idempotency key: with the same one, it runs only once.")
    ] = "",
    url: Url = HERE,
    token: Token = "",
) -> None:
    """Run a recurring job now, beside its schedule, also while it is paused."""
    said = UNCHANGED if payload is None else _payload(payload)
    with Surroundings.of(context).client(url, token) as client:
        execution = client.trigger(job, payload=said, key=key or None)
    typer.echo(f"{execution['execution_id']} runs {job} now")


@app.command()
def backfill(
    context: typer.Context,
    job: JobId,
    start: Annotated[str, typer.Option("--from", help="RFC 3339: slots then or later.")],
    end: Annotated[str, typer.Option("--to", help="RFC 3339, not after now: slots before it.")],
    most: Annotated[
        int,
        typer.Option("--max", help="Refuse more slots than that.", min=1, max=BACKFILL_MAX_SLOTS),
    ] = BACKFILL_SLOTS,
    spread: Annotated[
        int,
        typer.Option(
            help="Seconds that the runs are spread over, of a job that ALLOWs overlap.",
            min=0,
            max=int(BACKFILL_MAX_SPREAD.total_seconds()),
        ),
    ] = 0,
    again: Annotated[
        bool, typer.Option("--again", help="Run slots that ran, run or will, too.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell which they are.")] = False,
    key: Annotated[
        str, typer.Option(help="An idempotency key: with the same one, no slot runs twice.")
    ] = "",
    url: Url = HERE,
    token: Token = "",
    as_json: AsJson = False,
) -> None:
    """Run the slots that a recurring job's schedule has in a past interval."""
    wanted = {
        "from": start,
        "to": end,
        "max": most,
        "spread_seconds": spread,
        "skip_existing": not again,
        "dry_run": dry_run,
    }
    key = key or str(uuid4())
    if not dry_run:
        # Before anything is done: who is interrupted needs it to go on.
        typer.echo(f"--key {key} goes on with this, if it is interrupted", err=True)
    with Surroundings.of(context).client(url, token) as client:
        found = client.backfill(job, wanted, key=key)
    if as_json:
        terminal().print_json(data=found)
        return
    table = Table(column("SLOT"), column("EXECUTION"), column("RUN AT"), box=None)
    for run in found["runs"]:
        table.add_row(run["scheduled_for"], run["execution_id"] or "", run["run_at"])
    for left in found["skipped"]:
        table.add_row(left["scheduled_for"], left["execution_id"], f"skipped: {left['status']}")
    terminal().print(table)


@app.command()
def create(
    context: typer.Context,
    task: Annotated[str, typer.Argument(help="The name of the task that runs.")],
    payload: Annotated[
        str,
        typer.Option(
            help="JSON; @FILE is read from there, @- here. A large one is uploaded first.",
            metavar="JSON",
        ),
    ] = "{}",
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="FIELD=VALUE",
            help="Any other field, again and again: cron='0 2 * * 1-5', timezone=Asia/Tokyo, "
            "run_at=2030-01-01T09:00:00Z, retry_policy.factor=3. JSON, or else a text.",
        ),
    ] = None,
    key: Annotated[
        str, typer.Option(help="An idempotency key: with the same one, no second job is made.")
    ] = "",
    url: Url = HERE,
    token: Token = "",
) -> None:
    """Create a job; without a time among its fields it runs now."""
    body: dict[str, Any] = {"task": task, "payload": _payload(payload)}
    for setting in settings or []:
        _set(body, setting)
    with Surroundings.of(context).client(url, token) as client:
        accepted = client.create(body, key=key or None, forecast=True)
    what = "is there already" if accepted.is_replayed else "created"
    typer.echo(f"{accepted.job['job_id']} {what}")
    if first := accepted.job.get("execution_id"):
        # On a line of its own: the job's id stays the first word, and scripts read that.
        typer.echo(f"{first} is its execution")
    tell_warnings(accepted.job)


def tell_warnings(answer: Document) -> None:
    """What an answer warns of, beside what is printed for scripts."""
    for warning in answer.get("warnings", ()):
        typer.echo(f"warning: {warning['detail']}", err=True)


def _payload(text: str) -> object:
    if text.startswith("@"):
        name = text[1:]
        try:
            text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise fail(f"--payload @{name}: {error}", REFUSED) from error
    try:
        value: object = json.loads(text, parse_constant=_no_constant)
    except ValueError as error:
        raise fail(f"--payload: not JSON: {error}", REFUSED) from error
    return value


@app.command()
def update(
    context: typer.Context,
    job: JobId,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="FIELD=VALUE",
            help="JSON, or else a text; null is the default. retry_policy.factor=3 goes inside.",
        ),
    ] = None,
    patch: Annotated[
        typer.FileText | None,
        typer.Option("--json", metavar="FILE", help="The fields as a JSON object; - reads here."),
    ] = None,
    if_match: IfMatch = None,
    url: Url = HERE,
    token: Token = "",
) -> None:
    """Change a job; what it does not name stays, and nothing runs retroactively."""
    fields = _read(patch) if patch else {}
    for setting in settings or []:
        _set(fields, setting)
    if not fields:
        raise fail("nothing to change: give --set or --json", REFUSED)
    with Surroundings.of(context).client(url, token) as client:
        updated = client.update(job, fields, version=if_match)
    _tell_revised(updated)
    tell_warnings(updated)


def _tell_revised(job: Document) -> None:
    is_paused = ", PAUSED" if job["status"] == "PAUSED" else ""
    typer.echo(f"{job['job_id']} is at version {job['version']}{is_paused}")
    for execution in job["in_flight"]:
        typer.echo(f"{execution} had begun and runs as before")


def _read(file: TextIO) -> dict[str, Any]:
    try:
        fields: object = json.load(file, parse_constant=_no_constant)
    except ValueError as error:
        raise fail(f"--json: not JSON: {error}", REFUSED) from error
    if not isinstance(fields, dict):
        raise fail("--json: not a JSON object", REFUSED)
    return fields


def _set(fields: dict[str, Any], setting: str) -> None:
    """Put FIELD=VALUE among the fields, where its name says."""
    path, is_one, text = setting.partition("=")
    if not is_one:
        raise fail(f"--set {setting}: not FIELD=VALUE", REFUSED)
    *outer, name = path.strip().split(".")
    for one in outer:
        inner = fields.setdefault(one, {})
        if not isinstance(inner, dict):
            raise fail(f"--set {setting}: {one} has no fields here", REFUSED)
        fields = inner
    try:
        fields[name] = json.loads(text, parse_constant=_no_constant)
    except ValueError:
        fields[name] = text


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number in it")


def when(job: Document) -> str:
    """A job's schedule, as a list shows it."""
    said = job.get("cron") or job.get("rate") or job.get("at") or "once"
    zone = job.get("timezone", "UTC")
    return said if zone == "UTC" else f"{said} {zone}"
