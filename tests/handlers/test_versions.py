"""A deploy that removes a task's version, from the request to the answer, on moto's tables."""

from collections.abc import Iterator
from datetime import timedelta
from importlib import import_module
from typing import cast

import pytest
from moto.core.utils import utcnow

from lamplighter.aws.clock import SystemClock
from lamplighter.aws.queue import body_of
from lamplighter.core.buckets import parse_execution_id
from lamplighter.core.lifecycle import State
from lamplighter.core.limits import PARKED_LOOKS
from lamplighter.core.model import Message
from lamplighter.tasks.registry import TASKS
from tests.handlers.test_api_on_aws import Handled, Module
from tests.support.lambdas import Context, Deployed, Function, batch, kept, record


@pytest.fixture
def ada(deployed: Deployed) -> Iterator[Handled]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAMPLIGHTER_OWNER_CLAIM", "sub")
        module = cast("Module", import_module("api.handler"))
        claims = {"sub": "ada-of-versions", "scope": "jobs:read jobs:write"}
        deployed.empty()
        yield Handled(api=module.api, module=module, claims=claims)


def deploy(version: int) -> None:
    """Have the worker know one more version of `bill`."""
    TASKS.task("bill", version=version)(lambda payload, ctx: f"{version} for {ctx.task_version}")


def test_what_was_made_for_a_version_that_is_gone_is_parked_until_it_is_back(
    ada: Handled, worker: Function, deployed: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S0-O10, S4-R4: shown as PARKED, with why and until when; no try is used up."""
    monkeypatch.setattr(TASKS, "_tasks", {**vars(TASKS)["_tasks"]})
    deploy(2)
    made = ada.create(task="bill", task_version=1)
    path = f"/v1/executions/{made['execution_id']}"

    assert worker.handle(deployed.receive("default"), Context()) == kept()

    shown = ada.get(path).json
    assert (shown["status"], shown["task_version"]) == ("PARKED", 1)
    assert (shown["attempt"], shown["attempts"], shown["error"]) == (0, [], None)
    assert shown["reason"] == (
        "no worker knows version 1 of task 'bill' yet; the last one asked has: 2"
    )
    parked = [
        one["execution_id"] for one in ada.get("/v1/executions", status="parked").json["items"]
    ]
    assert parked == [made["execution_id"]]
    assert ada.get("/v1/executions", status="retrying").json["items"] == []
    assert ada.get(f"/v1/jobs/{made['job_id']}").json["status"] == "PARKED"

    deploy(1)
    row = deployed.row(parse_execution_id(made["execution_id"]))
    assert row.next_run_at is not None
    true_now, later = SystemClock.now, PARKED_LOOKS[0] + timedelta(seconds=1)
    monkeypatch.setattr(SystemClock, "now", lambda clock: true_now(clock) + later)
    monkeypatch.setattr("moto.core.responses.utcnow", lambda: utcnow() + later)
    again = Message(execution_id=row.id, attempt=1, due_at=row.next_run_at)
    worker.handle(batch([record(body_of(again))]), Context())

    done = deployed.row(row.id)
    assert (done.state, done.result) == (State.SUCCEEDED, '"1 for 1"')
    assert [one["handler_version"] for one in ada.get(path).json["attempts"]] == [1]


@pytest.mark.parametrize("version", [0, -1, 1_000_001, 1.5, "1", True, None], ids=repr)
def test_a_version_that_no_task_has_is_refused_by_name(ada: Handled, version: object) -> None:
    answer = ada.post("/v1/jobs", {"task": "bill", "task_version": version})

    assert (answer.status, answer.fields) == (400, {"task_version"})


def test_only_a_task_has_versions(ada: Handled) -> None:
    target = {"kind": "http", "url": "https://svc.example.com/"}

    answer = ada.post("/v1/jobs", {"target": target, "task_version": 2})

    assert answer.status == 400
    assert "task_version" in answer.fields


def test_a_task_named_as_a_target_has_them_too(ada: Handled) -> None:
    body = {"target": {"kind": "task", "name": "bill"}, "task_version": 2}

    made = ada.post("/v1/jobs", body).json

    assert ada.get(f"/v1/jobs/{made['job_id']}").json["task_version"] == 2


def test_a_job_can_be_moved_to_the_next_version_and_back_to_any(ada: Handled) -> None:
    """S0-O10: what was planned for the old one, and waits, goes with it."""
    made = ada.create(task="bill", task_version=1, rate="1 hour")
    path = f"/v1/jobs/{made['job_id']}"

    assert ada.patch(path, {"task_version": 2}).json["task_version"] == 2
    armed = ada.get(f"/v1/executions/{made['execution_id']}").json
    assert armed["task_version"] == 2
    assert ada.patch(path, {"task_version": None}).json["task_version"] is None
