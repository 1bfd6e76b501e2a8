"""What a deployment chooses: the CDK context, read once and complete."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from constructs import Node

from infra.bundling import LambdaTarget
from infra.components.api import Authentication
from infra.components.job_scheduler import LOCAL
from infra.components.layers import TaskSource
from infra.components.named_targets import Target, targets_of
from infra.components.queues import Lane, lanes_of
from infra.components.task_tables import TaskTable, task_tables_of
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
    targets: tuple[Target, ...]
    quotas: Quotas
    shards: int
    partitions: int
    drain_per_second: float
    lanes: tuple[Lane, ...]
    worker_concurrency: int | None
    starts_per_second: Mapping[str, float]
    backup_copies: str
    kms: str
    notice_bus: str
    notice_topic: str
    parked_for_seconds: int | None
    task_tables: tuple[TaskTable, ...]
    task_names: tuple[str, ...]

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
            targets=_targets(node),
            quotas=_quotas(node),
            shards=_whole(node, "shards"),
            partitions=_whole(node, "partitions"),
            drain_per_second=_whole(node, "drain_per_second"),
            lanes=_lanes(node),
            worker_concurrency=_number(node, "worker_concurrency"),
            starts_per_second=_starts(node),
            backup_copies=_text(node, "backup_copies"),
            kms=_switch_or_text(node, "kms"),
            notice_bus=_text(node, "notice_bus"),
            notice_topic=_text(node, "notice_topic"),
            parked_for_seconds=_number(node, "parked_for_seconds"),
            task_tables=_task_tables(node),
            task_names=_list(node, "task_names"),
        )

    @property
    def issuer_is_missing(self) -> bool:
        return self.authentication.issuer == NO_ISSUER


def _text(node: Node, name: str) -> str:
    value = node.try_get_context(name)
    if not isinstance(value, str):
        raise ValueError(f"context {name}: {value!r} is not text")  # noqa: TRY004 -- one kind of error
    return value


def _switch_or_text(node: Node, name: str) -> str:
    """Text, or a JSON `true`, which is said as text; `false` and null are none."""
    value = node.try_get_context(name)
    if value in (None, False):
        return ""
    return "true" if value is True else _text(node, name)


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


def _lanes(node: Node) -> tuple[Lane, ...]:
    """JSON, as `_quotas`."""
    value = node.try_get_context("lanes")
    try:
        return lanes_of(json.loads(value) if isinstance(value, str) else value)
    except ValueError as error:
        raise ValueError(f"context lanes: {error}") from error


def _targets(node: Node) -> tuple[Target, ...]:
    """JSON, as `_quotas`."""
    value = node.try_get_context("targets")
    try:
        return targets_of(json.loads(value) if isinstance(value, str) else value)
    except ValueError as error:
        raise ValueError(f"context targets: {error}") from error


def _task_tables(node: Node) -> tuple[TaskTable, ...]:
    """JSON, as `_quotas`."""
    value = node.try_get_context("task_tables")
    try:
        return task_tables_of(json.loads(value) if isinstance(value, str) else value)
    except ValueError as error:
        raise ValueError(f"context task_tables: {error}") from error


def _starts(node: Node) -> Mapping[str, float]:
    """JSON, as `_quotas`; which lanes and numbers can be, the scheduler sees."""
    value = node.try_get_context("starts_per_second")
    try:
        said = json.loads(value) if isinstance(value, str) else value
    except ValueError as error:
        raise ValueError(f"context starts_per_second: {error}") from error
    if not isinstance(said, dict):
        raise ValueError(f"context starts_per_second: {said!r} is not a JSON object")  # noqa: TRY004
    return said


def _whole(node: Node, name: str) -> int:
    """A whole number, as it is or as text; which there can be, the scheduler sees."""
    number = _number(node, name)
    if number is None:
        raise ValueError(f"context {name}: not chosen")
    return number


def _number(node: Node, name: str) -> int | None:
    """A whole number, as it is or as text; None for none."""
    value = node.try_get_context(name)
    if value in ("", None):
        return None
    if not str(value).isdecimal():
        raise ValueError(f"context {name}: {value!r} is not a whole number")
    return int(str(value))


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise ValueError(f"context {name}: {value!r} is not one of {', '.join(allowed)}")
    return value
