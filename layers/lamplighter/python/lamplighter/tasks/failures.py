"""What went wrong with a call, as it is kept and shown: class and message, bounded, no payload."""

from datetime import timedelta
from traceback import TracebackException

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from lamplighter.core.errors import Permanent, RateLimited, Unavailable
from lamplighter.core.limits import ERROR_MESSAGE_MAX_CHARS
from lamplighter.core.retry import Failure, Kind
from lamplighter.tasks.masking import shortened

# Errors of a payload's own validators quote what they like; of the others only pydantic's words
# are kept, and those name fields and types.
_OWN_WORDS = frozenset({"value_error", "assertion_error"})
_SHOWN_PROBLEMS = 5


def failure(
    kind: Kind, name: str, message: str, *, retry_after: timedelta | None = None
) -> Failure:
    """A failure whose message is masked and cut."""
    return Failure(
        kind=kind,
        type=name,
        message=shortened(message, ERROR_MESSAGE_MAX_CHARS),
        retry_after=retry_after,
    )


def failure_of(error: BaseException) -> Failure:
    """What an exception of a handler means: whatever does not say so is worth another try."""
    kind, retry_after = _meaning(error)
    # Survives an exception whose own __str__ raises.
    message = str(TracebackException(type(error), error, None))
    return failure(kind, type(error).__name__, message, retry_after=retry_after)


def names_of(error: BaseException) -> tuple[str, ...]:
    """What a retry policy may call an error: its class and that one's bases, the nearest first.

    None of an error of ours, which says nothing of the task: a service did not answer.
    """
    if isinstance(error, Unavailable):
        return ()
    return tuple(kind.__name__ for kind in type(error).__mro__ if kind is not object)


def invalid_payload(error: ValidationError) -> Failure:
    """A payload that is not of its task's type: trying again cannot help."""
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    told = "; ".join(_told(problem) for problem in problems[:_SHOWN_PROBLEMS])
    return failure(Kind.PERMANENT, "InvalidPayload", told)


def _meaning(error: BaseException) -> tuple[Kind, timedelta | None]:
    match error:
        case Permanent():
            return Kind.PERMANENT, None
        case RateLimited(retry_after=retry_after):
            return Kind.RATE_LIMITED, retry_after
        case _:
            return Kind.RETRYABLE, None


def _told(problem: ErrorDetails) -> str:
    where = ".".join(map(str, problem["loc"])) or "payload"
    is_own = problem["type"] in _OWN_WORDS
    return f"{where}: {'refused by its validator' if is_own else problem['msg']}"
