"""What people type, against the real API on memory ports."""

import io
import json
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.metadata import version
from pathlib import Path
from threading import Thread
from typing import ClassVar

import httpx
import jwt
import pytest
from rich.console import Console
from rich.table import Table
from typer.testing import CliRunner, Result

from lamplighter.cli.main import app
from lamplighter.cli.surroundings import Surroundings, column, words
from lamplighter.core.limits import NAME_MAX_CHARS
from lamplighter.core.outcome import Failed, Succeeded
from lamplighter.core.retry import Failure, Kind
from lamplighter.local.home import Home
from lamplighter.local.issuer import Issuer
from lamplighter.memory import MemoryWorld
from lamplighter.services.execute import Claimed, begin
from lamplighter.sim.system import System
from tests.cli.conftest import Terminal
from tests.support.api import caller
from tests.support.jobs import created, cron, new_job


@pytest.fixture
def system(world: MemoryWorld) -> System:
    return System(world=world, handler=lambda _: Succeeded(result='"done"'))


def test_jobs_are_listed_with_what_they_do_and_when(terminal: Terminal, world: MemoryWorld) -> None:
    job = created(world.ports(), new_job(schedule=cron("0 2 * * *", "Asia/Kolkata")))

    lines = terminal.type("jobs", "list").stdout.splitlines()

    assert lines[0].split() == ["JOB", "NAME", "TASK", "WHEN", "NEXT", "STATUS"]
    assert lines[1].split() == [
        job.job_id,
        *("echo", "0", "2", "*", "*", "*", "Asia/Kolkata"),
        *("2026-01-01T20:30:00.000Z", "ACTIVE"),
    ]


def test_a_job_is_shown_with_its_executions(terminal: Terminal, system: System) -> None:
    made = created(system.ports, new_job(payload='"hello"'))
    system.run_for(timedelta(seconds=1))

    shown = json.loads(terminal.type("jobs", "show", made.job_id).stdout)

    assert shown["payload"] == "hello"
    assert [execution["status"] for execution in shown["executions"]] == ["SUCCEEDED"]


def test_a_deleted_job_runs_no_more(terminal: Terminal, system: System) -> None:
    made = created(system.ports, new_job(schedule=cron("* * * * *")))

    result = terminal.type("jobs", "delete", made.job_id)
    system.run_for(timedelta(minutes=5))

    assert result.stdout == f"deleted {made.job_id}\n"
    assert system.runs == []


def test_one_that_runs_is_deleted_on_request(terminal: Terminal, world: MemoryWorld) -> None:
    made = created(world.ports(), new_job())
    (message,) = world.queue.receive()
    begin(world.ports(), message, worker="worker")

    refused = terminal.type("jobs", "delete", made.job_id)
    requested = terminal.type("jobs", "delete", made.job_id, "--request")

    assert refused.exit_code == 2
    assert refused.stderr.endswith("is RUNNING; --request asks it to stop\n")
    assert requested.stdout == f"deleted {made.job_id}\n"
    row = world.ports().executions.get(made.first.id)
    assert row is not None
    assert row.cancel_requested_at is not None


def test_a_job_is_run_by_hand(terminal: Terminal, system: System) -> None:
    job_id = caller(system.world).create(cron="0 2 * * *", payload="its own")["job_id"]

    plain = terminal.type("jobs", "trigger", job_id)
    system.run_for(timedelta(seconds=1))
    other = terminal.type("jobs", "trigger", job_id, "--payload", '{"a": 1}', "--key", "k")
    again = terminal.type("jobs", "trigger", job_id, "--payload", '{"a": 1}', "--key", "k")
    system.run_for(timedelta(seconds=1))

    ids = [result.stdout.split()[0] for result in (plain, other, again)]
    assert plain.stdout == f"{ids[0]} runs {job_id} now\n"
    assert ids[1] == ids[2] != ids[0]
    shown = [json.loads(terminal.type("executions", "show", id).stdout) for id in ids[:2]]
    assert [one["payload"] for one in shown] == ["its own", {"a": 1}]
    assert [one["status"] for one in shown] == ["SUCCEEDED"] * 2


def test_a_one_off_is_not_run_by_hand(terminal: Terminal, world: MemoryWorld) -> None:
    job_id = caller(world).create()["job_id"]

    refused = terminal.type("jobs", "trigger", job_id)

    assert refused.exit_code == 2
    assert "it can be replayed" in refused.stderr
    assert terminal.type("jobs", "trigger", job_id, "--payload", "{").exit_code == 2


