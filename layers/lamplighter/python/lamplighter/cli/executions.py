"""`lamplighter executions`: what ran, what runs, what will; taken back, or run again."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Annotated, NoReturn
from uuid import uuid4

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
from lamplighter.client.http import UNCHANGED, Document

app = typer.Typer(help="Look at executions, take them back, run them again.", no_args_is_help=True)

ExecutionId = Annotated[str, typer.Argument(metavar="EXECUTION", help="An execution's id.")]
Key = Annotated[
    str, typer.Option(help="An idempotency key: with the same one, nothing is replayed twice.")
]
Status = Annotated[
    str, typer.Option(help="With this status, in our words or another's; commas between several.")
]
Task = Annotated[str, typer.Option(help="Of this task.")]
Queue = Annotated[str, typer.Option(help="In this lane.")]
From = Annotated[str, typer.Option("--from", help="RFC 3339: due then or later.")]
To = Annotated[str, typer.Option("--to", help="RFC 3339: due before that.")]
OfJob = Annotated[str, typer.Option("--job", help="Of this job.")]
ErrorType = Annotated[str, typer.Option(help="Whose latest error is of this type.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only tell which they are.")]


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
    context: typer.Context, execution: ExecutionId, url: Url = HERE, token: Token = ""
) -> None:
    """Print an execution with its attempts, as JSON."""
    with Surroundings.of(context).client(url, token) as client:
        terminal().print_json(data=client.execution(execution))


@app.command()
def cancel(
    context: typer.Context, execution: ExecutionId, url: Url = HERE, token: Token = ""
) -> None:
    """Cancel an execution that waits, or ask one that runs to stop."""
    with Surroundings.of(context).client(url, token) as client:
        document = client.cancel(execution)
    is_over = document["status"] == "CANCELLED"
    typer.echo(f"cancelled {execution}" if is_over else f"asked {execution} to stop")


@app.command()
def replay(
    context: typer.Context,
    execution: ExecutionId,
    payload: Annotated[
        str | None, typer.Option(help="JSON, in the place of its own payload.")
    ] = None,
    key: Key = "",
    url: Url = HERE,
    token: Token = "",
) -> None:
    """Run an execution that has ended again, as a new one."""
    said = UNCHANGED if payload is None else _json(payload)
    with Surroundings.of(context).client(url, token) as client:
        document = client.replay(execution, payload=said, key=key or None)
    typer.echo(f"replayed {execution} as {document['execution_id']}")


@app.command("cancel-all")
def cancel_all(
    context: typer.Context,
    status: Status = "",
    task: Task = "",
    queue: Queue = "",
    start: From = "",
    end: To = "",
    job: OfJob = "",
    error_type: ErrorType = "",
    dry_run: DryRun = False,
    url: Url = HERE,
    token: Token = "",
) -> None:
    """Cancel all executions that the options let through; their jobs go on."""
    wanted = _wanted(
        status=status,
        task=task,
        queue=queue,
        job_id=job,
        error_type=error_type,
        **{"from": start, "to": end},
    )
    with Surroundings.of(context).client(url, token) as client:
        _tell(client.cancel_all(wanted, dry_run=dry_run))


@app.command("replay-all")
def replay_all(
    context: typer.Context,
    status: Status = "",
    task: Task = "",
    queue: Queue = "",
    start: From = "",
    end: To = "",
    job: OfJob = "",
    error_type: ErrorType = "",
    dry_run: DryRun = False,
    key: Key = "",
    url: Url = HERE,
    token: Token = "",
) -> None:
    """Replay all executions that the options let through: unless said, what needs attention."""
    wanted = _wanted(
        status=status,
        task=task,
        queue=queue,
        job_id=job,
        error_type=error_type,
        **{"from": start, "to": end},
    )
    key = key or str(uuid4())
    if not dry_run:
        # Before anything is done: who is interrupted needs it to go on.
        typer.echo(f"--key {key} goes on with this, if it is interrupted", err=True)
    with Surroundings.of(context).client(url, token) as client:
        _tell(client.replay_all(wanted, key=key, dry_run=dry_run))


def _wanted(**said: str) -> Mapping[str, str]:
    return {name: text for name, text in said.items() if text}


def _tell(answers: Iterator[Document]) -> None:
    """A line for each as it is done, and how many there were; fails if any was refused."""
    counts: Counter[str] = Counter()
    for answer in answers:
        counts[answer["outcome"]] += 1
        problem = answer["problem"] or {}
        more = answer["new_execution_id"] or problem.get("detail") or ""
        typer.echo(f"{answer['execution_id']}  {answer['outcome']}  {more}".rstrip())
    told = ", ".join(f"{count} {outcome.lower()}" for outcome, count in counts.items())
    typer.echo(told or "none matched", err=True)
    if counts["REFUSED"]:
        raise typer.Exit(FAILED)


def _json(text: str) -> object:
    try:
        value: object = json.loads(text, parse_constant=_no_constant)
    except ValueError as error:
        raise fail(f"--payload is no JSON: {error}", REFUSED) from error
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number in it")


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
