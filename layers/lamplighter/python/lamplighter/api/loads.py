"""A load as JSON, alike where the API answers with a part and where a client has all of them."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from lamplighter.core.forecast import Assessment, Load, assess, summed, together
from lamplighter.core.schedule import format_instant

if TYPE_CHECKING:
    # A client does without what these take to import.
    from lamplighter.api import documents
    from lamplighter.services.forewarning import Crowd

_SECOND: Final = timedelta(seconds=1)


def forewarning(crowd: "Crowd") -> "documents.Forewarning":
    """What is told of an execution that will start late."""
    seconds = crowd.lateness // _SECOND
    minute = format_instant(crowd.run_at.replace(second=0, microsecond=0))
    return {
        "code": "minute-is-full",
        "detail": f"More is due in lane {crowd.queue} in the minute of {minute} than it can start "
        f"in time: expect this to start up to {seconds} s late. flexible_window_seconds={seconds} "
        "on the jobs that are due then would do",
        "expected_lateness_seconds": seconds,
        "flexible_window_seconds": seconds,
    }


def assessed(loads: Sequence[Load], *, per_second: float) -> "documents.Assessed":
    """Minutes, in order, and what they come to as one lane of this capacity."""
    return _told(loads, assess(loads, per_second=per_second), per_second)


def lane(queue: str, loads: Sequence[Load], *, per_second: float) -> "documents.LaneForecast":
    """As `assessed`, of one lane."""
    return {"queue": queue, **assessed(loads, per_second=per_second)}


def by_lane(
    lanes: Mapping[str, Sequence[Load]], *, capacity: Mapping[str, float], per_second: float
) -> "documents.Assessed":
    """What all lanes together come to, each on its own capacity; `per_second` is their sum."""
    found = [assess(loads, per_second=capacity[lane]) for lane, loads in lanes.items()]
    return _told(_all(lanes), together(found), per_second)


def as_one(lanes: Mapping[str, Sequence[Load]], *, per_second: float) -> "documents.Assessed":
    """What they come to as if they were one lane of this capacity."""
    return assessed(_all(lanes), per_second=per_second)


def _all(lanes: Mapping[str, Sequence[Load]]) -> Sequence[Load]:
    return summed(load for loads in lanes.values() for load in loads)


def _told(loads: Sequence[Load], found: Assessment, per_second: float) -> "documents.Assessed":
    window = found.flexible_window
    return {
        "per_second": per_second,
        "planned": sum(load.planned for load in loads),
        "minutes": [
            {
                "minute": format_instant(load.minute),
                "planned": load.planned,
                "busiest_second": load.burst,
            }
            for load in loads
        ],
        "late": [
            {
                "minute": format_instant(late.minute),
                "planned": late.planned,
                "lateness_seconds": late.lateness.total_seconds(),
            }
            for late in found.late
        ],
        "worst_lateness_seconds": found.worst.total_seconds(),
        "flexible_window_seconds": None if window is None else window // _SECOND,
    }
