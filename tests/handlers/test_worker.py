"""The worker, called with a batch from SQS."""

import json
import subprocess
import sys
import textwrap
from datetime import timedelta

import pytest

from lamplighter.aws.offset import DynamoClockOffset
from lamplighter.aws.queue import body_of
from lamplighter.core.buckets import ExecutionId
from lamplighter.core.clock_offset import Bounds
from lamplighter.core.lifecycle import State
from lamplighter.core.model import Message
from tests.support.lambdas import Context, Deployed, Function, batch, ids_of, kept, record

NOTHING = {"visible": 0, "hidden": 0, "delayed": 0}


def test_a_batch_of_jobs_is_run_and_deleted(worker: Function, deployed: Deployed) -> None:
    """O-F13: on success the list is there, and empty."""
    ids = [deployed.submit("echo", f'"job {n}"') for n in range(3)]

    answer = worker.handle(deployed.receive("default"), Context(aws_request_id="request-7"))

    assert answer == kept()
    assert [deployed.row(id).result for id in ids] == ['"job 0"', '"job 1"', '"job 2"']
    assert {deployed.row(id).attempts[0].worker for id in ids} == {"request-7"}
    assert deployed.messages("default") == NOTHING


def test_a_job_that_fails_is_armed_again_and_its_message_deleted(
    worker: Function, deployed: Deployed
) -> None:
    """O-F13: what fails ends by its row, long before its message was received too often."""
    id = deployed.submit("flaky", '{"failures": 1}')

    answer = worker.handle(deployed.receive("default"), Context())

    assert answer == kept()
    assert (deployed.row(id).state, deployed.row(id).attempt) == (State.RETRYING, 2)
    waiting = deployed.messages("default")
    assert waiting["hidden"] == 0
    assert waiting["visible"] + waiting["delayed"] == 1


def test_a_message_that_is_none_of_ours_is_kept_and_its_neighbours_run(
    worker: Function, deployed: Deployed
) -> None:
    """O-F13: exactly the ids that failed, each once."""
    done = deployed.submit("echo")
    event = deployed.receive("default")
    poison = [
        record("not json", id="poison-1", receipt="r-1"),
        record('{"id": "ex_x", "attempt": 1, "due": 0}', id="poison-2", receipt="r-2"),
        record("[" * 100_000, id="poison-3", receipt="r-3"),
    ]

    answer = worker.handle(batch([poison[0], *event["Records"], *poison[1:]]), Context())

    assert answer == kept("poison-1", "poison-2", "poison-3")
    assert deployed.row(done).state is State.SUCCEEDED


def test_a_message_of_no_execution_is_dropped(worker: Function, deployed: Deployed) -> None:
    created = deployed.submit("echo")
    gone = ExecutionId(created[:-1] + ("0" if created[-1] != "0" else "1"))
    message = Message(execution_id=gone, attempt=1, due_at=worker.wired.ports.clock.now())

    answer = worker.handle(batch([record(body_of(message))]), Context())

    assert answer == kept()


def test_what_too_little_time_is_left_for_is_given_back(
    worker: Function, deployed: Deployed
) -> None:
    id = deployed.submit("echo")
    event = deployed.receive("default")

    answer = worker.handle(event, Context(time_left_ms=60_000))

    assert answer == kept(*ids_of(event))
    assert (deployed.row(id).state, deployed.row(id).attempt) == (State.SCHEDULED, 1)
    assert deployed.messages("default")["visible"] == 1
    assert worker.handle(deployed.receive("default"), Context()) == kept()


def test_a_job_that_comes_twice_runs_once(worker: Function, deployed: Deployed) -> None:
    deployed.submit("echo")
    event = deployed.receive("default")
    again = {**event["Records"][0], "messageId": "again", "receiptHandle": "another"}

    worker.handle(batch([*event["Records"], again]), Context())
    answer = worker.handle(batch([again]), Context())

    assert answer == kept()


def test_an_empty_batch_keeps_nothing(worker: Function) -> None:
    assert worker.handle({"Records": []}, Context()) == kept()


def test_a_batch_of_a_worker_whose_clock_is_off_is_kept_untouched(
    worker: Function, deployed: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S1-X2."""
    id = deployed.submit("echo")
    event = deployed.receive("default")
    off = Bounds(low=timedelta(seconds=2), high=timedelta(seconds=3))
    monkeypatch.setattr(DynamoClockOffset, "bounds", lambda _: off)

    assert worker.handle(event, Context()) == kept(*ids_of(event))
    assert deployed.row(id).state is State.SCHEDULED
    assert deployed.messages("default") == {**NOTHING, "hidden": 1}


def test_a_worker_knows_when_its_process_began(worker: Function) -> None:
    boot = worker.runner.ports.boot  # type: ignore[attr-defined] # of this function only

    assert boot.began_at < boot.ready_at <= worker.wired.ports.clock.now()


def test_what_happened_is_counted_at_the_end_of_the_batch(
    worker: Function, deployed: Deployed, capsys: pytest.CaptureFixture[str]
) -> None:
    deployed.submit("echo")

    worker.handle(deployed.receive("default"), Context())

    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert any("start_lateness_ms" in line for line in lines if "_aws" in line)


@pytest.mark.slow
def test_a_hung_handler_ends_the_process_and_says_so() -> None:
    program = """
        import os, time
        from datetime import timedelta
        import boto3
        from moto import mock_aws
        from lamplighter import Context, task
        from tests.support import lambdas

        @task("deaf")
        def deaf(payload: None, ctx: Context) -> None:
            time.sleep(600)

        with mock_aws():
            clients = boto3.client("dynamodb"), boto3.client("sqs"), boto3.client("s3")
            made = lambdas.Deployed.on(*clients)
            os.environ |= made.environment
            from worker import handler
            made.submit("deaf", timeout=timedelta(seconds=1))
            handler.handle(made.receive("default"), lambdas.Context())
    """

    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        env={
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": ":".join(sys.path),
            "AWS_DEFAULT_REGION": "eu-central-1",
        },
    )

    assert done.returncode == 70, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["message"] for line in lines if "message" in line] == [
        "started",
        "hung",
        "finished",
    ]
    finished = next(line for line in lines if line.get("message") == "finished")
    assert (finished["state"], finished["error_kind"]) == ("RETRYING", "timeout")
    assert any("start_lateness_ms" in line for line in lines if "_aws" in line)
