"""What becomes of occurrences that come late or meet each other, by anybody's names.

A policy is taken only if it is kept: what dispatch does not do yet is refused, by the name
that it was asked for with.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from lamplighter.core.errors import Rejected
from lamplighter.core.model import MisfirePolicy

_MISFIRE_ALIASES: Final[Mapping[str, str]] = MappingProxyType(
    {
        **dict.fromkeys(("LATEST", "COALESCE", "RELAXED"), "FIRE_ONCE"),
        **dict.fromkeys(("NONE", "IGNORABLE"), "SKIP"),
        **dict.fromkeys(("EVERY", "STRICT"), "FIRE_ALL"),
    }
)
ALLOW: Final = "ALLOW"
"""The overlap policy that is kept: occurrences run whether or not an earlier one still does."""
_OVERLAP_ALIASES: Final[Mapping[str, str]] = MappingProxyType({"ALLOW_ALL": ALLOW})
_OVERLAP_NOT_KEPT: Final = frozenset(
    {"SKIP", "FORBID", "BUFFER_ONE", "BUFFER_ALL", "QUEUE"}
    | {"CANCEL_OTHER", "TERMINATE_OTHER", "REPLACE"}
)


def misfire_policy(text: str) -> MisfirePolicy:
    """The policy of that name, ours or another system's, in any case; else Rejected."""
    name = text.upper()
    try:
        return MisfirePolicy(_MISFIRE_ALIASES.get(name, name))
    except ValueError:
        reason = f"not one of {', '.join(MisfirePolicy)}"
        raise Rejected(field="misfire_policy", value=text, reason=reason) from None


def overlap_policy(text: str) -> str:
    """ALLOW, by any of its names; what is not kept is Rejected."""
    name = text.upper()
    name = _OVERLAP_ALIASES.get(name, name)
    if name == ALLOW:
        return name
    reason = f"not one of {ALLOW}"
    if name in _OVERLAP_NOT_KEPT:
        reason = f"not kept yet: an occurrence runs whether or not the one before does ({ALLOW})"
    raise Rejected(field="overlap_policy", value=text, reason=reason)