def test_slots_of_the_past_are_run(terminal: Terminal, system: System) -> None:
    job_id = caller(system.world).create(cron="0 * * * *", overlap_policy="ALLOW")["job_id"]
    interval = ("--from", "2025-12-31T22:00:00Z", "--to", "2026-01-01T00:00:00Z")

    dry = terminal.type("jobs", "backfill", job_id, *interval, "--dry-run")
    assert len(system.world.tables.executions) == 1
    made = terminal.type("jobs", "backfill", job_id, *interval, "--spread", "60")
    system.run_for(timedelta(minutes=2))
    skipped = terminal.type("jobs", "backfill", job_id, *interval, "--json")
    again = terminal.type("jobs", "backfill", job_id, *interval, "--again", "--json")

    slots = ["2025-12-31T22:00:00.000Z", "2025-12-31T23:00:00.000Z"]
    for result in (dry, made):
        assert [line.split()[0] for line in result.stdout.splitlines()] == ["SLOT", *slots]
    assert dry.stdout.count("ex_") == 0
    assert made.stdout.count("ex_") == 2
    assert len(system.runs) == 2
    assert json.loads(skipped.stdout)["runs"] == []
    assert [one["status"] for one in json.loads(skipped.stdout)["skipped"]] == ["SUCCEEDED"] * 2
    assert len(json.loads(again.stdout)["runs"]) == 2


def test_slots_that_are_left_out_are_named(terminal: Terminal, system: System) -> None:
    job_id = caller(system.world).create(cron="0 * * * *")["job_id"]
    system.run_for(timedelta(hours=2))

    left = terminal.type(
        *("jobs", "backfill", job_id, "--dry-run"),
        *("--from", "2026-01-01T01:00:00Z", "--to", "2026-01-01T01:30:00Z"),
    )

    assert "skipped: SUCCEEDED" in left.stdout


def test_too_many_slots_are_refused_in_one_line(terminal: Terminal, world: MemoryWorld) -> None:
    job_id = caller(world).create(cron="0 * * * *")["job_id"]

    refused = terminal.type(
        *("jobs", "backfill", job_id, "--max", "1"),
        *("--from", "2025-12-31T00:00:00Z", "--to", "2026-01-01T00:00:00Z"),
    )

    assert refused.exit_code == 2
    assert "max: the interval has at least 2 slots (got 1)" in refused.stderr


def test_a_job_is_changed_field_by_field(terminal: Terminal, world: MemoryWorld) -> None:
    made = created(world.ports(), new_job(schedule=cron("0 2 * * *")))

    result = terminal.type(
        *("jobs", "update", made.job_id, "--if-match", "1"),
        *("--set", "cron=0 3 * * *", "--set", "retry_policy.max_attempts=9"),
        *("--set", "payload=[1, null]", "--set", "task=NaN"),
    )

    (job,) = world.tables.jobs.values()
    assert result.stdout == f"{made.job_id} is at version 2\n"
    assert (job.schedule.text, job.spec.retry.max_attempts) == ("0 3 * * *", 9)
    assert (job.spec.payload.text, job.spec.task) == ("[1,null]", "NaN")


def test_a_job_is_paused_and_resumed(terminal: Terminal, world: MemoryWorld) -> None:
    made = created(world.ports(), new_job(schedule=cron("0 2 * * *")))

    paused = terminal.type("jobs", "pause", made.job_id)
    refused = terminal.type("jobs", "resume", made.job_id, "--if-match", "1")
    resumed = terminal.type("jobs", "resume", made.job_id, "--if-match", "2")

    assert paused.stdout == f"{made.job_id} is at version 2, PAUSED\n"
    assert (refused.exit_code, "version 2" in refused.stderr) == (2, True)
    assert resumed.stdout == f"{made.job_id} is at version 3\n"


def test_what_had_begun_before_a_pause_is_named(terminal: Terminal, world: MemoryWorld) -> None:
    made = created(world.ports(), new_job(schedule=cron("* * * * *")))
    world.pass_time(timedelta(seconds=60))
    (message, *_) = world.queue.receive()
    assert isinstance(begin(world.ports(), message, worker="worker"), Claimed)

    result = terminal.type("jobs", "pause", made.job_id, "--if-match", "1")

    assert result.stdout.splitlines() == [
        f"{made.job_id} is at version 2, PAUSED",
        f"{message.message.execution_id} had begun and runs as before",
    ]


