"""`lamplighter worker`, as a process of its own, on the queues and tables of the emulator."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lamplighter.aws.settings import SchedulerSettings
from lamplighter.aws.wiring import wire_to
from lamplighter.cli.main import app
from lamplighter.core.buckets import ExecutionId
from lamplighter.core.lifecycle import State
from lamplighter.core.model import Execution, Payload, Spec
from lamplighter.local import emulator
from lamplighter.local.home import Home
from lamplighter.ports import Ports
from lamplighter.services.submit import Created, NewJob, submit
from tests.contract.worlds import Clients
from tests.support.jobs import OWNER
from tests.support.tables import create_tables

WITHIN_S = 60.0
TASKS = """
import time
from pathlib import Path
from lamplighter import Context, task

@task("note", version=1)
def note(payload, ctx: Context):
    with Path(payload["file"]).open("a") as file:
        file.write(f"begin {ctx.execution_id} {ctx.attempt}\\n")
    if not payload["file"].endswith("again") and ctx.wait(payload["seconds"]):
        ctx.raise_if_stopped()
    return "noted"
"""


@dataclass(frozen=True, kw_only=True)
class Stack:
    """Tables and a queue, and what a worker is told of them."""

    ports: Ports
    environment: Mapping[str, str]
    folder: Path

    def submit(self, seconds: float) -> ExecutionId:
        payload = Payload.of(json.dumps({"file": str(self.folder / "notes"), "seconds": seconds}))
        spec = Spec(task="note", payload=payload, timeout=timedelta(minutes=5))
        created = submit(self.ports, NewJob(owner=OWNER, spec=spec))
        assert isinstance(created, Created)
        return created.first.id

    def row(self, id: ExecutionId) -> Execution:
        row = self.ports.executions.get(id)
        assert row is not None
        return row

    def has_begun(self, id: ExecutionId) -> bool:
        notes = self.folder / "notes"
        return notes.exists() and f"begin {id}" in notes.read_text()


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("worker")
    (folder / "noting.py").write_text(TASKS)
    with emulator.running(Home.of(folder=folder), heard=lambda _: None) as running:
        running.wait_until_healthy()
        clients = Clients.of(running.url)
        tables = create_tables(clients.dynamodb, uuid.uuid4().hex[:12])
        url = clients.sqs.create_queue(QueueName="default")["QueueUrl"]
        settings = SchedulerSettings(
            stage="test",
            executions_table=tables.executions,
            jobs_table=tables.jobs,
            control_table=tables.control,
            queues={"default": (url,)},
            work_queue_url=url,
            log_sample_rate=1.0,
        )
        yield Stack(
            ports=wire_to(settings, dynamodb=clients.dynamodb, sqs=clients.sqs).ports,
            environment={
                "AWS_ENDPOINT_URL": running.url,
                "AWS_DEFAULT_REGION": "us-east-1",
                "AWS_ACCESS_KEY_ID": "test",
                "AWS_SECRET_ACCESS_KEY": "test",
                "LAMPLIGHTER_STAGE": "test",
                "LAMPLIGHTER_EXECUTIONS_TABLE": tables.executions,
                "LAMPLIGHTER_JOBS_TABLE": tables.jobs,
                "LAMPLIGHTER_CONTROL_TABLE": tables.control,
                "LAMPLIGHTER_PAYLOADS_BUCKET": "none-needed",
                "LAMPLIGHTER_QUEUES": json.dumps({"default": url}),
                "LAMPLIGHTER_TASKS": "noting",
            },
            folder=folder,
        )


@dataclass(frozen=True, kw_only=True)
class Worker:
    """A worker that serves, and where its health check answers."""

    process: subprocess.Popen[str]
    health_url: str

    def health(self) -> Mapping[str, object]:
        with urllib.request.urlopen(self.health_url, timeout=5) as answer:
            said: Mapping[str, object] = json.load(answer)
        return said


@contextmanager
def working(stack: Stack, *arguments: str) -> Iterator[Worker]:
    command = "from lamplighter.cli.main import app; app()"
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    process = subprocess.Popen(
        [
            *(sys.executable, "-c", command, "worker", "--queue", "default"),
            *("--health-port", "0", "--name", "laptop", *arguments),
        ],
        env={**kept, **stack.environment},
        cwd=stack.folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        first = process.stderr.readline()
        address = re.search(r"http://127\.0\.0\.1:\d+/health", first)
        assert address, first
        yield Worker(process=process, health_url=address[0])
    finally:
        process.kill()
        process.communicate()


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < deadline, "waited for too long"
        time.sleep(0.05)


def test_it_runs_what_is_due_and_drains_on_sigterm(stack: Stack) -> None:
    """S1-W: the same code outside Lambda; a graceful end loses nothing and runs nothing twice."""
    done = [stack.submit(0) for _ in range(12)]
    with working(stack, "--concurrency", "4") as worker:
        until(lambda: all(stack.row(id).state is State.SUCCEEDED for id in done))
        last = stack.submit(2)
        until(lambda: stack.has_begun(last))
        assert worker.health() == {
            "status": "serving",
            "queue": "default",
            "worker": "laptop",
            "running": 1,
            "concurrency": 4,
        }

        worker.process.send_signal(signal.SIGTERM)

        assert worker.process.wait(WITHIN_S) == 0
    row = stack.row(last)
    assert (row.state, row.result) == (State.SUCCEEDED, '"noted"')
    assert [attempt.worker for attempt in row.attempts] == ["laptop"]


def test_what_outlasts_the_grace_goes_on_elsewhere_with_all_its_attempts(stack: Stack) -> None:
    id = stack.submit(60)
    with working(stack, "--grace", "0") as worker:
        until(lambda: stack.has_begun(id))
        worker.process.send_signal(signal.SIGTERM)
        assert worker.process.wait(WITHIN_S) == 0
    row = stack.row(id)
    assert (row.state, row.attempt, row.crashes) == (State.RETRYING, 1, 0)
    assert row.reason == "its worker had to end"

    with working(stack) as worker:
        until(lambda: stack.row(id).state is State.RUNNING)
        # Two of the same may come as one.
        worker.process.send_signal(signal.SIGTERM)
        worker.process.send_signal(signal.SIGINT)
        assert worker.process.wait(WITHIN_S) == 0
    assert stack.row(id).state is State.RETRYING


@pytest.mark.parametrize(
    ("arguments", "environment", "told"),
    [
        (["--queue", "nowhere"], {}, "lane 'nowhere'|'nowhere' is not among the lanes"),
        (["--queue", "default", "--concurrency", "0"], {}, "greater than or equal to"),
        (["--queue", "default"], {"LAMPLIGHTER_TASKS": "no_such_module"}, "no_such_module"),
        (["--queue", "default"], {"LAMPLIGHTER_EXECUTIONS_TABLE": ""}, "EXECUTIONS_TABLE"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_received(
    stack: Stack,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    environment: Mapping[str, str],
    told: str,
) -> None:
    before = dict(os.environ)
    for name, value in {**stack.environment, **environment}.items():
        monkeypatch.setenv(name, value)
    try:
        result = CliRunner().invoke(app, ["worker", *arguments])
    finally:
        # The command tells its own environment what a function is told.
        os.environ.clear()
        os.environ.update(before)

    assert result.exit_code == 2
    assert re.search(told, result.output), result.output
