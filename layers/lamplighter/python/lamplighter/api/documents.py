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
class Forewarning(TypedDict):
    """What was accepted will start late: more is due then than its lane can start in time."""

    code: str
    """`minute-is-full`"""
    detail: str
    expected_lateness_seconds: int
    """Rounded up, in steps."""
    flexible_window_seconds: int
    """With as wide a window on the jobs that are due then, nothing would be late."""


@_DESCRIBED
class UnknownTask(TypedDict):
    """What was accepted waits, `PARKED`, until a worker knows its task."""

    code: str
    """`task-is-unknown`"""
    detail: str
    task: str


class _Warned(TypedDict):
    warnings: NotRequired[list[Forewarning | UnknownTask]]
    """Only where there are any."""


class Created(_Warned):
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
class CreatedTyped(_Warned):
    """The answer to a body in camel case."""

    jobId: str
    executionId: str
    status: str
    runAt: str
    """RFC 3339 in UTC, with a fraction only where there is one."""


class CreatedByTaskId(_Warned):
    """The answer to a body with a `task_id`."""

    job_id: str


@_DESCRIBED
class CreatedTargeted(_Warned):
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
    queued_at: Instant | None
    """When its message was sent, by the queue's clock."""
    started_at: Instant
    finished_at: Instant | None
    status: str
    worker: str
    handler_version: int | None
    error: Failure | None


class Lateness(TypedDict):
    """Of the first start, in milliseconds: parts that sum to the whole."""

    total_ms: int
    """`started_at` − `run_at`: all parts but the splay."""
    total_from_slot_ms: int
    """All parts."""
    splay_ms: int
    """From `scheduled_for` to `run_at`, by the flexible window of its job: no lateness."""
    scan_ms: int
    """Until its message was sent and, in a catch-up, its turn had come: dispatch was late."""
    blocked_ms: int
    """While an execution before it was in its way."""
    permit_ms: int
    """While it waited for a permit."""
    queue_ms: int
    """While its message waited for a worker."""
    cold_start_ms: int
    """While its worker's process began."""
    hold_ms: int
    """While its worker held it until it was due."""
    claim_ms: int
    """Until it was claimed, or claimed anew after a service had not answered."""


class PayloadRef(TypedDict):
    """One version of an object in the stack's own bucket, and what its bytes have to be."""

    key: str
    version_id: str
    sha256: str
    size: int


@_DESCRIBED
class Upload(TypedDict):
    """A request that uploads one payload; it needs no token, and every header as it is here."""

    method: str
    url: str
    headers: dict[str, str]


@_DESCRIBED
class PayloadGrant(TypedDict):
    """A place for one payload, to be filled once."""

    key: str
    upload: Upload
    """Its answer has the `version_id` in `x-amz-version-id`."""
    expires_at: Instant


@_DESCRIBED
class HasPayload(TypedDict, total=False):
    """What may have its payload beside it, where that was fetched, or where it is kept."""

    payload: object
    payload_ref: PayloadRef
    """In the place of `payload`."""


@_DESCRIBED
class Execution(HasPayload):
    """One planned occurrence of a job, and what became of it."""

    execution_id: str
    job_id: str
    job_version: int
    task: str
    task_version: int | None
    """The version of the task that it was made for."""
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
    lateness: Lateness | None
    """`started_at` − `run_at`."""
    attempt: int
    """The number of its latest try, 0 before the first."""
    attempts: list[Attempt]
    result: object
    error: Failure | None
    reason: str | None
    cancel_requested_at: Instant | None
    replay_of: str | None
    """The execution that this one runs again."""
    idempotency_key: str
    """What its handler is given: the same for every try, and for a replay with the same payload."""
    traceparent: str | None


@_DESCRIBED
class RetryPolicy(TypedDict):
    """When a failed try is followed by another."""

    max_attempts: int
    base_seconds: float
    factor: float
    max_seconds: float
    jitter: float
    retry_on: list[str]
    """Empty: every error that no_retry_on does not have."""
    no_retry_on: list[str]
    honor_retry_after: bool


@_DESCRIBED
class DeferredTerms(TypedDict):
    """What holds once the request was answered with 202."""

    heartbeat_seconds: int
    hard_limit_seconds: int


class HasTerms(TypedDict, total=False):
    """Of a request whose end may be left to who was called."""

    deferred: DeferredTerms


@_DESCRIBED
class HttpTarget(HasTerms):
    """The request that is made in place of a task; `***` stands for what looks secret."""

    kind: str
    """`http`"""
    url: str
    method: str
    headers: dict[str, str]


