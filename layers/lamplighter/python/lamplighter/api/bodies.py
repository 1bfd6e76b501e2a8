"""The body of `POST /v1/jobs`: from JSON to a NewJob, or to every fault in it.

The models name the fields and their types, strictly: no number for a text, and null for
nothing but a payload. What a value has to be beyond its type is the core's to say.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from hashlib import sha256
from typing import Annotated, Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lamplighter.api.policies import ALLOW, misfire_policy, overlap_policy
from lamplighter.api.problems import Faults
from lamplighter.api.strict_json import canonical, compact
from lamplighter.core.buckets import JobId
from lamplighter.core.errors import Rejected
from lamplighter.core.limits import (
    DEFAULT_MAX_ATTEMPTS,
    DEFAULT_TIMEOUT,
    FAULTS_NAMED,
    MAX_FLEXIBLE_WINDOW,
    MAX_OCCURRENCES,
    MAX_TIMEOUT,
)
from lamplighter.core.model import MisfirePolicy, Owner, Payload, Spec, check_name
from lamplighter.core.retry import RetryPolicy
from lamplighter.core.schedule import (
    PINNED,
    DstFold,
    DstGap,
    Schedule,
    check,
    parse,
    parse_instant,
)
from lamplighter.core.schedule.instants import parse_timestamp
from lamplighter.services.submit import NewJob, ScheduleMaker

_WHEN: Final = ("run_at", "cron", "rate", "at")
_ZONE: Final = ("timezone", "dst_gap", "dst_fold")
_REPETITION: Final = (
    *("dialect", "start_at", "end_at", "max_occurrences", "except_"),
    "flexible_window_seconds",
)
SCHEDULE_FIELDS: Final = (*_ZONE, *_REPETITION)
"""What may be said of a schedule beside its text."""
_FOREVER: Final = datetime.max.replace(tzinfo=UTC)
_HINT_MAX_CHARS: Final = 64
_SOME_JOB: Final = JobId("any")
"""What `H` hashes while a body is only read; no text is right for one job and not for another."""

Model = TypeVar("Model", bound="Body")


class Body(BaseModel):
    """Strict: nothing is converted, and what is unknown is refused by name."""

    # Built when it is first read: a cold start that is asked for a list has no use for it.
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, defer_build=True)

    def said(self, *names: str) -> dict[str, Any]:
        """Those of the fields that the request has."""
        return {name: getattr(self, name) for name in names if name in self.model_fields_set}


class RetryPolicyBody(Body):
    """When a failed try is followed by another: base · factor^n seconds later, with jitter."""

    max_attempts: Annotated[int, Field(description="1–100, the first try too.")] = (
        DEFAULT_MAX_ATTEMPTS
    )
    base_seconds: Annotated[float, Field(description="Before the second try.")] = 1.0
    factor: Annotated[float, Field(description="1–100.")] = 2.0
    max_seconds: Annotated[float, Field(description="No wait is longer.")] = 3600.0


class ScheduleBody(Body):
    """When something is due again and again, or once at a wall-clock time."""

    cron: Annotated[
        str, Field(description="Five fields (`L`, `#`, `H`, macros), or EventBridge's `cron(…)`.")
    ] = ""
    rate: Annotated[
        str, Field(description="`rate(5 minutes)` elapsed, `every(2 weeks)` by the calendar.")
    ] = ""
    at: Annotated[str, Field(description="One wall-clock time in `timezone`.")] = ""
    timezone: Annotated[str, Field(description="An IANA name, spelled exactly.")] = "UTC"
    dialect: Annotated[
        str, Field(description="`unix` or `eventbridge`; else `cron` is read by its form.")
    ] = ""
    dst_gap: Annotated[
        str,
        Field(description="A time that the clocks leave out: `NEXT_VALID`, `SHIFT` or `SKIP`."),
    ] = DstGap.NEXT_VALID.value
    dst_fold: Annotated[
        str, Field(description="A time that they show twice: `FIRST`, `SECOND` or `BOTH`.")
    ] = DstFold.FIRST.value
    start_at: Annotated[str, Field(description="RFC 3339; no occurrence is earlier.")] = ""
    end_at: Annotated[str, Field(description="RFC 3339; no occurrence is later.")] = ""
    max_occurrences: Annotated[int, Field(description=f"1–{MAX_OCCURRENCES}.")] = 0
    flexible_window_seconds: Annotated[
        int,
        Field(
            description=f"0–{MAX_FLEXIBLE_WINDOW.total_seconds():g}: each occurrence runs later "
            "by a part of it, for one job always the same."
        ),
    ] = 0
    except_: Annotated[
        list[str],
        Field(alias="except", description="Cron expressions and dates that take some away."),
    ] = []


class JobBody(ScheduleBody):
    """A job to be: a task, and at most one of `run_at`, `cron`, `rate` and `at`; none: now."""

    task: Annotated[str, Field(description="The name of the task that runs.")]
    payload: Annotated[object, Field(description="Any JSON, at most 64 KiB.")] = Field(
        default_factory=dict
    )
    queue: Annotated[str, Field(description="One of the stack's lanes.")] = "default"
    run_at: Annotated[
        str,
        Field(description="RFC 3339; without an offset, wall-clock time in a `timezone` given."),
    ] = ""
    misfire_policy: Annotated[
        str, Field(description="Occurrences that nobody sent in time: `FIRE_ONCE` or `SKIP`.")
    ] = MisfirePolicy.FIRE_ONCE.value
    overlap_policy: Annotated[
        str, Field(description="Occurrences that meet an earlier one: `ALLOW`.")
    ] = ALLOW
    retry_policy: RetryPolicyBody = RetryPolicyBody()
    timeout_seconds: Annotated[
        float, Field(ge=1, le=MAX_TIMEOUT.total_seconds(), description="Of one try.")
    ] = DEFAULT_TIMEOUT.total_seconds()
    name: Annotated[str, Field(description="Of a recurring job, for people.")] = ""
    idempotency_key: Annotated[
        str, Field(description="As the header `Idempotency-Key`, which wins.")
    ] = ""


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
    body = read(JobBody, value)
    parts: tuple[Callable[[], object], ...] = (
        lambda: check_name("task", body.task),
        lambda: _payload(body),
        lambda: _lane(body, lanes),
        lambda: _retry(body),
        lambda: _timing(body, now),
        lambda: misfire_policy(body.misfire_policy),
        lambda: overlap_policy(body.overlap_policy),
        lambda: _name(body),
    )
    faults = [fault for part in parts for fault in faults_of(part)]
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
        misfire=misfire_policy(body.misfire_policy),
        name=_name(body),
        traceparent=traceparent,
    )


def read(model: type[Model], value: object, *, unknown: str = "unknown field") -> Model:
    """The model of a JSON value; raises Faults, or Rejected for what is no object at all."""
    if not isinstance(value, dict):
        raise Rejected(field="body", value=value, reason="not a JSON object")
    try:
        return model.model_validate(value)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False)
        raise Faults([_fault(model, one, unknown) for one in found[:FAULTS_NAMED]]) from None


def faults_of(part: Callable[[], object]) -> list[Rejected]:
    """What is wrong with a part of a request, as it says when it is read."""
    try:
        part()
    except Rejected as fault:
        return [fault]
    except Faults as several:
        return [*several.faults]
    return []


def _fault(model: type[Body], error: Mapping[str, Any], unknown: str) -> Rejected:
    path = [str(part) for part in error["loc"]]
    match error["type"]:
        case "missing":
            value, reason = None, "required"
        case "extra_forbidden":
            value, reason = error["input"], f"{unknown}{_hint(model, path)}"
        case _:
            value, reason = error["input"], str(error["msg"])
    return Rejected(field=".".join(path), value=value, reason=reason)


def _hint(model: type[Body], path: list[str]) -> str:
    near = get_close_matches(path[-1][:_HINT_MAX_CHARS], _names(model, path[:-1]), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _names(model: type[Body], path: list[str]) -> list[str]:
    """The fields of the model, or of the one that lies in it at this path."""
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    inner = fields[path[0]].annotation if path else None
    if isinstance(inner, type) and issubclass(inner, Body):
        return _names(inner, path[1:])
    return [*fields]


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
    said = body.said(kind, *SCHEDULE_FIELDS)

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
