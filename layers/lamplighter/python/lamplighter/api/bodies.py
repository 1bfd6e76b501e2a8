"""The body of `POST /v1/jobs`: from JSON to a NewJob, or to every fault in it.

The models name the fields and their types, strictly: no number for a text, and null for
nothing but a payload. What a value has to be beyond its type is the core's to say.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import partial
from hashlib import sha256
from itertools import chain
from typing import Annotated, Any, Final, Literal, TypeGuard, TypeVar, assert_never

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    ValidationError,
)
from pydantic.fields import FieldInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError

from lamplighter.api.policies import misfire_policy, on_deadline, overlap_policy
from lamplighter.api.problems import Faults
from lamplighter.api.requests import is_plain
from lamplighter.api.strict_json import canonical, compact
from lamplighter.core.buckets import JobId
from lamplighter.core.catch_up import CatchUp
from lamplighter.core.deferral import Terms
from lamplighter.core.errors import Rejected
from lamplighter.core.limits import (
    CATCHUP_MAX,
    CATCHUP_MAX_LIMIT,
    CATCHUP_SPREAD,
    CATCHUP_SPREAD_RANGE,
    CATCHUP_WINDOW,
    CATCHUP_WINDOW_RANGE,
    DEADLINE_RANGE,
    DEFAULT_HARD_LIMIT,
    DEFAULT_HEARTBEAT,
    DEFAULT_MAX_ATTEMPTS,
    DEFAULT_TIMEOUT,
    FAULTS_NAMED,
    HARD_LIMIT_RANGE,
    HEARTBEAT_RANGE,
    MAX_FLEXIBLE_WINDOW,
    MAX_OCCURRENCES,
    MAX_TASK_VERSION,
    MAX_TIMEOUT,
    MIN_INTERVAL,
    MISFIRE_THRESHOLD,
    MISFIRE_THRESHOLD_RANGE,
    PAYLOAD_REF_MAX_BYTES,
    PAYLOAD_REF_VERSION_MAX_CHARS,
    RETRY_MAX_NAMES,
)
from lamplighter.core.model import (
    MisfirePolicy,
    OnDeadline,
    OverlapPolicy,
    Owner,
    Payload,
    Spec,
    Target,
    check_name,
    check_sha256,
    check_size,
    check_task_version,
)
from lamplighter.core.named import NO_TARGETS, Directory, Invocation, NamedTarget, TargetKind
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
from lamplighter.core.schedule.instants import FIRST, parse_timestamp
from lamplighter.core.targets import NOBODY, HttpRules, HttpTarget
from lamplighter.services.payloads import Named
from lamplighter.services.submit import NewJob, ScheduleMaker

WHEN: Final = ("run_at", "cron", "rate", "at")
ZONE: Final = ("timezone", "dst_gap", "dst_fold")
_REPETITION: Final = (
    *("dialect", "start_at", "end_at", "max_occurrences", "except_"),
    "flexible_window_seconds",
)
SCHEDULE_FIELDS: Final = (*ZONE, *_REPETITION)
"""What may be said of a schedule beside its text."""
PAYLOAD_URI: Final = "s3://payloads/"
"""Where the stack's own bucket begins, whatever its name is."""
_REPEATED: Final = "only with cron or rate"
_A_RATE: Final[Mapping[str, Any]] = {"rate": "1 day"}
"""A schedule that every other field may be said of."""
_FOREVER: Final = datetime.max.replace(tzinfo=UTC)
_SECOND: Final = timedelta(seconds=1)
_CATCH_UP: Final = (
    *("misfire_threshold_seconds", "catchup_window_seconds"),
    *("catchup_max", "catchup_spread_seconds"),
)
_LISTS: Final = ("retry_on", "no_retry_on")
_OF_TIMING: Final = (*WHEN, "timezone", "dialect")
"""Without one of these, nothing is known of when a job is due."""
_OF_BYTES: Final = frozenset({"sha256", "size"})
_HINT_MAX_CHARS: Final = 64
_JSON_TYPES: Final = {
    "model_type": "an object",
    "dict_type": "an object",
    "list_type": "a list",
    "string_type": "a string",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
}
"""What a value should be, by what pydantic calls it not to be."""
_BOUNDS: Final = {
    "greater_than_equal": "less than",
    "less_than_equal": "more than",
}
"""The same of a number that is outside its bounds."""
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
    max_seconds: Annotated[float, Field(description="No wait is longer, but for jitter.")] = 3600.0
    jitter: Annotated[
        float,
        Field(description="0–1: each wait is multiplied by a random 1 − jitter to 1 + jitter."),
    ] = 0.5
    retry_on: Annotated[
        list[str],
        Field(
            description="Classes of errors, or bases of theirs: if there are any, nothing else "
            f"is tried again. At most {RETRY_MAX_NAMES} names."
        ),
    ] = []
    no_retry_on: Annotated[
        list[str],
        Field(description="The same of what is not tried again. The nearest class decides."),
    ] = []
    honor_retry_after: Annotated[
        bool, Field(description="Whether to wait as long as a rate limit asks to.")
    ] = True


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


