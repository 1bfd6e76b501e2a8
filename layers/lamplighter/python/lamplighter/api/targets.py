"""What a job runs: a task, or a target in its place."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from typing import assert_never

from lamplighter.api.bodies import JobBody, TargetBody
from lamplighter.core.deferral import Terms
from lamplighter.core.errors import Rejected
from lamplighter.core.model import Owner, Target, check_name
from lamplighter.core.named import Directory, Invocation, NamedTarget, TargetKind
from lamplighter.core.targets import HttpRules, HttpTarget


@dataclass(frozen=True, kw_only=True)
class What:
    """A task's name; of a target, the one that stands for it."""

    task: str
    target: Target | None = None


def what_of(body: JobBody, *, owner: Owner, http: HttpRules, targets: Directory) -> What:
    """What a body wants to be run; raises Rejected, also for what this owner may not call."""
    said = body.said("task", "target")
    if not said:
        raise Rejected(field="task", value=None, reason="required, or a target")
    if len(said) > 1:
        raise Rejected(field="target", value=body.target.kind, reason="not beside a task")
    if "task" in said:
        check_name("task", body.task)
        return What(task=body.task)
    match body.target.kind:
        case "task":
            _check_fields(body.target, needs="name")
            check_name("target.name", body.target.name)
            return What(task=body.target.name)
        case "http":
            _check_fields(body.target, needs="url", takes=("method", "headers", "deferred"))
            http.check_scheme(body.target.url)
            target = _http_target(body.target)
            http.check(target, owner=owner)
            return What(task=target.task_name, target=target)
        case "lambda" | "sqs" | "sns" | "eventbridge" | "stepfunctions" | "sfn":
            named = _named_target(body.target)
            targets.check(named, owner=owner)
            return What(task=named.task_name, target=named)
        case other:
            assert_never(other)


def _check_fields(target: TargetBody, *, needs: str, takes: Collection[str] = ()) -> None:
    said = target.model_fields_set
    if needs not in said:
        raise Rejected(field=f"target.{needs}", value=None, reason="required")
    for name in said - {"kind", needs, *takes}:
        value = getattr(target, name)
        raise Rejected(field=f"target.{name}", value=value, reason=f"not of a {target.kind} target")


def _http_target(body: TargetBody) -> HttpTarget:
    terms = None
    if (said := body.deferred) is not None:
        terms = Terms(
            heartbeat=timedelta(seconds=said.heartbeat_seconds),
            hard_limit=timedelta(seconds=said.hard_limit_seconds),
        )
    return HttpTarget(
        url=body.url,
        method=body.method,
        headers=tuple(body.headers.items()),
        deferred=terms,
    )


def _named_target(body: TargetBody) -> NamedTarget:
    takes = ("invocation",) if body.kind == "lambda" else ()
    _check_fields(body, needs="name", takes=takes)
    return NamedTarget(
        kind=TargetKind.STEPFUNCTIONS if body.kind == "sfn" else TargetKind(body.kind),
        name=body.name,
        invocation=Invocation(body.invocation),
    )
