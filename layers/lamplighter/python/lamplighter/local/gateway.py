"""The one door of the local stack: who may come in, before anything behind it is asked.

In AWS the HTTP API has a name and a certificate of its own. Here it shares 127.0.0.1 with
every page that a browser has open, so the door checks what those cannot forge: the Host header
(a page that rebinds its name to 127.0.0.1 sends its own) and a bearer token. There is no CORS.
"""

import re
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lamplighter.api.operations import OPERATIONS
from lamplighter.core.limits import BATCH_MAX_BYTES

ALL_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
BODY_MAX_BYTES: Final = BATCH_MAX_BYTES  # the API's own largest
# What the deployed API asks no token for either.
OPEN: Final = frozenset({"/v1/health", "/v1/openapi.json", "/docs"})
# Who ends a deferred try has a callback token instead, in the body.
CALLED_BACK: Final = re.compile(r"/v1/executions/[^/]+/(?:heartbeat|complete|fail)")
# The first part of each of the API's paths, which are served without `/v1` too.
ROOTS: Final = frozenset(operation.path.split("/")[1] for operation in OPERATIONS)
TIMEOUT_S: Final = 30.0  # an HTTP API's own
# About one connection, not about the message; RFC 9110, 7.6.1. `host` and `content-length`
# are made anew, and what is compressed on the way is decoded here.
NOT_FORWARDED: Final = {
    *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te"),
    *("trailer", "transfer-encoding", "upgrade", "host", "content-length", "content-encoding"),
    *("accept-encoding", "date", "server"),
}


@dataclass(frozen=True, kw_only=True)
class Target:
    """The HTTP API inside the emulator."""

    url: str
    """Of the emulator."""
    host: str
    """The header by which the emulator knows the API."""


class Gateway:
    """Forwards the API's paths once it is opened; until then it says that the stack is starting."""

    def __init__(self, *, port: int, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost")}
        if port == 80:
            self._hosts |= {"127.0.0.1", "localhost"}
        self._target: Target | None = None
        # Nothing of a user's proxy settings: it never leaves this machine.
        self._client = httpx.AsyncClient(transport=transport, timeout=TIMEOUT_S, trust_env=False)

    def open(self, target: Target) -> None:
        self._target = target

    def app(self) -> Starlette:
        return Starlette(
            routes=[Route("/{path:path}", self._handle, methods=list(ALL_METHODS))],
            lifespan=self._lifespan,
        )

    @asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        async with self._client:
            yield

    async def _handle(self, request: Request) -> Response:
        return self._refusal(request) or await self._forward(request)

    def _refusal(self, request: Request) -> Response | None:
        """Why a request goes no further, from its first lines alone."""
        host = request.headers.get("host", "")
        if host.lower() not in self._hosts:
            return problem(HTTPStatus.MISDIRECTED_REQUEST, f"Host {host!r} is not served here")
        path = request.url.path
        if not (path.startswith("/v1/") or path.split("/")[1] in ROOTS):
            return problem(HTTPStatus.NOT_FOUND, f"{path!r}: the API's paths start with /v1/")
        if not (_has_bearer(request) or _is_open(request)):
            return problem(
                HTTPStatus.UNAUTHORIZED,
                "A bearer token is needed: lamplighter token --owner NAME",
                headers={"WWW-Authenticate": "Bearer"},
            )
        return None

    async def _forward(self, request: Request) -> Response:
        target = self._target
        if target is None:
            return problem(HTTPStatus.SERVICE_UNAVAILABLE, "Starting", headers={"Retry-After": "1"})
        body = await _read(request)
        if body is None:
            return problem(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"The body is over {BODY_MAX_BYTES} bytes"
            )
        try:
            answer = await self._client.request(
                request.method,
                _url(target, request),
                headers=[*_kept(request.headers.items()), ("host", target.host)],
                content=body,
            )
        except httpx.TimeoutException:
            return problem(HTTPStatus.GATEWAY_TIMEOUT, f"No answer within {TIMEOUT_S:.0f} s")
        except httpx.TransportError as error:
            return problem(HTTPStatus.BAD_GATEWAY, f"The emulator: {type(error).__name__}")
        return Response(answer.content, answer.status_code, dict(_kept(answer.headers.items())))


def problem(
    status: HTTPStatus, detail: str, *, headers: dict[str, str] | None = None
) -> JSONResponse:
    """RFC 9457."""
    return JSONResponse(
        {"type": "about:blank", "title": status.phrase, "status": status, "detail": detail},
        status_code=status,
        headers=headers,
        media_type="application/problem+json",
    )


def _has_bearer(request: Request) -> bool:
    """Whether it is a good one is for the API's authorizer to say."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return scheme.lower() == "bearer" and bool(token.strip())


def _is_open(request: Request) -> bool:
    if request.method == "POST":
        return CALLED_BACK.fullmatch(request.url.path) is not None
    return request.method in {"GET", "HEAD"} and request.url.path in OPEN


async def _read(request: Request) -> bytes | None:
    """The body; None as soon as it is too large, whatever its length was said to be."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_MAX_BYTES:
            return None
    return bytes(body)


def _url(target: Target, request: Request) -> httpx.URL:
    """The path as it was sent: decoding it would change what an escaped slash means."""
    path: bytes = request.scope["raw_path"]
    query: bytes = request.scope["query_string"]
    return httpx.URL(target.url).copy_with(raw_path=path + (b"?" + query if query else b""))


def _kept(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(name, value) for name, value in headers if name.lower() not in NOT_FORWARDED]
