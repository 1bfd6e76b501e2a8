"""API v1: what each route asks of the services, and how it answers.

Whoever is asked for has to belong to the token's owner; a body is read whole and strictly
before anything is written. Every path is served with `/v1` in front and without.
"""

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Final, TypeVar, get_args

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from aws_lambda_powertools.event_handler.exceptions import NotFoundError
from aws_lambda_powertools.utilities.typing import LambdaContext

from lamplighter.api import (
    callbacks,
    cursors,
    documents,
    limiting,
    loads,
    openapi,
    payloads,
    problems,
    render,
    strict_json,
    swagger,
)
from lamplighter.api.access import Access
from lamplighter.api.accounting import Accounting, Forecasting
from lamplighter.api.acting import Acting
from lamplighter.api.creating import Creation, Reply, jobs_of
from lamplighter.api.operations import OPERATIONS, Operation
from lamplighter.api.patching import Patch
from lamplighter.api.preview import preview
from lamplighter.api.problems import Answered, Problem, Refusal, brief
from lamplighter.api.requests import Event, Query, Request
from lamplighter.api.running import Running
from lamplighter.core.buckets import (
    ExecutionId,
    JobId,
    execution_of,
    parse_execution_id,
    parse_job_id,
)
from lamplighter.core.errors import Damaged, NotFound, Rejected, Unavailable
from lamplighter.core.limits import BATCH_MAX_BYTES, LIST_ITEMS, LIST_MAX_ITEMS
from lamplighter.core.model import Execution, Owner
from lamplighter.core.named import NO_TARGETS, Directory
from lamplighter.core.schedule import format_instant, parse_instant
from lamplighter.core.status import parse_status
from lamplighter.core.targets import NOBODY, HttpRules
from lamplighter.ports import Ports
from lamplighter.services import inspect, manage
from lamplighter.services.amend import amend
from lamplighter.services.forewarning import Forewarning
from lamplighter.services.inspect import Listing, Wanted
from lamplighter.services.progress import overall
from lamplighter.services.recovery import recovery
from lamplighter.version import VERSION

# The description changes with the release only, and nobody's jobs are in it.
_CACHED: Final = MappingProxyType({"Cache-Control": "public, max-age=300"})
_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")

Item = TypeVar("Item")
Id = TypeVar("Id", bound=str)


@dataclass(frozen=True, kw_only=True)
class Call:
    """A request by somebody whose token is good for it, with a query of known fields."""

    request: Request
    owner: Owner
    query: Query


@dataclass(frozen=True, kw_only=True)
class Listed:
    """Which list a cursor belongs to: part of what it is checked against."""

    owner: Owner
    list: str
    wanted: Wanted


