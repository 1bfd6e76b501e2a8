"""The tick: once a minute, hand out every partition's work."""

from lamplighter.core.lease import Kind, Work
from lamplighter.ports import Ports


def tick(ports: Ports) -> None:
    """Send one work item a partition and kind.

    Late, twice, or not at all: each is harmless. Work that is held is left to its holder,
    and work that waited goes on from its watermark.
    """
    partitions = range(ports.layout().partitions)
    ports.queue.hand_out(
        Work(partition=partition, kind=kind) for kind in Kind for partition in partitions
    )
    ports.telemetry.ticked()
