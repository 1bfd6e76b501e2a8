"""Bodies of messages, hostile ones among them; and what SQS leaves undone."""

import json
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamplighter.aws.failures import CallRefused
from lamplighter.aws.queue import (
    Malformed,
    body_of,
    body_of_work,
    message_of,
    received_from,
    work_of,
)
from lamplighter.core import limits
from lamplighter.core.buckets import execution_id, from_ms
from lamplighter.core.errors import Unavailable
from lamplighter.core.lease import Kind, Work, WorkItem
from lamplighter.core.model import Message
from lamplighter.ports import Outgoing, Received
from tests.aws.conftest import Bench
from tests.support.faulty import Call, answers, never, refusal
from tests.support.rows import T, id_at, s

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
LARGEST = Message(
    execution_id=id_at(from_ms(253_402_300_799_999), shard=4095, n=(1 << 70) - 1),
    attempt=limits.MAX_ATTEMPTS,
    due_at=from_ms(253_402_300_799_999),
    hops=10**6,
    epoch=10**12,
    traceparent=TRACE,
)
PLAIN = Message(execution_id=id_at(T), attempt=1, due_at=T)


# Bodies.


@given(
    st.builds(
        Message,
        execution_id=st.builds(
            execution_id,
            st.integers(0, 253_402_300_799_999).map(from_ms),
            st.integers(0, 4095),
            st.integers(0, (1 << 70) - 1),
        ),
        attempt=st.integers(1, limits.MAX_ATTEMPTS),
        due_at=st.integers(0, 253_402_300_799_999).map(from_ms),
        hops=st.integers(0, 10**6),
        epoch=st.integers(0, 10**12),
        traceparent=st.none() | st.just(TRACE),
    )
)
def test_a_message_is_read_back_as_it_was_and_is_small(message: Message) -> None:
    body = body_of(message)

    assert message_of(body) == message
    assert len(body.encode()) <= limits.MESSAGE_MAX_BYTES


def test_ten_of_the_largest_bodies_are_one_request() -> None:
    assert len(body_of(LARGEST).encode()) <= limits.MESSAGE_MAX_BYTES
    assert limits.SQS_BATCH * limits.MESSAGE_MAX_BYTES <= 64 * 1024


def test_a_message_carries_no_payload_owner_or_task() -> None:
    assert json.loads(body_of(LARGEST)).keys() == {
        *("id", "attempt", "due", "hops", "epoch", "trace")
    }
    assert json.loads(body_of(PLAIN)).keys() == {"id", "attempt", "due"}


@given(st.text(max_size=400) | st.just("00-" + "f" * 400))
def test_a_trace_that_does_not_look_like_one_is_left_behind(trace: str) -> None:
    body = body_of(replace(LARGEST, traceparent=trace))

    assert message_of(body) in (replace(LARGEST, traceparent=kept) for kept in (None, trace))
    assert len(body.encode()) <= limits.MESSAGE_MAX_BYTES


def test_a_later_version_s_fields_are_passed_over() -> None:
    body = json.dumps({**json.loads(body_of(PLAIN)), "colour": "red"})

    assert message_of(body) == PLAIN


def test_a_due_time_between_milliseconds_is_never_early() -> None:
    between = replace(PLAIN, due_at=T + s(0.0001))

    assert message_of(body_of(between)).due_at == T + s(0.001)


@given(
    st.builds(
        WorkItem,
        work=st.builds(
            Work,
            partition=st.integers(0, limits.MAX_SHARDS - 1),
            kind=st.sampled_from(Kind),
            generation=st.integers(0, 1 << 40),
        ),
        armed_by=st.none() | st.integers(0, 1 << 60),
    )
)
def test_a_work_item_is_read_back_as_it_was(item: WorkItem) -> None:
    assert work_of(body_of_work(item)) == item


def test_a_record_of_an_event_is_what_was_received() -> None:
    record = {
        "body": body_of(PLAIN),
        "receiptHandle": "AQEB",
        "attributes": {"ApproximateReceiveCount": "3"},
    }

    assert received_from(record, queue="bulk") == Received(
        queue="bulk", message=PLAIN, receipt="AQEB", receive_count=3
    )


def changed(**fields: object) -> str:
    return json.dumps({**json.loads(body_of(PLAIN)), **fields})


def without(field: str) -> str:
    fields = json.loads(body_of(PLAIN))
    del fields[field]
    return json.dumps(fields)