class PayloadRefBody(Body):
    """A payload in the stack's own bucket; what is left out is taken from what is kept there."""

    key: Annotated[
        str, Field(description="Of an object under your own prefix, which may be left out.")
    ]
    version_id: Annotated[str, Field(description="Unless given, the latest.")] = ""
    sha256: Annotated[str, Field(description="Of its bytes, in lower-case hex.")] = ""
    size: Annotated[int, Field(description=f"1–{PAYLOAD_REF_MAX_BYTES} bytes.")] = 0


def _spelled_out(value: object) -> object:
    """The URI of a payload as the object that says no more than its key."""
    if isinstance(value, str) and value.startswith(PAYLOAD_URI):
        return {"key": value.removeprefix(PAYLOAD_URI)}
    if isinstance(value, dict):
        return value
    raise PydanticCustomError("payload_ref", f"neither an object nor {PAYLOAD_URI} and a key")


class _OrUri:
    """Tells that a URI is taken too."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        uri = {"type": "string", "pattern": f"^{PAYLOAD_URI}.+"}
        return {"anyOf": [handler(schema), uri]}


PayloadRefField = Annotated[
    PayloadRefBody,
    BeforeValidator(_spelled_out),
    _OrUri,
    Field(
        description=f"In place of `payload`: an object, or `{PAYLOAD_URI}<key>`.",
        default_factory=lambda: PayloadRefBody(key=""),
    ),
]


class PayloadBody(Body):
    """A payload in the place of another, or none."""

    payload: object = None
    payload_ref: PayloadRefField


def _seconds(bounds: tuple[timedelta, timedelta], description: str) -> FieldInfo:
    low, high = (bound // _SECOND for bound in bounds)
    info: FieldInfo = Field(ge=low, le=high, description=description)
    return info


class DeferredBody(Body):
    """How long a request that was answered with 202 may go on, and be silent."""

    heartbeat_seconds: Annotated[int, _seconds(HEARTBEAT_RANGE, "How long it may be silent.")] = (
        int(DEFAULT_HEARTBEAT.total_seconds())
    )
    hard_limit_seconds: Annotated[
        int, _seconds(HARD_LIMIT_RANGE, "How long it may take in all.")
    ] = int(DEFAULT_HARD_LIMIT.total_seconds())


class TargetBody(Body):
    """What runs: a task or a target of the deployment, by its `name`, or a request to a `url`."""

    kind: Annotated[
        Literal["task", "http", "lambda", "sqs", "sns", "eventbridge", "stepfunctions", "sfn"],
        Field(description="`sfn` is another name of `stepfunctions`."),
    ]
    name: Annotated[str, Field(description="Of a task, or as the deployment names a target.")] = ""
    invocation: Annotated[
        Literal["request", "event"],
        Field(description="Of a `lambda`: whether its answer is waited for."),
    ] = "request"
    url: Annotated[str, Field(description="`https://host[:port]/path?query`.")] = ""
    method: Annotated[str, Field(description="`GET`, `POST`, `PUT`, `PATCH` or `DELETE`.")] = "POST"
    headers: Annotated[
        dict[str, str], Field(description="Sent beside ours; at most 20, and 2,048 bytes.")
    ] = {}
    deferred: Annotated[
        DeferredBody | None,
        Field(description="Of a request: an answer of 202 leaves its end to who was called."),
    ] = None


class JobBody(ScheduleBody):
    """A job to be: a task or a target, and one of `run_at`, `cron`, `rate` and `at`; none: now."""

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": ["task"]}, {"required": ["target"]}]}
    )

    task: Annotated[str, Field(description="The name of the task that runs.")] = ""
    task_version: Annotated[
        int,
        Field(
            description=f"1–{MAX_TASK_VERSION}: the version of the task that it is made for. A "
            "worker that does not know it parks the execution. Unless given, whichever its "
            "worker has."
        ),
    ] = 0
    target: Annotated[TargetBody, Field(description="What runs, in place of `task`.")] = Field(
        default_factory=lambda: TargetBody(kind="task")
    )
    payload: Annotated[object, Field(description="Any JSON, at most 64 KiB.")] = Field(
        default_factory=dict
    )
    payload_ref: PayloadRefField
    queue: Annotated[str, Field(description="One of the stack's lanes.")] = "default"
    run_at: Annotated[
        str,
        Field(description="RFC 3339; without an offset, wall-clock time in a `timezone` given."),
    ] = ""
    misfire_policy: Annotated[
        str,
        Field(
            description="Occurrences that nobody sent in time: `FIRE_ALL`, `FIRE_ONCE` (the "
            "latest) or `SKIP`."
        ),
    ] = MisfirePolicy.FIRE_ONCE.value
    catch_up_policy: Annotated[
        str, Field(description="Another name of `misfire_policy`; of the two one is enough.")
    ] = ""
    misfire_threshold_seconds: Annotated[
        int, _seconds(MISFIRE_THRESHOLD_RANGE, "What dispatch meets later than this is missed.")
    ] = MISFIRE_THRESHOLD // _SECOND
    catchup_window_seconds: Annotated[
        int, _seconds(CATCHUP_WINDOW_RANGE, "What was missed longer ago is not run.")
    ] = CATCHUP_WINDOW // _SECOND
    catchup_max: Annotated[
        int, Field(ge=1, le=CATCHUP_MAX_LIMIT, description="`FIRE_ALL` runs the latest so many.")
    ] = CATCHUP_MAX
    catchup_spread_seconds: Annotated[
        int, _seconds(CATCHUP_SPREAD_RANGE, "Over how long `FIRE_ALL` starts them.")
    ] = CATCHUP_SPREAD // _SECOND
    deadline_seconds: Annotated[
        float,
        _seconds(
            DEADLINE_RANGE,
            "An execution that has not started this long past its `run_at` does not start. "
            "Unless given, none for a one-off; for a recurring job, the catch-up window.",
        ),
    ] = 0.0
    on_deadline: Annotated[
        str, Field(description="Then it is `EXPIRED` (`DEAD_LETTER`) or `SKIPPED` (`SKIP`).")
    ] = OnDeadline.DEAD_LETTER.value
    overlap_policy: Annotated[
        str,
        Field(
            description="Occurrences whose predecessor has not ended: `SKIP` (the default), "
            "`ALLOW`, `BUFFER_ONE`, `BUFFER_ALL`, `CANCEL_OTHER`, `TERMINATE_OTHER`. "
            "Of a recurring job."
        ),
    ] = OverlapPolicy.SKIP.value
    retry_policy: RetryPolicyBody = RetryPolicyBody()
    timeout_seconds: Annotated[
        float, Field(ge=1, le=MAX_TIMEOUT.total_seconds(), description="Of one try.")
    ] = DEFAULT_TIMEOUT.total_seconds()
    name: Annotated[str, Field(description="Of a recurring job, for people.")] = ""
    idempotency_key: Annotated[
        str, Field(description="As the header `Idempotency-Key`, which wins.")
    ] = ""


@dataclass(frozen=True, kw_only=True)
class What:
    """A task's name; of a target, the one that stands for it."""

    task: str
    target: Target | None = None


