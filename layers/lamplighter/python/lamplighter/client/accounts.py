"""Answers that come in parts, put together."""

from collections.abc import Mapping, Sequence
from typing import Any

from lamplighter.api.loads import assessed
from lamplighter.core.forecast import Load
from lamplighter.core.schedule import parse_instant

Document = Mapping[str, Any]

_COUNTS = ("expected", "fired", "skipped", "cancelled", "expired", "pending", "missed")


def together(parts: Sequence[Document]) -> Document:
    """A job's ledger as one: its counts are the sums, its groups have the widest bounds."""
    groups: dict[tuple[str, str], dict[str, Any]] = {}
    for one in (group for part in parts for group in part["groups"]):
        key = one["outcome"], one["reason"]
        known = groups.get(key)
        groups[key] = _joined(known, one) if known else {**one}
    unreadable = {version for part in parts for version in part["unreadable_versions"]}
    return {
        **parts[0],
        **{name: sum(part[name] for part in parts) for name in _COUNTS},
        "groups": [groups[key] for key in sorted(groups)],
        "unreadable_versions": sorted(unreadable),
        "next_cursor": None,
    }


def planned(parts: Sequence[Document]) -> Document:
    """A forecast as one: its minutes are the sums, and what they come to is told anew."""
    if len(parts) == 1:
        return parts[0]
    minutes: dict[str, Load] = {}
    for one in (minute for part in parts for minute in part["minutes"]):
        text = one["minute"]
        known = minutes.get(text)
        minutes[text] = Load(
            minute=parse_instant("minute", text),
            planned=one["planned"] + (known.planned if known else 0),
            burst=one["busiest_second"] + (known.burst if known else 0),
        )
    loads = [minutes[text] for text in sorted(minutes)]
    return {**parts[0], **assessed(loads, per_second=parts[0]["per_second"]), "next_cursor": None}


def _joined(one: Document, other: Document) -> dict[str, Any]:
    # Instants are all written alike, so that their texts are in order as they are.
    return {
        **one,
        "count": one["count"] + other["count"],
        "first": min(one["first"], other["first"]),
        "last": max(one["last"], other["last"]),
    }
