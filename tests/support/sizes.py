"""What DynamoDB counts as an item's size, by the rules of its developer guide.

"Item sizes and formats": names and text are their UTF-8 bytes; a number is a byte for every
two significant digits and one more; lists and maps are three bytes, one for each element,
and what they hold. The hundred bytes of overhead of storage are not part of a write.
"""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

AttributeValues = Mapping[str, Mapping[str, Any]]
"""An item as the client takes and gives it: name → {type: value}."""


def item_size(item: AttributeValues) -> int:
    """Bytes of a whole item, names included."""
    return sum(len(name.encode()) + value_size(value) for name, value in item.items())


def value_size(typed: Mapping[str, Any]) -> int:
    """Bytes of one value."""
    ((type_, value),) = typed.items()
    return _SIZE_OF[type_](value)


def number_size(text: str) -> int:
    """Bytes of a number; zeros before and after its significant digits do not count."""
    sign, digits, _ = Decimal(text).as_tuple()
    significant = len("".join(map(str, digits)).strip("0"))
    return (significant + 1) // 2 + 1 + sign


def _text_size(text: str) -> int:
    return len(text.encode())


def _list_size(values: Sequence[Mapping[str, Any]]) -> int:
    return 3 + sum(1 + value_size(value) for value in values)


def _map_size(values: AttributeValues) -> int:
    return 3 + len(values) + item_size(values)


_SIZE_OF: Mapping[str, Callable[[Any], int]] = {
    "S": _text_size,
    "N": number_size,
    "B": len,
    "BOOL": lambda _: 1,
    "NULL": lambda _: 1,
    "SS": lambda texts: sum(map(_text_size, texts)),
    "NS": lambda numbers: sum(map(number_size, numbers)),
    "BS": lambda blobs: sum(map(len, blobs)),
    "L": _list_size,
    "M": _map_size,
}
