"""What the functions log, as one line for each thing that happened to an execution.

The emulator writes a function's log when the call has ended: a job's start is shown together
with its end, under the time at which it was. An error is shown by its class alone: no log line
carries its message, which may quote a payload.
"""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from rich.console import Console
from rich.text import Text

from lamplighter.core.retry import Kind
from lamplighter.core.schedule import format_instant

# What somebody who waits for a job wants to see of telemetry's events: a word, and how it looks.
EVENTS: Final = {
    "started": ("started", "cyan"),
    "taken_over": ("taken over", "yellow"),
    "late_result_refused": ("late result", "yellow"),
    "recovered": ("recovered", "yellow"),
    "undeliverable": ("undeliverable", "yellow"),
    "hung": ("hung", "red"),
    "parked": ("parked", "yellow"),
}
ENDS: Final = {
    "SUCCEEDED": "green",
    "RETRYING": "yellow",
    "FAILED": "red",
    "DEAD_LETTERED": "red",
    "EXPIRED": "red",
}
OTHER_END: Final = "yellow"
PROBLEMS: Final = {"WARNING": "yellow", "ERROR": "red", "CRITICAL": "red"}
WHAT_CHARS: Final = 13
TASK_CHARS: Final = 20

Record = Mapping[str, object]


class Feed:
    """Picks the telling lines from the emulator's output, and shows them."""

    def __init__(self, terminal: Console) -> None:
        self._terminal = terminal
        self._crashes: dict[str, int] = {}
        """Of executions that have not ended; only a take-over's line tells."""

    def hear(self, line: str) -> None:
        if (shown := self.told(line)) is not None:
            self._terminal.print(shown)

    def told(self, line: str) -> Text | None:
        """A log line in a person's words; None for what is none of a function's, or no news."""
        record = _parsed(line)
        if record is None:
            return None
        event = str(record["message"])
        if event == "finished":
            state = str(record.get("state", ""))
            return self._execution(state, ENDS.get(state, OTHER_END), record)
        if event in EVENTS:
            return self._execution(*EVENTS[event], record)
        if (level := str(record["level"])) in PROBLEMS:
            why = str(record.get("exception", "")).rpartition("\n")[2]
            return Text(f"{_clock(record)} {event} {why}".rstrip(), PROBLEMS[level])
        return None

    def _execution(self, what: str, style: str, record: Record) -> Text:
        columns = (
            _clock(record),
            f"{what:<{WHAT_CHARS}}",
            str(record.get("execution_id", "")),
            f"{_cut(str(record.get('task', ''))):<{TASK_CHARS}}",
            _details({**record, "number": self._number(record)}),
        )
        return Text(" ".join(columns).rstrip(), style)

    def _number(self, record: Record) -> int | None:
        """The try that began or ended, as the API numbers them: those that died count.

        `attempt` is that of the retry policy: it counts no crash, and after a failure that is
        tried again it is the next one.
        """
        id, attempt = str(record.get("execution_id")), record.get("attempt")
        if isinstance(crashes := record.get("crashes"), int):
            self._crashes[id] = crashes
        if not isinstance(attempt, int):
            return None
        number = attempt + self._crashes.get(id, 0)
        if record["message"] != "finished":
            return number
        if record.get("state") == "RETRYING":
            return number - 1 or None
        self._crashes.pop(id, None)
        # Ended without another try: by the crash that was one too many, or before any.
        is_tried = record.get("run_ms") is not None and record.get("error_kind") != Kind.LOST_LEASE
        return number if is_tried else number - 1 or None


def _parsed(line: str) -> Record | None:
    """A line of a function's logger; its metrics are JSON too, and have no level."""
    if not line.startswith("{"):
        return None
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if {"level", "message", "timestamp"} <= record.keys() else None


def _details(record: Record) -> str:
    """Only what the event has."""
    words = {
        "number": "attempt {}",
        "lateness_ms": "{} ms late",
        "run_ms": "ran {} ms",
        "error_type": "{}",
        "retry_at": "again at {}",
        "crashes": "crash {}",
        "reason": "{}",
        "count": "{} times",
    }
    shown = {**record, "retry_at": _instant(record.get("retry_at"))}
    return ", ".join(
        text.format(shown[field]) for field, text in words.items() if shown.get(field) is not None
    )


def _instant(text: object) -> object:
    """As the API writes one; what is none, in a line that looks like ours, as it is."""
    try:
        return format_instant(datetime.fromisoformat(text)) if isinstance(text, str) else text
    except ValueError:
        return text


def _cut(name: str) -> str:
    return name if len(name) <= TASK_CHARS else name[: TASK_CHARS - 1] + "…"


def _clock(record: Record) -> str:
    """The time of day of `2026-07-12 02:05:00,123+0000`: functions go by UTC, as in Lambda."""
    return f"{str(record['timestamp'])[11:23].replace(',', '.')}Z"
