"""DynamoDB's calls as the stores need them: bounded, followed to their end, typed.

Values go in and come out in Python's types. What botocore raises is translated; what an
answer leaves undone (unprocessed keys, empty pages with a continuation key, a transaction in
the way) is followed here.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, assert_never

from boto3.dynamodb.conditions import ConditionBase, ConditionExpressionBuilder, Key

from lamplighter.aws import items
from lamplighter.aws.conditions import Check, Put, Update, Write
from lamplighter.aws.failures import (
    AttributeValues,
    CallRefused,
    Cancelled,
    ConditionUnmet,
    Reason,
    translated,
)
from lamplighter.aws.items import Values
from lamplighter.aws.patience import Fan, Patience
from lamplighter.core.errors import Contended, Unavailable
from lamplighter.core.limits import DYNAMODB_BATCH_GET, DYNAMODB_TRANSACT_ITEMS

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_AMONG_MANY: Final = 10  # tries: five seconds, in which the lease is beaten for


@dataclass(frozen=True, kw_only=True)
class Unmet:
    """A condition that did not hold: nothing was written. `found` is the item as it was."""

    found: Values | None


@dataclass(frozen=True, kw_only=True)
class Read:
    """Items of one Query, in order; `last` is where it stopped, None at the end."""

    values: Sequence[Values]
    last: Values | None


@dataclass(frozen=True, kw_only=True)
class Index:
    """A secondary index and the names of its two keys."""

    table: str
    name: str
    partition: str
    sort: str


class Dynamo:
    """One client, some patience, a few threads."""

    def __init__(self, client: "DynamoDBClient", *, patience: Patience, fan: Fan) -> None:
        self._client = client
        self._patience = patience
        self.fan = fan

    def get(self, table: str, key: tuple[str, str]) -> Values | None:
        """The item as of now, strongly consistent."""
        with translated("GetItem"):
            answer = self._client.get_item(
                TableName=table, Key=items.marshal(items.key_values(key)), ConsistentRead=True
            )
        return items.unmarshal(answer["Item"]) if "Item" in answer else None

    def get_many(
        self, table: str, keys: Sequence[tuple[str, str]], *, consistent: bool
    ) -> Sequence[Values]:
        """The items that exist, in no order; each key is read once."""
        wanted = [*dict.fromkeys(keys)]
        chunks = [
            wanted[i : i + DYNAMODB_BATCH_GET] for i in range(0, len(wanted), DYNAMODB_BATCH_GET)
        ]
        read = self.fan.each(lambda chunk: self._batch_get(table, chunk, consistent), chunks)
        return [values for part in read for values in part]

    def query(self, table: str, condition: ConditionBase, *, limit: int) -> Read:
        """About the first `limit` items as of now, strongly consistent.

        An empty answer that is not the end is followed.
        """
        return self._read(_query_request(table, condition, limit) | {"ConsistentRead": True})

    def newest(
        self, index: Index, partitions: Iterable[str], *, before: str | None, limit: int
    ) -> list[str]:
        """Sort keys of several partitions of an index, the last ones first; eventually consistent.

        Only those before `before`; fewer than `limit` means that there are no more.
        """
        parts = self.fan.each(
            lambda partition: self._last_of(index, partition, before, limit), partitions
        )
        return sorted((key for part in parts for key in part), reverse=True)[:limit]

    def last(self, table: str, condition: ConditionBase, *, limit: int) -> Sequence[Values]:
        """The last `limit` items of a partition as of now, the last one first.

        Fewer mean that there are no more.
        """
        return self._last(_query_request(table, condition, limit) | {"ConsistentRead": True}, limit)

    def glance(
        self, table: str, condition: ConditionBase, *, names: Sequence[str], limit: int
    ) -> Sequence[Values]:
        """Attributes of some of the last items of a partition, the last one first.

        What one call brings of the last `limit`, eventually consistent: a megabyte at most.
        """
        request = _query_request(table, condition, limit)
        aliases = {f"#glance{n}": name for n, name in enumerate(names)}
        request["ExpressionAttributeNames"] |= aliases
        request |= {"ProjectionExpression": ", ".join(aliases), "ScanIndexForward": False}
        with translated("Query"):
            answer = self._client.query(**request)
        return [items.unmarshal(item) for item in answer["Items"]]

    def put(self, table: str, put: Put) -> Unmet | None:
        """Make the item; None when it was made."""
        answer = self._write("PutItem", self._client.put_item, put.request(table))
        return answer if isinstance(answer, Unmet) else None

    def update(self, table: str, update: Update) -> Values | Unmet:
        """The item as it is after the update.

        An update that had taken effect already, its answer lost, counts as done.
        """
        request = {**update.request(table), "ReturnValues": "ALL_NEW"}
        answer = self._write("UpdateItem", self._client.update_item, request)
        if not isinstance(answer, Unmet):
            return items.unmarshal(answer["Attributes"])
        if answer.found is not None and update.was_made(answer.found):
            return answer.found
        return answer

    def delete(self, table: str, key: tuple[str, str]) -> bool:
        """Have no item there; of any number of callers one is told that it was there.

        An answer that was lost, and the call repeated, tells nobody.
        """
        with translated("DeleteItem"):
            answer = self._client.delete_item(
                TableName=table,
                Key=items.marshal(items.key_values(key)),
                ReturnValues="ALL_OLD",
            )
        return bool(answer.get("Attributes"))

    def count(self, index: Index, partition: str) -> int:
        """How many items a partition of an index has; eventually consistent."""
        request = {
            **_query_request(index.table, Key(index.partition).eq(partition), limit=None),
            "IndexName": index.name,
            "Select": "COUNT",
        }
        found = 0
        while True:
            with translated("Query"):
                answer = self._client.query(**request)
            found += answer["Count"]
            if not (last := answer.get("LastEvaluatedKey")):
                return found
            request = request | {"ExclusiveStartKey": last}

    def transact(
        self, writes: Sequence[tuple[str, Write]], *, tries: int | None = None
    ) -> Sequence[Unmet | None] | None:
        """All of the writes or none: None when all were made, else one answer for each.

        `tries` is for what many write at once; without it, as few as of any call.
        botocore gives each call a token of its own, and repeats it with that token.
        """
        if len(writes) > DYNAMODB_TRANSACT_ITEMS:
            raise ValueError(f"{len(writes)} writes in a transaction")
        parts: Any = [_part(table, write) for table, write in writes]

        def attempt() -> Sequence[Unmet | None] | None:
            try:
                with translated("TransactWriteItems"):
                    self._client.transact_write_items(TransactItems=parts)
            except Cancelled as cancelled:
                return _answers(cancelled)
            return None

        patience = replace(self._patience, tries=tries or self._patience.tries)
        return patience.through_contention(attempt)

    def transact_with(
        self, ours: tuple[str, Write], theirs: Sequence[Mapping[str, Any]], *, call: str
    ) -> Sequence[Reason] | None:
        """Our write and somebody else's requests, all or none: None when all were made.

        Else one reason for each, ours first. `call` (1-36 characters) names this call: one that
        took effect is not made again under it for ten minutes. Raises ParamValidationError for
        what botocore does not even send.
        """
        parts: Any = [_part(*ours), *theirs]

        def attempt() -> Sequence[Reason] | None:
            try:
                with translated("TransactWriteItems"):
                    self._client.transact_write_items(TransactItems=parts, ClientRequestToken=call)
            except Cancelled as cancelled:
                return _reasons(cancelled)
            return None

        # A row of theirs may be written by all of their executions.
        return replace(self._patience, tries=_AMONG_MANY).through_contention(attempt)

    def _write(
        self, name: str, call: Callable[..., Any], request: Mapping[str, Any]
    ) -> Mapping[str, Any] | Unmet:
        def attempt() -> Mapping[str, Any] | Unmet:
            try:
                with translated(name):
                    answer: Mapping[str, Any] = call(**request)
            except ConditionUnmet as unmet:
                return Unmet(found=_found(unmet.found))
            return answer

        return self._patience.through_contention(attempt)

    def _last_of(self, index: Index, partition: str, before: str | None, limit: int) -> list[str]:
        condition: ConditionBase = Key(index.partition).eq(partition)
        if before is not None:
            condition &= Key(index.sort).lt(before)
        request = _query_request(index.table, condition, limit)
        found = self._last(request | {"IndexName": index.name}, limit)
        return [values[index.sort] for values in found]

    def _last(self, request: dict[str, Any], limit: int) -> Sequence[Values]:
        request = request | {"ScanIndexForward": False}
        found: list[Values] = []
        while True:
            read = self._read(request)
            found += read.values
            if read.last is None or len(found) >= limit:
                return found[:limit]
            request["ExclusiveStartKey"] = items.marshal(read.last)

    def _read(self, request: dict[str, Any]) -> Read:
        while True:
            with translated("Query"):
                answer = self._client.query(**request)
            last = answer.get("LastEvaluatedKey")
            if answer["Items"] or not last:
                return Read(
                    values=[items.unmarshal(item) for item in answer["Items"]],
                    last=items.unmarshal(last) if last else None,
                )
            request = request | {"ExclusiveStartKey": last}

    def _batch_get(
        self, table: str, keys: Sequence[tuple[str, str]], consistent: bool
    ) -> Sequence[Values]:
        return [*self._batches(table, keys, consistent)]

    def _batches(
        self, table: str, keys: Sequence[tuple[str, str]], consistent: bool
    ) -> Iterator[Values]:
        marshalled = [items.marshal(items.key_values(key)) for key in keys]
        request: Any = {table: {"Keys": marshalled, "ConsistentRead": consistent}}
        for _ in self._patience.each_try():
            with translated("BatchGetItem"):
                answer = self._client.batch_get_item(RequestItems=request)
            yield from (items.unmarshal(item) for item in answer["Responses"].get(table, []))
            request = answer.get("UnprocessedKeys")
            if not request:
                return
        raise Unavailable(f"BatchGetItem: {len(request[table]['Keys'])} keys were not read")


def _query_request(table: str, condition: ConditionBase, limit: int | None) -> dict[str, Any]:
    built = ConditionExpressionBuilder().build_expression(condition, is_key_condition=True)
    return {
        "TableName": table,
        "KeyConditionExpression": built.condition_expression,
        "ExpressionAttributeNames": built.attribute_name_placeholders,
        "ExpressionAttributeValues": items.marshal(built.attribute_value_placeholders),
        **({} if limit is None else {"Limit": limit}),
    }


def _part(table: str, write: Write) -> Mapping[str, Any]:
    match write:
        case Put():
            return {"Put": write.request(table)}
        case Update():
            return {"Update": write.request(table)}
        case Check():
            return {"ConditionCheck": write.request(table)}
        case other:
            assert_never(other)


def _answers(cancelled: Cancelled) -> Sequence[Unmet | None]:
    """One answer for each write, where a condition was in the way.

    Raises Contended where only another writer was, Unavailable where DynamoDB asks us to slow
    down, CallRefused for anything else.
    """
    if any(reason.is_unmet for reason in cancelled.reasons):
        return [
            Unmet(found=_found(reason.found)) if reason.is_unmet else None
            for reason in cancelled.reasons
        ]
    _reasons(cancelled)
    raise CallRefused(f"TransactWriteItems: {cancelled}") from cancelled


def _reasons(cancelled: Cancelled) -> Sequence[Reason]:
    """Why nothing was written, one for each; raises as `_answers` for what passes by itself."""
    message = f"TransactWriteItems: {cancelled}"
    codes = {reason.code for reason in cancelled.reasons} - {"None"}
    if codes == {"TransactionConflict"}:
        raise Contended(message) from cancelled
    if codes <= {"TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"}:
        raise Unavailable(message) from cancelled
    return cancelled.reasons


def _found(item: AttributeValues | None) -> Values | None:
    return None if item is None else items.unmarshal(item)
