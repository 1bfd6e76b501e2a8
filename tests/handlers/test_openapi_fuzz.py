"""What the OpenAPI description allows, and what it does not, sent to the API by schemathesis.

No answer is a 5xx, and each has a status, a content type and a body that the description knows.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import cache
from http import HTTPStatus
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from lamplighter.api import openapi
from lamplighter.api.access import Scope
from lamplighter.api.operations import OPERATIONS
from lamplighter.memory import MemoryWorld, VirtualClock
from lamplighter.sim.system import System
from tests.support.api import JSON, caller, event
from tests.support.examples import ALWAYS_THE_SAME, examples

EXAMPLES = 20
# So `make prove` finds them: of the properties they are those that are made up at run time.
pytestmark = pytest.mark.hypothesis
DESCRIPTION = "/undemanding.json"
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
GUARDED = [operation.id for operation in OPERATIONS if operation.needs]
# What takes nothing cannot be asked wrongly.
ASKED = [
    operation.id
    for operation in OPERATIONS
    if operation.needs and operation.id not in {"show_progress", "list_limits"}
]
Case = schemathesis.Case[Any]
Environ = Mapping[str, Any]
StartResponse = Callable[[str, list[tuple[str, str]]], object]


class Served:
    """The API in memory as a WSGI application, with some jobs in it that have run and will."""

    def __init__(self) -> None:
        self.world = MemoryWorld(clock=VirtualClock(datetime(2026, 1, 1, tzinfo=UTC)))
        self.claims: Mapping[str, object] | None = {
            "sub": "acme",
            "scope": "jobs:read jobs:write ops:replay",
        }
        self._caller = caller(self.world)
        made = self._caller.create(rate="1 hour"), self._caller.create()
        System(world=self.world).work()
        self.ids = [one["job_id"] for one in made], [one["execution_id"] for one in made]

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        if environ["PATH_INFO"] == DESCRIPTION:
            start_response("200 OK", [("content-type", JSON)])
            return [json.dumps(undemanding()).encode()]
        headers = {
            name.removeprefix("HTTP_").replace("_", "-").lower(): value
            for name, value in environ.items()
            if name.startswith("HTTP_") or name == "CONTENT_TYPE"
        }
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        raw = event(
            environ["REQUEST_METHOD"],
            environ["PATH_INFO"].encode("latin-1").decode("utf-8", "replace"),
            query=environ["QUERY_STRING"],
            body=body.decode("utf-8", "replace") if body else None,
            headers=headers,
            claims=self.claims,
        )
        answer = self._caller.send(raw)
        status = HTTPStatus(answer.status)
        start_response(f"{int(status)} {status.phrase}", [*answer.headers.items()])
        return [answer.text.encode("utf-8", "surrogatepass")]


def undemanding() -> dict[str, Any]:
    """The description without its tokens, which the authorizer has taken off when we are asked."""
    document: dict[str, Any] = json.loads(openapi.text())
    for methods in document["paths"].values():
        for operation in methods.values():
            del operation["security"]
    return document


@cache
def served() -> Served:
    return Served()


@cache
def described() -> Any:  # noqa: ANN401 -- a schema of schemathesis
    return schemathesis.openapi.from_wsgi(DESCRIPTION, served())


def cases(id: str, mode: GenerationMode) -> st.SearchStrategy[Case]:
    found: st.SearchStrategy[Case] = (
        described().find_operation_by_id(id).as_strategy(generation_mode=mode)
    )
    return found


def fuzz(check: Callable[[Case], None], id: str, mode: GenerationMode) -> None:
    """The same examples each time, and no more than there is time for."""
    run = settings(
        max_examples=examples(EXAMPLES),
        derandomize=ALWAYS_THE_SAME,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=[*HealthCheck],
    )
    run(given(case=cases(id, mode))(check))()


def pointed(case: Case) -> Case:
    """The same, half of the times at something that is there."""
    jobs, executions = served().ids
    there = {"job_id": jobs, "execution_id": executions}
    for name, value in (case.path_parameters or {}).items():
        choice = sum(str(value).encode())
        if choice % 2:
            case.path_parameters[name] = there[name][choice // 2 % 2]
    return case


@pytest.mark.parametrize("id", GUARDED)
def test_what_it_allows_is_answered_as_it_says(id: str) -> None:
    def check(case: Case) -> None:
        pointed(case).call_and_validate(checks=CHECKS)

    fuzz(check, id, GenerationMode.POSITIVE)


@pytest.mark.parametrize("id", ASKED)
def test_what_it_does_not_allow_is_refused(id: str) -> None:
    # A job of a batch that is wrong is refused in its own answer, not by the batch's status.
    refused = [] if id == "create_jobs" else [negative_data_rejection]

    def check(case: Case) -> None:
        pointed(case).call_and_validate(checks=[*CHECKS, *refused])

    fuzz(check, id, GenerationMode.NEGATIVE)


@pytest.mark.parametrize("id", GUARDED)
@pytest.mark.parametrize("claims", [None, {"scope": "admin"}, {"sub": "acme"}])
def test_without_a_token_that_is_good_for_it_nobody_is_let_in(
    id: str, claims: Mapping[str, object] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if claims and "scope" not in claims:
        needed = {operation.id: operation.needs for operation in OPERATIONS}[id]
        claims = {**claims, "scope": " ".join({*Scope} - {needed, Scope.ADMIN})}
    monkeypatch.setattr(served(), "claims", claims)

    def check(case: Case) -> None:
        answer = pointed(case).call_and_validate(checks=CHECKS)
        assert answer.status_code == 403

    fuzz(check, id, GenerationMode.POSITIVE)


@pytest.mark.parametrize("id", ["health", "openapi"])
def test_what_anyone_may_ask_is_answered_as_it_says(id: str) -> None:
    def check(case: Case) -> None:
        case.call_and_validate(checks=CHECKS)

    fuzz(check, id, GenerationMode.POSITIVE)
