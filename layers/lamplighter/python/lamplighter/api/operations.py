"""What the API has, as data: routing, scopes and the OpenAPI description come from it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Final

from lamplighter.api import documents
from lamplighter.api.access import Scope
from lamplighter.api.acting import BulkBody, ReplayBody
from lamplighter.api.callbacks import CompleteBody, FailBody, HeartbeatBody
from lamplighter.api.creating import BatchBody
from lamplighter.api.limiting import LimitBody
from lamplighter.api.patching import JobPatch
from lamplighter.api.payloads import PayloadBody
from lamplighter.api.preview import PreviewBody
from lamplighter.api.requests import VERSION_TAG
from lamplighter.api.running import BackfillBody, TriggerBody
from lamplighter.api.shapes import AnyJobBody
from lamplighter.core.limits import FORECAST_MOST_PER_SECOND, LIST_ITEMS, LIST_MAX_ITEMS

HTML: Final = "text/html"


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """A parameter of a query, a path or a header."""

    name: str
    description: str
    schema: Mapping[str, object] = field(default_factory=lambda: {"type": "string"})
    place: str = "query"


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One method of one path."""

    id: str
    method: str
    path: str
    """Without `/v1`; a part between braces is a parameter."""
    summary: str
    needs: Scope | None
    """None: open to anyone, with a token or without."""
    query: tuple[Parameter, ...] = ()
    headers: tuple[Parameter, ...] = ()
    body: Any = None
    """What pydantic reads a JSON schema from; None: no body is read."""
    needs_body: bool = True
    """Whether the body may not be left out, where one is read."""
    success: HTTPStatus = HTTPStatus.OK
    answer: Any = None
    """As `body`; None: an answer without one."""
    answer_headers: tuple[Parameter, ...] = ()
    media_type: str = "application/json"
    refusals: tuple[HTTPStatus, ...] = ()
    """Answered with a problem, beside those that any operation may be."""
    others: Mapping[HTTPStatus, Any] = field(default_factory=dict)
    """Statuses with a document of their own."""


STATUS: Final = Parameter(
    name="status",
    description="Any of these, by our names or another system's; commas between several.",
)
TASK: Final = Parameter(name="task", description="Of this task.")
QUEUE: Final = Parameter(name="queue", description="In this lane.")
FROM: Final = Parameter(
    name="from",
    description="RFC 3339: with a `run_at` then or later; a recurring job, with a slot.",
)
TO: Final = Parameter(name="to", description="RFC 3339: with a `run_at` before that.")
SLOTS_FROM: Final = Parameter(
    name="from", description="RFC 3339: slots then or later; a day before `to`, unless given."
)
SLOTS_TO: Final = Parameter(name="to", description="RFC 3339: slots before it; now, unless given.")
DUE_FROM: Final = Parameter(
    name="from", description="RFC 3339: due then or later; now, unless given."
)
DUE_TO: Final = Parameter(
    name="to", description="RFC 3339: due before it, at most a day later; in an hour, unless given."
)
PER_SECOND: Final = Parameter(
    name="per_second",
    description="How many executions can start in a second, all in one lane; without it, lane by "
    "lane what the stack can.",
    schema=MappingProxyType(
        {"type": "number", "exclusiveMinimum": 0, "maximum": FORECAST_MOST_PER_SECOND}
    ),
)
FORECAST: Final = Parameter(
    name="forecast",
    description="Whether to tell, in `warnings`, of a start that will be late; without it, of a "
    "recurring job's alone, and of a change of when or in which lane it runs.",
    schema=MappingProxyType({"type": "boolean"}),
)
CURSOR: Final = Parameter(name="cursor", description="A page's `next_cursor`, for the following.")
LIMIT: Final = Parameter(
    name="limit",
    description="How many items at most.",
    schema=MappingProxyType(
        {"type": "integer", "minimum": 1, "maximum": LIST_MAX_ITEMS, "default": LIST_ITEMS}
    ),
)
MODE: Final = Parameter(
    name="mode",
    description="`request` asks a one-off that runs to stop.",
    schema=MappingProxyType({"const": "request"}),
)
KEY: Final = Parameter(
    name="Idempotency-Key",
    description="Makes a retry safe for seven days: the same body gets the first answer again.",
    schema=MappingProxyType({"type": "string", "minLength": 1, "maxLength": 255}),
    place="header",
)
IF_MATCH: Final = Parameter(
    name="If-Match",
    description="The `ETag` of the version that is meant, or `*`; without it, whichever it is.",
    schema=MappingProxyType({"type": "string", "pattern": rf"^(\*|{VERSION_TAG})$"}),
    place="header",
)
ETAG: Final = Parameter(
    name="ETag",
    description="The version of the definition, in quotes: for `If-Match`.",
    place="header",
)
TRACE: Final = Parameter(
    name="traceparent",
    description="W3C Trace Context, kept with a one-off's execution.",
    place="header",
)
JOB_ID: Final = Parameter(
    name="job_id",
    description="A job's id.",
    schema=MappingProxyType({"type": "string", "pattern": "^(job|one)_[0-9a-hjkmnp-tv-z]{26}$"}),
    place="path",
)
EXECUTION_ID: Final = Parameter(
    name="execution_id",
    description="An execution's id.",
    schema=MappingProxyType({"type": "string", "pattern": "^ex_[0-9a-hjkmnp-tv-z]{26}$"}),
    place="path",
)
LIMIT_KIND: Final = Parameter(
    name="kind",
    description="Of the limit.",
    schema=MappingProxyType({"enum": ["queue", "owner", "task"]}),
)
LIMIT_NAME: Final = Parameter(name="name", description="Of the limit.")
FILTERS: Final = (STATUS, TASK, QUEUE, FROM, TO, CURSOR, LIMIT)

