"""The HTTP API: jobs in, and what became of them out."""

import os
from typing import Any

from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.typing import LambdaContext

from lamplighter.api.access import Access
from lamplighter.api.requests import Event, Request
from lamplighter.api.routes import Api
from lamplighter.aws.settings import ApiSettings
from lamplighter.aws.telemetry import SERVICE
from lamplighter.aws.wiring import wire
from lamplighter.core.errors import Unavailable

settings = ApiSettings.of(os.environ)
wired = wire(settings)
logger = Logger(service=SERVICE)


def report(error: Exception, request: Request) -> None:
    """Log what is not the caller's doing, beside the id that the access log has too."""
    fields = {"request_id": request.id, "path": request.path}
    if isinstance(error, Unavailable):
        logger.warning("unavailable", extra={**fields, "reason": str(error)})
    else:
        logger.error("bug", extra=fields, exc_info=error)


access = Access(
    owner_claim=settings.owner_claim,
    requires_scopes=settings.requires_scopes,
    scope_prefix=settings.scope_prefix,
)
api = Api(
    wired.ports,
    lanes=settings.queues,
    access=access,
    report=report,
    http=settings.http,
    targets=settings.targets,
    tasks=settings.tasks,
)


def handle(event: Event, context: LambdaContext) -> dict[str, Any]:
    """Answer one request with JSON, whatever is in it."""
    try:
        return api.handle(event, context)
    finally:
        wired.telemetry.flush()
