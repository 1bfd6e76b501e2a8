"""`lamplighter executions`: cancelling and replaying, against the real API on memory ports."""

import json
from datetime import timedelta

import httpx
import pytest
from typer.testing import CliRunner

from lamplighter.cli.main import app
from lamplighter.cli.surroundings import Surroundings
from lamplighter.core.buckets import ExecutionId
from lamplighter.core.lifecycle import State
from lamplighter.core.outcome import Failed, Outcome
from lamplighter.core.retry import Failure, Kind
from lamplighter.memory import MemoryWorld
from lamplighter.services.execute import Claimed, begin
from lamplighter.sim.system import System
from tests.cli.conftest import Terminal
from tests.support.jobs import created, in_, new_job


def no_route(_: Claimed) -> Outcome:
    return Failed(failure=Failure(kind=Kind.PERMANENT, type="OSError", message="no route"))


@pytest.fixture
def system(world: MemoryWorld) -> System:
    return System(world=world, handler=no_route)


def failed(system: System) -> ExecutionId:
    id = created(system.ports, new_job(payload='"old"')).first.id
    system.run_for(timedelta(seconds=1))
    return id


def waiting(system: System) -> ExecutionId:
    return created(system.ports, new_job(run_at=in_(system.ports, 3600))).first.id


def test_one_that_waits_is_cancelled(terminal: Terminal, system: System) -> None:
    id = waiting(system)

    assert terminal.type("executions", "cancel", id).stdout == f"cancelled {id}\n"

    assert system.world.tables.executions[id].state is State.CANCELLED


def test_one_that_runs_is_asked_to_stop(terminal: Terminal, world: MemoryWorld) -> None:
    id = created(world.ports(), new_job()).first.id
    (message,) = world.queue.receive()
    begin(world.ports(), message, worker="worker")

    assert terminal.type("executions", "cancel", id).stdout == f"asked {id} to stop\n"

    assert world.tables.executions[id].cancel_requested_at is not None


@pytest.mark.parametrize(("verb", "how"), [("cancel", "FAILED"), ("replay", "SCHEDULED")])
def test_one_whose_state_is_against_it_is_refused_by_its_name(
    terminal: Terminal, system: System, verb: str, how: str
) -> None:
    id = failed(system) if verb == "cancel" else waiting(system)

    result = terminal.type("executions", verb, id)

    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"lamplighter: 409 {id} is {how}: ")
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("args", "payload"),
    [
        ((), '"old"'),
        (("--payload", '{"order": 18}'), '{"order":18}'),
        (("--payload", "null"), "null"),
    ],
    ids=str,
)
def test_one_that_failed_is_replayed(
    terminal: Terminal, system: System, args: tuple[str, ...], payload: str
) -> None:
    id = failed(system)

    said = terminal.type("executions", "replay", id, *args).stdout

    (new,) = [row for row in system.world.tables.executions.values() if row.replay_of == id]
    assert said == f"replayed {id} as {new.id}\n"
    assert new.spec is not None
    assert new.spec.payload.text == payload


def test_under_a_key_it_is_replayed_once(terminal: Terminal, system: System) -> None:
    id = failed(system)

    first = terminal.type("executions", "replay", id, "--key", "k")
    again = terminal.type("executions", "replay", id, "--key", "k")

    assert first.stdout == again.stdout
    assert len(system.world.tables.executions) == 2


@pytest.mark.parametrize("payload", ["{", "NaN", ""])
def test_a_payload_that_is_no_json_is_refused_here(
    terminal: Terminal, system: System, payload: str
) -> None:
    id = failed(system)

    result = terminal.type("executions", "replay", id, "--payload", payload)

    assert (result.exit_code, terminal.requests) == (2, [])
    assert result.stderr.startswith("lamplighter: --payload is no JSON: ")


def test_all_that_an_option_lets_through_are_cancelled(terminal: Terminal, system: System) -> None:
    ids = [waiting(system) for _ in range(3)]
    other = failed(system)

    result = terminal.type("executions", "cancel-all", "--status", "scheduled", "--task", "echo")

    assert sorted(result.stdout.splitlines()) == sorted(f"{id}  CANCELLED" for id in ids)
    assert result.stderr == "3 cancelled\n"
    assert system.world.tables.executions[other].state is State.FAILED


