"""What each path through the stores costs, by AWS's rules: a budget, held by the meter."""

from dataclasses import replace

import pytest

from lamplighter.core.buckets import before, through
from lamplighter.core.lease import Grant, Intent, Kind, Work
from lamplighter.core.model import Execution, JobStatus, Message
from lamplighter.core.retry import Kind as FailureKind
from lamplighter.ports import Outgoing, Received, Refusal
from tests.aws.conftest import Bench, Clients
from tests.support.meter import Meter
from tests.support.rows import (
    GIVES_WAY,
    LEASE,
    MINUTE,
    OTHER_TOKEN,
    OWNER,
    TOKEN,
    WORKER,
    Change,
    T,
    failed,
    key_record,
    occurrence,
    one_off,
    recurring,
    retry_pointer,
    revised,
    s,
    succeeded,
)

INLINE_PAYLOAD = '"' + "x" * 510 + '"'


@pytest.fixture(scope="package")
def meter(clients: Clients) -> Meter:
    """The tables of all tests have the same names, and the same indexes."""
    meter = Meter(clients.unmetered)
    meter.attach(clients.dynamodb, clients.sqs)
    return meter


def claim(bench: Bench, row: Execution, *, attempt: int = 1) -> Execution | Refusal:
    return bench.executions.claim(
        row.id, attempt=attempt, token=TOKEN, worker=WORKER, now=T, lease_until=T + LEASE
    )


def claimed(bench: Bench, row: Execution) -> Execution:
    won = claim(bench, row)
    assert isinstance(won, Execution)
    return won


def test_a_recurring_execution_is_four_write_units(bench: Bench, meter: Meter) -> None:
    job = recurring()
    bench.jobs.create(first=occurrence(job, T - s(3600)), job=job)

    with meter.path() as bill:
        (row,) = bench.executions.put([occurrence(job)])
        held = claimed(bench, row)
        bench.jobs.get(job.id)
        bench.executions.settle(succeeded(held, result='{"sent":3}'), token=TOKEN)

    # Put, its entry in the owner's index, claim, outcome; and one look at the job.
    assert bill.write_units == 4, bill
    assert bill.index_write_units == 1, bill
    assert bill.read_units == 1, bill


def test_a_one_off_with_an_inline_payload_is_four_write_units(bench: Bench, meter: Meter) -> None:
    row = one_off(payload=INLINE_PAYLOAD)

    with meter.path() as bill:
        bench.jobs.create(first=row)
        bench.executions.settle(succeeded(claimed(bench, row)), token=TOKEN)

    assert (bill.write_units, bill.read_units) == (4, 0), bill


def test_an_idempotency_key_doubles_the_row_and_adds_its_own(bench: Bench, meter: Meter) -> None:
    row = one_off()

    with meter.path() as bill:
        bench.jobs.create(first=row, key=key_record(row))

    assert (bill.table_write_units, bill.index_write_units) == (2 + 2, 1), bill


def test_a_recurring_job_is_made_in_one_transaction(bench: Bench, meter: Meter) -> None:
    job = recurring()

    with meter.path() as bill:
        bench.jobs.create(first=occurrence(job), job=job)

    assert (bill.table_write_units, bill.index_write_units) == (2 + 2, 1 + 1), bill


def test_a_pause_is_the_job_and_its_earlier_version_and_touches_no_index(
    bench: Bench, meter: Meter
) -> None:
    job = recurring()
    bench.jobs.create(first=occurrence(job), job=job)

    with meter.path() as bill:
        bench.jobs.revise(job, replace(revised(job), status=JobStatus.PAUSED))

    assert (bill.table_write_units, bill.index_write_units, bill.read_units) == (4, 0, 0), bill


@pytest.mark.parametrize("come_of", GIVES_WAY.values(), ids=GIVES_WAY.keys())
def test_a_resume_adds_a_row_that_takes_the_armed_one_s_place(
    bench: Bench, meter: Meter, come_of: Change
) -> None:
    job = recurring()
    bench.jobs.create(first=come_of(occurrence(job)), job=job)
    resumed = revised(job)

    with meter.path() as bill:
        bench.jobs.revise(job, resumed, first=occurrence(resumed))

    assert (bill.table_write_units, bill.index_write_units, bill.read_units) == (6, 0, 0), bill


def test_a_resume_whose_row_is_new_adds_its_index_entry(bench: Bench, meter: Meter) -> None:
    job = recurring()
    bench.jobs.create(first=occurrence(job), job=job)
    resumed = revised(job)

    with meter.path() as bill:
        bench.jobs.revise(job, resumed, first=occurrence(resumed, T + s(3600)))

    assert (bill.table_write_units, bill.index_write_units) == (6, 1), bill


def test_planning_a_row_anew_is_one_write_unit(bench: Bench, meter: Meter) -> None:
    bench.executions.put([occurrence(recurring())])

    with meter.path() as bill:
        bench.executions.put([occurrence(revised(recurring()))])

    assert (bill.write_units, bill.index_write_units, bill.read_units) == (1, 0, 0), bill


