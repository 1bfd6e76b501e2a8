"""Items that were changed by hand: each is read as it was written, or is Damaged by name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamplighter.aws import items, schema
from lamplighter.core.buckets import (
    LAYOUT_KEY,
    before,
    partition_key,
    permit_key,
    through,
    usage_key,
    watch_position,
)
from lamplighter.core.catch_up import CatchUp, CaughtUp
from lamplighter.core.deferral import CalledBack, Deferral, Terms
from lamplighter.core.errors import Damaged
from lamplighter.core.lease import Backlog, Held, Intent, Kind, Layout, Layouts, Work
from lamplighter.core.limits import PARTITION_LEASE
from lamplighter.core.model import (
    Arrival,
    Execution,
    OverlapPolicy,
    Payload,
    PayloadRef,
    Rest,
    Spec,
    Token,
    Watch,
)
from lamplighter.core.named import Invocation, NamedTarget, TargetKind
from lamplighter.core.permits import Key, Limits, Permit
from lamplighter.core.permits import Kind as LimitKind
from lamplighter.core.quotas import Mark
from lamplighter.core.retry import Failure, RetryPolicy
from lamplighter.core.retry import Kind as FailureKind
from lamplighter.core.targets import HttpTarget
from lamplighter.core.waits import Part, Waited
from tests.aws.conftest import Bench
from tests.support.examples import examples
from tests.support.rows import (
    LEASE,
    MINUTE,
    OWNER,
    WORKER,
    T,
    check_pointer,
    failed,
    key_record,
    occurrence,
    one_off,
    recurring,
    retry_pointer,
    running,
    s,
)

Values = items.Values
SECRET = "correct horse battery staple"
WORK = Work(partition=3, kind=Kind.DISPATCH)
LEASE_KEY = partition_key(0, 3, Kind.DISPATCH)
LIMIT = Key(kind=LimitKind.OWNER, name=OWNER)


@dataclass(frozen=True, kw_only=True)
class Sort:
    """One sort of item: as it is stored, how it is read, and how what was read is written."""

    values: Values
    read: Callable[[Values], Any]
    write: Callable[[Any], Values] | None = None


def through_dynamodb(values: Values) -> dict[str, Any]:
    return items.unmarshal(items.marshal(values))


def waiting() -> Execution:
    """A row that has about all that a row may have before it ends."""
    row = failed(running(one_off(payload=f'"{SECRET}"')))
    assert row.spec is not None
    arrival = Arrival(sent_at=T - s(2), received_at=T - s(1), hold=s(1), cold_start=s(0.5))
    return replace(
        row,
        spec=replace(
            row.spec,
            retry=RetryPolicy(retry_on=("TypeError",), no_retry_on=("KeyError",), jitter=0.1),
            deadline=s(3600),
        ),
        crashes=1,
        undeliverable=1,
        arrival=arrival,
        called_back=CalledBack(token="0" * 32, answer="LAPSED"),
        parked_since=T,
        waited=Waited(until=T, on=Part.BLOCKED, spent=(s(1), s(2))),
        reason="because",
        attempts=(replace(row.attempts[0], arrival=arrival, handler_version=3),),
        traceparent="00-0-0-00",
        idempotent_as=one_off(n=7).id,
        predecessor=one_off(n=8).id,
        blocker=one_off(n=9).id,
        waiters=frozenset({one_off(n=10).id, one_off(n=11).id}),
        cancel_requested_at=T,
        told_at=T,
        last_since=T,
        result=f'"{SECRET}"',
    )


def held() -> Execution:
    row = running(occurrence(recurring()))
    return replace(
        row,
        deferral=Deferral(heartbeat=s(60), ends_at=T + s(600), version=2),
        caught_up=CaughtUp(decided_at=T, number=2, step=s(3)),
        sent_directly=True,
    )


def of_target() -> Execution:
    target = HttpTarget(
        url="https://svc.example.com/hook",
        headers=(("x-tenant", "7"),),
        deferred=Terms(heartbeat=timedelta(minutes=1), hard_limit=timedelta(hours=1)),
    )
    ref = PayloadRef(key="a/b", version_id="v1", sha256="0" * 64, size=9)
    spec = Spec(task=target.task_name, target=target, payload=Payload.referring(ref))
    return replace(one_off(), spec=spec, task=spec.task, moved_to=one_off(n=5).id)


def of_function() -> Execution:
    target = NamedTarget(kind=TargetKind.LAMBDA, name="billing", invocation=Invocation.EVENT)
    payload = Payload(text=None, bytes=2000, version=2)
    spec = Spec(task=target.task_name, target=target, payload=payload)
    return replace(one_off(), spec=spec, task=spec.task)


def definition() -> Values:
    job = recurring(payload=f'"{SECRET}"')
    return items.job_values(
        replace(
            job,
            overlap=OverlapPolicy.BUFFER_ONE,
            catch_up=CatchUp(most=3),
            effective_from=T,
            tail=one_off().id,
            is_counted=True,
        )
    )


def lease() -> Values:
    backlog = Backlog.between(before(T), through(T), now=T, settled=before(T))
    return {
        **items.key_values(LEASE_KEY),
        items.EPOCH: 7,
        items.WATERMARK: before(T),
        items.LEASE_UNTIL: 1,
        items.ARMED: 6,
        items.INTENT: items.intent_values(Intent(after=before(T), until=through(T), decided_at=T)),
        items.BACKLOG: items.backlog_values(backlog),
    }


def layouts() -> Layouts:
    first = Layouts(of=(Layout(shards=4, partitions=2, effective_from=T),))
    return first.changed(shards=8, partitions=4, effective_from=T + s(3600))


def usage() -> Values:
    mark = items.mark_values(Mark(at=T, executions=3, payload_bytes=400))
    counted = {items.LIVE_JOBS: 1, items.QUEUED: 2, items.HELD_BYTES: 300}
    return {**items.key_values(usage_key(OWNER)), **counted, **mark}


def limit() -> Values:
    permit = Permit(execution_id=one_off().id, mark="abcd")
    held_by = {permit.text: items.looked_at(T)}
    key = items.key_values(permit_key(LIMIT.kind, LIMIT.name))
    return {**key, items.HOLDERS: held_by, items.LIMIT: 4, items.CALL: "0a"}


a_watch = Watch(
    position=watch_position(recurring().id, T),
    job_id=recurring().id,
    at=T,
    since=T - s(60),
    rest=Rest(until=T, place="x"),
)
SORTS: Mapping[str, Sort] = {
    **{
        name: Sort(
            values=items.execution_values(row),
            read=items.row_from,
            write=items.execution_values,
        )
        for name, row in {
            "an execution that waits": waiting(),
            "an execution that runs": held(),
            "an execution of a target, moved": of_target(),
            "an execution of a function": of_function(),
        }.items()
    },
    **{
        name: Sort(
            values=items.pointer_values(pointer),
            read=items.row_from,
            write=items.pointer_values,
        )
        for name, pointer in {
            "a retry pointer": retry_pointer(one_off(), T),
            "a check pointer": check_pointer(one_off(), T),
        }.items()
    },
    "a watch": Sort(
        values=items.watch_values(a_watch), read=items.row_from, write=items.watch_values
    ),
    "a definition": Sort(values=definition(), read=items.job_from, write=items.job_values),
    "an idempotency key": Sort(
        values=items.key_record_values(key_record(one_off())),
        read=items.key_record_from,
        write=items.key_record_values,
    ),
    "usage": Sort(values=usage(), read=items.usage_from),
    "a mark": Sort(values=usage(), read=items.mark_from),
    "limits": Sort(
        values=items.limits_values(Limits(of={LIMIT: 3}, version=2)),
        read=items.limits_from,
        write=items.limits_values,
    ),
    "a limit": Sort(values=limit(), read=items.use_from),
    "layouts": Sort(
        values=items.layouts_values(layouts(), LAYOUT_KEY),
        read=items.layouts_from,
        write=partial(items.layouts_values, key=LAYOUT_KEY),
    ),
    "a lease": Sort(values=lease(), read=partial(items.grant_from, work=WORK)),
    "the end of a lease": Sort(values=lease(), read=items.held_until),
    "the progress of a lease": Sort(values=lease(), read=items.progress_from),
}
KEYS = {schema.PARTITION_KEY, schema.SORT_KEY}

numbers = st.one_of(
    st.sampled_from([0, -1, 2**53, 10**37, -(10**37)]).map(Decimal),
    st.decimals(allow_nan=False, allow_infinity=False, places=2, min_value=-9, max_value=9),
    st.integers(-(10**17), 10**17).map(Decimal),
)
words = st.sampled_from(
    ["", SECRET, "ACTIVE", "ex_", "job_0", "[]", "{}", "[1]", "null", "1", "[" * 5_000, "NaN"]
) | st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
junk = st.recursive(
    st.none() | st.booleans() | numbers | words | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
) | st.sets(st.text("ab", min_size=1), min_size=1, max_size=2)
GONE = object()
NAMES = {items.TASK, items.TASK_VERSION, items.QUEUE}
OWNERS = {items.OWNER, schema.OWNER_KEY}


@st.composite
def damages(draw: st.DrawFn, values: object, depth: int = 0) -> object:
    """The same with one thing in it that is gone, or another."""
    if isinstance(values, dict) and values and (not depth or draw(st.booleans())):
        name = draw(st.sampled_from(sorted(values.keys() - (KEYS if not depth else set()))))
        changed = draw(st.just(GONE) | damages(values[name], depth + 1))
        kept = {other: value for other, value in values.items() if other != name}
        return kept if changed is GONE else {**kept, name: changed}
    if isinstance(values, list) and values and draw(st.booleans()):
        place = draw(st.integers(0, len(values) - 1))
        changed = draw(st.just(GONE) | damages(values[place], depth + 1))
        return [*values[:place], *([] if changed is GONE else [changed]), *values[place + 1 :]]
    return draw(junk)


def looked_at(sort: Sort, found: dict[str, Any]) -> Damaged | None:
    """What reading it comes to: what is read can be written, and what cannot is named."""
    try:
        read = sort.read(found)
    except Damaged as damaged:
        return damaged
    if sort.write is not None:
        items.marshal(sort.write(read))
    return None


@pytest.mark.parametrize("name", SORTS)
def test_each_sort_is_read_back_whole(name: str) -> None:
    sort = SORTS[name]
    stored = through_dynamodb(sort.values)

    assert looked_at(sort, stored) is None
    if sort.write is not None:
        assert through_dynamodb(sort.write(sort.read(stored))) == stored


@pytest.mark.parametrize("name", SORTS)
def test_whatever_became_of_an_item_it_is_read_or_it_is_damaged(name: str) -> None:
    sort = SORTS[name]
    stored = through_dynamodb(sort.values)

    @settings(max_examples=examples(40))
    @given(damages(stored))
    def tried(found: dict[str, Any]) -> None:
        damaged = looked_at(sort, found)

        if damaged is not None:
            assert SECRET not in str(damaged)
            changed = {one for one in stored if repr(stored[one]) != repr(found.get(one, GONE))}
            # Of a row that is in no list the owner is beside the key that the others have.
            changed |= OWNERS if changed & OWNERS else set()
            named = (damaged.attribute or "").partition(".")[0]
            # A definition is judged with the names beside it; and without its kind a pointer looks
            # like an execution that lacks nearly all.
            changed |= {items.SPEC} if changed & NAMES else set()
            assert items.POINTER_KIND in changed or not named or named in changed

    tried()


@pytest.mark.parametrize(
    ("attribute", "value", "named"),
    [
        (items.STATE, GONE, "st"),
        (items.STATE, "PAUSED", "st"),
        (items.STATE, "RUNNING", None),  # without a token
        (items.ATTEMPT, GONE, "at"),
        (items.ATTEMPT, Decimal(0), "at"),
        (items.ATTEMPT, Decimal("1.5"), "at"),
        (items.ATTEMPT, "1", "at"),
        (items.CREATED_AT, Decimal(10) ** 37, "ca"),
        (items.TASK, Decimal(1), "tn"),
        (items.SPEC, {}, "sp.b"),
        (items.SPEC, "null", "sp"),
        (items.WAITERS, ["ex_0"], "ws"),
        (items.PREDECESSOR, "the one before", "pr"),
        (items.ERROR, {"k": "odd", "t": "", "m": ""}, "er.k"),
    ],
)
def test_the_attribute_at_fault_is_named(attribute: str, value: object, named: str | None) -> None:
    row = one_off(payload=f'"{SECRET}"')
    stored = through_dynamodb(items.execution_values(row)) | {attribute: value}
    found = {name: value for name, value in stored.items() if value is not GONE}

    with pytest.raises(Damaged) as damaged:
        items.execution_from(found)

    assert (damaged.value.kind, damaged.value.id) == ("execution", row.id)
    assert (damaged.value.attribute, damaged.value.owner) == (named, OWNER)


def change(bench: Bench, table: str, key: tuple[str, str], **changed: object) -> None:
    """Put other values in the place of some of an item's; GONE ones are taken out."""
    at = items.marshal(items.key_values(key))
    found = bench.clients.unmetered.get_item(TableName=table, Key=at)["Item"]
    values = items.unmarshal(found) | changed
    kept = {name: value for name, value in values.items() if value is not GONE}
    bench.clients.unmetered.put_item(TableName=table, Item=items.marshal(kept))


