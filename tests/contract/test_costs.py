"""What a path costs, by AWS's rules: the figures that design and price list rest on."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice

import pytest
from moto import mock_aws

from lamplighter.core.buckets import Minute, before, minute_of, queued_keys, start_of, through
from lamplighter.core.errors import OverQuota
from lamplighter.core.forecast import Capacity
from lamplighter.core.lease import Grant, Kind, Work
from lamplighter.core.lifecycle import State
from lamplighter.core.limits import LEDGER_LATE, RECOUNT_AFTER
from lamplighter.core.model import Owner
from lamplighter.core.outcome import Failed, Succeeded
from lamplighter.core.permits import EVERY_OWNER, Key
from lamplighter.core.permits import Kind as LimitKind
from lamplighter.core.quotas import STEPS, Quota, Quotas
from lamplighter.core.retry import Failure
from lamplighter.core.retry import Kind as FailureKind
from lamplighter.core.timing import line
from lamplighter.core.watching import first_watch
from lamplighter.memory import Counts, VirtualClock
from lamplighter.ports import Ports, Received
from lamplighter.services import execute, inspect, permits, settling, watch
from lamplighter.services.forewarning import Crowd, Forewarning
from tests.contract import worlds
from tests.contract.worlds import Clients, World
from tests.support.jobs import created, every, in_, new_job
from tests.support.meter import Bill, Meter
from tests.support.partition_work import dispatch, sweep
from tests.support.rows import OWNER, T, one_off, s

LANE = Key(kind=LimitKind.QUEUE, name="default")
EVERY_OWNER_S = Key(kind=LimitKind.OWNER, name=EVERY_OWNER)


@dataclass(frozen=True, kw_only=True)
class Metered:
    """Real adapters on moto, with a clock that the test moves and a meter on every call."""

    ports: Ports
    world: World
    clock: VirtualClock
    meter: Meter

    def message(self) -> Received:
        """The one message of the default lane."""
        (message,) = self.world.receive("default")
        return message


@pytest.fixture(scope="module")
def moto() -> Iterator[None]:
    with mock_aws():
        yield


@pytest.fixture
def on_aws(moto: None) -> Iterator[Metered]:
    clients = Clients.of()
    meter = Meter(Clients.of().dynamodb)
    meter.attach(clients.dynamodb, clients.sqs)
    with worlds.aws(clients) as world:
        clock = VirtualClock(T)
        ports = replace(world.ports, clock=clock, telemetry=Counts(), shards=1, partitions=1)
        # Read once in ten seconds of each process: by this clock, and not in what is metered.
        vars(ports.permits)["_clock"] = clock
        ports.layout()
        ports.permits.limits()
        yield Metered(ports=ports, world=world, clock=clock, meter=meter)


def test_a_one_off_create_is_one_put_and_its_index_entry(on_aws: Metered) -> None:
    with on_aws.meter.path() as bill:
        created(on_aws.ports, new_job(run_at=in_(on_aws.ports, 3600)))

    assert bill.calls == {"PutItem": 1}, bill
    assert (bill.table_write_units, bill.index_write_units, bill.read_units) == (1, 1, 0), bill


def test_a_one_off_that_is_due_soon_costs_one_send_more(on_aws: Metered) -> None:
    with on_aws.meter.path() as bill:
        created(on_aws.ports, new_job())

    assert bill.calls == {"PutItem": 1, "SendMessageBatch": 1}, bill
    assert (bill.write_units, bill.sqs_requests) == (2, 1), bill


@dataclass(frozen=True, kw_only=True)
class Lit:
    """A full minute, and what somebody who asks is told of it."""

    bill: Bill
    told: Crowd | None


def foreseen(on_aws: Metered, *, ahead: int) -> Lit:
    ports = replace(on_aws.ports, capacity=Capacity(lanes={"default": 10.0}))
    at = in_(ports, 3600)
    for _ in range(ahead):
        created(ports, new_job(run_at=at))
    row = created(ports, new_job(run_at=at)).first
    with on_aws.meter.path() as bill:
        told = Forewarning(ports=ports).of(row)
    return Lit(bill=bill, told=told)


def test_looking_ahead_for_a_warning_is_half_a_read_unit(on_aws: Metered) -> None:
    """Decision 0021: of a recurring create, or where it is asked for; nothing is written."""
    found = foreseen(on_aws, ahead=1)

    assert found.told is None
    assert found.bill.calls == {"Query": 1}, found.bill
    assert (found.bill.read_units, found.bill.write_units) == (0.5, 0), found.bill


def test_looking_into_a_full_minute_reads_two_hundred_rows_of_a_shard_at_most(
    on_aws: Metered,
) -> None:
    found = foreseen(on_aws, ahead=220)

    assert found.told is not None
    assert found.bill.calls == {"Query": 1}, found.bill
    # Of rows this small; 17 of 700 bytes each.
    assert found.bill.read_units <= 17, found.bill


def test_a_run_is_two_writes_and_no_read(on_aws: Metered) -> None:
    created(on_aws.ports, new_job())
    message = on_aws.message()

    with on_aws.meter.path() as bill:
        execute.process(on_aws.ports, message, lambda _: Succeeded(result='"ok"'), worker="w")

    assert bill.calls == {"UpdateItem": 2, "DeleteMessageBatch": 1}, bill
    assert (bill.write_units, bill.read_units) == (2, 0), bill


def test_an_occurrence_of_a_recurring_job_is_four_write_units_all_in_all(
    on_aws: Metered,
) -> None:
    ports = on_aws.ports
    created(ports, new_job(schedule=every("1 hour")))
    on_aws.clock.move_to(T + timedelta(minutes=55))
    dispatch(ports, 0, owner="a")
    # At its very instant: moto counts delays in real time.
    on_aws.clock.move_to(T + timedelta(hours=1))

    with on_aws.meter.path() as dispatched:
        dispatch(ports, 0, owner="a")
    (message,) = on_aws.world.receive("default")
    ports.permits.limits()
    with on_aws.meter.path() as run:
        execute.process(ports, message, lambda _: Succeeded(result="1"), worker="w")

    # The successor and its index entry; the rest is the partition's, however many rows it has.
    control = 3
    assert dispatched.calls["PutItem"] == 1, dispatched
    assert dispatched.write_units == 2 + control, dispatched
    assert run.write_units == 2, run
    # The claim's look at the job, strongly consistent.
    assert run.read_units == 1, run


def test_a_failed_run_costs_no_more_than_one_that_succeeds(on_aws: Metered) -> None:
    created(on_aws.ports, new_job())
    message = on_aws.message()
    no = Failed(failure=Failure(kind=FailureKind.RETRYABLE, type="ValueError", message="no"))

    with on_aws.meter.path() as bill:
        execute.process(on_aws.ports, message, lambda _: no, worker="w")

    assert bill.write_units == 2, bill
    assert bill.sqs_requests == 2, bill


def run_of(on_aws: Metered, *, owner: Owner = OWNER) -> Bill:
    created(on_aws.ports, new_job(owner=owner))
    message = on_aws.message()
    on_aws.ports.permits.limits()
    with on_aws.meter.path() as bill:
        execute.process(on_aws.ports, message, lambda _: Succeeded(result="1"), worker="w")
    return bill


def test_where_nothing_is_limited_a_process_reads_that_once_in_ten_seconds(
    on_aws: Metered,
) -> None:
    """S0-F5: what is not limited pays nothing else for what might be."""
    for seconds, reads in ((0, 0), (9, 0), (1, 1), (0, 0)):
        on_aws.clock.sleep(s(seconds))
        created(on_aws.ports, new_job())
        message = on_aws.message()
        with on_aws.meter.path() as bill:
            execute.process(on_aws.ports, message, lambda _: Succeeded(result="1"), worker="w")
        assert bill.read_units == reads, (seconds, bill)
        assert bill.calls["UpdateItem"] == 2, (seconds, bill)


def test_a_limit_costs_two_write_units_of_a_run_and_no_read(on_aws: Metered) -> None:
    """S0-K2: one to take a place, one to give it back; while it runs, none."""
    permits.set_limit(on_aws.ports, LANE, 20)

    limited = run_of(on_aws)
    permits.set_limit(on_aws.ports, Key(kind=LimitKind.TASK, name="echo"), 5)
    twice = run_of(on_aws)
    permits.set_limit(on_aws.ports, EVERY_OWNER_S, 5)
    # The first of an owner finds no item there, makes it, and asks again.
    first, thrice = run_of(on_aws), run_of(on_aws)

    assert (limited.write_units, limited.read_units) == (2 + 2, 0), limited
    assert (twice.write_units, twice.read_units) == (2 + 4, 0), twice
    assert (thrice.write_units, thrice.read_units) == (2 + 6, 0), thrice
    assert first.write_units == thrice.write_units + 2, first


def test_a_limit_of_something_else_costs_a_run_nothing(on_aws: Metered) -> None:
    permits.set_limit(on_aws.ports, Key(kind=LimitKind.QUEUE, name="critical"), 1)
    permits.set_limit(on_aws.ports, Key(kind=LimitKind.OWNER, name="other"), 1)

    bill = run_of(on_aws)

    assert bill.calls == {"UpdateItem": 2, "DeleteMessageBatch": 1}, bill


def test_looking_for_a_place_in_vain_is_five_write_units(on_aws: Metered) -> None:
    """Its claim, its refusal, that it waits, in three items; it costs as much at each look."""
    permits.set_limit(on_aws.ports, LANE, 0)
    created(on_aws.ports, new_job())
    message = on_aws.message()
    on_aws.ports.permits.limits()

    with on_aws.meter.path() as bill:
        put = execute.begin(on_aws.ports, message, worker="w")

    assert put == settling.Put(deleted=False)
    assert (bill.write_units, bill.read_units) == (5, 0), bill
    assert bill.calls == {"UpdateItem": 5, "ChangeMessageVisibilityBatch": 1}, bill


def test_handing_a_place_on_is_a_note_struck_off_and_two_reads(on_aws: Metered) -> None:
    """And, once nobody waits any more, a write that says so."""
    permits.set_limit(on_aws.ports, LANE, 1)
    created(on_aws.ports, new_job())
    message = on_aws.message()
    held = execute.begin(on_aws.ports, message, worker="w")
    assert isinstance(held, execute.Claimed)
    created(on_aws.ports, new_job())
    execute.begin(on_aws.ports, on_aws.message(), worker="w")

    with on_aws.meter.path() as bill:
        permits.release(on_aws.ports, held.permits, held.execution.id, held.token)

    assert (bill.write_units, bill.read_units) == (2, 2), bill
    assert bill.calls["DeleteItem"] == bill.calls["SendMessageBatch"] == 1, bill


def under(on_aws: Metered, quota: Quota) -> Ports:
    return replace(on_aws.ports, quotas=Quotas(default=quota))


def test_a_quota_of_somebody_else_costs_an_owner_nothing(on_aws: Metered) -> None:
    everything = Quota(
        live_jobs=1, queued_executions=1, payload_bytes=10**6, submissions_per_second=1
    )
    ports = replace(on_aws.ports, quotas=Quotas(owners={"other": everything}))

    with on_aws.meter.path() as one_off:
        created(ports, new_job(run_at=in_(ports, 3600)))
    with on_aws.meter.path() as recurring:
        created(ports, new_job(schedule=every("1 hour")))

    assert (one_off.calls, one_off.write_units, one_off.read_units) == ({"PutItem": 1}, 2, 0)
    # The job and its first row, twice as dear in a transaction; an index entry of each; its watch.
    assert recurring.calls == {"PutItem": 1, "TransactWriteItems": 2}, recurring
    assert (recurring.write_units, recurring.read_units) == (2 * 2 + 2 + 1, 0), recurring


def test_a_quota_of_live_jobs_costs_a_read_and_a_part_of_the_transaction(on_aws: Metered) -> None:
    ports = under(on_aws, Quota(live_jobs=5))

    with on_aws.meter.path() as create:
        job = created(ports, new_job(schedule=every("1 hour")))
    with on_aws.meter.path() as one_off:
        created(ports, new_job(run_at=in_(ports, 3600)))
    with on_aws.meter.path() as delete:
        assert job.job is not None
        ports.jobs.delete(job.job)

    assert create.calls == {"GetItem": 1, "PutItem": 1, "TransactWriteItems": 3}, create
    assert (create.write_units, create.read_units) == (2 * 2 + 2 + 2 + 1, 1), create
    assert one_off.calls == {"PutItem": 1}, one_off
    # The job, its index entry that goes, and the count.
    assert delete.calls == {"TransactWriteItems": 2}, delete
    assert delete.write_units == 2 + 1 + 2, delete


def test_a_refusal_of_one_job_too_many_writes_nothing(on_aws: Metered) -> None:
    ports = under(on_aws, Quota(live_jobs=0))

    with on_aws.meter.path() as bill, pytest.raises(OverQuota):
        created(ports, new_job(schedule=every("1 hour"), payload='"' + "x" * 600 + '"'))

    assert (bill.calls, bill.write_units, bill.read_units) == ({"GetItem": 1}, 0, 1), bill


def test_a_quota_of_queued_executions_costs_three_units_an_execution(on_aws: Metered) -> None:
    ports = under(on_aws, Quota(queued_executions=100))

    with on_aws.meter.path() as create:
        created(ports, new_job())
    message = on_aws.message()
    with on_aws.meter.path() as run:
        execute.process(ports, message, lambda _: Succeeded(result='"ok"'), worker="w")

    # The reservation, and an entry in a second index until it has ended.
    assert create.calls == {"UpdateItem": 1, "PutItem": 1, "SendMessageBatch": 1}, create
    assert create.write_units == 1 + 2 + 1, create
    assert run.calls == {"UpdateItem": 2, "DeleteMessageBatch": 1}, run
    assert (run.table_write_units, run.index_write_units) == (2, 1), run


def test_a_quota_of_submissions_costs_a_write_for_a_chunk_of_them(on_aws: Metered) -> None:
    ports = under(on_aws, Quota(submissions_per_second=1000, burst=1000))

    with on_aws.meter.path() as bill:
        for _ in range(50):
            created(ports, new_job(run_at=in_(ports, 3600)))

    # Of a host whose clock stands still: 1, 2, 4, … tokens at once.
    assert bill.calls == {"UpdateItem": 6, "PutItem": 50}, bill


def test_at_a_quota_of_queued_executions_a_recount_costs_a_query_for_each_key(
    on_aws: Metered,
) -> None:
    ports = under(on_aws, Quota(queued_executions=2))
    for _ in range(2):
        created(ports, new_job(run_at=in_(ports, 3600)))
    on_aws.clock.sleep(RECOUNT_AFTER)

    with on_aws.meter.path() as bill, pytest.raises(OverQuota):
        created(ports, new_job(run_at=in_(ports, 3600)))
    with on_aws.meter.path() as refused, pytest.raises(OverQuota):
        created(ports, new_job(run_at=in_(ports, 3600)))

    queries = len(queued_keys("acme", 1 + STEPS))
    # What was counted, the keys, the new count; and the reservation, refused before and after.
    assert bill.calls == {"UpdateItem": 3, "GetItem": 1, "Query": queries}, bill
    assert bill.read_units == 1 + queries / 2, bill
    # Until the next recount: a refused write, and a look at when that may be.
    assert refused.calls == {"UpdateItem": 1, "GetItem": 1}, refused


def test_what_an_execution_costs_does_not_grow_with_the_jobs_that_are_stored(
    on_aws: Metered,
) -> None:
    """S0-T5, S1-Q1, S4-D1: nothing of ten or a hundred times as many is looked at on its way."""
    bills = [bill_of_three(on_aws, others=others) for others in (0, 30, 300)]

    assert bills[0] == bills[1] == bills[2]
    assert {*bills[0]} == {"create", "dispatch", "run", "sweep", "look"}


def bill_of_three(on_aws: Metered, *, others: int) -> dict[str, str]:
    """What three executions cost from create to look, beside so many more that are not due."""
    ports, clock = on_aws.ports, on_aws.clock
    later = clock.now() + timedelta(days=1)
    stored = [one_off(later + s(90 * number), n=number + 1) for number in range(others)]
    ports.executions.put(stored)
    at = minute_after(clock.now() + timedelta(minutes=10))
    with on_aws.meter.path() as create:
        made = [created(ports, new_job(run_at=at)).first.id for _ in range(3)]
    # At its very instant, as moto counts delays in real time, and from half a minute before it.
    clock.move_to(at - timedelta(minutes=4.5))
    dispatch(ports, 0, owner="a")
    clock.move_to(at)
    with on_aws.meter.path() as dispatched:
        dispatch(ports, 0, owner="a")
    messages = on_aws.world.receive("default")
    with on_aws.meter.path() as run:
        for message in messages:
            execute.process(ports, message, lambda _: Succeeded(result="1"), worker="w")
    clock.move_to(at + timedelta(minutes=3))
    sweep(ports, 0, owner="a")
    clock.move_to(at + timedelta(minutes=4))
    with on_aws.meter.path() as swept:
        sweep(ports, 0, owner="a")
    with on_aws.meter.path() as looked:
        for id in made:
            assert inspect.execution(ports, OWNER, id).row.state is State.SUCCEEDED
    assert len(messages) == 3
    bills = {"create": create, "dispatch": dispatched, "run": run, "sweep": swept, "look": looked}
    return {
        step: f"{dict(bill.calls)} {bill.write_units} {bill.read_units} {bill.sqs_requests}"
        for step, bill in bills.items()
    }


def minute_after(instant: datetime) -> datetime:
    return start_of(Minute(minute_of(instant) + 1))


@pytest.mark.parametrize(("rate", "slots"), [("1 minute", 60), ("1 hour", 4)])
def test_a_visit_of_a_watch_is_a_write_and_half_a_read_a_slot(
    on_aws: Metered, rate: str, slots: int
) -> None:
    """S0-S1: an hour of a minutely job costs 1 write unit of 240, and 32 read units."""
    ports = on_aws.ports
    job = created(ports, new_job(schedule=every(rate))).job
    assert job is not None
    first = first_watch(job, T)
    ran = [*islice(job.schedule.occurrences(T), slots + 10)]
    on_aws.clock.move_to(ran[slots - 1] + LEDGER_LATE + s(1))
    ports.executions.put(
        [
            replace(
                job.occurrence(slot, now=slot, sent_directly=False),
                state=State.SUCCEEDED if slot < in_(ports, 0) else State.SCHEDULED,
                finished_at=slot,
            )
            for slot in ran
        ]
    )
    dispatched(ports)

    with on_aws.meter.path() as bill:
        watch.visit(ports, first)

    assert bill.calls["PutItem"] == bill.write_units == 1, bill
    # The job, how far dispatch has come (twice), what is armed; the few slots after the last.
    assert bill.read_units <= slots / 2 + 8, bill


def dispatched(ports: Ports) -> None:
    """Have dispatch be where it would have come to by now."""
    now, work = ports.clock.now(), Work(partition=0, kind=Kind.DISPATCH)
    grant = ports.control.acquire(work, owner="test", now=now, until=now, start=before(T))
    assert isinstance(grant, Grant)
    ports.control.advance(grant, watermark=through(line(now)), intent=None, until=now)
