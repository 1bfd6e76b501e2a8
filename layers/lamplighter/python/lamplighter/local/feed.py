"""What the functions log, as one line for each thing that happened to an execution.

The emulator writes a function's log when the call has ended: a job's start is shown together
with its end, under the time at which it was.
"""

import json
from collections.abc import Mapping
from typing import Final

from rich.console import Console
from rich.text import Text

# What somebody who waits for a job wants to see of telemetry's events; and how it looks.
STYLES: Final = {
    "started": "cyan",
    "finished": "green",
    "taken_over": "yellow",
    "late_result_refused": "yellow",
    "recovered": "yellow",
    "undeliverable": "yellow",
    "hung": "red",
}
ENDED_BADLY: Final = {"FAILED", "DEAD_LETTERED", "EXPIRED"}
PROBLEMS: Final = {"WARNING": "yellow", "ERROR": "red", "CRITICAL": "red"}

Record = Mapping[str, object]


class Feed:
    """Picks the telling lines from the emulator's output, and shows them."""

    def __init__(self, terminal: Console) -> None:
        self._terminal = terminal

    def hear(self, line: str) -> None:
        if (shown := told(line)) is not None:
            self._terminal.print(shown)


def told(line: str) -> Text | None:
    """A log line in a person's words; None for what is none of a function's, or no news."""
    record = _parsed(line)
    if record is None:
        return None
    event = str(record["message"])
    if event in STYLES:
        return _execution(event, record)
    if record["level"] in PROBLEMS:
        why = str(record.get("exception", "")).rpartition("\n")[2]
        return Text(f"{_clock(record)} {event} {why}".rstrip(), PROBLEMS[str(record["level"])])
    return None


def _parsed(line: str) -> Record | None:
    """A line of a function's logger; its metrics are JSON too, and have no level."""
    if not line.startswith("{"):
        return None
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if {"level", "message", "timestamp"} <= record.keys() else None


def _execution(event: str, record: Record) -> Text:
    state = str(record.get("state", ""))
    what, style = event.replace("_", " "), STYLES[event]
    if event == "finished":
        what, style = state, "red" if state in ENDED_BADLY else style
    words = [f"{what:<13}", f"{record.get('task', ''):<10}", str(record.get("execution_id", ""))]
    return Text(f"{_clock(record)} {' '.join(words)}  {_details(record)}".rstrip(), style)


def _details(record: Record) -> str:
    """Only what the event has."""
    words = {
        "attempt": "attempt {}",
        "lateness_ms": "{} ms late",
        "run_ms": "ran {} ms",
        "error_type": "{}",
        "retry_at": "again at {}",
        "crashes": "crash {}",
        "reason": "{}",
        "count": "{} times",
    }
    return ", ".join(
        text.format(record[field]) for field, text in words.items() if record.get(field) is not None
    )


def _clock(record: Record) -> str:
    """The time of day of `2026-07-12 02:05:00,123+0000`."""
    return str(record["timestamp"])[11:23].replace(",", ".")
