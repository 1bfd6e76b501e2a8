r"""Crontabs as Debian's cron reads them: jobs out of lines, and a word on every line that is none.

The rules are those of crontab(5) and, where it is silent, what Debian's cron was seen to do: an
empty value needs quotes, and `\\` in a command is one backslash. Two things differ: `CRON_TZ`
names the zone of the lines below it, and a line that cannot be read does not spoil the rest.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Final

from lamplighter.core.errors import Rejected
from lamplighter.core.schedule import PINNED, Schedule, parse

_SETTING: Final = re.compile(r"""(?:"([^"]+)"|'([^']+)'|([^\s="'][^\s=]*))\s*=\s*(.*)""")
_QUOTED: Final = re.compile(r"""(?:"([^"]*)"|'([^']*)')""")
_TIMED: Final = re.compile(r"(@\S+|(?:\S+[ \t]+){4}\S+)(?:[ \t]+(.*))?")
_FIRST_WORD: Final = re.compile(r"(\S+)(?:[ \t]+(.*))?")
_COMMAND_PIECE: Final = re.compile(r"\\[\\%]|%|.")
_INPUT_PIECE: Final = re.compile(r"\\%|%")
_KEY_DIGITS: Final = 32


@dataclass(frozen=True, kw_only=True)
class Note:
    """What whoever imports a crontab should know about one of its lines, counted from 1."""

    line: int
    field: str
    value: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A line that runs something.

    `key` is made of what the line says, not of where it stands: importing a file again finds the
    same keys, whatever else was edited in between. Lines that say exactly the same are told
    apart by their order.
    """

    line: int
    expression: str
    timezone: str
    command: str
    stdin: str | None
    environment: tuple[tuple[str, str], ...]
    """Sorted by name."""
    key: str = ""

    @property
    def schedule(self) -> Schedule:
        """When the line is due."""
        return parse(cron=self.expression, timezone=self.timezone, dialect="unix")


@dataclass(frozen=True, kw_only=True)
class Crontab:
    """A crontab, read: every active line is a setting, an entry or a problem."""

    entries: tuple[Entry, ...]
    problems: tuple[Note, ...]
    """Lines that make no job."""
    ignored: tuple[Note, ...]
    """What the jobs are made without: the users of a system crontab."""


def parse_crontab(
    text: str, *, timezone: str = "UTC", has_user_column: bool | None = None, path: str = ""
) -> Crontab:
    """A crontab's entries, and notes on the lines that are none.

    `timezone` holds until a `CRON_TZ` line. Without `has_user_column` the path tells: files in
    a `cron.d` folder and `/etc/crontab` name a user before the command. An unknown `timezone` is
    Rejected; nothing in the text is.
    """
    zone = PINNED.zone(timezone).name
    users = is_system_crontab(path) if has_user_column is None else has_user_column
    reader = _Reader(timezone=zone, has_user_column=users)
    read = list(reader.lines(text))
    return Crontab(
        entries=tuple(_with_keys(each for each in read if isinstance(each, Entry))),
        problems=tuple(each for each in read if isinstance(each, Note)),
        ignored=tuple(reader.ignored),
    )


def is_system_crontab(path: str) -> bool:
    """Whether cron reads a user before the command of each line of that file."""
    folder, _, name = path.rpartition("/")
    parent = folder.rpartition("/")[2]
    return parent == "cron.d" or (parent == "etc" and name == "crontab")


class _Unreadable(Exception):
    """One line makes no job."""

    def __init__(self, field: str, value: str, reason: str) -> None:
        super().__init__(reason)
        self.field = field
        self.value = value
        self.reason = reason


@dataclass(kw_only=True)
class _Reader:
    """What the lines read so far have set for those below them."""

    timezone: str
    has_user_column: bool
    environment: dict[str, str] = field(default_factory=dict)
    ignored: list[Note] = field(default_factory=list)
    bad_zone: str | None = None
    """The value of the last CRON_TZ, if it is no zone."""

    def lines(self, text: str) -> Iterator[Entry | Note]:
        for number, raw in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
            line = raw.rstrip("\r").lstrip(" \t")
            if not line.strip() or line.startswith("#"):
                continue
            try:
                if setting := _SETTING.fullmatch(line):
                    self._set(setting)
                else:
                    yield self._entry(number, line)
            except _Unreadable as why:
                yield Note(line=number, field=why.field, value=why.value, reason=why.reason)

    def _set(self, setting: re.Match[str]) -> None:
        name, text = setting[1] or setting[2] or setting[3], setting[4].rstrip()
        if name == "CRON_TZ":
            self.bad_zone = text  # until it has proved good
            self.timezone = _zone(_value(name, text))
            self.bad_zone = None
        else:
            self.environment[name] = _value(name, text)

    def _entry(self, number: int, line: str) -> Entry:
        expression, rest = _split(line)
        user, rest = _user(rest) if self.has_user_column else ("", rest)
        command, stdin = _command(rest)
        if self.bad_zone is not None:
            raise _Unreadable("timezone", self.bad_zone, "the CRON_TZ above it is no zone")
        _check(expression, self.timezone)
        if user:
            reason = "jobs run as whoever the worker runs as"
            self.ignored.append(Note(line=number, field="user", value=user, reason=reason))
        return Entry(
            line=number,
            expression=expression,
            timezone=self.timezone,
            command=command,
            stdin=stdin,
            environment=tuple(sorted(self.environment.items())),
        )


def _value(name: str, text: str) -> str:
    """A setting's value without its quotes; unquoted text has lost the blanks at its ends."""
    if text[:1] in {'"', "'"}:
        quoted = _QUOTED.fullmatch(text)
        if quoted is None:
            raise _Unreadable(name, text, "a quote is not closed, or something follows it")
        return quoted[1] if quoted[1] is not None else quoted[2]
    if not text:
        raise _Unreadable(name, text, 'an empty value is written ""')
    return text


