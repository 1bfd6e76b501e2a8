"""Named targets in memory: what was delivered to each, and what it is to answer."""

from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lamplighter.core.named import Accepted, Answer

if TYPE_CHECKING:
    from lamplighter.tasks.named import Delivery


@dataclass(kw_only=True)
class MemoryTargets:
    """`tasks.named.Targets`: takes whatever it is given, unless it was told another answer."""

    deliveries: list["Delivery"] = field(default_factory=list)
    """All of them, in their order."""
    _answers: defaultdict[str, deque[Answer]] = field(
        default_factory=lambda: defaultdict(deque), init=False
    )

    def answer(self, name: str, *answers: Answer) -> None:
        """What the next calls of a target come to, one after the other."""
        self._answers[name] += answers

    def to(self, name: str) -> list["Delivery"]:
        """What was delivered to one target."""
        return [one for one in self.deliveries if one.entry.name == name]

    def deliver(self, delivery: "Delivery") -> Answer:
        self.deliveries.append(delivery)
        waiting = self._answers[delivery.entry.name]
        return waiting.popleft() if waiting else Accepted(result=None)
