"""What tries say of themselves, in a file that all of them append to.

A line is one write, so that lines of many processes never mix; what a process has written is
there after `kill -9`. Both clocks are the machine's: instants of different processes compare.
"""

import json
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from lamplighter import Context, Stopped

ALIVE_EVERY_S: Final = 0.5

What = Literal["begun", "alive", "returned", "raised", "stopped"]


@dataclass(frozen=True, kw_only=True)
class Page:
    """One try of one execution; its `id` is drawn anew for each call of a handler."""

    book: Path
    id: str
    execution: str
    attempt: int

    def write(self, what: What) -> None:
        line = {
            "what": what,
            "try": self.id,
            "execution": self.execution,
            "attempt": self.attempt,
            "pid": os.getpid(),
            "wall": time.time(),
            "monotonic": time.monotonic(),
        }
        file = os.open(self.book, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, f"{json.dumps(line)}\n".encode())
        finally:
            os.close(file)


@contextmanager
def page(book: str, ctx: Context) -> Iterator[Page]:
    """Begun, and then what became of it, unless the process dies before."""
    opened = Page(
        book=Path(book), id=uuid.uuid4().hex, execution=ctx.execution_id, attempt=ctx.attempt
    )
    opened.write("begun")
    try:
        yield opened
    except Stopped:
        opened.write("stopped")
        raise
    except Exception:
        opened.write("raised")
        raise
    opened.write("returned")
