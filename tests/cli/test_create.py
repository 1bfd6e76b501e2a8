"""`lamplighter jobs create`: a job from the command line, its payload from a file."""

import json
from pathlib import Path

import pytest

from lamplighter.core.forecast import Capacity
from lamplighter.core.retry import RetryPolicy
from lamplighter.memory import MemoryWorld
from tests.cli.conftest import Terminal
from tests.support.api import caller


def made(world: MemoryWorld, output: str) -> dict[str, object]:
    job_id = output.partition(" ")[0]
    shown: dict[str, object] = caller(world).get(f"/v1/jobs/{job_id}").json
    return shown


def test_a_job_is_created_with_its_fields(terminal: Terminal, world: MemoryWorld) -> None:
    settings = ("--set", "rate=1 hour", "--set", "retry_policy.max_attempts=2", "--set", "name=7a")

    ended = terminal.type("jobs", "create", "echo", "--payload", '{"to": "ä"}', *settings)

    assert ended.exit_code == 0
    job = made(world, ended.output)
    (first,) = world.tables.executions
    assert ended.output == f"{job['job_id']} created\n{first} is its execution\n"
    assert (job["task"], job["payload"], job["name"]) == ("echo", {"to": "ä"}, "7a")
    assert job["rate"] == "1 hour"


def test_a_list_of_a_retry_policy_is_set_as_json(terminal: Terminal, world: MemoryWorld) -> None:
    settings = (
        *("--set", "rate=1 hour", "--set", 'retry_policy.no_retry_on=["KeyError"]'),
        *("--set", "retry_policy.honor_retry_after=false", "--set", "retry_policy.jitter=0"),
    )

    ended = terminal.type("jobs", "create", "echo", *settings)

    assert ended.exit_code == 0
    (job,) = world.tables.jobs.values()
    assert job.spec.retry == RetryPolicy(
        no_retry_on=("KeyError",), honor_retry_after=False, jitter=0
    )


def test_a_large_payload_comes_from_a_file_and_is_uploaded(
    terminal: Terminal, world: MemoryWorld, tmp_path: Path
) -> None:
    file = tmp_path / "rows.json"
    file.write_text(json.dumps(["x" * 70_000], indent=1))

    ended = terminal.type("jobs", "create", "echo", "--payload", f"@{file}")

    assert ended.exit_code == 0
    job = made(world, ended.output)
    assert isinstance(job["payload_ref"], dict)
    assert job["payload_ref"]["size"] == 70_004
    assert terminal.requests[0] == "POST /v1/payloads"
    assert terminal.requests[1].startswith("PUT /")
    assert terminal.requests[2] == "POST /v1/jobs"


def test_a_payload_may_be_typed(terminal: Terminal, world: MemoryWorld) -> None:
    ended = terminal.type("jobs", "create", "echo", "--payload", "@-", typed=b"[1, 2]")

    assert made(world, ended.output)["payload"] == [1, 2]


def test_the_same_key_makes_no_second_job(terminal: Terminal) -> None:
    first, again = (terminal.type("jobs", "create", "echo", "--key", "k") for _ in range(2))

    assert again.output == first.output.replace("created", "is there already")


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        ("{", "--payload: not JSON: "),
        ("NaN", "--payload: not JSON: "),
        ("@/no/such/file", "--payload @/no/such/file: "),
    ],
)
def test_what_is_no_payload_ends_it_with_one_line(
    terminal: Terminal, payload: str, said: str
) -> None:
    ended = terminal.type("jobs", "create", "echo", "--payload", payload)

    assert ended.exit_code == 2
    assert said in ended.output
    assert len(ended.output.splitlines()) == 1
    assert terminal.requests == []


def test_a_start_that_will_be_late_is_told_of_beside_what_scripts_read(
    terminal: Terminal, world: MemoryWorld
) -> None:
    world.capacity, world.shards, world.partitions = Capacity(lanes={"default": 1.0}), 1, 1
    for _ in range(3):
        terminal.type("jobs", "create", "echo", "--set", "cron=0 0 1 1 *")

    made = terminal.type("jobs", "create", "echo", "--set", "cron=0 0 1 1 *")

    assert made.exit_code == 0
    assert made.stderr.startswith("warning: More is due in lane default in the minute of ")
    assert "flexible_window_seconds=5 on the jobs" in made.stderr
    assert "warning" not in made.stdout


def test_so_is_a_change_that_makes_it_late(terminal: Terminal, world: MemoryWorld) -> None:
    world.capacity, world.shards, world.partitions = Capacity(lanes={"default": 1.0}), 1, 1
    for _ in range(4):
        terminal.type("jobs", "create", "echo", "--set", "cron=0 0 1 1 *")
    ended = terminal.type("jobs", "create", "echo", "--set", "cron=0 0 1 6 *")
    job = ended.output.partition(" ")[0]

    moved = terminal.type("jobs", "update", job, "--set", "cron=0 0 1 1 *")

    assert (moved.exit_code, moved.stdout) == (0, f"{job} is at version 2\n")
    assert moved.stderr.startswith("warning: More is due in lane default in the minute of ")