class Invoked(TypedDict, total=False):
    """How a function is called."""

    invocation: str
    """Of a `lambda`: `request`, whose answer is waited for, or `event`."""


@_DESCRIBED
class NamedTarget(Invoked):
    """What of the deployment is called in place of a task."""

    kind: str
    """`lambda`, `sqs`, `sns`, `eventbridge` or `stepfunctions`."""
    name: str


class HasTarget(TypedDict, total=False):
    """What may be run in place of a task."""

    target: HttpTarget | NamedTarget


@_DESCRIBED
class Task(HasPayload, HasTarget):
    """What runs, and under which policies."""

    task: str
    """A task's name; of a target its kind and its host or name: `http:svc.example.com`."""
    task_version: int | None
    """The version of the task that it is made for; null: whichever its worker has."""
    queue: str
    retry_policy: RetryPolicy
    retry_policy_is_default: bool
    """Whether nobody gave one: then the task's own, where it declares one, goes before it."""
    timeout_seconds: float
    deadline_seconds: float | None
    """Null: none for a one-off; for a recurring job, its catch-up window."""
    on_deadline: str


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


@_DESCRIBED
class RecurringJob(Task, Schedule):
    """A recurring job's definition."""

    job_id: str
    name: str | None
    misfire_policy: str
    misfire_threshold_seconds: int
    catchup_window_seconds: int
    catchup_max: int
    catchup_spread_seconds: int
    overlap_policy: str
    status: str
    version: int
    created_at: Instant
    next_run_at: Instant | None
    schedule_error: str | None
    """Why this release cannot read its schedule: nothing of it runs until it is edited."""


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


class RevisedOneOffJob(OneOffJob):
    """A one-off as it runs from now on: nothing of it had been claimed."""

    in_flight: list[str]
    """None."""


class OneOffJobDetail(OneOffJob):
    """A one-off job with its execution."""

    executions: list[Execution]


class PatchedJob(RevisedJob, _Warned):
    """As a job that was paused or resumed, with what a change warns of."""


class PatchedOneOffJob(RevisedOneOffJob, _Warned):
    """A one-off as it runs from now on, with what the change warns of."""


Job = RecurringJob | OneOffJob
AnyPatchedJob = PatchedJob | PatchedOneOffJob
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
class QuotaExceeded(TypedDict):
    """What its owner may have no more of."""

    name: str
    """`live_jobs`, `queued_executions`, `payload_bytes` or `submissions_per_second`"""
    limit: float
    used: float
    """Of submissions, how many of a burst are spent."""


@_DESCRIBED
class Problem(TypedDict):
    """Why a request was not done: RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    errors: NotRequired[list[FieldFault]]
    """Of a 400: every field at fault."""
    quota: NotRequired[QuotaExceeded]
    """Of a 429 with a `Retry-After`."""


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
class BackfillRun(TypedDict):
    """A slot that is run."""

    scheduled_for: Instant
    run_at: Instant
    execution_id: str | None
    """None in a dry run."""


@_DESCRIBED
class BackfillSkip(TypedDict):
    """A slot that is left out, for the execution that it has."""

    scheduled_for: Instant
    execution_id: str
    status: str
    """As it was when the request was made."""


class Backfill(TypedDict):
    """The slots of an interval, oldest first: those that are run, and those that are left out."""

    job_id: str
    dry_run: bool
    runs: list[BackfillRun]
    skipped: list[BackfillSkip]


@_DESCRIBED
class LedgerGroup(TypedDict):
    """Slots of one outcome and reason."""

    outcome: str
    """`FIRED`, `SKIPPED`, `CANCELLED`, `EXPIRED`, `PENDING` or `MISSED`."""
    reason: str
    count: int
    first: Instant
    """The slots lie from here to `last`, maybe with others between them."""
    last: Instant


_Range = TypedDict("_Range", {"from": Instant, "to": Instant})


@_DESCRIBED
class Ledger(_Range):
    """What became of a job's slots, each counted once; parts sum to the whole."""

    job_id: str
    forgotten_before: Instant | None
    """Where `from` was moved to: executions are kept for seven days."""
    expected: int
    """All below."""
    fired: int
    skipped: int
    cancelled: int
    expired: int
    pending: int
    missed: int
    groups: list[LedgerGroup]
    unreadable_versions: list[int]
    """Of the job, whose slots this release cannot tell: nothing of them is counted."""
    next_cursor: str | None


