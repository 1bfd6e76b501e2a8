"""`lamplighter export-trace` and `lamplighter check-trace`: what happened, and whether it may."""

import gzip
import io
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TextIO, TypeVar

import typer
from pydantic import BaseModel, ConfigDict, Field, PlainValidator, ValidationError

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
from lamplighter.core.buckets import JobId, execution_of
from lamplighter.core.errors import Damaged, Rejected, shown
from lamplighter.core.lifecycle import State
from lamplighter.core.limits import EXECUTION_KEPT
from lamplighter.core.model import Execution, OverlapPolicy
from lamplighter.core.retry import Kind
from lamplighter.core.schedule import format_instant, parse_instant
from lamplighter.core.status import Status
from lamplighter.core.trace import Account, Told, Trace, Try, Violation, Write, violations

if TYPE_CHECKING:
    from lamplighter.cli.exported import Exported
    from lamplighter.sim.simulation import Setup, Simulation

_SHOWN: Final = 50
_UNREADABLE_SHOWN: Final = 5
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

    Several files are parts of one history. Ends with 2 if no promise is broken in what could be
    read, but not all could.
    """
    reading = Reading()
    for file in files:
        _read(file, reading)
    if reading.is_empty:
        raise fail(f"nothing to check in {', '.join(map(str, files))}", REFUSED)
    trace = reading.trace()
    found = [*violations(trace)]
    accounted_for = len({one.job_id for one in trace.accounts})
    if as_json:
        said = [{"promise": one.promise, "of": one.of, "says": one.says} for one in found]
        rows = [one.document() for one in reading.unreadable]
        counts = {**reading.counts, "jobs_accounted_for": accounted_for}
        terminal().print_json(data={**counts, "violations": said, "unreadable_rows": rows})
    else:
        told = ", ".join(f"{count:,} {name}" for name, count in reading.counts.items())
        told += f", the slots of {accounted_for:,} jobs"
        _print(told, found, reading.unreadable)
    if found:
        raise typer.Exit(FAILED)
    if reading.unreadable:
        raise typer.Exit(REFUSED)


def _print(told: str, found: Sequence[Violation], unreadable: "Sequence[Unreadable]") -> None:
    for one in found[:_SHOWN]:
        typer.echo(str(one))
    if len(found) > _SHOWN:
        typer.echo(f"and {len(found) - _SHOWN:,} more: --json shows them")
    for row in unreadable[:_UNREADABLE_SHOWN]:
        typer.echo(str(row))
    if (rest := len(unreadable) - _UNREADABLE_SHOWN) > 0:
        typer.echo(f"and {rest:,} more rows: --json shows them")
    verdict = f"{len(found):,} promises broken" if found else "no promise was broken"
    if unreadable:
        verdict += f" in what could be read; {len(unreadable):,} rows could not be"
    typer.echo(f"{told}: {verdict}")


def _read(file: Path, into: "Reading") -> None:
    try:
        with _opened(file) as lines:
            for number, line in enumerate(lines, 1):
                into.file, into.line = str(file), number
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


def _an_instant(value: object) -> datetime:
    try:
        return parse_instant("", value if isinstance(value, str) else None)
    except Rejected as error:
        raise ValueError(error.reason) from None


class _Line(BaseModel):
    """What a line says, as much of it as is judged; what else it says may be anything."""

    model_config = ConfigDict(strict=True, frozen=True)


_Id = Annotated[str, Field(min_length=1)]
_Ordinal = Annotated[int, Field(ge=1)]
_Count = Annotated[int, Field(ge=0)]
_Instant = Annotated[datetime, PlainValidator(_an_instant)]
# By their values: JSON has no names of ours.
_State = Annotated[State, Field(strict=False)]
_Status = Annotated[Status, Field(strict=False)]
_Overlap = Annotated[OverlapPolicy, Field(strict=False)]
_Kind = Annotated[Kind, Field(strict=False)]


class _Job(_Line):
    job_id: _Id
    version: _Ordinal


class _Recurring(_Job):
    overlap_policy: _Overlap


class _Error(_Line):
    kind: _Kind


class _Attempt(_Line):
    number: _Ordinal
    started_at: _Instant
    finished_at: _Instant | None
    status: _State
    error: _Error | None


class _Execution(_Line):
    execution_id: _Id
    job_id: _Id
    job_version: _Ordinal
    status: _Status
    run_at: _Instant
    finished_at: _Instant | None
    result: Any
    attempts: list[_Attempt]


class _Ledger(_Line):
    job_id: _Id
    expected: _Count
    fired: _Count
    skipped: _Count
    cancelled: _Count
    expired: _Count
    pending: _Count
    missed: _Count


class _Write(_Line):
    at: _Instant
    execution_id: _Id
    job_version: _Ordinal
    state: _State
    attempt: _Ordinal
    token: str | None
    lease_until: _Instant | None
    due_at: _Instant
    has_been_tried: bool
    said: str


_Model = TypeVar("_Model", bound=_Line)


def _said(model: type[_Model], kind: str, document: object) -> _Model:
    """What a document says; raises Rejected, with the first field that is at fault."""
    try:
        return model.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
    field_ = ".".join([kind, *map(str, first["loc"])])
    reason = first["msg"].removeprefix("Value error, ")
    raise Rejected(field=field_, value=first["input"], reason=reason)


@dataclass(frozen=True, kw_only=True)
class Unreadable:
    """A row of a table that cannot be read back, and where it was."""

    file: str
    line: int
    why: Damaged

    def __str__(self) -> str:
        told = self.document()
        place = f"{self.file}: line {self.line}"
        return f"{place}: {told['item']} cannot be read back: {told['attribute'] or 'as a whole'}"

    def document(self) -> Mapping[str, str | int | None]:
        """As JSON; of a key that was damaged, what can be printed."""
        return {
            "file": _printable(self.file),
            "line": self.line,
            "item": f"{self.why.kind} {_printable(self.why.id)}",
            "attribute": self.why.attribute and _printable(self.why.attribute),
        }


def _printable(text: str) -> str:
    return text if text.isprintable() else shown(text)


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
    unreadable: list[Unreadable] = field(default_factory=list)
    file: str = ""
    line: int = 0
    """Where it is at."""

    def take(self, line: object) -> None:
        """Take one line's document in; raises ValueError and its like for what is none."""
        if not isinstance(line, dict) or len(line) != 1:
            raise ValueError("an object with one key is expected")
        ((kind, document),) = line.items()
        takes: Mapping[str, Callable[[object], None]] = {
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
        return not self.unreadable and not any(self.counts.values())

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
        """All of it. Of slots nothing is kept where a row that was left out may be theirs."""
        kept = [*self.exported.accounts()] if self.exported and not self.unreadable else []
        return Trace(
            executions=self.executions,
            writes=self.writes,
            accounts=[*self.accounts, *kept],
            alone=self.alone,
        )

    def _job(self, document: object) -> None:
        job = _said(_Job, "job", document)
        self.jobs += 1
        # A one-off has no policy, for there is nothing that it could overlap.
        if execution_of(JobId(job.job_id)) is None:
            recurring = _said(_Recurring, "job", document)
            if recurring.overlap_policy is not OverlapPolicy.ALLOW:
                self.alone[job.job_id] = job.version

    def _item(self, item: object) -> None:
        """A row of a table; of the kinds that nothing is promised of, nothing is taken."""
        # Only here: nothing else needs boto3.
        from lamplighter.cli.exported import Exported  # noqa: PLC0415

        self.exported = self.exported or Exported()
        try:
            row = self.exported.take(item)
        except Damaged as why:
            self.unreadable.append(Unreadable(file=self.file, line=self.line, why=why))
            return
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


def _told(document: object) -> Told:
    said = _said(_Execution, "execution", document)
    return Told(
        id=said.execution_id,
        job_id=said.job_id,
        job_version=said.job_version,
        state=_STATES.get(said.status),
        run_at=said.run_at,
        finished_at=said.finished_at,
        has_result=said.result is not None,
        tries=[
            Try(
                number=one.number,
                started_at=one.started_at,
                finished_at=one.finished_at,
                state=one.status,
                has_run=_has_run(one.status, one.error.kind if one.error else None),
            )
            for one in said.attempts
        ],
    )


def _has_run(state: State, error: str | None) -> bool:
    return state is State.SUCCEEDED or error not in {None, Kind.LOST_LEASE}


def _account(document: object) -> Account:
    counts = _said(_Ledger, "ledger", document).model_dump()
    job_id, expected = counts.pop("job_id"), counts.pop("expected")
    return Account(job_id=job_id, expected=expected, by_outcome=counts)


def _write(document: object) -> Write:
    said = _said(_Write, "write", document)
    return Write(
        at=said.at,
        id=said.execution_id,
        job_version=said.job_version,
        state=said.state,
        attempt=said.attempt,
        token=said.token,
        lease_until=said.lease_until,
        due_at=said.due_at,
        has_been_tried=said.has_been_tried,
        said=said.said,
    )


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
