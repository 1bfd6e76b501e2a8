"""Why a handler has to stop. Apart from all else, for the process of an isolated call."""

from enum import StrEnum


class Stop(StrEnum):
    """Why a handler is asked to stop."""

    CANCELLED = "cancelled"
    TIMEOUT = "timeout"
    LOST_LEASE = "lost_lease"
    STOPPING = "stopping"
    """Its worker is to end: the same try goes on elsewhere."""
