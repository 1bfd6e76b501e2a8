"""`lamplighter failover`: what an operator does once with tables that were restored."""

from typing import Annotated

import typer
from rich.table import Table

from lamplighter.cli.surroundings import FAILED, REFUSED, AsJson, column, fail, terminal
from lamplighter.core.buckets import Position, instant_of
from lamplighter.core.errors import Conflict, Rejected, Unavailable
from lamplighter.core.limits import DEFAULT_PARTITIONS, DEFAULT_SHARDS, MAX_SHARDS
from lamplighter.core.schedule import format_instant, parse_instant
from lamplighter.memory.telemetry import Counts
from lamplighter.services.failover import Prepared, prepare


def failover(
    executions_table: Annotated[str, typer.Option(help="The restored table of executions.")],
    jobs_table: Annotated[str, typer.Option(help="The restored table of jobs.")],
    control_table: Annotated[
        str, typer.Option(help="The restored control table, or an empty one.")
    ],
    restored_to: Annotated[
        str,
        typer.Option(
            help="RFC 3339: the instant that the executions are of; the other tables are of the "
            "same or a later one."
        ),
    ],
    sweep_from: Annotated[
        str | None,
        typer.Option(
            help="RFC 3339: how far back the sweep looks; an hour before, unless given. Earlier, "
            "if it lagged.",
            show_default=False,
        ),
    ] = None,
    shards: Annotated[
        int,
        typer.Option(help="Of an empty control table: the most there ever were.", max=MAX_SHARDS),
    ] = DEFAULT_SHARDS,
    partitions: Annotated[
        int, typer.Option(help="Of an empty control table.", min=1)
    ] = DEFAULT_PARTITIONS,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what it would do.")] = False,
    as_json: AsJson = False,
) -> None:
    """Have a stack go on from restored tables: before any of its functions runs.

    Goes by the AWS credentials and the region of the environment; needs Scan and DeleteItem of
    the jobs table beside what the functions may do. Doing it again changes nothing more.
    """
    # Only here: no other command talks to AWS.
    import boto3  # noqa: PLC0415
    from botocore.exceptions import BotoCoreError  # noqa: PLC0415

    from lamplighter.aws.failures import CallRefused  # noqa: PLC0415
    from lamplighter.aws.restored import DynamoRestored  # noqa: PLC0415
    from lamplighter.aws.wiring import CLIENT_CONFIG, operating  # noqa: PLC0415

    try:
        instant = parse_instant("--restored-to", restored_to)
        back_to = sweep_from and parse_instant("--sweep-from", sweep_from)
        dynamodb = boto3.client("dynamodb", config=CLIENT_CONFIG)
        ports = operating(
            dynamodb,
            executions_table=executions_table,
            jobs_table=jobs_table,
            control_table=control_table,
            telemetry=Counts(),
            shards=shards,
            partitions=partitions,
        )
        prepared = prepare(
            ports,
            DynamoRestored(dynamodb, table=jobs_table),
            restored_to=instant,
            sweep_from=back_to or None,
            dry_run=dry_run,
        )
    except (Conflict, Rejected, ValueError) as error:
        raise fail(str(error), REFUSED) from error
    except (BotoCoreError, CallRefused, Unavailable) as error:
        raise fail(str(error), FAILED) from error
    if as_json:
        terminal().print_json(data=_document(prepared))
        return
    _print(prepared, done="would be" if dry_run else "are")


def _print(prepared: Prepared, *, done: str) -> None:
    table = Table(
        *(column("WORK"), column("GENERATION"), column("PARTITION")),
        *(column("WAS AT"), column("GOES ON FROM")),
        box=None,
    )
    for one in prepared.works:
        work = one.work
        table.add_row(
            *(work.kind.value, str(work.generation), str(work.partition)),
            *(_at(one.restored.committed), _at(one.goes_on.committed)),
        )
    terminal().print(table)
    typer.echo(f"{len(prepared.begun)} jobs without a row {done} begun")
    typer.echo(f"{len(prepared.forgotten)} idempotency keys of what is lost {done} forgotten")


def _document(prepared: Prepared) -> dict[str, object]:
    return {
        "works": [
            {
                "kind": one.work.kind.value,
                "generation": one.work.generation,
                "partition": one.work.partition,
                "was_at": _at(one.restored.committed),
                "goes_on_from": _at(one.goes_on.committed),
            }
            for one in prepared.works
        ],
        "jobs_begun": [job.id for job in prepared.begun],
        "keys_forgotten": [
            {"owner": key.owner, "key": key.key, "job_id": key.job_id} for key in prepared.forgotten
        ],
    }


def _at(position: Position) -> str:
    return format_instant(instant_of(position))
