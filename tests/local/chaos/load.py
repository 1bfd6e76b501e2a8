"""A client that goes on submitting, changing and cancelling whatever happens to the stack.

What it was told stands in its accounts; an answer that never came is asked for again, with the same
key. What it does is drawn from the seed; when, and what it is answered, is not.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from random import Random
from threading import Event
from typing import Final, TypeVar

from lamplighter.client import Client, Document, NotReached, Refused
from lamplighter.core.limits import LOOK_AHEAD, MARGIN

T = TypeVar("T")

LANES: Final = ("default", "critical", "bulk")
SUBMIT_EVERY_S: Final = 0.8
MEDDLE_EVERY_S: Final = 2.5
ASK_FOR: Final = timedelta(minutes=3)
# A service, or the door, that did not answer in time or is starting; all else is an answer.
NO_ANSWERS: Final = {429, 500, 502, 503, 504}
QUICK: Final = {"max_attempts": 12, "base_seconds": 1, "factor": 1.5, "max_seconds": 5}
BEYOND_THE_LINE: Final = (LOOK_AHEAD + MARGIN).total_seconds()
RECURRING: Final[Mapping[str, tuple[str, float]]] = {
    "ALLOW": ("5 seconds", 0.2),
    "SKIP": ("7 seconds", 5),
    "BUFFER_ONE": ("6 seconds", 1),
    "BUFFER_ALL": ("10 seconds", 3),
    "CANCEL_OTHER": ("12 seconds", 8),
}
"""By overlap policy: how often, and how long a run takes."""


@dataclass(frozen=True, kw_only=True)
class Accepted:
    """A job that was answered with 201."""

    job: str
    number: int
    overlap: str | None = None
    """None: a one-off."""


@dataclass(kw_only=True)
class Accounts:
    """What the client was told."""

    accepted: list[Accepted] = field(default_factory=list)
    cancels: set[str] = field(default_factory=set)
    """Jobs of which a cancel was asked for, answered or not."""
    cancelled_at: dict[str, float] = field(default_factory=dict)
    """By execution: the instant of the answer that it will not run."""
    done: dict[str, int] = field(default_factory=dict)
    """How many of what it did were answered."""
    asked_again: int = 0
    unanswered: int = 0

    def count(self, what: str) -> None:
        self.done[what] = self.done.get(what, 0) + 1


class Load:
    """Two threads call it, `submit` and `meddle`, each with chances of its own."""

    def __init__(self, client: Client, *, book: Path, seed: int) -> None:
        self.accounts = Accounts()
        self._client = client
        self._book = book
        self._seed = seed
        self._submitting = Random(f"{seed} submit")
        self._meddling = Random(f"{seed} meddle")
        self._number = 0

    def begin(self) -> None:
        """The recurring jobs, before anything goes wrong."""
        for overlap, (rate, seconds) in RECURRING.items():
            self._create({"rate": rate, "overlap_policy": overlap}, seconds=seconds)

    def submit(self, stop: Event, *, far_until: float) -> None:
        """One-offs until it is told to stop; ones beyond the line until then (monotonic)."""
        chance = self._submitting
        while not stop.wait(SUBMIT_EVERY_S):
            far = chance.random() < 0.2 and time.monotonic() < far_until
            ahead = BEYOND_THE_LINE + chance.uniform(1, 15) if far else chance.uniform(0, 30)
            fields = {
                "run_at": (datetime.now(UTC) + timedelta(seconds=ahead)).isoformat(),
                "queue": chance.choice(LANES),
                "retry_policy": QUICK,
                "timeout_seconds": 120,
            }
            long = chance.random() < 0.06
            seconds = chance.uniform(30, 50) if long else chance.uniform(0.1, 4)
            failures = chance.choice((0, 0, 0, 1, 2))
            self._create(fields, seconds=round(seconds, 1), failures=0 if long else failures)

    def meddle(self, stop: Event) -> None:
        """Cancel, move, trigger, pause and edit until it is told to stop."""
        verbs = (self._cancel, self._cancel, self._move, self._trigger, self._edit, self._pause)
        while not stop.wait(MEDDLE_EVERY_S):
            self._meddling.choice(verbs)()

    def end(self) -> None:
        """No more slots."""
        for one in self._recurring():
            self._answered("paused", partial(self._client.pause, one.job))

    def _create(self, fields: Document, *, seconds: float, failures: int = 0) -> None:
        self._number += 1
        number = self._number
        payload = {
            "book": str(self._book),
            "seconds": seconds,
            "failures": failures,
            "number": number,
        }
        body = {"task": "witness", "payload": payload, **fields}
        key = f"{self._seed}/{number}"
        made = self._answered("created", lambda: self._client.create(body, key=key))
        if made is not None:
            self.accounts.accepted.append(
                Accepted(
                    job=made.job["job_id"], number=number, overlap=fields.get("overlap_policy")
                )
            )

    def _cancel(self) -> None:
        one = self._any(recurring=False)
        executions = self._answered("looked", lambda: [*self._client.executions(job=one.job)])
        if not executions:
            return
        id = executions[0]["execution_id"]
        self.accounts.cancels.add(one.job)
        answer = self._answered("cancelled", lambda: self._client.cancel(id))
        if answer is not None and answer["status"] == "CANCELLED":
            self.accounts.cancelled_at.setdefault(id, time.time())

    def _move(self) -> None:
        later = datetime.now(UTC) + timedelta(seconds=self._meddling.uniform(5, 25))
        self._patch(self._any(recurring=False), {"run_at": later.isoformat()}, "moved")

    def _edit(self) -> None:
        seconds = round(self._meddling.uniform(0.1, 6), 1)
        self._patch(self._any(recurring=True), {"payload": self._payload(seconds)}, "edited")

    def _payload(self, seconds: float) -> Document:
        return {"book": str(self._book), "seconds": seconds}

    def _patch(self, one: Accepted, patch: Document, what: str) -> None:
        self._answered(what, lambda: self._client.update(one.job, patch))

    def _trigger(self) -> None:
        self._number += 1
        key = f"{self._seed}/trigger/{self._number}"
        job = self._any(recurring=True).job
        self._answered("triggered", lambda: self._client.trigger(job, key=key))

    def _pause(self) -> None:
        job = self._any(recurring=True).job
        self._answered("paused", lambda: self._client.pause(job))
        self._answered("resumed", lambda: self._client.resume(job))

    def _any(self, *, recurring: bool) -> Accepted:
        """The later ones rather than those that have long ended."""
        found = self._recurring() if recurring else self.accounts.accepted[-30:]
        return self._meddling.choice(
            [one for one in found if (one.overlap is not None) == recurring] or self._recurring()
        )

    def _recurring(self) -> list[Accepted]:
        return [one for one in self.accounts.accepted if one.overlap is not None]

    def _answered(self, what: str, ask: Callable[[], T]) -> T | None:
        """The answer, however often it has to be asked for; None: there is none, or it is a no."""
        deadline = time.monotonic() + ASK_FOR.total_seconds()
        while time.monotonic() < deadline:
            try:
                answer = ask()
            except Refused as refused:
                if refused.status not in NO_ANSWERS:
                    self.accounts.count("refused")
                    return None
            except NotReached:
                pass
            else:
                self.accounts.count(what)
                return answer
            self.accounts.asked_again += 1
            time.sleep(0.5)
        self.accounts.unanswered += 1
        return None
