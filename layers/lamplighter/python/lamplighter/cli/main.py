"""`lamplighter`: what people type."""

from datetime import timedelta
from typing import Annotated

import typer

from lamplighter.cli import (
    accounting,
    crontab,
    executions,
    failover,
    jobs,
    limits,
    schedule,
    simulate,
    tracing,
    tz_diff,
    worker,
)
from lamplighter.cli.surroundings import FAILED, an_owner, fail
from lamplighter.version import VERSION

app = typer.Typer(
    name="lamplighter",
    help="Lights every job on time: a distributed job scheduler in your own AWS account.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
imports = typer.Typer(help="Take over what another scheduler runs.", no_args_is_help=True)
imports.command("crontab")(crontab.import_crontab)
app.add_typer(imports, name="import")
app.add_typer(jobs.app, name="jobs")
app.add_typer(executions.app, name="executions")
app.add_typer(limits.app, name="limits")
schedule.register(app)
app.command("ledger")(accounting.ledger)
app.command("forecast")(accounting.forecast)
app.command("progress")(accounting.progress)
app.command("recover")(accounting.recover)
app.command("failover")(failover.failover)
app.command("tz-diff")(tz_diff.tz_diff)
app.command("simulate")(simulate.simulate)
app.command("export-trace")(tracing.export_trace)
app.command("check-trace")(tracing.check_trace)
app.command("worker")(worker.worker)


def _tell_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"lamplighter {VERSION}")
        raise typer.Exit


Owner = Annotated[
    str, typer.Option(help="Whose jobs these are: the token's subject.", callback=an_owner)
]


@app.callback()
def lamplighter(
    *,
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_tell_version, is_eager=True),
    ] = False,
) -> None:
    """What is common to all commands; its help stands at the top."""


@app.command()
def run(
    port: Annotated[
        int,
        typer.Option(envvar="LAMPLIGHTER_PORT", help="Where the API answers.", min=1, max=65535),
    ] = 8080,
    owner: Owner = "me",
    shell_owner: Annotated[
        list[str] | None,
        typer.Option(
            envvar="LAMPLIGHTER_SHELL_OWNERS",
            help="An owner whose jobs may run shell commands here; may be repeated, or several "
            "with commas. Unless given, as shell_owners in cdk.json.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Run the whole product on this machine, until Ctrl-C."""
    # Only here: an emulator and its clients are nothing that other commands need.
    from lamplighter.local.run import main  # noqa: PLC0415

    named = [name.strip() for said in shell_owner or [] for name in said.split(",")]
    raise typer.Exit(main(port=port, owner=owner, shell_owners=[*filter(None, named)]))


@app.command()
def token(
    owner: Owner,
    hours: Annotated[float, typer.Option(help="How long it is good for.", min=0.01, max=8760)] = 12,
) -> None:
    """Print a bearer token for the local stack."""
    from lamplighter.local.errors import CannotRun  # noqa: PLC0415 -- as above
    from lamplighter.local.issuer import mint  # noqa: PLC0415

    try:
        typer.echo(mint(owner=owner, ttl=timedelta(hours=hours)))
    except CannotRun as error:
        raise fail(str(error), FAILED) from error
