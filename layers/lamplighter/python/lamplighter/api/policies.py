"""What becomes of occurrences that come late, meet each other or fail, by anybody's names."""

from collections.abc import Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Any, Final

from lamplighter.api.bodies import CATCH_UP, JobBody, RetryPolicyBody
from lamplighter.api.problems import Faults
from lamplighter.api.timing import REPEATED
from lamplighter.core.catch_up import CatchUp
from lamplighter.core.errors import Rejected
from lamplighter.core.model import MisfirePolicy, OnDeadline, OverlapPolicy
from lamplighter.core.retry import RetryPolicy

_SECOND: Final = timedelta(seconds=1)
_LISTS: Final = ("retry_on", "no_retry_on")
_MISFIRE_ALIASES: Final[Mapping[str, str]] = MappingProxyType(
    {
        **dict.fromkeys(("LATEST", "COALESCE", "RELAXED"), "FIRE_ONCE"),
        **dict.fromkeys(("NONE", "IGNORABLE"), "SKIP"),
        **dict.fromkeys(("EVERY", "STRICT"), "FIRE_ALL"),
    }
)
_OVERLAP_ALIASES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "ALLOW_ALL": "ALLOW",
        "FORBID": "SKIP",
        "QUEUE": "BUFFER_ALL",
        "REPLACE": "CANCEL_OTHER",
    }
)


def misfire_policy(text: str, *, field: str = "misfire_policy") -> MisfirePolicy:
    """The policy of that name, ours or another system's, in any case; else Rejected."""
    name = text.upper()
    try:
        return MisfirePolicy(_MISFIRE_ALIASES.get(name, name))
    except ValueError:
        reason = f"not one of {', '.join(MisfirePolicy)}"
        raise Rejected(field=field, value=text, reason=reason) from None


def on_deadline(text: str) -> OnDeadline:
    """What becomes of what is too late to start, in any case; else Rejected."""
    try:
        return OnDeadline(text.upper())
    except ValueError:
        reason = f"not one of {', '.join(OnDeadline)}"
        raise Rejected(field="on_deadline", value=text, reason=reason) from None


def overlap_policy(text: str) -> OverlapPolicy:
    """The policy of that name, ours or another system's, in any case; else Rejected."""
    name = text.upper()
    try:
        return OverlapPolicy(_OVERLAP_ALIASES.get(name, name))
    except ValueError:
        reason = f"not one of {', '.join(OverlapPolicy)}"
        raise Rejected(field="overlap_policy", value=text, reason=reason) from None


def misfire_of(body: JobBody) -> MisfirePolicy:
    """What becomes of occurrences that are missed, by either name of the field."""
    policy = misfire_policy(body.misfire_policy)
    if not body.said("catch_up_policy"):
        return policy
    same = misfire_policy(body.catch_up_policy, field="catch_up_policy")
    if body.said("misfire_policy") and same is not policy:
        reason = f"another name of misfire_policy, which says {policy}"
        raise Rejected(field="catch_up_policy", value=body.catch_up_policy, reason=reason)
    return same


def catch_up_of(body: JobBody) -> CatchUp:
    """The bounds of what is made up for; a one-off misses nothing."""
    said = body.said(*CATCH_UP)
    if said and not body.said("cron", "rate"):
        raise Faults([Rejected(field=one, value=said[one], reason=REPEATED) for one in said])
    return CatchUp(
        threshold=body.misfire_threshold_seconds * _SECOND,
        window=body.catchup_window_seconds * _SECOND,
        most=body.catchup_max,
        spread=body.catchup_spread_seconds * _SECOND,
    )


def overlap_of(body: JobBody) -> OverlapPolicy:
    """What becomes of occurrences that meet; a one-off meets nothing."""
    policy = overlap_policy(body.overlap_policy)
    if body.said("cron", "rate"):
        return policy
    if body.said("overlap_policy") and policy is not OverlapPolicy.ALLOW:
        raise Rejected(field="overlap_policy", value=body.overlap_policy, reason=REPEATED)
    return OverlapPolicy.ALLOW


def deadline_of(body: JobBody) -> timedelta | None:
    return body.deadline_seconds * _SECOND if body.said("deadline_seconds") else None


def retry_of(body: JobBody) -> RetryPolicy:
    said = body.retry_policy.said(*RetryPolicyBody.model_fields)
    lists: dict[str, Any] = {name: tuple(said[name]) for name in _LISTS if name in said}
    return RetryPolicy(**said | lists)