HOSTILE = {
    "nothing": "",
    "no JSON": "hello",
    "half of it": body_of(PLAIN)[:-5],
    "a list": "[]",
    "null": "null",
    "a number": "17",
    "an empty object": "{}",
    "deep nesting": "[" * 290,
    "too long": changed(x="y" * 400),
    "a thousand megabytes, if it were parsed": '{"id":"' + "e" * 100_000 + '"}',
    "no id": without("id"),
    "no attempt": without("attempt"),
    "no due time": without("due"),
    "an id of another kind": changed(id="job_" + "0" * 26),
    "an id of another alphabet": changed(id="ex_" + "u" * 26),
    "an id beyond all time": changed(id="ex_" + "z" * 26),
    "an id that is a number": changed(id=17),
    "an id with a line feed": changed(id="ex_" + "0" * 25 + "\n"),
    "an injected key": changed(id="ex_#" + "0" * 25),
    "attempt zero": changed(attempt=0),
    "an attempt below zero": changed(attempt=-1),
    "an attempt past the last": changed(attempt=limits.MAX_ATTEMPTS + 1),
    "half an attempt": changed(attempt=1.5),
    "a true attempt": changed(attempt=True),
    "an attempt in words": changed(attempt="1"),
    "no attempt at all": changed(attempt=None),
    "a due time before 1970": changed(due=-1),
    "a due time in the year 10000": changed(due=253_402_300_800_000),
    "an infinite due time": changed(due=float("inf")),
    "a due time that is none": changed(due=float("nan")),
    "a huge number": '{"id":"' + id_at(T) + '","attempt":1,"due":' + "9" * 200 + "}",
    "hops below zero": changed(hops=-1),
    "an epoch in words": changed(epoch="latest"),
    "a long trace": changed(trace="0" * 56),
    "a trace of a lone surrogate": changed(trace="\ud800"),
    "a trace that is an object": changed(trace={"a": 1}),
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_body_that_we_did_not_make_is_malformed(body: str) -> None:
    with pytest.raises(Malformed):
        message_of(body)


@given(st.text(max_size=400))
def test_any_text_is_a_message_or_malformed(body: str) -> None:
    with suppress(Malformed):
        assert isinstance(message_of(body), Message)


@pytest.mark.parametrize(
    "body",
    [
        *("", "{}", "[]", '{"kind":"dispatch"}', '{"partition":1}', '{"kind":1,"partition":1}'),
        *('{"kind":"tick","partition":1}', '{"kind":"sweep","partition":-1}'),
        *('{"kind":"sweep","partition":4096}', '{"kind":"sweep","partition":true}'),
    ],
)
def test_work_that_we_did_not_make_is_malformed(body: str) -> None:
    with pytest.raises(Malformed):
        work_of(body)


def test_what_is_malformed_is_shown_in_part_only() -> None:
    with pytest.raises(Malformed) as caught:
        message_of(changed(attempt="s3cret" * 30))

    assert len(str(caught.value)) < 120


# What SQS leaves undone.


def send(bench: Bench, *messages: Message, lane: str = "default") -> None:
    outgoing = [Outgoing(queue=lane, message=message) for message in messages]
    bench.queue.send(outgoing, now=bench.clock.now())


def due_in(bench: Bench, seconds: float, n: int = 0) -> Message:
    due_at = bench.clock.now() + s(seconds)
    return Message(execution_id=id_at(due_at, n=n), attempt=1, due_at=due_at)


def fails_all_but_the_first(call: Call, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """200, and most of the entries failed."""
    first, *rest = parameters["Entries"]
    answer = call(**{**parameters, "Entries": [first]})
    failed = [{"Id": entry["Id"], "Code": "InternalError", "SenderFault": False} for entry in rest]
    return {**answer, "Failed": failed} if failed else answer


def test_entries_that_failed_in_an_answer_of_200_are_sent_again(bench: Bench) -> None:
    messages = [due_in(bench, 0, n) for n in range(4)]
    bench.sqs.next("send_message_batch", fails_all_but_the_first, fails_all_but_the_first)
    began = bench.clock.now()

    send(bench, *messages)

    sent = bench.bodies(bench.lanes["default"])
    assert sorted(sent) == sorted(body_of(message) for message in messages)
    sizes = [len(asked["Entries"]) for asked in bench.sqs.asked["send_message_batch"]]
    assert sizes == [4, 3, 2]
    assert bench.clock.now() > began


def test_entries_that_always_fail_are_unavailable_after_five_tries(bench: Bench) -> None:
    bench.sqs.always(fails_all_but_the_first, "send_message_batch")

    with pytest.raises(Unavailable, match=r"5 entries failed: \['InternalError'\]"):
        send(bench, *(due_in(bench, 0, n) for n in range(10)))

    assert bench.sqs.calls["send_message_batch"] == 5


def test_a_batch_that_fails_does_not_keep_the_others_from_being_sent(bench: Bench) -> None:
    bench.sqs.next("send_message_batch", never(refusal("RequestThrottled", status=403)))

    with pytest.raises(Unavailable, match="RequestThrottled"):
        send(bench, *(due_in(bench, 0, n) for n in range(30)))

    assert len(bench.bodies(bench.lanes["default"])) == 20


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (refusal("AWS.SimpleQueueService.OverLimit"), Unavailable),
        (refusal("ServiceUnavailable", status=503), Unavailable),
        (refusal("AWS.SimpleQueueService.NonExistentQueue"), CallRefused),
        (refusal("AccessDenied", status=403), CallRefused),
    ],
)
def test_errors_of_sqs_are_translated(
    bench: Bench, error: Exception, raised: type[Exception]
) -> None:
    calls: tuple[Callable[[], object], ...] = (
        lambda: send(bench, PLAIN),
        lambda: bench.queue.hide([received(1)], s(1)),
        lambda: bench.queue.delete([received(1)]),
        lambda: bench.queue.waiting("default"),
        lambda: bench.queue.hand_out([WorkItem(work=Work(partition=0, kind=Kind.SWEEP))]),
    )
    bench.sqs.always(
        never(error),
        *("send_message_batch", "change_message_visibility_batch", "delete_message_batch"),
        "get_queue_attributes",
    )

    for call in calls:
        with pytest.raises(raised):
            call()


