"""What a path costs, by AWS's rules: the figures that design and price list rest on."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest
from moto import mock_aws

from lamplighter.core.outcome import Failed, Succeeded
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
