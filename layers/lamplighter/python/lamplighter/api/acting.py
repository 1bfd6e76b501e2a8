"""Cancelling and replaying executions, one or those that a filter lets through."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from http import HTTPStatus
from types import MappingProxyType
from typing import Annotated, Final, cast

from pydantic import ConfigDict, Field, WithJsonSchema

from lamplighter.api import cursors, documents, problems, render, strict_json
from lamplighter.api.bodies import Body, PayloadBody
from lamplighter.api.creating import Reply
from lamplighter.api.fingerprints import by_bytes, fingerprint
from lamplighter.api.payloads import payload_of
from lamplighter.api.problems import Faults
from lamplighter.api.reading import faults_of, read
from lamplighter.core.buckets import (
    ExecutionId,
    JobId,
    execution_of,
    parse_execution_id,
    parse_job_id,
)
from lamplighter.core.errors import Rejected
from lamplighter.core.lifecycle import FINAL, NEEDS_ATTENTION
from lamplighter.core.limits import BULK_MAX_EXECUTIONS
from lamplighter.core.model import Execution, Owner
from lamplighter.core.schedule import format_instant, parse_instant
from lamplighter.core.status import Status, parse_status, status_of
from lamplighter.ports import Ports
from lamplighter.services import bulk
from lamplighter.services.bulk import Selection
from lamplighter.services.cancel import cancel
from lamplighter.services.inspect import Seen, Wanted
from lamplighter.services.replay import replay
from lamplighter.services.submit import IdempotencyKey, Replayed

_ENDED: Final = frozenset(Status(state) for state in FINAL)
_MARKED: Final = MappingProxyType({"Idempotent-Replayed": "true"})


class ReplayBody(PayloadBody):
    """What is to be otherwise this time; nothing, unless given."""

    payload: Annotated[
        object, Field(description="In place of the old one, and with a new idempotency key.")
    ] = None


class FilterBody(Body):
    """Which executions are meant, in the words of the lists' query: at least one of these."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    status: Annotated[
        object,
        Field(description="Any of these, by our names or another system's."),
        WithJsonSchema(
            {
                "anyOf": [
                    {"type": "string"},
                    {"type": "array", "items": {"type": "string"}, "minItems": 1},
                ]
            }
        ),
    ] = ""
    task: Annotated[str, Field(description="Of this task.")] = ""
    queue: Annotated[str, Field(description="In this lane.")] = ""
    from_: Annotated[
        str, Field(alias="from", description="RFC 3339: with a `run_at` then or later.")
    ] = ""
    to: Annotated[str, Field(description="RFC 3339: with a `run_at` before that.")] = ""
    job_id: Annotated[str, Field(description="Of this job.")] = ""
    error_type: Annotated[str, Field(description="Whose latest error is of this type.")] = ""


class BulkBody(Body):
    """What is to be done to each execution that a filter lets through, a page at a time."""

    filter: FilterBody
    limit: Annotated[
        int, Field(ge=1, le=BULK_MAX_EXECUTIONS, description="How many at most, now.")
    ] = BULK_MAX_EXECUTIONS
    dry_run: Annotated[bool, Field(description="Only tell which they are.")] = False
    cursor: Annotated[
        str, Field(description="A page's `next_cursor`, for the following; the same filter.")
    ] = ""


@dataclass(frozen=True, kw_only=True)
class Verb:
    """What is done to many: by which name, and to those in which states."""

    name: str
    statuses: frozenset[Status]
    """All that it is for."""
    unless_said: frozenset[Status]
    """Those that it is done to when the filter names no status."""
    reason: str
    """Why it is not done to others."""


CANCEL: Final = Verb(
    name="cancel",
    statuses=frozenset(Status) - _ENDED,
    unless_said=frozenset(Status) - _ENDED,
    reason="what has ended is not cancelled",
)
REPLAY: Final = Verb(
    name="replay",
    statuses=_ENDED,
    unless_said=frozenset(Status(state) for state in NEEDS_ATTENTION),
    reason="only what has ended is replayed",
)


