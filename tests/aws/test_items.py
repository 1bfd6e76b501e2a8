"""Rows as DynamoDB's items: nothing is lost on the way, and a plain one is one write unit."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamplighter.aws import items, schema
from lamplighter.core import limits
from lamplighter.core.buckets import (
    JobId,
    body_of,
    execution_id,
    from_ms,
    object_key,
    occurrence_id,
    one_off_job_id,
    owner_key_of,
    recurring_job_id,
)
from lamplighter.core.catch_up import CatchUp, CaughtUp
from lamplighter.core.deferral import CalledBack, Deferral, Terms
from lamplighter.core.lease import Grant, Intent, Kind, Layout, Layouts, Work
from lamplighter.core.lifecycle import FINAL, NEEDS_ATTENTION, State
from lamplighter.core.model import (
    Arrival,
    Attempt,
    Execution,
    Job,
    JobStatus,
    MisfirePolicy,
    OnDeadline,
    Owner,
    Payload,
    PayloadRef,
    Pointer,
    PointerKind,
    Spec,
    Target,
    Token,
    Trigger,
)
from lamplighter.core.named import Invocation, NamedTarget, TargetKind
from lamplighter.core.outcome import moved
from lamplighter.core.retry import Failure, RetryPolicy
from lamplighter.core.retry import Kind as FailureKind
from lamplighter.core.schedule import parse
from lamplighter.core.targets import HttpTarget
from lamplighter.core.waits import Part, Waited
from lamplighter.ports import KeyRecord
from tests.support.rows import (
    OWNER,
    T,
    cancelled,
    failed,
    occurrence,
    one_off,
    recurring,
    retry_pointer,
    running,
    s,
    spec,
    succeeded,
)
from tests.support.sizes import item_size

# What DynamoDB holds: any text but lone surrogates; instants in whole milliseconds.
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
names = st.text(st.characters(categories=("L", "N")), min_size=1, max_size=40)
instants = st.integers(0, 4_000_000_000_000).map(from_ms)
hashes = st.integers(0, (1 << 70) - 1)
shards = st.integers(0, limits.MAX_SHARDS - 1)
durations = st.integers(1000, 840_000).map(lambda ms: timedelta(milliseconds=ms))
seconds = st.floats(0, 86_400)
failures = st.builds(
    Failure,
    kind=st.sampled_from(FailureKind),
    type=texts,
    message=texts,
    retry_after=st.none() | durations,
)
# How long before its start a message came, and how long it was held.
arrivals = st.builds(
    lambda start, sent, received, hold, cold: Arrival(
        sent_at=start - sent, received_at=start - received, hold=hold, cold_start=cold
    ),
    *(instants, durations, durations),
    *(st.just(timedelta(0)) | durations, st.just(timedelta(0)) | durations),
)
waits = st.builds(
    Waited,
    until=instants,
    on=st.sampled_from(Part),
    spent=st.lists(durations, max_size=len(Part)).map(tuple),
)
attempts = st.builds(
    Attempt,
    number=st.integers(1, 200),
    started_at=instants,
    finished_at=st.none() | instants,
    worker=texts,
    state=st.sampled_from(State),
    error=st.none() | failures,
    arrival=st.none() | arrivals,
)
error_names = st.lists(st.from_regex(r"[A-Za-zÄ]{1,9}", fullmatch=True), max_size=9, unique=True)
retries = st.builds(
    RetryPolicy,
    max_attempts=st.integers(1, 100),
    base_seconds=seconds,
    factor=st.floats(1, 100),
    max_seconds=seconds,
    jitter=st.floats(0, 1),
    retry_on=error_names.map(lambda found: tuple(found[::2])),
    no_retry_on=error_names.map(lambda found: tuple(found[1::2])).map(
        lambda found: tuple(f"not_{name}" for name in found)
    ),
    honor_retry_after=st.booleans(),
)
numbers = st.integers(1, 2**52)
payloads = st.one_of(
    st.text(max_size=40).map(lambda text: Payload.of(text.encode("ascii", "ignore").decode())),
    st.builds(Payload, text=st.none(), bytes=st.integers(513, 65_536), version=numbers),
    st.builds(
        PayloadRef,
        key=names,
        version_id=names,
        sha256=st.text("0123456789abcdef", min_size=64, max_size=64),
        size=st.integers(1, limits.PAYLOAD_REF_MAX_BYTES),
    ).map(Payload.referring),
)
task_specs = st.builds(
    Spec,
    task=names,
    task_version=st.none() | st.integers(1, limits.MAX_TASK_VERSION),
    queue=names,
    payload=payloads,
    retry=retries,
    retry_is_default=st.booleans(),
    timeout=durations,
    deadline=st.none() | durations,
    on_deadline=st.sampled_from(OnDeadline),
)
catch_ups = st.builds(
    CatchUp,
    threshold=durations,
    window=st.integers(60_000, 31_622_400_000).map(lambda ms: timedelta(milliseconds=ms)),
    most=st.integers(1, limits.CATCHUP_MAX_LIMIT),
    spread=st.integers(0, 600_000).map(lambda ms: timedelta(milliseconds=ms)),
)
places = st.builds(CaughtUp, decided_at=instants, number=st.integers(0, 999), step=durations)

header_names = st.text("abcdefghijklmnopqrstuvwxyz", min_size=1, max_size=8).map("x-{}".format)
header_values = st.text("abc :=?*", max_size=20).map(str.strip)
targets = st.builds(
    HttpTarget,
    url=st.text("abc/?=&%.-", max_size=40).map("https://svc.example.com:8443/{}".format),
    method=st.sampled_from(["POST", "PUT", "PATCH"]),
    headers=st.dictionaries(header_names, header_values, max_size=5).map(
        lambda headers: tuple(headers.items())
    ),
    deferred=st.none()
    | st.builds(
        Terms,
        heartbeat=st.integers(30, 43_200).map(lambda s: timedelta(seconds=s)),
        hard_limit=st.integers(30, 604_800).map(lambda s: timedelta(seconds=s)),
    ),
)
named_targets = st.builds(
    NamedTarget,
    kind=st.sampled_from(TargetKind),
    name=st.text("abcABC019_-", max_size=20).map("x{}".format),
)
events = st.builds(
    NamedTarget,
    kind=st.just(TargetKind.LAMBDA),
    name=st.just("billing"),
    invocation=st.sampled_from(Invocation),
)


deferrals = st.builds(
    Deferral,
    heartbeat=durations,
    ends_at=instants,
    version=st.none() | st.integers(1, 99),
    retry=st.none() | retries,
)


def of_target(spec: Spec, target: Target) -> Spec:
    """The spec with a target, its payload no larger than any of them takes."""
    ref = spec.payload.ref
    fits = Payload.referring(replace(ref, size=min(ref.size, 200_000))) if ref else spec.payload
    name = target.task_name
    return replace(spec, target=target, task=name, task_version=None, payload=fits)


of_targets = st.builds(of_target, task_specs, targets | named_targets | events)
specs = task_specs | of_targets


@st.composite
def executions(draw: st.DrawFn) -> Execution:
    """Any row that the model allows."""
    run_at, state, definition = draw(instants), draw(st.sampled_from(State)), draw(specs)
    is_one_off = draw(st.booleans())
    id = execution_id(run_at, draw(shards), draw(hashes))
    is_running = state is State.RUNNING
    started_at = draw(st.none() | instants)
    return Execution(
        id=id,
        job_id=one_off_job_id(id) if is_one_off else recurring_job_id(draw(instants), 0, 1),
        owner=Owner(draw(texts)),
        trigger=Trigger.ONE_OFF if is_one_off else Trigger.SCHEDULE,
        job_version=draw(st.integers(1, 10_000)),
        task=definition.task,
        task_version=definition.task_version,
        queue=definition.queue,
        spec=definition if is_one_off else None,
        scheduled_for=draw(st.just(run_at) | instants),
        run_at=run_at,
        created_at=draw(instants),
        sent_directly=draw(st.booleans()),
        state=state,
        attempt=draw(st.integers(1, 200)),
        crashes=draw(st.integers(0, 3)),
        undeliverable=draw(st.integers(0, 3)),
        token=Token("a" * 32) if is_running else None,
        deferral=draw(st.none() | deferrals) if is_running else None,
        called_back=draw(st.none() | st.builds(CalledBack, token=texts, answer=texts)),
        lease_until=draw(instants) if is_running else None,
        worker=draw(st.none() | texts),
        next_run_at=draw(instants) if state is State.RETRYING else None,
        started_at=started_at,
        arrival=draw(st.none() | arrivals) if started_at else None,
        first_started_at=draw(st.none() | instants),
        finished_at=draw(st.none() | instants),
        result=draw(st.none() | texts),
        error=draw(st.none() | failures),
        reason=draw(st.none() | texts),
        attempts=tuple(draw(st.lists(attempts, max_size=3))),
        cancel_requested_at=draw(st.none() | instants),
        traceparent=draw(st.none() | texts),
        caught_up=draw(st.none() | places),
        waited=draw(st.none() | waits),
        parked_since=draw(st.none() | instants),
        told_at=draw(st.none() | instants),
        last_since=draw(st.none() | instants),
    )


def through_dynamodb(values: items.Values) -> items.Values:
    return items.unmarshal(items.marshal(values))


@given(executions())
def test_an_execution_is_read_back_as_it_was(row: Execution) -> None:
    assert items.execution_from(through_dynamodb(items.execution_values(row))) == row
    assert items.row_from(through_dynamodb(items.execution_values(row))) == row


@given(executions())
def test_what_a_try_changes_is_part_of_the_row(row: Execution) -> None:
    assert items.outcome_values(row).items() <= items.execution_values(row).items()


@given(executions())
def test_the_state_is_in_no_key_of_any_index(row: Execution) -> None:
    scheduled = replace(row, state=State.SCHEDULED, token=None, lease_until=None, next_run_at=None)
    keys = (schema.PARTITION_KEY, schema.SORT_KEY, schema.OWNER_KEY)

    now, then = items.execution_values(row), items.execution_values(scheduled)

    assert [now[key] for key in keys] == [then[key] for key in keys]
    assert now[schema.ATTENTION_KEY] in {None, owner_key_of(row.owner, row.id)}


@given(
    st.builds(
        Pointer,
        kind=st.sampled_from(PointerKind),
        position=st.builds(
            lambda at, shard, n: body_of(execution_id(at, shard, n)), instants, shards, hashes
        ),
        execution_id=st.builds(execution_id, instants, shards, hashes),
        queue=names,
        at=instants,
        attempt=st.integers(1, 200),
    )
)
def test_a_pointer_is_read_back_as_it_was(pointer: Pointer) -> None:
    assert items.row_from(through_dynamodb(items.pointer_values(pointer))) == pointer


@given(
    spec=specs,
    status=st.sampled_from(JobStatus),
    misfire=st.sampled_from(MisfirePolicy),
    catch_up=st.just(CatchUp()) | catch_ups,
    version=st.integers(1, 10_000),
    created_at=instants,
    effective_from=st.none() | instants,
    owner=texts,
    name=st.none() | texts,
)
def test_a_job_is_read_back_as_it_was(
    spec: Spec,
    status: JobStatus,
    misfire: MisfirePolicy,
    catch_up: CatchUp,
    version: int,
    created_at: datetime,
    effective_from: datetime | None,
    owner: str,
    name: str | None,
) -> None:
    """S0-S2: the last occurrence that was made is the armed row: at rest a job is only read."""
    id = recurring_job_id(created_at, 7, 3)
    job = Job(
        id=id,
        owner=Owner(owner),
        version=version,
        status=status,
        spec=spec,
        schedule=parse(cron="0 2 * * *", timezone="America/Chicago", seed=id),
        misfire=misfire,
        catch_up=catch_up,
        created_at=created_at,
        effective_from=effective_from,
        name=name,
    )

    assert items.job_from(through_dynamodb(items.job_values(job))) == job
    assert items.job_from(through_dynamodb(items.job_version_values(job))) == job


@given(
    st.builds(
        KeyRecord,
        owner=texts.map(Owner),
        key=texts,
        fingerprint=texts,
        job_id=st.just(JobId("one_" + "0" * 26)),
        answer=texts,
        created_at=instants,
    )
)
def test_a_key_is_read_back_as_it_was(record: KeyRecord) -> None:
    assert items.key_record_from(through_dynamodb(items.key_record_values(record))) == record


def test_a_lease_and_its_intent_are_read_back_as_they_were() -> None:
    work = Work(partition=3, kind=Kind.SWEEP)
    intent = Intent(
        after=retry_pointer(one_off(), T).position,
        until=retry_pointer(one_off(), T + s(1)).position,
        decided_at=T + s(0.001),
    )

    stored = through_dynamodb(
        {items.EPOCH: 7, items.WATERMARK: intent.after, items.INTENT: items.intent_values(intent)}
    )

    assert items.grant_from(stored, work) == Grant(
        work=work, epoch=7, watermark=intent.after, intent=intent
    )


@given(
    st.builds(
        Layout,
        shards=st.integers(4, 4096),
        partitions=st.integers(1, 4),
        effective_from=instants,
    ),
    st.integers(1, 4096),
)
def test_layouts_are_read_back_as_they_were(layout: Layout, shards: int) -> None:
    later = layout.effective_from + s(600)
    layouts = Layouts(of=(layout,)).changed(shards=shards, partitions=1, effective_from=later)
    stored = through_dynamodb(items.layouts_values(layouts, ("layout", "current")))

    assert items.layouts_from(stored) == layouts


# Sizes: each byte over 1,024 doubles every write of the row.

PLAIN_OWNER = Owner("0f8fad5b-d9cb-469f-a165-70867728950e")
LAMBDA_WORKER = "lamplighter-prod-DefaultWorkerFunction/2026/07/12/[$LATEST]" + "0" * 32
INLINE_PAYLOAD = '"' + "x" * (limits.PAYLOAD_INLINE_BYTES - 2) + '"'
RESULT = '{"message_id":"0102018f-3c2b-4f2e-9d63-0a6b7f1c9e11","status":"sent"}'
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def plain(row: Execution) -> Execution:
    """A row with names and times as long as they are in practice."""
    return replace(
        row,
        task="billing.invoices.send_reminder",
        spec=row.spec and replace(row.spec, task="billing.invoices.send_reminder"),
        created_at=T - s(1.001),
        sent_directly=True,
        traceparent=TRACE,
    )


SENT = Arrival(sent_at=T - s(203.456), received_at=T - s(0.777), hold=s(0.781))
"""As dispatch sends it: delayed to the second before, and held for the rest."""
COLD = Arrival(sent_at=T - s(203.456), received_at=T + s(2.345), cold_start=s(1.234))


def finished_by_lambda(row: Execution, *, arrival: Arrival = SENT) -> Execution:
    """The row after one try that succeeded."""
    started_at = max(T + s(0.123), arrival.received_at + s(0.023))
    held = replace(
        running(row),
        worker=LAMBDA_WORKER,
        started_at=started_at,
        first_started_at=started_at,
        arrival=arrival,
    )
    return succeeded(held, result=RESULT)


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(plain(one_off(owner=PLAIN_OWNER, payload=INLINE_PAYLOAD)), id="one-off"),
        pytest.param(plain(occurrence(recurring(owner=PLAIN_OWNER))), id="recurring"),
    ],
)
def test_a_plain_row_is_one_write_unit_from_its_put_to_its_success(row: Execution) -> None:
    held = replace(running(row), worker=LAMBDA_WORKER)

    ends = [finished_by_lambda(row, arrival=arrival) for arrival in (SENT, COLD)]
    for version in (row, held, *ends):
        size = item_size(items.marshal(items.execution_values(version)))
        assert size < limits.DYNAMODB_WRITE_UNIT_BYTES, f"{version.state}: {size} bytes"


def test_a_one_off_that_calls_a_short_url_is_one_write_unit_too() -> None:
    target = HttpTarget(
        url="https://hooks.example.com/v1/invoices/4821/reminders", headers=(("x-tenant", "acme"),)
    )
    row = plain(one_off(owner=PLAIN_OWNER, payload=INLINE_PAYLOAD[:200]))
    assert row.spec is not None
    spec = replace(row.spec, task=target.task_name, target=target)

    size = item_size(items.marshal(items.execution_values(replace(row, task=spec.task, spec=spec))))

    assert size < limits.DYNAMODB_WRITE_UNIT_BYTES


def test_a_recurring_row_is_less_than_half_a_unit() -> None:
    row = finished_by_lambda(plain(occurrence(recurring(owner=PLAIN_OWNER))))

    assert item_size(items.marshal(items.execution_values(row))) < 650


def test_a_wait_before_the_start_is_forty_bytes_of_those_that_had_one() -> None:
    row = finished_by_lambda(plain(occurrence(recurring(owner=PLAIN_OWNER))))
    spent = tuple(s(seconds) for seconds in (150.25, 3600, 0, 2.5, 1.25, 0.5, 15.125))
    waited = replace(row, waited=Waited(until=T + s(3800.5), on=Part.BLOCKED, spent=spent))

    size, plain_size = (
        item_size(items.marshal(items.execution_values(one))) for one in (waited, row)
    )

    assert size - plain_size < 50
    assert size < limits.DYNAMODB_WRITE_UNIT_BYTES


def test_how_a_message_came_is_two_small_numbers_where_nothing_else_happened() -> None:
    """An earlier release's rows have no more, either."""
    row = replace(
        running(one_off()),
        started_at=T,
        arrival=Arrival(sent_at=T - s(200), received_at=T - s(0.01)),
    )

    stored = through_dynamodb(items.execution_values(row))

    assert stored[items.ARRIVAL] == [200_000, 10]
    assert items.execution_from(stored) == row


