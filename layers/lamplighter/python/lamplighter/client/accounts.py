"""Answers that come in parts, put together."""

from collections.abc import Mapping, Sequence
from typing import Any

from lamplighter.api import loads
from lamplighter.core.forecast import Load, summed
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


def planned(parts: Sequence[Document], *, per_second: float | None = None) -> Document:
    """A forecast as one: its minutes are the sums, and what they come to is told anew.

    On the capacity that was asked for, or lane by lane on the stack's.
    """
    if len(parts) == 1:
        return parts[0]
    parted: dict[str, list[Load]] = {}
    capacity: dict[str, float] = {}
    for lane in (lane for part in parts for lane in part["lanes"]):
        capacity[lane["queue"]] = lane["per_second"]
        parted.setdefault(lane["queue"], []).extend(map(_load, lane["minutes"]))
    lanes = {queue: summed(parted[queue]) for queue in sorted(parted)}
    together = (
        loads.by_lane(lanes, capacity=capacity, per_second=parts[0]["per_second"])
        if per_second is None
        else loads.as_one(lanes, per_second=per_second)
    )
    return {
        **parts[0],
        **together,
        "lanes": [
            loads.lane(queue, of_lane, per_second=capacity[queue])
            for queue, of_lane in lanes.items()
        ],
        "next_cursor": None,
    }


def _load(one: Document) -> Load:
    return Load(
        minute=parse_instant("minute", one["minute"]),
        planned=one["planned"],
        burst=one["busiest_second"],
    )


def _joined(one: Document, other: Document) -> dict[str, Any]:
    # Instants are all written alike, so that their texts are in order as they are.
    return {
        **one,
        "count": one["count"] + other["count"],
        "first": min(one["first"], other["first"]),
        "last": max(one["last"], other["last"]),
    }