def test_all_that_failed_are_replayed_page_by_page(terminal: Terminal, system: System) -> None:
    ids = [created(system.ports, new_job()).first.id for _ in range(103)]
    system.run_for(timedelta(seconds=1))

    result = terminal.type("executions", "replay-all", "--error-type", "OSError")

    lines = dict(line.split("  REPLAYED  ") for line in result.stdout.splitlines())
    assert sorted(lines) == sorted(ids)
    assert {
        system.world.tables.executions[ExecutionId(new)].replay_of for new in lines.values()
    } == {*ids}
    assert result.stderr.splitlines()[-1] == "103 replayed"
    assert terminal.requests == ["POST /v1/executions/replay"] * 2


def test_interrupted_it_goes_on_by_the_key_that_it_told(terminal: Terminal, system: System) -> None:
    failed(system)
    first = terminal.type("executions", "replay-all", "--status", "failed")
    key = first.stderr.split()[1]

    again = terminal.type("executions", "replay-all", "--status", "failed", "--key", key)

    assert first.stderr.startswith(f"--key {key} goes on with this")
    assert again.stdout == first.stdout
    assert len(system.world.tables.executions) == 2


def test_a_dry_run_only_tells_which_they_are(terminal: Terminal, system: System) -> None:
    id, other = failed(system), waiting(system)

    replays = terminal.type("executions", "replay-all", "--task", "echo", "--dry-run")
    cancels = terminal.type("executions", "cancel-all", "--task", "echo", "--dry-run")

    assert (replays.stdout, replays.stderr) == (f"{id}  MATCHED\n", "1 matched\n")
    assert (cancels.stdout, cancels.stderr) == (f"{other}  MATCHED\n", "1 matched\n")
    assert len(system.world.tables.executions) == 2


@pytest.mark.parametrize("verb", ["cancel-all", "replay-all"])
def test_without_an_option_nothing_is_done(terminal: Terminal, system: System, verb: str) -> None:
    failed(system)
    waiting(system)
    before = dict(system.world.tables.executions)

    result = terminal.type("executions", verb)

    assert result.exit_code == 2
    assert "400 filter: names none: at least one of status" in result.stderr
    assert system.world.tables.executions == before


def test_where_nothing_matches_it_says_so(terminal: Terminal) -> None:
    result = terminal.type("executions", "cancel-all", "--task", "nobody's")

    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "none matched\n")


def test_each_option_reaches_the_filter_by_its_name() -> None:
    asked: list[object] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(json.loads(request.content))
        return httpx.Response(200, json={"answers": [], "next_cursor": None})

    args = ["--status", "failed", "--task", "t", "--queue", "q", "--from", "f", "--to", "u"]
    result = CliRunner().invoke(
        app,
        ["executions", "replay-all", *args, "--job", "j", "--error-type", "e"],
        obj=Surroundings(transport=httpx.MockTransport(answer)),
        env={"LAMPLIGHTER_TOKEN": "token", "LAMPLIGHTER_URL": "http://api.test"},
    )

    assert result.exit_code == 0
    names = ("status", "task", "queue", "from", "to", "job_id", "error_type")
    values = ("failed", "t", "q", "f", "u", "j", "e")
    wanted = dict(zip(names, values, strict=True))
    assert asked == [{"filter": wanted, "dry_run": False}]


def test_one_that_was_refused_is_told_and_fails_the_command() -> None:
    problem = {"type": "about:blank", "title": "Conflict", "status": 409, "detail": "it is over"}
    answers = [
        {
            "execution_id": "ex_1",
            "status": "SUCCEEDED",
            "outcome": "REFUSED",
            "new_execution_id": None,
            "problem": problem,
        }
    ]

    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"answers": answers, "next_cursor": None})

    result = CliRunner().invoke(
        app,
        ["executions", "cancel-all", "--task", "t"],
        obj=Surroundings(transport=httpx.MockTransport(answer)),
        env={"LAMPLIGHTER_TOKEN": "token", "LAMPLIGHTER_URL": "http://api.test"},
    )

    assert (result.exit_code, result.stderr) == (1, "1 refused\n")
    assert result.stdout == "ex_1  REFUSED  it is over\n"
