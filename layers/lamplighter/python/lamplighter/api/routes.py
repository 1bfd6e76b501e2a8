"""API v1: what each route asks of the services, and how it answers.

Whoever is asked for has to belong to the token's owner; a body is read whole and strictly
before anything is written. Every path is served with `/v1` in front and without.
"""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Final, TypeVar, get_args

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from aws_lambda_powertools.event_handler.exceptions import NotFoundError
from aws_lambda_powertools.utilities.typing import LambdaContext

from lamplighter.api import bodies, cursors, problems, render, strict_json
from lamplighter.api.problems import Answered, Problem, Refusal, brief
from lamplighter.api.requests import Event, Query, Request
from lamplighter.core.buckets import ExecutionId, JobId, parse_execution_id, parse_job_id
from lamplighter.core.errors import NotFound, Rejected, Unavailable
from lamplighter.core.limits import LIST_ITEMS, LIST_MAX_ITEMS
from lamplighter.core.model import Owner
from lamplighter.core.status import parse_status
from lamplighter.ports import Ports
from lamplighter.services import inspect, manage
from lamplighter.services.inspect import Listing, Wanted
from lamplighter.services.submit import Created, IdempotencyKey, Replayed, submit
from lamplighter.version import VERSION

_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_FILTERS: Final = ("status", "task", "queue", "cursor", "limit")

Item = TypeVar("Item")
Id = TypeVar("Id", bound=str)

Route = Callable[..., Response[str]]
"""Answers a Request; the ids in the path come by name."""


@dataclass(frozen=True, kw_only=True)
class Scope:
    """Which list a cursor belongs to: part of what it is checked against."""

    owner: Owner
    list: str
    wanted: Wanted


class Api:
    """The HTTP API: answers every event, whatever is in it.

    `report` is told of what is not the caller's doing: a service that did not answer
    (Unavailable, a 503), or a bug, which is answered with a 500 that says nothing of the inside.
    """

    def __init__(
        self,
        ports: Ports,
        *,
        lanes: Collection[str],
        owner_claim: str,
        report: Callable[[Exception, Request], None],
    ) -> None:
        self._ports = ports
        self._lanes = lanes
        self._owner_claim = owner_claim
        self._report = report
        self._app = APIGatewayHttpResolver(strip_prefixes=["/v1"])
        self._add_routes()
        self._add_exceptions()

    def handle(self, event: Event, context: LambdaContext) -> dict[str, Any]:
        """The answer to an HTTP API event, payload format 2.0."""
        return self._app.resolve(_without_stage(event), context)

    def _add_routes(self) -> None:
        routes: Mapping[str, Mapping[str, Route]] = {
            "/jobs": {"POST": self._create, "GET": self._jobs},
            "/jobs/<job_id>": {"GET": self._job, "DELETE": self._delete},
            "/jobs/<job_id>/executions": {"GET": self._executions_of},
            "/jobs/<job_id>/runs": {"GET": self._executions_of},
            "/executions": {"GET": self._executions},
            "/executions/<execution_id>": {"GET": self._execution},
            "/health": {"GET": self._health},
        }
        for rule, methods in routes.items():
            for method, route in methods.items():
                self._app.route(rule, method=method)(self._asked(route))
            others = [method for method in _METHODS if method not in methods]
            self._app.route(rule, method=others)(self._asked(_refuse_method(methods)))

    def _asked(self, route: Route) -> Callable[..., Response[str]]:
        def asked(**ids: str) -> Response[str]:
            return route(self._request(), **ids)

        return asked

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

    def _create(self, request: Request) -> Response[str]:
        owner = self._owner(request)
        request.query()
        key = request.idempotency_key()
        body = strict_json.read(request.body())
        new = bodies.new_job(
            body,
            owner=owner,
            lanes=self._lanes,
            now=self._ports.clock.now(),
            traceparent=request.traceparent(),
        )
        answer = submit(self._ports, new, _idempotency_key(key, body) if key else None)
        return _created(answer)

    def _jobs(self, request: Request) -> Response[str]:
        owner = self._owner(request)
        query = request.query(*_FILTERS)
        # Asked with a status, it is about executions.
        if "status" in query.values:
            return self._executions(request)
        scope = Scope(owner=owner, list="jobs", wanted=_wanted(query))
        page = inspect.jobs(
            self._ports,
            owner,
            scope.wanted,
            after=_after(query, scope, parse_job_id),
            limit=_limit(query),
        )
        return _page(page, scope, render.job)

    def _job(self, request: Request, *, job_id: str) -> Response[str]:
        owner = self._owner(request)
        request.query()
        return _json(render.detail(inspect.job(self._ports, owner, _job_id(job_id))))

    def _executions_of(self, request: Request, *, job_id: str) -> Response[str]:
        owner = self._owner(request)
        query = request.query(*_FILTERS)
        scope = Scope(owner=owner, list=job_id, wanted=_wanted(query))
        page = inspect.executions_of(
            self._ports,
            owner,
            _job_id(job_id),
            scope.wanted,
            after=_after(query, scope, parse_execution_id),
            limit=_limit(query),
        )
        return _page(page, scope, render.execution)

    def _delete(self, request: Request, *, job_id: str) -> Response[str]:
        owner = self._owner(request)
        mode = request.query("mode").one("mode")
        if mode not in {None, "request"}:
            raise Rejected(field="mode", value=mode, reason="not request")
        manage.delete(self._ports, owner, _job_id(job_id), request=mode is not None)
        # An empty body, not none at all: the local stack's emulator answers 500 to that.
        return Response(status_code=HTTPStatus.NO_CONTENT, body="")

    def _executions(self, request: Request) -> Response[str]:
        owner = self._owner(request)
        query = request.query(*_FILTERS)
        scope = Scope(owner=owner, list="executions", wanted=_wanted(query))
        page = inspect.executions(
            self._ports,
            owner,
            scope.wanted,
            after=_after(query, scope, parse_execution_id),
            limit=_limit(query),
        )
        return _page(page, scope, render.execution)

    def _execution(self, request: Request, *, execution_id: str) -> Response[str]:
        owner = self._owner(request)
        request.query()
        id = _execution_id(execution_id)
        return _json(render.execution(inspect.execution(self._ports, owner, id)))

    def _health(self, request: Request) -> Response[str]:
        """One small read tells whether the tables answer; anyone may ask, so no more is read."""
        request.query()
        try:
            self._ports.layout()
        except Unavailable:
            document: render.Document = {"status": "unavailable", "version": VERSION}
            return _json(document, status=HTTPStatus.SERVICE_UNAVAILABLE)
        return _json({"status": "ok", "version": VERSION})

    def _request(self) -> Request:
        return Request(event=self._app.current_event.raw_event)

    def _owner(self, request: Request) -> Owner:
        return request.owner(self._owner_claim)


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


