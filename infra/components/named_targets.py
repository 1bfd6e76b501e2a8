"""Named targets: what of AWS a job may have called, by a name that says nothing of where it is."""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from aws_cdk import Stack, Token
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as stepfunctions
from constructs import Construct

from infra import grants
from lamplighter.core.named import Directory, Entry, TargetKind, kind_named, owners_named

# Of an ARN or a URL that is known once it is deployed: names that CDK makes are shorter.
PLACE_BYTES: Final = 150
_ACTIONS: Final = {
    TargetKind.LAMBDA: "lambda:InvokeFunction",
    TargetKind.SQS: "sqs:SendMessage",
    TargetKind.SNS: "sns:Publish",
    TargetKind.EVENTBRIDGE: "events:PutEvents",
    TargetKind.STEPFUNCTIONS: "states:StartExecution",
}
_ARN: Final = re.compile(
    r"arn:(?P<partition>aws[a-z-]*):(?P<service>[a-z]+):(?P<region>[a-z0-9-]+):"
    r"(?P<account>[0-9]{12}):(?P<resource>[A-Za-z0-9:/._$-]+)",
    re.ASCII,
)
_SUFFIXES: Final = {"aws-cn": "amazonaws.com.cn"}
_KEY: Final = re.compile(r"arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/[a-z0-9-]+", re.ASCII)
_SAID: Final = frozenset({"kind", "arn", "owners", "source", "detail_type", "key_arn"})


@dataclass(frozen=True, kw_only=True)
class Target(ABC):
    """One name, and what it stands for. Raises ValueError, with name and value."""

    name: str
    owners: Sequence[str]
    """As the tokens name them; `EVERYONE`: all."""

    def __post_init__(self) -> None:
        _ = self.entry

    @property
    @abstractmethod
    def kind(self) -> TargetKind: ...

    @property
    @abstractmethod
    def arn(self) -> str:
        """What exactly the workers may call."""
        ...

    @property
    def place(self) -> str:
        """What the workers name it by when they call it."""
        return self.arn

    @property
    def key_arn(self) -> str | None:
        """Of the key that its messages are encrypted with, where it is not AWS's own."""
        return None

    @property
    def entry(self) -> Entry:
        """What the functions are told of it."""
        owners = owners_named(self.name, self.owners)
        return Entry(name=self.name, kind=self.kind, owners=owners, at=self.place)

    @property
    def statements(self) -> Sequence[iam.PolicyStatement]:
        """What the workers may do for it, and to nothing else."""
        key = [grants.encrypt(self.key_arn)] if self.key_arn else []
        return [grants.call(_ACTIONS[self.kind], self.arn), *key]


@dataclass(frozen=True, kw_only=True)
class FunctionTarget(Target):
    """A function, or a version or an alias of one."""

    function: lambda_.IFunction

    @property
    def kind(self) -> TargetKind:
        return TargetKind.LAMBDA

    @property
    def arn(self) -> str:
        return self.function.function_arn


@dataclass(frozen=True, kw_only=True)
class QueueTarget(Target):
    queue: sqs.IQueue

    @property
    def kind(self) -> TargetKind:
        return TargetKind.SQS

    @property
    def arn(self) -> str:
        return self.queue.queue_arn

    @property
    def place(self) -> str:
        return self.queue.queue_url

    @property
    def key_arn(self) -> str | None:
        return _arn_of(self.queue.encryption_master_key)


@dataclass(frozen=True, kw_only=True)
class TopicTarget(Target):
    topic: sns.ITopic

    @property
    def kind(self) -> TargetKind:
        return TargetKind.SNS

    @property
    def arn(self) -> str:
        return self.topic.topic_arn

    @property
    def key_arn(self) -> str | None:
        return _arn_of(self.topic.master_key)


@dataclass(frozen=True, kw_only=True)
class BusTarget(Target):
    bus: events.IEventBus
    source: str = ""
    detail_type: str = ""
    """Both of its events; `lamplighter` and `Job due` unless given."""

    @property
    def kind(self) -> TargetKind:
        return TargetKind.EVENTBRIDGE

    @property
    def arn(self) -> str:
        return self.bus.event_bus_arn

    @property
    def entry(self) -> Entry:
        return _event(super().entry, self.source, self.detail_type)


@dataclass(frozen=True, kw_only=True)
class StateMachineTarget(Target):
    machine: stepfunctions.IStateMachine

    @property
    def kind(self) -> TargetKind:
        return TargetKind.STEPFUNCTIONS

    @property
    def arn(self) -> str:
        return self.machine.state_machine_arn