def test_what_catches_up_and_expires_as_by_default_costs_no_byte() -> None:
    job = recurring()
    of_job, of_row = (
        items.marshal(items.job_values(job)),
        items.marshal(items.execution_values(occurrence(job))),
    )

    assert items.CATCH_UP not in of_job
    assert items.CAUGHT_UP not in of_row
    assert items.job_from(items.unmarshal(of_job)).catch_up == CatchUp()


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        (RetryPolicy(), "[5,1,2,3600]"),
        (RetryPolicy(jitter=0, honor_retry_after=False), '[5,1,2,3600,{"h":false,"j":0}]'),
        (RetryPolicy(no_retry_on=("KeyError",)), '[5,1,2,3600,{"n":["KeyError"]}]'),
    ],
    ids=["by default", "numbers", "a list"],
)
def test_a_retry_policy_is_stored_with_what_is_not_by_default(
    policy: RetryPolicy, text: str
) -> None:
    """A policy from before there was more than four numbers is read as what it was."""
    row = replace(one_off(), spec=spec(retry=policy))

    stored = through_dynamodb(items.execution_values(row))

    assert stored[items.SPEC]["r"] == text
    assert items.execution_from(stored) == row


def test_a_policy_from_before_it_was_told_whose_it_is_was_given() -> None:
    """What was accepted by the default one then stays by it, whatever its task declares now."""
    stored = through_dynamodb(items.execution_values(replace(one_off(), spec=spec())))

    row = items.execution_from(stored)

    assert stored[items.SPEC].keys().isdisjoint({"u"})
    assert row.spec is not None
    assert row.spec.retried_by(RetryPolicy(max_attempts=9)) == RetryPolicy()


