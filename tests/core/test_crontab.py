"""Crontabs: the shapes that packages ship, the rules of crontab(5), and what is refused."""

from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

import pytest
from cronsim import CronSim
from hypothesis import given
from hypothesis import strategies as st

from lamplighter.core.crontab import Crontab, Entry, is_system_crontab, parse_crontab
from lamplighter.core.errors import Rejected
from lamplighter.core.limits import NAME_MAX_CHARS
from tests.core.schedule import oracle

START = datetime(2026, 1, 1, tzinfo=UTC)

# What the lines of some twenty packages look like: expression, user, command, each in its own
# mixture of blanks. The user column is there, as in every file of /etc/cron.d.
SHAPES = {
    "single blanks": ("30 3 * * 0 root run-it", "30 3 * * 0", "run-it"),
    "tabs between fields": ("0 4\t* * *\troot\trun-it", "0 4 * * *", "run-it"),
    "columns made with blanks": ("09,39 *     * * *     root   run-it", "09,39 * * * *", "run-it"),
    "blanks between all stars": ("* *     * * *      list     run-it", "* * * * *", "run-it"),
    "two blanks after the minute": ("0  8 * * *  list\trun-it", "0 8 * * *", "run-it"),
    "leading blanks": ("  \t0 4 * * * root run-it", "0 4 * * *", "run-it"),
    "a macro and a user": ("@hourly            www-data     run-it", "@hourly", "run-it"),
    "a list": ("2,17,32,47 * * * * www-data run-it", "2,17,32,47 * * * *", "run-it"),
    "a stepped range": ("5-55/10 * * * * root run-it", "5-55/10 * * * *", "run-it"),
    "a stepped star": ("0 */12 * * * root run-it", "0 */12 * * *", "run-it"),
    "a range of hours": (
        "30 7-23 * * *   root\t[ -x run ] && run",
        "30 7-23 * * *",
        "[ -x run ] && run",
    ),
    "names": ("0 5 * JAN-Mar mon,FRI root run-it", "0 5 * JAN-Mar mon,FRI", "run-it"),
    "a variable before the command": ("1 1 * * * root A=1 run-it", "1 1 * * *", "A=1 run-it"),
    "an escaped percent": (
        r"57 0 * * 0 root if [ $(date +\%d) -le 7 ]; then run; fi",
        "57 0 * * 0",
        "if [ $(date +%d) -le 7 ]; then run; fi",
    ),
    "an escaped exclamation mark": (
        r"0 0 * * * root test \! -d /run && perl -e 'sleep int(rand(9))'",
        "0 0 * * *",
        r"test \! -d /run && perl -e 'sleep int(rand(9))'",
    ),
    "a sed script": (
        r"27 03 * * * munin d=$(sed -nE 's/^\s*d\s+(\S.*)$/\1/p' | tail -1); ls ${d:-/tmp}",
        "27 03 * * *",
        r"d=$(sed -nE 's/^\s*d\s+(\S.*)$/\1/p' | tail -1); ls ${d:-/tmp}",
    ),
    "a number sign in the command": (
        "0 0 * * * root echo # no comment",
        "0 0 * * *",
        "echo # no comment",
    ),
    "a carriage return at the end": ("0 0 * * * root run-it\r", "0 0 * * *", "run-it"),
}

# line, name and value that it sets
SETTINGS = {
    "plain": ("SHELL=/bin/sh", "SHELL", "/bin/sh"),
    "blanks around the sign": ("AFTER = one  two  ", "AFTER", "one  two"),
    "leading blanks": ("  LEAD=x", "LEAD", "x"),
    "double quotes keep blanks": ('Q = " lead and trail "', "Q", " lead and trail "),
    "single quotes": ("Q='it is'", "Q", "it is"),
    "the other quotes inside": ("Q='say \"x\"'", "Q", 'say "x"'),
    "a quote in the middle": ('MIX=a"b', "MIX", 'a"b'),
    "blanks after the quotes": ('Q="x"  ', "Q", "x"),
    "an empty value in quotes": ('MAILTO=""', "MAILTO", ""),
    "an equals sign in the value": ("OPTS=--a=b", "OPTS", "--a=b"),
    "nothing is expanded": ("PATH=$HOME/bin:$PATH", "PATH", "$HOME/bin:$PATH"),
    "a name in quotes": ('"a name"=v', "a name", "v"),
    "a carriage return": ("Y=a\r", "Y", "a"),
}

