"""Ending a deferred try, or going on with it: who calls is known by a callback token alone."""

from datetime import timedelta
from http import HTTPStatus
from typing import Annotated, Literal

from pydantic import Field

from lamplighter.api import documents, strict_json
from lamplighter.api.bodies import Body
from lamplighter.api.creating import Reply
from lamplighter.api.reading import read
from lamplighter.core.buckets import ExecutionId
from lamplighter.core.errors import Rejected
from lamplighter.core.limits import (
    ERROR_MESSAGE_MAX_CHARS,
    MAX_BACKOFF,
    RESULT_MAX_BYTES,
    RETRY_NAME_MAX_CHARS,
)
from lamplighter.core.model import Execution
from lamplighter.core.outcome import Failed, Succeeded
from lamplighter.core.retry import Failure, Kind
from lamplighter.core.schedule import format_instant
from lamplighter.ports import Ports
from lamplighter.services import deferred

_KINDS = {"retryable": Kind.RETRYABLE, "permanent": Kind.PERMANENT}


class HeartbeatBody(Body):
    """That a deferred try goes on."""

    # Of any length: what a refusal quotes is no token.
    token: Annotated[str, Field(description="The callback token of the try.", repr=False)]


class CompleteBody(HeartbeatBody):
    """That it has succeeded."""

    result: Annotated[object, Field(description=f"Any JSON, at most {RESULT_MAX_BYTES} bytes.")] = (
        None
    )


class ErrorBody(Body):
    """What went wrong; nothing of the payload should be in it."""

    type: Annotated[
        str,
        Field(
            min_length=1,
            max_length=RETRY_NAME_MAX_CHARS,
            description="What a retry policy's lists go by.",
        ),
    ] = "Failed"
    message: Annotated[str, Field(max_length=ERROR_MESSAGE_MAX_CHARS)] = ""
    kind: Annotated[
        Literal["retryable", "permanent"],
        Field(description="Whether trying again may help."),
    ] = "retryable"
    retry_after_seconds: Annotated[
        int | None,
        Field(
            ge=0,
            le=int(MAX_BACKOFF.total_seconds()),
            description="No earlier than that; unless given, as the retry policy says.",
        ),
    ] = None


class FailBody(HeartbeatBody):
    """That it has failed."""

    error: ErrorBody = Field(default_factory=ErrorBody)


def heartbeat(ports: Ports, id: ExecutionId, value: object) -> Reply:
    """Raises what Api answers with a problem, here and below."""
    body = read(HeartbeatBody, value)
    return _told(deferred.heartbeat(ports, id, body.token))


def complete(ports: Ports, id: ExecutionId, value: object) -> Reply:
    body = read(CompleteBody, value)
    result = strict_json.compact(body.result)
    if (size := len(result.encode())) > RESULT_MAX_BYTES:
        reason = f"larger than {RESULT_MAX_BYTES} bytes"
        raise Rejected(field="result", value=f"{size} bytes", reason=reason)
    said = strict_json.compact(["complete", result])
    return _told(deferred.end(ports, id, body.token, Succeeded(result=result), said=said))


def fail(ports: Ports, id: ExecutionId, value: object) -> Reply:
    body = read(FailBody, value)
    error = body.error
    after = error.retry_after_seconds
    failure = Failure(
        kind=_KINDS[error.kind],
        type=error.type,
        message=error.message,
        retry_after=None if after is None else timedelta(seconds=after),
    )
    said = strict_json.compact(["fail", error.model_dump(mode="json")])
    failed = Failed(failure=failure, names=(failure.type,))
    return _told(deferred.end(ports, id, body.token, failed, said=said))


def _told(row: Execution) -> Reply:
    until = row.lease_until if row.deferral is not None else None
    document: documents.CalledBack = {
        "execution_id": row.id,
        "status": row.state,
        "attempt": row.attempt,
        "cancel_requested": row.cancel_requested_at is not None,
        "heard_until": None if until is None else format_instant(until),
    }
    return Reply(status=HTTPStatus.OK, document=document, headers={})
