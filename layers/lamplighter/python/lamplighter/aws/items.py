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
from typing import Any, Final

from boto3.dynamodb.types import TypeDeserializer, TypeSerializer

from lamplighter.aws import reading, schema
from lamplighter.aws.reading import Named, maybe, reads, text
from lamplighter.core import limits
from lamplighter.core.buckets import (
    JOB_SORT_KEY,
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
    parse_execution_id,
    parse_job_id,
    payload_key,
    place_of,
    queued_key_of,
    row_key,
    to_ms,
)
from lamplighter.core.catch_up import CatchUp, CaughtUp
from lamplighter.core.deferral import CalledBack, Deferral, Terms
from lamplighter.core.errors import Damaged
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
from lamplighter.core.schedule import Kind as ScheduleKind
from lamplighter.core.schedule import UnreadableSchedule, read_record
from lamplighter.core.targets import METHODS, HttpTarget
from lamplighter.core.waits import Part, Waited
from lamplighter.ports import KeyRecord

Values = reading.Values

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
LAST_SINCE: Final = "la"
DEFERRAL: Final = "df"
DEFERRAL_RETRY: Final = "dp"
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
_RETRY_IS_DEFAULT: Final = "u"
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
_NO_TIME: Final = timedelta(0)
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
        LAST_SINCE: _ms(row.last_since),
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
        DEFERRAL_RETRY: row.deferral and row.deferral.retry and _retry_text(row.deferral.retry),
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
        CALLED_BACK: row.called_back and [row.called_back.token, row.called_back.answer],
        ATTEMPTS: _history_values(row.attempts),
        ERROR: row.error and _failure_values(row.error),
    }


def _named_row(values: Values) -> Named:
    """Of whatever lies in a bucket; an execution's id says all that is needed to find its row."""
    place = f"{values.get(schema.PARTITION_KEY)} {values.get(schema.SORT_KEY)}"
    own = reading.whatever(_execution_at, values.get(schema.SORT_KEY))
    owner = reading.whatever(_owner_from, values)
    if POINTER_KIND not in values:
        return Named(id=own or place, owner=owner, about=own)
    about = reading.whatever(parse_execution_id, values.get(POINTS_AT))
    return Named(
        id=place, owner=owner, about=about or reading.whatever(parse_job_id, values.get(JOB_ID))
    )


def _named_job(values: Values) -> Named:
    id = values.get(schema.PARTITION_KEY)
    is_current = values.get(schema.SORT_KEY) == JOB_SORT_KEY
    return Named(
        id=f"{id}" if is_current else f"{id} {values.get(schema.SORT_KEY)}",
        owner=reading.whatever(text, values.get(OWNER)),
        about=f"{id}",
    )


def _named_by_keys(values: Values) -> Named:
    """Of what has no id of its own."""
    return Named(id=f"{values.get(schema.PARTITION_KEY)} {values.get(schema.SORT_KEY)}")


def _execution_at(value: object) -> ExecutionId:
    return parse_execution_id(execution_id_at(Position(text(value))))


def _owner_from(values: Values) -> Owner:
    owner = values.get(OWNER)
    return Owner(text(owner) if owner is not None else owner_of(text(values[schema.OWNER_KEY])))


