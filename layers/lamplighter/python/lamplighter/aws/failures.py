"""What AWS's errors mean to us: no botocore error leaves `lamplighter.aws`.

Unavailable      it did not answer, or asks us to slow down: try again
└── Contended    a transaction was under way on the same item
ConditionUnmet   a conditional write that wrote nothing
Cancelled        a transaction that wrote nothing
CallRefused      wrong in itself: a permission, a name, a bug; not caught by anyone
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from botocore.exceptions import (
    ClientError,
    HTTPClientError,
    IncompleteReadError,
)
from botocore.exceptions import (
    ConnectionError as NoConnection,
)
from botocore.parsers import ResponseParserError

from lamplighter.core.errors import Contended, Unavailable

AttributeValues = Mapping[str, Any]
"""An item as the client takes and gives it: name → {type: value}."""

_CONDITION_UNMET: Final = "ConditionalCheckFailedException"
_CANCELLED: Final = "TransactionCanceledException"
_CONTENDED: Final = frozenset({"TransactionConflictException", "TransactionInProgressException"})
_SLOW_DOWN: Final = frozenset(
    {
        "InternalFailure",
        "InternalServerError",
        "OverLimit",
        "PriorRequestNotComplete",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "RequestTimeout",
        "RequestTimeoutException",
        "ServiceUnavailable",
        "SlowDown",
        "ThrottledException",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    }
)
_NO_ANSWER: Final = (HTTPClientError, NoConnection, IncompleteReadError, ResponseParserError)


class ConditionUnmet(Exception):
    """A conditional write found something else and wrote nothing."""

    def __init__(self, found: AttributeValues | None) -> None:
        super().__init__("condition not met")
        self.found = found
        """The item as it was; None when there is none."""


class Cancelled(Exception):
    """A transaction wrote nothing; one reason for each of its writes, in their order."""

    def __init__(self, reasons: Sequence["Reason"]) -> None:
        super().__init__(", ".join(reason.code for reason in reasons))
        self.reasons = reasons


@dataclass(frozen=True, kw_only=True)
class Reason:
    """Why one write of a transaction stood in its way, if it did."""

    code: str
    found: AttributeValues | None
    message: str = ""

    @property
    def is_unmet(self) -> bool:
        """Whether its own condition did not hold."""
        return self.code == "ConditionalCheckFailed"


class CallRefused(RuntimeError):
    """AWS will not do this however often it is asked: a permission, a name or a bug."""


@contextmanager
def translated(call: str) -> Iterator[None]:
    """Raise what is listed above instead of botocore's errors; `call` names it in messages."""
    try:
        yield
    except ClientError as error:
        raise _meaning_of(call, error) from error
    except _NO_ANSWER as error:
        raise Unavailable(f"{call}: {type(error).__name__}") from error


def code_of(error: ClientError) -> str:
    """The error's code, without the family that SQS puts before it."""
    code: str = error.response.get("Error", {}).get("Code", "")
    return code.rpartition(".")[2]


def _meaning_of(call: str, error: ClientError) -> Exception:
    code = code_of(error)
    if code == _CONDITION_UNMET:
        return ConditionUnmet(_raw(error).get("Item") or None)
    if code == _CANCELLED:
        return Cancelled([_reason(raw) for raw in _raw(error).get("CancellationReasons", [])])
    if code in _CONTENDED:
        return Contended(f"{call}: {code}")
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code in _SLOW_DOWN or status >= 500 or status == 429:
        return Unavailable(f"{call}: {code}")
    return CallRefused(f"{call}: {error}")


def _reason(raw: Mapping[str, Any]) -> Reason:
    return Reason(
        code=raw.get("Code") or "None",
        found=raw.get("Item") or None,
        message=raw.get("Message") or "",
    )


def _raw(error: ClientError) -> Mapping[str, Any]:
    # What an operation adds to its error is not in botocore's type of it.
    response: Mapping[str, Any] = error.response
    return response
