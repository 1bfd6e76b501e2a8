"""Jobs and executions as JSON: our names, and instants in UTC with milliseconds."""

import json
from datetime import datetime, timedelta
from typing import assert_never

from lamplighter.core.lifecycle import State
from lamplighter.core.model import Attempt, Job, Spec
from lamplighter.core.retry import Failure
from lamplighter.core.schedule import format_instant
from lamplighter.core.status import status_of
from lamplighter.services.inspect import Definition, Detail, OneOff, Recurring, Seen
from lamplighter.services.submit import Created

Document = dict[str, object]

_MILLISECOND = timedelta(milliseconds=1)
_WAITING = {State.SCHEDULED, State.RETRYING}


def created(made: Created) -> Document:
    """The answer to a create, as it was when the job was made."""
    first = made.first
    return {
        "job_id": made.job_id,
        "execution_id": first.id,
        "task": first.task,
        "queue": first.queue,
        "status": status_of(first, dispatched=None),
        "scheduled_for": _instant(first.scheduled_for),
        "run_at": _instant(first.run_at),
        "next_run_at": _instant(first.run_at),
        "created_at": _instant(first.created_at),
    }


def execution(seen: Seen) -> Document:
    """An execution with its tries; with its payload where that is at hand."""
    row = seen.row
    attempts = seen.attempts
    return {
        "execution_id": row.id,
        "job_id": row.job_id,
        "job_version": row.job_version,
        "task": row.task,
        **_payload(seen.payload or (row.spec.payload.text if row.spec else None)),
        "queue": row.queue,
        "status": seen.status,
        "trigger": row.trigger,
        "scheduled_for": _instant(row.scheduled_for),
        "run_at": _instant(row.run_at),
        "created_at": _instant(row.created_at),
        "started_at": _instant(row.first_started_at),
        "finished_at": _instant(row.finished_at),
        "next_run_at": _instant(row.due_at if row.state in _WAITING else None),
        "lateness_ms": _milliseconds(row.lateness),
        "attempt": attempts[-1].number if attempts else 0,
        "attempts": [_attempt(attempt) for attempt in attempts],
        "result": None if row.result is None else _value(row.result),
        "error": _failure(row.error),
        "reason": row.reason,
        "cancel_requested_at": _instant(row.cancel_requested_at),
        "traceparent": row.traceparent,
    }


def detail(found: Detail) -> Document:
    """A definition with its latest executions."""
    return {
        **job(found.definition),
        "executions": [execution(seen) for seen in found.executions],
    }


def job(definition: Definition) -> Document:
    """A definition, of either kind."""
    match definition:
        case Recurring():
            return _recurring(definition)
        case OneOff(execution=seen):
            return _one_off(seen)
        case other:
            assert_never(other)


def _recurring(definition: Recurring) -> Document:
    job = definition.job
    return {
        "job_id": job.id,
        "name": job.name,
        **_spec(job.spec, definition.payload),
        **_schedule(job),
        "misfire_policy": job.misfire,
        "status": job.status,
        "version": job.version,
        "created_at": _instant(job.created_at),
        "next_run_at": _instant(definition.next_run_at),
    }


def _one_off(seen: Seen) -> Document:
    row = seen.row
    return {
        "job_id": row.job_id,
        "execution_id": row.id,
        **(_spec(row.spec, seen.payload) if row.spec else {}),
        "run_at": _instant(row.run_at),
        "scheduled_for": _instant(row.scheduled_for),
        "status": seen.status,
        "version": row.job_version,
        "created_at": _instant(row.created_at),
        "next_run_at": _instant(row.due_at if row.state in _WAITING else None),
    }


def _spec(spec: Spec, payload: str | None) -> Document:
    retry = spec.retry
    return {
        "task": spec.task,
        **_payload(payload or spec.payload.text),
        "queue": spec.queue,
        "retry_policy": {
            "max_attempts": retry.max_attempts,
            "base_seconds": retry.base_seconds,
            "factor": retry.factor,
            "max_seconds": retry.max_seconds,
        },
        "timeout_seconds": spec.timeout.total_seconds(),
    }


def _payload(text: str | None) -> Document:
    # Absent, rather than null, where it was not fetched: null is a payload too.
    return {} if text is None else {"payload": _value(text)}


def _value(text: str) -> object:
    # What some encoder wrote for a number that JSON does not have goes out as a text.
    value: object = json.loads(text, parse_constant=str)
    return value


def _schedule(job: Job) -> Document:
    schedule = job.schedule
    said: Document = {
        schedule.kind: schedule.text,
        "timezone": schedule.timezone,
        "dialect": schedule.dialect,
        "dst_gap": schedule.dst.gap,
        "dst_fold": schedule.dst.fold,
        "start_at": _instant(schedule.start_at),
        "end_at": _instant(schedule.end_at),
        "max_occurrences": schedule.max_occurrences,
        "except": [*schedule.except_],
        "tzdb_version": schedule.zones.version,
    }
    return said


def _attempt(attempt: Attempt) -> Document:
    return {
        "number": attempt.number,
        "started_at": _instant(attempt.started_at),
        "finished_at": _instant(attempt.finished_at),
        "status": attempt.state,
        "worker": attempt.worker,
        "error": _failure(attempt.error),
    }


def _failure(failure: Failure | None) -> Document | None:
    if failure is None:
        return None
    return {"kind": failure.kind, "type": failure.type, "message": failure.message}


def _instant(instant: datetime | None) -> str | None:
    return None if instant is None else format_instant(instant)


def _milliseconds(duration: timedelta | None) -> int | None:
    return None if duration is None else duration // _MILLISECOND
