"""HTTP targets: who may have a URL called in place of a task, and how that is signed."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from aws_cdk import aws_iam as iam
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

from infra import grants

EVERYONE: Final = ("*",)
ALLOWANCES: Final = ("http", "private", "loopback")
_COMPLETE_ARN: Final = re.compile(r"arn:[a-z-]+:secretsmanager:[\w:/+=.@-]+-[A-Za-z0-9]{6}")


@dataclass(frozen=True, kw_only=True)
class HttpTargets:
    """Without these nobody may; what is not allowed here is refused at create and at each call."""

    owners: Sequence[str]
    """As the tokens name them; `EVERYONE`: all."""
    signing_secret: secretsmanager.ISecret | None = None
    """Its text is one `whsec_…` key, or several between spaces: all of them sign."""
    allow_http: bool = False
    allow_private: bool = False
    """Addresses of private networks: for functions in a VPC."""
    allow_loopback: bool = False
    """The worker's own host: in stage `local` only."""

    def __post_init__(self) -> None:
        if not self.owners or any("," in owner or owner != owner.strip() for owner in self.owners):
            raise ValueError(f"owners of HTTP targets {[*self.owners]}: at least one, no commas")
        secret = self.signing_secret
        if secret is not None and secret.secret_full_arn is None:
            raise ValueError("signing_secret: its complete ARN has to be known")

    @classmethod
    def chosen(
        cls, scope: Construct, *, owners: Sequence[str], allow: Collection[str], secret_arn: str
    ) -> "HttpTargets | None":
        """As a deployment's context says it; None: nobody. Raises ValueError."""
        if unknown := {*allow} - {*ALLOWANCES}:
            raise ValueError(f"http_allow: {sorted(unknown)} is not among {', '.join(ALLOWANCES)}")
        if not owners:
            return None
        if secret_arn and not _COMPLETE_ARN.fullmatch(secret_arn):
            raise ValueError(f"http_signing_secret: {secret_arn!r} is no secret's complete ARN")
        return cls(
            owners=owners,
            signing_secret=secretsmanager.Secret.from_secret_complete_arn(
                scope, "SigningSecret", secret_arn
            )
            if secret_arn
            else None,
            allow_http="http" in allow,
            allow_private="private" in allow,
            allow_loopback="loopback" in allow,
        )

    @property
    def rules(self) -> Mapping[str, str]:
        """What the API and the workers are told."""
        switches = (self.allow_http, self.allow_private, self.allow_loopback)
        allowed = [name for name, is_on in zip(ALLOWANCES, switches, strict=True) if is_on]
        return {
            "LAMPLIGHTER_HTTP_OWNERS": ",".join(self.owners),
            **({"LAMPLIGHTER_HTTP_ALLOW": ",".join(allowed)} if allowed else {}),
        }

    @property
    def signing(self) -> Mapping[str, str]:
        """What the workers are told beside that: where the keys are, never the keys."""
        arn = self.signing_secret and self.signing_secret.secret_full_arn
        return {"LAMPLIGHTER_HTTP_SIGNING_SECRET": arn} if arn else {}

    @property
    def statements(self) -> Sequence[iam.PolicyStatement]:
        """What the workers may do for it."""
        secret = self.signing_secret
        if secret is None:
            return []
        key = secret.encryption_key
        return [grants.read_secret(secret), *([grants.decrypt(key)] if key else [])]
