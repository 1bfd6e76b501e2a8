"""Every conditional write, by name: what it changes, and each clause with the case it admits.

A write whose condition does not hold answers with the item as it was found (ALL_OLD), so
that nobody has to read it again to learn why.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import reduce
from operator import and_
from typing import Any, Final

from boto3.dynamodb.conditions import Attr, ConditionBase, ConditionExpressionBuilder

from lamplighter.aws import items, schema
from lamplighter.aws.items import Values
from lamplighter.core.buckets import (
    LAYOUT_KEY,
    ExecutionId,
    JobId,
    Position,
    job_key,
    partition_key,
    permit_key,
    rate_key,
    through,
    to_ms,
    usage_key,
    waits_key,
)
from lamplighter.core.lease import Backlog, Grant, Intent, Layouts, Progress, Work
from lamplighter.core.lifecycle import FINAL, Event, State, event_to, sources_of
from lamplighter.core.model import Arrival, Execution, Job, JobStatus, Owner, Token, Watch
from lamplighter.core.outcome import moved, taken_over
from lamplighter.core.permits import Bound, Key, Limits, Permit, Use
from lamplighter.core.quotas import Mark, Quota, Rate, Taken, Usage
from lamplighter.ports import Checkpoint

_ALL_OLD: Final = {"ReturnValuesOnConditionCheckFailure": "ALL_OLD"}
_FRESH: Final = sources_of(Event.CLAIM) - {State.RUNNING}


@dataclass(frozen=True, kw_only=True)
class Put:
    """A whole item, made if the condition holds."""

    values: Values
    condition: ConditionBase

    def request(self, table: str) -> dict[str, Any]:
        """A transaction's Put; PutItem takes the same parameters."""
        return {
            "TableName": table,
            "Item": items.marshal(self.values),
            **_condition(self.condition),
        }


@dataclass(frozen=True, kw_only=True)
class Update:
    """Attributes changed in one item, if the condition holds; None: whatever it is.

    `changes`: set, or removed where None. `first`: set only where there is none yet.
    `add`: added to the number, or the set, that is there. `proof`: what the item has if this
    very write was made already, its answer lost, and it was sent again; empty where nothing can
    tell.
    """

    key: tuple[str, str]
    condition: ConditionBase | None
    changes: Values = field(default_factory=dict)
    first: Values = field(default_factory=dict)
    add: Values = field(default_factory=dict)
    proof: Values = field(default_factory=dict)

    def request(self, table: str) -> dict[str, Any]:
        """A transaction's Update; UpdateItem takes the same parameters."""
        condition, expression = _condition(self.condition), _expression(self)
        values = {**condition.get("ExpressionAttributeValues", {}), **expression.values}
        return {
            "TableName": table,
            "Key": items.marshal(items.key_values(self.key)),
            "UpdateExpression": expression.text,
            **condition,
            "ExpressionAttributeNames": {
                **condition["ExpressionAttributeNames"],
                **expression.names,
            },
            # An empty map is refused.
            **({"ExpressionAttributeValues": values} if values else {}),
        }

    def was_made(self, found: Values | None) -> bool:
        """Whether an item shows that this very write took effect before."""
        return (
            found is not None
            and bool(self.proof)
            and all(found.get(name) == value for name, value in self.proof.items())
        )


@dataclass(frozen=True, kw_only=True)
class Check:
    """A condition on an item that a transaction does not write."""

    key: tuple[str, str]
    condition: ConditionBase

    def request(self, table: str) -> dict[str, Any]:
        """A transaction's ConditionCheck."""
        return {
            "TableName": table,
            "Key": items.marshal(items.key_values(self.key)),
            **_condition(self.condition),
        }


Write = Put | Update | Check


def made_once(values: Values) -> Put:
    """An item that is made unless there is one."""
    return Put(values=values, condition=Attr(schema.PARTITION_KEY).not_exists())


def watched(watch: Watch) -> Put:
    """A watch that is made unless one is there that has as much to tell (`watching.has_more`)."""
    nothing_there = Attr(schema.PARTITION_KEY).not_exists()
    has_less = Attr(items.SINCE).gt(to_ms(watch.since))
    return Put(values=items.watch_values(watch), condition=nothing_there | has_less)


