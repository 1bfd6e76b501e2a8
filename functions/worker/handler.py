"""Runs the jobs of one lane: each message's execution, side by side, each to its outcome."""

import os
from datetime import timedelta

from aws_lambda_powertools.utilities.typing import LambdaContext

from lamplighter.aws.events import Answer, Event, batch_of
from lamplighter.aws.settings import WorkerSettings
from lamplighter.aws.wiring import wire
from lamplighter.aws.worker import batch_runner

settings = WorkerSettings.of(os.environ)
wired = wire(settings)
runner = batch_runner(wired, settings, os.environ)


def handle(event: Event, context: LambdaContext) -> Answer:
    """Run a batch; what finished is deleted by then, what is to be tried again is kept."""
    try:
        batch = batch_of(event, lane=settings.lane, telemetry=wired.telemetry)
        kept = runner.run(
            batch.received,
            worker=context.aws_request_id,
            time_left=lambda: timedelta(milliseconds=context.get_remaining_time_in_millis()),
        )
        return batch.answer(kept)
    finally:
        wired.telemetry.flush()
