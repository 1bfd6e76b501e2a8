"""Named targets: what of AWS a job may have called in place of a task, by its name alone.

Where a name leads, and for whom, a deployment says (`Directory`). What came of a call is an
`Answer`; what it means for the try is said here, in one place for all kinds.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Final, assert_never

from lamplighter.core import limits
from lamplighter.core.errors import Rejected
from lamplighter.core.retry import Failure, Kind
from lamplighter.core.targets import EVERYONE

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", re.ASCII)
_AT: Final = "at"
_SOURCE: Final = "source"
_DETAIL_TYPE: Final = "detail_type"
_FIELDS: Final = frozenset({"kind", "owners", _AT, _SOURCE, _DETAIL_TYPE})
# Of a name that is not in the directory, or not for this owner: the same, told to nobody apart.
_UNKNOWN: Final = "UnknownTarget"
NO_ANSWER: Final = "NoAnswer"
FUNCTION_ERROR: Final = "FunctionError"

_ASKED_TO_WAIT: Final = frozenset(
    {
        "EC2ThrottledException",
        "ExecutionLimitExceeded",
        "KMSThrottling",
        "KMSThrottlingException",
        "KmsThrottled",
        "KmsThrottlingException",
        "OverLimit",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "SlowDown",
        "Throttled",
        "ThrottledException",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    }
)
_TRY_AGAIN: Final = frozenset(
    {
        "CodeArtifactUserPendingException",
        "EFSIOException",
        "InternalError",
        "InternalException",
        "InternalFailure",
        "PriorRequestNotComplete",
        "RequestTimeout",
        "RequestTimeoutException",
        "ResourceConflictException",
        "ServiceQuotaExceededException",
        "ServiceUnavailable",
        "SnapStartNotReadyException",
        # Of a host that slept through the life of its credentials; they are new by then.
        "ExpiredToken",
        "ExpiredTokenException",
        "RequestExpired",
    }
)


class TargetKind(StrEnum):
    """What a name stands for."""

    LAMBDA = "lambda"
    SQS = "sqs"
    SNS = "sns"
    EVENTBRIDGE = "eventbridge"
    STEPFUNCTIONS = "stepfunctions"


class Invocation(StrEnum):
    """How a function is called."""

    REQUEST = "request"
    """Its answer is waited for, and is the result."""
    EVENT = "event"
    """It is taken by Lambda's own queue; what becomes of it there, nobody here learns."""