class Api:
    """The HTTP API: answers every event, whatever is in it.

    `report` is told of what is not the caller's doing: a service that did not answer
    (Unavailable, a 503), an item that cannot be read back (Damaged, a 500 that names it), or a
    bug, which is answered with a 500 that says nothing of the inside.
    """

    def __init__(
        self,
        ports: Ports,
        *,
        lanes: Collection[str],
        access: Access,
        report: Callable[[Exception, Request], None],
        http: HttpRules = NOBODY,
        targets: Directory = NO_TARGETS,
        tasks: Collection[str] = (),
    ) -> None:
        self._ports = ports
        self._lanes = lanes
        self._access = access
        self._report = report
        self._http = http
        self._targets = targets
        self._tasks = tasks
        self._app = APIGatewayHttpResolver(strip_prefixes=["/v1"])
        self._add_routes()
        self._add_exceptions()

    def handle(self, event: Event, context: LambdaContext) -> dict[str, Any]:
        """The answer to an HTTP API event, payload format 2.0."""
        return self._app.resolve(_without_stage(event), context)

    def _add_routes(self) -> None:
        routes: Mapping[str, Callable[..., Response[Any]]] = {
            "create_job": self._create,
            "create_jobs": self._create_many,
            "list_jobs": self._jobs,
            "show_job": self._job,
            "patch_job": self._patch,
            "delete_job": self._delete,
            "pause_job": self._pause,
            "resume_job": self._resume,
            "trigger_job": self._trigger,
            "backfill_job": self._backfill,
            "list_job_executions": self._executions_of,
            "list_job_runs": self._executions_of,
            "show_ledger": self._ledger,
            "show_forecast": self._forecast,
            "show_progress": self._progress,
            "show_recovery": self._recovery,
            "list_limits": self._limits,
            "set_limit": self._set_limit,
            "remove_limit": self._remove_limit,
            "list_executions": self._executions,
            "show_execution": self._execution,
            "cancel_execution": self._cancel,
            "replay_execution": self._replay,
            "cancel_executions": self._cancel_many,
            "replay_executions": self._replay_many,
            "heartbeat_try": self._called_back(callbacks.heartbeat),
            "complete_try": self._called_back(callbacks.complete),
            "fail_try": self._called_back(callbacks.fail),
            "create_payload": self._create_payload,
            "preview_schedule": self._preview,
            "health": self._health,
            "openapi": self._openapi,
            "docs": self._docs,
        }
        methods: dict[str, list[str]] = {}
        for operation in OPERATIONS:
            rule = re.sub(r"{(\w+)}", r"<\1>", operation.path)
            methods.setdefault(rule, []).append(operation.method)
            asked = self._asked(operation, routes[operation.id])
            self._app.route(rule, method=operation.method)(asked)
        for rule, known in methods.items():
            others = [method for method in _METHODS if method not in known]
            self._app.route(rule, method=others)(self._refuse_method(known))

    def _asked(
        self, operation: Operation, route: Callable[..., Response[Any]]
    ) -> Callable[..., Response[Any]]:
        """The route as the resolver calls it: with the ids of the path, and nothing else."""
        known = [parameter.name for parameter in operation.query]

        def asked(**ids: str) -> Response[Any]:
            request = self._request()
            request.check_headers()
            if operation.needs is None:
                request.query(*known)
                return route(**ids)
            owner = self._access.owner(request.claims, needs=operation.needs)
            try:
                return route(Call(request=request, owner=owner, query=request.query(*known)), **ids)
            except Damaged as damaged:
                raise _as_seen_by(owner, damaged, ids) from None

        return asked

    def _refuse_method(self, known: Sequence[str]) -> Callable[..., Response[Any]]:
        def refuse(**_: str) -> Response[Any]:
            allowed = ", ".join(known)
            raise Refusal(
                Problem(
                    status=HTTPStatus.METHOD_NOT_ALLOWED,
                    detail=f"{self._request().method} is not one of {allowed}",
                    headers={"Allow": allowed},
                )
            )

        return refuse

    def _add_exceptions(self) -> None:
        # Powertools takes the handler of the nearest class.
        handles = self._app.exception_handler
        handles(Refusal)(lambda error: _problem(error.problem))
        handles([*get_args(Answered)])(lambda error: _problem(problems.problem_of(error)))
        handles(Unavailable)(self._unavailable)
        handles(NotFoundError)(self._no_such_path)
        handles(Exception)(self._bug)

    def _no_such_path(self, _: NotFoundError) -> Response[str]:
        detail = f"no path {brief(self._request().path)}"
        return _problem(Problem(status=HTTPStatus.NOT_FOUND, detail=detail))

    def _unavailable(self, error: Unavailable) -> Response[str]:
        self._report(error, self._request())
        return _problem(problems.problem_of(error))

    def _bug(self, error: Exception) -> Response[str]:
        self._report(error, self._request())
        return _problem(problems.bug())

    def _create(self, call: Call) -> Response[str]:
        key = call.request.idempotency_key()
        body = strict_json.read(call.request.body())
        return _replied(self._creation(call).one(body, key=key))

    def _create_many(self, call: Call) -> Response[str]:
        if call.request.header("Idempotency-Key") is not None:
            reason = "each job of a batch has a key of its own: idempotency_key in its body"
            raise Rejected(field="Idempotency-Key", value="of the batch", reason=reason)
        body = strict_json.read(call.request.body(most=BATCH_MAX_BYTES))
        return _json(self._creation(call).many(jobs_of(body)))

    def _creation(self, call: Call) -> Creation:
        return Creation(
            ports=self._ports,
            owner=call.owner,
            lanes=self._lanes,
            traceparent=call.request.traceparent(),
            report=lambda error: self._report(error, call.request),
            http=self._http,
            targets=self._targets,
            forecast=_switch(call.query, "forecast"),
            forewarning=Forewarning(ports=self._ports),
            tasks=self._tasks,
        )

    def _jobs(self, call: Call) -> Response[str]:
        # Asked with a status, it is about executions.
        if "status" in call.query.values:
            return self._executions(call)
        listed = Listed(owner=call.owner, list="jobs", wanted=_wanted(call.query))
        page = inspect.jobs(
            self._ports,
            call.owner,
            listed.wanted,
            after=_after(call.query, listed, parse_job_id),
            limit=_limit(call.query),
        )
        return _page(page, listed, render.job)

    def _job(self, call: Call, *, job_id: str) -> Response[str]:
        found = render.detail(inspect.job(self._ports, call.owner, _job_id(job_id)))
        return _json(found, headers=_tagged(found["version"]))

    def _executions_of(self, call: Call, *, job_id: str) -> Response[str]:
        listed = Listed(owner=call.owner, list=job_id, wanted=_wanted(call.query))
        page = inspect.executions_of(
            self._ports,
            call.owner,
            _job_id(job_id),
            listed.wanted,
            after=_after(call.query, listed, parse_execution_id),
            limit=_limit(call.query),
        )
        return _page(page, listed, render.execution)

    def _delete(self, call: Call, *, job_id: str) -> Response[str]:
        mode = call.query.one("mode")
        if mode not in {None, "request"}:
            raise Rejected(field="mode", value=mode, reason="not request")
        manage.delete(self._ports, call.owner, _job_id(job_id), request=mode is not None)
        # An empty body, not none at all: the local stack's emulator answers 500 to that.
        return Response(status_code=HTTPStatus.NO_CONTENT, body="")

    def _pause(self, call: Call, *, job_id: str) -> Response[str]:
        version = call.request.if_match()
        id = _job_id(job_id)
        return self._revised(manage.pause(self._ports, call.owner, id, version=version))

    def _resume(self, call: Call, *, job_id: str) -> Response[str]:
        version = call.request.if_match()
        id = _job_id(job_id)
        return self._revised(manage.resume(self._ports, call.owner, id, version=version))

    def _patch(self, call: Call, *, job_id: str) -> Response[str]:
        id, version = _job_id(job_id), call.request.if_match()
        forecast = _switch(call.query, "forecast")
        patch = Patch(
            ports=self._ports,
            value=strict_json.read(call.request.body()),
            lanes=self._lanes,
            http=self._http,
            targets=self._targets,
        )
        if execution_of(id) is None:
            change = patch.of_job
            revised = manage.edit(self._ports, call.owner, id, change, version=version)
            is_warned = patch.moves if forecast is None else forecast
            return self._revised(revised, is_warned=is_warned)
        row = amend(self._ports, call.owner, id, patch.of_one_off, version=version)
        document = render.amended(inspect.one_off(self._ports, row))
        warned = {**document, **self._warnings(row)} if forecast else document
        return _json(warned, headers=_tagged(row.job_version))

    def _revised(self, revised: manage.Revised, *, is_warned: bool = False) -> Response[str]:
        job, now = revised.job, self._ports.clock.now()
        following = job.next_after(now)
        document: render.Document = render.revised(revised, next_run_at=following)
        if is_warned and following is not None:
            armed = job.occurrence(following, now=now, sent_directly=False)
            document = {**document, **self._warnings(armed)}
        return _json(document, headers=_tagged(job.version))

    def _warnings(self, row: Execution) -> render.Document:
        crowd = Forewarning(ports=self._ports).of(row)
        return {} if crowd is None else {"warnings": [loads.forewarning(crowd)]}

    def _trigger(self, call: Call, *, job_id: str) -> Response[str]:
        key = call.request.idempotency_key()
        body = _body_if_any(call.request)
        return _replied(self._running(call).trigger(_job_id(job_id), body, key=key))

    def _backfill(self, call: Call, *, job_id: str) -> Response[str]:
        key = call.request.idempotency_key()
        body = strict_json.read(call.request.body())
        return _replied(self._running(call).backfill(_job_id(job_id), body, key=key))

    def _running(self, call: Call) -> Running:
        return Running(ports=self._ports, owner=call.owner, traceparent=call.request.traceparent())

    def _ledger(self, call: Call, *, job_id: str) -> Response[str]:
        accounting = Accounting(ports=self._ports, owner=call.owner)
        return _json(accounting.ledger(_job_id(job_id), call.query))

    def _forecast(self, call: Call) -> Response[str]:
        forecasting = Forecasting(ports=self._ports, owner=call.owner, lanes=self._lanes)
        return _json(forecasting.forecast(call.query))

    def _progress(self, _call: Call) -> Response[str]:
        return _json(render.progress(overall(self._ports)))

    def _limits(self, _call: Call) -> Response[str]:
        return _json(limiting.listed(self._ports))

    def _set_limit(self, call: Call) -> Response[str]:
        return _json(limiting.put(self._ports, strict_json.read(call.request.body())))

    def _remove_limit(self, call: Call) -> Response[str]:
        limiting.remove(self._ports, call.query)
        # An empty body, not none at all, as for a job.
        return Response(status_code=HTTPStatus.NO_CONTENT, body="")

    def _recovery(self, call: Call) -> Response[str]:
        listed = Listed(owner=call.owner, list="recovery", wanted=Wanted())
        page = recovery(
            self._ports,
            call.owner,
            after=_after(call.query, listed, parse_job_id),
            limit=_limit(call.query),
        )
        return _page(page, listed, render.overdue)

    def _executions(self, call: Call) -> Response[str]:
        listed = Listed(owner=call.owner, list="executions", wanted=_wanted(call.query))
        page = inspect.executions(
            self._ports,
            call.owner,
            listed.wanted,
            after=_after(call.query, listed, parse_execution_id),
            limit=_limit(call.query),
        )
        return _page(page, listed, render.execution)

    def _execution(self, call: Call, *, execution_id: str) -> Response[str]:
        id = _execution_id(execution_id)
        return _json(render.execution(inspect.execution(self._ports, call.owner, id)))

    def _cancel(self, call: Call, *, execution_id: str) -> Response[str]:
        return _replied(self._acting(call).cancel(_execution_id(execution_id)))

    def _replay(self, call: Call, *, execution_id: str) -> Response[str]:
        key = call.request.idempotency_key()
        body = _body_if_any(call.request)
        return _replied(self._acting(call).replay(_execution_id(execution_id), body, key=key))

    def _called_back(
        self, told: Callable[[Ports, ExecutionId, object], Reply]
    ) -> Callable[..., Response[str]]:
        """By somebody of whom nothing is known but a callback token, which is in the body."""

        def route(*, execution_id: str) -> Response[str]:
            body = strict_json.read(self._request().body())
            return _replied(told(self._ports, _execution_id(execution_id), body))

        return route

    def _cancel_many(self, call: Call) -> Response[str]:
        return _json(self._acting(call).cancel_many(strict_json.read(call.request.body())))

    def _replay_many(self, call: Call) -> Response[str]:
        key = call.request.idempotency_key()
        body = strict_json.read(call.request.body())
        return _json(self._acting(call).replay_many(body, key=key))

    def _acting(self, call: Call) -> Acting:
        return Acting(
            ports=self._ports,
            owner=call.owner,
            traceparent=call.request.traceparent(),
            report=lambda error: self._report(error, call.request),
        )

    def _create_payload(self, call: Call) -> Response[str]:
        body = strict_json.read(call.request.body())
        grant = payloads.granted(self._ports, call.owner, body)
        return _json(grant, status=HTTPStatus.CREATED)

    def _preview(self, call: Call) -> Response[str]:
        body = strict_json.read(call.request.body())
        shortest = self._ports.quotas.of(call.owner).min_interval
        return _json(preview(body, now=self._ports.clock.now(), min_interval=shortest))

    def _health(self) -> Response[str]:
        """One small read tells whether the tables answer; anyone may ask, so no more is read."""
        try:
            self._ports.layout()
        except Unavailable:
            return _json(_health("unavailable"), status=HTTPStatus.SERVICE_UNAVAILABLE)
        return _json(_health("ok"))

    def _openapi(self) -> Response[str]:
        return _json(openapi.document(), headers=_CACHED)

    def _docs(self) -> Response[bytes]:
        return swagger.answer(self._request())

    def _request(self) -> Request:
        return Request(event=self._app.current_event.raw_event)


