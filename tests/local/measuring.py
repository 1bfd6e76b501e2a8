"""What a promise is measured with: a scheduler as its user has it, and a verdict for each promise.

Everything goes through HTTP on 127.0.0.1.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import httpx

from tests.local.product import Product

FINAL: Final = {"SUCCEEDED", "FAILED", "DEAD_LETTERED", "CANCELLED", "SKIPPED", "EXPIRED"}
LOOK_EVERY_S: Final = 0.25

Execution = Mapping[str, object]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One promise: whether it was kept, and the figure."""

    promise: str
    kept: bool
    figure: str


@dataclass(frozen=True, kw_only=True)
class Scheduler:
    """What a user does."""

    product: Product
    client: httpx.Client

    def create(self, task: str, payload: object, **fields: object) -> str:
        answer = self.client.post("/v1/jobs", json={"task": task, "payload": payload, **fields})
        answer.raise_for_status()
        return str(answer.json()["job_id"])

    def executions(self, job_id: str) -> Sequence[Execution]:
        answer = self.client.get(f"/v1/jobs/{job_id}/executions")
        answer.raise_for_status()
        items: Sequence[Execution] = answer.json()["items"]
        return items

    def ended(self, job_id: str, *, within: timedelta) -> Execution:
        """The job's only execution, ended or not when the time is over."""
        until(lambda: self._is_ended(job_id), within)
        return self.executions(job_id)[0]

    def running(self, job_id: str, *, within: timedelta) -> None:
        until(lambda: self.executions(job_id)[0]["status"] == "RUNNING", within)

    def _is_ended(self, job_id: str) -> bool:
        return [execution["status"] in FINAL for execution in self.executions(job_id)] == [True]


def until(condition: Callable[[], bool], within: timedelta) -> bool:
    """Whether it came to be true in time."""
    deadline = time.monotonic() + within.total_seconds()
    while not (is_true := condition()) and time.monotonic() < deadline:
        time.sleep(LOOK_EVERY_S)
    return is_true


def told(verdicts: Iterator[Verdict]) -> list[Verdict]:
    """Print each as soon as it is there."""
    said = []
    for verdict in verdicts:
        print(
            f"{'kept  ' if verdict.kept else 'BROKEN'} {verdict.promise}: {verdict.figure}",
            flush=True,
        )
        said.append(verdict)
    return said


def ahead(duration: timedelta) -> str:
    """An instant so far from now, as the API reads it."""
    return (datetime.now(UTC) + duration).isoformat()


def instant(text: object) -> datetime:
    return datetime.fromisoformat(str(text))


def lateness(execution: Execution) -> int:
    """Measured on the two instants, not on what the service says of them."""
    if not execution["started_at"]:
        raise RuntimeError(f"not started: {execution}")
    late = instant(execution["started_at"]) - instant(execution["run_at"])
    return round(late / timedelta(milliseconds=1))


def attempts(execution: Execution) -> Sequence[Mapping[str, object]]:
    tries = execution["attempts"]
    return tries if isinstance(tries, list) else []
