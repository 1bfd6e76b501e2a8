"""`lamplighter limits`: how many executions run at once, by lane, owner and task."""

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
from lamplighter.core.limits import LIMIT_MAX
from lamplighter.core.permits import Kind

app = typer.Typer(
    help="How many executions run at once, of everybody's jobs: for operators.",
    no_args_is_help=True,
)

OfKind = Annotated[Kind, typer.Argument(metavar="KIND", help="queue, owner or task.")]
Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="Of the lane, owner or task. Owner '*': each who has no limit."
    ),
]


@app.command("list")
def show(
    context: typer.Context, url: Url = HERE, token: Token = "", as_json: AsJson = False
) -> None:
    """List all limits, and how many run and wait under each."""
    with Surroundings.of(context).client(url, token) as client:
        found = client.limits()
    if as_json:
        terminal().print_json(data=found)
        return
    table = Table(
        *(column("KIND"), words("NAME"), column("LIMIT"), column("RUNNING"), column("WAITING")),
        box=None,
    )
    for one in found:
        numbers = (str(one[name]) for name in ("limit", "running", "waiting"))
        table.add_row(one["kind"], one["name"], *numbers)
    terminal().print(table)


@app.command("set")
def put(
    context: typer.Context,
    kind: OfKind,
    name: Name,
    limit: Annotated[
        int,
        typer.Argument(
            metavar="LIMIT", min=0, max=LIMIT_MAX, help="How many at once; 0: none starts."
        ),
    ],
    url: Url = HERE,
    token: Token = "",
) -> None:
    """Make or change a limit, from now on; what runs goes on."""
    with Surroundings.of(context).client(url, token) as client:
        found = client.set_limit(kind, name, limit)
    typer.echo(f"{kind}:{name}: {found['limit']} at once, {found['running']} run now")


@app.command("remove")
def remove(
    context: typer.Context, kind: OfKind, name: Name, url: Url = HERE, token: Token = ""
) -> None:
    """Let any number run at once again."""
    with Surroundings.of(context).client(url, token) as client:
        client.remove_limit(kind, name)
    typer.echo(f"{kind}:{name}: no limit")
