"""How many executions a second each lane can start: what the forecast judges by."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from lamplighter.core import limits

if TYPE_CHECKING:
    from infra.components.capacity import Capacity
    from infra.components.queues import Lane

# Lambda: an event source mapping of SQS begins with five batches at once, and adds 300 a minute.
ON_DEMAND_BATCHES: Final = 5
# A provisioned poller: up to ten concurrent invocations.
POLLER_BATCHES: Final = 10


def starts_per_second(lane: "Lane", capacity: "Capacity") -> float:
    """From idle: what may run at once when a spike comes, and each is done in half a second.

    Batches at once (ten a provisioned poller that is held ready, else five a queue; no more than
    the lane's own bounds) × ten messages ÷ 0.5 s (`limits.FORECAST_HANDLER`).
    """
    pollers = lane.pollers
    batches = POLLER_BATCHES * pollers.minimum if pollers else ON_DEMAND_BATCHES
    if capacity.max_concurrency is not None:
        batches = min(batches, capacity.max_concurrency)
    batches *= lane.queues
    if capacity.reserved_concurrency is not None:
        batches = min(batches, capacity.reserved_concurrency)
    return batches * limits.SQS_BATCH / limits.FORECAST_HANDLER.total_seconds()


def to_json(
    lanes: Mapping[str, "Lane"],
    capacities: Mapping[str, "Capacity"],
    chosen: Mapping[str, float],
) -> str:
    """Lane → starts a second, `chosen` or derived, as the API is told it.

    Raises ValueError for a lane that there is not, and for what no lane can do.
    """
    for name, per_second in chosen.items():
        if name not in lanes:
            raise ValueError(f"starts_per_second: no lane {name!r}; there are {', '.join(lanes)}")
        if isinstance(per_second, bool) or not isinstance(per_second, int | float):
            raise ValueError(  # noqa: TRY004 -- one kind of error
                f"starts_per_second of lane {name!r}: {per_second!r} is not a number"
            )
        if not 0 < per_second <= limits.FORECAST_MOST_PER_SECOND:
            raise ValueError(
                f"starts_per_second of lane {name!r}: {per_second} is not over 0, up to "
                f"{limits.FORECAST_MOST_PER_SECOND:.0f}"
            )
    derived = {name: starts_per_second(lane, capacities[name]) for name, lane in lanes.items()}
    return json.dumps({**derived, **chosen}, separators=(",", ":"))