@dataclass(frozen=True, kw_only=True)
class Acting:
    """Acts on the executions of one owner."""

    ports: Ports
    owner: Owner
    traceparent: str | None
    report: Callable[[Exception], None]
    """Is told of what is not the caller's doing."""

    def cancel(self, id: ExecutionId) -> Reply:
        """End it, 200, or ask it to stop, 202; raises what Api answers with a problem."""
        row = cancel(self.ports, self.owner, id)
        status = HTTPStatus.OK if row.is_final else HTTPStatus.ACCEPTED
        return Reply(status=status, document=shown(row))

    def replay(self, id: ExecutionId, value: object, *, key: str | None) -> Reply:
        """Run it again as a new execution, 201; raises what Api answers with a problem."""
        body = read(ReplayBody, value)
        answer = replay(
            self.ports,
            self.owner,
            id,
            payload=payload_of(body),
            key=keyed(key, ["replay_execution", id, by_bytes(value)]),
            traceparent=self.traceparent,
        )
        return made(answer)

    def cancel_many(self, value: object) -> documents.Bulk:
        """End, or ask to stop, a page of those that a body's filter lets through."""
        return self._each(value, CANCEL, self._cancel_one)

    def replay_many(self, value: object, *, key: str | None) -> documents.Bulk:
        """Run a page of those that a body's filter lets through again.

        With a key none of them twice, however often it is asked for: all pages go by one key.
        """

        def replay_one(seen: Seen, body: BulkBody) -> documents.Handled | None:
            of_filter = ["replay_executions", body.filter.model_dump(mode="json")]
            answer = bulk.replay_once(
                self.ports,
                self.owner,
                seen.row,
                keyed(key, of_filter),
                traceparent=self.traceparent,
            )
            if answer is None:
                return None
            return _handled(seen, "REPLAYED", new_execution_id=id_of(answer))

        return self._each(value, REPLAY, replay_one)

    def _cancel_one(self, seen: Seen, _: BulkBody) -> documents.Handled:
        row = cancel(self.ports, self.owner, seen.row.id)
        outcome = "CANCELLED" if row.is_final else "REQUESTED"
        return _handled(replace(seen, status=Status(row.state)), outcome)

    def _each(
        self,
        value: object,
        verb: Verb,
        act: Callable[[Seen, BulkBody], documents.Handled | None],
    ) -> documents.Bulk:
        body = read(BulkBody, value)
        selection = _selection(body.filter, verb)
        query = _digested(self.owner, selection, verb)
        page = bulk.found(
            self.ports, self.owner, selection, after=_after(body, query), limit=body.limit
        )

        def one(seen: Seen) -> documents.Handled | None:
            if body.dry_run:
                return _handled(seen, "MATCHED")
            try:
                return act(seen, body)
            except Exception as error:  # noqa: BLE001 -- what one meets is not its neighbours'
                return _handled(seen, "REFUSED", problem=problems.told(error, self.report))

        handled = bulk.each(self.ports, page, one)
        return {
            "answers": [answer for answer in handled.results if answer is not None],
            "next_cursor": handled.next and cursors.write(handled.next, query),
        }


def keyed(key: str | None, asked: object) -> IdempotencyKey[Execution] | None:
    """A caller's key; `asked` is all that was asked for, and of what."""
    if key is None:
        return None
    return IdempotencyKey(
        key=key,
        fingerprint=fingerprint(asked),
        render=lambda made: strict_json.compact(shown(made)),
    )


def made(answer: Execution | Replayed) -> Reply:
    """201 for an execution that somebody asked for, or what its key was answered first."""
    location = {"Location": f"/v1/executions/{id_of(answer)}"}
    if isinstance(answer, Replayed):
        document, headers = json.loads(answer.answer), {**location, **_MARKED}
    else:
        document, headers = shown(answer), location
    return Reply(status=HTTPStatus.CREATED, document=document, headers=headers)


