"""`lamplighter export-trace` and `lamplighter check-trace`: what happened, and whether it may."""

import gzip
import io
import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TextIO

import typer

from lamplighter.cli.surroundings import (
    FAILED,
    HERE,
    REFUSED,
    AsJson,
    Surroundings,
    Token,
    Url,
    fail,
    terminal,
)
from lamplighter.core.buckets import execution_of
from lamplighter.core.errors import Rejected
from lamplighter.core.lifecycle import State
from lamplighter.core.limits import EXECUTION_KEPT
from lamplighter.core.model import Execution, OverlapPolicy
from lamplighter.core.retry import Kind
from lamplighter.core.schedule import format_instant, parse_instant
from lamplighter.core.trace import Account, Told, Trace, Try, Write, violations

if TYPE_CHECKING:
    from lamplighter.cli.exported import Exported
    from lamplighter.sim.simulation import Setup, Simulation

Document = Mapping[str, Any]
_OUTCOMES: Final = ("fired", "skipped", "cancelled", "expired", "pending", "missed")
_SHOWN: Final = 50
_LINE_SHOWN: Final = 80
_STATES: Final = {state.value: state for state in State}
_A_MINUTE: Final = timedelta(minutes=1)


def export_trace(
    context: typer.Context,
    url: Url = HERE,
    token: Token = "",
) -> None:
    """Print your jobs, executions and ledgers of the last week, one a line, for check-trace."""
    with Surroundings.of(context).client(url, token) as client:
        now = Surroundings.of(context).now()
        start, end = format_instant(now - EXECUTION_KEPT + _A_MINUTE), format_instant(now)
        for job in client.jobs():
            typer.echo(json.dumps({"job": job}))
            if execution_of(job["job_id"]) is None:
                ledger = client.ledger(job["job_id"], start=start, end=end)
                typer.echo(json.dumps({"ledger": ledger}))
        for execution in client.executions():
            typer.echo(json.dumps({"execution": execution}))


