"""The ports in memory, with a virtual clock: for tests, the simulator, and users' own tests."""

from lamplighter.memory.clock import SeededChance, VirtualClock
from lamplighter.memory.notices import MemoryNotices
from lamplighter.memory.payloads import MemoryPayloads
from lamplighter.memory.queue import MemoryQueue
from lamplighter.memory.stores import MemoryControl, MemoryExecutions, MemoryJobs, Tables
from lamplighter.memory.targets import MemoryTargets
from lamplighter.memory.telemetry import Counts
from lamplighter.memory.world import MemoryWorld

__all__ = [
    "Counts",
    "MemoryControl",
    "MemoryExecutions",
    "MemoryJobs",
    "MemoryNotices",
    "MemoryPayloads",
    "MemoryQueue",
    "MemoryTargets",
    "MemoryWorld",
    "SeededChance",
    "Tables",
    "VirtualClock",
]
