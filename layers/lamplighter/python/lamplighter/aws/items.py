"""Executions, pointers, jobs, keys and leases as DynamoDB items, and back.

Every attribute's name is declared here or in `schema`, once. Names are short because each
byte of a row is paid for at every write: a plain row with a 512-byte payload stays under one
write unit. What another attribute already says is left out: the owner is part of the index
key, run_at and the id are the sort key. Instants are whole milliseconds. Status is in no
index key.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from boto3.dynamodb.types import TypeDeserializer, TypeSerializer

from lamplighter.aws import schema
from lamplighter.core import limits
from lamplighter.core.buckets import (
    LIMITS_KEY,
    ExecutionId,
    JobId,
    Position,
    body_of,
    checkpoint_key,
    execution_id_at,
    from_ms,
    idempotency_key,
    is_queued_key,
    job_index_key_of,
    job_key,
    job_version_key,
    ms_up,
    one_off_job_id,
    owner_key_of,
    owner_of,
    payload_key,
    place_of,
    queued_key_of,
    row_key,
    to_ms,
)
from lamplighter.core.catch_up import CatchUp, CaughtUp
from lamplighter.core.deferral import CalledBack, Deferral, Terms
from lamplighter.core.lease import Backlog, Grant, Intent, Layout, Layouts, Progress, Work
from lamplighter.core.lifecycle import NEEDS_ATTENTION, State
from lamplighter.core.model import (
    Arrival,
    Attempt,
    Execution,
    Job,
    JobStatus,
    MisfirePolicy,
    OnDeadline,
    OverlapPolicy,
    Owner,
    Payload,
    PayloadRef,
    Pointer,
    PointerKind,
    Rest,
    Row,
    Spec,
    Target,
    Token,
    Trigger,
    Watch,
)
from lamplighter.core.named import Invocation, NamedTarget, TargetKind
from lamplighter.core.permits import Key, Limits, Permit, Use
from lamplighter.core.permits import Kind as LimitKind
from lamplighter.core.quotas import Mark, Usage, step_of
from lamplighter.core.retry import Failure, Kind, RetryPolicy
from lamplighter.core.schedule import read_record
from lamplighter.core.targets import METHODS, HttpTarget
from lamplighter.core.waits import Part, Waited
from lamplighter.ports import KeyRecord

Values = Mapping[str, Any]
"""An item, or a part of one, in Python's types. None: the attribute is not there."""

# Of an execution, and of what refers to one.
STATE: Final = "st"
ATTEMPT: Final = "at"
TOKEN: Final = "tk"  # noqa: S105 -- an attribute's name
LEASE_UNTIL: Final = "lu"
WORKER: Final = "wk"
NEXT_RUN_AT: Final = "nx"
STARTED_AT: Final = "sa"
FIRST_STARTED_AT: Final = "fs"
FINISHED_AT: Final = "fa"
RESULT: Final = "rs"
ERROR: Final = "er"
REASON: Final = "rn"
ATTEMPTS: Final = "as"
CRASHES: Final = "cr"
ARRIVAL: Final = "ar"
UNDELIVERABLE: Final = "ud"
CANCEL_REQUESTED_AT: Final = "cx"
SENT_DIRECTLY: Final = "sd"
SCHEDULED_FOR: Final = "sf"
CREATED_AT: Final = "ca"
TRIGGER: Final = "tr"
JOB_ID: Final = "ji"
JOB_VERSION: Final = "jv"
TASK: Final = "tn"
TASK_VERSION: Final = "tv"
QUEUE: Final = "qu"
SPEC: Final = "sp"
TRACEPARENT: Final = "tp"
REPLAY_OF: Final = "ro"
IDEMPOTENT_AS: Final = "ia"
PREDECESSOR: Final = "pr"
BLOCKER: Final = "bl"
WAITERS: Final = "ws"
MOVED_TO: Final = "mv"
CAUGHT_UP: Final = "cu"
WAITED: Final = "wt"
PARKED_SINCE: Final = "ps"
TOLD_AT: Final = "ta"
DEFERRAL: Final = "df"
CALLED_BACK: Final = "cb"

# Of a pointer.
POINTER_KIND: Final = "pt"
POINTS_AT: Final = "ei"
DUE_AT: Final = "du"

# Of a watch, which is told from a pointer by its kind.
WATCH: Final = "watch"
SINCE: Final = "si"
REST_UNTIL: Final = "ru"
REST_PLACE: Final = "rp"

# Of a job and of an idempotency key.
VERSION: Final = "v"
STATUS: Final = "st"
OWNER: Final = "ow"
NAME: Final = "nm"
SCHEDULE: Final = "sc"
MISFIRE: Final = "mf"
OVERLAP: Final = "ov"
CATCH_UP: Final = "cu"
TAIL: Final = "tl"
EFFECTIVE_FROM: Final = "ef"
KEY: Final = "ky"
FINGERPRINT: Final = "fp"
ANSWER: Final = "an"