def _without_stage(event: Event) -> Event:
    """The event of the same request to the $default stage, without a slash at its end."""
    context = event["requestContext"]
    path, stage = event["rawPath"], f"/{context.get('stage', '$default')}"
    if path == stage or path.startswith(f"{stage}/"):
        path = path.removeprefix(stage)
    return {
        **event,
        "rawPath": path.rstrip("/") or "/",
        "requestContext": {**context, "stage": "$default"},
    }


def _tagged(version: int) -> Mapping[str, str]:
    return {"ETag": problems.etag(version)}


def _health(status: str) -> documents.Health:
    return {"status": status, "version": VERSION}


def _replied(reply: Reply) -> Response[str]:
    return _json(reply.document, status=reply.status, headers=reply.headers)


def _body_if_any(request: Request) -> object:
    """The value of a body that may be left out: an object without fields then."""
    body = request.body()
    return strict_json.read(body) if body.strip() else {}


def _job_id(text: str) -> JobId:
    try:
        return parse_job_id(text)
    except Rejected:
        raise NotFound(kind="job", id=text) from None


def _as_seen_by(owner: Owner, damaged: Damaged, ids: Mapping[str, str]) -> Damaged | NotFound:
    """Somebody else's looks like what is not there, damaged or not."""
    if damaged.owner in {None, owner}:
        return damaged
    name, id = next(iter(ids.items()), (damaged.kind, damaged.id))
    return NotFound(kind=name.removesuffix("_id"), id=id)


