"""What a path through the system would cost on AWS, counted call by call by AWS's rules.

    meter = Meter(unmetered)
    meter.attach(dynamodb, sqs)
    with meter.path() as bill:
        ...
    assert bill.write_units == 4, bill

The rules, from the developer guides (capacity consumed by reads and writes; secondary
indexes; transactions) and from what AWS measured against ConsumedCapacity:

- A write is the larger of the item before and after it, in units of 1 KB, rounded up. An
  unmet condition costs the same write, where nothing is there one unit; a new item that was
  refused counts with its size.
- An index entry that appears, disappears or changes costs its size once; one whose key
  changes costs its old and its new size; one that stays as it is costs nothing. An unmet
  condition writes to no index.
- A transaction costs twice that on the table, also when it is cancelled, and for each mere
  check; on its indexes once.
- A read is rounded up to 4 KB for each item of a GetItem or BatchGetItem, existing or not,
  and for the sum of all items that a Query read, also those that a filter took out.
  Eventual consistency is half of it, a transaction twice.
- SQS: one request for each call, and for each 64 KB of what it carries.

Not counted: calls that botocore repeats by itself, and what moto would have throttled. What
the meter has no rule for raises NotImplementedError.
"""

import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from botocore.model import OperationModel

from tests.support.sizes import AttributeValues, item_size

WRITE_UNIT_BYTES: Final = 1024
READ_UNIT_BYTES: Final = 4096
SQS_REQUEST_BYTES: Final = 64 * 1024

# US dollars for a million, us-east-1, on demand, standard queue, before any tier.
USD_PER_MILLION_WRITES: Final = 0.625
USD_PER_MILLION_READS: Final = 0.125
USD_PER_MILLION_SQS_REQUESTS: Final = 0.40

_FREE: Final = re.compile("(Describe|List|Create|Delete|Update|Tag|Untag)(Table|Tables|TimeToLive)")
_FREE_TOO: Final = re.compile(
    "(Create|Delete|Purge)Queue|GetQueueUrl|SetQueueAttributes|ListQueues"
)
_PLACEHOLDER: Final = re.compile(r"[#:]\w+")

Item = AttributeValues
Parameters = Mapping[str, Any]
Context = dict[str, Any]
"""What botocore hands from a call's first event to its last."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """One call's share of a bill."""

    call: str
    on: str = ""
    table_writes: int = 0
    index_writes: int = 0
    reads: float = 0.0
    sqs_requests: int = 0

    def __str__(self) -> str:
        parts = [
            f"{number:g} {name}"
            for number, name in (
                (self.table_writes, "write units"),
                (self.index_writes, "index write units"),
                (self.reads, "read units"),
                (self.sqs_requests, "SQS requests"),
            )
            if number
        ]
        return f"{self.call} {self.on}: {', '.join(parts) or 'free'}"


@dataclass(kw_only=True)
class Bill:
    """What one path cost; printed, it shows every call."""

    lines: list[Line] = field(default_factory=list)

    @property
    def write_units(self) -> int:
        """On tables and indexes together."""
        return self.table_write_units + self.index_write_units

    @property
    def table_write_units(self) -> int:
        return sum(line.table_writes for line in self.lines)

    @property
    def index_write_units(self) -> int:
        return sum(line.index_writes for line in self.lines)

    @property
    def read_units(self) -> float:
        return sum(line.reads for line in self.lines)

    @property
    def sqs_requests(self) -> int:
        return sum(line.sqs_requests for line in self.lines)

    @property
    def calls(self) -> Counter[str]:
        """How often each operation was called."""
        return Counter(line.call for line in self.lines)

    @property
    def usd_per_million(self) -> float:
        """What a million such paths cost in units and requests."""
        return (
            self.write_units * USD_PER_MILLION_WRITES
            + self.read_units * USD_PER_MILLION_READS
            + self.sqs_requests * USD_PER_MILLION_SQS_REQUESTS
        )

    def __str__(self) -> str:
        total = Line(
            call="total",
            table_writes=self.table_write_units,
            index_writes=self.index_write_units,
            reads=self.read_units,
            sqs_requests=self.sqs_requests,
        )
        return "\n".join(map(str, [*self.lines, total]))


