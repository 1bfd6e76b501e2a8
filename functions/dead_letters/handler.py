"""Takes what a lane could not deliver: sends it again, or gives it up where its owner sees it."""

import os

from aws_lambda_powertools.utilities.typing import LambdaContext

from lamplighter.aws.events import Answer, Event, one_by_one
from lamplighter.aws.queue import message_of
from lamplighter.aws.settings import DeadLetterSettings
from lamplighter.aws.wiring import wire
from lamplighter.services.undeliverable import undeliverable

wired = wire(DeadLetterSettings.of(os.environ))


def handle(event: Event, _context: LambdaContext) -> Answer:
    """Take care of each message's execution; what is none of ours stays, and alarms."""
    try:
        return one_by_one(
            event,
            lambda body: undeliverable(wired.ports, message_of(body)),
            telemetry=wired.telemetry,
        )
    finally:
        wired.telemetry.flush()
