"""Notices: what is told when an execution ends in a way that needs somebody's attention."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from aws_cdk import Token
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns as sns
from constructs import Construct

from infra import grants

NOBODY: Final = "none"
_BUS_NAME: Final = re.compile(r"[A-Za-z0-9._/-]{1,256}", re.ASCII)
_TOPIC: Final = re.compile(r"arn:aws[a-z-]*:sns:[a-z0-9-]+:[0-9]{12}:[A-Za-z0-9_-]+", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Notices:
    """With neither a bus nor a topic nobody is told, but by the API's lists."""

    bus: events.IEventBus | None = None
    """Gets `Lamplighter Execution Failed`, `… Dead-Lettered` and `… Expired`, of all owners."""
    topic: sns.ITopic | None = None
    """Gets the same, with `owner`, `task`, `queue` and `status` to filter subscriptions by."""

    def __post_init__(self) -> None:
        if self.topic is not None and self.topic.fifo:
            raise ValueError("notices: a FIFO topic hands out one owner's in a row: not supported")

    @classmethod
    def on_default_bus(cls, scope: Construct) -> "Notices":
        """The account's own bus, which is there without anybody having made it."""
        return cls(bus=events.EventBus.from_event_bus_name(scope, "NoticeBus", "default"))

    @classmethod
    def chosen(cls, scope: Construct, *, bus: str, topic_arn: str) -> "Notices":
        """As a deployment's context says it; raises ValueError."""
        if not _BUS_NAME.fullmatch(bus):
            raise ValueError(f"notice_bus: {bus!r} is neither a bus's name nor {NOBODY!r}")
        if topic_arn and not _TOPIC.fullmatch(topic_arn):
            raise ValueError(f"notice_topic: {topic_arn!r} is not the ARN of an SNS topic")
        return cls(
            bus=None
            if bus == NOBODY
            else events.EventBus.from_event_bus_name(scope, "NoticeBus", bus),
            topic=sns.Topic.from_topic_arn(scope, "NoticeTopic", topic_arn) if topic_arn else None,
        )

    @property
    def environment(self) -> Mapping[str, str]:
        """What the functions that end executions are told."""
        return {
            **({"LAMPLIGHTER_NOTICE_BUS": _place_of(self.bus)} if self.bus else {}),
            **({"LAMPLIGHTER_NOTICE_TOPIC": self.topic.topic_arn} if self.topic else {}),
        }

    @property
    def statements(self) -> Sequence[iam.PolicyStatement]:
        """What they may do for it."""
        key = self.topic.master_key if self.topic else None
        return [
            *([grants.call("events:PutEvents", self.bus.event_bus_arn)] if self.bus else []),
            *([grants.call("sns:Publish", self.topic.topic_arn)] if self.topic else []),
            *([grants.encrypt(key.key_arn)] if key else []),
        ]


def _place_of(bus: events.IEventBus) -> str:
    """Its name; its ARN where that is known, for the bus may be another account's."""
    arn = bus.event_bus_arn
    return bus.event_bus_name if Token.is_unresolved(arn) else arn
