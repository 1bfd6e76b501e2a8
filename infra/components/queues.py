"""Lanes and the work queue, each with the queue for what could not be delivered."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final, cast

from aws_cdk import Duration
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.components.capacity import LEAST, MOST
from infra.components.encryption import of_queue
from lamplighter.core import limits
from lamplighter.core.lanes import LaneRules

RETENTION = Duration.days(14)  # the longest: SetQueueAttributes, MessageRetentionPeriod
DEFAULT_LANE = "default"
# In all lanes: their URLs lie in each function's environment.
MAX_QUEUES = 16
# A message is as old as its job takes, 14 minutes at most, and may be sent 255 s ahead: whether
# that counts nobody says. Older than both together, it has waited for a worker.
OLDEST_S = 1200


@dataclass(frozen=True, kw_only=True)
class Pollers:
    """Provisioned pollers of one lane: ten concurrent batches each, held ready and paid for."""

    minimum: int
    maximum: int

    def __post_init__(self) -> None:
        if not 2 <= self.minimum <= 200:  # Lambda, ProvisionedPollerConfig
            raise ValueError(f"{self.minimum} pollers at least: not in 2-200")
        if not max(2, self.minimum) <= self.maximum <= 2000:
            raise ValueError(f"{self.maximum} pollers at most: not in {self.minimum}-2000")


@dataclass(frozen=True, kw_only=True)
class Lane:
    """A named queue that jobs choose, with workers of its own."""

    name: str
    memory_mb: int = 512
    weight: int = 1
    """Its part of the scheduler's `worker_concurrency`, beside the weights of the others."""
    reserved: bool = False
    """Whether that part is also reserved for it in the account."""
    reserved_concurrency: int | None = None
    """Batches at once that no other function of the account can take away, nor this one exceed."""
    max_concurrency: int | None = None
    """Batches at once, without a reservation; not together with pollers."""
    pollers: Pollers | None = None
    """To hold two seconds through a spike: polling on demand takes 19 s to reach 10,000/s. Of
    each of its queues."""
    queues: int = 1
    """SQS queues that share its messages: a mapping holds 200 pollers ready at most (S2-K5)."""
    fair: bool = False
    """Whether an owner who crowds the lane is passed over while others wait."""
    promotes_to: str | None = None
    """The lane in which what has waited here for `promote_after_seconds` gets a message too."""
    promote_after_seconds: int | None = None
    functions: bool = True
    """Whether Lambda serves it; else containers alone do (`ContainerWorkers`)."""
    alarm_after_seconds: int = OLDEST_S
    """The age of the oldest message that wakes somebody."""

    def __post_init__(self) -> None:
        if not self.name.isidentifier() or not self.name.islower():
            raise ValueError(f"lane {self.name!r}: lower-case letters, digits and underscores")
        try:
            self._check_numbers()
            self._check_capacity()
            self._check_aging()
        except ValueError as error:
            raise ValueError(f"lane {self.name!r}: {error}") from error

    def _check_numbers(self) -> None:
        for name, low, high in (
            ("memory_mb", 128, 10_240),
            ("weight", 1, 1000),
            ("queues", 1, MAX_QUEUES),
            ("reserved_concurrency", 1, 100_000),
            ("max_concurrency", LEAST * self.queues, MOST * self.queues),
            ("alarm_after_seconds", 60, 14 * 24 * 3600),
        ):
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise ValueError(f"{name} {value}: not in {low}-{high}")

    def _check_capacity(self) -> None:
        if self.max_concurrency is not None and self.pollers is not None:
            raise ValueError("max_concurrency or pollers, not both")
        most, reserved = self.max_concurrency, self.reserved_concurrency
        if most is not None and reserved is not None and most > reserved:
            raise ValueError(
                f"max_concurrency {most}: more than its reserved_concurrency {reserved}"
            )
        if self.reserved and self.has_capacity_of_its_own:
            raise ValueError(
                "reserved: of a share by weight, and a lane with reserved_concurrency, "
                "max_concurrency or pollers has none"
            )

    def _check_aging(self) -> None:
        if self.promotes_to == self.name:
            raise ValueError("promotes_to itself")
        _ = self.rules

    @property
    def has_capacity_of_its_own(self) -> bool:
        """Whether it has no share of the scheduler's `worker_concurrency`."""
        named = (self.reserved_concurrency, self.max_concurrency, self.pollers)
        return any(one is not None for one in named)

    @property
    def rules(self) -> LaneRules:
        """What the functions have to know of it."""
        after = self.promote_after_seconds
        return LaneRules(
            fair=self.fair,
            promotes_to=self.promotes_to,
            promote_after=None if after is None else timedelta(seconds=after),
        )


# In the ratio of 8:4:1, once a total is given: `JobScheduler(worker_concurrency=...)`.
DEFAULT_LANES = (
    Lane(name="default", weight=4),
    Lane(name="critical", weight=8, reserved=True),
    Lane(name="bulk", weight=1),
)


def check_lanes(lanes: Sequence[Lane]) -> None:
    """Raises ValueError for lanes that do not go together."""
    by_name = {lane.name: lane for lane in lanes}
    if DEFAULT_LANE not in by_name:
        raise ValueError(f"lanes {[*by_name]}: one must be {DEFAULT_LANE!r}")
    if len(by_name) != len(lanes):
        raise ValueError(f"lanes {[lane.name for lane in lanes]}: each name once")
    if (queues := sum(lane.queues for lane in lanes)) > MAX_QUEUES:
        raise ValueError(f"{queues} queues in all lanes: more than {MAX_QUEUES}")
    for lane in lanes:
        if lane.promotes_to is None:
            continue
        to = by_name.get(lane.promotes_to)
        if to is None:
            raise ValueError(f"lane {lane.name!r}: promotes_to {lane.promotes_to!r}: no such lane")
        if to.memory_mb < lane.memory_mb:
            raise ValueError(
                f"lane {lane.name!r} promotes_to {to.name!r}: its workers have less memory, "
                f"{to.memory_mb} MB against {lane.memory_mb}"
            )


