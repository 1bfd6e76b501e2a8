"""What may be said of a job: the body of `POST /v1/jobs` and its parts, field by field.

The models name the fields and their types, strictly: no number for a text, and null for
nothing but a payload. What a value has to be beyond its type is the core's to say.
"""

from datetime import timedelta
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, GetJsonSchemaHandler
from pydantic.fields import FieldInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError

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
    HARD_LIMIT_RANGE,
    HEARTBEAT_RANGE,
    MAX_FLEXIBLE_WINDOW,
    MAX_OCCURRENCES,
    MAX_TASK_VERSION,
    MAX_TIMEOUT,
    MISFIRE_THRESHOLD,
    MISFIRE_THRESHOLD_RANGE,
    PAYLOAD_REF_MAX_BYTES,
    RETRY_MAX_NAMES,
)
from lamplighter.core.model import MisfirePolicy, OnDeadline, OverlapPolicy
from lamplighter.core.schedule import DstFold, DstGap

WHEN: Final = ("run_at", "cron", "rate", "at")
ZONE: Final = ("timezone", "dst_gap", "dst_fold")
REPETITION: Final = (
    *("dialect", "start_at", "end_at", "max_occurrences", "except_"),
    "flexible_window_seconds",
)
"""What only something that is due again and again has."""
SCHEDULE_FIELDS: Final = (*ZONE, *REPETITION)
"""What may be said of a schedule beside its text."""
CATCH_UP: Final = (
    *("misfire_threshold_seconds", "catchup_window_seconds"),
    *("catchup_max", "catchup_spread_seconds"),
)
"""The bounds of what a policy of misfires makes up for."""
PAYLOAD_URI: Final = "s3://payloads/"
"""Where the stack's own bucket begins, whatever its name is."""
_SECOND: Final = timedelta(seconds=1)


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
