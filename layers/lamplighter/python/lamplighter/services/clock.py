"""Whether this host's clock is good enough to work by (S1-X2)."""

from contextlib import suppress

from lamplighter.core.clock_offset import Bounds
from lamplighter.core.errors import Unavailable
from lamplighter.core.limits import MAX_CLOCK_ERROR
from lamplighter.ports import Ports


def refuses(ports: Ports, *, messages: int) -> bool:
    """Whether this host must leave so many messages to others, which is then counted.

    Only where its clock is proven to be off by more than MAX_CLOCK_ERROR. Where nothing is
    known, as in a new process, it is measured first, and again for as long as it is off: a
    clock that was set right takes work again.
    """
    off = ports.clock_offset.bounds()
    if off is None or off.is_off:
        off = _measured(ports)
    if off is None or not off.is_off:
        return False
    ports.telemetry.clock_refused(off, messages=messages)
    return True


def check(ports: Ports) -> None:
    """Raise Unavailable where `refuses`: for work of which each piece is kept by an error."""
    if refuses(ports, messages=1):
        raise Unavailable(f"this host's clock is off by more than {MAX_CLOCK_ERROR}")


def _measured(ports: Ports) -> Bounds | None:
    # What does not answer proves nothing; whatever needs it will say so itself.
    with suppress(Unavailable):
        ports.clock_offset.measure()
    return ports.clock_offset.bounds()