@dataclass(frozen=True, kw_only=True)
class Index:
    """A secondary index, as far as its writes' price depends on it."""

    keys: Sequence[str]
    projected: frozenset[str] | None
    """Attributes besides the keys; None: all of them."""

    def entry(self, item: Item | None) -> Item | None:
        """What the index holds of an item; None when the item has not all of its keys."""
        if item is None or any(key not in item for key in self.keys):
            return None
        if self.projected is None:
            return item
        return {name: item[name] for name in item if name in self.projected}

    def write_units(self, before: Item | None, after: Item | None) -> int:
        """What a change of the item costs here."""
        old, new = self.entry(before), self.entry(after)
        if old is None and new is None:
            return 0
        if old is None or new is None:
            return write_units(new or old)
        if any(old[key] != new[key] for key in self.keys):
            return write_units(old) + write_units(new)
        return 0 if old == new else write_units(old, new)


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table's keys and indexes."""

    keys: Sequence[str]
    indexes: Sequence[Index]

    def key_of(self, item: Item) -> Item:
        return {name: item[name] for name in self.keys}


@dataclass(frozen=True, kw_only=True)
class Write:
    """One write of a call: of which item, and what was asked to be put there, if known."""

    table: str
    key: Item
    put: Item | None = None
    factor: int = 1


@dataclass(kw_only=True)
class _Note:
    """What is remembered of a call from its request to its answer."""

    params: Parameters
    writes: Sequence[tuple[Write, Item | None]] = ()


def write_units(*versions: Item | None) -> int:
    """Units of a write between these versions of an item; at least one."""
    return max(1, *(units_of(version, WRITE_UNIT_BYTES) for version in versions))