def lease_of(bench: Bench) -> Values:
    at = items.marshal(items.key_values(LEASE_KEY))
    return items.unmarshal(
        bench.clients.unmetered.get_item(TableName=bench.tables.control, Key=at)["Item"]
    )


def acquire(bench: Bench) -> object:
    now = bench.clock.now()
    until = now + PARTITION_LEASE
    return bench.control.acquire(WORK, owner="me", now=now, until=until, start=before(T))


@pytest.mark.parametrize(
    "changed",
    [
        {items.EPOCH: GONE},
        {items.EPOCH: "seven"},
        {items.WATERMARK: GONE},
        {items.WATERMARK: Decimal(1)},
        {items.LEASE_UNTIL: GONE},
        {items.LEASE_UNTIL: "soon"},
    ],
    ids="-".join,
)
def test_a_lease_that_lost_what_it_must_have_is_taken_by_nobody(
    bench: Bench, changed: Mapping[str, object]
) -> None:
    """Else its watermark would begin anew, and an epoch come twice."""
    acquire(bench)
    change(bench, bench.tables.control, LEASE_KEY, **changed)
    there = lease_of(bench)
    bench.clock.sleep(2 * PARTITION_LEASE)

    with pytest.raises(Damaged, match="lease partition#0000#0003 dispatch") as damaged:
        acquire(bench)

    assert damaged.value.attribute in changed
    assert lease_of(bench) == there


