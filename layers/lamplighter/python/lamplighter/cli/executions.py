"""`lamplighter executions`: what ran, what runs, what will."""

from itertools import islice
from typing import Annotated

import typer
from rich.table import Table

from lamplighter.cli.surroundings import (
    HERE,
    AsJson,
    Surroundings,
    Token,
    Url,
    column,
    terminal,
    words,
)
from lamplighter.client.http import Document

app = typer.Typer(help="Look at executions.", no_args_is_help=True)


@app.command("list")
def list_executions(
    context: typer.Context,
    status: Annotated[
        str | None, typer.Option(help="Only those with this status, in our words or another's.")
    ] = None,
    job: Annotated[str | None, typer.Option(help="Only those of this job.")] = None,
    limit: Annotated[int, typer.Option(help="How many at most.", min=1)] = 20,
    url: Url = HERE,
    token: Token = "",
    as_json: AsJson = False,
) -> None:
    """List your executions, newest first."""
    with Surroundings.of(context).client(url, token) as client:
        found = [*islice(client.executions(status=status, job=job), limit)]
    if as_json:
        terminal().print_json(data=found)
        return
    table = Table(
        *(column("EXECUTION"), words("TASK"), column("STATUS"), column("RUN AT")),
        *(column("LATE"), column("ATTEMPT"), words("ERROR")),
        box=None,
    )
    for execution in found:
        table.add_row(*_row(execution))
    terminal().print(table)


@app.command()
def show(
    context: typer.Context,
    execution: Annotated[str, typer.Argument(metavar="EXECUTION", help="An execution's id.")],
    url: Url = HERE,
    token: Token = "",
) -> None:
    """Print an execution with its attempts, as JSON."""
    with Surroundings.of(context).client(url, token) as client:
        terminal().print_json(data=client.execution(execution))


def _row(execution: Document) -> tuple[str, ...]:
    late = execution["lateness_ms"]
    error = execution["error"]
    return (
        execution["execution_id"],
        execution["task"],
        execution["status"],
        execution["run_at"],
        "" if late is None else f"{late / 1000:.3f} s",
        str(execution["attempt"] or ""),
        "" if error is None else _line(f"{error['type']}: {error['message']}"),
    )


def _line(text: str) -> str:
    """An error may have been told in several lines; a row is one."""
    return " ".join(text.split())
