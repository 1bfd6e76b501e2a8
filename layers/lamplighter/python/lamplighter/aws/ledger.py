"""`ports.Ledger` on the executions table, and on whatever tables the users have."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from botocore.exceptions import ClientError, ParamValidationError

from lamplighter.aws import conditions, items
from lamplighter.aws.dynamo import Dynamo
from lamplighter.aws.failures import CallRefused, Reason, code_of
from lamplighter.core import writes as own_writes
from lamplighter.core.buckets import ExecutionId, checkpoint_key, ledger_key
from lamplighter.core.errors import LostClaim, Permanent, Retryable, WriteRefusal, WritesRefused
from lamplighter.core.model import Execution, Token
from lamplighter.core.writes import OwnWrite
from lamplighter.ports import Checkpoint, Step

# What a deployment can put right, or a moment: a grant is not everywhere at once.
_NOT_YET: Final = frozenset({"AccessDeniedException", "ResourceNotFoundException"})
_NEVER: Final = frozenset({"ValidationException"})


class DynamoLedger:
    """Checkpoints and results are items beside the rows; their own writes go where they say."""

    def __init__(self, dynamo: Dynamo, *, table: str, others: Sequence[str]) -> None:
        """`others` are Lamplighter's too: no handler writes there."""
        self._dynamo = dynamo
        self._table = table
        self._ours = {table, *others}

    def save(
        self, id: ExecutionId, checkpoint: Checkpoint, *, token: Token, kept_until: datetime
    ) -> None:
        unmet = self._dynamo.transact(
            [
                (self._table, conditions.holds(id, token)),
                (
                    self._table,
                    conditions.checkpoint(id, checkpoint, token=token, kept_until=kept_until),
                ),
            ]
        )
        if unmet is not None and unmet[0] is not None:
            raise LostClaim(id)

    def saved(self, id: ExecutionId) -> str | None:
        return self._text(checkpoint_key(id))

    def record(self, step: Step, result: str, *, kept_until: datetime) -> str:
        values = items.step_values(_key(step), result, kept_until)
        unmet = self._dynamo.put(self._table, conditions.made_once(values))
        if unmet is None or unmet.found is None:
            return result
        first: str = unmet.found[items.TEXT]
        return first

    def recorded(self, step: Step) -> str | None:
        return self._text(_key(step))

    def complete(
        self, after: Execution, *, token: Token, writes: Sequence[OwnWrite], call: str
    ) -> Execution:
        own_writes.check(writes)
        for write in writes:
            if own_writes.table_of(write) in self._ours:
                raise Permanent("complete_with: a table of Lamplighter's own")
        settle = conditions.settle(after, token=token)
        try:
            reasons = self._dynamo.transact_with((self._table, settle), writes, call=call)
        except ParamValidationError as error:
            raise Permanent(f"complete_with: {error}") from error
        except CallRefused as refused:
            raise _meaning_of(refused) from refused
        if reasons is not None:
            self._check(after, settle, reasons)
        return self._written(after)

    def _check(
        self, after: Execution, settle: conditions.Update, reasons: Sequence[Reason]
    ) -> None:
        """Raise what the reasons mean; nothing, when an earlier try of the call took effect."""
        ours, *theirs = reasons
        if ours.is_unmet:
            if settle.was_made(ours.found and items.unmarshal(ours.found)):
                return
            raise LostClaim(after.id)
        raise WritesRefused(
            [
                WriteRefusal(index=index, code=reason.code, message=reason.message)
                for index, reason in enumerate(theirs)
                if reason.code != "None"
            ]
        )

    def _written(self, after: Execution) -> Execution:
        """With its waiters, and a cancel that was requested meanwhile."""
        values = self._dynamo.get(self._table, items.execution_key(after.id))
        return items.execution_from(values or items.execution_values(after))

    def _text(self, key: tuple[str, str]) -> str | None:
        values = self._dynamo.get(self._table, key)
        if values is None:
            return None
        text: str = values[items.TEXT]
        return text


def _key(step: Step) -> tuple[str, str]:
    return ledger_key(step.owner, step.idempotent_as, step.key)


def _meaning_of(refused: CallRefused) -> Exception:
    """What a request means to the handler that made a part of it, if it is about that part."""
    error = refused.__cause__
    code = code_of(error) if isinstance(error, ClientError) else ""
    if code in _NOT_YET:
        return Retryable(f"complete_with: {refused}")
    return Permanent(f"complete_with: {refused}") if code in _NEVER else refused
