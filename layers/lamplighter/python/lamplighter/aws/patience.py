"""Trying again a bounded number of times, and doing several calls at once."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, TypeVar

from lamplighter.core.errors import Contended
from lamplighter.ports import Chance, Clock

T = TypeVar("T")
R = TypeVar("R")

_LONGEST: Final = timedelta(seconds=1)


@dataclass(frozen=True, kw_only=True)
class Patience:
    """Waits between tries: 25 ms · 2^n × jitter, a second at most.

    For what a call's answer leaves undone: keys not read, messages not taken, a transaction
    in the way. Calls that got no answer at all are repeated by botocore itself.
    """

    clock: Clock
    chance: Chance
    tries: int = 5
    first: timedelta = timedelta(milliseconds=25)

    def each_try(self) -> Iterator[int]:
        """0, 1, … tries − 1, with a wait before each but the first."""
        yield 0
        for n in range(1, self.tries):
            self.clock.sleep(min(_LONGEST, self.first * 2 ** (n - 1)) * self.chance.jitter())
            yield n

    def through_contention(self, do: Callable[[], R]) -> R:
        """What `do` returns, tried again while it raises Contended; raises the last one."""
        for n in self.each_try():
            try:
                return do()
            except Contended:
                if n == self.tries - 1:
                    raise
        raise ValueError(f"{self.tries} tries")


class Fan:
    """A few threads for independent calls; botocore's clients may be shared by them."""

    def __init__(self, threads: int) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="lamplighter-aws")

    def each(self, do: Callable[[T], R], over: Iterable[T]) -> list[R]:
        """`do` for each, side by side; the results in order.

        All have ended when it returns or raises, so that nothing is left running in an
        environment that freezes; of several errors it raises the first in order. `do` must
        not fan out itself.
        """
        arguments = [*over]
        if len(arguments) == 1:
            return [do(arguments[0])]
        futures = [self._executor.submit(do, argument) for argument in arguments]
        wait(futures)
        return [future.result() for future in futures]

    def close(self) -> None:
        """End the threads."""
        self._executor.shutdown()