COMMANDS = {
    "none": ("run it", "run it", None),
    "one": ("cat%hello", "cat", "hello\n"),
    "several": ("mail ann%Ann,%%supper is ready%", "mail ann", "Ann,\n\nsupper is ready\n"),
    "escaped ones": (r"date +\%s \% 9", "date +%s % 9", None),
    "escaped in the input": (r"cat%100\% sure%yes", "cat", "100% sure\nyes\n"),
    "nothing after it": ("cat%", "cat", None),
    "a backslash alone": (r"grep \d", r"grep \d", None),
    "two backslashes are one": (r"echo a\\b", r"echo a\b", None),
    "two backslashes and a percent": (r"echo a\\%in", "echo a\\", "in\n"),
    "backslashes in the input stay": (r"cat%a\\b\c", "cat", "a\\\\b\\c\n"),
}

PROBLEMS = {
    "reboot": ("@reboot run-it", "cron", "names no time"),
    "an unknown macro": ("@fortnightly run-it", "cron", "no such macro"),
    "minute 61": ("61 * * * * run-it", "cron", "minute 61 is not in 0–59"),
    "a range backwards": ("0 22-2 * * * run-it", "cron", "runs backwards"),
    "a date that never comes": ("0 0 30 2 * run-it", "cron", "never fires"),
    "too few fields": ("0 0 * *", "line", "neither NAME=value nor five fields"),
    "words": ("run this daily", "line", "neither NAME=value nor five fields"),
    "no command": ("0 0 * * *", "command", "no command"),
    "no command after a macro": ("@daily", "command", "no command"),
    "an empty value without quotes": ("MAILTO=", "MAILTO", 'an empty value is written ""'),
    "an open quote": ('A="x', "A", "a quote is not closed"),
    "text after the quotes": ('A="x" y', "A", "or something follows it"),
    "an unknown zone": ("CRON_TZ=Mars/Base", "CRON_TZ", "not a zone"),
    "a null": ("0 0 * * * run\0it", "command", "null character"),
    "a job's hash": ("H 0 * * * run-it", "cron", "chosen by the job's id"),
    "a leading dash": ("-*/5 * * * * run-it", "cron", "is not a number"),
}


def _reported(read: Crontab) -> set[int]:
    return {entry.line for entry in read.entries} | {note.line for note in read.problems}


def _only(read: Crontab) -> Entry:
    assert read.problems == ()
    (entry,) = read.entries
    return entry


@pytest.mark.parametrize(("line", "expression", "command"), SHAPES.values(), ids=SHAPES)
def test_a_line_of_a_package_is_read(line: str, expression: str, command: str) -> None:
    entry = _only(parse_crontab(line + "\n", path="/etc/cron.d/package"))

    assert (entry.expression, entry.command, entry.stdin) == (expression, command, None)


@pytest.mark.parametrize(("line", "expression", "command"), SHAPES.values(), ids=SHAPES)
def test_a_line_is_due_when_cronsim_says(line: str, expression: str, command: str) -> None:
    entry = _only(parse_crontab(line, timezone="Europe/Berlin", has_user_column=True))
    plain = {"@hourly": "0 * * * *"}.get(expression, expression)
    theirs = CronSim(plain, START.astimezone(oracle.rules_of("Europe/Berlin")))

    ours = list(islice(entry.schedule.occurrences(START), 500))

    assert ours == [instant.astimezone(UTC) for instant in islice(theirs, 500)]


