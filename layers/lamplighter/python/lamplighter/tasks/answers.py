"""The worker's answers to what a handler's context asks."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict

from lamplighter.core.errors import Permanent, Retryable, WritesRefused
from lamplighter.core.limits import (
    CHECKPOINT_MAX_BYTES,
    COMPLETION_MAX_BYTES,
    LEDGER_RESULT_MAX_BYTES,
    RESULT_MAX_BYTES,
)
from lamplighter.ports import Checkpoint, Ports
from lamplighter.services import ledger
from lamplighter.services.execute import Claimed
from lamplighter.tasks import asked


class ContextAnswers:
    """`calls.Answers` over the ports.

    An isolated handler may send what it likes, so whatever comes is checked here again.
    """

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._by_name: Mapping[str, Callable[[Claimed, str], str]] = {
            asked.STATE: self._state,
            asked.CHECKPOINT: self._checkpoint,
            asked.RECALL: self._recall,
            asked.RECORD: self._record,
            asked.COMPLETE: self._complete,
            asked.DEFER: self._defer,
        }

    def __call__(self, claimed: Claimed, name: str, argument: str) -> str:
        answer = self._by_name.get(name)
        if answer is None:
            raise Permanent(f"no such call: {name[:40]!r}")
        try:
            return answer(claimed, argument)
        except (ValueError, RecursionError) as error:
            raise Permanent(f"{name}: not what a context asks: {type(error).__name__}") from error

    def _state(self, claimed: Claimed, _: str) -> str:
        return ledger.state(self._ports, claimed) or asked.NOTHING

    def _checkpoint(self, claimed: Claimed, argument: str) -> str:
        saving = asked.SAVING.validate_json(argument)
        _check(saving.state, CHECKPOINT_MAX_BYTES)
        made = Checkpoint(text=saving.state, number=saving.number)
        ledger.checkpoint(self._ports, claimed, made)
        return asked.NOTHING

    def _recall(self, claimed: Claimed, argument: str) -> str:
        recalling = asked.RECALLING.validate_json(argument)
        asked.check_key(recalling.key)
        return json.dumps(ledger.recall(self._ports, claimed, recalling.key))

    def _record(self, claimed: Claimed, argument: str) -> str:
        recording = asked.RECORDING.validate_json(argument)
        asked.check_key(recording.key)
        _check(recording.result, LEDGER_RESULT_MAX_BYTES)
        kept = ledger.record(self._ports, claimed, recording.key, recording.result)
        return json.dumps(kept)

    def _defer(self, claimed: Claimed, _: str) -> str:
        return json.dumps(claimed.tell())

    def _complete(self, claimed: Claimed, argument: str) -> str:
        if len(argument) > COMPLETION_MAX_BYTES:
            raise Permanent(f"complete_with: {len(argument)} bytes")
        completing = asked.completing_from(argument)
        _check(completing.result, RESULT_MAX_BYTES)
        refused: list[dict[str, object]] = []
        later = None
        try:
            ledger.complete(self._ports, claimed, completing.writes, result=completing.result)
        except WritesRefused as error:
            refused = [asdict(one) for one in error.refusals]
        except Retryable as error:
            later = str(error)
        return json.dumps({"refused": refused, "later": later})


def _check(text: str, most: int) -> None:
    """Refuse what is not JSON, or too long."""
    json.loads(text)
    if len(text.encode()) > most:
        raise ValueError(f"{len(text)} characters")