def _execution_id(text: str) -> ExecutionId:
    try:
        return parse_execution_id(text)
    except Rejected:
        raise NotFound(kind="execution", id=text) from None


def _wanted(query: Query) -> Wanted:
    return Wanted(
        statuses=frozenset(parse_status(text) for text in query.all("status") if text),
        task=query.one("task"),
        queue=query.one("queue"),
        start=_instant(query, "from"),
        end=_instant(query, "to"),
    )


def _switch(query: Query, name: str) -> bool | None:
    text = query.one(name)
    if text not in {None, "true", "false"}:
        raise Rejected(field=name, value=text, reason="neither true nor false")
    return None if text is None else text == "true"


def _instant(query: Query, name: str) -> datetime | None:
    text = query.one(name)
    return None if text is None else parse_instant(name, text)


def _limit(query: Query) -> int:
    text = query.one("limit")
    if text is None:
        return LIST_ITEMS
    if text.isascii() and text.isdigit() and len(text) <= 4 and 1 <= int(text) <= LIST_MAX_ITEMS:
        return int(text)
    raise Rejected(field="limit", value=text, reason=f"not in 1–{LIST_MAX_ITEMS}")


def _after(query: Query, listed: Listed, parse: Callable[[str], Id]) -> Id | None:
    cursor = query.one("cursor")
    if cursor is None:
        return None
    id = cursors.read(cursor, _digested(listed))
    try:
        return parse(id)
    except Rejected as error:
        # Forged, around what is no id.
        raise Rejected(field="cursor", value=cursor, reason=error.reason) from None


