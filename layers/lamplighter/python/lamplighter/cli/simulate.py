"""`lamplighter simulate`: histories full of faults, in which no promise may be broken."""

import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.table import Column, Table

from lamplighter.cli.surroundings import FAILED, REFUSED, AsJson, fail, terminal
from lamplighter.cli.tracing import record
from lamplighter.core.errors import Rejected

if TYPE_CHECKING:
    from lamplighter.sim.shrink import Minimal
    from lamplighter.sim.simulate import Report

_SHRUNK: Final = 1
_EVENTS_SHOWN: Final = 60
_LONGEST_LINE: Final = 200


def simulate(
    seed: Annotated[
        int | None,
        typer.Option(
            help="Of the first history; the others have those after it. Without one, a fresh one.",
            show_default=False,
            min=0,
        ),
    ] = None,
    executions: Annotated[int, typer.Option(help="How many to see, at least.", min=1)] = 5000,
    faults: Annotated[
        str, typer.Option(help="What may go wrong: all, none, or names with commas.")
    ] = "all",
    features: Annotated[
        str,
        typer.Option(
            help="What owners may make use of beside plain jobs: all, none, or names with commas."
        ),
    ] = "all",
    processes: Annotated[
        int | None,
        typer.Option(help="How many share the work; as many as cores.", show_default=False, min=1),
    ] = None,
    replays: Annotated[
        int,
        typer.Option(help="How often a history that fails is replayed to make it short.", min=0),
    ] = 100,
    history: Annotated[
        Path | None,
        typer.Option(
            help="Write the first history there, for check-trace.",
            show_default=False,
            dir_okay=False,
            writable=True,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Play histories full of faults in virtual time; end with 1 if any breaks a promise.

    The same seed is the same history, byte for byte. Needs the extra `sim`.
    """
    # Only here: greenlet is no dependency of anything else.
    try:
        from lamplighter.sim import features as known  # noqa: PLC0415
        from lamplighter.sim.decisions import parse  # noqa: PLC0415
        from lamplighter.sim.shrink import shrunk  # noqa: PLC0415
        from lamplighter.sim.simulate import simulate as run  # noqa: PLC0415
        from lamplighter.sim.simulation import Setup  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if error.name != "greenlet":
            raise
        raise fail("greenlet is missing: pip install 'lamplighter[cli,sim]'", REFUSED) from None
    try:
        chosen, used = parse(faults), known.parse(features)
    except Rejected as error:
        raise fail(str(error), REFUSED) from error
    first = secrets.randbelow(1_000_000_000) if seed is None else seed
    # To be read while it runs, or once it was killed.
    typer.echo(f"seed {first}", err=True)
    if history is not None:
        try:
            record(Setup(seed=first, faults=chosen, features=used), history)
        except OSError as error:
            raise fail(f"--history {history}: {error.strerror}", REFUSED) from error
    report = run(
        seed=first,
        executions=executions,
        faults=chosen,
        features=used,
        processes=processes,
        told=_tell_news(),
    )
    found = [
        shrunk(Setup(seed=failed, faults=chosen, features=used), violation.promise, replays=replays)
        for failed, violation in report.violations[:_SHRUNK]
        if replays > 0
    ]
    if as_json:
        terminal().print_json(data={**report.document(), "minimal": [*map(_document, found)]})
    else:
        _print(report, found)
    if report.violations:
        raise typer.Exit(FAILED)


def _tell_news() -> "Callable[[Report], None]":
    """Tell of broken promises when they are found: until all is played may take long."""
    told = 0

    def tell(report: "Report") -> None:
        nonlocal told
        for failed, violation in report.violations[told:]:
            typer.echo(f"seed {failed} breaks a promise: {violation.promise}", err=True)
        told = len(report.violations)

    return tell


def _document(found: "Minimal") -> dict[str, object]:
    return {
        "seed": found.setup.seed,
        "promise": found.violation.promise,
        "says": found.violation.says,
        "decisions": [*found.decisions],
        "history": [str(event) for event in found.events],
    }


def _print(report: "Report", found: "Sequence[Minimal]") -> None:
    table = Table(Column("FAULT"), Column("STRUCK", justify="right"), box=None)
    for fault, count in sorted(report.faults.items()):
        table.add_row(fault.value, f"{count:,}")
    terminal().print(table)
    speed = f"{report.executions_per_cpu_s:,.0f} a CPU second"
    typer.echo(
        f"seed {report.seed}: {report.executions:,} executions in {report.histories:,} "
        f"{'history' if report.histories == 1 else 'histories'}, "
        f"{report.events:,} events, {sum(report.faults.values()):,} faults, {speed}"
    )
    for seed, violation in report.violations:
        typer.echo(f"seed {seed} breaks a promise: {violation}")
    for one in found:
        _print_minimal(one)
    if not report.violations:
        typer.echo("no promise was broken")


def _print_minimal(found: "Minimal") -> None:
    typer.echo(f"\nseed {found.setup.seed}, as short as {found.replays} replays made it:")
    for decision in found.decisions:
        typer.echo(f"  {decision}")
    shown: Callable[[object], str] = lambda event: str(event)[:_LONGEST_LINE]  # noqa: E731
    for event in found.events[:_EVENTS_SHOWN]:
        typer.echo(f"  {shown(event)}")
    if (rest := len(found.events) - _EVENTS_SHOWN) > 0:
        typer.echo(f"  and {rest} events more: --json shows them")
