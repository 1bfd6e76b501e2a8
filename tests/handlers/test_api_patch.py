"""`PATCH /v1/jobs/{job_id}`: what it merges, what it refuses, and which version it is about."""

import json
from collections.abc import Mapping
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lamplighter.api import patching
from lamplighter.api.bodies import JobBody
from lamplighter.api.reading import names_of
from lamplighter.core.addresses import Reach
from lamplighter.core.buckets import object_prefix
from lamplighter.core.model import Job, Owner
from lamplighter.core.outcome import Outcome, Succeeded
from lamplighter.core.targets import HttpRules, HttpTarget
from lamplighter.memory import MemoryWorld, VirtualClock
from lamplighter.services.execute import Claimed, begin
from lamplighter.sim.system import System
from tests.support.api import Answer, Caller, caller

MINUTE = timedelta(minutes=1)
START = datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)
HTTP = HttpRules(owners=frozenset({"acme"}), reach=Reach())
Document = dict[str, Any]
OF_THE_RECORD = {
    *("job_id", "execution_id", "status", "version", "created_at", "next_run_at", "anchor"),
    *("executions", "tzdb_version", "in_flight"),
}


@pytest.fixture
def world() -> MemoryWorld:
    return MemoryWorld(clock=VirtualClock(START))


@pytest.fixture
def system(world: MemoryWorld) -> System:
    return System(world=world)


@pytest.fixture
def acme(world: MemoryWorld) -> Caller:
    return caller(world)


def path(made: Mapping[str, Any]) -> str:
    return f"/v1/jobs/{made['job_id']}"


def shown(acme: Caller, made: Mapping[str, Any]) -> Document:
    found: Document = acme.get(path(made)).json
    return found


def said(job: Mapping[str, Any]) -> Document:
    """What a document says of the definition, and nothing of when it was written."""
    return {name: value for name, value in job.items() if name not in OF_THE_RECORD}


def patched(acme: Caller, made: Mapping[str, Any], **body: object) -> Document:
    answer = acme.patch(path(made), body)
    assert answer.status == 200, answer.text
    found: Document = answer.json
    return found


RECURRING: Document = {
    "cron": "0 12 * * 1",
    "timezone": "Europe/Berlin",
    "dialect": "unix",
    "dst_gap": "SHIFT",
    "dst_fold": "SECOND",
    "start_at": "2026-02-01T00:00:00.000Z",
    "end_at": "2030-01-01T00:00:00.000Z",
    "max_occurrences": 50,
    "flexible_window_seconds": 60,
    "except": ["2026-03-02"],
    "task": "report",
    "task_version": 3,
    "payload": {"a": {"b": 1}},
    "queue": "bulk",
    "misfire_policy": "FIRE_ALL",
    "misfire_threshold_seconds": 90,
    "catchup_window_seconds": 7200,
    "catchup_max": 7,
    "catchup_spread_seconds": 30,
    "deadline_seconds": 900,
    "on_deadline": "SKIP",
    "overlap_policy": "BUFFER_ALL",
    "retry_policy": {
        "max_attempts": 3,
        "base_seconds": 0.5,
        "factor": 3,
        "max_seconds": 60,
        "jitter": 0.25,
        "retry_on": ["OSError"],
        "no_retry_on": ["FileNotFoundError"],
        "honor_retry_after": False,
    },
    "timeout_seconds": 90,
    "name": "weekly",
}
CHANGES: Document = {
    "cron": "0 13 * * 2",
    "timezone": "Asia/Tokyo",
    "dst_gap": "SKIP",
    "dst_fold": "BOTH",
    "start_at": "2026-03-01T00:00:00.000Z",
    "end_at": "2031-01-01T00:00:00.000Z",
    "max_occurrences": 60,
    "flexible_window_seconds": 120,
    "except": ["2026-04-02", "0 12 3 * *"],
    "task": "other",
    "payload": [1, None],
    "queue": "critical",
    "misfire_policy": "SKIP",
    "misfire_threshold_seconds": 80,
    "catchup_window_seconds": 7000,
    "catchup_max": 8,
    "catchup_spread_seconds": 40,
    "deadline_seconds": 800,
    "on_deadline": "DEAD_LETTER",
    "overlap_policy": "ALLOW",
    "retry_policy": {
        "max_attempts": 4,
        "base_seconds": 1,
        "factor": 2,
        "max_seconds": 30,
        "jitter": 1,
        "retry_on": [],
        "no_retry_on": ["KeyError"],
        "honor_retry_after": True,
    },
    "timeout_seconds": 80.5,
    "name": "weekly too",
}


