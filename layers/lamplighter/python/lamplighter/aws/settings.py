"""What each function is told by its environment: complete and valid, or it does not start."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Generic, Self, TypeVar

from lamplighter.core import limits
from lamplighter.core.addresses import Reach
from lamplighter.core.forecast import Capacity
from lamplighter.core.lanes import Rules, rules_from_json
from lamplighter.core.limits import DEFAULT_PARTITIONS, DEFAULT_SHARDS, MAX_SHARDS
from lamplighter.core.named import NO_TARGETS, Directory
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


def _lanes(text: str) -> Mapping[str, tuple[str, ...]]:
    lanes = json.loads(text)
    if not isinstance(lanes, dict) or not lanes:
        raise ValueError("not a JSON object with at least one lane")
    return {lane: _urls(lane, said) for lane, said in lanes.items()}


def _urls(lane: str, said: object) -> tuple[str, ...]:
    urls = said if isinstance(said, list) else [said]
    if not urls:
        raise ValueError(f"lane {lane!r} has no queue")
    return tuple(_url(str(url)) for url in urls)


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


def _drain(text: str) -> float:
    rate, (low, high) = float(text), limits.DRAIN_RANGE
    if not low <= rate <= high:
        raise ValueError(f"{text} is not in {low:g}–{high:g}")
    return rate


def _parked_for(text: str) -> timedelta:
    parked_for, (low, high) = timedelta(seconds=int(text)), limits.PARKED_FOR_RANGE
    if not low <= parked_for <= high:
        raise ValueError(f"{text} is not in {low.total_seconds():g}–{high.total_seconds():g}")
    return parked_for


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
    name="LAMPLIGHTER_CONTROL_TABLE", means="the table of leases, watermarks and permits", parse=str
)
PAYLOADS_BUCKET: Final = Variable(
    name="LAMPLIGHTER_PAYLOADS_BUCKET", means="the bucket of payloads by reference", parse=str
)
WORK_QUEUE_URL: Final = Variable(
    name="LAMPLIGHTER_WORK_QUEUE_URL", means="the queue of partition work", parse=_url
)
QUEUES: Final = Variable(
    name="LAMPLIGHTER_QUEUES",
    means="JSON: each lane and its queue's URL, or a list of them",
    parse=_lanes,
)
LANES: Final = Variable(
    name="LAMPLIGHTER_LANES",
    means="JSON: which lanes are fair, and which promote what has waited where, and when",
    parse=rules_from_json,
    default="{}",
)
SHARDS: Final = Variable(
    name="LAMPLIGHTER_SHARDS",
    means="shards of a minute; a change takes effect some six minutes later",
    parse=_count,
    default=str(DEFAULT_SHARDS),
)
PARTITIONS: Final = Variable(
    name="LAMPLIGHTER_PARTITIONS",
    means="partitions that share the shards; a change takes effect some six minutes later",
    parse=_count,
    default=str(DEFAULT_PARTITIONS),
)
DRAIN_PER_SECOND: Final = Variable(
    name="LAMPLIGHTER_DRAIN_PER_SECOND",
    means="messages a second that a backlog comes to, in the whole stack",
    parse=_drain,
    default=f"{limits.DRAIN_PER_SECOND:g}",
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
TARGETS: Final = Variable(
    name="LAMPLIGHTER_TARGETS",
    means="JSON: each named target, its kind, whose jobs may call it, and for workers where it is",
    parse=Directory.from_json,
    default="{}",
)
QUOTAS: Final = Variable(
    name="LAMPLIGHTER_QUOTAS",
    means="JSON: what an owner may have and ask for, and who else may have other than that",
    parse=Quotas.from_json,
    default="{}",
)
CAPACITY: Final = Variable(
    name="LAMPLIGHTER_CAPACITY",
    means="JSON: how many executions each lane can start in a second, for the forecast",
    parse=Capacity.from_json,
    default="{}",
)
NOTICE_BUS: Final = Variable(
    name="LAMPLIGHTER_NOTICE_BUS",
    means="the EventBridge bus, by name or ARN, that is told of what needs attention",
    parse=str,
    default="",
)
NOTICE_TOPIC: Final = Variable(
    name="LAMPLIGHTER_NOTICE_TOPIC",
    means="the ARN of the SNS topic that is told of what needs attention",
    parse=str,
    default="",
)
TASK_NAMES: Final = Variable(
    name="LAMPLIGHTER_TASK_NAMES",
    means="the tasks that workers know, comma-separated; a create of another one is warned of",
    parse=_names,
    default="",
)
PARKED_FOR: Final = Variable(
    name="LAMPLIGHTER_PARKED_FOR_SECONDS",
    means="how long an execution waits for a worker that knows its task and version",
    parse=_parked_for,
    default=f"{limits.PARKED_FOR.total_seconds():.0f}",
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
    queues: Mapping[str, tuple[str, ...]]
    log_sample_rate: float
    lanes: Rules = field(default_factory=dict)
    jobs_table: str | None = None
    control_table: str | None = None
    payloads_bucket: str | None = None
    work_queue_url: str | None = None
    shards: int = DEFAULT_SHARDS
    partitions: int = DEFAULT_PARTITIONS
    drain_per_second: float = limits.DRAIN_PER_SECOND
    quotas: Quotas = field(default_factory=Quotas)
    capacity: Capacity = field(default_factory=Capacity)
    parked_for: timedelta = limits.PARKED_FOR
    notice_bus: str | None = None
    notice_topic: str | None = None
    """Without either, nobody is told of what needs attention."""


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
            lanes=LANES.read(environment),
            log_sample_rate=LOG_SAMPLE_RATE.read(environment),
            jobs_table=JOBS_TABLE.read(environment),
            control_table=CONTROL_TABLE.read(environment),
            work_queue_url=WORK_QUEUE_URL.read(environment),
            shards=shards,
            partitions=partitions,
            drain_per_second=DRAIN_PER_SECOND.read(environment),
            notice_bus=NOTICE_BUS.read(environment) or None,
            notice_topic=NOTICE_TOPIC.read(environment) or None,
        )


@dataclass(frozen=True, kw_only=True)
class WorkerSettings(Settings):
    """A worker's."""

    lane: str
    tasks: str
    shell_owners: frozenset[str]
    http: HttpRules = NOBODY
    targets: Directory = NO_TARGETS
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
            lanes=LANES.read(environment),
            log_sample_rate=LOG_SAMPLE_RATE.read(environment),
            jobs_table=JOBS_TABLE.read(environment),
            control_table=CONTROL_TABLE.read(environment),
            payloads_bucket=PAYLOADS_BUCKET.read(environment),
            parked_for=PARKED_FOR.read(environment),
            notice_bus=NOTICE_BUS.read(environment) or None,
            notice_topic=NOTICE_TOPIC.read(environment) or None,
            lane=lane,
            tasks=TASKS.read(environment),
            shell_owners=SHELL_OWNERS.read(environment),
            http=_http(environment),
            targets=TARGETS.read(environment),
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
            lanes=LANES.read(environment),
            log_sample_rate=LOG_SAMPLE_RATE.read(environment),
            notice_bus=NOTICE_BUS.read(environment) or None,
            notice_topic=NOTICE_TOPIC.read(environment) or None,
        )


