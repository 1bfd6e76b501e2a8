"""Decides when: the tick hands out each partition's work, and each piece of work is done here."""

import os
from typing import TypedDict, assert_never, final

from aws_lambda_powertools.utilities.typing import LambdaContext

from lamplighter.aws.events import Answer, Event, keep, one_by_one
from lamplighter.aws.queue import work_of
from lamplighter.aws.settings import SchedulerSettings
from lamplighter.aws.wiring import wire
from lamplighter.core.lease import Kind
from lamplighter.services.dispatch import dispatch
from lamplighter.services.sweep import sweep
from lamplighter.services.tick import tick

wired = wire(SchedulerSettings.of(os.environ))
# Several times what the slowest page takes; what is left is the next visit's.
MARGIN_MS = 20_000


@final
class Tick(TypedDict):
    """What EventBridge Scheduler sends each minute: its kind is tick."""

    kind: str


def handle(event: Tick | Event, context: LambdaContext) -> Answer:
    """Hand out work at a tick; dispatch or sweep for a message of the work queue."""
    try:
        if "Records" in event:
            return one_by_one(event, lambda body: _do(body, context), telemetry=wired.telemetry)
        if event["kind"] != "tick":
            raise ValueError(f"neither a tick nor a batch: {event!r:.200}")
        tick(wired.ports)
        return keep([])
    finally:
        wired.telemetry.flush()


def _do(body: str, context: LambdaContext) -> None:
    work, owner = work_of(body), context.aws_request_id

    def time_left() -> bool:
        return context.get_remaining_time_in_millis() > MARGIN_MS

    match work.kind:
        case Kind.DISPATCH:
            dispatch(wired.ports, work.partition, owner=owner, time_left=time_left)
        case Kind.SWEEP:
            sweep(wired.ports, work.partition, owner=owner, time_left=time_left)
        case other:
            assert_never(other)
