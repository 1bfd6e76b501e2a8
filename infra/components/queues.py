"""Lanes and the work queue, each with the queue for what could not be delivered."""

from dataclasses import dataclass

from aws_cdk import Duration
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from lamplighter.core import limits

RETENTION = Duration.days(14)  # the longest: SetQueueAttributes, MessageRetentionPeriod


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
    reserved_concurrency: int | None = None
    """Batches at once that no other function of the account can take away, nor this one exceed."""
    max_concurrency: int | None = None
    """Batches at once, without a reservation; not together with pollers."""
    pollers: Pollers | None = None
    """To hold two seconds through a spike: polling on demand takes 19 s to reach 10,000/s."""

    def __post_init__(self) -> None:
        if not self.name.isidentifier() or not self.name.islower():
            raise ValueError(f"lane {self.name!r}: lower-case letters, digits and underscores")
        if self.max_concurrency is not None and self.pollers is not None:
            raise ValueError(f"lane {self.name!r}: max_concurrency or pollers, not both")


DEFAULT_LANES = (Lane(name="default"), Lane(name="critical"), Lane(name="bulk"))


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
    ) -> None:
        super().__init__(scope, id)
        self.dead_letters = sqs.Queue(
            self,
            "DeadLetters",
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            retention_period=RETENTION,
            visibility_timeout=dead_letter_visibility_timeout,
        )
        self.queue = sqs.Queue(
            self,
            "Queue",
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            retention_period=retention,
            visibility_timeout=visibility_timeout,
            dead_letter_queue=sqs.DeadLetterQueue(
                queue=self.dead_letters, max_receive_count=max_receive_count
            ),
        )


class LaneQueue(QueueWithDeadLetters):
    """The queue of one lane."""

    def __init__(self, scope: Construct, id: str, *, dead_letter_timeout: Duration) -> None:
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
        )


class WorkQueue(QueueWithDeadLetters):
    """Partition work, from the tick to the functions that dispatch and sweep."""

    def __init__(self, scope: Construct, id: str, *, function_timeout: Duration) -> None:
        super().__init__(
            scope,
            id,
            # Equal, the least that Lambda allows: a crashed visit is repeated two minutes later,
            # and by the next tick before that. Lease and epoch make a repeated visit harmless.
            visibility_timeout=function_timeout,
            max_receive_count=5,
            # Each tick asks for the same work again; older items only delay current ones.
            retention=Duration.hours(1),
        )
