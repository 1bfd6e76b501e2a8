"""The first light, measured: `make accept` prints a figure for each promise, in eight minutes.

Everything goes through HTTP on 127.0.0.1, except the kill, which goes to a process of the run.
"""

import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import httpx

from tests.local.product import Product, await_ready, commands, descendants, run

FINAL = {"SUCCEEDED", "FAILED", "DEAD_LETTERED", "CANCELLED", "SKIPPED", "EXPIRED"}
BURST = 20
FAR = timedelta(minutes=6)
ON_TIME_MS = 2_000
FIRST_ON_TIME_MS = 5_000

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
        self._until(lambda: self._is_ended(job_id), within)
        return self.executions(job_id)[0]

    def running(self, job_id: str, *, within: timedelta) -> None:
        self._until(lambda: self.executions(job_id)[0]["status"] == "RUNNING", within)

    def _is_ended(self, job_id: str) -> bool:
        return [execution["status"] in FINAL for execution in self.executions(job_id)] == [True]

    def _until(self, condition: Callable[[], bool], within: timedelta) -> None:
        deadline = time.monotonic() + within.total_seconds()
        while not condition() and time.monotonic() < deadline:
            time.sleep(0.25)


def first_job(scheduler: Scheduler) -> Iterator[Verdict]:
    job = scheduler.create("echo", "first", run_at=_in(timedelta(seconds=5)))
    late = _lateness(scheduler.ended(job, within=timedelta(seconds=30)))
    yield Verdict(
        promise="the very first job, 5 s ahead, starts within 5 s and not before",
        kept=0 <= late < FIRST_ON_TIME_MS,
        figure=f"{late} ms late",
    )


def burst(scheduler: Scheduler) -> Iterator[Verdict]:
    jobs = [scheduler.create("echo", n, run_at=_in(timedelta(seconds=5))) for n in range(BURST)]
    late = sorted(_lateness(scheduler.ended(job, within=timedelta(seconds=30))) for job in jobs)
    on_time = sum(0 <= ms <= ON_TIME_MS for ms in late)
    yield Verdict(
        promise=f"of {BURST} jobs due 5 s ahead none starts early, 95 % within 2 s",
        kept=late[0] >= 0 and on_time >= 0.95 * BURST,
        figure=f"{late[0]} to {late[-1]} ms late, {on_time} within 2 s",
    )


def same_second(scheduler: Scheduler) -> Iterator[Verdict]:
    run_at = _in(timedelta(seconds=6))
    jobs = [scheduler.create("echo", n, run_at=run_at) for n in range(BURST)]
    late = sorted(_lateness(scheduler.ended(job, within=timedelta(seconds=30))) for job in jobs)
    on_time = sum(0 <= ms <= ON_TIME_MS for ms in late)
    yield Verdict(
        promise=f"the same with all {BURST} due at one instant",
        kept=late[0] >= 0 and on_time >= 0.95 * BURST,
        figure=f"{late[0]} to {late[-1]} ms late, {on_time} within 2 s",
    )


def flaky(scheduler: Scheduler) -> Iterator[Verdict]:
    quick = {"max_attempts": 3, "base_seconds": 1, "factor": 2, "max_seconds": 10}
    recovers = scheduler.create("flaky", {"failures": 2}, retry_policy=quick)
    never = scheduler.create("flaky", {"failures": 9}, retry_policy=quick)
    for promise, job, status in (
        ("flaky succeeds at its third attempt", recovers, "SUCCEEDED"),
        ("flaky that never succeeds is dead-lettered after three", never, "DEAD_LETTERED"),
    ):
        execution = scheduler.ended(job, within=timedelta(seconds=60))
        attempts = _attempts(execution)
        errors = [bool(attempt["error"]) for attempt in attempts]
        yield Verdict(
            promise=f"{promise}, each with its time and error",
            kept=execution["status"] == status
            and errors == [True, True, status != "SUCCEEDED"]
            and all(attempt["started_at"] for attempt in attempts),
            figure=f"{execution['status']}; started {_seconds_apart(attempts)}",
        )


def crash(scheduler: Scheduler) -> Iterator[Verdict]:
    begun = time.monotonic()
    job = scheduler.create("crash", {"by": "kill"}, queue="bulk")
    execution = scheduler.ended(job, within=timedelta(minutes=4))
    yield Verdict(
        promise="a job that kills its process each time is given up, and its lane lives",
        kept=execution["status"] == "DEAD_LETTERED",
        figure=f"{execution['status']} after {time.monotonic() - begun:.0f} s, "
        f"{len(_attempts(execution))} tries",
    )


