"""`lamplighter next` and `lamplighter explain`: what an expression means, without a server."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Annotated

import typer

from lamplighter.cli.surroundings import REFUSED, AsJson, Surroundings, fail, terminal
from lamplighter.core.errors import Rejected
from lamplighter.core.limits import PREVIEW_MAX_OCCURRENCES
from lamplighter.core.schedule import Kind, Schedule, explain, field_of, parse, parse_instant

Expression = Annotated[
    str,
    typer.Argument(
        metavar="EXPR",
        help="'30 2 * * *', 'cron(0 12 ? * 2 *)', 'rate(5 minutes)', 'every(2 weeks)' or 'at(…)'.",
    ),
]
Zone = Annotated[str, typer.Option("--tz", "--timezone", help="An IANA time zone.")]
Dialect = Annotated[
    str | None,
    typer.Option(help="unix or eventbridge; without it, only cron(…) is eventbridge."),
]
Gap = Annotated[str, typer.Option("--dst-gap", help="NEXT_VALID, SHIFT or SKIP.")]
Fold = Annotated[str, typer.Option("--dst-fold", help="FIRST, SECOND or BOTH.")]
Seed = Annotated[str, typer.Option(help="What H hashes: a job's id.")]
After = Annotated[
    str | None,
    typer.Option(
        help="RFC 3339; only what is later counts. Now, unless given.", show_default=False
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command("next")(next_occurrences)
    app.command("explain")(explain_expression)


def next_occurrences(
    context: typer.Context,
    expression: Expression,
    timezone: Zone = "UTC",
    after: After = None,
    count: Annotated[
        int, typer.Option("-n", "--count", min=1, max=PREVIEW_MAX_OCCURRENCES, help="How many.")
    ] = 5,
    dialect: Dialect = None,
    dst_gap: Gap = "NEXT_VALID",
    dst_fold: Fold = "FIRST",
    seed: Seed = "",
    as_json: AsJson = False,
) -> None:
    """Print when an expression is due next, in UTC. A rate is counted from --after."""
    try:
        start = _start(context, after)
        schedule = _schedule(expression, timezone, dialect, dst_gap, dst_fold, seed, start)
    except Rejected as refused:
        raise fail(str(refused), REFUSED) from refused
    found = list(islice(schedule.occurrences(start), count))
    if as_json:
        terminal().print_json(data={"occurrences": [_shown(instant) for instant in found]})
        return
    for line in _lines(found, schedule):
        typer.echo(line)


def explain_expression(
    context: typer.Context,
    expression: Expression,
    timezone: Zone = "UTC",
    dialect: Dialect = None,
    dst_gap: Gap = "NEXT_VALID",
    dst_fold: Fold = "FIRST",
    seed: Seed = "",
) -> None:
    """Say in plain words when an expression is due."""
    try:
        start = _start(context, None)
        schedule = _schedule(expression, timezone, dialect, dst_gap, dst_fold, seed, start)
    except Rejected as refused:
        raise fail(str(refused), REFUSED) from refused
    typer.echo(explain(schedule))


def _start(context: typer.Context, after: str | None) -> datetime:
    return Surroundings.of(context).now() if after is None else parse_instant("after", after)


def _schedule(
    text: str,
    timezone: str,
    dialect: str | None,
    dst_gap: str,
    dst_fold: str,
    seed: str,
    anchor: datetime,
) -> Schedule:
    kind = field_of(text)
    return parse(
        cron=text if kind is Kind.CRON else None,
        rate=text if kind is Kind.RATE else None,
        at=text if kind is Kind.AT else None,
        timezone=timezone,
        dialect=dialect,
        dst_gap=dst_gap,
        dst_fold=dst_fold,
        seed=seed,
        anchor=anchor,
    )


def _lines(found: list[datetime], schedule: Schedule) -> Iterator[str]:
    """Each instant, beside what a clock in the zone then shows."""
    zone = schedule.zones.zone(schedule.timezone)
    for instant in found:
        offset = zone.offset_at(instant)
        local = "" if schedule.timezone == "UTC" else f"  {_local(instant, offset)}"
        yield f"{_shown(instant)}{local}"
    if not found:
        yield "never"


def _local(instant: datetime, offset: timedelta) -> str:
    sign, minutes = ("-", -offset) if offset < timedelta(0) else ("+", offset)
    hours, rest = divmod(minutes // timedelta(minutes=1), 60)
    return f"{instant + offset:%a %Y-%m-%d %H:%M:%S} {sign}{hours:02}:{rest:02}"


def _shown(instant: datetime) -> str:
    """RFC 3339, with a fraction only where there is one."""
    precision = "milliseconds" if instant.microsecond else "seconds"
    return instant.astimezone(UTC).isoformat(timespec=precision).replace("+00:00", "Z")
