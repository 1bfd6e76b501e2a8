"""A table of whoever writes the tasks: counters, made and moved by `ctx.complete_with`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from lamplighter.core.errors import WriteRefusal
from lamplighter.core.writes import OwnWrite

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

UNMET = "ConditionalCheckFailed"
NEW = "attribute_not_exists(pk)"


class OwnTable(Protocol):
    @property
    def name(self) -> str: ...

    def count(self, key: str) -> int | None:
        """What a counter is at; None: there is none."""
        ...


def one_more(table: OwnTable, key: str) -> OwnWrite:
    """A counter moved by one, made where there is none."""
    return {
        "Update": {
            "TableName": table.name,
            "Key": {"pk": {"S": key}},
            "UpdateExpression": "ADD n :one",
            "ExpressionAttributeValues": {":one": {"N": "1"}},
        }
    }


def new_counter(table: OwnTable, key: str) -> OwnWrite:
    """A counter at one, on condition that there is none."""
    return {
        "Put": {
            "TableName": table.name,
            "Item": {"pk": {"S": key}, "n": {"N": "1"}, "raw": {"B": b"\x00\xff"}},
            "ConditionExpression": NEW,
        }
    }


@dataclass(kw_only=True)
class MemoryOwnTable:
    """Understands the two writes above, and no others; `take` is for `memory.OwnTables`."""

    name: str = "own"
    counts: dict[str, int] = field(default_factory=dict)

    def count(self, key: str) -> int | None:
        return self.counts.get(key)

    def take(self, writes: Sequence[OwnWrite]) -> Sequence[WriteRefusal]:
        refusals = [
            WriteRefusal(index=index, code=UNMET)
            for index, write in enumerate(writes)
            if _of(write).get("ConditionExpression") == NEW and _key(write) in self.counts
        ]
        for write in () if refusals else writes:
            self.counts[_key(write)] = self.counts.get(_key(write), 0) + 1
        return refusals


@dataclass(frozen=True)
class DynamoOwnTable:
    """Made when somebody first asks what it is called: most tests never do."""

    client: "DynamoDBClient"
    planned: str

    @cached_property
    def name(self) -> str:
        self.client.create_table(
            TableName=self.planned,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        )
        self.client.get_waiter("table_exists").wait(
            TableName=self.planned, WaiterConfig={"Delay": 1, "MaxAttempts": 10}
        )
        return self.planned

    def count(self, key: str) -> int | None:
        answer = self.client.get_item(
            TableName=self.name, Key={"pk": {"S": key}}, ConsistentRead=True
        )
        return int(answer["Item"]["n"]["N"]) if "Item" in answer else None

    def delete(self) -> None:
        if "name" in vars(self):
            self.client.delete_table(TableName=self.name)


def _of(write: OwnWrite) -> Mapping[str, Any]:
    (of,) = write.values()
    assert isinstance(of, Mapping)
    return of


def _key(write: OwnWrite) -> str:
    of = _of(write)
    key: str = (of.get("Key") or of["Item"])["pk"]["S"]
    return key
