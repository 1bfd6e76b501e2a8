"""The body of `POST /v1/jobs`: from JSON to a NewJob, or to every fault in it.

The models name the fields and their types, strictly: no number for a text, and null for
nothing but a payload. What a value has to be beyond its type is the core's to say.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from hashlib import sha256
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lamplighter.api.problems import Faults
from lamplighter.api.strict_json import canonical, compact
from lamplighter.core.buckets import JobId
from lamplighter.core.errors import Rejected
from lamplighter.core.limits import DEFAULT_TIMEOUT, FAULTS_NAMED, MAX_TIMEOUT
from lamplighter.core.model import MisfirePolicy, Owner, Payload, Spec, check_name
from lamplighter.core.retry import RetryPolicy
from lamplighter.core.schedule import PINNED, Schedule, check, parse, parse_instant
from lamplighter.core.schedule.instants import parse_timestamp
from lamplighter.services.submit import NewJob, ScheduleMaker

_WHEN: Final = ("run_at", "cron", "rate", "at")
_ZONE: Final = ("timezone", "dst_gap", "dst_fold")
_REPETITION: Final = ("dialect", "start_at", "end_at", "max_occurrences", "except_")
_FOREVER: Final = datetime.max.replace(tzinfo=UTC)
_HINT_MAX_CHARS: Final = 64
_SOME_JOB: Final = JobId("any")
"""What `H` hashes while a body is only read; no text is right for one job and not for another."""


class Body(BaseModel):
    """Strict: nothing is converted, and what is unknown is refused by name."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    def said(self, *names: str) -> dict[str, Any]:
        """Those of the fields that the request has."""
        return {name: getattr(self, name) for name in names if name in self.model_fields_set}


class RetryPolicyBody(Body):
    """When a failed try is followed by another; what is left out has the core's default."""

    max_attempts: int = 0
    base_seconds: float = 0
    factor: float = 0
    max_seconds: float = 0


class JobBody(Body):
    """A job to be: a task, and at most one of `run_at`, `cron`, `rate` and `at`; none: now."""

    task: str
    payload: object = Field(default_factory=dict)
    queue: str = "default"
    run_at: str = ""
    cron: str = ""
    rate: str = ""
    at: str = ""
    timezone: str = "UTC"
    dialect: str = ""
    dst_gap: str = ""
    dst_fold: str = ""
    start_at: str = ""
    end_at: str = ""
    max_occurrences: int = 0
    except_: list[str] = Field(default=[], alias="except")
    misfire_policy: str = MisfirePolicy.FIRE_ONCE.value
    retry_policy: RetryPolicyBody = RetryPolicyBody()
    timeout_seconds: Annotated[float, Field(ge=1, le=MAX_TIMEOUT.total_seconds())] = (
        DEFAULT_TIMEOUT.total_seconds()
    )
    name: str = ""


@dataclass(frozen=True, kw_only=True)
class Timing:
    """When a job is due: at an instant, by a schedule, or, with neither, now."""

    run_at: datetime | None = None
    schedule: ScheduleMaker | None = None


def fingerprint(body: object) -> str:
    """A digest of a body that is the same however its JSON was written."""
    return sha256(canonical(body).encode()).hexdigest()


def new_job(
    value: object,
    *,
    owner: Owner,
    lanes: Collection[str],
    now: datetime,
    traceparent: str | None = None,
) -> NewJob:
    """The job that a body asks for; raises Faults, with all that is wrong in it."""
    body = _read(value)
    parts: tuple[Callable[[], object], ...] = (
        lambda: check_name("task", body.task),
        lambda: _payload(body),
        lambda: _lane(body, lanes),
        lambda: _retry(body),
        lambda: _timing(body, now),
        lambda: _misfire(body),
        lambda: _name(body),
    )
    faults = [fault for part in parts for fault in _faults_of(part)]
    if faults:
        raise Faults(faults)
    timing = _timing(body, now)
    return NewJob(
        owner=owner,
        spec=Spec(
            task=body.task,
            payload=_payload(body),
            queue=_lane(body, lanes),
            retry=_retry(body),
            timeout=timedelta(seconds=body.timeout_seconds),
        ),
        run_at=timing.run_at,
        schedule=timing.schedule,
        misfire=_misfire(body),
        name=_name(body),
        traceparent=traceparent,
    )


