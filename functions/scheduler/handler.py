"""Decides when: the tick hands out each partition's work, and each piece of work is done here."""

import os
from typing import TypedDict, final

from aws_lambda_powertools.utilities.typing import LambdaContext

from lamplighter.aws.events import Answer, Event, keep, one_by_one
from lamplighter.aws.queue import work_of
from lamplighter.aws.schema import TICK
from lamplighter.aws.settings import SchedulerSettings
from lamplighter.aws.wiring import wire
from lamplighter.core.lease import Ticker
from lamplighter.services import clock
from lamplighter.services.partitions import do
from lamplighter.services.tick import tick

wired = wire(SchedulerSettings.of(os.environ))
# Several times what the slowest page takes; what is left is the next visit's.
MARGIN_MS = 20_000


@final
class Tick(TypedDict):
    """What EventBridge Scheduler sends each minute: its kind is tick."""

    kind: str


def handle(event: Tick | Event, context: LambdaContext) -> Answer:
    """Hand out work at a tick; do what a message of the work queue asks for."""
    try:
        if "Records" in event:
            return one_by_one(event, lambda body: _do(body, context), telemetry=wired.telemetry)
        if event["kind"] != "tick":
            raise ValueError(f"neither a tick nor a batch: {event!r:.200}")
        tick(wired.ports, by=Ticker.SCHEDULE)
        return keep([])
    finally:
        wired.telemetry.flush()


def _do(body: str, context: LambdaContext) -> None:
    clock.check(wired.ports)
    if body == TICK:
        tick(wired.ports, by=Ticker.RULE)
        return
    do(
        wired.ports,
        work_of(body),
        owner=context.aws_request_id,
        time_left=lambda: context.get_remaining_time_in_millis() > MARGIN_MS,
    )