@dataclass(frozen=True, kw_only=True)
class Timing:
    """When a job is due: at an instant, by a schedule, or, with neither, now."""

    run_at: datetime | None = None
    schedule: ScheduleMaker | None = None


TimingReader = Callable[[JobBody, datetime], Timing]


def fingerprint(body: object) -> str:
    """A digest of a body that is the same however its JSON was written."""
    return sha256(canonical(by_bytes(body)).encode()).hexdigest()


def by_bytes(body: object) -> object:
    """The same, but that a payload by reference counts as its bytes.

    Who asks again may have uploaded them again.
    """
    if isinstance(body, dict) and _tells_bytes(ref := body.get("payload_ref")):
        return {**body, "payload_ref": {name: ref[name] for name in _OF_BYTES}}
    return body


def _tells_bytes(ref: object) -> TypeGuard[Mapping[str, object]]:
    return isinstance(ref, dict) and ref.keys() >= _OF_BYTES


def new_job(
    value: object,
    *,
    owner: Owner,
    lanes: Collection[str],
    now: datetime,
    traceparent: str | None = None,
    http: HttpRules = NOBODY,
    targets: Directory = NO_TARGETS,
    timing: TimingReader | None = None,
    min_interval: timedelta = MIN_INTERVAL,
    without: Collection[str] = (),
) -> NewJob:
    """The job that a body asks for; raises Faults, with all that is wrong in it.

    `timing` reads when it is due in the place of what a create goes by. `without` names what the
    caller's body has and this one lacks, because it could not be read.
    """
    body, unread = read_most(JobBody, value)
    left_out = {*without, *names_at_fault(JobBody, unread)}
    timing_of = timing or partial(timing_of_a_new_job, min_interval=min_interval)
    parts: tuple[tuple[Collection[str], Callable[[], object]], ...] = (
        (("task", "target"), lambda: what_of(body, owner=owner, http=http, targets=targets)),
        (("task", "target", "task_version"), lambda: _version(body)),
        (("payload",), lambda: _payload(body)),
        (("payload", "payload_ref"), lambda: named_payload(body)),
        (("queue",), lambda: _lane(body, lanes)),
        (("retry_policy",), lambda: _retry(body)),
        (_OF_TIMING, lambda: timing_of(body, now)),
        (("misfire_policy", "catch_up_policy"), lambda: misfire_of(body)),
        ((*WHEN, *_CATCH_UP), lambda: catch_up_of(body)),
        (("on_deadline",), lambda: on_deadline(body.on_deadline)),
        ((*WHEN, "overlap_policy"), lambda: overlap_of(body)),
        (("name",), lambda: _name(body)),
    )
    # What depends on a field that could not be read cannot be told right from wrong.
    told = (faults_of(part) for needs, part in parts if left_out.isdisjoint(needs))
    faults = [*unread, *chain.from_iterable(told)]
    if faults:
        raise Faults(faults)
    due = timing_of(body, now)
    what = what_of(body, owner=owner, http=http, targets=targets)
    return NewJob(
        owner=owner,
        spec=Spec(
            task=what.task,
            target=what.target,
            task_version=_version(body),
            payload=_payload(body),
            queue=_lane(body, lanes),
            retry=_retry(body),
            timeout=timedelta(seconds=body.timeout_seconds),
            deadline=_deadline(body),
            on_deadline=on_deadline(body.on_deadline),
        ),
        named=named_payload(body),
        run_at=due.run_at,
        schedule=due.schedule,
        misfire=misfire_of(body),
        catch_up=catch_up_of(body),
        overlap=overlap_of(body),
        name=_name(body),
        traceparent=traceparent,
    )


