"""The errors, as a tree of what the caller should do about them.

LamplighterError
├── Rejected            their request is wrong: tell them which field and value (4xx)
├── NotFound            there is no such thing, or it is somebody else's (404)
├── Conflict            their request is fine, the state is against it (409)
│   ├── KeyReused       an idempotency key came back with another body (422)
│   └── WrongVersion    the job is not at the version that the request names (412)
├── OverQuota           their owner has as much as is allowed: tell them of what, and when to
│                       try again (429)
├── Race                somebody else was first: drop what you hold, count it
│   ├── LostClaim       the token no longer owns the execution
│   ├── LostLease       the epoch no longer owns the partition
│   ├── VersionMoved    the job was edited since it was read: read it and decide again
│   ├── ChainMoved      another execution has joined the job's chain there: look and join again
│   └── IllegalTransition
├── Unavailable         a service did not answer, or the write's fate is unknown: try again
│   ├── Unreadable      a stored definition means nothing to this release: until it is edited
│   ├── Damaged         what is stored is not what was written: until it is mended (500)
│   └── Contended       others wrote the same thing for as long as we tried (409)
└── TaskError           raised by a task's handler to say what its failure means
    ├── Permanent       never retried, whatever the job's policy has in its lists
    │   └── WritesRefused   `ctx.complete_with` wrote nothing: a condition of the handler's own
    │                       does not hold, a WriteRefusal for each
    ├── Retryable       retried by the job's policy; so is any other exception
    └── RateLimited     retried no earlier than the other side asked

Anything else is a bug and is not caught.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

_SHOWN_CHARS = 80
_JSON_WORDS = {None: "null", True: "true", False: "false"}
_YEAR_S = 366 * 86_400.0


def shown(value: object) -> str:
    """A value as an error message may quote it: `repr`, cut to 80 characters."""
    text = _JSON_WORDS.get(value, repr(value)) if isinstance(value, bool | None) else repr(value)
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 1] + "…"


class LamplighterError(Exception):
    """The root; never raised itself."""


class Rejected(LamplighterError):
    """A request that cannot be accepted as it is, with the field and the value at fault."""

    def __init__(self, *, field: str, value: object, reason: str) -> None:
        super().__init__(f"{field}: {reason} (got {shown(value)})")
        self.field = field
        self.value = value
        self.reason = reason


class NotFound(LamplighterError):
    """No such thing for this owner; somebody else's looks exactly the same."""

    def __init__(self, *, kind: str, id: str) -> None:
        super().__init__(f"no {kind} {shown(id)}")
        self.kind = kind
        self.id = id


class Conflict(LamplighterError):
    """The request meets a state that does not allow it; `reason` says which."""

    def __init__(self, *, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class KeyReused(Conflict):
    """An idempotency key came back with another body."""


class WrongVersion(Conflict):
    """The request is about another version of the job than there is; `version` is this one."""

    def __init__(self, *, version: int) -> None:
        super().__init__(reason=f"the job is at version {version}")
        self.version = version


class OverQuota(LamplighterError):
    """More than the owner may have or ask for; nothing was made."""

    def __init__(
        self, *, quota: str, limit: float, used: float, reason: str, retry_after: timedelta
    ) -> None:
        super().__init__(f"{quota}: {reason}")
        self.quota = quota
        self.limit = limit
        self.used = used
        self.retry_after = retry_after
        """No sooner is it of use to try again."""


class Race(LamplighterError):
    """Another caller was first; nothing was written."""


class LostClaim(Race):
    """The execution is no longer ours: its token has changed, or it has ended."""

    def __init__(self, execution_id: str) -> None:
        super().__init__(f"execution {execution_id} is no longer held by this token")
        self.execution_id = execution_id


class LostLease(Race):
    """The partition has gone to an owner with a higher epoch."""

    def __init__(self, *, partition: int, epoch: int) -> None:
        super().__init__(f"partition {partition} is no longer held at epoch {epoch}")
        self.partition = partition
        self.epoch = epoch


class VersionMoved(Race):
    """The job has another version than the one the decision was made on."""

    def __init__(self, *, job_id: str, version: int) -> None:
        super().__init__(f"job {job_id} is no longer at version {version}")
        self.job_id = job_id
        self.version = version


class ChainMoved(Race):
    """The end of the job's chain is not where it was read to be; nothing was written."""

    def __init__(self, *, job_id: str) -> None:
        super().__init__(f"the chain of job {job_id} has moved on")
        self.job_id = job_id


class IllegalTransition(Race):
    """The lifecycle has no such step; the row has moved on."""

    def __init__(self, *, state: str, event: str) -> None:
        super().__init__(f"{state} does not take {event}")
        self.state = state
        self.event = event


class Unavailable(LamplighterError):
    """A service did not answer; whether a write took effect is unknown until it is read."""


class Unreadable(Unavailable):
    """A definition that was accepted once cannot be read by this release."""


class Damaged(Unavailable):
    """What is stored cannot be read back; it is left as it is, for somebody to mend.

    The message names the item and the attribute, and quotes nothing of what is in it.
    """

    def __init__(
        self,
        *,
        kind: str,
        id: str,
        attribute: str | None = None,
        owner: str | None = None,
        about: str | None = None,
    ) -> None:
        what = f"attribute {attribute}" if attribute else "what its attributes say together"
        super().__init__(f"{kind} {id} cannot be read back: {what} is not as it was written")
        self.kind = kind
        self.id = id
        """An execution's or a job's; of what has none, both of its keys."""
        self.attribute = attribute
        """By the name that it is stored under, one inside another after a dot."""
        self.owner = owner
        """Where that can still be told."""
        self.about = about
        """The execution, or of a watch the job, that it is about, where that can be told."""


class Contended(Unavailable):
    """Another write to the same thing was under way each time; nothing was written."""


class TaskError(Exception):
    """What a handler raises to classify its own failure."""


class Permanent(TaskError):
    """Trying again cannot help: the execution ends FAILED at once."""


@dataclass(frozen=True, kw_only=True)
class WriteRefusal:
    """Why one of a handler's own writes stood in the way of all."""

    index: int
    """Its place among the items, from 0."""
    code: str
    """DynamoDB's, such as `ConditionalCheckFailed`."""
    message: str = ""


class WritesRefused(Permanent):
    """Nothing was written, and the execution goes on: the handler may do something else.

    A handler that lets it pass fails for good: asked again, the condition would not hold either.
    """

    def __init__(self, refusals: Sequence[WriteRefusal]) -> None:
        told = ", ".join(f"item {one.index}: {one.code} {one.message}".rstrip() for one in refusals)
        super().__init__(f"complete_with wrote nothing: {told}")
        self.refusals = tuple(refusals)


class Retryable(TaskError):
    """Trying again may help: the retry policy decides."""


class RateLimited(TaskError):
    """The other side asked us to wait; the retry comes no earlier than that.

    `retry_after` is a duration, or seconds as a `Retry-After` header gives them: what is not a
    number of seconds up to a year counts as the nearest one that is.
    """

    def __init__(self, message: str = "rate limited", *, retry_after: timedelta | float) -> None:
        super().__init__(message)
        if not isinstance(retry_after, timedelta):
            # In this order, so that a NaN, which compares false with everything, is no wait.
            retry_after = timedelta(seconds=min(max(0.0, retry_after), _YEAR_S))
        self.retry_after = retry_after