@reads("execution", named=_named_row)
def execution_from(values: Values) -> Execution:
    """The inverse of `execution_values`. Raises Damaged, as all that reads an item does."""
    id = _execution_at(values[schema.SORT_KEY])
    run_at = place_of(id).at
    job_id = maybe(parse_job_id, values.get(JOB_ID))
    task, queue, version = text(values[TASK]), text(values[QUEUE]), _version_from(values)
    return Execution(
        id=id,
        job_id=job_id or one_off_job_id(id),
        owner=_owner_from(values),
        trigger=maybe(Trigger, values.get(TRIGGER)) or _implied_trigger(job_id is None),
        job_version=maybe(reading.ordinal, values.get(JOB_VERSION)) or 1,
        task=task,
        task_version=version,
        queue=queue,
        spec=maybe(
            lambda spec: _spec_from(spec, task=task, queue=queue, task_version=version),
            values.get(SPEC),
        ),
        scheduled_for=_instant(values.get(SCHEDULED_FOR)) or run_at,
        run_at=run_at,
        created_at=reading.instant(values[CREATED_AT]),
        sent_directly=maybe(reading.flag, values.get(SENT_DIRECTLY)) or False,
        state=State(values[STATE]),
        attempt=reading.ordinal(values[ATTEMPT]),
        crashes=maybe(reading.count, values.get(CRASHES)) or 0,
        undeliverable=maybe(reading.count, values.get(UNDELIVERABLE)) or 0,
        token=maybe(_token, values.get(TOKEN)),
        lease_until=_instant(values.get(LEASE_UNTIL)),
        worker=maybe(text, values.get(WORKER)),
        next_run_at=_instant(values.get(NEXT_RUN_AT)),
        started_at=_instant(values.get(STARTED_AT)),
        arrival=_arrival_from(values.get(STARTED_AT), values.get(ARRIVAL)),
        first_started_at=_instant(values.get(FIRST_STARTED_AT)),
        finished_at=_instant(values.get(FINISHED_AT)),
        result=maybe(text, values.get(RESULT)),
        error=maybe(_failure_from, values.get(ERROR)),
        reason=maybe(text, values.get(REASON)),
        attempts=maybe(_history_from, values.get(ATTEMPTS)) or (),
        cancel_requested_at=_instant(values.get(CANCEL_REQUESTED_AT)),
        parked_since=_instant(values.get(PARKED_SINCE)),
        deferral=_deferral_from(values),
        called_back=maybe(_called_back_from, values.get(CALLED_BACK)),
        told_at=_instant(values.get(TOLD_AT)),
        last_since=_instant(values.get(LAST_SINCE)),
        traceparent=maybe(text, values.get(TRACEPARENT)),
        replay_of=maybe(parse_execution_id, values.get(REPLAY_OF)),
        idempotent_as=maybe(parse_execution_id, values.get(IDEMPOTENT_AS)),
        predecessor=maybe(parse_execution_id, values.get(PREDECESSOR)),
        blocker=maybe(parse_execution_id, values.get(BLOCKER)),
        waiters=maybe(_waiters_from, values.get(WAITERS)) or frozenset(),
        waited=maybe(_waited_from, values.get(WAITED)),
        caught_up=maybe(_caught_up_from, values.get(CAUGHT_UP)),
        moved_to=maybe(parse_execution_id, values.get(MOVED_TO)),
        is_counted=is_queued_key(maybe(text, values.get(schema.ATTENTION_KEY)) or ""),
    )


def _token(value: object) -> Token:
    return Token(text(value))


def _waiters_from(value: object) -> frozenset[ExecutionId]:
    if not isinstance(value, set | frozenset):
        raise TypeError("no set")
    return frozenset(map(parse_execution_id, value))


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


@reads("watch", named=_named_row)
def _watch_from(values: Values) -> Watch:
    until = _instant(values.get(REST_UNTIL))
    return Watch(
        position=reading.position(values[schema.SORT_KEY]),
        job_id=parse_job_id(values[JOB_ID]),
        at=reading.instant(values[DUE_AT]),
        since=reading.instant(values[SINCE]),
        rest=Rest(until=until, place=text(values[REST_PLACE])) if until else None,
    )


@reads("pointer", named=_named_row)
def _pointer_from(values: Values) -> Pointer:
    return Pointer(
        kind=PointerKind(values[POINTER_KIND]),
        position=reading.position(values[schema.SORT_KEY]),
        execution_id=parse_execution_id(values[POINTS_AT]),
        queue=text(values[QUEUE]),
        at=reading.instant(values[DUE_AT]),
        attempt=reading.ordinal(values[ATTEMPT]),
        owner=maybe(_owner, values.get(OWNER)),  # an earlier version's rows have none
    )


def row_from(values: Values) -> Row:
    """Whatever row lies in a bucket."""
    if POINTER_KIND not in values:
        return execution_from(values)
    return _watch_from(values) if values[POINTER_KIND] == WATCH else _pointer_from(values)


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


