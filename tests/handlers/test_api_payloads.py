"""Payloads by reference over HTTP: a place to upload to, and jobs that name what lies there."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

import pytest

from lamplighter.core import limits
from lamplighter.core.buckets import object_prefix
from lamplighter.core.errors import Unavailable
from lamplighter.memory import MemoryWorld
from lamplighter.sim.faults import interposed
from tests.support.api import Caller, caller

CONTENT = b'{"rows": [1, 2, 3]}'
SAID = {"size": len(CONTENT), "sha256": sha256(CONTENT).hexdigest()}
PATH = "/v1/payloads"


@pytest.fixture
def world() -> MemoryWorld:
    return MemoryWorld()


@pytest.fixture
def acme(world: MemoryWorld) -> Caller:
    return caller(world)


@dataclass(frozen=True, kw_only=True)
class Uploader:
    """Somebody who uploads as they were told."""

    caller: Caller
    world: MemoryWorld

    def upload(self, content: bytes = CONTENT) -> dict[str, Any]:
        """The reference to it."""
        said = {"size": len(content), "sha256": sha256(content).hexdigest()}
        grant = self.caller.post(PATH, said).json
        upload = grant["upload"]
        version_id = self.world.payloads.upload(upload["url"], upload["headers"], content)
        return {"key": grant["key"], "version_id": version_id, **said}


@pytest.fixture
def uploader(acme: Caller, world: MemoryWorld) -> Uploader:
    return Uploader(caller=acme, world=world)


class TestAPlaceToUploadTo:
    def test_is_open_for_a_quarter_of_an_hour_and_for_these_bytes(
        self, acme: Caller, world: MemoryWorld
    ) -> None:
        answer = acme.post(PATH, SAID)

        assert answer.status == 201
        grant = answer.json
        assert grant.keys() == {"key", "upload", "expires_at"}
        assert grant["key"].startswith(object_prefix("acme"))
        assert grant["upload"].keys() == {"method", "url", "headers"}
        assert grant["upload"]["method"] == "PUT"
        headers = {name.lower(): value for name, value in grant["upload"]["headers"].items()}
        assert headers["content-length"] == str(len(CONTENT))
        assert headers["content-type"] == "application/json"
        assert "x-amz-checksum-sha256" in headers
        closes_at = datetime.fromisoformat(grant["expires_at"])
        assert closes_at - world.now() == timedelta(minutes=15)

    @pytest.mark.parametrize(
        ("body", "field"),
        [
            ({**SAID, "size": 0}, "size"),
            ({**SAID, "size": -1}, "size"),
            ({**SAID, "size": limits.PAYLOAD_REF_MAX_BYTES + 1}, "size"),
            ({**SAID, "size": 10**30}, "size"),
            ({**SAID, "size": 1.0}, "size"),
            ({**SAID, "size": "1"}, "size"),
            ({**SAID, "size": True}, "size"),
            ({**SAID, "sha256": "0" * 63}, "sha256"),
            ({**SAID, "sha256": "A" * 64}, "sha256"),
            ({**SAID, "sha256": None}, "sha256"),
            ({**SAID, "content_type": "text/html"}, "content_type"),
            (
                {**SAID, "content_type": "application/json\r\nx-amz-acl: public-read"},
                "content_type",
            ),
            ({**SAID, "key": "mine"}, "key"),
            ({"size": 1}, "sha256"),
            ({"sha256": SAID["sha256"]}, "size"),
            ([], "body"),
        ],
        ids=str,
    )
    def test_is_not_given_for_what_no_payload_is(
        self, acme: Caller, body: object, field: str
    ) -> None:
        answer = acme.post(PATH, body)

        assert answer.status == 400
        assert answer.fields == {field}

    def test_is_nobody_elses(self, acme: Caller) -> None:
        theirs = acme.calling_as("umbrella").post(PATH, SAID).json["key"]

        assert theirs.startswith(object_prefix("umbrella"))


class TestAJobWithOne:
    @pytest.mark.parametrize("when", [{}, {"rate": "1 hour"}])
    def test_shows_it_in_the_place_of_its_payload(
        self, acme: Caller, uploader: Uploader, when: dict[str, str]
    ) -> None:
        ref = uploader.upload()

        made = acme.create(payload_ref=ref, **when)

        job = acme.get(f"/v1/jobs/{made['job_id']}").json
        execution = acme.get(f"/v1/executions/{made['execution_id']}").json
        for shown in (job, execution):
            assert shown["payload_ref"] == ref
            assert "payload" not in shown

    def test_is_made_by_its_uri_as_by_all_that_is_known_of_it(
        self, acme: Caller, uploader: Uploader
    ) -> None:
        ref = uploader.upload()

        made = [
            acme.create(payload_ref=said)
            for said in (
                f"s3://payloads/{ref['key']}",
                f"s3://payloads/{ref['key'].rpartition('/')[2]}",
                {"key": ref["key"]},
                {"key": ref["key"], "sha256": ref["sha256"]},
                ref,
            )
        ]

        shown = [acme.get(f"/v1/jobs/{one['job_id']}").json["payload_ref"] for one in made]
        assert shown == [ref] * 5

    def test_in_a_list_shows_it_where_the_execution_holds_it(
        self, acme: Caller, uploader: Uploader
    ) -> None:
        ref = uploader.upload()
        acme.create(payload_ref=ref)

        (listed,) = acme.get("/v1/executions").json["items"]

        assert listed["payload_ref"] == ref

    def test_cannot_have_a_payload_beside_it(self, acme: Caller, uploader: Uploader) -> None:
        body = {"task": "echo", "payload": {}, "payload_ref": uploader.upload()}

        answer = acme.post("/v1/jobs", body)

        assert answer.status == 400
        assert answer.fields == {"payload_ref"}

    @pytest.mark.parametrize(
        ("change", "field"),
        [
            ({"sha256": "0" * 64}, "payload_ref.sha256"),
            ({"sha256": "0"}, "payload_ref.sha256"),
            ({"size": len(CONTENT) + 1}, "payload_ref.size"),
            ({"size": 0}, "payload_ref.size"),
            ({"size": 10**12}, "payload_ref.size"),
            ({"size": None}, "payload_ref.size"),
            ({"version_id": "nope"}, "payload_ref"),
            ({"version_id": ""}, "payload_ref.version_id"),
            ({"version_id": "x" * 1025}, "payload_ref.version_id"),
            ({"version_id": 5}, "payload_ref.version_id"),
            ({"key": "never"}, "payload_ref"),
            ({"key": "../etc/passwd"}, "payload_ref"),
            ({"key": ""}, "payload_ref"),
            ({"key": 5}, "payload_ref.key"),
            ({"bucket": "mine"}, "payload_ref.bucket"),
        ],
        ids=str,
    )
    def test_is_refused_by_the_field_that_is_wrong_of_it(
        self,
        acme: Caller,
        uploader: Uploader,
        world: MemoryWorld,
        change: dict[str, object],
        field: str,
    ) -> None:
        answer = acme.post("/v1/jobs", {"task": "echo", "payload_ref": uploader.upload() | change})

        assert answer.status == 400
        assert answer.fields == {field}
        assert not world.tables.executions

    @pytest.mark.parametrize(
        "uri",
        ["", "payloads/abc", "s3://other/abc", "s3://payloads", "S3://payloads/abc", "file:///etc"],
    )
    def test_is_refused_for_a_uri_of_another_place(self, acme: Caller, uri: str) -> None:
        answer = acme.post("/v1/jobs", {"task": "echo", "payload_ref": uri})

        assert answer.status == 400
        assert answer.fields == {"payload_ref"}

    def test_of_somebody_else_is_refused_in_the_words_for_what_was_never_there(
        self, acme: Caller, uploader: Uploader
    ) -> None:
        """Whoever guesses a key learns nothing, not even from the time: nobody looks there."""
        ref, umbrella = uploader.upload(), acme.calling_as("umbrella")
        never = {**ref, "key": ref["key"][:-8] + "00000000"}

        for said in (ref, f"s3://payloads/{ref['key']}"):
            refused = umbrella.post("/v1/jobs", {"task": "echo", "payload_ref": said})
            missing = umbrella.post("/v1/jobs", {"task": "echo", "payload_ref": never})

            reasons = [answer.json["errors"][0]["reason"] for answer in (refused, missing)]
            assert reasons == ["you have no such payload"] * 2
            assert (refused.status, refused.fields) == (missing.status, missing.fields)

    def test_of_a_version_of_another_object_is_refused(
        self, acme: Caller, uploader: Uploader
    ) -> None:
        ref, other = uploader.upload(), uploader.upload(b"[1]")

        answer = acme.post(
            "/v1/jobs",
            {"task": "echo", "payload_ref": {**ref, "version_id": other["version_id"]}},
        )

        assert answer.fields == {"payload_ref"}

    def test_in_a_batch_is_refused_alone(self, acme: Caller, uploader: Uploader) -> None:
        good = {"task": "echo", "payload_ref": uploader.upload()}
        bad = {"task": "echo", "payload_ref": "s3://payloads/never"}

        answers = acme.post("/v1/jobs/batch", {"jobs": [good, bad, good]}).json["answers"]

        assert [answer["status"] for answer in answers] == [201, 400, 201]


class TestAskedAgainWithTheSameKey:
    def test_is_the_same_job_though_its_payload_was_uploaded_anew(
        self, acme: Caller, uploader: Uploader
    ) -> None:
        first, again = (
            acme.post(
                "/v1/jobs",
                {"task": "echo", "payload_ref": uploader.upload()},
                Idempotency_Key="k",
            )
            for _ in range(2)
        )

        assert again.json == first.json
        assert again.headers["idempotent-replayed"] == "true"

    def test_is_the_same_job_though_its_payload_is_gone(
        self, acme: Caller, uploader: Uploader, world: MemoryWorld
    ) -> None:
        ref = uploader.upload()
        body = {"task": "echo", "payload_ref": ref}
        first = acme.post("/v1/jobs", body, Idempotency_Key="k")
        world.payloads.delete(ref["key"], ref["version_id"])

        assert acme.post("/v1/jobs", body, Idempotency_Key="k").json == first.json

    def test_with_other_bytes_is_another_body(self, acme: Caller, uploader: Uploader) -> None:
        for content, status in ((CONTENT, 201), (b"[1]", 422)):
            body = {"task": "echo", "payload_ref": uploader.upload(content)}
            assert acme.post("/v1/jobs", body, Idempotency_Key="k").status == status


def test_while_the_bucket_does_not_answer_a_create_is_a_503(
    world: MemoryWorld, uploader: Uploader
) -> None:
    body = {"task": "echo", "payload_ref": uploader.upload()}

    def silent(call: object, when: object) -> None:
        if str(call).endswith("payloads.look"):
            raise Unavailable("head_object: SlowDown")

    answer = caller(interposed(world.ports(), silent)).post("/v1/jobs", body)

    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    assert not world.tables.executions


def test_no_other_create_looks_into_the_bucket(world: MemoryWorld) -> None:
    def no_look(call: object, when: object) -> None:
        assert "payloads" not in str(call)

    acme = caller(interposed(world.ports(), no_look))

    acme.create(payload={"small": True})
    acme.create(payload="x" * 60_000, rate="1 hour")


class TestARunAskedForByName:
    """A trigger of a recurring job, and a replay of what has ended, with another payload."""

    @pytest.fixture(params=["trigger", "replay"])
    def path(self, request: pytest.FixtureRequest, acme: Caller) -> str:
        if request.param == "trigger":
            made = acme.create(rate="1 hour", payload={"its": "own"})
            return f"/v1/jobs/{made['job_id']}/trigger"
        made = acme.create(payload={"its": "own"})
        acme.post(f"/v1/executions/{made['execution_id']}/cancel", {})
        return f"/v1/executions/{made['execution_id']}/replay"

    def test_has_the_payload_that_is_named(
        self, acme: Caller, uploader: Uploader, path: str
    ) -> None:
        ref = uploader.upload()

        answer = acme.post(path, {"payload_ref": f"s3://payloads/{ref['key']}"})

        assert answer.status == 201
        shown = acme.get(answer.headers["location"]).json
        assert (shown["payload_ref"], "payload" in shown) == (ref, False)

    @pytest.mark.parametrize(
        ("said", "field"),
        [
            ({"payload_ref": "s3://payloads/never"}, "payload_ref"),
            ({"payload_ref": {"key": "k", "sha256": "no"}}, "payload_ref.sha256"),
            ({"payload_ref": {"key": "k"}, "payload": 1}, "payload_ref"),
            ({"payload_ref": 1}, "payload_ref"),
        ],
        ids=["nothing there", "no digest", "beside a payload", "no reference"],
    )
    def test_with_what_is_none_is_refused_by_name(
        self, acme: Caller, world: MemoryWorld, path: str, said: dict[str, Any], field: str
    ) -> None:
        before = len(world.tables.executions)

        answer = acme.post(path, said)

        assert (answer.status, answer.fields) == (400, {field})
        assert len(world.tables.executions) == before

    def test_never_has_somebody_else_s(self, world: MemoryWorld, acme: Caller, path: str) -> None:
        theirs = Uploader(caller=acme.calling_as("globex"), world=world).upload()

        answer = acme.post(path, {"payload_ref": theirs})

        assert (answer.status, answer.fields) == (400, {"payload_ref"})

    def test_under_its_key_is_the_same_though_the_payload_was_uploaded_anew_or_is_gone(
        self, acme: Caller, uploader: Uploader, world: MemoryWorld, path: str
    ) -> None:
        first = uploader.upload()
        answers = [acme.post(path, {"payload_ref": first}, Idempotency_Key="k")]
        world.payloads.delete(first["key"], first["version_id"])
        answers.append(acme.post(path, {"payload_ref": first}, Idempotency_Key="k"))
        answers.append(acme.post(path, {"payload_ref": uploader.upload()}, Idempotency_Key="k"))

        assert {answer.status for answer in answers} == {201}
        assert len({answer.json["execution_id"] for answer in answers}) == 1
