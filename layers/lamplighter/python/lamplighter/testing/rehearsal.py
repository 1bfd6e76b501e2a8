"""For tests of tasks: a handler's context, try after try, with everything in memory."""

from collections.abc import Sequence
from datetime import timedelta

from lamplighter.core.errors import WriteRefusal
from lamplighter.core.lifecycle import State
from lamplighter.core.model import Execution, Owner, Payload, Spec
from lamplighter.core.outcome import Failed
from lamplighter.core.retry import Failure, Kind, RetryPolicy
from lamplighter.core.writes import OwnWrite
from lamplighter.memory import MemoryWorld
from lamplighter.services import execute
from lamplighter.services.execute import Claimed
from lamplighter.services.submit import Created, NewJob, submit
from lamplighter.tasks.answers import ContextAnswers
from lamplighter.tasks.context import Context, StopSignal
from lamplighter.tasks.runner import context_of

_BETWEEN_TRIES = timedelta(hours=1)
_TRIES = 100


class Rehearsal:
    """One execution. What its context keeps and completes is kept here, by the real services."""

    def __init__(self, *, owner: str = "me") -> None:
        self._world = MemoryWorld()
        self._ports = self._world.ports()
        spec = Spec(
            task="rehearsed",
            payload=Payload.of("null"),
            retry=RetryPolicy(max_attempts=_TRIES, base_seconds=1),
        )
        created = submit(self._ports, NewJob(owner=Owner(owner), spec=spec))
        if not isinstance(created, Created):
            raise TypeError(f"not created: {created}")
        self._id = created.first.id
        self._held: Claimed | None = None

    def context(self) -> Context:
        """The context of the next try, to call a task with; the one before has failed by then.

        Raises LookupError when the execution is complete.
        """
        if self._held is not None:
            failure = Failure(kind=Kind.RETRYABLE, type="Rehearsed", message="the try is over")
            execute.conclude(self._ports, self._held, Failed(failure=failure))
            self._world.pass_time(_BETWEEN_TRIES)
        if self.is_complete:
            raise LookupError("the execution is complete: there is no other try")
        (message,) = self._world.queue.receive()
        begun = execute.begin(self._ports, message, worker="rehearsal")
        if not isinstance(begun, Claimed):
            raise TypeError(f"not claimed: {begun}")
        self._held = begun
        return context_of(
            begun,
            now=self._world.now(),
            signal=StopSignal(self._world.clock.monotonic),
            answers=ContextAnswers(self._ports),
        )

    @property
    def committed(self) -> Sequence[OwnWrite]:
        """What `complete_with` wrote, in order."""
        return self._world.own.committed

    @property
    def is_complete(self) -> bool:
        """Whether `complete_with` has ended the execution."""
        return self._row.state is State.SUCCEEDED

    @property
    def result(self) -> str | None:
        """The result that it ended with, as JSON text."""
        return self._row.result

    def refuse(self, *refusals: WriteRefusal) -> None:
        """Have `complete_with` raise WritesRefused with these from now on; with none, no more."""
        self._world.own.take = lambda _: refusals

    @property
    def _row(self) -> Execution:
        row = self._ports.executions.get(self._id)
        if row is None:
            raise LookupError(self._id)
        return row
