"""Requests as API Gateway hands them to the function, and answers as a caller reads them."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlencode

from aws_lambda_powertools.utilities.typing import LambdaContext

from lamplighter.api.access import Access
from lamplighter.api.requests import Request
from lamplighter.api.routes import Api
from lamplighter.core.errors import Unavailable
from lamplighter.core.named import NO_TARGETS, Directory
from lamplighter.core.targets import HttpRules
from lamplighter.memory import MemoryWorld
from lamplighter.ports import Ports

LANES = ("default", "critical", "bulk")
ANY_TOKEN = Access(owner_claim="sub", requires_scopes=False)
"""Whoever `sub` names may do everything with their own."""
HTTPS_FOR_ALL = HttpRules(owners=frozenset({"*"}))
JSON = "application/json"


def event(
    method: str,
    path: str,
    *,
    query: str = "",
    body: str | None = None,
    is_base64: bool = False,
    headers: Mapping[str, str] | None = None,
    claims: Mapping[str, object] | None = None,
    stage: str = "$default",
) -> dict[str, Any]:
    """An HTTP API event, payload format 2.0."""
    return {
        "version": "2.0",
        "routeKey": "ANY /v1/{proxy+}",
        "rawPath": path,
        "rawQueryString": query,
        "headers": {**(headers or {})},
        "requestContext": {
            "http": {"method": method, "path": path, "protocol": "HTTP/1.1"},
            "stage": stage,
            "requestId": "request-1",
            **({} if claims is None else {"authorizer": {"jwt": {"claims": claims}}}),
        },
        "isBase64Encoded": is_base64,
        **({} if body is None else {"body": body}),
    }


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def json(self) -> Any:  # noqa: ANN401 -- whatever JSON it is
        """The body, which has to be JSON as its content type says."""
        assert self.headers["content-type"] in {JSON, "application/problem+json"}
        return json.loads(self.text, parse_constant=_no_constant)

    @property
    def fields(self) -> set[str]:
        """The fields that a problem names."""
        assert self.headers["content-type"] == "application/problem+json"
        assert self.json["status"] == self.status
        return {error["field"] for error in self.json["errors"]}


@dataclass(frozen=True, kw_only=True)
class Caller:
    """Somebody with a token."""

    api: Api
    claims: Mapping[str, object] | None = field(default_factory=lambda: {"sub": "acme"})

    def calling_as(self, owner: str) -> "Caller":
        """The same API, called with another owner's token, which is as good as this one."""
        return replace(self, claims={**(self.claims or {}), "sub": owner})

    def get(self, path: str, **query: str) -> Answer:
        return self.send(event("GET", path, query=urlencode(query), claims=self.claims))

    def delete(self, path: str, **query: str) -> Answer:
        return self.send(event("DELETE", path, query=urlencode(query), claims=self.claims))

    def patch(self, path: str, body: object, **headers: str) -> Answer:
        """PATCH a value as a merge patch; a header's `_` stands for `-`."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        given = {"Content-Type": "application/merge-patch+json", **named}
        text = json.dumps(body)
        return self.send(event("PATCH", path, body=text, headers=given, claims=self.claims))

    def post(self, path: str, body: object, **headers: str) -> Answer:
        """POST a value as JSON; a header's `_` stands for `-`."""
        return self.post_text(path, json.dumps(body), **headers)

    def post_text(self, path: str, body: str | None, **headers: str) -> Answer:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.send(
            event(
                "POST",
                path,
                body=body,
                headers={"content-type": JSON, **named},
                claims=self.claims,
            )
        )

    def send(self, raw: Mapping[str, Any]) -> Answer:
        return self.answer(self.api.handle(raw, LambdaContext()))

    @staticmethod
    def answer(answer: Mapping[str, Any]) -> Answer:
        """What API Gateway makes of the function's answer, which has to be JSON."""
        answer = json.loads(json.dumps(answer))
        return Answer(
            status=answer["statusCode"],
            headers={name.lower(): value for name, value in answer["headers"].items()},
            text=answer.get("body") or "",
        )

    def create(self, **body: object) -> dict[str, Any]:
        """Create an echo job, or what the body says; the answer's JSON."""
        answer = self.post("/v1/jobs", {"task": "echo", **body})
        assert answer.status == 201, answer.text
        made: dict[str, Any] = answer.json
        return made


def caller(
    ports: Ports | MemoryWorld,
    *,
    access: Access = ANY_TOKEN,
    lanes: Collection[str] = LANES,
    http: HttpRules = HTTPS_FOR_ALL,
    targets: Directory = NO_TARGETS,
    tasks: Collection[str] = (),
) -> Caller:
    """Somebody who calls an API on these ports; a bug in it fails the test."""
    ports = ports.ports() if isinstance(ports, MemoryWorld) else ports
    api = Api(
        ports,
        lanes=lanes,
        access=access,
        report=_raise_bugs,
        http=http,
        targets=targets,
        tasks=tasks,
    )
    return Caller(api=api)


def _raise_bugs(error: Exception, request: Request) -> None:
    if isinstance(error, Unavailable):
        return
    raise AssertionError(f"a bug answering {request.method} {request.path}") from error


def _no_constant(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")
