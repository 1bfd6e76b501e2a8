"""Problems: every answer that is not what was asked for, as RFC 9457 has it."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from types import MappingProxyType
from typing import Final, assert_never, cast, get_args

from lamplighter.api import documents
from lamplighter.core.errors import (
    Conflict,
    Contended,
    Damaged,
    KeyReused,
    LamplighterError,
    NotFound,
    OverQuota,
    Race,
    Rejected,
    Unavailable,
    WrongVersion,
    shown,
)

CONTENT_TYPE: Final = "application/problem+json"
_SHORT_CHARS: Final = 80
_SOON: Final = MappingProxyType({"Retry-After": "1"})
_EXACT: Final = 2**53  # an integer up to here is the same in every reader


@dataclass(frozen=True, kw_only=True)
class Problem:
    """An answer that is not what was asked for."""

    status: HTTPStatus
    detail: str
    type: str = "about:blank"
    title: str | None = None
    errors: Sequence[Rejected] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    quota: OverQuota | None = None

    def document(self) -> dict[str, object]:
        """The problem as JSON."""
        errors = [
            {"field": brief(fault.field), "value": _value(fault.value), "reason": fault.reason}
            for fault in self.errors
        ]
        return {
            "type": self.type,
            "title": self.title or self.status.phrase,
            "status": int(self.status),
            "detail": self.detail,
            **({"errors": errors} if errors else {}),
            **({"quota": _quota(self.quota)} if self.quota else {}),
        }


class Refusal(Exception):
    """A request that is refused for what only HTTP knows: its path, headers, or token."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem


class Faults(LamplighterError):
    """A request with several fields at fault."""

    def __init__(self, faults: Sequence[Rejected]) -> None:
        super().__init__("; ".join(str(fault) for fault in faults))
        self.faults = faults


Answered = Rejected | Faults | NotFound | Conflict | OverQuota | Race | Unavailable
"""The errors that are an answer; any other is a bug."""


_UNANSWERED: Final = Problem(
    status=HTTPStatus.SERVICE_UNAVAILABLE,
    detail="A service did not answer; whether the request took effect is unknown. "
    "Try again, with the same Idempotency-Key if it creates something.",
    headers=_SOON,
)


def problem_of(error: Answered) -> Problem:
    """What an error means for the caller."""
    match error:
        case Rejected() | Faults():
            return _invalid([error] if isinstance(error, Rejected) else error.faults)
        case NotFound():
            return Problem(status=HTTPStatus.NOT_FOUND, detail=str(error))
        case Conflict():
            return _against_the_state(error)
        case OverQuota():
            return _over_quota(error)
        case Race() | Contended():
            return Problem(
                status=HTTPStatus.CONFLICT,
                detail="Others are changing the same thing; nothing was written. Try again.",
                headers=_SOON,
            )
        case Unavailable():
            return _damaged(error) if isinstance(error, Damaged) else _UNANSWERED
        case other:
            assert_never(other)


def _damaged(error: Damaged) -> Problem:
    return Problem(
        status=HTTPStatus.INTERNAL_SERVER_ERROR,
        type="urn:lamplighter:problem:damaged-record",
        title="Damaged record",
        detail=f"What is stored of {error.kind} {brief(error.id)} cannot be read back. It was left "
        "as it is, and those who operate this were told: once it is mended, it goes on.",
    )


def _over_quota(over: OverQuota) -> Problem:
    seconds = max(1, math.ceil(over.retry_after.total_seconds()))
    return Problem(
        status=HTTPStatus.TOO_MANY_REQUESTS,
        type="urn:lamplighter:problem:quota-exceeded",
        title="Quota exceeded",
        detail=str(over),
        headers={"Retry-After": str(seconds)},
        quota=over,
    )


def _quota(over: OverQuota) -> documents.QuotaExceeded:
    return {"name": over.quota, "limit": over.limit, "used": over.used}


def _against_the_state(error: Conflict) -> Problem:
    match error:
        case KeyReused(reason=reason):
            return Problem(
                status=HTTPStatus.UNPROCESSABLE_ENTITY,
                type="urn:lamplighter:problem:idempotency-key-reused",
                title="Idempotency key reused",
                detail=reason,
            )
        case WrongVersion(version=version):
            return Problem(
                status=HTTPStatus.PRECONDITION_FAILED,
                type="urn:lamplighter:problem:version-mismatch",
                title="Another version",
                detail=str(error),
                headers={"ETag": etag(version)},
            )
        case _:
            return Problem(status=HTTPStatus.CONFLICT, detail=str(error))


def told(error: Exception, report: Callable[[Exception], None]) -> Problem:
    """The problem of one of many: what it met ends no other. `report` as Api's."""
    if isinstance(error, Refusal):
        return error.problem
    is_answer = isinstance(error, get_args(Answered))
    if not is_answer or isinstance(error, Unavailable):
        report(error)
    return problem_of(cast("Answered", error)) if is_answer else bug()


def etag(version: int) -> str:
    """The header `ETag` of a job at this version: what `If-Match` names it by."""
    return f'"{version}"'


def bug() -> Problem:
    """What a caller is told of a fault of ours: nothing of the inside."""
    return Problem(
        status=HTTPStatus.INTERNAL_SERVER_ERROR, detail="A fault of ours, which was logged."
    )


def brief(text: str) -> str:
    """A short printable text as it is, any other as an error message quotes it."""
    return text if len(text) <= _SHORT_CHARS and text.isprintable() else shown(text)


def _invalid(faults: Sequence[Rejected]) -> Problem:
    is_cursor = [fault.field for fault in faults] == ["cursor"]
    return Problem(
        status=HTTPStatus.BAD_REQUEST,
        type=f"urn:lamplighter:problem:invalid-{'cursor' if is_cursor else 'request'}",
        title="Invalid cursor" if is_cursor else "Invalid request",
        detail="; ".join(_sentence(fault) for fault in faults),
        errors=faults,
    )


def _sentence(fault: Rejected) -> str:
    return f"{brief(fault.field)}: {fault.reason} (got {shown(fault.value)})"


def _value(value: object) -> object:
    """A value as JSON, if it is short and any reader reads the same; else as text, cut."""
    match value:
        case bool() | float() | None:
            return value
        case int() if abs(value) <= _EXACT:
            return value
        case str():
            return brief(value)
        case _:
            return shown(value)
