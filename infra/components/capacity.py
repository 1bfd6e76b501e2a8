"""How much runs at once in each lane: what it names itself, or its share of a total.

A share is a bound of Lambda's own poller, so it costs nothing and holds at each moment: who
floods one lane has that lane's share and no more, and no lane starves (S0-P1).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from infra.components.queues import Lane

# Lambda, ScalingConfig.MaximumConcurrency: of one event source mapping.
LEAST = 2
MOST = 1000


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """Batches at once; None: as many as Lambda makes of it."""

    max_concurrency: int | None = None
    """Of each of the lane's queues."""
    reserved_concurrency: int | None = None
    """Of all of them, out of the account's."""


def capacities(lanes: Sequence["Lane"], worker_concurrency: int | None) -> Mapping[str, Capacity]:
    """By lane. Raises ValueError for a total that is too small or too large to be shared."""
    own = {lane.name: _own(lane) for lane in lanes}
    sharing = {lane.name: lane for lane in lanes if not lane.has_capacity_of_its_own}
    if worker_concurrency is None:
        return own
    if not sharing:
        raise ValueError(
            f"worker_concurrency {worker_concurrency}: each lane has capacity of its own"
        )
    shared = shares({name: lane.weight for name, lane in sharing.items()}, worker_concurrency)
    return own | {name: _of_share(lane, shared[name]) for name, lane in sharing.items()}


def shares(weights: Mapping[str, int], total: int) -> Mapping[str, int]:
    """The total, divided by weight and rounded down: together never more than there is."""
    parts = sum(weights.values())
    return {name: total * weight // parts for name, weight in weights.items()}


def _own(lane: "Lane") -> Capacity:
    # More than may run would be received, throttled and received again, and each receive counts.
    at_once = lane.max_concurrency if lane.pollers or lane.max_concurrency else _reserved(lane)
    return Capacity(
        max_concurrency=None if at_once is None else at_once // lane.queues,
        reserved_concurrency=lane.reserved_concurrency,
    )


def _reserved(lane: "Lane") -> int | None:
    reserved = lane.reserved_concurrency
    if reserved is None or reserved < LEAST * lane.queues:
        return None
    return min(reserved, MOST * lane.queues)


def _of_share(lane: "Lane", share: int) -> Capacity:
    each = share // lane.queues
    if not LEAST <= each <= MOST:
        wants = "a larger total" if each < LEAST else "more queues, or pollers"
        raise ValueError(
            f"worker_concurrency: lane {lane.name!r}, weight {lane.weight}, gets {share}, which is "
            f"{each} for each of its queues ({lane.queues}): not in {LEAST}-{MOST}; {wants}"
        )
    return Capacity(max_concurrency=each, reserved_concurrency=share if lane.reserved else None)