class TestARecurringJob:
    @pytest.mark.parametrize("field", CHANGES)
    def test_goes_on_with_what_is_named_and_keeps_the_rest(self, acme: Caller, field: str) -> None:
        """S2-A4, S4-A4, S2-F7."""
        made = acme.create(**RECURRING)
        before = shown(acme, made)

        answer = patched(acme, made, **{field: CHANGES[field]})

        after = shown(acme, made)
        assert said(after) == said({**before, field: CHANGES[field]})
        assert (after["version"], answer["version"], answer["in_flight"]) == (2, 2, [])

    @pytest.mark.parametrize("field", sorted(RECURRING.keys() - {"task", "cron"}))
    def test_goes_back_to_the_default_of_what_is_null(self, acme: Caller, field: str) -> None:
        made = acme.create(**RECURRING)
        default = acme.create(**{name: RECURRING[name] for name in RECURRING if name != field})
        if field == "payload":
            default = acme.create(**{**RECURRING, "payload": None})

        patched(acme, made, **{field: None})

        assert said(shown(acme, made)) == said(shown(acme, default))

    @pytest.mark.parametrize(
        "when",
        [
            {"rate": "rate(5 minutes)"},
            {"rate": "every(2 weeks)", "cron": None},
            {"cron": "cron(0 12 ? * 2 *)", "dialect": None},
        ],
        ids=str,
    )
    def test_goes_by_cron_or_by_rate(self, acme: Caller, when: Document) -> None:
        made = acme.create(**RECURRING)
        body = {**RECURRING, **when}
        if "rate" in when:
            del body["cron"]
        same = acme.create(**{name: value for name, value in body.items() if value is not None})

        patched(acme, made, **when)

        assert said(shown(acme, made)) == said(shown(acme, same))

    def test_that_is_patched_with_nothing_new_keeps_its_version(self, acme: Caller) -> None:
        made = acme.create(**RECURRING)
        before = shown(acme, made)

        for same in ({}, RECURRING, {"start_at": "2026-02-01T01:00:00+01:00"}):
            answer = acme.patch(path(made), same)

            assert (answer.status, answer.headers["etag"]) == (200, '"1"')
        assert shown(acme, made) == before

    def test_keeps_a_large_payload_that_is_the_same(self, acme: Caller) -> None:
        made = acme.create(**{**RECURRING, "payload": "x" * 600})

        assert patched(acme, made, payload="x" * 600)["version"] == 1
        assert patched(acme, made, payload="y" * 600)["version"] == 2
        assert patched(acme, made, name="n")["version"] == 3

        assert shown(acme, made)["payload"] == "y" * 600

    def test_takes_a_payload_as_it_is_and_merges_nothing_in_it(self, acme: Caller) -> None:
        made = acme.create(**RECURRING)

        patched(acme, made, payload={"c": None})

        assert shown(acme, made)["payload"] == {"c": None}

    def test_merges_a_retry_policy_field_by_field(self, acme: Caller) -> None:
        made = acme.create(**RECURRING)

        patched(acme, made, retry_policy={"factor": None, "max_attempts": 9})

        assert shown(acme, made)["retry_policy"] == {
            **RECURRING["retry_policy"],
            "factor": 2,
            "max_attempts": 9,
        }

    def test_leaves_a_retry_policy_that_nobody_gave_to_the_task(self, acme: Caller) -> None:
        """S0-R1."""
        made = acme.create(task="bill", rate="1 hour")

        patched(acme, made, timeout_seconds=30)

        assert shown(acme, made)["retry_policy_is_default"] is True

    def test_gives_a_retry_policy_and_takes_it_back(self, acme: Caller) -> None:
        """S0-R1."""
        made = acme.create(task="bill", rate="1 hour")

        patched(acme, made, retry_policy={"max_attempts": 9})
        given = shown(acme, made)
        patched(acme, made, retry_policy=None)
        taken_back = shown(acme, made)

        assert (given["retry_policy_is_default"], given["retry_policy"]["max_attempts"]) == (
            False,
            9,
        )
        assert taken_back["retry_policy_is_default"] is True
        assert taken_back["retry_policy"]["max_attempts"] == 5

    def test_takes_a_list_of_a_retry_policy_whole(self, acme: Caller) -> None:
        made = acme.create(**RECURRING)

        patched(acme, made, retry_policy={"no_retry_on": ["KeyError"], "retry_on": None})

        assert shown(acme, made)["retry_policy"] == {
            **RECURRING["retry_policy"],
            "retry_on": [],
            "no_retry_on": ["KeyError"],
        }

    def test_names_the_list_that_comes_to_contradict_the_other(self, acme: Caller) -> None:
        made = acme.create(**RECURRING)

        answer = acme.patch(path(made), {"retry_policy": {"retry_on": ["FileNotFoundError"]}})

        assert (answer.status, answer.fields) == (400, {"retry_policy.no_retry_on.0"})

    def test_keeps_counting_from_its_creation_while_its_text_is_the_same(
        self, acme: Caller, world: MemoryWorld
    ) -> None:
        made = acme.create(rate="rate(7 minutes)")
        world.pass_time(10 * MINUTE)

        answer = patched(
            acme, made, task="other", flexible_window_seconds=0, end_at="2027-01-01T00:00:00Z"
        )

        assert answer["anchor"] == "2026-01-01T00:00:01.000Z"
        assert answer["next_run_at"] == "2026-01-01T00:14:01.000Z"

    def test_counts_another_text_from_the_change(self, acme: Caller, world: MemoryWorld) -> None:
        made = acme.create(rate="rate(7 minutes)", max_occurrences=2)
        world.pass_time(10 * MINUTE)

        answer = patched(acme, made, rate="rate(8 minutes)")

        assert answer["anchor"] == "2026-01-01T00:10:01.000Z"
        assert answer["next_run_at"] == "2026-01-01T00:18:01.000Z"

    def test_runs_nothing_retroactively_and_no_slot_twice(
        self, acme: Caller, system: System
    ) -> None:
        made = acme.create(cron="*/10 * * * *")
        system.run_for(25 * MINUTE)

        patched(acme, made, cron="*/5 * * * *")
        system.run_for(20 * MINUTE)

        slots = [one["scheduled_for"][14:16] for one in shown(acme, made)["executions"]]
        assert [run.due_at.minute for run in system.runs] == [10, 20, 30, 35, 40, 45]
        assert slots[-6:] == ["45", "40", "35", "30", "20", "10"]

    def test_that_is_paused_stays_so(self, acme: Caller, system: System) -> None:
        made = acme.create(cron="*/10 * * * *")
        acme.post(f"{path(made)}/pause", {})

        answer = patched(acme, made, cron="*/5 * * * *")
        system.run_for(20 * MINUTE)

        assert (answer["status"], answer["version"], answer["next_run_at"]) == ("PAUSED", 3, None)
        assert system.runs == []

    def test_that_is_deleted_is_not_patched(self, acme: Caller) -> None:
        made = acme.create(rate="1 hour")
        acme.delete(path(made))

        assert acme.patch(path(made), {"task": "other"}).status == 409

    def test_whose_schedule_is_over_is_still_patched_otherwise(
        self, acme: Caller, world: MemoryWorld
    ) -> None:
        made = acme.create(rate="1 hour", end_at="2026-01-01T03:00:00Z")
        world.pass_time(timedelta(days=1))

        assert patched(acme, made, name="over", end_at="2026-01-01T03:00:00Z")["version"] == 2
        assert acme.patch(path(made), {"end_at": "2026-01-01T04:00:00Z"}).fields == {"end_at"}
        assert patched(acme, made, end_at=None)["next_run_at"] == "2026-01-02T01:00:01.000Z"

    def test_what_was_claimed_before_is_named(self, acme: Caller, system: System) -> None:
        made = acme.create(rate="1 minute")
        answers: list[Document] = []

        def handler(claimed: Claimed) -> Outcome:
            if not answers:
                answers.append(patched(acme, made, task="other"))
            return Succeeded(result="1")

        system.handler = handler
        system.run_for(3 * MINUTE)

        assert answers[0]["in_flight"] == [system.runs[0].execution_id]

    def test_what_it_calls_may_be_a_request_of_which_no_secret_is_lost(
        self, world: MemoryWorld
    ) -> None:
        acme = caller(world, http=HTTP)
        url = "https://x.example/a?token=t&b=1"
        target = {"kind": "http", "url": url, "headers": {"Authorization": "Bearer s", "X-A": "1"}}
        made = acme.post("/v1/jobs", {"rate": "1 hour", "target": target}).json

        target = shown(acme, made)["target"]
        patched(acme, made, target={**target, "headers": {**target["headers"], "X-A": None}})
        patched(acme, made, name="renamed")

        (job,) = world.tables.jobs.values()
        assert isinstance(job.spec.target, HttpTarget)
        assert job.spec.target.url == "https://x.example/a?token=t&b=1"
        assert job.spec.target.headers == (("Authorization", "Bearer s"),)
        patched(acme, made, task="echo")
        assert "target" not in shown(acme, made)

    def test_a_mask_in_a_query_stands_for_the_secret_whatever_else_changes(
        self, world: MemoryWorld
    ) -> None:
        acme = caller(world, http=HTTP)
        url = "https://x.example/a?token=t&b=1&token=u&api_key=v"
        made = acme.post(
            "/v1/jobs", {"rate": "1 hour", "target": {"kind": "http", "url": url}}
        ).json

        for asked, stored in {
            "https://x.example/a?token=***&b=2&token=***": "/a?token=t&b=2&token=u",
            "https://x.example/z?b=3&token=***": "/z?b=3&token=t",
            "https://x.example/z?token=w&b=***": "/z?token=w&b=***",
        }.items():
            patched(acme, made, target={"url": asked})

            (job,) = world.tables.jobs.values()
            assert isinstance(job.spec.target, HttpTarget)
            assert job.spec.target.place.path == stored

    @pytest.mark.parametrize(
        ("target", "field", "reason"),
        [
            ({"url": "https://x.example/a?key=***"}, "url", "there is none for key"),
            ({"url": "https://x.example/a?token=***&token=***"}, "url", "there is none for token"),
            ({"headers": {"x-token": "***"}}, "headers.x-token", "there is none"),
            ({"url": "https://y.example/?token=***"}, "url", "secret token is not sent"),
            ({"url": "https://y.example/"}, "url", "secret Authorization, X-Key is not sent"),
            ({"url": "https://x.example:8443/"}, "url", "secret Authorization, X-Key"),
            ({"url": "http://x.example/"}, "url", "secret Authorization, X-Key"),
            (
                {"url": "https://y.example/", "headers": {"Authorization": "***", "X-Key": "n"}},
                *("url", "secret Authorization is not sent"),
            ),
            (
                {"url": "https://y.example/", "headers": {"authorization": "n", "X-Key": None}},
                *("url", "secret Authorization is not sent"),
            ),
        ],
    )
    def test_a_secret_goes_to_no_other_host_than_it_was_given_for(
        self, world: MemoryWorld, target: Document, field: str, reason: str
    ) -> None:
        acme = caller(world, http=HTTP)
        headers = {"Authorization": "a", "X-Key": "b", "X-A": "c"}
        stored = {"kind": "http", "url": "https://x.example/a?token=t", "headers": headers}
        made = acme.post("/v1/jobs", {"rate": "1 hour", "target": stored}).json

        answer = acme.patch(path(made), {"target": target})

        assert answer.status == 400
        (fault,) = answer.json["errors"]
        assert fault["field"] == f"target.{field}"
        assert reason in fault["reason"]

    @pytest.mark.parametrize(
        "headers",
        [
            {"Authorization": "a", "X-Key": "new"},
            {"Authorization": None, "X-Key": None},
            None,
        ],
    )
    def test_another_host_is_called_with_what_it_was_given_itself(
        self, world: MemoryWorld, headers: Document | None
    ) -> None:
        acme = caller(world, http=HTTP)
        stored = {"Authorization": "a", "X-Key": "b"}
        target = {"kind": "http", "url": "https://x.example/a?token=t", "headers": stored}
        made = acme.post("/v1/jobs", {"rate": "1 hour", "target": target}).json

        patched(acme, made, target={"url": "https://y.example/?token=n", "headers": headers})

        (job,) = world.tables.jobs.values()
        assert isinstance(job.spec.target, HttpTarget)
        given = {name: value for name, value in (headers or {}).items() if value}
        assert (dict(job.spec.target.headers), job.spec.target.place.host) == (given, "y.example")

    def test_takes_either_name_of_its_misfire_policy(self, acme: Caller) -> None:
        made = acme.create(**RECURRING)

        assert patched(acme, made, catch_up_policy="SKIP")["misfire_policy"] == "SKIP"
        assert patched(acme, made, catch_up_policy=None)["misfire_policy"] == "FIRE_ONCE"

    def test_has_a_payload_of_its_own_or_one_by_reference(
        self, acme: Caller, world: MemoryWorld
    ) -> None:
        made = acme.create(**RECURRING)
        key = object_prefix(Owner("acme")) + "k"
        world.payloads.put(key, b"[1]")
        before = shown(acme, made)

        patched(acme, made, payload_ref=None)
        assert shown(acme, made) == before
        patched(acme, made, payload_ref={"key": "k"})
        referring = shown(acme, made)
        assert patched(acme, made, payload_ref={"key": "k"}, name="n")["version"] == 3
        assert shown(acme, made)["payload_ref"] == referring["payload_ref"]
        assert "payload" not in referring
        patched(acme, made, payload_ref=None)
        assert shown(acme, made)["payload"] == {}
        patched(acme, made, payload_ref={"key": "k"})
        patched(acme, made, payload=1)
        assert said(shown(acme, made)) == said({**before, "payload": 1, "name": "n"})
        assert acme.patch(path(made), {"payload_ref": {"key": "other"}}).fields == {"payload_ref"}