def planned(row: Execution, *, over: Execution | None = None) -> Put:
    """A row that is made unless one is there that does not give way (`planning.supersedes`).

    `over` is the one that was read there: its predecessor must be the same still (P16).
    """
    values = items.execution_values(row)
    if row.job_version == 1:
        # There is no earlier version.
        return made_once(values)
    nothing_there = Attr(schema.PARTITION_KEY).not_exists()
    # Where no version is written, it is the first.
    of_an_earlier_version = Attr(items.JOB_VERSION).not_exists() | Attr(items.JOB_VERSION).lt(
        row.job_version
    )
    still_waits = Attr(items.STATE).eq(State.SCHEDULED.value)
    taken_back_before_it_ran = (
        Attr(items.STATE).eq(State.CANCELLED.value)
        & Attr(items.ATTEMPTS).not_exists()
        & Attr(items.CANCEL_REQUESTED_AT).not_exists()
    )
    gives_way = of_an_earlier_version & (still_waits | taken_back_before_it_ran)
    if over is not None:
        gives_way &= _has_predecessor(over)
    return Put(values=values, condition=nothing_there | gives_way)


def claim(
    id: ExecutionId,
    *,
    attempt: int,
    token: Token,
    worker: str,
    now: datetime,
    lease_until: datetime,
    arrival: Arrival | None = None,
) -> Update:
    """The one write that takes an execution; of any number of callers one finds it so."""
    held_by_nobody = Attr(items.STATE).is_in(sorted(_FRESH))
    this_try = Attr(items.ATTEMPT).eq(attempt)
    # The sort key starts with run_at: the row lies before everything later than now.
    run_at_is_past = Attr(schema.SORT_KEY).lt(through(now))
    retry_is_due = Attr(items.NEXT_RUN_AT).not_exists() | Attr(items.NEXT_RUN_AT).lte(to_ms(now))
    return Update(
        key=items.execution_key(id),
        condition=held_by_nobody & this_try & run_at_is_past & retry_is_due,
        changes=_held(
            token=token, worker=worker, now=now, lease_until=lease_until, arrival=arrival
        ),
        first={items.FIRST_STARTED_AT: to_ms(now)},
        proof={items.TOKEN: token},
    )


def take_over(
    holder: Execution,
    *,
    token: Token,
    worker: str,
    now: datetime,
    lease_until: datetime,
    arrival: Arrival | None = None,
) -> Update:
    """Take a row from a holder who has neither beaten nor finished since it was read."""
    if holder.token is None or holder.lease_until is None:
        raise ValueError(f"nobody holds {holder.id}")
    return Update(
        key=items.execution_key(holder.id),
        condition=_same_holder(holder.token, holder.lease_until),
        changes={
            **_held(token=token, worker=worker, now=now, lease_until=lease_until, arrival=arrival),
            **items.crash_values(taken_over(holder)),
        },
        proof={items.TOKEN: token},
    )


def extend(id: ExecutionId, *, token: Token, lease_until: datetime) -> Update:
    """Move the lease's end, forward only."""
    still_ours = Attr(items.TOKEN).eq(token)
    # A beat that was sent, timed out, and arrives after the next one must not move it back.
    not_overtaken = Attr(items.LEASE_UNTIL).lte(to_ms(lease_until))
    return Update(
        key=items.execution_key(id),
        condition=still_ours & not_overtaken,
        changes={items.LEASE_UNTIL: to_ms(lease_until)},
    )


def settle(after: Execution, *, token: Token, lease_until: datetime | None = None) -> Update:
    """What a try led to, from the one who holds it; or, whose lease ran out then, over its head."""
    still_ours: ConditionBase = Attr(items.TOKEN).eq(token)
    if lease_until is not None:
        still_ours = _same_holder(token, lease_until)
    first_start = after.first_started_at
    outcome = {
        **items.outcome_values(after),
        items.PREDECESSOR: after.predecessor,
        # None again where the look after the claim let no handler start.
        items.FIRST_STARTED_AT: first_start and to_ms(first_start),
    }
    proof = outcome
    if after.deferral is not None:
        # Made again, it would take back what was heard of the try since (P9).
        still_ours &= Attr(items.DEFERRAL).not_exists()
        proof = {items.TOKEN: token, items.DEFERRAL: outcome[items.DEFERRAL]}
    return Update(
        key=items.execution_key(after.id), condition=still_ours, changes=outcome, proof=proof
    )