def test_a_job_is_changed_by_a_file(terminal: Terminal, world: MemoryWorld, tmp_path: Path) -> None:
    made = created(world.ports(), new_job(schedule=cron("0 2 * * *")))
    file = tmp_path / "patch.json"
    file.write_text('{"name": "n", "payload": {"a": 1}}')

    of_file = terminal.type("jobs", "update", made.job_id, "--json", str(file))
    typed = terminal.type("jobs", "update", made.job_id, "--json", "-", typed=b'{"task": "x"}')

    (job,) = world.tables.jobs.values()
    assert (of_file.exit_code, typed.exit_code) == (0, 0)
    assert (job.name, job.spec.task, job.spec.payload.text) == ("n", "x", '{"a":1}')


def test_what_had_begun_before_a_change_is_named(terminal: Terminal, world: MemoryWorld) -> None:
    made = created(world.ports(), new_job(schedule=cron("* * * * *")))
    world.pass_time(timedelta(seconds=60))
    (message, *_) = world.queue.receive()
    assert isinstance(begin(world.ports(), message, worker="worker"), Claimed)

    result = terminal.type("jobs", "update", made.job_id, "--set", "task=other")

    assert result.stdout.splitlines() == [
        f"{made.job_id} is at version 2",
        f"{message.message.execution_id} had begun and runs as before",
    ]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ([], "nothing to change"),
        (["--set", "task"], "not FIELD=VALUE"),
        (["--set", "task=x", "--set", "task.a=x"], "task has no fields here"),
        (["--json", "-"], "not JSON"),
        (["--set", "queue=fast"], "no such queue"),
        (["--set", "task=x", "--if-match", "7"], "version 1"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_change_that_cannot_be_is_one_clear_line(
    terminal: Terminal, world: MemoryWorld, said: list[str], why: str
) -> None:
    made = created(world.ports(), new_job(schedule=cron("0 2 * * *")))

    result = terminal.type("jobs", "update", made.job_id, *said, typed=b"{")

    (line,) = result.stderr.splitlines()
    assert (result.exit_code, why in line) == (2, True)
    assert [job.version for job in world.tables.jobs.values()] == [1]


def test_the_longest_name_takes_one_line_of_a_list(terminal: Terminal, world: MemoryWorld) -> None:
    """It broke each of the ids into pieces."""
    name = "n" * NAME_MAX_CHARS
    job = caller(world).create(name=name, cron="0 2 * * *", timezone="America/Chicago")
    one_off = caller(world).create()

    lines = terminal.type("jobs", "list").stdout.splitlines()

    assert len(lines) == 3
    assert any(f"{job['job_id']}  {name}" in line for line in lines)
    assert any(one_off["job_id"] in line for line in lines)


def test_on_a_narrow_terminal_an_id_stays_whole() -> None:
    console = Console(width=100, file=io.StringIO())
    table = Table(column("JOB"), words("NAME"), column("NEXT"), box=None)
    table.add_row("job_" + "0" * 26, "n" * NAME_MAX_CHARS, "2026-01-01T00:00:00.000Z")

    console.print(table)

    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert "job_" + "0" * 26 in shown
    assert "2026-01-01T00:00:00.000Z" in shown
    assert shown.count("n") == NAME_MAX_CHARS


def test_executions_are_listed_newest_first(terminal: Terminal, system: System) -> None:
    first = created(system.ports, new_job())
    system.run_for(timedelta(seconds=3))
    second = created(system.ports, new_job())
    system.run_for(timedelta(seconds=1))

    lines = terminal.type("executions", "list").stdout.splitlines()

    assert [line.split()[0] for line in lines] == ["EXECUTION", second.first.id, first.first.id]
    assert lines[1].split()[1:] == [
        "echo",
        "SUCCEEDED",
        "2026-01-01T00:00:03.000Z",
        *("0.000", "s", "1"),
    ]


def test_executions_can_be_chosen(terminal: Terminal, system: System) -> None:
    created(system.ports, new_job())
    system.run_for(timedelta(seconds=1))
    waiting = created(system.ports, new_job(run_at=system.world.now() + timedelta(hours=1)))

    by_status = terminal.type("executions", "list", "--status", "pending", "--json")
    by_job = terminal.type("executions", "list", "--job", waiting.job_id, "--json")
    limited = terminal.type("executions", "list", "--limit", "1", "--json")

    for result in (by_status, by_job, limited):
        (found,) = json.loads(result.stdout)
        assert found["execution_id"] == waiting.first.id


def test_an_execution_is_shown_with_its_attempts(terminal: Terminal, world: MemoryWorld) -> None:
    failure = Failure(kind=Kind.PERMANENT, type="ValueError", message="no such customer")
    system = System(world=world, handler=lambda _: Failed(failure=failure))
    made = created(world.ports(), new_job())
    system.run_for(timedelta(seconds=1))

    shown = json.loads(terminal.type("executions", "show", made.first.id).stdout)
    listed = terminal.type("executions", "list").stdout

    assert [attempt["status"] for attempt in shown["attempts"]] == ["FAILED"]
    late = shown["lateness"]
    assert late.pop("total_ms") == shown["lateness_ms"]
    assert late.pop("total_from_slot_ms") == sum(late.values())
    assert "ValueError: no such customer" in listed


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("jobs", "show", "job_x"), "404 no job 'job_x'"),
        (("jobs", "delete", "job_x"), "404 no job 'job_x'"),
        (("executions", "show", "ex_x"), "404 no execution 'ex_x'"),
        (("executions", "list", "--status", "asleep"), "400 status: not one of"),
    ],
)
def test_what_the_api_refuses_is_one_clear_line(
    terminal: Terminal, args: tuple[str, ...], said: str
) -> None:
    result = terminal.type(*args)

    assert result.exit_code == 2
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert result.stdout == ""


