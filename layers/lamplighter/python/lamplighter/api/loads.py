"""A load as JSON, alike where the API answers with a part and where a client has all of them."""

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from lamplighter.core.forecast import Load, assess
from lamplighter.core.schedule import format_instant

if TYPE_CHECKING:
    # A client does without what the documents' description takes to import.
    from lamplighter.api import documents

_SECOND: Final = timedelta(seconds=1)


def assessed(loads: Sequence[Load], *, per_second: float) -> "documents.Assessed":
    """Minutes, in order, and what they come to."""
    found = assess(loads, per_second=per_second)
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