def end(before: Execution, after: Execution, *, same_version: bool = False) -> Update:
    """An end without a try, of a row that is as it was read.

    With `same_version` no edit has taken over a row that waits since then (P19). Raises
    ValueError when the lifecycle has no such step: a bug of the caller.
    """
    if before.state not in sources_of(event_to(after.state)):
        raise ValueError(f"{before.id}: {before.state} does not become {after.state}")
    same_state = Attr(items.STATE).eq(before.state.value)
    same_try = Attr(items.ATTEMPT).eq(before.attempt)
    outcome: Values = items.outcome_values(after)
    condition = same_state & same_try
    if same_version and before.state is State.SCHEDULED:
        condition &= _waits_at(before.job_version)
    if after.state is State.SKIPPED and after.blocker is not None:
        # It gives way to one before it: a run by hand that came between would not be seen (P16).
        condition &= _has_predecessor(before)
    if before.token is not None and before.lease_until is not None:
        condition &= _same_holder(before.token, before.lease_until)
        # Nobody but a holder may change it, and it is ended over the holder's head (P12).
        outcome = {**outcome, items.PREDECESSOR: after.predecessor}
    # Whose end was asked for stays ended, whatever its job plans later (P19).
    requested = after.cancel_requested_at
    return Update(
        key=items.execution_key(before.id),
        condition=condition,
        changes=outcome,
        first={items.CANCEL_REQUESTED_AT: to_ms(requested)} if requested else {},
        proof=outcome,
    )


def block(after: Execution, *, token: Token) -> Update:
    """A row that waits, from the one who holds it."""
    if after.state is not State.BLOCKED or after.blocker is None:
        raise ValueError(f"{after.id} waits for nothing")
    return settle(after, token=token)


def wait_for(blocker: ExecutionId, waiter: ExecutionId, *, alone: bool) -> Update:
    """One more waiter of a row that has not ended; with `alone`, that does not wait itself."""
    is_closed = [*FINAL, *([State.BLOCKED] if alone else [])]
    has_not_ended = Attr(items.STATE).is_in(
        sorted(state.value for state in State if state not in is_closed)
    )
    return Update(
        key=items.execution_key(blocker),
        condition=has_not_ended,
        add={items.WAITERS: {waiter}},
    )


def follow(armed: Execution, last: ExecutionId, *, job_version: int) -> Update:
    """An armed row's predecessor, put in between it and the one that it had (P16).

    The row is then of this version: no row of it takes its place any more (P19).
    """
    still_waits = Attr(items.STATE).eq(State.SCHEDULED.value)
    return Update(
        key=items.execution_key(armed.id),
        condition=still_waits & _has_predecessor(armed),
        changes={items.PREDECESSOR: last, items.JOB_VERSION: job_version},
        proof={items.PREDECESSOR: last},
    )


def follows_still(armed: Execution) -> Check:
    """An armed row is still armed, and has the predecessor that it was read with."""
    still_waits = Attr(items.STATE).eq(State.SCHEDULED.value)
    return Check(key=items.execution_key(armed.id), condition=still_waits & _has_predecessor(armed))


def put_last(job: Job, last: ExecutionId) -> Update:
    """A job's tail, of a job that is as it was read."""
    same_version = Attr(items.VERSION).eq(job.version)
    return Update(
        key=job_key(job.id),
        condition=same_version & _has_tail(job),
        changes={items.TAIL: last},
        proof={items.TAIL: last},
    )


def amend(before: Execution, after: Execution) -> Update:
    """What a one-off's next version changes, in a row that still waits at the version before."""
    old, new = items.execution_values(before), items.execution_values(after)
    changes = {name: value for name, value in new.items() if value != old[name]}
    return Update(
        key=items.execution_key(before.id),
        condition=_waits_at(before.job_version),
        changes=changes,
        proof=changes,
    )