def test_somebody_elses_job_is_not_there(terminal: Terminal, world: MemoryWorld) -> None:
    made = created(world.ports(), new_job())

    assert terminal.type("jobs", "show", made.job_id, owner="umbrella").exit_code == 2


def on(answer: httpx.MockTransport, *args: str, **environment: str) -> Result:
    return CliRunner().invoke(
        app,
        args,
        obj=Surroundings(transport=answer),
        env={"LAMPLIGHTER_TOKEN": "token", "LAMPLIGHTER_URL": None, **environment},
    )


def test_no_answer_is_one_clear_line() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("connection refused")

    result = on(httpx.MockTransport(refuse), "jobs", "list")

    assert result.exit_code == 1
    assert result.stderr == (
        "lamplighter: no answer from http://127.0.0.1:8080: connection refused "
        "(--url or LAMPLIGHTER_URL says where)\n"
    )


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            httpx.Response(401, json={"message": "Unauthorized"}),
            (
                "401 Unauthorized: not a token that it takes, or not any more; "
                "see --token and LAMPLIGHTER_TOKEN"
            ),
        ),
        (httpx.Response(502, text="<html>bad gateway</html>"), "502 Bad Gateway"),
        (httpx.Response(403, json=["odd"]), "403 Forbidden"),
    ],
)
def test_what_stands_before_the_api_is_told_too(answer: httpx.Response, said: str) -> None:
    result = on(httpx.MockTransport(lambda _: answer), "jobs", "list")

    assert (result.exit_code, result.stderr) == (2, f"lamplighter: {said}\n")


class Answering(BaseHTTPRequestHandler):
    """An API of one answer, on a real socket."""

    tokens: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.tokens.append(self.headers["authorization"])
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"items": [], "next_cursor": null}')

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- the base's name
        """Not on the test's output."""