def lanes_of(said: object) -> tuple[Lane, ...]:
    """The default lanes, changed and joined by what is said of each by its name; null takes it out.

    Raises ValueError, with lane, name and value.
    """
    chosen: dict[str, Lane | None] = {lane.name: lane for lane in DEFAULT_LANES}
    for name, values in _object("lanes", said).items():
        base = chosen.get(name) or Lane(name=name)
        chosen[name] = None if values is None else _changed(base, _object(f"lane {name!r}", values))
    return tuple(lane for lane in chosen.values() if lane is not None)


def _changed(lane: Lane, values: Mapping[str, object]) -> Lane:
    for name, value in values.items():
        kind = _KINDS.get(name)
        if kind is None:
            raise ValueError(f"lane {lane.name!r}: no {name!r}; there are {', '.join(_KINDS)}")
        if type(value) is not kind and value is not None:
            raise ValueError(f"lane {lane.name!r}: {name} {value!r}: not {_WORDS[kind]}")
    # What is null is as if it had not been chosen.
    plain = Lane(name=lane.name)
    new = {name: getattr(plain, name) if said is None else said for name, said in values.items()}
    if isinstance(pollers := new.get("pollers"), dict):
        new["pollers"] = _pollers(lane.name, pollers)
    return replace(lane, **cast("Mapping[str, Any]", new))


def _pollers(lane: str, values: Mapping[str, object]) -> Pollers:
    if values.keys() != {"minimum", "maximum"} or {type(one) for one in values.values()} != {int}:
        raise ValueError(f"lane {lane!r}: pollers {values!r}: a minimum and a maximum number")
    try:
        return Pollers(**cast("Mapping[str, Any]", values))
    except ValueError as error:
        raise ValueError(f"lane {lane!r}: {error}") from error


def _object(name: str, value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise ValueError(f"{name}: {value!r} is not a JSON object")  # noqa: TRY004 -- one kind of error
    return value


_KINDS: Final[Mapping[str, type]] = {
    "weight": int,
    "reserved": bool,
    "reserved_concurrency": int,
    "max_concurrency": int,
    "pollers": dict,
    "queues": int,
    "memory_mb": int,
    "fair": bool,
    "functions": bool,
    "promotes_to": str,
    "promote_after_seconds": int,
    "alarm_after_seconds": int,
}
_WORDS: Final[Mapping[type, str]] = {
    int: "a whole number",
    bool: "true or false",
    str: "a name",
    dict: "a JSON object",
}


class QueueWithDeadLetters(Construct):
    """A queue and, for what it failed to deliver too often, another one."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        visibility_timeout: Duration,
        max_receive_count: int,
        dead_letter_visibility_timeout: Duration | None = None,
        retention: Duration = RETENTION,
        encryption_key: kms.IKey | None = None,
    ) -> None:
        super().__init__(scope, id)
        self._encryption = of_queue(encryption_key)
        self._retention = retention
        self._visibility_timeout = visibility_timeout
        self._max_receive_count = max_receive_count
        self.dead_letters = sqs.Queue(
            self,
            "DeadLetters",
            **self._encryption,
            enforce_ssl=True,
            retention_period=RETENTION,
            visibility_timeout=dead_letter_visibility_timeout,
        )
        self.queue = self._add_queue("Queue")

    def _add_queue(self, id: str) -> sqs.Queue:
        return sqs.Queue(
            self,
            id,
            **self._encryption,
            enforce_ssl=True,
            retention_period=self._retention,
            visibility_timeout=self._visibility_timeout,
            dead_letter_queue=sqs.DeadLetterQueue(
                queue=self.dead_letters, max_receive_count=self._max_receive_count
            ),
        )


class LaneQueue(QueueWithDeadLetters):
    """The queue of one lane, or its several, which have the dead letters in common."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        dead_letter_timeout: Duration,
        queues: int = 1,
        encryption_key: kms.IKey | None = None,
    ) -> None:
        super().__init__(
            scope,
            id,
            # Lambda refuses a mapping whose queue hides messages for less than the function may
            # run. The worker shrinks it to its lease as soon as it has received a message.
            visibility_timeout=Duration.seconds(limits.LAMBDA_MAX_TIMEOUT_S),
            # Throttled deliveries count too; attempts are counted in the execution's row.
            max_receive_count=limits.LANE_MAX_RECEIVES,
            # Six times, as Lambda advises: throttles must not make a message visible twice.
            dead_letter_visibility_timeout=Duration.seconds(6 * dead_letter_timeout.to_seconds()),
            encryption_key=encryption_key,
        )
        more = [self._add_queue(f"Queue{number}") for number in range(2, queues + 1)]
        self.queues = (self.queue, *more)


class WorkQueue(QueueWithDeadLetters):
    """Partition work, from the tick to the functions that dispatch and sweep."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        function_timeout: Duration,
        encryption_key: kms.IKey | None = None,
    ) -> None:
        super().__init__(
            scope,
            id,
            # Equal, the least that Lambda allows: a crashed visit is repeated two minutes later,
            # and by the next tick before that. Lease and epoch make a repeated visit harmless.
            visibility_timeout=function_timeout,
            max_receive_count=5,
            # Each tick asks for the same work again; older items only delay current ones.
            retention=Duration.hours(1),
            encryption_key=encryption_key,
        )