def move(before: Execution, *, to: ExecutionId, now: datetime) -> Update:
    """The end of a one-off's row that still waits, for the sake of another row (P20)."""
    return Update(
        key=items.execution_key(before.id),
        condition=_waits_at(before.job_version),
        changes=items.moved_values(moved(before, to=to, now=now)),
        proof={items.MOVED_TO: to},
    )


def lead(first: ExecutionId, *, away_from: ExecutionId, to: ExecutionId) -> Update:
    """The latest place of a one-off, in the row that its id leads to."""
    led_there = Attr(items.MOVED_TO).eq(away_from)
    return Update(
        key=items.execution_key(first), condition=led_there, changes=items.leading_values(to)
    )


def _waits_at(version: int) -> ConditionBase:
    still_waits = Attr(items.STATE).eq(State.SCHEDULED.value)
    # Where no version is written, it is the first.
    is_first = Attr(items.JOB_VERSION).not_exists()
    return still_waits & (is_first if version == 1 else Attr(items.JOB_VERSION).eq(version))


def request_cancel(id: ExecutionId, *, now: datetime) -> Update:
    """A mark that the holder's next beat sees; the first request's instant stays."""
    is_running = Attr(items.STATE).eq(State.RUNNING.value)
    return Update(
        key=items.execution_key(id),
        condition=is_running,
        first={items.CANCEL_REQUESTED_AT: to_ms(now)},
    )


def mark_told(id: ExecutionId, *, now: datetime) -> Update:
    """That the owner was told, of a row that exists; the first time stays."""
    exists = Attr(schema.PARTITION_KEY).exists()
    return Update(key=items.execution_key(id), condition=exists, first={items.TOLD_AT: to_ms(now)})


def mark_last(id: ExecutionId, *, decided_at: datetime) -> Update:
    """That nothing follows a row that exists; the first time stays."""
    exists = Attr(schema.PARTITION_KEY).exists()
    first = {items.LAST_SINCE: to_ms(decided_at)}
    return Update(key=items.execution_key(id), condition=exists, first=first)


def count_undeliverable(id: ExecutionId) -> Update:
    """One more landing in a dead-letter queue, of a row that exists."""
    exists = Attr(schema.PARTITION_KEY).exists()
    return Update(key=items.execution_key(id), condition=exists, add={items.UNDELIVERABLE: 1})


def holds(id: ExecutionId, token: Token) -> Check:
    """The row is still that claim's."""
    return Check(key=items.execution_key(id), condition=Attr(items.TOKEN).eq(token))


def checkpoint(id: ExecutionId, made: Checkpoint, *, token: Token, kept_until: datetime) -> Put:
    """A checkpoint in the place of an earlier one."""
    none_yet = Attr(schema.PARTITION_KEY).not_exists()
    of_another_claim = Attr(items.TOKEN).ne(token)
    # One that was sent, timed out, and arrives after the next one must not undo it.
    earlier = Attr(items.NUMBER).lt(made.number)
    values = items.checkpoint_values(
        id, made.text, token=token, number=made.number, kept_until=kept_until
    )
    return Put(values=values, condition=none_yet | of_another_claim | earlier)


def job_is_at(id: JobId, version: int) -> Check:
    """The job is what the decision was made on."""
    return Check(key=job_key(id), condition=Attr(items.VERSION).eq(version))


def revise_job(before: Job, after: Job) -> Put:
    """The next version in the place of a job that is as it was read."""
    same_version = Attr(items.VERSION).eq(before.version)
    return Put(values=items.job_values(after), condition=same_version & _has_tail(before))


def delete_job(job: Job) -> Update:
    """The next version, DELETED and in no list, of a job that is as it was read."""
    same_version = Attr(items.VERSION).eq(job.version)
    return Update(
        key=job_key(job.id),
        condition=same_version,
        changes={
            items.VERSION: job.version + 1,
            items.STATUS: JobStatus.DELETED.value,
            schema.JOBS_OWNER_KEY: None,
            items.IS_COUNTED: None,
        },
    )