ONE_OFF: Document = {
    "run_at": "2026-01-01T01:00:00.000Z",
    "task": "report",
    "payload": {"a": 1},
    "queue": "bulk",
    "retry_policy": RECURRING["retry_policy"],
    "timeout_seconds": 90,
}


class TestAOneOff:
    @pytest.mark.parametrize(
        ("patch", "expected"),
        [
            ({"task": "other"}, {}),
            ({"payload": None}, {}),
            ({"timeout_seconds": 12}, {}),
            ({"queue": "critical"}, {}),
            ({"queue": None}, {"queue": "default"}),
            ({"run_at": "2026-01-01T02:00:00+01:00"}, {"run_at": "2026-01-01T01:00:00.000Z"}),
            ({"run_at": "2026-01-03T00:00:00.000Z"}, {"scheduled_for": "2026-01-03T00:00:00.000Z"}),
            (
                {"at": "2026-07-01T09:00:00", "timezone": "Europe/Paris"},
                dict.fromkeys(("run_at", "scheduled_for"), "2026-07-01T07:00:00.000Z"),
            ),
        ],
        ids=str,
    )
    def test_runs_as_it_is_named_and_keeps_the_rest(
        self, acme: Caller, patch: Document, expected: Document
    ) -> None:
        made = acme.create(**ONE_OFF)
        before = shown(acme, made)

        answer = patched(acme, made, **patch)

        after = shown(acme, made)
        fields = {name: value for name, value in patch.items() if name not in {"at", "timezone"}}
        assert said(after) == said({**before, **fields, **expected})
        assert answer["in_flight"] == []
        assert said(answer) == said({name: after[name] for name in after if name != "executions"})

    def test_runs_once_and_only_at_its_new_time(self, acme: Caller, system: System) -> None:
        made = acme.create(run_at="2026-01-01T00:03:00Z")

        answer = patched(acme, made, run_at="2026-01-01T00:30:00Z")
        system.run_for(timedelta(hours=1))

        assert [run.started_at.minute for run in system.runs] == [30]
        job = shown(acme, made)
        assert (job["status"], job["version"]) == ("SUCCEEDED", 2)
        assert job["execution_id"] == answer["execution_id"] != made["execution_id"]
        left = acme.get(f"/v1/executions/{made['execution_id']}").json
        assert (left["status"], left["reason"]) == (
            "CANCELLED",
            f"moved to {answer['execution_id']}",
        )
        assert [one["execution_id"] for one in acme.get("/v1/executions").json["items"]] == [
            answer["execution_id"]
        ]

    def test_of_a_time_that_has_passed_runs_now(self, acme: Caller, system: System) -> None:
        made = acme.create(run_at="2026-01-01T00:30:00Z")

        patched(acme, made, run_at="2025-12-31T00:00:00Z")
        system.work()

        assert shown(acme, made)["status"] == "SUCCEEDED"

    def test_is_deleted_wherever_it_was_moved_to(self, acme: Caller, system: System) -> None:
        made = acme.create(run_at="2026-01-01T00:03:00Z")
        patched(acme, made, run_at="2026-01-01T00:30:00Z")

        assert acme.delete(path(made)).status == 204
        system.run_for(timedelta(hours=1))

        assert system.runs == []
        assert shown(acme, made)["status"] == "CANCELLED"

    def test_that_somebody_has_claimed_is_not_patched(
        self, acme: Caller, world: MemoryWorld
    ) -> None:
        made = acme.create()
        (message,) = world.queue.receive()
        assert isinstance(begin(world.ports(), message, worker="w"), Claimed)

        answer = acme.patch(path(made), {"payload": 1})

        assert answer.status == 409
        assert "RUNNING" in answer.json["detail"]

    def test_patched_with_nothing_new_keeps_its_version(self, acme: Caller) -> None:
        made = acme.create(**ONE_OFF)

        for same in ({}, ONE_OFF):
            answer = acme.patch(path(made), same)

            assert (answer.status, answer.headers["etag"]) == (200, '"1"')


