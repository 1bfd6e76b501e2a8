"""The tick: once a minute, hand out every partition's work."""

from lamplighter.core.lease import Ticker, WorkItem
from lamplighter.core.timing import line
from lamplighter.ports import Ports
from lamplighter.services import layouts


def tick(ports: Ports, *, by: Ticker = Ticker.SCHEDULE) -> None:
    """Send one work item a partition and kind.

    Late, twice, or not at all: each is harmless. Work that is held is left to its holder,
    and work that waited goes on from its watermark.
    """
    known = layouts.kept(ports)
    begun = known.reached_by(line(ports.clock.now()))
    ports.queue.hand_out(WorkItem(work=work) for layout in begun for work in layout.works())
    ports.telemetry.ticked(by=by)