def check_trace(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="What export-trace printed, what `simulate --history` wrote, or an export of the "
            "tables to S3 in DynamoDB JSON; .gz, too.",
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Check a history against the table of transitions and the promises; end with 1 if any breaks.

    Several files are parts of one history.
    """
    reading = Reading()
    for file in files:
        _read(file, reading)
    if reading.is_empty:
        raise fail(f"nothing to check in {', '.join(map(str, files))}", REFUSED)
    trace = reading.trace()
    found = [*violations(trace)]
    if as_json:
        said = [{"promise": one.promise, "of": one.of, "says": one.says} for one in found]
        terminal().print_json(data={**reading.counts, "violations": said})
    else:
        for one in found[:_SHOWN]:
            typer.echo(str(one))
        if len(found) > _SHOWN:
            typer.echo(f"and {len(found) - _SHOWN:,} more: --json shows them")
        told = ", ".join(f"{count:,} {name}" for name, count in reading.counts.items())
        verdict = f"{len(found):,} promises broken" if found else "no promise was broken"
        typer.echo(f"{told}: {verdict}")
    if found:
        raise typer.Exit(FAILED)


def _read(file: Path, into: "Reading") -> None:
    try:
        with _opened(file) as lines:
            for number, line in enumerate(lines, 1):
                _read_line(line, into, place=f"{file}: line {number}")
    except OSError as error:
        raise fail(f"{file}: {error.strerror or error}", REFUSED) from error
    except (EOFError, UnicodeDecodeError, zlib.error) as error:
        raise fail(f"{file}: no text of UTF-8: {error}", REFUSED) from error


def _opened(file: Path) -> TextIO:
    if file.suffix == ".gz":
        return io.TextIOWrapper(gzip.GzipFile(file), encoding="utf-8")
    return file.open(encoding="utf-8")


def _read_line(line: str, into: "Reading", *, place: str) -> None:
    try:
        if line.strip():
            into.take(json.loads(line))
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError) as error:
        why = f"{type(error).__name__}: {error}"[:_LINE_SHOWN]
        raise fail(f"{place} is no part of a history: {why}", REFUSED) from error
    except (ValueError, Rejected) as error:
        raise fail(f"{place} is no part of a history: {error}", REFUSED) from error


@dataclass(kw_only=True)
class Reading:
    """A history, as much of it as was read."""

    executions: list[Told] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)
    accounts: list[Account] = field(default_factory=list)
    alone: dict[str, int] = field(default_factory=dict)
    jobs: int = 0
    exported: "Exported | None" = None
    """The rows of tables; None: there are none."""

    def take(self, line: object) -> None:
        """Take one line's document in; raises ValueError and its like for what is none."""
        if not isinstance(line, dict) or len(line) != 1:
            raise ValueError("an object with one key is expected")
        ((kind, document),) = line.items()
        takes: Mapping[str, Callable[[Document], None]] = {
            "job": self._job,
            "execution": lambda it: self.executions.append(_told(it)),
            "ledger": lambda it: self.accounts.append(_account(it)),
            "write": lambda it: self.writes.append(_write(it)),
            "Item": self._item,
        }
        if kind not in takes:
            raise ValueError(f"{kind[:20]!r} is none of {', '.join(takes)}")
        takes[kind](document)

    @property
    def is_empty(self) -> bool:
        return not any(self.counts.values())

    @property
    def counts(self) -> Mapping[str, int]:
        """How much of each there is."""
        return {
            "jobs": self.jobs,
            "executions": len(self.executions),
            "writes": len(self.writes),
            "ledgers": len(self.accounts),
        }

    def trace(self) -> Trace:
        kept = [*self.exported.accounts()] if self.exported else []
        return Trace(
            executions=self.executions,
            writes=self.writes,
            accounts=[*self.accounts, *kept],
            alone=self.alone,
        )

    def _job(self, document: Document) -> None:
        self.jobs += 1
        if document.get("overlap_policy", OverlapPolicy.ALLOW) != OverlapPolicy.ALLOW:
            self.alone[document["job_id"]] = document["version"]

    def _item(self, item: Document) -> None:
        """A row of a table; of the kinds that nothing is promised of, nothing is taken."""
        # Only here: nothing else needs boto3.
        from lamplighter.cli.exported import Exported  # noqa: PLC0415

        self.exported = self.exported or Exported()
        row = self.exported.take(item)
        if isinstance(row, Execution):
            self.executions.append(told_of(row))
        elif row is not None:
            self.jobs += 1
            if row.overlap is not OverlapPolicy.ALLOW:
                self.alone[row.id] = row.version


def told_of(row: Execution) -> Told:
    """An execution, of its row."""
    return Told(
        id=row.id,
        job_id=row.job_id,
        job_version=row.job_version,
        state=row.state,
        run_at=row.run_at,
        finished_at=row.finished_at,
        has_result=row.result is not None,
        tries=[
            Try(
                number=one.number,
                started_at=one.started_at,
                finished_at=one.finished_at,
                state=one.state,
                has_run=_has_run(one.state, one.error.kind if one.error else None),
            )
            for one in row.attempts
        ],
    )


def _told(document: Document) -> Told:
    return Told(
        id=document["execution_id"],
        job_id=document["job_id"],
        job_version=document["job_version"],
        state=_STATES.get(document["status"]),
        run_at=_instant(document["run_at"]),
        finished_at=_maybe(document["finished_at"]),
        has_result=document["result"] is not None,
        tries=[
            Try(
                number=one["number"],
                started_at=_instant(one["started_at"]),
                finished_at=_maybe(one["finished_at"]),
                state=State(one["status"]),
                has_run=_has_run(State(one["status"]), (one["error"] or {}).get("kind")),
            )
            for one in document["attempts"]
        ],
    )


def _has_run(state: State, error: str | None) -> bool:
    return state is State.SUCCEEDED or error not in {None, Kind.LOST_LEASE}


def _account(document: Document) -> Account:
    counts = {outcome: document[outcome] for outcome in _OUTCOMES}
    return Account(job_id=document["job_id"], expected=document["expected"], by_outcome=counts)


def _write(document: Document) -> Write:
    return Write(
        at=_instant(document["at"]),
        id=document["execution_id"],
        job_version=document["job_version"],
        state=State(document["state"]),
        attempt=document["attempt"],
        token=document["token"],
        lease_until=_maybe(document["lease_until"]),
        due_at=_instant(document["due_at"]),
        has_been_tried=document["has_been_tried"],
        said=document["said"],
    )


def _instant(text: str) -> datetime:
    return parse_instant("at", text)


def _maybe(text: str | None) -> datetime | None:
    return None if text is None else _instant(text)


@dataclass(kw_only=True)
class Recorder:
    """Writes a simulated history down, write by write."""

    file: TextIO
    simulation: "Simulation"

    def wrote(self, row: Execution) -> None:
        """Note a row that is about to be written."""
        said = [row.attempts, row.result, row.error, row.finished_at, row.reason]
        self._line(
            "write",
            {
                "at": format_instant(self.simulation.world.now()),
                "execution_id": row.id,
                "job_version": row.job_version,
                "state": row.state,
                "attempt": row.attempt,
                "token": row.token and row.token[:8],
                "lease_until": row.lease_until and format_instant(row.lease_until),
                "due_at": format_instant(row.next_run_at or row.run_at),
                "has_been_tried": bool(row.attempts),
                "said": str(said) if row.is_final else "",
            },
        )

    def end(self) -> None:
        """Note what there is in the end: executions, jobs and ledgers as the API shows them."""
        from lamplighter.api import accounting, render  # noqa: PLC0415 -- only for a history
        from lamplighter.core.status import status_of  # noqa: PLC0415
        from lamplighter.services.completeness import account  # noqa: PLC0415
        from lamplighter.services.inspect import Recurring, Seen  # noqa: PLC0415

        tables, now = self.simulation.world.tables, self.simulation.world.now()
        for row in tables.executions.values():
            seen = Seen(row=row, status=status_of(row, dispatched=False))
            self._line("execution", render.execution(seen))
        for job in tables.jobs.values():
            self._line("job", render.job(Recurring(job=job, next_run_at=None)))
            place = None
            while True:
                part = account(
                    self.simulation.ports(),
                    job.owner,
                    job.id,
                    start=job.created_at,
                    end=now,
                    after=place,
                )
                self._line("ledger", accounting.rendered(part, next_cursor=None))
                place = part.next
                if place is None:
                    break

    def _line(self, kind: str, document: object) -> None:
        self.file.write(json.dumps({kind: document}) + "\n")


def record(setup: "Setup", file: Path) -> None:
    """Play one history, and write it down for check-trace."""
    from lamplighter.sim.simulation import Simulation  # noqa: PLC0415 -- greenlet

    with file.open("w", encoding="utf-8") as opened:
        simulation = Simulation(setup)
        recorder = Recorder(file=opened, simulation=simulation)
        simulation.watch.seen = recorder.wrote
        simulation.run()
        recorder.end()
