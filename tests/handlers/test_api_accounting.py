"""A job's completeness ledger, and what a recovery would run, over HTTP."""

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lamplighter.api import cursors
from lamplighter.core.buckets import ExecutionId, body_of
from lamplighter.core.forecast import Capacity
from lamplighter.memory import MemoryWorld, VirtualClock
from lamplighter.sim.system import System
from tests.support.api import Caller, caller
from tests.support.jobs import created, in_, new_job

MINUTE = timedelta(minutes=1)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
OUTCOMES = ("fired", "skipped", "cancelled", "expired", "pending", "missed")


@pytest.fixture
def world() -> MemoryWorld:
    return MemoryWorld(clock=VirtualClock(NOON), shards=4, partitions=1)


@pytest.fixture
def system(world: MemoryWorld) -> System:
    made = System(world=world)
    made.run_for(MINUTE)
    return made


@pytest.fixture
def acme(world: MemoryWorld) -> Caller:
    return caller(world)


def forget(world: MemoryWorld, id: ExecutionId) -> None:
    del world.tables.executions[id]
    for positions in world.tables.buckets.values():
        positions.discard(body_of(id))


def ledger(acme: Caller, job: dict[str, Any], **query: str) -> dict[str, Any]:
    answer = acme.get(f"/v1/jobs/{job['job_id']}/ledger", **query)
    assert answer.status == 200, answer.text
    found: dict[str, Any] = answer.json
    assert found["expected"] == sum(found[outcome] for outcome in OUTCOMES)
    assert found["expected"] == sum(group["count"] for group in found["groups"])
    return found


class TestLedger:
    def test_counts_each_slot_once_with_what_became_of_it(
        self, acme: Caller, system: System
    ) -> None:
        job = acme.create(rate="1 minute")
        system.run_for(10 * MINUTE)
        lost = sorted(id for id, row in system.world.tables.executions.items() if row.attempts)
        forget(system.world, lost[2])
        system.run_for(MINUTE)

        found = ledger(acme, job)

        assert found == {
            "job_id": job["job_id"],
            "from": "2025-12-31T12:12:00.000Z",
            "to": "2026-01-01T12:12:00.000Z",
            "forgotten_before": None,
            "expected": 10,
            "fired": 9,
            "skipped": 0,
            "cancelled": 0,
            "expired": 0,
            "pending": 0,
            "missed": 1,
            "groups": [
                {
                    "outcome": "FIRED",
                    "reason": "SUCCEEDED",
                    "count": 9,
                    "first": "2026-01-01T12:02:00.000Z",
                    "last": "2026-01-01T12:11:00.000Z",
                },
                {
                    "outcome": "MISSED",
                    "reason": "no execution",
                    "count": 1,
                    "first": "2026-01-01T12:04:00.000Z",
                    "last": "2026-01-01T12:04:00.000Z",
                },
            ],
            "unreadable_versions": [],
            "next_cursor": None,
        }
        assert system.world.counts.events["missed"] == 1

    def test_of_many_slots_comes_in_parts_that_sum_to_the_whole(
        self, acme: Caller, system: System
    ) -> None:
        job = acme.create(rate="1 minute")
        system.run_for(2500 * MINUTE)
        query = {"from": "2026-01-01T12:00:00Z", "to": "2026-01-03T00:00:00Z"}
        first = ledger(acme, job, **query)
        found = [first]
        while found[-1]["next_cursor"]:
            found.append(ledger(acme, job, **query, cursor=found[-1]["next_cursor"]))

        assert len(found) == 3
        assert sum(part["fired"] for part in found) == 36 * 60 - 2

    def test_says_what_is_forgotten(self, acme: Caller, system: System) -> None:
        job = acme.create(rate="1 hour")

        found = ledger(acme, job, **{"from": "2025-12-01T00:00:00Z"})

        assert found["from"] == found["forgotten_before"] == "2025-12-25T12:01:00.000Z"

    def test_of_a_range_that_is_all_forgotten_is_empty(self, acme: Caller, system: System) -> None:
        job = acme.create(rate="1 hour")
        system.run_for(timedelta(hours=14))
        system.world.pass_time(timedelta(days=8))

        found = ledger(acme, job, to="2026-01-02T00:00:00Z")

        assert (found["expected"], found["from"], found["to"]) == (
            0,
            "2026-01-02T00:00:00.000Z",
            "2026-01-02T00:00:00.000Z",
        )

    @pytest.mark.parametrize(
        ("query", "field"),
        [
            ({"from": "yesterday"}, "from"),
            ({"to": "2026-01-01T12:00:00"}, "to"),
            ({"from": "2026-01-02T00:00:00Z", "to": "2026-01-01T00:00:00Z"}, "from"),
            ({"from": "2026-01-01T00:00:00Z", "to": "2026-01-01T00:00:00Z"}, "from"),
            ({"from": "2026-01-01T00:00:00Z", "to": "2027-01-03T00:00:00Z"}, "from"),
            ({"cursor": "x"}, "cursor"),
            ({"limit": "5"}, "limit"),
        ],
    )
    def test_of_a_range_that_cannot_be_is_a_400(
        self, acme: Caller, system: System, query: dict[str, str], field: str
    ) -> None:
        job = acme.create(rate="1 minute")

        answer = acme.get(f"/v1/jobs/{job['job_id']}/ledger", **query)

        assert (answer.status, answer.fields) == (400, {field})

    @pytest.mark.parametrize(
        "forged",
        [
            "",
            "1",
            "1.2.3.4.5",
            "0.1.-.-.-",
            f"1.{'9' * 14}.-.-.-",
            "1.5.-.9999999.0.5.-",
            "½.1.-.-.-",
        ],
    )
    def test_takes_no_cursor_that_it_did_not_write(
        self, acme: Caller, system: System, forged: str
    ) -> None:
        job = acme.create(rate="1 minute")
        query = ["acme", "ledger", job["job_id"], None, None]

        answer = acme.get(f"/v1/jobs/{job['job_id']}/ledger", cursor=cursors.write(forged, query))

        assert (answer.status, answer.fields) == (400, {"cursor"})

    @pytest.mark.parametrize(
        "forged",
        [
            "1.1767268800000.-.-.-",
            "99.9999999999999.9999999999999.999999.999999.9999999999999.-",
            "1.9999999999999.1.999999.0.0.-",
            "1.0.-.-.9999999999999",
        ],
    )
    def test_answers_whatever_a_forged_cursor_holds(
        self, acme: Caller, system: System, forged: str
    ) -> None:
        job = acme.create(rate="1 minute")
        query = ["acme", "ledger", job["job_id"], None, None]

        answer = acme.get(f"/v1/jobs/{job['job_id']}/ledger", cursor=cursors.write(forged, query))

        assert answer.status in {200, 400}

    def test_takes_no_cursor_of_anothers_or_of_another_range(
        self, acme: Caller, system: System
    ) -> None:
        job = acme.create(rate="1 minute")
        path = f"/v1/jobs/{job['job_id']}/ledger"
        end = "2026-01-09T00:00:00Z"
        cursor = ledger(acme, job, to=end, **{"from": "2026-01-01T00:00:00Z"})["next_cursor"]

        assert base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        assert acme.get(path, to=end, cursor=cursor).fields == {"cursor"}
        assert acme.calling_as("eve").get(path, cursor=cursor).status in {400, 404}


