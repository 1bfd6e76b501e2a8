"""For users' own tests: one execution try after try, or a year of their schedules in seconds.

`Rehearsal` stands behind the context of a handler that a test calls by itself. `Scheduler`, which
the pytest fixture `scheduler` gives, runs whole schedules on the real services in virtual time,
and lets happen to their tasks what happens to everybody's: a worker dies, a message comes twice.
"""

from lamplighter.testing.rehearsal import Rehearsal
from lamplighter.testing.scheduler import Books, Promise, Refused, Scheduler
from lamplighter.testing.stage import Run
from lamplighter.testing.trouble import KNOWN_FAULTS, Moment, Part

__all__ = [
    "KNOWN_FAULTS",
    "Books",
    "Moment",
    "Part",
    "Promise",
    "Refused",
    "Rehearsal",
    "Run",
    "Scheduler",
]