@reads("job", named=_named_job)
def job_from(values: Values) -> Job:
    """The inverse of `job_values`, and of `job_version_values`."""
    task, queue, version = text(values[TASK]), text(values[QUEUE]), _version_from(values)
    return Job(
        id=parse_job_id(values[schema.PARTITION_KEY]),
        owner=_owner(values[OWNER]),
        version=reading.ordinal(values[VERSION]),
        status=JobStatus(values[STATUS]),
        spec=_spec_from(values[SPEC], task=task, queue=queue, task_version=version),
        schedule=read_record(json.loads(values[SCHEDULE])),
        misfire=MisfirePolicy(values[MISFIRE]),
        catch_up=maybe(_catch_up_from, values.get(CATCH_UP)) or CatchUp(),
        overlap=maybe(OverlapPolicy, values.get(OVERLAP)) or OverlapPolicy.ALLOW,
        created_at=reading.instant(values[CREATED_AT]),
        effective_from=_instant(values.get(EFFECTIVE_FROM)),
        name=maybe(text, values.get(NAME)),
        tail=maybe(parse_execution_id, values.get(TAIL)),
        is_counted=maybe(reading.flag, values.get(IS_COUNTED)) or False,
    )


def stand_in_for(damaged: Damaged) -> Job:
    """What a damaged definition counts as among others: one that no release can read.

    Its executions wait (`misfire.Park`); nothing else is to be gone by, and nothing written.
    """
    return Job(
        id=JobId(damaged.id),
        owner=Owner(damaged.owner or ""),
        version=1,
        status=JobStatus.ACTIVE,
        spec=Spec(task="damaged", payload=Payload.of("null")),
        schedule=UnreadableSchedule(
            kind=ScheduleKind.CRON,
            text="",
            timezone="UTC",
            seed="",
            stored="{}",
            reason=str(damaged),
        ),
        misfire=MisfirePolicy.SKIP,
        created_at=from_ms(0),
    )


def _owner(value: object) -> Owner:
    return Owner(text(value))


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


@reads("idempotency key", named=_named_by_keys)
def key_record_from(values: Values) -> KeyRecord:
    """The inverse of `key_record_values`."""
    return KeyRecord(
        owner=_owner(values[OWNER]),
        key=text(values[KEY]),
        fingerprint=text(values[FINGERPRINT]),
        job_id=parse_job_id(values[JOB_ID]),
        answer=text(values[ANSWER]),
        created_at=reading.instant(values[CREATED_AT]),
    )


@reads("usage", named=_named_by_keys)
def usage_from(values: Values | None) -> Usage:
    """What an owner is counted to have; nothing without an item."""
    counts = values or {}
    return Usage(
        live_jobs=reading.integer(counts.get(LIVE_JOBS, 0)),
        queued_executions=reading.integer(counts.get(QUEUED, 0)),
        payload_bytes=reading.integer(counts.get(HELD_BYTES, 0)),
    )


def mark_values(mark: Mark) -> Values:
    """A mark, inside the item that it is of."""
    return {
        MARKED_AT: to_ms(mark.at),
        MARKED_QUEUED: mark.executions,
        MARKED_BYTES: mark.payload_bytes,
    }


@reads("usage", named=_named_by_keys)
def mark_from(values: Values) -> Mark | None:
    """The last mark, if there is one."""
    at = _instant(values.get(MARKED_AT))
    if at is None:
        return None
    return Mark(
        at=at,
        executions=reading.integer(values[MARKED_QUEUED]),
        payload_bytes=reading.integer(values[MARKED_BYTES]),
    )


def limits_values(limits_now: Limits) -> Values:
    """All limits, each as its kind, name and number."""
    listed = [[key.kind.value, key.name, most] for key, most in sorted(limits_now.of.items())]
    return {**key_values(LIMITS_KEY), VERSION: limits_now.version, LIMITS: listed}