def test_a_row_whose_payload_lies_in_the_bucket_is_no_larger_than_one_with_its_own() -> None:
    inline = plain(one_off(owner=PLAIN_OWNER, payload=INLINE_PAYLOAD))
    assert inline.spec
    # As long as S3 makes them.
    ref = PayloadRef(
        key=object_key(PLAIN_OWNER, "f" * 32) or "", version_id="v" * 32, sha256="0" * 64, size=1
    )
    row = replace(inline, spec=replace(inline.spec, payload=Payload.referring(ref)))

    values = items.execution_values(row)

    assert items.execution_from(items.unmarshal(items.marshal(values))) == row
    assert item_size(items.marshal(values)) < item_size(
        items.marshal(items.execution_values(inline))
    )


def test_a_payload_over_512_bytes_is_not_in_the_row() -> None:
    row = one_off(payload='"' + "x" * 511 + '"')

    assert row.spec is not None
    assert "xxx" not in str(items.marshal(items.execution_values(row)))


# Ends of life, and attention.


@pytest.mark.parametrize("state", sorted(State))
def test_a_row_gets_its_end_of_life_when_it_is_final(state: State) -> None:
    row = replace(cancelled(one_off()), state=State.SCHEDULED)
    if state is State.RUNNING:
        row = running(row)
    elif state is State.RETRYING:
        row = failed(running(row))
    else:
        row = replace(row, state=state)

    values = items.execution_values(row)

    expected = int((T + limits.EXECUTION_KEPT).timestamp()) if state in FINAL else None
    assert values[schema.TTL] == expected
    assert (values[schema.ATTENTION_KEY] is not None) == (state in NEEDS_ATTENTION)


