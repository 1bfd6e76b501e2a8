"""Tables of yours that tasks may write to, as `cdk.json` names them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from aws_cdk import aws_dynamodb as dynamodb
from constructs import Construct

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{3,255}")  # TableName; DynamoDB API reference
_ARN: Final = re.compile(r"arn:[a-z-]+:dynamodb:[a-z0-9-]+:[0-9]{12}:table/[A-Za-z0-9_.-]{3,255}")
_SAID: Final = ("lanes", "actions")


@dataclass(frozen=True, kw_only=True)
class TaskTable:
    """One table: a name in the stack's account and region, or an ARN."""

    table: str
    lanes: Sequence[str] | None = None
    """Those whose workers may write; None: all."""
    actions: Sequence[str] | None = None
    """None: all that `ctx.complete_with` can ask for."""

    def in_(self, scope: Construct) -> dynamodb.ITable:
        """The table, which there is already."""
        if self.table.startswith("arn:"):
            return dynamodb.Table.from_table_arn(scope, self.table.replace("/", ":"), self.table)
        return dynamodb.Table.from_table_name(scope, self.table, self.table)


def task_tables_of(said: object) -> tuple[TaskTable, ...]:
    """What is said of each table by its name or ARN; raises ValueError, with name and value."""
    if not isinstance(said, Mapping):
        raise ValueError(f"{said!r} is not a JSON object")  # noqa: TRY004 -- one kind of error
    return tuple(_table(table, values) for table, values in said.items())


def _table(table: str, values: object) -> TaskTable:
    if not _NAME.fullmatch(table) and not _ARN.fullmatch(table):
        raise ValueError(f"{table!r} is neither a table's name nor its ARN")
    if not isinstance(values, Mapping):
        raise ValueError(f"table {table!r}: {values!r} is not a JSON object")  # noqa: TRY004
    if unknown := values.keys() - {*_SAID}:
        raise ValueError(
            f"table {table!r}: no {', '.join(sorted(unknown))}; there are {', '.join(_SAID)}"
        )
    chosen = {name: _names(table, name, values.get(name)) for name in _SAID}
    return TaskTable(table=table, lanes=chosen["lanes"], actions=chosen["actions"])


def _names(table: str, name: str, value: object) -> Sequence[str] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not value or not all(isinstance(one, str) for one in value):
        raise ValueError(f"table {table!r}: {name} {value!r} is not a list of names")
    return value
