"""The one door: who is let in, and what is passed on."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import httpx
import pytest
from httpx import Client
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from infra.components import api as infra_api
from lamplighter.local.errors import CannotRun
from lamplighter.local.gateway import BODY_MAX_BYTES, CALLED_BACK, OPEN, Gateway, Target
from lamplighter.local.server import listen, port_of, serving

TOKEN = {"Authorization": "Bearer some.signed.token"}
TARGET = Target(url="http://127.0.0.1:4566", host="0123abcd.execute-api.localhost:4566")


async def _tell(request: Request) -> Response:
    """What arrives behind the door."""
    return JSONResponse(
        {
            "method": request.method,
            "path": request.scope["raw_path"].decode(),
            "query": request.scope["query_string"].decode(),
            "headers": dict(request.headers),
            "body": (await request.body()).decode(),
        },
        status_code=201,
        headers={"x-request-id": "7"},
    )


BEHIND = Starlette(
    routes=[Route("/{path:path}", _tell, methods=["GET", "POST", "DELETE", "OPTIONS"])]
)


@contextmanager
def door(target: Target | None, transport: httpx.AsyncBaseTransport | None) -> Iterator[Client]:
    listening = listen(0)
    port = port_of(listening)
    gateway = Gateway(port=port, transport=transport)
    if target:
        gateway.open(target)
    with (
        serving(gateway.app(), listening),
        httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with door(TARGET, httpx.ASGITransport(app=BEHIND)) as client:
        yield client


def test_a_request_arrives_as_it_was_sent_under_the_name_of_the_api(client: Client) -> None:
    answer = client.post("/v1/jobs/a%2Fb?cursor=x%3D%3D", content='{"task": "echo"}', headers=TOKEN)

    arrived = answer.json()
    assert (answer.status_code, answer.headers["x-request-id"]) == (201, "7")
    assert (arrived["method"], arrived["path"], arrived["query"], arrived["body"]) == (
        "POST",
        "/v1/jobs/a%2Fb",
        "cursor=x%3D%3D",
        '{"task": "echo"}',
    )
    assert arrived["headers"]["host"] == TARGET.host
    assert arrived["headers"]["authorization"] == TOKEN["Authorization"]


def test_a_page_that_rebinds_its_name_to_this_machine_is_refused(client: Client) -> None:
    answer = client.get(
        "/v1/jobs", headers={**TOKEN, "Host": f"evil.example:{client.base_url.port}"}
    )

    assert_problem(answer, 421, "evil.example")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.0.0.1:1", "[::1]:1", ""])
def test_only_the_addresses_it_was_started_on_are_served(client: Client, host: str) -> None:
    assert_problem(client.get("/v1/health", headers={"Host": host}), 421, host)


def test_localhost_is_served_whatever_its_case(client: Client) -> None:
    answer = client.get("/v1/jobs", headers={**TOKEN, "Host": f"LocalHost:{client.base_url.port}"})

    assert answer.status_code == 201


@pytest.mark.parametrize(
    "headers", [{}, {"Authorization": "Basic bWU6bWU="}, {"Authorization": "Bearer"}]
)
def test_without_a_bearer_token_nobody_comes_in(client: Client, headers: Mapping[str, str]) -> None:
    answer = client.get("/v1/jobs", headers=headers)

    assert_problem(answer, 401, "lamplighter token")
    assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("path", ["/v1/health", "/v1/openapi.json", "/docs"])
def test_what_tells_of_nobodys_jobs_needs_no_token_but_only_as_a_question(
    client: Client, path: str
) -> None:
    assert client.get(path).status_code == 201
    assert client.post(path).status_code == 401


@pytest.mark.parametrize("verb", ["heartbeat", "complete", "fail"])
def test_who_ends_a_deferred_try_needs_no_bearer_token(client: Client, verb: str) -> None:
    assert client.post(f"/v1/executions/ex_1/{verb}").status_code == 201
    assert client.get(f"/v1/executions/ex_1/{verb}").status_code == 401
    assert client.post(f"/v1/executions/ex_1/{verb}/more").status_code == 401
    assert client.post("/v1/executions/ex_1/cancel").status_code == 401


def test_no_other_path_is_open_than_in_the_deployed_template() -> None:
    assert {*infra_api.OPEN} == OPEN
    called_back = [path.replace("{execution_id}", "ex_1") for path in infra_api.CALLED_BACK]
    assert all(CALLED_BACK.fullmatch(path) for path in called_back)
    assert CALLED_BACK.pattern.count("|") == len(called_back) - 1


@pytest.mark.parametrize("path", ["/jobs", "/jobs/a/runs", "/executions", "/schedules/preview"])
def test_the_apis_paths_are_served_without_their_version_too(client: Client, path: str) -> None:
    assert client.get(path, headers=TOKEN).status_code == 201
    assert_problem(client.get(path), 401, "lamplighter token")


def test_the_emulator_s_own_paths_are_not_reached(client: Client) -> None:
    for path in (
        "/_ministack/health",
        "/",
        "/2015-03-31/functions/worker/invocations",
        "/v1",
        "/jobsx",
    ):
        assert_problem(client.get(path, headers=TOKEN), 404, path)


def test_no_other_origin_is_ever_allowed(client: Client) -> None:
    asked = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}

    preflight = client.options("/v1/jobs", headers=asked)
    simple = client.get("/v1/jobs", headers={**TOKEN, "Origin": "https://evil.example"})

    assert preflight.status_code == 401
    for answer in (preflight, simple):
        assert not [name for name in answer.headers if name.startswith("access-control-")]


def test_a_body_over_the_cap_is_refused_and_one_at_it_is_not(client: Client) -> None:
    at_it = client.post("/v1/jobs", content=b"x" * BODY_MAX_BYTES, headers=TOKEN)
    over_it = client.post("/v1/jobs", content=b"x" * (BODY_MAX_BYTES + 1), headers=TOKEN)
    unannounced = client.post("/v1/jobs", content=iter([b"x" * BODY_MAX_BYTES] * 2), headers=TOKEN)

    assert at_it.status_code == 201
    assert_problem(over_it, 413, str(BODY_MAX_BYTES))
    assert_problem(unannounced, 413, str(BODY_MAX_BYTES))


def test_until_it_is_opened_it_says_that_it_is_starting() -> None:
    with door(None, None) as client:
        answer = client.get("/v1/health")

    assert_problem(answer, 503, "Starting")
    assert answer.headers["retry-after"] == "1"


def test_an_emulator_that_is_gone_is_a_bad_gateway() -> None:
    with door(Target(url="http://127.0.0.1:1", host=TARGET.host), None) as client:
        answer = client.get("/v1/jobs", headers=TOKEN)

    assert_problem(answer, 502, "ConnectError")


def test_a_port_that_is_taken_is_named_with_the_way_out() -> None:
    with listen(0) as taken, pytest.raises(CannotRun, match="LAMPLIGHTER_PORT"):
        listen(port_of(taken))


def assert_problem(answer: httpx.Response, status: int, word: str) -> None:
    """RFC 9457: a problem document that names what was wrong."""
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    told = answer.json()
    assert told["status"] == status
    assert told["title"]
    assert word in told["detail"]
