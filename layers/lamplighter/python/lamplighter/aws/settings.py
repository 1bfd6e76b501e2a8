"""What each function is told by its environment: complete and valid, or it does not start."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, Self, TypeVar

from lamplighter.core.addresses import Reach
from lamplighter.core.limits import DEFAULT_PARTITIONS, DEFAULT_SHARDS, MAX_SHARDS
from lamplighter.core.quotas import Quotas
from lamplighter.core.targets import NOBODY, HttpRules

T = TypeVar("T")

Environment = Mapping[str, str]


class BadSettings(RuntimeError):
    """A variable is missing or makes no sense; the message names it."""


@dataclass(frozen=True, kw_only=True)
class Variable(Generic[T]):
    """One environment variable. Without a default it has to be set, and not to nothing."""

    name: str
    means: str
    parse: Callable[[str], T]
    default: str | None = None

    def read(self, environment: Environment) -> T:
        """Its value; raises BadSettings."""
        text = environment.get(self.name) or self.default
        if text is None:
            raise BadSettings(f"{self.name} is not set: {self.means}")
        try:
            return self.parse(text)
        except ValueError as error:
            raise BadSettings(f"{self.name}: {error} ({self.means})") from error


def _url(text: str) -> str:
    if not text.startswith(("https://", "http://")):
        raise ValueError(f"{text!r} is not a URL")
    return text


def _lanes(text: str) -> Mapping[str, str]:
    lanes = json.loads(text)
    if not isinstance(lanes, dict) or not lanes:
        raise ValueError("not a JSON object with at least one lane")
    return {lane: _url(str(url)) for lane, url in lanes.items()}


def _count(text: str) -> int:
    count = int(text)
    if not 1 <= count <= MAX_SHARDS:
        raise ValueError(f"{count} is not in 1–{MAX_SHARDS}")
    return count


def _share(text: str) -> float:
    share = float(text)
    if not 0 <= share <= 1:
        raise ValueError(f"{text} is not in 0–1")
    return share


def _switch(text: str) -> bool:
    if text not in {"true", "false"}:
        raise ValueError(f"{text!r} is neither true nor false")
    return text == "true"


def _names(text: str) -> frozenset[str]:
    return frozenset(name.strip() for name in text.split(",") if name.strip())


def _allowances(text: str) -> frozenset[str]:
    names = _names(text)
    if unknown := names - {"http", "private", "loopback"}:
        raise ValueError(f"{', '.join(sorted(unknown))}: not one of http, private, loopback")
    return names


STAGE: Final = Variable(name="LAMPLIGHTER_STAGE", means="the name of this deployment", parse=str)
EXECUTIONS_TABLE: Final = Variable(
    name="LAMPLIGHTER_EXECUTIONS_TABLE", means="the table of executions", parse=str
)
JOBS_TABLE: Final = Variable(
    name="LAMPLIGHTER_JOBS_TABLE", means="the table of recurring jobs", parse=str
)
CONTROL_TABLE: Final = Variable(
    name="LAMPLIGHTER_CONTROL_TABLE", means="the table of leases and watermarks", parse=str
)
PAYLOADS_BUCKET: Final = Variable(
    name="LAMPLIGHTER_PAYLOADS_BUCKET", means="the bucket of payloads by reference", parse=str
)
WORK_QUEUE_URL: Final = Variable(
    name="LAMPLIGHTER_WORK_QUEUE_URL", means="the queue of partition work", parse=_url
)
QUEUES: Final = Variable(
    name="LAMPLIGHTER_QUEUES", means="JSON: each lane and its queue's URL", parse=_lanes
)
SHARDS: Final = Variable(
    name="LAMPLIGHTER_SHARDS",
    means="shards of a minute, when no layout is in force yet",
    parse=_count,
    default=str(DEFAULT_SHARDS),
)
PARTITIONS: Final = Variable(
    name="LAMPLIGHTER_PARTITIONS",
    means="partitions that share the shards, when no layout is in force yet",
    parse=_count,
    default=str(DEFAULT_PARTITIONS),
)
OWNER_CLAIM: Final = Variable(
    name="LAMPLIGHTER_OWNER_CLAIM", means="the token's claim that names the owner", parse=str
)
REQUIRE_SCOPES: Final = Variable(
    name="LAMPLIGHTER_REQUIRE_SCOPES",
    means="whether a token without any of our scopes is refused: true or false",
    parse=_switch,
    default="true",
)
SCOPE_PREFIX: Final = Variable(
    name="LAMPLIGHTER_SCOPE_PREFIX",
    means="what stands before a scope's name in a token",
    parse=str,
    default="",
)
TASKS: Final = Variable(
    name="LAMPLIGHTER_TASKS", means="the module whose import registers the tasks", parse=str
)
LANE: Final = Variable(name="LAMPLIGHTER_LANE", means="the lane this worker serves", parse=str)
SHELL_OWNERS: Final = Variable(
    name="LAMPLIGHTER_SHELL_OWNERS",
    means="owners whose jobs may run shell commands, comma-separated",
    parse=_names,
    default="",
)
HTTP_OWNERS: Final = Variable(
    name="LAMPLIGHTER_HTTP_OWNERS",
    means="owners whose jobs may call HTTP targets, comma-separated; * for all of them",
    parse=_names,
    default="",
)
HTTP_ALLOW: Final = Variable(
    name="LAMPLIGHTER_HTTP_ALLOW",
    means="what targets may be beside https at public addresses: http, private, loopback",
    parse=_allowances,
    default="",
)
HTTP_SIGNING_SECRET: Final = Variable(
    name="LAMPLIGHTER_HTTP_SIGNING_SECRET",
    means="the ARN of the secret with the keys that requests to targets are signed with",
    parse=str,
    default="",
)
QUOTAS: Final = Variable(
    name="LAMPLIGHTER_QUOTAS",
    means="JSON: what an owner may have and ask for, and who else may have other than that",
    parse=Quotas.from_json,
    default="{}",
)
LOG_SAMPLE_RATE: Final = Variable(
    name="LAMPLIGHTER_LOG_SAMPLE_RATE",
    means="the share of executions whose start and success are logged, 0–1",
    parse=_share,
    default="1.0",
)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What every function needs; None: this kind of function has none."""

    stage: str
    executions_table: str
    queues: Mapping[str, str]
    log_sample_rate: float
    jobs_table: str | None = None
    control_table: str | None = None
    payloads_bucket: str | None = None
    work_queue_url: str | None = None
    shards: int = DEFAULT_SHARDS
    partitions: int = DEFAULT_PARTITIONS
    quotas: Quotas = field(default_factory=Quotas)


