"""Limits of what runs at once, over HTTP: an operator's, for they concern every owner."""

from typing import Annotated, Literal

from pydantic import Field

from lamplighter.api import documents
from lamplighter.api.bodies import Body
from lamplighter.api.reading import read
from lamplighter.api.requests import Query
from lamplighter.core.errors import NotFound, Rejected
from lamplighter.core.limits import LIMIT_MAX
from lamplighter.core.permits import Key
from lamplighter.ports import Ports
from lamplighter.services import permits
from lamplighter.services.permits import Standing


class LimitBody(Body):
    """How many executions of a lane, an owner or a task run at once."""

    kind: Literal["queue", "owner", "task"]
    name: Annotated[
        str,
        Field(description="Of the lane, the owner or the task; `*` is every owner without one."),
    ]
    limit: Annotated[int, Field(description=f"0–{LIMIT_MAX}; 0: none starts.")]


def listed(ports: Ports) -> documents.Limits:
    """All limits, and how many run and wait under each."""
    return {"items": [_document(one) for one in permits.standing(ports)]}


def put(ports: Ports, value: object) -> documents.Limit:
    """Make or change the limit of a body; raises Rejected, Faults or Conflict."""
    body = read(LimitBody, value)
    return _document(permits.set_limit(ports, Key.of(body.kind, body.name), body.limit))


def remove(ports: Ports, query: Query) -> None:
    """Remove the limit that a query names; raises Rejected, NotFound or Conflict."""
    key = Key.of(_said(query, "kind"), _said(query, "name"))
    if not permits.remove_limit(ports, key):
        raise NotFound(kind="limit", id=str(key))


def _said(query: Query, name: str) -> str:
    if (text := query.one(name)) is None:
        raise Rejected(field=name, value=None, reason="which limit?")
    return text


def _document(found: Standing) -> documents.Limit:
    return {
        "kind": found.key.kind.value,
        "name": found.key.name,
        "limit": found.limit,
        "running": found.holders,
        "waiting": found.waiting,
    }
