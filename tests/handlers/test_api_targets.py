"""A job that calls a URL: how it is asked for, who may, and what is shown of it."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from lamplighter.core.addresses import Reach
from lamplighter.core.targets import NOBODY, HttpRules, HttpTarget
from lamplighter.memory import MemoryWorld
from lamplighter.services.heartbeat import Heartbeats
from lamplighter.sim.system import System
from lamplighter.tasks.http import HttpCaller
from lamplighter.tasks.registry import Registry
from lamplighter.tasks.runner import TaskRunner
from tests.support.api import Caller, caller
from tests.support.web import web

URL = "https://svc.example.com/backup"
TARGET = {"kind": "http", "url": URL}


@pytest.fixture
def world() -> MemoryWorld:
    return MemoryWorld()


@pytest.fixture
def acme(world: MemoryWorld) -> Caller:
    return caller(world)


def shown(acme: Caller, id: str) -> dict[str, Any]:
    job: dict[str, Any] = acme.get(f"/v1/jobs/{id}").json
    return job


@pytest.mark.parametrize("when", [{"rate": "1 hour"}, {}], ids=["recurring", "one-off"])
def test_a_target_stands_in_place_of_a_task(acme: Caller, when: Mapping[str, str]) -> None:
    """S2-A1, S2-F1."""
    target = {**TARGET, "method": "PUT", "headers": {"x-a": "b"}}

    answer = acme.post("/v1/jobs", {"target": target, "payload": {"a": 1}, **when})

    assert (answer.status, answer.json["task"]) == (201, "http:svc.example.com")
    job = shown(acme, answer.json["job_id"])
    assert (job["task"], job["target"]) == ("http:svc.example.com", target)
    assert job["payload"] == {"a": 1}
    (execution,) = job["executions"]
    assert execution["task"] == "http:svc.example.com"
    for path in ("jobs", "executions"):
        found = acme.get(f"/v1/{path}", task="http:svc.example.com").json["items"]
        assert len(found) == 1
        assert acme.get(f"/v1/{path}", task="http:example.com").json["items"] == []


def test_what_a_target_leaves_out_is_a_post_without_headers(acme: Caller) -> None:
    made = acme.post("/v1/jobs", {"target": TARGET}).json

    assert shown(acme, made["job_id"])["target"] == {**TARGET, "method": "POST", "headers": {}}


def test_a_target_of_kind_task_is_the_same_as_a_task(acme: Caller) -> None:
    answer = acme.post("/v1/jobs", {"target": {"kind": "task", "name": "echo"}})

    assert (answer.status, answer.json["task"]) == (201, "echo")
    job = shown(acme, answer.json["job_id"])
    assert job["task"] == "echo"
    assert "target" not in job


def test_what_looks_secret_is_shown_masked(acme: Caller, world: MemoryWorld) -> None:
    target = {
        "kind": "http",
        "url": f"{URL}?page=1&token=hunter2",
        "headers": {"Authorization": "Bearer hunter2", "x-api-key": "hunter2", "x-a": "b"},
    }

    made = acme.post("/v1/jobs", {"target": target, "rate": "1 hour"}).json

    job = shown(acme, made["job_id"])
    assert job["target"]["url"] == f"{URL}?page=1&token=***"
    assert job["target"]["headers"] == {"Authorization": "***", "x-api-key": "***", "x-a": "b"}
    for path in ("jobs", "executions", f"jobs/{made['job_id']}/executions"):
        assert "hunter2" not in acme.get(f"/v1/{path}").text
    (kept,) = world.tables.jobs.values()
    assert isinstance(kept.spec.target, HttpTarget)
    assert ("x-api-key", "hunter2") in kept.spec.target.headers


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "task"),
        ({"task": "echo", "target": TARGET}, "target"),
        ({"target": None}, "target"),
        ({"target": "echo"}, "target"),
        ({"target": {}}, "target.kind"),
        ({"target": {"kind": "ftp"}}, "target.kind"),
        ({"target": {"kind": "task"}}, "target.name"),
        ({"target": {"kind": "task", "name": " "}}, "target.name"),
        ({"target": {"kind": "task", "name": "echo", "url": URL}}, "target.url"),
        ({"target": {"kind": "http"}}, "target.url"),
        ({"target": {**TARGET, "name": "echo"}}, "target.name"),
        ({"target": {**TARGET, "uri": URL}}, "target.uri"),
        ({"target": {**TARGET, "method": "TRACE"}}, "target.method"),
        ({"target": {**TARGET, "method": 5}}, "target.method"),
        ({"target": {**TARGET, "headers": {"x-a": 5}}}, "target.headers.x-a"),
        ({"target": {**TARGET, "headers": {"Host": "x"}}}, "target.headers"),
        ({"target": {**TARGET, "headers": [["x-a", "b"]]}}, "target.headers"),
        ({"target": {**TARGET, "method": "GET"}, "payload": {"a": 1}}, "payload"),
        ({"target": TARGET, "runAt": "2026-07-12T02:00:00Z"}, "runAt"),
    ],
    ids=str,
)
def test_a_target_that_is_none_is_refused_by_the_name_of_its_field(
    acme: Caller, world: MemoryWorld, body: Mapping[str, object], field: str
) -> None:
    answer = acme.post("/v1/jobs", body)

    assert (answer.status, answer.fields) == (400, {field})
    assert not world.tables.executions


# O-H01
@pytest.mark.parametrize(
    "url",
    [
        *("https://169.254.169.254/latest", "https://2852039166/", "https://0xA9FEA9FE/"),
        *(
            "https://127.1/",
            "https://[::ffff:a9fe:a9fe]/",
            "https://localhost/",
            "https://10.0.0.1",
        ),
        *("http://svc.example.com/", "file:///etc/passwd", "https://good.example@169.254.169.254/"),
        *("https://svc.example.com:22/", "https://svc.example.com:99999/"),
    ],
)
@pytest.mark.parametrize("type_", [None, "one_off"], ids=["canonical", "targeted"])
def test_a_url_that_must_not_be_called_is_refused_at_create(
    acme: Caller, world: MemoryWorld, url: str, type_: str | None
) -> None:
    shape = {"type": type_, "run_at": "2030-01-01T00:00:00Z"} if type_ else {}

    answer = acme.post("/v1/jobs", {**shape, "target": {"kind": "http", "url": url}})

    assert (answer.status, answer.fields) == (400, {"target.url"})
    assert not world.tables.executions


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        (NOBODY, "this deployment lets nobody call HTTP targets"),
        (
            HttpRules(owners=frozenset({"globex"})),
            "this deployment does not let this owner call HTTP targets",
        ),
    ],
    ids=["nobody", "others"],
)
def test_who_may_not_call_targets_is_told_so(
    world: MemoryWorld, rules: HttpRules, reason: str
) -> None:
    answer = caller(world, http=rules).post("/v1/jobs", {"target": TARGET})

    (error,) = answer.json["errors"]
    assert (error["field"], error["value"], error["reason"]) == ("target.kind", "http", reason)
    assert caller(world, http=rules).post("/v1/jobs", {"task": "echo"}).status == 201


def test_on_ones_own_machine_its_servers_may_be_called(world: MemoryWorld) -> None:
    rules = HttpRules(owners=frozenset({"*"}), allow_http=True, reach=Reach(loopback=True))
    target = {"kind": "http", "url": "http://127.0.0.1:8000/hook"}

    assert caller(world, http=rules).post("/v1/jobs", {"target": target}).status == 201


def test_another_target_under_the_same_key_is_another_body(acme: Caller) -> None:
    def post(secret: str) -> int:
        target = {**TARGET, "headers": {"authorization": secret}}
        return acme.post("/v1/jobs", {"target": target}, Idempotency_Key="k").status

    assert (post("a"), post("a"), post("b")) == (201, 201, 422)


def test_from_the_request_to_what_the_target_was_sent(world: MemoryWorld) -> None:
    """The whole way: created, dispatched, claimed, called, finished; twice for two slots."""
    rules = HttpRules(owners=frozenset({"*"}), allow_http=True, reach=Reach(loopback=True))
    acme, ports = caller(world, http=rules), world.ports()
    runner = TaskRunner(
        Registry(), Heartbeats(ports), world.clock, http=HttpCaller(rules, world.clock)
    )
    system = System(world=world, handler=runner)
    with web() as server:
        made = acme.post(
            "/v1/jobs",
            {
                "target": {"kind": "http", "url": server.url, "headers": {"x-a": "b"}},
                "payload": {"n": 1},
                "rate": "1 hour",
            },
        ).json
        system.run_for(timedelta(hours=2, minutes=1))
        seen = server.seen

    executions = acme.get(f"/v1/jobs/{made['job_id']}/executions", status="SUCCEEDED").json["items"]
    assert [one["result"]["status"] for one in executions] == [200, 200]
    assert [one.body for one in seen] == [b'{"n":1}', b'{"n":1}']
    assert [one.headers["idempotency-key"] for one in seen] == [
        one["execution_id"] for one in reversed(executions)
    ]
    assert {one.headers["x-a"] for one in seen} == {"b"}
