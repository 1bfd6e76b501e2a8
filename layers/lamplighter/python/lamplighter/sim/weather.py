"""What holds for a while, and how often the rest strikes: drawn once for each history."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Final

from lamplighter.sim.decisions import ALL, Decisions, Fault

_MINUTE = timedelta(minutes=1)

# How likely each is where it may strike, in a history of middling trouble.
_RATES: Final[Mapping[Fault, float]] = {
    Fault.CRASH_BEFORE: 0.003,
    Fault.CRASH_AFTER: 0.003,
    Fault.PARTIAL: 0.03,
    Fault.PAUSE: 0.002,
    Fault.UNAVAILABLE: 0.006,
    Fault.FATE_UNKNOWN: 0.006,
    Fault.HANDLER_DIES: 0.02,
    Fault.SKEW: 1.0,
    Fault.JUMP: 1.0,
    Fault.DUPLICATE: 0.05,
    Fault.DELAY: 0.03,
    Fault.LOSS: 0.01,
    Fault.REORDER: 0.1,
    Fault.REDRIVE: 0.01,
    Fault.TICK_LATE: 0.3,
    Fault.TICK_TWICE: 0.2,
    Fault.TICK_MISSING: 0.1,
    Fault.WORK_TWICE: 0.2,
    Fault.WORK_LOST: 0.05,
    Fault.WORK_LATE: 0.2,
    Fault.SHORT_OF_TIME: 0.2,
}
_INTENSITIES: Final = (0.3, 1.0, 1.0, 3.0)
# In how many histories each kind is about at all: what never rests hides what needs a rest.
_ABOUT: Final = 0.65

PARTS: Final = ("tick", "dispatch", "sweep", "workers")
SERVICES: Final = ("table", "queue")


@dataclass(frozen=True, kw_only=True)
class Spell:
    """A fault that lasts: of what, and from when until when."""

    fault: Fault
    of: str
    begins: datetime
    ends: datetime


@dataclass(frozen=True, kw_only=True)
class Weather:
    """The rates, and the spells."""

    rates: Mapping[Fault, float]
    spells: Mapping[tuple[Fault, str], list[Spell]] = field(default_factory=dict)

    def rate(self, fault: Fault) -> float:
        """How likely it is to strike where it may; 0 where it is not about."""
        return self.rates.get(fault, 0.0)

    def spell(self, fault: Fault, of: str, now: datetime, decisions: Decisions) -> Spell | None:
        """The spell that holds now, if there is one and it is decided for."""
        for spell in self.spells.get((fault, of), ()):
            if spell.begins <= now < spell.ends:
                minute = f"from {spell.begins:%H:%M:%S}"
                return spell if decisions.strikes(fault, of, minute) else None
        return None


def forecast(
    random: Random, faults: frozenset[Fault], *, start: datetime, end: datetime, shards: int
) -> Weather:
    """The weather of a history, with nothing that lasts beyond its end."""
    # Each is drawn, whichever are asked for: so leaving one out leaves the others as they are.
    drawn = {fault for fault in Fault if random.random() < _ABOUT}
    # What is asked for by name is about in all of them.
    about = drawn if faults == ALL else faults
    intensity = random.choice(_INTENSITIES)
    spells: dict[tuple[Fault, str], list[Spell]] = {}
    for spell in _spells(random, start=start, end=end, shards=shards):
        if spell.fault in about:
            spells.setdefault((spell.fault, spell.of), []).append(spell)
    rates = {fault: min(rate * intensity, 0.5) for fault, rate in _RATES.items() if fault in about}
    return Weather(rates=rates, spells=spells)


def _spells(random: Random, *, start: datetime, end: datetime, shards: int) -> Iterator[Spell]:
    def spell(fault: Fault, of: str, shortest: float, longest: float) -> Spell:
        begins = start + (end - start) * random.uniform(0.05, 0.8)
        ends = begins + random.uniform(shortest, longest) * _MINUTE
        return Spell(fault=fault, of=of, begins=begins, ends=min(ends, end))

    for part in PARTS:
        one = spell(Fault.OUTAGE, part, 1, 30)
        if random.random() < 0.35:
            yield one
    for service in SERVICES:
        for _ in range(2):
            yield spell(Fault.THROTTLE, service, 0.5, 4)
    for _ in range(2):
        yield spell(Fault.HOT_PARTITION, f"shard {random.randrange(shards)}", 1, 10)
        yield spell(Fault.DEPLOY, "workers", 0.2, 5)
        yield spell(Fault.PURGE, "lanes", 0, 0)
        yield spell(Fault.RESHARD, "stack", 0, 0)
