"""What DynamoDB counts as an item's size, by the rules of its developer guide.

"Item sizes and formats": names and text are their UTF-8 bytes; a number is a byte for every
two significant digits and one more; lists and maps are three bytes, one for each element,
and what they hold. The hundred bytes of overhead of storage are not part of a write.
"""

from collections.abc import Mapping
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
    match type_:
        case "S":
            return len(value.encode())
        case "N":
            return number_size(value)
        case "B":
            return len(value)
        case "BOOL" | "NULL":
            return 1
        case "SS":
            return sum(len(one.encode()) for one in value)
        case "NS":
            return sum(number_size(one) for one in value)
        case "BS":
            return sum(len(one) for one in value)
        case "L":
            return 3 + sum(1 + value_size(one) for one in value)
        case "M":
            return 3 + len(value) + item_size(value)
    raise ValueError(f"no such type: {type_!r}")


def number_size(text: str) -> int:
    """Bytes of a number; zeros before and after its significant digits do not count."""
    sign, digits, _ = Decimal(text).as_tuple()
    significant = len("".join(map(str, digits)).strip("0"))
    return (significant + 1) // 2 + 1 + sign
