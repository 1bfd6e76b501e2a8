"""The api function as it is deployed, on moto's tables and queues."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Protocol, cast

import pytest
from aws_lambda_powertools.utilities.typing import LambdaContext
from hypothesis import given

from lamplighter.api.routes import Api
from lamplighter.aws.wiring import Wired
from lamplighter.core.errors import Unavailable
from lamplighter.ports import Ports
from lamplighter.version import VERSION
from tests.handlers.test_api_fuzz import fuzz, good_jobs
from tests.support.api import Answer, Caller, event
from tests.support.lambdas import Deployed


class Module(Protocol):
    """`functions/api/handler.py`."""

    api: Api
    wired: Wired

    def handle(self, event: Mapping[str, object], context: LambdaContext) -> dict[str, Any]: ...


@pytest.fixture(scope="module")
def module(deployed: Deployed) -> Iterator[Module]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAMPLIGHTER_OWNER_CLAIM", "sub")
        yield cast("Module", import_module("api.handler"))


@dataclass(frozen=True, kw_only=True)
class Handled(Caller):
    """Somebody whose requests go through the function's own entry."""

    module: Module

    def send(self, raw: Mapping[str, Any]) -> Answer:
        return self.answer(self.module.handle(raw, LambdaContext()))


@pytest.fixture
def ada(module: Module, deployed: Deployed, request: pytest.FixtureRequest) -> Handled:
    """An owner whom no other test knows."""
    deployed.empty()
    claims = {"sub": request.node.nodeid[-120:], "scope": "jobs:read jobs:write"}
    return Handled(api=module.api, module=module, claims=claims)


def test_a_job_is_durable_and_on_its_way_when_it_is_answered(
    ada: Handled, deployed: Deployed
) -> None:
    made = ada.create(payload={"a": [1.5, None, "ü"]})

    shown = ada.get(f"/v1/executions/{made['execution_id']}").json
    assert (shown["status"], shown["payload"]) == ("QUEUED", {"a": [1.5, None, "ü"]})
    (message,) = deployed.receive("default")["Records"]
    assert made["execution_id"].removeprefix("ex_") in message["body"]


def test_a_job_of_another_lane_goes_there(ada: Handled, deployed: Deployed) -> None:
    ada.create(queue="bulk")

    assert deployed.messages("bulk")["visible"] == 1
    assert deployed.messages("default")["visible"] == 0


def test_a_recurring_job_is_seen_until_it_is_deleted(ada: Handled) -> None:
    made = ada.create(cron="*/5 * * * *", timezone="Asia/Kolkata", name="often", payload="x" * 5000)
    path = f"/v1/jobs/{made['job_id']}"

    job = ada.get(path).json
    assert (job["name"], job["status"], job["payload"]) == ("often", "ACTIVE", "x" * 5000)
    assert made["execution_id"] in {one["execution_id"] for one in job["executions"]}
    assert ada.get(f"{path}/executions").json["items"][-1]["execution_id"] == made["execution_id"]
    assert [one["job_id"] for one in ada.get("/v1/jobs").json["items"]] == [made["job_id"]]

    assert ada.delete(path).status == 204
    assert ada.delete(path).status == 204
    assert ada.get("/v1/jobs").json["items"] == []
    job = ada.get(path).json
    assert (job["status"], job["next_run_at"]) == ("DELETED", None)
    assert {one["status"] for one in job["executions"]} == {"CANCELLED"}


def test_the_same_key_makes_one_job(ada: Handled) -> None:
    body = {"task": "echo", "payload": 1}

    first = ada.post("/v1/jobs", body, Idempotency_Key="ü" * 255)
    again = ada.post("/v1/jobs", body, Idempotency_Key="ü" * 255)
    other = ada.post("/v1/jobs", {"task": "echo"}, Idempotency_Key="ü" * 255)

    assert (first.status, again.status, other.status) == (201, 201, 422)
    assert again.json == first.json
    assert again.headers["idempotent-replayed"] == "true"
    assert len(ada.get("/v1/jobs").json["items"]) == 1


