"""The ways to ask for a job, each answered in kind.

Beside the canonical body there are three from the documents that Lamplighter follows. A body is
told by its own fields, and no field of another is taken in it; then it is translated, so that
whatever is wrong is found in one place and told by the name that the caller has for it.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from lamplighter.api import render
from lamplighter.api.bodies import Body, JobBody, PayloadRefField, TargetBody
from lamplighter.api.fingerprints import fingerprint
from lamplighter.api.new_jobs import new_job
from lamplighter.api.problems import Faults
from lamplighter.api.reading import faults_of, names_at_fault, read_most, rest_of
from lamplighter.api.requests import checked_key
from lamplighter.core.errors import Rejected
from lamplighter.core.limits import MIN_INTERVAL
from lamplighter.core.model import Owner
from lamplighter.core.named import NO_TARGETS, Directory
from lamplighter.core.targets import NOBODY, HttpRules
from lamplighter.services.submit import Created, NewJob

Json = Mapping[str, Any]

_KEY: Final[Any] = Field(default="", description="As the header `Idempotency-Key`, which wins.")
_PAYLOAD: Final[Any] = Field(default_factory=dict, description="Any JSON, at most 64 KiB.")


class TypedJobBody(Body):
    """In camel case: a task's name as `type`, once at `runAt`, else now."""

    type: Annotated[str, Field(description="The name of the task that runs.")]
    payload: Annotated[object, _PAYLOAD]
    run_at: Annotated[str, Field(alias="runAt", description="RFC 3339 with an offset.")] = ""
    queue: Annotated[str, Field(description="One of the stack's lanes.")] = "default"
    max_attempts: Annotated[int, Field(alias="maxAttempts", description="1–100.")] = 5
    timeout_seconds: Annotated[
        float, Field(alias="timeoutSeconds", description="1–840, of one try.")
    ] = 60.0
    idempotency_key: Annotated[str, Field(alias="idempotencyKey")] = _KEY


class OnceOrCronBody(Body):
    """Once at an instant, or by a cron expression in UTC."""

    type: Literal["ONCE", "CRON"]
    value: Annotated[str, Field(description="RFC 3339 with an offset, or five fields of cron.")]


class TaskIdJobBody(Body):
    """A task by its `task_id`, its `schedule` and its `parameters`."""

    task_id: Annotated[str, Field(description="The name of the task that runs.")]
    schedule: OnceOrCronBody
    parameters: Annotated[object, _PAYLOAD]
    idempotency_key: Annotated[str, _KEY]


class BackoffBody(Body):
    """When a failed try is followed by another: base · factor^n later, with jitter."""

    base_ms: Annotated[float, Field(description="Before the second try.")] = 1000.0
    factor: Annotated[float, Field(description="1–100.")] = 2.0
    max_ms: Annotated[float, Field(description="No wait is longer.")] = 3_600_000.0


class TargetedJobBody(Body):
    """A `target`, once (`one_off` with `run_at`) or again and again (`recurring` with `cron`)."""

    type: Literal["one_off", "recurring"]
    run_at: Annotated[str, Field(description="RFC 3339; of a one-off.")] = ""
    cron: Annotated[str, Field(description="Of a recurring job.")] = ""
    timezone: Annotated[str, Field(description="An IANA name, spelled exactly.")] = "UTC"
    target: TargetBody
    payload: Annotated[object, _PAYLOAD]
    payload_ref: PayloadRefField
    max_attempts: Annotated[int, Field(description="1–100, the first try too.")] = 5
    backoff: BackoffBody = BackoffBody()
    misfire_policy: Annotated[str, Field(description="`fire_all`, `fire_once` or `skip`.")] = (
        "fire_once"
    )
    deadline_ms: Annotated[
        float, Field(description="What has not started so long past its time does not start.")
    ] = 0.0
    overlap_policy: Annotated[str, Field(description="`skip`, `allow`, …")] = "skip"
    idempotency_key: Annotated[str, _KEY]


