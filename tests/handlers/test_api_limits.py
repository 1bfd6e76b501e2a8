"""Limits of what runs at once, over HTTP: set while everything runs, by operators alone."""

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from lamplighter.core.limits import LIMIT_MAX, LIMITS_MAX
from lamplighter.memory import MemoryWorld
from lamplighter.sim.system import System
from tests.support.api import JSON, Answer, Caller, caller, event

SECOND = timedelta(seconds=1)


@pytest.fixture
def system(world: MemoryWorld) -> System:
    made = System(world=world, lasts=lambda _: 20 * SECOND)
    made.run_for(SECOND)
    return made


@pytest.fixture
def acme(world: MemoryWorld) -> Caller:
    return caller(world)


@pytest.fixture
def operator(acme: Caller) -> Caller:
    return replace(acme, claims={"sub": "operations", "scope": "ops:limits"})


def put(operator: Caller, body: object) -> Answer:
    headers = {"content-type": JSON}
    raw = event("PUT", "/v1/limits", body=json.dumps(body), headers=headers, claims=operator.claims)
    return operator.send(raw)


def limited(operator: Caller, kind: str, name: str, limit: int) -> dict[str, object]:
    answer = put(operator, {"kind": kind, "name": name, "limit": limit})
    assert answer.status == 200, answer.text
    found: dict[str, object] = answer.json
    return found


def test_a_limit_holds_for_everybody_from_the_answer_on(
    acme: Caller, operator: Caller, system: System
) -> None:
    """S0-F5: settable at run time."""
    made = limited(operator, "queue", "default", 2)
    assert made == {"kind": "queue", "name": "default", "limit": 2, "running": 0, "waiting": 0}
    for owner in ("acme", "eve"):
        for _ in range(2):
            acme.calling_as(owner).create()

    system.run_for(5 * SECOND)

    assert operator.get("/v1/limits").json == {
        "items": [{"kind": "queue", "name": "default", "limit": 2, "running": 2, "waiting": 2}]
    }
    found = acme.get("/v1/executions", status="blocked").json["items"]
    found += acme.calling_as("eve").get("/v1/executions", status="blocked").json["items"]
    assert len(found) == 2
    assert {one["reason"] for one in found} == {
        "no permit: as many as may run at once of queue:default do"
    }


def test_a_limit_that_is_raised_or_removed_lets_who_waits_start(
    acme: Caller, operator: Caller, system: System
) -> None:
    limited(operator, "task", "echo", 0)
    for _ in range(3):
        acme.create()
    system.run_for(5 * SECOND)
    assert system.runs == []

    assert limited(operator, "task", "echo", 1)["limit"] == 1
    system.run_for(SECOND)
    assert len(system.runs) == 1
    assert operator.delete("/v1/limits", kind="task", name="echo").status == 204

    system.run_for(SECOND)
    assert len(system.runs) == 3
    assert operator.get("/v1/limits").json == {"items": []}


def test_names_are_any_that_owners_have(operator: Caller) -> None:
    for name in ("*", "auth0|a.b/c@example.com", "ü ü"):
        limited(operator, "owner", name, 5)

    assert {one["name"] for one in operator.get("/v1/limits").json["items"]} == {
        *("*", "auth0|a.b/c@example.com", "ü ü")
    }
    assert operator.delete("/v1/limits", kind="owner", name="auth0|a.b/c@example.com").status == 204


@pytest.mark.parametrize("claims", [{}, {"scope": "jobs:read jobs:write ops:replay"}], ids=str)
def test_nobody_else_sees_or_changes_them_whatever_a_deployment_asks_of_tokens(
    acme: Caller, operator: Caller, claims: dict[str, object]
) -> None:
    limited(operator, "owner", "eve", 1)
    other = replace(acme, claims={"sub": "acme", **claims})

    answers = [
        other.get("/v1/limits"),
        put(other, {"kind": "owner", "name": "eve", "limit": 9}),
        other.delete("/v1/limits", kind="owner", name="eve"),
    ]

    assert {answer.status for answer in answers} == {403}
    assert operator.get("/v1/limits").json["items"][0]["limit"] == 1


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"kind": "lane", "name": "default", "limit": 1}, "kind"),
        ({"kind": "queue", "name": "", "limit": 1}, "name"),
        ({"kind": "queue", "name": " default", "limit": 1}, "name"),
        ({"kind": "queue", "name": "x" * 129, "limit": 1}, "name"),
        ({"kind": "owner", "name": "x" * 256, "limit": 1}, "name"),
        ({"kind": "task", "name": "a\nb", "limit": 1}, "name"),
        ({"kind": "queue", "name": "default", "limit": -1}, "limit"),
        ({"kind": "queue", "name": "default", "limit": LIMIT_MAX + 1}, "limit"),
        ({"kind": "queue", "name": "default", "limit": 1.5}, "limit"),
        ({"kind": "queue", "name": "default", "limit": True}, "limit"),
        ({"kind": "queue", "name": "default", "limit": "1"}, "limit"),
        ({"kind": "queue", "name": "default"}, "limit"),
        ({"kind": "queue", "name": "default", "limit": 1, "most": 2}, "most"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_what_is_no_limit_is_refused_by_field_and_value(
    operator: Caller, body: dict[str, object], field: str
) -> None:
    answer = put(operator, body)

    assert (answer.status, answer.fields) == (400, {field})
    assert operator.get("/v1/limits").json == {"items": []}


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({"kind": "queue", "name": "default"}, 404),
        ({"kind": "queue"}, 400),
        ({"name": "default"}, 400),
        ({"kind": "lane", "name": "default"}, 400),
    ],
    ids=str,
)
def test_what_is_not_there_is_not_removed(
    operator: Caller, query: dict[str, str], status: int
) -> None:
    assert operator.delete("/v1/limits", **query).status == status


def test_there_are_so_many_limits_and_no_more(operator: Caller) -> None:
    for n in range(LIMITS_MAX):
        limited(operator, "owner", f"owner-{n}", 1)

    answer = put(operator, {"kind": "owner", "name": "one-more", "limit": 1})

    assert (answer.status, answer.fields) == (400, {"limits"})
    limited(operator, "owner", "owner-7", 2)
