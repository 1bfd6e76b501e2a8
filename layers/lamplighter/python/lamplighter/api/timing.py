"""When a job is due: from the fields of its body to an instant, or to a schedule."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from lamplighter.api.bodies import REPETITION, SCHEDULE_FIELDS, WHEN, ZONE, JobBody
from lamplighter.api.problems import Faults
from lamplighter.api.reading import faults_of
from lamplighter.core.buckets import JobId
from lamplighter.core.errors import Rejected
from lamplighter.core.limits import MIN_INTERVAL
from lamplighter.core.schedule import PINNED, Schedule, check, parse, parse_instant
from lamplighter.core.schedule.instants import FIRST, parse_timestamp
from lamplighter.services.submit import ScheduleMaker

REPEATED: Final = "only with cron or rate"
"""Why a field is refused."""
_A_RATE: Final[Mapping[str, Any]] = {"rate": "1 day"}
"""A schedule that every other field may be said of."""
_FOREVER: Final = datetime.max.replace(tzinfo=UTC)
_SOME_JOB: Final = JobId("any")
"""What `H` hashes while a body is only read; no text is right for one job and not for another."""


@dataclass(frozen=True, kw_only=True)
class Timing:
    """When a job is due: at an instant, by a schedule, or, with neither, now."""

    run_at: datetime | None = None
    schedule: ScheduleMaker | None = None


TimingReader = Callable[[JobBody, datetime], Timing]


def kind_of(body: JobBody) -> str | None:
    """Which of the fields says when it is due; raises Faults for several."""
    given = body.said(*WHEN)
    if len(given) > 1:
        reason = f"at most one of {', '.join(WHEN)} may be given; none means now"
        raise Faults([Rejected(field=name, value=given[name], reason=reason) for name in given])
    return next(iter(given), None)


def timing_of_a_new_job(
    body: JobBody, now: datetime, *, min_interval: timedelta = MIN_INTERVAL
) -> Timing:
    """When a body's job is due."""
    kind = kind_of(body)
    if kind in {"cron", "rate"}:
        return Timing(schedule=_schedule(body, kind, now, min_interval))
    _refuse_repetition(body, has_wall_time=kind is not None)
    PINNED.zone(body.timezone)
    match kind:
        case "run_at":
            return Timing(run_at=_run_at(body))
        case "at":
            return Timing(run_at=_wall_time(body, "at"))
        case _:
            return Timing()


def _schedule(body: JobBody, kind: str, now: datetime, min_interval: timedelta) -> ScheduleMaker:
    def make(id: JobId, created_at: datetime) -> Schedule:
        return schedule_of(
            body, kind, seed=id, anchor=created_at, now=created_at, min_interval=min_interval
        )

    make(_SOME_JOB, now)
    return make


def schedule_of(
    body: JobBody,
    kind: str,
    *,
    seed: JobId,
    anchor: datetime | None,
    now: datetime,
    min_interval: timedelta = MIN_INTERVAL,
) -> Schedule:
    """The schedule that a body says by its field `kind`, for a job that goes by it from now on."""
    schedule = parsed_schedule(body, kind, seed=seed, anchor=anchor)
    check(schedule, now=now, min_interval=min_interval)
    return schedule


def parsed_schedule(body: JobBody, kind: str, *, seed: JobId, anchor: datetime | None) -> Schedule:
    """The same, whether or not it is ever due again."""
    return schedule_said(body.said(kind, *SCHEDULE_FIELDS), seed=seed, anchor=anchor)


def schedule_said(said: Mapping[str, Any], *, seed: str, anchor: datetime | None) -> Schedule:
    """The schedule that these fields say; raises Rejected, or Faults for several of them."""
    try:
        return parse(**said, seed=seed, anchor=anchor)
    except Rejected:
        faults = _each_alone(said, seed=seed)
        if len(faults) > 1:
            raise Faults(faults) from None
        raise


def _each_alone(said: Mapping[str, Any], *, seed: str) -> list[Rejected]:
    """What is wrong with each field whatever the others say."""
    dialect = {name: said[name] for name in ("dialect",) if name in said}
    is_read = not faults_of(lambda: parse(**_A_RATE, **dialect, anchor=FIRST))
    faults: list[Rejected] = []
    for name in said:
        rest = {} if name in WHEN else _A_RATE
        if is_read or name not in {"cron", "except_"}:
            alone = {**rest, **dialect} if is_read else rest
            one = partial(parse, **{**alone, name: said[name]}, seed=seed, anchor=FIRST)
            faults.extend(faults_of(one))
    return faults


def _refuse_repetition(body: JobBody, *, has_wall_time: bool) -> None:
    names = (*REPETITION, "name", *(() if has_wall_time else ("dst_gap", "dst_fold")))
    faults = [
        Rejected(field=name.rstrip("_"), value=value, reason=REPEATED)
        for name, value in body.said(*names).items()
    ]
    if faults:
        raise Faults(faults)


def _run_at(body: JobBody) -> datetime:
    is_wall_time = parse_timestamp("run_at", body.run_at).tzinfo is None
    if is_wall_time and "timezone" in body.model_fields_set:
        return _wall_time(body, "run_at")
    if is_wall_time:
        reason = "has no offset: end it with Z or +hh:mm, or give its timezone"
        raise Rejected(field="run_at", value=body.run_at, reason=reason)
    return parse_instant("run_at", body.run_at)


def _wall_time(body: JobBody, field: str) -> datetime:
    """The instant of a wall-clock time in the body's zone; an offset, where given, wins."""
    try:
        schedule = parse(at=getattr(body, field), **body.said(*ZONE))
    except Rejected as fault:
        named = field if fault.field == "at" else fault.field
        raise Rejected(field=named, value=fault.value, reason=fault.reason) from None
    instant = schedule.previous(_FOREVER)
    if instant is None:
        raise Rejected(field=field, value=getattr(body, field), reason="never comes")
    return instant