def _version(body: JobBody) -> int | None:
    if not body.said("task_version"):
        return None
    if body.said("target") and body.target.kind != "task":
        reason = f"only of a task, not of a {body.target.kind} target"
        raise Rejected(field="task_version", value=body.task_version, reason=reason)
    check_task_version(body.task_version)
    return body.task_version


def misfire_of(body: JobBody) -> MisfirePolicy:
    """What becomes of occurrences that are missed, by either name of the field."""
    policy = misfire_policy(body.misfire_policy)
    if not body.said("catch_up_policy"):
        return policy
    same = misfire_policy(body.catch_up_policy, field="catch_up_policy")
    if body.said("misfire_policy") and same is not policy:
        reason = f"another name of misfire_policy, which says {policy}"
        raise Rejected(field="catch_up_policy", value=body.catch_up_policy, reason=reason)
    return same


def catch_up_of(body: JobBody) -> CatchUp:
    """The bounds of what is made up for; a one-off misses nothing."""
    said = body.said(*_CATCH_UP)
    if said and not body.said("cron", "rate"):
        raise Faults([Rejected(field=one, value=said[one], reason=_REPEATED) for one in said])
    return CatchUp(
        threshold=body.misfire_threshold_seconds * _SECOND,
        window=body.catchup_window_seconds * _SECOND,
        most=body.catchup_max,
        spread=body.catchup_spread_seconds * _SECOND,
    )


