"""`ports.Queue` on SQS: the lanes, and the queue of partition work.

A batch of ten bodies (`limits.MESSAGE_MAX_BYTES`) is far under SQS's limit of 1 MiB a request, and
is one request. The parsers refuse whatever this module would not have made.
"""

import hashlib
import json
import logging
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

from lamplighter.aws.failures import translated
from lamplighter.aws.patience import Fan, Patience
from lamplighter.core import limits
from lamplighter.core.buckets import ExecutionId, from_ms, ms_up, parse_execution_id, place_of
from lamplighter.core.errors import Rejected, Unavailable, shown
from lamplighter.core.lease import Kind, Work, WorkItem
from lamplighter.core.model import Message, Owner
from lamplighter.core.timing import delay_s
from lamplighter.ports import Clock, Outgoing, Received

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

T = TypeVar("T")

_DEFAULT_LANE: Final = "default"
_TRACEPARENT_MAX_CHARS: Final = 55  # version 00 of W3C's Trace Context
_TRACEPARENT: Final = re.compile(r"[0-9a-f-]{1,55}")
_MAX_DUE_MS: Final = 253_402_300_799_999  # the end of year 9999
# The message was deleted, is visible again, or has another receipt by now.
_GONE: Final = frozenset({"ReceiptHandleIsInvalid", "MessageNotInflight", "InvalidParameterValue"})
_LONGEST_HIDE_S: Final = limits.SQS_MAX_VISIBILITY_S - limits.LAMBDA_MAX_TIMEOUT_S
_SECOND: Final = timedelta(seconds=1)
_GROUP_CHARS: Final = 32  # 128 bits: two owners never meet by chance
_LOG: Final = logging.getLogger(__name__)


class Malformed(ValueError):
    """A message that this system did not make; receiving it again will not help."""


