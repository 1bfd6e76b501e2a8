"""Reading a JSON object: into a strict model, or into every fault of it.

A model knows the types of its fields alone. What a value has to be beyond that is the core's
to say.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from lamplighter.api.bodies import Body
from lamplighter.api.problems import Faults
from lamplighter.core.errors import Rejected
from lamplighter.core.limits import FAULTS_NAMED

_HINT_MAX_CHARS: Final = 64
_JSON_TYPES: Final = {
    "model_type": "an object",
    "dict_type": "an object",
    "list_type": "a list",
    "string_type": "a string",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
}
"""What a value should be, by what pydantic calls it not to be."""
_BOUNDS: Final = {
    "greater_than_equal": "less than",
    "less_than_equal": "more than",
}
"""The same of a number that is outside its bounds."""

Model = TypeVar("Model", bound=Body)


def read(model: type[Model], value: object, *, unknown: str = "unknown field") -> Model:
    """The model of a JSON value; raises Faults, or Rejected for what is no object at all."""
    if not isinstance(value, dict):
        raise Rejected(field="body", value=value, reason="not a JSON object")
    try:
        return model.model_validate(value)
    except ValidationError as error:
        found = error.errors(include_url=False)
        raise Faults([_fault(model, one, unknown) for one in found[:FAULTS_NAMED]]) from None


def read_most(
    model: type[Model], value: object, *, unknown: str = "unknown field"
) -> tuple[Model, Sequence[Rejected]]:
    """The model of what can be read of a JSON value, and the faults of the rest.

    Raises Faults where nothing is left to be read, for a required field is at fault.
    """
    try:
        return read(model, value, unknown=unknown), ()
    except Faults as several:
        rest = rest_of(value, several.faults)
        if faults_of(lambda: read(model, rest)):
            raise
        return read(model, rest), several.faults


def rest_of(value: object, faults: Collection[Rejected]) -> dict[str, Any]:
    """A JSON object without the fields that have faults."""
    bad = {fault.field.split(".")[0] for fault in faults}
    fields = value if isinstance(value, dict) else {}
    return {name: one for name, one in fields.items() if name not in bad}


def names_at_fault(model: type[Body], faults: Collection[Rejected]) -> set[str]:
    """The fields that faults are about, and those that unknown ones were meant to be."""
    bad = {fault.field.split(".")[0] for fault in faults}
    meant = (get_close_matches(name[:_HINT_MAX_CHARS], names_of(model, []), n=1) for name in bad)
    return bad.union(*meant)


def faults_of(part: Callable[[], object]) -> list[Rejected]:
    """What is wrong with a part of a request, as it says when it is read."""
    try:
        part()
    except Rejected as fault:
        return [fault]
    except Faults as several:
        return [*several.faults]
    return []


def _fault(model: type[Body], error: Mapping[str, Any], unknown: str) -> Rejected:
    path = [str(part) for part in error["loc"]]
    match error["type"]:
        case "missing":
            value, reason = None, "required"
        case "extra_forbidden":
            value, reason = error["input"], f"{unknown}{_hint(model, path)}"
        case kind if kind in _JSON_TYPES:
            value, reason = error["input"], f"not {_JSON_TYPES[kind]}"
        case kind if kind in _BOUNDS:
            bound = next(iter(error["ctx"].values()))
            value, reason = error["input"], f"{_BOUNDS[kind]} {bound:.15g}"
        case "literal_error":
            value, reason = error["input"], f"not {error['ctx']['expected']}"
        case _:
            value, reason = error["input"], str(error["msg"])
    return Rejected(field=".".join(path), value=value, reason=reason)


def _hint(model: type[Body], path: list[str]) -> str:
    near = get_close_matches(path[-1][:_HINT_MAX_CHARS], names_of(model, path[:-1]), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def names_of(model: type[Body], path: list[str]) -> list[str]:
    """The fields of the model, or of the one that lies in it at this path."""
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    inner = fields[path[0]].annotation if path else None
    if isinstance(inner, type) and issubclass(inner, Body):
        return names_of(inner, path[1:])
    return [*fields]