def _deadline(body: JobBody) -> timedelta | None:
    return body.deadline_seconds * _SECOND if body.said("deadline_seconds") else None


def overlap_of(body: JobBody) -> OverlapPolicy:
    """What becomes of occurrences that meet; a one-off meets nothing."""
    policy = overlap_policy(body.overlap_policy)
    if body.said("cron", "rate"):
        return policy
    if body.said("overlap_policy") and policy is not OverlapPolicy.ALLOW:
        raise Rejected(field="overlap_policy", value=body.overlap_policy, reason=_REPEATED)
    return OverlapPolicy.ALLOW


def what_of(body: JobBody, *, owner: Owner, http: HttpRules, targets: Directory) -> What:
    """What a body wants to be run; raises Rejected, also for what this owner may not call."""
    said = body.said("task", "target")
    if not said:
        raise Rejected(field="task", value=None, reason="required, or a target")
    if len(said) > 1:
        raise Rejected(field="target", value=body.target.kind, reason="not beside a task")
    if "task" in said:
        check_name("task", body.task)
        return What(task=body.task)
    match body.target.kind:
        case "task":
            _check_fields(body.target, needs="name")
            check_name("target.name", body.target.name)
            return What(task=body.target.name)
        case "http":
            _check_fields(body.target, needs="url", takes=("method", "headers", "deferred"))
            http.check_scheme(body.target.url)
            target = _http_target(body.target)
            http.check(target, owner=owner)
            return What(task=target.task_name, target=target)
        case "lambda" | "sqs" | "sns" | "eventbridge" | "stepfunctions" | "sfn":
            named = _named_target(body.target)
            targets.check(named, owner=owner)
            return What(task=named.task_name, target=named)
        case other:
            assert_never(other)


def _check_fields(target: TargetBody, *, needs: str, takes: Collection[str] = ()) -> None:
    said = target.model_fields_set
    if needs not in said:
        raise Rejected(field=f"target.{needs}", value=None, reason="required")
    for name in said - {"kind", needs, *takes}:
        value = getattr(target, name)
        raise Rejected(field=f"target.{name}", value=value, reason=f"not of a {target.kind} target")


def _http_target(body: TargetBody) -> HttpTarget:
    terms = None
    if (said := body.deferred) is not None:
        terms = Terms(
            heartbeat=timedelta(seconds=said.heartbeat_seconds),
            hard_limit=timedelta(seconds=said.hard_limit_seconds),
        )
    return HttpTarget(
        url=body.url,
        method=body.method,
        headers=tuple(body.headers.items()),
        deferred=terms,
    )


def _named_target(body: TargetBody) -> NamedTarget:
    takes = ("invocation",) if body.kind == "lambda" else ()
    _check_fields(body, needs="name", takes=takes)
    return NamedTarget(
        kind=TargetKind.STEPFUNCTIONS if body.kind == "sfn" else TargetKind(body.kind),
        name=body.name,
        invocation=Invocation(body.invocation),
    )


def read(model: type[Model], value: object, *, unknown: str = "unknown field") -> Model:
    """The model of a JSON value; raises Faults, or Rejected for what is no object at all."""
    if not isinstance(value, dict):
        raise Rejected(field="body", value=value, reason="not a JSON object")
    try:
        return model.model_validate(value)
    except ValidationError as error:
        found = error.errors(include_url=False)
        raise Faults([_fault(model, one, unknown) for one in found[:FAULTS_NAMED]]) from None


def read_most(
    model: type[Model], value: object, *, unknown: str = "unknown field"
) -> tuple[Model, Sequence[Rejected]]:
    """The model of what can be read of a JSON value, and the faults of the rest.

    Raises Faults where nothing is left to be read, for a required field is at fault.
    """
    try:
        return read(model, value, unknown=unknown), ()
    except Faults as several:
        rest = rest_of(value, several.faults)
        if faults_of(lambda: read(model, rest)):
            raise
        return read(model, rest), several.faults