class SqsQueue:
    """Queues of lanes, and one for partition work. A message in one is a hint, never the truth.

    A lane that no longer exists hands its messages to `default`: an execution accepted for it
    runs there, and one row of it does not stand in its partition's way. Of a lane's several
    queues an execution's id chooses one, so that its messages are one queue's.
    """

    def __init__(
        self,
        client: "SQSClient",
        *,
        lanes: Mapping[str, tuple[str, ...]],
        fair: Collection[str] = (),
        work_url: str | None,
        clock: Clock,
        patience: Patience,
        fan: Fan,
    ) -> None:
        if not lanes or not all(lanes.values()):
            raise ValueError(f"no lanes, or one without a queue: {lanes}")
        self._client = client
        self._lanes = lanes
        self._fair = frozenset(fair)
        self._work_url = work_url
        self._clock = clock
        self._patience = patience
        self._fan = fan

    def send(self, outgoing: Sequence[Outgoing], *, now: datetime) -> None:
        """Each delay is computed as its batch leaves: `now` and what has passed since."""
        began = self._clock.monotonic()

        def entry(one: Outgoing) -> dict[str, Any]:
            passed = timedelta(seconds=self._clock.monotonic() - began)
            return {
                "MessageBody": body_of(one.message),
                "DelaySeconds": delay_s(one.message.due_at, now + passed),
                **self._group(one),
            }

        for one in outgoing:
            delay_s(one.message.due_at, now)  # nothing is sent when one cannot be
        self._fan.each(
            lambda batch: self._send(batch[0], batch[1], entry),
            [
                (url, batch)
                for url, messages in self._by_url(outgoing).items()
                for batch in _batches(messages)
            ],
        )

    def hide(self, received: Sequence[Received], duration: timedelta) -> None:
        """In whole seconds, rounded up; at most 11 h 45 min.

        SQS counts its 12 h from the receive, which a function may have had 15 min ago.
        """
        seconds = min(max(0, math.ceil(duration / _SECOND)), _LONGEST_HIDE_S)
        self._on_receipts(
            "ChangeMessageVisibilityBatch",
            self._client.change_message_visibility_batch,
            received,
            {"VisibilityTimeout": seconds},
        )

    def delete(self, received: Sequence[Received]) -> None:
        self._on_receipts("DeleteMessageBatch", self._client.delete_message_batch, received, {})

    def waiting(self, queue: str) -> int:
        return sum(self._waiting_in(url) for url in self._urls_of(queue))

    def _waiting_in(self, url: str) -> int:
        with translated("GetQueueAttributes"):
            answer = self._client.get_queue_attributes(
                QueueUrl=url, AttributeNames=["ApproximateNumberOfMessages"]
            )
        return int(answer["Attributes"]["ApproximateNumberOfMessages"])

    def hand_out(self, items: Iterable[WorkItem], *, delay: timedelta = timedelta(0)) -> None:
        url = self._work_url
        if url is None:
            raise ValueError("a function without the work queue hands out no work")

        def entry(item: WorkItem) -> dict[str, Any]:
            return {"MessageBody": body_of_work(item), "DelaySeconds": math.ceil(delay / _SECOND)}

        self._fan.each(lambda batch: self._send(url, batch, entry), _batches([*items]))

    def _by_url(self, outgoing: Iterable[Outgoing]) -> Mapping[str, Sequence[Outgoing]]:
        by_url: dict[str, list[Outgoing]] = {}
        for one in outgoing:
            url = self._url_of(one.queue, one.message.execution_id)
            by_url.setdefault(url, []).append(one)
        return by_url

    def _there_is(self, lane: str) -> str:
        """The lane, or the one that takes its place."""
        if lane in self._lanes:
            return lane
        return _DEFAULT_LANE if _DEFAULT_LANE in self._lanes else next(iter(self._lanes))

    def _urls_of(self, lane: str) -> tuple[str, ...]:
        if lane not in self._lanes:
            _LOG.warning("unknown_lane", extra={"queue": lane})
        return self._lanes[self._there_is(lane)]

    def _url_of(self, lane: str, id: ExecutionId) -> str:
        urls = self._urls_of(lane)
        return urls[0] if len(urls) == 1 else urls[place_of(id).hash % len(urls)]

    def _url_that_handed_out(self, received: Received) -> str:
        """Not by its id alone: when the lane had fewer queues, that led elsewhere."""
        for url in self._lanes.get(received.queue, ()):
            if url.rpartition("/")[2] == received.via:
                return url
        return self._url_of(received.queue, received.message.execution_id)

    def _group(self, one: Outgoing) -> Mapping[str, str]:
        if one.owner is None or self._there_is(one.queue) not in self._fair:
            return {}
        return {"MessageGroupId": group_of(one.owner)}

    def _send(self, url: str, batch: Sequence[T], entry: Callable[[T], dict[str, Any]]) -> None:
        self._persist(
            "SendMessageBatch", self._client.send_message_batch, url, batch, entry, frozenset()
        )

    def _on_receipts(
        self,
        name: str,
        call: Callable[..., Mapping[str, Any]],
        received: Sequence[Received],
        extra: Mapping[str, Any],
    ) -> None:
        by_url: dict[str, list[Received]] = {}
        for one in received:
            by_url.setdefault(self._url_that_handed_out(one), []).append(one)
        for url, ours in by_url.items():
            for batch in _batches(ours):
                self._persist(
                    name,
                    call,
                    url,
                    batch,
                    lambda one: {"ReceiptHandle": one.receipt, **extra},
                    _GONE,
                )

    def _persist(
        self,
        name: str,
        call: Callable[..., Mapping[str, Any]],
        url: str,
        batch: Sequence[T],
        entry: Callable[[T], dict[str, Any]],
        passed_over: frozenset[str],
    ) -> None:
        """Call until no entry has failed: an answer of 200 may list some that have."""
        left = {str(i): one for i, one in enumerate(batch)}
        failures: Mapping[str, str] = {}
        for _ in self._patience.each_try():
            entries = [{"Id": id, **entry(one)} for id, one in left.items()]
            with translated(name):
                answer = call(QueueUrl=url, Entries=entries)
            failures = {
                failed["Id"]: code
                for failed in answer.get("Failed", [])
                if (code := failed["Code"].rpartition(".")[2]) not in passed_over
            }
            left = {id: left[id] for id in failures}
            if not left:
                return
        raise Unavailable(f"{name}: {len(left)} entries failed: {sorted({*failures.values()})}")