@reads("limits", named=_named_by_keys)
def limits_from(values: Values) -> Limits:
    """The inverse of `limits_values`."""
    of = {
        Key(kind=LimitKind(kind), name=text(name)): reading.integer(most)
        for kind, name, most in reading.listed(values[LIMITS])
    }
    return Limits(of=of, version=reading.count(values[VERSION]))


def holder_path(permit: Permit) -> str:
    """Where a holder of a place lies in its limit's item."""
    return f"{HOLDERS}.{permit.text}"


def looked_at(until: datetime) -> int:
    """Until when a place is held without a look, in whole seconds, to be short."""
    return _seconds_up(until)


def is_unused(values: Values | None) -> bool:
    """Whether nobody ever took a place there."""
    return values is None or HOLDERS not in values


@reads("limit", named=_named_by_keys)
def use_from(values: Values) -> Use:
    """Who has a place, as a limit's item tells."""
    holders = {
        Permit.from_text(permit): reading.instant(reading.count(until) * 1000)
        for permit, until in values.get(HOLDERS, {}).items()
    }
    for permit in holders:
        parse_execution_id(permit.execution_id)
    return Use(
        holders=holders,
        limit=maybe(reading.integer, values.get(LIMIT)),
        call=maybe(text, values.get(CALL)),
    )


def layouts_values(layouts: Layouts, key: tuple[str, str]) -> Values:
    """The layouts that there are."""
    return {**key_values(key), LAYOUTS: layouts_value(layouts)}


def layouts_value(layouts: Layouts) -> list[Values]:
    """The same, without the item's key."""
    return [_layout_values(one) for one in layouts.of]


@reads("layouts", named=_named_by_keys)
def layouts_from(values: Values) -> Layouts:
    """The inverse of `layouts_values`."""
    first, *others = (_layout_from(one) for one in reading.listed(values[LAYOUTS]))
    return Layouts(of=(first, *others))


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
        generation=reading.count(values[_GENERATION]),
        shards=reading.ordinal(values[_SHARDS]),
        partitions=reading.ordinal(values[_PARTITIONS]),
        widest_before=reading.count(values[_WIDEST_BEFORE]),
        effective_from=reading.instant(values[EFFECTIVE_FROM]),
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
        after=reading.position(values[_AFTER]),
        until=reading.position(values[_UNTIL]),
        first=reading.position(values[_FIRST]),
        since=reading.instant(values[_SINCE]),
        mark=reading.position(values[_MARK]),
        marked_at=reading.instant(values[_MARKED_AT]),
        settled=reading.position(values[_SETTLED]),
        sent=reading.count(values[_SENT]),
    )


def intent_values(intent: Intent) -> Values:
    """An intent, inside its lease's item."""
    return {
        _AFTER: intent.after,
        _UNTIL: intent.until,
        _DECIDED_AT: to_ms(intent.decided_at),
    }


@reads("lease", named=_named_by_keys)
def grant_from(values: Values, work: Work) -> Grant:
    """The lease that an item says is ours."""
    so_far = _progress_from(values)
    return Grant(
        work=work,
        epoch=reading.ordinal(values[EPOCH]),
        watermark=so_far.watermark,
        intent=maybe(_intent_from, values.get(INTENT)),
        backlog=so_far.backlog,
        armed=reading.count(values.get(ARMED, 0)),
    )


@reads("lease", named=_named_by_keys)
def held_until(values: Values) -> datetime:
    """When the lease of an item ends, or has ended."""
    return reading.instant(values[LEASE_UNTIL])


@reads("lease", named=_named_by_keys)
def progress_from(values: Values) -> Progress:
    """How far the work of a lease's item was done."""
    return _progress_from(values)


def _progress_from(values: Values) -> Progress:
    return Progress(
        watermark=reading.position(values[WATERMARK]),
        backlog=maybe(_backlog_from, values.get(BACKLOG)),
    )


