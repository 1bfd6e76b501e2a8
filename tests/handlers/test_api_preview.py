"""`POST /v1/schedules/preview`: when a schedule would be due, as dispatch will have it."""

from datetime import UTC, datetime, timedelta

import pytest

from lamplighter.core.schedule import TZDB_VERSION
from lamplighter.memory import MemoryWorld, VirtualClock
from lamplighter.sim.system import System
from tests.support.api import Caller, caller

START = datetime(2026, 3, 27, 12, tzinfo=UTC)
PATH = "/v1/schedules/preview"


@pytest.fixture
def world() -> MemoryWorld:
    return MemoryWorld(clock=VirtualClock(START))


@pytest.fixture
def acme(world: MemoryWorld) -> Caller:
    return caller(world)


def test_it_tells_when_and_in_words_and_by_which_zone_rules(
    acme: Caller, world: MemoryWorld
) -> None:
    answer = acme.post(PATH, {"cron": "30 2 * * *", "timezone": "Europe/Berlin", "count": 3})

    assert answer.status == 200
    assert answer.json == {
        "occurrences": [
            "2026-03-28T01:30:00.000Z",
            "2026-03-29T01:00:00.000Z",
            "2026-03-30T00:30:00.000Z",
        ],
        "explanation": answer.json["explanation"],
        "tzdb_version": TZDB_VERSION,
    }
    assert "02:30" in answer.json["explanation"]
    assert not world.tables.jobs


@pytest.mark.parametrize(
    ("body", "occurrences"),
    [
        (
            {"cron": "30 2 * * *", "timezone": "Europe/Berlin", "dst_gap": "SHIFT", "count": 2},
            ["2026-03-28T01:30:00.000Z", "2026-03-29T01:30:00.000Z"],
        ),
        (
            {"rate": "90 minutes", "count": 2},
            ["2026-03-27T13:30:00.000Z", "2026-03-27T15:00:00.000Z"],
        ),
        (
            {"rate": "1 hour", "after": "2030-01-01T00:10:00Z", "count": 1},
            ["2030-01-01T01:10:00.000Z"],
        ),
        ({"at": "2026-07-01T09:00:00", "timezone": "Europe/Paris"}, ["2026-07-01T07:00:00.000Z"]),
        ({"at": "at(2020-07-01T09:00:00)"}, []),
        (
            {"cron": "0 12 ? * 2 *", "dialect": "eventbridge", "count": 1},
            ["2026-03-30T12:00:00.000Z"],
        ),
        (
            {"cron": "@daily", "start_at": "2026-05-01T00:00:00Z", "max_occurrences": 2}
            | {"except": ["2026-05-01"]},
            ["2026-05-02T00:00:00.000Z", "2026-05-03T00:00:00.000Z"],
        ),
        (
            {"cron": "@daily", "after": "2024-01-01T12:00:00Z", "end_at": "2024-01-03T00:00:00Z"},
            ["2024-01-02T00:00:00.000Z", "2024-01-03T00:00:00.000Z"],
        ),
    ],
    ids=str,
)
def test_it_takes_all_that_a_schedule_may_say(
    acme: Caller, body: object, occurrences: list[str]
) -> None:
    assert acme.post(PATH, body).json["occurrences"] == occurrences


def test_five_are_shown_and_up_to_a_thousand_may_be_asked_for(acme: Caller) -> None:
    def shown(**count: int) -> int:
        return len(acme.post(PATH, {"cron": "* * * * *", **count}).json["occurrences"])

    assert (shown(), shown(count=1), shown(count=1000)) == (5, 1, 1000)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "cron"),
        ({"cron": "@daily", "rate": "1 hour"}, "cron"),
        ({"cron": "61 * * * *"}, "cron"),
        ({"cron": "0 0 31 2 *"}, "cron"),
        ({"cron": "0 " * 5000 + "* * * *"}, "cron"),
        ({"rate": "30 seconds"}, "rate"),
        ({"cron": "@daily", "timezone": "Mars/Base"}, "timezone"),
        ({"cron": "@daily", "after": "2026-05-01T00:00:00"}, "after"),
        ({"cron": "@daily", "count": 0}, "count"),
        ({"cron": "@daily", "count": 1001}, "count"),
        ({"cron": "@daily", "count": True}, "count"),
        ({"cron": "@daily", "seed": "s" * 129}, "seed"),
        ({"cron": "@daily", "task": "echo"}, "task"),
        ({"cron": None}, "cron"),
        ([], "body"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_create_refuses_it_refuses_by_the_same_name(
    acme: Caller, body: object, field: str
) -> None:
    answer = acme.post(PATH, body)

    assert (answer.status, answer.fields) == (400, {field})


@pytest.mark.parametrize(
    "schedule",
    [
        {"cron": "*/7 * * * *", "timezone": "Asia/Kolkata"},
        {"cron": "H/9 * * * *"},
        {"rate": "11 minutes"},
    ],
    ids=str,
)
def test_what_it_showed_is_what_runs(
    acme: Caller, world: MemoryWorld, schedule: dict[str, object]
) -> None:
    made = acme.create(**schedule)
    shown = acme.post(PATH, {**schedule, "seed": made["job_id"]}).json["occurrences"]

    System(world=world).run_for(timedelta(hours=1))

    ran = acme.get("/v1/executions", status="succeeded", to="2026-03-27T13:00:00Z").json["items"]
    assert sorted(one["scheduled_for"] for one in ran)[:5] == shown
