"""Answers that are lost, partial, late or refused: what the stores make of them."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import pytest
from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    IncompleteReadError,
    ReadTimeoutError,
)

from lamplighter.aws import schema
from lamplighter.aws.failures import CallRefused
from lamplighter.core.buckets import before, body_of, job_key, owner_key_of, row_key, through
from lamplighter.core.errors import LamplighterError, LostClaim, Unavailable, VersionMoved
from lamplighter.core.lease import Grant, Held, Intent, Kind, Layout, Layouts, Void, Work
from lamplighter.core.lifecycle import State
from lamplighter.core.model import Execution, Payload
from lamplighter.core.outcome import Refused
from tests.aws.conftest import Bench
from tests.support.faulty import Call, Fault, lost, never, refusal, repeated
from tests.support.partition_work import watermarks
from tests.support.rows import (
    LEASE,
    MINUTE,
    OTHER_TOKEN,
    OWNER,
    TOKEN,
    WORKER,
    T,
    after,
    cancelled,
    key_record,
    occurrence,
    one_off,
    recurring,
    retry_pointer,
    revised,
    running,
    s,
    succeeded,
)

R = TypeVar("R")
URL = "https://dynamodb.us-east-1.amazonaws.com"
WORK = Work(partition=0, kind=Kind.DISPATCH)
LAYOUTS = Layouts(of=(Layout(shards=16, partitions=4, effective_from=T),))
START = before(T)
TIMEOUT = ReadTimeoutError(endpoint_url=URL)


def claim(bench: Bench, row: Execution) -> Execution:
    won = bench.executions.claim(
        row.id, attempt=1, token=TOKEN, worker=WORKER, now=T, lease_until=T + LEASE
    )
    assert isinstance(won, Execution)
    return won


def claimed(bench: Bench, row: Execution | None = None) -> Execution:
    row = row or one_off()
    bench.executions.put([row])
    return claim(bench, row)


def acquire(bench: Bench, *, owner: str = "scheduler-1") -> Grant | Held | Void:
    return bench.control.acquire(WORK, owner=owner, now=T, until=T + LEASE, start=START)


def until_answered(call: Callable[[], R]) -> R:
    """What a call answers, made once more if the first answer is lost."""
    try:
        return call()
    except Unavailable:
        return call()


# Every call of every store, so that none can leak what botocore raises.

EVERY_CALL: Mapping[str, Callable[[Bench], object]] = {
    "executions.put": lambda bench: bench.executions.put([one_off(), one_off(n=2)]),
    "executions.point": lambda bench: bench.executions.point([retry_pointer(one_off(), T)]),
    "executions.get": lambda bench: bench.executions.get(one_off().id),
    "executions.get_many": lambda bench: bench.executions.get_many([one_off().id]),
    "executions.due": lambda bench: bench.executions.due(
        MINUTE, [0, 1], after=START, until=through(T), limit=10
    ),
    "executions.claim": lambda bench: claim(bench, one_off()),
    "executions.take_over": lambda bench: bench.executions.take_over(
        running(one_off()), token=OTHER_TOKEN, worker=WORKER, now=T, lease_until=T + LEASE
    ),
    "executions.extend": lambda bench: bench.executions.extend(
        one_off().id, token=TOKEN, lease_until=T + LEASE
    ),
    "executions.settle": lambda bench: bench.executions.settle(
        succeeded(running(one_off())), token=TOKEN
    ),
    "executions.settle at a version": lambda bench: bench.executions.settle(
        succeeded(running(one_off())), token=TOKEN, job_version=1
    ),
    "executions.end": lambda bench: bench.executions.end(one_off(), cancelled(one_off())),
    "executions.end at a version": lambda bench: bench.executions.end(
        one_off(), cancelled(one_off()), job_version=1
    ),
    "executions.request_cancel": lambda bench: bench.executions.request_cancel(one_off().id, now=T),
    "executions.count_undeliverable": lambda bench: bench.executions.count_undeliverable(
        one_off().id
    ),
    "executions.mark_told": lambda bench: bench.executions.mark_told(one_off().id, now=T),
    "executions.mark_last": lambda bench: bench.executions.mark_last(one_off().id, decided_at=T),
    "executions.put_payload": lambda bench: bench.executions.put_payload(
        one_off().job_id, Payload.of("null"), kept_until=None
    ),
    "executions.get_payload": lambda bench: bench.executions.get_payload(one_off().job_id, 1),
    "executions.of_owner": lambda bench: bench.executions.of_owner(OWNER, before=None, limit=10),
    "executions.needing_attention": lambda bench: bench.executions.needing_attention(
        OWNER, before=None, limit=10
    ),
    "jobs.create a row": lambda bench: bench.jobs.create(first=one_off()),
    "jobs.create with a key": lambda bench: bench.jobs.create(
        first=one_off(), key=key_record(one_off())
    ),
    "jobs.record_of": lambda bench: bench.jobs.record_of(OWNER, "order-17"),
    "jobs.get": lambda bench: bench.jobs.get(recurring().id),
    "jobs.get_many": lambda bench: bench.jobs.get_many([recurring().id]),
    "jobs.delete": lambda bench: bench.jobs.delete(recurring()),
    "jobs.revise": lambda bench: bench.jobs.revise(
        recurring(), revised(recurring()), first=occurrence(revised(recurring()))
    ),
    "jobs.versions": lambda bench: bench.jobs.versions(recurring().id, before=9, limit=9),
    "jobs.of_owner": lambda bench: bench.jobs.of_owner(OWNER, before=None, limit=10),
    "control.layouts": lambda bench: bench.control.layouts(LAYOUTS.latest),
    "control.revise_layouts": lambda bench: bench.control.revise_layouts(LAYOUTS, LAYOUTS),
    "control.acquire": acquire,
    "control.advance": lambda bench: bench.control.advance(
        Grant(work=WORK, epoch=1, watermark=START, intent=None),
        watermark=START,
        intent=None,
        until=T,
    ),
    "control.progress": lambda bench: bench.control.progress([WORK]),
}
EVERY_OPERATION = (
    *("get_item", "batch_get_item", "query"),
    *("put_item", "update_item", "transact_write_items"),
)
NO_ANSWER = {
    "throttled": refusal("ThrottlingException"),
    "over the table's throughput": refusal("ProvisionedThroughputExceededException"),
    "an error of theirs": refusal("InternalServerError", status=500),
    "an unknown error of theirs": refusal("Mystery", status=503),
    "too many requests": refusal("Mystery", status=429),
    "no connection": EndpointConnectionError(endpoint_url=URL),
    "no connection in time": ConnectTimeoutError(endpoint_url=URL),
    "no answer in time": TIMEOUT,
    "the connection was closed": ConnectionClosedError(endpoint_url=URL),
    "half an answer": IncompleteReadError(actual_bytes=1, expected_bytes=2),
}


@pytest.mark.parametrize("call", EVERY_CALL.values(), ids=EVERY_CALL.keys())
def test_no_answer_is_unavailable_and_names_its_cause(
    bench: Bench, call: Callable[[Bench], object]
) -> None:
    bench.dynamodb.always(never(TIMEOUT), *EVERY_OPERATION)

    with pytest.raises(Unavailable, match="ReadTimeoutError") as caught:
        call(bench)

    assert caught.value.__cause__ is TIMEOUT


@pytest.mark.parametrize("error", NO_ANSWER.values(), ids=NO_ANSWER.keys())
def test_each_kind_of_no_answer_is_unavailable(bench: Bench, error: Exception) -> None:
    bench.dynamodb.always(never(error), *EVERY_OPERATION)

    with pytest.raises(Unavailable) as caught:
        bench.executions.get(one_off().id)

    assert caught.value.__cause__ is error


@pytest.mark.parametrize("call", EVERY_CALL.values(), ids=EVERY_CALL.keys())
@pytest.mark.parametrize(
    "code", ["AccessDeniedException", "ResourceNotFoundException", "ValidationException"]
)
def test_what_can_never_work_is_neither_unavailable_nor_botocore_s(
    bench: Bench, call: Callable[[Bench], object], code: str
) -> None:
    bench.dynamodb.always(never(refusal(code)), *EVERY_OPERATION)

    with pytest.raises(CallRefused, match=code) as caught:
        call(bench)

    assert not isinstance(caught.value, LamplighterError)
    assert isinstance(caught.value.__cause__, ClientError)


# Writes whose answer was lost and which botocore sent again: they find their own effect.


def test_a_claim_that_was_sent_twice_is_won(bench: Bench) -> None:
    row = one_off()
    bench.executions.put([row])
    bench.dynamodb.next("update_item", repeated)

    won = claim(bench, row)

    assert won.state is State.RUNNING
    assert bench.executions.get(row.id) == won


def test_a_take_over_that_was_sent_twice_is_won_and_counts_one_crash(bench: Bench) -> None:
    held = claimed(bench)
    bench.dynamodb.next("update_item", repeated)

    taken = bench.executions.take_over(
        held, token=OTHER_TOKEN, worker="worker-2", now=T + s(40), lease_until=T + s(70)
    )

    assert isinstance(taken, Execution)
    assert taken.crashes == 1
    assert bench.executions.get(held.id) == taken


def test_an_outcome_that_was_sent_twice_is_accepted(bench: Bench) -> None:
    held = claimed(bench)
    bench.dynamodb.next("update_item", repeated)

    assert bench.executions.settle(succeeded(held), token=TOKEN) == succeeded(held)


def test_an_outcome_whose_answer_was_lost_is_accepted_the_second_time(bench: Bench) -> None:
    held = claimed(bench)
    bench.dynamodb.next("update_item", lost(TIMEOUT))
    with pytest.raises(Unavailable):
        bench.executions.settle(succeeded(held), token=TOKEN)

    assert bench.executions.settle(succeeded(held), token=TOKEN) == succeeded(held)


def test_another_outcome_with_the_same_token_is_still_refused(bench: Bench) -> None:
    held = claimed(bench)
    bench.executions.settle(succeeded(held, result="1"), token=TOKEN)

    with pytest.raises(LostClaim):
        bench.executions.settle(succeeded(held, result="2"), token=TOKEN)


def test_an_outcome_at_a_version_that_was_sent_twice_is_accepted(bench: Bench) -> None:
    job = recurring()
    bench.jobs.create(first=occurrence(job), job=job)
    held = claim(bench, occurrence(job))
    result = after(held, Refused(reason="its job is PAUSED"))
    # moto does not know a transaction's token: it applies the second one too, or refuses it.
    bench.dynamodb.next("transact_write_items", repeated)

    assert bench.executions.settle(result, token=TOKEN, job_version=1) == result


@pytest.mark.parametrize("version", [None, 1], ids=["by itself", "at a version"])
def test_an_end_that_was_sent_twice_is_accepted(bench: Bench, version: int | None) -> None:
    job = recurring()
    row = occurrence(job)
    bench.jobs.create(first=row, job=job)
    bench.dynamodb.next("update_item", repeated)
    bench.dynamodb.next("transact_write_items", repeated)

    assert bench.executions.end(row, cancelled(row), job_version=version) == cancelled(row)


def test_a_put_that_was_sent_twice_answers_with_its_row(bench: Bench) -> None:
    bench.dynamodb.next("put_item", repeated)

    assert [*bench.executions.put([one_off()])] == [one_off()]


TWICE = pytest.mark.parametrize(
    "fault", [repeated, lost(TIMEOUT)], ids=["sent twice", "answer lost"]
)


@TWICE
def test_a_row_that_was_planned_anew_and_whose_answer_was_lost_answers_with_itself(
    bench: Bench, fault: Fault
) -> None:
    planned = occurrence(revised(recurring()))
    bench.executions.put([occurrence(recurring())])
    bench.dynamodb.next("put_item", fault)

    answer = until_answered(lambda: bench.executions.put([planned]))

    assert [*answer] == [planned]
    assert bench.executions.get(planned.id) == planned


def test_a_row_that_was_planned_anew_unseen_and_claimed_is_left_to_its_holder(
    bench: Bench,
) -> None:
    planned = occurrence(revised(recurring()))
    bench.executions.put([cancelled(occurrence(recurring()))])
    bench.dynamodb.next("put_item", lost(TIMEOUT))
    with pytest.raises(Unavailable):
        bench.executions.put([planned])
    held = claim(bench, planned)

    assert [*bench.executions.put([planned])] == [held]

    assert bench.executions.get(planned.id) == held


def test_a_row_that_was_planned_anew_outlives_the_end_of_the_one_it_replaced(
    bench: Bench,
) -> None:
    planned = occurrence(revised(recurring()))
    bench.executions.put([cancelled(occurrence(recurring()))])

    bench.executions.put([planned])

    partition, sort = row_key(body_of(planned.id))
    stored = bench.clients.unmetered.get_item(
        TableName=bench.tables.executions, Key={"pk": {"S": partition}, "sk": {"S": sort}}
    )
    assert schema.TTL not in stored["Item"]


@TWICE
@pytest.mark.parametrize("with_row", [False, True])
def test_a_revision_whose_answer_was_lost_counts_as_made(
    bench: Bench, fault: Fault, with_row: bool
) -> None:
    job = recurring()
    bench.jobs.create(first=occurrence(job), job=job)
    second = revised(job)
    first = occurrence(second) if with_row else None
    bench.dynamodb.next("transact_write_items", fault)

    answer = until_answered(lambda: bench.jobs.revise(job, second, first=first))

    assert answer == second
    assert bench.jobs.get(job.id) == second
    assert [*bench.jobs.versions(job.id, before=9, limit=9)] == [job]
    assert bench.executions.get(occurrence(job).id) == (first or occurrence(job))


def test_a_revision_that_was_made_unseen_and_whose_row_runs_counts_as_made(bench: Bench) -> None:
    job = recurring()
    bench.jobs.create(first=occurrence(job), job=job)
    second = revised(job)
    first = occurrence(second)
    bench.dynamodb.next("transact_write_items", lost(TIMEOUT))
    with pytest.raises(Unavailable):
        bench.jobs.revise(job, second, first=first)
    held = claim(bench, first)

    assert bench.jobs.revise(job, second, first=first) == second

    assert bench.executions.get(first.id) == held


def test_a_revision_that_never_arrived_can_be_written_again(bench: Bench) -> None:
    job = recurring()
    bench.jobs.create(first=occurrence(job), job=job)
    second = revised(job)
    bench.dynamodb.next("transact_write_items", never(TIMEOUT))
    with pytest.raises(Unavailable):
        bench.jobs.revise(job, second, first=occurrence(second))
    assert bench.jobs.get(job.id) == job
    assert bench.executions.get(occurrence(job).id) == occurrence(job)

    assert bench.jobs.revise(job, second, first=occurrence(second)) == second

    assert bench.executions.get(occurrence(job).id) == occurrence(second)


def test_a_revision_that_was_made_unseen_and_replaced_since_has_moved(bench: Bench) -> None:
    job = recurring()
    bench.jobs.create(first=occurrence(job), job=job)
    second = revised(job)
    bench.dynamodb.next("transact_write_items", lost(TIMEOUT))
    with pytest.raises(Unavailable):
        bench.jobs.revise(job, second)
    bench.jobs.revise(second, revised(second))

    with pytest.raises(VersionMoved):
        bench.jobs.revise(job, second)

    assert bench.jobs.get(job.id) == revised(second)


@TWICE
@pytest.mark.parametrize("with_key", [False, True])
def test_a_creation_whose_answer_was_lost_counts_as_made(
    bench: Bench, fault: Fault, with_key: bool
) -> None:
    job = recurring()
    first, key = occurrence(job), key_record(occurrence(job)) if with_key else None
    bench.dynamodb.next("transact_write_items", fault)

    known = until_answered(lambda: bench.jobs.create(first=first, job=job, key=key))

    assert known is None

    assert bench.jobs.get(job.id) == job
    assert bench.executions.get(first.id) == first


def test_a_creation_with_an_id_that_another_call_used_is_a_bug_and_says_so(bench: Bench) -> None:
    first = one_off()
    bench.jobs.create(first=first)

    with pytest.raises(ValueError, match="another call"):
        bench.jobs.create(first=first, key=key_record(first))


def test_a_lease_whose_grant_was_lost_is_granted(bench: Bench) -> None:
    bench.dynamodb.next("update_item", repeated)

    grant = acquire(bench)

    assert isinstance(grant, Grant)
    assert grant.epoch == 1


def test_a_lease_is_not_granted_twice_to_one_owner(bench: Bench) -> None:
    assert isinstance(acquire(bench), Grant)

    assert acquire(bench) == Held(until=T + LEASE)


# Writes that arrive late, after the one that followed them.


def test_a_beat_that_arrives_after_the_next_one_does_not_shorten_the_lease(bench: Bench) -> None:
    held = claimed(bench)
    bench.executions.extend(held.id, token=TOKEN, lease_until=T + s(60))

    late = bench.executions.extend(held.id, token=TOKEN, lease_until=T + s(40))

    assert late.lease_until == T + s(60)
    assert bench.executions.get(held.id) == late


def test_a_watermark_does_not_go_back(bench: Bench) -> None:
    grant = acquire(bench)
    assert isinstance(grant, Grant)
    page = Intent(after=START, until=before(T + s(60)), decided_at=T)
    bench.control.advance(grant, watermark=page.until, intent=None, until=T + LEASE)

    with pytest.raises(ValueError, match="does not go back"):
        bench.control.advance(grant, watermark=START, intent=page, until=T + LEASE)

    assert watermarks(bench.control, [WORK]) == {WORK: page.until}


# Answers that leave something undone.


def leaves_all_but_one(call: Call, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """BatchGetItem under load: one key is read, the rest is left."""
    ((table, asked),) = parameters["RequestItems"].items()
    first, *rest = asked["Keys"]
    answer = call(RequestItems={table: {**asked, "Keys": [first]}})
    return {**answer, "UnprocessedKeys": {table: {**asked, "Keys": rest}} if rest else {}}


def test_keys_that_were_not_read_are_read_after_a_while(bench: Bench) -> None:
    """O-F19: unprocessed keys are asked for again."""
    rows = [one_off(n=n) for n in range(4)]
    bench.executions.put(rows)
    began = bench.clock.now()
    bench.dynamodb.always(leaves_all_but_one, "batch_get_item")

    found = bench.executions.get_many([row.id for row in rows])

    assert found == {row.id: row for row in rows}
    assert bench.dynamodb.calls["batch_get_item"] == 4
    assert bench.clock.now() > began


def test_keys_that_are_never_read_are_unavailable_after_five_tries(bench: Bench) -> None:
    rows = [one_off(n=n) for n in range(9)]
    bench.executions.put(rows)
    bench.dynamodb.always(leaves_all_but_one, "batch_get_item")

    with pytest.raises(Unavailable, match="4 keys were not read"):
        bench.executions.get_many([row.id for row in rows])

    assert bench.dynamodb.calls["batch_get_item"] == 5


def empty_but_not_the_end(call: Call, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """A Query that read items and kept none; it stopped before the first that there is."""
    values = parameters["ExpressionAttributeValues"]
    (bucket,) = (value for value in values.values() if "#" in value["S"])
    return {"Items": [], "LastEvaluatedKey": {"pk": bucket, "sk": {"S": START + "0"}}}


def test_an_empty_page_that_is_not_the_end_is_followed(bench: Bench) -> None:
    """O-F18: only a missing key is the end."""
    rows = [one_off(T + s(n), n=n + 1) for n in range(3)]
    bench.executions.put(rows)
    bench.dynamodb.next("query", empty_but_not_the_end, empty_but_not_the_end)

    page = bench.executions.due(MINUTE, [0], after=START, until=through(T + s(59)), limit=10)

    assert [*page.rows] == rows
    assert bench.dynamodb.calls["query"] == 3
    assert "ExclusiveStartKey" in bench.dynamodb.asked["query"][-1]


def with_a_last_key(call: Call, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """DynamoDB, when a limit lands exactly on the end, does not know that it is the end."""
    answer = call(**parameters)
    last = answer["Items"][-1]
    return {**answer, "LastEvaluatedKey": {"pk": last["pk"], "sk": last["sk"]}}


def test_a_limit_that_lands_exactly_on_the_end_makes_one_more_page_empty(bench: Bench) -> None:
    rows = [one_off(T + s(n), n=n) for n in range(3)]
    bench.executions.put(rows)
    bench.dynamodb.next("query", with_a_last_key)
    end = through(T + s(59))

    first = bench.executions.due(MINUTE, [0], after=START, until=end, limit=3)
    second = bench.executions.due(MINUTE, [0], after=first.reached, until=end, limit=3)

    assert ([*first.rows], first.reached) == (rows, body_of(rows[-1].id))
    assert ([*second.rows], second.reached) == ([], end)


def test_an_owner_s_list_goes_on_behind_a_last_key(bench: Bench) -> None:
    rows = [one_off(T + s(n), n=4 * n) for n in range(4)]
    bench.executions.put(rows)

    def one_at_a_time(call: Call, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        return call(**{**parameters, "Limit": 1})

    bench.dynamodb.always(one_at_a_time, "query")

    listed = bench.executions.of_owner(OWNER, before=None, limit=3)

    assert [*listed] == [row.id for row in reversed(rows)][:3]


def test_earlier_versions_go_on_behind_a_last_key(bench: Bench) -> None:
    versions = [recurring()]
    bench.jobs.create(first=occurrence(versions[0]), job=versions[0])
    for _ in range(4):
        versions.append(revised(versions[-1]))
        bench.jobs.revise(versions[-2], versions[-1])

    def one_at_a_time(call: Call, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        return call(**{**parameters, "Limit": 1})

    bench.dynamodb.always(one_at_a_time, "query")

    found = bench.jobs.versions(versions[0].id, before=5, limit=3)

    assert [*found] == versions[3:0:-1]


def test_a_put_of_many_of_which_one_fails_is_unavailable_and_the_others_exist(
    bench: Bench,
) -> None:
    """O-F19: rows are put one by one; BatchWriteItem is not used at all."""
    rows = [one_off(n=n) for n in range(4)]
    bench.dynamodb.next("put_item", never(TIMEOUT))

    with pytest.raises(Unavailable):
        bench.executions.put(rows)

    assert len(bench.executions.get_many([row.id for row in rows])) == 3
    assert [*bench.executions.put(rows)] == rows


# Transactions in the way of each other.

CONFLICT = refusal("TransactionConflictException")


def cancelled_for(*codes: str) -> ClientError:
    return refusal(
        "TransactionCanceledException", CancellationReasons=[{"Code": code} for code in codes]
    )


def test_a_write_that_meets_a_transaction_is_tried_again(bench: Bench) -> None:
    row = one_off()
    bench.executions.put([row])
    bench.dynamodb.next("update_item", never(CONFLICT), never(CONFLICT))
    began = bench.clock.now()

    assert claim(bench, row).state is State.RUNNING

    assert bench.dynamodb.calls["update_item"] == 3
    assert bench.clock.now() > began


def test_a_write_that_always_meets_a_transaction_is_unavailable(bench: Bench) -> None:
    bench.dynamodb.always(never(CONFLICT), "update_item")

    with pytest.raises(Unavailable, match="TransactionConflict"):
        claim(bench, one_off())

    assert bench.dynamodb.calls["update_item"] == 5


def test_a_transaction_that_meets_another_is_tried_again(bench: Bench) -> None:
    """O-F20: a conflict is no answer about the item."""
    first = one_off()
    in_the_way = never(cancelled_for("None", "TransactionConflict"))
    bench.dynamodb.next("transact_write_items", in_the_way, in_the_way)

    assert bench.jobs.create(first=first, key=key_record(first)) is None

    assert bench.executions.get(first.id) == first
    assert bench.dynamodb.calls["transact_write_items"] == 3


def test_a_revision_that_meets_a_claim_is_tried_again(bench: Bench) -> None:
    job = recurring()
    bench.jobs.create(first=occurrence(job), job=job)
    second = revised(job)
    in_the_way = never(cancelled_for("None", "None", "TransactionConflict"))
    bench.dynamodb.next("transact_write_items", in_the_way, in_the_way)
    asked = len(bench.dynamodb.asked["transact_write_items"])

    assert bench.jobs.revise(job, second, first=occurrence(second)) == second

    assert bench.jobs.get(job.id) == second
    assert bench.dynamodb.calls["transact_write_items"] == asked + 3


def test_a_transaction_that_always_meets_another_is_unavailable(bench: Bench) -> None:
    """O-F20: 503, and not 404."""
    bench.dynamodb.always(
        never(cancelled_for("TransactionConflict", "None")), "transact_write_items"
    )

    with pytest.raises(Unavailable, match="TransactionConflict"):
        bench.jobs.create(first=one_off(), key=key_record(one_off()))

    assert bench.dynamodb.calls["transact_write_items"] == 5


@pytest.mark.parametrize(
    ("codes", "error"),
    [
        (("ThrottlingError", "None"), Unavailable),
        (("None", "ProvisionedThroughputExceeded"), Unavailable),
        (("TransactionConflict", "ThrottlingError"), Unavailable),
        (("ValidationError", "None"), CallRefused),
        (("ItemCollectionSizeLimitExceeded", "TransactionConflict"), CallRefused),
    ],
)
def test_a_transaction_cancelled_for_another_reason_is_not_tried_again(
    bench: Bench, codes: tuple[str, ...], error: type[Exception]
) -> None:
    """O-F20: a bug is a bug: 500, told, once."""
    bench.dynamodb.always(never(cancelled_for(*codes)), "transact_write_items")

    with pytest.raises(error):
        bench.jobs.create(first=one_off(), key=key_record(one_off()))

    assert bench.dynamodb.calls["transact_write_items"] == 1


# What is read seldom.


def test_the_layout_is_read_once_a_minute(bench: Bench) -> None:
    for _ in range(5):
        bench.control.layouts(LAYOUTS.latest)
    bench.clock.sleep(s(60))
    bench.control.layouts(LAYOUTS.latest)

    assert bench.dynamodb.calls["get_item"] == 2


def test_a_layout_that_could_not_be_read_anew_is_not_gone_by(bench: Bench) -> None:
    bench.control.layouts(LAYOUTS.latest)
    bench.clock.sleep(s(60))
    bench.dynamodb.next("get_item", never(TIMEOUT))

    with pytest.raises(Unavailable):
        bench.control.layouts(LAYOUTS.latest)
    bench.control.layouts(LAYOUTS.latest)

    assert bench.dynamodb.calls["get_item"] == 3


def test_what_came_before_the_first_version_is_not_looked_up(bench: Bench) -> None:
    # A range that ends before it begins: moto has none, DynamoDB refuses it.
    assert [*bench.jobs.versions(recurring().id, before=1, limit=9)] == []

    assert bench.dynamodb.calls["query"] == 0


def test_a_deleted_job_is_not_looked_up_for_a_list(bench: Bench) -> None:
    job = recurring()
    bench.jobs.create(first=occurrence(job), job=job)
    bench.jobs.delete(job)

    assert [*bench.jobs.of_owner(OWNER, before=None, limit=10)] == []

    assert bench.dynamodb.calls["batch_get_item"] == 0


def test_a_list_is_filled_past_deleted_jobs_that_a_lagging_index_still_holds(
    bench: Bench,
) -> None:
    older, newer = recurring(T, n=4), recurring(T + s(1), n=8)
    for job in (older, newer):
        bench.jobs.create(first=occurrence(job), job=job)
    bench.jobs.delete(newer)
    partition, sort = job_key(newer.id)
    bench.clients.unmetered.update_item(
        TableName=bench.tables.jobs,
        Key={"pk": {"S": partition}, "sk": {"S": sort}},
        UpdateExpression="SET own = :key",
        ExpressionAttributeValues={":key": {"S": owner_key_of(OWNER, newer.id)}},
    )

    assert [*bench.jobs.of_owner(OWNER, before=None, limit=1)] == [older]


def test_a_refused_write_is_not_followed_by_a_read(bench: Bench) -> None:
    held = claimed(bench)

    bench.executions.end(
        replace(held, state=State.SCHEDULED, token=None, lease_until=None), cancelled(one_off())
    )

    assert bench.dynamodb.calls == {"put_item": 1, "update_item": 2}


def test_a_missing_row_cannot_be_made_by_an_update(bench: Bench) -> None:
    for call in ("executions.extend", "executions.settle"):
        with pytest.raises(LostClaim):
            EVERY_CALL[call](bench)

    assert bench.executions.get(one_off().id) is None
