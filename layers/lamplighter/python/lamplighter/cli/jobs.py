"""`lamplighter jobs`: definitions."""

from typing import Annotated

import typer
from rich.table import Table

from lamplighter.cli.surroundings import HERE, AsJson, Surroundings, Token, Url, terminal
from lamplighter.client.http import Document

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
    table = Table("JOB", "NAME", "TASK", "WHEN", "NEXT", "STATUS", box=None)
    for job in found:
        table.add_row(
            job["job_id"],
            job.get("name") or "",
            job["task"],
            when(job),
            job["next_run_at"] or "",
            job["status"],
        )
    terminal().print(table)


@app.command()
def show(context: typer.Context, job: JobId, url: Url = HERE, token: Token = "") -> None:
    """Print a job with its latest executions, as JSON."""
    with Surroundings.of(context).client(url, token) as client:
        terminal().print_json(data=client.job(job))


@app.command()
def delete(context: typer.Context, job: JobId, url: Url = HERE, token: Token = "") -> None:
    """Delete a job: it runs no more."""
    with Surroundings.of(context).client(url, token) as client:
        client.delete(job)
    typer.echo(f"deleted {job}")


def when(job: Document) -> str:
    """A job's schedule, as a list shows it."""
    said = job.get("cron") or job.get("rate") or job.get("at") or "once"
    zone = job.get("timezone", "UTC")
    return said if zone == "UTC" else f"{said} {zone}"
