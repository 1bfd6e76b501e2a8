"""The functions, where something that they come across cannot be read back."""

import pytest

from lamplighter.aws import items
from lamplighter.aws.queue import body_of, body_of_work
from lamplighter.core.buckets import ExecutionId
from lamplighter.core.errors import Damaged
from lamplighter.core.lease import Kind, Work, WorkItem
from lamplighter.core.lifecycle import State
from lamplighter.core.limits import DEFAULT_PARTITIONS
from lamplighter.core.model import Message
from lamplighter.memory import MemoryWorld
from tests.support.api import Caller, caller
from tests.support.lambdas import Context, Deployed, Function, batch, ids_of, kept, record
from tests.support.rows import T

DAMAGED = "urn:lamplighter:problem:damaged-record"


def damage(deployed: Deployed, id: ExecutionId) -> None:
    deployed.dynamodb.update_item(
        TableName=deployed.tables.executions,
        Key=items.marshal(items.key_values(items.execution_key(id))),
        UpdateExpression="REMOVE #ca",
        ExpressionAttributeNames={"#ca": items.CREATED_AT},
    )


def test_a_damaged_row_s_message_is_kept_and_its_neighbours_run(
    worker: Function, deployed: Deployed
) -> None:
    good, bad = deployed.submit("echo"), deployed.submit("echo")
    event = deployed.receive("default")
    damage(deployed, bad)
    (of_bad,) = (one for one in event["Records"] if bad in one["body"])

    answers = [worker.handle(event, Context()), worker.handle(batch([of_bad]), Context())]

    assert answers == [kept(of_bad["messageId"])] * 2
    assert deployed.row(good).state is State.SUCCEEDED
    with pytest.raises(Damaged):
        deployed.row(bad)


def test_in_a_dead_letter_queue_it_stays_until_it_is_mended(
    dead_letters: Function, deployed: Deployed
) -> None:
    id = deployed.submit("echo")
    damage(deployed, id)
    letter = batch([record(body_of(Message(execution_id=id, attempt=1, due_at=T)))])

    assert dead_letters.handle(letter, Context()) == kept(*ids_of(letter))


def test_it_is_counted_and_logged_by_its_key_and_attribute_without_a_payload(
    worker: Function,
    deployed: Deployed,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    id = deployed.submit("echo", '"correct horse"')
    event = deployed.receive("default")
    damage(deployed, id)
    caplog.clear()

    worker.handle(event, Context())

    told = [vars(one) for one in caplog.records if one.message == "row_unreadable"]
    assert {(one["kind"], one["id"], one["attribute"]) for one in told} == {
        ("execution", id, items.CREATED_AT)
    }
    assert "unreadable_rows" in capsys.readouterr().out
    assert "correct horse" not in str([vars(one) for one in caplog.records])


def test_a_page_with_a_damaged_row_is_dispatched_once_and_not_again(
    scheduler: Function, deployed: Deployed
) -> None:
    good = deployed.submit("echo", in_seconds=200)
    bad = deployed.submit("echo", in_seconds=200)
    damage(deployed, bad)
    works = [Work(partition=n, kind=Kind.DISPATCH) for n in range(DEFAULT_PARTITIONS)]
    event = batch(record(body_of_work(WorkItem(work=work))) for work in works)

    assert scheduler.handle(event, Context()) == kept()
    assert deployed.row(good).state is State.SCHEDULED


@pytest.fixture
def acme(world: MemoryWorld) -> Caller:
    return caller(world)


def damaged(world: MemoryWorld, kind: str, id: str) -> None:
    found = Damaged(kind=kind, id=id, attribute="st", owner="acme")
    world.tables.damaged[id] = found


def test_asking_for_a_damaged_execution_is_answered_with_an_error_that_names_it(
    world: MemoryWorld, acme: Caller
) -> None:
    id = acme.create()["execution_id"]
    damaged(world, "execution", id)

    answer = acme.get(f"/v1/executions/{id}")

    assert (answer.status, answer.json["type"]) == (500, DAMAGED)
    assert f"execution {id} cannot be read back" in answer.json["detail"]


def test_somebody_else_s_damaged_execution_looks_like_none_at_all(
    world: MemoryWorld, acme: Caller
) -> None:
    made = acme.create()
    other = acme.calling_as("somebody else")
    paths = [f"/v1/executions/{made['execution_id']}", f"/v1/jobs/{made['job_id']}"]
    before = [other.get(path) for path in paths]
    damaged(world, "execution", made["execution_id"])

    assert [other.get(path) for path in paths] == before
    assert {answer.status for answer in before} == {404}


def test_lists_go_on_without_it(world: MemoryWorld, acme: Caller) -> None:
    bad, good = acme.create(), acme.create()
    gone, there = acme.create(rate="1 hour"), acme.create(rate="1 hour")
    damaged(world, "execution", bad["execution_id"])
    damaged(world, "job", gone["job_id"])

    executions = acme.get("/v1/executions").json["items"]
    jobs = acme.get("/v1/jobs").json["items"]

    listed = {one["execution_id"] for one in executions}
    assert good["execution_id"] in listed
    assert bad["execution_id"] not in listed
    assert {job["job_id"] for job in jobs} == {good["job_id"], there["job_id"]}


@pytest.mark.parametrize("verb", ["get", "delete", "pause", "trigger"])
def test_whatever_is_asked_of_a_damaged_job_is_answered_so_and_changes_nothing(
    world: MemoryWorld, acme: Caller, verb: str
) -> None:
    job = acme.create(rate="1 hour")["job_id"]
    before = world.tables.jobs[job]
    damaged(world, "job", job)
    path = f"/v1/jobs/{job}"
    ask = {
        "get": lambda: acme.get(path),
        "delete": lambda: acme.delete(path),
        "pause": lambda: acme.post(f"{path}/pause", {}),
        "trigger": lambda: acme.post(f"{path}/trigger", {}),
    }

    answer = ask[verb]()

    assert (answer.status, answer.json["type"]) == (500, DAMAGED)
    assert job in answer.json["detail"]
    assert world.tables.jobs[job] == before