class TestVersions:
    def test_each_answer_has_the_version_as_its_tag(self, acme: Caller) -> None:
        created = acme.post("/v1/jobs", {"task": "echo", "rate": "1 hour"})
        job = f"/v1/jobs/{created.json['job_id']}"

        tags = [
            answer.headers["etag"]
            for answer in (
                created,
                acme.get(job),
                acme.patch(job, {"task": "other"}),
                acme.post(f"{job}/pause", {}),
                acme.post(f"{job}/resume", {}),
                acme.get(job),
            )
        ]

        assert tags == ['"1"', '"1"', '"2"', '"3"', '"4"', '"4"']

    @pytest.mark.parametrize("kind", [{"rate": "1 hour"}, {"run_at": "2026-02-01T00:00:00Z"}])
    @pytest.mark.parametrize("tag", ['"1"', "1", 'W/"1"', "*", None])
    def test_the_version_that_is_meant_is_patched(
        self, acme: Caller, kind: Document, tag: str | None
    ) -> None:
        made = acme.create(**kind)
        headers = {} if tag is None else {"If_Match": tag}

        answer = acme.patch(path(made), {"task": "other"}, **headers)

        assert (answer.status, answer.headers["etag"]) == (200, '"2"')

    @pytest.mark.parametrize("kind", [{"rate": "1 hour"}, {"run_at": "2026-02-01T00:00:00Z"}])
    def test_another_version_is_a_412_that_tells_which_there_is(
        self, acme: Caller, kind: Document
    ) -> None:
        made = acme.create(**kind)
        patched(acme, made, task="mine")

        answer = acme.patch(path(made), {"task": "theirs"}, If_Match='"1"')

        assert (answer.status, answer.headers["etag"]) == (412, '"2"')
        assert answer.json["type"] == "urn:lamplighter:problem:version-mismatch"
        assert "version 2" in answer.json["detail"]
        assert shown(acme, made)["task"] == "mine"

    def test_pause_and_resume_go_by_it_too(self, acme: Caller) -> None:
        made = acme.create(rate="1 hour")

        stale = acme.post(f"{path(made)}/pause", {}, If_Match='"7"')
        paused = acme.post(f"{path(made)}/pause", {}, If_Match='"1"')
        resumed = acme.post(f"{path(made)}/resume", {}, If_Match='"1"')

        assert (stale.status, paused.status, resumed.status) == (412, 200, 412)

    @pytest.mark.parametrize("tag", ["", '"', '"a"', '"1", "2"', '"01"', '"0"', "-1", "W/1", "²"])
    def test_a_tag_that_is_none_is_refused(self, acme: Caller, tag: str) -> None:
        made = acme.create(rate="1 hour")

        answer = acme.patch(path(made), {"task": "other"}, If_Match=tag)

        assert (answer.status, answer.fields) == (400, {"If-Match"})
        assert shown(acme, made)["task"] == "echo"


