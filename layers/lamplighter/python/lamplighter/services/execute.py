"""Running one message: hold, claim, look, run, and the outcome before the message goes.

Whatever happens between two lines, the row and the message left behind are enough for
another worker to go on: the claim is one conditional write, the outcome is another, and the
message is deleted only after it (P8–P11).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from lamplighter.core.deferral import CLOSED, CalledBack, callback_of, digest_of
from lamplighter.core.errors import LostClaim, Unavailable, Unreadable
from lamplighter.core.limits import MAX_HOLD, TAKE_OVER_GRACE, WORKER_LEASE
from lamplighter.core.model import Arrival, Execution, Spec, Token
from lamplighter.core.outcome import Failed, Outcome, was_without_permit
from lamplighter.core.permits import Bound
from lamplighter.ports import Ports, Received
from lamplighter.services import endings, settling, timers
from lamplighter.services.claim import claim, tell_start
from lamplighter.services.look import look
from lamplighter.services.settling import Put

_NO_TIME = timedelta(0)
_HELD_S = (WORKER_LEASE - TAKE_OVER_GRACE).total_seconds()


@dataclass(kw_only=True)
class Completion:
    """What a handler has made of its execution by itself (`services/ledger.py: complete`)."""

    row: Execution | None = None
    """As it is then; None: its outcome is still to be written."""
    is_told: bool = False
    """Whether it has the callback token, and so perhaps others have."""


@dataclass(frozen=True, kw_only=True)
class Claimed:
    """An execution in our hands, with all that its handler needs.

    `claimed_at` is on the monotonic clock, read before the claim was written: our lease ends
    no earlier than `claimed_at` + 30 s.
    """

    received: Received
    execution: Execution
    token: Token
    spec: Spec
    payload: str
    claimed_at: float
    callback: str = field(default="", repr=False)
    """What `token` is the digest of; a handler that defers its try is told it."""
    permits: tuple[Bound, ...] = ()
    """What it comes under and has a place of, until its outcome is written or its lease over."""
    version: int | None = None
    """Of the task that runs it; None: none does yet, or it has a target."""
    completion: Completion = field(default_factory=Completion, compare=False)
    """The same for all copies of it."""

    def tell(self) -> str:
        """The callback token, for the handler; that it was told is remembered."""
        self.completion.is_told = True
        return self.callback


Runner = Callable[[Claimed], Outcome]
"""Calls the task's handler and turns whatever comes of it into an outcome."""


def shrink(ports: Ports, batch: Sequence[Received]) -> None:
    """Have the whole batch reappear in 30 s unless it is extended or deleted.

    The queue's own visibility timeout has to cover the function's; without this, the death
    of a worker would hide its messages for that long.
    """
    ports.queue.hide(batch, WORKER_LEASE)


def process(ports: Ports, received: Received, runner: Runner, *, worker: str) -> Put:
    """Take one message as far as it goes: to its outcome, or back into hiding.

    Never starts before it is due. Raises Unavailable when a service did not answer: the
    message is then kept, and whoever receives it next finds the row as it was left.
    """
    begun = begin(ports, received, worker=worker)
    if isinstance(begun, Put):
        return begun
    return conclude(ports, begun, runner(begun))


def begin(ports: Ports, received: Received, *, worker: str) -> Claimed | Put:
    """Hold until due, claim, then look: what comes back claimed may start at once."""
    received_at, held_from = ports.clock.now(), ports.clock.monotonic()
    wait = received.message.due_at - received_at
    if wait > MAX_HOLD:
        return settling.keep(ports, received, wait)
    if wait > timedelta(0):
        ports.clock.sleep(wait)
    held = timedelta(seconds=ports.clock.monotonic() - held_from)
    arrival = _arrival(ports, received, received_at, held=held)
    callback, claimed_at = callback_of(ports.chance.token()), ports.clock.monotonic()
    token = Token(digest_of(callback))
    claimed = claim(ports, received, token=token, worker=worker, arrival=arrival)
    if isinstance(claimed, Put):
        return claimed
    try:
        ready = look(ports, received, claimed, token)
    except Unavailable as error:
        if isinstance(error, Unreadable):
            ports.telemetry.definition_unreadable(claimed.job_id, reason=str(error))
        return settling.postpone(ports, received, claimed, token, reason=str(error))
    if isinstance(ready, Put):
        return ready
    spec, payload, taken = ready
    if ports.clock.monotonic() - claimed_at >= _HELD_S:
        # Stalled since the claim: another may have taken over by now (P9).
        ports.telemetry.late_result_refused(claimed.id)
        return Put(deleted=False)
    if was_without_permit(claimed):
        tell_start(ports, received, claimed)
    return Claimed(
        received=received,
        execution=claimed,
        token=token,
        spec=spec,
        payload=payload,
        claimed_at=claimed_at,
        callback=callback,
        permits=taken,
    )


def _arrival(
    ports: Ports, received: Received, received_at: datetime, *, held: timedelta
) -> Arrival | None:
    """How a message came; None where its queue tells nothing."""
    if received.sent_at is None:
        return None
    due_at, boot = received.message.due_at, ports.boot
    return Arrival(
        sent_at=received.sent_at,
        received_at=received_at,
        hold=held if received_at < due_at else _NO_TIME,
        cold_start=boot.within(max(received.sent_at, due_at), received_at) if boot else _NO_TIME,
    )


def conclude(ports: Ports, claimed: Claimed, outcome: Outcome) -> Put:
    """Write what came of the try, arm the next one if there is one, then delete the message.

    A crash between the two writes leaves a message whose try is over: its next receiver arms
    what it finds (P11). A result that comes after the claim was lost changes nothing; nor does
    one that comes after the handler has completed its execution itself.
    """
    if (done := claimed.completion.row) is not None:
        settling.let_go(ports, claimed.permits, claimed.execution.id, claimed.token)
        return _completed(ports, claimed.received, done, outcome)
    after = settling.after_try(ports, claimed.execution, outcome, spec=claimed.spec)
    if after.deferral is not None:
        return _hand_over(ports, claimed, after)
    if claimed.completion.is_told:
        # Whoever else was told the token learns that the try is over.
        after = replace(after, called_back=CalledBack(token=claimed.token, answer=CLOSED))
    return settling.close(ports, claimed.received, after, claimed.token, places=claimed.permits)


def _hand_over(ports: Ports, claimed: Claimed, after: Execution) -> Put:
    """Leave a deferred try to whoever has its callback token; its places stay its own.

    After a crash between the two writes the message comes back, and arms the same.
    """
    try:
        held = settling.persistently(
            ports, lambda: ports.executions.settle(after, token=claimed.token)
        )
    except LostClaim:
        # Ended already by whoever was told the token, or taken over.
        ports.telemetry.late_result_refused(after.id)
        settling.let_go(ports, claimed.permits, claimed.execution.id, claimed.token)
        return settling.keep(ports, claimed.received, settling.SHORTEST_HIDE)
    timers.arm_lease(ports, held)
    return settling.delete(ports, claimed.received)


def _completed(ports: Ports, received: Received, done: Execution, outcome: Outcome) -> Put:
    """What is left to do of an execution whose outcome is written.

    After a crash the message comes back, and whoever finds the row final does the same.
    """
    ports.telemetry.finished(done)
    if isinstance(outcome, Failed):
        error = outcome.failure
        ports.telemetry.said(done, f"failed after it was complete: {error.type}: {error.message}")
    endings.finish(ports, done)
    return settling.delete(ports, received)
