"""At which of the places for a fault it is played: in the suite at some, by `make prove` at all."""

from collections.abc import Iterable, Sequence
from random import SystemRandom
from typing import Final

from lamplighter.sim.faults import Strike
from tests.support.examples import ALWAYS_THE_SAME

_RANDOM: Final = SystemRandom()
_ONE_OF: Final = 10


def some_of(strikes: Iterable[Strike]) -> Sequence[Strike]:
    """A few of them, in order, others in each run; mark the test `strikes`, and name the strike.

    For what the simulator and the small model play as well. Each use case is killed at all of
    its calls in each run (`test_crashes`), and a page of mixed rows meets all else, too.
    """
    every = [*strikes]
    few = -(-len(every) // _ONE_OF) if ALWAYS_THE_SAME else len(every)
    return [every[number] for number in sorted(_RANDOM.sample(range(len(every)), few))]