@dataclass(frozen=True, kw_only=True)
class NamedTarget:
    """What a job calls, as it says it. Raises Rejected for what can be the name of none."""

    kind: TargetKind
    name: str
    invocation: Invocation = Invocation.REQUEST
    """Of a function; of all else it says nothing."""

    def __post_init__(self) -> None:
        if not is_name(self.name):
            reason = "not 1-64 of A-Z, a-z, 0-9, - and _, the first a letter or a digit"
            raise Rejected(field="target.name", value=self.name, reason=reason)
        if self.invocation is not Invocation.REQUEST and self.kind is not TargetKind.LAMBDA:
            raise ValueError(f"an invocation of a {self.kind}")

    @property
    def task_name(self) -> str:
        """What stands for a task's name in lists, filters and metrics: `sqs:` and the name."""
        return f"{self.kind}:{self.name}"

    @property
    def payload_max_bytes(self) -> int:
        """What its service takes, less what is sent beside the payload."""
        match self.kind:
            case TargetKind.LAMBDA if self.invocation is Invocation.EVENT:
                return limits.LAMBDA_EVENT_MAX_BYTES
            case TargetKind.LAMBDA:
                return limits.LAMBDA_REQUEST_MAX_BYTES
            case TargetKind.SQS:
                return limits.SQS_MESSAGE_MAX_BYTES - limits.TARGET_BESIDE_BYTES
            case TargetKind.SNS:
                return limits.SNS_MESSAGE_MAX_BYTES - limits.TARGET_BESIDE_BYTES
            case TargetKind.EVENTBRIDGE:
                return limits.EVENTBRIDGE_ENTRY_MAX_BYTES - limits.TARGET_BESIDE_BYTES
            case TargetKind.STEPFUNCTIONS:
                return limits.STEPFUNCTIONS_INPUT_MAX_BYTES
            case other:
                assert_never(other)

    def check_payload(self, size: int) -> None:
        """Raises Rejected for a payload of more bytes than its service takes."""
        if size > self.payload_max_bytes:
            raise Rejected(
                field="payload",
                value=f"{size} bytes",
                reason=f"larger than the {self.payload_max_bytes} bytes that a target of kind "
                f"{self.kind} takes",
            )


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What a deployment says of one name. Raises ValueError, with name and value."""

    name: str
    kind: TargetKind
    owners: frozenset[str]
    """Whose jobs may call it; with `*` among them: everybody's."""
    at: str = ""
    """The ARN; of a queue its URL. Empty for the API, which calls nothing."""
    source: str = ""
    detail_type: str = ""
    """Both of an event, on a bus."""

    def __post_init__(self) -> None:
        if not is_name(self.name):
            raise ValueError(
                f"target {self.name!r}: its name is not 1-64 of A-Z, a-z, 0-9, - and _, the "
                "first a letter or a digit"
            )
        if not self.owners or any(owner != owner.strip() or not owner for owner in self.owners):
            raise ValueError(f"target {self.name!r}: owners {sorted(self.owners)}: at least one")
        self._check_event()

    def _check_event(self) -> None:
        """Events alone have a source and a type: PutEvents, API reference."""
        for name, text, most in (
            (_SOURCE, self.source, 256),
            (_DETAIL_TYPE, self.detail_type, 128),
        ):
            if text and self.kind is not TargetKind.EVENTBRIDGE:
                raise ValueError(f"target {self.name!r}: {name} {text!r} of a {self.kind}")
            if len(text) > most:
                raise ValueError(f"target {self.name!r}: {name} is longer than {most} characters")
        if self.source.startswith("aws."):
            raise ValueError(f"target {self.name!r}: source {self.source!r}: aws. is AWS's own")

    def is_for(self, owner: str) -> bool:
        return not self.owners.isdisjoint({owner, EVERYONE})

    def to_values(self, *, with_place: bool) -> Mapping[str, object]:
        """As `Directory.from_json` reads it; without its place, as the API is told."""
        place = {_AT: self.at, _SOURCE: self.source, _DETAIL_TYPE: self.detail_type}
        said = {name: value for name, value in place.items() if value and with_place}
        return {"kind": self.kind.value, "owners": sorted(self.owners), **said}


@dataclass(frozen=True, kw_only=True)
class Directory:
    """The names of a deployment. What is not in it, or not for an owner, is called by nobody."""

    entries: Mapping[str, Entry] = field(default_factory=dict)

    @classmethod
    def of(cls, *entries: Entry) -> "Directory":
        """Raises ValueError for a name that is there twice, whatever it is the name of."""
        by_name = {entry.name: entry for entry in entries}
        if len(by_name) != len(entries):
            raise ValueError(f"targets {[entry.name for entry in entries]}: each name once")
        return cls(entries=MappingProxyType(by_name))

    @classmethod
    def from_json(cls, text: str) -> "Directory":
        """`{"billing": {"kind": "lambda", "owners": ["acme"], "at": "arn:…"}}`.

        Raises ValueError for what is none.
        """
        said = json.loads(text)
        if not isinstance(said, dict):
            raise ValueError(f"{said!r} is not a JSON object")  # noqa: TRY004 -- one kind of error
        return cls.of(*(_entry(name, values) for name, values in said.items()))

    def find(self, target: NamedTarget, *, owner: str) -> Entry | None:
        """Where the name leads; None, too, where it leads somewhere that is not for this owner."""
        entry = self.entries.get(target.name)
        is_it = entry is not None and entry.kind is target.kind and entry.is_for(owner)
        return entry if is_it else None

    def check(self, target: NamedTarget, *, owner: str) -> None:
        """Raises Rejected; what others may call is then the same to an owner as what is not."""
        if self.find(target, owner=owner) is None:
            theirs = sorted(name for name, entry in self.entries.items() if entry.is_for(owner))
            known = f"there are: {', '.join(theirs)}" if theirs else "there is none"
            reason = f"no target of kind {target.kind} that this owner may call; {known}"
            raise Rejected(field="target.name", value=target.name, reason=reason)