_OF_A_BODY: Final = (
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
)

_OF_A_CALLBACK: Final = (
    *_OF_A_BODY,
    HTTPStatus.NOT_FOUND,
    HTTPStatus.CONFLICT,
    HTTPStatus.SERVICE_UNAVAILABLE,
)

OPERATIONS: Final = (
    Operation(
        id="create_job",
        method="POST",
        path="/jobs",
        summary="Create a job; it is durable before the answer",
        needs=Scope.JOBS_WRITE,
        query=(FORECAST,),
        headers=(KEY, TRACE),
        body=AnyJobBody,
        success=HTTPStatus.CREATED,
        answer=documents.AnyCreated,
        answer_headers=(ETAG,),
        refusals=(*_OF_A_BODY, HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY),
    ),
    Operation(
        id="list_jobs",
        method="GET",
        path="/jobs",
        summary="Definitions: recurring ones, newest first, then one-offs; with status, executions",
        needs=Scope.JOBS_READ,
        query=FILTERS,
        answer=documents.Jobs,
    ),
    Operation(
        id="create_jobs",
        method="POST",
        path="/jobs/batch",
        summary="Create up to 100 jobs, each with an answer of its own",
        needs=Scope.JOBS_WRITE,
        query=(FORECAST,),
        headers=(TRACE,),
        body=BatchBody,
        answer=documents.Batch,
        refusals=_OF_A_BODY,
    ),
    Operation(
        id="show_job",
        method="GET",
        path="/jobs/{job_id}",
        summary="A definition, its payload and its latest executions",
        needs=Scope.JOBS_READ,
        answer=documents.JobDetail,
        answer_headers=(ETAG,),
        refusals=(HTTPStatus.NOT_FOUND,),
    ),
    Operation(
        id="patch_job",
        method="PATCH",
        path="/jobs/{job_id}",
        summary="Have a job go on otherwise: a merge patch of its body",
        needs=Scope.JOBS_WRITE,
        query=(FORECAST,),
        headers=(IF_MATCH,),
        body=JobPatch,
        answer=documents.AnyPatchedJob,
        answer_headers=(ETAG,),
        refusals=(
            *_OF_A_BODY,
            HTTPStatus.NOT_FOUND,
            HTTPStatus.CONFLICT,
            HTTPStatus.PRECONDITION_FAILED,
        ),
    ),
    Operation(
        id="delete_job",
        method="DELETE",
        path="/jobs/{job_id}",
        summary="Have a job never start again",
        needs=Scope.JOBS_WRITE,
        query=(MODE,),
        success=HTTPStatus.NO_CONTENT,
        refusals=(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT),
    ),
    Operation(
        id="pause_job",
        method="POST",
        path="/jobs/{job_id}/pause",
        summary="Have nothing of a recurring job start until it is resumed",
        needs=Scope.JOBS_WRITE,
        headers=(IF_MATCH,),
        answer=documents.RevisedJob,
        answer_headers=(ETAG,),
        refusals=(
            HTTPStatus.NOT_FOUND,
            HTTPStatus.CONFLICT,
            HTTPStatus.PRECONDITION_FAILED,
        ),
    ),
    Operation(
        id="resume_job",
        method="POST",
        path="/jobs/{job_id}/resume",
        summary="Have a recurring job go on with its first slot after now",
        needs=Scope.JOBS_WRITE,
        headers=(IF_MATCH,),
        answer=documents.RevisedJob,
        answer_headers=(ETAG,),
        refusals=(
            HTTPStatus.NOT_FOUND,
            HTTPStatus.CONFLICT,
            HTTPStatus.PRECONDITION_FAILED,
        ),
    ),
    Operation(
        id="trigger_job",
        method="POST",
        path="/jobs/{job_id}/trigger",
        summary="Run a recurring job now, beside its schedule",
        needs=Scope.JOBS_WRITE,
        headers=(KEY, TRACE),
        body=TriggerBody,
        needs_body=False,
        success=HTTPStatus.CREATED,
        answer=documents.Execution,
        refusals=(
            *_OF_A_BODY,
            HTTPStatus.NOT_FOUND,
            HTTPStatus.CONFLICT,
            HTTPStatus.UNPROCESSABLE_ENTITY,
        ),
    ),
    Operation(
        id="backfill_job",
        method="POST",
        path="/jobs/{job_id}/backfill",
        summary="Run a recurring job's slots of the past, each once",
        needs=Scope.JOBS_WRITE,
        headers=(KEY, TRACE),
        body=BackfillBody,
        success=HTTPStatus.ACCEPTED,
        answer=documents.Backfill,
        others=MappingProxyType({HTTPStatus.OK: documents.Backfill}),
        refusals=(
            *_OF_A_BODY,
            HTTPStatus.NOT_FOUND,
            HTTPStatus.CONFLICT,
            HTTPStatus.UNPROCESSABLE_ENTITY,
        ),
    ),
    Operation(
        id="list_job_executions",
        method="GET",
        path="/jobs/{job_id}/executions",
        summary="A job's executions, beside its schedule too, latest run_at first",
        needs=Scope.JOBS_READ,
        query=FILTERS,
        answer=documents.Executions,
        refusals=(HTTPStatus.NOT_FOUND,),
    ),
    Operation(
        id="list_job_runs",
        method="GET",
        path="/jobs/{job_id}/runs",
        summary="The same as a job's executions",
        needs=Scope.JOBS_READ,
        query=FILTERS,
        answer=documents.Executions,
        refusals=(HTTPStatus.NOT_FOUND,),
    ),
    Operation(
        id="show_ledger",
        method="GET",
        path="/jobs/{job_id}/ledger",
        summary="What became of each slot that a recurring job planned",
        needs=Scope.JOBS_READ,
        query=(SLOTS_FROM, SLOTS_TO, CURSOR),
        answer=documents.Ledger,
        refusals=(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT),
    ),
    Operation(
        id="show_forecast",
        method="GET",
        path="/forecast",
        summary="How many executions are due in each minute to come, and how late that makes them",
        needs=Scope.JOBS_READ,
        query=(DUE_FROM, DUE_TO, PER_SECOND, CURSOR),
        answer=documents.Forecast,
    ),
    Operation(
        id="show_progress",
        method="GET",
        path="/progress",
        summary="How far dispatch has come, of everybody's jobs, and how a backlog drains",
        needs=Scope.JOBS_READ,
        answer=documents.Progress,
    ),
    Operation(
        id="show_recovery",
        method="GET",
        path="/recovery",
        summary="What would run if dispatch came back now; nothing is done",
        needs=Scope.JOBS_READ,
        query=(CURSOR, LIMIT),
        answer=documents.OverdueJobs,
    ),
    Operation(
        id="list_limits",
        method="GET",
        path="/limits",
        summary="How many executions may run at once, by lane, owner and task, and how many do",
        needs=Scope.OPS_LIMITS,
        answer=documents.Limits,
    ),
    Operation(
        id="set_limit",
        method="PUT",
        path="/limits",
        summary="Limit how many executions of a lane, an owner or a task run at once",
        needs=Scope.OPS_LIMITS,
        body=LimitBody,
        answer=documents.Limit,
        refusals=(*_OF_A_BODY, HTTPStatus.CONFLICT),
    ),
    Operation(
        id="remove_limit",
        method="DELETE",
        path="/limits",
        summary="Let any number run at once again",
        needs=Scope.OPS_LIMITS,
        query=(LIMIT_KIND, LIMIT_NAME),
        success=HTTPStatus.NO_CONTENT,
        refusals=(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT),
    ),
    Operation(
        id="list_executions",
        method="GET",
        path="/executions",
        summary="All executions, latest run_at first",
        needs=Scope.JOBS_READ,
        query=FILTERS,
        answer=documents.Executions,
    ),
    Operation(
        id="show_execution",
        method="GET",
        path="/executions/{execution_id}",
        summary="An execution: its tries, its payload and its result",
        needs=Scope.JOBS_READ,
        answer=documents.Execution,
        refusals=(HTTPStatus.NOT_FOUND,),
    ),
    Operation(
        id="cancel_executions",
        method="POST",
        path="/executions/cancel",
        summary="Cancel those that a filter lets through, each with an answer of its own",
        needs=Scope.JOBS_WRITE,
        body=BulkBody,
        answer=documents.Bulk,
        refusals=(*_OF_A_BODY, HTTPStatus.NOT_FOUND),
    ),
    Operation(
        id="replay_executions",
        method="POST",
        path="/executions/replay",
        summary="Replay those that a filter lets through, each with an answer of its own",
        needs=Scope.OPS_REPLAY,
        headers=(KEY, TRACE),
        body=BulkBody,
        answer=documents.Bulk,
        refusals=(*_OF_A_BODY, HTTPStatus.NOT_FOUND),
    ),
    Operation(
        id="cancel_execution",
        method="POST",
        path="/executions/{execution_id}/cancel",
        summary="End an execution that waits, or ask one that runs to stop",
        needs=Scope.JOBS_WRITE,
        answer=documents.Execution,
        others=MappingProxyType({HTTPStatus.ACCEPTED: documents.Execution}),
        refusals=(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT),
    ),
    Operation(
        id="replay_execution",
        method="POST",
        path="/executions/{execution_id}/replay",
        summary="Run again what has ended, as a new execution",
        needs=Scope.OPS_REPLAY,
        headers=(KEY, TRACE),
        body=ReplayBody,
        needs_body=False,
        success=HTTPStatus.CREATED,
        answer=documents.Execution,
        refusals=(
            *_OF_A_BODY,
            HTTPStatus.NOT_FOUND,
            HTTPStatus.CONFLICT,
            HTTPStatus.UNPROCESSABLE_ENTITY,
        ),
    ),
    Operation(
        id="heartbeat_try",
        method="POST",
        path="/executions/{execution_id}/heartbeat",
        summary="Say that a deferred try goes on; its callback token is in the body",
        needs=None,
        body=HeartbeatBody,
        answer=documents.CalledBack,
        refusals=_OF_A_CALLBACK,
    ),
    Operation(
        id="complete_try",
        method="POST",
        path="/executions/{execution_id}/complete",
        summary="End a deferred try with its result; once",
        needs=None,
        body=CompleteBody,
        answer=documents.CalledBack,
        refusals=_OF_A_CALLBACK,
    ),
    Operation(
        id="fail_try",
        method="POST",
        path="/executions/{execution_id}/fail",
        summary="End a deferred try with an error; once",
        needs=None,
        body=FailBody,
        answer=documents.CalledBack,
        refusals=_OF_A_CALLBACK,
    ),
    Operation(
        id="create_payload",
        method="POST",
        path="/payloads",
        summary="A place to upload one payload to, for a job's payload_ref",
        needs=Scope.JOBS_WRITE,
        body=PayloadBody,
        success=HTTPStatus.CREATED,
        answer=documents.PayloadGrant,
        refusals=_OF_A_BODY,
    ),
    Operation(
        id="preview_schedule",
        method="POST",
        path="/schedules/preview",
        summary="When a schedule would be due, in instants and in words",
        needs=Scope.JOBS_READ,
        body=PreviewBody,
        answer=documents.Preview,
        refusals=_OF_A_BODY,
    ),
    Operation(
        id="health",
        method="GET",
        path="/health",
        summary="Whether the tables answer",
        needs=None,
        answer=documents.Health,
        others=MappingProxyType({HTTPStatus.SERVICE_UNAVAILABLE: documents.Health}),
    ),
    Operation(
        id="openapi",
        method="GET",
        path="/openapi.json",
        summary="This description",
        needs=None,
        answer=dict[str, object],
    ),
    Operation(
        id="docs",
        method="GET",
        path="/docs",
        summary="This description as a page, with Swagger UI",
        needs=None,
        answer=str,
        media_type=HTML,
        refusals=(HTTPStatus.NOT_FOUND,),
    ),
)