def test_a_row_that_was_moved_is_in_no_list_and_outlives_the_one_that_it_leads_to() -> None:
    run_at = T + timedelta(days=3000)
    row = moved(one_off(), to=execution_id(run_at, 0, 2), now=T)

    values = items.execution_values(row)

    assert items.execution_from(values) == row
    assert values[schema.OWNER_KEY] is None
    assert values[schema.TTL] == (run_at + limits.PAYLOAD_KEPT).timestamp()
    assert items.moved_values(row).items() <= values.items()


def test_the_row_that_a_job_s_id_leads_to_outlives_each_further_place_too() -> None:
    run_at = T + timedelta(days=3000)

    values = items.leading_values(execution_id(run_at, 0, 3))

    assert values[schema.TTL] == (run_at + limits.PAYLOAD_KEPT).timestamp()


def test_lives_end_in_whole_seconds_and_never_early() -> None:
    row = replace(cancelled(one_off()), finished_at=T + s(0.001))

    values = items.execution_values(row)

    assert values[schema.TTL] == int((T + limits.EXECUTION_KEPT).timestamp()) + 1


def test_what_was_cancelled_far_ahead_is_known_until_its_time_is_over() -> None:
    """A ledger, and an edit that plans the slot again, would else not know of it any more."""
    row = one_off()
    early = replace(cancelled(row), finished_at=row.run_at - timedelta(days=30))

    values = items.execution_values(early)

    assert values[schema.TTL] == int((row.run_at + limits.EXECUTION_KEPT).timestamp())


