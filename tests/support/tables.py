"""The three tables as their schema declares them, for an emulator.

`tests/infra` compares them with what the template declares.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lamplighter.aws import schema

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

Definition = Mapping[str, Any]
"""Of a table: `AttributeDefinitions`, `KeySchema` and `GlobalSecondaryIndexes`."""


def _definition(indexes: Mapping[str, tuple[str, str]]) -> Definition:
    names = {
        schema.PARTITION_KEY,
        schema.SORT_KEY,
        *(key for pair in indexes.values() for key in pair),
    }
    return {
        "AttributeDefinitions": [
            {"AttributeName": name, "AttributeType": "S"} for name in sorted(names)
        ],
        "KeySchema": _key_schema(schema.PARTITION_KEY, schema.SORT_KEY),
        "GlobalSecondaryIndexes": [
            {
                "IndexName": name,
                "KeySchema": _key_schema(*pair),
                "Projection": {"ProjectionType": "KEYS_ONLY"},
            }
            for name, pair in indexes.items()
        ],
    }


def _key_schema(partition: str, sort: str) -> list[dict[str, str]]:
    return [
        {"AttributeName": partition, "KeyType": "HASH"},
        {"AttributeName": sort, "KeyType": "RANGE"},
    ]


EXECUTIONS = _definition(
    {
        schema.BY_OWNER: (schema.OWNER_KEY, schema.SORT_KEY),
        schema.NEEDS_ATTENTION: (schema.ATTENTION_KEY, schema.SORT_KEY),
        schema.BY_JOB: (schema.JOB_KEY, schema.SORT_KEY),
    }
)
JOBS = _definition({schema.JOBS_BY_OWNER: (schema.JOBS_OWNER_KEY, schema.JOBS_BY_OWNER_SORT)})
CONTROL = _definition({})
TABLES: Mapping[str, Definition] = {"executions": EXECUTIONS, "jobs": JOBS, "control": CONTROL}


@dataclass(frozen=True, kw_only=True)
class TableNames:
    executions: str
    jobs: str
    control: str

    def delete(self, client: "DynamoDBClient") -> None:
        for name in (self.executions, self.jobs, self.control):
            client.delete_table(TableName=name)


def create_tables(client: "DynamoDBClient", prefix: str) -> TableNames:
    """Three empty tables whose names begin with the prefix."""
    return TableNames(**{kind: create_table(client, prefix, kind) for kind in TABLES})


def create_table(client: "DynamoDBClient", prefix: str, kind: str) -> str:
    """One of them; returns its name."""
    name, definition = f"{prefix}-{kind}", TABLES[kind]
    # No index at all is refused when it is written as an empty list.
    parameters = {key: value for key, value in definition.items() if value}
    made = client.create_table(TableName=name, BillingMode="PAY_PER_REQUEST", **parameters)
    if made["TableDescription"]["TableStatus"] != "ACTIVE":
        client.get_waiter("table_exists").wait(
            TableName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 10}
        )
    return name
