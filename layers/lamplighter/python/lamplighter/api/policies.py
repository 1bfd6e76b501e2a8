"""What becomes of occurrences that come late or meet each other, by anybody's names."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from lamplighter.core.errors import Rejected
from lamplighter.core.model import MisfirePolicy, OnDeadline, OverlapPolicy

_MISFIRE_ALIASES: Final[Mapping[str, str]] = MappingProxyType(
    {
        **dict.fromkeys(("LATEST", "COALESCE", "RELAXED"), "FIRE_ONCE"),
        **dict.fromkeys(("NONE", "IGNORABLE"), "SKIP"),
        **dict.fromkeys(("EVERY", "STRICT"), "FIRE_ALL"),
    }
)
_OVERLAP_ALIASES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "ALLOW_ALL": "ALLOW",
        "FORBID": "SKIP",
        "QUEUE": "BUFFER_ALL",
        "REPLACE": "CANCEL_OTHER",
    }
)


def misfire_policy(text: str, *, field: str = "misfire_policy") -> MisfirePolicy:
    """The policy of that name, ours or another system's, in any case; else Rejected."""
    name = text.upper()
    try:
        return MisfirePolicy(_MISFIRE_ALIASES.get(name, name))
    except ValueError:
        reason = f"not one of {', '.join(MisfirePolicy)}"
        raise Rejected(field=field, value=text, reason=reason) from None


def on_deadline(text: str) -> OnDeadline:
    """What becomes of what is too late to start, in any case; else Rejected."""
    try:
        return OnDeadline(text.upper())
    except ValueError:
        reason = f"not one of {', '.join(OnDeadline)}"
        raise Rejected(field="on_deadline", value=text, reason=reason) from None


def overlap_policy(text: str) -> OverlapPolicy:
    """The policy of that name, ours or another system's, in any case; else Rejected."""
    name = text.upper()
    try:
        return OverlapPolicy(_OVERLAP_ALIASES.get(name, name))
    except ValueError:
        reason = f"not one of {', '.join(OverlapPolicy)}"
        raise Rejected(field="overlap_policy", value=text, reason=reason) from None
