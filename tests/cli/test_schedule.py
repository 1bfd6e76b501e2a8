"""`lamplighter next` and `lamplighter explain`."""

import json
from datetime import UTC, datetime

import pytest
import typer
from typer.testing import CliRunner, Result

from lamplighter.cli.schedule import register
from lamplighter.cli.surroundings import Surroundings

NOW = datetime(2026, 3, 28, 12, tzinfo=UTC)


def _run(*arguments: str) -> Result:
    app = typer.Typer()
    register(app)
    return CliRunner().invoke(app, arguments, obj=Surroundings(now=lambda: NOW))


def test_next_prints_instants_and_what_a_clock_there_shows() -> None:
    ran = _run("next", "30 2 * * *", "--tz", "Europe/Berlin", "-n", "2")

    assert ran.exit_code == 0
    assert ran.stdout.splitlines() == [
        "2026-03-29T01:00:00Z  Sun 2026-03-29 03:00:00 +02:00",
        "2026-03-30T00:30:00Z  Mon 2026-03-30 02:30:00 +02:00",
    ]


def test_next_prints_json_for_programs() -> None:
    ran = _run(
        *("next", "30 1 * * *", "--tz", "America/New_York", "--after", "2026-10-31T12:00:00Z"),
        *("-n", "3", "--dst-gap", "SKIP", "--dst-fold", "BOTH", "--json"),
    )

    assert json.loads(ran.stdout) == {
        "occurrences": ["2026-11-01T05:30:00Z", "2026-11-01T06:30:00Z", "2026-11-02T06:30:00Z"]
    }


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["cron(0 12 ? * 2 *)"], ["2026-03-30T12:00:00Z"]),
        (["0 12 ? * 2 *", "--dialect", "eventbridge"], ["2026-03-30T12:00:00Z"]),
        (["rate(90 seconds)"], ["2026-03-28T12:01:30Z"]),
        (["rate(1 hour)", "--after", "2026-01-01T00:00:00.250Z"], ["2026-01-01T01:00:00.250Z"]),
        (["every(1 day)", "--tz", "Europe/Berlin"], ["2026-03-29T11:00:00Z"]),
        (["at(2026-07-12T02:00:00)", "--tz", "Asia/Kolkata"], ["2026-07-11T20:30:00Z"]),
        (["at(2020-07-12T02:00:00)"], []),
        (["H(5-5) * * * *", "--seed", "job_1"], ["2026-03-28T12:05:00Z"]),
    ],
    ids=str,
)
def test_next_reads_every_kind_of_expression(arguments: list[str], expected: list[str]) -> None:
    ran = _run("next", *arguments, "-n", "1", "--json")

    assert ran.exit_code == 0
    assert json.loads(ran.stdout) == {"occurrences": expected}


def test_next_says_that_nothing_is_due_any_more() -> None:
    assert _run("next", "at(2020-07-12T02:00:00)").stdout == "never\n"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["next", "61 * * * *"], "minute 61 is not in 0–59"),
        (["next", "*/30 * * * * *"], "with dialect=eventbridge"),
        (["next", "0 0 * * *", "--tz", "Mars/Base"], "timezone: not a zone"),
        (["next", "0 0 * * *", "--dst-gap", "LATER"], "dst_gap: not one of NEXT_VALID"),
        (["next", "0 0 * * *", "--dialect", "quartz"], "dialect: not one of unix"),
        (["next", "0 0 * * *", "--after", "yesterday"], "after: not RFC 3339"),
        (["explain", "0 0 31 2 *"], "never fires"),
    ],
    ids=str,
)
def test_a_refusal_is_one_clear_line_and_exit_code_2(arguments: list[str], reason: str) -> None:
    ran = _run(*arguments)

    assert ran.exit_code == 2
    assert ran.stdout == ""
    assert len(ran.stderr.splitlines()) == 1
    assert reason in ran.stderr


def test_explain_says_it_in_plain_words() -> None:
    ran = _run("explain", "0 9 * * mon#5", "--tz", "Europe/Berlin", "--dst-gap", "SKIP")

    assert ran.exit_code == 0
    assert ran.stdout == (
        "At 09:00 on the fifth Monday of the month, Europe/Berlin time. "
        "A time that the clocks skip is not due; one that they repeat is due the first time.\n"
    )