def _read(value: object) -> JobBody:
    if not isinstance(value, dict):
        raise Rejected(field="body", value=value, reason="not a JSON object")
    try:
        return JobBody.model_validate(value)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False)
        raise Faults([_fault(one) for one in found[:FAULTS_NAMED]]) from None


def _fault(error: Mapping[str, Any]) -> Rejected:
    path = [str(part) for part in error["loc"]]
    match error["type"]:
        case "missing":
            value, reason = None, "required"
        case "extra_forbidden":
            value, reason = error["input"], f"unknown field{_hint(path)}"
        case _:
            value, reason = error["input"], str(error["msg"])
    return Rejected(field=".".join(path), value=value, reason=reason)


def _hint(path: list[str]) -> str:
    known = RetryPolicyBody if len(path) > 1 else JobBody
    names = [field.alias or name for name, field in known.model_fields.items()]
    near = get_close_matches(path[-1][:_HINT_MAX_CHARS], names, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _faults_of(part: Callable[[], object]) -> list[Rejected]:
    try:
        part()
    except Rejected as fault:
        return [fault]
    except Faults as several:
        return [*several.faults]
    return []


def _payload(body: JobBody) -> Payload:
    return Payload.of(compact(body.payload))


def _lane(body: JobBody, lanes: Collection[str]) -> str:
    if body.queue not in lanes:
        known = ", ".join(sorted(lanes))
        raise Rejected(field="queue", value=body.queue, reason=f"no such queue; there are {known}")
    return body.queue


def _retry(body: JobBody) -> RetryPolicy:
    policy = body.retry_policy
    return RetryPolicy(**policy.said(*RetryPolicyBody.model_fields))


def _misfire(body: JobBody) -> MisfirePolicy:
    try:
        return MisfirePolicy(body.misfire_policy.upper())
    except ValueError:
        reason = f"not one of {', '.join(MisfirePolicy)}"
        raise Rejected(field="misfire_policy", value=body.misfire_policy, reason=reason) from None


def _name(body: JobBody) -> str | None:
    if "name" not in body.model_fields_set:
        return None
    check_name("name", body.name)
    return body.name


def _timing(body: JobBody, now: datetime) -> Timing:
    given = body.said(*_WHEN)
    if len(given) > 1:
        reason = f"at most one of {', '.join(_WHEN)} may be given; none means now"
        raise Faults([Rejected(field=name, value=given[name], reason=reason) for name in given])
    kind = next(iter(given), None)
    if kind in {"cron", "rate"}:
        return Timing(schedule=_schedule(body, kind, now))
    _refuse_repetition(body, has_wall_time=kind is not None)
    PINNED.zone(body.timezone)
    match kind:
        case "run_at":
            return Timing(run_at=_run_at(body))
        case "at":
            return Timing(run_at=_wall_time(body, "at"))
        case _:
            return Timing()


def _schedule(body: JobBody, kind: str, now: datetime) -> ScheduleMaker:
    said = body.said(kind, *_ZONE, *_REPETITION)

    def make(id: JobId, created_at: datetime) -> Schedule:
        schedule = parse(**said, seed=id, anchor=created_at)
        check(schedule, now=created_at)
        return schedule

    make(_SOME_JOB, now)
    return make


def _refuse_repetition(body: JobBody, *, has_wall_time: bool) -> None:
    names = (*_REPETITION, "name", *(() if has_wall_time else ("dst_gap", "dst_fold")))
    reason = "only with cron or rate"
    faults = [
        Rejected(field=name.rstrip("_"), value=value, reason=reason)
        for name, value in body.said(*names).items()
    ]
    if faults:
        raise Faults(faults)


def _run_at(body: JobBody) -> datetime:
    is_wall_time = parse_timestamp("run_at", body.run_at).tzinfo is None
    if is_wall_time and "timezone" in body.model_fields_set:
        return _wall_time(body, "run_at")
    return parse_instant("run_at", body.run_at)


def _wall_time(body: JobBody, field: str) -> datetime:
    """The instant of a wall-clock time in the body's zone; an offset, where given, wins."""
    try:
        schedule = parse(at=getattr(body, field), **body.said(*_ZONE))
    except Rejected as fault:
        named = field if fault.field == "at" else fault.field
        raise Rejected(field=named, value=fault.value, reason=fault.reason) from None
    instant = schedule.previous(_FOREVER)
    if instant is None:
        raise Rejected(field=field, value=getattr(body, field), reason="never comes")
    return instant