def test_a_lease_whose_intent_is_damaged_is_told_of_and_its_watermark_stays(bench: Bench) -> None:
    acquire(bench)
    change(bench, bench.tables.control, LEASE_KEY, **{items.INTENT: {"a": "nowhere"}})
    bench.clock.sleep(2 * PARTITION_LEASE)

    for _ in range(2):
        with pytest.raises(Damaged):
            acquire(bench)
        bench.clock.sleep(2 * PARTITION_LEASE)

    assert lease_of(bench)[items.WATERMARK] == before(T)


def test_a_lease_that_is_held_is_held_as_before(bench: Bench) -> None:
    acquire(bench)

    assert isinstance(acquire(bench), Held)


def test_damaged_layouts_are_not_made_anew(bench: Bench) -> None:
    bench.control.layouts(Layout(shards=4, partitions=2, effective_from=T))
    change(bench, bench.tables.control, LAYOUT_KEY, **{items.LAYOUTS: GONE})

    with pytest.raises(Damaged, match="layouts layout current") as damaged:
        bench.control.layouts(Layout(shards=1, partitions=1, effective_from=T), anew=True)

    assert damaged.value.attribute == items.LAYOUTS


def test_how_far_a_damaged_partition_is_is_not_made_up(bench: Bench) -> None:
    acquire(bench)
    change(bench, bench.tables.control, LEASE_KEY, **{items.WATERMARK: "yesterday"})

    with pytest.raises(Damaged):
        bench.control.progress([WORK])


