"""`lamplighter ledger` and `lamplighter recover`: what became of it all, and what would."""

from typing import Annotated

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
from lamplighter.client.http import Document
from lamplighter.core.limits import FORECAST_MOST_PER_SECOND


def ledger(
    context: typer.Context,
    job: Annotated[str, typer.Argument(metavar="JOB", help="A recurring job's id.")],
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="RFC 3339: slots then or later. A day before --to, unless given.",
            show_default=False,
        ),
    ] = None,
    end: Annotated[
        str | None,
        typer.Option(
            "--to", help="RFC 3339: slots before it. Now, unless given.", show_default=False
        ),
    ] = None,
    url: Url = HERE,
    token: Token = "",
    as_json: AsJson = False,
) -> None:
    """Account for every slot that a job planned; end with 1 if any is missed."""
    with Surroundings.of(context).client(url, token) as client:
        found = client.ledger(job, start=start, end=end)
    if as_json:
        terminal().print_json(data=found)
    else:
        table = Table(
            *(column("OUTCOME"), words("REASON"), column("COUNT"), column("FIRST")),
            column("LAST"),
            box=None,
        )
        for one in found["groups"]:
            table.add_row(
                *(one["outcome"], one["reason"], str(one["count"])), one["first"], one["last"]
            )
        table.add_row("EXPECTED", "", str(found["expected"]), found["from"], found["to"])
        terminal().print(table)
    if found["forgotten_before"]:
        typer.echo(f"what was before {found['forgotten_before']} is forgotten", err=True)
    for version in found["unreadable_versions"]:
        typer.echo(f"version {version} of the job cannot be read: none of it counts", err=True)
    if found["missed"]:
        raise typer.Exit(FAILED)


def forecast(
    context: typer.Context,
    start: Annotated[
        str | None,
        typer.Option("--from", help="RFC 3339. Now, unless given.", show_default=False),
    ] = None,
    end: Annotated[
        str | None,
        typer.Option(
            "--to",
            help="RFC 3339, at most a day later. In an hour, unless given.",
            show_default=False,
        ),
    ] = None,
    per_second: Annotated[
        float | None,
        typer.Option(
            help="How many executions can start in a second, as if there were one lane; what "
            "each of the stack's can, unless given.",
            min=0.001,
            max=FORECAST_MOST_PER_SECOND,
            show_default=False,
        ),
    ] = None,
    url: Url = HERE,
    token: Token = "",
    as_json: AsJson = False,
) -> None:
    """Tell how many of your executions are due in each minute, and how late that makes them."""
    with Surroundings.of(context).client(url, token) as client:
        found = client.forecast(start=start, end=end, per_second=per_second)
    if as_json:
        terminal().print_json(data=found)
        return
    table = Table(
        *(column("MINUTE"), words("LANE"), column("DUE"), column("IN ONE SECOND")),
        column("LATE BY"),
        box=None,
    )
    judged = found["lanes"] if per_second is None else [{**found, "queue": "all"}]
    rows = [(one["minute"], lane, one) for lane in judged for one in lane["minutes"]]
    for minute, lane, one in sorted(rows, key=lambda row: (row[0], row[1]["queue"])):
        late = {late["minute"]: late["lateness_seconds"] for late in lane["late"]}
        table.add_row(
            *(minute, lane["queue"], str(one["planned"]), str(one["busiest_second"])),
            f"{late[minute]:.0f} s" if minute in late else "",
        )
    terminal().print(table)
    if per_second is not None:
        typer.echo(_advice(found))
        return
    for lane in judged:
        typer.echo(f"{lane['queue']}: {_advice(lane)}")
    if not judged:
        typer.echo("nothing is due")


def _advice(found: Document) -> str:
    capacity = f"{found['per_second']:g} a second"
    if not found["late"]:
        return f"{found['planned']} due; at {capacity} all start in time"
    window = found["flexible_window_seconds"]
    told = (
        f"{found['planned']} due; at {capacity} up to {found['worst_lateness_seconds']:.0f} s late"
    )
    if window is None:
        return f"{told}; it is more than that for as long as this looks: no window helps"
    return f"{told}; flexible_window_seconds={window} on the jobs of those minutes would do"


def progress(
    context: typer.Context,
    url: Url = HERE,
    token: Token = "",
    as_json: AsJson = False,
) -> None:
    """Tell how far dispatch has come, and when a backlog will be over."""
    with Surroundings.of(context).client(url, token) as client:
        found = client.progress()
    if as_json:
        terminal().print_json(data=found)
        return
    terminal().print(f"Dispatched until {found['due_until']}.")
    if backlog := found["backlog"]:
        ends_at = backlog["ends_at"] or "not known yet"
        terminal().print(
            f"Of what was due until {backlog['until']}, since {backlog['since']}: "
            f"{backlog['share_done']:.0%} dispatched, {backlog['sent']} executions, "
            f"at {backlog['oldest']}. Over: {ends_at}."
        )


def recover(
    context: typer.Context,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Tell what would run; there is nothing else.")
    ] = False,
    url: Url = HERE,
    token: Token = "",
    as_json: AsJson = False,
) -> None:
    """Tell what of your recurring jobs would run if dispatch came back now."""
    if not dry_run:
        raise fail("dispatch recovers by itself; --dry-run tells what it would do", REFUSED)
    with Surroundings.of(context).client(url, token) as client:
        found = [*client.recovery()]
    if as_json:
        terminal().print_json(data=found)
        return
    table = Table(
        *(column("JOB"), words("NAME"), column("POLICY"), column("RUNS"), column("NOT RUN")),
        *(column("FIRST"), column("LAST"), column("STARTS BY"), column("DEADLINE")),
        box=None,
    )
    for job in found:
        more = "" if job["is_exact"] else "+"
        table.add_row(
            *(job["job_id"], job["name"] or "", job["misfire_policy"]),
            *(f"{job['runs']}{more}", f"{job['not_run']}{more}"),
            *(job[name] or "" for name in ("first", "last", "last_starts_at", "deadline")),
        )
    terminal().print(table)
