"""A job that names a target of the deployment: how it is asked for, by whom, and what is shown."""

from collections.abc import Mapping
from datetime import timedelta
from hashlib import sha256
from typing import Any

import pytest

from lamplighter.core.lifecycle import State
from lamplighter.core.limits import SNS_MESSAGE_MAX_BYTES, TARGET_BESIDE_BYTES
from lamplighter.core.named import Accepted, Directory, Entry, TargetKind, TurnedDown
from lamplighter.memory import MemoryTargets, MemoryWorld
from lamplighter.services.heartbeat import Heartbeats
from lamplighter.sim.system import System
from lamplighter.tasks.named import NamedCaller
from lamplighter.tasks.registry import Registry
from lamplighter.tasks.runner import TaskRunner
from tests.support.api import Caller, caller

KINDS = [kind.value for kind in TargetKind]
ARN = "arn:aws:lambda:eu-central-1:123456789012:function:billing"
DIRECTORY = Directory.of(
    *(
        Entry(name=f"our-{kind}", kind=kind, owners=frozenset({"acme"}), at=f"{ARN}-{kind}")
        for kind in TargetKind
    ),
    Entry(name="theirs", kind=TargetKind.SQS, owners=frozenset({"globex"}), at="https://theirs"),
    Entry(name="news", kind=TargetKind.SNS, owners=frozenset({"*"}), at="arn:news"),
)
BILLING = {"kind": "lambda", "name": "our-lambda"}


@pytest.fixture
def world() -> MemoryWorld:
    return MemoryWorld()


@pytest.fixture
def acme(world: MemoryWorld) -> Caller:
    return caller(world, targets=DIRECTORY)


def shown(acme: Caller, id: str) -> dict[str, Any]:
    job: dict[str, Any] = acme.get(f"/v1/jobs/{id}").json
    return job