def test_earlier_versions_are_one_query(bench: Bench, meter: Meter) -> None:
    job = recurring()
    bench.jobs.create(first=occurrence(job), job=job)
    for _ in range(9):
        job, before_that = revised(job), job
        bench.jobs.revise(before_that, job)

    with meter.path() as bill:
        found = bench.jobs.versions(job.id, before=job.version, limit=20)

    assert len(found) == 9
    # All of them are under four kilobytes; a chain's end is read strongly.
    assert bill.calls == {"Query": 1}, bill
    assert bill.read_units == 1.0, bill


def test_only_what_needs_attention_pays_for_that_index(bench: Bench, meter: Meter) -> None:
    row = one_off()
    bench.executions.put([row])
    held = claimed(bench, row)

    with meter.path() as bill:
        bench.executions.settle(failed(held, FailureKind.PERMANENT), token=TOKEN)

    assert (bill.table_write_units, bill.index_write_units) == (1, 1), bill


def test_a_far_retry_is_its_outcome_and_a_pointer_in_no_index(bench: Bench, meter: Meter) -> None:
    row = one_off()
    bench.executions.put([row])
    held = claimed(bench, row)

    with meter.path() as bill:
        bench.executions.settle(failed(held), token=TOKEN)
        bench.executions.point([retry_pointer(row, T + s(3600))])

    assert (bill.table_write_units, bill.index_write_units) == (2, 0), bill


def test_a_lost_claim_is_one_write_and_no_read(bench: Bench, meter: Meter) -> None:
    row = one_off()
    bench.executions.put([row])
    claimed(bench, row)

    with meter.path() as bill:
        refusal = bench.executions.claim(
            row.id, attempt=1, token=OTHER_TOKEN, worker=WORKER, now=T, lease_until=T + LEASE
        )

    assert isinstance(refusal, Refusal)
    assert (bill.write_units, bill.read_units) == (1, 0), bill


def test_a_beat_is_one_write(bench: Bench, meter: Meter) -> None:
    row = one_off()
    bench.executions.put([row])
    claimed(bench, row)

    with meter.path() as bill:
        bench.executions.extend(row.id, token=TOKEN, lease_until=T + s(40))

    assert (bill.write_units, bill.index_write_units) == (1, 0), bill


def test_planning_what_exists_is_one_write_unit(bench: Bench, meter: Meter) -> None:
    row = one_off()
    bench.executions.put([row])

    with meter.path() as bill:
        bench.executions.put([row])

    assert (bill.write_units, bill.index_write_units, bill.read_units) == (1, 0, 0), bill


def test_a_due_scan_reads_bytes_not_rows(bench: Bench, meter: Meter) -> None:
    job = recurring()
    bench.executions.put([occurrence(job, T + s(n)) for n in range(60)])

    with meter.path() as bill:
        page = bench.executions.due(
            MINUTE, [0, 1, 2, 3], after=before(T), until=through(T + s(59)), limit=500
        )

    assert len(page.rows) == 60
    # Sixty plain rows are under 16 KB, all in one shard; each empty shard costs the least read.
    assert bill.read_units <= 4 + 3, bill
    assert bill.calls == {"Query": 4}


def test_a_page_of_dispatch_is_one_write_of_control(bench: Bench, meter: Meter) -> None:
    work = Work(partition=0, kind=Kind.DISPATCH)
    grant = bench.control.acquire(
        work, owner="scheduler-1", now=T, until=T + LEASE, start=before(T)
    )
    assert isinstance(grant, Grant)
    page = Intent(after=before(T), until=through(T), decided_at=T)

    with meter.path() as bill:
        bench.control.advance(grant, watermark=page.after, intent=page, until=T + LEASE)

    assert (bill.write_units, bill.read_units) == (1, 0), bill


def test_a_message_s_way_is_three_tenths_of_a_request(bench: Bench, meter: Meter) -> None:
    now = bench.clock.now()
    messages = [
        Message(execution_id=one_off(now, n=n).id, attempt=1, due_at=now) for n in range(10)
    ]

    with meter.path() as bill:
        bench.queue.send(
            [Outgoing(queue="default", message=message) for message in messages], now=now
        )
        found = bench.clients.sqs.receive_message(
            QueueUrl=bench.lanes["default"], MaxNumberOfMessages=10
        )["Messages"]
        bench.queue.delete(
            [
                Received(queue="default", message=messages[0], receipt=one["ReceiptHandle"])
                for one in found
            ]
        )

    assert len(found) == 10
    assert bill.sqs_requests == 3, bill


def test_a_list_of_an_owner_reads_keys_only(bench: Bench, meter: Meter) -> None:
    bench.executions.put([one_off(T + s(n % 60), n=n) for n in range(80)])

    with meter.path() as bill:
        listed = bench.executions.of_owner(OWNER, before=None, limit=50)

    assert len(listed) == 50
    # Four partitions of the index; an entry is under a hundred bytes.
    assert bill.read_units == 4 * 0.5, bill