class TestRefusals:
    """400 names each field at fault, and nothing was changed."""

    @pytest.mark.parametrize(
        ("patch", "named"),
        [
            ({"crom": "* * * * *"}, {"crom"}),
            ({"crom": None}, {"crom"}),
            ({"foo": {"a": None}}, {"foo"}),
            ({"retry_policy": {"jiter": None}}, {"retry_policy.jiter"}),
            ({"retry_policy": {"jitter": -1}}, {"retry_policy.jitter"}),
            ({"retry_policy": {"retry_on": {"0": "OSError"}}}, {"retry_policy.retry_on"}),
            ({"retry_policy": {"retry_on": ["OSError", None]}}, {"retry_policy.retry_on.1"}),
            ({"status": "PAUSED"}, {"status"}),
            (
                {"version": 3, "job_id": "x", "created_at": None},
                {"version", "job_id", "created_at"},
            ),
            ({"idempotency_key": "k"}, {"idempotency_key"}),
            ({"cron": "61 * * * *", "queue": "fast", "status": "x"}, {"cron", "queue", "status"}),
            ({"task": None}, {"task"}),
            ({"task": 5}, {"task"}),
            ({"queue": {"task": None}}, {"queue"}),
            ({"cron": None}, {"cron"}),
            ({"run_at": "2026-07-01T09:00:00Z"}, {"run_at"}),
            ({"at": "2026-07-01T09:00:00"}, {"at"}),
            ({"cron": "0 0 * * *", "rate": "1 hour"}, {"cron", "rate"}),
            ({"cron": "0 0 31 2 *"}, {"cron"}),
            ({"rate": "rate(1 minutes)"}, {"rate"}),
            ({"timezone": "Mars/Base"}, {"timezone"}),
            ({"end_at": "2025-01-01T00:00:00Z"}, {"end_at"}),
            ({"start_at": "2028-01-01T00:00:00Z", "end_at": "2027-01-01T00:00:00Z"}, {"end_at"}),
            ({"max_occurrences": 0}, {"max_occurrences"}),
            ({"name": ""}, {"name"}),
            ({"timeout_seconds": 841}, {"timeout_seconds"}),
            ({"retry_policy": {"max_attempts": 5.5}}, {"retry_policy.max_attempts"}),
            ({"retry_policy": 3}, {"retry_policy"}),
            ({"payload": "x" * 65_535}, {"payload"}),
            ({"misfire_policy": "never"}, {"misfire_policy"}),
            ({"overlap_policy": "never"}, {"overlap_policy"}),
            (["task"], {"body"}),
            (None, {"body"}),
        ],
        ids=lambda value: json.dumps(value)[:50] if not isinstance(value, set) else "",
    )
    def test_of_a_recurring_job(self, acme: Caller, patch: object, named: set[str]) -> None:
        made = acme.create(cron="*/5 * * * *")
        before = shown(acme, made)

        answer = acme.patch(path(made), patch)

        assert (answer.status, answer.fields) == (400, named)
        assert shown(acme, made) == before

    @pytest.mark.parametrize(
        ("patch", "named"),
        [
            ({"cron": "* * * * *"}, {"cron"}),
            ({"rate": "1 hour"}, {"rate"}),
            ({"run_at": None}, {"run_at"}),
            ({"run_at": "tomorrow"}, {"run_at"}),
            ({"run_at": "2026-07-01T09:00:00"}, {"run_at"}),
            ({"run_at": "2126-07-01T09:00:00Z"}, {"run_at"}),
            ({"timezone": "Europe/Berlin", "dst_gap": "SKIP"}, {"timezone", "dst_gap"}),
            ({"end_at": "2027-01-01T00:00:00Z", "name": "n"}, {"end_at", "name"}),
            ({"scheduled_for": "2027-01-01T00:00:00Z"}, {"scheduled_for"}),
            ({"queue": "fast", "task": ""}, {"queue", "task"}),
        ],
        ids=lambda value: json.dumps(value)[:50] if not isinstance(value, set) else "",
    )
    def test_of_a_one_off(self, acme: Caller, patch: object, named: set[str]) -> None:
        made = acme.create(run_at="2026-06-01T00:00:00Z")
        before = shown(acme, made)

        answer = acme.patch(path(made), patch)

        assert (answer.status, answer.fields) == (400, named)
        assert shown(acme, made) == before

    def test_of_a_status_tells_what_sets_it(self, acme: Caller) -> None:
        made = acme.create(rate="1 hour")

        (error,) = acme.patch(path(made), {"status": "PAUSED"}).json["errors"]

        assert "/pause" in error["reason"]
        assert error["value"] == "PAUSED"

    @pytest.mark.parametrize(
        ("content_type", "status"),
        [
            ("application/merge-patch+json", 200),
            ("application/json", 200),
            ("application/json; charset=utf-8", 200),
            ("text/plain", 415),
        ],
    )
    def test_of_what_is_not_said_to_be_json(
        self, acme: Caller, content_type: str, status: int
    ) -> None:
        made = acme.create(rate="1 hour")

        answer = acme.patch(path(made), {"task": "other"}, Content_Type=content_type)

        assert answer.status == status

    @pytest.mark.parametrize("prefix", ["job_", "one_"])
    def test_of_what_never_was(self, acme: Caller, prefix: str) -> None:
        answer = acme.patch(f"/v1/jobs/{prefix}{'0' * 26}", {"task": "other"})

        assert answer.status == 404