def count(owner: Owner, quota: Quota, more: Usage) -> Update:
    """So much more of what an owner has, or less, where the quota has room for it."""
    counts = {
        items.LIVE_JOBS: (more.live_jobs, quota.live_jobs),
        items.QUEUED: (more.queued_executions, quota.queued_executions),
        items.HELD_BYTES: (more.payload_bytes, quota.payload_bytes),
    }
    clauses = [
        _has_room(name, limit - added)
        for name, (added, limit) in counts.items()
        if limit is not None and added > 0
    ]
    return Update(
        key=usage_key(owner),
        condition=reduce(and_, clauses) if clauses else None,
        add={name: added for name, (added, _) in counts.items() if added},
    )


def reserve(owner: Owner, quota: Quota, more: Usage) -> Update:
    """As `count`, of what is queued: a recount replaces these."""
    counted = count(owner, quota, more)
    return replace(counted, add={**counted.add, items.QUEUED_BYTES: more.payload_bytes})


def mark(owner: Owner, counted: Values, *, now: datetime) -> Update:
    """A mark at what is counted, where it is still what was read."""
    read = Attr(items.QUEUED).eq(counted[items.QUEUED])
    as_read = read & Attr(items.QUEUED_BYTES).eq(counted[items.QUEUED_BYTES])
    made = Mark(
        at=now,
        executions=int(counted[items.QUEUED]),
        payload_bytes=int(counted[items.QUEUED_BYTES]),
    )
    return Update(key=usage_key(owner), condition=as_read, changes=items.mark_values(made))


def recount(owner: Owner, old: Mark, new: Mark, more: Usage) -> Update:
    """What was found more, or less, than was counted by a mark that is still the last."""
    is_last = Attr(items.MARKED_AT).eq(to_ms(old.at))
    return Update(
        key=usage_key(owner),
        condition=is_last,
        changes=items.mark_values(new),
        add={
            items.QUEUED: more.queued_executions,
            items.QUEUED_BYTES: more.payload_bytes,
            items.HELD_BYTES: more.payload_bytes,
        },
        proof=items.mark_values(new),
    )


def take(owner: Owner, rate: Rate, taken: Taken, *, now_ns: int) -> Update:
    """Tokens out of a bucket: of one that is full, or of one that has as many left."""
    full_at, spent = Attr(items.FULL_AT), taken.tokens * rate.interval_ns
    if taken.full_at_ns == now_ns + spent:
        is_full = full_at.not_exists() | full_at.lte(now_ns)
        return Update(
            key=rate_key(owner), condition=is_full, changes={items.FULL_AT: taken.full_at_ns}
        )
    is_not_full = full_at.gt(now_ns)
    has_as_many = full_at.lte(now_ns + rate.burst * rate.interval_ns - spent)
    return Update(
        key=rate_key(owner), condition=is_not_full & has_as_many, add={items.FULL_AT: spent}
    )


def revised_limits(before: Limits, after: Limits) -> Put:
    """Other limits in the place of these, if these are there."""
    never_any = Attr(schema.PARTITION_KEY).not_exists()
    same = Attr(items.VERSION).eq(before.version) if before.version else never_any
    return Put(values=items.limits_values(after), condition=same)


def limit(key: Key, most: int | None) -> Update:
    """What a key's limit is from now on; None: it has none of its own."""
    return Update(
        key=permit_key(key.kind, key.name),
        condition=None,
        changes={items.LIMIT: most},
        first={items.HOLDERS: {}},
    )


def begin_use(key: Key) -> Update:
    """The item of a key that has none, with nobody in it."""
    return Update(key=permit_key(key.kind, key.name), condition=None, first={items.HOLDERS: {}})


def acquire_permit(bound: Bound, permit: Permit, *, until: datetime) -> Update:
    """One more holder, where there are fewer than may be, or one that is in."""
    path = items.holder_path(permit)
    is_in = Attr(path).exists()
    holders, own = Attr(items.HOLDERS), Attr(items.LIMIT)
    # The number that is there now, so that a change of it holds from its write on.
    has_room = (own.exists() & holders.size().lt(own)) | (
        own.not_exists() & holders.size().lt(bound.most)
    )
    return Update(
        key=permit_key(bound.key.kind, bound.key.name),
        condition=holders.exists() & (is_in | has_room),
        changes={path: items.looked_at(until)},
    )


