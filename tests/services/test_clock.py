"""When a host refuses work for its clock: only by what was just measured."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest

from lamplighter.core.clock_offset import Bounds
from lamplighter.core.errors import Unavailable
from lamplighter.core.limits import MAX_CLOCK_ERROR
from lamplighter.memory import MemoryWorld
from lamplighter.ports import Ports
from lamplighter.services import clock
from tests.support.rows import s

RIGHT = Bounds(low=-s(1), high=s(0.01))
AHEAD = Bounds(low=s(2), high=s(3))
BEHIND = Bounds(low=-s(3), high=-s(2))


@dataclass(kw_only=True)
class Measured:
    """A clock of which each measurement tells the next thing; with none left, nobody answers."""

    tells: Sequence[Bounds | None]
    knows: Bounds | None = None
    times: int = 0

    def bounds(self) -> Bounds | None:
        return self.knows

    def measure(self) -> None:
        self.times += 1
        if not self.tells:
            raise Unavailable("no answer")
        self.knows, *self.tells = self.tells


@pytest.fixture
def world() -> MemoryWorld:
    return MemoryWorld()


def host(world: MemoryWorld, offset: Measured) -> Ports:
    return replace(world.ports(), clock_offset=offset)


@pytest.mark.parametrize("off", [AHEAD, BEHIND])
def test_a_clock_that_is_off_is_refused_until_it_was_set_right(
    world: MemoryWorld, off: Bounds
) -> None:
    """S1-X2: it is measured again each time, for nothing else is heard meanwhile."""
    ports = host(world, Measured(tells=[off, off, RIGHT]))

    refusals = [clock.refuses(ports, messages=5) for _ in range(3)]

    assert refusals == [True, True, False]
    assert world.counts.events["clock_refused"] == 10


def test_a_clock_that_is_known_to_be_right_is_not_measured_again(world: MemoryWorld) -> None:
    offset = Measured(tells=[], knows=RIGHT)

    assert not clock.refuses(host(world, offset), messages=1)
    assert offset.times == 0


@pytest.mark.parametrize("tells", [[], [None]], ids=["no answer", "too little"])
def test_what_is_not_known_is_no_reason_to_refuse(
    world: MemoryWorld, tells: Sequence[Bounds | None]
) -> None:
    offset = Measured(tells=tells)

    assert not clock.refuses(host(world, offset), messages=1)
    assert offset.times == 1


def test_what_was_proven_holds_while_nobody_answers(world: MemoryWorld) -> None:
    assert clock.refuses(host(world, Measured(tells=[], knows=AHEAD)), messages=1)


def test_work_that_an_error_keeps_is_refused_by_one(world: MemoryWorld) -> None:
    with pytest.raises(Unavailable, match="clock is off"):
        clock.check(host(world, Measured(tells=[AHEAD])))

    clock.check(host(world, Measured(tells=[RIGHT])))


@pytest.mark.parametrize(
    ("low", "high", "surely", "is_off"),
    [
        (-s(1), s(1), s(0), False),
        (s(0.5), s(2), MAX_CLOCK_ERROR, False),
        (s(0.501), s(2), s(0.501), True),
        (-s(2), -s(0.5), -MAX_CLOCK_ERROR, False),
        (-s(2), -s(0.501), -s(0.501), True),
    ],
)
def test_a_clock_is_off_when_no_offset_within_the_bound_is_left(
    low: timedelta, high: timedelta, surely: timedelta, *, is_off: bool
) -> None:
    found = Bounds(low=low, high=high)

    assert (found.surely, found.is_off) == (surely, is_off)