def id_of(answer: Execution | Replayed) -> ExecutionId | None:
    """The execution that was made, now or when the key came first."""
    return answer.id if isinstance(answer, Execution) else execution_of(answer.job_id)


def shown(row: Execution) -> documents.Execution:
    """A row that was just written, as lists show it: without a payload of its own item."""
    if row.spec is not None and not row.spec.payload.is_inline:
        payload = replace(row.spec.payload, text=None)
        row = replace(row, spec=replace(row.spec, payload=payload))
    return render.execution(Seen(row=row, status=status_of(row, dispatched=False)))


def _handled(
    seen: Seen,
    outcome: str,
    *,
    new_execution_id: ExecutionId | None = None,
    problem: problems.Problem | None = None,
) -> documents.Handled:
    return {
        "execution_id": seen.row.id,
        "status": seen.status,
        "outcome": outcome,
        "new_execution_id": new_execution_id,
        "problem": cast("documents.Problem | None", problem and problem.document()),
    }


def _selection(said: FilterBody, verb: Verb) -> Selection:
    """The executions that a filter names; raises Rejected or Faults."""
    if not said.model_fields_set:
        names = ", ".join(field.alias or name for name, field in FilterBody.model_fields.items())
        raise Rejected(field="filter", value={}, reason=f"names none: at least one of {names}")
    parts: tuple[Callable[[], object], ...] = (
        lambda: _statuses(said, verb),
        lambda: _instant(said, "from_"),
        lambda: _instant(said, "to"),
        lambda: _job_id(said),
    )
    faults = [fault for part in parts for fault in faults_of(part)]
    if faults:
        raise Faults(faults)
    return Selection(
        wanted=Wanted(
            statuses=_statuses(said, verb),
            task=_text(said, "task"),
            queue=_text(said, "queue"),
            start=_instant(said, "from_"),
            end=_instant(said, "to"),
            error_type=_text(said, "error_type"),
        ),
        job_id=_job_id(said),
    )


def _statuses(said: FilterBody, verb: Verb) -> frozenset[Status]:
    if "status" not in said.model_fields_set:
        return verb.unless_said
    return frozenset(_status(text, verb) for text in _texts(said.status))


def _texts(status: object) -> Iterator[str]:
    texts = status if isinstance(status, list) and status else [status]
    for text in texts:
        if not isinstance(text, str):
            raise Rejected(field="filter.status", value=text, reason="not a status, or several")
        yield from text.split(",")


def _status(text: str, verb: Verb) -> Status:
    try:
        status = parse_status(text)
    except Rejected as fault:
        raise Rejected(field="filter.status", value=text, reason=fault.reason) from None
    if status not in verb.statuses:
        known = ", ".join(status for status in Status if status in verb.statuses)
        reason = f"{verb.reason}: not one of {known}"
        raise Rejected(field="filter.status", value=text, reason=reason)
    return status


def _text(said: FilterBody, name: str) -> str | None:
    text: str | None = said.said(name).get(name)
    return text


def _instant(said: FilterBody, name: str) -> datetime | None:
    text = _text(said, name)
    return None if text is None else parse_instant(f"filter.{name.rstrip('_')}", text)


def _job_id(said: FilterBody) -> JobId | None:
    text = _text(said, "job_id")
    try:
        return None if text is None else parse_job_id(text)
    except Rejected as fault:
        raise Rejected(field="filter.job_id", value=text, reason=fault.reason) from None


def _after(body: BulkBody, query: object) -> ExecutionId | None:
    if "cursor" not in body.model_fields_set:
        return None
    return parse_execution_id(cursors.read(body.cursor, query))


def _digested(owner: Owner, selection: Selection, verb: Verb) -> object:
    wanted = selection.wanted
    times = [moment and format_instant(moment) for moment in (wanted.start, wanted.end)]
    words = [wanted.task, wanted.queue, wanted.error_type, selection.job_id]
    return [owner, f"executions/{verb.name}", sorted(wanted.statuses), *words, *times]