def group_of(owner: Owner) -> str:
    """What a fair queue tells owners apart by: it has no room for most of their names.

    A digest: 128 characters, of which some are not taken, against 255 that are anything.
    """
    return hashlib.sha256(owner.encode()).hexdigest()[:_GROUP_CHARS]


def body_of(message: Message) -> str:
    """A message as JSON text of at most `limits.MESSAGE_MAX_BYTES`."""
    trace = message.traceparent
    fields = {
        "id": message.execution_id,
        "attempt": message.attempt,
        "due": ms_up(message.due_at),
        "hops": message.hops or None,
        "epoch": message.epoch or None,
        # Diagnostic: what does not look like the standard's is left behind.
        "trace": trace if trace is not None and _TRACEPARENT.fullmatch(trace) else None,
    }
    return _json({name: value for name, value in fields.items() if value is not None})


def message_of(body: str) -> Message:
    """The inverse of `body_of`; raises Malformed. Unknown fields are a later version's."""
    fields = _fields_of(body)
    try:
        execution_id = parse_execution_id(_text(fields, "id", limits.MESSAGE_MAX_BYTES) or "")
    except Rejected as error:
        raise Malformed(str(error)) from error
    return Message(
        execution_id=execution_id,
        attempt=_number(fields, "attempt", 1, limits.MAX_ATTEMPTS),
        due_at=from_ms(_number(fields, "due", 0, _MAX_DUE_MS)),
        hops=_number(fields, "hops", 0, None, default=0),
        epoch=_number(fields, "epoch", 0, None, default=0),
        traceparent=_text(fields, "trace", _TRACEPARENT_MAX_CHARS),
    )


def received_from(record: Mapping[str, Any], *, queue: str) -> Received:
    """A record of the event that a queue's mapping calls a function with; raises Malformed."""
    return Received(
        queue=queue,
        message=message_of(record["body"]),
        receipt=record["receiptHandle"],
        receive_count=int(record["attributes"]["ApproximateReceiveCount"]),
        # Any implementation of the interface has it; it is only shown.
        sent_at=from_ms(int(sent)) if (sent := record["attributes"].get("SentTimestamp")) else None,
        via=source.rpartition(":")[2] if (source := record.get("eventSourceARN")) else None,
    )


def body_of_work(item: WorkItem) -> str:
    """A work item as JSON text."""
    work = item.work
    fields = {
        "kind": work.kind.value,
        "partition": work.partition,
        "generation": work.generation or None,
        "armed_by": item.armed_by,
    }
    return _json({name: value for name, value in fields.items() if value is not None})


def work_of(body: str) -> WorkItem:
    """The inverse of `body_of_work`; raises Malformed."""
    fields = _fields_of(body)
    try:
        kind = Kind(_text(fields, "kind", limits.MESSAGE_MAX_BYTES) or "")
    except ValueError as error:
        raise Malformed(f"kind: {shown(fields.get('kind'))}") from error
    work = Work(
        partition=_number(fields, "partition", 0, limits.MAX_SHARDS - 1),
        kind=kind,
        generation=_number(fields, "generation", 0, None, default=0),
    )
    if "armed_by" not in fields:
        return WorkItem(work=work)
    return WorkItem(work=work, armed_by=_number(fields, "armed_by", 0, None))


def _fields_of(body: str) -> Mapping[str, object]:
    if len(body) > limits.MESSAGE_MAX_BYTES:
        raise Malformed(f"{len(body)} characters")
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"not JSON: {shown(body)}") from error
    if not isinstance(fields, dict):
        raise Malformed(f"not an object: {shown(body)}")
    return fields


def _number(
    fields: Mapping[str, object], name: str, low: int, high: int | None, default: int | None = None
) -> int:
    value = fields.get(name, default)
    # JSON's true is an int to Python.
    if type(value) is not int or value < low or (high is not None and value > high):
        raise Malformed(f"{name}: {shown(value)}")
    return value


def _text(fields: Mapping[str, object], name: str, longest: int) -> str | None:
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or not value.isascii() or len(value) > longest:
        raise Malformed(f"{name}: {shown(value)}")
    return value


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _batches(some: Sequence[T]) -> list[Sequence[T]]:
    return [some[i : i + limits.SQS_BATCH] for i in range(0, len(some), limits.SQS_BATCH)]