def release_permit(key: Key, permit: Permit) -> Update:
    """One holder less, if it is in."""
    return Update(
        key=permit_key(key.kind, key.name),
        condition=Attr(items.HOLDERS).exists(),
        changes={items.holder_path(permit): None},
    )


def renew_permits(key: Key, found: Use, until: Mapping[Permit, datetime | None]) -> Update:
    """Holders that are looked at again then, or are none any more, where they are as found."""
    as_found = [
        Attr(items.holder_path(permit)).eq(items.looked_at(found.holders[permit]))
        for permit in until
    ]
    return Update(
        key=permit_key(key.kind, key.name),
        condition=reduce(and_, as_found),
        changes={
            items.holder_path(permit): at and items.looked_at(at) for permit, at in until.items()
        },
    )


def wait_for_permit(key: Key, id: ExecutionId, *, kept_until: datetime) -> Update:
    """A note that an execution waits for a place."""
    return Update(
        key=waits_key(key.kind, key.name, id),
        condition=None,
        changes={schema.TTL: items.looked_at(kept_until)},
    )


def call_for_permit(key: Key, *, call: str) -> Update:
    """That somebody waits, for whoever gives a place back to see."""
    return Update(
        key=permit_key(key.kind, key.name),
        condition=Attr(items.HOLDERS).exists(),
        changes={items.CALL: call},
    )


def nobody_calls(key: Key, call: str) -> Update:
    """That nobody waits, if nobody has called since."""
    return Update(
        key=permit_key(key.kind, key.name),
        condition=Attr(items.CALL).eq(call),
        changes={items.CALL: None},
    )


def _has_room(name: str, most: int) -> ConditionBase:
    fits: ConditionBase = Attr(name).lte(most)
    return fits if most < 0 else fits | Attr(name).not_exists()


def acquire(
    work: Work,
    *,
    owner: str,
    call: str,
    now: datetime,
    until: datetime,
    start: Position,
    armed_by: int | None,
) -> Update:
    """Take a lease that is free, at the next epoch; `call` tells this call from all others."""
    never_taken = Attr(schema.PARTITION_KEY).not_exists()
    # Of one that lost these, the watermark would begin anew, and the epochs at one.
    is_whole = (
        Attr(items.EPOCH).attribute_type("N")
        & Attr(items.WATERMARK).attribute_type("S")
        & Attr(items.LEASE_UNTIL).attribute_type("N")
    )
    run_out: ConditionBase = is_whole & Attr(items.LEASE_UNTIL).lte(to_ms(now))
    if armed_by is not None:
        run_out &= Attr(items.ARMED).not_exists() | Attr(items.ARMED).lte(armed_by)
    return Update(
        key=partition_key(work.generation, work.partition, work.kind),
        condition=never_taken | run_out,
        changes={
            items.LEASE_OWNER: owner,
            items.LEASE_CALL: call,
            items.LEASE_UNTIL: to_ms(until),
        },
        first={items.WATERMARK: start},
        add={items.EPOCH: 1},
        proof={items.LEASE_CALL: call},
    )


def revised_layouts(before: Layouts, after: Layouts) -> Put:
    """Other layouts in the place of these, if these are there."""
    condition = Attr(items.LAYOUTS).eq(items.layouts_value(before))
    return Put(values=items.layouts_values(after, LAYOUT_KEY), condition=condition)


def advance(
    grant: Grant,
    *,
    watermark: Position,
    intent: Intent | None,
    until: datetime,
    backlog: Backlog | None,
) -> Update:
    """The page behind committed, the page ahead declared, by the owner of this epoch."""
    same_epoch = Attr(items.EPOCH).eq(grant.epoch)
    # A write that was sent, timed out, and arrives after the next one must not undo it.
    not_overtaken = Attr(items.WATERMARK).lte(watermark)
    return Update(
        key=partition_key(grant.work.generation, grant.work.partition, grant.work.kind),
        condition=same_epoch & not_overtaken,
        changes=_done(grant, watermark, intent=intent, backlog=backlog, until=until),
    )


