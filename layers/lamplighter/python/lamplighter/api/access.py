"""What a token lets its bearer do: the scopes that it names, each route asking for one."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from typing import Final

from lamplighter.api.problems import Problem, Refusal
from lamplighter.api.requests import is_plain
from lamplighter.core.errors import shown
from lamplighter.core.limits import OWNER_MAX_CHARS
from lamplighter.core.model import Owner

# API Gateway hands a claim that is a list over as `[one two]`.
_SEPARATORS: Final = re.compile(r"[\s,\[\]]+")


class Scope(StrEnum):
    """What a token may be for; where nothing else is said, of its owner's own things."""

    JOBS_READ = "jobs:read"
    """See jobs and executions, and try schedules out."""
    JOBS_WRITE = "jobs:write"
    """Create, change and delete jobs."""
    OPS_REPLAY = "ops:replay"
    """Run again what has ended."""
    OPS_LIMITS = "ops:limits"
    """Limit what runs at once, of everybody's jobs."""
    ADMIN = "admin"
    """All of these."""


_OPERATORS: Final = (Scope.OPS_LIMITS, Scope.ADMIN)
"""To be named wherever they are needed: they are not about one owner's things."""


@dataclass(frozen=True, kw_only=True)
class Access:
    """Whom a token stands for, and what it lets them do.

    A token that names any of our scopes is held to them. One that names none may do nothing
    when scopes are required; else everything but what concerns other owners too.
    """

    owner_claim: str
    """The claim that names the owner of jobs."""
    requires_scopes: bool
    scope_prefix: str = ""
    """What stands before a scope's name in a token: `lamplighter/` for a resource server of
    that name in Cognito. Names without it are not ours."""

    def owner(self, claims: Mapping[str, object], *, needs: Scope) -> Owner:
        """Whose request it is; raises Refusal (403) for a token that is not good for it."""
        value = claims.get(self.owner_claim)
        if not (isinstance(value, str) and is_plain(value, OWNER_MAX_CHARS)):
            detail = f"The token's claim {self.owner_claim!r} names no owner (got {shown(value)})"
            raise Refusal(Problem(status=HTTPStatus.FORBIDDEN, detail=detail))
        if not self._allows(self._named(claims), needs):
            raise Refusal(_insufficient(f"{self.scope_prefix}{needs}"))
        return Owner(value)

    def _named(self, claims: Mapping[str, object]) -> frozenset[Scope]:
        # RFC 8693 has a `scope` of words; Okta and Entra ID have a list, `scp`.
        claim = claims.get("scope", claims.get("scp", ""))
        words = claim if isinstance(claim, list) else _SEPARATORS.split(str(claim))
        ours = {f"{self.scope_prefix}{scope}": scope for scope in Scope}
        return frozenset(ours[word] for word in words if word in ours)

    def _allows(self, named: frozenset[Scope], needs: Scope) -> bool:
        if not named:
            return not self.requires_scopes and needs not in _OPERATORS
        return needs in named or Scope.ADMIN in named


def _insufficient(scope: str) -> Problem:
    """RFC 6750, section 3.1."""
    return Problem(
        status=HTTPStatus.FORBIDDEN,
        type="urn:lamplighter:problem:insufficient-scope",
        title="Insufficient scope",
        detail=f"The token is not good for this: its scopes must name {scope}",
        headers={"WWW-Authenticate": f'Bearer error="insufficient_scope", scope="{scope}"'},
    )