NO_TARGETS: Final = Directory()
"""Of a deployment that names none."""


@dataclass(frozen=True, kw_only=True)
class Accepted:
    """The target has done it, or has taken it for good."""

    result: object
    """As JSON has it; of a function, what it returned."""


@dataclass(frozen=True, kw_only=True)
class FunctionFailed:
    """The function was called, and raised."""

    type: str
    message: str


@dataclass(frozen=True, kw_only=True)
class TurnedDown:
    """The service refused the call, or the entry: the target has done nothing."""

    code: str
    status: int = 400
    retry_after: timedelta | None = None


@dataclass(frozen=True, kw_only=True)
class Unanswered:
    """Nothing was heard in time: whether the target was called is unknown."""

    reason: str


Answer = Accepted | FunctionFailed | TurnedDown | Unanswered


def kind_of(turned: TurnedDown) -> Kind:
    """What a refusal means: whatever is not known to pass ends the execution."""
    if "AccessDenied" in turned.code:
        # Of a function's own key it comes as a 502.
        return Kind.PERMANENT
    if turned.code in _ASKED_TO_WAIT or turned.status == 429:
        return Kind.RATE_LIMITED
    if turned.code in _TRY_AGAIN or turned.status >= 500 or turned.status == 408:
        return Kind.RETRYABLE
    return Kind.PERMANENT


def failure_of(target: NamedTarget, answer: TurnedDown | Unanswered) -> Failure:
    """What a call that failed says of the try, in words that name no resource.

    Of the service's own words only its code: the rest has ARNs in it.
    """
    if isinstance(answer, Unanswered):
        told = f"{answer.reason}; whether it was called is unknown"
        message = f"{target.task_name} did not answer: {told}"
        return Failure(kind=Kind.RETRYABLE, type=NO_ANSWER, message=message)
    return Failure(
        kind=kind_of(answer),
        type=answer.code[: limits.RETRY_NAME_MAX_CHARS],
        message=f"{target.task_name} refused: {answer.code}",
        retry_after=answer.retry_after,
    )


def unknown(target: NamedTarget) -> Failure:
    """Of a name that this worker does not know: another, of a newer deployment, may."""
    told = f"no target {target.task_name} here that this owner may call"
    return Failure(kind=Kind.RETRYABLE, type=_UNKNOWN, message=told)


def is_name(text: str) -> bool:
    """Whether a target can have this name."""
    return _NAME.fullmatch(text) is not None


def _entry(name: str, values: object) -> Entry:
    if not isinstance(values, dict):
        raise ValueError(f"target {name!r}: {values!r} is not a JSON object")  # noqa: TRY004
    if unknown := values.keys() - _FIELDS:
        raise ValueError(f"target {name!r}: unknown {', '.join(sorted(unknown))}")
    texts = {one: values.get(one, "") for one in (_AT, _SOURCE, _DETAIL_TYPE)}
    if wrong := [one for one, text in texts.items() if not isinstance(text, str)]:
        raise ValueError(f"target {name!r}: {wrong[0]} {texts[wrong[0]]!r} is not text")
    return Entry(
        name=name,
        kind=kind_named(name, values.get("kind")),
        owners=owners_named(name, values.get("owners")),
        **texts,
    )


def kind_named(name: str, said: object) -> TargetKind:
    """Raises ValueError for what is no kind."""
    if said not in [*TargetKind]:
        raise ValueError(f"target {name!r}: kind {said!r} is not one of {', '.join(TargetKind)}")
    return TargetKind(str(said))


def owners_named(name: str, said: object) -> frozenset[str]:
    """Raises ValueError for what is no list of names."""
    if not isinstance(said, Sequence) or isinstance(said, str):
        raise ValueError(f"target {name!r}: owners {said!r} is not a list of names")  # noqa: TRY004
    if not all(isinstance(owner, str) for owner in said):
        raise ValueError(f"target {name!r}: owners {said!r}: not all of them text")
    return frozenset(said)