class TestProgress:
    def test_tells_how_far_dispatch_has_come(self, acme: Caller, system: System) -> None:
        system.run_for(2 * MINUTE)

        found = acme.get("/v1/progress").json

        assert found["dispatched_until"] == found["due_until"] > "2026-01-01T12:05"
        assert found["backlog"] is None

    def test_tells_how_a_backlog_drains(
        self, acme: Caller, system: System, world: MemoryWorld
    ) -> None:
        world.drain_per_second = 2
        for n in range(600):
            created(world.ports(), new_job(run_at=in_(world.ports(), 300 + n)))
        system.ticking = False
        system.run_for(20 * MINUTE)
        system.ticking = True
        system.run_for(2 * MINUTE)

        found = acme.get("/v1/progress").json

        assert found["dispatched_until"] == found["backlog"]["oldest"] < found["due_until"]
        assert 0 < found["backlog"]["share_done"] < 1
        assert found["backlog"]["sent"] > 50
        assert found["backlog"]["since"] < found["backlog"]["ends_at"]
        assert set(found["backlog"]) == {
            *("since", "oldest", "until", "share_done", "sent", "ends_at")
        }


class TestRecovery:
    def test_tells_what_would_run_of_each_job(self, acme: Caller, system: System) -> None:
        job = acme.create(
            cron="* * * * *", misfire_policy="FIRE_ALL", catchup_max=3, overlap_policy="ALLOW"
        )
        system.run_for(2 * MINUTE)
        system.ticking = False
        system.run_for(20 * MINUTE)

        answer = acme.get("/v1/recovery")

        (found,) = answer.json["items"]
        assert answer.json["next_cursor"] is None
        assert found == {
            "job_id": job["job_id"],
            "name": None,
            "misfire_policy": "FIRE_ALL",
            "runs": 5,
            "first": "2026-01-01T12:19:00.000Z",
            "last": "2026-01-01T12:23:00.000Z",
            "last_starts_at": "2026-01-01T12:23:40.000Z",
            "deadline": found["deadline"],
            "not_run": found["not_run"],
            "is_exact": True,
        }
        assert found["not_run"] > 5
        assert acme.calling_as("eve").get("/v1/recovery").json["items"] == []

    def test_is_paged(self, acme: Caller, system: System) -> None:
        for _ in range(3):
            acme.create(rate="1 minute")
        system.run_for(2 * MINUTE)
        system.ticking = False
        system.run_for(20 * MINUTE)

        first = acme.get("/v1/recovery", limit="2").json
        second = acme.get("/v1/recovery", limit="2", cursor=first["next_cursor"]).json

        assert [len(page["items"]) for page in (first, second)] == [2, 1]
        assert second["next_cursor"] is None


