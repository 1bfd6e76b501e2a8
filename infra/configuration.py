"""What a deployment chooses: the CDK context, read once and complete."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from constructs import Node

from infra.bundling import LambdaTarget
from infra.components.api import Authentication
from infra.components.job_scheduler import LOCAL
from infra.components.layers import TaskSource
from infra.paths import ROOT
from lamplighter.core.quotas import Quotas

PRODUCTION: Final = "prod"
STAGES: Final = (LOCAL, "dev", PRODUCTION)
# Reserved for never existing (RFC 2606): an API that nobody can enter.
NO_ISSUER: Final = "https://issuer.invalid/"

SWITCH: Final = ("true", "false")

TARGETS: Final = {
    "arm64": LambdaTarget.graviton,
    "x86_64": LambdaTarget.intel,
    "host": LambdaTarget.this_machine,
}


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """`cdk.json` holds the defaults; `-c name=value` replaces one."""

    stage: str
    target: LambdaTarget
    authentication: Authentication
    tasks: TaskSource
    shell_owners: tuple[str, ...]
    http_owners: tuple[str, ...]
    http_allow: tuple[str, ...]
    http_signing_secret: str
    quotas: Quotas

    @classmethod
    def of(cls, node: Node) -> "Configuration":
        """Raises ValueError for a value that is missing or not one of those allowed."""
        stage = _one_of("stage", _text(node, "stage"), STAGES)
        issuer = _text(node, "issuer")
        if stage == PRODUCTION and issuer == NO_ISSUER:
            raise ValueError("issuer: not chosen, and stage is prod; -c issuer=https://...")
        return cls(
            stage=stage,
            target=TARGETS[_one_of("architecture", _text(node, "architecture"), tuple(TARGETS))](),
            authentication=Authentication(
                issuer=issuer,
                audience=_list(node, "audience"),
                owner_claim=_text(node, "owner_claim"),
                require_scopes=_one_of("require_scopes", _text(node, "require_scopes"), SWITCH)
                == "true",
                scope_prefix=_text(node, "scope_prefix"),
            ),
            tasks=TaskSource(
                folder=_folder(node, "tasks_folder"), module=_text(node, "tasks_module")
            ),
            shell_owners=_list(node, "shell_owners"),
            http_owners=_list(node, "http_owners"),
            http_allow=_list(node, "http_allow"),
            http_signing_secret=_text(node, "http_signing_secret"),
            quotas=_quotas(node),
        )

    @property
    def issuer_is_missing(self) -> bool:
        return self.authentication.issuer == NO_ISSUER


def _text(node: Node, name: str) -> str:
    value = node.try_get_context(name)
    if not isinstance(value, str):
        raise ValueError(f"context {name}: {value!r} is not text")  # noqa: TRY004 -- one kind of error
    return value


def _folder(node: Node, name: str) -> Path:
    """Relative to this project, or absolute."""
    folder = ROOT / _text(node, name)
    if not folder.is_dir():
        raise ValueError(f"context {name}: there is no folder {folder}")
    return folder


def _list(node: Node, name: str) -> tuple[str, ...]:
    """Comma-separated."""
    return tuple(part.strip() for part in _text(node, name).split(",") if part.strip())


def _quotas(node: Node) -> Quotas:
    """JSON, as text, which is all that `-c` can say, or as it is in `cdk.json`."""
    value = node.try_get_context("quotas")
    try:
        return Quotas.from_json(value if isinstance(value, str) else json.dumps(value))
    except ValueError as error:
        raise ValueError(f"context quotas: {error}") from error


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise ValueError(f"context {name}: {value!r} is not one of {', '.join(allowed)}")
    return value