# Of what an owner is counted to have, and of a bucket of submissions.
IS_COUNTED: Final = "ct"
LIVE_JOBS: Final = "lj"
QUEUED: Final = "qn"
QUEUED_BYTES: Final = "qb"
HELD_BYTES: Final = "hb"
MARKED_AT: Final = "ma"
MARKED_QUEUED: Final = "mq"
MARKED_BYTES: Final = "mb"
FULL_AT: Final = "fu"

# Of a payload that is an item of its own, of a checkpoint, and of what was done once.
TEXT: Final = "tx"
NUMBER: Final = "n"

# Of a partition's lease and of the layout, which is effective from an instant too.
LEASE_OWNER: Final = "ow"
LEASE_CALL: Final = "lc"
EPOCH: Final = "ep"
WATERMARK: Final = "wm"
INTENT: Final = "in"
BACKLOG: Final = "bg"
ARMED: Final = "am"
LAYOUTS: Final = "ls"

# Of a limit of what runs at once, and of the list of them.
LIMIT: Final = "li"
HOLDERS: Final = "ho"
CALL: Final = "cl"
LIMITS: Final = "ls"

# Inside a spec.
_PAYLOAD_TEXT: Final = "p"
_PAYLOAD_BYTES: Final = "b"
_PAYLOAD_VERSION: Final = "v"
_PAYLOAD_REF: Final = "o"
_RETRY: Final = "r"
_TIMEOUT_MS: Final = "t"
_DEADLINE_MS: Final = "d"
_ON_DEADLINE: Final = "y"
_TARGET: Final = "h"
# Inside a retry policy.
_JITTER: Final = "j"
_RETRY_ON: Final = "o"
_NO_RETRY_ON: Final = "n"
_HONOR_RETRY_AFTER: Final = "h"
# Of a policy that has none of its own, whatever becomes of the default.
_UNSAID_JITTER: Final = 0.5
# Inside an attempt.
_NUMBER: Final = "n"
_STARTED: Final = "s"
_FINISHED: Final = "f"
_WORKER: Final = "w"
_LED_TO: Final = "l"
_FAILURE: Final = "e"
_ARRIVAL: Final = "a"
_HANDLER_VERSION: Final = "h"
# Inside a failure.
_KIND: Final = "k"
_TYPE: Final = "t"
_MESSAGE: Final = "m"
_RETRY_AFTER_MS: Final = "ra"
# Inside an intent and a backlog.
_AFTER: Final = "a"
_UNTIL: Final = "u"
_DECIDED_AT: Final = "d"
_FIRST: Final = "f"
_SINCE: Final = "s"
_SENT: Final = "n"
_MARK: Final = "m"
_MARKED_AT: Final = "ma"
_SETTLED: Final = "st"
# Inside a layout.
_GENERATION: Final = "g"
_SHARDS: Final = "s"
_PARTITIONS: Final = "p"
_WIDEST_BEFORE: Final = "w"
_ENDS_AT: Final = "e"

_ARRIVAL_AT_LEAST: Final = 2  # of its numbers are always there

_MILLISECOND: Final = timedelta(milliseconds=1)
_SERIALIZER: Final = TypeSerializer()
_DESERIALIZER: Final = TypeDeserializer()


def marshal(values: Values) -> dict[str, Any]:
    """The item as the client takes it; what is None is left out."""
    return {
        name: _SERIALIZER.serialize(value) for name, value in values.items() if value is not None
    }