def test_a_pointer_outlasts_an_outage_of_dispatch() -> None:
    values = items.pointer_values(retry_pointer(one_off(), T))

    assert values[schema.TTL] == int((T + limits.POINTER_KEPT).timestamp())
    assert timedelta(days=30) <= limits.POINTER_KEPT


def test_a_key_lives_for_a_week_and_a_payload_as_long_as_it_is_told() -> None:
    record = KeyRecord(
        owner=OWNER,
        key="k",
        fingerprint="f",
        job_id=one_off().job_id,
        answer="{}",
        created_at=T,
    )

    assert items.key_record_values(record)[schema.TTL] == int(
        (T + limits.IDEMPOTENCY_KEPT).timestamp()
    )
    payload = Payload.of("null")
    assert items.payload_values(one_off().job_id, payload, T)[schema.TTL] == int(T.timestamp())
    assert items.payload_values(one_off().job_id, payload, None)[schema.TTL] is None


# What does not fit.


def test_a_retry_is_never_due_before_it_was_asked_for() -> None:
    retrying = replace(failed(running(one_off())), next_run_at=T + timedelta(microseconds=1))

    stored = items.execution_from(through_dynamodb(items.execution_values(retrying)))

    assert stored.next_run_at == T + s(0.001)


def test_a_row_whose_id_says_another_time_is_refused() -> None:
    row = replace(one_off(T), run_at=T + s(60))

    with pytest.raises(ValueError, match="lies at"):
        items.execution_values(row)


