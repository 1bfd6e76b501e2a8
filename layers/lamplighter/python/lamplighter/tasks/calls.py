"""What a handler's context asks of the worker that holds its execution.

The one way from a handler to the stores: in this process it is a plain call, in an isolated one
a question over the channel. Whoever gives the context something new gives it a name here, and
the worker an answer to it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from lamplighter.core.errors import Permanent

if TYPE_CHECKING:
    # What a worker does with an execution is none of an isolated call's start.
    from lamplighter.services.execute import Claimed


class ContextCalls(Protocol):
    """Asks the worker for one execution; its methods may be called by several threads."""

    def ask(self, name: str, argument: str) -> str:
        """The worker's answer to what is asked by this name; argument and answer are JSON text.

        Raises Unavailable when a service did not answer: then whether anything was written is
        unknown. Raises Stopped once the execution is no longer held, and Permanent for what is
        refused. The argument has at most a little over 1 MiB.
        """
        ...


Answers = Callable[["Claimed", str, str], str]
"""The worker's side: the answer for a claimed execution to (name, argument). Called in a thread
of its own for what is isolated. Raises as `ContextCalls.ask`, and LostClaim for Stopped."""


def unanswered(claimed: "Claimed", name: str, argument: str) -> str:  # noqa: ARG001 -- `Answers`
    """Of a worker that has an answer to nothing."""
    raise Permanent(f"no such call: {name!r}")


class NoCalls:
    """`ContextCalls` of a context that no worker has made."""

    def ask(self, name: str, argument: str) -> str:  # noqa: ARG002 -- as above
        raise Permanent(f"no worker to ask for {name!r}")


@dataclass(frozen=True, kw_only=True)
class DirectCalls:
    """`ContextCalls` in the worker's own process."""

    claimed: "Claimed"
    answers: Answers = unanswered

    def ask(self, name: str, argument: str) -> str:
        return self.answers(self.claimed, name, argument)