AnyJobBody = JobBody | TypedJobBody | TaskIdJobBody | TargetedJobBody


@dataclass(frozen=True, kw_only=True)
class Shape:
    """One way to ask: how it is told, read, and answered."""

    model: type[Body]
    marks: frozenset[str]
    """Fields that no other shape has; the first of the body's to be found says that it is this."""
    canonical: Callable[[Json], Json]
    """The canonical body of a body that the model admits."""
    names: Mapping[str, str]
    """What a canonical field is called here, where it is not the same."""
    answer: Callable[[Created], render.Document]

    def name_of(self, field: str) -> str:
        """What the caller calls a canonical field."""
        return self.names.get(field, field)

    def canonical_names(self, fields: Collection[str]) -> Collection[str]:
        """The fields of the canonical body that are read from these of the caller's."""
        renamed = {
            ours.split(".")[0]
            for ours, theirs in self.names.items()
            if theirs.split(".")[0] in fields
        }
        return {*fields, *renamed}


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A job as somebody asked for it, and how they are answered."""

    new: NewJob
    fingerprint: str
    """A digest of all that was said, but for the key."""
    key: str | None
    """The idempotency key in the body."""
    answer: Callable[[Created], render.Document]


def asked(
    value: object,
    *,
    owner: Owner,
    lanes: Collection[str],
    now: datetime,
    traceparent: str | None = None,
    http: HttpRules = NOBODY,
    targets: Directory = NO_TARGETS,
    min_interval: timedelta = MIN_INTERVAL,
) -> Asked:
    """What a body asks for, in any shape; raises Rejected or Faults, with all that is wrong."""
    if not isinstance(value, dict):
        raise Rejected(field="body", value=value, reason="not a JSON object")
    shape = _shape_of(value)
    key = shape.name_of("idempotency_key")
    body, unread = _readable(shape, value)
    if isinstance(body.get(key), str):
        unread = [*unread, *faults_of(lambda: checked_key(key, body[key]))]
    try:
        new = new_job(
            shape.canonical(body),
            owner=owner,
            lanes=lanes,
            now=now,
            traceparent=traceparent,
            http=http,
            targets=targets,
            min_interval=min_interval,
            without=shape.canonical_names(names_at_fault(shape.model, unread)),
        )
    except Faults as several:
        told = [_renamed(shape, value, fault) for fault in several.faults]
        raise Faults([*unread, *told]) from None
    if unread:
        raise Faults(unread)
    return Asked(
        new=new,
        fingerprint=fingerprint({name: one for name, one in value.items() if name != key}),
        key=checked_key(key, value[key]) if key in value else None,
        answer=shape.answer,
    )


def _shape_of(value: Json) -> Shape:
    if "task" in value:
        return CANONICAL
    # A target has its place in two: with `type` or `backoff` beside it, it is not the canonical.
    if "target" in value and value.keys().isdisjoint({"type", "backoff"}):
        return CANONICAL
    # `type` is the task's name in one shape and says how often in another.
    kind = value.get("type")
    if isinstance(kind, str) and kind in {"one_off", "recurring"}:
        return TARGETED
    return next((shape for shape in SHAPES if not shape.marks.isdisjoint(value)), CANONICAL)


def _readable(shape: Shape, value: Json) -> tuple[Json, Sequence[Rejected]]:
    """What can be read of a body by the names of its shape, and the faults of the rest."""
    if shape is CANONICAL:
        return value, ()
    mark = next(iter(sorted(shape.marks & value.keys())), "type")
    _, unread = read_most(shape.model, value, unknown=f"unknown field beside {mark}")
    return rest_of(value, unread), unread


def _renamed(shape: Shape, value: Json, fault: Rejected) -> Rejected:
    """A fault by the name, and with the value, that stand in the caller's body."""
    name, given = shape.name_of(fault.field), _at(value, shape.name_of(fault.field))
    is_converted = isinstance(given, int | float) and given != fault.value
    if not is_converted:
        return Rejected(field=name, value=fault.value, reason=fault.reason)
    reason = f"a {fault.field} of {fault.value} is {fault.reason}"
    return Rejected(field=name, value=given, reason=reason)


