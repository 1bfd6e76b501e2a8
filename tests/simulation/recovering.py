"""How long the rest of a system is let run after something went wrong in it."""

from datetime import timedelta

from lamplighter.sim.invariants import violations
from lamplighter.sim.system import System

# A message is delayed by a quarter of an hour at most: what is left of a crash comes within it.
_STEP = timedelta(minutes=15)
LONGEST = timedelta(minutes=45)
"""Longer than the longest back-off of a scenario and the checks that may follow it."""


def recover(system: System) -> None:
    """Run on until every promise holds, a quarter of an hour at least; not for ever."""
    end = system.world.now() + LONGEST
    while True:
        system.run_for(_STEP)
        if system.world.now() >= end or not [*violations(system)]:
            return
