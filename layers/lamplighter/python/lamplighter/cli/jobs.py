"""`lamplighter jobs`: definitions."""

from typing import Annotated

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
from lamplighter.client.http import Document, Refused

app = typer.Typer(help="Look at jobs, and delete them.", no_args_is_help=True)

JobId = Annotated[str, typer.Argument(metavar="JOB", help="A job's id.")]


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


def when(job: Document) -> str:
    """A job's schedule, as a list shows it."""
    said = job.get("cron") or job.get("rate") or job.get("at") or "once"
    zone = job.get("timezone", "UTC")
    return said if zone == "UTC" else f"{said} {zone}"