@dataclass(frozen=True, kw_only=True)
class SchedulerSettings(Settings):
    """The scheduler's."""

    @classmethod
    def of(cls, environment: Environment) -> Self:
        """Raises BadSettings."""
        shards, partitions = _layout(environment)
        return cls(
            stage=STAGE.read(environment),
            executions_table=EXECUTIONS_TABLE.read(environment),
            queues=QUEUES.read(environment),
            log_sample_rate=LOG_SAMPLE_RATE.read(environment),
            jobs_table=JOBS_TABLE.read(environment),
            control_table=CONTROL_TABLE.read(environment),
            work_queue_url=WORK_QUEUE_URL.read(environment),
            shards=shards,
            partitions=partitions,
        )


@dataclass(frozen=True, kw_only=True)
class WorkerSettings(Settings):
    """A worker's."""

    lane: str
    tasks: str
    shell_owners: frozenset[str]
    http: HttpRules = NOBODY
    signing_secret: str | None = None

    @classmethod
    def of(cls, environment: Environment) -> Self:
        """Raises BadSettings."""
        queues, lane = QUEUES.read(environment), LANE.read(environment)
        if lane not in queues:
            raise BadSettings(f"{LANE.name}: {lane!r} is not among the lanes of {QUEUES.name}")
        return cls(
            stage=STAGE.read(environment),
            executions_table=EXECUTIONS_TABLE.read(environment),
            queues=queues,
            log_sample_rate=LOG_SAMPLE_RATE.read(environment),
            jobs_table=JOBS_TABLE.read(environment),
            payloads_bucket=PAYLOADS_BUCKET.read(environment),
            lane=lane,
            tasks=TASKS.read(environment),
            shell_owners=SHELL_OWNERS.read(environment),
            http=_http(environment),
            signing_secret=HTTP_SIGNING_SECRET.read(environment) or None,
        )


@dataclass(frozen=True, kw_only=True)
class DeadLetterSettings(Settings):
    """The dead-letter handler's."""

    @classmethod
    def of(cls, environment: Environment) -> Self:
        """Raises BadSettings."""
        return cls(
            stage=STAGE.read(environment),
            executions_table=EXECUTIONS_TABLE.read(environment),
            queues=QUEUES.read(environment),
            log_sample_rate=LOG_SAMPLE_RATE.read(environment),
        )


@dataclass(frozen=True, kw_only=True)
class ApiSettings(Settings):
    """The HTTP API's."""

    owner_claim: str
    requires_scopes: bool
    scope_prefix: str
    http: HttpRules = NOBODY

    @classmethod
    def of(cls, environment: Environment) -> Self:
        """Raises BadSettings."""
        shards, partitions = _layout(environment)
        return cls(
            stage=STAGE.read(environment),
            executions_table=EXECUTIONS_TABLE.read(environment),
            queues=QUEUES.read(environment),
            log_sample_rate=LOG_SAMPLE_RATE.read(environment),
            jobs_table=JOBS_TABLE.read(environment),
            control_table=CONTROL_TABLE.read(environment),
            payloads_bucket=PAYLOADS_BUCKET.read(environment),
            shards=shards,
            partitions=partitions,
            owner_claim=OWNER_CLAIM.read(environment),
            requires_scopes=REQUIRE_SCOPES.read(environment),
            scope_prefix=SCOPE_PREFIX.read(environment),
            quotas=QUOTAS.read(environment),
            http=_http(environment),
        )


def _layout(environment: Environment) -> tuple[int, int]:
    shards, partitions = SHARDS.read(environment), PARTITIONS.read(environment)
    if partitions > shards:
        raise BadSettings(f"{PARTITIONS.name}: {partitions} partitions of {shards} shards")
    return shards, partitions


def _http(environment: Environment) -> HttpRules:
    allowed = HTTP_ALLOW.read(environment)
    return HttpRules(
        owners=HTTP_OWNERS.read(environment),
        allow_http="http" in allowed,
        reach=Reach(private="private" in allowed, loopback="loopback" in allowed),
    )