def test_a_row_whose_definition_says_another_task_is_refused() -> None:
    with pytest.raises(ValueError, match="its definition"):
        items.execution_values(replace(one_off(), task="another"))


def test_other_defaults_later_do_not_change_what_was_accepted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    row = one_off()
    stored = through_dynamodb(items.execution_values(row))

    monkeypatch.setattr(limits, "DEFAULT_TIMEOUT", timedelta(seconds=7))

    assert items.execution_from(stored).spec == row.spec


def test_a_deleted_job_is_in_no_list() -> None:
    job = recurring()

    assert items.job_values(job)[schema.JOBS_OWNER_KEY] == owner_key_of(OWNER, job.id)
    deleted = replace(job, status=JobStatus.DELETED)
    assert items.job_values(deleted)[schema.JOBS_OWNER_KEY] is None


def test_an_earlier_version_is_in_no_list_and_kept_for_good() -> None:
    values = items.job_version_values(recurring())

    assert values[schema.JOBS_OWNER_KEY] is None
    assert schema.TTL not in values


def test_an_occurrence_keeps_the_id_of_its_job() -> None:
    job = recurring()
    row = occurrence(job)

    stored = items.execution_from(through_dynamodb(items.execution_values(row)))

    assert stored.job_id == job.id
    assert stored.id == occurrence_id(job.id, T, T)
