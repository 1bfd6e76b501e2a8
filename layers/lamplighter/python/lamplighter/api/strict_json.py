"""JSON as two parties must agree on it: what one of them would read differently is refused."""

import json
import re
from typing import Final, NoReturn

from lamplighter.core.errors import Rejected
from lamplighter.core.limits import JSON_MAX_DEPTH

_BODY: Final = "body"
_TEXT: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_BRACKET: Final = re.compile(r"[\[\]{}]")


def read(body: bytes) -> object:
    """The value of a UTF-8 document.

    Rejected, beside what is no JSON: NaN and infinities, a name given twice, a number too long
    or too large to be kept as it is, a lone surrogate, and nesting deeper than 64.
    """
    text = _decoded(body)
    _check_depth(text)
    try:
        value: object = json.loads(
            text, object_pairs_hook=_object, parse_constant=_constant, parse_float=_number
        )
    except json.JSONDecodeError as error:
        at = f"{error.msg} at line {error.lineno}, column {error.colno}"
        raise Rejected(
            field=_BODY, value=text[error.pos :][:20], reason=f"not JSON: {at}"
        ) from None
    except ValueError as error:
        # CPython reads no integer of more than 4,300 digits.
        raise Rejected(field=_BODY, value="a number", reason=f"not kept exactly: {error}") from None
    _check_surrogates(value)
    return value


def canonical(value: object) -> str:
    """The one text of a value, whatever the order and the white space it came in."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def compact(value: object) -> str:
    """The shortest text of a value, its names in the order that they came in."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _decoded(body: bytes) -> str:
    if not body.strip():
        raise Rejected(field=_BODY, value="", reason="required: a JSON object")
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        reason = f"not UTF-8: byte {error.start} is {body[error.start]:#04x}"
        raise Rejected(field=_BODY, value=body[error.start :][:8], reason=reason) from None
    if text.startswith("\ufeff"):
        raise Rejected(field=_BODY, value="U+FEFF", reason="starts with a byte order mark")
    return text


def _check_depth(text: str) -> None:
    # Before parsing, which recurses: with what is in quotes taken out, brackets are brackets.
    depth = 0
    for bracket in _BRACKET.findall(_TEXT.sub("", text)):
        depth += 1 if bracket in "[{" else -1
        if depth > JSON_MAX_DEPTH:
            reason = f"nested more than {JSON_MAX_DEPTH} deep"
            raise Rejected(field=_BODY, value=bracket, reason=reason)


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    value: dict[str, object] = {}
    for name, item in pairs:
        if name in value:
            raise Rejected(field=name, value=item, reason="given twice")
        value[name] = item
    return value


def _constant(name: str) -> NoReturn:
    raise Rejected(field=_BODY, value=name, reason="not a number in JSON")


def _number(text: str) -> float:
    number = float(text)
    if number in {float("inf"), float("-inf")}:
        raise Rejected(field=_BODY, value=text, reason="too large for a number")
    return number


def _check_surrogates(value: object) -> None:
    members = value.items() if isinstance(value, dict) else [(_BODY, value)]
    for name, member in members:
        try:
            compact([name, member]).encode()
        except UnicodeEncodeError as error:
            found = repr(error.object[error.start])
            field = name if name.isprintable() else _BODY
            raise Rejected(field=field, value=found, reason="holds a lone surrogate") from None