@dataclass(frozen=True, kw_only=True)
class ApiSettings(Settings):
    """The HTTP API's."""

    owner_claim: str
    requires_scopes: bool
    scope_prefix: str
    http: HttpRules = NOBODY
    targets: Directory = NO_TARGETS
    tasks: frozenset[str] = frozenset()

    @classmethod
    def of(cls, environment: Environment) -> Self:
        """Raises BadSettings."""
        shards, partitions = _layout(environment)
        return cls(
            stage=STAGE.read(environment),
            executions_table=EXECUTIONS_TABLE.read(environment),
            queues=QUEUES.read(environment),
            lanes=LANES.read(environment),
            log_sample_rate=LOG_SAMPLE_RATE.read(environment),
            jobs_table=JOBS_TABLE.read(environment),
            control_table=CONTROL_TABLE.read(environment),
            payloads_bucket=PAYLOADS_BUCKET.read(environment),
            shards=shards,
            partitions=partitions,
            tasks=TASK_NAMES.read(environment),
            owner_claim=OWNER_CLAIM.read(environment),
            requires_scopes=REQUIRE_SCOPES.read(environment),
            scope_prefix=SCOPE_PREFIX.read(environment),
            quotas=QUOTAS.read(environment),
            capacity=CAPACITY.read(environment),
            http=_http(environment),
            targets=TARGETS.read(environment),
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