def test_all_that_a_body_may_say_is_kept_by_a_patch_of_something_else(acme: Caller) -> None:
    """A field that a document does not show would be lost: it fails here until it is shown."""
    alternatives = {"rate", "at", "run_at", "payload_ref", "target", "catch_up_policy"}
    of_a_create = {"idempotency_key"}

    assert {*RECURRING} == {*names_of(JobBody, [])} - alternatives - of_a_create
    made = acme.create(**RECURRING)
    before = shown(acme, made)
    assert {name: before[name] for name in RECURRING} == RECURRING

    patched(acme, made, name="another")

    assert said(shown(acme, made)) == said({**before, "name": "another"})


def test_all_of_a_job_is_either_said_by_a_body_or_its_own() -> None:
    """A new field of a job has its place here, or a patch loses it."""
    of_a_body = {"id", "owner", "spec", "schedule", "misfire", "overlap", "catch_up", "name"}

    assert {field.name for field in fields(Job)} == {*patching.KEPT} | of_a_body


def test_a_target_in_the_place_of_a_task_takes_its_version_away(acme: Caller) -> None:
    """S0-O10: and another task's name does not."""
    made = acme.create(rate="1 hour", task_version=3)

    assert patched(acme, made, task="other")["task_version"] == 3
    target = {"kind": "http", "url": "https://svc.example.com/"}
    assert patched(acme, made, target=target)["task_version"] is None
    answer = acme.patch(path(made), {"task_version": 2})

    assert (answer.status, answer.fields) == (400, {"task_version"})


def test_an_answer_is_the_job_and_no_secret(acme: Caller) -> None:
    made = acme.create(rate="1 hour", payload={"a": 1})

    answer: Answer = acme.patch(path(made), {"task": "other"})

    job = shown(acme, made)
    del job["executions"]
    assert answer.json == {**job, "in_flight": []}
