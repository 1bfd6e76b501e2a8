"""The whole product, started as a person starts it: the deployed template and handlers."""

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from lamplighter.client.http import Client
from lamplighter.local.home import Home
from lamplighter.local.issuer import mint
from tests.local.product import (
    Product,
    await_ready,
    commands,
    descendants,
    is_listening,
    run,
)

# The first test's setup is the product's start.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

FINAL = {"SUCCEEDED", "FAILED", "DEAD_LETTERED", "CANCELLED", "SKIPPED", "EXPIRED"}
DUE_IN = timedelta(seconds=3)
PATIENCE_S = 60.0
README = Path(__file__).parents[2] / "README.md"
README_SHELL = re.findall(r"```sh\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
COMMAND_LINE = """\
from pathlib import Path
from lamplighter.cli.main import app
from lamplighter.local.home import Home
home = Home.of(folder=Path({home!r}))
Home.of = lambda: home
app()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def product(folder: Path) -> Iterator[Product]:
    with run(folder) as product:
        await_ready(product)
        yield product


def test_it_answers_and_only_those_who_have_a_good_token(product: Product) -> None:
    with product.client() as client, product.client("not.a.token") as stranger:
        assert client.get("/v1/health").status_code == 200
        assert client.get("/v1/jobs").json()["items"] == []
        assert stranger.get("/v1/jobs").status_code == 401


def test_a_job_runs_and_never_before_its_second(product: Product) -> None:
    # In whole milliseconds, as the API keeps instants: what is finer is cut.
    run_at = datetime.now(UTC).replace(microsecond=0) + DUE_IN
    job = {"task": "echo", "payload": {"n": 1}, "run_at": run_at.isoformat()}

    with product.client() as client:
        created = client.post("/v1/jobs", json=job)
        assert created.status_code == 201, created.text
        execution = finished(client, created.json()["job_id"])

    assert (execution["status"], execution["result"]) == ("SUCCEEDED", {"n": 1})
    assert datetime.fromisoformat(str(execution["started_at"])) >= run_at
    assert 0 <= int(str(execution["lateness_ms"])) < PATIENCE_S * 1000


def test_what_the_readme_says_works(product: Product, folder: Path, tmp_path: Path) -> None:
    """Its lines as they stand, but for the port and the folder of this run."""
    (block,) = [code for code in README_SHELL if "curl" in code]
    command_line(tmp_path, folder)
    ran = subprocess.run(
        ["/bin/bash", "-euo", "pipefail", "-c", block.replace(":8080/", f":{product.port}/")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )

    execution = json.loads(ran.stdout)
    assert (execution["status"], execution["result"]) == ("SUCCEEDED", {"hello": "world"})
    assert execution["lateness_ms"] >= 0


def test_the_command_line_and_curl_take_the_same_token(
    product: Product, folder: Path, tmp_path: Path
) -> None:
    with product.client() as client:
        created = client.post("/v1/jobs", json={"task": "echo"}).json()

    environment = {
        "LAMPLIGHTER_TOKEN": product.token,
        "LAMPLIGHTER_URL": f"http://127.0.0.1:{product.port}",
    }

    def is_listed() -> bool:
        ran = subprocess.run(
            [command_line(tmp_path, folder), "jobs", "list", "--json"],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return created["job_id"] in {job["job_id"] for job in json.loads(ran.stdout)}

    # Lists are eventually consistent.
    until(is_listed)


def test_another_owner_s_job_is_not_there(product: Product, folder: Path) -> None:
    other = mint(owner="somebody-else", home=Home.of(folder=folder))
    with product.client() as client, product.client(other) as stranger:
        job_id = client.post("/v1/jobs", json={"task": "echo", "payload": 1}).json()["job_id"]

        assert client.get(f"/v1/jobs/{job_id}").status_code == 200
        assert stranger.get(f"/v1/jobs/{job_id}").status_code == 404


def test_how_it_is_asked_is_shown_to_anyone(product: Product) -> None:
    with product.client() as client:
        del client.headers["authorization"]
        description = client.get("/v1/openapi.json")
        page = client.get("/docs")

    assert description.json()["openapi"] == "3.1.0"
    assert "SwaggerUIBundle" in page.text
    assert page.headers["content-type"].startswith("text/html")
    assert "script-src 'sha256-" in page.headers["content-security-policy"]


def test_a_batch_is_taken_without_the_version_in_its_path(product: Product) -> None:
    once = {"type": "ONCE", "value": "2030-01-01T00:00:00Z"}
    jobs = [
        {"task": "echo", "payload": "x" * 60_000},
        {"task": ""},
        {"task_id": "echo", "schedule": once},
    ]

    with product.client() as client:
        answer = client.post("/jobs/batch", json={"jobs": jobs * 20})

    assert answer.status_code == 200, answer.text
    assert [one["status"] for one in answer.json()["answers"]] == [201, 400, 201] * 20


def test_a_large_payload_is_uploaded_from_here_and_reaches_its_handler(product: Product) -> None:
    payload = {"rows": "größer " * 20_000}
    url = f"http://127.0.0.1:{product.port}"

    with Client(url, product.token) as client, product.client() as http:
        made = client.create({"task": "echo", "payload": payload}).job
        ended = finished(http, made["job_id"])

    size = len(json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode())
    assert made["status"] in {"SCHEDULED", "QUEUED"}
    assert ended["status"] == "SUCCEEDED", ended
    # What echo gives back is as large as what it was given, and that is too large to keep.
    result = ended["result"]
    assert isinstance(result, dict)
    assert result["result_too_large"]["bytes"] == size
    reference = ended["payload_ref"]
    assert isinstance(reference, dict)
    assert reference["size"] == size


def test_a_second_run_in_the_same_folder_is_refused(product: Product, folder: Path) -> None:
    with run(folder) as second:
        assert second.process.wait(PATIENCE_S) == 1

    assert f"already running here, as process {product.process.pid}" in second.lines[-1]


def test_a_second_run_on_the_same_port_is_refused(product: Product, tmp_path: Path) -> None:
    with run(tmp_path, port=product.port) as second:
        assert second.process.wait(PATIENCE_S) == 1

    assert "LAMPLIGHTER_PORT" in second.lines[-1]


def test_what_runs_is_shown(product: Product) -> None:
    retry = {"max_attempts": 2, "base_seconds": 1}
    job = {"task": "flaky", "payload": {"failures": 1}, "retry_policy": retry}
    with product.client() as client:
        tries = finished(client, client.post("/v1/jobs", json=job).json()["job_id"])["attempts"]

    def is_shown(pattern: str) -> bool:
        return any(re.search(pattern, line) for line in product.lines)

    assert isinstance(tries, list)
    assert [attempt["number"] for attempt in tries] == [1, 2]
    until(lambda: is_shown(r"Z SUCCEEDED +ex_\w+ echo +attempt 1, ran \d+ ms"))
    until(lambda: is_shown(r"RETRYING +ex_\w+ flaky +attempt 1, Retryable, again at \S+\.\d{3}Z"))
    until(lambda: is_shown(r"SUCCEEDED +ex_\w+ flaky +attempt 2"))


def test_ctrl_c_leaves_no_process_and_no_port(product: Product, folder: Path) -> None:
    """Last of those that share the product."""
    issuer = json.loads((folder / "issuer.json").read_text())["issuer"].rpartition(":")[2]
    ports = {product.port, int(issuer)}
    children = descendants(product.process.pid)
    assert all(map(is_listening, ports))
    assert [line for line in commands(children) if line.endswith("/bin/ministack")]

    assert product.end() == 0

    assert product.lines[-1] == "ended"
    assert not any(map(is_listening, ports))
    assert not commands(children)


def test_a_start_that_fails_half_way_leaves_nothing(tmp_path: Path) -> None:
    checkout = with_an_emulator_that(tmp_path, does="sleep 600 & sleep 1; exit 3")

    with run(tmp_path, checkout=checkout) as product:
        until(lambda: bool(emulator_of(product)))
        children = descendants(product.process.pid)
        assert product.process.wait(PATIENCE_S) == 1

    assert "the emulator ended with code 3" in product.lines[-1]
    assert not is_listening(product.port)
    assert not commands(children)


def test_a_run_that_is_killed_takes_its_children_with_it(tmp_path: Path) -> None:
    checkout = with_an_emulator_that(tmp_path, does="sleep 600 & sleep 600")
    with run(tmp_path, checkout=checkout) as product:
        until(lambda: bool(emulator_of(product)))
        children = descendants(product.process.pid)

        product.end(signal.SIGKILL)

        until(lambda: not commands(children))


def test_a_wrong_folder_of_tasks_is_named_and_no_trace_shown(tmp_path: Path) -> None:
    checkout = with_an_emulator_that(tmp_path, does="exit 3")
    told = "infra.app: context tasks_folder: there is no folder /no/such"
    (checkout / "infra" / "app.py").write_text(f"import sys; sys.exit({told!r})")

    with run(tmp_path, checkout=checkout) as product:
        assert product.process.wait(PATIENCE_S) == 1

    assert product.lines[-2:] == ["cannot run: synth failed:", told]


def command_line(folder: Path, home: Path) -> Path:
    """`.venv/bin/lamplighter` in a folder, for the run that keeps its things in `home`."""
    command = folder / ".venv" / "bin" / "lamplighter"
    command.parent.mkdir(parents=True)
    command.write_text(f"#!{sys.executable}\n{COMMAND_LINE.format(home=str(home))}")
    command.chmod(0o755)
    return command


def with_an_emulator_that(folder: Path, *, does: str) -> Path:
    """A checkout whose app is empty and whose emulator is a line of shell."""
    app, emulator = folder / "infra" / "app.py", folder / ".venv-local" / "bin" / "ministack"
    for file in (app, emulator):
        file.parent.mkdir(parents=True)
    app.write_text("")
    (folder / "cdk.json").write_text('{"context": {}}')
    emulator.write_text(f"#!/bin/sh\n{does}\n")
    emulator.chmod(0o755)
    return folder


def emulator_of(product: Product) -> list[str]:
    found = commands(descendants(product.process.pid))
    return [line for line in found if line.endswith("/bin/ministack") and "guard.py" not in line]


def finished(client: httpx.Client, job_id: str) -> Mapping[str, object]:
    """The job's only execution, once it has ended."""
    found: list[Mapping[str, object]] = []

    def ended() -> bool:
        found[:] = client.get(f"/v1/jobs/{job_id}/executions").json()["items"]
        return [execution["status"] in FINAL for execution in found] == [True]

    until(ended)
    return found[0]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S} s"
        time.sleep(0.05)
