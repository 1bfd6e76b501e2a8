"""The answers as JSON documents: their fields and types, which the OpenAPI description has too.

More fields may be added; none goes away, and none changes its type.
"""

from typing import NotRequired

from pydantic import ConfigDict, with_config

# pydantic reads the standard library's only from Python 3.12 on.
from typing_extensions import TypedDict

_DESCRIBED = with_config(ConfigDict(use_attribute_docstrings=True))
Instant = str
"""RFC 3339 in UTC with milliseconds."""


@_DESCRIBED
class Created(TypedDict):
    """A job that was created, as it was then."""

    job_id: str
    execution_id: str
    """Its first."""
    task: str
    queue: str
    status: str
    scheduled_for: Instant
    run_at: Instant
    next_run_at: Instant
    created_at: Instant


@_DESCRIBED
class CreatedTyped(TypedDict):
    """The answer to a body in camel case."""

    jobId: str
    executionId: str
    status: str
    runAt: str
    """RFC 3339 in UTC, with a fraction only where there is one."""


class CreatedByTaskId(TypedDict):
    """The answer to a body with a `task_id`."""

    job_id: str


@_DESCRIBED
class CreatedTargeted(TypedDict):
    """The answer to a body with a `target`."""

    job_id: str
    next_fire_time: str
    """RFC 3339 in UTC, with a fraction only where there is one."""


AnyCreated = Created | CreatedTyped | CreatedByTaskId | CreatedTargeted


class Failure(TypedDict):
    """Why a try failed, without a traceback."""

    kind: str
    type: str
    message: str


class Attempt(TypedDict):
    """One try of an execution."""

    number: int
    started_at: Instant
    finished_at: Instant | None
    status: str
    worker: str
    error: Failure | None


class HasPayload(TypedDict, total=False):
    """What may have its payload beside it, where that was fetched."""

    payload: object


@_DESCRIBED
class Execution(HasPayload):
    """One planned occurrence of a job, and what became of it."""

    execution_id: str
    job_id: str
    job_version: int
    task: str
    queue: str
    status: str
    trigger: str
    scheduled_for: Instant
    run_at: Instant
    created_at: Instant
    started_at: Instant | None
    """Of its first try."""
    finished_at: Instant | None
    next_run_at: Instant | None
    lateness_ms: int | None
    """`started_at` − `run_at`."""
    attempt: int
    """The number of its latest try, 0 before the first."""
    attempts: list[Attempt]
    result: object
    error: Failure | None
    reason: str | None
    cancel_requested_at: Instant | None
    traceparent: str | None


class RetryPolicy(TypedDict):
    """When a failed try is followed by another."""

    max_attempts: int
    base_seconds: float
    factor: float
    max_seconds: float


class Task(HasPayload):
    """What runs, and under which policies."""

    task: str
    queue: str
    retry_policy: RetryPolicy
    timeout_seconds: float


class When(TypedDict, total=False):
    """What makes a schedule: one of the two."""

    cron: str
    rate: str


_Schedule = TypedDict(
    "_Schedule",
    {
        "timezone": str,
        "dialect": str | None,
        "dst_gap": str,
        "dst_fold": str,
        "start_at": Instant | None,
        "end_at": Instant | None,
        "max_occurrences": int | None,
        "flexible_window_seconds": float,
        "except": list[str],
        "anchor": Instant | None,
        "tzdb_version": str,
    },
)


class Schedule(When, _Schedule):
    """When a recurring job is due; `anchor`: what an interval without `start_at` counts from."""


class RecurringJob(Task, Schedule):
    """A recurring job's definition."""

    job_id: str
    name: str | None
    misfire_policy: str
    overlap_policy: str
    status: str
    version: int
    created_at: Instant
    next_run_at: Instant | None


class OneOffJob(Task):
    """A one-off job: its definition, and the state of its one execution."""

    job_id: str
    execution_id: str
    run_at: Instant
    scheduled_for: Instant
    status: str
    version: int
    created_at: Instant
    next_run_at: Instant | None


class RecurringJobDetail(RecurringJob):
    """A recurring job with its latest executions."""

    executions: list[Execution]


class RevisedJob(RecurringJob):
    """A definition as it is from now on; whatever is claimed later follows it."""

    in_flight: list[str]
    """Executions that were claimed before: they run to their end."""


class OneOffJobDetail(OneOffJob):
    """A one-off job with its execution."""

    executions: list[Execution]


Job = RecurringJob | OneOffJob
JobDetail = RecurringJobDetail | OneOffJobDetail


class Jobs(TypedDict):
    """A page of definitions or, asked for with a status, of executions."""

    items: list[Job | Execution]
    next_cursor: str | None


class Executions(TypedDict):
    """A page of executions."""

    items: list[Execution]
    next_cursor: str | None


class FieldFault(TypedDict):
    """A field at fault."""

    field: str
    value: object
    reason: str


@_DESCRIBED
class Problem(TypedDict):
    """Why a request was not done: RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    errors: NotRequired[list[FieldFault]]
    """Of a 400: every field at fault."""


@_DESCRIBED
class Answer(TypedDict):
    """What a job of a batch would have been answered on its own."""

    status: int
    headers: dict[str, str]
    body: AnyCreated | Problem


class Batch(TypedDict):
    """An answer for each job of the request, in its order."""

    answers: list[Answer]


@_DESCRIBED
class Preview(TypedDict):
    """When a schedule is due."""

    occurrences: list[Instant]
    explanation: str
    """In plain words."""
    tzdb_version: str
    """The release of the IANA zone database by which it was computed."""


class Health(TypedDict):
    """Whether the tables answer, and which release asks them."""

    status: str
    version: str
