"""What a handler may write of its own, together with the end of its execution."""

from collections.abc import Mapping, Sequence
from typing import Final

from lamplighter.core.errors import Permanent
from lamplighter.core.limits import COMPLETION_MAX_WRITES

OwnWrite = Mapping[str, object]
"""As DynamoDB's low-level client takes it in a transaction:
{"Put" | "Update" | "Delete" | "ConditionCheck": {"TableName": …, …}}."""

KINDS: Final = ("Put", "Update", "Delete", "ConditionCheck")


def check(writes: Sequence[OwnWrite]) -> None:
    """Refuse what is no list of such writes; raises Permanent, which says where."""
    if len(writes) > COMPLETION_MAX_WRITES:
        raise Permanent(f"complete_with: {len(writes)} items; at most {COMPLETION_MAX_WRITES}")
    for index, write in enumerate(writes):
        if len(write) != 1 or not set(write) <= set(KINDS):
            found = ", ".join(sorted(map(str, write))) or "nothing"
            raise Permanent(f"complete_with: item {index}: one of {', '.join(KINDS)}, not {found}")
        if not table_of(write):
            raise Permanent(f"complete_with: item {index}: no TableName")


def table_of(write: OwnWrite) -> str:
    """The name of the table that it is about, of its ARN too; empty where it names none."""
    (of,) = write.values()
    name = of.get("TableName") if isinstance(of, Mapping) else None
    return name.rpartition("/")[2] if isinstance(name, str) else ""