def _refuse_method(methods: Collection[str]) -> Route:
    def route(request: Request, **_: str) -> Response[str]:
        allowed = ", ".join(methods)
        raise Refusal(
            Problem(
                status=HTTPStatus.METHOD_NOT_ALLOWED,
                detail=f"{request.method} is not one of {allowed}",
                headers={"Allow": allowed},
            )
        )

    return route


def _idempotency_key(key: str, body: object) -> IdempotencyKey:
    return IdempotencyKey(
        key=key,
        fingerprint=bodies.fingerprint(body),
        render=lambda made: strict_json.compact(render.created(made)),
    )


def _created(answer: Created | Replayed) -> Response[str]:
    """201 in both cases: a replay is the first answer again, marked as one."""
    if isinstance(answer, Created):
        document, marks = render.created(answer), {}
    else:
        document, marks = json.loads(answer.answer), {"Idempotent-Replayed": "true"}
    headers = {"Location": f"/v1/jobs/{document['job_id']}", **marks}
    return _json(document, status=HTTPStatus.CREATED, headers=headers)


def _job_id(text: str) -> JobId:
    try:
        return parse_job_id(text)
    except Rejected:
        raise NotFound(kind="job", id=text) from None


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
    )


def _limit(query: Query) -> int:
    text = query.one("limit")
    if text is None:
        return LIST_ITEMS
    if text.isascii() and text.isdigit() and len(text) <= 4 and 1 <= int(text) <= LIST_MAX_ITEMS:
        return int(text)
    raise Rejected(field="limit", value=text, reason=f"not in 1–{LIST_MAX_ITEMS}")


def _after(query: Query, scope: Scope, parse: Callable[[str], Id]) -> Id | None:
    cursor = query.one("cursor")
    if cursor is None:
        return None
    return parse(cursors.read(cursor, _digested(scope)))


def _digested(scope: Scope) -> object:
    wanted = scope.wanted
    return [scope.owner, scope.list, sorted(wanted.statuses), wanted.task, wanted.queue]


def _page(
    page: Listing[Item, Id], scope: Scope, to_json: Callable[[Item], render.Document]
) -> Response[str]:
    following = None if page.next is None else cursors.write(page.next, _digested(scope))
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
