"""What a path costs, by AWS's rules: the figures that design and price list rest on."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest
from moto import mock_aws

from lamplighter.core.buckets import queued_keys
from lamplighter.core.errors import OverQuota
from lamplighter.core.limits import RECOUNT_AFTER
from lamplighter.core.outcome import Failed, Succeeded
from lamplighter.core.quotas import STEPS, Quota, Quotas
from lamplighter.core.retry import Failure, Kind
from lamplighter.memory import Counts, VirtualClock
from lamplighter.ports import Ports, Received
from lamplighter.services import execute
from lamplighter.services.dispatch import dispatch
from tests.contract import worlds
from tests.contract.worlds import Clients, World
from tests.support.jobs import created, every, in_, new_job
from tests.support.meter import Meter
from tests.support.rows import T


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


@pytest.fixture
def on_aws() -> Iterator[Metered]:
    with mock_aws():
        clients = Clients.of()
        meter = Meter(Clients.of().dynamodb)
        meter.attach(clients.dynamodb, clients.sqs)
        with worlds.aws(clients) as world:
            clock = VirtualClock(T)
            ports = replace(world.ports, clock=clock, telemetry=Counts(), shards=1, partitions=1)
            ports.layout()
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
    # At its very instant: moto counts delays in real time.
    on_aws.clock.move_to(T + timedelta(hours=1))

    with on_aws.meter.path() as dispatched:
        dispatch(ports, 0, owner="a")
    (message,) = on_aws.world.receive("default")
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
    no = Failed(failure=Failure(kind=Kind.RETRYABLE, type="ValueError", message="no"))

    with on_aws.meter.path() as bill:
        execute.process(on_aws.ports, message, lambda _: no, worker="w")

    assert bill.write_units == 2, bill
    assert bill.sqs_requests == 2, bill


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
    # The job and its first row, twice as dear in a transaction; an index entry of each.
    assert recurring.calls == {"TransactWriteItems": 2}, recurring
    assert (recurring.write_units, recurring.read_units) == (2 * 2 + 2, 0), recurring


def test_a_quota_of_live_jobs_costs_a_read_and_a_part_of_the_transaction(on_aws: Metered) -> None:
    ports = under(on_aws, Quota(live_jobs=5))

    with on_aws.meter.path() as create:
        job = created(ports, new_job(schedule=every("1 hour")))
    with on_aws.meter.path() as one_off:
        created(ports, new_job(run_at=in_(ports, 3600)))
    with on_aws.meter.path() as delete:
        assert job.job is not None
        ports.jobs.delete(job.job)

    assert create.calls == {"GetItem": 1, "TransactWriteItems": 3}, create
    assert (create.write_units, create.read_units) == (2 * 2 + 2 + 2, 1), create
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