def unmarshal(item: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of `marshal`; numbers are Decimals."""
    return {name: _DESERIALIZER.deserialize(value) for name, value in item.items()}


def key_values(key: tuple[str, str]) -> dict[str, Any]:
    """The two key attributes of an item."""
    return {schema.PARTITION_KEY: key[0], schema.SORT_KEY: key[1]}


def execution_key(id: ExecutionId) -> tuple[str, str]:
    """Where an execution's row lies: its id says so."""
    return row_key(body_of(id))


def execution_values(row: Execution) -> Values:
    """The whole row. Raises ValueError when its id says another run_at than it has."""
    place = place_of(row.id)
    if to_ms(place.at) != to_ms(row.run_at):
        raise ValueError(f"{row.id} lies at {place.at}, not at its run_at {row.run_at}")
    if row.spec is not None and _named(row.spec) != _named(row):
        raise ValueError(f"{row.id} runs {_named(row)}, its definition {_named(row.spec)}")
    is_one_off = row.job_id == one_off_job_id(row.id)
    return {
        **key_values(execution_key(row.id)),
        **_owner_values(row),
        JOB_ID: None if is_one_off else row.job_id,
        TRIGGER: None if row.trigger is _implied_trigger(is_one_off) else row.trigger.value,
        JOB_VERSION: None if row.job_version == 1 else row.job_version,
        TASK: row.task,
        TASK_VERSION: row.task_version,
        QUEUE: row.queue,
        SPEC: None if row.spec is None else _spec_values(row.spec),
        SCHEDULED_FOR: None if row.scheduled_for == row.run_at else to_ms(row.scheduled_for),
        CREATED_AT: to_ms(row.created_at),
        SENT_DIRECTLY: row.sent_directly or None,
        CRASHES: row.crashes or None,
        UNDELIVERABLE: row.undeliverable or None,
        STARTED_AT: _ms(row.started_at),
        FIRST_STARTED_AT: _ms(row.first_started_at),
        CANCEL_REQUESTED_AT: _ms(row.cancel_requested_at),
        TOLD_AT: _ms(row.told_at),
        TRACEPARENT: row.traceparent,
        REPLAY_OF: row.replay_of,
        IDEMPOTENT_AS: row.idempotent_as,
        PREDECESSOR: row.predecessor,
        # A set that is empty is no attribute.
        WAITERS: {*row.waiters} or None,
        CAUGHT_UP: row.caught_up and _caught_up_text(row.caught_up),
        schema.JOB_KEY: job_index_key_of(row.job_id, row.id) if row.is_additional else None,
        MOVED_TO: row.moved_to,
        **outcome_values(row),
    }


def _named(of: Spec | Execution) -> tuple[str, int | None, str]:
    """What of a spec lies beside it."""
    return of.task, of.task_version, of.queue


def moved_values(row: Execution) -> Values:
    """What a row's move changes in it: it ends, and leaves its owner's index."""
    return {**outcome_values(row), **_owner_values(row), MOVED_TO: row.moved_to}


def leading_values(to: ExecutionId) -> Values:
    """What changes in a job's first row when the latest place of the job is another."""
    return {MOVED_TO: to, schema.TTL: _end_of_trail(to)}


def _owner_values(row: Execution) -> Values:
    # A row that was moved is in no list.
    is_listed = row.moved_to is None
    return {
        schema.OWNER_KEY: owner_key_of(row.owner, row.id) if is_listed else None,
        OWNER: None if is_listed else row.owner,
    }


def outcome_values(row: Execution) -> Values:
    """What the end of a try, or an end without one, changes in a row.

    A row that needs attention enters that index here, and a final one gets its end of life:
    both once, by the write that makes it final.
    """
    return {
        STATE: row.state.value,
        ATTEMPT: row.attempt,
        TOKEN: row.token,
        LEASE_UNTIL: _ms(row.lease_until),
        WORKER: row.worker,
        # Up, so that nothing is ever due before it was asked for.
        NEXT_RUN_AT: row.next_run_at and ms_up(row.next_run_at),
        FINISHED_AT: _ms(row.finished_at),
        RESULT: row.result,
        ERROR: row.error and _failure_values(row.error),
        REASON: row.reason,
        BLOCKER: row.blocker,
        ARRIVAL: _arrival_values(row.arrival, row.started_at),
        WAITED: row.waited and _waited_values(row.waited),
        PARKED_SINCE: _ms(row.parked_since),
        DEFERRAL: row.deferral and _deferral_values(row.deferral),
        CALLED_BACK: row.called_back and [row.called_back.token, row.called_back.answer],
        ATTEMPTS: _history_values(row.attempts) or None,
        schema.ATTENTION_KEY: _attention_key(row),
        schema.TTL: _end_of_life(row),
    }


def _attention_key(row: Execution) -> str | None:
    if row.state in NEEDS_ATTENTION:
        return owner_key_of(row.owner, row.id)
    if not row.is_counted or row.is_final:
        return None
    # With a payload of its own, or with its job's.
    step = 1 + step_of(row.spec.payload.bytes) if row.spec else 0
    return queued_key_of(row.owner, row.id, step)


def crash_values(row: Execution) -> Values:
    """What a take-over writes of the holder that fell silent."""
    return {
        CRASHES: row.crashes,
        ATTEMPTS: _history_values(row.attempts),
        ERROR: row.error and _failure_values(row.error),
    }


def execution_from(values: Values) -> Execution:
    """The inverse of `execution_values`."""
    id = execution_id_at(Position(values[schema.SORT_KEY]))
    run_at = place_of(id).at
    task, queue, version = values[TASK], values[QUEUE], _version_from(values)
    spec, error, job_id = values.get(SPEC), values.get(ERROR), values.get(JOB_ID)
    return Execution(
        id=id,
        job_id=one_off_job_id(id) if job_id is None else JobId(job_id),
        owner=Owner(values.get(OWNER) or owner_of(values[schema.OWNER_KEY])),
        trigger=Trigger(values.get(TRIGGER) or _implied_trigger(job_id is None)),
        job_version=int(values.get(JOB_VERSION) or 1),
        task=task,
        task_version=version,
        queue=queue,
        spec=None
        if spec is None
        else _spec_from(spec, task=task, queue=queue, task_version=version),
        scheduled_for=_instant(values.get(SCHEDULED_FOR)) or run_at,
        run_at=run_at,
        created_at=from_ms(int(values[CREATED_AT])),
        sent_directly=bool(values.get(SENT_DIRECTLY)),
        state=State(values[STATE]),
        attempt=int(values[ATTEMPT]),
        crashes=int(values.get(CRASHES) or 0),
        undeliverable=int(values.get(UNDELIVERABLE) or 0),
        token=values.get(TOKEN),
        lease_until=_instant(values.get(LEASE_UNTIL)),
        worker=values.get(WORKER),
        next_run_at=_instant(values.get(NEXT_RUN_AT)),
        started_at=_instant(values.get(STARTED_AT)),
        arrival=_arrival_from(values.get(ARRIVAL), values.get(STARTED_AT)),
        first_started_at=_instant(values.get(FIRST_STARTED_AT)),
        finished_at=_instant(values.get(FINISHED_AT)),
        result=values.get(RESULT),
        error=None if error is None else _failure_from(error),
        reason=values.get(REASON),
        attempts=_history_from(values.get(ATTEMPTS) or ()),
        cancel_requested_at=_instant(values.get(CANCEL_REQUESTED_AT)),
        parked_since=_instant(values.get(PARKED_SINCE)),
        deferral=_deferral_from(values.get(DEFERRAL)),
        called_back=_called_back_from(values.get(CALLED_BACK)),
        told_at=_instant(values.get(TOLD_AT)),
        traceparent=values.get(TRACEPARENT),
        replay_of=values.get(REPLAY_OF),
        idempotent_as=values.get(IDEMPOTENT_AS),
        predecessor=values.get(PREDECESSOR),
        blocker=values.get(BLOCKER),
        waiters=frozenset(values.get(WAITERS) or ()),
        waited=_waited_from(values.get(WAITED)),
        caught_up=_caught_up_from(values.get(CAUGHT_UP)),
        moved_to=values.get(MOVED_TO),
        is_counted=is_queued_key(values.get(schema.ATTENTION_KEY) or ""),
    )


def pointer_values(pointer: Pointer) -> Values:
    """A pointer row; it outlives its time by `limits.POINTER_KEPT`."""
    return {
        **key_values(row_key(pointer.position)),
        POINTER_KIND: pointer.kind.value,
        POINTS_AT: pointer.execution_id,
        QUEUE: pointer.queue,
        DUE_AT: ms_up(pointer.at),
        ATTEMPT: pointer.attempt,
        OWNER: pointer.owner,
        schema.TTL: _seconds_up(pointer.at + limits.POINTER_KEPT),
    }


def watch_values(watch: Watch) -> Values:
    """A watch; it outlives its time as a pointer does."""
    return {
        **key_values(row_key(watch.position)),
        POINTER_KIND: WATCH,
        JOB_ID: watch.job_id,
        DUE_AT: to_ms(watch.at),
        SINCE: to_ms(watch.since),
        REST_UNTIL: watch.rest and to_ms(watch.rest.until),
        REST_PLACE: watch.rest and watch.rest.place,
        schema.TTL: _seconds_up(watch.at + limits.POINTER_KEPT),
    }


def _watch_from(values: Values) -> Watch:
    until = _instant(values.get(REST_UNTIL))
    return Watch(
        position=Position(values[schema.SORT_KEY]),
        job_id=JobId(values[JOB_ID]),
        at=from_ms(int(values[DUE_AT])),
        since=from_ms(int(values[SINCE])),
        rest=Rest(until=until, place=values[REST_PLACE]) if until else None,
    )


def row_from(values: Values) -> Row:
    """Whatever row lies in a bucket."""
    if POINTER_KIND not in values:
        return execution_from(values)
    if values[POINTER_KIND] == WATCH:
        return _watch_from(values)
    return Pointer(
        kind=PointerKind(values[POINTER_KIND]),
        position=Position(values[schema.SORT_KEY]),
        execution_id=ExecutionId(values[POINTS_AT]),
        queue=values[QUEUE],
        at=from_ms(int(values[DUE_AT])),
        attempt=int(values[ATTEMPT]),
        owner=values.get(OWNER),  # an earlier version's rows have none
    )


def payload_values(id: JobId, payload: Payload, kept_until: datetime | None) -> Values:
    """A payload as an item of its own. Raises ValueError when its text is elsewhere."""
    if payload.text is None:
        raise ValueError(f"the payload of {id} has no text to keep")
    return {
        **key_values(payload_key(id, payload.version)),
        TEXT: payload.text,
        schema.TTL: kept_until and _seconds_up(kept_until),
    }


def checkpoint_values(
    id: ExecutionId, text: str, *, token: Token, number: int, kept_until: datetime
) -> Values:
    """An execution's last checkpoint, and whose it is."""
    return {
        **key_values(checkpoint_key(id)),
        TEXT: text,
        TOKEN: token,
        NUMBER: number,
        schema.TTL: _seconds_up(kept_until),
    }


def step_values(key: tuple[str, str], result: str, kept_until: datetime) -> Values:
    """What came of something that a handler does once."""
    return {**key_values(key), TEXT: result, schema.TTL: _seconds_up(kept_until)}


def job_values(job: Job) -> Values:
    """A job's current definition; a deleted one is in no index."""
    is_listed = job.status is not JobStatus.DELETED
    return {
        **key_values(job_key(job.id)),
        schema.JOBS_OWNER_KEY: owner_key_of(job.owner, job.id) if is_listed else None,
        OWNER: job.owner,
        VERSION: job.version,
        STATUS: job.status.value,
        TASK: job.spec.task,
        TASK_VERSION: job.spec.task_version,
        QUEUE: job.spec.queue,
        SPEC: _spec_values(job.spec),
        SCHEDULE: _json(job.schedule.to_record()),
        MISFIRE: job.misfire.value,
        CATCH_UP: None if job.catch_up == CatchUp() else _catch_up_text(job.catch_up),
        OVERLAP: None if job.overlap is OverlapPolicy.ALLOW else job.overlap.value,
        CREATED_AT: to_ms(job.created_at),
        EFFECTIVE_FROM: _ms(job.effective_from),
        NAME: job.name,
        TAIL: job.tail,
        IS_COUNTED: job.is_counted or None,
    }


def job_version_values(job: Job) -> Values:
    """A definition that another one has replaced: an item of its own, in no index."""
    return {
        **job_values(job),
        **key_values(job_version_key(job.id, job.version)),
        schema.JOBS_OWNER_KEY: None,
    }


def job_from(values: Values) -> Job:
    """The inverse of `job_values`, and of `job_version_values`."""
    return Job(
        id=JobId(values[schema.PARTITION_KEY]),
        owner=Owner(values[OWNER]),
        version=int(values[VERSION]),
        status=JobStatus(values[STATUS]),
        spec=_spec_from(
            values[SPEC],
            task=values[TASK],
            queue=values[QUEUE],
            task_version=_version_from(values),
        ),
        schedule=read_record(json.loads(values[SCHEDULE])),
        misfire=MisfirePolicy(values[MISFIRE]),
        catch_up=_catch_up_from(values.get(CATCH_UP)),
        overlap=OverlapPolicy(values.get(OVERLAP) or OverlapPolicy.ALLOW),
        created_at=from_ms(int(values[CREATED_AT])),
        effective_from=_instant(values.get(EFFECTIVE_FROM)),
        name=values.get(NAME),
        tail=values.get(TAIL),
        is_counted=bool(values.get(IS_COUNTED)),
    )


def key_record_values(record: KeyRecord) -> Values:
    """An idempotency key with its answer."""
    return {
        **key_values(idempotency_key(record.owner, record.key)),
        OWNER: record.owner,
        KEY: record.key,
        FINGERPRINT: record.fingerprint,
        JOB_ID: record.job_id,
        ANSWER: record.answer,
        CREATED_AT: to_ms(record.created_at),
        schema.TTL: _seconds_up(record.created_at + limits.IDEMPOTENCY_KEPT),
    }


def key_record_from(values: Values) -> KeyRecord:
    """The inverse of `key_record_values`."""
    return KeyRecord(
        owner=Owner(values[OWNER]),
        key=values[KEY],
        fingerprint=values[FINGERPRINT],
        job_id=JobId(values[JOB_ID]),
        answer=values[ANSWER],
        created_at=from_ms(int(values[CREATED_AT])),
    )


def usage_from(values: Values | None) -> Usage:
    """What an owner is counted to have; nothing without an item."""
    counts = values or {}
    return Usage(
        live_jobs=int(counts.get(LIVE_JOBS, 0)),
        queued_executions=int(counts.get(QUEUED, 0)),
        payload_bytes=int(counts.get(HELD_BYTES, 0)),
    )


def mark_values(mark: Mark) -> Values:
    """A mark, inside the item that it is of."""
    return {
        MARKED_AT: to_ms(mark.at),
        MARKED_QUEUED: mark.executions,
        MARKED_BYTES: mark.payload_bytes,
    }


def mark_from(values: Values) -> Mark | None:
    """The last mark, if there is one."""
    at = _instant(values.get(MARKED_AT))
    if at is None:
        return None
    return Mark(
        at=at,
        executions=int(values[MARKED_QUEUED]),
        payload_bytes=int(values[MARKED_BYTES]),
    )


def limits_values(limits_now: Limits) -> Values:
    """All limits, each as its kind, name and number."""
    listed = [[key.kind.value, key.name, most] for key, most in sorted(limits_now.of.items())]
    return {**key_values(LIMITS_KEY), VERSION: limits_now.version, LIMITS: listed}


def limits_from(values: Values | None) -> Limits:
    """The inverse of `limits_values`; none before the first."""
    if values is None:
        return Limits()
    of = {Key(kind=LimitKind(kind), name=name): int(most) for kind, name, most in values[LIMITS]}
    return Limits(of=of, version=int(values[VERSION]))


def holder_path(permit: Permit) -> str:
    """Where a holder of a place lies in its limit's item."""
    return f"{HOLDERS}.{permit.text}"


def looked_at(until: datetime) -> int:
    """Until when a place is held without a look, in whole seconds, to be short."""
    return _seconds_up(until)


def is_unused(values: Values | None) -> bool:
    """Whether nobody ever took a place there."""
    return values is None or HOLDERS not in values


def use_from(values: Values | None) -> Use:
    """Who has a place, as a limit's item tells."""
    found = values or {}
    holders = found.get(HOLDERS, {}).items()
    return Use(
        holders={Permit.from_text(text): from_ms(int(until) * 1000) for text, until in holders},
        limit=None if LIMIT not in found else int(found[LIMIT]),
        call=found.get(CALL),
    )


def layouts_values(layouts: Layouts, key: tuple[str, str]) -> Values:
    """The layouts that there are."""
    return {**key_values(key), LAYOUTS: layouts_value(layouts)}


def layouts_value(layouts: Layouts) -> list[Values]:
    """The same, without the item's key."""
    return [_layout_values(one) for one in layouts.of]


def layouts_from(values: Values) -> Layouts:
    """The inverse of `layouts_values`."""
    return Layouts(of=tuple(_layout_from(one) for one in values[LAYOUTS]))


def _layout_values(layout: Layout) -> Values:
    return _present(
        {
            _GENERATION: layout.generation,
            _SHARDS: layout.shards,
            _PARTITIONS: layout.partitions,
            _WIDEST_BEFORE: layout.widest_before,
            EFFECTIVE_FROM: to_ms(layout.effective_from),
            _ENDS_AT: layout.ends_at and to_ms(layout.ends_at),
        }
    )


def _layout_from(values: Values) -> Layout:
    return Layout(
        generation=int(values[_GENERATION]),
        shards=int(values[_SHARDS]),
        partitions=int(values[_PARTITIONS]),
        widest_before=int(values[_WIDEST_BEFORE]),
        effective_from=from_ms(int(values[EFFECTIVE_FROM])),
        ends_at=_instant(values.get(_ENDS_AT)),
    )


def backlog_values(backlog: Backlog) -> Values:
    """A backlog, inside its lease's item."""
    return {
        _AFTER: backlog.after,
        _UNTIL: backlog.until,
        _FIRST: backlog.first,
        _SINCE: to_ms(backlog.since),
        _MARK: backlog.mark,
        _MARKED_AT: to_ms(backlog.marked_at),
        _SETTLED: backlog.settled,
        _SENT: backlog.sent,
    }


def _backlog_from(values: Values) -> Backlog:
    return Backlog(
        after=Position(values[_AFTER]),
        until=Position(values[_UNTIL]),
        first=Position(values[_FIRST]),
        since=from_ms(int(values[_SINCE])),
        mark=Position(values[_MARK]),
        marked_at=from_ms(int(values[_MARKED_AT])),
        settled=Position(values[_SETTLED]),
        sent=int(values[_SENT]),
    )


def intent_values(intent: Intent) -> Values:
    """An intent, inside its lease's item."""
    return {
        _AFTER: intent.after,
        _UNTIL: intent.until,
        _DECIDED_AT: to_ms(intent.decided_at),
    }


def grant_from(values: Values, work: Work) -> Grant:
    """The lease that an item says is ours."""
    intent, so_far = values.get(INTENT), progress_from(values)
    return Grant(
        work=work,
        epoch=int(values[EPOCH]),
        watermark=so_far.watermark,
        intent=None if intent is None else _intent_from(intent),
        backlog=so_far.backlog,
        armed=int(values.get(ARMED, 0)),
    )


def progress_from(values: Values) -> Progress:
    """How far the work of a lease's item was done."""
    backlog = values.get(BACKLOG)
    return Progress(
        watermark=Position(values[WATERMARK]),
        backlog=None if backlog is None else _backlog_from(backlog),
    )


def _intent_from(values: Values) -> Intent:
    return Intent(
        after=Position(values[_AFTER]),
        until=Position(values[_UNTIL]),
        decided_at=from_ms(int(values[_DECIDED_AT])),
    )


def _spec_values(spec: Spec) -> Values:
    payload = spec.payload
    text = payload.text if payload.is_inline else None
    return _present(
        {
            _PAYLOAD_TEXT: text,
            _PAYLOAD_BYTES: payload.bytes if text is None and payload.ref is None else None,
            _PAYLOAD_REF: payload.ref and _ref_values(payload.ref),
            _PAYLOAD_VERSION: None if payload.version == 1 else payload.version,
            # In full, so that other defaults, later, do not change what was accepted.
            _RETRY: _retry_text(spec.retry),
            _TIMEOUT_MS: spec.timeout // _MILLISECOND,
            _DEADLINE_MS: None if spec.deadline is None else spec.deadline // _MILLISECOND,
            _ON_DEADLINE: (
                None if spec.on_deadline is OnDeadline.DEAD_LETTER else spec.on_deadline.value
            ),
            _TARGET: spec.target and _target_text(spec.target),
        }
    )


def _version_from(values: Values) -> int | None:
    # A row that was not read back has all names.
    version = values.get(TASK_VERSION)
    return None if version is None else int(version)


def _spec_from(values: Values, *, task: str, queue: str, task_version: int | None) -> Spec:
    return Spec(
        task=task,
        task_version=task_version,
        queue=queue,
        payload=_payload_from(values),
        retry=_retry_from(values[_RETRY]),
        timeout=int(values[_TIMEOUT_MS]) * _MILLISECOND,
        deadline=int(values[_DEADLINE_MS]) * _MILLISECOND if _DEADLINE_MS in values else None,
        on_deadline=OnDeadline(values.get(_ON_DEADLINE) or OnDeadline.DEAD_LETTER),
        target=_target_from(values[_TARGET]) if _TARGET in values else None,
    )


def _target_text(target: Target) -> str:
    if isinstance(target, NamedTarget):
        is_usual = target.invocation is Invocation.REQUEST
        return _json([target.kind, target.name, *([] if is_usual else [target.invocation])])
    terms = [target.deferred] if target.deferred else []
    deferred = [[one.heartbeat // _MILLISECOND, one.hard_limit // _MILLISECOND] for one in terms]
    return _json([target.method, target.url, *target.headers, *deferred])


def _target_from(text: str) -> Target:
    # Of an HTTP target its method and its URL, of a named one its kind and its name.
    first, second, *rest = json.loads(text)
    if first not in METHODS:
        invocation = Invocation(*rest) if rest else Invocation.REQUEST
        return NamedTarget(kind=TargetKind(first), name=second, invocation=invocation)
    pairs = [(name, value) for name, value in rest if isinstance(name, str)]
    terms = [pair for pair in rest if not isinstance(pair[0], str)]
    return HttpTarget(
        method=first,
        url=second,
        headers=tuple(pairs),
        deferred=_terms_from(*terms[0]) if terms else None,
    )


def _terms_from(heartbeat_ms: int, hard_limit_ms: int) -> Terms:
    return Terms(heartbeat=heartbeat_ms * _MILLISECOND, hard_limit=hard_limit_ms * _MILLISECOND)


def _payload_from(values: Values) -> Payload:
    text, version = values.get(_PAYLOAD_TEXT), int(values.get(_PAYLOAD_VERSION, 1))
    if _PAYLOAD_REF in values:
        return replace(Payload.referring(_ref_from(values[_PAYLOAD_REF])), version=version)
    size = int(values[_PAYLOAD_BYTES]) if text is None else len(text.encode())
    return Payload(text=text, bytes=size, version=version)


def _ref_values(ref: PayloadRef) -> Sequence[object]:
    # A list: it has no names to be paid for.
    return [ref.key, ref.version_id, ref.sha256, ref.size]


def _ref_from(values: Sequence[Any]) -> PayloadRef:
    key, version_id, sha256, size = values
    return PayloadRef(key=key, version_id=version_id, sha256=sha256, size=int(size))


def _retry_text(retry: RetryPolicy) -> str:
    # Text: DynamoDB's numbers do not hold every float.
    numbers = (retry.max_attempts, retry.base_seconds, retry.factor, retry.max_seconds)
    more = _present(
        {
            _JITTER: None if retry.jitter == _UNSAID_JITTER else retry.jitter,
            _RETRY_ON: retry.retry_on or None,
            _NO_RETRY_ON: retry.no_retry_on or None,
            _HONOR_RETRY_AFTER: None if retry.honor_retry_after else False,
        }
    )
    # Last, and only where there is something to say: most policies have nothing of it.
    return _json([*map(_shortest, numbers), *([more] if more else [])])


def _shortest(number: float) -> float:
    return int(number) if number == int(number) else number


def _retry_from(text: str) -> RetryPolicy:
    max_attempts, base_seconds, factor, max_seconds, *rest = json.loads(text)
    more: Values = rest[0] if rest else {}
    return RetryPolicy(
        max_attempts=max_attempts,
        base_seconds=float(base_seconds),
        factor=float(factor),
        max_seconds=float(max_seconds),
        jitter=float(more.get(_JITTER, _UNSAID_JITTER)),
        retry_on=tuple(more.get(_RETRY_ON, ())),
        no_retry_on=tuple(more.get(_NO_RETRY_ON, ())),
        honor_retry_after=more.get(_HONOR_RETRY_AFTER, True),
    )


def _catch_up_text(catch_up: CatchUp) -> str:
    threshold, window, spread = (
        duration // _MILLISECOND
        for duration in (catch_up.threshold, catch_up.window, catch_up.spread)
    )
    return _json([threshold, window, catch_up.most, spread])


def _catch_up_from(text: str | None) -> CatchUp:
    if text is None:
        return CatchUp()
    threshold, window, most, spread = json.loads(text)
    return CatchUp(
        threshold=threshold * _MILLISECOND,
        window=window * _MILLISECOND,
        most=most,
        spread=spread * _MILLISECOND,
    )


def _caught_up_text(caught_up: CaughtUp) -> str:
    return _json([to_ms(caught_up.decided_at), caught_up.number, caught_up.step // _MILLISECOND])


def _caught_up_from(text: str | None) -> CaughtUp | None:
    if text is None:
        return None
    decided_at, number, step = json.loads(text)
    return CaughtUp(decided_at=from_ms(decided_at), number=number, step=step * _MILLISECOND)


def _implied_trigger(is_one_off: bool) -> Trigger:
    return Trigger.ONE_OFF if is_one_off else Trigger.SCHEDULE


def _history_values(attempts: Sequence[Attempt]) -> Sequence[Values]:
    return [_attempt_values(place, attempt) for place, attempt in enumerate(attempts, 1)]


def _history_from(history: Sequence[Values]) -> tuple[Attempt, ...]:
    return tuple(_attempt_from(place, values) for place, values in enumerate(history, 1))


def _attempt_values(place: int, attempt: Attempt) -> Values:
    return _present(
        {
            # Until the oldest are dropped, an attempt's place is its number.
            _NUMBER: None if attempt.number == place else attempt.number,
            _STARTED: to_ms(attempt.started_at),
            _FINISHED: _ms(attempt.finished_at),
            _WORKER: attempt.worker,
            _LED_TO: attempt.state.value,
            _FAILURE: attempt.error and _failure_values(attempt.error),
            _ARRIVAL: _arrival_values(attempt.arrival, attempt.started_at),
            _HANDLER_VERSION: attempt.handler_version,
        }
    )


def _attempt_from(place: int, values: Values) -> Attempt:
    error, version = values.get(_FAILURE), values.get(_HANDLER_VERSION)
    return Attempt(
        number=int(values.get(_NUMBER, place)),
        started_at=from_ms(int(values[_STARTED])),
        finished_at=_instant(values.get(_FINISHED)),
        worker=values[_WORKER],
        state=State(values[_LED_TO]),
        error=None if error is None else _failure_from(error),
        arrival=_arrival_from(values.get(_ARRIVAL), values[_STARTED]),
        handler_version=None if version is None else int(version),
    )


def arrival_values(arrival: Arrival, started_at: datetime) -> Sequence[int]:
    """How long before the start the message was sent, and received; how long it was held.

    And its cold start: small numbers, and no zeros at the end.
    """
    found = [
        *(to_ms(started_at) - to_ms(instant) for instant in (arrival.sent_at, arrival.received_at)),
        *(took // _MILLISECOND for took in (arrival.hold, arrival.cold_start)),
    ]
    while len(found) > _ARRIVAL_AT_LEAST and not found[-1]:
        found.pop()
    return found


def _arrival_values(arrival: Arrival | None, started_at: datetime | None) -> Sequence[int] | None:
    return arrival_values(arrival, started_at) if arrival and started_at else None


def _arrival_from(values: Sequence[Decimal] | None, started_at: Decimal | None) -> Arrival | None:
    if values is None or started_at is None:
        return None
    sent_at, received_at = (
        from_ms(int(started_at) - int(before)) for before in values[:_ARRIVAL_AT_LEAST]
    )
    spans = [int(took) * _MILLISECOND for took in values[_ARRIVAL_AT_LEAST:]]
    return Arrival(
        sent_at=sent_at,
        received_at=received_at,
        **dict(zip(("hold", "cold_start"), spans, strict=False)),
    )


def _waited_values(waited: Waited) -> Sequence[int]:
    """Until when, which part the wait is, and how long each part took, by their place."""
    spent = (took // _MILLISECOND for took in waited.spent)
    return [to_ms(waited.until), [*Part].index(waited.on), *spent]


def _waited_from(values: Sequence[Decimal] | None) -> Waited | None:
    if values is None:
        return None
    until, on, *spent = (int(value) for value in values)
    return Waited(
        until=from_ms(until), on=[*Part][on], spent=tuple(took * _MILLISECOND for took in spent)
    )


def _deferral_values(deferral: Deferral) -> Sequence[int]:
    version = [] if deferral.version is None else [deferral.version]
    return [deferral.heartbeat // _MILLISECOND, to_ms(deferral.ends_at), *version]


def _deferral_from(values: Sequence[Decimal] | None) -> Deferral | None:
    if values is None:
        return None
    heartbeat, ends_at, *version = (int(value) for value in values)
    return Deferral(
        heartbeat=heartbeat * _MILLISECOND,
        ends_at=from_ms(ends_at),
        version=version[0] if version else None,
    )


def _called_back_from(values: Sequence[str] | None) -> CalledBack | None:
    return None if values is None else CalledBack(token=values[0], answer=values[1])


def _failure_values(failure: Failure) -> Values:
    retry_after = failure.retry_after
    return _present(
        {
            _KIND: failure.kind.value,
            _TYPE: failure.type,
            _MESSAGE: failure.message,
            _RETRY_AFTER_MS: None if retry_after is None else -(-retry_after // _MILLISECOND),
        }
    )


def _failure_from(values: Values) -> Failure:
    retry_after = values.get(_RETRY_AFTER_MS)
    return Failure(
        kind=Kind(values[_KIND]),
        type=values[_TYPE],
        message=values[_MESSAGE],
        retry_after=None if retry_after is None else int(retry_after) * _MILLISECOND,
    )


def _present(values: Values) -> Values:
    return {name: value for name, value in values.items() if value is not None}


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def _end_of_trail(to: ExecutionId) -> int:
    """When a row that points at another may go: long after the job, which it leads to, is over."""
    return _seconds_up(place_of(to).at + limits.PAYLOAD_KEPT)


def _end_of_life(row: Execution) -> int | None:
    if row.moved_to is not None:
        return _end_of_trail(row.moved_to)
    if not row.is_final or row.finished_at is None:
        return None
    # What was ended far ahead of its time is still asked for at that time: by its job's ledger,
    # by its chain, and by whoever planned it before.
    return _seconds_up(max(row.run_at, row.finished_at) + limits.EXECUTION_KEPT)


def _ms(instant: datetime | None) -> int | None:
    return None if instant is None else to_ms(instant)


def _seconds_up(instant: datetime) -> int:
    return -(-to_ms(instant) // 1000)


def _instant(ms: Decimal | int | None) -> datetime | None:
    return None if ms is None else from_ms(int(ms))