def killed(scheduler: Scheduler) -> Iterator[Verdict]:
    begun = time.monotonic()
    job = scheduler.create("sleep", {"seconds": 8}, queue="critical")
    scheduler.running(job, within=timedelta(seconds=20))
    workers = _workers(scheduler.product, "CriticalWorker")
    for worker in workers:
        os.kill(worker, signal.SIGKILL)
    execution = scheduler.ended(job, within=timedelta(minutes=3))
    yield Verdict(
        promise="a job whose worker is killed in mid-job is done by another attempt",
        kept=bool(workers) and execution["status"] == "SUCCEEDED",
        figure=f"{execution['status']} {time.monotonic() - begun:.0f} s after it was created, "
        f"{len(_attempts(execution))} tries",
    )


def long_job(scheduler: Scheduler) -> Iterator[Verdict]:
    job = scheduler.create("sleep", {"seconds": 70}, timeout_seconds=120)
    execution = scheduler.ended(job, within=timedelta(minutes=3))
    yield Verdict(
        promise="a job of 70 s keeps its lease, and runs once",
        kept=execution["status"] == "SUCCEEDED" and len(_attempts(execution)) == 1,
        figure=f"{execution['status']}, {len(_attempts(execution))} tries",
    )


def every_minute(scheduler: Scheduler) -> Iterator[Verdict]:
    job = scheduler.create("echo", "tick", rate="1 minute")
    time.sleep(4 * 60)
    ended = [e for e in scheduler.executions(job) if e["status"] == "SUCCEEDED"]
    slots = sorted(_instant(execution["run_at"]) for execution in ended)
    gaps = [(later - earlier).total_seconds() for earlier, later in pairwise(slots)]
    late = [_lateness(execution) for execution in ended]
    yield Verdict(
        promise="rate(1 minute) runs on each of three consecutive minutes",
        kept=len(slots) >= 3 and set(gaps) == {60.0} and min(late) >= 0,
        figure=f"{len(slots)} runs, {gaps} s apart, {sorted(late)} ms late",
    )
    scheduler.client.delete(f"/v1/jobs/{job}").raise_for_status()


def far_ahead(scheduler: Scheduler) -> Iterator[Verdict]:
    jobs = [scheduler.create("echo", n, run_at=_in(FAR)) for n in range(5)]
    late = [_lateness(scheduler.ended(job, within=FAR + timedelta(seconds=30))) for job in jobs]
    yield Verdict(
        promise="jobs 6 minutes out come through the dispatcher within 2 s",
        kept=all(0 <= ms <= ON_TIME_MS for ms in late),
        figure=f"{sorted(late)} ms late",
    )


def main() -> int:
    with tempfile.TemporaryDirectory() as folder, run(Path(folder)) as product:
        await_ready(product)
        print(f"ready after {product.ready_after_s:.1f} s, from nothing but the set-up")
        with product.client() as client, ThreadPoolExecutor() as side_by_side:
            scheduler = Scheduler(product=product, client=client)
            verdicts = _told(first_job(scheduler))
            long = [
                side_by_side.submit(_told, check(scheduler))
                for check in (far_ahead, every_minute, long_job, killed, crash)
            ]
            for check in (burst, same_second, flaky, burst):
                verdicts += _told(check(scheduler))
            for done in long:
                verdicts += done.result()
    return 0 if all(verdict.kept for verdict in verdicts) else 1


def _told(verdicts: Iterator[Verdict]) -> list[Verdict]:
    said = []
    for verdict in verdicts:
        print(
            f"{'kept  ' if verdict.kept else 'BROKEN'} {verdict.promise}: {verdict.figure}",
            flush=True,
        )
        said.append(verdict)
    return said


def _workers(product: Product, function: str) -> list[int]:
    """The processes of a function; their folder has its name."""
    return [
        pid
        for pid in descendants(product.process.pid)
        if any(function in line for line in commands({pid}))
    ]


def _in(ahead: timedelta) -> str:
    return (datetime.now(UTC) + ahead).isoformat()


def _instant(text: object) -> datetime:
    return datetime.fromisoformat(str(text))


def _lateness(execution: Execution) -> int:
    """Measured on the two instants, not on what the service says of them."""
    if not execution["started_at"]:
        raise RuntimeError(f"not started: {execution}")
    late = _instant(execution["started_at"]) - _instant(execution["run_at"])
    return round(late / timedelta(milliseconds=1))


def _attempts(execution: Execution) -> Sequence[Mapping[str, object]]:
    attempts = execution["attempts"]
    return attempts if isinstance(attempts, list) else []


def _seconds_apart(attempts: Sequence[Mapping[str, object]]) -> str:
    starts = [_instant(attempt["started_at"]) for attempt in attempts]
    gaps = [later - earlier for earlier, later in pairwise(starts)]
    return " and ".join(f"{gap.total_seconds():.1f} s" for gap in gaps) + " apart"


if __name__ == "__main__":
    sys.exit(main())