def _at(value: Json, path: str) -> object:
    found: object = value
    for name in path.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _picked(value: Json, names: Mapping[str, str]) -> dict[str, Any]:
    """The fields that are there, by their canonical names."""
    return {ours: value[theirs] for ours, theirs in names.items() if theirs in value}


_TYPED_NAMES: Final = MappingProxyType(
    {
        "task": "type",
        "payload": "payload",
        "run_at": "runAt",
        "queue": "queue",
        "timeout_seconds": "timeoutSeconds",
    }
)


def _of_typed(value: Json) -> Json:
    retry = _picked(value, {"max_attempts": "maxAttempts"})
    return {**_picked(value, _TYPED_NAMES), "retry_policy": retry}


def _of_task_id(value: Json) -> Json:
    schedule = value["schedule"]
    when = "cron" if schedule["type"] == "CRON" else "run_at"
    picked = _picked(value, {"task": "task_id", "payload": "parameters"})
    return {**picked, when: schedule["value"]}


def _of_targeted(value: Json) -> Json:
    wanted, other = ("run_at", "cron") if value["type"] == "one_off" else ("cron", "run_at")
    faults = [
        *([] if wanted in value else [_fault(wanted, None, f"required of a {value['type']}")]),
        *([_fault(other, value[other], f"not of a {value['type']}")] if other in value else []),
    ]
    if faults:
        raise Faults(faults)
    backoff = value.get("backoff", {})
    names = (
        *(wanted, "timezone", "payload", "payload_ref"),
        *("misfire_policy", "overlap_policy"),
    )
    return {
        "target": value["target"],
        **({"deadline_seconds": value["deadline_ms"] / 1000} if "deadline_ms" in value else {}),
        **{name: value[name] for name in names if name in value},
        "retry_policy": {
            **_picked(value, {"max_attempts": "max_attempts"}),
            **_picked(backoff, {"factor": "factor"}),
            **{
                seconds: milliseconds / 1000
                for seconds, milliseconds in _picked(
                    backoff, {"base_seconds": "base_ms", "max_seconds": "max_ms"}
                ).items()
            },
        },
    }


def _fault(field: str, value: object, reason: str) -> Rejected:
    return Rejected(field=field, value=value, reason=reason)


CANONICAL: Final = Shape(
    model=JobBody,
    marks=frozenset({"task"}),
    canonical=lambda value: value,
    names=MappingProxyType({}),
    answer=render.created,
)
TYPED: Final = Shape(
    model=TypedJobBody,
    marks=frozenset({"type", "runAt", "maxAttempts", "timeoutSeconds"}),
    canonical=_of_typed,
    names=MappingProxyType(
        {
            **_TYPED_NAMES,
            "retry_policy.max_attempts": "maxAttempts",
            "idempotency_key": "idempotencyKey",
        }
    ),
    answer=render.created_typed,
)
TASK_ID: Final = Shape(
    model=TaskIdJobBody,
    marks=frozenset({"task_id", "schedule", "parameters"}),
    canonical=_of_task_id,
    names=MappingProxyType(
        {
            "task": "task_id",
            "payload": "parameters",
            "run_at": "schedule.value",
            "cron": "schedule.value",
        }
    ),
    answer=render.created_by_task_id,
)
TARGETED: Final = Shape(
    model=TargetedJobBody,
    marks=frozenset({"target", "backoff", "deadline_ms"}),
    canonical=_of_targeted,
    names=MappingProxyType(
        {
            "retry_policy.max_attempts": "max_attempts",
            "retry_policy.base_seconds": "backoff.base_ms",
            "retry_policy.factor": "backoff.factor",
            "retry_policy.max_seconds": "backoff.max_ms",
            "deadline_seconds": "deadline_ms",
        }
    ),
    answer=render.created_targeted,
)
SHAPES: Final = (TASK_ID, TARGETED, TYPED)
