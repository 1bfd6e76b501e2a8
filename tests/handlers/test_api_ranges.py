"""`from` and `to`: lists of what is due in a stretch of time."""

from datetime import UTC, datetime, timedelta

import pytest

from lamplighter.memory import MemoryWorld, VirtualClock
from lamplighter.sim.system import System
from tests.support.api import Caller, caller, event

MINUTE = timedelta(minutes=1)
START = datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)


@pytest.fixture
def world() -> MemoryWorld:
    return MemoryWorld(clock=VirtualClock(START))


@pytest.fixture
def acme(world: MemoryWorld) -> Caller:
    return caller(world)


def times(acme: Caller, path: str, **query: str) -> list[str]:
    """Minutes and seconds of all that is listed, over every page."""
    found: list[str] = []
    while True:
        page = acme.get(path, **query).json
        found += [one["run_at"][14:19] for one in page["items"]]
        if page["next_cursor"] is None:
            return found
        query["cursor"] = page["next_cursor"]


@pytest.mark.parametrize("path", ["/v1/executions", "/v1/jobs"])
def test_one_offs_are_listed_by_their_run_at(acme: Caller, path: str) -> None:
    for minute in range(10, 20):
        acme.create(run_at=f"2026-01-01T00:{minute}:00Z")

    def listed(**query: str) -> list[str]:
        return times(acme, path, **query)

    begin, end = "2026-01-01T00:12:00Z", "2026-01-01T00:15:00Z"
    assert listed(**{"from": begin, "to": end}) == ["14:00", "13:00", "12:00"]
    assert listed(**{"from": begin, "to": end, "limit": "1"}) == ["14:00", "13:00", "12:00"]
    assert listed(**{"from": "2026-01-01T01:17:00+01:00"}) == ["19:00", "18:00", "17:00"]
    assert listed(to="2026-01-01T00:11:00.001Z") == ["11:00", "10:00"]
    assert listed(**{"from": end, "to": begin}) == []


@pytest.mark.parametrize("path", ["/v1/executions", "/v1/jobs/{}/runs", "/v1/jobs/{}/executions"])
def test_runs_of_a_recurring_job_are_listed_by_their_run_at(
    acme: Caller, world: MemoryWorld, path: str
) -> None:
    made = acme.create(cron="* * * * *")
    System(world=world).run_for(10 * MINUTE)
    path = path.format(made["job_id"])

    inside = {"from": "2026-01-01T00:03:00Z", "to": "2026-01-01T00:06:00Z"}
    assert times(acme, path, **inside) == ["05:00", "04:00", "03:00"]
    assert times(acme, path, **inside, limit="2") == ["05:00", "04:00", "03:00"]
    assert times(acme, path, **inside, status="scheduled") == []
    assert times(acme, path, to="2026-01-01T00:02:00Z") == ["01:00"]


def test_recurring_jobs_are_listed_that_are_due_in_it(acme: Caller, world: MemoryWorld) -> None:
    hourly = acme.create(cron="0 * * * *")["job_id"]
    world.pass_time(MINUTE)
    daily = acme.create(cron="30 12 * * *")["job_id"]
    world.pass_time(MINUTE)
    later = acme.create(rate="1 day", start_at="2026-02-01T00:00:00Z")["job_id"]

    def listed(**query: str) -> list[str]:
        return [job["job_id"] for job in acme.get("/v1/jobs", **query).json["items"]]

    assert listed() == [later, daily, hourly]
    assert listed(to="2026-01-01T12:30:00Z") == [hourly]
    assert listed(**{"from": "2026-01-01T12:01:00Z", "to": "2026-01-01T12:31:00Z"}) == [daily]
    assert listed(**{"from": "2026-02-01T00:00:00Z", "to": "2026-02-01T00:01:00Z"}) == [
        later,
        hourly,
    ]


def test_a_flexible_window_counts_by_when_it_runs(acme: Caller, world: MemoryWorld) -> None:
    """S1-Q6."""
    made = acme.create(cron="0 * * * *", flexible_window_seconds=1800)
    run_at, slot = made["run_at"], made["scheduled_for"]
    assert slot < run_at < "2026-01-01T01:30:00.000Z"
    System(world=world).run_for(timedelta(hours=2))

    def ids(path: str, **query: str) -> list[str]:
        return [one["job_id"] for one in acme.get(path, **query).json["items"]]

    for path in ("/v1/jobs", "/v1/executions", f"/v1/jobs/{made['job_id']}/executions"):
        assert ids(path, **{"from": run_at, "to": "2026-01-01T01:45:00Z"}) == [made["job_id"]]
        assert ids(path, **{"from": slot, "to": run_at}) == []
    (done,) = acme.get("/v1/executions", status="succeeded").json["items"]
    assert (done["run_at"], done["started_at"]) == (run_at, run_at)


def test_a_range_far_back_is_reached_without_reading_what_came_after(
    acme: Caller, world: MemoryWorld
) -> None:
    acme.create(run_at="2026-01-01T00:00:30Z")
    for _ in range(1200):
        acme.create(run_at="2026-01-02T00:00:00Z")

    page = acme.get("/v1/executions", to="2026-01-01T12:00:00Z").json

    assert len(page["items"]) == 1
    assert page["next_cursor"] is None


def test_the_end_of_a_range_is_the_end_of_the_list(acme: Caller) -> None:
    acme.create(run_at="2026-01-03T00:00:00Z")
    for _ in range(1200):
        acme.create(run_at="2026-01-02T00:00:00Z")

    page = acme.get("/v1/executions", **{"from": "2026-01-02T12:00:00Z"}).json

    assert len(page["items"]) == 1
    assert page["next_cursor"] is None


def test_a_cursor_belongs_to_its_range(acme: Caller) -> None:
    for _ in range(3):
        acme.create(run_at="2026-01-02T00:00:00Z")
    query = {"from": "2026-01-01T00:00:00Z", "limit": "1"}
    cursor = acme.get("/v1/executions", **query).json["next_cursor"]

    same_instant = {**query, "from": "2026-01-01T01:00:00+01:00", "cursor": cursor}
    another = {**query, "from": "2026-01-01T00:00:01Z", "cursor": cursor}

    assert acme.get("/v1/executions", **same_instant).status == 200
    assert acme.get("/v1/executions", **another).fields == {"cursor"}


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("from=yesterday", "from"),
        ("to=2026-01-01", "to"),
        ("to=2026-01-01T00:00:00", "to"),
        ("from=", "from"),
        ("from=2026-01-01T00:00:00Z&from=2026-01-01T00:00:00Z", "from"),
        ("since=2026-01-01T00:00:00Z", "since"),
    ],
)
@pytest.mark.parametrize("path", ["/v1/executions", "/v1/jobs"])
def test_what_is_no_instant_is_refused_by_name(
    acme: Caller, path: str, query: str, field: str
) -> None:
    answer = acme.send(event("GET", path, query=query, claims={"sub": "acme"}))

    assert (answer.status, answer.fields) == (400, {field})
