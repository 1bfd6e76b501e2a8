"""Jobs and executions as JSON: our names, and instants in UTC with milliseconds."""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import assert_never

from lamplighter.api import documents
from lamplighter.api.policies import ALLOW
from lamplighter.core.lifecycle import State
from lamplighter.core.model import Attempt, Spec
from lamplighter.core.retry import Failure
from lamplighter.core.schedule import Kind, Schedule, format_instant
from lamplighter.core.status import status_of
from lamplighter.services.inspect import Definition, Detail, OneOff, Recurring, Seen
from lamplighter.services.manage import Revised
from lamplighter.services.submit import Created

Document = Mapping[str, object]

_MILLISECOND = timedelta(milliseconds=1)
_WAITING = {State.SCHEDULED, State.RETRYING}


def created(made: Created) -> documents.Created:
    """The answer to a create, as it was when the job was made."""
    first = made.first
    return {
        "job_id": made.job_id,
        "execution_id": first.id,
        "task": first.task,
        "queue": first.queue,
        "status": status_of(first, dispatched=None),
        "scheduled_for": format_instant(first.scheduled_for),
        "run_at": format_instant(first.run_at),
        "next_run_at": format_instant(first.run_at),
        "created_at": format_instant(first.created_at),
    }


def created_typed(made: Created) -> documents.CreatedTyped:
    """As `created`, to a body in camel case; its `scheduled` is ours of SCHEDULED and QUEUED."""
    return {
        "jobId": made.job_id,
        "executionId": made.first.id,
        "status": made.first.state.lower(),
        "runAt": _shortest(made.first.run_at),
    }


def created_by_task_id(made: Created) -> documents.CreatedByTaskId:
    """As `created`, to a body with a `task_id`."""
    return {"job_id": made.job_id}


def created_targeted(made: Created) -> documents.CreatedTargeted:
    """As `created`, to a body with a `target`."""
    return {"job_id": made.job_id, "next_fire_time": _shortest(made.first.run_at)}


def execution(seen: Seen) -> documents.Execution:
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
        "scheduled_for": format_instant(row.scheduled_for),
        "run_at": format_instant(row.run_at),
        "created_at": format_instant(row.created_at),
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


def detail(found: Detail) -> documents.JobDetail:
    """A definition with its latest executions."""
    executions = [execution(seen) for seen in found.executions]
    match found.definition:
        case Recurring() as definition:
            return {**_recurring(definition), "executions": executions}
        case OneOff(execution=seen):
            return {**_one_off(seen), "executions": executions}
        case other:
            assert_never(other)


def revised(found: Revised, *, next_run_at: datetime | None) -> documents.RevisedJob:
    """A definition that was just changed, and what was already claimed."""
    definition = Recurring(job=found.job, next_run_at=next_run_at)
    return {**_recurring(definition), "in_flight": [*found.in_flight]}


def job(definition: Definition) -> documents.Job:
    """A definition, of either kind."""
    match definition:
        case Recurring():
            return _recurring(definition)
        case OneOff(execution=seen):
            return _one_off(seen)
        case other:
            assert_never(other)


def _recurring(definition: Recurring) -> documents.RecurringJob:
    job = definition.job
    return {
        "job_id": job.id,
        "name": job.name,
        **_spec(job.spec, definition.payload),
        **_schedule(job.schedule),
        "misfire_policy": job.misfire,
        "overlap_policy": ALLOW,
        "status": job.status,
        "version": job.version,
        "created_at": format_instant(job.created_at),
        "next_run_at": _instant(definition.next_run_at),
    }


def _one_off(seen: Seen) -> documents.OneOffJob:
    row = seen.row
    if row.spec is None:
        raise ValueError(f"{row.id} is a one-off and has no definition")
    return {
        "job_id": row.job_id,
        "execution_id": row.id,
        **_spec(row.spec, seen.payload),
        "run_at": format_instant(row.run_at),
        "scheduled_for": format_instant(row.scheduled_for),
        "status": seen.status,
        "version": row.job_version,
        "created_at": format_instant(row.created_at),
        "next_run_at": _instant(row.due_at if row.state in _WAITING else None),
    }


def _spec(spec: Spec, payload: str | None) -> documents.Task:
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


def _payload(text: str | None) -> documents.HasPayload:
    # Absent, rather than null, where it was not fetched: null is a payload too.
    return {} if text is None else {"payload": _value(text)}


def _value(text: str) -> object:
    # What some encoder wrote for a number that JSON does not have goes out as a text.
    value: object = json.loads(text, parse_constant=str)
    return value


def _schedule(schedule: Schedule) -> documents.Schedule:
    text = schedule.text
    when: documents.When = {"cron": text} if schedule.kind is Kind.CRON else {"rate": text}
    return {
        **when,
        "timezone": schedule.timezone,
        "dialect": schedule.dialect,
        "dst_gap": schedule.dst.gap,
        "dst_fold": schedule.dst.fold,
        "start_at": _instant(schedule.start_at),
        "end_at": _instant(schedule.end_at),
        "max_occurrences": schedule.max_occurrences,
        "flexible_window_seconds": schedule.flexible_window.total_seconds(),
        "except": [*schedule.except_],
        "anchor": _instant(schedule.anchor),
        "tzdb_version": schedule.zones.version,
    }


def _attempt(attempt: Attempt) -> documents.Attempt:
    return {
        "number": attempt.number,
        "started_at": format_instant(attempt.started_at),
        "finished_at": _instant(attempt.finished_at),
        "status": attempt.state,
        "worker": attempt.worker,
        "error": _failure(attempt.error),
    }


def _failure(failure: Failure | None) -> documents.Failure | None:
    if failure is None:
        return None
    return {"kind": failure.kind, "type": failure.type, "message": failure.message}


def _instant(instant: datetime | None) -> str | None:
    return None if instant is None else format_instant(instant)


def _shortest(instant: datetime) -> str:
    """RFC 3339 in UTC, with a fraction only where there is one."""
    return format_instant(instant).replace(".000Z", "Z")


def _milliseconds(duration: timedelta | None) -> int | None:
    return None if duration is None else duration // _MILLISECOND
