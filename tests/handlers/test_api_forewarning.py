"""What is answered of a start that will be late: at create, in a batch, at a change."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lamplighter.core.forecast import Capacity
from lamplighter.memory import MemoryWorld, VirtualClock
from tests.support.api import Answer, Caller, caller, event

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
AT_ONE = "2026-01-01T13:00:00Z"
# With one shard everything is counted: 41 at ten a second.
WARNING: dict[str, Any] = {
    "code": "minute-is-full",
    "detail": "More is due in lane default in the minute of 2026-01-01T13:00:00.000Z than it can "
    "start in time: expect this to start up to 5 s late. flexible_window_seconds=5 on the jobs "
    "that are due then would do",
    "expected_lateness_seconds": 5,
    "flexible_window_seconds": 5,
}


@pytest.fixture
def world() -> MemoryWorld:
    return MemoryWorld(
        clock=VirtualClock(NOON),
        shards=1,
        partitions=1,
        capacity=Capacity(lanes={"default": 10.0}),
    )


@pytest.fixture
def acme(world: MemoryWorld) -> Caller:
    """Of somebody else forty are due at one o'clock."""
    made = caller(world)
    for _ in range(40):
        made.calling_as("eve").create(run_at=AT_ONE)
    return made


def sent(
    acme: Caller, method: str, path: str, body: object, *, query: str = "", **headers: str
) -> Answer:
    return acme.send(
        event(
            method,
            path,
            query=query,
            body=json.dumps(body),
            headers={"content-type": "application/json", **headers},
            claims=acme.claims,
        )
    )


def post(acme: Caller, body: dict[str, Any], *, query: str = "", **headers: str) -> Answer:
    return sent(acme, "POST", "/v1/jobs", {"task": "echo", **body}, query=query, **headers)


def warnings(answer: Answer) -> list[dict[str, Any]] | None:
    assert answer.status in {200, 201}, answer.text
    found: list[dict[str, Any]] | None = answer.json.get("warnings")
    return found


class TestCreate:
    def test_a_recurring_job_whose_next_minute_is_full_is_accepted_with_a_warning(
        self, acme: Caller
    ) -> None:
        answer = post(acme, {"cron": "0 * * * *"})

        assert (answer.status, warnings(answer)) == (201, [WARNING])

    def test_one_whose_next_minute_is_not_gets_none(self, acme: Caller) -> None:
        assert warnings(post(acme, {"cron": "30 * * * *"})) is None
        assert warnings(post(acme, {"cron": "0 * * * *", "queue": "bulk"})) is None

    def test_of_a_one_off_it_is_told_when_asked(self, acme: Caller, world: MemoryWorld) -> None:
        """A one-off is one put, and no read is added to that unasked."""
        assert warnings(post(acme, {"run_at": AT_ONE})) is None
        assert world.counts.events["forewarned"] == 0

        assert warnings(post(acme, {"run_at": AT_ONE}, query="forecast=true")) == [WARNING]
        assert warnings(post(acme, {"cron": "0 * * * *"}, query="forecast=false")) is None

    def test_a_window_that_wide_is_not_warned_of(self, acme: Caller) -> None:
        """It moves this one away from the crowd."""
        body = {"cron": "0 * * * *", "flexible_window_seconds": 3600}

        answer = post(acme, {**body, "idempotency_key": "somewhere in the hour"})

        assert answer.json["run_at"] > "2026-01-01T13:00:10"
        assert warnings(answer) is None

    def test_a_repeated_request_is_answered_as_the_first_time(
        self, acme: Caller, world: MemoryWorld
    ) -> None:
        """The first answer again, its warnings too, and nobody looks anew."""
        first = post(acme, {"cron": "0 * * * *"}, **{"idempotency-key": "k"})
        for row in [*world.tables.executions]:
            del world.tables.executions[row]

        again = post(acme, {"cron": "0 * * * *"}, **{"idempotency-key": "k"})

        assert warnings(first) == [WARNING]
        assert again.json == first.json
        assert again.headers["idempotent-replayed"] == "true"
        assert world.counts.events["forewarned"] == 1

    @pytest.mark.parametrize(
        "body",
        [
            {"task_id": "echo", "schedule": {"type": "CRON", "value": "0 * * * *"}},
            {"type": "recurring", "target": {"kind": "task", "name": "echo"}, "cron": "0 * * * *"},
        ],
        ids=["task_id", "targeted"],
    )
    def test_other_shapes_are_warned_alike(self, acme: Caller, body: dict[str, Any]) -> None:
        answer = sent(acme, "POST", "/v1/jobs", body)

        assert warnings(answer) == [WARNING]

    @pytest.mark.parametrize("text", ["yes", "", "TRUE"])
    def test_what_is_neither_true_nor_false_is_refused_and_nothing_is_made(
        self, acme: Caller, world: MemoryWorld, text: str
    ) -> None:
        before = len(world.tables.executions)

        answer = post(acme, {"run_at": AT_ONE}, query=f"forecast={text}")

        assert (answer.status, answer.fields) == (400, {"forecast"})
        assert len(world.tables.executions) == before


class TestBatch:
    def test_each_job_has_its_own_and_the_batch_counts_with_it(self, acme: Caller) -> None:
        jobs = [{"task": "echo", "run_at": "2026-01-01T14:00:00Z"} for _ in range(30)]

        answer = sent(acme, "POST", "/v1/jobs/batch", {"jobs": jobs}, query="forecast=true")

        told = [one["body"].get("warnings") for one in answer.json["answers"]]
        assert told[:20] == [None] * 20
        assert all(one[0]["expected_lateness_seconds"] == 5 for one in told[20:])


class TestPatch:
    def test_a_schedule_that_moves_into_a_full_minute_is_warned_of(self, acme: Caller) -> None:
        job = acme.create(cron="30 * * * *")

        answer = acme.patch(f"/v1/jobs/{job['job_id']}", {"cron": "0 * * * *"})

        assert (answer.status, warnings(answer)) == (200, [WARNING])

    def test_a_change_of_something_else_is_not(self, acme: Caller) -> None:
        job = post(acme, {"cron": "0 * * * *"}).json
        path = f"/v1/jobs/{job['job_id']}"

        assert warnings(acme.patch(path, {"name": "nightly"})) is None
        asked = sent(
            acme,
            "PATCH",
            path,
            {"name": "hourly"},
            query="forecast=true",
            **{"content-type": "application/merge-patch+json"},
        )
        assert warnings(asked) == [WARNING]

    def test_a_one_off_is_when_asked(self, acme: Caller) -> None:
        path = f"/v1/jobs/{acme.create(run_at='2026-01-01T15:00:00Z')['job_id']}"

        def moved(query: str) -> Answer:
            headers = {"content-type": "application/merge-patch+json"}
            return sent(acme, "PATCH", path, {"run_at": AT_ONE}, query=query, **headers)

        assert warnings(moved("")) is None
        assert warnings(moved("forecast=true")) == [WARNING]


def test_nobody_can_count_the_jobs_of_others_by_what_is_told(acme: Caller) -> None:
    """It is told in steps: of forty of them or of forty-nine, the same."""
    told = [warnings(post(acme, {"cron": "0 * * * *"})) for _ in range(9)]

    assert told == [[WARNING]] * 9


def test_the_page_on_the_api_names_all_that_a_warning_has() -> None:
    page = (Path(__file__).parents[2] / "docs" / "api.md").read_text(encoding="utf-8")

    assert [name for name in (*WARNING, WARNING["code"]) if f"`{name}`" not in page] == []