def _intent_from(values: Values) -> Intent:
    return Intent(
        after=reading.position(values[_AFTER]),
        until=reading.position(values[_UNTIL]),
        decided_at=reading.instant(values[_DECIDED_AT]),
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
            # An earlier version's have none, and stay by what they were accepted with.
            _RETRY_IS_DEFAULT: spec.retry_is_default or None,
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
    return maybe(reading.ordinal, values.get(TASK_VERSION))


def _spec_from(values: Values, *, task: str, queue: str, task_version: int | None) -> Spec:
    return Spec(
        task=task,
        task_version=task_version,
        queue=queue,
        payload=_payload_from(values),
        retry=_retry_from(values[_RETRY]),
        retry_is_default=maybe(reading.flag, values.get(_RETRY_IS_DEFAULT)) or False,
        timeout=_duration(values[_TIMEOUT_MS]),
        deadline=maybe(_duration, values.get(_DEADLINE_MS)),
        on_deadline=maybe(OnDeadline, values.get(_ON_DEADLINE)) or OnDeadline.DEAD_LETTER,
        target=maybe(_target_from, values.get(_TARGET)),
    )


def _target_text(target: Target) -> str:
    if isinstance(target, NamedTarget):
        is_usual = target.invocation is Invocation.REQUEST
        return _json([target.kind, target.name, *([] if is_usual else [target.invocation])])
    terms = [target.deferred] if target.deferred else []
    deferred = [[one.heartbeat // _MILLISECOND, one.hard_limit // _MILLISECOND] for one in terms]
    return _json([target.method, target.url, *target.headers, *deferred])


def _target_from(value: str) -> Target:
    # Of an HTTP target its method and its URL, of a named one its kind and its name.
    first, second, *rest = reading.listed(json.loads(value))
    if first not in METHODS:
        invocation = Invocation(*rest) if rest else Invocation.REQUEST
        return NamedTarget(kind=TargetKind(first), name=second, invocation=invocation)
    pairs = [(name, text(value)) for name, value in rest if isinstance(name, str)]
    terms = [pair for pair in rest if not isinstance(pair[0], str)]
    return HttpTarget(
        method=first,
        url=second,
        headers=tuple(pairs),
        deferred=_terms_from(*terms[0]) if terms else None,
    )


def _terms_from(heartbeat_ms: int, hard_limit_ms: int) -> Terms:
    return Terms(heartbeat=_duration(heartbeat_ms), hard_limit=_duration(hard_limit_ms))


def _payload_from(values: Values) -> Payload:
    version = maybe(reading.ordinal, values.get(_PAYLOAD_VERSION)) or 1
    if (ref := values.get(_PAYLOAD_REF)) is not None:
        return replace(Payload.referring(_ref_from(ref)), version=version)
    if (inline := values.get(_PAYLOAD_TEXT)) is not None:
        return Payload(text=text(inline), bytes=len(inline.encode()), version=version)
    return Payload(text=None, bytes=reading.count(values[_PAYLOAD_BYTES]), version=version)


def _ref_values(ref: PayloadRef) -> Sequence[object]:
    # A list: it has no names to be paid for.
    return [ref.key, ref.version_id, ref.sha256, ref.size]


def _ref_from(values: object) -> PayloadRef:
    *names, size = reading.listed(values)
    key, version_id, sha256 = reading.texts(names)
    return PayloadRef(key=key, version_id=version_id, sha256=sha256, size=reading.count(size))


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


def _retry_from(value: str) -> RetryPolicy:
    max_attempts, base_seconds, factor, max_seconds, *rest = reading.listed(json.loads(value))
    more: Values = rest[0] if rest else {}
    return RetryPolicy(
        max_attempts=reading.ordinal(max_attempts),
        base_seconds=float(base_seconds),
        factor=float(factor),
        max_seconds=float(max_seconds),
        jitter=float(more.get(_JITTER, _UNSAID_JITTER)),
        retry_on=tuple(reading.texts(more.get(_RETRY_ON, ()))),
        no_retry_on=tuple(reading.texts(more.get(_NO_RETRY_ON, ()))),
        honor_retry_after=reading.flag(more.get(_HONOR_RETRY_AFTER, True)),
    )


def _catch_up_text(catch_up: CatchUp) -> str:
    threshold, window, spread = (
        duration // _MILLISECOND
        for duration in (catch_up.threshold, catch_up.window, catch_up.spread)
    )
    return _json([threshold, window, catch_up.most, spread])


def _catch_up_from(value: str) -> CatchUp:
    threshold, window, most, spread = reading.listed(json.loads(value))
    return CatchUp(
        threshold=_duration(threshold),
        window=_duration(window),
        most=reading.ordinal(most),
        spread=_duration(spread),
    )


def _caught_up_text(caught_up: CaughtUp) -> str:
    return _json([to_ms(caught_up.decided_at), caught_up.number, caught_up.step // _MILLISECOND])


def _caught_up_from(value: str) -> CaughtUp:
    decided_at, number, step = reading.listed(json.loads(value))
    return CaughtUp(
        decided_at=reading.instant(decided_at), number=reading.count(number), step=_duration(step)
    )


def _implied_trigger(is_one_off: bool) -> Trigger:
    return Trigger.ONE_OFF if is_one_off else Trigger.SCHEDULE


def _history_values(attempts: Sequence[Attempt]) -> Sequence[Values]:
    return [_attempt_values(place, attempt) for place, attempt in enumerate(attempts, 1)]


def _history_from(history: object) -> tuple[Attempt, ...]:
    listed = reading.listed(history)
    return tuple(_attempt_from(place, values) for place, values in enumerate(listed, 1))


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
    return Attempt(
        number=reading.ordinal(values.get(_NUMBER, place)),
        started_at=reading.instant(values[_STARTED]),
        finished_at=_instant(values.get(_FINISHED)),
        worker=text(values[_WORKER]),
        state=State(values[_LED_TO]),
        error=maybe(_failure_from, values.get(_FAILURE)),
        arrival=_arrival_from(values[_STARTED], values.get(_ARRIVAL)),
        handler_version=maybe(reading.ordinal, values.get(_HANDLER_VERSION)),
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


def _arrival_from(started_at: object, found: object) -> Arrival | None:
    if found is None or started_at is None:
        return None
    began = reading.count(started_at)
    sent, received, *spans = map(reading.integer, reading.listed(found))
    hold, cold_start, *_ = (*map(_duration, spans), _NO_TIME, _NO_TIME)
    return Arrival(
        sent_at=from_ms(began - sent),
        received_at=from_ms(began - received),
        hold=hold,
        cold_start=cold_start,
    )


def _waited_values(waited: Waited) -> Sequence[int]:
    """Until when, which part the wait is, and how long each part took, by their place."""
    spent = (took // _MILLISECOND for took in waited.spent)
    return [to_ms(waited.until), [*Part].index(waited.on), *spent]


def _waited_from(values: object) -> Waited:
    until, on, *spent = reading.listed(values)
    return Waited(
        until=reading.instant(until),
        on=[*Part][reading.count(on)],
        spent=tuple(map(_duration, spent)),
    )


def _deferral_values(deferral: Deferral) -> Sequence[int]:
    version = [] if deferral.version is None else [deferral.version]
    return [deferral.heartbeat // _MILLISECOND, to_ms(deferral.ends_at), *version]


def _deferral_from(values: Values) -> Deferral | None:
    if (terms := values.get(DEFERRAL)) is None:
        return None
    heartbeat, ends_at, *version = reading.listed(terms)
    return Deferral(
        heartbeat=_duration(heartbeat),
        ends_at=reading.instant(ends_at),
        version=reading.ordinal(version[0]) if version else None,
        retry=maybe(_retry_from, values.get(DEFERRAL_RETRY)),
    )


def _called_back_from(values: object) -> CalledBack:
    token, answer = reading.texts(values)
    return CalledBack(token=token, answer=answer)


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
    return Failure(
        kind=Kind(values[_KIND]),
        type=text(values[_TYPE]),
        message=text(values[_MESSAGE]),
        retry_after=maybe(_duration, values.get(_RETRY_AFTER_MS)),
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


def _instant(ms: object) -> datetime | None:
    return maybe(reading.instant, ms)


def _duration(ms: object) -> timedelta:
    # Less than nothing, too: clocks differ, and a handler may say anything.
    return reading.integer(ms) * _MILLISECOND
