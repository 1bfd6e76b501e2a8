"""What a context asks its worker, by name, and how it is written: as JSON, in both directions."""

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import TypeAdapter
from pydantic_core import PydanticSerializationError, to_json

from lamplighter.core import writes as own_writes
from lamplighter.core.errors import Permanent
from lamplighter.core.limits import COMPLETION_MAX_BYTES, LEDGER_KEY_MAX_CHARS
from lamplighter.core.writes import OwnWrite

STATE: Final = "state"
CHECKPOINT: Final = "checkpoint"
RECALL: Final = "recall"
RECORD: Final = "record"
COMPLETE: Final = "complete"
DEFER: Final = "defer"
NOTHING: Final = "null"
# Bytes within JSON. No attribute's value looks like that: its one name is that of a type.
_BYTES: Final = "$bytes"


@dataclass(frozen=True, kw_only=True)
class Saving:
    """A checkpoint; `state` is JSON text."""

    number: int
    state: str


@dataclass(frozen=True, kw_only=True)
class Recalling:
    """The answer is the JSON text of a result, or null."""

    key: str


@dataclass(frozen=True, kw_only=True)
class Recording:
    """`result` is JSON text, and so is the answer: the result that is kept."""

    key: str
    result: str


@dataclass(frozen=True, kw_only=True)
class Completing:
    """`result` is JSON text. The answer tells what refused it, or why to try later."""

    result: str
    writes: list[dict[str, Any]]


SAVING: Final = TypeAdapter(Saving)
RECALLING: Final = TypeAdapter(Recalling)
RECORDING: Final = TypeAdapter(Recording)
COMPLETING: Final = TypeAdapter(Completing)


def json_of(value: object, *, what: str, most: int) -> str:
    """A value as JSON text; raises Permanent for what is none, or too long."""
    try:
        text = to_json(value, inf_nan_mode="null")
    except (PydanticSerializationError, RecursionError, ValueError) as error:
        raise Permanent(f"{what}: {type(value).__qualname__} is not JSON: {error}") from error
    if len(text) > most:
        raise Permanent(f"{what}: {len(text)} bytes of JSON; at most {most}")
    return text.decode()


def check_key(key: str) -> None:
    """Refuse what is no key of a step; raises Permanent."""
    if not 1 <= len(key) <= LEDGER_KEY_MAX_CHARS or not key.isprintable():
        shown = repr(key[:LEDGER_KEY_MAX_CHARS])
        raise Permanent(f"once: not 1-{LEDGER_KEY_MAX_CHARS} printable characters: {shown}")


def completing(writes: Sequence[OwnWrite], *, result: str) -> str:
    """`Completing` as text, bytes among its values too; raises Permanent for what it cannot be."""
    own_writes.check(writes)
    try:
        text = json.dumps({"result": result, "writes": [*writes]}, default=_in_json)
    except (TypeError, ValueError, RecursionError) as error:
        raise Permanent(f"complete_with: not in DynamoDB's low-level form: {error}") from error
    if len(text) > COMPLETION_MAX_BYTES:
        raise Permanent(f"complete_with: {len(text)} bytes of JSON; at most {COMPLETION_MAX_BYTES}")
    return text


def completing_from(text: str) -> Completing:
    """The inverse of `completing`; raises ValueError."""
    return COMPLETING.validate_python(json.loads(text, object_hook=_out_of_json))


def _in_json(value: object) -> dict[str, str]:
    if isinstance(value, bytes | bytearray):
        return {_BYTES: base64.b64encode(value).decode()}
    raise TypeError(f"a {type(value).__qualname__}")


def _out_of_json(found: dict[str, Any]) -> Any:  # noqa: ANN401 -- of any item
    if found.keys() == {_BYTES} and isinstance(found[_BYTES], str):
        return base64.b64decode(found[_BYTES], validate=True)
    return found