def test_lists_go_on_from_page_to_page(ada: Handled) -> None:
    made = {ada.create(rate="1 hour")["job_id"] for _ in range(3)}
    made |= {ada.create(run_at="2030-01-01T00:00:00Z")["job_id"] for _ in range(4)}

    for path, expected in (("/v1/jobs", 7), ("/v1/executions", 7)):
        ids: list[str] = []
        query: dict[str, str] = {"limit": "2"}
        while True:
            page = ada.get(path, **query).json
            ids += [one["job_id"] for one in page["items"]]
            if page["next_cursor"] is None:
                break
            query["cursor"] = page["next_cursor"]
        assert len(ids) == expected
        assert set(ids) == made


def test_a_filter_finds_what_needs_attention(ada: Handled, deployed: Deployed) -> None:
    made = ada.create()
    ada.delete(f"/v1/jobs/{made['job_id']}")

    assert ada.get("/v1/jobs", status="dead_lettered").json["items"] == []
    (cancelled,) = ada.get("/v1/jobs", status="canceled").json["items"]
    assert cancelled["execution_id"] == made["execution_id"]


@pytest.mark.parametrize("owner", ["a#0", "a", "ü" * 255, "urn:x:y/z|1"], ids=lambda o: o[:12])
def test_owners_of_any_name_see_their_own(ada: Handled, owner: str) -> None:
    caller = ada.calling_as(owner)
    made = caller.create(rate="1 hour")

    assert made["job_id"] in {one["job_id"] for one in caller.get("/v1/jobs").json["items"]}
    for other in {"a#0", "a", "a#0#0"} - {owner}:
        found = ada.calling_as(other).get("/v1/jobs").json["items"]
        assert made["job_id"] not in {one["job_id"] for one in found}


def test_a_largest_payload_comes_back_whole(ada: Handled) -> None:
    payload = "ü" * 32_767

    made = ada.create(payload=payload)

    assert ada.get(f"/v1/executions/{made['execution_id']}").json["payload"] == payload


def test_without_a_scope_nobody_is_let_in_unless_the_deployment_says_so(ada: Handled) -> None:
    answer = replace(ada, claims={"sub": "acme"}).get("/v1/jobs")

    assert (answer.status, answer.json["title"]) == (403, "Insufficient scope")


def test_health_needs_no_token(ada: Handled) -> None:
    answer = ada.send(event("GET", "/v1/health"))

    assert (answer.status, answer.json) == (200, {"status": "ok", "version": VERSION})


@pytest.mark.usefixtures("module")
@fuzz(30)
@given(good_jobs())
def test_any_job_that_is_accepted_is_seen_as_it_was_sent(body: dict[str, object]) -> None:
    sent = json.dumps(body)
    handler = cast("Module", import_module("api.handler"))
    claims = {"sub": "acme", "scope": "admin"}
    anybody = Handled(api=handler.api, module=handler, claims=claims)

    answer = anybody.post_text("/v1/jobs", sent)

    assert answer.status in {201, 400}
    if answer.status == 201:
        shown = anybody.get(f"/v1/jobs/{answer.json['job_id']}").json
        assert repr(shown["payload"]) == repr(json.loads(sent).get("payload", {}))
        for name in ("name", "timezone", "timeout_seconds", "max_occurrences"):
            if name in shown:
                assert shown[name] == body.get(name, shown[name])


def test_a_bug_is_logged_with_its_request_and_not_told(
    ada: Handled, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: Ports) -> object:
        raise ZeroDivisionError("the inside")

    monkeypatch.setattr(Ports, "layout", broken)

    answer = ada.send(event("GET", "/v1/health"))

    assert answer.status == 500
    assert "inside" not in answer.text
    (record,) = (record for record in caplog.records if record.message == "bug")
    assert record.levelname == "ERROR"
    assert (record.__dict__["request_id"], record.__dict__["path"]) == ("request-1", "/v1/health")
    assert record.exc_info
    assert record.exc_info[0] is ZeroDivisionError


def test_a_service_that_does_not_answer_is_logged_with_its_request(
    ada: Handled, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def silent(_: Ports) -> object:
        raise Unavailable("GetItem: ThrottlingException")

    monkeypatch.setattr(Ports, "layout", silent)

    answer = ada.post("/v1/jobs", {"task": "echo"})

    assert answer.status == 503
    (record,) = (record for record in caplog.records if record.message == "unavailable")
    assert record.levelname == "WARNING"
    assert record.__dict__["reason"] == "GetItem: ThrottlingException"