class TestForecast:
    def test_tells_the_load_and_what_it_comes_to(self, acme: Caller, system: System) -> None:
        for _ in range(30):
            acme.create(cron="0 * * * *")
        acme.create(run_at="2026-01-01T12:30:15Z")

        found = acme.get("/v1/forecast", per_second="3").json

        assert found == {
            "from": "2026-01-01T12:01:00.000Z",
            "to": "2026-01-01T13:01:00.000Z",
            "per_second": 3.0,
            "planned": 31,
            "minutes": [
                {"minute": "2026-01-01T12:30:00.000Z", "planned": 1, "busiest_second": 1},
                {"minute": "2026-01-01T13:00:00.000Z", "planned": 30, "busiest_second": 30},
            ],
            "late": [
                {"minute": "2026-01-01T13:00:00.000Z", "planned": 30, "lateness_seconds": 10.0}
            ],
            "worst_lateness_seconds": 10.0,
            "flexible_window_seconds": 10,
            "lanes": [
                {
                    "queue": "default",
                    "per_second": 100.0,
                    "planned": 31,
                    "minutes": [
                        {"minute": "2026-01-01T12:30:00.000Z", "planned": 1, "busiest_second": 1},
                        {"minute": "2026-01-01T13:00:00.000Z", "planned": 30, "busiest_second": 30},
                    ],
                    "late": [],
                    "worst_lateness_seconds": 0.3,
                    "flexible_window_seconds": 0,
                }
            ],
            "next_cursor": None,
        }

    def test_goes_by_what_each_lane_can_start(self, world: MemoryWorld, system: System) -> None:
        """Issue 4, spikes: which minutes exceed the stack's capacity."""
        world.capacity = Capacity(lanes={"default": 1000.0, "bulk": 3.0})
        acme = caller(world)
        for _ in range(30):
            acme.create(cron="0 * * * *")
            acme.create(cron="0 * * * *", queue="bulk")

        found = acme.get("/v1/forecast").json

        # That of a lane of which nobody said is as it is on demand.
        assert found["per_second"] == 1000 + 3 + 100
        assert found["late"] == [
            {"minute": "2026-01-01T13:00:00.000Z", "planned": 30, "lateness_seconds": 10.0}
        ]
        assert (found["worst_lateness_seconds"], found["flexible_window_seconds"]) == (10.0, 10)
        lanes = {lane["queue"]: lane for lane in found["lanes"]}
        assert {queue: lane["per_second"] for queue, lane in lanes.items()} == world.capacity.lanes
        assert (lanes["default"]["late"], len(lanes["bulk"]["late"])) == ([], 1)

    def test_is_of_ones_own(self, acme: Caller, system: System) -> None:
        acme.create(rate="1 minute")

        assert acme.calling_as("eve").get("/v1/forecast").json["planned"] == 0

    def test_a_window_of_that_width_makes_it_so(self, acme: Caller, system: System) -> None:
        """Each job has its own place in the window, by its id (S2-K1)."""
        for _ in range(300):
            acme.create(cron="0 * * * *", flexible_window_seconds=60)

        found = acme.get("/v1/forecast", per_second="10").json

        assert found["worst_lateness_seconds"] < 2
        assert found["flexible_window_seconds"] == 0

    def test_is_read_in_parts(self, acme: Caller, system: System) -> None:
        for n in range(1010):
            acme.create(run_at=f"2026-01-01T12:{10 + n % 40}:00Z")

        first = acme.get("/v1/forecast").json
        second = acme.get("/v1/forecast", cursor=first["next_cursor"]).json

        assert [first["planned"], second["planned"]] == [1000, 10]
        assert second["next_cursor"] is None
        stolen = acme.calling_as("eve").get("/v1/forecast", cursor=first["next_cursor"])
        assert stolen.fields == {"cursor"}

    @pytest.mark.parametrize(
        ("query", "field"),
        [
            ({"to": "2026-01-01T12:00:00Z"}, "to"),
            ({"to": "2026-01-03T12:00:00Z"}, "to"),
            ({"from": "x"}, "from"),
            ({"per_second": "0"}, "per_second"),
            ({"per_second": "-1"}, "per_second"),
            ({"per_second": "nan"}, "per_second"),
            ({"per_second": "1000001"}, "per_second"),
            ({"per_second": ""}, "per_second"),
            ({"cursor": "x"}, "cursor"),
            ({"limit": "5"}, "limit"),
        ],
    )
    def test_what_cannot_be_is_a_400(
        self, acme: Caller, system: System, query: dict[str, str], field: str
    ) -> None:
        answer = acme.get("/v1/forecast", **query)

        assert (answer.status, answer.fields) == (400, {field})
