"""What of the product owners and their tasks make use of, beside plain jobs.

Of each history some are about. Their choices have streams of their own, so a history in which
none is about is the one that it was before there were any.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from random import Random
from typing import Final

from lamplighter.core.errors import Rejected
from lamplighter.core.lanes import LaneRules, Rules
from lamplighter.core.quotas import Quota, Quotas
from lamplighter.sim.decisions import Decisions, Fault
from lamplighter.sim.weather import Spell

_MINUTE: Final = timedelta(minutes=1)
_SECOND: Final = timedelta(seconds=1)


class Feature(StrEnum):
    """What is made use of."""

    CHECKPOINTS = "checkpoints"
    """Tasks go page by page and keep how far they have come (`ctx.checkpoint`, `ctx.state`)."""
    STEPS = "steps"
    """Tasks do a step once (`ctx.once`)."""
    OWN_WRITES = "own-writes"
    """Tasks write to their own tables with their end (`ctx.complete_with`)."""
    BEATS = "beats"
    """Two tell at once that a deferred try goes on."""
    BUSY = "busy"
    """For minutes, what some tasks call answers 429 with Retry-After."""
    PAYLOADS = "payloads"
    """Payloads are large: items of their own, or objects that are referred to."""
    QUOTAS = "quotas"
    """Owners may have, and ask for, so much at once."""
    BULK = "bulk"
    """Owners cancel and replay many at once."""
    AGING = "aging"
    """What waits in a lane that nobody works in gets a message in another."""


EVERYTHING: Final = frozenset(Feature)
PLAIN: Final[frozenset[Feature]] = frozenset()

# In how many histories nothing but plain jobs, in how many of the others each, of how many tasks.
_PLAIN: Final = 0.4
_ABOUT: Final = 0.4
_OF_TASKS: Final = 0.4
_LIVE_JOBS: Final = (None, 3, 8)
_QUEUED: Final = (None, 3, 10)
_PAYLOAD_BYTES: Final = (None, 8_192, 65_536)
_RATES: Final = ((None, None), (0.02, 4), (1.0, 10))
_PROMOTED_AFTER_S: Final = (150, 240, 600)


def drawn(random: Random, asked: frozenset[Feature], decisions: Decisions) -> frozenset[Feature]:
    """Those that are about in a history."""
    # Each is drawn, whichever are asked for: so leaving one out leaves the others as they are.
    is_plain = random.random() < _PLAIN
    about = [feature for feature in Feature if random.random() < _ABOUT and not is_plain]
    return frozenset(
        feature for feature in about if feature in asked and decisions.plays(feature.value)
    )


def parse(text: str) -> frozenset[Feature]:
    """What `--features` says: all, none, or names with commas; raises Rejected for another."""
    if text in {"all", "none"}:
        return EVERYTHING if text == "all" else PLAIN
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in EVERYTHING:
            known = ", ".join(feature.value for feature in Feature)
            raise Rejected(field="features", value=name, reason=f"not all, none, or of: {known}")
    return frozenset(Feature(name) for name in names)


def quotas(random: Random) -> Quotas:
    """What each owner may, in a history with quotas."""
    rate, burst = random.choice(_RATES)
    return Quotas(
        default=Quota(
            live_jobs=random.choice(_LIVE_JOBS),
            queued_executions=random.choice(_QUEUED),
            payload_bytes=random.choice(_PAYLOAD_BYTES),
            submissions_per_second=rate,
            burst=burst,
        )
    )


def lanes(random: Random) -> Rules:
    """The rules of the lanes, in a history with aging."""
    promoted_after = random.choice(_PROMOTED_AFTER_S) * _SECOND
    return {
        "bulk": LaneRules(promotes_to="default", promote_after=promoted_after),
        "default": LaneRules(fair=random.random() < 0.5),
    }


def idle_lanes(random: Random, *, start: datetime, end: datetime) -> Iterator[Spell]:
    """When nobody works in the lane whose messages grow old."""
    for _ in range(2):
        begins = start + (end - start) * random.uniform(0.05, 0.8)
        ends = begins + random.uniform(5, 20) * _MINUTE
        yield Spell(fault=Fault.OUTAGE, of="lane bulk", begins=begins, ends=min(ends, end))


def busy(random: Random, *, start: datetime, end: datetime) -> Iterator[tuple[datetime, datetime]]:
    """From when until when what some tasks call asks them to wait."""
    for _ in range(random.randint(1, 4)):
        begins = start + (end - start) * random.random()
        yield begins, min(begins + random.uniform(0.5, 12) * _MINUTE, end)


@dataclass(frozen=True, kw_only=True)
class Habits:
    """What the tasks of one job make use of."""

    of: frozenset[Feature]

    @classmethod
    def drawn(cls, features: frozenset[Feature], random: Random) -> "Habits":
        """Of those that are about in the history."""
        return cls(
            of=frozenset(
                feature
                for feature in Feature
                if random.random() < _OF_TASKS and feature in features
            )
        )

    @property
    def keeps(self) -> bool:
        """Whether they keep anything of what they do."""
        return bool(self.of & _KEPT)


_KEPT: Final = frozenset({Feature.CHECKPOINTS, Feature.STEPS, Feature.OWN_WRITES})