@pytest.mark.parametrize(("line", "name", "value"), SETTINGS.values(), ids=SETTINGS)
def test_a_setting_is_in_the_environment_of_the_lines_below_it(
    line: str, name: str, value: str
) -> None:
    before, after = parse_crontab(f"0 1 * * * a\n{line}\n0 2 * * * b").entries

    assert before.environment == ()
    assert after.environment == ((name, value),)


def test_a_setting_holds_until_it_is_set_again() -> None:
    read = parse_crontab("A=1\nB=2\n0 1 * * * a\nA=3\n0 2 * * * b\n")

    assert [dict(entry.environment) for entry in read.entries] == [
        {"A": "1", "B": "2"},
        {"A": "3", "B": "2"},
    ]


@pytest.mark.parametrize(("text", "command", "stdin"), COMMANDS.values(), ids=COMMANDS)
def test_percent_signs_start_the_input(text: str, command: str, stdin: str | None) -> None:
    entry = _only(parse_crontab(f"0 0 * * * {text}"))

    assert (entry.command, entry.stdin) == (command, stdin)


@pytest.mark.parametrize(("line", "field", "reason"), PROBLEMS.values(), ids=PROBLEMS)
def test_a_line_that_cannot_be_read_is_reported_and_the_rest_goes_on(
    line: str, field: str, reason: str
) -> None:
    read = parse_crontab(f"# first\n0 1 * * * before\n{line}\n")

    (problem,) = read.problems
    assert (problem.line, problem.field) == (3, field)
    assert reason in problem.reason
    assert [entry.command for entry in read.entries] == ["before"]


def test_cron_tz_holds_for_the_lines_below_it() -> None:
    read = parse_crontab(
        "0 9 * * * a\nCRON_TZ=America/New_York\n0 9 * * * b\nCRON_TZ = 'Asia/Tokyo'\n0 9 * * * c",
        timezone="Europe/Berlin",
    )

    assert [entry.timezone for entry in read.entries] == [
        *("Europe/Berlin", "America/New_York", "Asia/Tokyo"),
    ]
    assert all(entry.environment == () for entry in read.entries)


@pytest.mark.parametrize("bad", ["CRON_TZ=Mars/Base", "CRON_TZ=", 'CRON_TZ="'])
def test_lines_below_an_unknown_zone_do_not_run_in_another(bad: str) -> None:
    read = parse_crontab(f"{bad}\n0 9 * * * a\nCRON_TZ=UTC\n0 9 * * * b")

    assert [entry.command for entry in read.entries] == ["b"]
    assert [(note.line, note.field) for note in read.problems] == [(1, "CRON_TZ"), (2, "timezone")]


def test_the_user_column_is_reported_as_ignored() -> None:
    read = parse_crontab(
        "SHELL=/bin/sh\n@daily www-data run-it\n61 * * * * root run-it\n", path="/etc/cron.d/x"
    )

    assert _only_user(read) == (2, "user", "www-data")
    assert [entry.command for entry in read.entries] == ["run-it"]
    assert [note.line for note in read.problems] == [3]


def _only_user(read: Crontab) -> tuple[int, str, str]:
    (note,) = read.ignored
    return note.line, note.field, note.value


def test_a_system_line_with_a_user_and_no_command_is_reported() -> None:
    read = parse_crontab("@daily root\n0 0 * * *", has_user_column=True)

    assert [(note.line, note.field) for note in read.problems] == [(1, "command"), (2, "user")]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/etc/cron.d/php", True),
        ("backup/etc/cron.d/php", True),
        ("/etc/crontab", True),
        ("etc/crontab", True),
        ("crontab", False),
        ("/var/spool/cron/crontabs/joe", False),
        ("/home/joe/crontab", False),
        ("", False),
    ],
)
def test_the_path_tells_whether_there_is_a_user_column(path: str, expected: bool) -> None:
    assert is_system_crontab(path) is expected
    assert bool(parse_crontab("@daily root run", path=path).ignored) is expected
    assert not parse_crontab("@daily root run", path=path, has_user_column=False).ignored