def rest_of(value: object, faults: Collection[Rejected]) -> dict[str, Any]:
    """A JSON object without the fields that have faults."""
    bad = {fault.field.split(".")[0] for fault in faults}
    fields = value if isinstance(value, dict) else {}
    return {name: one for name, one in fields.items() if name not in bad}


def names_at_fault(model: type[Body], faults: Collection[Rejected]) -> set[str]:
    """The fields that faults are about, and those that unknown ones were meant to be."""
    bad = {fault.field.split(".")[0] for fault in faults}
    meant = (get_close_matches(name[:_HINT_MAX_CHARS], names_of(model, []), n=1) for name in bad)
    return bad.union(*meant)


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
        case kind if kind in _JSON_TYPES:
            value, reason = error["input"], f"not {_JSON_TYPES[kind]}"
        case kind if kind in _BOUNDS:
            bound = next(iter(error["ctx"].values()))
            value, reason = error["input"], f"{_BOUNDS[kind]} {bound:.15g}"
        case "literal_error":
            value, reason = error["input"], f"not {error['ctx']['expected']}"
        case _:
            value, reason = error["input"], str(error["msg"])
    return Rejected(field=".".join(path), value=value, reason=reason)


def _hint(model: type[Body], path: list[str]) -> str:
    near = get_close_matches(path[-1][:_HINT_MAX_CHARS], names_of(model, path[:-1]), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def names_of(model: type[Body], path: list[str]) -> list[str]:
    """The fields of the model, or of the one that lies in it at this path."""
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    inner = fields[path[0]].annotation if path else None
    if isinstance(inner, type) and issubclass(inner, Body):
        return names_of(inner, path[1:])
    return [*fields]


def payload_of(body: PayloadBody) -> Payload | Named | None:
    """What stands in the place of another payload; raises Rejected or Faults."""
    if (named := named_payload(body)) is not None:
        return named
    said = body.said("payload")
    return Payload.of(compact(said["payload"])) if said else None


def named_payload(body: JobBody | PayloadBody) -> Named | None:
    """The payload that a body has by reference, not looked for yet; raises Rejected or Faults."""
    said = body.said("payload", "payload_ref")
    if "payload_ref" not in said:
        return None
    ref = body.payload_ref
    if "payload" in said:
        raise Rejected(field="payload_ref", value=ref.key, reason="not beside a payload")
    given = ref.said("version_id", "sha256", "size")
    checks: Mapping[str, Callable[[Any], None]] = {
        "version_id": _check_version,
        "sha256": lambda digest: check_sha256("payload_ref.sha256", digest),
        "size": lambda size: check_size("payload_ref.size", size),
    }
    faults = [fault for name in given for fault in faults_of(partial(checks[name], given[name]))]
    if faults:
        raise Faults(faults)
    return Named(key=ref.key, **given)


def _check_version(id: str) -> None:
    if not is_plain(id, PAYLOAD_REF_VERSION_MAX_CHARS):
        reason = f"not 1–{PAYLOAD_REF_VERSION_MAX_CHARS} printable characters"
        raise Rejected(field="payload_ref.version_id", value=id, reason=reason)


def _payload(body: JobBody) -> Payload:
    return Payload.of(compact(body.payload))


def _lane(body: JobBody, lanes: Collection[str]) -> str:
    if body.queue not in lanes:
        known = ", ".join(sorted(lanes))
        raise Rejected(field="queue", value=body.queue, reason=f"no such queue; there are {known}")
    return body.queue


def _retry(body: JobBody) -> RetryPolicy:
    said = body.retry_policy.said(*RetryPolicyBody.model_fields)
    lists: dict[str, Any] = {name: tuple(said[name]) for name in _LISTS if name in said}
    return RetryPolicy(**said | lists)


def _name(body: JobBody) -> str | None:
    if "name" not in body.model_fields_set:
        return None
    check_name("name", body.name)
    return body.name


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
    names = (*_REPETITION, "name", *(() if has_wall_time else ("dst_gap", "dst_fold")))
    faults = [
        Rejected(field=name.rstrip("_"), value=value, reason=_REPEATED)
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
