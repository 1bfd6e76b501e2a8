"""Jobs and executions as JSON: our names, and instants in UTC with milliseconds."""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from itertools import accumulate, pairwise
from typing import assert_never

from lamplighter.api import documents
from lamplighter.core.lateness import Lateness, lateness_of
from lamplighter.core.lifecycle import State
from lamplighter.core.model import Attempt, PayloadRef, Spec, Target
from lamplighter.core.named import NamedTarget, TargetKind
from lamplighter.core.retry import Failure
from lamplighter.core.schedule import Kind, Schedule, format_instant
from lamplighter.core.status import status_of
from lamplighter.core.targets import HttpTarget
from lamplighter.services.inspect import Definition, Detail, OneOff, Recurring, Seen
from lamplighter.services.manage import Revised
from lamplighter.services.payloads import Granted
from lamplighter.services.progress import Overall
from lamplighter.services.recovery import Overdue
from lamplighter.services.submit import Created

Document = Mapping[str, object]

_MILLISECOND = timedelta(milliseconds=1)
_SECOND = timedelta(seconds=1)
_WAITING = {State.SCHEDULED, State.RETRYING}


def created(made: Created) -> documents.Created:
    """The answer to a create, as it was when the job was made."""
    first = made.first
    return {
        "job_id": made.job_id,
        "execution_id": first.id,
        "task": first.task,
        "queue": first.queue,
        "status": status_of(first, dispatched=False),
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
        "task_version": row.task_version,
        **_payload_of(seen),
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
        "lateness": _lateness(lateness_of(row)),
        "attempt": attempts[-1].number if attempts else 0,
        "attempts": [_attempt(attempt) for attempt in attempts],
        "result": None if row.result is None else _value(row.result),
        "error": _failure(row.error),
        "reason": row.reason,
        "cancel_requested_at": _instant(row.cancel_requested_at),
        "replay_of": row.replay_of,
        "idempotency_key": row.idempotency_key,
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


def amended(definition: OneOff) -> documents.RevisedOneOffJob:
    """A one-off that was just changed, which only one that nobody has claimed is."""
    return {**_one_off(definition.execution), "in_flight": []}


def job(definition: Definition) -> documents.Job:
    """A definition, of either kind."""
    match definition:
        case Recurring():
            return _recurring(definition)
        case OneOff(execution=seen):
            return _one_off(seen)
        case other:
            assert_never(other)


def progress(found: Overall) -> documents.Progress:
    """How far dispatch has come."""
    drain = found.drain
    return {
        "dispatched_until": format_instant(found.dispatched_until),
        "due_until": format_instant(found.due_until),
        "backlog": None
        if drain is None
        else {
            "since": format_instant(drain.since),
            "oldest": format_instant(drain.oldest),
            "until": format_instant(drain.until),
            "share_done": round(drain.share, 4),
            "sent": drain.sent,
            "ends_at": _instant(drain.ends_at),
        },
    }


def overdue(found: Overdue) -> documents.OverdueJob:
    """What would run of a job, if dispatch came back now."""
    job, recovery = found.job, found.recovery
    return {
        "job_id": job.id,
        "name": job.name,
        "misfire_policy": job.misfire,
        "runs": recovery.runs,
        "first": _instant(recovery.first),
        "last": _instant(recovery.last),
        "last_starts_at": _instant(recovery.last_starts_at),
        "deadline": _instant(recovery.deadline),
        "not_run": recovery.not_run,
        "is_exact": recovery.is_exact,
    }


def _recurring(definition: Recurring) -> documents.RecurringJob:
    job = definition.job
    return {
        "job_id": job.id,
        "name": job.name,
        **_spec(job.spec, definition.payload),
        **_schedule(job.schedule),
        "misfire_policy": job.misfire,
        "misfire_threshold_seconds": job.catch_up.threshold // _SECOND,
        "catchup_window_seconds": job.catch_up.window // _SECOND,
        "catchup_max": job.catch_up.most,
        "catchup_spread_seconds": job.catch_up.spread // _SECOND,
        "overlap_policy": job.overlap,
        "status": job.status,
        "version": job.version,
        "created_at": format_instant(job.created_at),
        "next_run_at": _instant(definition.next_run_at),
        "schedule_error": job.unreadable,
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
        "task_version": spec.task_version,
        **_target(spec.target),
        **_payload(payload or spec.payload.text, spec.payload.ref),
        "queue": spec.queue,
        "retry_policy": {
            "max_attempts": retry.max_attempts,
            "base_seconds": retry.base_seconds,
            "factor": retry.factor,
            "max_seconds": retry.max_seconds,
            "jitter": retry.jitter,
            "retry_on": [*retry.retry_on],
            "no_retry_on": [*retry.no_retry_on],
            "honor_retry_after": retry.honor_retry_after,
        },
        "retry_policy_is_default": spec.retry_is_default,
        "timeout_seconds": spec.timeout.total_seconds(),
        "deadline_seconds": spec.deadline.total_seconds() if spec.deadline else None,
        "on_deadline": spec.on_deadline,
    }


def named_target(target: NamedTarget) -> documents.NamedTarget:
    """A target of the deployment, as a body names it."""
    if target.kind is TargetKind.LAMBDA:
        return {"kind": target.kind, "name": target.name, "invocation": target.invocation}
    return {"kind": target.kind, "name": target.name}


def _target(target: Target | None) -> documents.HasTarget:
    if target is None:
        return {}
    if isinstance(target, NamedTarget):
        return {"target": named_target(target)}
    return {
        "target": {
            "kind": "http",
            "url": target.shown_url,
            "method": target.method,
            "headers": target.shown_headers,
            **deferred_terms(target),
        }
    }


def deferred_terms(target: HttpTarget) -> documents.HasTerms:
    """By which terms a request is deferred, if it may be."""
    if target.deferred is None:
        return {}
    return {
        "deferred": {
            "heartbeat_seconds": target.deferred.heartbeat // _SECOND,
            "hard_limit_seconds": target.deferred.hard_limit // _SECOND,
        }
    }


def _payload_of(seen: Seen) -> documents.HasPayload:
    if seen.row.spec is None:
        return _payload(seen.payload, seen.payload_ref)
    kept = seen.row.spec.payload
    return _payload(seen.payload or kept.text, kept.ref)


def _payload(text: str | None, ref: PayloadRef | None) -> documents.HasPayload:
    if ref is not None:
        return {"payload_ref": payload_ref(ref)}
    # Absent, rather than null, where it was not fetched: null is a payload too.
    return {} if text is None else {"payload": _value(text)}


def payload_ref(ref: PayloadRef) -> documents.PayloadRef:
    """Which bytes a job was accepted with."""
    return {
        "key": ref.key,
        "version_id": ref.version_id,
        "sha256": ref.sha256,
        "size": ref.size,
    }


def granted(found: Granted) -> documents.PayloadGrant:
    """Where a payload may be uploaded to."""
    upload = found.upload
    return {
        "key": found.key,
        "upload": {"method": upload.method, "url": upload.url, "headers": {**upload.headers}},
        "expires_at": format_instant(found.closes_at),
    }


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
        "queued_at": _instant(attempt.arrival.sent_at if attempt.arrival else None),
        "started_at": format_instant(attempt.started_at),
        "finished_at": _instant(attempt.finished_at),
        "status": attempt.state,
        "worker": attempt.worker,
        "handler_version": attempt.handler_version,
        "error": _failure(attempt.error),
    }


def _lateness(lateness: Lateness | None) -> documents.Lateness | None:
    if lateness is None:
        return None
    splay, *late = lateness.parts.values()
    # Cut where each ends, counted from run_at on, so that they sum to the whole.
    ends = [0, *(end // _MILLISECOND for end in accumulate(late))]
    scan, blocked, permit, queue, cold_start, hold, claim = (
        end - start for start, end in pairwise(ends)
    )
    return {
        "total_ms": ends[-1],
        "total_from_slot_ms": ends[-1] + splay // _MILLISECOND,
        "splay_ms": splay // _MILLISECOND,
        "scan_ms": scan,
        "blocked_ms": blocked,
        "permit_ms": permit,
        "queue_ms": queue,
        "cold_start_ms": cold_start,
        "hold_ms": hold,
        "claim_ms": claim,
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