def test_the_token_is_sent_and_no_proxy_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)

    with HTTPServer(("127.0.0.1", 0), Answering) as server:
        Thread(target=server.handle_request, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/"
        result = CliRunner().invoke(app, ["jobs", "list", "--token", "mine", "--url", url])

    assert result.exit_code == 0, result.output
    assert Answering.tokens == ["Bearer mine"]


def test_without_a_token_nothing_is_sent_to_a_strange_host() -> None:
    result = on(
        httpx.MockTransport(lambda _: httpx.Response(500)),
        *("jobs", "list", "--url", "https://scheduler.example.com"),
        LAMPLIGHTER_TOKEN="",
    )

    assert result.exit_code == 2
    assert result.stderr == "lamplighter: no token: give --token or LAMPLIGHTER_TOKEN\n"


@pytest.mark.parametrize("token", ["ü", "a\nb", "a\x00"])
def test_what_is_no_token_is_blamed_before_anything_is_asked(token: str) -> None:
    result = on(
        httpx.MockTransport(lambda _: httpx.Response(500)),
        *("jobs", "list", "--token", token),
        LAMPLIGHTER_URL="https://example.com",
    )

    assert result.exit_code == 2
    assert result.stderr.startswith("lamplighter: --token or LAMPLIGHTER_TOKEN has what no token")
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("url", ["foo", "127.0.0.1:8080", "ftp://host", "http://", "http://h:x"])
def test_what_is_no_url_is_blamed_and_not_the_token(url: str) -> None:
    result = on(
        httpx.MockTransport(lambda _: httpx.Response(500)),
        *("jobs", "list"),
        LAMPLIGHTER_TOKEN="",
        LAMPLIGHTER_URL=url,
    )

    assert result.exit_code == 2
    assert result.stderr.startswith(f"lamplighter: {url!r} is no URL")
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("owner", ["", " ", "me ", "a\nb", "x" * 256])
@pytest.mark.parametrize("args", [("token",), ("run",), ("tz-diff", ".")])
def test_an_owner_that_the_api_would_refuse_is_refused_here(
    args: tuple[str, ...], owner: str
) -> None:
    result = CliRunner().invoke(app, [*args, "--owner", owner])

    assert result.exit_code == 2
    assert "an owner is 1 to 255 printable" in " ".join(result.output.split())


def test_the_version_is_the_package_s() -> None:
    result = CliRunner().invoke(app, ["--version"])

    assert result.exit_code == 0
    assert result.stdout == f"lamplighter {version('lamplighter')}\n"


@pytest.mark.parametrize("args", [["-h"], ["jobs", "-h"], ["import", "crontab", "-h"]])
def test_help_has_a_short_name_everywhere(args: list[str]) -> None:
    result = CliRunner().invoke(app, args)

    assert result.exit_code == 0
    assert "Usage:" in result.stdout


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A checkout in which no run was ever made."""
    (tmp_path / "infra").mkdir()
    (tmp_path / "infra" / "app.py").touch()
    home = Home.of(tmp_path)
    home.folder.mkdir()
    monkeypatch.setattr(Home, "of", lambda: home)
    return home


def test_a_token_names_its_owner_and_ends(home: Home) -> None:
    Issuer.announce(home, port=4567)

    result = CliRunner().invoke(app, ["token", "--owner", "acme", "--hours", "2"])

    claims = jwt.decode(result.stdout.strip(), options={"verify_signature": False})
    assert result.exit_code == 0
    assert claims["sub"] == "acme"
    ends = datetime.fromtimestamp(claims["exp"], UTC) - datetime.now(UTC)
    assert timedelta(hours=1.9) < ends < timedelta(hours=2.1)


def test_on_this_machine_the_local_issuer_makes_the_token(home: Home) -> None:
    Issuer.announce(home, port=4567)
    seen = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers["authorization"].removeprefix("Bearer "))
        return httpx.Response(200, json={"items": [], "next_cursor": None})

    on(httpx.MockTransport(answer), "jobs", "list", LAMPLIGHTER_TOKEN="")

    (token,) = seen
    assert jwt.decode(token, options={"verify_signature": False})["sub"] == "me"


@pytest.mark.parametrize("args", [("token", "--owner", "acme"), ("jobs", "list")])
def test_before_the_first_run_there_is_no_token(home: Home, args: tuple[str, ...]) -> None:
    result = on(httpx.MockTransport(lambda _: httpx.Response(500)), *args, LAMPLIGHTER_TOKEN="")

    assert result.exit_code in {1, 2}
    assert "no run has made an issuer" in result.stderr
    assert "make run" in result.stderr


def test_run_passes_on_what_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    said: dict[str, object] = {}

    def main(**options: object) -> int:
        said.update(options)
        return 7

    monkeypatch.setattr("lamplighter.local.run.main", main)
    result = CliRunner().invoke(
        app, ["run", "--shell-owner", "me"], env={"LAMPLIGHTER_PORT": "9090"}
    )

    assert result.exit_code == 7
    assert said == {"port": 9090, "owner": "me", "shell_owners": ["me"]}


@pytest.mark.parametrize(
    ("text", "owners"), [("ada", ["ada"]), ("ada,bob", ["ada", "bob"]), ("", [])]
)
def test_the_shell_is_for_whom_the_environment_names(
    monkeypatch: pytest.MonkeyPatch, text: str, owners: list[str]
) -> None:
    said: dict[str, object] = {}

    def main(**options: object) -> int:
        said.update(options)
        return 0

    monkeypatch.setattr("lamplighter.local.run.main", main)

    result = CliRunner().invoke(app, ["run"], env={"LAMPLIGHTER_SHELL_OWNERS": text})

    assert result.exit_code == 0, result.output
    assert said["shell_owners"] == owners


@pytest.mark.parametrize("args", [[], ["jobs"], ["import"], ["executions"]])
def test_a_command_that_is_not_complete_prints_help(args: list[str]) -> None:
    result = CliRunner().invoke(app, args)

    assert "Usage:" in result.output