def units_of(item: Item | None, unit: int) -> int:
    """An item's size in whole units; 0 for none."""
    return 0 if item is None else -(-item_size(item) // unit)


class Meter:
    """Listens to botocore's events of the clients that it is attached to.

    While a path is being metered, calls run one at a time, so that the item before and after
    a write is that write's. `unmetered` is a DynamoDB client of the same backend that the
    meter reads items with; it must not be attached.
    """

    def __init__(self, unmetered: Any) -> None:  # noqa: ANN401 -- a botocore client
        self._client = unmetered
        self._bills: list[Bill] = []
        self._tables: dict[str, Table] = {}
        self._lock = threading.RLock()
        # Of this meter's own: several may listen to one client.
        self._note = f"meter {id(self)}"

    def attach(self, *clients: Any) -> None:  # noqa: ANN401 -- botocore clients
        """Count what these clients, of DynamoDB or SQS, will call."""
        for client in clients:
            events = client.meta.events
            service = client.meta.service_model.service_name
            events.register(f"before-parameter-build.{service}", self._on_parameters)
            events.register(f"before-call.{service}", self._on_call)
            events.register(f"after-call.{service}", self._on_answer)
            events.register(f"after-call-error.{service}", self._on_no_answer)

    @contextmanager
    def path(self) -> Iterator[Bill]:
        """A bill of every call that any thread makes through an attached client meanwhile."""
        bill = Bill()
        self._bills.append(bill)
        try:
            yield bill
        finally:
            # By identity: an inner path's bill may be equal to an outer one's.
            self._bills = [other for other in self._bills if other is not bill]

    def _on_parameters(
        self, params: Parameters, model: OperationModel, context: Context, **_: object
    ) -> None:
        if not self._bills:
            return
        if not is_free(model.name) and model.name not in _RULES:
            raise NotImplementedError(f"the meter has no rule for {model.name}")
        context[self._note] = _Note(params=params)

    def _on_call(self, model: OperationModel, context: Context, **_: object) -> None:
        note: _Note | None = context.get(self._note)
        if note is None:
            return
        self._lock.acquire()
        note.writes = [
            (write, self.read(write.table, write.key))
            for write in _writes_of(model.name, note.params, self.table)
        ]

    def _on_answer(
        self, model: OperationModel, context: Context, parsed: Parameters, **_: object
    ) -> None:
        note: _Note | None = context.pop(self._note, None)
        if note is None:
            return
        try:
            if not is_free(model.name):
                for line in _RULES[model.name](self, model.name, note, parsed):
                    for bill in self._bills:
                        bill.lines.append(line)
        finally:
            self._lock.release()

    def _on_no_answer(self, context: Context, **_: object) -> None:
        if context.pop(self._note, None) is not None:
            self._lock.release()

    def read(self, table: str, key: Item) -> Item | None:
        """The item as it is, at no cost."""
        answer = self._client.get_item(TableName=table, Key=key, ConsistentRead=True)
        item: Item | None = answer.get("Item")
        return item

    def table(self, name: str) -> Table:
        """A table's keys and indexes, asked for once."""
        if name not in self._tables:
            described = self._client.describe_table(TableName=name)["Table"]
            keys = _key_names(described)
            self._tables[name] = Table(
                keys=keys,
                indexes=[
                    _index(index, keys) for index in described.get("GlobalSecondaryIndexes", [])
                ],
            )
        return self._tables[name]

    def evaluated(self, call: str, params: Parameters) -> Sequence[Item]:
        """All items that a Query or Scan read, those that its filter took out among them."""
        condition = params.get("KeyConditionExpression", "")
        kept = set(_PLACEHOLDER.findall(condition))
        asked = {
            name: params[name]
            for name in (
                *("TableName", "IndexName", "KeyConditionExpression", "ConsistentRead"),
                *("ScanIndexForward", "Limit", "ExclusiveStartKey"),
            )
            if name in params
        }
        for name in ("ExpressionAttributeNames", "ExpressionAttributeValues"):
            used = {key: value for key, value in params.get(name, {}).items() if key in kept}
            if used:
                asked[name] = used
        read: Callable[..., Any] = self._client.query if call == "Query" else self._client.scan
        items: Sequence[Item] = read(**asked)["Items"]
        return items


def is_free(call: str) -> bool:
    """Whether an operation of the control plane, which costs nothing."""
    return bool(_FREE.fullmatch(call) or _FREE_TOO.fullmatch(call))


def _key_names(described: Parameters) -> Sequence[str]:
    return [element["AttributeName"] for element in described["KeySchema"]]


def _index(described: Parameters, table_keys: Sequence[str]) -> Index:
    keys, projection = _key_names(described), described["Projection"]
    if projection["ProjectionType"] == "ALL":
        return Index(keys=keys, projected=None)
    included = projection.get("NonKeyAttributes", [])
    return Index(keys=keys, projected=frozenset([*table_keys, *keys, *included]))


def _writes_of(call: str, params: Parameters, table: Callable[[str], Table]) -> Iterator[Write]:
    """Every write, or mere check, that a call asks for, in its order."""
    match call:
        case "PutItem":
            yield _put(params, table)
        case "UpdateItem" | "DeleteItem":
            yield Write(table=params["TableName"], key=params["Key"])
        case "TransactWriteItems":
            for part in params["TransactItems"]:
                ((kind, one),) = part.items()
                if kind == "Put":
                    yield _put(one, table, factor=2)
                else:
                    yield Write(table=one["TableName"], key=one["Key"], factor=2)
        case "BatchWriteItem":
            yield from _batch_writes(params["RequestItems"], table)
        case _:
            return


def _put(params: Parameters, table: Callable[[str], Table], *, factor: int = 1) -> Write:
    name, item = params["TableName"], params["Item"]
    return Write(table=name, key=table(name).key_of(item), put=item, factor=factor)


def _batch_writes(
    by_table: Mapping[str, Sequence[Parameters]], table: Callable[[str], Table]
) -> Iterator[Write]:
    for name, requests in by_table.items():
        for request in requests:
            if "PutRequest" in request:
                yield _put({"TableName": name, "Item": request["PutRequest"]["Item"]}, table)
            else:
                yield Write(table=name, key=request["DeleteRequest"]["Key"])


def _write_lines(meter: Meter, call: str, note: _Note, parsed: Parameters) -> Iterator[Line]:
    error = parsed.get("Error", {}).get("Code")
    if error not in (None, "ConditionalCheckFailedException", "TransactionCanceledException"):
        # Refused before anything was looked at: a bug, or a throttle.
        yield Line(call=call, on=f"({error})")
        return
    unprocessed = [*_batch_writes(parsed.get("UnprocessedItems", {}), meter.table)]
    for write, before in note.writes:
        if any((write.table, write.key) == (left.table, left.key) for left in unprocessed):
            continue
        if error:
            yield _refused(call, write, before)
        else:
            yield _done(meter, call, write, before)


def _refused(call: str, write: Write, before: Item | None) -> Line:
    units = write.factor * write_units(before, write.put)
    return Line(call=call, on=f"{write.table} (refused)", table_writes=units)


def _done(meter: Meter, call: str, write: Write, before: Item | None) -> Line:
    after = meter.read(write.table, write.key)
    return Line(
        call=call,
        on=write.table,
        table_writes=write.factor * write_units(before, after),
        index_writes=sum(
            index.write_units(before, after) for index in meter.table(write.table).indexes
        ),
    )


def _get_lines(meter: Meter, call: str, note: _Note, parsed: Parameters) -> Iterator[Line]:
    if "Error" in parsed:
        yield Line(call=call, on=f"({parsed['Error'].get('Code')})")
        return
    params = note.params
    for table, keys, consistency in _gets_of(call, params, parsed.get("UnprocessedKeys", {})):
        for key in keys:
            units = max(1, units_of(meter.read(table, key), READ_UNIT_BYTES))
            yield Line(call=call, on=table, reads=units * consistency)


def _gets_of(
    call: str, params: Parameters, unprocessed: Mapping[str, Parameters]
) -> Iterator[tuple[str, Sequence[Item], float]]:
    match call:
        case "GetItem":
            yield params["TableName"], [params["Key"]], _consistency(params)
        case "BatchGetItem":
            for table, asked in params["RequestItems"].items():
                left = unprocessed.get(table, {}).get("Keys", [])
                keys = [key for key in asked["Keys"] if key not in left]
                yield table, keys, _consistency(asked)
        case "TransactGetItems":
            for part in params["TransactItems"]:
                yield part["Get"]["TableName"], [part["Get"]["Key"]], 2.0
        case _:
            raise ValueError(f"{call} gets nothing")


def _consistency(params: Parameters) -> float:
    return 1.0 if params.get("ConsistentRead") else 0.5


def _query_lines(meter: Meter, call: str, note: _Note, parsed: Parameters) -> Iterator[Line]:
    if "Error" in parsed:
        yield Line(call=call, on=f"({parsed['Error'].get('Code')})")
        return
    params = note.params
    size = sum(item_size(item) for item in meter.evaluated(call, params))
    units = max(1, -(-size // READ_UNIT_BYTES))
    on = f"{params['TableName']} {params.get('IndexName', '')}".rstrip()
    yield Line(call=call, on=on, reads=units * _consistency(params))


def _sqs_lines(_: Meter, call: str, note: _Note, parsed: Parameters) -> Iterator[Line]:
    sent = [note.params] if call == "SendMessage" else note.params.get("Entries", [])
    size = sum(_sent_bytes(one) for one in sent)
    size += sum(_received_bytes(one) for one in parsed.get("Messages", []))
    on = str(note.params.get("QueueUrl", "")).rpartition("/")[2]
    yield Line(call=call, on=on, sqs_requests=max(1, -(-size // SQS_REQUEST_BYTES)))


def _sent_bytes(entry: Parameters) -> int:
    return len(entry.get("MessageBody", "").encode()) + _attribute_bytes(entry)


def _received_bytes(message: Parameters) -> int:
    return len(message["Body"].encode()) + _attribute_bytes(message)


def _attribute_bytes(message: Parameters) -> int:
    return sum(
        len(name)
        + len(value["DataType"])
        + len(value.get("StringValue", "").encode())
        + len(value.get("BinaryValue", b""))
        for name, value in message.get("MessageAttributes", {}).items()
    )


_Rule = Callable[[Meter, str, _Note, Parameters], Iterator[Line]]
_RULES: Final[Mapping[str, _Rule]] = {
    **dict.fromkeys(
        ("PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem", "TransactWriteItems"),
        _write_lines,
    ),
    **dict.fromkeys(("GetItem", "BatchGetItem", "TransactGetItems"), _get_lines),
    **dict.fromkeys(("Query", "Scan"), _query_lines),
    **dict.fromkeys(
        (
            *("SendMessage", "SendMessageBatch", "ReceiveMessage"),
            *("DeleteMessage", "DeleteMessageBatch"),
            *("ChangeMessageVisibility", "ChangeMessageVisibilityBatch", "GetQueueAttributes"),
        ),
        _sqs_lines,
    ),
}
