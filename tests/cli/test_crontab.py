"""A crontab becomes jobs, once; what --dry-run prints is what is created."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim

from lamplighter.core.buckets import JobId
from lamplighter.core.limits import NAME_MAX_CHARS
from lamplighter.core.model import JobStatus, Owner
from lamplighter.core.schedule import parse_instant
from tests.cli.conftest import Terminal
from tests.support.api import caller

CRONTAB = """\
# the nightly things
SHELL=/bin/bash
MAILTO=root
CRON_TZ=Europe/Berlin

30 2 * * *  backup --daily
@daily      rotate-logs
*/15 * * * *  mail -s 'hello' root%Dear root,%all is well
CRON_TZ=America/Chicago
0 9 * * 1-5  report
"""


@pytest.fixture
def crontab(tmp_path: Path) -> Path:
    path = tmp_path / "crontab"
    path.write_text(CRONTAB)
    return path


def imported(terminal: Terminal, path: Path, *options: str) -> dict[str, Any]:
    """Import a file; what it printed, as JSON."""
    result = terminal.type("import", "crontab", str(path), "--json", *options)
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def jobs(terminal: Terminal, owner: str = "acme") -> Sequence[Any]:
    listed: Sequence[Any] = json.loads(terminal.type("jobs", "list", "--json", owner=owner).stdout)
    return listed


def test_each_line_becomes_a_job(terminal: Terminal, crontab: Path) -> None:
    result = terminal.type("import", "crontab", str(crontab))

    assert result.exit_code == 0, result.output
    assert "4 jobs created, 0 there already" in result.stdout
    made = {job["payload"]["command"]: job for job in jobs(terminal)}
    assert {command: (job["cron"], job["timezone"]) for command, job in made.items()} == {
        "backup --daily": ("30 2 * * *", "Europe/Berlin"),
        "rotate-logs": ("@daily", "Europe/Berlin"),
        "mail -s 'hello' root": ("*/15 * * * *", "Europe/Berlin"),
        "report": ("0 9 * * 1-5", "America/Chicago"),
    }
    mail = made["mail -s 'hello' root"]
    assert mail["task"] == "shell"
    assert mail["payload"] == {
        "command": "mail -s 'hello' root",
        "stdin": "Dear root,\nall is well\n",
        "shell": "/bin/bash",
        "environment": {"PATH": "/usr/bin:/bin", "SHELL": "/bin/bash", "MAILTO": "root"},
    }


@pytest.mark.parametrize(
    ("setting", "path"), [("", "/usr/bin:/bin"), ("PATH=/opt/bin\n", "/opt/bin")]
)
def test_commands_are_looked_for_where_cron_looks(
    terminal: Terminal, crontab: Path, setting: str, path: str
) -> None:
    crontab.write_text(f"{setting}0 3 * * * backup\n")

    (job,) = imported(terminal, crontab, "--dry-run")["jobs"]

    assert job["payload"]["environment"] == {"PATH": path}


def test_a_job_does_what_cron_does_and_no_more(terminal: Terminal, crontab: Path) -> None:
    """It tries once, catches nothing up, and lets a command take its time."""
    terminal.type("import", "crontab", str(crontab))

    for job in jobs(terminal):
        assert job["retry_policy"]["max_attempts"] == 1
        assert job["misfire_policy"] == "SKIP"
        assert job["timeout_seconds"] == 840


def test_importing_again_changes_nothing(terminal: Terminal, crontab: Path) -> None:
    terminal.type("import", "crontab", str(crontab))
    before = jobs(terminal)

    result = terminal.type("import", "crontab", str(crontab))

    assert result.exit_code == 0
    assert "0 jobs created, 4 there already" in result.stdout
    assert jobs(terminal) == before


def test_importing_again_changes_nothing_long_after_the_keys_are_forgotten(
    terminal: Terminal, crontab: Path
) -> None:
    terminal.type("import", "crontab", str(crontab))
    terminal.world.tables.keys.clear()

    result = terminal.type("import", "crontab", str(crontab))

    assert "0 jobs created, 4 there already" in result.stdout
    assert len(jobs(terminal)) == 4


def test_importing_again_changes_nothing_before_the_list_shows_the_new_jobs(
    terminal: Terminal, crontab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal.type("import", "crontab", str(crontab))
    with monkeypatch.context() as stale:
        stale.setattr("lamplighter.memory.stores.MemoryJobs.of_owner", lambda *_, **__: [])
        result = terminal.type("import", "crontab", str(crontab))

    assert "0 jobs created, 4 there already" in result.stdout
    assert len(jobs(terminal)) == 4


def test_only_what_is_new_in_a_crontab_is_created(terminal: Terminal, crontab: Path) -> None:
    terminal.type("import", "crontab", str(crontab))
    crontab.write_text("# moved down\n\n" + CRONTAB + "5 5 * * * something new\n")

    result = terminal.type("import", "crontab", str(crontab))

    assert "1 job created, 4 there already" in result.stdout


def test_lines_that_say_the_same_are_jobs_of_their_own(terminal: Terminal, tmp_path: Path) -> None:
    path = tmp_path / "twice"
    path.write_text("0 1 * * * poll\n0 1 * * * poll\n")

    terminal.type("import", "crontab", str(path))
    again = terminal.type("import", "crontab", str(path))

    assert len(jobs(terminal)) == 2
    assert "0 jobs created, 2 there already" in again.stdout


def test_a_deleted_job_comes_back_when_it_is_imported_again(
    terminal: Terminal, crontab: Path
) -> None:
    for expected in ("4 jobs created, 0", "1 job created, 3", "1 job created, 3"):
        result = terminal.type("import", "crontab", str(crontab))
        assert f"{expected} there already" in result.stdout
        doomed = next(job for job in jobs(terminal) if job["payload"]["command"] == "report")
        assert terminal.type("jobs", "delete", doomed["job_id"]).exit_code == 0

    assert len(jobs(terminal)) == 3


def test_jobs_without_a_name_are_in_nobodys_way(terminal: Terminal, crontab: Path) -> None:
    """A one-off has none; the import ended with a KeyError once there was one."""
    made = caller(terminal.world).create(task="shell", payload={"command": "true"})

    result = terminal.type("import", "crontab", str(crontab))

    assert result.exit_code == 0, result.output
    assert "4 jobs created, 0 there already" in result.stdout
    assert made["job_id"] in {job["job_id"] for job in jobs(terminal)}


def test_a_line_that_is_there_already_is_named_with_what_it_keeps(
    terminal: Terminal, crontab: Path
) -> None:
    crontab.write_text("0 3 * * * backup\n")
    terminal.type("import", "crontab", str(crontab))
    (job,) = jobs(terminal)
    there = f"line 1: {job['name']!r} is there already, as {job['job_id']}"
    keeps = f"{there}; it keeps its queue default, not bulk and its timeout_seconds 840.0, not 60.0"

    same = terminal.type("import", "crontab", str(crontab))
    other = terminal.type("import", "crontab", str(crontab), "--queue", "bulk", "--timeout", "60")
    as_json = terminal.type("import", "crontab", str(crontab), "--json")

    assert there in same.stdout.splitlines()
    assert keeps in other.stdout.splitlines()
    assert as_json.stderr.splitlines() == [there]
    assert json.loads(as_json.stdout)["jobs"]
    assert jobs(terminal) == [job]


def test_a_job_that_is_paused_is_there(terminal: Terminal, crontab: Path) -> None:
    """Or a second one would run beside it once it is resumed."""
    crontab.write_text("0 3 * * * backup\n")
    terminal.type("import", "crontab", str(crontab))
    (job,) = jobs(terminal)
    stored = terminal.world.tables.jobs
    stored[JobId(job["job_id"])] = replace(stored[JobId(job["job_id"])], status=JobStatus.PAUSED)
    with pytest.MonkeyPatch.context() as stale:
        stale.setattr("lamplighter.memory.stores.MemoryJobs.of_owner", lambda *_, **__: [])
        result = terminal.type("import", "crontab", str(crontab))

    assert "0 jobs created, 1 there already" in result.stdout


def test_each_owner_has_jobs_of_ones_own(terminal: Terminal, crontab: Path) -> None:
    terminal.type("import", "crontab", str(crontab))

    result = terminal.type("import", "crontab", str(crontab), owner="umbrella")

    assert "4 jobs created" in result.stdout
    assert len(jobs(terminal)) == len(jobs(terminal, owner="umbrella")) == 4


def test_a_dry_run_creates_nothing_and_asks_nobody(terminal: Terminal, crontab: Path) -> None:
    result = terminal.type("import", "crontab", str(crontab), "--dry-run")

    assert result.exit_code == 0
    assert terminal.requests == []
    assert "4 jobs to create" in result.stdout


def test_what_a_dry_run_prints_is_what_is_created(terminal: Terminal, crontab: Path) -> None:
    planned = imported(terminal, crontab, "--dry-run")

    assert imported(terminal, crontab) == planned
    made = {job["name"]: job for job in jobs(terminal)}
    assert made.keys() == {job["name"] for job in planned["jobs"]}
    for job in planned["jobs"]:
        assert job["next"][0] == made[job["name"]]["next_run_at"]
        for field in ("task", "payload", "cron", "timezone", "queue", "timeout_seconds"):
            assert job[field] == made[job["name"]][field]


def test_a_dry_run_looks_like_the_real_one(terminal: Terminal, crontab: Path) -> None:
    dry = terminal.type("import", "crontab", str(crontab), "--dry-run").stdout.splitlines()
    real = terminal.type("import", "crontab", str(crontab)).stdout.splitlines()

    assert dry[:-1] == real[:-1]
    assert len(dry) > 10


def test_the_next_times_are_cronsims(terminal: Terminal, crontab: Path) -> None:
    # Just before Berlin's clocks go back.
    terminal.world.clock.move_to(datetime(2026, 10, 24, 20, tzinfo=UTC))

    planned = imported(terminal, crontab, "--dry-run")["jobs"]

    for job in planned:
        now = terminal.world.now().astimezone(ZoneInfo(job["timezone"]))
        oracle = islice(CronSim(job["cron"].replace("@daily", "0 0 * * *"), now), 3)
        assert [parse_instant("next", text) for text in job["next"]] == [
            time.astimezone(UTC) for time in oracle
        ]


def test_what_was_imported_is_scheduled(terminal: Terminal, crontab: Path) -> None:
    terminal.type("import", "crontab", str(crontab))

    found = terminal.world.ports().jobs.of_owner(Owner("acme"), before=None, limit=10)

    assert {job.status for job in found} == {JobStatus.ACTIVE}
    for job in found:
        slot = job.next_after(terminal.world.now())
        assert slot is not None
        row = job.occurrence(slot, now=job.created_at, sent_directly=False)
        assert terminal.world.ports().executions.get(row.id) is not None


def test_a_line_that_is_refused_is_named_and_the_others_are_imported(
    terminal: Terminal, tmp_path: Path
) -> None:
    path = tmp_path / "crontab"
    path.write_text(
        "0 1 * * * good\n@reboot start-me\n61 * * * * bad\n0 2 * * * good too\nwhat is this\n"
    )

    result = terminal.type("import", "crontab", str(path))

    assert result.exit_code == 1
    assert "2 jobs created" in result.stdout
    assert [line.partition(":")[0] for line in result.stderr.splitlines()] == [
        *("line 2", "line 3", "line 5")
    ]
    assert "@reboot" in result.stderr
    assert "61" in result.stderr
    assert "line: " not in result.stderr
    assert len(jobs(terminal)) == 2


def test_a_dry_run_refuses_the_same_lines(terminal: Terminal, tmp_path: Path) -> None:
    path = tmp_path / "crontab"
    path.write_text("@reboot start-me\n0 2 * * * good\n")

    dry = terminal.type("import", "crontab", str(path), "--dry-run")
    real = terminal.type("import", "crontab", str(path))

    assert (dry.exit_code, dry.stderr) == (real.exit_code, real.stderr)
    assert dry.exit_code == 1


def test_what_the_api_refuses_is_named_by_its_line(terminal: Terminal, crontab: Path) -> None:
    result = terminal.type("import", "crontab", str(crontab), "--queue", "no_such_lane")

    assert result.exit_code == 1
    assert result.stderr.startswith("line 6: 400 queue: no such queue")
    assert len(result.stderr.splitlines()) == 4
    assert jobs(terminal) == []


def test_the_user_of_a_system_crontab_is_reported_as_ignored(
    terminal: Terminal, tmp_path: Path
) -> None:
    path = tmp_path / "cron.d" / "backup"
    path.parent.mkdir()
    path.write_text("0 3 * * * root backup\n")

    result = terminal.type("import", "crontab", str(path))

    assert "line 1: user root is ignored" in result.stdout
    assert [job["payload"]["command"] for job in jobs(terminal)] == ["backup"]


def test_whether_there_are_users_can_be_said(terminal: Terminal, crontab: Path) -> None:
    crontab.write_text("0 3 * * * root backup\n")

    said = imported(terminal, crontab, "--dry-run", "--system")
    not_said = imported(terminal, crontab, "--dry-run", "--no-system")

    assert said["jobs"][0]["payload"]["command"] == "backup"
    assert said["ignored"][0]["value"] == "root"
    assert not_said["jobs"][0]["payload"]["command"] == "root backup"


@pytest.mark.parametrize("command", ["/usr/bin/backup --all", "[ -x /run ] && run", "A=1 run"])
def test_a_command_where_a_user_should_be_is_a_sign_of_another_crontab(
    terminal: Terminal, crontab: Path, command: str
) -> None:
    """The jobs would run what is left of their commands: `--all`."""
    crontab.write_text(f"0 3 * * * {command}\n")

    refused = terminal.type("import", "crontab", str(crontab), "--system")
    taken = imported(terminal, crontab, "--no-system", "--dry-run")

    assert refused.exit_code == 2
    assert "line 1: " in refused.stderr
    assert "--no-system" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    assert terminal.requests == []
    assert [job["payload"]["command"] for job in taken["jobs"]] == [command]


def test_the_zone_can_be_said(terminal: Terminal, crontab: Path) -> None:
    crontab.write_text("0 3 * * * backup\n")

    (job,) = imported(terminal, crontab, "--timezone", "Asia/Kolkata", "--dry-run")["jobs"]

    assert job["timezone"] == "Asia/Kolkata"
    assert job["next"][0].endswith("T21:30:00.000Z")


def test_without_one_the_zone_is_this_machines(terminal: Terminal, crontab: Path) -> None:
    crontab.write_text("0 3 * * * backup\n")
    result = terminal.type(
        "import", "crontab", str(crontab), "--dry-run", "--json", zone="Asia/Tokyo"
    )

    (job,) = json.loads(result.stdout)["jobs"]
    assert job["timezone"] == "Asia/Tokyo"


def test_a_long_or_odd_command_still_makes_a_name(terminal: Terminal, crontab: Path) -> None:
    crontab.write_text("0 3 * * * echo\ta\x07b " + "x" * 300 + "\n0 4 * * * \t true \n")

    result = terminal.type("import", "crontab", str(crontab))

    assert result.exit_code == 0, result.output
    names = [job["name"] for job in jobs(terminal)]
    assert max(map(len, names)) == NAME_MAX_CHARS
    assert all(name.isprintable() for name in names)


def test_a_crontab_may_come_from_standard_input(terminal: Terminal) -> None:
    result = terminal.type("import", "crontab", "-", typed=b"0 3 * * * backup\n")

    assert result.exit_code == 0, result.output
    assert len(jobs(terminal)) == 1


@pytest.mark.parametrize(
    ("content", "options", "said"),
    [
        (None, [], "No such file or directory"),
        (b"0 3 * * * caf\xe9\n", [], "not UTF-8 at byte 13"),
        (b"0 3 * * * backup\n", ["--timezone", "Mars/Base"], "timezone"),
    ],
    ids=["no file", "not UTF-8", "no such zone"],
)
def test_what_cannot_be_read_at_all_is_one_clear_line(
    terminal: Terminal, tmp_path: Path, content: bytes | None, options: list[str], said: str
) -> None:
    path = tmp_path / "crontab"
    if content is not None:
        path.write_bytes(content)

    result = terminal.type("import", "crontab", str(path), *options)

    assert result.exit_code == 2
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_an_empty_crontab_is_no_error(terminal: Terminal, crontab: Path) -> None:
    crontab.write_text("# nothing\n")

    result = terminal.type("import", "crontab", str(crontab))

    assert result.exit_code == 0
    assert "0 jobs created" in result.stdout


def test_a_crontab_of_many_lines_is_imported_whole(terminal: Terminal, crontab: Path) -> None:
    """More than one page of the list."""
    lines = [f"{n % 60} {n // 60} * * * job {n}" for n in range(230)]
    crontab.write_text("\n".join(lines))

    first = terminal.type("import", "crontab", str(crontab))
    terminal.world.tables.keys.clear()
    terminal.world.pass_time(timedelta(seconds=5))
    again = terminal.type("import", "crontab", str(crontab))

    assert "230 jobs created" in first.stdout
    assert "0 jobs created, 230 there already" in again.stdout