def test_a_claim_whose_row_cannot_be_read_back_leaves_it_to_be_mended(bench: Bench) -> None:
    row = one_off()
    bench.executions.put([row])
    key = items.execution_key(row.id)
    change(bench, bench.tables.executions, key, **{items.SPEC: {"p": SECRET}})

    for token in ("a" * 32, "b" * 32):
        with pytest.raises(Damaged) as damaged:
            bench.executions.claim(
                row.id, attempt=1, token=Token(token), worker=WORKER, now=T, lease_until=T + LEASE
            )
        assert SECRET not in str(damaged.value)
    change(bench, bench.tables.executions, key, **{items.SPEC: items.execution_values(row)["sp"]})

    found = bench.executions.get(row.id)
    assert found is not None
    assert found.token == "a" * 32  # the first had it: its lease ends, and another takes over
    assert replace(row, spec=found.spec) == row


def test_a_damaged_pointer_is_left_out_and_names_what_it_points_at(bench: Bench) -> None:
    row = one_off()
    pointer = retry_pointer(row, T + s(1))
    bench.executions.put([row])
    bench.executions.point([pointer])
    place = (str(items.pointer_values(pointer)["pk"]), str(pointer.position))
    change(bench, bench.tables.executions, place, **{items.DUE_AT: "soon"})

    page = bench.executions.due(MINUTE, [0], after=before(T), until=through(T + s(59)), limit=10)

    assert page.rows == [row]
    assert [(one.kind, one.attribute, one.about) for one in page.damaged] == [
        ("pointer", "du", row.id)
    ]


def test_a_damaged_version_of_a_job_is_named_with_its_number(bench: Bench) -> None:
    job = recurring()
    bench.jobs.create(first=occurrence(job), job=job)
    bench.jobs.revise(job, replace(job, version=2, effective_from=T))
    change(bench, bench.tables.jobs, (job.id, "version#00000001"), **{items.MISFIRE: "NEVER"})

    with pytest.raises(Damaged) as damaged:
        bench.jobs.versions(job.id, before=2, limit=5)

    assert (damaged.value.id, damaged.value.attribute) == (f"{job.id} version#00000001", "mf")


@pytest.mark.parametrize(
    "wait", [timedelta(seconds=-5), timedelta(days=1_000_000), timedelta(0)], ids=str
)
def test_whatever_a_handler_says_of_its_failure_is_read_back(wait: timedelta) -> None:
    failure = Failure(kind=FailureKind.RATE_LIMITED, type="", message="", retry_after=wait)
    row = replace(failed(running(one_off())), error=failure)

    read = items.execution_from(through_dynamodb(items.execution_values(row)))

    assert read.error is not None
    assert read.error.retry_after is not None
    assert abs(read.error.retry_after - wait) <= timedelta(milliseconds=1)