def _digested(listed: Listed) -> object:
    wanted = listed.wanted
    times = [moment and format_instant(moment) for moment in (wanted.start, wanted.end)]
    return [listed.owner, listed.list, sorted(wanted.statuses), wanted.task, wanted.queue, *times]


def _page(
    page: Listing[Item, Id], listed: Listed, to_json: Callable[[Item], render.Document]
) -> Response[str]:
    following = None if page.next is None else cursors.write(page.next, _digested(listed))
    items = [to_json(item) for item in page.items]
    return _json({"items": items, "next_cursor": following})


def _problem(problem: Problem) -> Response[str]:
    return _json(
        problem.document(),
        status=problem.status,
        content_type=problems.CONTENT_TYPE,
        headers=problem.headers,
    )


def _json(
    document: render.Document,
    *,
    status: HTTPStatus = HTTPStatus.OK,
    content_type: str = "application/json",
    headers: Mapping[str, str] = MappingProxyType({}),
) -> Response[str]:
    return Response(
        status_code=status,
        content_type=content_type,
        body=_text(document),
        headers={"Cache-Control": "no-store", **headers},
    )


def _text(document: render.Document) -> str:
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:
        # A task may return a lone surrogate, which has no bytes but as an escape.
        return json.dumps(document, separators=(",", ":"))
    return text