@dataclass(frozen=True, kw_only=True)
class ArnTarget(Target):
    """What is no part of the app: by its ARN, as a deployment's context says it."""

    of: TargetKind
    at: str
    source: str = ""
    detail_type: str = ""
    key: str | None = None

    def __post_init__(self) -> None:
        service = _ACTIONS[self.of].partition(":")[0]
        if self._parts["service"] != service:
            raise ValueError(f"target {self.name!r}: {self.at!r} is no ARN of {service}")
        if self.key is not None and not _KEY.fullmatch(self.key):
            raise ValueError(f"target {self.name!r}: key_arn {self.key!r} is no key's ARN")
        super().__post_init__()

    @property
    def _parts(self) -> Mapping[str, str]:
        found = _ARN.fullmatch(self.at)
        if found is None:
            raise ValueError(f"target {self.name!r}: {self.at!r} is no ARN without wildcards")
        return found.groupdict()

    @property
    def kind(self) -> TargetKind:
        return self.of

    @property
    def arn(self) -> str:
        return self.at

    @property
    def place(self) -> str:
        if self.of is not TargetKind.SQS:
            return self.at
        parts = self._parts
        suffix = _SUFFIXES.get(parts["partition"], "amazonaws.com")
        return f"https://sqs.{parts['region']}.{suffix}/{parts['account']}/{parts['resource']}"

    @property
    def key_arn(self) -> str | None:
        return self.key

    @property
    def entry(self) -> Entry:
        return _event(super().entry, self.source, self.detail_type)


@dataclass(frozen=True, kw_only=True)
class Told:
    """What the functions are told of the targets. Raises ValueError for a name given twice."""

    targets: Sequence[Target]

    def __post_init__(self) -> None:
        Directory.of(*(target.entry for target in self.targets))

    def api(self) -> Mapping[str, str]:
        """The names and who may use them, not where they lead."""
        return self._variables(json.dumps(self._values(with_place=False), separators=(",", ":")))

    def workers(self, scope: Construct) -> Mapping[str, str]:
        """All there is to say of them."""
        return self._variables(Stack.of(scope).to_json_string(self._values(with_place=True)))

    @property
    def size(self) -> int:
        """How many bytes of a worker's environment they take, about."""
        if not self.targets:
            return 0
        unknown = [target.place for target in self.targets if Token.is_unresolved(target.place)]
        said = json.dumps(self._values(with_place=True), separators=(",", ":"))
        return len(said.encode()) + len(unknown) * PLACE_BYTES - sum(map(len, unknown))

    def statements(self) -> Sequence[iam.PolicyStatement]:
        return [statement for target in self.targets for statement in target.statements]

    def _values(self, *, with_place: bool) -> Mapping[str, object]:
        entries = [target.entry for target in self.targets]
        return {entry.name: entry.to_values(with_place=with_place) for entry in entries}

    def _variables(self, text: str) -> Mapping[str, str]:
        return {"LAMPLIGHTER_TARGETS": text} if self.targets else {}


def targets_of(said: object) -> tuple[Target, ...]:
    """What is said of each target by its name; raises ValueError, with name and value."""
    if not isinstance(said, dict):
        raise ValueError(f"{said!r} is not a JSON object")  # noqa: TRY004 -- one kind of error
    return tuple(_target(name, values) for name, values in said.items())


def _target(name: str, values: object) -> Target:
    if not isinstance(values, dict):
        raise ValueError(f"target {name!r}: {values!r} is not a JSON object")  # noqa: TRY004
    if unknown := values.keys() - _SAID:
        known = ", ".join(sorted(_SAID))
        raise ValueError(f"target {name!r}: no {', '.join(sorted(unknown))}; there are {known}")
    texts = {one: values.get(one, "") for one in ("arn", "source", "detail_type", "key_arn")}
    if wrong := [one for one, text in texts.items() if not isinstance(text, str)]:
        raise ValueError(f"target {name!r}: {wrong[0]} {texts[wrong[0]]!r} is not text")
    return ArnTarget(
        name=name,
        owners=sorted(owners_named(name, values.get("owners"))),
        of=kind_named(name, values.get("kind")),
        at=texts["arn"],
        source=texts["source"],
        detail_type=texts["detail_type"],
        key=texts["key_arn"] or None,
    )


def _event(entry: Entry, source: str, detail_type: str) -> Entry:
    return replace(entry, source=source, detail_type=detail_type)


def _arn_of(key: kms.IKey | None) -> str | None:
    return key.key_arn if key else None