def rewind(grant: Grant, *, to: Progress, intent: Intent | None, until: datetime) -> Update:
    """As `advance`, wherever the watermark was before."""
    return Update(
        key=partition_key(grant.work.generation, grant.work.partition, grant.work.kind),
        condition=Attr(items.EPOCH).eq(grant.epoch),
        changes=_done(grant, to.watermark, intent=intent, backlog=to.backlog, until=until),
    )


def _done(
    grant: Grant,
    watermark: Position,
    *,
    intent: Intent | None,
    backlog: Backlog | None,
    until: datetime,
) -> Values:
    """How far a work is done, and for how long it is whose."""
    return {
        items.WATERMARK: watermark,
        items.INTENT: None if intent is None else items.intent_values(intent),
        items.BACKLOG: None if backlog is None else items.backlog_values(backlog),
        items.ARMED: grant.armed,
        items.LEASE_UNTIL: to_ms(until),
    }


def _same_holder(token: Token, lease_until: datetime) -> ConditionBase:
    """The holder that was read, who has neither beaten nor finished since."""
    return Attr(items.TOKEN).eq(token) & Attr(items.LEASE_UNTIL).eq(to_ms(lease_until))


def _has_predecessor(row: Execution) -> ConditionBase:
    name = Attr(items.PREDECESSOR)
    return name.not_exists() if row.predecessor is None else name.eq(row.predecessor)


def _has_tail(job: Job) -> ConditionBase:
    return Attr(items.TAIL).not_exists() if job.tail is None else Attr(items.TAIL).eq(job.tail)


def _held(
    *,
    token: Token,
    worker: str,
    now: datetime,
    lease_until: datetime,
    arrival: Arrival | None,
) -> Values:
    return {
        items.ARRIVAL: arrival and items.arrival_values(arrival, now),
        items.DEFERRAL: None,
        items.STATE: State.RUNNING.value,
        items.TOKEN: token,
        items.LEASE_UNTIL: to_ms(lease_until),
        items.WORKER: worker,
        items.STARTED_AT: to_ms(now),
        items.NEXT_RUN_AT: None,
    }


@dataclass(frozen=True, kw_only=True)
class _Expression:
    text: str
    names: Mapping[str, str]
    values: Mapping[str, Any]


def _expression(update: Update) -> _Expression:
    set_to = {name: value for name, value in update.changes.items() if value is not None}
    values = items.marshal({**set_to, **update.first, **update.add})
    # Every name has a placeholder: some are reserved words, or will be. One with dots is a path.
    parts_of = {
        name: {f"#u{i}p{j}": part for j, part in enumerate(name.split("."))}
        for i, name in enumerate({**update.changes, **values})
    }
    name_of = {name: ".".join(parts) for name, parts in parts_of.items()}
    value_of = {name: f":u{i}" for i, name in enumerate(values)}
    clauses = {
        "SET": [f"{name_of[name]} = {value_of[name]}" for name in set_to]
        + [
            f"{name_of[name]} = if_not_exists({name_of[name]}, {value_of[name]})"
            for name in update.first
        ],
        "REMOVE": [name_of[name] for name in update.changes if name not in set_to],
        "ADD": [f"{name_of[name]} {value_of[name]}" for name in update.add],
    }
    return _Expression(
        text=" ".join(f"{verb} {', '.join(parts)}" for verb, parts in clauses.items() if parts),
        names={key: part for parts in parts_of.values() for key, part in parts.items()},
        values={value_of[name]: value for name, value in values.items()},
    )


def _condition(condition: ConditionBase | None) -> Mapping[str, Any]:
    if condition is None:
        return {"ExpressionAttributeNames": {}}
    built = ConditionExpressionBuilder().build_expression(condition)
    values = items.marshal(built.attribute_value_placeholders)
    return {
        "ConditionExpression": built.condition_expression,
        "ExpressionAttributeNames": built.attribute_name_placeholders,
        # An empty map is refused.
        **({"ExpressionAttributeValues": values} if values else {}),
        **_ALL_OLD,
    }