def test_comments_blank_lines_and_odd_endings_are_nothing() -> None:
    read = parse_crontab("\ufeff# a\n\n  \t\n   # b\n\r\n#0 0 * * * c\r\n")

    assert read == Crontab(entries=(), problems=(), ignored=())


def test_an_unknown_zone_from_the_caller_is_refused() -> None:
    with pytest.raises(Rejected, match="not a zone"):
        parse_crontab("", timezone="Mars/Base")


def test_keys_stay_when_other_lines_come_and_go() -> None:
    lines = "A=1\n0 1 * * * a\n0 1 * * * a\n0 2 * * * b\n"

    first = [entry.key for entry in parse_crontab(lines).entries]
    moved = [entry.key for entry in parse_crontab(f"# new\n\n{lines}0 3 * * * c\n").entries]
    spaced = [entry.key for entry in parse_crontab(lines.replace("0 1", " 0\t 1")).entries]

    assert len(set(first)) == 3
    assert moved[:3] == first
    assert spaced == first
    assert all(len(key) <= NAME_MAX_CHARS and key.startswith("crontab-") for key in first)


@pytest.mark.parametrize(
    "other",
    [
        "A=1\n0 2 * * * a%in",
        "A=1\n0 1 * * * b%in",
        "A=2\n0 1 * * * a%in",
        "A=1\n0 1 * * * a%out",
        "A=1\nCRON_TZ=Asia/Tokyo\n0 1 * * * a%in",
    ],
)
def test_a_key_is_another_one_when_the_line_says_something_else(other: str) -> None:
    entry = _only(parse_crontab("A=1\n0 1 * * * a%in"))

    assert _only(parse_crontab(other)).key != entry.key


@given(st.text(st.characters(codec="utf-8"), max_size=80), st.booleans())
def test_no_text_is_an_error_and_no_active_line_is_lost(text: str, users: bool) -> None:
    read = parse_crontab(text, has_user_column=users)

    reported = _reported(read)
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        active = line.strip() and not line.lstrip(" \t").startswith("#")
        assert number not in reported or active
        assert number in reported or not active or "=" in line


_LINES = st.sampled_from(
    [
        *(line for line, _, _ in SHAPES.values()),
        *(line for line, _, _ in SETTINGS.values()),
        *(line for line, _, _ in PROBLEMS.values()),
        *("", "# comment", "   ", "CRON_TZ=Europe/Berlin"),
    ]
)


@given(st.lists(_LINES, max_size=12))
def test_importing_again_finds_the_same_keys_and_no_two_alike(lines: list[str]) -> None:
    text = "\n".join(lines)

    keys = [entry.key for entry in parse_crontab(text).entries]

    assert keys == [entry.key for entry in parse_crontab(text).entries]
    assert len(keys) == len(set(keys))


def test_every_active_line_of_this_machine_s_crontabs_is_an_entry_or_a_problem(
    tmp_path: Path,
) -> None:
    own = tmp_path / "etc" / "cron.d" / "own"
    own.parent.mkdir(parents=True)
    own.write_text("PATH=/bin\n@reboot root a\n0 0 * * * root b\n")
    folder = Path("/etc/cron.d")
    found = [own, Path("/etc/crontab"), *(folder.iterdir() if folder.is_dir() else [])]

    for path in (path for path in found if path.is_file() and path.name != ".placeholder"):
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
        read = parse_crontab(text, path=str(path))
        reported = _reported(read)
        active = {
            number
            for number, line in enumerate(text.split("\n"), 1)
            if line.strip() and not line.lstrip().startswith("#")
        }
        settings = {number for number in active if "=" in text.split("\n")[number - 1].split()[0]}
        assert reported == active - settings, path
        assert len(read.ignored) == len(read.entries)
