"""What a handler asks of its worker while it runs: progress, results, its own writes."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final, TypeVar

from lamplighter.core.errors import Contended, Permanent, Unavailable
from lamplighter.core.limits import CHECKPOINT_KEPT, LEDGER_KEPT
from lamplighter.core.outcome import Succeeded, finished
from lamplighter.core.writes import OwnWrite
from lamplighter.ports import Checkpoint, Ports, Step
from lamplighter.services.execute import Claimed

R = TypeVar("R")

_TRIES: Final = 5
_BETWEEN_TRIES: Final = timedelta(milliseconds=200)


def checkpoint(ports: Ports, claimed: Claimed, made: Checkpoint) -> None:
    """Keep how far a try has come, for the next one; raises LostClaim."""
    kept_until = ports.clock.now() + CHECKPOINT_KEPT
    _patiently(
        ports,
        lambda: ports.ledger.save(
            claimed.execution.id, made, token=claimed.token, kept_until=kept_until
        ),
    )


def state(ports: Ports, claimed: Claimed) -> str | None:
    """The JSON text of the last checkpoint of an earlier try."""
    if not claimed.execution.attempts:
        # Nobody can have made one: what fell silent, too, is among the tries.
        return None
    return _patiently(ports, lambda: ports.ledger.saved(claimed.execution.id))


def recall(ports: Ports, claimed: Claimed, key: str) -> str | None:
    """What came of a step, as JSON text, if it was done before."""
    return _patiently(ports, lambda: ports.ledger.recorded(_step(claimed, key)))


def record(ports: Ports, claimed: Claimed, key: str, result: str) -> str:
    """Keep what came of a step; the answer is what is kept, which another may have been first to.

    Whoever lost the claim may record: what its step did, it did, and the next try had better
    know. After a crash before it, the step is done again.
    """
    kept_until = ports.clock.now() + LEDGER_KEPT
    return _patiently(
        ports, lambda: ports.ledger.record(_step(claimed, key), result, kept_until=kept_until)
    )


def complete(ports: Ports, claimed: Claimed, writes: Sequence[OwnWrite], *, result: str) -> None:
    """Make a handler's own writes, and its execution SUCCEEDED, in one transaction.

    Afterwards `execute.conclude` writes no outcome any more. After a crash, or Unavailable,
    either both are so or neither; the message that comes back finds out. Raises LostClaim,
    and as `Ledger.complete`.
    """
    if claimed.completion.row is not None:
        raise Permanent("complete_with: the execution is complete")
    after = finished(
        claimed.execution,
        Succeeded(result=result, version=claimed.version),
        policy=claimed.spec.retry,
        now=ports.clock.now(),
        jitter=ports.chance.jitter(),
    )
    # The same for each try: one that took effect unseen is then known by it.
    call = ports.chance.token()
    claimed.completion.row = _patiently(
        ports,
        lambda: ports.ledger.complete(after, token=claimed.token, writes=writes, call=call),
    )


def _step(claimed: Claimed, key: str) -> Step:
    execution = claimed.execution
    return Step(owner=execution.owner, idempotent_as=execution.idempotency_key, key=key)


def _patiently(ports: Ports, do: Callable[[], R]) -> R:
    """What `do` returns, tried again while a service does not answer."""
    for _ in range(_TRIES - 1):
        try:
            return do()
        except Contended:
            # It was patient itself.
            raise
        except Unavailable:
            ports.clock.sleep(_BETWEEN_TRIES)
    return do()
