"""At which of the places for a fault it is played: in the suite at some, by `make prove` at all."""

from collections.abc import Iterable, Sequence
from random import SystemRandom

from lamplighter.sim.faults import Strike
from tests.support.examples import examples

_RANDOM = SystemRandom()


def some_of(strikes: Iterable[Strike]) -> Sequence[Strike]:
    """A third of them, in order, others in each run; mark the test `strikes`, and name the strike.

    For what the simulator and the small model play as well: a process that is killed is killed
    everywhere, in each run.
    """
    every = [*strikes]
    few = min(len(every), examples(len(every)))
    return [every[number] for number in sorted(_RANDOM.sample(range(len(every)), few))]