@_DESCRIBED
class OverdueJob(TypedDict):
    """What would run of a job, if dispatch came back now."""

    job_id: str
    name: str | None
    misfire_policy: str
    runs: int
    first: Instant | None
    """The oldest slot that would run."""
    last: Instant | None
    last_starts_at: Instant | None
    """When the last to start would do so, at the earliest."""
    deadline: Instant | None
    """The earliest of theirs."""
    not_run: int
    """Passed over by the misfire policy, or past the deadline."""
    is_exact: bool
    """If not, both counts are `at least`."""


@_DESCRIBED
class MinuteLoad(TypedDict):
    """How many executions are due in a minute."""

    minute: Instant
    planned: int
    busiest_second: int


@_DESCRIBED
class LateMinute(TypedDict):
    """A minute of which something is expected to start more than two seconds late."""

    minute: Instant
    planned: int
    lateness_seconds: float
    """Of the last that starts."""


@_DESCRIBED
class Assessed(TypedDict):
    """A load and what it comes to on a capacity."""

    per_second: float
    """The capacity, in starts."""
    planned: int
    minutes: list[MinuteLoad]
    """Those that have any."""
    late: list[LateMinute]
    worst_lateness_seconds: float
    flexible_window_seconds: int | None
    """With as wide a window nothing is late; null when that is more than the capacity."""


class LaneForecast(Assessed):
    """What is planned for one lane, on the capacity that the stack gives it."""

    queue: str


class Forecast(_Range, Assessed):
    """What is planned, and what it comes to; of a part, as if that were all.

    On the capacity that was asked for, as if all of it were one lane; else lane by lane on the
    stack's, and `per_second` is what its lanes have together.
    """

    lanes: list[LaneForecast]
    """Those that have any."""
    next_cursor: str | None


class Backlog(TypedDict):
    """What dispatch left behind in an outage, and drains beside what is due now, oldest first."""

    since: str
    """When dispatch came back."""
    oldest: str
    """Where it is: what was due before this was dispatched."""
    until: str
    """Where it ends."""
    share_done: float
    """0-1, of the time that was missed."""
    sent: int
    """Executions so far."""
    ends_at: str | None
    """When it is over, if it goes on as it has; null when it is too early to say."""


class Progress(TypedDict):
    """How far dispatch has come."""

    dispatched_until: str
    """Everything due before this was dispatched."""
    due_until: str
    """The same, but for the backlog; ahead of the time when all is well."""
    backlog: Backlog | None


@_DESCRIBED
class Limit(TypedDict):
    """How many executions of a lane, an owner or a task may run at once, and do."""

    kind: str
    """`queue`, `owner` or `task`"""
    name: str
    """`*`: of every owner who has none of their own."""
    limit: int
    running: int
    """Of `*`, 0: each owner has a count of their own."""
    waiting: int
    """Known to wait for a place, counted up to 100; some may have ended since."""


class Limits(TypedDict):
    """All of them."""

    items: list[Limit]


class OverdueJobs(TypedDict):
    """A page of jobs with something overdue; null at the end of the last."""

    items: list[OverdueJob]
    next_cursor: str | None


@_DESCRIBED
class Handled(TypedDict):
    """What came of one of the executions that a filter let through."""

    execution_id: str
    status: str
    """As it is now; of one that was refused, as it was found."""
    outcome: str
    """`CANCELLED`; `REQUESTED`: it runs and is asked to stop; `REPLAYED`; `REFUSED`, with a
    problem; or, of a dry run, `MATCHED`."""
    new_execution_id: str | None
    """Of what was replayed."""
    problem: Problem | None


class Bulk(TypedDict):
    """A page of those that a filter let through; null at the end of the last."""

    answers: list[Handled]
    next_cursor: str | None


@_DESCRIBED
class Preview(TypedDict):
    """When a schedule is due."""

    occurrences: list[Instant]
    explanation: str
    """In plain words."""
    tzdb_version: str
    """The release of the IANA zone database by which it was computed."""


class CalledBack(TypedDict):
    """How an execution stands after its deferred try was heard of."""

    execution_id: str
    status: str
    attempt: int
    """The try that is under way, or the next one."""
    cancel_requested: bool
    """Whether it should be ended, for its execution is to be cancelled."""
    heard_until: str | None
    """By when it has to be heard of again; null: it has ended."""


class Health(TypedDict):
    """Whether the tables answer, and which release asks them."""

    status: str
    version: str