def _zone(name: str) -> str:
    try:
        return PINNED.zone(name).name
    except Rejected as refused:
        raise _Unreadable("CRON_TZ", name, refused.reason) from refused


def _split(line: str) -> tuple[str, str]:
    timed = _TIMED.fullmatch(line)
    if timed is None:
        reason = "neither NAME=value nor five fields and a command"
        raise _Unreadable("line", line, reason)
    return " ".join(timed[1].split()), timed[2] or ""


def _user(rest: str) -> tuple[str, str]:
    word = _FIRST_WORD.fullmatch(rest)
    if word is None:
        raise _Unreadable("user", rest, "no user and no command")
    return word[1], word[2] or ""


def _command(text: str) -> tuple[str, str | None]:
    """The command up to the first bare `%`, and what follows it as lines of standard input."""
    if not text.strip():
        raise _Unreadable("command", text, "no command")
    if "\0" in text:
        raise _Unreadable("command", text, "has a null character")
    command, stdin = "", None
    for piece in _COMMAND_PIECE.finditer(text):
        if piece[0] == "%":
            stdin = text[piece.end() :]
            break
        command += piece[0][-1]
    return command, _input(stdin) if stdin else None


def _input(text: str) -> str:
    lines = _INPUT_PIECE.sub(lambda piece: "%" if piece[0] == r"\%" else "\n", text)
    return lines if lines.endswith("\n") else lines + "\n"


def _check(expression: str, timezone: str) -> None:
    try:
        parse(cron=expression, timezone=timezone, dialect="unix")
    except Rejected as refused:
        raise _Unreadable(refused.field, str(refused.value), refused.reason) from refused


def _with_keys(entries: Iterable[Entry]) -> Iterator[Entry]:
    seen: Counter[str] = Counter()
    for entry in entries:
        said = json.dumps(
            [entry.expression, entry.timezone, entry.command, entry.stdin, entry.environment]
        )
        seen[said] += 1
        digest = sha256(f"{seen[said]}\n{said}".encode()).hexdigest()
        yield replace(entry, key=f"crontab-{digest[:_KEY_DIGITS]}")