def test_the_delay_is_what_is_left_when_the_batch_leaves(bench: Bench) -> None:
    def after_three_seconds(call: Call, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        bench.clock.sleep(s(3))
        return fails_all_but_the_first(call, parameters)

    bench.sqs.next("send_message_batch", after_three_seconds)

    send(bench, due_in(bench, 60, 1), due_in(bench, 60, 2))

    first, second = bench.sqs.asked["send_message_batch"]
    assert [entry["DelaySeconds"] for entry in first["Entries"]] == [60, 60]
    assert [entry["DelaySeconds"] for entry in second["Entries"]] == [57]


def test_the_caller_s_now_is_what_a_delay_is_counted_from(bench: Bench) -> None:
    message = due_in(bench, 60)

    bench.queue.send([Outgoing(queue="default", message=message)], now=bench.clock.now() + s(20))

    (asked,) = bench.sqs.asked["send_message_batch"]
    assert asked["Entries"][0]["DelaySeconds"] == 40


def received(n: int, *, lane: str = "default") -> Received:
    return Received(queue=lane, message=PLAIN, receipt=f"receipt-{n}")


@pytest.mark.parametrize(
    ("duration", "seconds"),
    [(0, 0), (-5, 0), (0.001, 1), (1, 1), (29.5, 30), (30, 30), (42_300, 42_300), (43_200, 42_300)],
)
def test_hiding_is_in_whole_seconds_rounded_up_and_leaves_room_below_twelve_hours(
    bench: Bench, duration: float, seconds: int
) -> None:
    bench.sqs.always(answers({}), "change_message_visibility_batch")

    bench.queue.hide([received(1)], s(duration))

    (asked,) = bench.sqs.asked["change_message_visibility_batch"]
    assert [entry["VisibilityTimeout"] for entry in asked["Entries"]] == [seconds]


GONE = (
    *("ReceiptHandleIsInvalid", "AWS.SimpleQueueService.MessageNotInflight"),
    "InvalidParameterValue",
)


@pytest.mark.parametrize("code", GONE)
@pytest.mark.parametrize("operation", ["change_message_visibility_batch", "delete_message_batch"])
def test_a_receipt_that_is_gone_is_passed_over(bench: Bench, operation: str, code: str) -> None:
    bench.sqs.next(operation, answers({"Failed": [{"Id": "0", "Code": code}]}))

    if operation == "delete_message_batch":
        bench.queue.delete([received(0), received(1)])
    else:
        bench.queue.hide([received(0), received(1)], s(30))

    assert bench.sqs.calls[operation] == 1


def test_a_deletion_that_failed_for_another_reason_is_tried_again(bench: Bench) -> None:
    bench.sqs.next(
        "delete_message_batch",
        answers({"Failed": [{"Id": "1", "Code": "InternalError"}]}),
        answers({}),
    )

    bench.queue.delete([received(0), received(1)])

    _, again = bench.sqs.asked["delete_message_batch"]
    assert [entry["ReceiptHandle"] for entry in again["Entries"]] == ["receipt-1"]


# Lanes.


def test_a_lane_that_no_longer_exists_hands_its_messages_to_default_and_says_so(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="lamplighter.aws.queue"):
        send(bench, PLAIN, lane="retired")

    assert bench.bodies(bench.lanes["default"]) == [body_of(PLAIN)]
    assert [record.message for record in caplog.records] == ["unknown_lane"]
