"""The scheduler, called by the tick and with partition work."""

import json
from datetime import timedelta

import pytest

from lamplighter.aws.queue import body_of_work
from lamplighter.core.errors import Unavailable
from lamplighter.core.lease import Grant, Kind, Work, WorkItem
from lamplighter.core.limits import DEFAULT_PARTITIONS
from lamplighter.memory import MemoryWorld
from lamplighter.sim.faults import Call, When, interposed
from tests.support.jobs import created, every, new_job
from tests.support.lambdas import Context, Deployed, Function, OnMemory, batch, kept, record
from tests.support.partition_work import watermarks

TICK = {"kind": "tick"}


def test_a_tick_hands_out_each_partitions_work(scheduler: Function, deployed: Deployed) -> None:
    """S0-T2: each scheduler has shards of its own."""
    assert scheduler.handle(TICK, Context()) == kept()

    bodies = [record["body"] for record in deployed.receive("work")["Records"]]
    assert sorted(bodies) == sorted(
        body_of_work(WorkItem(work=Work(partition=partition, kind=kind)))
        for kind in Kind
        for partition in range(DEFAULT_PARTITIONS)
    )


def test_what_is_due_beyond_the_line_is_sent_when_its_time_comes_near(
    scheduler: Function, on_memory: OnMemory, world: MemoryWorld
) -> None:
    on_memory(scheduler)
    created(world.ports(), new_job(run_at=world.now() + timedelta(minutes=10)))
    before = len(world.queue)
    world.pass_time(timedelta(minutes=7))

    for partition in range(DEFAULT_PARTITIONS):
        work = Work(partition=partition, kind=Kind.DISPATCH)
        assert (
            scheduler.handle(batch([record(body_of_work(WorkItem(work=work)))]), Context())
            == kept()
        )

    assert (before, len(world.queue)) == (0, 1)


def test_an_execution_whose_message_was_lost_is_found_by_the_sweep(
    scheduler: Function, on_memory: OnMemory, world: MemoryWorld
) -> None:
    on_memory(scheduler)
    lost = created(world.ports(), new_job()).first.id
    world.queue.purge()
    world.pass_time(timedelta(minutes=5))

    for kind in (*[Kind.DISPATCH] * 4, Kind.SWEEP):
        # Nobody dispatched for so long: what was late counts as sent a while after it was.
        world.pass_time(timedelta(seconds=30))
        for partition in range(DEFAULT_PARTITIONS):
            body = body_of_work(WorkItem(work=Work(partition=partition, kind=kind)))
            scheduler.handle(batch([record(body)]), Context())

    (found,) = world.queue.receive()
    assert found.message.execution_id == lost
    assert world.counts.events["recovered"] == 1


def test_a_partitions_lease_is_given_back_at_the_end(
    scheduler: Function, on_memory: OnMemory, world: MemoryWorld
) -> None:
    work = Work(partition=0, kind=Kind.DISPATCH)
    on_memory(scheduler).handle(batch([record(body_of_work(WorkItem(work=work)))]), Context())

    now = world.now()
    control = world.ports().control
    grant = control.acquire(
        work, owner="next", now=now, until=now, start=watermarks(control, [work])[work]
    )
    assert isinstance(grant, Grant)


def test_without_time_left_only_one_page_is_done(
    scheduler: Function, on_memory: OnMemory, world: MemoryWorld
) -> None:
    on_memory(scheduler)
    created(world.ports(), new_job(schedule=every("1 minute")))
    world.queue.purge()
    world.pass_time(timedelta(minutes=30))
    work = [Work(partition=partition, kind=Kind.DISPATCH) for partition in range(4)]

    for one in work:
        scheduler.handle(
            batch([record(body_of_work(WorkItem(work=one)))]), Context(time_left_ms=20_000)
        )
    hurried = watermarks(world.ports().control, work)
    for one in work:
        scheduler.handle(batch([record(body_of_work(WorkItem(work=one)))]), Context())
    at_ease = watermarks(world.ports().control, work)

    assert all(hurried[one] < at_ease[one] for one in work)


@pytest.mark.parametrize(
    "body",
    [
        "",
        "not json",
        "[]",
        '{"partition": 0}',
        '{"kind": "dispatch"}',
        '{"kind": "x", "partition": 0}',
    ],
)
def test_work_that_is_none_of_ours_is_kept_and_ends_in_the_dead_letter_queue(
    scheduler: Function, on_memory: OnMemory, body: str
) -> None:
    event = batch(
        [
            record(body, id="poison"),
            record(body_of_work(WorkItem(work=Work(partition=0, kind=Kind.SWEEP)))),
        ]
    )

    assert on_memory(scheduler).handle(event, Context()) == kept("poison")


@pytest.mark.parametrize("error", [Unavailable("no answer"), KeyError("a bug")])
def test_work_that_met_an_error_is_kept(
    scheduler: Function, on_memory: OnMemory, world: MemoryWorld, error: Exception
) -> None:
    def hook(call: Call, when: When) -> None:
        if call.method == "acquire":
            raise error

    on_memory(scheduler, interposed(world.ports(), hook))
    event = batch(
        [record(body_of_work(WorkItem(work=Work(partition=0, kind=Kind.DISPATCH))), id="again")]
    )

    assert scheduler.handle(event, Context()) == kept("again")


def test_an_event_that_is_neither_is_an_error(scheduler: Function) -> None:
    with pytest.raises(ValueError, match="neither a tick nor a batch"):
        scheduler.handle({"kind": "tock"}, Context())


def test_what_happened_is_counted_at_the_end(
    scheduler: Function, deployed: Deployed, capsys: pytest.CaptureFixture[str]
) -> None:
    scheduler.handle(TICK, Context())

    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["ticks_by_schedule"] for line in lines if "ticks_by_schedule" in line] == [[1.0]]


def test_a_host_whose_clock_is_off_does_no_partition_work(
    scheduler: Function, on_memory: OnMemory, world: MemoryWorld
) -> None:
    """S1-X2: what is kept comes back, to another host or when the clock is right again."""
    on_memory(scheduler)
    event = batch([record(body_of_work(WorkItem(work=Work(partition=0, kind=Kind.DISPATCH))))])
    world.clock.skew = timedelta(seconds=30)

    refused = scheduler.handle(event, Context())
    world.clock.skew = timedelta(0)
    done = scheduler.handle(event, Context())

    assert refused == kept("message-1")
    assert done == kept()
    assert world.counts.events["clock_refused"] == 1
