"""Crontabs as Debian's cron reads them: lines in; jobs, and what could not be one, out.

The rules are those of crontab(5) and, where it is silent, of what Debian's cron does: an empty
value needs quotes, and `\\\\` in a command is one backslash. What differs: `CRON_TZ` names the
zone of the lines below it, and a line that cannot be read does not spoil the rest.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Final

from lamplighter.core.errors import Rejected
from lamplighter.core.schedule import Schedule, parse

_SETTING: Final = re.compile(r"""(?:"([^"]*)"|'([^']*)'|([^\s="']+))\s*=\s*(.*)""")
_QUOTED: Final = re.compile(r"""(?:"([^"]*)"|'([^']*)')""")
_FIELDS: Final = re.compile(r"(@\S+|(?:\S+[ \t]+){4}\S+)(?:[ \t]+(.*))?")
_USER: Final = re.compile(r"(\S+)(?:[ \t]+(.*))?")
_COMMAND_PIECE: Final = re.compile(r"\\[\\%]|%|.", re.DOTALL)
_INPUT_PIECE: Final = re.compile(r"\\%|%")
_KEY_HEX_DIGITS: Final = 32
_ZONE: Final = "CRON_TZ"


@dataclass(frozen=True, kw_only=True)
class Note:
    """Something about one line that whoever imports it should know."""

    line: int
    field: str
    value: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One line that runs something.

    `key` is made of what the line says, not of where it stands: importing a file again finds
    the same keys, whatever else was edited in between. Lines that say exactly the same are
    told apart by their order.
    """

    line: int
    expression: str
    timezone: str
    command: str
    stdin: str | None
    environment: tuple[tuple[str, str], ...]
    key: str = ""

    @property
    def schedule(self) -> Schedule:
        """When the line is due."""
        return parse(cron=self.expression, timezone=self.timezone, dialect="unix")


@dataclass(frozen=True, kw_only=True)
class Crontab:
    """A crontab, read: each line that is not blank or a comment is in one of these, or a setting."""

    entries: tuple[Entry, ...]
    problems: tuple[Note, ...]
    """Lines that make no job."""
    ignored: tuple[Note, ...]
    """What jobs are made without: the users of a system crontab."""


@dataclass
class _Reader:
    """What the lines so far have set."""

    timezone: str | None
    default_timezone: str
    has_user_column: bool
    environment: dict[str, str] = field(default_factory=dict)
    ignored: list[Note] = field(default_factory=list)
