"""What went wrong with a call, as it is kept and shown: class and message, bounded, no payload."""

import os
import re
from datetime import timedelta
from traceback import TracebackException
from typing import get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from pydantic_core.core_schema import ErrorType

from lamplighter.core.errors import Permanent, RateLimited, Unavailable
from lamplighter.core.limits import ERROR_MESSAGE_MAX_CHARS, RETRY_NAME_MAX_CHARS
from lamplighter.core.retry import Failure, Kind
from lamplighter.tasks.masking import known_secrets, shortened

# Of pydantic's own words only those are kept that name fields and types. A payload's validators,
# and errors of a type of their own, quote what they like; the last quotes what it was given.
_ITS_WORDS = frozenset(get_args(ErrorType)) - {
    "value_error",
    "assertion_error",
    "union_tag_invalid",
}
# Names of fields. A key of a dictionary is the payload's own, and may be an address.
_NAME = re.compile(r"[\w-]{1,64}")
_SHOWN_PROBLEMS = 5


def failure(
    kind: Kind,
    name: str,
    message: str,
    *,
    retry_after: timedelta | None = None,
    payload: str = "null",
) -> Failure:
    """A failure whose message is masked and cut; of `payload` nothing that it must not show."""
    return Failure(
        kind=kind,
        type=_text(name)[:RETRY_NAME_MAX_CHARS],
        message=shortened(
            _text(message), ERROR_MESSAGE_MAX_CHARS, known=known_secrets(payload, os.environ)
        ),
        retry_after=retry_after,
    )


def failure_of(error: BaseException, *, payload: str = "null") -> Failure:
    """What an exception of a handler means: whatever does not say so is worth another try."""
    kind, retry_after = _meaning(error)
    return failure(
        kind, type(error).__name__, _message(error), retry_after=retry_after, payload=payload
    )


def _message(error: BaseException) -> str:
    if isinstance(error, ValidationError):
        # Its own text quotes whatever it was given.
        return f"{error.title}: {_problems(error)}"
    # Survives an exception whose own __str__ raises.
    return str(TracebackException(type(error), error, None))


def _text(words: str) -> str:
    """Without halves of characters, such as a file's name may have: nothing can store them."""
    return words.encode(errors="replace").decode()


def names_of(error: BaseException) -> tuple[str, ...]:
    """What a retry policy may call an error: its class and that one's bases, the nearest first.

    None of an error of ours, which says nothing of the task: a service did not answer.
    """
    if isinstance(error, Unavailable):
        return ()
    return tuple(kind.__name__ for kind in type(error).__mro__ if kind is not object)


def invalid_payload(error: ValidationError) -> Failure:
    """A payload that is not of its task's type: trying again cannot help."""
    return failure(Kind.PERMANENT, "InvalidPayload", _problems(error))


def _problems(error: ValidationError) -> str:
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(_told(problem) for problem in problems[:_SHOWN_PROBLEMS])


def _meaning(error: BaseException) -> tuple[Kind, timedelta | None]:
    match error:
        case Permanent():
            return Kind.PERMANENT, None
        case RateLimited(retry_after=retry_after):
            return Kind.RATE_LIMITED, retry_after
        case _:
            return Kind.RETRYABLE, None


def _told(problem: ErrorDetails) -> str:
    where = ".".join(map(_shown, problem["loc"])) or "payload"
    is_its_own = problem["type"] in _ITS_WORDS
    return f"{where}: {problem['msg'] if is_its_own else 'refused by its validator'}"


def _shown(place: int | str) -> str:
    return str(place) if isinstance(place, int) or _NAME.fullmatch(place) else "…"