@pytest.mark.parametrize("when", [{"rate": "1 hour"}, {}], ids=["recurring", "one-off"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_target_is_named_in_place_of_a_task(
    acme: Caller, kind: str, when: Mapping[str, str]
) -> None:
    """S2-F1."""
    target = {"kind": kind, "name": f"our-{kind}"}

    answer = acme.post("/v1/jobs", {"target": target, "payload": {"a": 1}, **when})

    name = f"{kind}:our-{kind}"
    assert (answer.status, answer.json["task"]) == (201, name)
    job = shown(acme, answer.json["job_id"])
    default = {"invocation": "request"} if kind == "lambda" else {}
    assert (job["task"], job["target"]) == (name, {**target, **default})
    assert job["payload"] == {"a": 1}
    assert ARN not in acme.get(f"/v1/jobs/{answer.json['job_id']}").text
    for path in ("jobs", "executions"):
        assert len(acme.get(f"/v1/{path}", task=name).json["items"]) == 1


def test_a_function_may_be_called_without_waiting_for_it(acme: Caller) -> None:
    target = {**BILLING, "invocation": "event"}

    made = acme.post("/v1/jobs", {"target": target}).json

    assert shown(acme, made["job_id"])["target"] == target


def test_sfn_is_another_name_of_stepfunctions(acme: Caller) -> None:
    """S2-F1 has it so."""
    made = acme.post("/v1/jobs", {"target": {"kind": "sfn", "name": "our-stepfunctions"}}).json

    found = shown(acme, made["job_id"])["target"]
    assert found == {"kind": "stepfunctions", "name": "our-stepfunctions"}


@pytest.mark.parametrize("kind", KINDS)
def test_the_shape_with_a_type_takes_every_kind(acme: Caller, kind: str) -> None:
    """S2-A1."""
    body = {
        "type": "recurring",
        "cron": "0 2 * * *",
        "timezone": "Asia/Kolkata",
        "target": {"kind": kind, "name": f"our-{kind}"},
        "max_attempts": 5,
        "backoff": {"base_ms": 1000, "factor": 2, "max_ms": 60000},
        "idempotency_key": "backup-2026-07-12",
    }

    answer = acme.post("/jobs", body)

    assert answer.status == 201, answer.text
    assert answer.json.keys() >= {"job_id", "next_fire_time"}
    assert shown(acme, answer.json["job_id"])["target"]["name"] == f"our-{kind}"


@pytest.mark.parametrize(
    ("target", "field"),
    [
        ({"kind": "lambda"}, "target.name"),
        ({"kind": "lambda", "name": 5}, "target.name"),
        ({"kind": "lambda", "name": ARN}, "target.name"),
        ({"kind": "ec2", "name": "our-lambda"}, "target.kind"),
        ({**BILLING, "arn": ARN}, "target.arn"),
        ({**BILLING, "url": "https://svc.example.com"}, "target.url"),
        ({**BILLING, "method": "POST"}, "target.method"),
        ({**BILLING, "invocation": "later"}, "target.invocation"),
        ({"kind": "sqs", "name": "our-sqs", "invocation": "event"}, "target.invocation"),
        ({"kind": "task", "name": "echo", "invocation": "event"}, "target.invocation"),
    ],
    ids=str,
)
def test_a_target_that_is_none_is_refused_by_the_name_of_its_field(
    acme: Caller, world: MemoryWorld, target: Mapping[str, object], field: str
) -> None:
    answer = acme.post("/v1/jobs", {"target": target})

    assert (answer.status, answer.fields) == (400, {field})
    assert not world.tables.executions


@pytest.mark.parametrize("shape", [{}, {"type": "one_off", "run_at": "2030-01-01T00:00:00Z"}])
def test_another_owners_target_is_refused_as_one_that_there_is_not(
    acme: Caller, world: MemoryWorld, shape: Mapping[str, str]
) -> None:
    """Nobody learns what others may call, nor that there is such a name."""

    def refusal(name: str, **target: str) -> Mapping[str, Any]:
        answer = acme.post("/v1/jobs", {**shape, "target": {"kind": "sqs", "name": name, **target}})
        assert answer.status == 400
        (error,) = answer.json["errors"]
        assert error.pop("value") == name
        return dict(error)

    theirs, nobodys, other_kind = refusal("theirs"), refusal("no-such"), refusal("our-lambda")

    assert theirs == nobodys == other_kind
    assert theirs["field"] == "target.name"
    assert "theirs" not in theirs["reason"]
    assert "our-lambda" in theirs["reason"]
    assert not world.tables.executions


def test_each_owner_may_call_what_is_theirs_and_what_is_everybodys(acme: Caller) -> None:
    globex = acme.calling_as("globex")

    def may(who: Caller, kind: str, name: str) -> bool:
        return who.post("/v1/jobs", {"target": {"kind": kind, "name": name}}).status == 201

    assert may(globex, "sqs", "theirs")
    assert may(acme, "sns", "news")
    assert may(globex, "sns", "news")
    assert not may(globex, "lambda", "our-lambda")
    assert not may(caller(MemoryWorld()), "sns", "news"), "a deployment without targets"


def test_a_patch_is_asked_whether_it_may_too(acme: Caller) -> None:
    made = acme.post("/v1/jobs", {"target": BILLING, "rate": "1 hour"}).json
    path = f"/v1/jobs/{made['job_id']}"

    assert acme.patch(path, {"target": {"name": "theirs"}}).fields == {"target.name"}
    assert acme.patch(path, {"timeout_seconds": 30}).status == 200
    assert acme.patch(path, {"target": {"invocation": "event"}}).status == 200
    assert shown(acme, made["job_id"])["target"] == {**BILLING, "invocation": "event"}
    changed = {"kind": "sns", "name": "news", "invocation": None}
    assert acme.patch(path, {"target": changed}).status == 200
    assert shown(acme, made["job_id"])["target"] == {"kind": "sns", "name": "news"}
    assert acme.patch(path, {"task": "echo"}).status == 200
    assert "target" not in shown(acme, made["job_id"])


def test_what_is_no_longer_allowed_can_be_changed_in_all_else(world: MemoryWorld) -> None:
    made = caller(world, targets=DIRECTORY).post("/v1/jobs", {"target": BILLING, "rate": "1 hour"})
    later = caller(world)

    answer = later.patch(f"/v1/jobs/{made.json['job_id']}", {"timeout_seconds": 30})

    assert answer.status == 200
    assert answer.json["target"]["name"] == "our-lambda"


@pytest.mark.parametrize("size", [0, 1])
def test_a_payload_by_reference_is_refused_where_its_target_does_not_take_so_much(
    acme: Caller, world: MemoryWorld, size: int
) -> None:
    content = b'"' + b"x" * (SNS_MESSAGE_MAX_BYTES - TARGET_BESIDE_BYTES - 2 + size) + b'"'
    said = {"size": len(content), "sha256": sha256(content).hexdigest()}
    grant = acme.post("/v1/payloads", said).json
    version = world.payloads.upload(grant["upload"]["url"], grant["upload"]["headers"], content)
    ref = {"key": grant["key"], "version_id": version, **said}

    answer = acme.post("/v1/jobs", {"target": {"kind": "sns", "name": "news"}, "payload_ref": ref})
    to_a_queue = acme.post(
        "/v1/jobs", {"target": {"kind": "sqs", "name": "our-sqs"}, "payload_ref": ref}
    )

    assert answer.status == (201 if size == 0 else 400)
    if size:
        assert answer.fields == {"payload"}
        assert str(len(content)) in answer.text
    assert to_a_queue.status == 201


def system_with(world: MemoryWorld, targets: MemoryTargets) -> System:
    """A deployment in memory whose workers know the names."""
    runner = TaskRunner(
        Registry(),
        Heartbeats(world.ports()),
        world.clock,
        named=NamedCaller(DIRECTORY, targets),
    )
    return System(world=world, handler=runner)


def test_each_occurrence_is_delivered_with_a_key_of_its_own(
    acme: Caller, world: MemoryWorld
) -> None:
    """S2-F1, S4-F2."""
    targets = MemoryTargets()
    body = {"target": BILLING, "payload": {"n": 1}, "rate": "1 hour"}
    made = acme.post("/v1/jobs", body).json

    system_with(world, targets).run_for(timedelta(hours=2, minutes=1))

    assert [one.payload for one in targets.to("our-lambda")] == ['{"n":1}'] * 2
    assert len({one.idempotency_key for one in targets.deliveries}) == 2
    assert {one.job_id for one in targets.deliveries} == {made["job_id"]}


def test_a_replay_with_the_same_payload_has_the_same_key_and_one_with_another_has_not(
    acme: Caller, world: MemoryWorld
) -> None:
    """S0-R6, S2-E4."""
    targets = MemoryTargets()
    targets.answer("our-lambda", TurnedDown(code="AccessDeniedException", status=403))
    targets.answer("our-lambda", Accepted(result=1))
    made = acme.post("/v1/jobs", {"target": BILLING, "payload": {"n": 1}}).json
    path = f"/v1/executions/{made['execution_id']}"
    system = system_with(world, targets)

    system.run_for(timedelta(minutes=1))
    assert acme.get(path).json["status"] == State.FAILED
    error = acme.get(path).json["error"]
    assert error["message"] == "lambda:our-lambda refused: AccessDeniedException"
    for replay in ({}, {"payload": {"n": 2}}):
        assert acme.post(f"{path}/replay", replay).status == 201
        system.run_for(timedelta(minutes=1))

    first, same, other = targets.deliveries
    assert first.idempotency_key == same.idempotency_key == made["execution_id"]
    assert other.idempotency_key == other.execution_id != first.execution_id
    assert other.payload == '{"n":2}'
