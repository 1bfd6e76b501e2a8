"""Tasks that keep what they do: page by page, a step that is done once, and an end of their own."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Final

from lamplighter.core.errors import LostClaim, Unavailable, WritesRefused
from lamplighter.core.outcome import Failed, Outcome, Succeeded
from lamplighter.core.retry import Failure
from lamplighter.core.retry import Kind as FailureKind
from lamplighter.ports import Checkpoint, Ports, Step
from lamplighter.services import ledger
from lamplighter.services.execute import Claimed
from lamplighter.sim.books import Books, own_write, said_by
from lamplighter.sim.features import Feature, Habits
from lamplighter.sim.workload import Play

PAGES: Final = 3
_STEP: Final = "charge"
_REFUSED: Final = 0.1
_NOT_ANSWERED: Final = Failed(
    failure=Failure(kind=FailureKind.RETRYABLE, type="Unavailable", message="no answer")
)
_UNMET: Final = Failed(
    failure=Failure(kind=FailureKind.RETRYABLE, type="WritesRefused", message="not now")
)


@dataclass(frozen=True, kw_only=True)
class Working:
    """One call of such a task."""

    ports: Ports
    claimed: Claimed
    habits: Habits
    books: Books
    who: str
    chance: Random
    last: Callable[[timedelta], None]
    """Have so much time go by."""
    goes_on: Callable[[], bool]
    """Whether it has not to stop."""
    loses: Callable[[], None]
    """It was told that another has taken over."""

    def do(self, planned: Play, *, dies: bool) -> Outcome | None:
        """What comes of it; None: what was planned, or what it was asked to stop for.

        One that is to fail, or to die, does so somewhere on its way.
        """
        ends_early = dies or not isinstance(planned.comes_to, Succeeded)
        pages = int(PAGES * planned.dies_at) if ends_early else PAGES
        try:
            self._turn_pages(planned.lasts / PAGES, up_to=pages)
            if ends_early or not self.goes_on():
                return None
            if Feature.STEPS in self.habits.of:
                self._do_once()
            return self._end() if Feature.OWN_WRITES in self.habits.of else None
        except LostClaim:
            self.loses()
            return None
        except Unavailable:
            # It leaves, and the next try finds out.
            return _NOT_ANSWERED

    def _turn_pages(self, lasts: timedelta, *, up_to: int) -> None:
        keeps = Feature.CHECKPOINTS in self.habits.of
        done = self._resume() if keeps else 0
        for page in range(done, up_to):
            self.last(lasts)
            if not self.goes_on():
                return
            if keeps:
                made = Checkpoint(text=str(page + 1), number=page + 1)
                ledger.checkpoint(self.ports, self.claimed, made)

    def _resume(self) -> int:
        text = ledger.state(self.ports, self.claimed)
        self.books.resumes(self.claimed, text)
        return int(text or 0)

    def _do_once(self) -> None:
        execution = self.claimed.execution
        step = Step(owner=execution.owner, idempotent_as=execution.idempotency_key, key=_STEP)
        is_known = step in self.books.steps
        told = ledger.recall(self.ports, self.claimed, _STEP)
        self.books.recalled(step, known=is_known, told=told)
        if told is None and self.goes_on():
            told = ledger.record(self.ports, self.claimed, _STEP, f'"{self.who}"')
        if told is not None:
            self.books.recorded(step, told)

    def _end(self) -> Outcome | None:
        if not self.goes_on():
            return None
        result = said_by(self.who)
        refused = self.chance.random() < _REFUSED
        write = own_write(self.claimed.execution.id, result, is_refused=refused)
        try:
            ledger.complete(self.ports, self.claimed, [write], result=result)
        except WritesRefused:
            return _UNMET
        # Its outcome is written: what it says now changes nothing.
        return Succeeded(result='"nobody is told this"')
